"""Expressions evaluated column by column, in NumPy: for predicates that are too long to compile as one loop.

Numba and LLVM take more than linear time for a function, so a loop of some hundred operations does not compile within
seconds. Here each operation of the tree is one pass over a *tile* of rows that stays in the L2 cache. Nearly nothing is
compiled: a few kernels for text and functions of the C library, the same for all predicates. A pass costs about a
nanosecond a row and operation. ORed equalities of one value with literals are a search in a sorted array, whatever
their number. `column_functions` has the functions of floats and text.

A value is a `Vec`. Exact numbers of up to 64 bits are int64, wider ones are `Limbs`, two limbs. No result wraps, as the
ranges in the types say. For the same tree, this module and the loops of `expressions` give the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin.codegen.column_functions import COLUMN_FUNCTIONS
from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.expressions import INT64, escaped_pattern, literal_bytes, sort_of
from streamjoin.codegen.vec import Limbs, TextSpans, Tile, Vec
from streamjoin.kernels.values import libm, tiles
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve, children, walk
from streamjoin.semantics.linear import as_equality_with_constant
from streamjoin.semantics.moments import EXPANDED, expanded
from streamjoin.semantics.number_casts import float_bounds, scaled
from streamjoin.semantics.types import Type

TILE = 4096  # rows
FEWEST_MEMBERS = 4  # as many ORed equalities with literals become one search
MAX_SHARED = 256  # how many values of a tile are kept because several operations read them

U32 = np.uint64(0xFFFF_FFFF)
HALF = np.uint64(32)


Evaluate = Callable[[Tile], Vec]


class ColumnWise:
    """Some expressions, evaluated together, tile by tile. `literals` is the text of all literals."""

    def __init__(self, expressions: Sequence[Expr]):
        self.expressions = list(expressions)
        self.literals = bytearray()
        nodes = {
            id(node): node for expr in expressions for node in walk(expr) if isinstance(node, Call | Solve)
        }
        times = Counter(id(child) for node in nodes.values() for child in children(node))
        several = [key for key, count in times.items() if count > 1 and key in nodes]
        several.sort(key=lambda key: -nodes[key].size * times[key])
        self._shared = frozenset(several[:MAX_SHARED])
        self._kernels: set[str] = set()
        self._made: dict[int, Evaluate] = {}
        self._expansions: list[Expr] = []  # kept alive, as `_made` goes by identity
        self._evaluate = [self._make(expr) for expr in self.expressions]

    def __call__(self, tile: Tile) -> list[Vec]:
        with np.errstate(all="ignore"):  # floats behave as IEEE 754 says
            return [evaluate(tile) for evaluate in self._evaluate]

    def tiles(self, used: Mapping[Column, ColumnData], count: int) -> Iterator[tuple[slice, Tile]]:
        """The rows of aligned columns, some at a time."""
        literals = np.frombuffer(bytes(self.literals) + b"\0", np.uint8)
        texts = {column: data for column, data in used.items() if sort_of(column.type) == "text"}
        for at in range(0, count, TILE):
            rows = slice(at, min(count, at + TILE))
            pool, bases, size = [literals], {}, len(literals)
            for column, data in texts.items():
                offsets, content = data.parts
                first, last = offsets[rows.start], offsets[rows.stop]
                pool.append(content[first:last])
                bases[column] = size - first
                size += last - first
            inputs = {
                column: _rows_read(column, data, rows, bases.get(column, 0)) for column, data in used.items()
            }
            yield rows, Tile(rows.stop - at, inputs, np.concatenate(pool))

    def rehearse(self) -> None:
        """Compile the kernels that these expressions may call."""
        none, byte, flags = np.empty(0, np.int64), np.zeros(1, np.uint8), np.empty(0, np.bool_)
        real = np.empty(0)
        texts = [byte, none, none]
        for kernel in self._kernels:
            match kernel:
                case "equal":
                    tiles.text_equal(*texts, none, none, np.empty(0, np.int8))
                case "order":
                    tiles.text_order(*texts, none, none, np.empty(0, np.int8))
                case "like":
                    tiles.text_like(*texts, byte, 0, -1, flags)
                case "member":
                    tiles.text_member(*texts, none, none, flags)
                case "hash":
                    tiles.text_hash(*texts, none)
                case "libm":
                    libm.apply(0, real, real, real)
                case "length":
                    tiles.text_length(*texts, none)
                case "substring":
                    tiles.text_substring(*texts, none, none, none, none)
                case "trim":
                    tiles.text_trim(*texts, none, none, True, True, none, none)
                case "gather":
                    tiles.text_gather(*texts, byte)
                case "number":
                    tiles.text_number(*texts, 0, 0, 0, none, flags)

    # A tree as functions

    def _make(self, expr: Expr) -> Evaluate:
        if id(expr) not in self._made:
            made = self._made_anew(expr)
            self._made[id(expr)] = _kept(made, id(expr)) if id(expr) in self._shared else made
        return self._made[id(expr)]

    def _made_anew(self, expr: Expr) -> Evaluate:
        if isinstance(expr, Column):
            return lambda tile: tile.inputs[expr]
        if isinstance(expr, Literal):
            value = self._literal(expr)
            return lambda tile: value
        if isinstance(expr, Solve):
            return self._solve(expr)
        if expr.op in ("and", "or"):
            return self._junction(expr)
        if expr.op in EXPANDED:
            return self._expansion(expr)
        if expr.op == "like":
            return self._like(expr)
        if expr.op == "to_exact":
            return self._to_exact(expr)
        args = [self._make(arg) for arg in expr.args]
        self._note_kernel(expr)
        if expr.op in CHOICES:
            choose = CHOICES[expr.op]
            return lambda tile: choose(expr, args, tile)
        operate = OPERATIONS[expr.op]
        is_bool = expr.type.name == "bool"

        def strict(tile: Tile) -> Vec:
            values = [arg(tile) for arg in args]
            data, null = operate(expr, [value.data for value in values], tile), _any_null(values)
            if isinstance(data, Vec):  # it has NULLs of its own
                data, null = data.data, _either(data.null, null)
            return Vec(data & ~null if is_bool and null is not None else data, null)

        return strict

    def _expansion(self, call: Call) -> Evaluate:
        whole = expanded(call)
        self._expansions.append(whole)
        evaluate, sort = self._make(whole), sort_of(call.type)

        def narrowed(tile: Tile) -> Vec:
            value = evaluate(tile)
            return Vec(as_sort(value.data, sort), value.null)

        return narrowed

    def _to_exact(self, call: Call) -> Evaluate:
        inner = scaled(call)
        self._expansions.append(inner)
        evaluate = self._make(inner)
        if inner.type.name == "string":
            self._kernels.add("number")

        def cast(tile: Tile) -> Vec:
            value = evaluate(tile)
            data, beyond = exact_or_null(call.type, value.data, tile)
            return Vec(as_sort(data, sort_of(call.type)), _either(beyond, value.null))

        return cast

    def _note_kernel(self, call: Call) -> None:
        if call.op in _KERNELS:
            self._kernels.add(_KERNELS[call.op])
        elif call.args and sort_of(call.args[-1].type) == "text" and call.op in COMPARING:
            self._kernels.add("equal" if call.op in ("eq", "ne", "is_distinct") else "order")

    def _literal(self, literal: Literal) -> Vec:
        sort, value = sort_of(literal.type), literal.value
        null = np.True_ if value is None else None
        if sort == "text":
            content = b"" if value is None else literal_bytes(value)  # type: ignore[arg-type]
            self.literals += content
            return Vec(TextSpans(np.int64(len(self.literals) - len(content)), np.int64(len(content))), null)
        return Vec(constant_of(0 if value is None else value, sort), null)

    def _junction(self, call: Call) -> Evaluate:
        found = self._members(call)
        grouped = {id(arg) for _, args in found for arg in args}
        parts = [evaluate for evaluate, _ in found]
        parts += [self._make(arg) for arg in call.args if id(arg) not in grouped]
        return _all_true(parts) if call.op == "and" else _any_true(parts)

    def _members(self, call: Call) -> list[tuple[Evaluate, list[Expr]]]:
        """Of the arguments, those that compare one value with literals, and each such group as one search: equalities
        of an OR, and inequalities of an AND."""
        op = "eq" if call.op == "or" else "ne"
        groups: dict[Expr, list[tuple[int | float | str | bytes, Expr]]] = {}
        for arg in call.args:
            if isinstance(arg, Call) and arg.op == op:
                known = _value_and_constant(arg)
                if known is not None and not (op == "ne" and known[0].type.is_float):
                    groups.setdefault(known[0], []).append((known[1], arg))
        return [
            (
                self._member(value, [constant for constant, _ in members], op == "ne"),
                [arg for _, arg in members],
            )
            for value, members in groups.items()
            if len(members) >= FEWEST_MEMBERS
        ]

    def _member(self, value: Expr, constants: list[Any], negated: bool) -> Evaluate:
        evaluate, sort = self._make(value), sort_of(value.type)
        if sort == "text":
            self._kernels.add("member")
            contents = sorted({literal_bytes(constant) for constant in constants})
            starts = len(self.literals) + np.cumsum([0, *map(len, contents)])
            self.literals += b"".join(contents)
            lengths = np.diff(starts)
            starts = starts[:-1].copy()
            is_in: Callable[[Any, Tile], Any] = partial(_text_member, starts, lengths)
        elif sort == 128:
            near = np.array(sorted({c for c in constants if c in INT64}), np.int64)
            far = [constant_of(c, 128) for c in {c for c in constants if c not in INT64}]
            is_in = partial(_wide_member, near, far)
        else:
            sorted_constants = np.array(sorted(set(constants)), sort if isinstance(sort, str) else np.int64)
            is_in = partial(_plain_member, sorted_constants)

        def member(tile: Tile) -> Vec:
            found = evaluate(tile)
            data = is_in(found.data, tile)
            data = ~data if negated else data
            return Vec(data if found.null is None else data & ~found.null, found.null)

        return member

    def _like(self, call: Call) -> Evaluate:
        text, pattern = self._make(call.args[0]), call.args[1]
        self._kernels.add("like")
        assert isinstance(pattern, Literal)
        if pattern.value is None:
            return lambda tile: Vec(np.False_, np.True_)
        rule, escape = str(pattern.value), -1
        if len(call.args) > 2:
            assert isinstance(call.args[2], Literal)
            rule, escape = escaped_pattern(rule, str(call.args[2].value))
        content = np.frombuffer(rule.encode() + b"\0", np.uint8).copy()
        length = len(content) - 1

        def like(tile: Tile) -> Vec:
            value, out = text(tile), np.empty(tile.count, np.bool_)
            tiles.text_like(*tile.texts(value.data), content, length, escape, out)
            return Vec(out if value.null is None else out & ~value.null, value.null)

        return like

    def _solve(self, solve: Solve) -> Evaluate:
        """Bisection over the ranks of all floats, for all rows at once; see `Solve`."""
        free: dict[int, tuple[Column, Evaluate]] = {}
        changed: dict[int, Expr] = {}

        def freed(expr: Expr) -> Expr:
            """The condition, with a column for each largest part that does not read the variable."""
            if id(expr) not in changed:
                if isinstance(expr, Literal) or expr == solve.variable:
                    changed[id(expr)] = expr
                elif not any(node == solve.variable for node in walk(expr)):
                    column = Column(solve.variable.side, f"<free{len(free)}>", expr.type)
                    free[id(expr)] = (column, self._make(expr))
                    changed[id(expr)] = column
                else:
                    assert isinstance(expr, Call)
                    changed[id(expr)] = Call(expr.op, tuple(map(freed, expr.args)), expr.type)
            return changed[id(expr)]

        condition = ColumnWise([freed(solve.condition)])
        bits = 32 if solve.type.name == "float32" else 64

        def solved(tile: Tile) -> Vec:
            values = [(column, evaluate(tile)) for column, evaluate in free.values()]
            inputs = {column: Vec(value.data) for column, value in values}
            null = _any_null([value for _, value in values])

            def holds(keys: np.ndarray) -> Any:
                inner = Tile(tile.count, {**inputs, solve.variable: Vec(keys)}, tile.pool)
                return condition(inner)[0].data

            return Vec(_bisected(holds, tile.count, bits, solve.side == "hi"), null)

        return solved


def _kept(evaluate: Evaluate, key: int) -> Evaluate:
    def kept(tile: Tile) -> Vec:
        if key not in tile.kept:
            tile.kept[key] = evaluate(tile)
        return tile.kept[key]

    return kept


def _rows_read(column: Column, data: ColumnData, rows: slice, base: int) -> Vec:
    """Some rows of a column. `base`: where in the tile's pool the column's byte 0 would be."""
    sort = sort_of(column.type)
    null = None
    if data.valid is not None and not data.valid[rows].all():
        null = ~data.valid[rows]
    values = data.parts[0]
    if sort == "text":
        offsets = values[rows.start : rows.stop + 1]
        return Vec(TextSpans(offsets[:-1] + base, np.diff(offsets)), null)
    values = values[rows]
    if sort == "bool":
        flags = values != 0
        return Vec(flags if null is None else flags & ~null, null)
    if sort == 128:
        if column.type.name == "decimal" and values.ndim == 2:
            return Vec(Limbs(np.ascontiguousarray(values[:, 0]).view(np.uint64), values[:, 1]), null)
        if values.dtype == np.uint64:
            return Vec(Limbs(values, np.int64(0)), null)
        return Vec(_widened(values.astype(np.int64)), null)
    return Vec(values.astype(sort if isinstance(sort, str) else np.int64, copy=False), null)


def _value_and_constant(equality: Call) -> tuple[Expr, Any] | None:
    """The equality as (value, constant), or None if it does not compare a value with a constant."""
    a, b = equality.args
    if isinstance(a, Literal):
        a, b = b, a
    if isinstance(b, Literal):
        fits = b.value is not None and not isinstance(a, Literal) and a.type.name != "bool"
        return (a, b.value) if fits else None
    return as_equality_with_constant(a, b) if a.type.is_exact else None


# NULLs


def _either(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a | b


def _any_null(values: Sequence[Vec]) -> Any:
    null = None
    for value in values:
        null = _either(null, value.null)
    return null


def _all_true(parts: Sequence[Evaluate]) -> Evaluate:
    """AND; stops where every row is false."""

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


def _any_true(parts: Sequence[Evaluate]) -> Evaluate:
    """OR; stops where every row is true."""

    def evaluate(tile: Tile) -> Vec:
        data, null = np.False_, None
        for part in parts:
            value = part(tile)
            data, null = data | value.data, _either(null, value.null)
            if data.all():
                break
        return Vec(data, None if null is None else null & ~data)

    return evaluate


# Numbers


def constant_of(value: Any, sort: int | str) -> Any:
    if sort == 128:
        return Limbs(np.uint64(value & (2**64 - 1)), np.int64(value >> 64))
    if sort == "bool":
        return np.bool_(value)
    return np.dtype(sort).type(value) if isinstance(sort, str) else np.int64(value)


def _widened(data: Any) -> Limbs:
    signed = np.asarray(data, np.int64)
    return Limbs(signed.astype(np.uint64), signed >> 63)


def as_sort(data: Any, sort: int | str) -> Any:
    """Data in another sort; wide numbers are cut to 64 bits, where the range says that they fit."""
    if sort == 128:
        return data if isinstance(data, Limbs) else _widened(data)
    return np.asarray(data.low).astype(np.int64) if isinstance(data, Limbs) else data


def _sort_for(data: Sequence[Any], kind: Type | None = None) -> int | str:
    """The sort in which exact data, and a result of type `kind`, are computed together."""
    wide = any(isinstance(each, Limbs) for each in data) or (kind is not None and sort_of(kind) == 128)
    return 128 if wide else 64


def _wide_add(a: Limbs, b: Limbs) -> Limbs:
    low = a.low + b.low
    return Limbs(low, a.high + b.high + (low < a.low))


def _wide_sub(a: Limbs, b: Limbs) -> Limbs:
    return Limbs(a.low - b.low, a.high - b.high - (a.low < b.low))


def _wide_neg(a: Limbs) -> Limbs:
    return _wide_sub(Limbs(np.uint64(0), np.int64(0)), a)


def _wide_abs(a: Limbs) -> Limbs:
    negative, negated = a.high < 0, _wide_neg(a)
    return Limbs(np.where(negative, negated.low, a.low), np.where(negative, negated.high, a.high))


def _wide_mul(a: Limbs, b: Limbs) -> Limbs:
    """The lower 128 bits, by halves of the lower limbs."""
    a0, a1, b0, b1 = a.low & U32, a.low >> HALF, b.low & U32, b.low >> HALF
    low, middle, other = a0 * b0, a1 * b0, a0 * b1
    carry = (low >> HALF) + (middle & U32) + (other & U32)
    high = a1 * b1 + (middle >> HALF) + (other >> HALF) + (carry >> HALF)
    crossed = a.low * np.asarray(b.high).astype(np.uint64) + np.asarray(a.high).astype(np.uint64) * b.low
    return Limbs(a.low * b.low, np.asarray(high + crossed).astype(np.int64))


def wide_less(a: Limbs, b: Limbs) -> Any:
    return (a.high < b.high) | ((a.high == b.high) & (a.low < b.low))


def _wide_equal(a: Limbs, b: Limbs) -> Any:
    return (a.high == b.high) & (a.low == b.low)


def _python_integers(a: Limbs, count: int) -> list[int]:
    lows, highs = (np.broadcast_to(limb, (count,)).tolist() for limb in a)
    return [(high << 64) | low for low, high in zip(lows, highs, strict=True)]


def _of_python_integers(values: list[int]) -> Limbs:
    lows = np.array([value & (2**64 - 1) for value in values], np.uint64)
    return Limbs(lows, np.array([value >> 64 for value in values], np.int64))


def _divided(tile: Tile, data: Any, divisor: int, towards: str, kind: Type) -> Any:
    """The quotient by a positive constant, rounded "down", "up", or to the nearest, half "away" from zero."""
    sort = 128 if divisor not in INT64 else _sort_for([data], kind)
    if sort == 128:
        integers = _python_integers(as_sort(data, 128), tile.count)
        return _of_python_integers([value // divisor + _step(value, divisor, towards) for value in integers])
    return data // np.int64(divisor) + _step(data, np.int64(divisor), towards)


def _step(value: Any, divisor: Any, towards: str) -> Any:
    """What is added to the quotient rounded down."""
    rest = value % divisor
    if towards == "away":
        return (rest > divisor - rest) | ((rest == divisor - rest) & (value > 0))
    return rest != 0 if towards == "up" else 0


def _comparison_of_columns(op: str, a: Any, b: Any, tile: Tile) -> Any:
    """One of eq, ne, lt, le, gt, ge, of two data of one family."""
    if isinstance(a, TextSpans):
        out = np.empty(tile.count, np.int8)
        (tiles.text_equal if op in ("eq", "ne") else tiles.text_order)(*tile.texts(a, b), out)
        return _COMPARE[op](out, 1 if op in ("eq", "ne") else 0)
    if isinstance(a, Limbs) or isinstance(b, Limbs):
        a, b = as_sort(a, 128), as_sort(b, 128)
        match op:
            case "eq" | "ne":
                equal = _wide_equal(a, b)
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


def _chosen(mask: Any, a: Any, b: Any) -> Any:
    """Where `mask`, `a`, else `b`."""
    if isinstance(a, Limbs) or isinstance(b, Limbs):
        a, b = as_sort(a, 128), as_sort(b, 128)
        return Limbs(np.where(mask, a.low, b.low), np.where(mask, a.high, b.high))
    if isinstance(a, TextSpans):
        return TextSpans(np.where(mask, a.start, b.start), np.where(mask, a.length, b.length))
    return np.where(mask, a, b)


def _where_nan(data: Any) -> Any:
    return data != data


def _found_in_sorted(constants: np.ndarray, data: Any) -> Any:
    """Whether each number is one of the sorted constants; NaN never is."""
    if not len(constants):
        return np.zeros(np.shape(data), np.bool_)
    places = np.minimum(np.searchsorted(constants, data), len(constants) - 1)
    return constants[places] == data


def _plain_member(constants: np.ndarray, data: Any, tile: Tile) -> Any:
    return _found_in_sorted(constants, data)


def _wide_member(near: np.ndarray, far: list[Limbs], data: Any, tile: Tile) -> Any:
    data = as_sort(data, 128)
    low = np.asarray(data.low).astype(np.int64)
    found = (data.high == low >> 63) & _found_in_sorted(near, low)
    for constant in far:
        found = found | _wide_equal(data, constant)
    return found


def _text_member(starts: np.ndarray, lengths: np.ndarray, data: TextSpans, tile: Tile) -> np.ndarray:
    out = np.empty(tile.count, np.bool_)
    tiles.text_member(*tile.texts(data), starts, lengths, out)
    return out


def _bisected(holds: Callable[[np.ndarray], Any], count: int, bits: int, highest: bool) -> np.ndarray:
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


COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_distinct", "least", "greatest", "max", "min"))
# The kernels of operations that have their own; see `rehearse`.
_KERNELS = {
    "hash64": "hash", "length": "length", "substring": "substring",
    **dict.fromkeys(("trim", "ltrim", "rtrim"), "trim"), **dict.fromkeys(("lower", "upper", "concat"), "gather"),
    **dict.fromkeys(libm.NAMES, "libm"),
}  # fmt: skip


# Operations: each takes the call, the data of its arguments and the tile, and gives data, or a `Vec` that has NULLs.


def _sum_like(
    plain: Callable[..., Any], wide: Callable[..., Limbs]
) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        if call.type.is_exact and _sort_for(data, call.type) == 128:
            result = wide(*(as_sort(each, 128) for each in data))
            return as_sort(result, sort_of(call.type))
        return plain(*data)

    return operate


def _mod(call: Call, data: list[Any], tile: Tile) -> Any:
    if not call.type.is_exact:
        return Vec(np.fmod(*data), data[1] == 0)
    if _sort_for(data, call.type) == 128:
        a, b = (_python_integers(as_sort(each, 128), tile.count) for each in data)
        rests = [(abs(x) % abs(y) * (-1 if x < 0 else 1)) if y else 0 for x, y in zip(a, b, strict=True)]
        result = as_sort(_of_python_integers(rests), sort_of(call.type))
        return Vec(result, _wide_equal(as_sort(data[1], 128), constant_of(0, 128)))
    zero = data[1] == 0
    return Vec(np.fmod(data[0], np.where(zero | (data[1] == -1), 1, data[1])), zero)


def _div(call: Call, data: list[Any], tile: Tile) -> Any:
    return Vec(data[0] / data[1], data[1] == 0)


def _rounding(towards: str) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        kind = call.args[0].type
        if kind.is_float:
            return (np.ceil if towards == "up" else np.floor)(data[0])
        return as_sort(_divided(tile, data[0], 10**kind.scale, towards, kind), sort_of(call.type))

    return operate


def _divide_by(towards: str) -> Callable[[Call, list[Any], Tile], Any]:
    def operate(call: Call, data: list[Any], tile: Tile) -> Any:
        divisor = call.args[1]
        assert isinstance(divisor, Literal) and isinstance(divisor.value, int)
        return as_sort(_divided(tile, data[0], divisor.value, towards, call.type), sort_of(call.type))

    return operate


def _floormod(call: Call, data: list[Any], tile: Tile) -> Any:
    divisor = call.args[1]
    assert isinstance(divisor, Literal) and isinstance(divisor.value, int)
    if divisor.value in INT64 and _sort_for(data[:1]) == 64:
        return data[0] % np.int64(divisor.value)
    rests = [value % divisor.value for value in _python_integers(as_sort(data[0], 128), tile.count)]
    return as_sort(_of_python_integers(rests), sort_of(call.type))


def _cast(call: Call, data: list[Any], tile: Tile) -> Any:
    kind = call.args[0].type
    if isinstance(data[0], Limbs):
        value: Any = np.array(list(map(float, _python_integers(data[0], tile.count))))
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
            keep = _comparison_of_columns(op, best, each, tile)
            best = _chosen(keep | _where_nan(best) if call.type.is_float else keep, best, each)
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
    return _comparison_of_columns(call.op, data[0], data[1], tile)


OPERATIONS: dict[str, Callable[[Call, list[Any], Tile], Any]] = {
    "add": _sum_like(np.add, _wide_add),
    "sub": _sum_like(np.subtract, _wide_sub),
    "mul": _sum_like(np.multiply, _wide_mul),
    "neg": _sum_like(np.negative, _wide_neg),
    "abs": _sum_like(np.abs, _wide_abs),
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
    "nan_to": lambda call, data, tile: np.where(_where_nan(data[0]), data[1], data[0]),
    "hash64": _hash,
    "not": lambda call, data, tile: ~data[0],
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), _compared),
    **COLUMN_FUNCTIONS,
}

# Operations that do not give NULL whenever an argument is: each takes the call, its arguments and the tile.


def _extreme_of_columns(op: str) -> Callable[[Call, Sequence[Evaluate], Tile], Vec]:
    """LEAST and GREATEST: NULLs are skipped, NaN counts as the largest."""

    def choose(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
        best, null = args[0](tile)
        for arg in args[1:]:
            data, missing = arg(tile)
            better = _comparison_of_columns(op, data, best, tile)
            if call.type.is_float:
                better = better | _where_nan(best if op == "lt" else data)
            better = better if null is None else null | better
            better = better if missing is None else ~missing & better
            best = _chosen(better, data, best)
            null = None if null is None or missing is None else null & missing
        return Vec(as_sort(best, sort_of(call.type)) if call.type.is_exact else best, null)

    return choose


def _coalesce_columns(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    data, null = args[0](tile)
    for arg in args[1:]:
        if null is None or not null.any():
            break
        other, missing = arg(tile)
        data = _chosen(null, other, data)
        null = None if missing is None else null & missing
    return Vec(as_sort(data, sort_of(call.type)) if call.type.is_exact else data, null)


def _case_column(call: Call, args: Sequence[Evaluate], tile: Tile) -> Vec:
    """The first branch whose condition is true; stops where every row has one."""
    data = null = None
    decided: Any = np.False_
    for condition, value in [*zip(args[:-1:2], args[1:-1:2], strict=True), (None, args[-1])]:
        taken = ~decided if condition is None else condition(tile).data & ~decided
        if not taken.any():
            continue
        found, missing = value(tile)
        data = found if data is None else _chosen(taken, found, data)
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
    equal = _comparison_of_columns("eq", a.data, b.data, tile)
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
