"""What comes in: Arrow data checked against the spec, event times, physical sources and what is late."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamjoin.codegen.columns import one_array, to_column_data
from streamjoin.engine.rows import one_batch, storage_schema, storage_type
from streamjoin.kernels import stamping
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN, falls
from streamjoin.semantics.errors import InputError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.types import TIME_SCALE, timestamp
from streamjoin.topologies.protocol import Frontier

if TYPE_CHECKING:
    from streamjoin.engine.join import Join

SHOWN = 10  # names of sources in a message
TICKS = timestamp("ns")  # for columns in any unit: their integers are taken as they are
# What Arrow raises for values it can not convert; not for want of memory.
_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowIndexError)
_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARY = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)


class Intake:
    """What data of one side must be, looked up once: a push of few rows takes no longer than its checks."""

    def __init__(self, spec: JoinSpec, side: str):
        self.schema = storage_schema(spec.side_schema(side))  # in which rows are held
        self._spec, self._side = spec, side
        self._required = [(number, f.name) for number, f in enumerate(self.schema) if not f.nullable]
        self._time = self.schema.get_field_index(spec.side_time(side))
        stamping.rehearse()

    def batch(self, data: Any) -> pa.RecordBatch:
        """Arrow data of any kind as one batch of exactly `schema`, whose types may be the spec's or their storage
        types; copied only where chunks must be joined or a column has another layout of the same type."""
        try:
            if isinstance(data, pa.RecordBatch):
                batch = data
            elif isinstance(data, pa.Table):
                batch = one_batch(data)
            else:
                batch = one_batch(_imported(data, self.schema, self._side))
            if not batch.schema.equals(self.schema):
                batch = _conformed(batch, self.schema, self._side)
        except _REFUSED as error:
            raise InputError(
                f"{self._side} data can not become one batch of the spec's types ({error}): push fewer rows at a time "
                "or convert its columns first"
            ) from error
        for number, name in self._required:
            if batch.column(number).null_count:
                raise InputError(
                    f"{self._side} column {name!r} has nulls, but the spec says it is not nullable"
                )
        return batch

    def times(self, batch: pa.RecordBatch) -> np.ndarray:
        """The event times of a batch of `schema`, as `event_times`."""
        return _ticks(batch.column(self._time), self._spec, self._side)


def _conformed(batch: pa.RecordBatch, schema: pa.Schema, side: str) -> pa.RecordBatch:
    """The batch in the order and the types of the spec."""
    missing = [name for name in schema.names if name not in batch.schema.names]
    extra = [name for name in batch.schema.names if name not in schema.names]
    if missing or extra or len(batch.schema.names) != len(schema.names):
        raise InputError(
            f"{side} data has columns {batch.schema.names}, the spec says {schema.names}"
            + (f"; missing: {missing}" if missing else "")
            + (f"; not in the spec: {extra}" if extra else "")
        )
    columns = [conform(batch.column(field.name), field, side) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _imported(data: Any, schema: pa.Schema, side: str) -> pa.Table:
    """Data of another library, through the Arrow PyCapsule interface. Whatever that raises is an error of the input."""
    wanted = "give a pyarrow RecordBatch or Table, or a table with the Arrow PyCapsule interface (pandas, polars, ...)"
    try:
        streams = hasattr(data, "__arrow_c_stream__")
        if not streams and not hasattr(data, "__arrow_c_array__"):
            raise InputError(f"{side} data is a {type(data).__name__}: {wanted}")
        table = pa.table(data) if streams else pa.table(pa.record_batch(data))
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"{side} data is a {type(data).__name__}, and reading it raised {error!r}: nothing of it was taken; "
            f"{wanted}"
        ) from error
    # pandas exports an unnamed index, such as sorting leaves behind, under this name.
    index = [n for n in table.column_names if n.startswith("__index_level_") and n not in schema.names]
    return table.drop_columns(index)


def conform(column: pa.Array, field: pa.Field, side: str) -> pa.Array:
    """The column in the spec's type: another layout of the same values is converted, another type refused."""
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
    return _ticks(batch.column(batch.schema.get_field_index(spec.side_time(side))), spec, side)


def _ticks(column: pa.Array, spec: JoinSpec, side: str) -> np.ndarray:
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise InputError(
            f"{side} time column {spec.side_time(side)!r} is null at row {row}: every tuple needs an event time"
        )
    ticks = to_column_data(column, TICKS).parts[0]
    if spec.time_unit is not None:
        unit = column.type.unit
        if unit == spec.time_unit:
            return ticks
        return _scaled(ticks, 10 ** (TIME_SCALE[spec.time_unit] - TIME_SCALE[unit]), spec, side)
    if ticks.dtype == np.uint64 and len(ticks) and ticks.max() > np.uint64(2**63 - 1):
        raise InputError(f"{side} time {ticks.max()} does not fit 64 signed bits")
    return ticks.astype(np.int64, copy=False)


def as_ticks(ts: int | datetime, spec: JoinSpec) -> int:
    """A point in time in ticks of the spec's unit."""
    if isinstance(ts, (int, np.integer)) and not isinstance(ts, bool):
        if not INT64_MIN <= ts <= INT64_MAX:
            raise InputError(
                f"{ts} does not fit 64 signed bits, as every time does; close a source that brings nothing any more"
            )
        return int(ts)
    kind = spec.left.field(spec.left_time).type
    if isinstance(ts, datetime) and spec.time_unit is not None and (ts.tzinfo is None) == (kind.tz is None):
        return int(pa.scalar(ts, pa.timestamp(spec.time_unit, kind.tz)).value)
    allowed = "ticks, an integer" if spec.time_unit is None else f"ticks of {spec.time_unit}, or a datetime"
    zone = "" if spec.time_unit is None else f" {'with' if kind.tz else 'without'} a time zone"
    raise InputError(f"{ts!r} is no point in time for this join; allowed: {allowed}{zone}")


def _scaled(ticks: np.ndarray, factor: int, spec: JoinSpec, side: str) -> np.ndarray:
    if not len(ticks):
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
    lateness: int | None
    newest: float = -math.inf  # the greatest ts seen
    promised: float = -math.inf  # by `advance`
    closed: bool = False
    number: int = -1  # from 0 on, once the join knows it

    def push(self, data: Any, timeout: float | None = None) -> None:
        """Push Arrow data of this source; as `Join.push`."""
        self.join._push(self.side, self, data, timeout)

    def advance(self, ts: int | datetime) -> None:
        """Promise that no tuple before `ts` will come: an idle source need not hold the others back.

        `ts` is in ticks of the finer unit of the two time columns, or a datetime if they are timestamps.
        """
        self.join._advance(self, ts)

    def close(self) -> None:
        """No more tuples will come from this source."""
        self.join._close(self)

    @property
    def watermark(self) -> float:
        """No tuple below this will be taken; minus infinity, or within 64 bits."""
        mark = max(self.newest - (self.lateness or 0), self.promised)
        return mark if mark == -math.inf else max(mark, INT64_MIN)

    def late(self, ts: np.ndarray) -> np.ndarray | None:
        """Which of the next tuples come too late; None if none does and `ts` rises. Without `lateness`, a fall is an
        error."""
        if not len(ts) or (ts[0] >= max(self.newest, self.promised) and not falls(ts)):
            return None
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
        # Order by name, for each source's number; as of the last frontier. An array is never changed, but replaced.
        self.ranks = {side: np.zeros(0, np.int32) for side in SIDES}
        self._by_name = {side: (np.empty(0, object), np.empty(0, np.int32)) for side in SIDES}  # and numbers
        self._unranked: dict[str, list[Source]] = {side: [] for side in SIDES}
        self.ended: set[str] = set()
        # Heaps of (watermark, name) of the open sources. Watermarks only grow, so one may be out of date until it is
        # the least.
        self._marks: dict[str, list[tuple[float, str]]] = {side: [] for side in SIDES}
        self._low: dict[str, float] = dict.fromkeys(SIDES, -math.inf)
        self._bound: tuple[float, int, str] = (
            -math.inf,
            0,
            "",
        )  # no tuple with a smaller (ts, side, source name)

    def find(self, side: str, name: str) -> Source | None:
        return self._of[side].get(name)

    def add(self, source: Source) -> Source:
        side, known = source.side, self._of[source.side]
        if source.name in known:
            names = sorted(known)
            others = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN:,} more"
            raise InputError(
                f"{side} has a source named {source.name!r} already; its sources are {names[:SHOWN]}{others}"
            )
        source.number = len(known)
        known[source.name] = source
        heappush(self._marks[side], (-math.inf, source.name))
        self._unranked[side].append(source)
        return source

    def _rank(self, side: str) -> None:
        """Give the newcomers of a side their places among the names: each costs O(log sources) comparisons, all of them
        together one copy of the arrays."""
        new = sorted(self._unranked[side], key=lambda source: source.name)
        names, numbers = self._by_name[side]
        at = np.searchsorted(names, np.array([source.name for source in new], object))
        names = np.insert(names, at, [source.name for source in new])
        numbers = np.insert(numbers, at, [source.number for source in new])
        ranks = np.empty(len(numbers), np.int32)
        ranks[numbers] = np.arange(len(numbers))
        self.ranks[side], self._by_name[side], self._unranked[side] = ranks, (names, numbers), []

    def end(self, side: str) -> None:
        self.ended.add(side)
        for source in self._of[side].values():
            source.closed = True

    def late(self, source: Source, ts: np.ndarray, settles: bool) -> np.ndarray | None:
        """Which tuples come too late, for their source or for what has already been announced; None if none does and
        `ts` rises."""
        late, low, bound = source.late(ts), self._low[source.side], self._bound[0]
        if late is None:
            if not len(ts) or (ts[0] >= low and not (settles and ts[0] <= bound)):
                return None
            late = np.zeros(len(ts), np.bool_)
        if low > -math.inf:
            late |= ts < low
        bound, *first = self._bound
        if settles and math.isfinite(bound):
            late |= (ts < bound) | ((ts == bound) & ([SIDES.index(source.side), source.name] < first))
        return late

    def frontier(self) -> Frontier:
        """Announce what can still come, from the watermarks of all open sources; O(log sources) for each that has moved
        on and was the last."""
        bounds = []
        for side_number, side in enumerate(SIDES):
            if side in self.ended:
                self._low[side] = math.inf
                continue
            self._low[side], name = self._least(side)
            bounds.append((self._low[side], side_number, name))
        self._bound = max(self._bound, min(bounds, default=(math.inf, 0, "")))
        return self.announced()

    def announced(self) -> Frontier:
        """What was announced last; sources that came since may have changed the rank in it."""
        for side in SIDES:
            if self._unranked[side]:
                self._rank(side)
        ts, side_number, name = self._bound
        first = self.find(SIDES[side_number], name)
        rank = -1 if first is None else int(self.ranks[SIDES[side_number]][first.number])
        return Frontier((ts, side_number, rank), dict(self._low))

    def _least(self, side: str) -> tuple[float, str]:
        """The least watermark of an open source, not below what was announced, and the first source that has it."""
        marks = self._marks[side]
        while marks:
            mark, name = marks[0]
            source = self._of[side][name]
            now = max(source.watermark, self._low[side])
            if source.closed:
                heappop(marks)
            elif now > mark:
                heapreplace(marks, (now, name))
            else:
                return mark, name
        return self._low[side], ""  # without an open source, one of any name may come
