"""The functions of predicates: how many arguments each takes, which expression it builds, and what to write instead of
functions that predicates do not have.

Functions of floats convert their arguments to float64. Functions of text take strings.
Every function raises a `PredicateError` without a place; the caller knows the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from streamjoin.semantics import coercion, moments
from streamjoin.semantics.conversion import as_float, described
from streamjoin.semantics.errors import PredicateError, did_you_mean
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.types import BINARY, FLOAT64, NULL, STRING, Type, integer

ANY_NUMBER = 1_000_000
LENGTHS = integer(0, 2**31 - 1)
MOST_DIGITS = 22  # 10**22 is the last power of ten that float64 holds exactly
_NO_DIGITS, _SPACE, _EMPTY = Literal(0, integer(0, 0)), Literal(" ", STRING), Literal("", STRING)


def of_floats(op: str, *args: Expr) -> Expr:
    """A function of float64."""
    for arg in args:
        coercion.require_number(op.upper(), arg)
    return Call(op, tuple(as_float(arg, FLOAT64) for arg in args), FLOAT64)


def times(name: str, factor: float, a: Expr) -> Expr:
    """`a * factor` in float64: RADIANS and DEGREES."""
    coercion.require_number(name, a)
    return Call("mul", (as_float(a, FLOAT64), Literal(factor, FLOAT64)), FLOAT64)


def round_call(a: Expr, digits: Expr = _NO_DIGITS) -> Expr:
    """ROUND, half away from zero. For floats, ROUND(a, n) is ROUND(a * 10^n) / 10^n."""
    coercion.require_number("ROUND", a)
    if not isinstance(digits, Literal) or digits.type.name != "int" or digits.value is None:
        raise PredicateError(f"ROUND needs its digits as a whole number literal, but {described(digits)}")
    count = int(digits.value)
    if not 0 <= count <= MOST_DIGITS:
        raise PredicateError(
            f"ROUND to {count} digits is not supported; allowed: 0 to {MOST_DIGITS}. "
            "To round to hundreds, write ROUND(x / 100) * 100"
        )
    if a.type == NULL:
        return a
    if a.type.is_exact:
        return coercion.rounded_to(a, count)
    if not count:
        return Call("round", (a,), a.type)
    factor = Literal(10**count, integer(10**count, 10**count))
    return coercion.arithmetic("div", round_call(coercion.arithmetic("mul", a, factor)), factor)


def length(a: Expr) -> Expr:
    """Code points of a string, bytes of a binary."""
    return Call("length", (_text("LENGTH", a, BINARY if a.type == BINARY else STRING),), LENGTHS)


def substring_call(a: Expr, *bounds: Expr) -> Expr:
    """SUBSTRING from a start, and of a length if one is given."""
    for bound in bounds:
        if bound.type != NULL and (bound.type.name != "int" or bound.type.bits > 64):
            raise PredicateError(
                f"SUBSTRING needs its start and length as whole numbers of at most 64 bits, but {described(bound)}"
            )
    known = (Literal(None, integer(0, 0)) if bound.type == NULL else bound for bound in bounds)
    return Call("substring", (_text("SUBSTRING", a), *known), STRING)


def of_text(op: str, *args: Expr) -> Expr:
    """A function of strings to a string."""
    return Call(op, tuple(_text(op.upper(), arg) for arg in args), STRING)


def joined(parts: list[Expr]) -> Expr:
    """`||`, which is NULL if a part is."""
    known = next((part.type for part in parts if part.type != NULL), STRING)
    for part in parts:
        if part.type not in (known, NULL) or known not in (STRING, BINARY):
            raise PredicateError(f"|| joins strings, but {described(part)}; write OR between conditions")
    return Call("concat", tuple(_text("||", part, known) for part in parts), known)


def concat_call(*parts: Expr) -> Expr:
    """CONCAT, which skips NULLs."""
    known = [part for part in (_text("CONCAT", part) for part in parts) if part != Literal(None, STRING)]
    filled = [
        part if isinstance(part, Literal) else coercion.choose("coalesce", (part, _EMPTY)) for part in known
    ]
    return joined(filled) if len(filled) > 1 else filled[0] if filled else _EMPTY


def _text(what: str, a: Expr, kind: Type = STRING) -> Expr:
    if a.type == NULL:
        return Literal(None, kind)
    if a.type != kind:
        raise PredicateError(f"{what} needs a {kind}, but {described(a)}")
    return a


def _floats(op: str) -> Callable[..., Expr]:
    return lambda *args: of_floats(op, *args)


def _texts(op: str) -> Callable[..., Expr]:
    return lambda *args: of_text(op, *args)


def _trim(op: str) -> Callable[..., Expr]:
    return lambda a, characters=_SPACE: of_text(op, a, characters)


# name -> fewest arguments, most arguments, what it builds
FUNCTIONS: dict[str, tuple[int, int, Callable[..., Expr]]] = {
    "ABS": (1, 1, coercion.absolute_value),
    "LEAST": (1, ANY_NUMBER, lambda *args: coercion.choose("least", args)),
    "GREATEST": (1, ANY_NUMBER, lambda *args: coercion.choose("greatest", args)),
    "COALESCE": (1, ANY_NUMBER, lambda *args: coercion.choose("coalesce", args)),
    "FLOOR": (1, 1, lambda a: coercion.rounded("floor", a)),
    "CEIL": (1, 1, lambda a: coercion.rounded("ceil", a)),
    "CEILING": (1, 1, lambda a: coercion.rounded("ceil", a)),
    "ROUND": (1, 2, round_call),
    "MOD": (2, 2, lambda a, b: coercion.arithmetic("mod", a, b)),
    "SQRT": (1, 1, coercion.square_root),
    "POWER": (2, 2, coercion.power),
    "POW": (2, 2, coercion.power),
    **{op.upper(): (1, 1, _floats(op)) for op in ("ln", "exp", "sin", "cos", "tan", "asin", "acos", "atan")},
    "ATAN2": (2, 2, _floats("atan2")),
    "RADIANS": (1, 1, lambda a: times("RADIANS", math.pi / 180, a)),
    "DEGREES": (1, 1, lambda a: times("DEGREES", 180 / math.pi, a)),
    "LOWER": (1, 1, _texts("lower")),
    "UPPER": (1, 1, _texts("upper")),
    "LENGTH": (1, 1, length),
    "SUBSTRING": (2, 3, substring_call),
    "SUBSTR": (2, 3, substring_call),
    "TRIM": (1, 2, _trim("trim")),
    "LTRIM": (1, 2, _trim("ltrim")),
    "RTRIM": (1, 2, _trim("rtrim")),
    "CONCAT": (1, ANY_NUMBER, concat_call),
    "DATE_TRUNC": (2, 2, moments.date_trunc),
}
FUNCTION_NAMES = (*FUNCTIONS, "EXTRACT")

AGGREGATES = {"COUNT", "SUM", "AVG", "MIN", "MAX", "FIRST", "LAST", "STDDEV", "VARIANCE", "MEDIAN"}

# What to write instead of functions of other systems.
_INSTEAD = {
    "LOG": "LN(x), or LN(x) / LN(10) for base 10",
    "LOG10": "LN(x) / LN(10)",
    "LOG2": "LN(x) / LN(2)",
    "CBRT": "POWER(x, 1e0 / 3)",
    "SIGN": "CASE WHEN x < 0 THEN -1 WHEN x > 0 THEN 1 ELSE 0 END",
    "TRUNC": "FLOOR(x), CEIL(x) or ROUND(x)",
    "PI": "3.141592653589793",
    "HYPOT": "SQRT(x * x + y * y)",
    **dict.fromkeys(("LCASE", "CASEFOLD"), "LOWER(x)"),
    "UCASE": "UPPER(x)",
    **dict.fromkeys(("LEN", "CHAR_LENGTH", "CHARACTER_LENGTH"), "LENGTH(x)"),
    "LEFT": "SUBSTRING(x, 1, n)",
    "RIGHT": "SUBSTRING(x, -n)",
    **dict.fromkeys(("CONTAINS", "INSTR", "STRPOS", "POSITION"), "x LIKE '%text%'"),
    **dict.fromkeys(("STARTS_WITH", "STARTSWITH"), "x LIKE 'text%'"),
    **dict.fromkeys(("ENDS_WITH", "ENDSWITH"), "x LIKE '%text'"),
    "ISNULL": "x IS NULL",
    **dict.fromkeys(("IFNULL", "NVL"), "COALESCE(x, y)"),
    "NULLIF": "CASE WHEN x <> y THEN x END",
    **dict.fromkeys(("IF", "IIF"), "CASE WHEN condition THEN x ELSE y END"),
    **{
        part: f"EXTRACT({part} FROM x)"
        for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
    },
    **dict.fromkeys(("DAYOFWEEK", "WEEKDAY"), "EXTRACT(DOW FROM x)"),
    "DAYOFYEAR": "EXTRACT(DOY FROM x)",
    **dict.fromkeys(("EPOCH", "UNIX_TIMESTAMP"), "EXTRACT(EPOCH FROM x)"),
    **dict.fromkeys(("DATE_PART", "DATEPART"), "EXTRACT(HOUR FROM x), or another unit"),
    **dict.fromkeys(("DATEDIFF", "DATE_DIFF", "TIMESTAMPDIFF"), "x - y"),
    **dict.fromkeys(("DATE_ADD", "DATEADD"), "x + INTERVAL '1' DAY"),
    **dict.fromkeys(("DATE_SUB", "DATESUB"), "x - INTERVAL '1' DAY"),
}


def unknown(name: str) -> str:
    """The message about a function that does not exist."""
    if name.upper() in _INSTEAD:
        return f"there is no function {name}; write {_INSTEAD[name.upper()]}"
    return (
        f"unknown function {name}{did_you_mean(name, FUNCTION_NAMES)}; allowed: {', '.join(FUNCTION_NAMES)}"
    )


def function_call(name: str, args: list[Expr]) -> Expr:
    """The expression of a function of `FUNCTIONS`."""
    fewest, most, build = FUNCTIONS[name]
    if not fewest <= len(args) <= most:
        wanted = f"{fewest} or {most}" if fewest < most < ANY_NUMBER else f"{fewest}"
        plural = "s" * (most > 1 and wanted != "1")
        more = " or more" * (most == ANY_NUMBER)
        raise PredicateError(f"{name} takes {wanted} argument{plural}{more}, {len(args)} given")
    return build(*args)
