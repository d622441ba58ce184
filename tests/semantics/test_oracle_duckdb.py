"""The oracle against an independent engine: the same SQL condition in DuckDB, the window as SQL conditions.

DuckDB shares the meaning of predicates except for these, which the random cases here avoid and
tests/semantics/test_oracle.py covers by eye:
- NaN is equal to itself and greater than all else; streamjoin compares it false.
- Integer, decimal and timestamp arithmetic that outgrows its machine type is an error; streamjoin is exact.
  Such examples are dropped.
- SQRT of a negative number is an error, streamjoin's is NaN. Such examples are dropped.
- A float32 that meets an exact number makes float32, streamjoin's makes float64.
- Timestamps of nanoseconds lose them beside intervals and coarser timestamps; streamjoin takes the finer unit.
- Timestamps with a time zone follow the session's time zone.
- Division by zero is NULL only by two settings, one for integers and one for floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from strategies import DATES, DECIMALS, FAMILIES, INTEGERS, can_be_typed, predicates, schemas, tables, windows
from streamjoin.semantics import oracle
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import RowWindow, SideWindow, TimeWindow

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
SELECT l.row, r.row
FROM left_rows AS "left" JOIN ranked AS l ON l.side = 0 AND l.row = "left".row,
     right_rows AS "right" JOIN ranked AS r ON r.side = 1 AND r.row = "right".row
"""


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("SET error_on_division_by_zero = false")
        connection.execute("SET ieee_floating_point_ops = false")
        connection.execute("SET threads = 1")
        yield connection


def window_condition(left: SideWindow, right: SideWindow) -> str:
    """The window over `ranked` tuples l and r."""
    if not left.rows and not right.rows:
        return f"r.t - l.t BETWEEN -{right.size} AND {left.size}"
    left_waits = f"r.lefts - l.lefts < {left.size}" if left.rows else f"r.t - l.t <= {left.size}"
    right_waits = f"l.rights - r.rights < {right.size}" if right.rows else f"l.t - r.t <= {right.size}"
    return f"CASE WHEN l.position < r.position THEN {left_waits} ELSE {right_waits} END"


def numbered(table: pa.Table, unit: str | None) -> pa.Table:
    """The table with its row numbers, and its times as wide integers in the common unit."""
    times = table["ts"] if unit is None else table["ts"].cast(pa.timestamp(unit)).cast(pa.int64())
    table = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    return table.append_column("t", times.cast(pa.decimal128(38, 0)))


def duckdb_pairs(
    database: duckdb.DuckDBPyConnection, left: pa.Table, right: pa.Table, spec: JoinSpec
) -> list[tuple[int, int]]:
    database.register("left_rows", numbered(left, spec.time_unit))
    database.register("right_rows", numbered(right, spec.time_unit))
    condition = re.sub(r"\b(left|right)\.", r'"\1".', str(spec.on))
    window = window_condition(spec.left_window, spec.right_window)
    return database.execute(f"{RANKED} WHERE {window} AND ({condition})").fetchall()


def check(database: duckdb.DuckDBPyConnection, left: pa.Table, right: pa.Table, spec: JoinSpec) -> int:
    """Compare the two; the number of pairs."""
    found = oracle.pairs(left, right, spec)
    assert sorted(found) == sorted(duckdb_pairs(database, left, right, spec))
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
]
WINDOWS = [
    TimeWindow(3), TimeWindow(0), TimeWindow(4, right=0), TimeWindow(1, right=6),
    RowWindow(2), RowWindow(0, right=3), RowWindow(1, right=0), RowWindow(100),
    (TimeWindow(3), RowWindow(2)), (RowWindow(3), TimeWindow(2)),
]  # fmt: skip


@pytest.mark.parametrize("on", CONDITIONS)
def test_conditions(database, on):
    spec = JoinSpec(LEFT.schema, RIGHT.schema, on, TimeWindow(100), "ts", "ts")
    assert 0 < check(database, LEFT, RIGHT, spec) < LEFT.num_rows * RIGHT.num_rows


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(database, window):
    spec = JoinSpec(LEFT.schema, RIGHT.schema, "TRUE", window, "ts", "ts")
    assert check(database, LEFT, RIGHT, spec) > 0


@pytest.mark.parametrize("on", [
    "left.day = right.day", "left.day - right.day BETWEEN 0 AND 1", "left.day + 1 > right.day",
    "left.day + INTERVAL '12' HOUR < right.at", "left.at - right.at <= INTERVAL '1 day'",
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
    window = data.draw(windows(clock.unit if pa.types.is_timestamp(clock) else None))
    spec = can_be_typed(lambda: JoinSpec(left_schema, right_schema, on, window, "ts", "ts"))
    left = data.draw(tables(left_schema, "ts", wild=False))
    right = data.draw(tables(right_schema, "ts", wild=False))
    try:
        check(database, left, right, spec)
    except MACHINE_LIMITS:
        assume(False)


@given(
    st.lists(st.integers(0, 9), max_size=10), st.lists(st.integers(0, 9), max_size=10), windows(None)
)  # fmt: skip
def test_random_windows(database, left_times, right_times, window):
    schema = pa.schema({"ts": pa.int64()})
    spec = JoinSpec(schema, schema, "TRUE", window, "ts", "ts")
    check(database, pa.table({"ts": left_times}, schema), pa.table({"ts": right_times}, schema), spec)
