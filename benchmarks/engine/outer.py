"""What outer, semi and anti joins cost beside the inner join of the same streams, with one match a row.

An equality that gives every row exactly one match, some thousand ticks away, in windows of 50,000 ticks and rows;
`three_step` on one core, batches of 256 and 4,096. The rate counts pushed rows. So inner, left, right and full joins
have the same rows, and the ratio shows what it costs to know that none is unmatched.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import best_of_turns, pin
from streamjoin.semantics.keep import HOW, How

WINDOW, RUNS, SEED = 50_000, 5, 20261118
BATCHES = (256, 4_096)
ROWS, QUICK_ROWS = 1_000_000, 150_000
SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float64()})
FIGURES = {
    "outer": Figure(
        "batch", {"of_inner": ""}, "rows of a push", "rate, that of the inner join being 1", by="how"
    )
}


def side(random: np.random.Generator, rows: int) -> pa.Table:
    """One row a tick; every key comes once, within a block of 10,000 rows that has the same keys on both sides."""
    keys = np.arange(rows, dtype=np.int32)
    for first in range(0, rows, 10_000):
        random.shuffle(keys[first : first + 10_000])
    return pa.table([np.arange(rows), keys, random.random(rows)], schema=SCHEMA)


def seconds(how: How, batch: int, left: pa.Table, right: pa.Table) -> float:
    """Push both sides in turn, and poll."""
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.k = right.k", sj.TimeWindow(WINDOW), "ts", "ts", how=how)
    with sj.open_join(spec, "three_step", workers=1) as join:
        started = time.perf_counter()
        for at in range(0, left.num_rows, batch):
            join.push("left", left.slice(at, batch))
            join.push("right", right.slice(at, batch))
            join.poll()
        join.finish()
        return time.perf_counter() - started


def run(quick: bool) -> dict[str, Any]:
    """Rows: seconds and rate by `how` and batch. Summary: the rates, that of the inner join being 1."""
    pin()
    random = np.random.default_rng(SEED)
    left, right = (side(random, QUICK_ROWS if quick else ROWS) for _ in range(2))
    rows = []
    for batch in BATCHES:
        times = best_of_turns(RUNS, {how: lambda how=how: seconds(how, batch, left, right) for how in HOW})  # type: ignore[misc]  # noqa: B023
        rows += [
            {
                "how": how,
                "batch": batch,
                "seconds": t,
                "tuples_a_second": 2 * left.num_rows / t,
                "of_inner": times["inner"] / t,
            }
            for how, t in times.items()
        ]
    summary = {
        f"{row['how']}, batches of {row['batch']:,}: rate, inner being 1": row["of_inner"] for row in rows
    }
    return {"rows": rows, "summary": summary}
