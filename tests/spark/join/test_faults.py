"""Faults: whatever is killed, deleted or torn, the sink ends up with the oracle's rows, none lost and none twice."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamjoin.spark.join.hot_keys import given_hot_keys, with_hot_keys
from streamjoin.spark.join.pack import in_utc
from streamjoin.spark.join.processor import JoinProcessor
from streamjoin.spark.window_join import assemble, make_task, spec_of, watermarked

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file

SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "x": pa.int32(), "id": pa.int64()})
ON = "abs(left.x - right.x) <= 1"
WINDOW = sj.TimeWindow("20 seconds")
SECOND = 1_000_000
BEGIN_OF_TIME = 1_700_000_000 * SECOND
RUN_FILES, ROWS = 6, 30


def write_input(folder: Path, seed: int) -> dict[str, pa.Table]:
    """Files of both sides, out of order by less than 3 seconds, and one last row that lets the watermark pass all."""
    rng = random.Random(seed)
    tables = {}
    for side in ("left", "right"):
        parts = []
        for number in range(RUN_FILES):
            seconds = sorted(5 * number + 5 * rng.random() + 3 * rng.random() for _ in range(ROWS))
            if number == RUN_FILES - 1:
                seconds = [10_000.0]
            parts.append(
                pa.table(
                    [
                        pa.array([BEGIN_OF_TIME + int(s * SECOND) for s in seconds], SCHEMA.field("ts").type),
                        pa.array([rng.randrange(12) for _ in seconds], pa.int32()),
                        pa.array([number * ROWS + k for k, _ in enumerate(seconds)], pa.int64()),
                    ],
                    schema=SCHEMA,
                )
            )
        (folder / side).mkdir(parents=True)
        for number, part in enumerate(parts):
            path = folder / side / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (BEGIN_OF_TIME // SECOND + number,) * 2)  # Spark reads files by age
        tables[side] = pa.concat_tables(parts)
    return tables


# What the queries join: how, keep.
JOINS: dict[str, tuple[Any, Any]] = {
    "left": ("left", "all"),
    "full": ("full", "all"),
    "as_of": ("left", sj.AsOf()),
    "nearest": ("inner", sj.Nearest("abs(left.x - right.x)", k=2)),
    "hot": ("left", "all"),
}
# Where they are not ON and no hot keys.
CONDITIONS = {"hot": "left.x = right.x"}
HOT_KEYS = {"hot": [3, 5, 11]}


def expected(tables: dict[str, pa.Table], join: str = "left") -> list[tuple[int | None, int | None]]:
    """The ids of the rows of a join. No two rows of a side have one time."""
    how, keep = JOINS[join]
    on = CONDITIONS.get(join, ON)
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, WINDOW, "ts", "ts", how, keep=keep)
    ids = {side: [*table["id"].to_pylist(), None] for side, table in tables.items()}
    rows = [
        (ids["left"][-1 if l is None else l], ids["right"][-1 if r is None else r])
        for _, l, r in sj.oracle.rows(tables["left"], tables["right"], spec)
    ]
    return final(rows)


def final(rows: Iterable[tuple[int | None, int | None]]) -> list[tuple[int | None, int | None]]:
    """Without the last rows, which are never final."""
    last = (RUN_FILES - 1) * ROWS
    return sorted((row for row in rows if last not in row), key=repr)


def joined(
    spark: SparkSession, folder: Path, processor: Any = JoinProcessor, join: str = "left"
) -> DataFrame:
    left, right = (
        spark.readStream.schema("ts TIMESTAMP, x INT, id BIGINT")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / side))
        for side in ("left", "right")
    )
    how, keep = JOINS[join]
    spec = spec_of(left, right, CONDITIONS.get(join, ON), WINDOW, "ts", "ts", how=how, keep=keep)
    partitioning: Any = "matrix" if how == "full" else "auto"
    task = make_task(spec, "any", "auto", partitioning, workers=2)
    task = with_hot_keys(task, given_hot_keys(task, HOT_KEYS.get(join, [])))
    return assemble(*watermarked(task, left, right, "4 seconds"), processor)


def start(result: DataFrame, folder: Path) -> Any:
    writer = result.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def written(spark: SparkSession, folder: Path) -> list[tuple[int | None, int | None]]:
    """What a reader of the sink sees; it goes by the sink's own log."""
    rows = spark.read.parquet(str(folder / "out")).select("id", "id_right").collect()
    return final((row[0], row[1]) for row in rows)


class Dying(JoinProcessor):
    """Kills its own process, once a marker, when results and state of a micro-batch are written and nothing is
    committed; and deletes the cache each time."""

    def __init__(self, task: Any, markers: str):
        super().__init__(task)
        self.markers = markers

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        yield from super().handleInputRows(key, rows, timerValues)
        shutil.rmtree(os.environ["STREAMJOIN_SPARK_CACHE_DIR"], ignore_errors=True)
        marker = Path(self.markers) / f"{key[0]}-{timerValues.getCurrentWatermarkInMs()}"
        if not marker.exists():
            marker.touch()
            self.die()

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class WithItsExecutor(Dying):
    """Kills the Java that started it, twice, from the second micro-batch on."""

    def die(self) -> None:
        folder = Path(self.markers)
        kills = len(list(folder.glob("kill-*")))
        if kills < 2 and len(list(folder.iterdir())) - kills > 2:  # two workers are in the first
            (folder / f"kill-{os.getpid()}").touch()
            next(each for each in psutil.Process().parents() if each.name() == "java").kill()


def killing(folder: Path, kind: type[Dying]) -> Any:
    """Processors that kill, with a folder for their markers."""
    (folder / "markers").mkdir(exist_ok=True)
    return lambda task: kind(task, str(folder / "markers"))


@pytest.mark.slow
def test_python_workers_die_in_every_micro_batch_and_the_cache_vanishes(spark, tmp_path):
    tables = write_input(tmp_path, seed=1)
    start(joined(spark, tmp_path, killing(tmp_path, Dying)), tmp_path).awaitTermination()
    assert len(list((tmp_path / "markers").iterdir())) >= RUN_FILES
    assert written(spark, tmp_path) == expected(tables)


@pytest.mark.slow
def test_the_last_commit_is_lost(spark, tmp_path):
    tables = write_input(tmp_path, seed=2)
    later = {}
    for side in ("left", "right"):
        (tmp_path / "later" / side).mkdir(parents=True)
        for path in sorted((tmp_path / side).iterdir())[3:]:
            later[path.rename(tmp_path / "later" / side / path.name)] = path
    start(joined(spark, tmp_path), tmp_path).awaitTermination()
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
    for hidden, path in later.items():
        hidden.rename(path)
    start(joined(spark, tmp_path), tmp_path).awaitTermination()
    assert written(spark, tmp_path) == expected(tables)


@pytest.mark.slow
def test_the_session_has_another_time_zone_after_a_restart(spark, tmp_path):
    """Instants are the same everywhere, so state and new rows go together; and the results are right in either."""
    tables = write_input(tmp_path, seed=5)
    later = [(path, path.with_name(f"_{path.name}")) for path in (tmp_path / "left").glob("[4-9]*")]
    for path, hidden in later:  # Spark does not look at names with an underscore
        path.rename(hidden)
    for zone in ("Asia/Kolkata", "America/New_York"):
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", zone)
        start(joined(session, tmp_path), tmp_path).awaitTermination()
        for path, hidden in later:
            if hidden.exists():
                hidden.rename(path)
    assert written(spark, tmp_path) == expected(tables)
    moments = spark.read.parquet(str(tmp_path / "out")).select("id", F.unix_micros("ts")).distinct().collect()
    assert (
        dict(map(tuple, moments)).items()
        <= dict(
            zip(
                tables["left"]["id"].to_pylist(),
                tables["left"]["ts"].cast(pa.int64()).to_pylist(),
                strict=True,
            )
        ).items()
    )


def test_instants_are_labelled_utc_inside_nested_types_too():
    kolkata, utc = (pa.timestamp("us", zone) for zone in ("Asia/Kolkata", "UTC"))

    def batch(kind: pa.DataType) -> pa.RecordBatch:
        struct = pa.struct([pa.field("t", kind, nullable=False), pa.field("l", pa.list_(kind))])
        columns = {
            "ts": pa.array([1], kind),
            "s": pa.array([{"t": 2, "l": [3, None]}], struct),
            "m": pa.array([[(4, 5)]], pa.map_(kind, kind)),
            "local": pa.array([6], pa.timestamp("us")),
        }
        for name, of in {"missing": kind, "variant": pa.binary()}.items():  # NULL, as Spark writes it
            field = pa.field("t", of, nullable=False, metadata={"a": "b"})
            columns[name] = pa.StructArray.from_arrays(
                [pa.array([None], of)], fields=[field], mask=pa.array([True])
            )
        return pa.record_batch(columns)

    assert in_utc(batch(kolkata)).equals(batch(utc), check_metadata=True)
    plain = batch(utc)
    assert in_utc(plain) is plain


# The driver killed: a process of its own, as a user would start it.

DRIVER = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from pyspark.sql import SparkSession
import test_faults
builder = SparkSession.builder.master({master!r})
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
folder = Path({folder!r})
test_faults.start(test_faults.joined(spark, folder, {processor}, {join!r}), folder).awaitTermination()
print("finished", flush=True)
"""


def drive(
    folder: Path,
    settings: dict[str, str],
    master: str = "local[2]",
    processor: str = "test_faults.JoinProcessor",
    join: str = "left",
) -> subprocess.Popen[bytes]:
    source = DRIVER.format(
        tests=str(Path(__file__).parent),
        master=master,
        settings=settings,
        folder=str(folder),
        processor=processor,
        join=join,
    )
    environment = os.environ | {
        "PYSPARK_PYTHON": sys.executable,
        "STREAMJOIN_SPARK_CACHE_DIR": str(folder / "runs"),
    }
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", source],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,  # so that the driver, its JVM and its workers can be killed together
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a driver with all it has started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


LOGS = ("checkpoint/offsets", "out/_spark_metadata", "checkpoint/commits")  # as a micro-batch writes them


def entries(folder: Path) -> int:
    """What the logs hold together: three entries a micro-batch."""
    return sum(len(list((folder / log).glob("[0-9]*"))) for log in LOGS)


def kill_somewhere(folder: Path, settings: dict[str, str], rng: random.Random, join: str) -> None:
    """Start the driver and kill it at some moment: while it starts, if there is something to lose, or after any entry
    of its first three micro-batches, before the next one or a little later."""
    process = drive(folder, settings, join=join)
    count = entries(folder)
    target, seen = count + rng.randrange(0 if count else 1, 3 * len(LOGS) + 1), list[float]()
    pace = 15.0 if target == count else 2.0  # until the first entry; from one to the next
    try:
        while process.poll() is None and count < target:
            time.sleep(0.02)
            if count < entries(folder):
                count = entries(folder)
                seen.append(time.monotonic())
        if len(seen) > len(LOGS):
            pace = seen[-1] - seen[-1 - len(LOGS)]  # of a micro-batch, on this machine, now
        time.sleep(rng.random() * pace)
    finally:
        end(process)


def survive(
    spark: SparkSession, folder: Path, settings: dict[str, str], seed: int, kills: int, join: str = "left"
) -> None:
    """Kill drivers, then let another one finish, on another host's cache as it were."""
    rng = random.Random(seed)
    for _ in range(kills):
        kill_somewhere(folder, settings, rng, join)
    start(joined(spark, folder, join=join), folder).awaitTermination()


def test_the_driver_is_killed(spark, spark_settings, tmp_path):
    tables = write_input(tmp_path, seed=3)
    survive(spark, tmp_path, spark_settings, seed=3, kills=1)
    assert written(spark, tmp_path) == expected(tables)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_driver_is_killed_at_random_moments(spark, spark_settings, tmp_path, seed):
    tables = write_input(tmp_path, seed)
    survive(spark, tmp_path, spark_settings, seed, kills=1 + seed % 2)
    assert written(spark, tmp_path) == expected(tables)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 25))
@pytest.mark.parametrize("join", ["full", "as_of", "nearest", "hot"])
def test_the_driver_of_other_joins_is_killed_at_random_moments(spark, spark_settings, tmp_path, join, seed):
    tables = write_input(tmp_path, seed)
    survive(spark, tmp_path, spark_settings, seed, kills=1 + seed % 2, join=join)
    assert written(spark, tmp_path) == expected(tables, join)


@pytest.mark.slow
def test_executors_are_killed(spark, spark_settings, tmp_path):
    tables = write_input(tmp_path, seed=4)
    killers = "test_faults.killing(folder, test_faults.WithItsExecutor)"
    process = drive(tmp_path, spark_settings, "local-cluster[2,1,2048]", killers)
    try:
        process.wait()
    finally:
        end(process)
    told = (tmp_path / "log").read_text()
    assert process.returncode == 0, told[-3000:]
    assert len(re.findall("Lost executor .* with code 137", told.partition("finished")[0])) >= 2
    assert written(spark, tmp_path) == expected(tables)
