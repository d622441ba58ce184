"""Column lists as Spark's SQL writes them: `ts TIMESTAMP, x INT NOT NULL, tags ARRAY<STRING>`.

One grammar for schemas in job files and on the command line. It knows how types are built: `array<t>`, `map<k, v>`,
`struct<name: t, ...>`, `decimal(p, s)`. Which simple names are types is up to the caller.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from streamjoin.semantics.errors import SpecError, short_repr

MAX_NESTED_TYPES = 32  # levels of arrays, maps and structs in each other
_QUOTED = 40  # characters of a list that a message repeats
_KEYWORDS = {
    "ARRAY": TokenType.ARRAY,
    "MAP": TokenType.MAP,
    "STRUCT": TokenType.STRUCT,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), TokenType.DECIMAL),
}
_NESTED = {TokenType.ARRAY: "array", TokenType.MAP: "map", TokenType.STRUCT: "struct"}
_TYPES = {TokenType.VAR: None, TokenType.DECIMAL: "decimal", **_NESTED}  # None: the word itself is the name
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER, *_KEYWORDS.values()}
_SIZES = {TokenType.NUMBER, TokenType.VAR}  # the caller refuses words
_Member = TypeVar("_Member")


@dataclass(frozen=True, slots=True)
class DeclaredType:
    """A type as it is written. Only structs have fields, only arrays and maps have parameters."""

    name: str  # in lower case, such as `int`, `array` or `decimal`
    sizes: tuple[str, ...] = ()  # 10 and 2 in `decimal(10, 2)`
    parameters: tuple[DeclaredType, ...] = ()
    fields: tuple[DeclaredColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column of a list, or a field of a struct."""

    name: str
    type: DeclaredType
    nullable: bool


class _ColumnDialect(Spark):
    """Spark's column lists. Almost no word is reserved: a column can be called `order`, and `date DATE` is one, too."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = _KEYWORDS
        # A semicolon would end the list, and hide what follows.
        SINGLE_TOKENS = {**Spark.Tokenizer.SINGLE_TOKENS, ";": TokenType.PARAMETER}

    class Parser(SparkParser):
        """Looks at each token once or twice. sqlglot's own rules for types look at it a dozen times and build trees of
        expressions: they take five seconds for the longest list that a job file can have."""

        EXPRESSION_PARSERS: ClassVar[dict[Any, Any]] = {exp.DataType: lambda self: self.declared_type()}

        def declared_type(self) -> DeclaredType:
            """A word of any kind is a type, for the caller to look up; it may have sizes, as in `varchar(20)`."""
            word = self._curr
            if word is None or word.token_type not in _TYPES:
                self.raise_error("Expecting a type")
            self._advance()
            name = _TYPES[word.token_type] or word.text.lower()
            if word.token_type is TokenType.STRUCT:
                return DeclaredType(name, fields=self._inside(self._column))
            if word.token_type in _NESTED:
                return DeclaredType(name, parameters=self._inside(self.declared_type))
            return DeclaredType(name, self._sizes())

        def _inside(self, member: Callable[[], _Member]) -> tuple[_Member, ...]:
            """The members of a nested type, between `<` and `>`."""
            if not self._match(TokenType.LT):
                self.raise_error("Expecting <")
            members = [member()]
            while self._match(TokenType.COMMA):
                members.append(member())
            if not self._match(TokenType.GT):
                self.raise_error("Expecting >")
            return tuple(members)

        def _column(self) -> DeclaredColumn:
            """`name TYPE` or `name: TYPE`, either with NOT NULL."""
            name = self._curr
            if name is None or name.token_type not in _NAMES:
                self.raise_error("Expecting a name")
            self._advance()
            self._match(TokenType.COLON)
            kind = self.declared_type()
            return DeclaredColumn(name.text, kind, nullable=not self._match_text_seq("NOT", "NULL"))

        def _sizes(self) -> tuple[str, ...]:
            if not self._match(TokenType.L_PAREN):
                return ()
            sizes: list[str] = []
            while not sizes or self._match(TokenType.COMMA):
                if self._curr is None or self._curr.token_type not in _SIZES:
                    self.raise_error("Expecting a number")
                sizes.append(self._curr.text)
                self._advance()
            if not self._match(TokenType.R_PAREN):
                self.raise_error("Expecting )")
            return tuple(sizes)


def parse_columns(text: str) -> tuple[DeclaredColumn, ...]:
    """The columns that `name TYPE [NOT NULL], ...` declares; a `SpecError` names the place that is not a column."""
    whole, dialect = f"STRUCT<{text}>", _ColumnDialect()
    try:
        tokens = dialect.tokenize(whole)
        _check_depth([token.token_type for token in tokens])
        parsed: Any = dialect.parser().parse_into(exp.DataType, tokens, whole)
        columns: tuple[DeclaredColumn, ...] = parsed[0].fields
    except (ParseError, TokenError, ValueError) as error:
        if isinstance(error, SpecError):
            raise
        told: Any = (getattr(error, "errors", None) or [{}])[0]
        found = told.get("highlight")
        at = "the end" if found == ">" and not told["end_context"] else short_repr(found, _QUOTED)
        if found is None:
            at = "a quote that is not closed"
        raise SpecError(
            f"{short_repr(text, _QUOTED)} is not a list of columns, at {at}: write 'name TYPE, name TYPE', such as "
            "'ts TIMESTAMP, x INT'",
            field="columns",
            given=text,
            allowed="name TYPE, name TYPE",
        ) from None
    repeated = sorted(name for name, times in Counter(column.name for column in columns).items() if times > 1)
    if repeated:
        raise SpecError(
            f"column {short_repr(repeated[0], _QUOTED)} is declared twice: names must differ",
            field="columns",
            given=repeated[0],
            allowed="names that differ",
        )
    return columns


def _check_depth(tokens: list[TokenType]) -> None:
    depth = 0
    for token in tokens:
        depth += (token is TokenType.LT) - (token is TokenType.GT)
        if depth > MAX_NESTED_TYPES + 1:
            raise SpecError(
                f"types are nested more than {MAX_NESTED_TYPES} deep: declare fewer levels",
                field="columns",
                given=depth,
                allowed=f"up to {MAX_NESTED_TYPES} levels",
            )


def decimal_digits(kind: DeclaredType, default: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale of a decimal; `default` if it has neither."""
    texts = kind.sizes
    if not texts:
        return default
    if len(texts) > 2 or not all(re.fullmatch("[0-9]{1,9}", text) for text in texts):
        raise SpecError(
            f"decimal({short_repr(', '.join(texts), _QUOTED)[1:-1]}): write decimal(p, s)",
            field="columns",
            given=", ".join(texts),
            allowed="decimal(p, s)",
        )
    precision, scale = int(texts[0]), int(texts[1]) if len(texts) == 2 else 0
    if not (1 <= precision <= 38 and scale <= precision):
        raise SpecError(
            f"decimal({precision}, {scale}): a decimal has 1 to 38 digits, and at most that many after the point",
            field="columns",
            given=(precision, scale),
            allowed="1 to 38 digits, at most that many after the point",
        )
    return precision, scale


def unknown_type(name: str, allowed: str) -> SpecError:
    """The error about a type that the caller does not know."""
    return SpecError(
        f"unknown type {short_repr(name, _QUOTED)}; allowed: {allowed}",
        field="columns",
        given=name,
        allowed=allowed,
    )
