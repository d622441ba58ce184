"""Bad input gets an error that names what was given and what is allowed, and changes nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import streamjoin as sj

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int32())])
STRICT = pa.schema([("ts", pa.int64()), pa.field("x", pa.int32(), nullable=False)])
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")


def rows(ts: list[int], x: list[int]) -> pa.Table:
    return pa.table({"ts": ts, "x": x}, schema=SCHEMA)


def typed(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"ts": pa.array(values, kind), "x": pa.array([7] * len(values), pa.int32())})


def refused(given: Callable[[], object], error: type[sj.StreamJoinError], *said: str) -> None:
    """`given` raises exactly `error`, and the message says all of `said`."""
    with pytest.raises(sj.StreamJoinError) as caught:
        given()
    assert type(caught.value) is error
    for words in said:
        assert words in str(caught.value)


# ---- data

BAD_DATA: dict[str, tuple[Any, list[str]]] = {
    "not Arrow": ({"ts": [20], "x": [7]}, ["left data is a dict", "RecordBatch", "PyCapsule"]),
    "None": (None, ["left data is a NoneType", "RecordBatch"]),
    "a lazy frame": (pl.LazyFrame({"ts": [20]}), ["left data is a LazyFrame", "RecordBatch"]),
    "an array": (pa.array([20]), ["left data", "Int64Array", "RecordBatch"]),
    "chunks of an array": (pa.chunked_array([[20]]), ["left data", "ChunkedArray", "RecordBatch"]),
    "a series": (pl.Series([20]), ["left data", "Series", "RecordBatch"]),
    "a missing column": (rows([20], [7]).select(["ts"]), ["['ts']", "['ts', 'x']", "missing: ['x']"]),
    "no columns": (pa.table({}), ["[]", "missing: ['ts', 'x']"]),
    "an extra column": (rows([20], [7]).append_column("y", [[1]]), ["not in the spec: ['y']"]),
    "a repeated column": (
        rows([20], [7]).append_column("x", [[7]]),
        ["['ts', 'x', 'x']", "the spec says ['ts', 'x']"],
    ),
    "another type": (
        pa.table({"ts": [20], "x": ["7"]}),
        ["left column 'x' has type string", "the spec says int32", "cast it first"],
    ),
    "a fraction": (
        pa.table({"ts": [20, 20], "x": [7.0, 7.5]}),
        ["left column 'x' has 7.5 at row 1", "int32", "declare the column as double", "pc.cast("],
    ),
    "a value beyond the type": (
        pa.table({"ts": [20], "x": [2**31]}),
        ["left column 'x' has 2147483648 at row 0", "int32", "declare the column as int64"],
    ),
    "timestamps": (
        typed(pa.timestamp("us"), [20]),
        ["left column 'ts' has type timestamp[us]", "says int64"],
    ),
    "falling time": (rows([20, 22, 21], [7, 7, 7]), ["left time falls from 22 to 21 at row 2", "lateness"]),
    "time before the last push": (rows([9], [7]), ["left time falls from 10 to 9 at row 0", "lateness"]),
    "null time": (
        pa.table({"ts": [20, None], "x": [7, 7]}, SCHEMA),
        ["left time column 'ts' is null at row 1"],
    ),
}


@pytest.mark.parametrize("order", ["any", "timestamp"])
@pytest.mark.parametrize("bad", list(BAD_DATA))
def test_bad_data_is_named_and_changes_nothing(bad, order):
    data, said = BAD_DATA[bad]
    left, right = rows([8, 10, 10, 21], [7, 8, 7, 7]), rows([9, 20], [7, 7])
    with sj.open_join(SPEC, order=order) as join:
        join.push("left", left.slice(0, 2))
        before = join.stats()
        refused(lambda: join.push("left", data), sj.InputError, *said)
        assert join.stats() == before
        join.push("left", left.slice(2))
        join.push("right", right)
        found = join.finish()
    pairs = sorted(zip(found["ts"].to_pylist(), found["ts_right"].to_pylist(), strict=True))
    assert pairs == [(8, 9), (10, 9), (10, 20), (21, 20)]
    assert found.num_rows == sj.oracle.join(left, right, SPEC).num_rows


@pytest.mark.parametrize("declared", [SCHEMA, STRICT], ids=["nullable data", "data that claims to have none"])
def test_nulls_in_a_column_that_has_none(declared):
    spec = sj.JoinSpec(STRICT, STRICT, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([None], pa.int32())], schema=declared)
    with sj.open_join(spec) as join:
        refused(
            lambda: join.push("right", batch), sj.InputError, "right column 'x' has nulls", "not nullable"
        )
        join.push("right", rows([1], [7]))
        join.push("left", rows([1], [7]))
        assert join.finish().num_rows == 1
    refused(lambda: sj.join_tables(batch, rows([1], [7]), spec), sj.InputError, "left column 'x' has nulls")


def test_bad_tables():
    good = rows([1], [7])
    refused(lambda: sj.join_tables(good, "right", SPEC), sj.InputError, "right data is a str")
    refused(lambda: sj.join_tables(good, good.select(["x"]), SPEC), sj.InputError, "missing: ['ts']")
    nulls = pa.table({"ts": [None], "x": [7]}, SCHEMA)
    refused(
        lambda: sj.join_tables(nulls, good, SPEC), sj.InputError, "left time column 'ts' is null at row 0"
    )


def test_time_that_falls_within_the_lateness_is_taken_and_below_it_is_late():
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts", lateness=3)
    with sj.open_join(spec) as join:
        join.push("left", rows([20, 17, 16], [7, 7, 7]))
        assert (join.stats().left_tuples, join.stats().left_late) == (2, 1)


def test_a_time_that_overflows_in_the_finer_unit():
    left, right = (pa.schema([("ts", pa.timestamp(unit)), ("x", pa.int32())]) for unit in ("s", "ns"))
    spec = sj.JoinSpec(left, right, "left.x = right.x", sj.TimeWindow("1 s"), "ts", "ts")
    with sj.open_join(spec) as join:
        for ts in (2**40, -(2**40), -(2**63)):
            refused(
                lambda ts=ts: join.push("left", typed(pa.timestamp("s"), [ts])),  # type: ignore[misc]
                sj.InputError, f"left time {ts}", "overflows", "timestamp[ns]",
            )  # fmt: skip
        assert join.stats().tuples == 0
        join.push("left", typed(pa.timestamp("s"), [5]))
        join.push("right", typed(pa.timestamp("ns"), [5_000_000_000]))
        assert join.finish().num_rows == 1


def test_an_unsigned_time_beyond_64_signed_bits():
    schema = pa.schema([("ts", pa.uint64()), ("x", pa.int32())])
    spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(5), "ts", "ts")
    with sj.open_join(spec) as join:
        refused(
            lambda: join.push("right", typed(pa.uint64(), [1, 2**63])),
            sj.InputError,
            f"right time {2**63}",
            "64",
        )
        join.push("right", typed(pa.uint64(), [2**63 - 1]))
        join.push("left", typed(pa.uint64(), [2**63 - 6, 2**63 - 3]))
        assert join.finish()["ts"].to_pylist() == [2**63 - 6, 2**63 - 3]


class Exporter:
    """A table of another library whose export fails, as an attribute or when it is called."""

    def __init__(self, method: str, error: BaseException, at_look: bool):
        self._method, self._error, self._at_look = method, error, at_look

    def __getattr__(self, name: str) -> Any:
        if name != self._method:
            raise AttributeError(name)
        if self._at_look:
            raise self._error
        return self._fail

    def _fail(self, *_: object, **__: object) -> Any:
        raise self._error


@pytest.mark.parametrize("at_look", [False, True], ids=["when called", "when looked up"])
@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), OSError("broken"), KeyError("broken"), AttributeError("broken")]
)
@pytest.mark.parametrize("method", ["__arrow_c_stream__", "__arrow_c_array__"])
def test_data_that_raises_while_it_is_read_is_bad_data(method, error, at_look):
    with sj.open_join(SPEC) as join:
        said = [] if at_look and isinstance(error, AttributeError) else ["broken", "nothing of it was taken"]
        data = Exporter(method, error, at_look)
        refused(lambda: join.push("left", data), sj.InputError, "left data is a Exporter", *said)
        assert join.stats().tuples == 0
        join.push("left", rows([0], [7]))
        join.push("right", rows([0], [7]))
        assert join.finish().num_rows == 1


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which pytest would take for its own."""


@pytest.mark.parametrize("error", [Interrupt(), MemoryError()], ids=repr)
def test_what_is_not_the_datas_fault_passes_through(error):
    with sj.open_join(SPEC) as join:
        with pytest.raises(type(error)):
            join.push("left", Exporter("__arrow_c_stream__", error, at_look=False))
        assert join.stats().tuples == 0


def test_data_that_arrow_can_not_make_one_batch_is_bad_data():
    """Chunks with dictionaries that have a NULL among their values, which Arrow does not unify."""
    kind = pa.list_(pa.dictionary(pa.int8(), pa.string()))
    schema = pa.schema([("ts", pa.int64()), ("x", pa.int32()), ("w", kind)])
    spec = sj.JoinSpec(schema, SCHEMA, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    chunks = []
    for values in (["a", None], [None, "b"]):
        words = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(values))
        chunks.append(pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), words))
    table = pa.table(
        [pa.array([1, 2]), pa.array([7, 7], pa.int32()), pa.chunked_array(chunks)], schema=schema
    )
    with sj.open_join(spec) as join:
        refused(lambda: join.push("left", table), sj.InputError, "left data", "nulls", "fewer rows")
        for row in range(2):
            join.push("left", table.slice(row, 1))
        join.push("right", rows([3], [7]))
        assert sorted(map(str, join.finish()["w"].to_pylist())) == ["['a', None]", "[None, 'b']"]


def test_an_error_of_the_users_reader_is_the_cause_of_bad_data_and_changes_nothing():
    def batches():
        yield rows([1], [7]).to_batches()[0]
        raise OSError("the network is down")

    with sj.open_join(SPEC) as join:
        with pytest.raises(sj.InputError, match="the network is down") as caught:
            join.push("left", pa.RecordBatchReader.from_batches(SCHEMA, batches()))
        assert isinstance(caught.value.__cause__, OSError)
        assert join.stats().tuples == 0
        join.push("left", rows([0], [7]))
        join.push("right", rows([0], [7]))
        assert join.finish().num_rows == 1


# ---- a join that has ended, sources


def test_nothing_can_be_pushed_to_a_join_that_ended():
    with sj.open_join(SPEC) as join:
        source = join.source("left", "a")
        join.finish()
        for use in (
            lambda: join.push("left", rows([1], [7])),
            lambda: source.push(rows([1], [7])),
            lambda: source.advance(5),
            lambda: join.source("right", "b"),
            lambda: join.end("left"),
            join.finish,
        ):
            refused(use, sj.ClosedError, "the join is closed", "open_join")
        assert join.poll() == []
        source.close()


def test_nothing_can_be_pushed_to_a_closed_source():
    with sj.open_join(SPEC) as join:
        source = join.source("left", "a")
        source.close()
        refused(lambda: source.push(rows([1], [7])), sj.ClosedError, "source 'a' of left is closed")
        refused(
            lambda: join.source("left", "a"), sj.InputError, "left has a source named 'a' already", "['a']"
        )
        refused(lambda: join.source("left", 7), sj.InputError, "name", "7")  # type: ignore[arg-type]
        refused(lambda: join.source("middle", "a"), sj.InputError, "side is 'middle'", "left, right")
        assert join.stats().tuples == 0


def test_a_source_advances_by_whole_ticks_only():
    with sj.open_join(SPEC) as join:
        source = join.source("left", "a")
        for ts in (1.5, "1", True, None):
            refused(lambda ts=ts: source.advance(ts), sj.InputError, "ticks", repr(ts))  # type: ignore[misc]


def test_a_refused_push_opens_no_source():
    """A default source that never brought a row would hold all others back."""
    with sj.open_join(SPEC, order="timestamp") as join:
        left, right = join.source("left", "a"), join.source("right", "b")
        refused(lambda: join.push("left", "rows"), sj.InputError, "left data is a str")
        refused(
            lambda: join.push("right", rows([2, 1], [7, 7])), sj.InputError, "right time falls from 2 to 1"
        )
        left.push(rows([1, 5], [7, 7]))
        right.push(rows([1, 5], [7, 7]))
        assert sum(batch.num_rows for batch in join.poll()) > 0


@pytest.mark.parametrize("side", ["Left", "both", None, 0, ["left"]])
def test_unknown_side(side):
    with sj.open_join(SPEC) as join:
        uses = [lambda: join.push(side, rows([1], [7])), lambda: join.late(side)]
        if side is not None:  # ends both sides
            uses.append(lambda: join.end(side))
        for use in uses:
            refused(use, sj.InputError, f"side is {side!r}", "allowed: left, right")
        assert join.stats().tuples == 0


# ---- choices


@pytest.mark.parametrize(
    ("option", "given", "allowed"),
    [
        ("topology", "ring", "auto, three_step"),
        ("topology", None, "auto, three_step"),
        ("index", "btree", "auto, scan, hash, bisort, raptable, wibtree"),
        ("index", ["scan"], "auto, scan, hash, bisort, raptable, wibtree"),
        ("order", "descending", "any, punctuated, timestamp"),
        ("workers", 0, "from 1 to 64"),
        ("workers", 1.5, "from 1 to 64"),
        ("workers", True, "from 1 to 64"),
        ("max_results", 0, "at least 1"),
        ("max_results", -1, "at least 1"),
        ("max_results", "many", "at least 1"),
        ("max_results", True, "at least 1"),
    ],
)
def test_unknown_choices(option, given, allowed):
    refused(
        lambda: sj.open_join(SPEC, **{option: given}),
        sj.SpecError,
        f"{option} is {given!r}",
        "allowed",
        allowed,
    )
    if option != "max_results":
        good, choice = rows([1], [7]), {option: given}
        refused(lambda: sj.explain(SPEC, **choice), sj.SpecError, f"{option} is {given!r}", allowed)
        refused(
            lambda: sj.join_tables(good, good, SPEC, **choice),
            sj.SpecError,
            f"{option} is {given!r}",
            allowed,
        )


def test_what_is_no_spec():
    spec: Any = "left.x = right.x"
    for use in (
        lambda: sj.open_join(spec),
        lambda: sj.explain(spec),
        lambda: sj.join_tables(rows([1], [7]), rows([1], [7]), spec),
    ):
        refused(use, sj.SpecError, "spec is a str", "JoinSpec")


@pytest.mark.parametrize("timeout", ["soon", float("nan"), -1, True, [1]])
def test_a_timeout_that_is_no_time(timeout):
    with sj.open_join(SPEC) as join:
        refused(
            lambda: join.push("left", rows([1], [7]), timeout=timeout),
            sj.InputError,
            f"timeout is {timeout!r}",
        )
        assert join.stats().tuples == 0


def test_a_timeout_of_centuries():
    with sj.open_join(SPEC) as join:
        join.push("left", rows([1], [7]), timeout=1e12)
        join.push("right", rows([1], [7]), timeout=float("inf"))
        assert join.finish().num_rows == 1


# ---- callables that cannot be compiled: the message says why, and names the line of the user's function


def here() -> int:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return frame.f_back.f_lineno


def opened(predicate: Any) -> Callable[[], object]:
    return lambda: sj.open_join(sj.JoinSpec(SCHEMA, SCHEMA, predicate, sj.TimeWindow(10), "ts", "ts"))


def test_a_method_that_the_compiler_does_not_know():
    line = here() + 4

    def strange(l, r):
        text = str(l.x)
        return text.encode() == r.x

    refused(opened(strange), sj.PredicateError, "strange", "encode", f"line {line}", "test_errors.py")


def test_a_global_that_the_compiler_can_not_type():
    line = here() + 3

    def strange(l, r):
        return re.match("7", "7") is not None and l.x == r.x

    refused(opened(strange), sj.PredicateError, "strange", "match", f"line {line}")


def test_a_name_that_does_not_exist():
    line = here() + 3

    def strange(l, r):
        return l.x > unknown_name  # type: ignore[name-defined]  # noqa: F821

    refused(opened(strange), sj.PredicateError, "strange", "unknown_name", f"line {line}")


def test_what_a_callable_returns_counts_as_python_counts_it():
    left, right = rows([1, 2, 3], [0, 1, 2]), rows([1, 2, 3], [0, 1, 2])
    returned: list[Any] = [lambda l, r: l.x & r.x, lambda l, r: None]
    for predicate in returned:
        spec = sj.JoinSpec(SCHEMA, SCHEMA, predicate, sj.TimeWindow(10), "ts", "ts")
        assert sj.join_tables(left, right, spec, order="timestamp").equals(sj.oracle.join(left, right, spec))


def test_an_error_while_the_predicate_runs_stops_the_join():
    def picky(l, r):
        if r.x < 0:
            raise ValueError("no negative numbers")
        return l.x == r.x

    with sj.open_join(sj.JoinSpec(SCHEMA, SCHEMA, picky, sj.TimeWindow(10), "ts", "ts")) as join:
        join.push("left", rows([1], [7]))
        join.push("right", rows([1], [7]))
        assert sum(batch.num_rows for batch in join.poll()) == 1
        with pytest.raises(ValueError, match="no negative numbers"):
            join.push("right", rows([2], [-1]))
        for use in (lambda: join.push("left", rows([3], [7])), join.poll, join.finish):
            refused(use, sj.StreamJoinError, "stopped after an error", "no negative numbers")
        assert join.stats().matches == 1
