"""What the operations of `columnwise` share: NULLs, numbers, comparisons and searches over columns of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.expressions import INT64, sort_of
from streamjoin.codegen.vec import Limbs, TextSpans, Tile, Vec
from streamjoin.kernels.values import tiles
from streamjoin.semantics.types import Type

U32 = np.uint64(0xFFFF_FFFF)
HALF = np.uint64(32)


# NULLs


def either_null(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a | b


def any_null(values: Sequence[Vec]) -> Any:
    null = None
    for value in values:
        null = either_null(null, value.null)
    return null


# Numbers


def constant_of(value: Any, sort: int | str) -> Any:
    if sort == 128:
        return Limbs(np.uint64(value & (2**64 - 1)), np.int64(value >> 64))
    if sort == "bool":
        return np.bool_(value)
    return np.dtype(sort).type(value) if isinstance(sort, str) else np.int64(value)


def as_limbs(data: Any) -> Limbs:
    signed = np.asarray(data, np.int64)
    return Limbs(signed.astype(np.uint64), signed >> 63)


def as_sort(data: Any, sort: int | str) -> Any:
    """Data in another sort; wide numbers are cut to 64 bits, where the range says that they fit."""
    if sort == 128:
        return data if isinstance(data, Limbs) else as_limbs(data)
    return np.asarray(data.low).astype(np.int64) if isinstance(data, Limbs) else data


def sort_for(data: Sequence[Any], kind: Type | None = None) -> int | str:
    """The sort in which exact data, and a result of type `kind`, are computed together."""
    wide = any(isinstance(each, Limbs) for each in data) or (kind is not None and sort_of(kind) == 128)
    return 128 if wide else 64


def add_wide(a: Limbs, b: Limbs) -> Limbs:
    low = a.low + b.low
    return Limbs(low, a.high + b.high + (low < a.low))


def subtract_wide(a: Limbs, b: Limbs) -> Limbs:
    return Limbs(a.low - b.low, a.high - b.high - (a.low < b.low))


def negate_wide(a: Limbs) -> Limbs:
    return subtract_wide(Limbs(np.uint64(0), np.int64(0)), a)


def abs_wide(a: Limbs) -> Limbs:
    negative, negated = a.high < 0, negate_wide(a)
    return Limbs(np.where(negative, negated.low, a.low), np.where(negative, negated.high, a.high))


def multiply_wide(a: Limbs, b: Limbs) -> Limbs:
    """The lower 128 bits, by halves of the lower limbs."""
    a0, a1, b0, b1 = a.low & U32, a.low >> HALF, b.low & U32, b.low >> HALF
    low, middle, other = a0 * b0, a1 * b0, a0 * b1
    carry = (low >> HALF) + (middle & U32) + (other & U32)
    high = a1 * b1 + (middle >> HALF) + (other >> HALF) + (carry >> HALF)
    crossed = a.low * np.asarray(b.high).astype(np.uint64) + np.asarray(a.high).astype(np.uint64) * b.low
    return Limbs(a.low * b.low, np.asarray(high + crossed).astype(np.int64))


def wide_less(a: Limbs, b: Limbs) -> Any:
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


def equal_wide(a: Limbs, b: Limbs) -> Any:
    return (a.high == b.high) & (a.low == b.low)


def python_integers(a: Limbs, count: int) -> list[int]:
    lows, highs = (np.broadcast_to(limb, (count,)).tolist() for limb in a)
    return [(high << 64) | low for low, high in zip(lows, highs, strict=True)]


def limbs_of(values: list[int]) -> Limbs:
    lows = np.array([value & (2**64 - 1) for value in values], np.uint64)
    return Limbs(lows, np.array([value >> 64 for value in values], np.int64))


def divide_column(tile: Tile, data: Any, divisor: int, towards: str, kind: Type) -> Any:
    """The quotient by a positive constant, rounded "down", "up", or to the nearest, half "away" from zero."""
    sort = 128 if divisor not in INT64 else sort_for([data], kind)
    if sort == 128:
        integers = python_integers(as_sort(data, 128), tile.count)
        return limbs_of([value // divisor + _step(value, divisor, towards) for value in integers])
    return data // np.int64(divisor) + _step(data, np.int64(divisor), towards)


def _step(value: Any, divisor: Any, towards: str) -> Any:
    """What to add to the quotient that was rounded down."""
    rest = value % divisor
    if towards == "away":
        return (rest > divisor - rest) | ((rest == divisor - rest) & (value > 0))
    return rest != 0 if towards == "up" else 0


def compare_columns(op: str, a: Any, b: Any, tile: Tile) -> Any:
    """One of eq, ne, lt, le, gt, ge, of two data of one family."""
    if isinstance(a, TextSpans):
        out = np.empty(tile.count, np.int8)
        (tiles.text_equal if op in ("eq", "ne") else tiles.text_order)(*tile.texts(a, b), out)
        return _COMPARE[op](out, 1 if op in ("eq", "ne") else 0)
    if isinstance(a, Limbs) or isinstance(b, Limbs):
        a, b = as_sort(a, 128), as_sort(b, 128)
        match op:
            case "eq" | "ne":
                equal = equal_wide(a, b)
                return equal if op == "eq" else ~equal
            case "lt" | "ge":
                less = wide_less(a, b)
                return less if op == "lt" else ~less
            case _:
                more = wide_less(b, a)
                return more if op == "gt" else ~more
    if op == "ne" and np.asarray(a).dtype.kind == "f":
        return (a < b) | (a > b)  # false if either is NaN
    return _COMPARE[op](a, b)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


def choose_values(mask: Any, a: Any, b: Any) -> Any:
    """`a` where `mask` is true, else `b`."""
    if isinstance(a, Limbs) or isinstance(b, Limbs):
        a, b = as_sort(a, 128), as_sort(b, 128)
        return Limbs(np.where(mask, a.low, b.low), np.where(mask, a.high, b.high))
    if isinstance(a, TextSpans):
        return TextSpans(np.where(mask, a.start, b.start), np.where(mask, a.length, b.length))
    return np.where(mask, a, b)


def is_nan(data: Any) -> Any:
    return data != data


def _found_in_sorted(constants: np.ndarray, data: Any) -> Any:
    """Whether each number is one of the sorted constants; NaN never is."""
    if not len(constants):
        return np.zeros(np.shape(data), np.bool_)
    places = np.minimum(np.searchsorted(constants, data), len(constants) - 1)
    return constants[places] == data


def plain_member(constants: np.ndarray, data: Any, tile: Tile) -> Any:
    return _found_in_sorted(constants, data)


def wide_member(near: np.ndarray, far: list[Limbs], data: Any, tile: Tile) -> Any:
    data = as_sort(data, 128)
    low = np.asarray(data.low).astype(np.int64)
    found = (data.high == low >> 63) & _found_in_sorted(near, low)
    for constant in far:
        found = found | equal_wide(data, constant)
    return found


def text_member_of(starts: np.ndarray, lengths: np.ndarray, data: TextSpans, tile: Tile) -> np.ndarray:
    out = np.empty(tile.count, np.bool_)
    tiles.text_member(*tile.texts(data), starts, lengths, out)
    return out


def bisect_floats(holds: Callable[[np.ndarray], Any], count: int, bits: int, highest: bool) -> np.ndarray:
    """The last float (or the first, unless `highest`) for which a monotone condition holds; NaN if none does."""
    whole, kind = (np.int32, np.float32) if bits == 32 else (np.int64, np.float64)
    most = int(
        np.asarray(np.inf, kind).view(whole)
    )  # the rank of infinity, as `kernels.values.floats` has ranks
    low, high = np.full(count, -most - 1, np.int64), np.full(count, most, np.int64)
    found = np.full(count, np.nan, kind)
    for _ in range(bits + 1):
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        ranks = np.where(middle >= 0, middle, np.iinfo(whole).min - middle - 1).astype(whole)
        keys = ranks.view(kind)
        searching = low <= high
        if not searching.any():
            break
        true = holds(keys) & searching
        found = np.where(true, keys, found)
        up = true if highest else searching & ~true
        low, high = np.where(up, middle + 1, low), np.where(searching & ~up, middle - 1, high)
    return found
