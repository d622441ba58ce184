"""Turns pydantic's errors about a table of a job file into messages for the author of the file.

A mistake is a dotted key and a sentence with the value given, the values allowed, and the nearest allowed word.
Messages leave out values of options and settings, because any of them may be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import ErrorDetails, core_schema

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark.job.shown import shown, toml_kind, written_key
from streamjoin.spark.job.tables import Table
from streamjoin.spark.job.toml import MAX_MISTAKES

Mistake = tuple[str, str]  # the dotted key, and the sentence
Kinds = Mapping[str, type[Table]]  # the models of a table that comes in several kinds
SECRET_KEYS = ("options", "settings")
_ARTICLES = ("A", "An", "At", "How", "One", "The", "What", "Whether")
_MISSING = object()


class JobSchema(GenerateJsonSchema):
    """JSON Schema without null, which TOML does not have. The title of a key is its name."""

    def get_title_from_name(self, name: str) -> str:
        return name

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        if found.get("default", ...) in (None, [], {}):
            del found["default"]
        return found


@dataclass(frozen=True)
class Place:
    """Where a mistake is: the key, the value, the model that has the key, and the table it was read from."""

    key: str
    value: object
    model: type[Table] | None
    name: str
    table: object
    kinds: Kinds | None


def find_mistakes(
    error: ValidationError, values: object, section: str, model: type[Table] | Kinds
) -> list[Mistake]:
    """The mistakes found while reading `values` as a `model`."""
    found: dict[str, str] = {}
    for each in error.errors(include_url=False, include_input=False):
        place = locate(each["loc"], values, section, model)
        key, sentence = _describe(each, place, len(found) < MAX_MISTAKES)
        if (
            place.name == "schema"
            and place.value is _MISSING
            and isinstance(values, dict)
            and "schema" in values
        ):
            key = f"{section}.schema"  # the source takes it from its side
        found.setdefault(key, sentence)
    return list(found.items())


def locate(
    keys: Sequence[str | int], values: object, section: str, model: type[Table] | Kinds | None
) -> Place:
    """Follow pydantic's location. It also contains the kinds of tables, and an index where one table is given alone."""
    path, owner, name, table = section, None, "", values
    for key in keys:
        if isinstance(key, int):
            if isinstance(values, list):
                path += f"[{key}]"
                values = values[key] if key < len(values) else _MISSING
        elif isinstance(model, Mapping):
            model = model[key]
        else:
            given = values if isinstance(values, dict) else {}
            if model is not None:
                if key not in given and (about := model.model_fields.get(key)) and about.alias:
                    key = about.alias  # pydantic locates a default by the name of its field
                owner, name, table = model, key, values
                model = model.choices.get(key)
            path = f"{path}.{written_key(key)}"
            values = given.get(key, _MISSING)
    return Place(path, values, owner, name, table, model if isinstance(model, Mapping) else None)


def _describe(error: ErrorDetails, place: Place, with_suggestion: bool) -> Mistake:
    """The key and the sentence of one of pydantic's errors."""
    about = properties(place.model).get(place.name, {}) if place.model else {}
    wanted = wanted_words(about)
    given = (toml_kind if place.name in SECRET_KEYS else shown)(place.value)
    match error["type"]:
        case "value_error":
            return place.key, sentence_of(error["ctx"]["error"])
        case "missing":
            return place.key, f"is missing: give {wanted}"
        case "extra_forbidden":
            assert place.model is not None
            return place.key, unknown_key(place.name, properties(place.model), with_suggestion)
        case "union_tag_invalid" | "union_tag_not_found":
            assert place.kinds is not None and isinstance(place.value, dict)
            return f"{place.key}.kind", _not_one_of(place.value.get("kind", _MISSING), list(place.kinds))
        case "literal_error":
            return place.key, _not_one_of(place.value, about["enum"])
        case "greater_than_equal" | "less_than_equal":
            return place.key, f"is {given}; allowed: {about['minimum']} to {about['maximum']}"
        case "blank" | "empty" as state:
            return place.key, f"is {state}: give {wanted}"
        case "int_type":
            return place.key, f"is {given}: give a whole number ({wanted})"
        case "bool_type":
            return place.key, f"is {given}: give true or false"
        case "model_attributes_type" | "model_type" if not place.name:
            return place.key, f"is {given}: give a table [{place.key}]"
    return place.key, f"is {given}: give {wanted}"


def sentence_of(error: StreamJoinError, key_is_field: bool = True) -> str:
    """The message of an error, indented. If the key is the field, without the field's name, because the key precedes
    the sentence."""
    sentence = str(error).strip().replace("\n", "\n    ")
    return sentence.removeprefix(f"{error.field} ") if key_is_field else sentence


def unknown_key(name: str, allowed: Iterable[str], with_suggestion: bool = True) -> str:
    names = sorted(allowed)
    meant = suggestion(name, names) if with_suggestion else ""
    return f"is an unknown key; allowed: {', '.join(names)}{meant}"


def _not_one_of(value: object, allowed: Sequence[str]) -> str:
    words = ", ".join(allowed)
    if value is _MISSING:
        return f"is missing: give one of {words}"
    if not isinstance(value, str):
        return f"is {shown(value)}: give one of {words}"
    return f"is {shown(value)}; allowed: {words}{suggestion(value, allowed)}"


def suggestion(given: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(given, allowed, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


@cache
def properties(model: type[Table]) -> dict[str, dict[str, Any]]:
    """The keys of a table, each with its JSON Schema."""
    found: dict[str, dict[str, Any]] = model.model_json_schema(schema_generator=JobSchema)["properties"]
    return found


def wanted_words(about: Mapping[str, Any]) -> str:
    """The first clause of a key's description, for use inside a sentence."""
    words = str(about.get("description", "another value")).splitlines()[0].split(";")[0].removesuffix(".")
    first = words.split(" ", 1)[0]
    return words[0].lower() + words[1:] if first in _ARTICLES else words


def without_mistakes(
    error: ValidationError, values: object, section: str, model: type[Table] | Kinds
) -> None:
    """Remove from `values` the keys that are wrong, so that what is left can be checked further."""
    for each in error.errors(include_url=False, include_input=False):
        place = locate(each["loc"], values, section, model)
        if isinstance(place.table, dict):
            place.table.pop(place.name, None)
