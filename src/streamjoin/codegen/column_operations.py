"""Operations of predicates on columns of values (`columnwise`): strict ones, and those that choose among values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.column_functions import COLUMN_FUNCTIONS
from streamjoin.codegen.column_values import (
    abs_wide,
    add_wide,
    as_sort,
    choose_values,
    compare_columns,
    constant_of,
    divide_column,
    either_null,
    equal_wide,
    is_nan,
    limbs_of,
    multiply_wide,
    negate_wide,
    python_integers,
    sort_for,
    subtract_wide,
    wide_less,
)
from streamjoin.codegen.expressions import INT64, sort_of
from streamjoin.codegen.vec import Evaluate, Limbs, TextSpans, Tile, Vec
from streamjoin.kernels.values import tiles
from streamjoin.semantics.expressions import Call, Literal
from streamjoin.semantics.number_casts import float_bounds
from streamjoin.semantics.types import Type

# Logic


def all_true(parts: Sequence[Evaluate]) -> Evaluate:
    """AND; stops once every row is false."""

    def evaluate(tile: Tile) -> Vec:
        data, unless_false = np.True_, np.True_
        nulls = False
        for part in parts:
            value = part(tile)
            data = data & value.data
            nulls = nulls or value.null is not None
            unless_false = unless_false & (value.data if value.null is None else value.data | value.null)
            if not unless_false.any():
                break
        return Vec(data, unless_false & ~data if nulls else None)

    return evaluate


def any_true(parts: Sequence[Evaluate]) -> Evaluate:
    """OR; stops once every row is true."""

    def evaluate(tile: Tile) -> Vec:
        data, null = np.False_, None
        for part in parts:
            value = part(tile)
            data, null = data | value.data, either_null(null, value.null)
            if data.all():
                break
        return Vec(data, None if null is None else null & ~data)

    return evaluate


# Operations: each takes the call, the data of its arguments and the tile, and returns data, or a `Vec` that has NULLs.


def _sum_like(
    plain: Callable[..., Any], wide: Callable[..., Limbs]
) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        if call.type.is_exact and sort_for(data, call.type) == 128:
            result = wide(*(as_sort(each, 128) for each in data))
            return as_sort(result, sort_of(call.type))
        return plain(*data)

    return operate


def _mod(call: Call, data: list[Any], tile: Tile) -> Any:
    if not call.type.is_exact:
        return Vec(np.fmod(*data), data[1] == 0)
    if sort_for(data, call.type) == 128:
        a, b = (python_integers(as_sort(each, 128), tile.count) for each in data)
        rests = [(abs(x) % abs(y) * (-1 if x < 0 else 1)) if y else 0 for x, y in zip(a, b, strict=True)]
        result = as_sort(limbs_of(rests), sort_of(call.type))
        return Vec(result, equal_wide(as_sort(data[1], 128), constant_of(0, 128)))
    zero = data[1] == 0
    return Vec(np.fmod(data[0], np.where(zero | (data[1] == -1), 1, data[1])), zero)


def _div(call: Call, data: list[Any], tile: Tile) -> Any:
    return Vec(data[0] / data[1], data[1] == 0)


def _rounding(towards: str) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        kind = call.args[0].type
        if kind.is_float:
            return (np.ceil if towards == "up" else np.floor)(data[0])
        return as_sort(divide_column(tile, data[0], 10**kind.scale, towards, kind), sort_of(call.type))

    return operate


def _divide_by(towards: str) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        divisor = call.args[1]
        assert isinstance(divisor, Literal) and isinstance(divisor.value, int)
        return as_sort(divide_column(tile, data[0], divisor.value, towards, call.type), sort_of(call.type))

    return operate


def _floormod(call: Call, data: list[Any], tile: Tile) -> Any:
    divisor = call.args[1]
    assert isinstance(divisor, Literal) and isinstance(divisor.value, int)
    if divisor.value in INT64 and sort_for(data[:1]) == 64:
        return data[0] % np.int64(divisor.value)
    rests = [value % divisor.value for value in python_integers(as_sort(data[0], 128), tile.count)]
    return as_sort(limbs_of(rests), sort_of(call.type))


def _cast(call: Call, data: list[Any], tile: Tile) -> Any:
    kind = call.args[0].type
    if isinstance(data[0], Limbs):
        value: Any = np.array(list(map(float, python_integers(data[0], tile.count))))
    else:
        value = np.asarray(data[0]).astype(np.float64)
    if kind.is_exact and kind.scale:
        value = value / float(10**kind.scale)
    return value.astype(sort_of(call.type))


def exact_or_null(target: Type, data: Any, tile: Tile) -> tuple[Any, Any]:
    """Values in units of the target's scale as integers, and where the target does not hold them."""
    if isinstance(data, TextSpans):
        number, beyond = np.empty(tile.count, np.int64), np.empty(tile.count, np.bool_)
        tiles.text_number(*tile.texts(data), target.scale, target.lo, target.hi, number, beyond)
        return number, beyond
    if isinstance(data, Limbs):
        lo, hi = constant_of(target.lo, 128), constant_of(target.hi, 128)
        return data, wide_less(data, lo) | wide_less(hi, data)
    if np.asarray(data).dtype.kind == "f":
        least, greatest = float_bounds(target)
        fits = (data >= least) & (data <= greatest)
        return np.where(fits, data, 0.0).astype(np.int64), ~fits
    data = np.asarray(data).astype(np.int64)
    return data, _beyond(data, target)


def _beyond(data: Any, target: Type) -> Any:
    below = data < np.int64(target.lo) if target.lo in INT64 else False
    above = data > np.int64(target.hi) if target.hi in INT64 else False
    return np.broadcast_to(below | above, np.shape(data))


def _strict_extreme(op: str) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        best = data[0]
        for each in data[1:]:
            keep = compare_columns(op, best, each, tile)
            best = choose_values(keep | is_nan(best) if call.type.is_float else keep, best, each)
        return as_sort(best, sort_of(call.type)) if call.type.is_exact else best

    return operate


def _neighbour(up: bool) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        kind = np.dtype(call.type.name).type
        end = kind(np.inf if up else -np.inf)
        beyond = data[0] < end if up else data[0] > end
        return np.where(beyond, np.nextafter(data[0], end), kind(np.nan))

    return operate


def _hash(call: Call, data: list[Any], tile: Tile) -> Any:
    out = np.empty(tile.count, np.int64)
    tiles.text_hash(*tile.texts(data[0]), out)
    return out


def _compared(call: Call, data: list[Any], tile: Tile) -> Any:
    return compare_columns(call.op, data[0], data[1], tile)


OPERATIONS: dict[str, Callable[[Call, list[Any], Tile], Any]] = {
    "add": _sum_like(np.add, add_wide),
    "sub": _sum_like(np.subtract, subtract_wide),
    "mul": _sum_like(np.multiply, multiply_wide),
    "neg": _sum_like(np.negative, negate_wide),
    "abs": _sum_like(np.abs, abs_wide),
    "mod": _mod,
    "div": _div,
    "floor": _rounding("down"),
    "ceil": _rounding("up"),
    "floordiv": _divide_by("down"),
    "ceildiv": _divide_by("up"),
    "floormod": _floormod,
    "sqrt": lambda call, data, tile: np.sqrt(data[0]),
    "rounddiv": _divide_by("away"),
    "cast": _cast,
    "max": _strict_extreme("gt"),
    "min": _strict_extreme("lt"),
    "next_up": _neighbour(up=True),
    "next_down": _neighbour(up=False),
    "nan_to": lambda call, data, tile: np.where(is_nan(data[0]), data[1], data[0]),
    "hash64": _hash,
    "not": lambda call, data, tile: ~data[0],
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compared),
    **COLUMN_FUNCTIONS,
}

# Operations whose result may be known although an argument is NULL: each takes the call, its arguments and the tile.


def _extreme_of_columns(op: str) -> Callable[[Call, Sequence[Evaluate], Tile], Vec]:
    """LEAST and GREATEST: NULLs are skipped, NaN counts as the largest."""

    def choose(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
        best, null = args[0](tile)
        for arg in args[1:]:
            data, missing = arg(tile)
            better = compare_columns(op, data, best, tile)
            if call.type.is_float:
                better = better | is_nan(best if op == "lt" else data)
            better = better if null is None else null | better
            better = better if missing is None else ~missing & better
            best = choose_values(better, data, best)
            null = None if null is None or missing is None else null & missing
        return Vec(as_sort(best, sort_of(call.type)) if call.type.is_exact else best, null)

    return choose


def _coalesce_columns(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    data, null = args[0](tile)
    for arg in args[1:]:
        if null is None or not null.any():
            break
        other, missing = arg(tile)
        data = choose_values(null, other, data)
        null = None if missing is None else null & missing
    return Vec(as_sort(data, sort_of(call.type)) if call.type.is_exact else data, null)


def _case_column(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    """The first branch whose condition is true; stops once every row has one."""
    data = null = None
    decided: Any = np.False_
    for condition, value in [*zip(args[:-1:2], args[1:-1:2], strict=True), (None, args[-1])]:
        taken = ~decided if condition is None else condition(tile).data & ~decided
        if not taken.any():
            continue
        found, missing = value(tile)
        data = found if data is None else choose_values(taken, found, data)
        if missing is not None or null is not None:
            null = np.where(taken, False if missing is None else missing, False if null is None else null)
        decided = decided | taken
        if decided.all():
            break
    if data is None:  # no rows
        data, null = args[-1](tile)
    if call.type.name == "bool" and null is not None:
        data = data & ~null
    return Vec(as_sort(data, sort_of(call.type)) if call.type.is_exact else data, null)


def _is_distinct_column(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    a, b = (arg(tile) for arg in args)
    equal = compare_columns("eq", a.data, b.data, tile)
    none = np.False_
    a_null, b_null = none if a.null is None else a.null, none if b.null is None else b.null
    return Vec((a_null != b_null) | (~a_null & ~b_null & ~equal))


def _is_null(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    null = args[0](tile).null
    return Vec(np.False_ if null is None else null)


CHOICES: dict[str, Callable[[Call, Sequence[Evaluate], Tile], Vec]] = {
    "least": _extreme_of_columns("lt"),
    "greatest": _extreme_of_columns("gt"),
    "coalesce": _coalesce_columns,
    "case": _case_column,
    "is_distinct": _is_distinct_column,
    "is_null": _is_null,
}
