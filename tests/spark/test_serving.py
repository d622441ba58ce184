"""The page of a query that a program started, and what Spark's own pages show of a join."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark import serve_page, window_join

SOON = 60.0  # seconds: only a failure waits so long


def rates(spark: Any, *names: str) -> list[Any]:
    rate = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 20)
        .option("advanceMillisPerBatch", 500)
    )
    return [rate.load().selectExpr("timestamp AS ts", f"value % 5 AS {name}") for name in names]


def joined_rates(spark: Any) -> Any:
    left, right = rates(spark, "x", "a")
    return window_join(
        left, right, "left.x = right.a", window="1 second", left_time="ts", right_time="ts",
        lateness="1 second", workers=2,
    )  # fmt: skip


def started(frame: Any, folder: Path, name: str) -> Any:
    writer = frame.writeStream.format("noop").queryName(name)
    return writer.option("checkpointLocation", str(folder / name)).start()


def answer(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SOON) as found:
        text: str = found.read().decode()
        return text


def test_the_page_of_a_program_shows_its_query_alone(spark, tmp_path):
    joined = joined_rates(spark)
    query, other = started(joined, tmp_path, "mine"), started(rates(spark, "b")[0], tmp_path, "other")
    try:
        with serve_page(query, joined) as page:
            until = time.monotonic() + 5 * SOON
            while (now := json.loads(answer(f"{page.url}now.json")))["figures"]["matches"] == 0:
                assert time.monotonic() < until and query.isActive, now
                time.sleep(0.2)
            assert now["plan"]["on"] == "left.x = right.a" and now["name"] == "mine"
            batches = int(now["figures"]["further"]["batches"])
            assert now["figures"]["sides"]["both"]["rows"] == 40 * batches, "rows of one query"
            assert "streamjoin_matches_total" in answer(f"{page.url}metrics")
            other.stop()
            query.stop()
            while (now := json.loads(answer(f"{page.url}now.json")))["figures"]["state"] != "ended":
                assert time.monotonic() < until
                time.sleep(0.2)
    finally:
        query.stop()
        other.stop()
    with pytest.raises(StreamJoinError, match="joined is not made by window_join in this process"):
        serve_page(query, rates(spark, "b")[0])


# Runs a join with Spark's pages, and prints what they show of it; ends at once, whatever they do.
PAGES = """
import json, os, re, sys, urllib.request
sys.path.insert(0, {tests!r})
from pathlib import Path
from pyspark.sql import SparkSession
from streamjoin.spark import configure
import test_serving
builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.port", "0")
builder = builder.config("spark.sql.streaming.ui.enabledCustomMetricList", {metrics!r})
builder = builder.config("spark.sql.streaming.metricsEnabled", "true")
spark = configure(builder).getOrCreate()
query = test_serving.started(test_serving.joined_rates(spark), Path({folder!r}), "watched")
while query.lastProgress is None or not query.lastProgress.stateOperators:
    assert query.isActive
told = query.lastProgress
names = sorted(told.stateOperators[0].customMetrics)
web = "http://127.0.0.1:" + spark.sparkContext.uiWebUrl.rsplit(":", 1)[1]
with urllib.request.urlopen(f"{{web}}/StreamingQuery/statistics?id={{query.runId}}", timeout=60) as page:
    shown = re.findall("Aggregated Custom Metric ([\\w.]+)", page.read().decode())
with urllib.request.urlopen(f"{{web}}/metrics/json", timeout=60) as page:
    gauges = sorted(name for name in json.load(page)["gauges"] if ".spark.streaming.watched." in name)
print(json.dumps([names, shown, gauges, list(told.observedMetrics)]), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_what_the_pages_of_spark_show_of_a_join(tmp_path):
    """Metrics of the state store, if they are asked for, and none of ours: docs/reference/metrics.md says so."""

    def pages(metrics: str) -> Any:
        (tmp_path / metrics).mkdir()
        source = PAGES.format(
            tests=str(Path(__file__).parent), metrics=metrics, folder=str(tmp_path / metrics)
        )
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    names, shown, gauges, observed = pages("rocksdbPutCount")
    assert shown[:1] == ["rocksdbPutCount"] and len(observed) == 1
    known = ("rocksdb", "num", "SnapshotLastUploaded", "initialState", "timerProcessing")
    assert all(name.startswith(known) for name in names), "Spark has a place for others now"
    assert {name.rsplit(".watched.", 1)[1] for name in gauges} >= {
        "inputRate-total",
        "states-rowsTotal",
        "latency",
    }
    assert pages("streamjoin")[1] == [], "Spark shows a metric that its state store does not declare"
