"""Expressions over whole columns: window keys, probe bounds and residual conditions, one compiled loop each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import Any, cast

import numpy as np

from streamjoin.codegen.column_values import as_sort, constant_of, wide_less
from streamjoin.codegen.columns import ColumnData, arguments, parameters
from streamjoin.codegen.columnwise import ColumnWise
from streamjoin.codegen.compile_cost import CLAMP, MOST, MOST_OF_BANDS, compile_cost
from streamjoin.codegen.expressions import HEADER, Constants, Emitter, sort_of
from streamjoin.codegen.vec import Vec
from streamjoin.jit import readiness, source
from streamjoin.jit.decorator import is_ready
from streamjoin.semantics.analysis import Band, Clause
from streamjoin.semantics.expressions import Column, Expr, columns
from streamjoin.semantics.types import Type

DataByColumn = Mapping[Column, ColumnData]


def distinct_columns(expressions: Sequence[Expr]) -> tuple[Column, ...]:
    return tuple(dict.fromkeys(column for expr in expressions for column in columns(expr)))


@cache
def key_dtype(kind: Type) -> np.dtype:
    """The array type of a key: 32 or 64-bit integers, or the float itself."""
    return np.dtype(kind.name if kind.is_float else f"int{kind.bits}")


class _Loop(ABC):
    """A generated loop over the tuples of aligned columns, in two forms: for columns with and without NULLs.
    Expressions whose loop would take long to compile are evaluated column by column instead."""

    def __init__(
        self,
        read: Sequence[Column],
        outputs: Sequence[str],
        expressions: Sequence[Expr] = (),
        fused: bool = True,
    ):
        """`fused`: compile one loop. Otherwise the `expressions` are evaluated column by column, and `store` takes
        their values."""
        self.columns, self.outputs = tuple(read), list(outputs)
        self._expressions = expressions
        # Keyed by whether columns may have NULLs: the generated loops, and those of them that may be called.
        self._written: dict[bool, Callable[..., None]] = {}
        self._compiled: dict[bool, Callable[..., None]] = {}
        self._columnwise = None if fused else ColumnWise(expressions)

    @property
    def is_fused(self) -> bool:
        return self._columnwise is None

    def store(self, values: Sequence[Vec], rows: slice, outputs: Sequence[np.ndarray]) -> None:
        """Write the values of some rows to the outputs, as `body` does for each tuple."""
        raise NotImplementedError

    @abstractmethod
    def body(self, emitter: Emitter) -> None:
        """Write the statements that handle tuple i."""

    def _write(self, nullable: bool) -> Callable[..., None]:
        emitter = Emitter(self.columns, nullable, lambda _column: ("", "i"))
        emitter.indent = 2
        self.body(emitter)
        names = [*Constants.PARAMETERS, "n", *parameters(self.columns, nullable), *self.outputs]
        text = "\n\n".join([HEADER, *emitter.functions, ""])
        head = [f"@jit\ndef loop({', '.join(names)}):", *emitter.constants.lines(), "    for i in range(n):"]
        text += "\n".join([*head, *emitter.lines]) + "\n"
        return partial(source.load(text, "loop").loop, *emitter.constants.arguments())

    def run(self, used: Sequence[ColumnData], count: int, outputs: Sequence[np.ndarray]) -> None:
        """Run the loop over `used`, the data of its columns in the order of `columns`."""
        if self._columnwise is not None:
            self._run_columnwise(self._columnwise, used, count, outputs)
            return
        nullable = False
        for column in used:
            nullable |= column.valid is not None
        flat = arguments(used, nullable)
        if nullable not in self._compiled and not self._is_ready(nullable, count, *flat, *outputs):
            readiness.timed(self._run_columnwise)(self._substitute, used, count, outputs)
            return
        self._compiled[nullable](count, *flat, *outputs)

    def _is_ready(self, nullable: bool, *args: object) -> bool:
        """Whether the loop may be called. If not, another thread is having it compiled."""
        if nullable not in self._written:
            self._written[nullable] = self._write(nullable)
        if not is_ready(self._written[nullable], *args):
            return False
        self._compiled[nullable] = self._written[nullable]
        return True

    @cached_property
    def _substitute(self) -> ColumnWise:
        """Runs in the loop's place while the loop is being compiled."""
        return ColumnWise(self._expressions)

    def _run_columnwise(
        self, columnwise: ColumnWise, used: Sequence[ColumnData], count: int, outputs: Sequence[np.ndarray]
    ) -> None:
        if not count:
            columnwise.rehearse()
        for rows, tile in columnwise.tiles(dict(zip(self.columns, used, strict=True)), count):
            with np.errstate(all="ignore"):
                self.store(columnwise(tile), rows, outputs)


class Filter(_Loop):
    """Whether a condition is true, tuple by tuple (or pair by pair: columns of both sides, aligned)."""

    def __init__(self, condition: Expr):
        self.condition = condition
        super().__init__(columns(condition), ["out"], [condition], compile_cost([condition]) <= MOST)

    def body(self, emitter: Emitter) -> None:
        emitter.line(f"out[i] = {emitter.emit(self.condition).code}")

    def store(self, values: Sequence[Vec], rows: slice, outputs: Sequence[np.ndarray]) -> None:
        outputs[0][rows] = values[0].data

    def __call__(self, data: DataByColumn, count: int) -> np.ndarray:
        out = np.empty(count, np.bool_)
        self.run([data[column] for column in self.columns], count, [out])
        return out


class Keys(_Loop):
    """Computes the keys of a window's tuples, and whether no key of a tuple is NULL."""

    def __init__(self, keys: Sequence[Expr]):
        self.keys = list(keys)
        self.dtypes = [key_dtype(key.type) for key in keys]
        self.are_columns = all(isinstance(key, Column) for key in keys)
        names = [*(f"out{k}" for k in range(len(self.keys))), "ok"]
        super().__init__(distinct_columns(keys), names, self.keys, compile_cost(self.keys) <= MOST)

    def body(self, emitter: Emitter) -> None:
        nulls = []
        for number, key in enumerate(self.keys):
            value = emitter.emit(key)
            nulls.append(value.null)
            emitter.line(f"out{number}[i] = {value.code}")
        emitter.line(f"ok[i] = not ({emitter.any_of(nulls)})")

    def store(self, values: Sequence[Vec], rows: slice, outputs: Sequence[np.ndarray]) -> None:
        outputs[-1][rows] = True
        for value, key, out in zip(values, self.keys, outputs[:-1], strict=True):
            out[rows] = as_sort(value.data, sort_of(key.type))
            if value.null is not None:
                outputs[-1][rows] &= ~value.null

    def __call__(self, used: Sequence[ColumnData], count: int) -> tuple[list[np.ndarray], np.ndarray]:
        if self.are_columns:
            return self._plain(used, count)
        outputs = [np.empty(count, dtype) for dtype in self.dtypes]
        ok = np.empty(count, np.bool_)
        self.run(used, count, [*outputs, ok])
        return outputs, ok

    def _plain(self, used: Sequence[ColumnData], count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Keys that are distinct columns need no generated code, and no copy where the types agree."""
        ok = np.empty(count, np.bool_)
        ok.fill(True)
        outputs = []
        for column, dtype in zip(used, self.dtypes, strict=True):
            values = column.parts[0]
            outputs.append(values if values.dtype == dtype else values.astype(dtype))
            if column.valid is not None:
                ok &= column.valid
        return outputs, ok


class Bounds(_Loop):
    """Computes the bounds of every band, in the array type of its key, and whether the probe can match at all.

    Bounds are exact integers of any width, or floats. They are cut to the range of the key's type,
    which does not change which keys lie between them. An empty band, or one with a NULL or NaN bound, gets low > high
    or NaN. A one-sided integer band cannot express that it is empty, so it must be the only band of its clause.
    """

    def __init__(self, clauses: Sequence[Clause]):
        self.clauses = clauses
        self.bands = [band for clause in clauses for band in clause.bands]
        limits = [limit for band in self.bands for limit in (band.lo, band.hi) if limit is not None]
        # Whether each band has a bound, low and high, and of which type.
        self._kinds = [
            (key_dtype(band.key.type), band.lo is not None, band.hi is not None) for band in self.bands
        ]
        names = [f"{end}{number}" for number in range(len(self.bands)) for end in ("low", "high")]
        cost = compile_cost(limits) + CLAMP * len(limits)
        super().__init__(distinct_columns(limits), [*names, "ok"], limits, cost <= MOST_OF_BANDS)
        # For each band, the number of the column that serves unchanged as both bounds; None if a bound is computed.
        plain = self.bands and all(map(_is_a_column, self.bands))
        self._plain = [self.columns.index(cast(Column, b.lo)) for b in self.bands] if plain else None

    @property
    def are_columns(self) -> bool:
        """Whether each bound is a column, so that none is NULL where its column is not."""
        return self._plain is not None

    def body(self, emitter: Emitter) -> None:
        number = 0
        alive = []
        for clause in self.clauses:
            empties = []
            for band in clause.bands:
                empties.append(self._band(emitter, band, number))
                number += 1
            alive.append("True" if "False" in empties else emitter.let(f"not ({' & '.join(empties)})"))
        emitter.line(f"ok[i] = {' & '.join(alive)}")

    def store(self, values: Sequence[Vec], rows: slice, outputs: Sequence[np.ndarray]) -> None:
        ends, number = iter(values), 0
        ok = np.ones(rows.stop - rows.start, np.bool_)
        for clause in self.clauses:
            empty = np.ones(len(ok), np.bool_)
            for band in clause.bands:
                empty &= self._store_band(ends, band, rows, outputs[2 * number : 2 * number + 2])
                number += 1
            ok &= ~empty
        outputs[-1][rows] = ok

    def _store_band(
        self, ends: Iterator[Vec], band: Band, rows: slice, outputs: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Write one band's bounds; return where it is empty."""
        count = rows.stop - rows.start
        empty = np.zeros(count, np.bool_)
        found = []
        for end, limit in (("low", band.lo), ("high", band.hi)):
            if limit is not None:
                data, reasons = _clamped(next(ends), limit, band.key.type, end)
                found.append((end, data))
                for reason in reasons:
                    empty |= reason
        if len(found) == 2 and band.lo != band.hi:
            empty |= found[0][1] > found[1][1]
        dtype = key_dtype(band.key.type)
        least, most = key_limits(dtype)
        nothing = {"low": np.nan, "high": np.nan} if dtype.kind == "f" else {"low": most, "high": least}
        for end, data in found:
            outputs[end == "high"][rows] = np.where(
                empty, dtype.type(nothing[end]), np.asarray(data).astype(dtype)
            )
        return empty

    def _band(self, emitter: Emitter, band: Band, number: int) -> str:
        """Write one band's bounds; return code that is true if the band is empty."""
        empties: list[str] = []
        codes = {}
        for end, limit in (("low", band.lo), ("high", band.hi)):
            if limit is not None:
                codes[end], reasons = _limit(emitter, limit, band.key.type, end)
                empties += reasons
        if len(codes) == 2 and band.lo != band.hi:
            empties.append(f"({codes['low']} > {codes['high']})")
        empty = emitter.any_of([emitter.let(code) for code in empties])
        nothing = _nothing(band.key.type)
        for end, code in codes.items():
            chosen = code if empty == "False" else f"{nothing[end]} if {empty} else {code}"
            emitter.line(f"{end}{number}[i] = {chosen}")
        return empty

    def __call__(
        self, used: Sequence[ColumnData], count: int
    ) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        if not self.bands:
            return [], [], np.ones(count, np.bool_)
        nullable = False
        for column in used:
            nullable |= column.valid is not None
        if self._plain is not None and not nullable:
            both = []
            for number, (kind, *_) in zip(self._plain, self._kinds, strict=True):
                both.append(used[number].parts[0].astype(kind, copy=False))
            ok = np.empty(count, np.bool_)
            ok.fill(True)
            return both, both.copy(), ok
        ends, ok = self._outputs(count)
        self.run(used, count, [*ends, ok])
        return ends[::2], ends[1::2], ok

    def of_values(
        self, values: Sequence[np.ndarray], count: int
    ) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """The same, for plain columns without NULLs, given by their values."""
        loop = self._compiled.get(False)
        if loop is None:
            return self([ColumnData((each,)) for each in values], count)
        ends, ok = self._outputs(count)
        loop(count, *values, *ends, ok)
        return ends[::2], ends[1::2], ok

    def _outputs(self, count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Memory for low and high of each band, and for whether probes can match."""
        ends = []
        for dtype, has_low, has_high in self._kinds:
            ends += [np.empty(count if has_low else 0, dtype), np.empty(count if has_high else 0, dtype)]
        return ends, np.empty(count, np.bool_)


def key_limits(dtype: np.dtype) -> tuple[float, float]:
    """The least and the greatest key of a type."""
    if dtype.kind == "f":
        return -np.inf, np.inf
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _clamped(value: Vec, limit: Expr, key: Type, end: str) -> tuple[Any, list[Any]]:
    """As `_limit`, for all rows of a tile: the bound cut to the key's range, and for each condition that makes the
    band empty, the rows where it holds."""
    empties = [] if value.null is None else [value.null]
    if key.is_float:
        return value.data, [*empties, value.data != value.data]
    least, most = (int(bound) for bound in key_limits(key_dtype(key)))
    if limit.type.lo >= least and limit.type.hi <= most:
        return as_sort(value.data, 64), empties
    low, high = (constant_of(bound, 128) for bound in (least, most))
    wide = as_sort(value.data, 128)
    below, above = wide_less(wide, low), wide_less(high, wide)
    empties.append(above if end == "low" else below)
    inside = as_sort(wide, 64)
    return np.where(below, np.int64(least), np.where(above, np.int64(most), inside)), empties


def _is_a_column(band: Band) -> bool:
    """Whether a band is an equality with a column of the key's own type, which needs no code."""
    kind = band.key.type
    return isinstance(band.lo, Column) and band.lo == band.hi and band.lo.type == kind and kind.is_exact


def _limit(emitter: Emitter, limit: Expr, key: Type, end: str) -> tuple[str, list[str]]:
    """A bound in the key's array type, and code for each condition that makes the band empty."""
    value = emitter.emit(limit)
    empties = [value.null] if value.null != "False" else []
    if key.is_float:
        return value.code, [*empties, f"({value.code} != {value.code})"]
    bits = key.bits
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    code, sort = value.code, value.sort
    if limit.type.lo >= least and limit.type.hi <= most:
        return emitter.let(emitter.widen(value, bits)), empties
    assert isinstance(sort, int)
    low, high = emitter.constant(least, sort), emitter.constant(most, sort)
    below, above = (
        emitter.let(emitter.comparison(code, low, sort)),
        emitter.let(emitter.comparison(high, code, sort)),
    )
    empties.append(above if end == "low" else below)
    clamped = emitter.let(f"{low} if {below} else ({high} if {above} else {code})")
    return emitter.let(f"np.int{bits}({f'wide.low_limb({clamped})' if sort == 128 else clamped})"), empties


def _nothing(key: Type) -> dict[str, str]:
    """Bounds of an empty band."""
    if key.is_float:
        return {end: f"np.{sort_of(key)}(np.nan)" for end in ("low", "high")}
    return {
        "low": f"np.int{key.bits}({(1 << (key.bits - 1)) - 1})",
        "high": f"np.int{key.bits}({-(1 << (key.bits - 1))})",
    }
