"""A predicate compiled for one window: how stored tuples and probes are prepared, and the scan that joins them.

Three ways, chosen by what the predicate offers:
- *bands*: interval conditions as vector masks; the residual is checked on the pairs that pass;
- *blocks*: any other condition over numbers, evaluated on blocks of the window;
- all pairs, where every condition needs strings: the residual decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from streamjoin.codegen.blocks import BUDGET, Pace, block_scan, callable_scan
from streamjoin.codegen.columns import ColumnData, arguments
from streamjoin.codegen.compile_cost import MOST, compile_cost
from streamjoin.codegen.evaluate import Bounds, DataByColumn, Keys, key_dtype, key_limits
from streamjoin.codegen.prepared import Probing, Stored
from streamjoin.codegen.tiled_scan import TiledScan
from streamjoin.jit import readiness
from streamjoin.jit.decorator import is_ready
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.hash import tables as hashing
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.scan.bands import CURSOR_BUDGET, BandShape, band_scan
from streamjoin.kernels.sorted import intervals
from streamjoin.semantics.analysis import AccessPath, Band, Clause
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, columns, walk
from streamjoin.semantics.types import BOOL, Type

# Units of work in one call of a band scan: at most two billion comparisons, a fifth of a second.
UNITS = 1 << 18
# Arguments of a scan, for their types: positions; cursor, output and number of pairs.
NO_POSITIONS = np.empty(0, np.int64)
SOME_PAIRS = np.zeros(CURSOR_SIZE, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), 0
COMPOSITE = -1  # used as the number of a band: all equalities together


class Intervals(NamedTuple):
    """Closed intervals of a key that probes ask for. Interval i belongs to probe asking[i], or to probe i if `asking`
    is None. Intervals of one probe do not overlap."""

    lows: np.ndarray
    highs: np.ndarray
    asking: np.ndarray | None = None


class WindowProgram:
    """The join predicate, for a window that stores tuples of `stored` and is probed by the other side.

    `prepare_stored` and `prepare_probe` turn columns into fixed-width arrays, once per tuple;
    `scan` needs only those. `residual`, if not None, must be checked on every pair that comes out.
    """

    def __init__(
        self, predicate: Expr | CallablePredicate, path: AccessPath | None, stored: str, indexed: bool = False
    ):
        """`indexed`: an index will serve a clause, so keep the clauses even where a scan would evaluate the whole
        predicate as a block."""
        self.stored, self._indexed = stored, indexed
        self.clauses: tuple[Clause, ...] = ()
        # For each clause, before missing ends are filled in: whether every band has both ends.
        self._two_ended: list[bool] = []
        self.block: Expr | CallablePredicate | None = None
        self._pace = Pace()  # of scans of the block; shared by all windows and threads
        self.residual: Expr | None = None
        if isinstance(predicate, CallablePredicate) or path is None:
            self.block = predicate
        else:
            self._choose(predicate, path)
        self.bounds = Bounds(self.clauses)
        self.keys = Keys(tuple(dict.fromkeys(band.key for band in self.bounds.bands)))

    def _choose(self, predicate: Expr, path: AccessPath) -> None:
        kept = [clause for clause in path.clauses if has_one_key(clause)]
        others = [_as_condition(clause) for clause in path.clauses if clause not in kept]
        residual = conjunction([*others, *([path.residual] if path.residual is not None else [])])
        two_sided = any(
            c.bands[0].lo is not None and c.bands[0].hi is not None for c in kept if len(c.bands) == 1
        )
        if kept and (residual is None or two_sided or self._indexed):
            self.clauses = tuple(_scannable(clause, self._indexed) for clause in kept)
            self._two_ended = [has_two_ends(clause) for clause in kept]
            self.residual = residual
            return
        conjuncts = predicate.args if isinstance(predicate, Call) and predicate.op == "and" else (predicate,)
        numeric = [part for part in conjuncts if not reads_text(part)]
        self.block = conjunction(numeric)
        self.residual = conjunction([part for part in conjuncts if part not in numeric])

    @cached_property
    def block_columns(self) -> tuple[Column, ...]:
        if isinstance(self.block, CallablePredicate):
            return self.block.columns
        return columns(self.block) if self.block is not None else ()

    @cached_property
    def _tiled(self) -> TiledScan | None:
        """The scan of a block that would take long to compile."""
        if self.block is None or isinstance(self.block, CallablePredicate):
            return None
        return None if compile_cost([self.block]) <= MOST else self._substitute

    @cached_property
    def _substitute(self) -> TiledScan:
        """Runs in the scan's place while the scan of a block is being compiled."""
        assert self.block is not None and not isinstance(self.block, CallablePredicate)
        return TiledScan(self.block, self.stored)

    @property
    def method(self) -> str:
        """How pairs are found, in words."""
        if isinstance(self.block, CallablePredicate):
            return "scan, compiled callable"
        if self.block is not None:
            return "scan, compiled expression" if self._tiled is None else "scan, evaluated column by column"
        return f"scan, {len(self.bounds.bands)} vector band(s)" if self.clauses else "all pairs"

    @property
    def is_one_equality(self) -> bool:
        """Whether the predicate is one equality and nothing else."""
        return self.residual is None and len(self.bounds.bands) == 1 and self.clauses[0].is_equality

    @cached_property
    def text_keys(self) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
        """The text columns that equalities compare, of stored tuples and of probes, whose hashes are keys."""
        pairs = [
            (band.key.args[0], band.lo.args[0])
            for band in map(self.bounds.bands.__getitem__, self._equalities)
            if isinstance(band.key, Call) and band.key.op == "hash64" and isinstance(band.lo, Call)
        ]
        columns = [pair for pair in pairs if isinstance(pair[0], Column) and isinstance(pair[1], Column)]
        stored, probing = zip(*columns, strict=True) if columns else ((), ())
        return tuple(stored), tuple(probing)

    @property
    def number_keys(self) -> list[int]:
        """The equalities of numbers: the numbers of their bands."""
        keys = [self.bounds.bands[number].key for number in self._equalities]
        hashed = [isinstance(key, Call) and key.op == "hash64" for key in keys]
        return [number for number, text in zip(self._equalities, hashed, strict=True) if not text]

    @cached_property
    def compares_keys_only(self) -> bool:
        """Whether the predicate is equalities of numbers and text columns, and nothing else."""
        if not self._equalities or len(self._equalities) < len(self.clauses):
            return False
        left = self.residual
        conditions = (
            () if left is None else left.args if isinstance(left, Call) and left.op == "and" else (left,)
        )
        texts = {frozenset(pair) for pair in zip(*self.text_keys, strict=True)}
        compared = [
            frozenset(c.args) for c in conditions if isinstance(c, Call) and c.op == "eq" and len(c.args) == 2
        ]
        complete = len(self.number_keys) + len(self.text_keys[0]) == len(self._equalities)
        return complete and len(compared) == len(conditions) and texts.issuperset(compared)

    @cached_property
    def stored_columns(self) -> tuple[Column, ...]:
        """The columns `prepare_stored` reads."""
        return tuple(
            c for c in dict.fromkeys([*self.keys.columns, *self.block_columns]) if c.side == self.stored
        )

    @cached_property
    def probe_columns(self) -> tuple[Column, ...]:
        """The columns `prepare_probe` reads."""
        return tuple(
            c for c in dict.fromkeys([*self.bounds.columns, *self.block_columns]) if c.side != self.stored
        )

    def prepare_stored(self, data: DataByColumn, count: int) -> Stored:
        return self.stored_of([data[column] for column in self.stored_columns], count)

    def prepare_probe(self, data: DataByColumn, count: int) -> Probing:
        return self.probing_of([data[column] for column in self.probe_columns], count)

    def stored_of(self, used: Sequence[ColumnData], count: int) -> Stored:
        """The same as `prepare_stored`, for columns that are given in the order of `stored_columns`."""
        if self.block is not None:
            return Stored(_values_and_validity(used))
        keys, known = self.keys(used, count)
        return Stored(tuple(keys), known)

    def probing_of(self, used: Sequence[ColumnData], count: int) -> Probing:
        """The same as `prepare_probe`, for columns that are given in the order of `probe_columns`."""
        if self.block is not None:
            return Probing(np.ones(count, np.bool_), columns=_values_and_validity(used))
        return self._probing(*self.bounds(used, count))

    def probing_of_values(self, values: Sequence[np.ndarray], count: int) -> Probing:
        """The same as `probing_of`, for plain columns without NULLs, given by their values."""
        if self.block is not None:
            return self.probing_of([ColumnData((each,)) for each in values], count)
        return self._probing(*self.bounds.of_values(values, count))

    def _probing(self, lows: list[np.ndarray], highs: list[np.ndarray], known: np.ndarray) -> Probing:
        if self._alternatives:
            self._separate(lows, highs)
        if self._two_bounds:
            return Probing(known, tuple(lows), tuple(highs))
        bands = self.bounds.bands
        return Probing(
            known,
            tuple([low if band.lo is not None else None for low, band in zip(lows, bands, strict=True)]),
            tuple([high if band.hi is not None else None for high, band in zip(highs, bands, strict=True)]),
        )

    @cached_property
    def _two_bounds(self) -> bool:
        """Whether every band has both ends."""
        return all(band.lo is not None and band.hi is not None for band in self.bounds.bands)

    def _separate(self, lows: list[np.ndarray], highs: list[np.ndarray]) -> None:
        """Make the bands of each clause disjoint, probe by probe, so that an index finds each pair once."""
        for chosen in self._alternatives:
            low, high = np.stack(lows[chosen]), np.stack(highs[chosen])
            nothing = (np.nan, np.nan) if low.dtype.kind == "f" else key_limits(low.dtype)[::-1]
            intervals.make_disjoint(low, high, *map(low.dtype.type, nothing))
            lows[chosen], highs[chosen] = list(low), list(high)

    @cached_property
    def _alternatives(self) -> list[slice]:
        """The clauses of several bands, if an index will serve one of them."""
        bands = [self.bands_beside(number) for number in self._firsts] if self._indexed else []
        return [slice(each.start, each.stop) for each in bands if len(each) > 1]

    def scanner(self, window: Stored, probes: Probing, nulls: bool) -> Callable[..., int]:
        """The scan bound to a window's and the probes' arrays: `f(start, stop, cursor, pairs)` appends pairs
        until it is done, `pairs` is full, or a fraction of a second has passed. The protocol is that of
        `kernels.scan`."""
        if self.block is not None:
            return self._block_scanner(window, probes, nulls)
        keys, lows, highs = window.columns, probes.lows, probes.highs
        if not self._two_bounds:
            lows, highs = filled(lows, self._no_bounds), filled(highs, self._no_bounds)

        def scan(start: np.ndarray, stop: np.ndarray, cursor: np.ndarray, pairs: PairBuffer) -> int:
            cursor[CURSOR_BUDGET] = UNITS + 1
            return self._band_kernel(
                start, stop, keys, lows, highs, cursor, pairs.probe, pairs.pos, pairs.count
            )

        return scan

    @cached_property
    def _no_bounds(self) -> tuple[np.ndarray, ...]:
        """An empty array for each band, passed instead of a missing bound; kernels never read it."""
        return tuple([np.empty(0, key_dtype(band.key.type)) for band in self.bounds.bands])

    @cached_property
    def shapes(self) -> tuple[tuple[BandShape, ...], ...]:
        """The clauses in the form that kernels take."""
        numbers = {key: number for number, key in enumerate(self.keys.keys)}
        return tuple(
            tuple(
                BandShape(numbers[b.key], key_dtype(b.key.type).str[1:], b.lo is not None, b.hi is not None)
                for b in clause.bands
            )
            for clause in self.clauses
        )

    @cached_property
    def _band_kernel(self) -> Callable[..., int]:
        return band_scan(self.shapes)

    # For indexes, which serve one clause and leave the others to be checked. Bands are numbered clause after clause,
    # and the number of a clause's first band identifies the clause.

    @cached_property
    def _clause_of(self) -> list[int]:
        """The clause of each band."""
        return [number for number, clause in enumerate(self.clauses) for _ in clause.bands]

    @cached_property
    def _firsts(self) -> list[int]:
        """The first band of each clause."""
        return [self._clause_of.index(clause) for clause, _ in enumerate(self.clauses)]

    def bands_beside(self, number: int) -> range:
        """The bands of the clause that begins with band `number`."""
        return range(number, number + len(self.clauses[self._clause_of[number]].bands))

    def is_interval(self, number: int) -> bool:
        """Whether each band of the clause that begins with band `number` has two ends."""
        return self._two_ended[self._clause_of[number]]

    def indexable(self, equality: bool) -> list[int]:
        """The clauses that an index on one key can serve, single bands first. With `equality`, these are the
        equalities (COMPOSITE if there are several), or else clauses of alternative equalities. Otherwise they are the
        intervals with two ends, or else all clauses."""
        clauses = sorted(self._firsts, key=lambda number: len(self.bands_beside(number)))
        if equality:
            several = [number for number in clauses if is_equality(self.clauses[self._clause_of[number]])]
            return [COMPOSITE] if len(self._equalities) > 1 else self._equalities or several
        return [number for number in clauses if self.is_interval(number)] or clauses

    @cached_property
    def _equalities(self) -> list[int]:
        return [n for n in self._firsts if self.clauses[self._clause_of[n]].is_equality]

    @cached_property
    def _key_of(self) -> list[int]:
        """The number of each band's key."""
        return [self.keys.keys.index(band.key) for band in self.bounds.bands]

    def band_dtype(self, number: int) -> np.dtype:
        return np.dtype(np.int64) if number == COMPOSITE else key_dtype(self.bounds.bands[number].key.type)

    def key_number(self, number: int) -> int | None:
        """Which stored column is the key of one band; None for COMPOSITE."""
        return None if number == COMPOSITE else self._key_of[number]

    def key_of_band(self, stored: Stored, number: int) -> np.ndarray:
        """The key of one band, from prepared stored tuples; of COMPOSITE, a hash of all equality keys."""
        if number == COMPOSITE:
            return combined([self.key_of_band(stored, equality) for equality in self._equalities])
        return stored.columns[self._key_of[number]]

    def bounds_of_band(self, probing: Probing, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The lows and highs of one band for all probes; a missing bound is the extreme of the key's type."""
        if number == COMPOSITE:
            hashes = combined([low for e in self._equalities if (low := probing.lows[e]) is not None])
            return hashes, hashes
        low, high = probing.lows[number], probing.highs[number]
        if low is not None and high is not None:
            return low, high
        count, (least, most) = len(probing), key_limits(self.band_dtype(number))
        return (
            np.full(count, least, self.band_dtype(number)) if low is None else low,
            np.full(count, most, self.band_dtype(number)) if high is None else high,
        )

    def intervals(self, probing: Probing, number: int) -> Intervals:
        """The intervals that probes ask for, in an index on the clause that begins with band `number`.
        O(probes * bands)."""
        if number == COMPOSITE or len(self.bands_beside(number)) == 1:
            return Intervals(*self.bounds_of_band(probing, number))
        ends = zip(*(self.bounds_of_band(probing, band) for band in self.bands_beside(number)), strict=True)
        lows, highs = (np.concatenate(bounds) for bounds in ends)
        there = np.flatnonzero(lows <= highs)
        return Intervals(lows[there], highs[there], there % len(probing))

    def other_bands(self, number: int) -> tuple[tuple[tuple[BandShape, ...], ...], list[int]]:
        """The clauses to check after an index has served that of band `number`, and the numbers of their bands."""
        served = None if number == COMPOSITE else self._clause_of[number]  # equal hashes prove nothing
        rest = [other for other, clause in enumerate(self._clause_of) if clause != served]
        return tuple(shape for clause, shape in enumerate(self.shapes) if clause != served), rest

    def _block_scanner(self, window: Stored, probes: Probing, nulls: bool) -> Callable[..., int]:
        ours, theirs = iter(window.columns), iter(probes.columns)
        data = []
        for column in self.block_columns:
            role = ours if column.side == self.stored else theirs
            data.append(ColumnData((next(role),), next(role)))
        if isinstance(self.block, CallablePredicate):
            kernel, flat = callable_scan(self.block, self.stored, nulls), arguments(data, nulls)
        elif self._tiled is not None:
            if not window.columns or not len(window.columns[0]):
                self._tiled.rehearse()
            kernel, flat = self._tiled.bind(dict(zip(self.block_columns, data, strict=True))), []
        else:
            assert self.block is not None
            kernel, flat = block_scan(self.block, self.stored, nulls), arguments(data, nulls)
            if not is_ready(kernel, NO_POSITIONS, NO_POSITIONS, *flat, *SOME_PAIRS):
                bound = self._substitute.bind(dict(zip(self.block_columns, data, strict=True)))
                kernel, flat = readiness.timed(bound), []
        pace = self._pace

        def scan(start: np.ndarray, stop: np.ndarray, cursor: np.ndarray, pairs: PairBuffer) -> int:
            cursor[BUDGET] = pace.comparisons
            began = time.thread_time()
            count = kernel(start, stop, *flat, cursor, pairs.probe, pairs.pos, pairs.count)
            pace.took(time.thread_time() - began, int(cursor[BUDGET]))
            return count

        return scan


def _values_and_validity(used: Sequence[ColumnData]) -> tuple[np.ndarray, ...]:
    """Two arrays for each column of a block."""
    flat: list[np.ndarray] = []
    for data in used:
        values, valid = data.parts[0], data.valid
        flat += [values, np.ones(len(values), np.bool_) if valid is None else valid]
    return tuple(flat)


def filled(bounds: Sequence[np.ndarray | None], none: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The bounds with an empty array for each that is missing, as kernels take them."""
    return tuple([empty if bound is None else bound for bound, empty in zip(bounds, none, strict=True)])


def combined(keys: list[np.ndarray]) -> np.ndarray:
    """One 64-bit hash for each row of several keys."""
    out = np.empty(len(keys[0]), np.int64)
    hashing.combine(tuple(keys), out)  # type: ignore[no-untyped-call]  # kernels are typed by Numba
    return out


def new_cursor() -> np.ndarray:
    return np.zeros(CURSOR_SIZE, np.int64)


def is_done(cursor: np.ndarray) -> bool:
    return bool(cursor[0] == DONE)


def reads_text(expr: Expr) -> bool:
    return any(node.type.name in ("string", "binary") for node in walk(expr))


def conjunction(conditions: list[Expr]) -> Expr | None:
    """All conditions as one; None if there is none."""
    if len(conditions) < 2:
        return conditions[0] if conditions else None
    return Call("and", tuple(conditions), BOOL)


def _as_condition(clause: Clause) -> Expr:
    """A clause turned back into an expression, because its keys differ and a tuple has only one validity flag."""
    bands = []
    for band in clause.bands:
        tests = [Call("ge", (band.key, band.lo), BOOL)] if band.lo is not None else []
        tests += [Call("le", (band.key, band.hi), BOOL)] if band.hi is not None else []
        bands.append(conjunction(list(tests)))
    return Call("or", tuple(band for band in bands if band is not None), BOOL)


def has_one_key(clause: Clause) -> bool:
    """Whether all bands are over the same key, as windows need it: a tuple has one NULL flag, not one per key."""
    return len({band.key for band in clause.bands}) == 1


def is_equality(clause: Clause) -> bool:
    """Whether each band is an equality."""
    return all(band.is_equality for band in clause.bands)


def has_two_ends(clause: Clause) -> bool:
    """Whether each band has two ends."""
    return all(band.lo is not None and band.hi is not None for band in clause.bands)


def _scannable(clause: Clause, indexed: bool) -> Clause:
    """The clause in the form that a scan stores: keys of at most 64 bits, and both bounds where a band may be empty or
    bands are to be made disjoint."""
    bands = [_biased(band) for band in clause.bands]
    if len(bands) > 1 and (indexed or bands[0].key.type.is_exact):
        bands = [_closed(band) for band in bands]
    return Clause(tuple(bands))


def _biased(band: Band) -> Band:
    """Shift an exact key and its bounds into the range of int64, if the key's range is narrow enough but lies partly
    outside of it (uint64)."""
    kind = band.key.type
    if not kind.is_exact or kind.bits <= 64:
        return band
    bias = kind.lo + 2**63
    literal = Literal(bias, replace(kind, lo=bias, hi=bias))

    def shift(expr: Expr | None) -> Expr | None:
        if expr is None:
            return None
        lo, hi = expr.type.lo - bias, expr.type.hi - bias
        return Call("sub", (expr, literal), replace(expr.type, lo=lo, hi=hi))

    key = shift(band.key)
    assert key is not None
    return Band(key, shift(band.lo), shift(band.hi))


def _closed(band: Band) -> Band:
    kind = band.key.type

    def literal(value: float) -> Literal:
        return Literal(value, kind if kind.is_float else Type(kind.name, kind.scale, int(value), int(value)))

    least, most = key_limits(key_dtype(kind))
    return Band(band.key, band.lo or literal(least), band.hi or literal(most))
