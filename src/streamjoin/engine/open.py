"""The functions that open and explain a join."""

from __future__ import annotations

import pyarrow as pa

from streamjoin.engine.driver import PUNCTUATION
from streamjoin.engine.join import Join
from streamjoin.engine.preparation import prepare
from streamjoin.engine.row_types import check_columns
from streamjoin.plan.choose import make_plan
from streamjoin.plan.explain import explain_plan
from streamjoin.plan.options import MAX_RESULTS, Auto, IndexName, Options, Order, TopologyName
from streamjoin.plan.physical import Plan
from streamjoin.semantics.errors import InputError
from streamjoin.semantics.spec import JoinSpec


def open_join(
    spec: JoinSpec,
    topology: TopologyName | Auto = "auto",
    index: IndexName | Auto = "auto",
    workers: int | None = None,
    order: Order = "any",
    max_results: int = MAX_RESULTS,
    rate: float | None = None,
    latency: float | None = None,
) -> Join:
    """Open a join.

    `max_results`: no more result rows than this wait for `poll`. While as many wait, `push` takes nothing: it waits for
    another thread to poll, or raises `Backpressure` if none does (see `Join.push`).
    `latency`: the seconds that a result may come after its push (None: the sooner, the better). From 0.1 on, pushes
    wait some milliseconds for each other and are joined together, which is faster, unless `rate`, the tuples a second
    and side that are expected, says that hardly any come meanwhile.

    >>> import pyarrow as pa, streamjoin as sj
    >>> schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    >>> spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    >>> with sj.open_join(spec) as join:
    ...     join.push("left", pa.table({"ts": [1], "x": [7]}, schema=schema))
    ...     join.push("right", pa.table({"ts": [5], "x": [7]}, schema=schema))
    ...     join.finish().to_pylist()
    [{'ts': 1, 'x': 7, 'ts_right': 5, 'x_right': 7}]
    """
    return open_plan(make_plan(spec, Options(topology, index, workers, order, max_results, rate, latency)))


def open_plan(plan: Plan, wait: bool = False) -> Join:
    """Open a join as planned; with `wait`, after all its kernels are compiled."""
    check_columns(plan.spec)
    prepare(plan, None if wait else compile_join)
    return Join(plan)


def compile_join(spec: JoinSpec, options: Options) -> None:
    """Compile the kernels of a join into the cache on disk, as far as they are not there."""
    open_plan(make_plan(spec, options), wait=True).close()


def explain(
    spec: JoinSpec,
    topology: TopologyName | Auto = "auto",
    index: IndexName | Auto = "auto",
    workers: int | None = None,
    order: Order = "any",
    rate: float | None = None,
    latency: float | None = None,
    max_results: int = MAX_RESULTS,
) -> str:
    """How `open_join` would run this spec, and why. The options are those of `open_join`."""
    return explain_plan(make_plan(spec, Options(topology, index, workers, order, max_results, rate, latency)))


def punctuation(batch: pa.RecordBatch) -> int | None:
    """The promise a batch of an `order="punctuated"` join carries: no result that comes after it has a result time
    (the later of both event times, in ticks) below this. None if the batch carries none."""
    if not isinstance(batch, pa.RecordBatch):
        raise InputError(
            f"punctuation reads a RecordBatch that poll() gave, not a {type(batch).__name__}",
            field="batch",
            given=batch,
            allowed="a RecordBatch that poll() gave",
        )
    value = (batch.schema.metadata or {}).get(PUNCTUATION)
    return None if value is None else int(value)
