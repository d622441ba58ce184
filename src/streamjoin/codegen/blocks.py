"""The scan for any condition. It evaluates the condition on a block of the window into an array of flags, a loop that
LLVM vectorises, and then collects the pairs whose flag is set. Python callables are scanned the same way."""

from __future__ import annotations

import dis
import functools
import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any

from numba.core.errors import NumbaError

from streamjoin.codegen.columns import parameters
from streamjoin.codegen.expressions import HEADER, Constants, Emitter
from streamjoin.jit import source
from streamjoin.jit.decorator import jit
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import PredicateError
from streamjoin.semantics.expressions import Call, Column, Expr, Literal, columns, sides

BLOCK = 512
BUDGET = 2  # index in a cursor: how many comparisons the call may still make
assert BLOCK <= MIN_SCAN_ROOM and CURSOR_SIZE > BUDGET
# After a call of less than SHORT seconds the next call may compare more pairs; after one of more than LONG, fewer.
SHORT, LONG = 0.02, 0.08

_TEMPLATE = """{header}

@jit
def scan({parameters}):
{constants}
    hits = np.empty({block}, np.uint8)
    probe, at, budget = cursor[0], cursor[1], cursor[{budget}]
    while probe < len(start):
        i = np.uint64(probe)
        at = max(at, start[i])
{outer}
        while at < stop[i]:
            if len(out_probe) - count < {room} or budget <= 0:
                cursor[0], cursor[1], cursor[{budget}] = probe, at, budget
                return count
            size = min(stop[i] - at, budget, {block})
{slices}
            total = 0
            for k in range(size):
{inner}
                hits[k] = {hit}
                total += hits[k]
            if total:
                for k in range(size):
                    out_probe[count] = probe
                    out_pos[count] = at + k
                    count += hits[k]
            at, budget = at + size, budget - size
        probe, at = probe + 1, 0
    cursor[0], cursor[{budget}] = {done}, budget
    return count
"""


class Pace:
    """How many comparisons a call may make, so that calls are short however slow the condition is. A user's function
    may take a second per pair, and a thread that should stop must not compare a whole window first."""

    def __init__(self) -> None:
        self.comparisons = 1

    def took(self, seconds: float, left: int) -> None:
        """Adjust to a call that left `left` of its comparisons unused. The number grows only after a call that used all
        of them. `seconds` is processor time, because the call may wait long for the interpreter lock."""
        if seconds > LONG:
            self.comparisons = max(1, int((self.comparisons - left) * SHORT / seconds))
        elif seconds < SHORT and left <= 0:
            self.comparisons = min(4 * self.comparisons, 1 << 40)


def _place(stored: str) -> Callable[[Column], tuple[str, str]]:
    return lambda column: ("_block", "k") if column.side == stored else ("", "i")


def _source(emitter: Emitter, inner_from: int, hit: str, read: tuple[Column, ...], stored: str) -> str:
    arrays = [
        name
        for number, column in enumerate(read)
        if column.side == stored
        for name in ([f"c{number}", f"c{number}_valid"] if emitter.nullable else [f"c{number}"])
    ]
    names = [
        *Constants.PARAMETERS,
        "start",
        "stop",
        *parameters(read, emitter.nullable),
        "cursor",
        "out_probe",
        "out_pos",
        "count",
    ]
    return _TEMPLATE.format(
        parameters=", ".join(names),
        constants="\n".join(emitter.constants.lines()),
        outer="\n".join(emitter.lines[:inner_from]),
        inner="\n".join(emitter.lines[inner_from:]),
        slices="\n".join(f"            {name}_block = {name}[at : at + size]" for name in arrays),
        hit=hit,
        block=BLOCK,
        budget=BUDGET,
        room=MIN_SCAN_ROOM,
        done=DONE,
        header="\n\n".join([HEADER, *emitter.functions]),
    )


@functools.cache
def block_scan(condition: Expr, stored: str, nullable: bool) -> Callable[..., int]:
    """The kernel for a condition over numbers. It follows the protocol of `kernels.scan`:

    `scan(start, stop, *columns, cursor, out_probe, out_pos, count) -> count`, columns in the order of
    `columns(condition)`, each followed by its validity if `nullable`. Pairs come probe by probe. It also returns after
    cursor[BUDGET] comparisons, which it counts down.
    """
    read = columns(condition)
    emitter = Emitter(read, nullable, _place(stored))
    emitter.indent = 2
    for part in _probe_only(condition, stored):
        emitter.emit(part)
    inner_from = len(emitter.lines)
    emitter.indent = 4
    hit = emitter.emit(condition).code
    scan = source.load(_source(emitter, inner_from, hit, read, stored), "block_scan").scan
    return functools.partial(scan, *emitter.constants.arguments())


def _probe_only(expr: Expr, stored: str) -> list[Expr]:
    """The largest subtrees that do not read the window. They are computed once per probe."""
    if stored not in sides(expr):
        return [] if isinstance(expr, Literal) else [expr]
    return [part for arg in expr.args for part in _probe_only(arg, stored)] if isinstance(expr, Call) else []


@functools.lru_cache(maxsize=32)  # each holds its function and machine code
def callable_scan(predicate: CallablePredicate, stored: str, nullable: bool) -> Callable[..., int]:
    """The same as `block_scan`, for a Python callable. It is compiled in memory, because a function object has no
    content to hash for the cache on disk."""
    read = predicate.columns
    emitter = Emitter(read, nullable, _place(stored))
    emitter.indent = 4
    values = {column: emitter.emit(column) for column in read}
    rows = [
        f"{side}_row({', '.join(_as_row_value(values[c].code, c) for c in chosen)})"
        for side, chosen in (("left", predicate.left), ("right", predicate.right))
    ]
    nulls = emitter.any_of([value.null for value in values.values()])
    call = f"predicate({', '.join(rows)})"
    hit = f"1 if {call} else 0"
    if nulls != "False":
        hit = f"0 if {nulls} else ({hit})"
    text = _source(emitter, 0, hit, read, stored)
    space: dict[str, Any] = {"predicate": _compiled(predicate)}
    for side, chosen in (("left", predicate.left), ("right", predicate.right)):
        space[f"{side}_row"] = namedtuple(f"{side}_row", [c.name for c in chosen])
    exec(compile(text, "<streamjoin callable scan>", "exec"), space)
    return _explaining(functools.partial(space["scan"], *emitter.constants.arguments()), predicate)


def _as_row_value(code: str, column: Column) -> str:
    if column.type.name == "bool":
        return code
    return f"np.float64({code})" if column.type.is_float else f"np.int64({code})"


def _compiled(predicate: CallablePredicate) -> Any:
    function = predicate.function
    return function if hasattr(function, "py_func") else jit(function, cached=False)


def _explaining(scan: Callable[..., int], predicate: CallablePredicate) -> Callable[..., int]:
    """Turn Numba's compile errors into a `PredicateError` with the reason and the line, and an exception that the
    function raises into one that names the function."""
    name = getattr(predicate.function, "__name__", "callable")

    def call(*args: Any) -> int:
        try:
            return scan(*args)
        except NumbaError as error:
            raise PredicateError(
                f"the predicate {name} cannot be compiled: {_reason(error, predicate)}"
            ) from error
        except (ArithmeticError, ValueError) as error:
            raise PredicateError(f"the predicate {name} has no value for some pair: {error!r}") from error

    return call


_TELLING = re.compile(r"(- )?(Unknown|No implementation|Untyped|NameError|Cannot|Invalid|Use of)")


def _reason(error: NumbaError, predicate: CallablePredicate) -> str:
    """The first sentence of Numba's message and the last place in the user's file that it names."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    file = predicate.function.__code__.co_filename
    lines = re.findall(rf'File "[^"]*{re.escape(file.rsplit("/", 1)[-1])}", line (\d+)', plain)
    sentences = [line.strip() for line in plain.splitlines() if line.strip()]
    telling = [sentence for sentence in sentences if _TELLING.match(sentence)]
    what = (telling or sentences or ["unknown reason"])[0]
    return f"{what} ({file}, line {lines[-1] if lines else _line_of_name(what, predicate)})"


def _line_of_name(what: str, predicate: CallablePredicate) -> int:
    """The line where the function uses the name that a message quotes, or its first line if there is no such use."""
    line = predicate.function.__code__.co_firstlineno
    quoted = set(re.findall(r"'(\w+)'", what))
    for instruction in dis.get_instructions(predicate.function):
        line = (instruction.positions.lineno if instruction.positions else None) or line
        if instruction.argval in quoted:
            return line
    return predicate.function.__code__.co_firstlineno
