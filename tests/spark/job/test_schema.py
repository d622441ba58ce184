"""The JSON Schema of job files: valid, complete, and right about every job of the examples and the pages."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from streamjoin.cli.app import main
from streamjoin.spark.job.file import SECTIONS, job_schema
from streamjoin.spark.job.sides import SideTable
from streamjoin.spark.job.sink_kinds import SINK_KINDS
from streamjoin.spark.job.sources import SOURCE_KINDS
from streamjoin.spark.job.tables import Table

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(job_schema())
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def jobs() -> dict[str, str]:
    """Every job file of the examples and the pages."""
    found = {path.name: path.read_text() for path in sorted((ROOT / "examples" / "jobs").glob("*.toml"))}
    for page in PAGES:
        for at, text in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)):
            if "[join]" in text:
                found[f"{page.name}-{at}"] = text
    assert len(found) > 4
    return found


def errors(text: str) -> list[str]:
    """Where a job file does not fit the schema."""
    found = Draft202012Validator(SCHEMA).iter_errors(tomllib.loads(text))
    return [f"{error.json_path}: {error.message}" for error in found]


def test_the_command_prints_a_schema_that_is_one(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["streamjoin", "schema"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = json.loads(capsys.readouterr().out)
    assert printed == SCHEMA
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(printed)


@pytest.mark.parametrize("text", jobs().values(), ids=jobs())
def test_every_job_of_examples_and_pages_fits(text):
    assert errors(text) == []


@pytest.mark.parametrize(
    ("changed", "into"),
    [
        ('window = "15 minutes"', "window = 1.5"),
        ('window = "15 minutes"', "window = { row = 5 }"),
        ('window = "15 minutes"', 'window = { left = "1 s" }'),
        ("[join]", "[joni]"),
        ("[join]", "[join]\nhwo = 'inner'"),
        ("[join]", "[join]\nhow = 'outer'"),
        ("[join]", "[join]\nworkers = 0"),
        ("[join]", "[join]\nkeep = 'some'"),
        ("[join]", "[join]\nkeep = { as_of = 'sideways' }"),
        ("[join]", "[join]\nkeep = { nearest = 'right.a', strict = true }"),
        ('window = "15 minutes"', "window = { lower = 1 }"),
        ('kind = "generator"', 'kind = "kafak"'),
        ('kind = "generator"', 'kind = "generator", path = "in"'),
        ('kind = "noop"', 'kind = "console"\nrows = "many"'),
        ('kind = "noop"', ""),
    ],
)
def test_mistakes_do_not_fit(changed, into):
    text = (ROOT / "examples" / "jobs" / "band.toml").read_text()
    assert changed in text
    assert errors(text.replace(changed, into, 1)) != []


@pytest.mark.parametrize(
    "window",
    [
        "0",
        "'1 s'",
        "{ rows = 9 }",
        "{ left = { rows = 9 }, right = '1 s' }",
        "{ left = 0, right = 1 }",
        "{ lower = '-1 s', upper = 0, closed = 'left' }\nkeep = { as_of = 'backward', strict = true }",
        "9\nkeep = { nearest = 'right.a', k = 3, largest = false }\nleft_tie = 'x'",
    ],
)
def test_every_way_to_write_a_window_fits(window):
    text = (ROOT / "examples" / "jobs" / "band.toml").read_text()
    assert errors(text.replace('"15 minutes"', window)) == []


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    return found


def models() -> list[tuple[type[Table], dict[str, Any]]]:
    """Every model and its part of the schema."""
    found: list[tuple[type[Table], dict[str, Any]]] = []
    for name, model in SECTIONS.items():
        if isinstance(model, type):
            found.append((model, resolved(SCHEMA["properties"][name])))
    one, many = resolved(SCHEMA["properties"]["left"])["properties"]["source"]["anyOf"]
    assert many["items"] == one
    for kinds, about in ((SOURCE_KINDS, one), (SINK_KINDS, SCHEMA["properties"]["sink"])):
        assert set(about["discriminator"]["mapping"]) == set(kinds)
        for kind, reference in about["discriminator"]["mapping"].items():
            found.append((kinds[kind], resolved({"$ref": reference})))
    return found


@pytest.mark.parametrize(("model", "about"), models(), ids=lambda each: getattr(each, "__name__", ""))
def test_keys_are_those_of_the_models_and_each_is_described(model, about):
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert set(about["properties"]) == set(fields)
    assert set(about.get("required", ())) == {name for name, field in fields.items() if field.is_required()}
    assert about["additionalProperties"] is False
    assert all(each["description"] and each["title"] == name for name, each in about["properties"].items())
    assert about["description"]


def test_sides_share_one_model():
    assert SECTIONS["left"] is SECTIONS["right"] is SideTable
    assert set(SCHEMA["properties"]) == set(SECTIONS)
    assert set(SCHEMA["required"]) == {"join", "left", "right", "sink"}
