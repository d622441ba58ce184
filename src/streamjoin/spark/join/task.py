"""What every worker of a join must know. The driver makes it once and sends it with the query.

Times are ticks: microseconds of timestamps, or the numbers of an integer time column. Spark's watermarks are
milliseconds, so a tick of an integer column counts as one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle

from streamjoin.codegen.columns import ColumnData, to_column_data
from streamjoin.codegen.prepared import Probing
from streamjoin.codegen.programs import WindowProgram
from streamjoin.codegen.scores import Scores
from streamjoin.engine.intake import event_times
from streamjoin.index.probing import filters_of
from streamjoin.index.tuples import Tuples
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan
from streamjoin.plan.ranges import KeyRange
from streamjoin.plan.routing import ONE_WORKER, Routing, kept_sides
from streamjoin.plan.spark_tuning import DEFAULT_SPARK_TUNING, SparkTuning
from streamjoin.plan.spread import equality_program, spread_plan
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.keep import Nearest
from streamjoin.semantics.result_columns import ResultColumn
from streamjoin.semantics.spec import OTHER, SIDES, UNMATCHED, JoinSpec
from streamjoin.spark.join.waits import Waits, waits_of
from streamjoin.spark.state.run_index import RunIndexer

OnMalformed = Literal["fail", "drop"]
ON_MALFORMED: tuple[OnMalformed, ...] = get_args(OnMalformed)
# Settings of a signature that are left out if they have these values: checkpoints of earlier versions have none.
OPTIONAL = {"keep": "all", "left_tie": None, "right_tie": None, "columns": None}
TIE = "streamjoin tie"  # the hidden column with a hash of the row, which orders rows of equal time
BEGIN_OF_TIME, END_OF_TIME = -(2**63), 2**63 - 1  # as watermarks: no row has passed, and all rows have


class Compiled:
    """What a process compiles once for a join: the plan of a worker, the program that finds equality keys, the
    residuals that are checked on pairs, and by side the indexer of its runs."""

    def __init__(self, spec: JoinSpec, options: Options):
        self.plan = make_plan(spec, options)
        self.equalities = equality_program(self.plan)
        self.filters = filters_of({side: program.residual for side, program in self.plan.programs.items()})
        self.indexers = {side: RunIndexer(self.plan, side) for side in SIDES}
        largest = isinstance(spec.keep, Nearest) and spec.keep.largest
        self.scores = None if spec.score is None else Scores(spec.score, largest)
        self._ranged: dict[Routing, KeyRange] = {}

    def ranged(self, routing: Routing) -> KeyRange:
        """The key that the plan cuts into ranges. Compiles the predicate's bounds on the first call."""
        if routing not in self._ranged:
            analysis, side = self.plan.analysis, routing.once
            assert analysis is not None and routing.band is not None
            path = analysis.for_window(side)
            program = WindowProgram(self.plan.spec.predicate, path, side, indexed=True)
            self._ranged[routing] = KeyRange(program, routing.band, routing.width)
        return self._ranged[routing]


# By digest, because a new copy of the task arrives with every micro-batch.
_COMPILED: dict[str, Compiled] = {}


@lru_cache(maxsize=64)
def _compiled_once(spec: JoinSpec, options: Options) -> Compiled:
    """Compile a join once for all tasks that differ only in how rows are spread; starting a job makes several."""
    return Compiled(spec, options)


@dataclass(frozen=True)
class JoinTask:
    """A join, the options it was planned with, and how its rows are spread.

    `slack_ms`: how far Spark's watermark lags behind the times that can still come. `shift_ms`: how far it lies above
    them, so that it is positive (`join/epoch.py`). `watermarked`: the sides whose rows
    can be late (the output of a join never is). `malformed`: whether a row without a time stops the query (fail), or is
    left out and counted (drop). `late`: the name of a column of the result that says which rows came too late to be
    joined; None if they are dropped. `shown_rows`: how many of its last result rows a worker sends along with its
    counts, for a page. `delays_ms`: the sides whose watermark we add, with its delay. `compiles_ahead`: whether the
    driver has another process compile the kernels, into a cache that workers share.
    """

    spec: JoinSpec
    options: Options
    routing: Routing = ONE_WORKER
    slack_ms: int = 0
    shift_ms: int = 0
    watermarked: tuple[str, ...] = SIDES
    malformed: str = "fail"
    late: str | None = None
    tuning: SparkTuning = DEFAULT_SPARK_TUNING
    shown_rows: int = 0
    delays_ms: tuple[tuple[str, int], ...] = ()
    compiles_ahead: bool = False

    @property
    def ticks_per_ms(self) -> int:
        return 1 if self.spec.time_unit is None else 1000

    @cached_property
    def settles(self) -> bool:
        """Whether rows wait for their place in the total order before they probe."""
        return self.compiled.plan.settles

    @property
    def picks(self) -> bool:
        """Whether left rows pick among their matches."""
        return self.spec.keep != "all"

    @property
    def ordered(self) -> bool:
        """Whether rows keep the column `TIE`, which orders rows of equal time."""
        return self.settles or self.picks

    @property
    def tied(self) -> bool:
        """Whether rows carry the column `TIE`, which spreads or orders them."""
        return self.ordered or self.routing.kind in ("matrix", "every") or self.routing.divides_keys

    @property
    def kept(self) -> tuple[str, ...]:
        """The sides of which the state says which rows have found a partner."""
        return () if self.picks else kept_sides(self.spec)

    @property
    def alone(self) -> tuple[str, ...]:
        """The sides whose rows come out without a partner if they have none."""
        return UNMATCHED[self.spec.how]

    @cached_property
    def matching(self) -> JoinSpec:
        """The inner join that finds the matches; its window is cut to those that an as-of join can pick."""
        return self.compiled.plan.matching

    @cached_property
    def waits(self) -> Mapping[str, Waits]:
        """By side, how long rows wait."""
        return waits_of(self.spec, self.matching, self.settles, self.options.order == "timestamp")

    @cached_property
    def span(self) -> int | None:
        """How many ticks a row of a result may be behind the watermark; None where rows are counted."""
        kept = [self.waits[side].kept for side in SIDES]
        return None if self.spec.delta is None else max(0, *(wait for wait in kept if wait is not None))

    @cached_property
    def _result(self) -> JoinSpec:
        """The join whose columns the result has. With late rows, which have one side alone, all of them may be NULL,
        and those of right are there whatever `how` says."""
        return self.spec if self.late is None else replace(self.spec, how="full", keep="all")

    @property
    def chosen(self) -> tuple[ResultColumn, ...]:
        """The columns of a result row, without the mark of late rows."""
        return self._result.chosen

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of a result row."""
        schema = self._result.schema
        return schema if self.late is None else schema.append(pa.field(self.late, pa.bool_(), nullable=False))

    @property
    def columns(self) -> list[str]:
        """The columns of a result row, without the one that says which rows are late."""
        return [name for name in self.schema.names if name != self.late]

    @cached_property
    def signature(self) -> Mapping[str, str]:
        """The settings that must not change while a checkpoint is in use, as text."""
        spec = self.spec
        on = (
            spec.on
            if isinstance(spec.on, str)
            else f"the function {getattr(spec.on, '__qualname__', spec.on)}"
        )
        return {
            "on": on,
            "window": ", ".join(f"{side} {spec.side_window(side)}" for side in SIDES),
            "how": spec.how,
            "order": self.options.order,
            "workers": str(self.routing.workers),
            "partitioning": self.routing.describe(),
            "left": str(spec.left),
            "right": str(spec.right),
            "left_time": spec.left_time,
            "right_time": spec.right_time,
            **{
                name: _as_text(value) for name in OPTIONAL if (value := getattr(spec, name)) != OPTIONAL[name]
            },
        }

    @cached_property
    def digest(self) -> str:
        """Identifies a join. The driver computes it, because a function's bytes may differ in another process."""
        code = b"" if isinstance(self.spec.on, str) else cloudpickle.dumps(self.spec.on)  # type: ignore[no-untyped-call]
        return hashlib.sha256(json.dumps([self.signature, self.options.index]).encode() + code).hexdigest()

    @property
    def compiled(self) -> Compiled:
        if self.digest not in _COMPILED:
            compile_join = _compiled_once if isinstance(self.spec.on, str) else Compiled
            of_a_worker = replace(self.options, workers=None, partitioning="auto")
            _COMPILED[self.digest] = compile_join(self.spec, of_a_worker)
        return _COMPILED[self.digest]

    def plan(self) -> Plan:
        """The plan of the whole join, with its routing. Workers use `compiled.plan`, which differs only in that."""
        return spread_plan(self.compiled.plan, self.options, self.routing)

    def equality(self) -> tuple[WindowProgram, int]:
        """The program for left's window, and its band of all equalities, whose hash spreads rows."""
        program = self.compiled.equalities
        return program, program.indexable(equality=True)[0]

    def watermark(self, spark_ms: int, shift_ms: int = 0) -> int:
        """The time, in ticks, at or before which no row is accepted any more. Spark's initial watermark 0 has no
        meaning. `shift_ms`: that of the watermark (`join/epoch.py`)."""
        return (spark_ms - shift_ms + self.slack_ms) * self.ticks_per_ms if spark_ms > 0 else BEGIN_OF_TIME

    def timer_ms(self, ticks: int, shift_ms: int = 0) -> int:
        """The Spark watermark at which `watermark` reaches `ticks`."""
        return -(-ticks // self.ticks_per_ms) - self.slack_ms + shift_ms

    def times(self, batch: pa.RecordBatch, side: str) -> np.ndarray:
        return event_times(batch, self.spec, side)

    def prepare(self, batch: pa.RecordBatch, side: str, ts: np.ndarray) -> Tuples:
        """Prepare rows for the kernels, as stored tuples; a row's id is its place in the batch."""
        program, count = self.compiled.plan.programs[side], batch.num_rows
        data = column_data(batch, program.stored_columns)
        stored = program.prepare_stored(data, count)
        nulls = any(batch.column(name).null_count for name in self._compared(side)) or not stored.all_known()
        return Tuples(ts, np.arange(count), np.zeros(count, np.int32), stored, nulls)

    def read(self, side: str) -> list[str]:
        """The columns of a side that decide what matches: its time, and the columns of the predicate."""
        return list(dict.fromkeys([self.spec.side_time(side), *self._compared(side)]))

    def _compared(self, side: str) -> list[str]:
        """The columns of a side that kernels read."""
        programs = self.compiled.plan.programs
        columns = [*programs[side].stored_columns, *programs[OTHER[side]].probe_columns]
        return [column.name for column in columns]

    def prepare_probing(self, batch: pa.RecordBatch, side: str) -> Probing:
        """Prepare the same rows to probe the other side's window."""
        program = self.compiled.plan.programs[OTHER[side]]
        return program.prepare_probe(column_data(batch, program.probe_columns), batch.num_rows)


def column_data(batch: pa.RecordBatch, columns: Iterable[Column]) -> dict[Column, ColumnData]:
    return {column: to_column_data(batch.column(column.name), column.type) for column in columns}


def _as_text(value: object) -> str:
    """A setting for a signature; chosen columns as in SQL."""
    return (
        ", ".join(f"{column} AS {name}" for name, column in value) if isinstance(value, tuple) else str(value)
    )


def differences(stored: Mapping[str, str], given: Mapping[str, str]) -> list[str]:
    """How a checkpoint's signature differs from that of the running query, one phrase for each setting. A setting that
    an older version did not record counts as equal."""
    optional = {name: str(value) for name, value in OPTIONAL.items()}
    before, now = optional | dict(stored), optional | dict(given)
    if before["columns"] != now["columns"]:  # which decide what is stored of each side
        now = {name: value for name, value in now.items() if name not in SIDES}
    return [
        f"{name} was {before[name]!r} and is now {value!r}"
        for name, value in now.items()
        if before.get(name, value) != value and not (name in SIDES and widens(before[name], value))
    ]


def widens(stored: str, given: str) -> bool:
    """Whether two schemas, as text, differ only in columns that could not be NULL and now can. Rows of the first are
    rows of the second."""
    before, now = stored.split("\n"), given.split("\n")
    return len(before) == len(now) and all(
        old in (new, f"{new} not null") for old, new in zip(before, now, strict=True)
    )
