"""Expression trees as straight-line Numba source: one statement an operation, no branches, so that
LLVM can vectorise the loop around it.

Each node becomes a `CodeValue`: a variable and the name of its null flag ("False" where it cannot be
NULL). A boolean is True only if it is true and not NULL. Exact values are computed in 32, 64 or 128
bits, whichever the range of operands and result needs: that is why nothing ever wraps.
Source depends on the shape of the tree alone, so equal shapes share code: columns are numbered, and literals are
arguments (`Constants`). Only divisors stay in the source, because dividing by a number known to the compiler is much
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve, walk
from streamjoin.semantics.moments import EXPANDED, expanded
from streamjoin.semantics.number_casts import float_bounds, scaled
from streamjoin.semantics.types import Type

HEADER = """\
import math

import numpy as np

from streamjoin.kernels.values import civil
from streamjoin.kernels.values import exact
from streamjoin.kernels.values import floats
from streamjoin.kernels.values import libm
from streamjoin.kernels.values import text
from streamjoin.kernels.values import wide
from streamjoin.jit.decorator import jit
"""

# Functions of float64 as source. `math` stands for the C library in compiled code.
LIBM = {
    "ln": "libm.ln", "power": "math.pow",
    **{name: f"math.{name}" for name in ("exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2")},
}  # fmt: skip
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True)
class CodeValue:
    """`sort`: 32, 64, 128 (exact bits), "float32", "float64", "bool" or "text"."""

    code: str
    null: str
    sort: int | str


def literal_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class Constants:
    """The literals of generated functions, which take them as the arguments `PARAMETERS`.

    Every use of a literal is a separate constant, `k0`, `k1` and so on. Otherwise two equal literals would generate
    other source than two different ones.
    """

    PARAMETERS = ("texts", "whole", "real")

    def __init__(self) -> None:
        self.codes: list[str] = []  # by constant
        self._texts = bytearray()
        self._whole: list[int] = []
        self._real: list[float] = []

    def add(self, value: int | float, sort: int | str) -> str:
        """The name of a new constant that is a number."""
        if isinstance(sort, str):
            code = f"np.{sort}(real[{len(self._real)}])"
            self._real.append(value)
        elif sort < 128:
            code = f"np.int{sort}(whole[{len(self._whole)}])"
            self._whole.append(int(value))
        else:
            code = f"wide.from_limbs(whole[{len(self._whole)}], whole[{len(self._whole) + 1}])"
            low = int(value) & (2**64 - 1)
            self._whole += [low - 2**64 if low >= 2**63 else low, int(value) >> 64]
        self.codes.append(code)
        return f"k{len(self.codes) - 1}"

    def add_text(self, content: bytes) -> str:
        """The code of a new constant that is a text."""
        start, length = self.add(len(self._texts), 64), self.add(len(content), 64)
        self._texts += content
        return f"(texts, {start}, {length})"

    def names_from(self, first: int) -> list[str]:
        """The names of the constants added since there were `first`."""
        return [f"k{number}" for number in range(first, len(self.codes))]

    def lines(self) -> list[str]:
        """The statements that give the constants their names, for the beginning of a function."""
        return [f"    k{number} = {code}" for number, code in enumerate(self.codes)]

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        texts = np.frombuffer(bytes(self._texts) + b"\0", np.uint8).copy()
        return texts, np.array(self._whole, np.int64), np.array(self._real, np.float64)


_SOLVER = """\
@jit
def {name}({parameters}):
{before}
    low, high, found = -floats.MAX_RANK{bits} - 1, floats.MAX_RANK{bits}, np.float{bits}(np.nan)
    guess = floats.rank{bits}(np.float{bits}({guess}))
    step = 0
    while low <= high:
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        if step < 2:
            middle = min(max(guess - 3 + 6 * step, low), high)
        step += 1
        key = floats.float{bits}_at(middle)
{lines}
        if {condition}:
            found = key
            {if_true}
        else:
            {if_false}
    return found
"""


class Emitter:
    """Writes the statements that compute expressions at one tuple (or pair of tuples).

    `place(column)` gives (suffix, index): the column's arrays are `c<k><suffix>` read at `[index]`.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        nullable: bool,
        place: Callable[[Column], tuple[str, str]],
        constants: Constants | None = None,
    ):
        self.columns, self.nullable, self.place = list(columns), nullable, place
        self.constants = constants or Constants()
        self.lines: list[str] = []
        self.indent = 1
        self.functions: list[str] = []  # sources of functions that the statements call
        self.known: dict[Expr, CodeValue] = {}
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self) -> str:
        self._names += 1
        return f"v{self._names}"

    def let(self, code: str) -> str:
        name = self.name()
        self.line(f"{name} = {code}")
        return name

    def any_of(self, flags: Sequence[str]) -> str:
        """One flag that is set if any of them is."""
        real = [flag for flag in dict.fromkeys(flags) if flag != "False"]
        if len(real) < 2:
            return real[0] if real else "False"
        return self.let(" | ".join(real))

    def emit(self, expr: Expr) -> CodeValue:
        if isinstance(expr, Literal):
            return self._literal(expr)
        if expr not in self.known:
            self.known[expr] = self._emit(expr)
        return self.known[expr]

    def _emit(self, expr: Column | Call | Solve) -> CodeValue:
        match expr:
            case Column():
                return self._column(expr)
            case Solve():
                return self._solve(expr)
            case Call() if expr.op in EXPANDED:
                whole = self.emit(expanded(expr))
                return self.result(whole.code, [whole], whole.sort, expr.type)
            case Call() if expr.op == "to_exact":
                return self._to_exact(expr, self.emit(scaled(expr)))
            case Call():
                value: CodeValue = getattr(self, f"_{expr.op}")(expr, [self.emit(arg) for arg in expr.args])
                return value

    # Leaves

    def _column(self, column: Column) -> CodeValue:
        number = self.columns.index(column)
        suffix, index = self.place(column)
        array, sort = f"c{number}{suffix}", sort_of(column.type)
        if sort == "text":
            start = self.let(f"c{number}_offsets{suffix}[{index}]")
            code = f"(c{number}_bytes{suffix}, {start}, c{number}_offsets{suffix}[{index} + 1] - {start})"
        elif sort == "bool":
            code = f"{array}[{index}] != 0"
        elif sort == 128:
            limbs = f"{array}[{index}, 0], {array}[{index}, 1]"
            code = (
                f"wide.from_limbs({limbs})"
                if column.type.name == "decimal"
                else f"wide.widen({array}[{index}])"
            )
        else:
            code = f"np.{sort if isinstance(sort, str) else f'int{sort}'}({array}[{index}])"
        null = self.let(f"not c{number}_valid{suffix}[{index}]") if self.nullable else "False"
        if sort == "bool" and self.nullable:
            code = f"({code}) & (not {null})"
        return CodeValue(self.let(code), null, sort)

    def _literal(self, literal: Literal) -> CodeValue:
        value, sort = literal.value, sort_of(literal.type)
        if value is None:
            return CodeValue(self._blank(sort), "True", sort)
        if sort == "text":
            code = self.constants.add_text(literal_bytes(value))  # type: ignore[arg-type]
            return CodeValue(self.let(code), "False", sort)
        if sort == "bool":
            return CodeValue(str(bool(value)), "False", sort)
        return CodeValue(self.constants.add(value, sort), "False", sort)  # type: ignore[arg-type]

    def _blank(self, sort: int | str) -> str:
        """Some value of a sort, for a NULL literal."""
        if sort == "text":
            return self.let("(texts, np.int64(0), np.int64(0))")
        return {"bool": "False", 128: "wide.widen(0)"}.get(sort) or (
            f"np.{sort}(0.0)" if isinstance(sort, str) else f"np.int{sort}(0)"
        )

    @staticmethod
    def constant(value: int, sort: int) -> str:
        if sort < 128:
            return f"np.int{sort}({value})"
        if value in INT64:
            return f"wide.widen(np.int64({value}))"
        low = value & (2**64 - 1)
        low -= 2**64 if low >= 2**63 else 0
        return f"wide.from_limbs(np.int64({low}), np.int64({value >> 64}))"

    # Exact and float arithmetic

    def widen(self, value: CodeValue, sort: int | str) -> str:
        """The code of `value` in another sort; a wide value is cut to 64 bits, where its range says it fits."""
        if value.sort == sort or isinstance(value.sort, str):
            return value.code
        if sort == 128:
            return f"wide.widen({value.code})"
        return f"np.int{sort}({f'wide.low_limb({value.code})' if value.sort == 128 else value.code})"

    def common(self, values: Sequence[CodeValue], kind: Type | None = None) -> int | str:
        """The sort in which values, and a result of type `kind`, can be computed together."""
        sorts = [value.sort for value in values] + ([sort_of(kind)] if kind else [])
        return max(sorts, key=lambda sort: sort if isinstance(sort, int) else 0)

    def result(
        self, code: str, values: Sequence[CodeValue], sort: int | str, kind: Type, *nulls: str
    ) -> CodeValue:
        """Bind a computed value, narrowed to what its type needs."""
        value = CodeValue(self.let(code), self.any_of([*(v.null for v in values), *nulls]), sort)
        wanted = sort_of(kind)
        return value if wanted == sort else CodeValue(self.let(self.widen(value, wanted)), value.null, wanted)

    def _arithmetic(self, call: Call, values: list[CodeValue], operator: str, function: str) -> CodeValue:
        sort = self.common(values, call.type)
        codes = [self.widen(value, sort) for value in values]
        if sort == 128:
            code = f"wide.{function}({', '.join(codes)})"
        elif isinstance(sort, str):
            code = operator.format(*codes)
        else:
            code = f"np.int{sort}({operator.format(*codes)})"
        return self.result(code, values, sort, call.type)

    def _add(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._arithmetic(call, values, "{} + {}", "add")

    def _sub(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._arithmetic(call, values, "{} - {}", "sub")

    def _mul(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._arithmetic(call, values, "{} * {}", "mul")

    def _neg(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._arithmetic(call, values, "-{}", "neg")

    def _abs(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._arithmetic(call, values, "abs({})", "absolute")

    def _mod(self, call: Call, values: list[CodeValue]) -> CodeValue:
        sort = self.common(values, call.type)
        a, b = (self.widen(value, sort) for value in values)
        zero = self._blank(sort)
        null = self.let(f"wide.eq({b}, {zero})" if sort == 128 else f"{b} == {zero}")
        if isinstance(sort, str):
            return self.result(f"np.{sort}(np.fmod({a}, {b}))", values, sort, call.type, null)
        one = self.constant(1, sort)
        code = f"{'wide.remainder' if sort == 128 else 'exact.remainder64'}({a}, {one} if {null} else {b})"
        return self.result(code if sort == 128 else f"np.int{sort}({code})", values, sort, call.type, null)

    def _div(self, call: Call, values: list[CodeValue]) -> CodeValue:
        null = self.let(f"{values[1].code} == 0")
        return self.result(f"{values[0].code} / {values[1].code}", values, values[0].sort, call.type, null)

    def _divide(self, call: Call, value: CodeValue, divisor: int, towards: str) -> CodeValue:
        """The quotient by a positive constant, rounded "down", "up", or to the nearest, half "away" from zero."""
        sort = self.common([value], Type("int", 0, -divisor, divisor))
        a, b = self.widen(value, sort), self.constant(divisor, int(sort))
        if sort == 128:
            code = {
                "down": f"wide.floor_divide({a}, {b})",
                "up": f"wide.neg(wide.floor_divide(wide.neg({a}), {b}))",
                "away": f"wide.round_divide({a}, {b})",
            }[towards]
        else:
            code = {
                "down": f"np.int{sort}({a} // {b})",
                "up": f"np.int{sort}({a} // {b} + ({a} % {b} != 0))",
                "away": f"np.int{sort}(exact.round_divide64({a}, {b}))",
            }[towards]
        return self.result(code, [value], sort, call.type)

    def _divide_by(self, call: Call, values: list[CodeValue]) -> CodeValue:
        towards = {"floordiv": "down", "ceildiv": "up", "rounddiv": "away"}[call.op]
        return self._divide(call, values[0], call.args[1].value, towards)  # type: ignore[union-attr, arg-type]

    _floordiv = _ceildiv = _rounddiv = _divide_by

    def _floormod(self, call: Call, values: list[CodeValue]) -> CodeValue:
        divisor = call.args[1].value  # type: ignore[union-attr]
        sort = self.common([values[0]], Type("int", 0, -divisor, divisor))  # type: ignore[operator, arg-type]
        a, b = self.widen(values[0], sort), self.constant(divisor, int(sort))  # type: ignore[arg-type]
        wide = f"wide.sub({a}, wide.mul(wide.floor_divide({a}, {b}), {b}))"
        return self.result(wide if sort == 128 else f"np.int{sort}({a} % {b})", [values[0]], sort, call.type)

    def _month(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.result(f"civil.{call.op}({self.widen(values[0], 64)})", values, 64, call.type)

    _month_number = _month_start = _month

    def _floor(self, call: Call, values: list[CodeValue]) -> CodeValue:
        if isinstance(values[0].sort, str):
            return self.result(f"np.floor({values[0].code})", values, values[0].sort, call.type)
        return self._divide(call, values[0], 10 ** call.args[0].type.scale, "down")

    def _ceil(self, call: Call, values: list[CodeValue]) -> CodeValue:
        if isinstance(values[0].sort, str):
            return self.result(f"np.ceil({values[0].code})", values, values[0].sort, call.type)
        return self._divide(call, values[0], 10 ** call.args[0].type.scale, "up")

    def _sqrt(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.result(f"np.sqrt({values[0].code})", values, "float64", call.type)

    def _round(self, call: Call, values: list[CodeValue]) -> CodeValue:
        code = f"np.{values[0].sort}(floats.round_away({values[0].code}))"
        return self.result(code, values, values[0].sort, call.type)

    def _libm(self, call: Call, values: list[CodeValue]) -> CodeValue:
        arguments = ", ".join(value.code for value in values)
        return self.result(f"{LIBM[call.op]}({arguments})", values, "float64", call.type)

    _ln = _exp = _sin = _cos = _tan = _asin = _acos = _atan = _atan2 = _power = _libm

    def _cast(self, call: Call, values: list[CodeValue]) -> CodeValue:
        value, kind = values[0], call.args[0].type
        code = f"wide.to_float({value.code})" if value.sort == 128 else f"np.float64({value.code})"
        if kind.is_exact and kind.scale:
            code = f"{code} / {float(10**kind.scale)!r}"
        sort = sort_of(call.type)
        return CodeValue(self.let(f"np.{sort}({code})"), value.null, sort)

    def _to_exact(self, call: Call, value: CodeValue) -> CodeValue:
        """`value`: the argument in units of the result's scale."""
        target = call.type
        if value.sort == "bool":
            return self.result(f"np.int32({value.code})", [value], 32, target)
        if isinstance(value.sort, str):
            least, greatest = float_bounds(target)
            fits = self.let(f"({value.code} >= {least!r}) & ({value.code} <= {greatest!r})")
            return self.result(
                f"np.int64({value.code} if {fits} else 0.0)", [value], 64, target, f"(not {fits})"
            )
        sort = self.common([value], target)
        code = self.widen(value, sort)
        lo, hi = (self.constant(bound, int(sort)) for bound in (target.lo, target.hi))
        beyond = [self.comparison(code, lo, sort), self.comparison(code, hi, sort, ">")]
        return self.result(code, [value], sort, target, self.let(f"({' | '.join(beyond)})"))

    # Choosing among values

    def comparison(self, a: str, b: str, sort: int | str, operator: str = "<") -> str:
        """Source of a comparison of two codes of one sort."""
        if sort == "text":
            return f"(text.equal({a}, {b}))" if operator == "==" else f"(text.compare({a}, {b}) {operator} 0)"
        if sort == 128:
            swapped = {">": ("lt", b, a), ">=": ("le", b, a)}
            function, x, y = swapped.get(operator) or ({"<": "lt", "<=": "le", "==": "eq"}[operator], a, b)
            return f"wide.{function}({x}, {y})"
        if sort == "bool":
            return f"(np.int32({a}) {operator} np.int32({b}))"
        return f"({a} {operator} {b})"

    def _extreme(self, call: Call, values: list[CodeValue], operator: str) -> CodeValue:
        """LEAST and GREATEST: NULLs are skipped, NaN counts as the largest."""
        sort = self.common(values, call.type)
        best, null = self.widen(values[0], sort), values[0].null
        for value in values[1:]:
            code = self.widen(value, sort)
            better = self.comparison(code, best, sort, operator)
            if call.type.is_float:
                nan = best if operator == "<" else code
                better = f"({better} | ({nan} != {nan}))"
            if null != "False":
                better = f"({null} | {better})"
            if value.null != "False":
                better = f"((not {value.null}) & {better})"
            best = self.let(f"{code} if {better} else {best}")
            null = "False" if "False" in (null, value.null) else self.let(f"{null} & {value.null}")
        return CodeValue(best, null, sort)

    def _least(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._extreme(call, values, "<")

    def _greatest(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._extreme(call, values, ">")

    def _strict_extreme(self, call: Call, values: list[CodeValue], operator: str) -> CodeValue:
        sort = self.common(values, call.type)
        best = self.widen(values[0], sort)
        for value in values[1:]:
            code = self.widen(value, sort)
            keep = self.comparison(best, code, sort, operator)
            if isinstance(sort, str):
                keep = f"({keep} | ({best} != {best}))"
            best = self.let(f"{best} if {keep} else {code}")
        return self.result(best, values, sort, call.type)

    def _max(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._strict_extreme(call, values, ">")

    def _min(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self._strict_extreme(call, values, "<")

    def _coalesce(self, call: Call, values: list[CodeValue]) -> CodeValue:
        sort = self.common(values, call.type)
        code, null = self.widen(values[-1], sort), values[-1].null
        for value in reversed(values[:-1]):
            if value.null != "False":
                code = self.let(f"{code} if {value.null} else {self.widen(value, sort)}")
                null = "False" if null == "False" else self.let(f"{value.null} & {null}")
            else:
                code, null = self.widen(value, sort), "False"
        return CodeValue(code, null, sort)

    def _case(self, call: Call, values: list[CodeValue]) -> CodeValue:
        sort = self.common([*values[1::2], values[-1]], call.type)
        code, null = self.widen(values[-1], sort), values[-1].null
        for condition, value in reversed(list(zip(values[:-1:2], values[1:-1:2], strict=True))):
            code = self.let(f"{self.widen(value, sort)} if {condition.code} else {code}")
            if (value.null, null) != ("False", "False"):
                null = self.let(f"{value.null} if {condition.code} else {null}")
        return CodeValue(code, null, sort)

    def _nan_to(self, call: Call, values: list[CodeValue]) -> CodeValue:
        code = values[0].code
        return self.result(
            f"{values[1].code} if {code} != {code} else {code}", values, values[0].sort, call.type
        )

    def _next_up(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.result(
            f"floats.next_up{_bits(call.type)}({values[0].code})", values, values[0].sort, call.type
        )

    def _next_down(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.result(
            f"floats.next_down{_bits(call.type)}({values[0].code})", values, values[0].sort, call.type
        )

    def _hash64(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.result(f"text.hash64({values[0].code})", values, 64, call.type)

    def _solve(self, solve: Solve) -> CodeValue:
        """Generate a separate function. Its arguments are the parts that do not depend on the variable, each computed
        once."""
        free = [node for node in _without(solve.condition, solve.variable) if not isinstance(node, Literal)]
        values = [self.emit(node) for node in free]
        inner = Emitter(self.columns, self.nullable, self.place, self.constants)
        first = len(self.constants.codes)
        for number, (node, value) in enumerate(zip(free, values, strict=True)):
            inner.known[node] = CodeValue(f"p{number}", "False", value.sort)
        inner.known[solve.variable] = CodeValue("key", "False", sort_of(solve.type))
        function = f"solve{len(self.functions)}"
        source = inner.solver(solve, function, [f"p{number}" for number in range(len(free))])
        self.functions.append(source)
        taken = [*(value.code for value in values), *self.constants.names_from(first)]
        code = self.let(f"{function}({', '.join(taken)})")
        return CodeValue(code, self.any_of([value.null for value in values]), sort_of(solve.type))

    def solver(self, solve: Solve, name: str, parameters: Sequence[str]) -> str:
        """The source of a `Solve`: bisection over the ranks of all floats, exact whatever the rounding, as the
        condition is monotone. The first two steps look just below and above the answer that unrounded
        algebra gives, which nearly always leaves a handful of floats. Its last parameters are the constants that it
        uses."""
        first = len(self.constants.codes)
        guess, before = self._inverse(solve), self.lines
        self.lines, self.indent = [], 2
        condition = self.emit(solve.condition).code
        forward, back = "low = middle + 1", "high = middle - 1"
        return _SOLVER.format(
            name=name,
            parameters=", ".join([*parameters, *self.constants.names_from(first)]),
            bits=_bits(solve.type),
            before="\n".join(before),
            guess=guess,
            lines="\n".join(self.lines),
            condition=condition,
            if_true=forward if solve.side == "hi" else back,
            if_false=back if solve.side == "hi" else forward,
        )

    def _inverse(self, solve: Solve) -> str:
        """An estimate of where the condition changes: undo the arithmetic between variable and comparison step by
        step."""
        atom = solve.condition
        while isinstance(atom, Call) and atom.op == "not":
            atom = atom.args[0]
        assert isinstance(atom, Call)
        reads = [solve.variable in walk(arg) for arg in atom.args]
        expr, target = atom.args[reads.index(True)], self.emit(atom.args[reads.index(False)]).code
        while isinstance(expr, Call):
            inside = [solve.variable in walk(arg) for arg in expr.args].index(True)
            known = [self.emit(arg).code for number, arg in enumerate(expr.args) if number != inside]
            match expr.op, inside:
                case "add", _:
                    target = f"({target} - {known[0]})"
                case "sub", 0:
                    target = f"({target} + {known[0]})"
                case "sub", 1:
                    target = f"({known[0]} - {target})"
                case "neg", _:
                    target = f"(-{target})"
                case "mul", _:
                    target = f"({target} / {known[0]})"
                case "div", 0:
                    target = f"({target} * {known[0]})"
                case _:  # a cast, or an operation that we cannot undo: the guess is only a starting point
                    pass
            expr = expr.args[inside]
        return target

    # Logic

    def truth(self, code: str, nulls: Sequence[str]) -> CodeValue:
        null = self.any_of(nulls)
        return CodeValue(self.let(code if null == "False" else f"({code}) & (not {null})"), null, "bool")

    def _compare(self, call: Call, values: list[CodeValue]) -> CodeValue:
        sort = self.common(values)
        a, b = (self.widen(value, sort) for value in values)
        if call.op != "ne":
            code = self.comparison(a, b, sort, COMPARISONS[call.op])
        elif isinstance(sort, str) and sort.startswith("float"):
            code = f"({a} < {b}) | ({a} > {b})"  # false if either is NaN
        else:
            code = f"not {self.comparison(a, b, sort, '==')}"
        return self.truth(code, [value.null for value in values])

    _eq = _ne = _lt = _le = _gt = _ge = _compare

    def _and(self, call: Call, values: list[CodeValue]) -> CodeValue:
        code = self.let(" & ".join(value.code for value in values))
        if all(value.null == "False" for value in values):
            return CodeValue(code, "False", "bool")
        open_ = [v.code if v.null == "False" else f"({v.code} | {v.null})" for v in values]
        return CodeValue(code, self.let(f"{' & '.join(open_)} & (not {code})"), "bool")

    def _or(self, call: Call, values: list[CodeValue]) -> CodeValue:
        code = self.let(" | ".join(value.code for value in values))
        null = self.any_of([value.null for value in values])
        return CodeValue(code, null if null == "False" else self.let(f"{null} & (not {code})"), "bool")

    def _not(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return self.truth(f"not {values[0].code}", [values[0].null])

    def _is_null(self, call: Call, values: list[CodeValue]) -> CodeValue:
        return CodeValue(values[0].null, "False", "bool")

    def _is_distinct(self, call: Call, values: list[CodeValue]) -> CodeValue:
        sort = self.common(values)
        equal = self.comparison(self.widen(values[0], sort), self.widen(values[1], sort), sort, "==")
        a, b = values[0].null, values[1].null
        code = self.let(f"({a} != {b}) | ((not {a}) & (not {b}) & (not {equal}))")
        return CodeValue(code, "False", "bool")

    # Functions that return part of a text. Functions that make new bytes are evaluated column by column.

    def _length(self, call: Call, values: list[CodeValue]) -> CodeValue:
        code = values[0].code
        characters = f"text.characters({code})" if call.args[0].type.name == "string" else f"{code}[2]"
        return self.result(f"np.int64({characters})", values, 64, call.type)

    def _substring(self, call: Call, values: list[CodeValue]) -> CodeValue:
        bounds = [self.widen(value, 64) for value in values[1:]]
        bounds += [self.constant(2**63 - 1, 64)] * (len(values) < 3)
        return self.result(
            f"text.substring({', '.join([values[0].code, *bounds])})", values, "text", call.type
        )

    def _trim(self, call: Call, values: list[CodeValue]) -> CodeValue:
        ends = f"{call.op != 'rtrim'}, {call.op != 'ltrim'}"
        code = f"text.trim({values[0].code}, {values[1].code}, {ends})"
        return self.result(code, values, "text", call.type)

    _ltrim = _rtrim = _trim

    def _like(self, call: Call, values: list[CodeValue]) -> CodeValue:
        pattern, escape = call.args[1], call.args[2] if len(call.args) > 2 else None
        rule, byte = values[1], -1
        if isinstance(pattern, Literal) and isinstance(escape, Literal) and pattern.value is not None:
            text, byte = escaped_pattern(str(pattern.value), str(escape.value))
            rule = self.emit(Literal(text, pattern.type))
        escaping = self.constants.add(byte, 64)
        return self.truth(
            f"text.like({values[0].code}, {rule.code}, {escaping})", [values[0].null, values[1].null]
        )


def escaped_pattern(pattern: str, escape: str) -> tuple[str, int]:
    """Replace a LIKE pattern's escape character by a byte that the pattern does not contain; return both. The kernel
    compares bytes, but an escape may be any character."""
    byte = next(code for code in range(1, 128) if chr(code) not in pattern and chr(code) not in "%_")
    parts, characters = [], iter(pattern)
    for character in characters:
        parts.append(chr(byte) + next(characters, "") if character == escape else character)
    return "".join(parts), byte


def sort_of(kind: Type) -> int | str:
    if kind.is_exact:
        return kind.bits
    return "text" if kind.name in ("string", "binary") else kind.name


def _bits(kind: Type) -> int:
    return 32 if kind.name == "float32" else 64


def _without(expr: Expr, variable: Column) -> list[Expr]:
    """The largest subtrees that do not read `variable`."""
    if isinstance(expr, Call):
        parts = [_without(arg, variable) for arg in expr.args]
        whole = all(part == [arg] for part, arg in zip(parts, expr.args, strict=True))
        return [expr] if whole else [node for part in parts for node in part]
    return [] if expr == variable else [expr]
