"""From a push to the topology: late rows are set aside, pushes wait for each other where their results may wait, then
rows get their numbers, their payload is kept, and prepared tuples are handed over.

Each push costs a fixed time on its way, which is most of what one of few rows costs. Pushes of a source that wait for
each other pay it once. The topology knows nothing of those that wait: what is announced to it, what can still come, is
as of the last push it was given.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamjoin.engine.latency import LatencyMeter
from streamjoin.engine.reading import Reading
from streamjoin.engine.results import ResultBuffer
from streamjoin.engine.rows import PayloadStore, restored, row_bytes
from streamjoin.engine.streams import Source, Sources
from streamjoin.kernels.stamping import falls
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.protocol import Frontier, Topology

ENOUGH_ROWS, ENOUGH_BYTES = 4_096, 1 << 22  # that wait: more of them are hardly joined any faster together
MAX_LATE = 1_000_000  # late rows kept for `late`


class Push(NamedTuple):
    """Rows of one push, their event times, and when it came."""

    batch: pa.RecordBatch
    ts: np.ndarray
    arrived: float


@dataclass(frozen=True)
class Portion:
    """Pushes of one source that are handed over together."""

    source: Source
    pushes: list[Push]


class Admission:
    """What was pushed and checked, until the topology has it. `wait`: seconds that a push may wait for others; with 0
    none does. One thread at a time, except for `take_late`.

    Waiting ends, too, when enough rows wait, when a second poll comes after a push (who pushes and polls in turns has
    nothing else to push, then), and when a promise is made that nothing more will come.
    """

    def __init__(
        self,
        wait: float,
        reading: Mapping[str, Reading],
        results: ResultBuffer,
        latency: LatencyMeter,
        topology: Topology,
    ):
        self.sources = Sources()
        self.taken = dict.fromkeys(SIDES, 0)  # rows, without late ones
        self.rows = dict.fromkeys(SIDES, 0)  # that wait
        self.late = {side: PayloadStore() for side in SIDES}
        self._wait = wait
        self._reading, self._results, self._latency, self._topology = reading, results, latency, topology
        self._portions: list[Portion] = []
        self._open: dict[tuple[str, int], Portion] = {}  # to more of its source: by side and number
        self._bytes = 0.0
        self._row_bytes = {side: row_bytes(reading[side].schema) for side in SIDES}
        self._until = math.inf  # when to hand over what waits
        self._looked = False  # a poll since the last push

    @property
    def due(self) -> bool:
        """Whether what waits is to be handed over."""
        return self._until <= time.perf_counter()

    def take(
        self, source: Source, batch: pa.RecordBatch, ts: np.ndarray, late: np.ndarray | None, arrived: float
    ) -> None:
        """Accept checked data. Without late ones, `ts` rises."""
        if source.number < 0:
            self.sources.add(source)
        if len(ts):
            source.newest = max(source.newest, int(ts[-1] if late is None else ts.max()))
        if late is not None and late.any():
            self._set_aside(source.side, batch.filter(pa.array(late)))
            batch, ts = batch.filter(pa.array(~late)), ts[~late]
        self.taken[source.side] += len(ts)
        push = Push(batch, ts, arrived)
        if self._wait:
            self._gather(source, push)
        else:
            self._give(source, [push], self.sources.frontier())

    def _gather(self, source: Source, push: Push) -> None:
        """Let a push wait with the others of its source. A large one waits by itself: it is not worth a copy."""
        side, count = source.side, len(push.ts)
        size = count * self._row_bytes[side] if self._row_bytes[side] < math.inf else push.batch.nbytes
        portion = self._open.get((side, source.number))
        if portion is None or count >= ENOUGH_ROWS or size >= ENOUGH_BYTES:
            portion = self._open[side, source.number] = Portion(source, [])
            self._portions.append(portion)
        portion.pushes.append(push)
        self.rows[side] += count
        self._bytes += size
        enough = sum(self.rows.values()) >= ENOUGH_ROWS or self._bytes >= ENOUGH_BYTES
        self._until = -math.inf if enough else min(self._until, push.arrived + self._wait)
        self._looked = False

    def look(self) -> None:
        """A poll has come."""
        if self._portions:
            self._until = -math.inf if self._looked else self._until
            self._looked = True

    def progress(self) -> None:
        """Announce what can still come, after what waits."""
        if self._portions:
            self._until = -math.inf
        else:
            self._topology.advance(self.sources.frontier())

    def hand_over(self) -> None:
        """Give what waits to the topology."""
        portions = self._portions
        self.clear()
        for portion in portions:  # of which none may be announced as past before it has been given
            self._give(portion.source, portion.pushes, self.sources.announced())
        self._topology.advance(self.sources.frontier())

    def _give(self, source: Source, pushes: list[Push], frontier: Frontier) -> None:
        """Number the rows of pushes of one source, keep their payload, and hand them over; O(rows)."""
        side, (batch, ts, _) = source.side, pushes[0]
        if len(pushes) > 1:
            try:
                batch = pa.concat_batches([push.batch for push in pushes])
            except pa.ArrowInvalid:  # dictionaries that are too large together for their indices
                for push in pushes:
                    self._give(source, [push], frontier)
                return
            ts = np.concatenate([push.ts for push in pushes])
        payload, reading = self._results.payload[side], self._reading[side]
        first = payload.next_id
        tuples = reading.tuples(batch, ts, first, source.number)
        if len(tuples):
            with self._results.lock():
                payload.append(batch, reading.shared_values(tuples))
            if source.lateness and falls(ts):
                tuples = tuples.pick(np.argsort(ts, kind="stable"))
            for push in pushes:
                self._latency.pushed(side, first, push.arrived)
                first += len(push.ts)
        self._topology.push(side, tuples, self.sources.ranks, frontier)

    def _set_aside(self, side: str, rows: pa.RecordBatch) -> None:
        with self._results.lock():
            store = self.late[side]
            store.append(rows)
            store.release(store.next_id - MAX_LATE)

    def take_late(self, side: str, schema: pa.Schema) -> pa.Table:
        """The rows that were set aside, once, in the types of the spec."""
        with self._results.lock():
            store = self.late[side]
            rows = store.view().batches
            store.release(store.next_id)
        held = pa.Table.from_batches(rows, self._reading[side].schema)
        columns = [
            pa.chunked_array([restored(chunk, field.type) for chunk in column.chunks], field.type)
            for column, field in zip(held.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def clear(self) -> None:
        """Forget what waits."""
        self._portions, self._open, self._bytes = [], {}, 0.0
        self.rows = dict.fromkeys(SIDES, 0)
        self._until, self._looked = math.inf, False
