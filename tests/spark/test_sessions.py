"""What a join needs of a session: what `window_join` sets by itself, what it refuses at the call, and what `configure`
and `session` set before Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

from streamjoin.spark import SessionError, configure, packages, window_join
from streamjoin.spark.batch_limit import BATCH_BYTES, OURS
from streamjoin.spark.join.carried import carried
from streamjoin.spark.sessions import (
    OUR_PARTITIONS,
    ROCKSDB,
    SHUFFLE_PARTITIONS,
    STATE_STORE,
    STREAM_SETTINGS,
    can_join,
    parallelism,
    python_of_workers,
    worker_python,
)

ROOT = Path(__file__).parents[2]
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


@pytest.fixture
def bare(spark: SparkSession) -> Iterator[SparkSession]:
    """The session of the tests without the settings that joins need, as a plain one is."""
    names = [*STREAM_SETTINGS, SHUFFLE_PARTITIONS, OUR_PARTITIONS, BATCH_BYTES, OURS]
    before = {name: spark.conf.get(name, None) for name in names}
    for name in names:
        spark.conf.unset(name)
    yield spark
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def stream(spark: SparkSession, column: str) -> DataFrame:
    return spark.readStream.format("rate").load().selectExpr("timestamp AS ts", f"value AS {column}")


def join_of_streams(spark: SparkSession, workers: int | None = None) -> DataFrame:
    return window_join(
        stream(spark, "x"),
        stream(spark, "a"),
        "left.x = right.a",
        window="10 seconds",
        left_time="ts",
        right_time="ts",
        lateness="1 second",
        workers=workers,
    )


def test_a_join_of_streams_sets_what_a_plain_session_lacks(bare: SparkSession, caplog: Any):
    join_of_streams(bare, 3)
    assert bare.conf.get(STATE_STORE) == ROCKSDB
    assert bare.conf.get(SHUFFLE_PARTITIONS) == "3"  # the least multiple of 3 for two cores
    assert [record.name for record in caplog.records] == ["streamjoin"] * 2, "the other is of batch_limit.py"
    text = caplog.records[0].getMessage()
    assert "RocksDB" in text and "3 shuffle partitions" in text and STATE_STORE in text

    join_of_streams(bare, 3)
    join_of_streams(bare, 1)
    assert bare.conf.get(SHUFFLE_PARTITIONS) == "3"
    assert len(caplog.records) == 2, "nothing more to say"

    join_of_streams(bare, 8)
    assert bare.conf.get(SHUFFLE_PARTITIONS) == "8"


def test_what_the_program_has_set_stays(bare: SparkSession, caplog: Any):
    own = "com.example.state.FastRocksDBStateStoreProvider"
    bare.conf.set(STATE_STORE, own)
    bare.conf.set(SHUFFLE_PARTITIONS, "5")
    join_of_streams(bare, 2)
    assert (bare.conf.get(STATE_STORE), bare.conf.get(SHUFFLE_PARTITIONS)) == (own, "5")
    assert not [record for record in caplog.records if "shuffle" in record.getMessage()]


def test_a_join_of_tables_changes_no_setting(bare: SparkSession):
    table = bare.sql("SELECT TIMESTAMP '2026-01-01 00:00:00' AS ts, 1 AS x")
    joined = window_join(
        table, table, "left.x = right.x", window="1 s", left_time="ts", right_time="ts", workers=3
    )
    assert bare.conf.get(STATE_STORE, None) is None and bare.conf.get(SHUFFLE_PARTITIONS, None) is None
    assert "REPARTITION_BY_NUM, [plan_id" in joined._jdf.queryExecution().toString()
    assert joined.rdd.getNumPartitions() == 3, "not the session's 200"


def test_another_state_store_is_refused_at_the_call(bare: SparkSession):
    bare.conf.set(STATE_STORE, HDFS)
    with pytest.raises(SessionError, match="HDFSBackedStateStoreProvider, which cannot hold") as refused:
        join_of_streams(bare)
    assert (refused.value.field, refused.value.given, refused.value.allowed) == (STATE_STORE, HDFS, ROCKSDB)
    assert bare.conf.get(SHUFFLE_PARTITIONS, None) is None, "nothing is half-changed"


# The workers' Python


class Context:
    """The parts of a SparkContext that decide which Python its workers run."""

    def __init__(self, master: str, python: str = "python3"):
        self.master, self.pythonExec = master, python
        self._conf: dict[str, str] = {}
        self._python_includes: list[str] = []


@pytest.mark.parametrize(
    ("master", "variable", "expected"),
    [
        ("local[*]", None, sys.executable),
        ("local-cluster[2,1,1024]", None, sys.executable),
        ("local[2]", "/opt/python", "/opt/python"),
        ("spark://host:7077", None, "python3"),
    ],
)
def test_workers_run_this_python_if_nobody_chose_one(monkeypatch: Any, master, variable, expected):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    context: Any = Context(master, variable or "python3")
    assert worker_python(context) == expected


def test_a_python_without_streamjoin_is_refused_at_the_call(spark: SparkSession, tmp_path, monkeypatch):
    empty = tmp_path / "python-without-packages"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    empty.chmod(0o755)
    assert can_join(sys.executable) and not can_join(str(empty)) and not can_join("/no/such/python")
    context: Any = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", str(empty))
    with pytest.raises(SessionError, match=f"PYSPARK_PYTHON={sys.executable} before Spark starts"):
        join_of_streams(spark)


def test_other_functions_of_the_session_keep_their_python(spark: SparkSession, monkeypatch):
    context: Any = spark.sparkContext
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(context, "pythonExec", "python3")
    with python_of_workers(spark):
        assert context.pythonExec == sys.executable
    assert context.pythonExec == "python3"


def test_a_worker_without_streamjoin_says_so_in_one_sentence(tmp_path: Path):
    """The bytes that Spark sends are read by a Python that has PySpark's cloudpickle and nothing else."""
    from pyspark import cloudpickle

    from streamjoin.spark.join.pack import unpack

    (tmp_path / "code").write_bytes(cloudpickle.dumps(carried(unpack)))
    hidden = "import sys; sys.modules['streamjoin'] = None"
    read = f"{hidden}; import pickle; pickle.load(open({str(tmp_path / 'code')!r}, 'rb'))(iter(()))"
    done = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1].startswith(
        f"ModuleNotFoundError: the Python of a Spark worker, {sys.executable}, cannot import streamjoin"
    ) or done.stderr.splitlines()[-1].startswith(
        f"ImportError: the Python of a Spark worker, {sys.executable}, cannot import streamjoin"
    )
    assert "During handling" not in done.stderr


# Packages


@pytest.mark.parametrize(("missing", "named"), [("pyspark", "pyspark"), ("pandas", "pandas")])
def test_a_missing_package_is_one_sentence_with_the_command(missing, named):
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom streamjoin.spark import window_join"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "MissingPackageError" in last and f"this Python has no {named}: pip install" in last


@pytest.mark.parametrize("installed", ["3.5.8", "4.4.0.dev1", "5.0.0"])
def test_another_version_of_pyspark_is_one_sentence_with_the_command(installed):
    code = f"""
import importlib.metadata as metadata
real = metadata.version
metadata.version = lambda name: {installed!r} if name == "pyspark" else real(name)
from streamjoin.spark import window_join
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert "UnsupportedVersionError" in last
    assert (
        f"needs PySpark 4.0 to 4.3; this Python has {installed}: pip install 'pyspark[connect]>=4.0,<4.4'"
        in last
    )


@pytest.mark.parametrize("installed", ["4.0.0", "4.1.4", "4.3.2", "4.3.1+vendor.7", None])
def test_versions_of_pyspark_that_run(monkeypatch, installed):
    monkeypatch.setattr(packages, "pyspark_version", lambda: installed)
    packages.require_packages(packages.TO_BUILD, "a join")


def test_the_version_of_pyspark_is_that_of_the_extra():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    oldest = ".".join(map(str, packages.OLDEST_PYSPARK))
    assert f"pyspark[connect]>={oldest},<4.{packages.NEWEST_PYSPARK[1] + 1}" in extra
    assert all(f"'{each}'" in packages.INSTALL for each in extra if not each.startswith("pydantic"))


def test_a_stream_without_protobuf_is_refused_at_the_call(spark: SparkSession, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(ModuleNotFoundError, match=r"no google\.protobuf: pip install 'pyspark\[connect\]"):
        join_of_streams(spark)


# Before Spark starts


def test_configure_adds_the_settings_of_streams():
    options = configure(SparkSession.builder.appName("quotes"))._options
    assert STREAM_SETTINGS.items() <= options.items()
    for name in (*STREAM_SETTINGS, "spark.app.name"):
        SparkSession.builder._options.pop(name, None)  # the builder is one object for the whole process


def test_a_session_has_what_joins_need(tmp_path: Path):
    code = """
import os, sys
from streamjoin.spark import session
spark = session("quotes", "local[1]")
context = spark.sparkContext
print(spark.conf.get("spark.sql.streaming.stateStore.providerClass").rpartition(".")[2])
print(context.pythonExec == sys.executable, context.getConf().get("spark.driver.host"), context.appName)
print(session("other", "local[1]") is spark)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.stdout.splitlines() == ["RocksDBStateStoreProvider", "True 127.0.0.1 quotes", "True"], (
        done.stderr
    )


def test_parallelism_is_that_of_the_context(spark: SparkSession):
    assert parallelism(spark) == spark.sparkContext.defaultParallelism == 2
