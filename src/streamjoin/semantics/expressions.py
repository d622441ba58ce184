"""The typed expression tree of a predicate: what SQL text means, and all that evaluators see.

Every conversion is explicit: the arguments of an arithmetic operation or comparison have the
same sort and scale (see `types`), so an evaluator needs no promotion rules of its own.
SQL's three-valued logic applies throughout; "strict" operations give NULL if any argument is.

op                      arguments -> result
add sub mul             two exact or two floats of the result's type; exact `mul` adds scales. Strict
neg abs                 exact or float. Strict
mod                     two exact of one scale, or two floats; sign of the dividend; NULL if divisor is 0. Strict
div                     two floats of the result's type; NULL if divisor is 0. Strict
floor ceil              float -> float; exact of scale s -> int. Strict
round                   float -> float, half away from zero. Strict
rounddiv                exact, positive literal -> exact quotient, half away from zero. Strict
sqrt power              float64 -> float64 as in C (sqrt(-1) and power(-8, 0.5) are NaN). Strict
ln exp sin cos tan      float64 -> float64 as Python's math, NaN outside of the domain, infinite where that
asin acos atan atan2    overflows; atan2 takes two. Strict
cast                    exact v of scale s -> float(v) / 10.0**s; float -> float. Strict
to_exact                number, bool, string -> int or decimal; see `number_casts`. NULL where the type ends. Strict
to_text                 int, decimal, bool -> string. Strict
least greatest          n of one type, NULLs skipped, NaN is the largest
coalesce                n of one type
case                    condition, value, condition, value, ..., else
eq ne lt le gt ge       two of one sort and scale -> bool; every one is false if either is NaN. Strict
                        strings and binaries compare by their bytes
and or                  n bools -> bool, three-valued
not                     bool -> bool, strict
is_null                 any -> bool, never NULL
is_distinct             two of one sort -> bool, never NULL: one is NULL and the other not, or neither
                        is and `eq` is false
like                    string, literal pattern[, literal escape] -> bool. Strict
lower upper             string -> string. Strict
length                  string -> int, its code points; binary -> int, its bytes. Strict
substring               string, int start[, int length] -> string. Strict
trim ltrim rtrim        string, string of characters -> string. Strict
concat                  n strings or binaries -> the same. Strict
trunc_<unit>            date or timestamp -> the same; see `calendar`. Strict
extract_<unit>          date, timestamp, time or interval -> int, the epoch decimal; see `calendar`. Strict

The analysis adds some that never stem from SQL (all strict):
floordiv ceildiv        exact, positive literal -> exact quotient rounded down / up
floormod                exact, positive literal -> exact remainder, at least 0
month_number            int of days since 1970-01-01 -> int of months since January 1970
month_start             the first day of such a month
max min                 n exact (any scales alike) or floats; NaN if any is NaN
next_up next_down       float -> the neighbouring float; NaN for the infinity that has none
nan_to                  float, float literal -> the literal in place of NaN
hash64                  string or binary -> int, equal for equal bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from streamjoin.semantics.types import Type

_NO_SIDES: frozenset[str] = frozenset()
_ONE_SIDE = {side: frozenset((side,)) for side in ("left", "right")}


@dataclass(frozen=True)
class Column:
    """A column of one side ("left" or "right"), as the schema declares it."""

    side: str
    name: str
    type: Type

    size: ClassVar[int] = 1
    depth: ClassVar[int] = 0

    @property
    def reads(self) -> frozenset[str]:
        return _ONE_SIDE[self.side]


@dataclass(frozen=True)
class Literal:
    """A constant. Exact types hold the scaled integer; NULL is `value=None`."""

    value: int | float | bool | str | bytes | None
    type: Type

    size: ClassVar[int] = 1
    depth: ClassVar[int] = 0
    reads: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Call:
    """An operation of the table above."""

    op: str
    args: tuple[Expr, ...]
    type: Type

    # Computed on creation, because the analysis reads them at every level of a tree.
    size: int = field(init=False, repr=False, compare=False)  # nodes; shared ones count each time
    depth: int = field(init=False, repr=False, compare=False)  # levels of nested operations
    reads: frozenset[str] = field(
        init=False, repr=False, compare=False
    )  # the sides that the expression reads

    def __post_init__(self) -> None:
        read = self.args[0].reads if self.args else _NO_SIDES
        size, depth = 1, 0
        for arg in self.args:
            size += arg.size
            depth = max(depth, arg.depth)
            if not arg.reads <= read:
                read |= arg.reads
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "depth", depth + 1)
        object.__setattr__(self, "reads", read)


@dataclass(frozen=True)
class Solve:
    """The greatest (`side="hi"`) or smallest (`"lo"`) float of `variable`'s type for which
    `condition` is true, NaN if there is none, NULL if a column in it is NULL.

    `condition` is monotone in `variable` (true below the answer for "hi", above it for "lo")
    and reads no column of the variable's side but the variable.
    """

    variable: Column
    condition: Expr
    side: str

    size: int = field(init=False, repr=False, compare=False)
    depth: int = field(init=False, repr=False, compare=False)
    reads: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.condition.size + 1)
        object.__setattr__(self, "depth", self.condition.depth + 1)
        object.__setattr__(self, "reads", frozenset(column.side for column in columns(self)))

    @property
    def type(self) -> Type:
        return self.variable.type


Expr = Column | Literal | Call | Solve


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call):
        return expr.args
    return (expr.condition,) if isinstance(expr, Solve) else ()


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node of the tree, parents before children, children in order. O(size)."""
    waiting = [expr]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(children(node)))


def columns(expr: Expr) -> tuple[Column, ...]:
    """The distinct columns read, in order of first use; a `Solve`'s variable is not read."""
    bound = {node.variable for node in walk(expr) if isinstance(node, Solve)}
    return tuple(dict.fromkeys(n for n in walk(expr) if isinstance(n, Column) and n not in bound))


def sides(expr: Expr) -> frozenset[str]:
    """Which of "left", "right" an expression reads."""
    return expr.reads
