"""Choose the structure of a new subwindow, from what the predicate offers, a sample of tuples and probes, and the size
of the batches.

The choice is made again for every new subwindow, so a window adapts to its streams. A rule returns a `Choice`, which is
data; the window (`index/chain.py`) makes the subwindow. The thresholds are measured: benchmarks/indexes/chooser.py
compares each choice with the alternatives, docs/decisions/0010-chooser.md reports what they gain.
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
from streamjoin.plan.tuning import ChoiceTuning
from streamjoin.semantics.render import to_sql

SAMPLED_TUPLES, MOST_SAMPLED = 256, 16_384
SAMPLED_BATCHES, SAMPLED_PROBES, ENOUGH_PROBES = 32, 64, 16
# Sample one batch in BATCHES_BETWEEN; large batches more often, because they cost more than a sample.
BATCHES_BETWEEN, SMALL_SAMPLED = 32, 128
RARE_MATCHES = 1e-3  # below this match rate, ignore whether matches are clustered
CHANGES_KEPT = 16
# By the bytes of a key: sort a subwindow rather than hash it if at most this many batches fill it and no batch has more
# than LARGEST_SORTED tuples.
BATCHES_WORTH_HASHING = {4: 16, 8: 4}
LARGEST_SORTED = {4: math.inf, 8: 1 << 17}
FAR = 0.3  # keys drift if their median moves by this part of their span within a window
# Change the condition only if another one's candidates cost this many times less: only similar subwindows are merged.
CLEARLY_FEWER = 1.5
MERGED_SHARE = 4  # a merged subwindow holds about a quarter of its window
# Adjacent candidates, as when the key rises from tuple to tuple, are checked this many times faster.
WORTH_TOGETHER = 4


@dataclass(frozen=True)
class BandKey:
    """Look up a subwindow by the key of one band, or, for COMPOSITE, by a hash of all equality keys."""

    band: int


@dataclass(frozen=True)
class StripsKey:
    """Look up a subwindow by places in strips over two bands."""

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
        return f"strips over {' and '.join(_key_text(program, band) for band in key.bands)}"
    return _key_text(program, key.band)


def _key_text(program: WindowProgram, band: int) -> str:
    if band == COMPOSITE:
        return ", ".join(to_sql(clause.bands[0].key) for clause in program.clauses if clause.is_equality)
    return to_sql(program.bounds.bands[band].key)


class Workload:
    """Recent probes of a window: the size of their batches, and a sample. `changes`: how the window was changed because
    of them."""

    def __init__(self) -> None:
        self.batch = 0.0
        self.changes: deque[str] = deque(maxlen=CHANGES_KEPT)
        self._samples: deque[Probing] = deque(maxlen=SAMPLED_BATCHES)
        self._skip = 0

    def observe(self, probing: Probing) -> None:
        """Sample every batch at first, then one in BATCHES_BETWEEN or fewer; O(1)."""
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
        # Copy: the topology may reuse the arrays.
        self._samples.append(probing.with_arrays([array[::step].copy() for array in probing.arrays()]))

    @property
    def known(self) -> bool:
        """Whether the sample is large enough to estimate what probes find."""
        return len(self._samples) * self.batch >= ENOUGH_PROBES

    def look(self) -> None:
        """Sample the next batch."""
        self._skip = 0

    def forget(self) -> None:
        """Drop the sample, which no longer resembles the probes."""
        self._samples.clear()

    def sample(self) -> Probing | None:
        """About SAMPLED_PROBES of the latest sampled probes, prepared; None if there are none. Older ones may have
        asked for tuples that the window no longer holds."""
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
    """Shares of a window, all zero before the first probe. `found`: what a probe matches. `candidates`: what the best
    condition alone leaves. `together`: the share of candidates that are adjacent to another one. `rising`: whether the
    key of that condition rises from tuple to tuple."""

    found: float = 0.0
    candidates: float = 0.0
    together: float = 0.0
    rising: bool = False


class FixedRule:
    """Always the same structure. Of several conditions it takes the one whose candidates cost least, by a sample."""

    def __init__(
        self,
        program: WindowProgram,
        structure: StructureName,
        bands: Sequence[int],
        tuning: ChoiceTuning | None = None,
    ):
        self.program, self.structure = program, structure
        self.bands, self.tuning = tuple(bands), tuning or ChoiceTuning()
        self._conditions = {band: condition_of(program, BandKey(band)) for band in bands}
        self._last = self.bands[0]

    def choose(self, capacity: int, held: Stored, workload: Workload) -> Choice:
        """Choose for a new subwindow of `capacity` tuples, given the tuples held so far."""
        recent = workload.sample() if len(self.bands) > 1 else None
        if recent is None:
            why = "the first condition, before any probe" if len(self.bands) > 1 else "the only condition"
            return self._choice(self.bands[0], why)
        some = spread_over(held, worth_sampling(capacity))
        shares = self._shares(some, recent)
        return self._cheapest(shares, self._costs(shares, some))

    @property
    def text(self) -> str:
        """The rule in words, for `explain`."""
        keys = " or ".join(self._conditions.values())
        which = ", whichever leaves fewer candidates" if len(self.bands) > 1 else ""
        return f"{self.structure} on {keys}{which}"

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        """Everything that may be chosen, as far as it makes a difference to compiled code."""
        return [(self.structure, BandKey(band)) for band in self.bands]

    def selectivity(self, held: Stored, workload: Workload) -> Selectivity:
        """What recent probes find, assuming that conditions are independent. O(1)."""
        recent = workload.sample()
        if recent is None:
            return Selectivity()
        spread = spread_over(held)
        shares = self._shares(spread, recent)
        costs = self._costs(shares, spread)
        best, found = min(costs, key=costs.__getitem__), math.prod(shares.values())
        rising = rise(self.program.key_of_band(spread, best))
        beside = 0.0
        if found > RARE_MATCHES:  # with few matches, the first of adjacent ones would distort the share
            beside = 1.0 if rising else adjacent_share(self.program, best, spread, recent)
        return Selectivity(found, shares[best], beside, rising)

    def _choice(self, band: int, reason: str) -> Choice:
        return Choice(self.structure, BandKey(band), self._conditions[band], reason)

    def _shares(self, some: Stored, recent: Probing) -> dict[int, float]:
        return {band: candidate_share(self.program, band, some, recent) for band in self.bands}

    def _costs(self, shares: dict[int, float], some: Stored) -> dict[int, float]:
        """The cost of checking the candidates of each condition."""
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
    """A hash table; or a sorted array, if batches are so large that sorting costs less than hashing, or the window is
    so large that merging sorted subwindows pays."""

    SORTED: StructureName = "bisort"

    def __init__(
        self,
        program: WindowProgram,
        structure: StructureName,
        bands: Sequence[int],
        tuning: ChoiceTuning | None = None,
    ):
        super().__init__(program, structure, bands, tuning)
        size = program.band_dtype(self.bands[0]).itemsize
        self._few, self._largest = BATCHES_WORTH_HASHING[size], LARGEST_SORTED[size]

    def choose(self, capacity: int, held: Stored, workload: Workload) -> Choice:
        chosen = super().choose(capacity, held, workload)
        batches, tuples = f"batches of {workload.batch:,.0f}", count_of(held)
        if workload.batch * self._few >= capacity and workload.batch <= self._largest:
            why = f"{batches} are soon sorted into {capacity:,} tuples"
        elif tuples > hashed_up_to(workload.batch, self.tuning):
            why = f"{tuples:,} tuples would be many hash tables, and sorted subwindows are merged"
        else:
            size = "small" if workload.batch <= self._largest else "sooner hashed than sorted"
            return replace(chosen, reason=f"{batches} are {size}; {chosen.reason}")
        return replace(chosen, structure=self.SORTED, reason=f"{why}; {chosen.reason}")

    @property
    def text(self) -> str:
        largest = f", each of {self._largest:,} at most," if math.isfinite(self._largest) else ""
        few = f"{self._few} batches or fewer{largest} fill a subwindow"
        singly, together = (hashed_up_to(batch, self.tuning) / 1e6 for batch in (1, 1_024))
        many = f"the window holds more than {singly:.1f} million tuples ({together:.1f} million in batches of 1,024)"
        return f"{super().text}, or {self.SORTED} if {few} or {many}"

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        return [*super().alternatives(), *((self.SORTED, BandKey(band)) for band in self.bands)]


class BandRule(FixedRule):
    """Sorted subwindows. If one band leaves many candidates and there is a second one, they are sorted by both."""

    def __init__(
        self,
        program: WindowProgram,
        structure: StructureName,
        bands: Sequence[int],
        tuning: ChoiceTuning | None = None,
    ):
        super().__init__(program, structure, bands, tuning)
        # A band without a second end reaches half of all strips, so strips would gain nothing.
        self._paired = [
            band
            for band in sorted(self.bands)
            if program.is_interval(band) and len(program.bands_beside(band)) == 1
        ]
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
        many = candidates >= self.tuning.many_candidates and checks >= self.tuning.many_of_a_batch
        found = shares[first] * shares[second] * max(capacity, count_of(held) // MERGED_SHARE)
        small = capacity < self.tuning.worth_narrow
        if many and (both := self._both(first, second, some, recent, found, small)):
            condition = self._conditions[cheapest]
            reason = f"{condition} alone leaves {candidates:,.0f} candidates a probe in a subwindow"
            return Choice(self.structure, both, condition_of(self.program, both), reason)
        return self._cheapest(shares, costs)

    @property
    def text(self) -> str:
        both = (
            f", or both from {self.tuning.many_candidates} candidates a probe on"
            if len(self._paired) > 1
            else ""
        )
        return super().text + both

    def alternatives(self) -> list[tuple[StructureName, SubwindowKey]]:
        sizes = [Rulers(Ruler(0.0, 1.0, half), Ruler(0.0, 1.0, half)) for half in (1, HALF_OF_ALL)]
        pairs = [StripsKey(bands, rulers) for bands in combinations(self._paired, 2) for rulers in sizes]
        return [*super().alternatives(), *((self.structure, key) for key in pairs)]

    def _both(
        self, first: int, second: int, some: Stored, recent: Probing, found: float, small: bool
    ) -> StripsKey | None:
        """Strips for these bands, given the number of matches per probe in a subwindow; the previous strips, if they
        still suit. A small subwindow leaves room for keys far from those seen so far. None if one of them is not
        a single interval of finite width."""
        bands = min(first, second), max(first, second)
        if not set(bands).issubset(self._paired):
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
        """The least and the greatest finite key, and whether keys drift."""
        keys = self.program.key_of_band(some, band)[some.known].astype(np.float64)
        keys = keys[np.isfinite(keys)]
        return (float(keys.min()), float(keys.max())) if len(keys) else (0.0, 0.0), move(keys)


RULES: dict[str, type[FixedRule]] = {"fixed": FixedRule, "equality": EqualityRule, "band": BandRule}


def make_rule(plan: WindowPlan, program: WindowProgram, tuning: ChoiceTuning | None = None) -> FixedRule:
    """The rule with which an indexed window chooses its subwindows."""
    assert plan.rule is not None and plan.structure is not None
    return RULES[plan.rule](program, plan.structure, plan.bands, tuning)


def hashed_up_to(batch: float, tuning: ChoiceTuning) -> float:
    """The window size, in tuples, above which sorted arrays answer batches of this size sooner than hash tables."""
    return tuning.hashed_up_to * (1 + tuning.more_in_batches * batch / (batch + tuning.medium_batch))


def worth_sampling(capacity: int) -> int:
    """How many tuples to sample for a subwindow: enough to see rare candidates, at a small part of its cost."""
    return min(max(SAMPLED_TUPLES, capacity // 64), MOST_SAMPLED)


def spread_over(held: Stored, count: int = SAMPLED_TUPLES) -> Stored:
    """At most `count` of the tuples held, evenly spaced from the oldest to the newest."""
    step = max(1, -(-count_of(held) // count))
    # Copy: kernels are compiled for contiguous arrays.
    return held.with_arrays([rows[::step].copy() for rows in held.arrays()])


def count_of(held: Stored) -> int:
    return 0 if held.known is None else len(held.known)


def rise(keys: np.ndarray) -> bool:
    """Whether nearly every key is at least the one before it."""
    return len(keys) > 1 and bool(np.count_nonzero(keys[1:] >= keys[:-1]) >= 0.9 * (len(keys) - 1))


def move(keys: np.ndarray) -> bool:
    """Whether keys drift: the median of the last quarter is far from that of the first."""
    quarter = -(-len(keys) // 4)
    if not quarter:
        return False
    first, last = (float(np.median(part)) for part in (keys[:quarter], keys[-quarter:]))
    return abs(last / 4 - first / 4) > (float(keys.max()) / 4 - float(keys.min()) / 4) * FAR


def candidate_share(program: WindowProgram, band: int, some: Stored, recent: Probing) -> float:
    """The fraction of some tuples that are candidates of a recent probe; O(n log n)."""
    keys = np.sort(program.key_of_band(some, band))
    lows, highs, _ = program.intervals(recent, band)
    there = lows <= highs
    met = keys.searchsorted(highs[there], "right") - keys.searchsorted(lows[there], "left")
    return float(met.sum()) / max(1, len(keys) * len(recent))


def adjacent_share(program: WindowProgram, band: int, some: Stored, recent: Probing) -> float:
    """The fraction of candidates among some tuples that come right after another candidate of the same probe."""
    keys = program.key_of_band(some, band)
    lows, highs, _ = program.intervals(recent, band)
    met = (lows[:, None] <= keys) & (keys <= highs[:, None])
    return int((met[:, 1:] & met[:, :-1]).sum()) / max(1, int(met.sum()))
