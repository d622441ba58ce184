"""Column lists as Spark's SQL writes them: `ts TIMESTAMP, x INT NOT NULL, tags ARRAY<STRING>`.

One grammar for schemas in job files and on the command line. It knows how types are built: `array<t>`, `map<k, v>`,
`struct<name: t, ...>`, `decimal(p, s)`. Which simple names are types is up to the caller.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

from streamjoin.semantics.errors import SpecError, short_repr

DeclaredType = exp.DataType  # a type as it is written; see `type_name`, `struct_fields`, `decimal_digits`
MAX_NESTED_TYPES = 32  # levels of arrays, maps and structs in each other
_QUOTED = 40  # characters of a list that a message repeats
_KEYWORDS = {
    "ARRAY": TokenType.ARRAY,
    "MAP": TokenType.MAP,
    "STRUCT": TokenType.STRUCT,
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), TokenType.DECIMAL),
}
_NESTED = (TokenType.ARRAY, TokenType.MAP, TokenType.STRUCT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER, *_KEYWORDS.values())


class _ColumnDialect(Spark):
    """Spark's column lists. Almost no word is reserved: a column can be called `order`, and `date DATE` is one, too."""

    class Tokenizer(Spark.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = _KEYWORDS
        # A semicolon would end the list, and hide what follows.
        SINGLE_TOKENS = {**Spark.Tokenizer.SINGLE_TOKENS, ";": TokenType.PARAMETER}

    class Parser(SparkParser):
        def _parse_types(self, *arguments: Any, **options: Any) -> exp.Expr | None:
            """A word of any kind is a type, for the caller to look up; it may have a size, as in `varchar(20)`."""
            if self._match(TokenType.VAR):
                word = self._prev.text
                sized = self._curr is not None and self._curr.token_type is TokenType.L_PAREN
                sizes = self._parse_wrapped_csv(self._parse_type_size) if sized else []
                return self.expression(exp.DataType(this=exp.DType.USERDEFINED, kind=word, expressions=sizes))
            nested = self._curr is not None and self._curr.token_type in _NESTED
            if nested and (self._next is None or self._next.token_type is not TokenType.LT):
                self.raise_error("Expecting <")
            return super()._parse_types(*arguments, **options)

        def _parse_struct_types(self, type_required: bool = False) -> exp.Expr | None:
            """`name TYPE` or `name: TYPE`, either with NOT NULL. sqlglot would also take a type without a name."""
            named = self._curr is not None and self._curr.token_type in _NAMES
            name = self._parse_id_var() if named else None
            self._match(TokenType.COLON)
            kind = self._parse_types() if name is not None else None
            if not isinstance(kind, exp.DataType):
                self.raise_error("Expecting a name and a type")
            required = self._match_text_seq("NOT", "NULL")
            constraints = [exp.NotNullColumnConstraint()] if required else []
            return self.expression(exp.ColumnDef(this=name, kind=kind, constraints=constraints))


@dataclass(frozen=True)
class DeclaredColumn:
    """A column of a list, or a field of a struct."""

    name: str
    type: DeclaredType
    nullable: bool


def parse_columns(text: str) -> list[DeclaredColumn]:
    """The columns that `name TYPE [NOT NULL], ...` declares; a `SpecError` names the place that is not a column."""
    whole, dialect = f"STRUCT<{text}>", _ColumnDialect()
    try:
        tokens = dialect.tokenize(whole)
        _check_depth([token.token_type for token in tokens])
        (tree,) = dialect.parser().parse_into(exp.DataType, tokens, whole)
        assert isinstance(tree, exp.DataType)
        columns = struct_fields(tree)
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


def struct_fields(kind: DeclaredType) -> list[DeclaredColumn]:
    """The fields of a struct."""
    return [
        DeclaredColumn(field.name, field.args["kind"], not field.args["constraints"])
        for field in kind.expressions
    ]


def type_name(kind: DeclaredType) -> str:
    """The name of a type in lower case, without its parameters: `int`, `array`, `decimal`."""
    return str(kind.args["kind"] if kind.this is exp.DType.USERDEFINED else kind.this.value).lower()


def decimal_digits(kind: DeclaredType, default: tuple[int, int]) -> tuple[int, int]:
    """Precision and scale of a decimal; `default` if it has neither."""
    if not kind.expressions:
        return default
    texts = [parameter.name for parameter in kind.expressions]
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
