"""What every worker of a join has to know, made once by the driver and sent along with the query.

Times are ticks: microseconds of timestamps, or the numbers of an integer time column. Spark's watermarks are
milliseconds, so a tick of an integer column counts as one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.codegen.prepared import Probing
from streamjoin.codegen.programs import WindowProgram
from streamjoin.engine.streams import event_times
from streamjoin.index.probing import filters_of
from streamjoin.index.tuples import Tuples
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Auto, IndexName, Options
from streamjoin.plan.physical import Plan
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import OTHER, SIDES, JoinSpec
from streamjoin.spark.join.ranges import KeyRange, key_ranges
from streamjoin.spark.join.routing import ONE_WORKER, Routing
from streamjoin.spark.state.run_index import RunIndexer

How = Literal["inner", "left", "right", "full", "semi", "anti"]
StreamOrder = Literal["any", "timestamp"]
OnMalformed = Literal["fail", "drop"]
HOW: tuple[How, ...] = get_args(How)
ORDERS: tuple[StreamOrder, ...] = get_args(StreamOrder)
ON_MALFORMED: tuple[OnMalformed, ...] = get_args(OnMalformed)
TIE = "streamjoin tie"  # the hidden column with a hash of the row, by which rows of equal time are ordered
BEGIN, END = -(2**63), 2**63 - 1  # the times before and after everything


class Compiled:
    """What a process makes of a join: the plan, the program that finds equalities, and by window the condition that is
    left to be checked on pairs."""

    def __init__(self, spec: JoinSpec, index: IndexName | Auto):
        self.plan = make_plan(spec, Options(index=index))
        path = None if self.plan.analysis is None else self.plan.analysis.left
        self.equalities = WindowProgram(spec.predicate, path, "left", indexed=True)
        self.filters = filters_of({side: program.residual for side, program in self.plan.programs.items()})
        self.indexers = {side: RunIndexer(self.plan, side) for side in SIDES}

    @cached_property
    def ranges(self) -> dict[str, KeyRange]:
        """By side, the key whose ranges can spread rows, where there is one. Compiles the bounds of the predicate."""
        return {} if self.plan.analysis is None else key_ranges(self.plan.spec, self.plan.analysis)


_COMPILED: dict[str, Compiled] = {}  # of this process, by digest: tasks arrive pickled, once a micro-batch


@dataclass(frozen=True)
class JoinTask:
    """A join and how it is spread. `slack_ms`: by how much Spark's watermark lies behind what can still come.
    `watermarked`: the sides whose rows can be late (a join's own output never is). `malformed`: whether a row without a
    time stops the query (fail), or is left out and counted (drop)."""

    spec: JoinSpec
    how: str
    order: str
    index: IndexName | Auto
    routing: Routing = ONE_WORKER
    slack_ms: int = 0
    watermarked: tuple[str, ...] = SIDES
    malformed: str = "fail"

    @property
    def ticks_per_ms(self) -> int:
        return 1 if self.spec.time_unit is None else 1000

    @cached_property
    def settles(self) -> bool:
        """Whether rows wait for their place in the total order before they probe."""
        return self.order == "timestamp" or any(self.spec.side_window(side).rows for side in SIDES)

    @property
    def tied(self) -> bool:
        """Whether rows carry `TIE`: to be spread by it, or ordered."""
        return self.settles or self.routing.kind in ("matrix", "every")

    @property
    def kept(self) -> tuple[str, ...]:
        """The sides of which it must be known which rows found a partner."""
        return {"inner": (), "left": ("left",), "right": ("right",), "full": SIDES}.get(self.how, ("left",))

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a result row; those of a side that can be missing may be NULL."""
        if self.how in ("semi", "anti"):
            return self.spec.left
        missing = {"left": self.how in ("right", "full"), "right": self.how in ("left", "full")}
        absent = [missing[side] for side in SIDES for _ in self.spec.side_schema(side)]
        fields = zip(self.spec.schema, absent, strict=True)
        return pa.schema([field.with_nullable(field.nullable or gone) for field, gone in fields])

    @cached_property
    def signature(self) -> Mapping[str, str]:
        """What must not change while a checkpoint is used, in words."""
        spec = self.spec
        on = (
            spec.on
            if isinstance(spec.on, str)
            else f"the function {getattr(spec.on, '__qualname__', spec.on)}"
        )
        return {
            "on": on,
            "window": ", ".join(f"{side} {spec.side_window(side)}" for side in SIDES),
            "how": self.how,
            "order": self.order,
            "workers": str(self.routing.workers),
            "partitioning": self.routing.describe(),
            "left": str(spec.left),
            "right": str(spec.right),
            "left_time": spec.left_time,
            "right_time": spec.right_time,
        }

    @cached_property
    def digest(self) -> str:
        """Tells joins apart. Computed by the driver: a function's bytes need not be the same in another process."""
        code = b"" if isinstance(self.spec.on, str) else cloudpickle.dumps(self.spec.on)  # type: ignore[no-untyped-call]
        return hashlib.sha256(json.dumps([self.signature, self.index]).encode() + code).hexdigest()

    @property
    def compiled(self) -> Compiled:
        if self.digest not in _COMPILED:
            _COMPILED[self.digest] = Compiled(self.spec, self.index)
        return _COMPILED[self.digest]

    def plan(self) -> Plan:
        return self.compiled.plan

    def equality(self) -> tuple[WindowProgram, int]:
        """The program for left's window and its band of all equalities, by which rows are spread."""
        program = self.compiled.equalities
        return program, program.indexable(equality=True)[0]

    def watermark(self, spark_ms: int) -> int:
        """No row at or before this will be taken from now on; Spark's initial 0 says nothing."""
        return (spark_ms + self.slack_ms) * self.ticks_per_ms if spark_ms > 0 else BEGIN

    def timer_ms(self, ticks: int) -> int:
        """The Spark watermark at which `watermark` reaches `ticks`."""
        return -(-ticks // self.ticks_per_ms) - self.slack_ms

    def times(self, batch: pa.RecordBatch, side: str) -> np.ndarray:
        return event_times(batch, self.spec, side)

    def prepare(self, batch: pa.RecordBatch, side: str, ts: np.ndarray) -> Tuples:
        """Rows for the kernels, to be stored; their ids are their places in the batch."""
        program, count = self.plan().programs[side], batch.num_rows
        data = column_data(batch, program.stored_columns)
        stored = program.prepare_stored(data, count)
        nulls = any(batch.column(name).null_count for name in self._compared(side)) or not stored.all_known()
        return Tuples(ts, np.arange(count), np.zeros(count, np.int32), stored, nulls)

    def read(self, side: str) -> list[str]:
        """The columns of a side that decide what matches: its time, and those of the predicate."""
        return list(dict.fromkeys([self.spec.side_time(side), *self._compared(side)]))

    def _compared(self, side: str) -> list[str]:
        """The columns that kernels read of a side."""
        programs = self.plan().programs
        columns = [*programs[side].stored_columns, *programs[OTHER[side]].probe_columns]
        return [column.name for column in columns]

    def prepare_probing(self, batch: pa.RecordBatch, side: str) -> Probing:
        """The same rows as the other side's window is probed with them."""
        program = self.plan().programs[OTHER[side]]
        return program.prepare_probe(column_data(batch, program.probe_columns), batch.num_rows)


def column_data(batch: pa.RecordBatch, columns: Iterable[Column]) -> dict[Column, ColumnData]:
    return {column: to_column_data(batch.column(column.name), column.type) for column in columns}


def differences(stored: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """How a checkpoint's signature differs from that of the running query, one phrase a setting. What an older library
    did not note is taken as it is given."""
    return [
        f"{name} was {stored[name]!r} and is now {value!r}"
        for name, value in given.items()
        if stored.get(name, value) != value and not (name in SIDES and widens(stored[name], value))
    ]


def widens(stored: str, given: str) -> bool:
    """Whether two schemas, as text, differ only in columns that could not be NULL and now can. Rows of the first are
    rows of the second."""
    before, now = stored.split("\n"), given.split("\n")
    return len(before) == len(now) and all(
        old in (new, f"{new} not null") for old, new in zip(before, now, strict=True)
    )
