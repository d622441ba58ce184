"""SQL predicates over the tables `left` and `right`, parsed (by sqlglot) into typed expression trees.

What is allowed: columns, literals (`5`, `0.5` exact; `1e3` float64; strings; X'ff' binary; TRUE, FALSE,
NULL; DATE '...', TIMESTAMP '...', TIME '...', INTERVAL '...'), `+ - * / % ||`, the functions of `functions`, CASE,
CAST to DOUBLE or REAL, comparisons, BETWEEN, IN (list), LIKE, IS NULL / TRUE / FALSE / DISTINCT FROM,
AND, OR, NOT. `coercion` defines what they mean for each type.

A column is `left.name`, `right.name`, or `name` where only one side has it: spelled as in the schema,
or in another case if that is not ambiguous; a "quoted" name is taken as it is. Everything else
is an error that shows its place in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streamjoin.semantics import coercion, functions, moments, number_casts
from streamjoin.semantics.coercion import UNTYPED_NULL
from streamjoin.semantics.columns import resolve
from streamjoin.semantics.conversion import described
from streamjoin.semantics.errors import MAX_QUOTED, PredicateError
from streamjoin.semantics.expressions import Call, Expr, Literal
from streamjoin.semantics.functions import FUNCTIONS
from streamjoin.semantics.syntax import PredicateText, too_deep
from streamjoin.semantics.temporal import date_literal, interval_literal, time_literal, timestamp_literal
from streamjoin.semantics.types import (
    BINARY,
    BOOL,
    FLOAT32,
    FLOAT64,
    INT128_MAX,
    INT128_MIN,
    INTEGERS,
    NULL,
    STRING,
    Type,
)

LONG_SUM = 32  # terms of a sum from which on its tree is balanced
# Limits of a tree, so that no function that walks it takes long or overflows the stack.
MAX_SIZE = 100_000
MAX_CHAIN = 128
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "add", exp.Sub: "sub", exp.Mul: "mul", exp.Div: "div", exp.Mod: "mod",
}  # fmt: skip
_SUMS = (exp.Add, exp.Sub)
_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.NullSafeNEQ: "is_distinct",
}  # fmt: skip
_ONE_PAIR = "a predicate sees one left and one right tuple"
_SPOKEN_NAMES: dict[type[exp.Expr], str] = {
    exp.Bracket: "a subscript", exp.Tuple: "a tuple", exp.Placeholder: "?",
}  # fmt: skip
# Operators of other languages: how they are written, and what to write instead.
_SIGNS: dict[type[exp.Expr], tuple[str, str]] = {
    exp.ArrayOverlaps: ("&&", "AND between conditions"),
    exp.BitwiseAnd: ("&", "AND between conditions"),
    exp.BitwiseOr: ("|", "OR between conditions"),
    exp.Pow: ("^", "POWER({a}, {b})"),
    exp.IntDiv: ("//", "FLOOR({a} / {b})"),
    exp.ILike: ("ILIKE", "LOWER({a}) LIKE with a pattern in lower case"),
}
LONGEST_REMEMBERED = 1_000  # characters of a predicate that is remembered
_FLOAT_CASTS = {exp.DType.DOUBLE: FLOAT64, exp.DType.FLOAT: FLOAT32}
_TEXT_CASTS = (exp.DType.TEXT, exp.DType.VARCHAR)
_TIMESTAMP_CASTS = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ, exp.DType.TIMESTAMPTZ, exp.DType.DATETIME)


def parse_predicate(text: str, left: pa.Schema, right: pa.Schema) -> Expr:
    """The typed tree (of type bool) of the SQL condition `text`, or a `PredicateError` at its place. The last short
    ones are remembered: a spec that is changed, or made again for each of many tables, has the same condition."""
    return (_remembered if len(text) <= LONGEST_REMEMBERED else _parsed)(text, left, right)


def _parsed(text: str, left: pa.Schema, right: pa.Schema) -> Expr:
    try:
        return _Translator(PredicateText(text), {"left": left, "right": right}).predicate()
    except RecursionError:
        raise PredicateError(too_deep(), text, 0, len(text)) from None


_remembered = lru_cache(maxsize=64)(_parsed)


def parse_expression(text: str, left: pa.Schema, right: pa.Schema) -> Expr:
    """The typed tree of any SQL expression `text`, or a `PredicateError` at its place."""
    try:
        source = PredicateText(text)
        return _Translator(source, {"left": left, "right": right}).translate(source.tree)
    except RecursionError:
        raise PredicateError("the expression is nested too deeply", text, 0, len(text)) from None


class _Translator:
    """One predicate's syntax tree into a typed tree. Methods take a syntax node and return its expression."""

    def __init__(self, source: PredicateText, schemas: dict[str, pa.Schema]):
        self.source, self.schemas = source, schemas
        self.error = source.error

    def predicate(self) -> Expr:
        return self.condition(self.source.tree, "the predicate")

    def translate(self, node: exp.Expr) -> Expr:
        try:
            found = self._translate(node)
            check_size(found)
        except PredicateError as error:
            if error.start is not None:
                raise
            raise self.error(str(error), node) from None
        return found

    def _translate(self, node: exp.Expr) -> Expr:
        kind = type(node)
        if kind in _SUMS:
            return self.total(node)
        if kind in _ARITHMETIC:
            return coercion.arithmetic(_ARITHMETIC[kind], *self.operands(node))
        if kind in _COMPARISONS:
            return self.comparison(node)
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise self.unsupported(node)
        return handler(self, node)

    def operands(self, node: exp.Expr) -> tuple[Expr, Expr]:
        return self.translate(node.this), self.translate(node.expression)

    def condition(self, node: exp.Expr, where: str) -> Expr:
        result = self.translate(node)
        try:
            return coercion.condition(result, where)
        except PredicateError as error:
            raise self.error(str(error), node) from None

    def total(self, node: exp.Expr) -> Expr:
        """A chain of `+` and `-`. A long one of exact numbers becomes a balanced tree, which has the same values."""
        signs, nodes = [], []
        last = node
        while type(last) in _SUMS:
            signs.append(_ARITHMETIC[type(last)])
            nodes.append(last.expression)
            last = last.this
        operators, terms = (
            ["add", *reversed(signs)],
            [self.translate(each) for each in (last, *reversed(nodes))],
        )
        if len(terms) > LONG_SUM and all(term.type.is_exact and term.type.is_number for term in terms):
            parts = {
                op: [t for o, t in zip(operators, terms, strict=True) if o == op] for op in ("add", "sub")
            }
            added = _balanced(parts["add"])
            return coercion.arithmetic("sub", added, _balanced(parts["sub"])) if parts["sub"] else added
        found = terms[0]
        for op, term in zip(operators[1:], terms[1:], strict=True):
            found = coercion.arithmetic(op, found, term)
            check_size(found)
        return found

    # --- literals

    def literal(self, node: exp.Literal) -> Expr:
        text = node.name
        if node.is_string:
            return Literal(text, STRING)
        shown = text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}... ({len(text)} characters)"
        try:
            number = float(text)
        except ValueError:
            raise self.error(f"{shown} is not a number; write it like 5, 0.5 or 1e3", node) from None
        if "e" in text.lower():
            if math.isinf(number):
                raise self.error(f"{shown} exceeds the range of float64", node)
            return Literal(number, FLOAT64)
        whole, _, fraction = text.partition(".")
        value = int(whole + fraction) if len(text) <= MAX_QUOTED else None
        if value is None or not INT128_MIN <= value <= INT128_MAX:
            instead = "" if math.isinf(number) else f"; write it in floating point, as {number!r}"
            raise self.error(f"{shown} needs more than 128 bits{instead}", node)
        return Literal(value, Type("decimal" if fraction else "int", len(fraction), value, value))

    def hex_literal(self, node: exp.HexString) -> Expr:
        try:
            return Literal(bytes.fromhex(node.name), BINARY)
        except ValueError:
            message = f"X'{node.name}' is not binary: write two hexadecimal digits a byte"
            raise self.error(message, node) from None

    def interval(self, node: exp.Interval) -> Expr:
        amount, unit = node.this, node.args.get("unit")
        if unit is not None and not isinstance(unit, exp.Var):
            raise self.error("an interval from one unit TO another is not supported; name one unit", node)
        if isinstance(amount, exp.Neg):
            return coercion.negate(self.interval(exp.Interval(this=amount.this, unit=unit)))
        if not isinstance(amount, exp.Literal):
            example = "left.n * INTERVAL '1' MINUTE"
            raise self.error(f"INTERVAL needs a literal; multiply instead, as in {example}", node)
        return interval_literal(f"{amount.name} {unit.name}" if unit is not None else amount.name)

    def cast(self, node: exp.Cast) -> Expr:
        target = node.to.this
        if target in _FLOAT_CASTS:
            return coercion.cast(self.translate(node.this), _FLOAT_CASTS[target])
        if target.name in INTEGERS:
            return number_casts.cast_to_exact(self.translate(node.this), INTEGERS[target.name])
        if target == exp.DType.DECIMAL:
            params = [each.name for each in node.to.expressions]
            return number_casts.cast_to_exact(self.translate(node.this), number_casts.decimal_type(params))
        if target in _TEXT_CASTS:
            return number_casts.cast_to_text(self.translate(node.this))
        of_text = isinstance(node.this, exp.Literal) and node.this.is_string
        if of_text and target == exp.DType.DATE:
            return date_literal(node.this.name)
        if of_text and target == exp.DType.TIME:
            return time_literal(node.this.name)
        if of_text and target in _TIMESTAMP_CASTS:
            literal = timestamp_literal(node.this.name)
            if target == exp.DType.TIMESTAMPTZ and not literal.type.tz:
                raise self.error(f"{node.this.name!r} has no time zone; add an offset such as +00:00", node)
            return literal
        raise self.error(
            f"CAST to {node.to.sql()} is not supported; allowed: CAST(x AS {number_casts.TARGETS}), DATE '...', "
            "TIMESTAMP '...', TIME '...'",
            node,
        )

    # --- functions and conditions

    def function(self, node: exp.Anonymous) -> Expr:
        name = node.name.upper()
        if name in functions.AGGREGATES:
            raise self.error(f"the aggregate {name} is not supported; {_ONE_PAIR}", node)
        if name not in FUNCTIONS:
            raise self.error(functions.unknown(node.name), node)
        return functions.function_call(name, [self.translate(arg) for arg in node.expressions])

    def extraction(self, node: exp.Extract) -> Expr:
        return moments.extract(node.this.name, self.translate(node.expression))

    def substring(self, node: exp.Substring) -> Expr:
        given = (node.this, node.args.get("start"), node.args.get("length"))
        return functions.function_call("SUBSTRING", [self.translate(arg) for arg in given if arg is not None])

    def trim(self, node: exp.Trim) -> Expr:
        name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(node.args.get("position") or "", "TRIM")
        given = (node.this, node.expression) if node.args.get("expression") else (node.this,)
        return functions.function_call(name, [self.translate(arg) for arg in given])

    def concatenation(self, node: exp.DPipe) -> Expr:
        parts = [self.translate(part) for part in _spine(node, exp.DPipe)]
        try:
            return functions.joined(parts)
        except PredicateError as error:
            raise self.source.error_at_sign(str(error), "||", node) from None

    def comparison(self, node: exp.Expr) -> Expr:
        operands = self.operands(node)
        try:
            return coercion.comparison_of(_COMPARISONS[type(node)], *operands)
        except PredicateError as error:
            if not any(type(part) in _COMPARISONS for part in (node.this, node.expression)):
                raise
            joins = any(isinstance(part, exp.DPipe) for part in node.walk())
            word = "OR between conditions, because || joins strings" if joins else "AND between comparisons"
            raise PredicateError(f"{error}; write {word}") from None

    def junction(self, node: exp.And | exp.Or) -> Expr:
        op, kind = ("and", exp.And) if isinstance(node, exp.And) else ("or", exp.Or)
        return _junction(op, [self.condition(part, op.upper()) for part in _spine(node, kind)])

    def negation(self, node: exp.Not) -> Expr:
        return Call("not", (self.condition(node.this, "NOT"),), BOOL)

    def between(self, node: exp.Between) -> Expr:
        if node.args.get("symmetric"):
            raise self.error("BETWEEN SYMMETRIC is not supported; put the bounds in order", node)
        value = self.translate(node.this)
        lo, hi = self.translate(node.args["low"]), self.translate(node.args["high"])
        return _junction(
            "and", [coercion.comparison_of("ge", value, lo), coercion.comparison_of("le", value, hi)]
        )

    def membership(self, node: exp.In) -> Expr:
        if node.args.get("query"):
            raise self.unsupported(node.args["query"])
        if not node.expressions:
            raise self.error("IN needs a list of at least one value in parentheses", node)
        value = self.translate(node.this)
        items = map(self.translate, node.expressions)
        return _junction("or", [coercion.comparison_of("eq", value, item) for item in items])

    def like(self, node: exp.Like, escape: exp.Expr | None = None) -> Expr:
        value, pattern = self.operands(node)
        args = (value, pattern) if escape is None else (value, pattern, self.translate(escape))
        for arg in args:
            if arg.type not in (STRING, NULL):
                raise self.error(f"LIKE compares strings, but {described(arg)}", node)
        if not all(isinstance(arg, Literal) for arg in args[1:]):
            raise self.error("the pattern and the escape of LIKE must be string literals", node)
        result: Expr = Literal(None, BOOL)
        if all(arg.type == STRING for arg in args):
            _check_pattern(args[1:])
            result = Call("like", args, BOOL)
        return Call("not", (result,), BOOL) if node.args.get("negate") else result

    def escaped_like(self, node: exp.Escape) -> Expr:
        if not isinstance(node.this, exp.Like):
            raise self.unsupported(node)
        return self.like(node.this, node.expression)

    def test(self, node: exp.Is) -> Expr:
        value, against = self.translate(node.this), node.expression
        if isinstance(against, exp.Null):
            return Call("is_null", (Literal(None, BOOL) if value.type == NULL else value,), BOOL)
        if not isinstance(against, exp.Boolean):
            raise self.error("IS can be followed by [NOT] NULL, TRUE, FALSE or DISTINCT FROM", node)
        value = coercion.condition(value, "IS TRUE")
        wanted = value if against.this else Call("not", (value,), BOOL)
        return Call("coalesce", (wanted, Literal(False, BOOL)), BOOL)

    def not_distinct(self, node: exp.NullSafeEQ) -> Expr:
        return Call("not", (coercion.comparison_of("is_distinct", *self.operands(node)),), BOOL)

    def case(self, node: exp.Case) -> Expr:
        subject = self.translate(node.this) if node.this is not None else None
        conditions, values = [], []
        for branch in node.args["ifs"]:
            if subject is None:
                conditions.append(self.condition(branch.this, "WHEN"))
            else:
                conditions.append(coercion.comparison_of("eq", subject, self.translate(branch.this)))
            values.append(self.translate(branch.args["true"]))
        default = node.args.get("default")
        return coercion.case(conditions, values, UNTYPED_NULL if default is None else self.translate(default))

    def unsupported(self, node: exp.Expr) -> PredicateError:
        if isinstance(node, (exp.Query, exp.Exists, exp.Any, exp.All)):
            return self.source.error_at_word(f"subqueries are not supported; {_ONE_PAIR}", "select")
        if isinstance(node, exp.Window):
            return self.error(f"window functions are not supported; {_ONE_PAIR}", node)
        if isinstance(node, exp.Star):
            return self.error("* is not a column; name one", node)
        if type(node) in _SIGNS:
            return self.other_word(node, *_SIGNS[type(node)])
        what = (
            _SPOKEN_NAMES.get(type(node)) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(node).__name__).upper()
        )
        return self.error(
            f"{what} is not supported in a predicate; allowed: + - * / % ||, comparisons, BETWEEN, IN, LIKE, "
            f"IS, AND, OR, NOT, CASE, CAST and the functions {', '.join(functions.FUNCTION_NAMES)}",
            node,
        )

    def other_word(self, node: exp.Expr, sign: str, form: str) -> PredicateError:
        """What to write instead of an operator that predicates do not have."""
        a, b = (self.source.excerpt(each) for each in (node.this, node.expression))
        return self.source.error_at_sign(
            f"{sign} is not supported; write {form.format(a=a, b=b)}", sign, node
        )


def _spine(node: exp.Expr, kind: type[exp.Expr]) -> list[exp.Expr]:
    """The operands of a left-deep chain of `kind`, in order; a loop, for chains longer than the stack."""
    parts = []
    while isinstance(node, kind):
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _junction(op: str, parts: list[Expr]) -> Expr:
    flat: list[Expr] = []
    for part in parts:
        flat.extend(part.args if isinstance(part, Call) and part.op == op else (part,))
    return flat[0] if len(flat) == 1 else Call(op, tuple(flat), BOOL)


def _balanced(terms: list[Expr]) -> Expr:
    """The sum of exact numbers as a tree of logarithmic depth."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [coercion.arithmetic("add", a, b) for a, b in pairs] + terms[len(terms) & ~1 :]
    return terms[0]


def check_size(expr: Expr) -> None:
    """Raise a `PredicateError` without a place if an expression is larger or deeper than any part of it may be."""
    if expr.depth > MAX_CHAIN:
        raise PredicateError(
            f"{expr.depth} operations are nested here, or follow each other in a chain; at most {MAX_CHAIN} are "
            "allowed. Only AND, OR, and sums of integers and decimals may be longer"
        )
    if expr.size > MAX_SIZE:
        raise PredicateError(
            f"the predicate has at least {expr.size:,} operations, columns and literals, with the value of BETWEEN, "
            f"IN, CASE and POWER(value, 2) counted once a comparison; at most {MAX_SIZE:,} are allowed"
        )


def _check_pattern(args: tuple[Expr, ...]) -> None:
    pattern, *escape = (str(arg.value) for arg in args if isinstance(arg, Literal))
    if not escape:
        return
    if len(escape[0]) != 1:
        raise PredicateError(f"the escape of LIKE must be one character, {escape[0]!r} given")
    if (len(pattern) - len(pattern.rstrip(escape[0]))) % 2:
        raise PredicateError(f"the pattern {pattern!r} ends with its escape character {escape[0]!r}")


_HANDLERS: dict[type[exp.Expr], Callable[[_Translator, Any], Expr]] = {
    exp.Paren: lambda self, node: self.translate(node.this),
    exp.Column: lambda self, node: resolve(self.source, node, self.schemas),
    exp.Literal: _Translator.literal,
    exp.HexString: _Translator.hex_literal,
    exp.Boolean: lambda self, node: Literal(bool(node.this), BOOL),
    exp.Null: lambda self, node: UNTYPED_NULL,
    exp.Interval: _Translator.interval,
    exp.Cast: _Translator.cast,
    exp.Anonymous: _Translator.function,
    exp.Extract: _Translator.extraction,
    exp.Substring: _Translator.substring,
    exp.Trim: _Translator.trim,
    exp.DPipe: _Translator.concatenation,
    exp.Neg: lambda self, node: coercion.negate(self.translate(node.this)),
    exp.And: _Translator.junction,
    exp.Or: _Translator.junction,
    exp.Not: _Translator.negation,
    exp.Between: _Translator.between,
    exp.In: _Translator.membership,
    exp.Like: _Translator.like,
    exp.Escape: _Translator.escaped_like,
    exp.Is: _Translator.test,
    exp.NullSafeEQ: _Translator.not_distinct,
    exp.Case: _Translator.case,
}
