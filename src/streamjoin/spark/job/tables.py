"""Building blocks of job file models: the base class of tables, and types for the values of keys.

Each table is a pydantic model whose fields are its keys. The first line of a field's docstring says what to give:
messages quote it, and the JSON Schema contains it for editors. A check raises a `SpecError` without the key
(`is blank`); `mistakes` puts the key in front. Values are never converted: `"4"` is not a number, `true` is not 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError

from streamjoin.semantics.errors import CONTROL, SpecError
from streamjoin.spark.job.paths import local_path
from streamjoin.spark.job.shown import toml_kind

MAX_TEXT = 4096  # characters of a text on one line: a name, a path, an address
MAX_WHOLE = 2**31 - 1
LEFT_OPEN: Any = None  # the default of a key whose value a validator fills in


@dataclass(frozen=True)
class TableContext:
    """What a table's validators need from outside the table: the job file's folder and name, the side, the schema that
    the side's sources share, and the kinds of the sinks of results and of late rows."""

    folder: Path
    name: str
    side: str = "left"
    side_schema: str | None = None
    sink_kind: str | None = None
    late_kind: str | None = None


class Table(BaseModel):
    """A table of a job file. Unknown keys are mistakes, and defaults are checked like given values.

    `choices`: the keys that hold tables of several kinds, and the model of each kind.
    """

    choices: ClassVar[Mapping[str, Mapping[str, type[Table]]]] = {}

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # an option may hold a password
    )


def wrong_kind() -> PydanticCustomError:
    """The error for a value of the wrong type."""
    return PydanticCustomError("wrong_kind", "wrong kind of value")


def raise_all(problems: Iterable[tuple[tuple[str | int, ...], SpecError | PydanticCustomError]]) -> None:
    """Raise all problems of a value as one error, each with its keys below the value. Return if there are none."""
    lines = []
    for keys, problem in problems:
        if isinstance(problem, SpecError):
            problem = PydanticCustomError("value_error", "refused", {"error": problem})
        lines.append(InitErrorDetails(type=problem, loc=keys, input=None))
    if lines:
        raise ValidationError.from_exception_data("table", lines)


def check_text(text: str) -> str:
    """Check text on one line: not blank, not too long, without control characters (messages go to terminals)."""
    if not text.strip():
        raise PydanticCustomError("blank", "blank")
    if len(text) > MAX_TEXT:
        raise SpecError(f"has {len(text):,} characters; allowed: {MAX_TEXT:,}")
    return _without_control(text, text)


def check_lines(text: str) -> str:
    """Check text of any length: not blank, without control characters other than tabs and line ends."""
    if not text.strip():
        raise PydanticCustomError("blank", "blank")
    return _without_control(text, re.sub(r"[\t\r\n]", "", text))


def _without_control(text: str, checked: str) -> str:
    if (found := CONTROL.search(checked)) is not None:
        raise SpecError(f"contains the control character {found[0]!a}: remove it")
    return text


def _resolve(path: str, info: ValidationInfo) -> str:
    return local_path(path, info.context.folder) if info.context else path


def as_tuple(value: object) -> object:
    """Read a single string as a list with one item."""
    if isinstance(value, str):
        return (value,)
    if value == []:
        raise PydanticCustomError("empty", "empty")
    if not isinstance(value, (list, tuple)):
        raise wrong_kind()
    return tuple(value)


def _as_settings(value: object) -> dict[str, str]:
    """Read options for Spark: text, numbers, true and false, by name."""
    if not isinstance(value, dict):
        raise wrong_kind()
    named = list(flattened(value))
    raise_all(
        ((name,), SpecError(f"is {toml_kind(each)}: give text, a number, true or false"))
        for name, each in named
        if not isinstance(each, (str, int, float))
    )
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in named}


def flattened(values: dict[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted names and values: TOML reads `spark.ui.enabled = false` as tables in tables."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flattened(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


class OneOrMany:
    """Marks a list that may be written as a single value, for the JSON Schema."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], {**many, "minItems": 1}]}


Text = Annotated[str, Strict(), AfterValidator(check_text)]
TextLines = Annotated[str, Strict(), AfterValidator(check_lines)]
JobPath = Annotated[Text, AfterValidator(_resolve)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(as_tuple), OneOrMany]
Expressions = Annotated[tuple[TextLines, ...], BeforeValidator(as_tuple), OneOrMany]
Whole = Annotated[int, Strict(), Field(ge=1, le=MAX_WHOLE)]
Flag = Annotated[bool, Strict()]
# Any value may be a secret, so messages never show one.
Settings = Annotated[
    dict[str, str],
    BeforeValidator(_as_settings),
    Field(repr=False),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "object"]}}
    ),
]
