"""Event times and Spark's watermark: a number of milliseconds since 1970 that starts at 0 and never goes below.

Times of two types have a watermark column of our own: integers (a tick is a millisecond) and TIMESTAMP_NTZ. It is
shifted by `SHIFT_MS`, so that times at and before 1970 have a watermark too. Shifted and unshifted watermarks lie on
different sides of `LEAST_SHIFTED`: the first come from times later than -2^51 ms, which is 69,000 BC; the second belong
to checkpoints from before times were shifted, until their next watermark.

The column of a TIMESTAMP cannot be shifted: what follows the join compares the same watermark with the result's times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampNTZType

from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.manifest import State, StateError

SHIFT_MS = 1 << 52
LEAST_SHIFTED = 1 << 51


def shifted_instant(time: Column, kind: DataType) -> Column:
    """The instant by which Spark computes the watermark of a time that is not a TIMESTAMP. Reads an integer as
    milliseconds, and a time without a zone as UTC: a cast would use the session's zone, in which some hours occur
    twice."""
    if not isinstance(kind, TimestampNTZType):
        return F.timestamp_millis(time.cast("bigint") + F.lit(SHIFT_MS))
    minutes = F.unix_date(time.cast("date")).cast("bigint") * 1440 + F.hour(time) * 60 + F.minute(time)
    seconds = F.date_part(F.lit("SECOND"), time) * 1_000_000  # with their fraction, as a decimal
    return F.timestamp_micros(minutes * 60_000_000 + seconds.cast("bigint") + F.lit(SHIFT_MS * 1000))


def unshifted(spark_ms: int) -> int:
    """A watermark of Spark, or a time that it reports, without the shift that it may have."""
    return spark_ms - SHIFT_MS if spark_ms >= LEAST_SHIFTED else spark_ms


def set_shift(task: JoinTask, state: State, spark_ms: int) -> None:
    """Note in the state by how much the watermark `spark_ms` is shifted. Raises if it is not that of the join's own
    times."""
    if spark_ms == 0 or spark_ms >= LEAST_SHIFTED:
        state.shift_ms = task.shift_ms
    elif state.shift_ms:
        raise StateError(
            "this query has a second watermark beside that of the join's times, which are not TIMESTAMPs: from "
            "withWatermark, or from a join on TIMESTAMPs. Spark uses the least of them for all. Join on TIMESTAMP "
            "columns, or write the result of this join to a sink and continue from there"
        )


def check_epoch(
    task: JoinTask, state: State, batches: Mapping[str, Sequence[pa.RecordBatch]], spark_ms: int
) -> None:
    """Raise if both sides have had rows and there is still no watermark, because all rows of a side are from before
    1970."""
    if spark_ms > 0 or task.shift_ms or not all(state.runs.values()):
        return
    for side, runs in state.runs.items():
        new = [int(task.times(batch, side).max()) for batch in batches.get(side, ()) if batch.num_rows]
        newest = max([run.newest for run in runs] + new)
        if newest < 0 and side in task.watermarked:
            raise StateError(
                f"{side}'s times are before 1970 (the newest here is {pa.scalar(newest, pa.timestamp('us'))}), and "
                "Spark's watermark does not go below 1970: no row would ever be late, final or released. Cast the "
                "times of both sides to TIMESTAMP_NTZ, or to integers with unix_millis"
            )
