"""Divide the rows of a checkpoint among another number of workers.

A row may be at several workers; one of its copies is taken, the *first*, and sent to the workers that the new routing
names, as if the row had just come. It takes along whether it has found a partner: the sides of which the state knows
that are in one copy in every routing.

That is right because all workers have come equally far: whatever was due at the last watermark was done in the last
micro-batch, by a timer where no row came. `check_done` makes sure of it for every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa

from streamjoin.codegen.programs import combined
from streamjoin.plan.hot_keys import HotKey
from streamjoin.plan.routing import Routing, RoutingKind
from streamjoin.plan.spread import route_rows
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.checkpoint.held import MATCHED, RUNS, HeldManifest, stored_runs
from streamjoin.spark.join.hot_keys import hot_keys_of
from streamjoin.spark.join.pack import PARCEL, decode, divided, encode, first_copies
from streamjoin.spark.join.routing import gets_first_copy, worker_ids
from streamjoin.spark.join.step import moved_back
from streamjoin.spark.join.task import BEGIN_OF_TIME, TIE, JoinTask, differences
from streamjoin.spark.state.content import places_between
from streamjoin.spark.state.manifest import StateError, unpacked

FOUND = (
    "streamjoin found"  # the column that says which rows have found a partner, on its way to the new workers
)
RESCALED = ("workers", "partitioning")  # the settings of a signature that rescaling changes
Decided = tuple[int, int, int]


def stored_task(task: JoinTask, settings: Mapping[str, str], hot: Sequence[HotKey] = ()) -> JoinTask:
    """The task that wrote a state, from the one that is to continue it. They differ only in how rows are spread. `hot`:
    the table of hot keys that the checkpoint records, if it does.

    Raises `StateError` if the settings of the state are those of another join."""
    now = {name: value for name, value in task.signature.items() if name not in RESCALED}
    changed = differences({name: value for name, value in settings.items() if name not in RESCALED}, now)
    if changed:
        raise StateError(
            f"this checkpoint belongs to another join: {'; '.join(changed)}. Rescaling changes nothing but workers and "
            "partitioning: give the settings it was started with"
        )
    workers, described = int(settings["workers"]), settings["partitioning"]
    for found in _routings(task, workers, described, hot):
        if found.describe() == described and found.workers == workers:
            return replace(task, routing=found)
    raise StateError(
        f"this checkpoint's rows are spread by {described!r}, over {workers} workers, and this version cannot tell "
        "which rows those are: rescale it with the version that wrote it, and with the hot keys it was started with"
    )


def _routings(task: JoinTask, workers: int, described: str, hot: Sequence[HotKey]) -> Iterator[Routing]:
    """The routings that a description may mean."""
    kind, *rest = described.replace(",", "").split()
    if kind == "matrix":
        yield Routing("matrix", int(rest[1]), int(rest[3]))
    elif kind == "ranges":
        yield route_rows(task.compiled.plan, replace(task.options, workers=workers, partitioning="range"))
    elif rest:
        plain = replace(task, routing=Routing("hash", workers))
        listed = [hot_keys_of(plain, [key.share]) for key in task.routing.hot]  # as keys that a user lists
        for table in (hot, task.routing.hot, [key for keys in listed for key in keys]):
            yield replace(plain.routing, hot=tuple(table))
    elif kind in ("hash", "every"):
        yield Routing(cast(RoutingKind, kind), workers)


def check_hot_keys(task: JoinTask) -> None:
    """Raise if the hot keys of a task name workers that it does not have."""
    workers = task.routing.workers
    if any(worker >= workers for key in task.routing.hot for worker in key.workers):
        raise StateError(
            f"the hot keys of this join were found for more than {workers} workers: list them (hot_keys=[...]), or use "
            "`streamjoin rescale`, which divides them anew"
        )


@dataclass(frozen=True)
class Reached:
    """How far the workers of a checkpoint have come: what their manifests say, together.

    `acted`: the watermark up to which all that was due is done. `spark_ms`: the same as Spark's watermark.
    `decided`: as in `State`."""

    acted: int
    decided: Mapping[str, Decided | None]
    shift_ms: int
    spark_ms: int


def reached(held: Sequence[HeldManifest], spark_ms: int) -> Reached:
    """How far these workers have come. `spark_ms`: the watermark of the last committed micro-batch."""
    cuts: dict[str, Decided | None] = {}
    for side in SIDES:
        found = [tuple(cut) for each in held if (cut := each.values["decided"][side]) is not None]
        cuts[side] = max(found, default=None)
    acted = max((each.values["acted"] for each in held), default=BEGIN_OF_TIME)
    shift = max((each.values.get("shift", 0) for each in held), default=0)
    return Reached(acted, cuts, shift, spark_ms)


@dataclass(frozen=True)
class Division:
    """What divides stored runs. `runs`: by worker's key and run's number, the side and the run. `acted`: by worker's
    key."""

    old: JoinTask
    new: JoinTask
    acted: Mapping[int, int]
    until: int
    runs: Mapping[tuple[int, int], tuple[str, dict[str, Any]]]

    def parcels(self, table: pa.Table) -> pa.Table:
        """The parcels of one stored run: its values in the state, with their kinds, as the columns of a table."""
        values = dict(zip(table["kind"].to_pylist(), table["data"], strict=True))
        key, number = table["worker"][0].as_py(), table["number"][0].as_py()
        side, run = self.runs[key, number]
        rows = decode(values[RUNS].as_buffer())
        check_done(self.old, side, self.old.times(rows, side), self.acted[key], self.until)
        if MATCHED in values:
            rows = rows.append_column(FOUND, pa.array(unpacked(values[MATCHED].as_py(), rows.num_rows)))
        worker = worker_ids(self.old.routing.workers).index(key)
        return self._divided(side, first_copies(self.old, worker, side, rows), run["token"])

    def _divided(self, side: str, rows: pa.RecordBatch, token: str) -> pa.Table:
        new, ids = self.new, worker_ids(self.new.routing.workers)
        if new.tied and TIE not in rows.schema.names:
            rows = rows.append_column(TIE, _place_hashes(token, rows.num_rows))
        parts = [
            (key, part) for key, part in zip(ids, divided(new, side, rows), strict=True) if part.num_rows
        ]
        columns = [
            pa.array([key for key, _ in parts], pa.int32()),
            pa.array([SIDES.index(side)] * len(parts), pa.int8()),
            pa.array([encode(part) for _, part in parts], pa.binary()),
        ]
        return pa.table(columns, schema=PARCEL)


def division(old: JoinTask, new: JoinTask, held: Sequence[HeldManifest]) -> Division:
    """What divides the runs of these workers, those left out whose rows are all copies of other workers' rows."""
    ids = worker_ids(old.routing.workers)
    runs = {
        (key, run["number"]): (side, run)
        for key, side, run in stored_runs(held)
        if old.routing.kind == "range" or gets_first_copy(old.routing, side, ids.index(key))
    }
    acted = {each.key: each.values["acted"] for each in held}
    return Division(old, new, acted, max(acted.values(), default=BEGIN_OF_TIME), runs)


def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """How many rows each parcel has, and of which side."""
    for batch in batches:
        rows = [decode(data.as_buffer()).num_rows for data in batch.column("rows")]
        sides = batch.column("side").cast(pa.int32())
        yield pa.record_batch([sides, pa.array(rows, pa.int64())], ["side", "rows"])


def _place_hashes(token: str, count: int) -> pa.Array:
    """A number for each row of a run that spreads rows evenly and is the same whenever it is computed. State holds no
    hash of a row's content unless rows are ordered by it; where a stored row goes in a matrix, or in the grid of a hot
    key, does not matter, as long as all its copies agree."""
    start = int(token[:8], 16) << 24
    return pa.array(combined([np.arange(start, start + count, dtype=np.int64)]))


def check_done(task: JoinTask, side: str, ts: np.ndarray, acted: int, until: int) -> None:
    """Raise if a worker that has acted up to one watermark has still something to do up to a later one, with rows of
    these times, in ascending order."""
    waits, due = task.waits[side], []
    if task.settles:
        due.append(places_between(ts, acted, until))
    if side in task.alone or (task.picks and side == "left"):
        for wait in {waits.decided, waits.kept} - {None}:
            assert wait is not None
            due.append(places_between(ts, moved_back(acted, wait), moved_back(until, wait)))
    if acted < until and any(low < high for low, high in due):
        raise StateError(
            "this checkpoint is of a moment at which some workers had still to act on the watermark that others had "
            "acted on: start the query, let it run for a micro-batch, stop it, and rescale then"
        )
