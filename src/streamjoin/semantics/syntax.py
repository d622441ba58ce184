"""The text of a predicate as sqlglot's syntax tree, with the place of every node for messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.tokenizer_core import Token, TokenType

from streamjoin.semantics.errors import PredicateError

# Limits of the text: an IN of 10,000 values fits, and any text within them is parsed within two seconds.
MAX_CHARACTERS = 500_000
MAX_TOKENS = 50_000  # words, numbers, strings and signs
MAX_NESTING = 32  # of parentheses, CASE and NOT: sqlglot's parser takes some 25 stack frames a level

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Dialect(DuckDB):
    """DuckDB's expressions, but every function stays a plain name, and X'..' is a binary literal."""

    class Tokenizer(DuckDB.Tokenizer):
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]

    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
        FUNCTION_PARSERS = {
            name: DuckDBParser.FUNCTION_PARSERS[name] for name in ("CAST", "EXTRACT", "SUBSTRING", "TRIM")
        }  # whose arguments can be written with words: AS, FROM, FOR
        NO_PAREN_FUNCTIONS: ClassVar[dict[TokenType, Any]] = {}
        NO_PAREN_FUNCTION_PARSERS = {"CASE": DuckDBParser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


class PredicateText:
    """A predicate's text, its syntax tree, and the place of each node in the text."""

    def __init__(self, text: str):
        self.text, self.tree = text, _parse(text)

    def error(self, message: str, node: exp.Expr) -> PredicateError:
        return PredicateError(message, self.text, *self.span(node))

    def error_at_word(self, message: str, word: str) -> PredicateError:
        """An error at the first occurrence of a keyword (nodes of statements carry no places)."""
        found = re.search(rf"\b{word}\b", self.text, re.IGNORECASE)
        start, end = found.span() if found else (0, len(self.text))
        return PredicateError(message, self.text, start, end)

    def error_at_sign(self, message: str, sign: str, node: exp.Expr) -> PredicateError:
        """An error at an operator of `node`, whose own place sqlglot does not note."""
        start, end = self.span(node)
        for token in _Dialect().tokenize(self.text):
            if start <= token.start < end and token.text.upper() == sign:
                return PredicateError(message, self.text, token.start, token.end + 1)
        return self.error(message, node)

    def excerpt(self, node: exp.Expr) -> str:
        """The text of `node`."""
        start, end = self.span(node)
        return self.text[start:end]

    def span(self, node: exp.Expr) -> tuple[int, int]:
        """From the first to the last character of `node` whose place is known, else its parent's."""
        places = list(self._places(node))
        if not places:
            return self.span(node.parent) if node.parent is not None else (0, len(self.text))
        start, end = min(s for s, _ in places), max(e for _, e in places)
        while self.text.count("(", start, end) > self.text.count(")", start, end):
            closing = re.compile(r"\s*\)").match(self.text, end)
            if not closing:
                break
            end = closing.end()
        return start, end

    def _places(self, node: exp.Expr) -> Iterator[tuple[int, int]]:
        intervals = set()
        for found in node.walk():
            if "start" in found.meta:
                yield found.meta["start"], found.meta["end"] + 1
            if isinstance(found, exp.Interval):
                intervals.add(id(found))
        if intervals:
            yield from self._interval_places(intervals)

    def _interval_places(self, wanted: set[int]) -> Iterator[tuple[int, int]]:
        """sqlglot does not record the places of intervals: pair them with the INTERVAL tokens in order."""
        tokens = _Dialect().tokenize(self.text)
        words = [i for i, token in enumerate(tokens) if token.token_type == TokenType.INTERVAL]
        nodes = list(self.tree.find_all(exp.Interval, bfs=False))
        if len(words) != len(nodes):
            return
        for word, node in zip(words, nodes, strict=True):
            if id(node) in wanted:
                yield tokens[word].start, _interval_end(tokens[word + 1 : word + 4], node.args.get("unit"))


def _interval_end(tokens: list[Token], unit: exp.Expr | None) -> int:
    """The end of the amount (a sign, a number or a string) and its unit, if that stands apart."""
    for token in tokens:
        if unit is None or unit.name.lower() in token.text.lower():
            return token.end + 1
    return tokens[0].end + 1


def _parse(text: str) -> exp.Expr:
    _check_length(text)
    try:
        _check_tokens(text, _Dialect().tokenize(text))
        conditions = [c for c in _Dialect().parse_into(exp.Condition, text) if c is not None]
    except TokenError:
        message = "the predicate has an unterminated quote or comment"
        raise PredicateError(message, text, _open_quote(text), len(text)) from None
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except (PredicateError, RecursionError, MemoryError):
        raise
    except Exception as error:  # text that is not an expression makes the parser raise many kinds of errors
        message = f"the predicate is not valid SQL ({type(error).__name__} in the parser)"
        raise PredicateError(message, text, 0, len(text)) from None
    if not conditions:
        raise PredicateError(
            "the predicate is empty; write a condition, or TRUE to join every pair in the window"
        )
    if len(conditions) > 1:
        start = next(t.start for t in _Dialect().tokenize(text) if t.token_type == TokenType.SEMICOLON)
        raise PredicateError("the predicate has several conditions; write one", text, start, start + 1)
    return conditions[0]


def _check_length(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        raise PredicateError(
            f"the predicate has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed. Join a table of the "
            "values instead of listing them"
        )
    half = _SURROGATE.search(text)
    if half:
        message = f"the predicate contains {half[0]!a}, half of a surrogate pair, which is not a character; remove it"
        raise PredicateError(message, text, half.start(), half.end())


def _check_tokens(text: str, tokens: list[Token]) -> None:
    if len(tokens) > MAX_TOKENS:
        raise PredicateError(
            f"the predicate has {len(tokens):,} words, numbers, strings and signs; at most {MAX_TOKENS:,} are allowed. "
            "Join a table of the values instead of listing them"
        )
    depth = nots = 0
    for token in tokens:
        kind = token.token_type
        depth += (kind in _OPENING) - (kind in _CLOSING)
        nots = nots + 1 if kind == TokenType.NOT else 0
        if depth + nots > MAX_NESTING:
            raise PredicateError(too_deep(), text, token.start, token.end + 1)


def too_deep() -> str:
    return (
        "the predicate is nested too deeply; at most "
        f"{MAX_NESTING} levels of parentheses, functions, CASE and NOT are allowed"
    )


def _open_quote(text: str) -> int:
    whole = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/"
    return next((m.start() for m in re.finditer(rf"{whole}|(['\"]|/\*|\$)", text, re.DOTALL) if m[1]), 0)


def _syntax_error(text: str, error: ParseError) -> PredicateError:
    detail = error.errors[0]
    # sqlglot counts columns to the end of the token, from the start of its line.
    line_start = sum(len(line) for line in text.splitlines(keepends=True)[: detail["line"] - 1])
    end = min(line_start + detail["col"], len(text))
    token = detail["highlight"] or ""
    problem = detail["description"] or "it cannot be parsed"
    if problem.startswith("Required keyword"):
        problem = f"something is missing at {token!r}"
    elif problem.startswith("Invalid expression"):
        problem = f"{token!r} is not expected here"
    else:
        problem = f"{problem[0].lower()}{problem[1:]} at {token!r}"
    return PredicateError(f"the predicate is not valid SQL: {problem}", text, max(end - len(token), 0), end)
