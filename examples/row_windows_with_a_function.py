"""Row windows with a Python function: pair each rider with the last four drivers nearby.

The function is compiled with Numba; it sees one row of each side, with columns as attributes.
"""

from __future__ import annotations

import math
import random
from typing import Any

import pyarrow as pa

import streamjoin as sj

POSITIONS = pa.schema({"ts": pa.int64(), "id": pa.int32(), "x": pa.float64(), "y": pa.float64()})


def nearby(rider: Any, driver: Any) -> bool:
    return math.hypot(rider.x - driver.x, rider.y - driver.y) < 2.0


def positions(seed: int, rows: int) -> pa.Table:
    place = random.Random(seed)
    points = [(n, n, place.uniform(0, 10), place.uniform(0, 10)) for n in range(rows)]
    return pa.table(dict(zip(POSITIONS.names, zip(*points, strict=True), strict=True)), schema=POSITIONS)


def main() -> None:
    spec = sj.JoinSpec(
        left=POSITIONS,
        right=POSITIONS,
        on=nearby,
        # A rider meets the last four drivers before it; riders do not wait for drivers.
        window=sj.RowWindow(left=0, right=4),
        left_time="ts",
        right_time="ts",
    )
    riders, drivers = positions(1, 200), positions(2, 200)
    result = sj.join_tables(riders, drivers, spec, order="timestamp")
    for row in result.slice(0, 5).to_pylist():
        distance = math.hypot(row["x"] - row["x_right"], row["y"] - row["y_right"])
        print(f"rider {row['id']:3} can take driver {row['id_right']:3}, {distance:.2f} away")
    print(f"... {result.num_rows} pairs in all")
    assert result.equals(sj.oracle.join(riders, drivers, spec))


if __name__ == "__main__":
    main()
