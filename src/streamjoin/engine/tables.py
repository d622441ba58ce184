"""The join of two whole tables: a stream of them, pushed in the order of time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.engine.intake import Intake, TableReader
from streamjoin.engine.open import open_plan
from streamjoin.kernels.stamping import falls
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Auto, IndexName, Options, Order, TopologyName
from streamjoin.plan.physical import Plan
from streamjoin.semantics.errors import Backpressure
from streamjoin.semantics.spec import SIDES, JoinSpec, check_spec


def join_tables(
    left: Any,
    right: Any,
    spec: JoinSpec,
    topology: TopologyName | Auto = "auto",
    index: IndexName | Auto = "auto",
    workers: int | None = None,
    order: Order = "any",
) -> pa.Table:
    """Join two whole tables, given in any row order (each is sorted by its time first, stably).

    The result has the oracle's order with `order="timestamp"`, and is in no particular one otherwise.
    """
    plan = make_plan(check_spec(spec).narrowed(), Options(topology, index, workers, order))
    left_rows, right_rows = (
        TableReader(spec, side).batch(table).select(spec.needed[side].names)
        for side, table in zip(SIDES, (left, right), strict=True)
    )
    return join_planned(left_rows, right_rows, plan)


def join_planned(left: Any, right: Any, plan: Plan) -> pa.Table:
    """Join two whole tables as planned."""
    spec, rows_of_push = plan.spec, plan.tuning.engine.batch_rows
    results: list[pa.RecordBatch] = []
    with open_plan(plan) as join:
        for side in SIDES:
            join.source(side, "")
        tables = {"left": left, "right": right}
        batches, times = {}, {}
        for side in SIDES:
            batches[side], times[side] = _by_time(Intake(plan, side), tables[side])
        at = dict.fromkeys(SIDES, 0)
        while waiting := [side for side in SIDES if at[side] < len(times[side])]:
            side = min(waiting, key=lambda s: times[s][at[s]])
            with suppress(Backpressure):  # then poll first
                join.push(side, batches[side].slice(at[side], rows_of_push), timeout=0.0)
                at[side] += rows_of_push
            while ready := join.poll():
                results += [batch.replace_schema_metadata(spec.schema.metadata) for batch in ready]
        results += join.finish().to_batches()
    return pa.Table.from_batches(results, spec.schema)


def _by_time(intake: Intake, table: Any) -> tuple[pa.RecordBatch, np.ndarray]:
    """A table as one batch sorted by its event times, and these."""
    batch = intake.reader.batch(table)
    ts = intake.times(batch)
    if falls(ts):
        rows = np.argsort(ts, kind="stable")
        batch, ts = batch.take(pa.array(rows)), ts[rows]
    return batch, ts
