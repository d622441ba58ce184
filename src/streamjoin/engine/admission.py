"""From a push to the topology: late rows are set aside, pushes are gathered if their results may wait, then rows get
their numbers, their payload is kept, and prepared tuples are handed over.

Each push has a fixed cost, which dominates pushes of few rows. Pushes of a source that are gathered share it. The
topology does not know gathered pushes: what can still come is announced to it as of the last push that it was given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.engine.intake import CheckedRows, Intake
from streamjoin.engine.latency import LatencyMeter
from streamjoin.engine.rows import PayloadStore, PushedRows, restored, row_bytes
from streamjoin.engine.sources import Source, Sources
from streamjoin.engine.timer import Clock
from streamjoin.kernels.stamping import falls
from streamjoin.plan.physical import Plan
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.protocol import Frontier, Topology

MAX_LATE = 1_000_000  # late rows kept for `late`


class Push(NamedTuple):
    """The rows and the time of one push."""

    rows: CheckedRows
    arrived: float


@dataclass(frozen=True)
class Portion:
    """Pushes of one source that are handed over together."""

    source: Source
    pushes: list[Push]


class Admission:
    """Hands checked rows to the topology, at once or gathered with later pushes, as the plan says. Not thread-safe,
    except for `take_late`.

    Gathered pushes are handed over at the time `until`, or sooner: once enough rows are gathered, at the second poll
    after a push (a thread that alternates pushes and polls has nothing else to push then), and when a source promises
    what can still come.
    """

    def __init__(
        self,
        plan: Plan,
        intake: Mapping[str, Intake],
        pushed: PushedRows,
        latency: LatencyMeter,
        topology: Topology,
        clock: Clock,
        wake: Callable[[], None],
    ):
        """`clock` measures how long pushes are gathered. `wake` is called when gathering begins."""
        self.sources = Sources()
        self.taken = dict.fromkeys(SIDES, 0)  # rows that were taken, without late ones
        self.rows = dict.fromkeys(SIDES, 0)  # gathered rows
        self.late = {side: PayloadStore() for side in SIDES}
        self._wait, self._clock, self._wake = plan.wait, clock, wake
        self._tuning = plan.tuning.engine
        self._intake, self._pushed, self._latency, self._topology = intake, pushed, latency, topology
        self._portions: list[Portion] = []
        self._open: dict[tuple[str, int], Portion] = {}  # takes more pushes of its source; by side and number
        self._bytes = 0.0
        self._row_bytes = {side: row_bytes(intake[side].schema) for side in SIDES}
        self.until = math.inf  # when to hand over the gathered pushes
        self._looked = False  # whether a poll has come since the last push

    @property
    def due(self) -> bool:
        """Whether the gathered pushes should be handed over now."""
        return self.until <= self._clock()

    def take(self, source: Source, rows: CheckedRows, late: np.ndarray | None, arrived: float) -> None:
        """Accept checked rows. Without late ones, their times rise."""
        if source.number < 0:
            self.sources.add(source)
        ts = rows.ts
        if len(ts):
            source.newest = max(source.newest, int(ts[-1] if late is None else ts.max()))
        if late is not None and late.any():
            self._set_aside(source.side, rows.pick(late).batch)
            rows = rows.pick(~late)
        if (needed := self._intake[source.side].needed) is not None:
            rows = rows.narrowed(needed)
        count = len(rows.ts)
        self.taken[source.side] += count
        if self._wait:
            self._gather(source, Push(rows, arrived))
        else:
            if count:
                self._latency.pushed(source.side, self._pushed.stores[source.side].next_id, arrived)
            self._give(source, rows, self.sources.frontier_after(source))

    def _gather(self, source: Source, push: Push) -> None:
        """Gather a push with others of its source. A large one stays separate, to save a copy."""
        side, count = source.side, len(push.rows.ts)
        size = count * self._row_bytes[side] if self._row_bytes[side] < math.inf else push.rows.batch.nbytes
        begins = not self._portions
        portion = self._open.get((side, source.number))
        if portion is None or self._is_enough(count, size):
            portion = self._open[side, source.number] = Portion(source, [])
            self._portions.append(portion)
        portion.pushes.append(push)
        self.rows[side] += count
        self._bytes += size
        enough = self._is_enough(sum(self.rows.values()), self._bytes)
        self.until = -math.inf if enough else min(self.until, push.arrived + self._wait)
        self._looked = False
        if begins:
            self._wake()

    def _is_enough(self, rows: int, size: float) -> bool:
        """Whether rows of this number and size need not wait for more."""
        return rows >= self._tuning.gathered_rows or size >= self._tuning.gathered_bytes

    def look(self) -> None:
        """Note a poll; the second one after a push ends the gathering."""
        if self._portions:
            self.until = -math.inf if self._looked else self.until
            self._looked = True

    def progress(self) -> None:
        """Hand over the gathered pushes, then announce what can still come."""
        if self._portions:
            self.until = -math.inf
        else:
            self._topology.advance(self.sources.frontier())

    def hand_over(self) -> None:
        """Give the gathered pushes to the topology."""
        portions = self._portions
        self.clear()
        for portion in portions:  # a push must not be announced as past before the topology has it
            self._give_together(portion.source, portion.pushes)
        self._topology.advance(self.sources.frontier())

    def _give_together(self, source: Source, pushes: list[Push]) -> None:
        """Hand over pushes of one source as one batch, if Arrow can concatenate them."""
        frontier, first = self.sources.announced(), self._pushed.stores[source.side].next_id
        for push in pushes:
            if count := len(push.rows.ts):
                self._latency.pushed(source.side, first, push.arrived)
                first += count
        if len(pushes) > 1:
            try:
                batch = pa.concat_batches([push.rows.batch for push in pushes])
            except pa.ArrowInvalid:  # the dictionaries together are too large for their index type
                pass
            else:
                ts = np.concatenate([push.rows.ts for push in pushes])
                self._give(source, CheckedRows(batch, ts), frontier)
                return
        for push in pushes:
            self._give(source, push.rows, frontier)

    def _give(self, source: Source, rows: CheckedRows, frontier: Frontier) -> None:
        """Number rows of one source, keep them, and hand their tuples over; O(rows)."""
        side, ts = source.side, rows.ts
        store, intake = self._pushed.stores[side], self._intake[side]
        tuples = intake.tuples(rows, store.next_id, source.number)
        if len(ts):
            with self._pushed.lock:
                store.append(rows.batch, intake.shared_values(tuples), intake.payload_values(rows))
            if source.lateness and falls(ts):
                tuples = tuples.pick(np.argsort(ts, kind="stable"))
        self._topology.push(side, tuples, self.sources.ranks, frontier)

    def _set_aside(self, side: str, rows: pa.RecordBatch) -> None:
        with self._pushed.lock:
            store = self.late[side]
            store.append(rows)
            store.release(store.next_id - MAX_LATE)

    def take_late(self, side: str, schema: pa.Schema) -> pa.Table:
        """The rows that were set aside, once, in the types of the spec."""
        with self._pushed.lock:
            store = self.late[side]
            rows = store.view().batches
            store.release(store.next_id)
        held = pa.Table.from_batches(rows, self._intake[side].reader.schema)
        columns = [
            pa.chunked_array([restored(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(held.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def clear(self) -> None:
        """Drop the gathered pushes."""
        self._portions, self._open, self._bytes = [], {}, 0.0
        self.rows = dict.fromkeys(SIDES, 0)
        self.until, self._looked = math.inf, False
