"""One local Spark for all tests: loopback only, no user interface, as many shuffle partitions as cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # The only state store with the column families that transformWithState needs.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Micro-batches follow each other as fast as they can.
    "spark.sql.streaming.pollingDelay": "1ms",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need what is installed here
    os.environ["STREAMJOIN_SPARK_CACHE_DIR"] = str(tmp_path_factory.mktemp("runs"))
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.config(
        "spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse"))
    ).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
