"""Kafka for real: a broker on loopback, two topics of several partitions joined by `streamjoin run` into a third.

The broker (KRaft, one node), its tools and Spark's connector are jars from Maven Central, fetched once by the Ivy
that comes with Spark, into the user's cache folder. Without that cache and without a network there is nothing to
test with.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import streamjoin as sj
from streamjoin.spark.job.session import find_java

pytestmark = pytest.mark.slow  # a broker, its tools and a Spark of its own are seven JVMs

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamjoin" / "jars"
SPARK_JARS = Path(pyspark.__file__).parent / "jars"
PARTITIONS, ROWS = 3, 300
Module = tuple[str, str, str]
BROKER: tuple[Module, ...] = (("org.apache.kafka", "kafka_2.13", "4.1.2"),)
TOOLS: tuple[Module, ...] = (("org.apache.kafka", "kafka-tools", "4.1.2"),)
# The connector of the installed Spark. Mirrors can lag behind; an older connector reads and writes just the same.
CONNECTOR: tuple[Module, ...] = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__),)
OLDER_CONNECTOR: tuple[Module, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
# What decodes Avro. An older one decodes just the same.
AVRO: tuple[Module, ...] = (("org.apache.spark", "spark-avro_2.13", pyspark.__version__),)
OLDER_AVRO: tuple[Module, ...] = (("org.apache.spark", "spark-avro_2.13", "4.1.1"),)
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir="{cache}/ivy"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
SERVER_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
num.partitions={partitions}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""
JOB = """
[join]
on = "left.k = right.k AND left.price BETWEEN right.bid AND right.ask"
window = {{ left = "30 seconds", right = "10 seconds" }}
lateness = "1 hour"

[left]
schema = "ts TIMESTAMP, k STRING, price BIGINT"
[left.source]
kind = "kafka"
servers = "{server}"
topics = "trades"
max_rows = 150
malformed = "drop"

[right]
schema = "ts TIMESTAMP, k STRING, bid BIGINT, ask BIGINT"
[right.source]
kind = "kafka"
servers = "{server}"
pattern = "quot.*"
max_rows = 150

[sink]
kind = "kafka"
servers = "{server}"
topic = "matches"
key = "k"

[run]
checkpoint = "checkpoint"
trigger = "available-now"

[spark]
master = "local[2]"
[spark.settings]
"spark.jars" = "{jars}"
"""
TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"ts": TIME, "k": pa.string(), "price": pa.int64()})
RIGHT = pa.schema({"ts": TIME, "k": pa.string(), "bid": pa.int64(), "ask": pa.int64()})


def java(classes: str) -> list[str]:
    return [str(find_java() / "bin" / "java"), "-Xmx512m", "-cp", classes]


def fetch(modules: tuple[Module, ...], name: str, transitive: bool = True) -> list[Path]:
    """The jars of the modules, from the cache or else from Maven Central; empty if they are not available."""
    folder = CACHE / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "ivysettings.xml"
        settings.write_text(IVY_SETTINGS.format(cache=CACHE))
        ivy = str(next(SPARK_JARS.glob("ivy-*.jar")))
        for module in modules:
            command = [*java(ivy), "org.apache.ivy.Main", "-settings", str(settings), "-dependency", *module]
            command += ["-types", "jar", "bundle"]  # no sources, no documentation
            command += [] if transitive else ["-notransitive"]
            command += ["-retrieve", f"{folder}/[artifact]-[revision].[ext]"]
            if subprocess.run(command, capture_output=True, timeout=500).returncode:
                return []
        (folder / "complete").touch()
    return sorted(folder.glob("*.jar"))


def connector() -> list[Path]:
    """The connector's jars without those that Spark has itself."""
    jars = fetch(CONNECTOR, f"connector-{CONNECTOR[0][2]}")
    jars = jars or fetch(OLDER_CONNECTOR, f"connector-{OLDER_CONNECTOR[0][2]}", transitive=False)
    has = {jar.name.rsplit("-", 1)[0] for jar in SPARK_JARS.glob("*.jar")}
    return [jar for jar in jars if jar.name.rsplit("-", 1)[0] not in has]


def avro() -> list[Path]:
    """The jar that decodes Avro, without others: Spark has Avro itself."""
    jars = fetch(AVRO, f"avro-{AVRO[0][2]}", transitive=False)
    return jars or fetch(OLDER_AVRO, f"avro-{OLDER_AVRO[0][2]}", transitive=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Broker:
    """A broker at `server`, and Kafka's command-line tools."""

    server: str
    classes: str

    def tool(self, main: str, *arguments: str, text: str | None = None) -> str:
        command = [*java(self.classes), main, *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def produce(self, topic: str, rows: list[dict[str, Any]]) -> None:
        """One record a row, with its `k` as key, which chooses the partition."""
        lines = "".join(f"{row['k']}\t{json.dumps(row, default=str)}\n" for row in rows)
        server = ("--bootstrap-server", self.server, "--topic", topic)
        self.tool(
            "org.apache.kafka.tools.ConsoleProducer", *server, "--property", "parse.key=true", text=lines
        )

    def partitions(self, topic: str) -> list[int]:
        """How many records each partition of a topic holds."""
        server = ("--bootstrap-server", self.server, "--topic", topic)
        told = self.tool("org.apache.kafka.tools.GetOffsetShell", *server)
        return [int(line.rsplit(":", 1)[1]) for line in told.split()]

    def consume(self, topic: str, count: int) -> list[dict[str, Any]]:
        """`count` records of a topic, from its beginning."""
        limits = ("--from-beginning", "--max-messages", str(count))
        server = ("--bootstrap-server", self.server, "--topic", topic)
        told = self.tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *server, *limits)
        return [json.loads(line) for line in told.splitlines()]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    server_jars = fetch(BROKER, f"broker-{BROKER[0][2]}")
    tools = server_jars and fetch(TOOLS, f"tools-{TOOLS[0][2]}", transitive=False)
    if not tools or not connector():
        pytest.skip(f"Kafka's jars are not in {CACHE}, and Maven Central does not answer")
    classes, folder = f"{server_jars[0].parent}/*:{tools[0]}", tmp_path_factory.mktemp("kafka")
    port, controller = free_port(), free_port()
    settings = folder / "server.properties"
    settings.write_text(
        SERVER_PROPERTIES.format(port=port, controller=controller, folder=folder, partitions=PARTITIONS)
    )
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    told = Broker(f"127.0.0.1:{port}", classes)
    told.tool("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings))
    with (folder / "broker.log").open("wb") as log:
        server = subprocess.Popen([*java(classes), "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        wait_for(port, server)
        yield told
    finally:
        server.terminate()
        server.wait(timeout=60)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the port accepts connections; a broker that has ended never will."""
    while server.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.2)
    pytest.fail(f"the broker ended with code {server.returncode}")


def generate(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Trades and quotes of a dozen symbols within ten minutes."""
    values = random.Random(seed)
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def moments() -> list[datetime]:
        return sorted(start + timedelta(milliseconds=values.randrange(600_000)) for _ in range(ROWS))

    def symbol() -> str:
        return f"s{values.randrange(12)}"

    trades = [{"ts": at, "k": symbol(), "price": values.randrange(100)} for at in moments()]
    quotes = []
    for at in moments():
        bid = values.randrange(90)
        quotes.append({"ts": at, "k": symbol(), "bid": bid, "ask": bid + values.randrange(40)})
    return trades, quotes


def as_tuple(row: dict[str, Any]) -> tuple[Any, ...]:
    """A result row, its times as such: JSON has them as text."""
    return tuple(
        datetime.fromisoformat(value) if name.startswith("ts") and isinstance(value, str) else value
        for name, value in row.items()
    )


def test_topics_are_joined_into_a_topic(broker: Broker, tmp_path: Path) -> None:
    trades, quotes = generate(seed=7)
    broker.produce("trades", [*trades, {"k": "s1", "price": 5}])  # the last has no time
    broker.produce("quotes", quotes)
    assert len(broker.partitions("trades")) == PARTITIONS
    assert min(broker.partitions("trades") + broker.partitions("quotes")) > 0, "every partition has records"

    job = tmp_path / "job.toml"
    job.write_text(JOB.format(server=broker.server, jars=",".join(map(str, connector()))))
    command = [sys.executable, "-m", "streamjoin.cli", "run", str(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "job.spark.log").read_text()[-4000:]
    assert f"{2 * ROWS + 1:,} rows" in done.stdout
    assert ", 1 malformed" in done.stdout

    window = (sj.TimeWindow("30 seconds"), sj.TimeWindow("10 seconds"))
    on = "left.k = right.k AND left.price BETWEEN right.bid AND right.ask"
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts")
    truth = sj.oracle.join(pa.Table.from_pylist(trades, LEFT), pa.Table.from_pylist(quotes, RIGHT), spec)
    assert truth.num_rows > 10
    assert sum(broker.partitions("matches")) == truth.num_rows
    found = broker.consume("matches", truth.num_rows)
    assert Counter(map(as_tuple, found)) == Counter(map(as_tuple, truth.to_pylist()))


# Avro

TRADE = {
    "type": "record",
    "name": "Trade",
    "namespace": "market",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "k", "type": ["null", "string"]},
        {"name": "price", "type": "long"},
    ],
}
NOTHING = {"type": "record", "name": "Nothing", "fields": [{"name": "n", "type": ["null", "long"]}]}
CONFLUENT = bytes([0, 0, 0, 0, 17])
AVRO_JOB = JOB.replace(
    'schema = "ts TIMESTAMP, k STRING, price BIGINT"\n[left.source]',
    '[left.source]\nformat = "avro"\nschema = "trade.avsc"\navro_header = "confluent"\navro_ids = [16, 17]',
)
# Writes values, one in hexadecimal digits a line, to a topic.
WRITER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
jars, server, topic, values = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.jars", jars).getOrCreate()
rows = [(bytes.fromhex(line),) for line in Path(values).read_text().split()]
writer = spark.createDataFrame(rows, "value BINARY").write.format("kafka")
writer.option("kafka.bootstrap.servers", server).option("topic", topic).save()
"""


def varint(number: int) -> bytes:
    """A long, as Avro writes it: zigzag, seven bits a byte."""
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def encoded(trade: dict[str, Any]) -> bytes:
    """A trade as Avro."""
    micros = (trade["ts"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    key = varint(0) if trade["k"] is None else varint(1) + varint(len(trade["k"])) + trade["k"].encode()
    return varint(micros) + key + varint(trade["price"])


def test_topics_of_avro_are_joined(broker: Broker, tmp_path: Path) -> None:
    """Among the trades are one without a key, one that is cut off, one of another schema, and one that is text."""
    if not avro():
        pytest.skip(f"Spark's decoder of Avro is not in {CACHE}, and Maven Central does not answer")
    trades, quotes = generate(seed=8)
    keyless = {**trades[0], "k": None}
    wrong = [CONFLUENT + encoded(trades[0])[:-1], bytes([0, 0, 0, 0, 18]) + encoded(trades[0]), b"{}"]
    values = [*(CONFLUENT + encoded(trade) for trade in [*trades, keyless]), *wrong]
    (tmp_path / "values").write_text("\n".join(value.hex() for value in values))
    jars = ",".join(map(str, [*connector(), *avro()]))
    command = [sys.executable, "-c", WRITER, jars, broker.server, "avro-trades", str(tmp_path / "values")]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    broker.produce("avro-quotes", quotes)
    (tmp_path / "trade.avsc").write_text(json.dumps(TRADE))
    text = AVRO_JOB.format(server=broker.server, jars=jars).replace('"trades"', '"avro-trades"')
    text = text.replace('"quot.*"', '"avro-quot.*"').replace('"matches"', '"avro-matches"')
    (tmp_path / "job.toml").write_text(text)
    command = [sys.executable, "-m", "streamjoin.cli", "run", str(tmp_path / "job.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "job.spark.log").read_text()[-4000:]
    assert f"{2 * ROWS + 4:,} rows" in done.stdout and ", 3 malformed" in done.stdout
    window = (sj.TimeWindow("30 seconds"), sj.TimeWindow("10 seconds"))
    on = "left.k = right.k AND left.price BETWEEN right.bid AND right.ask"
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts")
    truth = sj.oracle.join(
        pa.Table.from_pylist([*trades, keyless], LEFT), pa.Table.from_pylist(quotes, RIGHT), spec
    )
    found = broker.consume("avro-matches", sum(broker.partitions("avro-matches")))
    assert Counter(map(as_tuple, found)) == Counter(map(as_tuple, truth.to_pylist()))
    # With malformed = "fail", the message names the value.
    strict = text.replace('malformed = "drop"', "").replace('"checkpoint"', '"another"')
    (tmp_path / "job.toml").write_text(strict)
    failed = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert failed.returncode == 1
    assert "topic avro-trades, partition " in failed.stdout + failed.stderr
    assert "a record that cannot be parsed with the schema" in failed.stdout + failed.stderr


# Decodes values in hexadecimal digits, without Kafka.
DECODER = """
import json, sys
from pyspark.sql import SparkSession
from streamjoin.spark.job.records import CORRUPT, parse_avro
jars, schema, confluent, *values = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.jars", jars).getOrCreate()
rows = spark.createDataFrame([(bytes.fromhex(value),) for value in values], "value BINARY")
for row in parse_avro(rows, json.loads(schema), confluent == "True", ()).collect():
    print("row", row[CORRUPT] is None, row[0])
"""


@pytest.mark.parametrize("confluent", [False, True])
def test_a_record_of_nulls_is_told_from_what_cannot_be_decoded(confluent: bool) -> None:
    if not avro():
        pytest.skip(f"Spark's decoder of Avro is not in {CACHE}, and Maven Central does not answer")
    header = CONFLUENT if confluent else b""
    values = [(header + value).hex() for value in (varint(0), varint(1) + varint(-3), varint(1), varint(2))]
    command = [sys.executable, "-c", DECODER, ",".join(map(str, avro())), json.dumps(NOTHING), str(confluent)]
    done = subprocess.run([*command, *values], capture_output=True, text=True, timeout=240)
    lines = [line for line in done.stdout.splitlines() if line.startswith("row")]
    assert lines == ["row True None", "row True -3", "row False None", "row False None"], done.stderr[-3000:]
