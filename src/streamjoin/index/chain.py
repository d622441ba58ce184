"""A window as a chain of subwindows by arrival (Pan & Jacobsen, section III-A).

Only the newest subwindow takes tuples, full ones never change, and the oldest goes as a whole once nothing
in it can be reached. Each finds tuples by the key of one clause of the predicate; what it finds is
checked against the other clauses, and, in subwindows that lie partly outside a probe's reach, against
the reach. Tuples are held in the order they come: an out-of-order one costs its subwindow a check of
event times, nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamjoin.index.access import Access, Choice
from streamjoin.index.protocol import Reach, Subwindow, Tuples
from streamjoin.index.sliding import MOST_TUPLES, SlidingColumns
from streamjoin.kernels.check import band_check
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan import BandShape

SMALLEST, LARGEST = 4_096, 1 << 20  # tuples of a subwindow
SHARE = 4  # a new subwindow is made for this part of what the window holds

SAMPLED_PROBES = 64


@dataclass
class Link:
    """One subwindow of the chain. Its tuples are rows first..first+count-1, counted since the window was made."""

    subwindow: Subwindow
    access: Access
    capacity: int
    first: int
    count: int = 0
    oldest: int = 0  # least and greatest ts
    newest: int = 0


class ChainWindow:
    """A `WindowIndex` over a chain. `choose` gives each new subwindow its structure and what it is asked, from
    its capacity, the tuples held, and some recent probes."""

    def __init__(self, choose: Choice, key_count: int):
        self.choose = choose
        self.comparisons = 0  # candidates that subwindows found
        self._key_names = [f"key{number}" for number in range(key_count)]
        self._recent: Tuples | None = None
        self._links: deque[Link] = deque()
        self._gone = 0  # rows dropped so far
        self._disorder = 0  # the last row that came with a smaller ts than the one before it
        self._rows = SlidingColumns()
        none = np.empty(0, np.int64)
        self._rows.append({"ts": none, "id": none, "source": none.astype(np.int32)})

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._rows[name]

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + sum(link.subwindow.nbytes for link in self._links)

    def insert(self, tuples: Tuples, rank: np.ndarray) -> None:
        """Add tuples to the newest subwindow, and to new ones when it is full."""
        if not len(tuples):
            return
        if len(self) + len(tuples) > MOST_TUPLES:
            raise MemoryError(
                f"a window can hold {MOST_TUPLES:,} tuples; narrow it, or let the slower stream catch up"
            )
        held = self["ts"]
        if len(held) and tuples.ts[0] < held[-1]:
            self._disorder = self._gone + len(held)
        self._rows.append({"ts": tuples.ts, "id": tuples.id, "source": tuples.source, **tuples.stored})
        done = 0
        while done < len(tuples):
            link = self._open_link()
            part = slice(done, done + link.capacity - link.count)
            stored = {name: array[part] for name, array in tuples.stored.items()}
            done += self._fill(link, tuples.ts[part], link.access.keys(stored), stored["key_ok"])

    def _open_link(self) -> Link:
        """The newest link, if it has room, or a new one."""
        last = self._links[-1] if self._links else None
        if last is not None and last.count < last.capacity:
            return last
        if last is not None:
            last.subwindow.seal()
        capacity = min(max(SMALLEST, 1 << (len(self) // SHARE).bit_length()), LARGEST)
        structure, access = self.choose(capacity, self._rows.live(), self._recent)
        previous = last.subwindow if last is not None and last.access is access else None
        subwindow = structure(capacity, access.dtype, previous)
        first = self._gone if last is None else last.first + last.count
        self._links.append(Link(subwindow, access, capacity, first))
        return self._links[-1]

    def sample(self, probes: Tuples) -> None:
        """Remember some probes, for the choice of the next subwindow."""
        self._recent = probes.pick(np.arange(min(len(probes), SAMPLED_PROBES)))

    def _fill(self, link: Link, ts: np.ndarray, keys: np.ndarray, ok: np.ndarray) -> int:
        """Insert into one link; tuples with a NULL key match nothing and stay out of the index."""
        slots = np.arange(link.count, link.count + len(ts), dtype=np.int32)
        if not ok.all():
            keys, slots = keys[ok], slots[ok]
        if len(slots):
            link.subwindow.insert(keys, slots)
        oldest, newest = int(ts[0]), int(ts[-1])
        link.oldest = oldest if link.count == 0 else min(link.oldest, oldest)
        link.newest = newest if link.count == 0 else max(link.newest, newest)
        link.count += len(ts)
        return len(ts)

    def probe(self, probes: Tuples, reach: Reach, pairs: PairBuffer) -> Iterator[int]:
        """Each subwindow in reach is asked for its candidates, which are checked for the rest of the predicate."""
        if not len(self) or not len(probes):
            return
        kept = np.flatnonzero(probes.probing["probe_ok"])
        if len(kept) < len(probes):
            probes, reach = probes.pick(kept), reach.pick(kept)
        if not len(probes):
            return
        self.sample(probes)
        ordered = self._disorder <= self._gone
        start, stop = reach.positions(self["ts"]) if ordered else (None, None)
        for link in self._links:
            begin = link.first - self._gone
            timed = False
            if start is not None and stop is not None:
                low = np.clip(start - begin, 0, link.count)
                high = np.clip(stop - begin, 0, link.count)
                if not (low < high).any():
                    continue
            else:
                if reach.misses(link.oldest, link.newest):
                    continue
                timed = not reach.covers(link.oldest, link.newest)
                low, high = np.zeros(len(probes), np.int64), np.full(len(probes), link.count)
            yield from self._probe_link(
                link, begin, probes, (low, high), reach if timed else None, kept, pairs
            )

    def _probe_link(
        self,
        link: Link,
        begin: int,
        probes: Tuples,
        slots: tuple[np.ndarray, np.ndarray],
        timed: Reach | None,
        kept: np.ndarray,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        for before in link.access.probe(link.subwindow, probes.probing, *slots, pairs):
            fresh = slice(before, pairs.count)
            self.comparisons += pairs.count - before
            pairs.pos[fresh] += np.int32(begin)
            self._check(link.access, probes, timed, pairs, before)
            fresh = slice(before, pairs.count)
            pairs.probe[fresh] = kept[pairs.probe[fresh]]
            yield before

    def _check(
        self, access: Access, probes: Tuples, timed: Reach | None, pairs: PairBuffer, before: int
    ) -> None:
        """Keep the fresh pairs that satisfy what the access leaves open and, if asked, the reach."""
        shapes, numbers = access.unchecked
        keys = tuple(self[name] for name in self._key_names)
        lows = tuple(probes.probing.get(f"low{number}", keys[0][:0]) for number in numbers)
        highs = tuple(probes.probing.get(f"high{number}", keys[0][:0]) for number in numbers)
        if timed is not None and timed.low is not None:
            shapes = (*shapes, (BandShape(len(keys), "i8"),))
            keys, lows, highs = (*keys, self["ts"]), (*lows, timed.low), (*highs, timed.high)
        if shapes:
            ok = self["key_ok"]
            pairs.count = band_check(shapes)(
                pairs.probe, pairs.pos, before, pairs.count, ok, keys, lows, highs
            )

    def expire(self, reach: Reach) -> None:
        """Drop the oldest subwindows, as far as nothing in them can be reached."""
        start = int(reach.positions(self["ts"])[0][0]) if reach.low is None and len(self) else 0
        while self._links:
            link = self._links[0]
            past = start >= link.count if reach.low is None else link.newest < reach.low[0]
            if not past:
                return
            start -= link.count
            self._drop_first()

    def _drop_first(self) -> None:
        link = self._links.popleft()
        self._rows.drop(link.count)
        self._gone += link.count

    def clear(self) -> None:
        while self._links:
            self._drop_first()
