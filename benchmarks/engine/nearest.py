"""The nearest rows by a number (k = 1 and 10) within a window of time, beside DuckDB and Spark's `nearestByJoin`.

Each left row gets the k right rows of the last 100,000 ticks whose x is nearest to its own; a row a tick and side. Ours
runs in one thread, and rows are pushed in batches of 4,096 from both sides. DuckDB and Spark have two cores and hold
their tables in memory. DuckDB has two statements, a join on the window of which `min_by` or `row_number` keeps the k
best; the one that is faster at the smallest size runs at the others. Spark looks at all pairs of rows: those out of the
window have an infinite rank, so a left row with fewer than k others gets some of them.

The peers look at every pair in the window, so each runs at growing sizes, until the next one would take more than the
limit, judged by the number of pairs. Ratios grow with the size: ours does not look at every pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamjoin as sj
from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import open_session

WINDOW, BATCH, RUNS, SEED = 100_000, 4_096, 5, 20261119
KS = (1, 10)
OUR_SIZES = (5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
QUICK_SIZES = (1_000, 2_000)
MOST_SECONDS, QUICK_SECONDS = 45.0, 5.0
SHORT = 5.0  # seconds; longer runs are not repeated
SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.float64(), "v": pa.int64()})
IN_WINDOW = f"r.ts BETWEEN l.ts - {WINDOW} AND l.ts"
SQL = {
    "min_by": (
        "WITH best AS (SELECT l.ts, any_value(l.x) AS x, any_value(l.v) AS v, "
        f"unnest(min_by(r, abs(l.x - r.x), {{k}})) AS near FROM l JOIN r ON {IN_WINDOW} GROUP BY l.ts) "
        "SELECT ts, x, v, near.* FROM best"
    ),
    "row_number": (
        f"SELECT l.*, r.* FROM l JOIN r ON {IN_WINDOW} "
        "QUALIFY row_number() OVER (PARTITION BY l.ts ORDER BY abs(l.x - r.x), r.ts DESC) <= {k}"
    ),
}
FIGURES = {
    "nearest": Figure("tuples", {"tuples_a_second": ""}, "rows a side", "left rows/s", by="by", log=True)
}
Work = Callable[[], int]
Prepare = Callable[[pa.Table, pa.Table, int], Work]


def tables(size: int) -> tuple[pa.Table, pa.Table]:
    """A row a tick and side, with random numbers."""
    random = np.random.default_rng(SEED)
    left, right = (
        pa.table([np.arange(size), random.random(size), np.arange(size)], schema=SCHEMA) for _ in range(2)
    )
    return left, right


def streamed(left: pa.Table, right: pa.Table, k: int) -> int:
    """Push both tables in batches and poll; how many rows come out."""
    keep = sj.Nearest("abs(left.x - right.x)", k=k)
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "TRUE", sj.TimeWindow(0, right=WINDOW), "ts", "ts", keep=keep)
    rows = 0
    with sj.open_join(spec, workers=1) as join:
        pushes = zip(*(table.to_batches(max_chunksize=BATCH) for table in (right, left)), strict=True)
        for right_batch, left_batch in pushes:
            join.push("right", right_batch)
            join.push("left", left_batch)
            rows += sum(int(batch.num_rows) for batch in join.poll())
        return rows + int(join.finish().num_rows)


def ours(left: pa.Table, right: pa.Table, k: int) -> Work:
    return partial(streamed, left, right, k)


def by_duckdb(statement: str, left: pa.Table, right: pa.Table, k: int) -> Work:
    """Both tables are stored in DuckDB before the clock starts."""
    database = duckdb.connect()
    database.execute("SET threads = 2")
    for name, table in (("l", left), ("r", right)):
        database.register("given", table)
        database.execute(f"CREATE TABLE {name} AS FROM given")
    return lambda: int(database.sql(SQL[statement].format(k=k)).to_arrow_table().num_rows)


def by_spark(session: SparkSession, left: pa.Table, right: pa.Table, k: int) -> Work:
    """Both tables are cached in Spark before the clock starts."""
    frames = [session.createDataFrame(table).cache() for table in (left, right)]
    l, r = frames
    near = F.when(r["ts"].between(l["ts"] - WINDOW, l["ts"]), F.abs(l["x"] - r["x"]))
    joined = l.nearestByJoin(r, F.coalesce(near, F.lit(float("inf"))), k, "exact", "distance")

    def work() -> int:
        joined.write.format("noop").mode("overwrite").save()
        return int(left.num_rows)

    assert sum(frame.count() for frame in frames) == 2 * left.num_rows
    return work


def seconds(work: Work) -> float:
    """The shortest of RUNS turns, or the first where that is long."""
    times: list[float] = []
    while len(times) < RUNS and (not times or times[0] < SHORT):
        started = time.perf_counter()
        assert work()
        times.append(time.perf_counter() - started)
    return min(times)


def pairs(size: int, by: str) -> float:
    """How many pairs a peer looks at."""
    within = min(size, WINDOW)
    return size * size if by == "spark" else size * within - within * within / 2


def curve(
    by: str, prepare: Prepare, k: int, sizes: Sequence[int], most: float | None
) -> Iterator[dict[str, Any]]:
    """A row for each size that is joined in the time; None: for all."""
    last = 0.0  # seconds a pair
    for size in sizes:
        if most is not None and last * pairs(size, by) > most:
            return
        took = seconds(prepare(*tables(size), k))
        last = took / pairs(size, by)
        yield {
            "by": f"{by}, k = {k}",
            "k": k,
            "tuples": size,
            "seconds": took,
            "tuples_a_second": size / took,
        }


def run(quick: bool, *, most: float | None = None) -> dict[str, Any]:
    """Rows: left rows per second by engine, k and size. Summary: ratios at the largest size of each peer. `most`: the
    seconds that a run of a peer may take."""
    sizes, usual = (QUICK_SIZES, QUICK_SECONDS) if quick else (OUR_SIZES, MOST_SECONDS)
    most = usual if most is None else most
    session = open_session()
    rows: list[dict[str, Any]] = []
    try:
        spark = partial(by_spark, session)
        for prepare in (ours, spark):  # compile kernels, and start what starts late
            prepare(*tables(1_000), 1)()
        for k in KS:
            rows += curve("streamjoin", ours, k, sizes, None)
            rows += curve("spark", spark, k, sizes, most)
            first = {
                name: list(curve(f"duckdb, {name}", partial(by_duckdb, name), k, sizes[:1], None))
                for name in SQL
            }
            name = min(first, key=lambda name: first[name][0]["seconds"])
            rows += [row for each in first.values() for row in each]
            rows += curve(f"duckdb, {name}", partial(by_duckdb, name), k, sizes[1:], most)
    finally:
        session.stop()
    return {"rows": rows, "summary": ratios(rows)}


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """By k and peer: how many times as fast ours is at the largest size that the peer finished."""
    found = {}
    for k in KS:
        mine = {row["tuples"]: row["seconds"] for row in rows if row["by"] == f"streamjoin, k = {k}"}
        for peer in ("duckdb", "spark"):
            theirs = [row for row in rows if row["by"].startswith(peer) and row["k"] == k]
            size = max(row["tuples"] for row in theirs)
            best = min(row["seconds"] for row in theirs if row["tuples"] == size)
            found[f"k = {k}, {size:,} rows a side: rate, that of {peer} being 1"] = best / mine[size]
        size = max(mine)
        found[f"k = {k}, {size:,} rows a side: left rows/s"] = size / mine[size]
    return found
