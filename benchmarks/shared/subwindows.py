"""Single subwindows: the structures by name, keys and probes for them, timed probing, and insertion with NumPy.

Tuples are (32-bit key, slot), as in the paper (Pan & Jacobsen, section V-A). Selectivity is the average number of
tuples of a full subwindow that a probe matches. Everything runs on one thread; the paper probes with eight.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.index.structures.hash import HashSubwindow
from streamjoin.index.structures.raptable import RaPTableSubwindow
from streamjoin.index.structures.wibtree import WiBTreeSubwindow
from streamjoin.index.window import Subwindow
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM, BandShape, band_scan

SEED = 20181005
RANGE = 2**31 - 1
INT32 = np.dtype(np.int32)
RUNS = 5
Array = np.ndarray[Any, Any]
Structure = Callable[[int, np.dtype[Any], Subwindow | None], Subwindow]


class ScanSubwindow:
    """Keys in arrival order, as in a nested-loop join. A `Subwindow` whose slots are positions."""

    parts = None

    def __init__(self, capacity: int, dtype: np.dtype[Any], predecessor: Subwindow | None = None):
        self._keys, self._count = np.empty(capacity, dtype), 0
        self._scan = band_scan(((BandShape(0, "i4"),),))

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes

    def insert(self, keys: Array, slots: Array) -> None:
        self._keys[self._count : self._count + len(keys)] = keys
        self._count += len(keys)

    def seal(self) -> None:
        self._keys = self._keys[: self._count]

    def probe(self, lows: Array, highs: Array, start: Array, stop: Array, pairs: PairBuffer) -> Iterator[int]:
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        while cursor[0] != DONE:
            pairs.reserve(MIN_SCAN_ROOM)
            before = pairs.count
            keys, out = (self._keys[: self._count],), (pairs.probe, pairs.pos)
            pairs.count = self._scan(start, stop, keys, (lows,), (highs,), cursor, *out, before)
            yield before


PLAIN: dict[str, Structure] = {"scan": ScanSubwindow, "hash": HashSubwindow, "bisort": BISortSubwindow}
PARTITIONED = ("raptable", "wibtree")
STRUCTURES = (*PLAIN, *PARTITIONED)
PARTITIONS = (1024, 16_384, 131_072)  # counts to compare


def empty(structure: str, capacity: int, partitions: int | None, like: Array) -> Subwindow:
    """An empty subwindow. A RaP-Table gets splitters that fit the keys `like`, as from a predecessor in a chain."""
    if structure == "raptable":
        table = RaPTableSubwindow(len(like), INT32, partitions=min(partitions or len(like), len(like)))
        table.insert(like, np.arange(len(like), dtype=np.int32))
        splitters = table.adjusted_splitters(partitions) if partitions else None
        return RaPTableSubwindow(capacity, INT32, table, partitions=partitions, splitters=splitters)
    if structure == "wibtree":
        return WiBTreeSubwindow(capacity, INT32, partitions=partitions)
    return PLAIN[structure](capacity, INT32, None)


def uniform_keys(count: int, distinct: int | None = None) -> Array:
    """Random keys; with `distinct`, that many different ones, spread evenly over RANGE."""
    random = np.random.default_rng(SEED)
    if distinct is None:
        return random.integers(0, RANGE, count, dtype=np.int32)
    return random.integers(0, distinct, count, dtype=np.int32) * np.int32(RANGE // distinct)


def bounds(kind: str, size: int, matches: int, count: int, seed: int) -> tuple[Array, Array]:
    """Lower and upper bounds of probes that match `matches` of `size` tuples on average.

    `equi`: equalities on `size // matches` distinct keys. `band`: bands over uniform keys.
    """
    random = np.random.default_rng(seed)
    if kind == "equi":
        distinct = size // matches
        keys = random.integers(0, distinct, count, dtype=np.int32) * np.int32(RANGE // distinct)
        return keys, keys
    width = RANGE * matches // size
    lows = random.integers(0, RANGE - width, count, dtype=np.int32)
    return lows, lows + np.int32(width)


def probe_seconds(window: Subwindow, lows: Array, highs: Array, batch: int, pairs: PairBuffer) -> float:
    """Processor seconds for all probes, batch by batch, with all pairs written."""
    start, stop = np.zeros(batch, np.int64), np.full(batch, len(window), np.int64)
    started = time.process_time()
    for begin in range(0, len(lows), batch):
        low = lows[begin : begin + batch]
        high = low if highs is lows else highs[begin : begin + batch]
        for _ in window.probe(low, high, start, stop, pairs):
            pairs.count = 0
    return time.process_time() - started


def best_probe_rate(
    window: Subwindow, kind: str, matches: int, batch: int, pairs: PairBuffer, seconds: float
) -> float:
    """Probes per second, the best of RUNS after one that warms up.

    Every run has new probes, and as many batches as take about `seconds`, at least one.
    """
    size, count, best = len(window), 1, np.inf
    for number in range(RUNS + 1):
        probes = bounds(kind, size, matches, count * batch, SEED + 1 + number)
        taken = probe_seconds(window, *probes, batch, pairs) / (count * batch)
        if number:
            best = min(best, taken)
        else:
            taken = probe_seconds(window, *bounds(kind, size, matches, batch, SEED), batch, pairs) / batch
            count = max(1, round(seconds / (taken * batch)))
    return 1 / best


def label(structure: str, partitions: int | None) -> str:
    """The name of a line in figures."""
    return structure if partitions is None else f"{structure}, P = {partitions:,}"


def sealed(structure: str, partitions: int | None, keys: Array) -> Subwindow:
    """A full subwindow of these keys."""
    window = empty(structure, len(keys), partitions, keys)
    window.insert(keys, np.arange(len(keys), dtype=np.int32))
    window.seal()
    return window


def sort_again(held: Array, slots: Array, new: Array, new_slots: Array) -> tuple[Array, Array]:
    """NumPy's first way to insert a batch into sorted keys and their slots: sort everything."""
    keys, all_slots = np.concatenate([held, new]), np.concatenate([slots, new_slots])
    order = np.argsort(keys, kind="stable")  # merges the part that is sorted already
    return keys[order], all_slots[order]


def search_and_insert(held: Array, slots: Array, new: Array, new_slots: Array) -> tuple[Array, Array]:
    """NumPy's second way: sort the batch, then `searchsorted` and `insert`."""
    order = np.argsort(new)
    places = np.searchsorted(held, new[order], "right")
    return np.insert(held, places, new[order]), np.insert(slots, places, new_slots[order])
