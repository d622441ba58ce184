"""Sensor fusion: temperature from three stations, whose messages may come out of order, against alarms.

Every station is a physical stream of its own. Within a station a reading may be up to two seconds
late; what is later than that is set aside, not lost.
"""

from __future__ import annotations

import random

import pyarrow as pa

import streamjoin as sj

READINGS = pa.schema({"ts": pa.int64(), "station": pa.int32(), "celsius": pa.float64()})
ALARMS = pa.schema({"ts": pa.int64(), "threshold": pa.float64()})
STATIONS, SECONDS = 3, 60


def readings(station: int) -> list[dict[str, float]]:
    """One reading a second, in milliseconds, delivered with a jitter of up to two seconds."""
    noise = random.Random(station)
    rows = [
        {"ts": 1000 * second + station, "station": station, "celsius": 20.0 + noise.uniform(-5, 5)}
        for second in range(SECONDS)
    ]
    return sorted(rows, key=lambda row: row["ts"] + noise.randrange(2000))


def main() -> None:
    spec = sj.JoinSpec(
        left=READINGS,
        right=ALARMS,
        on="left.celsius > right.threshold",
        window=sj.TimeWindow(3000),  # milliseconds: the time columns are plain integers
        left_time="ts",
        right_time="ts",
        lateness=2000,
    )
    alarms = pa.table({"ts": [10_000, 30_000, 50_000], "threshold": [23.0, 24.0, 22.0]}, schema=ALARMS)
    delivered = {f"station-{n}": pa.Table.from_pylist(readings(n), schema=READINGS) for n in range(STATIONS)}

    with sj.open_join(spec, order="timestamp") as join:
        sources = {name: join.source("left", name=name) for name in delivered}
        alarm_source = join.source("right", name="alarms")
        for start in range(0, SECONDS, 10):
            for name, source in sources.items():
                source.push(delivered[name].slice(start, 10))
        alarm_source.push(alarms)
        for source in sources.values():
            source.close()
        alarm_source.close()
        result = join.finish()

    for row in result.slice(0, 5).to_pylist():
        print(
            f"alarm at {row['ts_right'] / 1000:.0f} s: station {row['station']} had {row['celsius']:.1f} degrees"
        )
    print(f"... {result.num_rows} readings in all")

    # The result does not depend on the order of the messages: the definition returns the same rows.
    everything = pa.concat_tables(list(delivered.values()))
    expected = sj.oracle.join(everything, alarms, spec)
    assert result.sort_by(KEYS).equals(expected.sort_by(KEYS))


KEYS = [("ts_right", "ascending"), ("ts", "ascending")]

if __name__ == "__main__":
    main()
