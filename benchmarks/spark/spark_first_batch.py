"""The first micro-batch of a join on a Spark that has just started, beside those of Spark's own operators.

Each run starts a process with a Spark session and one query over a file of 2,000 rows a side, into a no-op sink. Three
kinds of first micro-batch are measured:

- Spark's own stream-stream join, which runs no Python;
- Spark's own stateful operator in Python (`transformWithStateInPandas`) behind a `mapInArrow`, which drop all rows:
  what Spark needs to start Python;
- this join, an equality and a 2-D band, with an empty and with a filled cache of kernels.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared.figures import Figure, Row
from benchmarks.shared.spark import write_files

RUNS, ROWS = 5, 2_000
PREDICATES = {
    "equality": "left.x = right.a",
    "2-D band": "abs(left.x - right.a) <= 10 AND abs(left.y - right.b) <= 10",
}
OWN = ("Spark's join", "Spark's Python")
CASES = (*OWN, *(f"{name}, {cache}" for name in PREDICATES for cache in ("cold", "warm")))
CHILD = """
import json, sys, time
from pathlib import Path
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from benchmarks.shared.spark import open_session, streams

case, on, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
session = open_session()
left, right = streams(session, folder)
began = time.perf_counter()

def drop(batches):
    for batch in batches:
        yield batch.slice(0, 0)

class Drop(StatefulProcessor):
    def init(self, handle): pass
    def handleInputRows(self, key, rows, timerValues): return iter(())
    def close(self): pass

if case == "Spark's join":
    left, right = left.withWatermark("ts", "1 second"), right.withWatermark("ts", "1 second")
    near = F.expr("x = a AND later BETWEEN ts - INTERVAL 15 MINUTES AND ts + INTERVAL 15 MINUTES")
    query = left.join(right.withColumnRenamed("ts", "later"), near)
elif case == "Spark's Python":
    both = left.mapInArrow(drop, "x INT").unionByName(right.mapInArrow(drop, "x INT"))
    query = both.groupBy("x").transformWithStateInPandas(Drop(), "x INT", outputMode="Append", timeMode="None")
else:
    from streamjoin.spark import window_join
    times = {"left_time": "ts", "right_time": "ts", "lateness": "1 second"}
    query = window_join(left, right, on, window="15 minutes", **times)
called = time.perf_counter() - began
running = query.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
running.processAllAvailable()
first = running.recentProgress[0].durationMs["triggerExecution"] / 1000
print(json.dumps({"call": called, "first": first}), flush=True)
session.stop()
if "streamjoin.jit.elsewhere" in sys.modules:
    for child in list(sys.modules["streamjoin.jit.elsewhere"]._running):
        child.kill()  # it would compile on, beside the next run
"""
FIGURES = {
    "spark_first_batch": Figure(
        "case",
        {"call": "window_join()", "first": "first micro-batch"},
        "operator, kernel cache",
        "seconds",
    ),
}


def first_batch(case: str, cache: str) -> Row:
    """Seconds of the call and of the first micro-batch in a fresh process."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    try:
        write_files(folder, [ROWS], domain=ROWS)
        done = subprocess.run(
            [sys.executable, "-c", CHILD, case, PREDICATES.get(case.partition(",")[0], ""), str(folder)],
            env=os.environ | {"STREAMJOIN_CACHE_DIR": cache, "STREAMJOIN_COMPILE": "ahead"},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds: Row = json.loads(done.stdout.splitlines()[-1])
    return seconds


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per run, the cases in turns. Summary: the median of each case, and the seconds beyond Spark's join."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as filled:
        for case in CASES:  # warm-up: fills the cache, and reads the installed files into the page cache
            first_batch(case, filled)
        for number in range(1 if quick else RUNS):
            for case in CASES:
                with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as empty:
                    seconds = first_batch(case, empty if case.endswith("cold") else filled)
                rows.append({"case": case, "run": number, **seconds})
    medians = {case: statistics.median(row["first"] for row in rows if row["case"] == case) for case in CASES}
    return {
        "rows": rows,
        "summary": {
            **{f"{case}, s": seconds for case, seconds in medians.items()},
            **{
                f"{case}, beyond Spark's join, s": medians[case] - medians[OWN[0]]
                for case in CASES
                if case != OWN[0]
            },
        },
    }
