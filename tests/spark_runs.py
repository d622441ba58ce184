"""Joins on Spark without Spark: histories of micro-batches, with faults, and the tasks that run them."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import make_task as plan_task

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32(), "name": pa.string()})
EQUAL, NEAR = "left.x = right.x", "abs(left.x - right.x) <= 1"
WINDOWS = (
    sj.TimeWindow(3),
    sj.TimeWindow(5, 0),
    sj.TimeWindow(0),
    sj.RowWindow(2),
    sj.RowWindow(3, 0),
    (sj.TimeWindow(4), sj.RowWindow(2)),
    (sj.RowWindow(1), sj.TimeWindow(6)),
)


def make_task(
    on: str = EQUAL,
    window: Any = WINDOWS[0],
    how: Any = "inner",
    order: Any = "any",
    workers: int = 2,
    index: Any = "auto",
    partitioning: Any = "auto",
    **given: Any,
) -> JoinTask:
    spec = sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts", how, **given)
    return plan_task(spec, order, index, partitioning, workers)


@st.composite
def histories(draw: Any) -> tuple[list[Any], list[tuple[list[Any], list[Any], int | None]]]:
    """Rows of both sides, and the micro-batches they come in: any cuts, rows out of order, idle sides, and a watermark
    that holds back what is still to come."""
    rows = st.tuples(
        st.integers(1, 24), st.sampled_from([1, 2, 3, 4, None]), st.sampled_from(["a", "b", "c"])
    )
    sides = [draw(st.lists(rows, max_size=12)), draw(st.lists(rows, max_size=12))]
    waiting, batches = [list(side) for side in sides], []
    while waiting[0] or waiting[1]:
        counts = [draw(st.integers(0, len(side))) for side in waiting]
        if not any(counts):
            counts = [min(1, len(side)) for side in waiting]
        parts = [side[:count] for side, count in zip(waiting, counts, strict=True)]
        waiting = [side[count:] for side, count in zip(waiting, counts, strict=True)]
        safe = min((row[0] for side in waiting for row in side), default=40) - 1
        batches.append((*parts, draw(st.sampled_from([None, safe, safe // 2]))))
    return sides, batches


def run(query: Any, batches: list[Any]) -> list[Any]:
    """Rows of a batch first, as the watermark that is known then lets them in; then the new watermark."""
    for left, right, watermark in batches:
        query.batch(left, right)
        if watermark:
            query.batch(watermark=watermark)
    query.finish()
    return sorted(query.rows, key=repr)


def long_history(random: Random, count: int) -> tuple[list[Any], list[tuple[list[Any], list[Any], int]]]:
    """Rows of both sides out of order by up to ten ticks, in many small micro-batches, some of them without rows, and
    the watermark after each: as far as it may be, or a little behind."""
    sides = []
    for _ in SIDES:
        times = sorted(random.randrange(1, 3 * count) for _ in range(count))
        made = [(ts, random.choice([1, 2, 3, 5, 6, 9, None]), random.choice("abc")) for ts in times]
        sides.append(sorted(made, key=lambda row: row[0] + random.randrange(10)))
    waiting, batches = [list(side) for side in sides], []
    while waiting[0] or waiting[1]:
        cuts = [random.choice([0, 1, 4, 12]) for _ in SIDES]
        parts = [side[:cut] for side, cut in zip(waiting, cuts, strict=True)]
        waiting = [side[cut:] for side, cut in zip(waiting, cuts, strict=True)]
        safe = min((row[0] for side in waiting for row in side), default=3 * count) - 1
        batches.append((parts[0], parts[1], safe - random.randrange(4)))
    return sides, batches


def run_with_faults(query: Any, batches: list[Any], random: Random) -> list[Any]:
    """As Spark would: the watermark of the last micro-batch holds for the rows of this one. Some attempts fail when
    they have done their work, and some micro-batches find nothing in memory."""
    known = 0
    for left, right, watermark in batches:
        committed, before = query.snapshot(), list(query.rows)
        query.batch(left, right, known)
        if random.random() < 0.1:
            query.restore(committed)
            query.rows = before
            query.batch(left, right, known)
        if random.random() < 0.1:
            query.restart()
        known = max(known, watermark)
    query.finish()
    return sorted(query.rows, key=repr)
