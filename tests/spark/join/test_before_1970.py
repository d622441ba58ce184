"""Streams with times before 1970 on a real Spark: rows are late, final and released like any others."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.test_window_join import Streams, run

from streamjoin.spark import join_metrics, window_join


def at(seconds: int) -> datetime.datetime:
    return datetime.datetime(1950, 1, 1) + datetime.timedelta(seconds=seconds)


def joined(streams: Streams, how: str = "full") -> DataFrame:
    integers = "BIGINT" in streams.schema
    return window_join(
        streams.frame("left"),
        streams.frame("right"),
        "left.x = right.x",
        window=5 if integers else "5 seconds",
        left_time="ts",
        right_time="ts",
        how=how,  # type: ignore[arg-type]
        lateness=10 if integers else "10 seconds",
        workers=2,
    )


@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP_NTZ"])
def test_negative_times_are_late_final_and_released(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    streams = Streams(spark, tmp_path, f"ts {kind}, x INT")
    t = (lambda number: number - 1_000_000) if kind == "BIGINT" else at
    batches = [
        ([(t(0), 1), (t(3), 2)], [(t(4), 1)]),
        ([(t(100), 9)], [(t(100), 9)]),
        ([(t(10), 3), (t(101), 7)], [(t(101), 8)]),  # the first one is late
        ([(t(1000), 9)], [(t(1000), 9)]),
    ]
    found, query = run(streams, joined(streams), batches, f"negative_{kind}")
    expected = [
        (t(0), 1, t(4), 1),
        (t(3), 2, None, None),
        (t(100), 9, t(100), 9),
        (t(101), 7, None, None),
        (None, None, t(101), 8),
        (t(1000), 9, t(1000), 9),
    ]
    assert found == sorted(expected, key=repr)
    progress = [join_metrics(each.observedMetrics) for each in query.recentProgress]
    counts = [count for each in progress for count in each.values()]
    assert sum(count["late"] for count in counts) == 1
    assert counts[-1]["state_rows"] <= 2, "only the last rows are held"


def test_instants_before_1970_are_refused_with_a_way_out(spark: SparkSession, tmp_path: Path) -> None:
    streams = Streams(spark, tmp_path, "ts TIMESTAMP, x INT")
    batches = [([(at(0), 1)], [(at(1), 1)]), ([(at(100), 1)], [(at(100), 1)])]
    with pytest.raises(
        StreamingQueryException, match=r"times are before 1970 .*Cast the times of both sides"
    ):
        run(streams, joined(streams, "inner"), batches, "instants")
