"""Columns of another type than the spec's: cast where every value stays the same, refused where one would change."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.engine.intake import conform

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS: dict[pa.DataType, tuple[Any, int]] = {
    pa.float16(): (np.float16, 2**24),
    pa.float32(): (np.float32, 2**24),
    pa.float64(): (np.float64, 2**53),
}
DECIMALS = [pa.decimal128(5, 2), pa.decimal128(38, 0), pa.decimal128(12, 4), pa.decimal256(50, 10)]
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
DAY = 86_400 * 10**9
NAIVE = [pa.date32(), pa.date64(), *map(pa.timestamp, UNITS)]
ZONED = [
    pa.timestamp(unit, zone) for unit, zone in zip(UNITS, ["UTC", "Europe/Berlin", "UTC", "UTC"], strict=True)
]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
DURATIONS = [pa.duration(unit) for unit in UNITS]
OTHERS = [pa.bool_(), pa.string(), pa.binary()]
EVERY = [*INTEGERS, *FLOATS, *DECIMALS, *NAIVE, *ZONED, *TIMES, *DURATIONS, *OTHERS]

NUMBERS = [
    0,
    1,
    -1,
    127,
    128,
    255,
    -129,
    2049,
    40_000,
    2**24 + 1,
    2**31,
    2**40,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
]
FRACTIONS = [Fraction(1, 2), Fraction(0.1), Fraction(1, 10), Fraction(5, 4), Fraction(1, 10_000)]
MOMENTS = [0, DAY, -DAY, 10**9, 10**6, 10**3, 1, 250_000 * DAY]  # ns


def nanoseconds(kind: pa.DataType) -> int:
    """Of one unit of a type of times."""
    if pa.types.is_date(kind):
        return DAY if kind == pa.date32() else 10**6
    return UNITS[kind.unit]


def integers(kind: pa.DataType) -> pa.DataType:
    return pa.int64() if kind.bit_width == 64 else pa.int32()


def made(kind: pa.DataType, value: Any) -> pa.Array | None:
    """A single value of a type; None if the type has no such value."""
    if pa.types.is_integer(kind):
        low, high = np.iinfo(str(kind)).min, np.iinfo(str(kind)).max
        return pa.array([int(value)], kind) if value.denominator == 1 and low <= value <= high else None
    if kind in FLOATS:
        with np.errstate(over="ignore"):
            rounded = FLOATS[kind][0](float(value))
        return (
            pa.array([rounded], kind) if np.isfinite(rounded) and Fraction(float(rounded)) == value else None
        )
    if pa.types.is_decimal(kind):
        scaled = value * 10**kind.scale
        if scaled.denominator > 1 or abs(scaled) >= 10**kind.precision:
            return None
        digits = pa.scalar(f"{int(scaled)}E{-kind.scale}")
        return pa.array([digits.as_py()]).cast(kind)
    ticks, rest = divmod(value, nanoseconds(kind))
    whole_days = kind != pa.date64() or value % DAY == 0
    most = DAY // nanoseconds(kind) if kind in TIMES else 2 ** (kind.bit_width - 1)
    least = 0 if kind in TIMES else -most
    fits = not rest and whole_days and least <= ticks < most
    return pa.array([ticks], integers(kind)).view(kind) if fits else None


def family(kind: pa.DataType) -> list[str]:
    """Types that share a word have values in common."""
    families = {
        "number": [*INTEGERS, *FLOATS], "exact": [*INTEGERS, *DECIMALS], "naive": NAIVE, "zoned": ZONED,
        "time": TIMES, "duration": DURATIONS,
    }  # fmt: skip
    return [word for word, kinds in families.items() if kind in kinds]


def expected(given: pa.DataType, declared: pa.DataType, value: Any) -> pa.Array | None:
    """The value as the declared type; None if it is refused."""
    if not set(family(given)) & set(family(declared)):
        return None
    if pa.types.is_integer(given) and declared in FLOATS and abs(value) > FLOATS[declared][1]:
        return None  # exact or not: floats that large are no longer all integers
    return made(declared, value)


def values_of(kind: pa.DataType) -> list[Any]:
    if set(family(kind)) & {"number", "exact"}:
        return [Fraction(value) for value in NUMBERS] + FRACTIONS
    return MOMENTS


def conformed(column: pa.Array, declared: pa.DataType) -> pa.Array | None:
    try:
        return conform(column, pa.field("n", declared), "left")
    except sj.InputError as error:
        told = str(error)
    assert "left column 'n' has" in told
    assert str(declared) in told
    return None


@pytest.mark.parametrize("given", [kind for kind in EVERY if kind not in OTHERS], ids=str)
def test_every_value_of_every_type_becomes_the_same_value_of_every_other_type_or_is_refused(given):
    tried = 0
    for value in values_of(given):
        column = made(given, value)
        if column is None:
            continue
        for declared in EVERY:
            if declared == given:
                continue
            found, wanted = conformed(column, declared), expected(given, declared, value)
            assert (found is None) == (wanted is None), (value, declared)
            assert found is None or (found.type == declared and found.equals(wanted)), (value, declared)
            tried += 1
    assert tried > 50


@pytest.mark.parametrize("given", OTHERS, ids=str)
def test_text_bytes_and_bools_are_never_cast(given):
    column = pa.nulls(2, given)
    for declared in EVERY:
        assert (conformed(column, declared) is None) == (declared != given)


@pytest.mark.parametrize("declared", list(FLOATS), ids=str)
@pytest.mark.parametrize("given", list(FLOATS), ids=str)
def test_nan_and_infinity_stay_in_floats_and_are_no_integers(given, declared):
    column = (
        pa.array([np.float16("nan"), np.float16("-inf"), None], pa.float16()).cast(pa.float32()).cast(given)
    )
    found = conformed(column, declared)
    assert found is not None
    values = found.cast(pa.float32()).to_pylist() if declared == pa.float16() else found.to_pylist()
    assert np.isnan(values[0])
    assert values[1:] == [-np.inf, None]
    for row in range(2):
        assert conformed(column.slice(row, 1), pa.int64()) is None


def test_dictionaries_are_decoded_before_their_values_are_cast():
    column = pa.array([7, None, 7]).dictionary_encode()
    assert conform(column, pa.field("n", pa.int32()), "left").equals(pa.array([7, None, 7], pa.int32()))


SCHEMA = pa.schema({"ts": pa.timestamp("ms"), "n": pa.int32()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.n = right.n", "5 seconds", "ts", "ts")
NOON = datetime(2026, 1, 1, 12)


def test_a_join_takes_the_types_of_pandas_and_gives_those_of_the_spec():
    frame = pd.DataFrame({"ts": [NOON], "n": [7]})
    assert [str(dtype) for dtype in frame.dtypes][1] == "int64"
    assert pa.Schema.from_pandas(frame) != SCHEMA
    with sj.open_join(SPEC) as join:
        join.push("left", frame)
        join.push("right", frame)
        result = join.finish()
    assert result.to_pylist() == [{"ts": NOON, "n": 7, "ts_right": NOON, "n_right": 7}]
    assert result.schema == SPEC.schema
    table = pa.Table.from_pandas(frame)
    assert sj.join_tables(table, frame, SPEC) == result
    assert sj.oracle.join(table, table, SPEC) == result


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (pd.DataFrame({"ts": [NOON] * 3, "n": [1, 2, 2**40]}), 'df.astype({"n": "int32"})'),
        (pl.DataFrame({"ts": [NOON] * 3, "n": [1, 2, 2**40]}), 'pl.col("n").cast(pl.Int32, strict=False)'),
        (pa.table({"ts": [NOON] * 3, "n": [1, 2, 2**40]}), 'pc.cast(table["n"], "int32", safe=False)'),
        ([{"ts": NOON, "n": n} for n in (1, 2, 2**40)], 'int(row["n"])'),
    ],
    ids=["pandas", "polars", "arrow", "dicts"],
)
def test_a_value_that_does_not_fit_is_refused_with_its_row_and_the_cast_to_write(data, advice):
    with sj.open_join(SPEC) as join:
        with pytest.raises(sj.InputError) as caught:
            join.push("left", data)
        assert str(caught.value) == (
            "left column 'n' has 1099511627776 at row 2, which int32, the spec's type, cannot hold exactly: declare "
            f"the column as int64, or, if values may change, cast it first, such as {advice}"
        )
        assert join.stats().left_tuples == 0  # nothing of the push was taken
    with pytest.raises(sj.InputError, match="1099511627776 at row 2"):
        sj.join_tables(data, data, SPEC)


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (pa.float32(), 'df.astype({"n": "float32"})'),
        (pa.duration("s"), 'df.astype({"n": "timedelta64[s]"})'),
        (pa.string(), 'df.astype({"n": "str"})'),
        (pa.date32(), 'df.astype({"n": pd.ArrowDtype(spec.left.field("n").type)})'),
        (pa.decimal128(5, 2), 'df.astype({"n": pd.ArrowDtype(spec.left.field("n").type)})'),
    ],
    ids=str,
)
def test_another_kind_of_value_is_refused_with_the_cast_to_write(kind, advice):
    schema = pa.schema({"ts": pa.int64(), "n": kind})
    spec = sj.JoinSpec(schema, schema, "left.ts = right.ts", 5, "ts", "ts")
    data = pd.DataFrame({"ts": [1], "n": [True]})
    with sj.open_join(spec) as join, pytest.raises(sj.InputError) as caught:
        join.push("left", data)
    assert f"'n' has type bool, the spec says {kind}: cast it first, such as {advice}" in str(caught.value)


def test_a_time_without_a_zone_is_no_instant():
    with sj.open_join(SPEC) as join, pytest.raises(sj.InputError, match=r"give it its zone.*dt\.tz_localize"):
        join.push("left", pa.table({"ts": pa.array([NOON], pa.timestamp("ms", "UTC")), "n": [1]}))


def test_the_sample_of_a_stream_fixes_types_and_other_rows_are_cast():
    sample = [{"ts": 1, "x": 1.0}]
    with sj.stream(sample, sample, on="left.x = right.x", window=5, time="ts") as join:
        join.push("left", [{"ts": 1, "x": 1}])
        join.push("right", [{"ts": 2, "x": 1.0}])
        with pytest.raises(sj.InputError, match="has 9007199254740993 at row 1, which double"):
            join.push("left", [{"ts": 3, "x": 1}, {"ts": 3, "x": 2**53 + 1}])
        assert join.finish().to_pylist() == [{"ts": 1, "x": 1.0, "ts_right": 2, "x_right": 1.0}]


def test_the_oracle_refuses_what_a_join_refuses():
    good = pa.table({"ts": [NOON], "n": [1]})
    for bad in (pa.table({"ts": [NOON], "n": [2**40]}), pa.table({"ts": [NOON], "n": ["1"]})):
        with pytest.raises(sj.InputError, match="n"):
            sj.oracle.join(good, bad, SPEC)
