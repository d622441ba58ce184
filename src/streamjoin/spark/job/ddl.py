"""Schemas as Spark writes them, `ts TIMESTAMP, x INT, tags ARRAY<STRING>`, read without a running Spark.

Spark's own parser lives in the JVM. A job file is checked before a JVM is started, so the grammar of column lists
is read here; what is understood gives the same `StructType` as Spark's parser (a test compares the two).
"""

from __future__ import annotations

import re
from collections import Counter

from pyspark.sql import types

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.shown import shown

MOST_NESTED = 32  # arrays, maps and structs in each other
ATOMIC: dict[str, types.DataType] = {
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "byte": types.ByteType(),
    "smallint": types.ShortType(),
    "short": types.ShortType(),
    "int": types.IntegerType(),
    "integer": types.IntegerType(),
    "bigint": types.LongType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "real": types.FloatType(),
    "double": types.DoubleType(),
    "string": types.StringType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ltz": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "variant": types.VariantType(),
}
DECIMALS = ("decimal", "dec", "numeric")
NESTED = ("array", "map", "struct")
ALLOWED = f"{', '.join(ATOMIC)}, decimal(p, s), array<t>, map<k, v>, struct<name: t, ...>"
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))", re.UNICODE)


def parse_ddl(text: str) -> types.StructType:
    """The columns that `name TYPE [NOT NULL], ...` declares; a `SpecError` names the place that is no column."""
    reader = _Reader(text)
    fields = reader.fields(end=None)
    repeated = sorted(name for name, times in Counter(field.name for field in fields).items() if times > 1)
    if repeated:
        raise SpecError(f"column {shown(repeated[0])} is declared twice: names must differ")
    return types.StructType(fields)


class _Reader:
    """Recursive descent over the tokens of a column list."""

    def __init__(self, text: str):
        self.text = text
        self.tokens: list[tuple[str, bool]] = []  # the token, and whether it can be a name
        text, at = text.rstrip(), 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self.error(text[at:].split(maxsplit=1)[0])
            quoted, word, mark = match.groups()
            self.tokens.append((quoted.replace("``", "`"), True) if quoted else (word or mark, bool(word)))
            at = match.end()
        self.at = self.depth = 0

    def error(self, found: str | None) -> SpecError:
        where = "the end" if found is None else shown(found)
        return SpecError(
            f"{shown(self.text)} is no list of columns, at {where}: write 'name TYPE, name TYPE', such as "
            "'ts TIMESTAMP, x INT'"
        )

    def peek(self) -> str | None:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else None

    def accept(self, *words: str) -> bool:
        """Step over `words` if they come next, in any case."""
        ahead = [token.lower() for token, _ in self.tokens[self.at : self.at + len(words)]]
        if ahead == [word.lower() for word in words]:
            self.at += len(words)
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.error(self.peek())

    def name(self) -> str:
        if self.at == len(self.tokens) or not self.tokens[self.at][1]:
            raise self.error(self.peek())
        self.at += 1
        return self.tokens[self.at - 1][0]

    def fields(self, end: str | None) -> list[types.StructField]:
        """Columns up to the mark `end`; None is the end of the text, where a trailing comma is a mistake."""
        found = []
        while True:
            name = self.name()
            if end is not None:
                self.accept(":")  # `struct<a: INT>`; Spark takes `struct<a INT>` as well
            kind = self.type()
            found.append(types.StructField(name, kind, nullable=not self.accept("not", "null")))
            if self.peek() == end:
                return found
            self.expect(",")

    def type(self) -> types.DataType:
        word = self.name().lower()
        if word in ATOMIC:
            return ATOMIC[word]
        if word in DECIMALS:
            return self.decimal()
        if word not in NESTED:
            raise SpecError(f"{shown(word)} is no type that is known here; allowed: {ALLOWED}")
        self.expect("<")
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise SpecError(f"types lie more than {MOST_NESTED} deep in each other: declare fewer levels")
        if word == "struct":
            kind: types.DataType = types.StructType(self.fields(end=">"))
        elif word == "array":
            kind = types.ArrayType(self.type())
        else:
            key = self.type()
            self.expect(",")
            kind = types.MapType(key, self.type())
        self.expect(">")
        self.depth -= 1
        return kind

    def decimal(self) -> types.DecimalType:
        if not self.accept("("):
            return types.DecimalType(10, 0)
        precision = self.number()
        scale = self.number() if self.accept(",") else 0
        self.expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise SpecError(
                f"decimal({precision}, {scale}): a decimal has 1 to 38 digits, and no more of them behind the point"
            )
        return types.DecimalType(precision, scale)

    def number(self) -> int:
        found = self.peek()
        if found is None or not re.fullmatch("[0-9]{1,9}", found):
            raise self.error(found)
        self.at += 1
        return int(found)
