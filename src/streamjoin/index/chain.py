"""A window as a chain of subwindows in order of arrival (Pan & Jacobsen, section III-A).

Only the newest subwindow takes tuples, full ones never change, and the oldest is dropped as a whole once no probe can
reach it. Each subwindow finds candidates by the key of one clause of the predicate. They are checked against the
other clauses and, in subwindows that are partly out of a probe's reach, against the reach. Tuples stay in the order
in which they arrive: an out-of-order tuple only makes its subwindow check event times.

Rows are dropped with their subwindow, or before it: the rows of a large subwindow are dropped in parts, only its
index waits for the last row.

A probe asks every subwindow, so a large window should have few, large subwindows. Full sorted neighbours of similar
size are therefore merged, a little with every insert, like the levels of a log-structured merge tree (O'Neil et al.
1996).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.programs import Intervals, WindowProgram
from streamjoin.index.access import Access, Times, ask, check_bands, make_access
from streamjoin.index.sliding import ArrivedTuples, RowColumns
from streamjoin.index.stats import IndexStats, SubwindowStats
from streamjoin.index.structures import STRUCTURE_CLASSES
from streamjoin.index.structures.bisort import BISortSubwindow, Merging, in_key_order
from streamjoin.index.times import Reach
from streamjoin.index.tuples import Mark, ProbingTuples, Tuples
from streamjoin.index.window import ALONE, Subwindow, Team, Together, cuts
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.subwindows import Choice, FixedRule, SubwindowKey, Workload
from streamjoin.plan.tuning import DEFAULT_TUNING, WindowTuning

DROPPED_PARTS = 16  # the rows of a large subwindow are dropped in this many parts
MERGE_RATIO = 2.5  # merge neighbours if the earlier one is at most this many times as large as the later one


@dataclass(eq=False)
class Link:
    """One subwindow of the chain. Its tuples are rows first..first+count-1, numbered since the window was created.
    The first rows of the oldest subwindow may have been dropped."""

    subwindow: Subwindow
    choice: Choice
    access: Access
    capacity: int
    first: int
    count: int = 0
    oldest: int = 0  # least and greatest ts
    newest: int = 0


class Group(NamedTuple):
    """Links of the same structure and access, and the parts of all of them, oldest first."""

    access: Access
    probe_all: Callable[..., Iterator[int]]
    parts: np.ndarray


# A link to ask, the range of slots for each probe, and the times if they must be checked for each tuple.
Asked = tuple[Link, np.ndarray, np.ndarray, Times | None]


class ChainWindow:
    """A `WindowIndex` over a chain. `rule` chooses the structure and the key of each new subwindow from its capacity,
    the tuples held, and the workload. Data that is in `rows` is not copied."""

    def __init__(
        self,
        program: WindowProgram,
        rule: FixedRule,
        workload: Workload | None = None,
        rows: RowColumns | None = None,
        tuning: WindowTuning = DEFAULT_TUNING.window,
    ):
        self._tuning = tuning
        self.program, self.rule, self.workload = program, rule, workload or Workload()
        self.comparisons = 0  # candidates that subwindows found
        self._links: deque[Link] = deque()
        self._kind: tuple[str, str] | None = None  # structure and condition of the newest subwindow
        self._gone = 0  # rows dropped so far
        self._merge: tuple[Link, Link, Merging] | None = None  # the merge of two neighbours under way
        self._merge_due = False  # whether to look for neighbours to merge
        self._disorder = 0  # the last row that arrived with a smaller ts than the row before it
        self._last = 0  # the ts of the last row
        self._rows = ArrivedTuples(rows)
        # The links by how they are asked, the newest link in the last group; empty if some must be asked one by one.
        # Each probe brings the parts of the newest link up to date. `_grouped`: whether the others are.
        self._groups: list[Group] = []
        self._grouped = False

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
        merge, links = (
            self._merge,
            self.links,
        )  # read once each: another thread may call this while they change
        merging = 0 if merge is None else merge[2].nbytes
        return self._rows.nbytes + sum(link.subwindow.nbytes for link in links) + merging

    @property
    def links(self) -> tuple[Link, ...]:
        """The subwindows, oldest first."""
        return tuple(self._links)

    def insert(self, tuples: Tuples, rank: np.ndarray, team: Team = ALONE) -> None:
        """Add tuples to the newest subwindow, and to new ones when it is full. A team shares the merging."""
        ts, stored, held = tuples.ts, tuples.stored, len(self._rows)
        count = len(ts)
        if not count:
            return
        self._rows.add(tuples)
        if held and ts[0] < self._last:
            self._disorder = self._gone + held
        self._last = int(ts[-1])
        link = self._open_link()
        if count <= link.capacity - link.count:
            self._fill(link, ts, stored, tuples.nulls)
        else:
            self._fill_several(link, tuples)
        if self._merge_due:
            self._merge_some(self._tuning.merged_each * count, team)

    def _fill_several(self, link: Link, tuples: Tuples) -> None:
        """Fill a link that has no room for all tuples, and then new links."""
        done, count = 0, len(tuples)
        while done < count:
            link = self._open_link() if done else link
            part = slice(done, min(count, done + link.capacity - link.count))
            self._fill(link, tuples.ts[part], tuples.stored.pick(part), tuples.nulls)
            done = part.stop

    def _open_link(self) -> Link:
        """The newest link, if it has room, or a new one."""
        last = self._links[-1] if self._links else None
        if last is not None and last.count < last.capacity:
            return last
        if last is not None:
            last.subwindow.seal()
            self._merge_due = True
        capacity = self._tuning.capacity(len(self))
        choice = self.rule.choose(capacity, self._rows.stored(), self.workload)
        access = self._access(choice.key)
        previous = last.subwindow if last is not None and last.access is access else None
        subwindow = STRUCTURE_CLASSES[choice.structure](capacity, access.dtype, previous)
        first = self._gone if last is None else last.first + last.count
        self._links.append(Link(subwindow, choice, access, capacity, first))
        self._grouped = False
        self._note(choice)
        return self._links[-1]

    def _access(self, key: SubwindowKey) -> Access:
        """The access of another subwindow with this key, so that both get the same questions, or a new one."""
        alike = (link.access for link in self._links if link.choice.key == key)
        return next(alike, None) or make_access(self.program, key)

    def _merge_some(self, many: int, team: Team) -> None:
        """Continue to merge full neighbours, by about `many` tuples."""
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
        """Full neighbours that are worth merging. Starts with the newest, which are the smallest."""
        full = list(self._links)[-2::-1]
        for later, earlier in pairwise(full):
            if (
                earlier.count + later.count > len(self) // self._tuning.share
                or earlier.count > MERGE_RATIO * later.count
            ):
                continue
            if earlier.access is later.access and is_sorted(earlier) and is_sorted(later):
                one, other = (cast(BISortSubwindow, link.subwindow) for link in (earlier, later))
                return earlier, later, Merging(one, other, earlier.count, self._tuning.shared_moves)
        return None

    def _replace(self, earlier: Link, later: Link, merging: Merging) -> None:
        """Put the merged subwindow in place of the two."""
        count = earlier.count + later.count
        ends = min(earlier.oldest, later.oldest), max(earlier.newest, later.newest)
        merged = Link(merging.finished(), later.choice, later.access, count, earlier.first, count, *ends)
        at = self._links.index(earlier)
        self._links[at] = merged
        del self._links[at + 1]
        self._grouped = False

    def _note(self, choice: Choice) -> None:
        """Record the choice if it differs from the last one."""
        kind = choice.structure, choice.condition
        if kind != self._kind:
            self._kind = kind
            self.workload.changes.append(f"{kind[0]} on {kind[1]} at {len(self):,} tuples: {choice.reason}")

    def _fill(self, link: Link, ts: np.ndarray, rows: Stored, nulls: bool) -> None:
        """Insert into one link. Tuples with a NULL key match nothing and stay out of the index. `nulls`: whether
        there may be some."""
        count, keys = len(ts), link.access.keys(rows)
        slots = np.arange(link.count, link.count + count, dtype=np.int32)
        if nulls and not rows.all_known():
            keys, slots = keys[rows.known], slots[rows.known]
        if len(slots):
            link.subwindow.insert(keys, slots)
        oldest, newest = int(ts[0]), int(ts[-1])
        link.oldest = oldest if link.count == 0 else min(link.oldest, oldest)
        link.newest = newest if link.count == 0 else max(link.newest, newest)
        link.count += count

    def probe(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team = ALONE
    ) -> Iterator[int]:
        """Ask each subwindow in reach for candidates, and check those for the rest of the predicate.

        A team shares the probes, not the subwindows: subwindows find different numbers of candidates, so each part
        asks all of them.
        """
        if not self._links or not len(probes.ts):
            return
        kept = None
        if probes.nulls and not probes.probing.all_known():
            kept = np.flatnonzero(probes.probing.known)
            probes, reach = probes.pick(kept), reach.pick(kept)
            if not len(kept):
                return
        self.workload.observe(probes.probing)
        few = len(probes.ts) * len(self._links) <= self._tuning.shared_lookups
        if few and self._disorder <= self._gone and (groups := self._current_groups()):
            stretches = self._look_up_together(probes, reach, groups, pairs)
        else:
            stretches = self._look_up_each(probes, reach, pairs, team)
        compared = pairs.compared
        for before in stretches:
            self.comparisons += pairs.compared - compared
            compared = pairs.compared
            if kept is not None:
                pairs.probe[before : pairs.count] = kept[pairs.probe[before : pairs.count]]
            yield before

    def _current_groups(self) -> list[Group]:
        """The links by how they are asked, with the present parts; none if some must be asked one by one."""
        if not self._grouped:
            self._groups, self._grouped = self._make_groups(), True
        elif self._groups:
            newest, parts = self._links[-1].subwindow.parts, self._groups[-1].parts
            assert newest is not None
            parts[-len(newest) :, :-1] = newest[:, :-1]
        return self._groups

    def _make_groups(self) -> list[Group]:
        kinds: dict[tuple[str, Access], list[Link]] = {}
        for link in reversed(self._links):
            if link.subwindow.parts is None:
                return []
            kinds.setdefault((link.choice.structure, link.access), []).insert(0, link)
        return [_grouped(links) for links in reversed(kinds.values())]

    def _look_up_together(
        self, probes: ProbingTuples, reach: Reach, groups: list[Group], pairs: PairBuffer
    ) -> Iterator[int]:
        """Ask all links with one call for each group. It knows their memory by address, so they must not change until
        it ends."""
        start, stop = reach.positions(self.ts)
        for access, probe_all, parts in groups:
            for before in ask(
                partial(probe_all, parts, self._gone), access.questions(probes.probing), start, stop, pairs
            ):
                pairs.compared += pairs.count - before
                if access.unchecked[0]:
                    check_bands(access, self._rows.keys, probes.probing, pairs, before)
                yield before

    def _look_up_each(
        self, probes: ProbingTuples, reach: Reach, pairs: PairBuffer, team: Team
    ) -> Iterator[int]:
        """Ask the links one by one; a team shares the probes."""
        count = len(probes.ts)
        asked = list(self._in_reach(reach, count))
        parts = [slice(0, count)]
        if team.workers > 1:
            parts = cuts(count, self._tuning.shared_lookups // max(len(asked), 1), team.workers)
        if len(parts) == 1:
            return self._look_up(probes, asked, parts[0], pairs)
        return team.share([partial(self._look_up, probes, asked, part) for part in parts], pairs)

    def _look_up(
        self, probes: ProbingTuples, asked: list[Asked], rows: slice, pairs: PairBuffer
    ) -> Iterator[int]:
        """Probe with some of the probes; changes nothing but `pairs`."""
        all_of_them = rows.stop - rows.start == len(probes.ts)
        some = probes if all_of_them else probes.pick(rows)
        questions = dict[Access, Intervals]()
        for link, start, stop, times in asked:
            if link.access not in questions:
                questions[link.access] = self._questions(link, some, asked)
            if not all_of_them:
                start, stop = start[rows], stop[rows]
                times = None if times is None else (times[0][rows], times[1][rows])
            yield from self._ask(link, some, start, stop, times, questions[link.access], rows.start, pairs)

    def _questions(self, link: Link, probes: ProbingTuples, asked: list[Asked]) -> Intervals:
        """The questions of the probes, for a link and all others with the same access."""
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
        """Ask one subwindow for some of the probes, whose numbers start at `first`."""
        begin = np.int32(link.first - self._gone)
        checked = timed is not None or link.access.unchecked[0]
        for before in ask(link.subwindow.probe, questions, start, stop, pairs):
            if pairs.count > before:
                pairs.compared += pairs.count - before
                pairs.pos[before : pairs.count] += begin
                if checked:
                    check_bands(link.access, self._rows.keys, probes.probing, pairs, before, self.ts, timed)
                if first:
                    pairs.probe[before : pairs.count] += np.int32(first)
            yield before

    def _in_reach(self, reach: Reach, count: int) -> Iterator[Asked]:
        """The links that some probe may reach. A row window takes its tuples in order, so positions alone determine
        the last rows before a probe."""
        if self._disorder > self._gone:
            times = reach.times()
            for link in self._links:
                if not reach.misses(link.oldest, link.newest):
                    covered = reach.covers(link.oldest, link.newest)
                    ends = whole(count, max(0, self._gone - link.first), link.count)
                    yield link, *ends, None if covered else times
            return
        start, stop = reach.positions(self.ts)
        # Neither end decreases from probe to probe.
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
        """All tuples held, in order of arrival; valid until the next change."""
        return self._rows.tuples()

    def expire(self, before: int) -> None:
        """Drop the oldest subwindows while all of their tuples can go, and parts of a large one."""
        while self._links and self._links[0].newest < before:
            self._drop_first()
        if self._links and self._links[0].count > self._tuning.largest_subwindow:
            part = self._droppable_part()
            while part and len(self) >= part and self.ts[part - 1] < before:
                self._drop_rows(part)

    def expire_first(self, count: int) -> None:
        """As `expire`."""
        while self._links and (held := self._links[0].first + self._links[0].count - self._gone) <= count:
            self._drop_first()
            count -= held
        if part := self._droppable_part():
            self._drop_rows(count // part * part)

    def _droppable_part(self) -> int:
        """How many rows of the oldest subwindow are dropped at a time before its index; 0 if the subwindow is small,
        or holds tuples that arrived out of order."""
        if (
            not self._links
            or self._links[0].count <= self._tuning.largest_subwindow
            or self._disorder > self._gone
        ):
            return 0
        return max(1, self._links[0].count // DROPPED_PARTS)

    def _drop_first(self) -> None:
        link = self._links.popleft()
        self._grouped = False
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


def _grouped(links: list[Link]) -> Group:
    """A group of links that have parts."""
    each = [cast(Together, link.subwindow) for link in links]
    parts = np.concatenate([subwindow.parts for subwindow in each])
    parts[:, -1] = np.repeat([link.first for link in links], len(each[0].parts))
    return Group(links[0].access, each[0].probe_all, parts)


def is_sorted(link: Link) -> bool:
    """Whether a subwindow's main array is sorted: it can be merged, and answers with records."""
    return link.choice.structure == "bisort"


def whole(probes: int, first: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """All slots from `first` on, for every probe."""
    start, stop = np.empty(probes, np.int64), np.empty(probes, np.int64)
    start.fill(first)
    stop.fill(slots)
    return start, stop
