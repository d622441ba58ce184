"""Larger joins than the oracle can look at: against DuckDB, and against every pair in range tried with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import push_all
from streamjoin.plan.options import ORDERS

LEFT = pa.schema(
    [("ts", pa.int64()), ("x", pa.int32()), ("y", pa.float32()), ("sym", pa.string()), ("l", pa.int64())]
)
RIGHT = pa.schema(
    [("ts", pa.int64()), ("a", pa.int32()), ("b", pa.float32()), ("name", pa.string()), ("r", pa.int64())]
)
Tables = tuple[pa.Table, pa.Table]
Mask = Callable[[pa.Table, pa.Table, np.ndarray, np.ndarray], np.ndarray]


def stream(schema: pa.Schema, rows: int, seed: int, domain: int = 10_000, nulls: float = 0.01) -> pa.Table:
    """Rows at times that rise by 0, 1 or 2, uniform values below `domain`, a few NULLs."""
    rng = np.random.default_rng(seed)
    ts = np.cumsum(rng.integers(0, 3, rows))
    numbers = rng.integers(0, domain, rows)
    text = pa.array(
        np.char.add("s", rng.integers(0, domain, rows).astype(str)),
        pa.string(),
        mask=rng.random(rows) < nulls,
    )
    arrays = [
        pa.array(ts, pa.int64()),
        pa.array(numbers, pa.int32(), mask=rng.random(rows) < nulls),
        pa.array((rng.random(rows) * domain).astype(np.float32)),
        text,
        pa.array(np.arange(rows)),
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def make_spec(on: Any, window: Any) -> sj.JoinSpec:
    return sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts")


def cut(table: pa.Table, side: str, seed: int, pieces: int) -> Iterator[tuple[str, pa.Table]]:
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, table.num_rows + 1, pieces - 1))
    for lo, hi in zip([0, *at], [*at, table.num_rows], strict=True):
        yield side, table.slice(lo, hi - lo)


def interleaved(left: pa.Table, right: pa.Table, seed: int, pieces: int) -> list[tuple[str, pa.Table]]:
    """Both tables in random pieces, one side sometimes far ahead of the other."""
    queues = {"left": cut(left, "left", seed, pieces), "right": cut(right, "right", seed + 1, pieces)}
    turns = np.random.default_rng(seed + 2).permutation(["left"] * pieces + ["right"] * pieces)
    return [next(queues[side]) for side in turns]


def found_pairs(spec: sj.JoinSpec, pushes: list[tuple[str, pa.Table]], order: Any = "any") -> np.ndarray:
    """The result as rows (l, r), in the order it came."""
    with sj.open_join(spec, order=order) as join:
        batches = push_all(join, pushes, lambda: True)
        rest = join.finish()
    plain = [batch.replace_schema_metadata(None) for batch in [*batches, *rest.to_batches()]]
    whole = pa.Table.from_batches(plain, spec.schema)
    return np.column_stack([whole["l"].to_numpy(), whole["r"].to_numpy()])


def in_order(pairs: np.ndarray) -> np.ndarray:
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def every_pair_in_range(left: pa.Table, right: pa.Table, spec: sj.JoinSpec, holds: Mask) -> np.ndarray:
    """All pairs of an earlier tuple still in its window and a later one, kept where `holds` is true of their row
    numbers; sorted by (l, r)."""
    parts = []
    times = {"left": left["ts"].to_numpy(), "right": right["ts"].to_numpy()}
    for stored, probing in (("left", "right"), ("right", "left")):
        window, ts = spec.side_window(stored), times[probing]
        stop = np.searchsorted(times[stored], ts, "right" if stored == "left" else "left")
        first = np.searchsorted(times[stored], ts - window.size, "left")
        start = np.maximum(stop - window.size, 0) if window.rows else np.minimum(first, stop)
        for begin in range(0, len(ts), 4096):
            chunk = slice(begin, begin + 4096)
            counts = (stop - start)[chunk]
            probe = np.repeat(np.arange(begin, begin + len(counts)), counts)
            offset = np.arange(len(probe)) - np.repeat(np.cumsum(counts) - counts, counts)
            held = np.repeat(start[chunk], counts) + offset
            l, r = (held, probe) if stored == "left" else (probe, held)
            keep = holds(left, right, l, r)
            parts.append(np.column_stack([l[keep], r[keep]]))
    return in_order(np.concatenate(parts))


def near(l: np.ndarray, r: np.ndarray, width: Any) -> np.ndarray:
    return np.asarray((l >= r - width) & (l <= r + width))


def plane_band(left: pa.Table, right: pa.Table, l: np.ndarray, r: np.ndarray) -> np.ndarray:
    """|x - a| <= 100 and |y - b| <= 100 in float32, neither NULL."""
    x, a = left["x"].to_numpy(zero_copy_only=False), right["a"].to_numpy(zero_copy_only=False)
    close = near(x[l], a[r], 100)  # NULLs are NaN here, so they are close to nothing
    at = np.flatnonzero(close)
    y, b = left["y"].to_numpy(), right["b"].to_numpy()
    close[at] = near(y[l[at]], b[r[at]], np.float32(100))
    return close


BAND = "x BETWEEN a - 100 AND a + 100 AND y BETWEEN b - 100 AND b + 100"
WINDOWS = {
    "time": sj.TimeWindow(left=700, right=300),
    "rows": sj.RowWindow(left=600, right=200),
    "time and rows": (sj.TimeWindow(500), sj.RowWindow(400)),
    "rows and time": (sj.RowWindow(400), sj.TimeWindow(500)),
    "rows, one-sided": sj.RowWindow(left=0, right=800),
}


@pytest.fixture(scope="module")
def planes() -> Tables:
    return stream(LEFT, 20_000, 1), stream(RIGHT, 24_000, 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_differential_plane_band(window: str, order: Any, planes: Tables):
    spec = make_spec(BAND, WINDOWS[window])
    wanted = every_pair_in_range(*planes, spec, plane_band)
    assert len(wanted) > 500
    found = found_pairs(spec, interleaved(*planes, seed=3, pieces=40), order)
    np.testing.assert_array_equal(in_order(found), wanted)
    if order == "timestamp":
        np.testing.assert_array_equal(found, sorted_by_result_time(found, *planes))


def sorted_by_result_time(pairs: np.ndarray, left: pa.Table, right: pa.Table) -> np.ndarray:
    """By result time, then by the later tuple, then by the earlier, left before right at equal times."""
    l_ts, r_ts = left["ts"].to_numpy()[pairs[:, 0]], right["ts"].to_numpy()[pairs[:, 1]]
    right_is_later = r_ts >= l_ts
    later = np.where(right_is_later, pairs[:, 1], pairs[:, 0])
    earlier = np.where(right_is_later, pairs[:, 0], pairs[:, 1])
    return pairs[np.lexsort((earlier, later, right_is_later, np.maximum(l_ts, r_ts)))]


def duckdb_pairs(left: pa.Table, right: pa.Table, on: str, before: int, after: int) -> np.ndarray:
    """The same condition in DuckDB, the window as a range of times."""
    connection = duckdb.connect()
    connection.register("left_rows", left)
    connection.register("right_rows", right)
    found = connection.execute(
        f"""SELECT l.l, r.r FROM left_rows l JOIN right_rows r
            ON ({on}) AND r.ts BETWEEN l.ts - {before} AND l.ts + {after} ORDER BY 1, 2"""
    ).fetchnumpy()
    return np.column_stack([found["l"], found["r"]])


@pytest.fixture(scope="module")
def millions() -> Tables:
    return stream(LEFT, 1_000_000, 4, domain=50_000), stream(RIGHT, 1_000_000, 5, domain=50_000)


@pytest.fixture(scope="module")
def equal_numbers(millions: Tables) -> np.ndarray:
    pairs = duckdb_pairs(*millions, "x = a", before=300, after=900)
    assert len(pairs) > 10_000
    return pairs


EQUAL = make_spec("x = a", sj.TimeWindow(left=900, right=300))


@pytest.mark.parametrize("first", ["left", "right"])
def test_differential_a_million_rows_at_once(first: str, millions: Tables, equal_numbers: np.ndarray):
    pushes = list(zip(("left", "right"), millions, strict=True))
    found = found_pairs(EQUAL, pushes if first == "left" else pushes[::-1])
    np.testing.assert_array_equal(in_order(found), equal_numbers)


@pytest.mark.parametrize("order", ORDERS)
def test_differential_a_million_rows_in_random_cuts(order: Any, millions: Tables, equal_numbers: np.ndarray):
    found = found_pairs(EQUAL, interleaved(*millions, seed=6, pieces=100), order)
    np.testing.assert_array_equal(in_order(found), equal_numbers)
    if order == "timestamp":
        np.testing.assert_array_equal(found, sorted_by_result_time(found, *millions))


def test_differential_whole_tables_of_a_million_rows_in_any_row_order(
    millions: Tables, equal_numbers: np.ndarray
):
    rng = np.random.default_rng(7)
    left, right = (table.take(pa.array(rng.permutation(table.num_rows))) for table in millions)
    found = sj.join_tables(left, right, EQUAL)
    pairs = np.column_stack([found["l"].to_numpy(), found["r"].to_numpy()])
    np.testing.assert_array_equal(in_order(pairs), equal_numbers)


@pytest.mark.parametrize(
    "on",
    [
        "sym = name",
        "sym = name AND (x < a OR y > b)",
        "x BETWEEN a - 2 AND a + 2 AND sym LIKE '%7' AND name <> 's11'",
        "x = a OR sym = name",
        "x - a BETWEEN 1 AND 3 AND COALESCE(x, 0) % 2 = 0",
    ],
)
def test_differential_strings_and_residuals(on):
    left, right = stream(LEFT, 60_000, 8, domain=3000), stream(RIGHT, 60_000, 9, domain=3000)
    wanted = duckdb_pairs(left, right, on, before=50, after=100)
    assert len(wanted) > 100
    spec = make_spec(on, sj.TimeWindow(left=100, right=50))
    found = found_pairs(spec, interleaved(left, right, seed=10, pieces=30))
    np.testing.assert_array_equal(in_order(found), wanted)


def test_differential_every_pair_matches():
    """Far more results than the buffer holds, and than there are tuples."""
    left, right = stream(LEFT, 3000, 11), stream(RIGHT, 3000, 12)
    spec = make_spec("TRUE", sj.TimeWindow(1000))
    wanted = every_pair_in_range(left, right, spec, lambda *rows: np.ones(len(rows[-1]), np.bool_))
    assert len(wanted) > 2_000_000
    found = found_pairs(spec, interleaved(left, right, seed=13, pieces=8))
    np.testing.assert_array_equal(in_order(found), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("window", WINDOWS)
def test_differential_long_plane_band(window, order):
    left, right = stream(LEFT, 400_000, 14), stream(RIGHT, 400_000, 15)
    spec = make_spec(BAND, WINDOWS[window])
    wanted = every_pair_in_range(left, right, spec, plane_band)
    found = found_pairs(spec, interleaved(left, right, seed=16, pieces=2000), order)
    np.testing.assert_array_equal(in_order(found), wanted)
