"""Tuples of one side, prepared for the kernels: the type that windows, topologies and the Spark worker exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from streamjoin.codegen.prepared import Probing, Rows, Stored

# Numbers that a topology stores beside a tuple: the least place it reaches, its event time, its row number.
Mark = Literal["since", "time", "row"]
NO_MARKS: Mapping[Mark, np.ndarray] = {}


@dataclass(frozen=True, slots=True)
class Tuples:
    """Tuples as a window keeps them, in the total order.

    `ts`: event times, or places where a topology has stamped them (int64). `id`: row numbers (int64). `source`: the
    number of the physical stream (int32). `nulls`: whether a key, a bound or a column may be NULL.
    """

    ts: np.ndarray
    id: np.ndarray
    source: np.ndarray
    stored: Stored
    nulls: bool
    marks: Mapping[Mark, np.ndarray] = field(default_factory=lambda: NO_MARKS, kw_only=True)

    def __len__(self) -> int:
        return len(self.ts)

    def pick(self, rows: Rows) -> Tuples:
        """Some of them, as a window keeps them."""
        marks = {mark: values[rows] for mark, values in self.marks.items()} if self.marks else NO_MARKS
        stored = self.stored.pick(rows)
        return Tuples(self.ts[rows], self.id[rows], self.source[rows], stored, self.nulls, marks=marks)


@dataclass(frozen=True, slots=True)
class ProbingTuples(Tuples):
    """Tuples that probe the other side's window as well. `since` and `until`: the least and the greatest place that
    each reaches, where a topology has stamped them."""

    probing: Probing
    since: np.ndarray | None = field(default=None, kw_only=True)
    until: np.ndarray | None = field(default=None, kw_only=True)

    def pick(self, rows: Rows) -> ProbingTuples:
        """Some of them."""
        since, until = self.since, self.until
        return ProbingTuples(
            self.ts[rows],
            self.id[rows],
            self.source[rows],
            self.stored.pick(rows),
            self.nulls,
            self.probing.pick(rows),
            marks={mark: values[rows] for mark, values in self.marks.items()} if self.marks else NO_MARKS,
            since=None if since is None else since[rows],
            until=None if until is None else until[rows],
        )

    def kept(self, rows: Rows) -> Tuples:
        """Some of them, as a window keeps them."""
        return Tuples.pick(self, rows)


_NONE = np.empty(0, np.int64)
NO_TUPLES = ProbingTuples(
    _NONE, _NONE, np.empty(0, np.int32), Stored(), False, Probing(np.empty(0, np.bool_))
)
TS, ID, SOURCE, FIRST_KEY = 0, 1, 2, 3  # positions in what `Layout.flat` gives


class Layout(NamedTuple):
    """How tuples become a list of arrays and back, for containers that treat all columns alike.

    The list holds ts, id, source, the stored columns, `known` if there is one, the marks, and then what probing takes.
    """

    stored: Stored
    marks: tuple[Mark, ...]
    probing: Probing | None
    stamps: tuple[bool, bool] = (False, False)  # whether there is `since`, and `until`

    @classmethod
    def of(cls, tuples: Tuples, with_probing: bool = True) -> Layout:
        """Holds no memory of the tuples."""
        stored = tuples.stored.with_arrays([a[:0].copy() for a in tuples.stored.arrays()])
        if not (with_probing and isinstance(tuples, ProbingTuples)):
            return cls(stored, tuple(tuples.marks), None)
        probing = tuples.probing.with_arrays([a[:0].copy() for a in tuples.probing.arrays()])
        return cls(stored, tuple(tuples.marks), probing, (tuples.since is not None, tuples.until is not None))

    def flat(self, tuples: Tuples) -> list[np.ndarray]:
        arrays = [tuples.ts, tuples.id, tuples.source, *tuples.stored.arrays()]
        arrays += [tuples.marks[mark] for mark in self.marks]
        if self.probing is not None:
            assert isinstance(tuples, ProbingTuples)
            arrays += tuples.probing.arrays()
            arrays += [stamp for stamp in (tuples.since, tuples.until) if stamp is not None]
        return arrays

    def tuples(self, arrays: Sequence[np.ndarray], nulls: bool) -> Tuples:
        """The tuples of such a list, without what they need for probing."""
        stored, marks = self._stored(arrays)
        return Tuples(arrays[TS], arrays[ID], arrays[SOURCE], stored, nulls, marks=marks)

    def probing_tuples(self, arrays: Sequence[np.ndarray], nulls: bool) -> ProbingTuples:
        assert self.probing is not None
        stored, marks = self._stored(arrays)
        rest = iter(arrays[FIRST_KEY + len(self.stored.arrays()) + len(self.marks) :])
        probing = self.probing.with_arrays([next(rest) for _ in self.probing.arrays()])
        since, until = (next(rest) if there else None for there in self.stamps)
        return ProbingTuples(
            *(arrays[TS], arrays[ID], arrays[SOURCE], stored, nulls, probing),
            marks=marks, since=since, until=until,
        )  # fmt: skip

    def _stored(self, arrays: Sequence[np.ndarray]) -> tuple[Stored, dict[Mark, np.ndarray]]:
        count = len(self.stored.arrays())
        marks = arrays[FIRST_KEY + count : FIRST_KEY + count + len(self.marks)]
        stored = self.stored.with_arrays(arrays[FIRST_KEY : FIRST_KEY + count])
        return stored, dict(zip(self.marks, marks, strict=True))


def concatenated(parts: Sequence[ProbingTuples]) -> ProbingTuples:
    """Tuples of one kind, one after the other."""
    if len(parts) == 1:
        return parts[0]
    layout = Layout.of(parts[0])
    columns = zip(*(layout.flat(part) for part in parts), strict=True)
    return layout.probing_tuples(
        [np.concatenate(column) for column in columns], any(part.nulls for part in parts)
    )
