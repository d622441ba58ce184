"""Which structure a new subwindow gets: a cascade over what the predicate offers, a sample of tuples and probes, and
the size of the batches.

Every new subwindow is chosen anew, so a window follows its streams. A rule returns a `Choice`, which is data; the
window (`index/chain.py`) makes the subwindow. The thresholds are measured: benchmarks/indexes/chooser.py holds each
choice against the alternatives, docs/decisions/0010-chooser.md says what they gain.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import COMPOSITE, WindowProgram
from streamjoin.plan.options import StructureName
from streamjoin.plan.physical import WindowPlan
from streamjoin.plan.rulers import HALF_OF_ALL, Ruler, Rulers, rulers_for, strip_widths
from streamjoin.semantics.render import to_sql

SAMPLED_TUPLES, MOST_SAMPLED = 256, 16_384
SAMPLED_BATCHES, SAMPLED_PROBES, ENOUGH_PROBES = 32, 64, 16
# Sample one batch in BATCHES_BETWEEN; large batches more often, because they cost more than a sample.
BATCHES_BETWEEN, SMALL_SAMPLED = 32, 128
RARE_MATCHES = 1e-3  # below this match rate, ignore whether matches are clustered
CHANGES_KEPT = 16
# Sort a subwindow rather than hash it if this many batches or fewer fill it (by the bytes of a key), unless a batch has
# more tuples than LARGEST_SORTED.
BATCHES_WORTH_HASHING = {4: 16, 8: 4}
LARGEST_SORTED = {4: math.inf, 8: 1 << 17}
# In larger windows a probe would search so many hash tables that sorted arrays, which are merged, are faster. Batches
# share the cost of a table's call: they raise the limit by up to MORE_IN_BATCHES, by half of that at MEDIUM_BATCH.
HASHED_UP_TO, MORE_IN_BATCHES, MEDIUM_BATCH = 4_700_000, 1.15, 100
FAR = 0.3  # keys drift if their median moves by this part of their span within a window
WORTH_NARROW = 1 << 20  # in subwindows this large, prefer 32-bit places to room for keys not seen yet
CLEARLY_FEWER = (
    1.5  # change the condition only if its candidates cost this many times less: alike subwindows merge
)
MERGED_SHARE = 4  # a merged subwindow holds about a quarter of its window
# Look up two bands together from this many candidates of the better one on, per probe and per batch. Candidates that
# lie together, because the key rises from tuple to tuple, are checked WORTH_TOGETHER times faster.
MANY_CANDIDATES, MANY_OF_A_BATCH, WORTH_TOGETHER = 24, 500, 4


@dataclass(frozen=True)
class BandKey:
    """A subwindow is found by the key of one band, or, for COMPOSITE, by a hash of all equality keys."""

    band: int


@dataclass(frozen=True)
class StripsKey:
    """A subwindow is found by its place in strips over two bands."""

    bands: tuple[int, int]
    rulers: Rulers


SubwindowKey = BandKey | StripsKey


@dataclass(frozen=True)
class Choice:
    """How a subwindow finds tuples, and why. `condition`: the key as SQL."""

    structure: StructureName
    key: SubwindowKey
    condition: str
    reason: str


def condition_of(program: WindowProgram, key: SubwindowKey) -> str:
    """The key of a subwindow as SQL."""
    if isinstance(key, StripsKey):
        return f"strips over {' and '.join(_band_text(program, band) for band in key.bands)}"
    return _band_text(program, key.band)


def _band_text(program: WindowProgram, band: int) -> str:
    if band == COMPOSITE:
        return ", ".join(to_sql(clause.bands[0].key) for clause in program.clauses if clause.is_equality)
    return to_sql(program.bounds.bands[band].key)


class Workload:
    """What a window has lately been asked: how many probes come at a time, and some of them. `changes`: what it became
    for their sake."""

    def __init__(self) -> None:
        self.batch = 0.0
        self.changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._samples: deque[Probing] = deque(maxlen=SAMPLED_BATCHES)
        self._skip = 0

    def observe(self, probing: Probing) -> None:
        """Take note of every batch at first, then of one in BATCHES_BETWEEN or fewer; O(1)."""
        self._skip -= 1
        if self._skip >= 0:
            return
        count, known = len(probing), len(self._samples)
        if not count:
            return
        self._skip = (
            BATCHES_BETWEEN * SMALL_SAMPLED // (SMALL_SAMPLED + count) if known == SAMPLED_BATCHES else 0
        )
        self.batch += (count - self.batch) / min(known + 1, 4)
        step = -(-count // SAMPLED_PROBES)
        # Copies: what a topology hands over may change once it is done.
        self._samples.append(probing.with_arrays([array[::step].copy() for array in probing.arrays()]))

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

    def sample(self) -> Probing | None:
        """The last SAMPLED_PROBES probes or so that were noted, prepared; None if there were none. Older ones may have
        asked for tuples that the window holds no more."""
        chosen: list[Probing] = []
        count = 0
        for probing in reversed(self._samples):
            if count >= SAMPLED_PROBES:
                break
            chosen.append(probing)
            count += len(probing)
        if not chosen:
            return None
        columns = zip(*(probing.arrays() for probing in chosen), strict=True)
        return chosen[0].with_arrays([np.concatenate(column) for column in columns])


class Selectivity(NamedTuple):
    """Which part of a window a probe finds, and by its best condition alone; which part of those lies beside another,
    and whether the key of that condition rises from tuple to tuple. Nothing before any probe."""

    found: float = 0.0
    candidates: float = 0.0
    together: float = 0.0
    rising: bool = False


class FixedRule:
    """Always the same structure; of several conditions, the one whose candidates cost the least by a sample."""

    def __init__(self, program: WindowProgram, structure: StructureName, bands: Sequence[int]):
        self.program, self.structure = program, structure
        self.bands = tuple(bands)
        self._conditions = {band: condition_of(program, BandKey(band)) for band in bands}
        self._last = self.bands[0]

    def choose(self, capacity: int, held: Stored, workload: Workload) -> Choice:
        """The choice for a subwindow of `capacity` tuples, after those held."""
        recent = workload.sample() if len(self.bands) > 1 else None
        if recent is None:
            why = "the first condition, before any probe" if len(self.bands) > 1 else "the only condition"
            return self._choice(self.bands[0], why)
        some = spread_over(held, worth_sampling(capacity))
        shares = self._shares(some, recent)
        return self._cheapest(shares, self._costs(shares, some))

    @property
    def text(self) -> str:
        """The rule, for people."""
        keys = " or ".join(self._conditions.values())
        which = ", whichever leaves fewer candidates" if len(self.bands) > 1 else ""
        return f"{self.structure} on {keys}{which}"

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        """All that may ever be chosen, as far as compiled code can tell it apart."""
        return [(self.structure, BandKey(band)) for band in self.bands]

    def selectivity(self, held: Stored, workload: Workload) -> Selectivity:
        """What recent probes find, as if conditions were independent. O(1)."""
        recent = workload.sample()
        if recent is None:
            return Selectivity()
        spread = spread_over(held)
        shares = self._shares(spread, recent)
        costs = self._costs(shares, spread)
        best, found = min(costs, key=costs.__getitem__), math.prod(shares.values())
        rising = rise(self.program.key_of_band(spread, best))
        beside = 0.0
        if found > RARE_MATCHES:  # in a sample of few, the first of those that lie together would count
            beside = 1.0 if rising else together(self.program, best, spread, recent)
        return Selectivity(found, shares[best], beside, rising)

    def _choice(self, band: int, reason: str) -> Choice:
        return Choice(self.structure, BandKey(band), self._conditions[band], reason)

    def _shares(self, some: Stored, recent: Probing) -> dict[int, float]:
        return {band: share(self.program, band, some, recent) for band in self.bands}

    def _costs(self, shares: dict[int, float], some: Stored) -> dict[int, float]:
        """What it costs to check the candidates of each condition."""
        return {
            band: part / (WORTH_TOGETHER if rise(self.program.key_of_band(some, band)) else 1)
            for band, part in shares.items()
        }

    def _cheapest(self, shares: dict[int, float], costs: dict[int, float]) -> Choice:
        best = min(costs, key=costs.__getitem__)
        if costs[self._last] <= CLEARLY_FEWER * costs[best]:
            best = self._last
        self._last = best
        others = ", ".join(f"{shares[b]:.2g} by {self._conditions[b]}" for b in shares if b != best)
        beside = ", which lie together" if costs[best] < shares[best] else ""
        reason = f"leaves {shares[best]:.2g} of the tuples as candidates of a probe{beside}, beside {others}"
        return self._choice(best, reason)


class EqualityRule(FixedRule):
    """A hash table, or a sorted array: where batches are so large that sorting them costs less than hashing them, and
    where a window holds so many tuples that merging sorted subwindows pays."""

    SORTED: StructureName = "bisort"

    def __init__(self, program: WindowProgram, structure: StructureName, bands: Sequence[int]):
        super().__init__(program, structure, bands)
        size = program.band_dtype(self.bands[0]).itemsize
        self._few, self._largest = BATCHES_WORTH_HASHING[size], LARGEST_SORTED[size]

    def choose(self, capacity: int, held: Stored, workload: Workload) -> Choice:
        chosen = super().choose(capacity, held, workload)
        batches, tuples = f"batches of {workload.batch:,.0f}", count_of(held)
        if workload.batch * self._few >= capacity and workload.batch <= self._largest:
            why = f"{batches} are soon sorted into {capacity:,} tuples"
        elif tuples > hashed_up_to(workload.batch):
            why = f"{tuples:,} tuples would be many hash tables, and sorted subwindows are merged"
        else:
            size = "small" if workload.batch <= self._largest else "sooner hashed than sorted"
            return replace(chosen, reason=f"{batches} are {size}; {chosen.reason}")
        return replace(chosen, structure=self.SORTED, reason=f"{why}; {chosen.reason}")

    @property
    def text(self) -> str:
        largest = f", each of {self._largest:,} at most," if math.isfinite(self._largest) else ""
        few = f"{self._few} batches or fewer{largest} fill a subwindow"
        singly, together = hashed_up_to(1) / 1e6, hashed_up_to(1_024) / 1e6
        many = f"the window holds more than {singly:.1f} million tuples, {together:.1f} with batches of 1,024"
        return f"{super().text}, or {self.SORTED} if {few} or {many}"

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        return [*super().alternatives(), *((self.SORTED, BandKey(band)) for band in self.bands)]


class BandRule(FixedRule):
    """Sorted subwindows; where a single band leaves many candidates and there is a second one, sorted by both."""

    def __init__(self, program: WindowProgram, structure: StructureName, bands: Sequence[int]):
        super().__init__(program, structure, bands)
        self._strips: StripsKey | None = None

    def choose(self, capacity: int, held: Stored, workload: Workload) -> Choice:
        recent = workload.sample() if len(self.bands) > 1 else None
        if recent is None:
            return super().choose(capacity, held, workload)
        some = spread_over(held, worth_sampling(capacity))
        shares = self._shares(some, recent)
        costs = self._costs(shares, some)
        cheapest = min(costs, key=costs.__getitem__)
        first, second = sorted(shares, key=shares.__getitem__)[:2]
        candidates = shares[cheapest] * capacity
        checks = costs[cheapest] * capacity * workload.batch
        many = candidates >= MANY_CANDIDATES and checks >= MANY_OF_A_BATCH
        found = shares[first] * shares[second] * max(capacity, count_of(held) // MERGED_SHARE)
        small = capacity < WORTH_NARROW
        if many and (both := self._both(first, second, some, recent, found, small)):
            condition = self._conditions[cheapest]
            reason = f"{condition} alone leaves {candidates:,.0f} candidates a probe in a subwindow"
            return Choice(self.structure, both, condition_of(self.program, both), reason)
        return self._cheapest(shares, costs)

    @property
    def text(self) -> str:
        both = f", or both from {MANY_CANDIDATES} candidates a probe on" if len(self.bands) > 1 else ""
        return super().text + both

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        single = [band for band in self.bands if len(self.program.bands_beside(band)) == 1]
        sizes = [Rulers(Ruler(0.0, 1.0, half), Ruler(0.0, 1.0, half)) for half in (1, HALF_OF_ALL)]
        pairs = [StripsKey(bands, rulers) for bands in combinations(sorted(single), 2) for rulers in sizes]
        return [*super().alternatives(), *((self.structure, key) for key in pairs)]

    def _both(
        self, first: int, second: int, some: Stored, recent: Probing, found: float, small: bool
    ) -> StripsKey | None:
        """Strips that suit the bands and how many tuples of a subwindow a probe finds; the last ones, if those do. A
        small subwindow has room for keys that are far from those seen."""
        bands = min(first, second), max(first, second)
        if any(len(self.program.bands_beside(band)) > 1 for band in bands):
            return None
        usual = self._width(bands[0], recent), self._width(bands[1], recent)
        if not all(0 < width < np.inf for width in usual):
            return None
        (ends, moving), (other_ends, other_moving) = (self._ends(band, some) for band in bands)
        rulers = rulers_for(strip_widths(usual, found), (ends, other_ends), small or moving or other_moving)
        last = self._strips
        if last is None or last.bands != bands or not last.rulers.suit(rulers, (ends, other_ends)):
            self._strips = StripsKey(bands, rulers)
        return self._strips

    def _width(self, band: int, recent: Probing) -> float:
        lows, highs = (bound.astype(np.float64) for bound in self.program.bounds_of_band(recent, band))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite bounds have no width
            widths = highs - lows
        widths = widths[np.isfinite(widths)]
        return float(np.median(widths)) if len(widths) else np.inf

    def _ends(self, band: int, some: Stored) -> tuple[tuple[float, float], bool]:
        """The least and the greatest finite key, and whether keys move on."""
        keys = self.program.key_of_band(some, band)[some.known].astype(np.float64)
        keys = keys[np.isfinite(keys)]
        return (float(keys.min()), float(keys.max())) if len(keys) else (0.0, 0.0), move(keys)


RULES: dict[str, type[FixedRule]] = {"fixed": FixedRule, "equality": EqualityRule, "band": BandRule}


def make_rule(plan: WindowPlan, program: WindowProgram) -> FixedRule:
    """The rule by which an indexed window chooses its subwindows."""
    assert plan.rule is not None and plan.structure is not None
    return RULES[plan.rule](program, plan.structure, plan.bands)


def hashed_up_to(batch: float) -> float:
    """The window, in tuples, from which on sorted arrays answer so many probes at a time sooner than hash tables."""
    return HASHED_UP_TO * (1 + MORE_IN_BATCHES * batch / (batch + MEDIUM_BATCH))


def worth_sampling(capacity: int) -> int:
    """How many tuples to look at for a subwindow: enough to see rare candidates, for little of its cost."""
    return min(max(SAMPLED_TUPLES, capacity // 64), MOST_SAMPLED)


def spread_over(held: Stored, count: int = SAMPLED_TUPLES) -> Stored:
    """So many of the tuples held, or fewer, from the oldest to the newest."""
    step = max(1, -(-count_of(held) // count))
    # Copies: kernels are compiled for contiguous arrays.
    return held.with_arrays([rows[::step].copy() for rows in held.arrays()])


def count_of(held: Stored) -> int:
    return 0 if held.known is None else len(held.known)


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


def share(program: WindowProgram, band: int, some: Stored, recent: Probing) -> float:
    """Which part of some tuples is a candidate of recent probes; O(n log n)."""
    keys = np.sort(program.key_of_band(some, band))
    lows, highs, _ = program.intervals(recent, band)
    there = lows <= highs
    met = keys.searchsorted(highs[there], "right") - keys.searchsorted(lows[there], "left")
    return float(met.sum()) / max(1, len(keys) * len(recent))


def together(program: WindowProgram, band: int, some: Stored, recent: Probing) -> float:
    """Which part of the candidates among some tuples comes right after another one of the same probe."""
    keys = program.key_of_band(some, band)
    lows, highs, _ = program.intervals(recent, band)
    met = (lows[:, None] <= keys) & (keys <= highs[:, None])
    return int((met[:, 1:] & met[:, :-1]).sum()) / max(1, int(met.sum()))
