"""A window that is scanned while that is cheapest, and indexed from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from streamjoin.index.chain import ChainWindow
from streamjoin.index.chooser import Workload
from streamjoin.index.protocol import ALONE, Reach, Team, Tuples, WindowIndex
from streamjoin.index.scan import ScanWindow
from streamjoin.kernels.pairs import PairBuffer

# A batch of probes costs a chain some hundred microseconds of Python, whatever its size, and a scan one
# comparison per probe and tuple: from about this many on the chain is faster.
COMPARISONS_WORTH_AN_INDEX = 5_000_000
FEWEST_TUPLES = 4_096


class AdaptiveWindow:
    """A `WindowIndex` that begins as a scan and becomes what `make_index` makes when the scan gets slow."""

    def __init__(self, scan: ScanWindow, make_index: Callable[[Workload], ChainWindow]):
        self._scan: ScanWindow | None = scan
        self._window: WindowIndex = scan
        self._make_index = make_index
        self._workload = Workload()

    @property
    def comparisons(self) -> int:
        return self._window.comparisons

    @comparisons.setter
    def comparisons(self, count: int) -> None:
        self._window.comparisons = count

    def __len__(self) -> int:
        return len(self._window)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._window[name]

    @property
    def nbytes(self) -> int:
        return self._window.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        self._window.insert(tuples, rank)
        slow = len(self) >= FEWEST_TUPLES and self._workload.batch * len(self) > COMPARISONS_WORTH_AN_INDEX
        if slow and self._scan is not None:
            self._become_index(self._scan, rank)

    def _become_index(self, scan: ScanWindow, rank: np.ndarray) -> None:
        index = self._make_index(self._workload)
        index.insert(scan.tuples(), rank)
        index.comparisons = scan.comparisons
        self._window, self._scan = index, None

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE) -> Iterator[int]:
        if self._scan is not None and len(probes):
            self._workload.observe(probes)
        return self._window.probe(probes, reach, pairs, team)

    def expire(self, reach: Reach) -> None:
        self._window.expire(reach)

    def clear(self) -> None:
        self._window.clear()
