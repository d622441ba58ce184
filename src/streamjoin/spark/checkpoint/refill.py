"""Write the state of a join anew, from parcels: the operator of a query of one micro-batch, whose state is then put
into a checkpoint. So Spark itself encodes keys, values and timers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamjoin.semantics.spec import SIDES
from streamjoin.spark.checkpoint.division import FOUND, Reached
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import decode, groups
from streamjoin.spark.join.processor import JoinProcessor, answered_together
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.state import cache
from streamjoin.spark.state.content import Content, in_order
from streamjoin.spark.state.manifest import RUN_OF_WINDOW, SEALED_ROWS, State

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "worker INT, left BIGINT, right BIGINT"  # the rows that each worker has been given


class StateWriter(JoinProcessor):
    """Gives each worker its state. The grouping keys and the state variables are those of the join."""

    def __init__(self, task: JoinTask, reached: Reached):
        super().__init__(task)
        self.reached = reached

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        import pandas as pd  # here, because other importers of this module do without

        parcels: dict[str, list[pa.RecordBatch]] = {side: [] for side in SIDES}
        for frame in rows:
            for side, data in zip(frame["side"], frame["rows"], strict=True):
                if side >= 0:  # others only name a worker, which has a state even without rows
                    parcels[SIDES[side]].append(decode(data))
        with cache.replaced_caches(cache.ContentCache(0), NoFiles()), answered_together(self._handle):
            counts = write_state(State(self.task, self._store, Counts()), parcels, self.reached, self._handle)
        yield pd.DataFrame({"worker": [int(key[0])], **{side: [counts[side]] for side in SIDES}})


class NoFiles(cache.FileCache):
    """A cache that keeps nothing: what is written now is read by another query."""

    def __init__(self) -> None:
        super().__init__(Path(), 0)

    def put(self, token: str, data: bytes, key: bytes) -> None:
        """Keep nothing."""


def write_state(
    state: State, parcels: dict[str, list[pa.RecordBatch]], reached: Reached, handle: Any
) -> dict[str, int]:
    """Write the rows of a worker and how far it has come; return the rows by side. The worker is called as soon as the
    watermark advances, and sets its next timer then. O(n log n) for n rows."""
    counts = {}
    for side, batches in parcels.items():
        for content, found in runs_of(state.task, side, batches):
            state.add(side, content, found, sealed=True)
        counts[side] = sum(run.rows for run in state.runs[side])
    state.acted, state.shift_ms = reached.acted, reached.shift_ms
    state.decided = dict(reached.decided)
    state.timer = reached.spark_ms + 1
    handle.registerTimer(state.timer)
    state.save()
    return counts


def runs_of(
    task: JoinTask, side: str, batches: Sequence[pa.RecordBatch]
) -> Iterator[tuple[Content, np.ndarray | None]]:
    """The rows of these batches, each of which is in the order of time, as runs of a part of the window, and which rows
    have found a partner. Holds the rows and one run more."""
    if not batches:
        return
    times = [task.times(batch, side) for batch in batches]
    edges = _edges(task, side, np.sort(np.concatenate(times)))
    places = [ts.searchsorted(edges) for ts in times]
    for number in range(len(edges) - 1):
        parts = [
            batch.slice(at[number], at[number + 1] - at[number])
            for batch, at in zip(batches, places, strict=True)
        ]
        for some in groups(parts, task.tuning.run_bytes, SEALED_ROWS):
            content, _ = in_order(task, side, some)
            yield _without_found(task, side, content)


def _edges(task: JoinTask, side: str, ts: np.ndarray) -> np.ndarray:
    """The times at which runs begin, and one after all of them, given all times in order."""
    kept, window = task.waits[side].kept, task.spec.side_window(side)
    if kept is None:
        begins = ts[:: max(window.size // RUN_OF_WINDOW, 1024)]
    else:
        parts = ts // max(1, kept // RUN_OF_WINDOW)
        begins = ts[np.flatnonzero(np.concatenate([[True], parts[1:] != parts[:-1]]))]
    return np.append(np.unique(begins), ts[-1] + 1)


def _without_found(task: JoinTask, side: str, content: Content) -> tuple[Content, np.ndarray | None]:
    batch = content.batch
    if FOUND not in batch.schema.names:
        return content, None
    found = batch.column(FOUND).to_numpy(zero_copy_only=False)
    return Content(task, side, batch.drop_columns([FOUND])), found
