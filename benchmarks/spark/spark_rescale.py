"""How long rescaling a checkpoint takes, and what it would cost to need none: many small workers from the start.

Part *rescale*: the papers' 2-D band, with states of several sizes, taken from 2 to 8 workers; beside it Spark's own
`repartition` of the same checkpoint from 2 to 8 partitions, which moves whole workers and splits none.

Part *shards*: the same join with 2, 16 and 64 workers in 2 partitions. A checkpoint with many more workers than
cores could be spread over more cores without dividing any state, as Flink does with key groups.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from benchmarks.shared.figures import Figure
from benchmarks.shared.spark import (
    band_join,
    domain_of,
    measure,
    open_session,
    wait_for_all,
    window_of,
    write_files,
)
from streamjoin.spark.checkpoint.rescale import rescale_checkpoint
from streamjoin.spark.window_join import assemble

BEFORE, AFTER = 2, 8  # workers
ROWS = 10_000  # rows per side in a measured micro-batch
WARM, MEASURED, REPEATED = 6, 12, 5
FIGURES = {
    "spark_rescale": Figure(
        "state_rows",
        {"rescale_seconds": "rescale", "repartition_seconds": "Spark's repartition"},
        "rows of state, from 2 to 8 workers",
        "seconds",
        where={"part": "rescale"},
    ),
}


def checkpoint_of(session: SparkSession, folder: Path, window: int) -> Path:
    """The checkpoint of a stopped query whose windows are full."""
    write_files(folder, [window // 4] * 5, domain_of(window))
    frame = assemble(*band_join(session, folder, window_of(window), BEFORE))
    place = folder / "checkpoint"
    query = frame.writeStream.format("noop").option("checkpointLocation", str(place)).start()
    wait_for_all(query, 300)
    query.stop()
    return place


def rescaling(session: SparkSession, window: int, repeated: int = REPEATED) -> dict[str, Any]:
    """A row for a state of windows of this many rows a side: medians."""
    folder = Path(tempfile.mkdtemp(prefix="rescale"))
    try:
        place = checkpoint_of(session, folder, window)
        task, _ = band_join(session, folder, window_of(window), AFTER)
        seconds: dict[str, list[float]] = {"rescale": [], "repartition": []}
        for _ in range(repeated):
            # A checkpoint names its own path, so each copy takes the place of the original.
            kept = folder / "kept"
            shutil.copytree(place, kept)
            began = time.perf_counter()
            (done,) = rescale_checkpoint(session, str(place), [task], AFTER, lambda line: None)
            seconds["rescale"].append(time.perf_counter() - began)
            shutil.rmtree(place)
            shutil.copytree(kept, place)
            manager = cast(Any, session)._jsparkSession.streamingCheckpointManager()
            began = time.perf_counter()
            manager.repartition(str(place), AFTER, True)
            seconds["repartition"].append(time.perf_counter() - began)
            shutil.rmtree(place)
            kept.rename(place)
            assert done.workers == AFTER
        held = [done.before.side(side) for side in ("left", "right")]
        return {
            "part": "rescale",
            "state_rows": sum(each.rows for each in held),
            "state_bytes": sum(each.nbytes for each in held),
            **{f"{name}_seconds": statistics.median(each) for name, each in seconds.items()},
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shards(session: SparkSession, window: int, workers: int) -> dict[str, Any]:
    """A row for micro-batches of a join with this many workers."""
    folder = Path(tempfile.mkdtemp(prefix="files"))
    try:
        write_files(folder, [window, *[ROWS] * (WARM + MEASURED)], domain_of(window))
        frame = assemble(*band_join(session, folder, window_of(window), workers))
        batches = measure(frame, 1 + WARM, 300)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "part": "shards",
        "workers": workers,
        "seconds_a_batch": statistics.median(each["seconds"] for each in batches),
        "rows_in": statistics.mean(each["observed"]["rows_in"] for each in batches),
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per size of the state, and one per number of workers. Summary: ratios."""
    sizes, counts = ((20_000,), (2, 8)) if quick else ((100_000, 800_000), (2, 16, 64))
    session = open_session()
    try:
        rescaling(session, 20_000, 1)  # warms up Java
        rescaled = [rescaling(session, size) for size in sizes]
        sharded = [shards(session, 100_000, count) for count in counts]
    finally:
        session.stop()
    first, last = rescaled[0], rescaled[-1]
    return {
        "rows": [*rescaled, *sharded],
        "summary": {
            "rows a second, largest state": last["state_rows"] / last["rescale_seconds"],
            "seconds, largest state over smallest": last["rescale_seconds"] / first["rescale_seconds"],
            "rows of state, largest over smallest": last["state_rows"] / first["state_rows"],
            "rescaling over Spark's repartition, largest state": last["rescale_seconds"]
            / last["repartition_seconds"],
            **{
                f"micro-batch of {each['workers']} workers over that of {sharded[0]['workers']}": each[
                    "seconds_a_batch"
                ]
                / sharded[0]["seconds_a_batch"]
                for each in sharded[1:]
            },
        },
    }
