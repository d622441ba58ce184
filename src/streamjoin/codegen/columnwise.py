"""Expressions evaluated column by column, in NumPy: for predicates that are too long to compile as one loop.

Numba and LLVM take more than linear time for a function, so a loop of some hundred operations does not compile within
seconds. Here each operation of the tree is one pass over a *tile* of rows that stays in the L2 cache. Nearly nothing is
compiled: a few kernels for text and functions of the C library, the same for all predicates. A pass costs about a
nanosecond a row and operation. ORed equalities of one value with literals are a search in a sorted array, whatever
their number. This module turns a tree into functions of a tile; `column_operations` has the operations,
`column_functions` those of floats and text, and `column_values` what they share.

A value is a `Vec`. Exact numbers of up to 64 bits are int64, wider ones are `Limbs`, two limbs. No result wraps, as the
ranges in the types say. For the same tree, this module and the loops of `expressions` give the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from streamjoin.codegen.column_operations import CHOICES, OPERATIONS, all_true, any_true, exact_or_null
from streamjoin.codegen.column_values import (
    any_null,
    as_limbs,
    as_sort,
    bisect_floats,
    constant_of,
    either_null,
    plain_member,
    text_member_of,
    wide_member,
)
from streamjoin.codegen.columns import ColumnData
from streamjoin.codegen.expressions import INT64, escaped_pattern, literal_bytes, sort_of
from streamjoin.codegen.vec import Evaluate, Limbs, TextSpans, Tile, Vec
from streamjoin.kernels.values import libm, tiles
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve, children, walk
from streamjoin.semantics.linear import as_equality_with_constant
from streamjoin.semantics.moments import EXPANDED, expanded
from streamjoin.semantics.number_casts import scaled

TILE = 4096  # rows
FEWEST_MEMBERS = 4  # this many ORed equalities with literals, or more, become one search
MAX_SHARED = 256  # at most this many values of a tile are kept because several operations read them

COMPARING = frozenset(("eq", "ne", "lt", "le", "gt", "ge", "is_distinct", "least", "greatest", "max", "min"))
# The kernels of operations that have their own; see `rehearse`.
_KERNELS = {
    "hash64": "hash", "length": "length", "substring": "substring",
    **dict.fromkeys(("trim", "ltrim", "rtrim"), "trim"), **dict.fromkeys(("lower", "upper", "concat"), "gather"),
    **dict.fromkeys(libm.NAMES, "libm"),
}  # fmt: skip


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
        self._expansions: list[Expr] = []  # kept alive, because `_made` is keyed by identity
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

    # Turning a tree into functions

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
            data, null = operate(expr, [value.data for value in values], tile), any_null(values)
            if isinstance(data, Vec):  # it has NULLs of its own
                data, null = data.data, either_null(data.null, null)
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
            return Vec(as_sort(data, sort_of(call.type)), either_null(beyond, value.null))

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
        return all_true(parts) if call.op == "and" else any_true(parts)

    def _members(self, call: Call) -> list[tuple[Evaluate, list[Expr]]]:
        """The arguments that compare a value with literals (equalities of an OR, inequalities of an AND), grouped by
        that value: each group as one search, with the arguments that it replaces."""
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
            is_in: Callable[[Any, Tile], Any] = partial(text_member_of, starts, lengths)
        elif sort == 128:
            near = np.array(sorted({c for c in constants if c in INT64}), np.int64)
            far = [constant_of(c, 128) for c in {c for c in constants if c not in INT64}]
            is_in = partial(wide_member, near, far)
        else:
            sorted_constants = np.array(sorted(set(constants)), sort if isinstance(sort, str) else np.int64)
            is_in = partial(plain_member, sorted_constants)

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
            null = any_null([value for _, value in values])

            def holds(keys: np.ndarray) -> Any:
                inner = Tile(tile.count, {**inputs, solve.variable: Vec(keys)}, tile.pool)
                return condition(inner)[0].data

            return Vec(bisect_floats(holds, tile.count, bits, solve.side == "hi"), null)

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
        return Vec(as_limbs(values.astype(np.int64)), null)
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
