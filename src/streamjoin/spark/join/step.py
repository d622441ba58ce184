"""The rows that a worker sees in one micro-batch, old and new, and which of them its watermark decides."""

from __future__ import annotations

import numpy as np

from streamjoin.spark.join.pack import decode, encode
from streamjoin.spark.join.routing import group_of
from streamjoin.spark.join.task import BEGIN_OF_TIME, END_OF_TIME, TIE, JoinTask
from streamjoin.spark.state.content import (
    Content,
    Contents,
    UnloadedContent,
    in_order,
    places_between,
    tie_of,
)
from streamjoin.spark.state.manifest import State


class StepRows:
    """`contents`: by side, the runs of the state and then the new rows."""

    def __init__(self, task: JoinTask, number: int, state: State, contents: dict[str, Contents]):
        self.task, self.number, self.state, self.contents = task, number, state, contents

    def owned(self, tie: np.ndarray) -> np.ndarray:
        """The rows that this worker probes with, by their hashes. If all workers get all rows, each probes with its
        share."""
        if self.task.routing.workers == 1 or self.task.routing.kind != "every":
            return np.arange(len(tie))
        return np.flatnonzero(group_of(tie, self.task.routing.workers) == self.number)

    def total_order(self, side: str) -> tuple[Content, np.ndarray]:
        """All rows of a side in the total order, without the columns that only results need, and their ids. O(rows)."""
        contents, names = self.contents[side], [*self.task.read(side), TIE]
        # A copy of an unloaded run's columns does not keep its other columns in memory.
        parts = [
            decode(encode(each.batch.select(names)))
            if isinstance(each, UnloadedContent)
            else each.batch.select(names)
            for each in contents.contents
        ]
        content, order = in_order(self.task, side, parts)
        return content, np.arange(contents.count) if order is None else order

    def decided(self, side: str, watermark: int) -> np.ndarray:
        """The ids of the rows that this watermark decides."""
        contents = self.contents[side]
        if not contents.contents:
            return np.empty(0, np.int64)
        if self.task.waits[side].decided is None:
            content, order = self.total_order(side)
            return order[slice(*self.decided_by_count(side, content, watermark))]
        parts = zip(contents.starts, self.decided_places(side, watermark), strict=True)
        return np.concatenate([np.arange(start + low, start + high) for start, (low, high) in parts])

    def decided_places(self, side: str, watermark: int) -> list[tuple[int, int]]:
        """The same as the first place and the end in each content, for windows of time. A new row may be decided at
        once."""
        waits, contents = self.task.waits[side], self.contents[side].contents
        assert waits.decided is not None and waits.kept is not None
        after, until = moved_back(self.state.acted, waits.kept), moved_back(watermark, waits.decided)
        held = len(self.state.runs[side])
        return [
            content.places(after if number < held else BEGIN_OF_TIME, until)
            for number, content in enumerate(contents)
        ]

    def decided_by_order(self, side: str, content: Content, watermark: int) -> tuple[int, int]:
        """The first place and the end of the rows that are decided, given all rows of a side in the total order."""
        wait = self.task.waits[side].decided
        if wait is None:
            return self.decided_by_count(side, content, watermark)
        return places_between(content.ts, moved_back(self.state.acted, wait), moved_back(watermark, wait))

    def decided_by_count(self, side: str, content: Content, watermark: int) -> tuple[int, int]:
        """The same for a row window: the rows before the last ones, which are all that a later row can meet."""
        ts, tie = content.ts, tie_of(content)
        settled = int(ts.searchsorted(watermark, "right"))
        size = 0 if watermark == END_OF_TIME else self.task.spec.side_window(side).size
        low, high = _place_of_cut(self.state.decided[side], ts, tie), max(0, settled - size)
        if high > low:
            last = (ts[:high] == ts[high - 1]) & (tie[:high] == tie[high - 1])
            self.state.decided[side] = int(ts[high - 1]), int(tie[high - 1]), int(last.sum())
        return low, max(low, high)


def _place_of_cut(cut: tuple[int, int, int] | None, ts: np.ndarray, tie: np.ndarray) -> int:
    """The place of the first row after a cut (ts, tie, number of rows with this ts and tie)."""
    if cut is None:
        return 0
    begin, end = (int(ts.searchsorted(cut[0], which)) for which in ("left", "right"))
    first, last = (int(tie[begin:end].searchsorted(cut[1], which)) for which in ("left", "right"))
    return begin + min(first + cut[2], last)  # fewer are there if their runs have expired


def moved_back(watermark: int, ticks: int) -> int:
    """A watermark `ticks` earlier. The ends of time stay."""
    if watermark in (BEGIN_OF_TIME, END_OF_TIME):
        return watermark
    return min(max(BEGIN_OF_TIME, watermark - ticks), END_OF_TIME)
