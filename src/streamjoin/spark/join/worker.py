"""One worker's share of a join: what it does with the rows and the watermark of a micro-batch.

Every pair meets exactly once. With time windows and `order="any"`, a row probes *at once* all rows of the other side
that came earlier; of the rows of one micro-batch, the left ones probe the right ones. With row windows or
`order="timestamp"`, a row waits in the state until it is *settled*: the watermark has passed it, so no row before it in
the total order can still come. Then it probes the rows that precede it in that order.

A row is *decided* once no partner can come any more. An outer or anti join returns an unmatched row at that moment, and
only once, because the watermark passes it only once. A run may be dropped once all its rows are decided.

In an as-of or nearest join only left rows probe, and only when they are decided (`picks.py`).

All of this follows from the input, the watermark and the previous state. So a repeated micro-batch gives the same rows,
whichever worker, host or process runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa

from streamjoin.index.tuples import ProbingTuples
from streamjoin.semantics.spec import OTHER, SIDES
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import first_copies, gathered, groups
from streamjoin.spark.join.picks import Picker
from streamjoin.spark.join.prober import Ids, SparkProber
from streamjoin.spark.join.step import StepRows, moved_back
from streamjoin.spark.join.task import BEGIN_OF_TIME, END_OF_TIME, JoinTask
from streamjoin.spark.state.content import (
    Content,
    Contents,
    Misses,
    StoredGroups,
    StoredRows,
    all_at_once,
    in_order,
    in_pieces,
    tie_of,
)
from streamjoin.spark.state.manifest import State
from streamjoin.spark.state.pieces import cut, sizes_of

Batches = Mapping[str, Sequence[pa.RecordBatch]]


class SparkWorker:
    """Joins what one micro-batch brings to worker `number`. `step` is called once."""

    def __init__(self, task: JoinTask, number: int, state: State, counts: Counts):
        self.task, self.number, self.state, self.counts = task, number, state, counts
        self._probed: dict[str, ProbingTuples] = {}  # by side, the last rows that probed it

    def step(self, batches: Batches, watermark: int) -> Iterator[pa.RecordBatch]:
        """Join the new rows, then everything that the watermark makes final. Yields result rows; the state changes when
        the caller has taken the last of them. `watermark`: no row at or before it will come; END_OF_TIME if no row will
        come at all."""
        state, task = self.state, self.task
        watermark = max(watermark, state.acted)
        self.counts.turn("conversion")
        self._late: list[tuple[str, pa.RecordBatch]] = []
        self.fresh = {side: self._fresh(side, batches.get(side, ()), watermark) for side in SIDES}
        self.counts.turn("state")
        fits = state.fits
        self.contents = {
            side: Contents([*state.all_contents(side, loaded=fits), *self.fresh[side]]) for side in SIDES
        }
        self.rows = StepRows(task, self.number, state, self.contents)
        self.matched = {side: self._matched(side) for side in task.kept}
        self._before = {side: flags.copy() for side, flags in self.matched.items()}
        yield from gathered(
            self._joined(watermark), self.task.tuning.result_rows, self.task.tuning.result_bytes
        )
        self.counts.turn("state")
        self._keep(watermark)

    def prepare(self) -> None:
        """Prepare layers and indexes for the next micro-batch, assuming that its rows resemble the last ones. Changes
        only caches in memory; results do not depend on it."""
        for side, probes in self._probed.items():
            self.state.prepare(side, probes)

    def _fresh(self, side: str, batches: Sequence[pa.RecordBatch], watermark: int) -> list[Content]:
        """The new rows of a side without late ones: one content, or several if they are large."""
        rows = [batch for batch in batches if batch.num_rows]
        self.counts.rows_in += sum(batch.num_rows for batch in rows)
        if side in self.task.watermarked and BEGIN_OF_TIME < watermark < END_OF_TIME:
            rows = [self._on_time(side, batch, watermark) for batch in rows]
            rows = [batch for batch in rows if batch.num_rows]
        return [in_order(self.task, side, some)[0] for some in groups(rows, self.task.tuning.run_bytes)]

    def _on_time(self, side: str, batch: pa.RecordBatch, watermark: int) -> pa.RecordBatch:
        on_time = self.task.times(batch, side) > watermark
        if on_time.all():
            return batch
        late = first_copies(self.task, self.number, side, batch.filter(pa.array(~on_time)))
        self.counts.late += late.num_rows
        if self.task.late is not None:
            self._late.append((side, late))
        return batch.filter(pa.array(on_time))

    def _matched(self, side: str) -> np.ndarray:
        """Whether each row of a side has found a partner so far, by id."""
        flags = [self.state.matched(side, run) for run in self.state.runs[side]]
        new = sum(len(content) for content in self.fresh[side])
        return np.concatenate([*flags, np.zeros(new, np.bool_)])

    # Results

    def _joined(self, watermark: int) -> Iterator[pa.RecordBatch]:
        for side, rows in self._late:
            yield from self._late_rows(side, rows)
        prober = SparkProber(self.task, self.contents)
        if self.task.picks:
            yield from self._picked(prober, watermark)
            self.counts.candidates += prober.candidates
            return
        for probing in SIDES:
            self.counts.turn("kernel")
            for pairs in self._pairs(prober, probing, watermark):
                self.counts.turn("conversion")
                yield from self._rows(self._found(pairs))
                self.counts.turn("kernel")
        self.counts.candidates += prober.candidates
        for side in self.task.alone:
            self.counts.turn("conversion")
            yield from self._rows({side: self._unmatched(side, watermark)})

    def _picked(self, prober: SparkProber, watermark: int) -> Iterator[pa.RecordBatch]:
        """The pairs that left rows pick, and left rows that pick none if they are asked for."""
        self.counts.turn("kernel")
        self._picker = Picker(self.rows, prober, lambda probes: self._stored("right", probes))
        for pairs, alone in self._picker.picked(watermark):
            self.counts.matches += len(pairs["left"])
            self.counts.turn("conversion")
            yield from self._rows(pairs)
            if self.task.alone:
                self.counts.unmatched += len(alone)
                yield from self._rows({"left": alone})
            self.counts.turn("kernel")

    def _pairs(self, prober: SparkProber, probing: str, watermark: int) -> Iterator[Ids]:
        stored, mine = self.contents[OTHER[probing]], self.contents[probing]
        if not stored.contents or not mine.contents:
            return iter(())
        delta = self.task.compiled.plan.delta
        if self.task.settles and delta is not None and probing != ("left" if delta.hi < 0 else "right"):
            return iter(())  # all partners of its rows are later
        if self.task.settles:
            return self._settled_pairs(prober, probing, mine.between(self.state.acted, watermark))
        return self._pairs_at_once(prober, probing)

    def _settled_pairs(
        self, prober: SparkProber, probing: str, places: Sequence[tuple[int, int]]
    ) -> Iterator[Ids]:
        """The pairs of settled rows, between these places of each content, with all rows before them."""
        mine = self.contents[probing]
        if self.task.spec.delta is None:  # to count rows, all are read anyway
            settled = mine.probes(places)
            groups = iter([] if settled is None else [settled])
        else:
            groups = mine.probe_groups(places)
        for group in groups:
            probes = self._own(probing, group)
            yield from prober.pairs(probing, probes, self._settled_rows(OTHER[probing], probes))

    def _pairs_at_once(self, prober: SparkProber, probing: str) -> Iterator[Ids]:
        """The pairs of new rows with all rows that they may meet."""
        new = self.fresh[probing]
        for content, start in zip(new, self._starts_of_new(probing), strict=True):
            rows = content.tuples
            probes = replace(rows, id=rows.id + start)
            # The new left rows have probed the new right ones.
            met = self._stored(OTHER[probing], probes, new=probing == "left")
            yield from prober.pairs(probing, probes, met)

    def _starts_of_new(self, side: str) -> list[int]:
        """The first ids of new contents."""
        starts: list[int] = self.contents[side].starts.tolist()
        return starts[len(self.state.runs[side]) :]

    def _stored(self, side: str, probes: ProbingTuples, new: bool = True) -> StoredGroups:
        """All rows of a side, as these probes meet them. `new`: with the new rows."""
        if len(probes):
            self._probed[side] = probes
        contents, fresh = self.contents[side], []
        if new:
            starts = zip(self.fresh[side], self._starts_of_new(side), strict=True)
            fresh = [StoredRows(content.indexed, start) for content, start in starts]
        if not contents.unloaded:
            return all_at_once([*self.state.layered(side, contents), *fresh])
        held = [partial(self._loaded, side, places) for places in self.state.groups(side)]
        return [*held, *all_at_once(fresh)]

    def _loaded(self, side: str, places: slice, misses: Misses) -> list[StoredRows]:
        """Some runs of a state that is not in memory, without those that probes miss."""
        contents = self.contents[side]
        found = zip(
            self.state.runs[side][places], contents.contents[places], contents.starts[places], strict=True
        )
        return [
            StoredRows(content.indexed, int(start))
            for run, content, start in found
            if not misses(run.oldest, run.newest)
        ]

    def _own(self, side: str, probes: ProbingTuples) -> ProbingTuples:
        """The probes of this worker. Where every worker gets all rows, each probes with its share."""
        if self.task.routing.kind != "every" or self.task.routing.workers == 1:
            return probes
        contents = self.contents[side]
        tie = np.concatenate([tie_of(content) for content in contents.contents])[probes.id]
        return probes.pick(self.rows.owned(tie))

    def _settled_rows(self, side: str, probes: ProbingTuples) -> StoredGroups:
        """The rows that settled rows probe. A row window counts rows, so its rows must be in one total order."""
        if not self.task.spec.side_window(side).rows:
            return self._stored(side, probes)
        content, order = self.rows.total_order(side)
        return all_at_once([StoredRows(content.indexed, order)])

    def _found(self, pairs: Ids) -> Ids:
        """The result rows that new pairs give, as ids by side."""
        self.counts.matches += len(pairs["left"])
        if self.task.spec.how == "semi":
            found = np.unique(pairs["left"])
            found = found[~self.matched["left"][found]]
            self.matched["left"][found] = True
            return {"left": found}
        for side in self.task.kept:
            self.matched[side][pairs[side]] = True
        return {} if self.task.spec.how == "anti" else pairs

    def _unmatched(self, side: str, watermark: int) -> np.ndarray:
        """The ids of the rows of a side that this step decides and that have no partner."""
        decided = self._decided(side, watermark)
        alone: np.ndarray = decided[~self.matched[side][decided]]
        self.counts.unmatched += len(alone)
        return alone

    def _rows(self, ids: Mapping[str, np.ndarray]) -> Iterator[pa.RecordBatch]:
        """The result rows made of these rows, in batches of bounded rows and bytes. The columns of a side that is not
        in `ids` are NULL."""
        if not any(map(len, ids.values())):
            return
        chosen, names = self.task.chosen, self._names
        nothing = sum(pa.nulls(1, field.type).nbytes for side, field, _ in chosen if side not in ids)
        for piece in in_pieces(self.contents, ids, names, self.task.tuning, nothing):
            self.counts.turn("conversion")
            found = {
                side: self.contents[side].columns(numbers[piece], names[side])
                for side, numbers in ids.items()
            }
            yield self._result_batch(found, piece.stop - piece.start, late=False)

    def _result_batch(
        self, found: Mapping[str, Sequence[pa.Array]], count: int, late: bool
    ) -> pa.RecordBatch:
        """Result rows. `found`: by side the columns `_names`; those of a side that is missing are NULL."""
        places = {side: {name: at for at, name in enumerate(names)} for side, names in self._names.items()}
        columns = [
            found[side][places[side][field.name]] if side in found else pa.nulls(count, field.type)
            for side, field, _ in self.task.chosen
        ]
        if self.task.late is not None:
            columns.append(marks(late, count))
        return pa.RecordBatch.from_arrays(columns, names=self.task.schema.names)

    @cached_property
    def _names(self) -> dict[str, tuple[str, ...]]:
        """By side, the columns of result rows."""
        chosen = self.task.chosen
        return {side: tuple(dict.fromkeys(f.name for of, f, _ in chosen if of == side)) for side in SIDES}

    def _late_rows(self, side: str, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows that came too late, as result rows without the other side, in batches as `_rows` gives."""
        tuning = self.task.tuning
        columns = [rows.column(name) for name in self._names[side]]
        sizes = sizes_of(columns) if columns else 1
        for piece in cut(rows.num_rows, sizes, tuning.result_rows, tuning.result_bytes):
            count = piece.stop - piece.start
            found = {side: [column.slice(piece.start, count) for column in columns]}
            yield self._result_batch(found, count, late=True)

    def _decided(self, side: str, watermark: int) -> np.ndarray:
        """The ids of the rows that this watermark decides."""
        return self.rows.decided(side, watermark)

    # State

    def _keep(self, watermark: int) -> None:
        """Keep the new rows, drop runs that no row can meet any more, and merge the rest."""
        state = self.state
        for side in SIDES:
            runs, contents, new = list(state.runs[side]), self.contents[side], self._starts_of_new(side)
            matched = self.matched.get(side)
            expired = self._expiry(side, watermark)
            for run, start in zip(runs, contents.starts, strict=False):
                if expired(run.newest):
                    state.drop(side, run)
                elif matched is not None:
                    rows = slice(start, start + run.rows)
                    if (matched[rows] != self._before[side][rows]).any():
                        state.mark(run, matched[rows])
            for content, start in zip(self.fresh[side], new, strict=True):
                if not expired(int(content.ts[-1])):
                    rows = slice(start, start + len(content))
                    state.add(side, content, None if matched is None else matched[rows])
            state.merge(side)
        state.acted = watermark

    def _expiry(self, side: str, watermark: int) -> Callable[[int], bool]:
        """A function that says whether no row after the watermark can meet rows up to a time."""
        kept = self.task.waits[side].kept
        if kept is not None:
            past = moved_back(watermark, kept)
            return lambda newest: past > BEGIN_OF_TIME and newest <= past
        every = np.sort(
            np.concatenate([np.empty(0, np.int64), *(c.ts for c in self.contents[side].contents)])
        )
        settled = every[: every.searchsorted(watermark, "right")]
        first = (
            len(settled) - self.task.spec.side_window(side).size
        )  # the place of the first row that is needed
        if self.task.picks and side == "right":
            first = self._picker.first_needed(every, watermark)

        def expired(newest: int) -> bool:
            if newest > watermark or watermark == END_OF_TIME:
                return newest <= watermark
            return int(settled.searchsorted(newest, "right")) <= first

        return expired

    def wake_at(self) -> int | None:
        """The least watermark at which a row settles, is decided or expires; None if there is none."""
        times, acted = [], self.state.acted
        for side in SIDES:
            waits = self.task.waits[side]
            if waits.kept is not None:
                times += [run.newest + waits.kept for run in self.state.runs[side]]
            for content in self.contents[side].contents:
                if self.task.settles:
                    times += content.next_after(acted)
                if waits.decided is None or not (side in self.matched or self.task.picks):
                    continue
                decided = moved_back(acted, waits.decided)
                times += [ts + waits.decided for ts in content.next_after(decided)]
                if waits.kept is not None and waits.kept != waits.decided:
                    unsent = content.next_after(moved_back(acted, waits.kept))
                    times += [acted + 1 for ts in unsent if ts <= decided]  # decided, and waits for its turn
        return min((ts for ts in times if ts < END_OF_TIME), default=None)


def marks(late: bool, count: int) -> pa.Array:
    """The column that says which rows came too late."""
    return pa.array(np.full(count, late))
