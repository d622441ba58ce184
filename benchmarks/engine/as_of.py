"""Backward as-of joins by a key, whole tables and streams, beside Polars `join_asof` and DuckDB's ASOF join.

Two tables of the same size with 1,000 keys and increasing times; each left row gets the last right row of its key that
is not after it, or NULL. One thread each, in turns. Streams are the same rows, pushed in batches of 4,096 from both
sides.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"  # read when Polars is imported

import duckdb
import numpy as np
import polars
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import best_of_turns, pin

KEYS, BATCH, RUNS, SEED = 1_000, 4_096, 5, 20261118
SIZES, QUICK_SIZES = (1_000_000, 10_000_000), (100_000,)
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float64()})
SQL = "SELECT l.*, r.ts, r.k, r.v FROM l ASOF LEFT JOIN r ON l.k = r.k AND l.ts >= r.ts"
FIGURES = {
    "as_of": Figure(
        "tuples",
        {"million_a_second": ""},
        "rows a side",
        "million left rows/s, one thread",
        by="by",
        log=True,
    )
}


def tables(size: int) -> list[pa.Table]:
    """Left and right: increasing times, random keys."""
    random = np.random.default_rng(SEED)
    return [
        pa.table(
            {
                "ts": np.sort(random.integers(0, size, size)),
                "k": random.integers(0, KEYS, size, dtype=np.int32),
                "v": random.random(size),
            },
            schema=SCHEMA,
        )
        for _ in range(2)
    ]


def streamed(left: pa.Table, right: pa.Table, spec: sj.JoinSpec) -> int:
    """Push both tables in batches and poll; how many rows come out."""
    rows = 0
    with sj.open_join(spec, workers=1) as join:
        pushes = zip(*(table.to_batches(max_chunksize=BATCH) for table in (right, left)), strict=True)
        for right_batch, left_batch in pushes:
            join.push("right", right_batch)
            join.push("left", left_batch)
            rows += sum(int(batch.num_rows) for batch in join.poll())
        rows += int(join.finish().num_rows)
    return rows


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(size: int) -> dict[str, float]:
    """Seconds by each engine, the shortest of several turns."""
    left, right = tables(size)
    spec = sj.JoinSpec(
        SCHEMA,
        SCHEMA,
        "left.k = right.k",
        sj.TimeWindow(0, right=size),
        "ts",
        "ts",
        how="left",
        keep=sj.AsOf(),
    )
    frames = [polars.DataFrame(polars.from_arrow(table)).set_sorted("ts") for table in (left, right)]
    database = duckdb.connect()
    database.execute("SET threads = 1")
    database.register("l", left)
    database.register("r", right)

    def by_polars() -> polars.DataFrame:
        return frames[0].join_asof(frames[1], on="ts", by="k", strategy="backward", check_sortedness=False)

    works: dict[str, Callable[[], object]] = {
        "join_tables": lambda: sj.join_tables(left, right, spec, workers=1),
        "streams": lambda: streamed(left, right, spec),
        "polars": by_polars,
        "duckdb": lambda: database.sql(SQL).to_arrow_table(),
    }
    assert sj.join_tables(left, right, spec).num_rows == by_polars().height == left.num_rows
    return best_of_turns(RUNS, {name: lambda work=work: seconds(work) for name, work in works.items()})  # type: ignore[misc]


def run(quick: bool) -> dict[str, Any]:
    """Rows: millions of left rows per second by engine and size. Summary: ratios to the better of the two peers."""
    pin()
    rows, summary = [], {}
    for size in QUICK_SIZES if quick else SIZES:
        times = measure(size)
        rows += [
            {"tuples": size, "by": name, "seconds": t, "million_a_second": size / t / 1e6}
            for name, t in times.items()
        ]
        peer = min(times["polars"], times["duckdb"])
        for name in ("join_tables", "streams"):
            summary[f"{name}, {size:,} rows a side: rate, the better of Polars and DuckDB being 1"] = (
                peer / times[name]
            )
    return {"rows": rows, "summary": summary}
