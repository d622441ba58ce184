"""The scan window: tuples of one side in the total order, every one compared with every probe in range."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamjoin.codegen.programs import WindowProgram, is_done, new_cursor
from streamjoin.index.protocol import Tuples
from streamjoin.index.sliding import SlidingColumns
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan import MIN_ROOM

MOST_ROWS = 2**31 - 1  # positions are 32-bit


class ScanWindow:
    """A window of one side, sorted by (ts, source, seq); positions count from its oldest tuple.

    `insert` keeps the order, `probe` finds partners within position ranges, `drop` expires from the
    front, `__getitem__` gives a column of the tuples held. With `keep_probing` the tuples can be probes later.
    """

    def __init__(self, program: WindowProgram, keep_probing: bool):
        self.program, self.keep_probing = program, keep_probing
        self.nulls = False
        self._rows = SlidingColumns()
        self._rows.append(
            {"ts": np.empty(0, np.int64), "id": np.empty(0, np.int64), "source": np.empty(0, np.int32)}
        )

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._rows[name]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        """Add tuples, themselves in order; `rank[source]` orders sources. O(tuples + those held that come later)."""
        if len(self) + len(tuples) > MOST_ROWS:
            raise MemoryError(
                f"a window can hold {MOST_ROWS:,} tuples; narrow it, or let the slower stream catch up"
            )
        rows = {"ts": tuples.ts, "id": tuples.id, "source": tuples.source, **tuples.stored}
        if self.keep_probing:
            rows |= tuples.probing
        self.nulls |= tuples.nulls
        ts = self["ts"]
        later = len(ts) - int(np.searchsorted(ts, tuples.ts[0], "left")) if len(tuples) else 0
        if later == 0:
            self._rows.append(rows)
            return
        merged_ts = np.concatenate([ts[len(ts) - later :], tuples.ts])
        merged_rank = rank[np.concatenate([self["source"][len(ts) - later :], tuples.source])]
        self._rows.merge(rows, later, np.lexsort((merged_rank, merged_ts)))

    def rows(self, begin: int, end: int) -> Tuples:
        """The tuples at positions begin..end-1, as probes; valid until the next change."""
        arrays = {name: array[begin:end] for name, array in self._rows.live().items()}
        return Tuples(arrays["ts"], arrays["id"], arrays["source"], {}, arrays, self.nulls)

    def probe(self, probes: Tuples, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer) -> Iterator[int]:
        """Append (probe, position) pairs that satisfy the program's scan, positions within [start, stop) of each
        probe, both non-decreasing.

        Yields after each stretch of pairs the count before it: the caller may thin the stretch out,
        by lowering `pairs.count`, before the next one comes. Cost: one comparison per position in range.
        """
        if not len(self):
            return
        ok = probes.probing["probe_ok"]
        thinned = not ok.all()
        if thinned:
            kept = np.flatnonzero(ok)
            probes, start, stop = probes.pick(kept), start[kept], stop[kept]
        window = self._rows.live()
        scan = self.program.scanner(window, probes.probing, self.nulls or probes.nulls)
        cursor = new_cursor()
        while not is_done(cursor):
            pairs.reserve(MIN_ROOM)
            before = pairs.count
            pairs.count = scan(start, stop, cursor, pairs)
            if self.nulls and "key_ok" in window:
                pairs.keep(before, window["key_ok"][pairs.pos[before : pairs.count]])
            if thinned:
                fresh = slice(before, pairs.count)
                pairs.probe[fresh] = kept[pairs.probe[fresh]]
            yield before

    def drop(self, count: int) -> None:
        self._rows.drop(count)
