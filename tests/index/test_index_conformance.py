"""Every index gives the same pairs: those of the oracle on small tables, of the scan on longer streams.

Subwindows are made tiny, so that a few dozen tuples fill, seal and expire many of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from strategies import numbered, open_tuned, pairs_of, push_all, specs, windows
from streamjoin.index import access
from streamjoin.index.structures import bisort
from streamjoin.plan import subwindows as chooser
from streamjoin.plan.options import INDEXES, ORDERS
from streamjoin.plan.tuning import DEFAULT_TUNING, ChoiceTuning, IndexCosts, Tuning, WindowTuning

SORTED = ("bisort", "raptable", "wibtree")
ALL: Any = ("hash", *SORTED)
INT, LONG, SMALL, UNSIGNED = pa.int32(), pa.int64(), pa.int8(), pa.uint64()
FLOAT, DOUBLE, TEXT = pa.float32(), pa.float64(), pa.string()
EVERYTHING = 1_000_000
Pushes = list[tuple[str, pa.Table]]


@dataclass(frozen=True)
class Case:
    """A predicate, the columns it reads by side, and the indexes that can serve it."""

    on: Any
    left: tuple[pa.DataType, ...]
    right: tuple[pa.DataType, ...]
    indexes: tuple[str, ...]
    time: pa.DataType = LONG

    @property
    def both(self) -> tuple[pa.Schema, pa.Schema]:
        """Columns `x0`, `x1` ... on the left, `y0`, `y1` ... on the right."""
        left, right = (
            pa.schema([("ts", self.time), *((f"{letter}{n}", kind) for n, kind in enumerate(kinds))])
            for letter, kinds in (("x", self.left), ("y", self.right))
        )
        return left, right


def near(l: Any, r: Any) -> bool:
    return bool(abs(l.x0 - r.y0) <= 1)


CASES = {
    "equality": Case("x0 = y0", (INT,), (LONG,), ALL),
    "equality of unsigned": Case("x0 = y0", (UNSIGNED,), (UNSIGNED,), ALL),
    "equality of floats": Case("x0 = y0", (DOUBLE,), (DOUBLE,), ALL),
    "equality of decimals": Case("x0 = y0", (pa.decimal128(9, 2),), (pa.decimal128(5, 5),), ALL),
    "equality of strings": Case("x0 = y0", (TEXT,), (pa.dictionary(pa.int32(), TEXT),), ALL),
    "equality of binaries": Case("x0 = y0", (pa.binary(),), (pa.binary(1),), ALL),
    "shifted equality": Case("x0 + 1 = 2 * y0", (LONG,), (SMALL,), ALL),
    "two equalities": Case("x0 = y0 AND x1 = y1", (INT, pa.int16()), (INT, SMALL), ALL),
    "three equalities": Case(
        "x0 = y0 AND x1 = y1 AND x2 = y2", (LONG, FLOAT, TEXT), (INT, FLOAT, pa.large_string()), ALL
    ),
    "equality, residual": Case("x0 = y0 AND x1 * y1 > 1 AND x0 + y1 <> 3", (INT, LONG), (INT, INT), ALL),
    "equality, band": Case("x0 = y0 AND x1 BETWEEN y1 - 1 AND y1 + 1", (INT, DOUBLE), (INT, DOUBLE), ALL),
    "band": Case("x0 BETWEEN y0 - 1 AND y0 + 2", (INT,), (INT,), SORTED),
    "wide band": Case("y0 >= x0 - 10 AND y0 < x0 + 9223372036854775807", (LONG,), (LONG,), SORTED),
    "unsigned band": Case("x0 BETWEEN y0 - 1 AND y0 + 1", (UNSIGNED,), (UNSIGNED,), SORTED),
    "plane band": Case("ABS(x0 - y0) <= 1 AND x1 BETWEEN y1 - 2 AND y1", (INT, INT), (INT, LONG), SORTED),
    "plane band, mixed": Case(
        "ABS(x0 - y0) <= 1 AND x1 BETWEEN y1 - 2 AND y1", (INT, DOUBLE), (INT, DOUBLE), SORTED
    ),
    "one-sided": Case("x0 > y0 + 1", (LONG,), (INT,), SORTED),
    "one-sided twice": Case("x0 > y0 AND x1 <= y1", (LONG, FLOAT), (INT, FLOAT), SORTED),
    "scaled": Case("2 * x0 - 3 < 3 * y0 + 1 AND 5 * x0 >= 2 * y0", (INT,), (SMALL,), SORTED),
    "band and unequal": Case("x0 BETWEEN y0 - 1 AND y0 + 1 AND x1 <> y1", (INT, INT), (INT, LONG), SORTED),
    "band and union": Case(
        "x0 BETWEEN y0 AND y0 + 9 AND (x1 = y1 + 2 OR x1 < y1 OR x1 BETWEEN y1 + 5 AND y1 + 8)",
        (INT, LONG), (INT, LONG), SORTED,
    ),
    "band and text": Case(
        "x0 BETWEEN y0 - 1 AND y0 + 1 AND (x1 = y1 OR x1 LIKE '%b')", (INT, TEXT), (INT, TEXT), SORTED
    ),
    "decimal band": Case("ABS(x0 - y0) <= 0.5", (pa.decimal128(9, 2),), (pa.decimal128(5, 5),), SORTED),
    "float band": Case("ABS(x0 - y0) <= 0.5", (DOUBLE,), (DOUBLE,), SORTED),
    "single band": Case("x0 BETWEEN y0 - 0.1 AND y0 + 0.1", (FLOAT,), (FLOAT,), SORTED),
    "float one-sided": Case("x0 < y0", (DOUBLE,), (DOUBLE,), SORTED),
    "negated float": Case("NOT (x0 < y0) AND x0 < y1", (FLOAT,), (DOUBLE, DOUBLE), SORTED),
    "timestamps": Case(
        "x0 BETWEEN y0 - INTERVAL '1' SECOND AND y0 + INTERVAL '1 millisecond'",
        (pa.timestamp("us"),), (pa.timestamp("ns"),), SORTED, pa.timestamp("ms"),
    ),
    "dates": Case("x0 - y0 BETWEEN 0 AND 1", (pa.date32(),), (pa.date64(),), SORTED),
    "unequal": Case("x0 <> y0", (INT,), (LONG,), SORTED),
    "unequal floats": Case("x0 <> y0", (FLOAT,), (FLOAT,), SORTED),
    "outside": Case("x0 NOT BETWEEN y0 - 1 AND y0 + 1", (UNSIGNED,), (UNSIGNED,), SORTED),
    "union of bands": Case("x0 BETWEEN y0 - 1 AND y0 OR x0 = y0 + 2", (INT,), (INT,), SORTED),
    "overlapping bands": Case(
        "x0 BETWEEN y0 AND y0 + 2 OR x0 BETWEEN y0 - 1 AND y0 + 0.5 OR x0 = y0 OR x0 < y0 - 2",
        (DOUBLE,), (DOUBLE,), SORTED,
    ),
    "alternatives": Case("x0 - y0 IN (1, 0, 1, -2)", (LONG,), (INT,), ALL),
    "alternatives, unsigned": Case("x0 = y0 OR x0 = y0 + 1 OR x0 = 2 * y0 - y0", (UNSIGNED,), (UNSIGNED,), ALL),
    "alternatives, equality": Case("x0 - y0 IN (0, 1) AND x1 = y1", (INT, TEXT), (INT, TEXT), ALL),
    "alternatives, band": Case("x0 - y0 IN (0, 1) AND ABS(x1 - y1) <= 1", (INT, INT), (INT, INT), ALL),
    "unions over two keys": Case(
        "(x0 = y0 OR x0 BETWEEN y0 + 2 AND y0 + 3) AND (x1 < y1 OR x1 BETWEEN y1 AND y1 + 1)",
        (INT, DOUBLE), (INT, DOUBLE), SORTED,
    ),
    "union over keys": Case("x0 = y0 OR x1 BETWEEN y1 AND y1 + 1", (INT, LONG), (INT, LONG), ()),
    "pattern": Case("x0 LIKE 'a%' AND y0 NOT LIKE '_'", (TEXT,), (TEXT,), ()),
    "string order": Case("x0 < y0", (TEXT,), (TEXT,), ()),
    "one side only": Case("x0 > 1", (INT,), (), ()),
    "everything": Case("TRUE", (), (), ()),
    "callable": Case(near, (INT,), (DOUBLE,), ()),
}  # fmt: skip
SERVED = {name: case for name, case in CASES.items() if case.indexes}


def tuned(smallest: int, largest: int) -> Tuning:
    """New subwindows take a number of tuples between these; a window left to the planner is indexed from `largest` on,
    in strips where there are two bands, and sorted from twice as many on."""
    return Tuning(
        costs=IndexCosts(per_push=0, fewest_tuples=largest),
        choice=ChoiceTuning(
            hashed_up_to=2 * largest, more_in_batches=0, many_candidates=0, many_of_a_batch=0
        ),
        window=WindowTuning(smallest_subwindow=smallest, largest_subwindow=largest),
    )


@contextmanager
def sorted_soon() -> Iterator[None]:
    """Probes are sorted for more than 64 keys, and any sample of them is enough."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chooser.Workload, "known", True)
        patch.setattr(access, "SORTED_FROM", 5)
        patch.setattr(bisort, "SORT_BYTES", 256)
        yield


def cut(table: pa.Table, size: int) -> list[pa.Table]:
    return [table.slice(at, size) for at in range(0, table.num_rows, size)]


def interleaved(left: pa.Table, right: pa.Table, size: int, seed: int) -> Pushes:
    """Batches of `size` rows, the sides in a random order."""
    pieces = {"left": cut(left, size), "right": cut(right, size)}
    turns = [side for side, parts in pieces.items() for _ in parts]
    random.Random(seed).shuffle(turns)
    return [(side, pieces[side].pop(0)) for side in turns]


def alternating(left: pa.Table, right: pa.Table, size: int) -> Pushes:
    """Batches of `size` rows, the sides in turn: windows expire as the streams go."""
    lefts, rights = cut(left, size), cut(right, size)
    pushes = [push for l, r in zip(lefts, rights, strict=False) for push in (("left", l), ("right", r))]
    both = min(len(lefts), len(rights))
    return pushes + [("left", l) for l in lefts[both:]] + [("right", r) for r in rights[both:]]


def joined(
    spec: sj.JoinSpec,
    pushes: Pushes,
    index: Any,
    order: Any = "any",
    room: int = EVERYTHING,
    tuning: Tuning = DEFAULT_TUNING,
) -> list[tuple[int, int]]:
    """The (l, r) of the result: in its order if that is fixed, else sorted."""
    with open_tuned(tuning, spec, index=index, order=order, max_results=room) as join:
        batches = push_all(join, pushes, lambda: True)
        found = [pair for batch in [*batches, join.finish()] for pair in pairs_of(batch)]
    return found if order == "timestamp" else sorted(found)


# ---- small tables, against the oracle


def check_small(case: Case, data: st.DataObject) -> None:
    """One example: all indexes on the same pushes."""
    order = data.draw(st.sampled_from(ORDERS))
    plain = data.draw(specs(on=case.on, both=case.both, in_order=True, max_rows=30))
    spec, left, right = numbered(*plain)
    expected = sj.oracle.pairs(left, right, spec)
    size = data.draw(st.sampled_from([1, 7, 1000, 3]))
    pushes = interleaved(left, right, size, data.draw(st.integers(0, 1000)))
    room = data.draw(st.sampled_from([EVERYTHING, 1, 3]))
    tuning = tuned(*data.draw(st.sampled_from([(4, 16), (1, 1), (2, 8), (4096, 1 << 20)])))
    with sorted_soon():
        for index in (*case.indexes, "auto"):
            found = joined(spec, pushes, index, order, room, tuning)
            assert found == (expected if order == "timestamp" else sorted(expected)), index


@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=12)
@given(data=st.data())
def test_small_tables_give_the_oracles_result(name, data):
    check_small(SERVED[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=60)
@given(data=st.data())
def test_many_small_tables_give_the_oracles_result(name, data):
    check_small(SERVED[name], data)


@pytest.mark.parametrize("kind", [TEXT, DOUBLE, UNSIGNED], ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_alternatives_that_only_one_window_can_look_up_give_the_oracles_result(kind, data):
    """A left key equals one of two right columns; the right window, with two keys, is scanned."""
    check_small(Case("x0 IN (y0, y1)", (kind,), (kind, kind), ()), data)


# ---- longer streams, against the scan

WINDOWS: dict[str, Any] = {
    "time": sj.TimeWindow(left=90, right=40),
    "zero": sj.TimeWindow(0),
    "right alone": sj.TimeWindow(left=0, right=70),
    "rows": sj.RowWindow(left=60, right=25),
    "time and rows": (sj.TimeWindow(50), sj.RowWindow(40)),
    "rows and time": (sj.RowWindow(40), sj.TimeWindow(50)),
}
STREAM_CASES = ("two equalities", "equality, band", "plane band, mixed", "one-sided twice", "band and text")
RUNS = [
    ("any", 150, 1),
    ("timestamp", 500, 7),
    ("punctuated", 500, 7),
    ("any", 500, 1000),
    ("timestamp", 500, 40),
]


def stream(schema: pa.Schema, rows: int, seed: int, step: int = 3) -> pa.Table:
    """Times rise by less than `step` a row; values are few, with NULLs and, in floats, NaN and both zeros."""
    rng = np.random.default_rng(seed)
    columns = [pa.array(np.cumsum(rng.integers(0, step, rows)), schema.field("ts").type)]
    for field in schema:
        if field.name != "ts":
            encoded = pa.types.is_dictionary(field.type)
            kind = field.type.value_type if encoded else field.type
            column = pa.array(random_values(kind, rng, rows), kind, mask=rng.random(rows) < 0.05)
            columns.append(column.dictionary_encode() if encoded else column)
    return pa.Table.from_arrays(columns, schema=schema)


def random_values(kind: pa.DataType, rng: np.random.Generator, rows: int) -> np.ndarray:
    numbers = np.where(rng.random(rows) < 0.5, rng.integers(-1, 2, rows), rng.integers(-9, 10, rows))
    if pa.types.is_integer(kind):
        return np.abs(numbers) if pa.types.is_unsigned_integer(kind) else numbers
    if pa.types.is_floating(kind):
        odd = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], rows)
        return np.where(rng.random(rows) < 0.2, odd, numbers / 2).astype(kind.to_pandas_dtype())
    if pa.types.is_decimal(kind):
        return np.array([Decimal(int(number)).scaleb(-2) for number in numbers], object)
    if pa.types.is_date(kind):
        return numbers.astype("datetime64[D]")
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return np.array([bytes([100 + number]) for number in numbers], object)
    return np.char.mod("b%d", numbers).astype(object)  # of which pyarrow 19 makes strings of any layout


@cache
def streams(name: str, window: str, rows: int) -> tuple[sj.JoinSpec, pa.Table, pa.Table]:
    case = SERVED[name]
    spec = sj.JoinSpec(*case.both, case.on, WINDOWS[window], "ts", "ts")
    left, right = (stream(schema, rows, seed) for seed, schema in enumerate(case.both))
    made: tuple[sj.JoinSpec, pa.Table, pa.Table] = numbered(spec, left, right)
    return made


@cache
def scanned(name: str, window: str, rows: int, order: Any) -> list[tuple[int, int]]:
    spec, left, right = streams(name, window, rows)
    return joined(spec, alternating(left, right, 100), "scan", order)


def check_stream(name: str, window: str, order: Any, rows: int, size: int) -> None:
    spec, left, right = streams(name, window, rows)
    expected = scanned(name, window, rows, order)
    tuning = tuned(4, 16)
    with sorted_soon():
        for index in (*SERVED[name].indexes, "auto"):
            assert joined(spec, alternating(left, right, size), index, order, tuning=tuning) == expected, (
                index
            )


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", STREAM_CASES)
def test_streams_give_the_scans_result(name, window):
    """Each predicate and window with one way to run; across both, all ways."""
    at = list(STREAM_CASES).index(name) + list(WINDOWS).index(window)
    order, rows, size = RUNS[at % len(RUNS)]
    assert scanned(name, window, rows, order)
    check_stream(name, window, order, rows, size)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=str)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", [name for name, case in SERVED.items() if case.time == LONG])
def test_every_stream_gives_the_scans_result(name, window, run):
    check_stream(name, window, *run)


@pytest.mark.parametrize("kind", [LONG, DOUBLE], ids=str)
def test_bands_of_every_width_in_one_stream(kind):
    """Most probes ask for little, some for everything, nothing, or half of all numbers."""
    left_schema = pa.schema({"ts": LONG, "x": kind, "y": kind})
    right_schema = pa.schema({"ts": LONG, "a": kind, "b": kind, "c": kind, "d": kind})
    on = "x BETWEEN a AND b AND y BETWEEN c AND d"
    spec = sj.JoinSpec(left_schema, right_schema, on, sj.TimeWindow(200), "ts", "ts")
    left, right = stream(left_schema, 400, 1), stream(right_schema, 400, 2)
    ends = [-(2**63), 2**63 - 1] if kind == LONG else [-np.inf, -1e300, 1e300, np.inf]
    rng = np.random.default_rng(3)
    for name in "abcd":
        values = right[name].to_numpy(zero_copy_only=False).copy()
        values[np.isnan(values)] = 0
        values = values.astype(np.int64 if kind == LONG else np.float64) + (4 if name in "bd" else 0)
        at = rng.random(len(values)) < 0.3
        values[at] = rng.choice(np.array(ends, values.dtype), int(at.sum()))
        right = right.set_column(right.schema.get_field_index(name), name, pa.array(values, kind))
    spec, left, right = numbered(spec, left, right)
    expected = joined(spec, alternating(left, right, 50), "scan")
    assert expected
    for size in (1, 50, 1000):
        tuning = tuned(4, 64)
        with sorted_soon():
            for index in (*SORTED, "auto"):
                assert joined(spec, alternating(left, right, size), index, tuning=tuning) == expected, (
                    size,
                    index,
                )


@pytest.mark.parametrize("window", WINDOWS)
def test_the_scan_gives_the_oracles_result_on_a_long_stream(window):
    spec, left, right = streams("plane band, mixed", window, 300)
    expected = sorted(sj.oracle.pairs(left, right, spec))
    assert scanned("plane band, mixed", window, 300, "any") == expected


# ---- several sources, out of order

Streams = dict[tuple[str, str], pa.Table]


def divide(table: pa.Table, lateness: int) -> tuple[pa.Table, int]:
    """A source's rows that are not late, and how many are."""
    ts = table["ts"].to_numpy()
    on_time = ts >= np.maximum.accumulate(ts) - lateness
    return table.filter(pa.array(on_time)), int((~on_time).sum())


@st.composite
def disordered(draw: Any, case: Case, lateness: int) -> Streams:
    """One to three sources a side, each a stream whose rows come up to 1.2 times the lateness late."""
    found = {}
    for side, schema in zip(("left", "right"), case.both, strict=True):
        numbered_schema = schema.append(pa.field("l" if side == "left" else "r", LONG))
        first = 0
        for name in draw(st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=3, unique=True)):
            rows, seed = draw(st.integers(0, 40)), draw(st.integers(0, 10_000))
            arrival = np.arange(rows) + np.random.default_rng(seed).integers(0, 1 + (lateness * 6) // 5, rows)
            table = stream(schema, rows, seed, 2).take(np.argsort(arrival, kind="stable"))
            numbers = pa.array(np.arange(first, first + rows))
            found[side, name] = pa.Table.from_arrays([*table.columns, numbers], schema=numbered_schema)
            first += rows
    return found


def check_disorder(case: Case, data: st.DataObject) -> None:
    lateness, order = data.draw(st.sampled_from([12, 0, 3, 40])), data.draw(st.sampled_from(ORDERS))
    sources = data.draw(disordered(case, lateness))
    window, size = data.draw(windows(None)), data.draw(st.sampled_from([1, 7, 1000]))
    both = [
        next(table.schema for key, table in sources.items() if key[0] == side) for side in ("left", "right")
    ]
    spec = sj.JoinSpec(both[0], both[1], case.on, window, "ts", "ts", lateness=lateness)
    kept = {key: divide(table, lateness)[0] for key, table in sources.items()}
    union = [pa.concat_tables([kept[k] for k in sorted(kept) if k[0] == side]) for side in ("left", "right")]
    expected = pairs_of(sj.oracle.join(union[0], union[1], spec))
    turns = [(key, piece) for key, table in sources.items() for piece in cut(table, size)]
    schedule = mixed(turns, data.draw(st.integers(0, 1000)))
    tuning = tuned(*data.draw(st.sampled_from([(4, 16), (1, 1), (2, 8)])))
    with sorted_soon():
        chosen: Any = (*case.indexes, "auto")
        for index in chosen:
            with open_tuned(tuning, spec, index=index, order=order) as join:
                opened = {key: join.source(*key) for key in sources}
                for key, piece in schedule:
                    opened[key].push(piece)
                found = pairs_of(join.finish())
                late = join.stats().late
            assert late == sum(divide(table, lateness)[1] for table in sources.values())
            assert (found if order == "timestamp" else sorted(found)) == (
                expected if order == "timestamp" else sorted(expected)
            ), index


def mixed(turns: list[tuple[tuple[str, str], pa.Table]], seed: int) -> list[tuple[tuple[str, str], pa.Table]]:
    """The pushes of all sources in a random order; those of one source stay in theirs."""
    keys = [key for key, _ in turns]
    random.Random(seed).shuffle(keys)
    waiting = {key: iter([piece for other, piece in turns if other == key]) for key in set(keys)}
    return [(key, next(waiting[key])) for key in keys]


@pytest.mark.parametrize(
    "name", ["equality", "three equalities", "plane band, mixed", "band and union", "float band"]
)
@settings(max_examples=15)
@given(data=st.data())
def test_sources_out_of_order_give_the_oracles_result(name, data):
    check_disorder(SERVED[name], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=40)
@given(data=st.data())
def test_many_sources_out_of_order_give_the_oracles_result(name, data):
    if SERVED[name].time == LONG:
        check_disorder(SERVED[name], data)


# ---- what cannot be served


@pytest.mark.parametrize("name", CASES)
def test_an_index_that_can_not_serve_says_what_the_predicate_offers(name):
    case = CASES[name]
    spec = sj.JoinSpec(
        *case.both, case.on, sj.TimeWindow("9 seconds" if case.time != LONG else 9), "ts", "ts"
    )
    for index in ALL:
        if index in case.indexes:
            assert index in sj.explain(spec, index=index)
            continue
        for use in (sj.explain, sj.open_join):
            with pytest.raises(sj.IndexNotApplicableError) as caught:
                use(spec, index=index)
            message = str(caught.value)
            assert repr(index) in message and "offers" in message
            assert ("equality" in message) and (index == "hash" or "interval" in message)
    assert sj.explain(spec, index="scan") and sj.explain(spec, index="auto")
    assert set(INDEXES) == {"scan", *ALL}


# ---- large streams, against the scan

LARGE_LEFT = pa.schema({"ts": LONG, "x": INT, "y": FLOAT, "sym": TEXT, "l": LONG})
LARGE_RIGHT = pa.schema({"ts": LONG, "a": INT, "b": FLOAT, "name": TEXT, "r": LONG})
LARGE_ON = {
    "equality": "x = a",
    "two equalities": "sym = name AND x = a",
    "equality and band": "sym = name AND y BETWEEN b - 9 AND b + 9",
    "plane band": "x BETWEEN a - 100 AND a + 100 AND y BETWEEN b - 100 AND b + 100",
    "band and residual": "x BETWEEN a - 3 AND a + 3 AND y * b > 1000000",
}
LARGE_WINDOWS: dict[str, Any] = {
    "time": sj.TimeWindow(left=10_000, right=5000),
    "rows": sj.RowWindow(left=8000, right=12_000),
}


@cache
def large_streams(rows: int) -> tuple[pa.Table, pa.Table]:
    """Times rise by one a row on average; x is skewed, y uniform below 10,000; NULLs in both keys."""
    tables = []
    for seed, schema in enumerate((LARGE_LEFT, LARGE_RIGHT)):
        rng = np.random.default_rng(seed)
        x = np.minimum(rng.exponential(3000, rows), 10_000).astype(np.int32)
        columns = [
            pa.array(np.cumsum(rng.integers(0, 3, rows))),
            pa.array(x, mask=rng.random(rows) < 0.01),
            pa.array((rng.random(rows) * 10_000).astype(np.float32)),
            pa.array(np.char.mod("s%d", rng.integers(0, 20, rows)), mask=rng.random(rows) < 0.01),
            pa.array(np.arange(rows)),
        ]
        tables.append(pa.Table.from_arrays(columns, schema=schema))
    return tables[0], tables[1]


def large_result(name: str, window: str, index: Any, rows: int, batch: int) -> np.ndarray:
    """The pairs as one sorted number each."""
    left, right = large_streams(rows)
    spec = sj.JoinSpec(LARGE_LEFT, LARGE_RIGHT, LARGE_ON[name], LARGE_WINDOWS[window], "ts", "ts")
    codes = []
    with sj.open_join(spec, index=index, max_results=1 << 30) as join:
        for side, piece in alternating(left, right, batch):
            join.push(side, piece)
            polled = join.poll()
            codes += [out["l"].to_numpy() * rows + out["r"].to_numpy() for out in polled]
        rest = join.finish()
    codes.append(rest["l"].to_numpy() * rows + rest["r"].to_numpy())
    return np.sort(np.concatenate(codes))


@cache
def large_scan(name: str, window: str, rows: int) -> np.ndarray:
    return large_result(name, window, "scan", rows, 20_000)


def check_large(name: str, window: str, rows: int, batch: int) -> None:
    expected = large_scan(name, window, rows)
    assert len(expected) > rows // 10
    for index in (*(ALL if "equalit" in name else SORTED), "auto"):
        assert np.array_equal(large_result(name, window, index, rows, batch), expected), index


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("equality", "time"),
        ("two equalities", "rows"),
        ("equality and band", "time"),
        ("plane band", "rows"),
        ("plane band", "time"),
        ("band and residual", "time"),
    ],
)
def test_large_streams_give_the_scans_result(name, window):
    check_large(name, window, 100_000, 5000)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [100, 300_000])
@pytest.mark.parametrize("window", LARGE_WINDOWS)
@pytest.mark.parametrize("name", LARGE_ON)
def test_very_large_streams_give_the_scans_result(name, window, batch):
    check_large(name, window, 1_000_000, batch)
