"""A job: what `streamjoin run` reads from a TOML file, checked before Spark starts.

A file has the tables `[join]`, `[left]` and `[right]` with their `[[left.source]]`, `[sink]`, `[late]`, `[run]` and
`[spark]` (docs/jobs.md is the reference). Relative paths are relative to the file. Every mistake is reported at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from streamjoin.semantics.durations import lateness_ticks
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.windows import Interval, Window
from streamjoin.spark.hot_keys import SAMPLE
from streamjoin.spark.job.join_table import JoinTable
from streamjoin.spark.job.mistakes import (
    JobSchema,
    Kinds,
    Mistake,
    find_mistakes,
    sentence_of,
    unknown_key,
    without_mistakes,
)
from streamjoin.spark.job.other_sinks import JdbcSink
from streamjoin.spark.job.paths import in_the_way, is_remote, lies_in
from streamjoin.spark.job.run_tables import RunTable, SparkTable
from streamjoin.spark.job.shown import secrets_in, without_secrets, written_key
from streamjoin.spark.job.sides import SideTable
from streamjoin.spark.job.sink_kinds import LATE_SINK_KINDS, SINK_KINDS, AnyLateSink, AnySink
from streamjoin.spark.job.sinks import FilesSink, SinkTable
from streamjoin.spark.job.sources import FilesSource
from streamjoin.spark.job.tables import Table, TableContext
from streamjoin.spark.job.toml import JobError, read_toml
from streamjoin.spark.join.hot_keys import check_divisible, given_hot_keys, with_hot_keys
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.window_join import (
    CASE,
    arrow_schema,
    check_column_names,
    make_task,
    tells_case,
    with_late,
)

LATE_COLUMN = "streamjoin late"  # marks late rows among the results on their way to the sinks
SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"
# A join cannot be checked against its columns while one of these is wrong; the other keys have defaults that fit.
NEEDED_KEYS = ("join", "join.on", "join.window", "join.lateness", "join.suffix", "join.columns")
# Keys of sources that do not change the columns: with a mistake in one of them, the columns can still be checked.
COLUMNLESS_KEYS = (
    "avro_header",
    "avro_ids",
    "malformed",
    "max_files",
    "max_rows",
    "options",
    "rows_per_batch",
    "rows_per_second",
    "seed",
    "starting",
)


class JobFile(Table):
    """A window join on Spark: two streams, how they are joined, and where the result goes."""

    model_config = ConfigDict(title="streamjoin job file")

    join: JoinTable
    """What is joined."""
    left: SideTable
    """Where the left stream comes from."""
    right: SideTable
    """Where the right stream comes from."""
    sink: AnySink
    """Where results go."""
    late: AnyLateSink | None = None
    """Where rows go that came too late to be joined; without this table they are dropped."""
    run: RunTable = Field(default_factory=RunTable.model_construct)
    """When micro-batches start, and where state is kept."""
    spark: SparkTable = Field(default_factory=SparkTable)
    """Where the job runs."""


SECTIONS: Mapping[str, type[Table] | Kinds] = {
    "join": JoinTable,
    "left": SideTable,
    "right": SideTable,
    "sink": SINK_KINDS,
    "late": LATE_SINK_KINDS,
    "run": RunTable,
    "spark": SparkTable,
}
_READERS = {
    name: TypeAdapter(kind)
    for name, kind in get_type_hints(JobFile, include_extras=True).items()
    if name in SECTIONS
}


def job_schema() -> str:
    """The JSON Schema of job files, for completion and checks in editors."""
    schema = {"$schema": SCHEMA_DIALECT} | JobFile.model_json_schema(schema_generator=JobSchema)
    return json.dumps(schema, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class Job:
    """A job file, read and checked. `spec` is the join; it is None if only Spark knows the columns. It has no lateness,
    because on Spark the watermark decides which rows are late."""

    path: Path
    join: JoinTable
    left: SideTable
    right: SideTable
    sink: AnySink
    late: AnyLateSink | None
    run: RunTable
    spark: SparkTable
    spec: JoinSpec | None = field(default=None, compare=False, repr=False)

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job in a file; a `JobError` lists everything that is wrong with it."""
        values = read_toml(path)
        problems = dict(top_mistakes(values))
        tables = {}
        for name in SECTIONS:
            tables[name], found = read_section(name, values, path)
            problems |= found
        spec = None
        if not any(changes_columns(key) or key in NEEDED_KEYS for key in problems):
            spec, found = check_join(tables)
            problems |= found
        problems = problems | {key: told for key, told in place_mistakes(tables) if key not in problems}
        if problems:
            raise JobError(str(path), list(problems.items()))
        return cls(path, **tables, spec=spec)

    def side(self, name: str) -> SideTable:
        return self.left if name == "left" else self.right

    @property
    def sinks(self) -> dict[str, SinkTable]:
        """The sinks, by the name of their table."""
        return {"sink": self.sink} if self.late is None else {"sink": self.sink, "late": self.late}

    @property
    def files_sinks(self) -> dict[str, FilesSink]:
        """The sinks that write files, by the name of their table."""
        return {name: sink for name, sink in self.sinks.items() if isinstance(sink, FilesSink)}

    def without_secrets(self, text: str) -> str:
        """A text from Spark, without the secrets in this file's options and settings."""
        parts = (*self.left.sources, *self.right.sources, *self.sinks.values())
        options = [getattr(part, "options", {}) for part in parts]
        return without_secrets(text, secrets_in([*options, self.spark.settings]))

    def task(self, workers: int) -> JoinTask | None:
        """The task of the join on this many workers; None if only Spark knows the columns."""
        return None if self.spec is None else task_of(self.join, self.spec, workers)


def spec_of_job(join: JoinTable, left: pa.Schema, right: pa.Schema, times: Sequence[str]) -> JoinSpec:
    """The join of these columns. `times`: the time columns."""
    return JoinSpec(
        left,
        right,
        join.on,
        join.window,
        left_time=times[0],
        right_time=times[1],
        how=join.how,
        keep=join.keep,
        left_tie=join.left_tie,
        right_tie=join.right_tie,
        suffix=join.suffix,
        columns=join.columns,
    )


def task_of(join: JoinTable, spec: JoinSpec, workers: int) -> JoinTask:
    """The task that the driver sends to workers; `workers` counts if the file leaves their number open. It has the hot
    keys that the file lists."""
    task = make_task(spec, join.order, join.index, join.partitioning, join.workers or workers)
    if join.hot_keys == SAMPLE:
        check_divisible(task, join.hot_keys)
    elif join.hot_keys is not None:
        task = with_hot_keys(task, given_hot_keys(task, join.hot_keys))
    return task


def top_mistakes(values: dict[str, Any]) -> list[Mistake]:
    """Tables that are missing, and keys outside of tables."""
    found = [(written_key(name), unknown_key(name, SECTIONS)) for name in values if name not in SECTIONS]
    required = [name for name, about in JobFile.model_fields.items() if about.is_required()]
    return found + [(name, f"is missing: give a table [{name}]") for name in required if name not in values]


def read_section(name: str, values: dict[str, Any], path: Path) -> tuple[Any, dict[str, str]]:
    """A table of the file as a model, and its mistakes. With mistakes, the model is read without the wrong keys; it
    is None if that is impossible."""
    about = JobFile.model_fields[name]
    if name not in values and (about.is_required() or about.default is None):
        return None, {}
    given = values.get(name, {})
    shared = given.get("schema") if isinstance(given, dict) else None
    reading = TableContext(
        folder=path.resolve().parent,
        name=path.stem,
        side=name,
        side_schema=shared if isinstance(shared, str) else None,
        sink_kind=kind_in(values.get("sink")),
        late_kind=kind_in(values.get("late")),
    )
    reader: TypeAdapter[Any] = _READERS[name]
    try:
        return reader.validate_python(given, context=reading), {}
    except ValidationError as error:
        found = dict(find_mistakes(error, given, name, SECTIONS[name]))
        rest = deepcopy(given)
        without_mistakes(error, rest, name, SECTIONS[name])
    try:
        return reader.validate_python(rest, context=reading), found
    except ValidationError as error:
        if name in SIDES and not any(map(changes_columns, found)):
            found = dict(find_mistakes(error, rest, name, SECTIONS[name])) | found
        return None, found


def kind_in(given: object) -> Any:
    """The kind of a sink, as the file gives it."""
    return given.get("kind") if isinstance(given, dict) else None


def changes_columns(key: str) -> bool:
    """Whether the columns of a side are unknown while the value of this key is wrong."""
    side, _, rest = key.partition(".")
    return side in SIDES and rest.partition(".")[2].partition(".")[0] not in COLUMNLESS_KEYS


def check_join(tables: Mapping[str, Any]) -> tuple[JoinSpec | None, dict[str, str]]:
    """The join, if the file contains the columns, and mistakes that depend on them: in the predicate, window, lateness,
    index, suffix, columns or sink."""
    join, sides = tables["join"], [tables[side] for side in SIDES]
    columns = [side.columns for side in sides if side is not None and side.columns is not None]
    if join is None or len(columns) < len(SIDES):
        return None, {}
    try:
        schemas = [arrow_schema(side, each) for side, each in zip(SIDES, columns, strict=True)]
        times = [side.time for side in sides]
        spec = spec_of_job(join, schemas[0], schemas[1], times)
        lateness_ticks(join.lateness, spec.time_unit)
        task = task_of(join, spec, workers=1)
        settings = tables["spark"].settings if tables["spark"] else {}
        check_column_names(spec, task, tells_case(settings.get(CASE, "false")))
    except SpecError as error:
        return None, dict([join_mistake(error, join)])
    found: dict[str, str] = {}
    for name in ("sink", "late"):
        if tables[name] is not None:
            written = task.schema if name == "sink" else late_schema(task)
            found |= {f"{name}.{key}": told for key, told in tables[name].check(written)}
    return spec, found


def late_schema(task: JoinTask) -> pa.Schema:
    """The columns of late rows: those of both sides."""
    marked = with_late(task, LATE_COLUMN).schema
    return marked.remove(marked.get_field_index(LATE_COLUMN))


def join_mistake(error: SpecError, join: JoinTable) -> Mistake:
    """An error of the join as a mistake. The key follows from the error's field; it is `join` if no key fits."""
    name, _, part = (error.field or "").partition(".")
    for side in SIDES:
        if name == f"{side}_time":
            return f"{side}.time", sentence_of(error)
    if name == "window" and part in parts_of(join.window):
        return f"join.window.{part}", sentence_of(error)
    if name == "keep" and part == "by":
        return "join.keep.nearest", sentence_of(error)
    if name in JoinTable.model_fields:
        return f"join.{name}", sentence_of(error)
    return "join", sentence_of(error, key_is_field=False)


def parts_of(window: Window | tuple[Window, Window]) -> tuple[str, ...]:
    """The keys that a window has in the file."""
    if isinstance(window, tuple):
        return SIDES
    return ("lower", "upper") if isinstance(window, Interval) else ()


def place_mistakes(tables: Mapping[str, Any]) -> list[Mistake]:
    """Refuse output paths that are files, that a source reads, or that two outputs share."""
    run = tables["run"]
    sinks = {name: tables[name].path for name in ("sink", "late") if isinstance(tables[name], FilesSink)}
    places = {"run.checkpoint": run.checkpoint} if run and run.checkpoint else {}
    places |= {f"{name}.path": path for name, path in sinks.items()}
    sources = [each for side in SIDES if tables[side] for each in tables[side].sources]
    read = [each.path for each in sources if isinstance(each, FilesSource)]
    found = []
    for key, place in places.items():
        if obstacle := in_the_way(place):
            found.append((key, f"is {place!r}, {obstacle}: give a folder"))
        elif reader := next((path for path in read if lies_in(place, path)), None):
            told = f"is {place!r}, which the source {reader!r} reads: give another folder"
            found.append((key, told))
        elif key == "run.checkpoint" and any(lies_in(path, place) for path in sinks.values()):
            found.append((key, f"is {place!r}, where the results go: give a folder of its own"))
    if len(sinks) == 2 and (lies_in(sinks["late"], sinks["sink"]) or lies_in(sinks["sink"], sinks["late"])):
        found.append(("late.path", f"is {sinks['late']!r}, where the results go: give a folder of its own"))
    return found + late_mistakes(tables) + (log_mistakes(run.log) if run else [])


def late_mistakes(tables: Mapping[str, Any]) -> list[Mistake]:
    """Refuse `[late]` beside a sink that cannot share a query, or in the same table of a database."""
    sink, late = tables["sink"], tables["late"]
    if isinstance(sink, JdbcSink) and isinstance(late, JdbcSink) and sink.place == late.place:
        return [("late.table", f"is {late.table!r}, where the results go: give another table")]
    if late is None or sink is None or sink.kind != "memory":
        return []
    allowed = ", ".join(LATE_SINK_KINDS)
    return [("late", f"is given, but a memory sink writes no late rows; allowed beside it: {allowed}")]


def log_mistakes(log: str) -> list[Mistake]:
    """Why Spark's log could not be written; this process opens it before Spark starts."""
    folder = os.path.dirname(log)
    if is_remote(log):
        return [("run.log", f"is {log!r}; allowed: a file on this machine")]
    if os.path.isdir(log):
        return [("run.log", f"is {log!r}, which is a folder: give a file")]
    if obstacle := in_the_way(folder):
        return [("run.log", f"is {log!r}, in {folder!r}, {obstacle}: give another file")]
    return []
