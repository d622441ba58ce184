"""Hypothesis strategies that all tests share: schemas, tables, windows, SQL predicates, whole joins.

Values come from small pools and predicates lean to equalities and bands, so that pairs match;
extremes, NULL, NaN and infinities are mixed in. Alternatives are listed simplest first, which is
where shrinking ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st

from streamjoin.engine.join import Join
from streamjoin.engine.open import open_plan
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.plan.tuning import EngineTuning, Tuning
from streamjoin.semantics.errors import Backpressure, PredicateError, WindowError
from streamjoin.semantics.keep import HOW, PICKING, AsOf, How, Keep, Nearest
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.types import TIME_SCALE
from streamjoin.semantics.windows import Interval, RowWindow, TimeWindow, Window

Draw = Callable[..., Any]

INTEGERS = [pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float64(), pa.float32()]
DECIMALS = [pa.decimal128(9, 2), pa.decimal128(18, 0), pa.decimal128(5, 5)]
STRINGS = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary(1)]
DICTIONARIES = [pa.dictionary(pa.int8(), pa.int32())]
DATES = [pa.date32(), pa.date64()]
TIMESTAMPS = [pa.timestamp(unit) for unit in ("us", "s", "ms", "ns")]
ZONED = [pa.timestamp(unit, "UTC") for unit in ("us", "s", "ns")]
TIMES_OF_DAY = [pa.time64("us"), pa.time32("s"), pa.time32("ms"), pa.time64("ns")]
DURATIONS = [pa.duration(unit) for unit in ("us", "s", "ms", "ns")]

# Columns of one family can be compared with each other.
FAMILIES: dict[str, list[pa.DataType]] = {
    "integer": INTEGERS,
    "number": INTEGERS + FLOATS + DECIMALS + DICTIONARIES,
    "float": FLOATS,
    "string": STRINGS,
    "bool": [pa.bool_()],
    "date": DATES,
    "timestamp": TIMESTAMPS,
    "zoned": ZONED,
    "binary": BINARIES,
    "time": TIMES_OF_DAY,
    "interval": DURATIONS,
}
DAY = 86_400_000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


# ---- tables


def values(kind: pa.DataType, wild: bool = True) -> st.SearchStrategy[Any]:
    """Values of one column: few distinct ones, so that they meet, NULL, and, if `wild`, the ends of the
    type, NaN, infinities and floats that arithmetic rounds."""
    if pa.types.is_dictionary(kind):
        return values(kind.value_type, wild)
    tame, rest = _pools(kind)
    common = st.sampled_from(tame)
    return common | st.sampled_from([*tame, None, *rest] if wild else [*tame, None])


def _pools(kind: pa.DataType) -> tuple[list[Any], list[Any]]:
    """The tame and the wild values of a type."""
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        top = 2 ** (kind.bit_width - signed) - 1
        return [0, 1, 2, 3, 10], [top, top - 1, *([-1, -2, -top, -top - 1] if signed else [])]
    if pa.types.is_floating(kind):
        rest = [0.1, -0.0, float("nan"), float("inf"), float("-inf"), 2.0**24, 3e38, 1e-45]
        return [0.0, 1.0, 2.0, 0.5, -1.0, 3.0], rest + (
            [1.7e308, 5e-324, 2.0**63] if kind == pa.float64() else []
        )
    if pa.types.is_decimal(kind):
        half, top = 5 * 10 ** (kind.scale - 1) if kind.scale else 1, 10**kind.precision - 1
        tame, rest = [0, half, -half, *([3 * half] if 3 * half < top else [])], [1, top, -top]
        return [Decimal(f"{v}E-{kind.scale}") for v in tame], [Decimal(f"{v}E-{kind.scale}") for v in rest]
    if pa.types.is_timestamp(kind):
        second = 10 ** TIME_SCALE[kind.unit]
        return [0, second, 2 * second, second + 1, second - 1, -second, 86_400 * second], [
            INT64_MIN,
            INT64_MAX,
        ]
    if pa.types.is_duration(kind):
        second = 10 ** TIME_SCALE[kind.unit]
        return [0, second, -second, second + 1], [INT64_MIN, INT64_MAX]
    if pa.types.is_time(kind):
        second = 10 ** TIME_SCALE[kind.unit]
        return [0, second, 2 * second, second - 1, 3600 * second], [86_400 * second - 1]
    if pa.types.is_date32(kind):
        return [0, 1, 2, -1], [2**31 - 1, -(2**31)]
    if pa.types.is_date64(kind):
        return [0, DAY, 2 * DAY, -DAY], [100_000_000 * DAY]
    if pa.types.is_boolean(kind):
        return [False, True], []
    words, odd = ["a", "", "ab", "abc", "b"], ["aXb", "a%b", "a_b", "é", "\U0001f600"]
    if pa.types.is_fixed_size_binary(kind):
        return [b"a", b"b"], [b"\xff", b"\x00"]
    if kind in BINARIES:
        return [word.encode() for word in words], [b"\xff", b"\x00", b"a\x00"]
    return words, odd


def time_values(kind: pa.DataType, size: int, base: int = 0) -> st.SearchStrategy[list[int]]:
    """Event times: whole seconds (or ticks of integer columns) from 0 to 8, some one tick off; many equal."""
    if pa.types.is_timestamp(kind):
        second = 10 ** TIME_SCALE[kind.unit]
        one = st.sampled_from(
            [n * second for n in range(9)] + [n * second + d for n in (1, 3) for d in (-1, 1)]
        )
    else:
        one = st.integers(base, base + 8)
    return st.lists(one, min_size=size, max_size=size)


@st.composite
def tables(
    draw: Draw,
    schema: pa.Schema,
    time: str,
    min_rows: int = 0,
    max_rows: int = 12,
    in_order: bool = False,
    base: int = 0,
    wild: bool = True,
) -> pa.Table:
    """A table of `schema`; rows by time if `in_order`. `base` is added to integer times; for `wild` see `values`."""
    size = draw(st.integers(min_rows, max_rows))
    columns = []
    for field in schema:
        if field.name == time:
            times = draw(time_values(field.type, size, base))
            column = sorted(times) if in_order else times
        else:
            column = draw(st.lists(values(field.type, wild), min_size=size, max_size=size))
        columns.append(array(column, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def array(column: list[Any], kind: pa.DataType) -> pa.Array:
    """`pa.array`, also for dictionary types."""
    if pa.types.is_dictionary(kind):
        return pa.array(column, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(column, kind)


@st.composite
def batches(draw: Draw, table: pa.Table) -> list[pa.Table]:
    """The table cut into consecutive pieces at random places, empty pieces included."""
    cuts = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=6)))
    bounds = [0, *cuts, table.num_rows]
    return [table.slice(lo, hi - lo) for lo, hi in itertools.pairwise(bounds)]


# ---- windows

SECONDS = ["8 seconds", "2 seconds", "0 seconds", "1 second", "3 s 1 ms", "999999999 ns"]


@st.composite
def time_windows(draw: Draw, unit: str | None) -> TimeWindow:
    """A window for time columns of `unit`, None for integers."""
    size = st.sampled_from(SECONDS) if unit else st.sampled_from([8, 2, 0, 1, 3, INT64_MAX])
    return TimeWindow(draw(size), right=draw(size))


def row_windows() -> st.SearchStrategy[RowWindow]:
    size = st.sampled_from([5, 2, 0, 1, 3, INT64_MAX])
    return st.builds(RowWindow, size, size)


def windows(unit: str | None) -> st.SearchStrategy[Window | tuple[Window, Window]]:
    """Time windows, row windows, and one of each per side in both ways."""
    times, rows = time_windows(unit), row_windows()
    return st.one_of(times, rows, st.tuples(times, rows), st.tuples(rows, times))


SIGNED_SECONDS = ["-3 s", "-2 s 1 ms", "-1 second", 0, "1 second", "2 s 1 ms", "8 seconds"]


@st.composite
def intervals(draw: Draw, unit: str | None) -> Interval:
    """An interval of any signs and ends, with at least a tick of `unit` in it."""
    bounds = SIGNED_SECONDS if unit else [-3, -2, -1, 0, 1, 2, 8]
    first, last = sorted(draw(st.lists(st.integers(0, 6), min_size=2, max_size=2, unique=True)))
    closed = draw(st.sampled_from(["both", "left", "right", "neither"]))
    interval = Interval(bounds[first], bounds[last], closed)
    try:
        interval.delta(unit)
    except WindowError:  # no whole tick between open ends
        return Interval(bounds[first], bounds[last])
    return interval


SCORES = ["abs(left.ts - right.ts)", "left.ts - right.ts"]


def keeps() -> st.SearchStrategy[Keep]:
    """All matches, or some of them: as-of of every kind, and the nearest few by an expression over the time columns."""
    as_of = st.builds(AsOf, st.sampled_from(["backward", "forward", "nearest"]), st.booleans())
    nearest = st.builds(Nearest, st.sampled_from(SCORES), st.integers(1, 3), st.booleans())
    return st.one_of(st.just("all"), as_of, nearest)


@st.composite
def outcomes(draw: Draw) -> tuple[How, Keep]:
    """A `how` and a `keep` that go together."""
    keep = draw(keeps())
    return draw(st.sampled_from(HOW if keep == "all" else PICKING)), keep


# ---- schemas


@st.composite
def schemas(draw: Draw, families: dict[str, list[pa.DataType]] = FAMILIES) -> tuple[pa.Schema, pa.Schema]:
    """Two schemas that have comparable columns: one to three families, each with a column on both sides.

    The time columns are named "ts".
    """
    times = draw(st.sampled_from([INTEGERS, INTEGERS[:4], TIMESTAMPS, ZONED]))
    chosen = draw(st.lists(st.sampled_from(list(families)), min_size=1, max_size=3))
    sides = []
    for prefix in ("x", "y"):
        same_names = draw(st.booleans())
        names = [("x" if same_names else prefix) + str(n) for n in range(len(chosen))]
        columns = [
            (name, draw(st.sampled_from(families[family])))
            for name, family in zip(names, chosen, strict=True)
        ]
        sides.append(pa.schema([("ts", draw(st.sampled_from(times))), *columns]))
    return sides[0], sides[1]


# ---- predicates


@dataclass(frozen=True)
class Operands:
    """The columns of both sides by family, as SQL."""

    columns: dict[tuple[str, str], list[str]]

    def shared(self) -> list[str]:
        """The families that both sides have."""
        return [
            name
            for name in FAMILIES
            if self.columns.get(("left", name)) and self.columns.get(("right", name))
        ]

    def of(self, family: str) -> list[str]:
        return self.columns.get(("left", family), []) + self.columns.get(("right", family), [])


def operands(left: pa.Schema, right: pa.Schema) -> Operands:
    columns: dict[tuple[str, str], list[str]] = {}
    for side, schema in (("left", left), ("right", right)):
        for field in schema:
            sql = f"{side}.{field.name}"
            family = next(name for name in LITERALS if field.type in FAMILIES[name])
            columns.setdefault((side, family), []).append(sql)
    return Operands(columns)


NUMBER_LITERALS = ["1", "0", "2", "10", "-1", "0.5", "1.25", "1e1", "2147483647", "9223372036854775807"]
LITERALS: dict[str, list[str]] = {
    "number": NUMBER_LITERALS,
    "string": ["'a'", "''", "'ab'", "'b'", "'é'", "'it''s'"],
    "bool": ["TRUE", "FALSE"],
    "date": ["DATE '1970-01-02'", "DATE '1969-12-31'"],
    "timestamp": ["TIMESTAMP '1970-01-01 00:00:01'", "TIMESTAMP '1970-01-01 00:00:00.000001'"],
    "zoned": ["TIMESTAMP '1970-01-01 00:00:01+00:00'", "TIMESTAMP '1970-01-01 01:00:00+01:00'"],
    "binary": ["X'61'", "X'ff'"],
    "time": ["TIME '00:00:01'", "TIME '23:59:59.999999'"],
    "interval": ["INTERVAL '1' SECOND", "INTERVAL '0' SECOND"],
}
INTERVALS = [
    "INTERVAL '1' SECOND",
    "INTERVAL '2 seconds'",
    "INTERVAL '1' DAY",
    "INTERVAL '-1' SECOND",
    "INTERVAL '1' MILLISECOND",
]
COMPARISONS = ["=", "<", "<=", ">", ">=", "<>"]
PATTERNS = ["'a%'", "'%'", "'_'", "'a_b'", "'%b'", "'%a%b%'", "''", "'a!%b' ESCAPE '!'", "'a!_%' ESCAPE '!'"]


@st.composite
def predicates(draw: Draw, left: pa.Schema, right: pa.Schema, depth: int = 2) -> str:
    """SQL over the two schemas that is well typed, except that exact arithmetic may outgrow 128 bits."""
    return str(_condition(draw, operands(left, right), depth))


def _condition(draw: Draw, known: Operands, depth: int) -> str:
    """A boolean expression: a comparison, or conditions under AND, OR, NOT, CASE, COALESCE."""
    shapes = ["atom", "atom", "and", "and", "or", "not", "case", "coalesce", "is"] if depth else ["atom"]
    shape = draw(st.sampled_from(shapes))
    if shape == "atom":
        return _atom(draw, known)
    a = _condition(draw, known, depth - 1)
    if shape == "not":
        return f"NOT ({a})"
    if shape == "is":
        return f"({a}) IS {draw(st.sampled_from(['TRUE', 'NOT TRUE', 'FALSE', 'NULL', 'NOT NULL']))}"
    b = _condition(draw, known, depth - 1)
    if shape == "case":
        c = draw(st.sampled_from(["TRUE", "FALSE", "NULL"]))
        return f"CASE WHEN {a} THEN {b} ELSE {c} END"
    if shape == "coalesce":
        return f"COALESCE({a}, {b})"
    return f"({a} {shape.upper()} {b})"


def _atom(draw: Draw, known: Operands) -> str:
    family = draw(st.sampled_from(known.shared()))
    a = draw(st.sampled_from(known.columns["left", family]))
    b = draw(st.sampled_from(known.columns["right", family]))
    if draw(st.booleans()):
        a, b = b, a
    shapes: list[Callable[[], str]] = [
        lambda: f"{a} = {b}",
        lambda: _band(draw, family, a, b),
        lambda: _band(draw, family, a, b),
        lambda: f"{a} {draw(st.sampled_from(COMPARISONS))} {b}",
        lambda: _general_comparison(draw, known, family),
        lambda: f"{a} IS {draw(st.sampled_from(['', 'NOT ']))}DISTINCT FROM {b}",
        lambda: f"{a} IS {draw(st.sampled_from(['', 'NOT ']))}NULL",
        lambda: _membership(draw, family, a, b),
        lambda: _of_family(draw, family, a, b),
    ]
    return str(draw(st.sampled_from(shapes))())


def _band(draw: Draw, family: str, a: str, b: str) -> str:
    """`a` within some distance of `b`, in the ways people write it."""
    if family in ("string", "binary", "bool", "time"):
        low = draw(st.sampled_from(LITERALS[family]))
        return f"{a} BETWEEN {low} AND {b}"
    if family in ("timestamp", "zoned", "date", "interval"):
        width = draw(st.sampled_from(["INTERVAL '1' DAY"] if family == "date" else INTERVALS))
    else:
        width = draw(st.sampled_from(NUMBER_LITERALS))
    forms = [
        f"{a} BETWEEN {b} - {width} AND {b} + {width}",
        f"{a} >= {b} - {width} AND {a} < {b} + {width}",
        f"NOT ({a} < {b} - {width}) AND {b} <= {a}",
        f"{a} NOT BETWEEN {b} AND {b} + {width}",
    ]
    if family == "number":
        forms += [
            f"ABS({a} - {b}) <= {width}",
            f"ABS({b} - {a}) > {width}",
            f"2 * {a} - {width} < 3 * {b} + 1",
        ]
    elif family != "date":
        forms += [f"{a} - {b} <= {width}", f"{b} - {a} BETWEEN {width} AND INTERVAL '3 seconds'"]
    return f"({draw(st.sampled_from(forms))})"


def _membership(draw: Draw, family: str, a: str, b: str) -> str:
    literals = draw(st.lists(st.sampled_from([*LITERALS[family], b, "NULL"]), min_size=1, max_size=3))
    return f"{a} {draw(st.sampled_from(['IN', 'NOT IN']))} ({', '.join(literals)})"


def _of_family(draw: Draw, family: str, a: str, b: str) -> str:
    """A condition that only values of this family have."""
    forms = [f"{a} = NULL"]
    if family == "string":
        forms = [_like(draw, a), f"LENGTH({a}) >= LENGTH({b})", f"UPPER({a}) = UPPER({b})"]
    elif family == "bool":
        forms = [a]
    elif family in ("date", "timestamp", "zoned"):
        parts = [
            "YEAR",
            "MONTH",
            "DAY",
            "DOW",
            "DOY",
            "WEEK",
            *(["HOUR", "SECOND"] if family != "date" else []),
        ]
        part = draw(st.sampled_from(parts))
        forms += [f"EXTRACT({part} FROM {a}) = EXTRACT({part} FROM {b})"]
        forms += [f"DATE_TRUNC('month', {a}) = DATE_TRUNC('month', {b})"]
        forms += [f"DATE_TRUNC('minute', {a}) = DATE_TRUNC('minute', {b})"]
    elif family == "time":
        forms += [
            f"EXTRACT(SECOND FROM {a}) = EXTRACT(SECOND FROM {b})",
            f"ABS({a} - {b}) <= INTERVAL '1' SECOND",
        ]
    elif family == "interval":
        forms += [f"EXTRACT(EPOCH FROM {a}) = EXTRACT(EPOCH FROM {b})", f"2 * {a} <= {b}"]
    return str(draw(st.sampled_from(forms)))


def _like(draw: Draw, a: str) -> str:
    return f"{a} {draw(st.sampled_from(['LIKE', 'NOT LIKE']))} {draw(st.sampled_from(PATTERNS))}"


def _general_comparison(draw: Draw, known: Operands, family: str) -> str:
    compare = draw(st.sampled_from(COMPARISONS))
    return f"{_expression(draw, known, family, 2)} {compare} {_expression(draw, known, family, 1)}"


def _expression(draw: Draw, known: Operands, family: str, depth: int) -> str:
    """A value of one family: columns and literals under its operators."""
    leaf = st.sampled_from(known.of(family) + LITERALS[family][:6])
    shape = draw(st.sampled_from(["leaf", "operator", "function", "choice"])) if depth else "leaf"
    if shape == "leaf":
        return str(draw(leaf))
    a, b = _expression(draw, known, family, depth - 1), draw(leaf)
    if shape == "choice":
        condition = _atom(draw, known)
        forms = [
            f"COALESCE({a}, {b})",
            f"CASE WHEN {condition} THEN {a} ELSE {b} END",
            f"CASE WHEN {condition} THEN {a} END",
        ]
        forms += [f"LEAST({a}, {b})", f"GREATEST({a}, {b}, {a})"]
        return str(draw(st.sampled_from(forms)))
    if family == "number":
        return _arithmetic(draw, a, b) if shape == "operator" else _function(draw, a)
    if family in ("timestamp", "zoned", "date") and shape == "function":
        return f"DATE_TRUNC('{draw(st.sampled_from(['day', 'week', 'month', 'year']))}', {a})"
    if family in ("timestamp", "zoned", "interval"):
        return f"({a} {draw(st.sampled_from('+-'))} {draw(st.sampled_from(INTERVALS))})"
    if family == "date":
        return f"({a} {draw(st.sampled_from('+-'))} INTERVAL '1' DAY)"
    return f"({a} || {b})" if family == "string" and shape == "operator" else _text_function(draw, family, a)


def _text_function(draw: Draw, family: str, a: str) -> str:
    forms = [
        "LOWER({})",
        "UPPER({})",
        "SUBSTRING({}, 2)",
        "SUBSTRING({}, 1, 1)",
        "TRIM({}, 'ab')",
        "RTRIM({}, 'b')",
    ]
    forms += ["CONCAT({}, 'b')", "CAST(CAST({} AS DECIMAL(4, 1)) AS VARCHAR)"]
    return str(draw(st.sampled_from(forms))).format(a) if family == "string" else a


def _arithmetic(draw: Draw, a: str, b: str) -> str:
    operator = draw(st.sampled_from("+-*/%"))
    # A product of two wide columns can outgrow 128 bits; with a small literal it rarely does.
    other = draw(st.sampled_from(["2", "0.5", "-3"])) if operator == "*" else b
    return f"({a} {operator} {other})"


def _function(draw: Draw, a: str) -> str:
    forms = ["ABS({})", "-({})", "FLOOR({})", "CEIL({})", "SQRT({})", "POWER({}, 2)", "POWER(2, {})"]
    forms += [
        "CAST({} AS DOUBLE)",
        "CAST({} AS REAL)",
        "CAST({} AS SMALLINT)",
        "CAST({} AS DECIMAL(9, 1))",
        "ROUND({})",
        "ROUND({}, 1)",
        "SIN({})",
        "EXP({})",
        "LN({})",
    ]
    forms += ["ATAN2({}, 2)", "RADIANS({})"]
    return str(draw(st.sampled_from(forms))).format(a)


# ---- whole joins


def can_be_typed(make: Callable[[], JoinSpec]) -> JoinSpec:
    """The spec, unless its exact arithmetic needs more than 128 bits: then another example is drawn."""
    try:
        return make()
    except PredicateError as error:
        assume("128" not in str(error))
        raise


@st.composite
def specs(
    draw: Draw,
    on: str | None = None,
    both: tuple[pa.Schema, pa.Schema] | None = None,
    min_rows: int = 0,
    max_rows: int = 12,
    in_order: bool = False,
    every: bool = False,
) -> tuple[JoinSpec, pa.Table, pa.Table]:
    """A join with tables for it: (spec, left table, right table).

    `both` fixes the schemas (time columns named "ts") and `on` the predicate; rows come by time if `in_order`.
    `every`: any `how`, `keep` and window, else inner joins that keep all in windows that the engines run.
    """
    left, right = both or draw(schemas())
    clock, other_clock = left.field("ts").type, right.field("ts").type
    unit = clock.unit if pa.types.is_timestamp(clock) else None
    window = draw(windows(unit) | intervals(unit) if every else windows(unit))
    text = on or draw(predicates(left, right))
    outcome: tuple[How, Keep] = draw(outcomes()) if every else ("inner", "all")
    how, keep = outcome
    spec = can_be_typed(lambda: JoinSpec(left, right, text, window, "ts", "ts", how=how, keep=keep))
    wide = clock == other_clock == pa.int64()
    base = draw(st.sampled_from([0, -4, INT64_MIN, INT64_MAX - 8])) if wide else 0
    options: dict[str, Any] = {"min_rows": min_rows, "max_rows": max_rows, "in_order": in_order, "base": base}
    return spec, draw(tables(left, "ts", **options)), draw(tables(right, "ts", **options))


@st.composite
def arrivals(draw: Draw, left: pa.Table, right: pa.Table) -> list[tuple[str, pa.Table]]:
    """Pushes of (side, piece): each table cut at random places, the sides in any interleaving."""
    pieces = {"left": draw(batches(left)), "right": draw(batches(right))}
    turns = draw(st.permutations([side for side, parts in pieces.items() for _ in parts]))
    return [(side, pieces[side].pop(0)) for side in turns]


# ---- running joins on numbered rows


def numbered(spec: JoinSpec, left: pa.Table, right: pa.Table) -> tuple[JoinSpec, pa.Table, pa.Table]:
    """The same join with one more column on each side, `l` and `r`: the row's number in its table."""
    tables = [
        table.append_column(name, pa.array(range(table.num_rows), pa.int64()))
        for name, table in (("l", left), ("r", right))
    ]
    fields = [
        schema.append(pa.field(name, pa.int64())) for name, schema in (("l", spec.left), ("r", spec.right))
    ]
    return replace(spec, left=fields[0], right=fields[1]), tables[0], tables[1]


def pairs_of(result: pa.Table | pa.RecordBatch) -> list[tuple[int, int]]:
    """The row numbers of a result of `numbered` tables, in its order."""
    return list(zip(result["l"].to_pylist(), result["r"].to_pylist(), strict=True))


RELEASING = Tuning(engine=EngineTuning(slack_rows=1))  # rows are released as soon as they are not needed


def open_tuned(
    tuning: Tuning, spec: JoinSpec, topology: Any = "auto", index: Any = "auto", **options: Any
) -> Join:
    """`open_join` with other tunables than the defaults."""
    return open_plan(make_plan(spec, Options(topology, index, **options), tuning))


def push_all(
    join: Join, pushes: Iterable[tuple[str, Any]], poll_after: Callable[[], bool]
) -> list[pa.RecordBatch]:
    """Push in turn; poll when `poll_after` says so, and whenever results must leave before the next push."""
    polled: list[pa.RecordBatch] = []
    for side, data in pushes:
        while True:
            try:
                join.push(side, data, timeout=0.0)
                break
            except Backpressure:
                polled += join.poll()
        if poll_after():
            polled += join.poll()
    return polled
