"""Typed expressions as SQL text, for messages and `explain`.

A tree that stems from SQL text comes back as SQL that parses to the same tree, except where SQL
has no word for it: a column multiplied to a finer time unit, a NULL whose type nothing else fixes.
Operations only the analysis makes are printed as function calls.
"""

from __future__ import annotations

import re

import numpy as np

from streamjoin.semantics.expressions import Call, Column, Expr, Literal, Solve
from streamjoin.semantics.temporal import clock_text, date_text, timestamp_text
from streamjoin.semantics.types import STRING, sql_name

# How strongly operators bind, weakest first.
_OR, _AND, _NOT, _COMPARISON, _CONCAT, _ADD, _MUL, _NEG, _ATOM = range(9)
_INFIX = {
    "add": ("+", _ADD), "sub": ("-", _ADD), "mul": ("*", _MUL), "div": ("/", _MUL), "mod": ("%", _MUL),
    "eq": ("=", _COMPARISON), "ne": ("<>", _COMPARISON), "lt": ("<", _COMPARISON), "le": ("<=", _COMPARISON),
    "gt": (">", _COMPARISON), "ge": (">=", _COMPARISON),
}  # fmt: skip
# Functions that make floats of their arguments, literals too.
_OF_FLOATS = frozenset(("sqrt", "power", "ln", "exp", "sin", "cos", "tan", "asin", "acos", "atan", "atan2"))
_TYPE_NAMES = {"float32": "REAL", "float64": "DOUBLE"}
_PLAIN_NAME = re.compile(r"(?!(?:select|not)$)[a-z_][a-z0-9_]*", re.IGNORECASE)


def to_sql(expr: Expr) -> str:
    """SQL-like text of any expression, with as few parentheses as it needs; O(size)."""
    return _render(expr)[0]


def column_name(name: str) -> str:
    """`name`, quoted where SQL asks for it."""
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _render(expr: Expr, bare: bool = False) -> tuple[str, int]:
    """The text and how strongly its outermost operator binds. `bare`: a neighbour makes a literal a float."""
    if isinstance(expr, Column):
        return f"{expr.side}.{column_name(expr.name)}", _ATOM
    if isinstance(expr, Solve):
        extreme = "greatest" if expr.side == "hi" else "least"
        return f"{extreme} {to_sql(expr.variable)} with ({to_sql(expr.condition)})", _OR
    if isinstance(expr, Literal):
        text = _literal_text(expr, bare)
        return text, _NEG if text.startswith("-") else _ATOM
    return _call_text(expr)


def _call_text(call: Call) -> tuple[str, int]:
    # A literal next to a float becomes a float implicitly; among literals alone, the text must make it a float.
    values = (*call.args[1:-1:2], call.args[-1]) if call.op == "case" else call.args
    bare = (
        call.op == "div" or call.op in _OF_FLOATS or any(not isinstance(value, Literal) for value in values)
    )

    def at(index: int, least: int) -> str:
        return _within(call.args[index], least, bare)

    op = call.op
    if op in _INFIX:
        symbol, binding = _INFIX[op]
        # Sums and products lean left; comparisons do not chain.
        left = binding + 1 if binding == _COMPARISON else binding
        return f"{at(0, left)} {symbol} {at(1, binding + 1)}", binding
    if op in ("and", "or"):
        return _junction_text(call)
    if op == "not":
        return _negation(call.args[0])
    if op == "neg":
        return f"-{at(0, _ATOM)}", _NEG
    if op in ("is_null", "is_distinct"):
        return _is(call), _COMPARISON
    if op == "like":
        escape = f" ESCAPE {at(2, _ADD)}" if len(call.args) == 3 else ""
        return f"{at(0, _ADD)} LIKE {at(1, _ADD)}{escape}", _COMPARISON
    if op == "concat":
        return " || ".join(at(i, _ADD) for i in range(len(call.args))), _CONCAT
    if op == "rounddiv":
        digits = f", {call.type.scale}" if call.type.scale else ""
        return f"ROUND({at(0, _OR)}{digits})", _ATOM
    if op in ("trim", "ltrim", "rtrim") and call.args[1] == Literal(" ", STRING):
        return f"{op.upper()}({at(0, _OR)})", _ATOM
    if op.startswith("trunc_"):
        return f"DATE_TRUNC('{op.removeprefix('trunc_')}', {at(0, _OR)})", _ATOM
    if op.startswith("extract_"):
        return f"EXTRACT({op.removeprefix('extract_').upper()} FROM {at(0, _OR)})", _ATOM
    if op == "cast":
        return f"CAST({at(0, _OR)} AS {_TYPE_NAMES.get(call.type.name, str(call.type))})", _ATOM
    if op in ("to_exact", "to_text"):
        return f"CAST({at(0, _OR)} AS {'VARCHAR' if op == 'to_text' else sql_name(call.type)})", _ATOM
    if op == "case":
        pairs = range(0, len(call.args) - 1, 2)
        whens = " ".join(f"WHEN {at(i, _OR)} THEN {at(i + 1, _OR)}" for i in pairs)
        return f"CASE {whens} ELSE {at(len(call.args) - 1, _OR)} END", _ATOM
    return f"{op.upper()}({', '.join(at(i, _OR) for i in range(len(call.args)))})", _ATOM


def _junction_text(call: Call) -> tuple[str, int]:
    binding = _AND if call.op == "and" else _OR
    parts, i = [], 0
    while i < len(call.args):
        bounds = _between(call.args[i : i + 2]) if call.op == "and" else None
        if bounds:
            parts.append(bounds)
            i += 2
            continue
        parts.append(_within(call.args[i], binding + 1, bare=False))
        i += 1
    return f" {call.op.upper()} ".join(parts), binding


def _between(pair: tuple[Expr, ...]) -> str | None:
    """`x BETWEEN a AND b` for `x >= a AND x <= b`."""
    ops = [arg.op if isinstance(arg, Call) else "" for arg in pair]
    if ops != ["ge", "le"]:
        return None
    lower, upper = pair
    assert isinstance(lower, Call) and isinstance(upper, Call)
    if lower.args[0] != upper.args[0] or isinstance(lower.args[0], Literal):
        return None
    value, lo, hi = (_within(arg, _ADD, bare=True) for arg in (*lower.args, upper.args[1]))
    return f"{value} BETWEEN {lo} AND {hi}"


def _negation(arg: Expr) -> tuple[str, int]:
    if isinstance(arg, Call) and arg.op in ("is_null", "is_distinct"):
        return _is(arg, "NOT "), _COMPARISON
    text, binding = _render(arg)
    return f"NOT {text if binding > _COMPARISON or binding == _NOT else f'({text})'}", _NOT


def _is(call: Call, negation: str = "") -> str:
    bare = any(not isinstance(arg, Literal) for arg in call.args)
    operands = [_within(arg, _ADD, bare) for arg in call.args]
    if call.op == "is_null":
        return f"{operands[0]} IS {negation}NULL"
    return f"{operands[0]} IS {negation}DISTINCT FROM {operands[1]}"


def _within(expr: Expr, least: int, bare: bool) -> str:
    """The text of an operand, in parentheses unless it binds at least as strongly as `least`."""
    text, binding = _render(expr, bare)
    return text if binding >= least else f"({text})"


def _literal_text(literal: Literal, bare: bool) -> str:
    value, kind = literal.value, literal.type
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if kind.is_float:
        text = repr(float(value)) if kind.name == "float64" else str(np.float32(value))
        return text if bare or "e" in text or not np.isfinite(value) else f"{text}e0"
    exact = int(value)
    if kind.name == "date":
        day = date_text(exact)
        return f"DATE '{day}'" if day else f"(DATE '1970-01-01' + {exact})"
    if kind.name == "time":
        return f"TIME '{clock_text(exact, kind.scale)}'"
    if kind.name == "timestamp":
        instant = timestamp_text(exact, kind.scale, kind.tz)
        if instant:
            return f"TIMESTAMP '{instant}'"
        return f"(TIMESTAMP '1970-01-01{'+00:00' if kind.tz else ''}' + {_interval_text(exact, kind.scale)})"
    return _interval_text(exact, kind.scale) if kind.name == "interval" else _decimal(exact, kind.scale)


def _decimal(value: int, scale: int) -> str:
    if scale <= 0:
        return str(value * 10**-scale)
    whole, fraction = divmod(abs(value), 10**scale)
    return f"{'-' if value < 0 else ''}{whole}.{fraction:0{scale}}"


def _interval_text(value: int, scale: int) -> str:
    return f"INTERVAL '{_decimal(value, scale)}' SECOND"
