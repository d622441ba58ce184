"""What a window is made of: a cascade over what the predicate offers, a sample of tuples and probes, and the batches.

Every new subwindow is chosen anew, so a window follows its streams. The thresholds are measured:
benchmarks/indexes/chooser.py holds each choice against the alternatives, docs/decisions/0010-chooser.md says what they
are worth.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.programs import Table, WindowProgram
from streamjoin.index.access import Access, BandAccess
from streamjoin.index.protocol import Subwindow, Tuples, WindowIndex
from streamjoin.index.strips import HALF_OF_ALL, Ruler, Rulers, StripAccess, rulers_for, strip_widths

Structure = Callable[[int, np.dtype, Subwindow | None], Subwindow]

SAMPLED_TUPLES, MOST_SAMPLED = 256, 16_384
SAMPLED_BATCHES, SAMPLED_PROBES, ENOUGH_PROBES = 32, 64, 16
# Samples are so many batches apart; of larger ones fewer, since those cost more than a sample.
BATCHES_BETWEEN, SMALL_BATCH = 32, 128
RARE = 1e-3  # of the tuples are so few pairs that it does not count whether they lie together
CHANGES_KEPT = 16
# Batches that fill a subwindow, by bytes of the key: fewer are sorted at less cost than they are hashed, unless a batch
# has more tuples than LARGEST_SORTED.
BATCHES_WORTH_HASHING = {4: 16, 8: 4}
LARGEST_SORTED = {4: math.inf, 8: 1 << 17}
# Tuples of a window: with more, a probe asks so many hash tables that sorted arrays, which are merged, take less time.
# What a call of a table costs is shared by a batch: with large ones it is up to MORE_IN_BATCHES times as many more,
# half of that with batches of MEDIUM_BATCH.
HASHED_UP_TO, MORE_IN_BATCHES, MEDIUM_BATCH = 4_700_000, 1.15, 100
FAR = 0.3  # of all that keys span, is what moves on within a window
WORTH_NARROW = (
    1 << 20
)  # tuples of a subwindow, from which on memory is worth more than room for keys not seen yet
# Candidates that cost so many times less are worth another condition: subwindows of one are asked the same, and can be
# merged.
CLEARLY_FEWER = 1.5
MERGED_SHARE = 4  # of a window, about, is a subwindow once it is merged
# Candidates of one band in a subwindow, of a probe and of a batch, from which on two bands are looked up at once.
# They are checked WORTH_TOGETHER times faster where they lie together, since the key rises from tuple to tuple.
MANY_CANDIDATES, MANY_OF_A_BATCH, WORTH_TOGETHER = 24, 500, 4


class Workload:
    """What a window has lately been asked: how many probes come at a time, and some of them. `changes`: what it became
    for their sake."""

    def __init__(self) -> None:
        self.batch = 0.0
        self.changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._samples: deque[Table] = deque(maxlen=SAMPLED_BATCHES)
        self._skip = 0

    def observe(self, probes: Tuples) -> None:
        """Take note of every batch at first, then of one in BATCHES_BETWEEN or fewer; O(1)."""
        self._skip -= 1
        if self._skip >= 0:
            return
        count, known = len(probes), len(self._samples)
        if not count:
            return
        self._skip = BATCHES_BETWEEN * SMALL_BATCH // (SMALL_BATCH + count) if known == SAMPLED_BATCHES else 0
        self.batch += (count - self.batch) / min(known + 1, 4)
        step = -(-count // SAMPLED_PROBES)
        # Copies: what a topology hands over may change once it is done.
        self._samples.append({name: array[::step].copy() for name, array in probes.probing.items()})

    @property
    def known(self) -> bool:
        """Whether enough probes were noted to tell what they find."""
        return len(self._samples) * self.batch >= ENOUGH_PROBES

    def look(self) -> None:
        """Take note of the next batch, whenever it comes."""
        self._skip = 0

    def forget(self) -> None:
        """Probes that were noted are no longer what is asked."""
        self._samples.clear()

    def sample(self) -> Table | None:
        """The last SAMPLED_PROBES probes or so that were noted, prepared; None if there were none. Older ones may have
        asked for tuples that the window holds no more."""
        chosen: list[Table] = []
        count = 0
        for table in reversed(self._samples):
            if count >= SAMPLED_PROBES:
                break
            chosen.append(table)
            count += len(table["probe_ok"])
        if not chosen:
            return None
        return {name: np.concatenate([table[name] for table in chosen]) for name in chosen[0]}


class Selectivity(NamedTuple):
    """Which part of a window a probe finds, and by its best condition alone; which part of those lies beside another,
    and whether the key of that condition rises from tuple to tuple. Nothing before any probe."""

    found: float = 0.0
    candidates: float = 0.0
    together: float = 0.0
    rising: bool = False


@dataclass(frozen=True)
class Choice:
    """How a subwindow finds tuples, and why."""

    structure: str
    make: Structure
    access: Access
    reason: str


class FixedChoice:
    """Always the same structure; of several conditions, the one whose candidates cost the least by a sample."""

    def __init__(self, program: WindowProgram, name: str, structure: Structure, bands: Sequence[int]):
        self.program, self.name, self.structure = program, name, structure
        self.accesses = [BandAccess(program, band) for band in bands]
        self._last = self.accesses[0]

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        """The choice for a subwindow of `capacity` tuples, after those held."""
        recent = workload.sample() if len(self.accesses) > 1 else None
        if recent is None:
            return Choice(self.name, self.structure, self.accesses[0], self._only_reason())
        some = spread_over(held, worth_sampling(capacity))
        shares = self._shares(some, recent)
        return self._cheapest(shares, self._costs(shares, some))

    @property
    def text(self) -> str:
        """What is chosen, for people."""
        keys = " or ".join(access.condition for access in self.accesses)
        return (
            f"{self.name} on {keys}{', whichever leaves fewer candidates' if len(self.accesses) > 1 else ''}"
        )

    def alternatives(self) -> list[tuple[Structure, Access]]:
        """All that may ever be chosen, as far as compiled code can tell it apart."""
        return [(self.structure, access) for access in self.accesses]

    def selectivity(self, window: WindowIndex, workload: Workload) -> Selectivity:
        """What recent probes find, as if conditions were independent. O(1)."""
        recent = workload.sample()
        if recent is None:
            return Selectivity()
        names = ("key_ok", *(f"key{number}" for number in range(len(self.program.keys.keys))))
        spread = spread_over({name: window[name] for name in names})
        shares = self._shares(spread, recent)
        costs = self._costs(shares, spread)
        best, found = min(costs, key=costs.__getitem__), math.prod(shares.values())
        rising = rise(best.keys(spread))
        beside = 0.0
        if found > RARE:  # in a sample of few, the first of those that lie together would count
            beside = 1.0 if rising else together(best, spread, recent)
        return Selectivity(found, shares[best], beside, rising)

    def _only_reason(self) -> str:
        return "the first condition, before any probe" if len(self.accesses) > 1 else "the only condition"

    def _shares(self, some: Table, recent: Table) -> dict[BandAccess, float]:
        return {access: share(access, some, recent) for access in self.accesses}

    def _costs(self, shares: dict[BandAccess, float], some: Table) -> dict[BandAccess, float]:
        """What it costs to check the candidates of each condition."""
        return {
            access: part / (WORTH_TOGETHER if rise(access.keys(some)) else 1)
            for access, part in shares.items()
        }

    def _cheapest(self, shares: dict[BandAccess, float], costs: dict[BandAccess, float]) -> Choice:
        best = min(costs, key=costs.__getitem__)
        if costs[self._last] <= CLEARLY_FEWER * costs[best]:
            best = self._last
        self._last = best
        others = ", ".join(
            f"{shares[access]:.2g} by {access.condition}" for access in shares if access is not best
        )
        beside = ", which lie together" if costs[best] < shares[best] else ""
        reason = f"leaves {shares[best]:.2g} of the tuples as candidates of a probe{beside}, beside {others}"
        return Choice(self.name, self.structure, best, reason)


class EqualityChoice(FixedChoice):
    """A hash table, or a sorted array: where batches are so large that sorting them costs less than hashing them, and
    where so many tuples are held that it counts that sorted subwindows are merged."""

    def __init__(
        self,
        program: WindowProgram,
        name: str,
        structure: Structure,
        bands: Sequence[int],
        sorted_: tuple[str, Structure],
    ):
        super().__init__(program, name, structure, bands)
        self.sorted = sorted_
        size = self.accesses[0].dtype.itemsize
        self._few, self._largest = BATCHES_WORTH_HASHING[size], LARGEST_SORTED[size]

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        chosen = super().__call__(capacity, held, workload)
        batches, tuples = f"batches of {workload.batch:,.0f}", len(held["key_ok"])
        if workload.batch * self._few >= capacity and workload.batch <= self._largest:
            why = f"{batches} are soon sorted into {capacity:,} tuples"
        elif tuples > hashed_up_to(workload.batch):
            why = f"{tuples:,} tuples would be many hash tables, and sorted subwindows are merged"
        else:
            size = "small" if workload.batch <= self._largest else "sooner hashed than sorted"
            return replace(chosen, reason=f"{batches} are {size}; {chosen.reason}")
        name, structure = self.sorted
        return Choice(name, structure, chosen.access, f"{why}; {chosen.reason}")

    @property
    def text(self) -> str:
        largest = f", each of {self._largest:,} at most," if math.isfinite(self._largest) else ""
        few = f"{self._few} batches or fewer{largest} fill a subwindow"
        singly, together = hashed_up_to(1) / 1e6, hashed_up_to(1_024) / 1e6
        many = f"the window holds more than {singly:.1f} million tuples, {together:.1f} with batches of 1,024"
        return f"{super().text}, or {self.sorted[0]} if {few} or {many}"

    def alternatives(self) -> list[tuple[Structure, Access]]:
        return [*super().alternatives(), *((self.sorted[1], access) for access in self.accesses)]


class BandChoice(FixedChoice):
    """Sorted subwindows; where a single band leaves many candidates and there is a second one, sorted by both."""

    def __init__(self, program: WindowProgram, name: str, structure: Structure, bands: Sequence[int]):
        super().__init__(program, name, structure, bands)
        self._strips: StripAccess | None = None

    def __call__(self, capacity: int, held: Table, workload: Workload) -> Choice:
        recent = workload.sample() if len(self.accesses) > 1 else None
        if recent is None:
            return super().__call__(capacity, held, workload)
        some = spread_over(held, worth_sampling(capacity))
        shares = self._shares(some, recent)
        costs = self._costs(shares, some)
        cheapest = min(costs, key=costs.__getitem__)
        first, second = sorted(shares, key=shares.__getitem__)[:2]
        candidates = shares[cheapest] * capacity
        checks = costs[cheapest] * capacity * workload.batch
        many = candidates >= MANY_CANDIDATES and checks >= MANY_OF_A_BATCH
        size = max(capacity, len(held["key_ok"]) // MERGED_SHARE)
        found = shares[first] * shares[second] * size
        small = capacity < WORTH_NARROW
        if many and (both := self._both(first, second, some, recent, found, small)):
            reason = f"{cheapest.condition} alone leaves {candidates:,.0f} candidates a probe in a subwindow"
            return Choice(self.name, self.structure, both, reason)
        return self._cheapest(shares, costs)

    @property
    def text(self) -> str:
        both = f", or both from {MANY_CANDIDATES} candidates a probe on" if len(self.accesses) > 1 else ""
        return super().text + both

    def alternatives(self) -> list[tuple[Structure, Access]]:
        single = [access.band for access in self.accesses if len(self.program.bands_beside(access.band)) == 1]
        sizes = [Rulers(Ruler(0.0, 1.0, half), Ruler(0.0, 1.0, half)) for half in (1, HALF_OF_ALL)]
        pairs = [(bands, rulers) for bands in combinations(sorted(single), 2) for rulers in sizes]
        both = [StripAccess(self.program, bands, rulers) for bands, rulers in pairs]
        return [*super().alternatives(), *((self.structure, access) for access in both)]

    def _both(
        self, first: BandAccess, second: BandAccess, some: Table, recent: Table, found: float, small: bool
    ) -> StripAccess | None:
        """Strips that suit the bands and how many tuples of a subwindow a probe finds; the last ones, if those do. A
        small subwindow has room for keys that are far from those seen."""
        bands = min(first.band, second.band), max(first.band, second.band)
        if any(len(self.program.bands_beside(band)) > 1 for band in bands):
            return None
        usual = self._width(bands[0], recent), self._width(bands[1], recent)
        if not all(0 < width < np.inf for width in usual):
            return None
        (ends, moving), (other_ends, other_moving) = (self._ends(band, some) for band in bands)
        rulers = rulers_for(strip_widths(usual, found), (ends, other_ends), small or moving or other_moving)
        last = self._strips
        if last is None or last.bands != bands or not last.rulers.suit(rulers, (ends, other_ends)):
            self._strips = StripAccess(self.program, bands, rulers)
        return self._strips

    def _width(self, band: int, recent: Table) -> float:
        lows, highs = (bound.astype(np.float64) for bound in self.program.bounds_of_band(recent, band))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds have no width
            widths = highs - lows
        widths = widths[np.isfinite(widths)]
        return float(np.median(widths)) if len(widths) else np.inf

    def _ends(self, band: int, some: Table) -> tuple[tuple[float, float], bool]:
        """The least and the greatest finite key, and whether keys move on."""
        keys = self.program.key_of_band(some, band)[some["key_ok"]].astype(np.float64)
        keys = keys[np.isfinite(keys)]
        return (float(keys.min()), float(keys.max())) if len(keys) else (0.0, 0.0), move(keys)


Chooser = Callable[[int, Table, Workload], Choice]


def hashed_up_to(batch: float) -> float:
    """The window, in tuples, from which on sorted arrays answer so many probes at a time sooner than hash tables."""
    return HASHED_UP_TO * (1 + MORE_IN_BATCHES * batch / (batch + MEDIUM_BATCH))


def worth_sampling(capacity: int) -> int:
    """How many tuples to look at for a subwindow: enough to see rare candidates, for little of its cost."""
    return min(max(SAMPLED_TUPLES, capacity // 64), MOST_SAMPLED)


def spread_over(held: Table, count: int = SAMPLED_TUPLES) -> Table:
    """So many of the tuples held, or fewer, from the oldest to the newest."""
    step = max(1, -(-len(held["key_ok"]) // count))
    return {name: rows[::step].copy() for name, rows in held.items()}  # kernels are compiled for whole arrays


def rise(keys: np.ndarray) -> bool:
    """Whether nearly every key is at least the one before it."""
    return len(keys) > 1 and bool(np.count_nonzero(keys[1:] >= keys[:-1]) >= 0.9 * (len(keys) - 1))


def move(keys: np.ndarray) -> bool:
    """Whether the usual key of the last tuples is far from that of the first, as one that rises, falls or drifts is."""
    quarter = -(-len(keys) // 4)
    if not quarter:
        return False
    first, last = (float(np.median(part)) for part in (keys[:quarter], keys[-quarter:]))
    return abs(last / 4 - first / 4) > (float(keys.max()) / 4 - float(keys.min()) / 4) * FAR


def share(access: BandAccess, some: Table, recent: Table) -> float:
    """Which part of some tuples is a candidate of recent probes; O(n log n)."""
    keys = np.sort(access.keys(some))
    lows, highs, _ = access.program.intervals(recent, access.band)
    there = lows <= highs
    met = keys.searchsorted(highs[there], "right") - keys.searchsorted(lows[there], "left")
    return float(met.sum()) / max(1, len(keys) * len(recent["probe_ok"]))


def together(access: BandAccess, some: Table, recent: Table) -> float:
    """Which part of the candidates among some tuples comes right after another one of the same probe."""
    keys = access.keys(some)
    lows, highs, _ = access.program.intervals(recent, access.band)
    met = (lows[:, None] <= keys) & (keys <= highs[:, None])
    return int((met[:, 1:] & met[:, :-1]).sum()) / max(1, int(met.sum()))
