"""BI-Sort: a sorted main array with a sampled index, and a buffer that gathers small batches for it (Pan & Jacobsen,
section III-D).

Unlike the paper's buffer, this one is sorted too, by the same kernels. With 1,024 tuples in the buffer, sorting costs
an insert 0.2 us, and a probe takes 12 ns instead of the 40 ns of a scan. The buffer may grow while moves within it
cost no more than the merges into the main array that it saves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.programs import Intervals
from streamjoin.index.window import ALONE, KEY_DTYPES, Subwindow, Team, cuts
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.sorted.probe import (
    MIN_RUN_ROOM,
    RUN_COUNT,
    RUN_INDEX,
    RUN_KEYS,
    RUN_NEWEST,
    RUN_OLDEST,
    RUN_SLOTS,
    RUN_WORDS,
    find_pairs,
    find_records,
    rises,
)
from streamjoin.kernels.sorted.runs import (
    PAD,
    SHORT_BATCH,
    close_run,
    index_size,
    merge,
    merge_short,
    merge_some,
    radix_sort,
)
from streamjoin.plan.tuning import DEFAULT_TUNING
from streamjoin.semantics.errors import InputError

CACHE_LINE = 64  # bytes; nodes of the index are aligned to cache lines
SMALL_BUFFER, LARGE_BUFFER = 1024, 1 << 18
# Sorting the probes costs 10 to 25 ns each. It pays in arrays larger than the caches (SORT_BYTES) with at least one
# probe per SORT_SHARE keys: with 8M 32-bit keys, a probe takes 32 ns instead of 74. With at least one probe per
# FOLLOW_SHARE keys, a search starts where the last one ended, like a merge: 13 ns, against 14.8 through the index.
# With one probe per 128 keys, that takes twice as long.
SORT_BYTES, SORT_SHARE, FOLLOW_SHARE = 6 << 20, 16, 4
NO_ORDER = np.empty(0, np.int32)


def aligned(size: int, dtype: np.dtype) -> np.ndarray:
    """An uninitialised array aligned to a cache line."""
    raw = np.empty(size * dtype.itemsize + CACHE_LINE, np.uint8)
    begin = -raw.ctypes.data % CACHE_LINE
    return raw[begin : begin + size * dtype.itemsize].view(dtype)


def sort_batch(keys: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Copies sorted by key; no key may be NaN. Equal keys keep their order."""
    integer = np.dtype(f"i{keys.itemsize}")
    bits, sign = np.ascontiguousarray(keys).view(integer), integer.type(np.iinfo(integer).min)
    out, spare = np.empty_like(bits), np.empty_like(bits)
    out_slots, spare_slots = np.empty(len(keys), np.int32), np.empty(len(keys), np.int32)
    radix_sort(bits, slots, keys.dtype.kind == "f", sign, out, out_slots, spare, spare_slots)
    return out.view(keys.dtype), out_slots


def by_low_end(lows: np.ndarray, highs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intervals sorted by low end, without those that match nothing, and their original numbers."""
    order = np.flatnonzero(lows <= highs).astype(np.int32)
    lows = lows[order]
    if len(order):
        lows, order = sort_batch(lows, order)
    return lows, highs[order], order


def in_key_order(asked: Intervals, counts: Iterable[int]) -> Intervals:
    """The intervals sorted once for several arrays, without those that match nothing; or as given, if they are few
    compared with the keys of arrays of these sizes, or if the arrays together fit the caches."""
    lows, highs, asking = asked
    # Few compared with any array that exceeds the caches.
    if len(lows) * SORT_SHARE * lows.itemsize <= SORT_BYTES:
        return asked
    held = list(counts)
    count = sum(held)
    if len(held) < 2 or count * lows.itemsize <= SORT_BYTES or len(lows) * SORT_SHARE < count or rises(lows):
        return asked
    lows, highs, order = by_low_end(lows, highs)
    return Intervals(lows, highs, order if asking is None else asking[order])


class Probes(NamedTuple):
    """Intervals with their ranges of slots, as `find_pairs` takes them."""

    lows: np.ndarray
    highs: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    order: np.ndarray = NO_ORDER
    follow: bool = False


@dataclass(frozen=True)
class IndexRecords:
    """Results as ranges of the main array, <id_start, id_end>. Their number and cost do not depend on the number of
    matches (section III-D).

    Record i belongs to probe asking[i], or to probe i if `asking` is None. It matches the tuples at places firsts[i]
    to lasts[i] - 1, or, if `outside`, all others. `slots` are those of the main array, valid until it changes.
    `nodes` counts the nodes visited, of 16 keys each.
    """

    firsts: np.ndarray
    lasts: np.ndarray
    asking: np.ndarray | None
    outside: bool
    slots: np.ndarray
    nodes: int

    def __len__(self) -> int:
        return len(self.firsts)

    def expand(self) -> tuple[np.ndarray, np.ndarray]:
        """The pairs (probe, slot) that the records stand for; O(pairs)."""
        probes = np.arange(len(self)) if self.asking is None else self.asking
        begins, ends = self.firsts.astype(np.int64), self.lasts.astype(np.int64)
        if self.outside:
            begins = np.concatenate([np.zeros_like(begins), ends])
            ends = np.concatenate([self.firsts, np.full(len(self), len(self.slots))])
            probes = np.concatenate([probes, probes])
        sizes = ends - begins
        before = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(begins - before, sizes)
        return np.repeat(probes, sizes), self.slots[places]


class SortedRun:
    """Sorted keys, the slot of each, and the sampled index (kernels/sorted/runs.py), with room for `capacity`
    tuples."""

    def __init__(self, capacity: int, dtype: np.dtype):
        self.capacity, self.count = capacity, 0
        self.keys, self.slots = aligned(capacity + PAD, dtype), aligned(capacity + PAD, np.dtype(np.int32))
        self.index = aligned(index_size(capacity), dtype)
        self.addresses = [each.ctypes.data for each in (self.keys, self.slots, self.index)]
        self.highest = dtype.type(np.inf if dtype.kind == "f" else np.iinfo(dtype).max)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.slots.nbytes + self.index.nbytes

    def merge(self, keys: np.ndarray, slots: np.ndarray, count: int) -> None:
        """Take the first `count` tuples of a sorted batch."""
        self.count = merge(self.keys, self.slots, self.index, self.count, keys, slots, count, self.highest)

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add a batch in any order; NaN keys are left out."""
        if len(keys) <= SHORT_BATCH:
            run = self.keys, self.slots, self.index
            self.count = merge_short(*run, self.count, keys, slots, self.highest)
            return
        if keys.dtype.kind == "f":
            valid = keys == keys
            if not valid.all():
                keys, slots = keys[valid], slots[valid]
        if len(keys):
            self.merge(*sort_batch(keys, slots), len(keys))


class BISortSubwindow:
    """A `Subwindow` for intervals: O(log n) a probe, plus a copy of the slots it finds.

    A batch larger than the buffer's limit is merged into the main array at once; smaller ones gather in the buffer.
    Probes change nothing, nor do records once the subwindow is sealed, and both run without the GIL. So threads may
    share the probes of a batch, each with its own buffer for pairs.
    """

    def __init__(self, capacity: int, dtype: np.dtype, predecessor: Subwindow | None = None):
        if np.dtype(dtype).name not in KEY_DTYPES:
            raise InputError(
                f"a sorted window's key is one of {', '.join(KEY_DTYPES)}, not {np.dtype(dtype).name}",
                field="dtype",
                given=np.dtype(dtype).name,
                allowed=KEY_DTYPES,
            )
        self.capacity, self.dtype = capacity, np.dtype(dtype)
        self.most_buffered = min(max(SMALL_BUFFER, capacity // 16), LARGE_BUFFER, capacity)
        self._main = SortedRun(capacity, self.dtype)
        self._buffer = SortedRun(self.most_buffered, self.dtype)
        self._held = 0
        self._oldest, self._newest = capacity, -1  # slots
        self.parts = np.zeros((2, RUN_WORDS), np.int64)  # main array and buffer
        self._note_addresses()

    def __len__(self) -> int:
        return self._held

    @property
    def nbytes(self) -> int:
        return self._main.nbytes + self._buffer.nbytes

    def insert(self, keys: np.ndarray, slots: np.ndarray) -> None:
        """Add n tuples, whose slots ascend within the batch too. O(n), and about sqrt(len / n) moves of held tuples
        for each."""
        n = len(keys)
        if n == 0:
            return
        if self._held + n > self.capacity:
            raise InputError(
                f"a subwindow of {self.capacity:,} tuples that holds {self._held:,} cannot take {n:,} more",
                field="keys",
                given=n,
                allowed=f"up to {self.capacity - self._held} more",
            )
        limit = self.buffer_limit(n)
        if n > limit:
            self._main.insert(keys, slots)
        else:
            if self._buffer.count + n > limit:
                self._flush()
            self._buffer.insert(keys, slots)
        self._held += n
        self._oldest, self._newest = min(self._oldest, int(slots[0])), max(self._newest, int(slots[-1]))
        self._note_sizes()

    def _note_sizes(self) -> None:
        """Bring the counts in `parts` up to date."""
        parts = self.parts
        parts[0, RUN_COUNT], parts[1, RUN_COUNT] = self._main.count, self._buffer.count
        parts[:, RUN_OLDEST], parts[:, RUN_NEWEST] = self._oldest, self._newest

    def _note_addresses(self) -> None:
        """Bring `parts` up to date after a run was replaced."""
        for number, run in enumerate((self._main, self._buffer)):
            self.parts[number, [RUN_KEYS, RUN_SLOTS, RUN_INDEX]] = run.addresses
        self._note_sizes()

    def buffer_limit(self, batch: int) -> int:
        """The cheapest number of tuples in the buffer: with n in it, a batch moves n / 2 tuples and a flush moves the
        main array."""
        return min(max(SMALL_BUFFER, isqrt(4 * self._main.count * batch)), self.most_buffered)

    def _flush(self) -> None:
        buffer = self._buffer
        if buffer.count:
            self._main.merge(buffer.keys, buffer.slots, buffer.count)
            buffer.count = 0
            self._note_sizes()

    def seal(self) -> None:
        """Merge the buffer and give its memory back, and that of free places in the main array if there are many."""
        self._flush()
        self._buffer = SortedRun(0, self.dtype)
        if 2 * self._main.count < self.capacity:
            full, self._main = self._main, SortedRun(self._main.count, self.dtype)
            self._main.merge(full.keys, full.slots, full.count)
        self._note_addresses()

    @property
    def sorted_keys(self) -> np.ndarray:
        """The keys of the main array; valid until the next change."""
        return self._main.keys[: self._main.count]

    @property
    def sorted_slots(self) -> np.ndarray:
        """The slots of the main array, which records point into; valid until the next change."""
        return self._main.slots[: self._main.count]

    def probe_records(
        self,
        lows: np.ndarray,
        highs: np.ndarray,
        asking: np.ndarray | None = None,
        outside: bool = False,
    ) -> IndexRecords:
        """One record for each interval [lows[i], highs[i]], of probe asking[i] or i, after merging the buffer into
        the main array; O(log n) each, whatever it covers. Intervals of the same probe must not overlap.

        `outside`: keys match if key < low or key > high, as for `<>`: one record instead of two. NaN matches nothing.
        """
        self._flush()
        return self._records(self._main, lows, highs, asking, outside)

    def run_records(
        self,
        lows: np.ndarray,
        highs: np.ndarray,
        asking: np.ndarray | None = None,
        outside: bool = False,
    ) -> tuple[IndexRecords, IndexRecords]:
        """As `probe_records`, for the main array and for the buffer separately; changes neither."""
        asked = lows, highs, asking, outside
        return self._records(self._main, *asked), self._records(self._buffer, *asked)

    def _records(
        self, run: SortedRun, lows: np.ndarray, highs: np.ndarray, asking: np.ndarray | None, outside: bool
    ) -> IndexRecords:
        firsts, lasts, nodes = np.zeros(len(lows), np.int32), np.zeros(len(lows), np.int32), 0
        if run.count:
            nodes = find_records(run.keys, run.index, run.count, lows, highs, firsts, lasts)
        if outside and self.dtype.kind == "f":
            unknown = np.isnan(lows) | np.isnan(highs)
            firsts[unknown], lasts[unknown] = 0, run.count
        return IndexRecords(firsts, lasts, asking, outside, run.slots[: run.count], nodes)

    def probe(
        self, lows: np.ndarray, highs: np.ndarray, start: np.ndarray, stop: np.ndarray, pairs: PairBuffer
    ) -> Iterator[int]:
        """Append pairs (probe, slot), those of the main array first; see `Subwindow.probe`."""
        asked = Probes(lows, highs, start, stop)
        for number, run in enumerate((self._main, self._buffer)):
            large = run.keys.nbytes > SORT_BYTES and len(lows) * SORT_SHARE >= run.count
            each = self._in_order(asked, run.count) if large else asked
            part = self.parts[number : number + 1]
            yield from self.probe_all(part, 0, *each[:4], pairs, each.order, each.follow)

    @staticmethod
    def probe_all(
        parts: np.ndarray,
        gone: int,
        lows: np.ndarray,
        highs: np.ndarray,
        start: np.ndarray,
        stop: np.ndarray,
        pairs: PairBuffer,
        order: np.ndarray = NO_ORDER,
        follow: bool = False,
    ) -> Iterator[int]:
        """As `Subwindow.probe_all`; `order`, `follow`: see `find_pairs`."""
        cursor = np.zeros(CURSOR_SIZE, np.int64)
        while cursor[0] != DONE:
            pairs.reserve(MIN_RUN_ROOM)
            before = pairs.count
            pairs.count = find_pairs(
                parts, gone, lows, highs, start, stop, order, follow, cursor, pairs.probe, pairs.pos, before
            )
            if pairs.count > before:
                yield before

    def _in_order(self, probes: Probes, count: int) -> Probes:
        """The probes sorted, without those that match nothing, so that neighbours share cache lines."""
        lows, highs, start, stop = probes[:4]
        if rises(lows):
            return probes._replace(follow=len(lows) * FOLLOW_SHARE >= count)
        lows, highs, order = by_low_end(lows, highs)
        if (start > self._oldest).any() or (stop <= self._newest).any():
            start, stop = start[order], stop[order]
        return Probes(lows, highs, start, stop, order, len(order) * FOLLOW_SHARE >= count)


class Merging:
    """Merges two sealed subwindows, neighbours in a chain, into one that has the tuples of both. Slots of the later
    one are renumbered from `shift` on."""

    def __init__(
        self,
        earlier: BISortSubwindow,
        later: BISortSubwindow,
        shift: int,
        shared_moves: int = DEFAULT_TUNING.window.shared_moves,
    ):
        self._parts, self._shift, self._shared_moves = (earlier, later), shift, shared_moves
        self._run = SortedRun(len(earlier.sorted_keys) + len(later.sorted_keys), earlier.dtype)
        self._at = np.zeros(2, np.int64)  # tuples taken from each

    @property
    def left(self) -> int:
        """The number of tuples still to move."""
        return self._run.capacity - int(self._at.sum())

    @property
    def nbytes(self) -> int:
        return self._run.nbytes

    def advance(self, many: int, team: Team = ALONE) -> None:
        """Move up to `many` tuples; each thread of a team moves a part. O(many)."""
        pieces = cuts(min(many, self.left), self._shared_moves, team.workers)
        if len(pieces) == 1:
            self._move(self._at, many)
            return
        done = int(self._at.sum())
        ends = [self._taken(done + piece.stop) for piece in pieces]
        begins = [self._at.copy(), *ends[:-1]]
        parts = [
            partial(self._move, begin.copy(), piece.stop - piece.start)
            for begin, piece in zip(begins, pieces, strict=True)
        ]
        for _ in team.share(parts, PairBuffer(1)):
            pass
        self._at = ends[-1]

    def _taken(self, count: int) -> np.ndarray:
        """How many tuples of each run are among the first `count` of both, in order; O(log count)."""
        earlier, later = (part.sorted_keys for part in self._parts)
        low, high = max(0, count - len(later)), min(count, len(earlier))
        while low < high:
            middle = (low + high) // 2
            if earlier[middle] <= later[count - middle - 1]:
                low = middle + 1
            else:
                high = middle
        return np.array([low, count - low])

    def _move(self, at: np.ndarray, many: int, _: PairBuffer | None = None) -> Iterator[int]:
        """Move `many` tuples, starting at `at`; a part of a team's work that finds no pairs."""
        earlier, later = ((part.sorted_keys, part.sorted_slots, part._main.count) for part in self._parts)
        merge_some(*earlier, *later, self._shift, at, many, self._run.keys, self._run.slots)
        return iter(())

    def finished(self) -> BISortSubwindow:
        """The merged subwindow, sealed; call this once nothing is left."""
        earlier, later = self._parts
        whole, run = BISortSubwindow(0, earlier.dtype), self._run
        close_run(run.keys, run.index, run.capacity, run.highest)
        run.count, whole._main = run.capacity, run
        whole._held = whole.capacity = len(earlier) + len(later)
        whole._oldest = min(earlier._oldest, self._shift + later._oldest)
        whole._newest = max(earlier._newest, self._shift + later._newest)
        whole._note_addresses()
        return whole
