"""Sizes and thresholds of a join on Spark. They change its cost and its memory, never its results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SparkTuning:
    """Every worker gets these with its task.

    `result_rows`, `result_bytes`: cut result rows into pieces of at most this size, so that a burst of matches does not
    need more memory than a few pieces; a single row may be larger. `value_bytes`: put about this much of a result into
    one value for Spark, because Java copies a value several times. `parcel_rows`, `parcel_bytes`: gather this much
    input before it is divided among the workers.

    `probes_at_once`: probe with at most this many rows at a time. `pair_room`: the buffer that a probe fills has room
    for this many pairs, and is emptied when it is half full.

    `run_bytes`: cut new rows into runs of about this size: writing a run takes several times its memory for a moment,
    and Arrow's strings and Java's values end at 2 GiB.
    `merged_run_bytes`: do not merge runs in the state beyond this size. `layer_rows`: do not merge layers in memory
    beyond this size; indexing 2,097,152 rows takes about 50 ms. `most_layers`: with more layers than this, a
    micro-batch merges them itself; otherwise they are merged after it.
    """

    result_rows: int = 1 << 17
    result_bytes: int = 1 << 24
    value_bytes: int = 1 << 18
    parcel_rows: int = 1 << 17
    parcel_bytes: int = 1 << 25
    parcel_value_bytes: int = 1 << 28
    probes_at_once: int = 1 << 17
    pair_room: int = 1 << 16
    run_bytes: int = 1 << 26
    merged_run_bytes: int = 1 << 26
    layer_rows: int = 1 << 21
    most_layers: int = 12


DEFAULT_SPARK_TUNING = SparkTuning()
