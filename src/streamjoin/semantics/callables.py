"""Python callables as predicates: `f(left_row, right_row) -> bool`, read through attributes.

A row offers its columns as attributes: integers as 64-bit integers, floats as float64, booleans,
dates and timestamps as integers in the column's unit. A pair with NULL in a column that the
callable reads does not match, and the callable is not called.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamjoin.semantics.columns import column_type
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Column

PredicateFunction = Callable[[Any, Any], bool]

# The most byte code instructions of a callable and the functions it calls; more would take too long to compile.
MAX_INSTRUCTIONS = 1_500


@dataclass(frozen=True)
class CallablePredicate:
    """A function over two rows and the columns it reads of each side, in schema order."""

    function: PredicateFunction
    left: tuple[Column, ...]
    right: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.left + self.right


def inspect_callable(function: PredicateFunction, left: pa.Schema, right: pa.Schema) -> CallablePredicate:
    """Find the columns a callable reads and check that it can be given them."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    if code is None or code.co_argcount != 2 or code.co_kwonlyargcount or code.co_flags & 0x0C:
        raise PredicateError(
            f"the predicate {name} must be a Python function of two rows: f(left, right) -> bool"
        )
    length = _length(function, set())
    if length > MAX_INSTRUCTIONS:
        raise PredicateError(
            f"the predicate {name} has {length:,} byte code instructions and constants, including those of the "
            f"functions it calls; at most {MAX_INSTRUCTIONS:,} are allowed, because compiling more takes too long: "
            "shorten it, or write SQL, which may be longer"
        )
    row_names = code.co_varnames[:2]
    captured = set(row_names) & set(code.co_cellvars)
    if captured:
        raise PredicateError(
            f"the predicate {name} uses row {captured.pop()!r} inside a nested function: inline it"
        )
    reads = [_attributes(function, row, name) for row in row_names]
    sides = zip(("left", "right"), (left, right), reads, strict=True)
    return CallablePredicate(
        function, *(_columns_read(side, schema, names, name) for side, schema, names in sides)
    )


def _length(function: Any, seen: set[int]) -> int:
    """How much must be compiled: the instructions of a function and of the functions it calls, plus two for each
    element of a constant tuple."""
    function = getattr(function, "py_func", function)  # of what Numba has decorated
    code = getattr(function, "__code__", None)
    if code is None or id(code) in seen:
        return 0
    seen.add(id(code))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    called = [*cells, *(function.__globals__.get(name) for name in code.co_names)]
    return _length_of_code(code) + sum(_length(each, seen) for each in called if callable(each))


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # assigned later
        return False


def _length_of_code(code: Any) -> int:
    tuples = sum(2 * len(constant) for constant in code.co_consts if isinstance(constant, (tuple, frozenset)))
    inner = sum(_length_of_code(constant) for constant in code.co_consts if hasattr(constant, "co_code"))
    return sum(1 for _ in dis.get_instructions(code)) + tuples + inner


def _attributes(function: PredicateFunction, row: str, name: str) -> list[str]:
    """Names read as `row.name`; any other use of the row is refused, as its columns would be unknown."""
    found: dict[str, None] = {}
    instructions = [i for i in dis.get_instructions(function) if i.opname not in ("CACHE", "NOP")]
    line = function.__code__.co_firstlineno
    for here, following in zip(instructions, [*instructions[1:], None], strict=True):
        line = (
            here.starts_line if type(here.starts_line) is int else getattr(here, "line_number", None) or line
        )
        if "_FAST" not in here.opname or "LOAD" not in here.opname:
            continue
        names = here.argval if isinstance(here.argval, tuple) else (here.argval,)
        if here.opname.startswith("STORE"):
            names = names[1:]
        if row not in names:
            continue
        if names[-1] != row or names.count(row) > 1 or following is None or following.opname != "LOAD_ATTR":
            raise PredicateError(
                f"the predicate {name} (line {line}) uses row {row!r} as a whole: "
                f"read its columns as attributes, such as {row}.x"
            )
        found[following.argval] = None
    return list(found)


def _columns_read(side: str, schema: pa.Schema, names: list[str], function: str) -> tuple[Column, ...]:
    found = []
    for name in names:
        if name not in schema.names:
            raise PredicateError(
                f"the predicate {function} reads {side} column {name!r}, which does not exist: "
                f"{side} has {schema.names}"
            )
        if name.startswith("_"):
            raise PredicateError(
                f"the predicate {function} reads {side} column {name!r}: a callable cannot read a column whose name "
                "begins with an underscore; rename it, or write SQL"
            )
        kind = column_type(schema.field(name).type)
        if (
            kind is None
            or not (kind.is_float or kind.name in ("bool", "int", "date", "timestamp"))
            or kind.bits > 64
        ):
            raise PredicateError(
                f"the predicate {function} reads {side} column {name!r} of type {schema.field(name).type}: a callable "
                "may read integers up to int64, floats, booleans, dates and timestamps; write SQL for the others"
            )
        found.append(Column(side, name, kind))
    return tuple(sorted(found, key=lambda column: schema.names.index(column.name)))
