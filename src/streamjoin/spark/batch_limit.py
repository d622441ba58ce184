"""Spark's limit on the bytes of a batch of rows for Python, and when a join does without it.

Spark sends rows to Python in batches of at most BATCH_ROWS rows and BATCH_BYTES bytes. To keep the second limit, it
measures the whole batch anew after each row, which takes longer than all else that Java does with a row
(docs/lab/spark.md). Where rows have a fixed width, the first limit implies the second. Then we lift the second, and cut
parcels so small that batches of parcels do not reach it either.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from pyspark.sql import SparkSession

from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state.pieces import width

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
OURS = "spark.streamjoin.batchBytes"  # whether a join of the session has lifted the limit, or needs it
LIFTED, STAYS = "lifted", "stays"
NO_LIMIT = str(2**31 - 1)  # the only value with which Spark does not measure
SPARK_BYTES, SPARK_ROWS = 1 << 28, 10_000  # Spark's own limits
PARCEL_BYTES = SPARK_BYTES // SPARK_ROWS
MOST_COLUMNS = 32  # with more columns, their names and offsets would be a large part of so small a parcel


def lift_limit(spark: SparkSession, task: JoinTask, streaming: bool = True) -> JoinTask:
    """Lift the session's limit if no batch of this join of streams can reach it; return the task with parcels small
    enough for that. A limit that the program has set stays. After a join whose rows have no fixed width the limit is
    back, and stays for all later joins of the session: a query reads it when it starts, in any order."""
    given, ours = spark.conf.get(BATCH_BYTES, None), spark.conf.get(OURS, None)
    if given is not None and (ours, given) != (LIFTED, NO_LIMIT):
        return task
    if not has_small_rows(task, int(spark.conf.get(BATCH_ROWS, None) or SPARK_ROWS)):
        spark.conf.unset(BATCH_BYTES)
        spark.conf.set(OURS, STAYS)
        return task
    if ours == STAYS or not streaming:
        return task
    if given is None:
        spark.conf.set(BATCH_BYTES, NO_LIMIT)
        spark.conf.set(OURS, LIFTED)
        logging.getLogger("streamjoin").warning(
            "this Spark session now has no limit on the bytes of a batch of rows for Python, for window_join; set %s "
            "yourself to decide",
            BATCH_BYTES,
        )
    return replace(task, tuning=replace(task.tuning, parcel_value_bytes=PARCEL_BYTES))


def has_small_rows(task: JoinTask, batch_rows: int) -> bool:
    """Whether the rows of both sides have a fixed width with which no batch has SPARK_BYTES. `batch_rows`: the most
    rows of a batch; Spark reads a number below 1 as no limit."""
    if not 0 < batch_rows <= SPARK_ROWS:
        return False
    for side in SIDES:
        widths = [width(kind) for kind in task.spec.side_schema(side).types]
        if None in widths or len(widths) > MOST_COLUMNS or sum(filter(None, widths)) > PARCEL_BYTES:
            return False
    return True
