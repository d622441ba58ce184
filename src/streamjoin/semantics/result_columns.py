"""The columns of a result: all of left's, then all of right's, or those that `JoinSpec.columns` chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from streamjoin.semantics.errors import SpecError, did_you_mean, short_repr, without_middle

# Names such as "price", "left.price" or "left.price AS p", a mapping {new name: column}, or its items.
Columns = Sequence[str] | Mapping[str, str] | Sequence[tuple[str, str]]

COLUMNS_ALLOWED = (
    "a list of names such as 'price', 'left.price' or 'left.price AS p', or a dict {new name: column}"
)
_RENAMED = re.compile(r"(.*\S)\s+AS\s+(\S.*)", re.IGNORECASE | re.DOTALL)  # at the last AS


class ResultColumn(NamedTuple):
    """A column of a result: its side, its field there, and its name in the result."""

    side: str
    field: pa.Field
    name: str

    @property
    def source(self) -> str:
        """The column's unambiguous name in `columns`."""
        return f"{self.side}.{self.field.name}"


def all_columns(schemas: Mapping[str, pa.Schema], suffix: str) -> tuple[ResultColumn, ...]:
    """Left's columns, then right's; a right name that is taken gets the suffix."""
    taken = {name for schema in schemas.values() for name in schema.names}
    found = []
    for side, schema in schemas.items():
        for field in schema:
            name = _plain_name(side, field.name, schemas, suffix)
            if side == "right" and field.name in schemas["left"].names:
                if name in taken:
                    raise SpecError(
                        f"right column {field.name!r} would become {name!r}, which is taken: choose another suffix",
                        field="suffix",
                        given=suffix,
                        allowed="a suffix that makes a name which no column has",
                    )
                taken.add(name)
            found.append(ResultColumn(side, field, name))
    return tuple(found)


def _plain_name(side: str, name: str, schemas: Mapping[str, pa.Schema], suffix: str) -> str:
    """The name of a column in a result of all columns."""
    return name + suffix if side == "right" and name in schemas["left"].names else name


@dataclass(frozen=True)
class ColumnChoice:
    """What a caller gave as `columns` of a join of these schemas."""

    given: Columns
    schemas: Mapping[str, pa.Schema]
    how: str
    suffix: str

    def columns(self) -> tuple[ResultColumn, ...]:
        """The chosen columns, in their order. One without a new name has the name that it has in a result of all."""
        chosen: dict[str, ResultColumn] = {}
        for new, old in self._pairs():
            side, field = self._found(old, new)
            column = ResultColumn(
                side, field, new or _plain_name(side, field.name, self.schemas, self.suffix)
            )
            other = chosen.setdefault(column.name, column)
            if other is not column:
                raise _wrong(
                    f"columns gives the name {column.name!r} to {other.source} and to {column.source}: names must be "
                    f"unique; write '{column.source} AS ...'",
                    column.name,
                )
        return tuple(chosen.values())

    def _pairs(self) -> list[tuple[str | None, str]]:
        """New names, None where none is given, and the columns as they are named."""
        given: Any = self.given
        items = list(given.items()) if isinstance(given, Mapping) else given
        if isinstance(given, (str, bytes)) or not isinstance(items, Sequence):
            raise _wrong(f"columns is {short_repr(given)}: give {COLUMNS_ALLOWED}", given)
        if not items:
            raise _wrong("columns is empty: name at least one column, or leave columns out for all", given)
        return [self._pair(item) for item in items]

    def _pair(self, item: Any) -> tuple[str | None, str]:
        if isinstance(item, str):
            renamed = None if self._candidates(item) else _RENAMED.fullmatch(item)
            return (_unquoted(renamed[2]), renamed[1]) if renamed else (None, item)
        texts = isinstance(item, tuple) and len(item) == 2 and all(isinstance(part, str) for part in item)
        if texts and item[0]:
            return item  # type: ignore[no-any-return]
        raise _wrong(f"columns has {short_repr(item)}: give {COLUMNS_ALLOWED}", item)

    def _candidates(self, name: str) -> list[tuple[str, pa.Field]]:
        """The columns that a name can mean. `side.name` means that side's column, a bare name every column of it."""
        side, _, rest = name.partition(".")
        side, rest = side.lower(), _unquoted(rest)
        if side in self.schemas and rest in self.schemas[side].names:
            return [(side, self.schemas[side].field(rest))]
        plain = _unquoted(name)
        return [(side, schema.field(plain)) for side, schema in self.schemas.items() if plain in schema.names]

    def _found(self, name: str, new: str | None) -> tuple[str, pa.Field]:
        """The one column that a name means."""
        found = self._candidates(name)
        if self.how in ("semi", "anti") and found:
            found = [(side, field) for side, field in found if side == "left"]
            if not found:
                raise _wrong(
                    f"columns has {name!r}, a column of right, but how={self.how!r} returns only left's columns",
                    name,
                )
        if len(found) > 1:
            choices = " or ".join(f"'{side}.{name}'" for side, _ in found)
            raise _wrong(f"columns has {name!r}, a column of both sides: write {choices}", name)
        if not found:
            known = " and ".join(f"{side} has {schema.names}" for side, schema in self.schemas.items())
            message = f"columns has {name!r}, which is not a column: {known}{self._hint(name, new)}"
            raise _wrong(without_middle(message), name)
        return found[0]

    def _hint(self, name: str, new: str | None) -> str:
        """A hint at what an unknown name was meant to be."""
        if isinstance(self.given, Mapping) and new is not None and self._candidates(new):
            return f"; a dict is {{new name: column}}, so write {{{name!r}: {new!r}}}"
        stem = name.removesuffix(self.suffix)
        if stem != name and stem in self.schemas["right"].names:
            return f"; did you mean 'right.{stem}'?"
        side, _, rest = name.partition(".")
        names = [each for schema in self.schemas.values() for each in schema.names]
        return did_you_mean(rest if side in self.schemas else name, names)


def _unquoted(name: str) -> str:
    """A name as SQL writes it, which may be in double quotes."""
    quoted = len(name) > 2 and name[0] == name[-1] == '"'
    return name[1:-1].replace('""', '"') if quoted else name


def _wrong(message: str, given: object) -> SpecError:
    return SpecError(message, field="columns", given=given, allowed=COLUMNS_ALLOWED)
