"""The oracle against independent engines: the same SQL condition in DuckDB, the window as SQL conditions.

`how` is DuckDB's LEFT, RIGHT, FULL, SEMI or ANTI JOIN on both conditions, `keep` a QUALIFY row_number() over the joined
rows. As-of joins are also compared with DuckDB's ASOF JOIN and Polars' join_asof, where the meanings meet: equality
keys, and no two candidates equally near, as those two say nothing of ties.

DuckDB shares the meaning of predicates except for these, which the random cases here avoid and
tests/semantics/test_oracle.py covers by eye:
- NaN is equal to itself and greater than all else; streamjoin compares it false.
- Integer, decimal and timestamp arithmetic that outgrows its machine type is an error; streamjoin is exact.
  Such examples are dropped.
- SQRT of a negative number is an error, streamjoin's is NaN. Such examples are dropped.
- A float32 that meets an exact number makes float32, streamjoin's makes float64.
- Timestamps of nanoseconds lose them beside intervals and coarser timestamps; streamjoin takes the finer unit.
- Timestamps with a time zone follow the session's time zone.
- LN of numbers up to 0 and ASIN beyond 1 are errors, streamjoin's are NaN. Such examples are dropped.
- SUBSTRING from before the beginning by a negative start, or of negative length; UPPER('ß') is 'ẞ'; TRIM also removes
  other spaces than U+0020.
- Division by zero is NULL only by two settings, one for integers and one for floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import polars
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from strategies import (
    DATES,
    DECIMALS,
    FAMILIES,
    INTEGERS,
    can_be_typed,
    intervals,
    outcomes,
    predicates,
    schemas,
    tables,
    windows,
)
from streamjoin.semantics import oracle
from streamjoin.semantics.keep import HOW, AsOf, Direction, How, Keep, Nearest
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import Interval, RowWindow, TimeWindow

SHARED = {
    "number": [*INTEGERS, pa.float64(), *DECIMALS],
    "string": FAMILIES["string"],
    "bool": FAMILIES["bool"],
    "date": DATES,
    "timestamp": [pa.timestamp(unit) for unit in ("us", "ms", "s")],
    "binary": FAMILIES["binary"],
}
MACHINE_LIMITS = (duckdb.OutOfRangeException, duckdb.ConversionException)

# Every tuple with its place in the total order, and how many of each side are up to it.
RANKED = """
WITH stamped AS (
    SELECT 0 AS side, row, t FROM left_rows UNION ALL SELECT 1 AS side, row, t FROM right_rows
), ranked AS (
    SELECT side, row, t, row_number() OVER before AS position,
           count(*) FILTER (side = 0) OVER before AS lefts, count(*) FILTER (side = 1) OVER before AS rights
    FROM stamped WINDOW before AS (ORDER BY t, side, row ROWS UNBOUNDED PRECEDING)
)
, lefts AS (
    SELECT left_rows.*, position, lefts, rights FROM left_rows JOIN ranked ON side = 0 AND ranked.row = left_rows.row
), rights AS (
    SELECT right_rows.*, position, lefts, rights FROM right_rows JOIN ranked ON side = 1 AND ranked.row = right_rows.row
)
"""
JOINED = """
SELECT {columns} FROM lefts AS "left" {how} JOIN rights AS "right" ON {condition}
"""
PICKED = """
, picked AS (
    SELECT "left".row AS l, "right".row AS r FROM lefts AS "left" JOIN rights AS "right" ON {condition}
    QUALIFY row_number() OVER (PARTITION BY "left".row ORDER BY {score}, "right".position DESC) <= {k}
)
SELECT left_rows.row, picked.r FROM left_rows {how} JOIN picked ON picked.l = left_rows.row
"""
DIRECTIONS = {
    AsOf("backward"): "<=", AsOf("backward", True): "<", AsOf("forward"): ">=", AsOf("forward", True): ">",
    AsOf("nearest", True): "<>",
}  # fmt: skip


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET error_on_division_by_zero = false")
        connection.execute("SET ieee_floating_point_ops = false")
        connection.execute("SET threads = 1")
        yield connection


def window_condition(spec: JoinSpec) -> str:
    """The window over `lefts` and `rights`."""
    if spec.delta is not None:
        return f'"right".t - "left".t BETWEEN {spec.delta.lo} AND {spec.delta.hi}'
    left, right = spec.left_window, spec.right_window
    left_waits = (
        f'"right".lefts - "left".lefts < {left.size}' if left.rows else f'"right".t - "left".t <= {left.size}'
    )
    right_waits = (
        f'"left".rights - "right".rights < {right.size}'
        if right.rows
        else f'"left".t - "right".t <= {right.size}'
    )
    return f'CASE WHEN "left".position < "right".position THEN {left_waits} ELSE {right_waits} END'


def numbered(table: pa.Table, unit: str | None) -> pa.Table:
    """The table with its row numbers, and its times as wide integers in the common unit."""
    times = table["ts"] if unit is None else table["ts"].cast(pa.timestamp(unit)).cast(pa.int64())
    table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    return table.append_column("t", times.cast(pa.decimal128(38, 0)))


def sql(text: str) -> str:
    return re.sub(r"\b(left|right)\.", r'"\1".', text)


def query(spec: JoinSpec) -> str:
    """The join in DuckDB's SQL, giving row numbers."""
    condition = f"({window_condition(spec)}) AND ({sql(str(spec.on))})"
    if spec.keep == "all":
        columns = '"left".row, NULL' if spec.how in ("semi", "anti") else '"left".row, "right".row'
        return RANKED + JOINED.format(columns=columns, how=spec.how, condition=condition)
    k = 1
    if isinstance(spec.keep, AsOf):
        score = 'abs("right".t - "left".t)'
        if spec.keep != AsOf("nearest"):
            condition += f' AND "right".t {DIRECTIONS[spec.keep]} "left".t'
    else:
        score, k = sql(spec.keep.by), spec.keep.k
        condition += f" AND ({score}) IS NOT NULL"
        score = f"({score}) {'DESC' if spec.keep.largest else 'ASC'}"
    return RANKED + PICKED.format(condition=condition, score=score, k=k, how=spec.how)


def check(database: duckdb.DuckDBPyConnection, left: pa.Table, right: pa.Table, spec: JoinSpec) -> int:
    """Compare the two; the number of rows."""
    database.register("left_rows", numbered(left, spec.time_unit))
    database.register("right_rows", numbered(right, spec.time_unit))
    found = [(row.left, row.right) for row in oracle.rows(left, right, spec)]
    assert sorted(found, key=repr) == sorted(database.execute(query(spec)).fetchall(), key=repr)
    return len(found)


# ---- literal cases

LEFT = pa.table({
    "ts": [1, 2, 2, 5, 7, 9, 9, 12],
    "x": [1, 2, None, 5, -7, 0, 12, 3],
    "p": [0.5, 2.0, -1.5, None, 3.25, 0.0, 7.0, 1.0],
    "name": ["a", "ab", None, "b%", "a_c", "", "é", "abc"],
})  # fmt: skip
RIGHT = pa.table({
    "ts": [0, 2, 3, 5, 5, 8, 11, 30],
    "y": [1, None, 3, 5, -4, 10, 0, 2],
    "q": [0.5, 1.0, None, -2.0, 3.0, 0.25, 9.0, 0.0],
    "name": ["a", "b", "abc", None, "", "a%", "é", "zz"],
})  # fmt: skip
CONDITIONS = [
    "left.x = right.y",
    "left.x BETWEEN right.y - 2 AND right.y + 2",
    "ABS(left.x - right.y) <= 1 OR left.p = right.q",
    "NOT (left.x < right.y - 1)",
    "left.x <> right.y AND left.p > right.q",
    "left.x / right.y > 0.5",
    "left.x % right.y = 1 OR left.x % right.y = -1",
    "left.x IS NULL OR right.y IS NULL",
    "left.x IS DISTINCT FROM right.y AND left.name IS NOT DISTINCT FROM right.name",
    "left.x IN (1, right.y, NULL)",
    "left.x NOT IN (1, right.y)",
    "left.name LIKE 'a%' AND right.name NOT LIKE '%!%' ESCAPE '!'",
    "left.name <= right.name",
    "LEAST(left.x, right.y) > 0 AND GREATEST(left.x, right.y, NULL) < 6",
    "FLOOR(left.p) = CEIL(right.q)",
    "SQRT(ABS(left.p)) < POWER(right.q, 2)",
    "COALESCE(left.x, right.y, 0) = COALESCE(right.y, 3)",
    "CASE WHEN left.x > right.y THEN left.p WHEN left.x = right.y THEN 1 ELSE right.q END > 1",
    "-left.x + 2 * right.y - 0.5 > left.p * right.q",
    "(left.x > 0) = (right.y > 0)",
    "(left.x > right.y) IS NOT TRUE",
    "SIN(left.p) > COS(right.q) AND TAN(left.x) < EXP(right.y)",
    "ATAN2(left.p, right.q) >= ATAN(left.x)",
    "DEGREES(left.p) > RADIANS(right.q) * 100",
    "ASIN(left.x % 2) = ASIN(right.y % 2) OR ACOS(left.x % 2) > LN(right.y + 100)",
    "ROUND(left.p) = ROUND(right.q) OR ROUND(left.p * 0.37, 1) = ROUND(right.q / 3, 1)",
    "LOWER(left.name) = LOWER(right.name) OR UPPER(left.name) = 'É'",
    "LENGTH(left.name) > LENGTH(right.name)",
    "SUBSTRING(left.name, 2) = SUBSTRING(right.name, 2, 1)",
    "SUBSTRING(left.name FROM 0 FOR 2) = right.name OR SUBSTRING(left.name, -1) = SUBSTRING(right.name, -2, 2)",
    "SUBSTRING(left.name, left.x, right.y) = 'b' OR TRIM(left.name) = LTRIM(right.name, 'ab')",
    "TRIM(BOTH 'a%' FROM left.name) = RTRIM(right.name, 'a')",
    "left.name || right.name > CONCAT(right.name, 'a', left.name) OR CONCAT(left.name, right.name) = 'a'",
]
WINDOWS = [
    Interval(1, 4), Interval(-6, -2, "left"), Interval(-1, 3, "neither"),
    TimeWindow(3), TimeWindow(0), TimeWindow(4, right=0), TimeWindow(1, right=6),
    RowWindow(2), RowWindow(0, right=3), RowWindow(1, right=0), RowWindow(100),
    (TimeWindow(3), RowWindow(2)), (RowWindow(3), TimeWindow(2)),
]  # fmt: skip


@pytest.mark.parametrize("on", CONDITIONS)
def test_conditions(database, on):
    spec = JoinSpec(LEFT.schema, RIGHT.schema, on, TimeWindow(100), "ts", "ts")
    assert 0 < check(database, LEFT, RIGHT, spec) < LEFT.num_rows * RIGHT.num_rows


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(database, window, how):
    for on in ("TRUE", "left.x <= right.y"):
        spec = JoinSpec(LEFT.schema, RIGHT.schema, on, window, "ts", "ts", how=how)
        count = check(database, LEFT, RIGHT, spec)
    assert count > 0


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_picks(database, window):
    keeps: list[Keep] = [
        *DIRECTIONS,
        AsOf("nearest"),
        Nearest("right.y - left.x", 2),
        Nearest("left.p", 1, True),
    ]
    for keep in keeps:
        spec = JoinSpec(LEFT.schema, RIGHT.schema, "left.x <= right.y", window, "ts", "ts", "left", keep=keep)
        assert check(database, LEFT, RIGHT, spec) >= LEFT.num_rows


@pytest.mark.parametrize("on", [
    "left.day = right.day", "left.day - right.day BETWEEN 0 AND 1", "left.day + 1 > right.day",
    "left.day + INTERVAL '12' HOUR < right.at", "left.at - right.at <= INTERVAL '1 day'",
    *(f"DATE_TRUNC('{unit}', left.at) = DATE_TRUNC('{unit}', right.at) AND left.ts < 3" for unit in
      ("hour", "day", "week", "month", "quarter", "year")),
    *(f"EXTRACT({part} FROM left.at) = EXTRACT({part} FROM right.at) AND left.ts < 3" for part in
      ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "DOW", "ISODOW", "DOY")),
    "EXTRACT(EPOCH FROM left.at) - EXTRACT(EPOCH FROM right.at) > 1", "DATE_TRUNC('month', left.day) < right.day",
    "EXTRACT(DOY FROM left.day) + EXTRACT(WEEK FROM right.day) = 69", "EXTRACT(DAY FROM left.day) > 1",
    "left.clock > right.clock", "left.clock >= TIME '12:00:00.5'", "left.long <= right.long * 2",
    "EXTRACT(HOUR FROM left.clock) = EXTRACT(SECOND FROM right.clock) + 12", "left.at + left.long > right.at",
    "left.at BETWEEN right.at - INTERVAL '90' MINUTE AND right.at", "left.at = TIMESTAMP '2024-02-29 12:00:00'",
    "left.day >= DATE '2024-03-01'", "left.day = right.at", "left.at > '2024-02-29 18:00:00'",
    "left.price = right.price", "left.price * 2 - 0.01 < right.price", "left.price % 2 = 0.5",
    "left.small / left.small > 0 AND left.small * 3 >= left.small", "left.raw < right.raw", "left.raw = X'6162'",
])  # fmt: skip
def test_conditions_on_other_types(database, on):
    seconds = [1709164800, 1709208000, 1709251200, 1709294400]  # 2024-02-29 00:00 and on, every twelve hours
    columns = {
        "ts": pa.array(range(4), pa.int64()),
        "day": pa.array([19782, 19783, None, 19784], pa.date32()),
        "at": pa.array([second * 10**6 for second in seconds], pa.timestamp("us")),
        "price": pa.array([Decimal("0.50"), Decimal("2.50"), None, Decimal("-1.50")], pa.decimal128(9, 2)),
        "small": pa.array([0.5, 0.0, -2.0, 3.0], pa.float32()),
        "raw": pa.array([b"ab", b"\xff", b"", None], pa.binary()),
        "clock": pa.array([0, 43_200_500_000, None, 43_201_000_000], pa.time64("us")),
        "long": pa.array([0, 43_200_000_000, None, -1], pa.duration("us")),
    }
    left = pa.table(columns)
    right = left.take([1, 0, 3, 2]).set_column(
        2, "at", pa.array([s * 1000 for s in seconds], pa.timestamp("ms"))
    )
    spec = JoinSpec(left.schema, right.schema, on, RowWindow(9), "ts", "ts")
    assert 0 < check(database, left, right, spec) < 16


# ---- random cases


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(st.data())
def test_random_joins(database, data):
    left_schema, right_schema = data.draw(schemas(SHARED))
    # A time column can be of a type left out above: it is read by the window only.
    comparable = [pa.schema([f for f in side if f.name != "ts"]) for side in (left_schema, right_schema)]
    on = data.draw(predicates(*comparable))
    clock = left_schema.field("ts").type
    unit = clock.unit if pa.types.is_timestamp(clock) else None
    window, how = data.draw(windows(unit) | intervals(unit)), data.draw(st.sampled_from(HOW))
    spec = can_be_typed(lambda: JoinSpec(left_schema, right_schema, on, window, "ts", "ts", how=how))
    left = data.draw(tables(left_schema, "ts", wild=False))
    right = data.draw(tables(right_schema, "ts", wild=False))
    try:
        check(database, left, right, spec)
    except MACHINE_LIMITS:
        assume(False)


@given(
    st.lists(st.integers(0, 9), max_size=10),
    st.lists(st.integers(0, 9), max_size=10),
    windows(None) | intervals(None),
    outcomes(),
)
def test_random_windows(database, left_times, right_times, window, outcome):
    schema, (how, keep) = pa.schema({"ts": pa.int64()}), outcome
    spec = JoinSpec(schema, schema, "TRUE", window, "ts", "ts", how=how, keep=keep)
    check(database, pa.table({"ts": left_times}, schema), pa.table({"ts": right_times}, schema), spec)


# ---- as-of joins of others

KEYS = pa.schema({"ts": pa.int64(), "k": pa.int64()})
AS_OF = [AsOf("backward"), AsOf("backward", True), AsOf("forward"), AsOf("forward", True)]


def sides() -> st.SearchStrategy[tuple[pa.Table, pa.Table]]:
    """Left rows with any times, and right rows of which no two have the same time and key."""
    rows = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=12)
    unique = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2)), max_size=12, unique=True)
    return st.tuples(rows.map(keyed), unique.map(keyed))


def keyed(rows: list[tuple[int, int]]) -> pa.Table:
    return pa.table([[ts for ts, _ in sorted(rows)], [k for _, k in sorted(rows)]], schema=KEYS)


def as_of_spec(keep: Keep, tolerance: int, how: How = "left") -> JoinSpec:
    return JoinSpec(KEYS, KEYS, "left.k = right.k", TimeWindow(tolerance), "ts", "ts", how=how, keep=keep)


def picked_times(left: pa.Table, right: pa.Table, spec: JoinSpec) -> list[int | None]:
    """The time of the right row that each left row gets."""
    found = {row.left: row.right for row in oracle.rows(left, right, spec)}
    times = right["ts"].to_pylist()
    return [None if found[l] is None else times[found[l]] for l in range(left.num_rows)]


@pytest.mark.parametrize("keep", AS_OF)
@given(sides(), st.sampled_from([0, 1, 3, 100]))
def test_as_of_joins_of_duckdb(database, keep, both, tolerance):
    left, right = both
    database.register("left_rows", left.append_column("row", pa.array(range(left.num_rows), pa.int64())))
    database.register("right_rows", right)
    order = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}[DIRECTIONS[keep]]  # seen from the left row
    found = database.execute(
        f"""SELECT CASE WHEN abs(l.ts - r.ts) <= {tolerance} THEN r.ts END FROM left_rows l
        ASOF LEFT JOIN right_rows r ON l.k = r.k AND l.ts {order} r.ts ORDER BY l.row"""
    ).fetchall()
    assert picked_times(left, right, as_of_spec(keep, tolerance)) == [ts for (ts,) in found]


@pytest.mark.parametrize("keep", [*AS_OF, AsOf("nearest"), AsOf("nearest", True)])
@given(sides(), st.sampled_from([0, 1, 3, 100]))
def test_as_of_joins_of_polars(keep, both, tolerance):
    left, right = both
    direction: Direction = keep.direction
    left_frame, right_frame = (polars.DataFrame(polars.from_arrow(side)) for side in (left, right))
    found = (
        left_frame.with_row_index("row")
        .join_asof(
            right_frame.with_columns(found=polars.col("ts")),
            on="ts",
            by="k",
            strategy=direction,
            tolerance=tolerance,
            allow_exact_matches=not keep.strict,
            check_sortedness=False,
        )
        .sort("row")["found"]
        .to_list()
    )
    times = picked_times(left, right, as_of_spec(keep, tolerance))
    if direction == "nearest":  # which of two rows equally near counts is not said
        lefts = left["ts"].to_pylist()
        for times_of in (times, found):
            times_of[:] = [None if r is None else abs(r - l) for l, r in zip(lefts, times_of, strict=True)]
    assert times == found
