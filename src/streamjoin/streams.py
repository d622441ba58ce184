"""What comes in: Arrow data checked against the spec, event times, physical sources and what is late."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.codegen.columns import one_array
from streamjoin.payload import one_batch, storage_type
from streamjoin.semantics.errors import InputError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.types import TIME_SCALE
from streamjoin.topologies.three_step import Frontier

if TYPE_CHECKING:
    from streamjoin.engine import Join

_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


def as_batch(data: Any, schema: pa.Schema, side: str) -> pa.RecordBatch:
    """Arrow data of any kind as one batch of exactly `schema`, whose types may be the spec's or their storage types;
    copied only where chunks must be joined or a column has another layout of the same type."""
    if isinstance(data, pa.RecordBatch):
        batch = data
    elif isinstance(data, pa.Table):
        batch = one_batch(data)
    elif hasattr(data, "__arrow_c_stream__"):
        batch = one_batch(pa.table(data))
    elif hasattr(data, "__arrow_c_array__"):
        batch = pa.record_batch(data)
    else:
        raise InputError(
            f"{side} data is a {type(data).__name__}: give a pyarrow RecordBatch or Table, or anything with the Arrow "
            "PyCapsule interface (pandas, polars, ...)"
        )
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    extra = [name for name in batch.schema.names if name not in schema.names]
    if missing or extra or len(batch.schema.names) != len(schema.names):
        raise InputError(
            f"{side} data has columns {batch.schema.names}, the spec says {schema.names}"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not in the spec: {extra}" if extra else "")
        )
    columns = [_conform(batch.column(field.name), field, side) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conform(column: pa.Array, field: pa.Field, side: str) -> pa.Array:
    """The column in the spec's type: another layout of the same values is converted, another type refused."""
    if column.null_count and not field.nullable:
        raise InputError(f"{side} column {field.name!r} has nulls, but the spec says it is not nullable")
    if column.type == field.type:
        return column
    plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    alike = any(
        any(t(plain) for t in family) and any(t(field.type) for t in family) for family in (_TEXT, _BINARY)
    )
    if storage_type(plain) == storage_type(field.type) or alike:
        return one_array(column).cast(storage_type(plain)).cast(field.type)
    raise InputError(f"{side} column {field.name!r} has type {column.type}, the spec says {field.type}")


def event_times(batch: pa.RecordBatch, spec: JoinSpec, side: str) -> np.ndarray:
    """The time column in ticks of the spec's unit, as int64."""
    name = spec.side_time(side)
    column = batch.column(name)
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(f"{side} time column {name!r} is null at row {row}: every tuple needs an event time")
    if pa.types.is_timestamp(column.type):
        factor = 10 ** (TIME_SCALE[str(spec.time_unit)] - TIME_SCALE[column.type.unit])
        return _scaled(np.asarray(column.cast(pa.int64())), factor, spec, side)
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    if values.dtype == np.uint64 and len(values) and values.max() > np.uint64(2**63 - 1):
        raise InputError(f"{side} time {values.max()} does not fit 64 signed bits")
    return values.astype(np.int64, copy=False)


def _scaled(ticks: np.ndarray, factor: int, spec: JoinSpec, side: str) -> np.ndarray:
    if factor == 1 or not len(ticks):
        return ticks
    worst = max(int(ticks.max()), int(ticks.min()), key=abs)
    if not -(2**63) <= worst * factor < 2**63:
        raise InputError(
            f"{side} time {worst} overflows when converted to timestamp[{spec.time_unit}], the finer unit"
        )
    return ticks * factor


@dataclass
class Source:
    """One physical stream of a side. `push` may be called from a thread of its own."""

    join: Join
    side: str
    name: str
    number: int
    lateness: int | None
    newest: float = -math.inf  # the greatest ts seen
    promised: float = -math.inf  # by `advance`
    closed: bool = False

    def push(self, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of this source; as `Join.push`."""
        self.join._push(self, data, timeout)

    def advance(self, ts: int) -> None:
        """Promise that no tuple before `ts` (in ticks of the spec's time unit) will come: an idle source need not
        hold the others back."""
        self.join._advance(self, ts)

    def close(self) -> None:
        """No more tuples will come from this source."""
        self.join._close(self)

    @property
    def watermark(self) -> float:
        """No tuple below this will be taken."""
        return max(self.newest - (self.lateness or 0), self.promised)

    def late(self, ts: np.ndarray) -> np.ndarray:
        """Which of the next tuples come too late. Without `lateness`, a fall is an error."""
        before = np.maximum.accumulate(np.concatenate([[self._floor(self.newest)], ts]))[:-1]
        if self.lateness is None:
            falling = np.flatnonzero((ts < before) | (ts < self._floor(self.promised)))
            if len(falling):
                row = int(falling[0])
                reached = max(int(before[row]), self._floor(self.promised))
                raise InputError(
                    f"{self.side} time falls from {reached} to {int(ts[row])} "
                    f"at row {row}{f' of source {self.name!r}' if self.name else ''}: "
                    "within a source time must not fall, unless the spec's lateness allows it"
                )
            return np.zeros(len(ts), np.bool_)
        least = np.where(before < -(2**63) + self.lateness, -(2**63), before - self.lateness)
        return (ts < least) | (ts < self._floor(self.promised))

    @staticmethod
    def _floor(value: float) -> int:
        return -(2**63) if value == -math.inf else int(value)


class Sources:
    """All physical streams of a join: their order, and what can still come from them.

    What was announced to the topology only grows: a newcomer's tuples from before that point are late.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[str, Source]] = {side: {} for side in SIDES}
        self.ranks = {
            side: np.zeros(0, np.int32) for side in SIDES
        }  # order by name, for each source's number
        self.ended: set[str] = set()
        self._low: dict[str, float] = dict.fromkeys(SIDES, -math.inf)
        self._bound: tuple[float, int, int] = (-math.inf, 0, -1)  # (ts, side, source number)

    def find(self, side: str, name: str) -> Source | None:
        return self._of[side].get(name)

    def add(self, join: Join, side: str, name: str, lateness: int | None) -> Source:
        known = self._of[side]
        if name in known:
            raise InputError(f"{side} has a source named {name!r} already; its sources are {sorted(known)}")
        known[name] = source = Source(join, side, name, len(known), lateness)
        ranks = np.empty(len(known), np.int32)
        ranks[[s.number for s in sorted(known.values(), key=lambda s: s.name)]] = np.arange(len(known))
        self.ranks[side] = ranks
        return source

    def end(self, side: str) -> None:
        self.ended.add(side)
        for source in self._of[side].values():
            source.closed = True

    def late(self, source: Source, ts: np.ndarray, settles: bool) -> np.ndarray:
        """Which tuples come too late: for their source, or for what has already been announced."""
        late = source.late(ts)
        if self._low[source.side] > -math.inf:
            late |= ts < self._low[source.side]
        bound, first_side, number = self._bound
        if settles and math.isfinite(bound):
            first = (first_side, self.ranks[SIDES[first_side]][number] if number >= 0 else -1)
            mine = (SIDES.index(source.side), self.ranks[source.side][source.number])
            late |= (ts < bound) | ((ts == bound) & bool(mine < first))
        return late

    def frontier(self) -> Frontier:
        """Announce what can still come, from the watermarks of all open sources."""
        bounds = []
        for side_number, side in enumerate(SIDES):
            if side in self.ended:
                self._low[side] = math.inf
                continue
            current = [source for source in self._of[side].values() if not source.closed]
            if current:
                self._low[side] = max(self._low[side], min(source.watermark for source in current))
            marks = [
                (max(s.watermark, self._low[side]), side_number, int(self.ranks[side][s.number]), s.number)
                for s in current
            ]
            bounds.append(min(marks, default=(self._low[side], side_number, -1, -1)))
        ts, side_number, rank, number = min(bounds, default=(math.inf, 0, 0, -1))
        self._bound = (ts, side_number, number)
        return Frontier((ts, side_number, rank), dict(self._low))
