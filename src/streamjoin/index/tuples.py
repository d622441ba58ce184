"""Tuples of one side, prepared for the kernels: the type that windows, topologies and the Spark worker exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from streamjoin.codegen.prepared import Probing, RowChoice, Stored

# Numbers that a topology stores with a tuple: the least place it reaches, its event time, its row number.
Mark = Literal["since", "time", "row"]
NO_MARKS: Mapping[Mark, np.ndarray] = {}


@dataclass(slots=True, eq=False)
class Tuples:
    """Tuples as a window keeps them, in the total order. Not frozen, since every push makes some and that would cost
    time, but never changed.

    `ts`: event times, or places if a topology has stamped them (int64). `id`: row numbers (int64). `source`: the
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

    def pick(self, rows: RowChoice) -> Tuples:
        """Some of the tuples, in the form for a window."""
        marks = {mark: values[rows] for mark, values in self.marks.items()} if self.marks else NO_MARKS
        stored = self.stored.pick(rows)
        return Tuples(self.ts[rows], self.id[rows], self.source[rows], stored, self.nulls, marks=marks)


@dataclass(slots=True, eq=False)
class ProbingTuples(Tuples):
    """Tuples that also probe the other side's window. `since` and `until`: the least and the greatest place that each
    tuple reaches, if a topology has stamped them."""

    probing: Probing
    since: np.ndarray | None = field(default=None, kw_only=True)
    until: np.ndarray | None = field(default=None, kw_only=True)

    def pick(self, rows: RowChoice) -> ProbingTuples:
        """Some of the tuples."""
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

    def kept(self, rows: RowChoice) -> Tuples:
        """Some of the tuples, in the form for a window."""
        return Tuples.pick(self, rows)


_NONE = np.empty(0, np.int64)
NO_TUPLES = ProbingTuples(
    _NONE, _NONE, np.empty(0, np.int32), Stored(), False, Probing(np.empty(0, np.bool_))
)
TS, ID, SOURCE, FIRST_KEY = 0, 1, 2, 3  # positions in the list of `Layout.flat`


class Layout(NamedTuple):
    """Turns tuples into a list of arrays and back, for containers that treat all columns alike.

    The list holds ts, id, source, the stored columns, `known` if present, the marks, and then the columns for
    probing.
    """

    stored: Stored
    marks: tuple[Mark, ...]
    probing: Probing | None
    stamps: tuple[bool, bool] = (False, False)  # whether `since` and `until` are present

    @classmethod
    def of(cls, tuples: Tuples, with_probing: bool = True) -> Layout:
        """The layout of these tuples; keeps no reference to their memory."""
        stored = tuples.stored.with_arrays([a[:0].copy() for a in tuples.stored.arrays()])
        if not (with_probing and isinstance(tuples, ProbingTuples)):
            return cls(stored, tuple(tuples.marks), None)
        probing = tuples.probing.with_arrays([a[:0].copy() for a in tuples.probing.arrays()])
        return cls(stored, tuple(tuples.marks), probing, (tuples.since is not None, tuples.until is not None))

    def flat(self, tuples: Tuples) -> list[np.ndarray]:
        stored = tuples.stored
        arrays = [tuples.ts, tuples.id, tuples.source, *stored.columns]
        if stored.known is not None:
            arrays.append(stored.known)
        if self.marks:
            arrays += [tuples.marks[mark] for mark in self.marks]
        if self.probing is not None:
            assert isinstance(tuples, ProbingTuples)
            arrays += tuples.probing.arrays()
            arrays += [stamp for stamp in (tuples.since, tuples.until) if stamp is not None]
        return arrays

    def tuples(self, arrays: Sequence[np.ndarray], nulls: bool) -> Tuples:
        """The tuples of such a list, without the columns for probing."""
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
    """Concatenate tuples of the same layout."""
    if len(parts) == 1:
        return parts[0]
    layout = Layout.of(parts[0])
    columns = zip(*(layout.flat(part) for part in parts), strict=True)
    return layout.probing_tuples(
        [np.concatenate(column) for column in columns], any(part.nulls for part in parts)
    )
