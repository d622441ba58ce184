"""Expressions over whole columns: window keys, probe bounds and residual conditions, one compiled loop each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from streamjoin.codegen.columns import ColumnData, arguments, parameters
from streamjoin.codegen.expressions import HEADER, Emitter, sort_of
from streamjoin.jit import source
from streamjoin.semantics.analysis import Band, Clause
from streamjoin.semantics.expressions import Column, Expr, columns
from streamjoin.semantics.types import Type

Columns = Mapping[Column, ColumnData]


def distinct_columns(expressions: Sequence[Expr]) -> tuple[Column, ...]:
    return tuple(dict.fromkeys(column for expr in expressions for column in columns(expr)))


@cache
def key_dtype(kind: Type) -> np.dtype:
    """The array type of a key: 32 or 64-bit integers, or the float itself."""
    return np.dtype(kind.name if kind.is_float else f"int{kind.bits}")


class _Loop(ABC):
    """A generated loop over the tuples of aligned columns, in two forms: for columns with and without NULLs."""

    def __init__(self, read: Sequence[Column], outputs: Sequence[str]):
        self.columns, self.outputs = tuple(read), list(outputs)
        self._compiled: dict[bool, tuple[Any, np.ndarray]] = {}

    @abstractmethod
    def body(self, emitter: Emitter) -> None:
        """Write what is done for tuple i."""

    def _compile(self, nullable: bool) -> tuple[Any, np.ndarray]:
        emitter = Emitter(self.columns, nullable, lambda _column: ("", "i"))
        emitter.indent = 2
        self.body(emitter)
        names = ["n", "literals", *parameters(self.columns, nullable), *self.outputs]
        text = "\n\n".join([HEADER, *emitter.functions, ""])
        text += f"@jit\ndef loop({', '.join(names)}):\n    for i in range(n):\n"
        text += "\n".join(emitter.lines) + "\n"
        return source.load(text, "loop").loop, np.frombuffer(bytes(emitter.literals) + b"\0", np.uint8).copy()

    def run(self, used: Sequence[ColumnData], count: int, outputs: Sequence[np.ndarray]) -> None:
        """Let the loop read `used`, the data of its columns in their order."""
        nullable = False
        for column in used:
            nullable |= column.valid is not None
        if nullable not in self._compiled:
            self._compiled[nullable] = self._compile(nullable)
        function, literals = self._compiled[nullable]
        function(count, literals, *arguments(used, nullable), *outputs)


class Filter(_Loop):
    """Whether a condition is true, tuple by tuple (or pair by pair: columns of both sides, aligned)."""

    def __init__(self, condition: Expr):
        self.condition = condition
        super().__init__(columns(condition), ["out"])

    def body(self, emitter: Emitter) -> None:
        emitter.line(f"out[i] = {emitter.emit(self.condition).code}")

    def __call__(self, data: Columns, count: int) -> np.ndarray:
        out = np.empty(count, np.bool_)
        self.run([data[column] for column in self.columns], count, [out])
        return out


class Keys(_Loop):
    """The key expressions of a window, and whether all of them are not NULL."""

    def __init__(self, keys: Sequence[Expr]):
        self.keys = list(keys)
        self.dtypes = [key_dtype(key.type) for key in keys]
        self._are_columns = all(isinstance(key, Column) for key in keys)
        super().__init__(distinct_columns(keys), [*(f"out{k}" for k in range(len(self.keys))), "ok"])

    def body(self, emitter: Emitter) -> None:
        nulls = []
        for number, key in enumerate(self.keys):
            value = emitter.emit(key)
            nulls.append(value.null)
            emitter.line(f"out{number}[i] = {value.code}")
        emitter.line(f"ok[i] = not ({emitter.any_of(nulls)})")

    def __call__(self, used: Sequence[ColumnData], count: int) -> tuple[list[np.ndarray], np.ndarray]:
        if self._are_columns:
            return self._plain(used, count)
        outputs = [np.empty(count, dtype) for dtype in self.dtypes]
        ok = np.empty(count, np.bool_)
        self.run(used, count, [*outputs, ok])
        return outputs, ok

    def _plain(self, used: Sequence[ColumnData], count: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Keys that are columns, each another one, need no code, and no copy where the types agree."""
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
    """The bounds of every band, in the key's own array type, and whether the probe can match at all.

    Bounds are exact integers of any width or floats; they are cut to the range of the key's type,
    which changes no answer. An empty band, or one with a NULL or NaN bound, gets low > high or NaN;
    one-sided integer bands, which have no such bound, must not stand beside others in a clause.
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
        super().__init__(distinct_columns(limits), [*names, "ok"])

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

    def _band(self, emitter: Emitter, band: Band, number: int) -> str:
        """Write one band's bounds; return the code that tells whether it is empty."""
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
        ends = []  # low and high of each band
        for dtype, has_low, has_high in self._kinds:
            ends += [np.empty(count if has_low else 0, dtype), np.empty(count if has_high else 0, dtype)]
        ok = np.empty(count, np.bool_)
        self.run(used, count, [*ends, ok])
        return ends[::2], ends[1::2], ok


def _limit(emitter: Emitter, limit: Expr, key: Type, end: str) -> tuple[str, list[str]]:
    """A bound in the key's array type, and codes of what makes the band empty."""
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
