"""A window as a chain of subwindows by arrival (Pan & Jacobsen, section III-A).

Only the newest subwindow takes tuples, full ones never change, and the oldest goes as a whole once nothing
in it can be reached. Each finds tuples by the key of one clause of the predicate; what it finds is
checked against the other clauses, and, in subwindows that lie partly outside a probe's reach, against
the reach. Tuples are held in the order they come: an out-of-order one costs its subwindow a check of
event times, nothing else.

Rows go with their subwindow, or before it: those of a large one go in parts, and only its index waits for the last.

A probe asks every subwindow, so a large window has a few large ones: full sorted neighbours of about the same size are
merged, a little with every insert, as the levels of a log-structured tree are (O'Neil et al. 1996).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import cast

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.access import Access, Times, ask, check_bands, make_access
from streamjoin.index.sliding import ArrivedTuples, RowColumns
from streamjoin.index.stats import IndexStats, SubwindowStats
from streamjoin.index.structures import STRUCTURES
from streamjoin.index.structures.bisort import BISortSubwindow, Merging, in_key_order
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Subwindow, Team, cuts
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.subwindows import Choice, FixedRule, SubwindowKey, Workload

SMALLEST, LARGEST = 4_096, 1 << 20  # tuples of a subwindow
SHARE = 4  # a new subwindow is made for this part of what the window holds, and merged ones are no larger
MERGED_EACH = 16  # tuples that are moved for each one inserted: thrice the levels, so merges are soon done
PARTS = 16  # in which the rows of a large subwindow go
ALIKE = 2.5  # times as large as its successor, or less, is a subwindow that is merged with it
SHARED_LOOKUPS = 32_768  # that one thread has to make before another is worth waking up


@dataclass(eq=False)
class Link:
    """One subwindow of the chain. Its tuples are rows first..first+count-1, counted since the window was made; of the
    oldest subwindow, the first ones may be gone."""

    subwindow: Subwindow
    choice: Choice
    access: Access
    capacity: int
    first: int
    count: int = 0
    oldest: int = 0  # least and greatest ts
    newest: int = 0


# A link that is asked, the range of slots for each probe, and the times if they have to be checked tuple by tuple.
Asked = tuple[Link, np.ndarray, np.ndarray, Times | None]


class ChainWindow:
    """A `WindowIndex` over a chain. `rule` chooses the structure and the key of each new subwindow, from its capacity,
    the tuples held, and the workload. What `rows` hold of tuples is not held again."""

    def __init__(
        self,
        program: WindowProgram,
        rule: FixedRule,
        workload: Workload | None = None,
        rows: RowColumns | None = None,
    ):
        self.program, self.rule, self.workload = program, rule, workload or Workload()
        self.comparisons = 0  # candidates that subwindows found
        self._links: deque[Link] = deque()
        self._kind: tuple[str, str] | None = None  # structure and condition of the newest
        self._gone = 0  # rows dropped so far
        self._merge: tuple[Link, Link, Merging] | None = None  # of neighbours
        self._merge_due = False  # whether to look for some
        self._disorder = 0  # the last row that came with a smaller ts than the one before it
        self._rows = ArrivedTuples(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ts(self) -> np.ndarray:
        return self._rows.ts

    def mark(self, name: Mark) -> np.ndarray:
        return self._rows.mark(name)

    def stored(self) -> Stored:
        return self._rows.stored()

    def ids(self, positions: np.ndarray) -> np.ndarray:
        return self._rows.ids(positions)

    def oldest_id(self) -> int:
        return self._rows.oldest_id()

    @property
    def nbytes(self) -> int:
        merge, links = self._merge, self.links  # others may ask while these change
        merging = 0 if merge is None else merge[2].nbytes
        return self._rows.nbytes + sum(link.subwindow.nbytes for link in links) + merging

    @property
    def links(self) -> tuple[Link, ...]:
        """The subwindows, oldest first."""
        return tuple(self._links)

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples to the newest subwindow, and to new ones when it is full. A team shares what is merged."""
        count = len(tuples)
        if not count:
            return
        held, stored = self.ts, tuples.stored
        falls = len(held) and tuples.ts[0] < held[-1]
        self._rows.add(tuples)
        if falls:
            self._disorder = self._gone + len(held)
        done = 0
        while done < count:
            link = self._open_link()
            part = slice(done, done + link.capacity - link.count)
            rows = stored if count <= part.stop and not done else stored.pick(part)
            done += self._fill(link, tuples.ts[part], link.access.keys(rows), rows)
        if self._merge_due:
            self._merge_some(MERGED_EACH * count, team)

    def _open_link(self) -> Link:
        """The newest link, if it has room, or a new one."""
        last = self._links[-1] if self._links else None
        if last is not None and last.count < last.capacity:
            return last
        if last is not None:
            last.subwindow.seal()
            self._merge_due = True
        capacity = min(max(SMALLEST, 1 << (len(self) // SHARE).bit_length()), LARGEST)
        choice = self.rule.choose(capacity, self._rows.stored(), self.workload)
        access = self._access(choice.key)
        previous = last.subwindow if last is not None and last.access is access else None
        subwindow = STRUCTURES[choice.structure](capacity, access.dtype, previous)
        first = self._gone if last is None else last.first + last.count
        self._links.append(Link(subwindow, choice, access, capacity, first))
        self._note(choice)
        return self._links[-1]

    def _access(self, key: SubwindowKey) -> Access:
        """That of another subwindow with this key, so that both are asked the same, or a new one."""
        alike = (link.access for link in self._links if link.choice.key == key)
        return next(alike, None) or make_access(self.program, key)

    def _merge_some(self, many: int, team: Team) -> None:
        """Go on with merging full neighbours, by so many tuples."""
        while many > 0:
            if self._merge is None:
                self._merge = self._next_merge()
            if self._merge is None:
                self._merge_due = False
                return
            merging = self._merge[2]
            left = merging.left
            merging.advance(many, team)
            many -= left
            if not merging.left:
                self._replace(*self._merge)
                self._merge = None

    def _next_merge(self) -> tuple[Link, Link, Merging] | None:
        """Full neighbours that are worth merging, the newest first: the smallest ones."""
        full = list(self._links)[-2::-1]
        for later, earlier in pairwise(full):
            if earlier.count + later.count > len(self) // SHARE or earlier.count > ALIKE * later.count:
                continue
            if earlier.access is later.access and is_sorted(earlier) and is_sorted(later):
                one, other = (cast(BISortSubwindow, link.subwindow) for link in (earlier, later))
                return earlier, later, Merging(one, other, earlier.count)
        return None

    def _replace(self, earlier: Link, later: Link, merging: Merging) -> None:
        """Put the merged subwindow where two were."""
        count = earlier.count + later.count
        ends = min(earlier.oldest, later.oldest), max(earlier.newest, later.newest)
        merged = Link(merging.finished(), later.choice, later.access, count, earlier.first, count, *ends)
        at = self._links.index(earlier)
        self._links[at] = merged
        del self._links[at + 1]

    def _note(self, choice: Choice) -> None:
        """Remember that the choice has changed, if it has."""
        kind = choice.structure, choice.condition
        if kind != self._kind:
            self._kind = kind
            self.workload.changes.append(f"{kind[0]} on {kind[1]} at {len(self):,} tuples: {choice.reason}")

    def _fill(self, link: Link, ts: np.ndarray, keys: np.ndarray, rows: Stored) -> int:
        """Insert into one link; tuples with a NULL key match nothing and stay out of the index."""
        count = len(ts)
        slots = np.arange(link.count, link.count + count, dtype=np.int32)
        if not rows.all_known():
            keys, slots = keys[rows.known], slots[rows.known]
        if len(slots):
            link.subwindow.insert(keys, slots)
        oldest, newest = int(ts[0]), int(ts[-1])
        link.oldest = oldest if link.count == 0 else min(link.oldest, oldest)
        link.newest = newest if link.count == 0 else max(link.newest, newest)
        link.count += count
        return count

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """Each subwindow in reach is asked for its candidates, which are checked for the rest of the predicate.

        A team shares the probes: subwindows differ in what they find, and each part then asks all of them.
        """
        if not self._links or not len(probes):
            return
        kept = None
        if not probes.probing.all_known():
            kept = np.flatnonzero(probes.probing.known)
            probes, reach = probes.pick(kept), reach.pick(kept)
            if not len(kept):
                return
        self.workload.observe(probes.probing)
        asked = list(self._in_reach(reach, len(probes)))
        parts = [
            partial(self._look_up, probes, asked, part)
            for part in cuts(len(probes), SHARED_LOOKUPS // max(len(asked), 1), team.workers)
        ]
        for before in team.share(parts, pairs):
            self.comparisons += pairs.compared
            pairs.compared = 0
            if kept is not None:
                pairs.probe[before : pairs.count] = kept[pairs.probe[before : pairs.count]]
            yield before

    def _look_up(
        self, probes: ProbingTuples, asked: list[Asked], rows: slice, pairs: PairBuffer
    ) -> Iterator[int]:
        """On behalf of some of the probes; changes nothing."""
        some = probes if rows.stop - rows.start == len(probes) else probes.pick(rows)
        questions = dict[Access, Intervals]()
        for link, start, stop, timed in asked:
            if link.access not in questions:
                questions[link.access] = self._questions(link, some, asked)
            times = None if timed is None else (timed[0][rows], timed[1][rows])
            yield from self._ask(
                link, some, start[rows], stop[rows], times, questions[link.access], rows.start, pairs
            )

    def _questions(self, link: Link, probes: ProbingTuples, asked: list[Asked]) -> Intervals:
        """What probes ask of a link, and of all that have the same access."""
        alike = (each for each, *_ in asked if each.access is link.access)
        held = (each.count for each in alike if is_sorted(each))
        return in_key_order(link.access.questions(probes.probing), held)

    def _ask(
        self,
        link: Link,
        probes: ProbingTuples,
        start: np.ndarray,
        stop: np.ndarray,
        timed: Times | None,
        questions: Intervals,
        first: int,
        pairs: PairBuffer,
    ) -> Iterator[int]:
        """Ask one subwindow on behalf of some probes, which are numbered from `first` on."""
        begin = np.int32(link.first - self._gone)
        for before in ask(link.subwindow, questions, start, stop, pairs):
            if pairs.count > before:
                pairs.compared += pairs.count - before
                pairs.pos[before : pairs.count] += begin
                check_bands(link.access, self._rows.keys, probes.probing, pairs, before, self.ts, timed)
                if first:
                    pairs.probe[before : pairs.count] += np.int32(first)
            yield before

    def _in_reach(self, reach: Reach, count: int) -> Iterator[Asked]:
        """The links that some probe may reach. The last rows before a probe are known by position alone: a row window
        takes its tuples in order."""
        if self._disorder > self._gone:
            times = reach.times()
            for link in self._links:
                if not reach.misses(link.oldest, link.newest):
                    covered = reach.covers(link.oldest, link.newest)
                    ends = whole(count, max(0, self._gone - link.first), link.count)
                    yield link, *ends, None if covered else times
            return
        start, stop = reach.positions(self.ts)
        # Neither end falls from probe to probe.
        first, last_first, first_last, last = int(start[0]), int(start[-1]), int(stop[0]), int(stop[-1])
        for link in self._links:
            begin = link.first - self._gone
            end = begin + link.count
            if last_first <= begin and end <= first_last:
                yield link, *whole(count, 0, link.count), None
            elif first < end and begin < last:
                low, high = (np.minimum(np.maximum(at - begin, 0), link.count) for at in (start, stop))
                yield link, low, high, None

    def observe(self, probing: Probing) -> None:
        self.workload.observe(probing)

    def stats(self) -> IndexStats:
        parts = [
            SubwindowStats(
                link.choice.structure, link.choice.condition, link.count, link.capacity, link.choice.reason
            )
            for link in self._links
        ]
        return IndexStats(tuple(parts), tuple(self.workload.changes))

    def tuples(self) -> Tuples:
        """All tuples held, in the order they came; valid until the next change."""
        return self._rows.tuples()

    def expire(self, reach: Reach) -> None:
        """Drop the oldest subwindows, as far as nothing in them can be reached, and of a large one rows."""
        start = int(reach.positions(self.ts)[0][0]) if reach.low is None and len(self) else 0
        while self._links:
            link = self._links[0]
            held = link.first + link.count - self._gone
            past = start >= held if reach.low is None else link.newest < reach.low[0]
            if not past:
                self._expire_rows(link, reach, start)
                return
            start -= held
            self._drop_first()

    def _expire_rows(self, link: Link, reach: Reach, start: int) -> None:
        """Drop rows of the oldest subwindow before it goes, a part at a time; O(1) for each part and call."""
        part = max(1, link.count // PARTS)
        if link.count <= LARGEST or self._disorder > self._gone:
            return
        while len(self) >= part:
            past = start >= part if reach.low is None else self.ts[part - 1] < reach.low[0]
            if not past:
                return
            start -= part
            self._drop_rows(part)

    def _drop_first(self) -> None:
        link = self._links.popleft()
        if self._merge is not None and self._merge[0] is link:
            self._merge = None
        self._drop_rows(link.first + link.count - self._gone)

    def _drop_rows(self, count: int) -> None:
        self._rows.drop(count)
        self._rows.forget_dropped()
        self._gone += count

    def clear(self) -> None:
        while self._links:
            self._drop_first()


def is_sorted(link: Link) -> bool:
    """Whether a subwindow's main array is sorted: it can be merged, and answers with records."""
    return link.choice.structure == "bisort"


def whole(probes: int, first: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """All slots from the first one held on, for every probe."""
    start, stop = np.empty(probes, np.int64), np.empty(probes, np.int64)
    start.fill(first)
    stop.fill(slots)
    return start, stop
