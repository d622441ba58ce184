"""Index records of PanJoin's workers, and the pairs they stand for (Pan & Jacobsen, section III-D).

A worker with sorted subwindows answers a batch with records <first, last> in a main array, so its work does not
depend on the number of matches. The manager builds pairs from them, one stretch at a time, when results are asked
for.

It builds them from the mirror of the main arrays. Memory of a mirror never changes after a record points into it: the
main array of a full subwindow never changes, that of the newest subwindow is copied when it has changed, and ids and
places are stored by slot and only appended to. So worker and manager share mirrors without a lock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from streamjoin.codegen.evaluate import key_limits
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.access import Access, make_access
from streamjoin.index.chain import Link, is_sorted
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.sorted.records import expand
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN
from streamjoin.plan.subwindows import FixedRule
from streamjoin.semantics.spec import OTHER
from streamjoin.topologies.matching import Found
from streamjoin.topologies.stamps import in_reach


@dataclass(frozen=True)
class RunRecords:
    """Records of one sorted array for the probes of a command, and the data they point into. `reach`, by probe, is
    set if covered tuples may be out of reach."""

    firsts: np.ndarray  # as in `Records`, without empty records
    lasts: np.ndarray
    asking: np.ndarray  # ascending
    outside: bool
    slots: np.ndarray
    mirror: Mirror
    reach: Reach | None

    def sizes(self, probes: int) -> np.ndarray:
        """The number of tuples that the records of each probe cover."""
        inside = self.lasts - self.firsts
        return np.bincount(self.asking, len(self.slots) - inside if self.outside else inside, probes)

    def fill(self, probes: ProbingTuples, first: int, last: int, out: np.ndarray) -> int:
        """Write the pairs of the probes `first` to `last` - 1 into the rows of `out`: the ids of probe and match,
        then, if `out` has four rows, their places. Return the number of pairs."""
        rows = slice(*self.asking.searchsorted([first, last]))
        some = self.firsts[rows], self.lasts[rows], self.asking[rows], self.outside, self.slots
        ids, places = self.mirror.ids, self.mirror.places
        count: int = expand(*some, probes.id, ids, out[0], out[1])
        if len(out) > 2:
            expand(*some, probes.ts, places, out[2], out[3])
        if self.reach is None or self.reach.low is None:
            return count
        bound, place = np.empty((2, count), np.int64)
        expand(*some, self.reach.low, places, bound, place)
        met = bound <= place
        expand(*some, self.reach.high, places, bound, place)
        kept = np.flatnonzero(met & (place <= bound))
        out[:, : len(kept)] = out[:, kept]
        return len(kept)


@dataclass(frozen=True)
class Answer:
    """What a worker found for a command. `ends`: an upper bound on the pairs of each probe and all probes before it.
    `least_id`: the smallest id of each side."""

    number: int
    side: str
    probes: ProbingTuples
    runs: tuple[RunRecords, ...]
    ends: np.ndarray
    least_id: Mapping[str, int]

    def __len__(self) -> int:
        """The number of records."""
        return sum(len(run.asking) for run in self.runs)

    @property
    def covered(self) -> int:
        """The number of pairs, or slightly more."""
        return int(self.ends[-1])

    def pairs(self, first: int, last: int, placed: bool) -> Found:
        """The pairs of the probes `first` to `last` - 1, with their places if `placed`."""
        room = int(self.ends[last - 1] - (self.ends[first - 1] if first else 0))
        out, count = np.empty((4 if placed else 2, room), np.int64), 0
        for run in self.runs:
            count += run.fill(self.probes, first, last, out[:, count:])
        sides = self.side, OTHER[self.side]
        ids, places = (dict(zip(sides, rows[:, :count], strict=False)) for rows in (out[:2], out[2:]))
        return Found(ids, places)


class Mirror:
    """What records of one subwindow point into: ids and places by slot, and the current sorted slots."""

    def __init__(self, capacity: int):
        self.ids, self.places = np.empty((2, capacity), np.int64)
        self.count, self.least_id = 0, INT64_MAX
        self._main = np.empty(0, np.int32)

    @property
    def nbytes(self) -> int:
        return self.ids.nbytes + self.places.nbytes + self._main.nbytes

    def append(self, ids: np.ndarray, places: np.ndarray, count: int) -> None:
        """Take the last of `count` tuples. Earlier tuples that are missing here have expired: their place is set out
        of reach."""
        start = count - len(ids)
        self.places[self.count : start] = INT64_MIN
        self.ids[start:count], self.places[start:count] = ids, places
        self.count, self.least_id = count, min(self.least_id, int(ids.min()))

    def runs(
        self, link: Link, changes: bool, questions: Intervals, outside: bool, reach: Reach | None
    ) -> Iterator[RunRecords]:
        """The records of the subwindow's main array and of its buffer."""
        assert questions.asking is not None
        main, buffer = cast(BISortSubwindow, link.subwindow).run_records(*questions, outside)
        if changes:
            # The main array only grows: while its size is the same, so is its content.
            if len(self._main) != len(main.slots):
                self._main = main.slots.copy()
            main, buffer = replace(main, slots=self._main), replace(buffer, slots=buffer.slots.copy())
        for found in (main, buffer):
            covering = found.firsts < found.lasts
            if outside:
                covering = (found.firsts > 0) | (found.lasts < len(found.slots))
            rows = np.flatnonzero(covering)
            if len(rows):
                firsts, lasts, asking = found.firsts[rows], found.lasts[rows], questions.asking[rows]
                yield RunRecords(firsts, lasts, asking, outside, found.slots, self, reach)


class MirroredWindow:
    """A worker's window that answers with records, if its subwindows are sorted by the only key of the predicate."""

    def __init__(self, window: WindowIndex):
        self._window = window
        self._mirrors: dict[Link, Mirror] = {}

    def __len__(self) -> int:
        return len(self._window)

    @property
    def nbytes(self) -> int:
        """The size including the mirrors."""
        return self._window.nbytes + sum(mirror.nbytes for mirror in tuple(self._mirrors.values()))

    def answer(self, number: int, side: str, probes: ProbingTuples) -> Answer | None:
        """The matches of probes of `side`, or None if records cannot describe them. O(log n) for each probe and
        subwindow, independent of the matches, and O(1) for each tuple that arrived or was merged since the last call.
        """
        links = self._window.links
        if not links or not all(map(is_decisive, links)):
            self.forget()
            return None
        probing = probes.probing
        self._window.observe(probing if probing.all_known() else probing.pick(probing.known))
        self._mirrors = {link: self._mirrors.get(link) or Mirror(link.capacity) for link in links}
        runs = tuple(self._runs(links, probes))
        sizes = sum((run.sizes(len(probes)) for run in runs), np.zeros(len(probes)))
        ends = np.cumsum(sizes).astype(np.int64)
        self._window.comparisons += int(ends[-1])
        least = min((mirror.least_id for mirror in self._mirrors.values()), default=INT64_MAX)
        return Answer(number, side, probes, runs, ends, {side: int(probes.id.min()), OTHER[side]: least})

    def _runs(self, links: Sequence[Link], probes: ProbingTuples) -> Iterator[RunRecords]:
        """The records of every subwindow in reach."""
        reach, questions = in_reach(self._window, probes), dict[Access, tuple[Intervals, bool]]()
        end = len(self._window)
        for link in reversed(links):  # the first tuples of the oldest subwindow may have expired
            if not reach.misses(link.oldest, link.newest):
                if link.access not in questions:
                    questions[link.access] = asked(link.access, probes)
                covered = reach.covers(link.oldest, link.newest)
                mirror, changes = self._followed(link, end), link is links[-1]
                yield from mirror.runs(link, changes, *questions[link.access], None if covered else reach)
            end -= link.count

    def _followed(self, link: Link, end: int) -> Mirror:
        """The mirror of a subwindow, up to date; the subwindow's last tuple is at position `end` - 1."""
        mirror = self._mirrors[link]
        if mirror.count < link.count:
            start = max(0, end - link.count + mirror.count)
            ids = self._window.ids(np.arange(start, end))
            mirror.append(ids, self._window.ts[start:end], link.count)
        return mirror

    def forget(self) -> None:
        """Drop the mirrors: no new record will point into them soon."""
        self._mirrors = {}


def is_decisive(link: Link) -> bool:
    """Whether the key of a subwindow decides the predicate, and its main array is sorted."""
    return is_sorted(link) and not link.access.unchecked[0]


def asked(access: Access, probes: ProbingTuples) -> tuple[Intervals, bool]:
    """The intervals that probes ask for, by probe, and whether they ask for what lies outside."""
    kept = np.flatnonzero(probes.probing.known)
    probing = probes.probing if len(kept) == len(probes) else probes.probing.pick(kept)
    questions, outside = without_gap(access.questions(probing), len(kept), access.dtype)
    lows, highs, asking = questions
    if asking is None:
        return Intervals(lows, highs, kept), outside
    order = np.argsort(asking, kind="stable")
    return Intervals(lows[order], highs[order], kept[asking[order]]), outside


def without_gap(questions: Intervals, probes: int, dtype: np.dtype) -> tuple[Intervals, bool]:
    """If every probe asks for all keys except those between two, as for `<>`: the intervals between, and True."""
    lows, highs, asking = questions
    least, most = key_limits(dtype)
    if asking is None or len(asking) != 2 * probes or (asking[:probes] != asking[probes:]).any():
        return questions, False
    if (lows[:probes] != least).any() or (highs[probes:] != most).any():
        return questions, False
    if dtype.kind == "f":
        return Intervals(np.nextafter(highs[:probes], most), np.nextafter(lows[probes:], least)), True
    return Intervals(highs[:probes] + dtype.type(1), lows[probes:] - dtype.type(1)), True


class Waiting:
    """Answers to one command from which pairs are built together, probe after probe."""

    def __init__(self, answers: Sequence[Answer]):
        self.answers, self.places = answers, answers[0].probes.ts
        self._ends = np.sum([answer.ends for answer in answers], axis=0)
        self._at = 0  # the first probe whose pairs are not yet built

    @property
    def done(self) -> bool:
        return self._at == len(self._ends)

    @property
    def place(self) -> int:
        return int(self.places[self._at])

    def stretch(self, size: int) -> int:
        """The probe that ends the next stretch: about `size` pairs, at least one probe."""
        made = int(self._ends[self._at - 1]) if self._at else 0
        return max(self._at + 1, int(self._ends.searchsorted(made + size, "right")))

    def pairs(self, last: int, placed: bool) -> Iterator[Found]:
        """The pairs of the probes before `last`, by worker."""
        first, self._at = self._at, max(self._at, last)
        for answer in self.answers if first < last else ():
            yield answer.pairs(first, last, placed)


class Backlog:
    """Answers from which pairs are not yet built. For sorted results, the answers to one command belong together, and
    wait until all workers have answered. Pairs of several commands are then built side by side, because their places
    overlap."""

    def __init__(self, order: str, stretch: int):
        self._sorted, self._stretch = order == "timestamp", stretch
        self._coming: dict[int, list[Answer]] = {}  # by command
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        """Whether pairs can be built now."""
        return bool(self._waiting)

    def add(self, answer: Answer) -> None:
        if self._sorted:
            self._coming.setdefault(answer.number, []).append(answer)
        else:
            self._waiting.append(Waiting([answer]))

    def settle(self, first: int) -> None:
        """All answers to the commands before `first` have arrived."""
        for number in [number for number in self._coming if number < first]:
            self._waiting.append(Waiting(self._coming.pop(number)))

    def pairs(self) -> Iterator[Found]:
        """The pairs of the next probes: about `stretch` for each command, or those of one probe."""
        if not self._sorted:
            first = self._waiting[0]
            yield from first.pairs(first.stretch(self._stretch), placed=False)
        else:
            ends = [(waiting.places, waiting.stretch(self._stretch)) for waiting in self._waiting]
            bound = min((int(places[end]) for places, end in ends if end < len(places)), default=INT64_MAX)
            for waiting in self._waiting:
                yield from waiting.pairs(int(waiting.places.searchsorted(bound)), placed=True)
        self._waiting = deque(waiting for waiting in self._waiting if not waiting.done)

    @property
    def place(self) -> float:
        """Every pair that is not yet built has its later tuple at this place or after it."""
        return min((waiting.place for waiting in self._waiting), default=math.inf)

    def least_ids(self, side: str) -> list[int]:
        """The smallest ids of a side in the answers that wait."""
        groups = [*(waiting.answers for waiting in self._waiting), *self._coming.values()]
        return [answer.least_id[side] for group in groups for answer in group]

    def clear(self) -> None:
        self._coming.clear()
        self._waiting.clear()


def rehearse_records(program: WindowProgram, rule: FixedRule) -> None:
    """Compile what records need of the sorted subwindows that a rule may choose."""
    accesses = [make_access(program, key) for structure, key in rule.alternatives() if structure == "bisort"]
    none = np.empty(0, np.int64)
    for dtype in {access.dtype for access in accesses}:
        subwindow = BISortSubwindow(1, dtype)
        subwindow.insert(np.zeros(1, dtype), np.zeros(1, np.int32))
        for records in subwindow.run_records(np.zeros(1, dtype), np.zeros(1, dtype), np.zeros(1, np.int64)):
            expand(records.firsts[:0], records.lasts[:0], none, False, records.slots, none, none, none, none)
