"""Runs of one side, merged for probing: a probe searches a few large indexes instead of one for every run.

State keeps runs as they were written, because writing a row again costs more than searching many runs. In memory
merging costs less: neighbouring runs become a *layer*, one index over all their rows. Layers grow geometrically, so a
row is indexed only a few times while it is held. A layer keeps the rows of expired runs until it is merged into
another; no probe reaches them.

Layers belong to one process and can be made again from the runs, which they identify by their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from streamjoin.index.tuples import Tuples
from streamjoin.plan.spark_tuning import DEFAULT_SPARK_TUNING, SparkTuning
from streamjoin.spark.state.content import Contents, StoredRows
from streamjoin.spark.state.run_index import IndexedTuples
from streamjoin.spark.state.runs import StoredRun

# Merge a layer with those after it if it has fewer than RATIO times their rows, and at least FEWEST become one.
RATIO, FEWEST = 4, 3


class Layer:
    """Rows of neighbouring runs in the total order. `places`: the place of each row in the concatenated runs; None if
    the order is the same. `gone`: how many of the first runs have expired since."""

    def __init__(self, runs: Sequence[StoredRun], indexed: IndexedTuples, places: np.ndarray | None = None):
        self.runs, self.indexed, self.places = tuple(runs), indexed, places
        self.gone = 0

    @property
    def nbytes(self) -> int:
        tuples, places = self.indexed.tuples, 0 if self.places is None else self.places.nbytes
        return self.indexed.nbytes + tuples.ts.nbytes + tuples.id.nbytes + tuples.source.nbytes + places

    @property
    def gone_rows(self) -> int:
        return sum(run.rows for run in self.runs[: self.gone])

    @property
    def rows(self) -> int:
        """The number of rows in runs that have not expired."""
        return len(self.indexed) - self.gone_rows

    def fits(self, at: Mapping[str, int]) -> bool:
        """Whether its remaining runs are consecutive runs of the state, and set `gone`. `at`: the places of the state's
        runs, by token."""
        found = [at.get(run.token, -1) for run in self.runs]
        self.gone = sum(place < 0 for place in found)
        left = found[self.gone :]
        return bool(left) and left[0] >= 0 and left == list(range(left[0], left[0] + len(left)))

    def stored(self, at: Mapping[str, int], starts: np.ndarray) -> StoredRows:
        """The layer for probing. `starts`: the first id of each run of the state."""
        first = int(starts[at[self.runs[self.gone].token]]) - self.gone_rows
        past = max((run.newest for run in self.runs[: self.gone]), default=None)
        return StoredRows(self.indexed, first if self.places is None else self.places + first, past)

    def left(self) -> tuple[Tuples, np.ndarray | None]:
        """The tuples of the remaining runs, and their places in those."""
        tuples, gone = self.indexed.tuples, self.gone_rows
        if self.places is None:
            return tuples.pick(slice(gone, None)), None
        rows = np.flatnonzero(self.places >= gone)
        return tuples.pick(rows), self.places[rows] - gone


def merged(layers: Sequence[Layer]) -> Layer:
    """Merge the remaining runs of neighbouring layers into one. O(rows), and a sort if their times overlap."""
    parts = [layer.left() for layer in layers]
    runs = [run for layer in layers for run in layer.runs[layer.gone :]]
    ts = np.concatenate([tuples.ts for tuples, _ in parts])
    columns = zip(*(tuples.stored.arrays() for tuples, _ in parts), strict=True)
    stored = parts[0][0].stored.with_arrays([np.concatenate(column) for column in columns])
    count, nulls, indexer = len(ts), any(tuples.nulls for tuples, _ in parts), layers[0].indexed.indexer
    together = Tuples(ts, np.arange(count), np.zeros(count, np.int32), stored, nulls)
    if all(places is None for _, places in parts) and not (ts[1:] < ts[:-1]).any():
        return Layer(runs, IndexedTuples(indexer, together))
    starts = np.cumsum([0, *(len(tuples) for tuples, _ in parts)])
    everywhere = [
        start + (np.arange(len(tuples)) if places is None else places)
        for start, (tuples, places) in zip(starts, parts, strict=False)
    ]
    order = np.argsort(ts, kind="stable")
    return Layer(runs, IndexedTuples(indexer, together.pick(order)), np.concatenate(everywhere)[order])


class Layers:
    """The layers of one side of one worker."""

    def __init__(self, tuning: SparkTuning = DEFAULT_SPARK_TUNING) -> None:
        self._tuning = tuning
        self._held: list[Layer] = []

    @property
    def nbytes(self) -> int:
        return sum(layer.nbytes for layer in self._held)

    def over(
        self, runs: Sequence[StoredRun], contents: Contents, final: int, ahead: bool
    ) -> list[StoredRows]:
        """All runs of the state, as layers for probing. Merges layers first, if that pays. `final`: the number of first
        runs that the state will never merge. `ahead`: this is background work that no result waits for."""
        at = {run.token: place for place, run in enumerate(runs)}
        held = [layer for layer in self._held if layer.fits(at)]
        known = {run.token for layer in held for run in layer.runs}
        single = [
            Layer([run], content.indexed)
            for run, content in zip(runs, contents.contents, strict=False)
            if run.token not in known
        ]
        layers = sorted([*held, *single], key=lambda layer: at[layer.runs[-1].token])
        lasting = sum(at[layer.runs[-1].token] < final for layer in layers)
        begin = mergeable([layer.rows for layer in layers[:lasting]], self._tuning.layer_rows)
        if lasting - begin >= FEWEST and (ahead or len(layers) > self._tuning.most_layers):
            together = merged(layers[begin:lasting])
            layers[begin:lasting] = [together]
            for run in together.runs:
                contents.contents[at[run.token]].release()
        self._held = [layer for layer in layers if len(layer.runs) > 1]
        return [layer.stored(at, contents.starts) for layer in layers]


def mergeable(rows: Sequence[int], most: int) -> int:
    """The place of the first layer to merge with all after it, given the rows of each; together they have at most
    `most` rows."""
    begin, together = len(rows) - 1, sum(rows[-1:])
    while begin > 0 and rows[begin - 1] < RATIO * together and rows[begin - 1] + together <= most:
        begin -= 1
        together += rows[begin]
    return begin
