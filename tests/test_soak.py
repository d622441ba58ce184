"""The verdict of the soak: what counts as flat."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.topologies.soak import LINES, PEAKS, is_flat, verdict

BOUNDS = LINES | PEAKS

STEADY = {
    "resident_mb": 300.0,
    "objects": 200_000.0,
    "window_rows": 1e5,
    "payload_rows": 1e5,
    "threads": 4.0,
    "descriptors": 9.0,
}


def samples(column: str = "threads", per_second: float = 0.0, start: float = 0.0) -> list[dict[str, float]]:
    """Ten minutes, with a column that grows from `start` seconds on; memory and windows go up and down."""
    rows = []
    for number in range(120):
        seconds = 5.0 * number
        row: dict[str, float] = {"seconds": seconds, **STEADY}
        row["resident_mb"] += 5 * np.sin(number)
        row["window_rows"] += 1_300 * (number % 23)
        row[column] += per_second * max(0.0, seconds - start)
        rows.append(row)
    return rows


def test_what_goes_up_and_down_is_flat():
    assert is_flat(verdict(samples()))


def test_what_grows_while_windows_fill_is_flat():
    rows = samples()
    for row in rows[:30]:
        row["resident_mb"] -= 100
    assert is_flat(verdict(rows))


@pytest.mark.parametrize("column", list(BOUNDS))
@pytest.mark.parametrize("start", [0.0, 400.0])
def test_what_grows_steadily_is_not_flat(column, start):
    rate = 0.0005 * STEADY[column] if BOUNDS[column] else 0.02
    rises = verdict(samples(column, rate, start))
    assert rises[column] > BOUNDS[column]
    assert not is_flat(rises)
