"""A job: what `streamjoin run` reads from a TOML file, checked before Spark starts, and how it becomes a query.

A file has the tables `[join]`, `[left]` and `[right]` with their `[[left.source]]`, `[sink]`, `[run]` and `[spark]`
(docs/jobs.md is the reference). Relative paths are relative to the file. Every mistake is reported at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatch
from fractions import Fraction
from pathlib import Path, PurePath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streamjoin.plan.options import INDEXES, Auto, IndexName
from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import SpecError, WindowError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.windows import RowWindow, TimeWindow, Window
from streamjoin.spark.job.paths import is_remote, read_path
from streamjoin.spark.job.session import check_master
from streamjoin.spark.job.shown import secrets_in, shown, without_secrets
from streamjoin.spark.job.sides import Side, SideError
from streamjoin.spark.job.sinks import FilesSink, Sink, read_sink
from streamjoin.spark.job.sources import FilesSource
from streamjoin.spark.job.toml import JobError, TomlTable, read_toml
from streamjoin.spark.join.task import HOW, ORDERS, How, JoinTask, StreamOrder
from streamjoin.spark.window_join import (
    CASE,
    PARTITIONING,
    Partitioning,
    arrow_schema,
    check_names,
    make_task,
    spec_of,
    tells_case,
    window_join,
)

TABLES = ("join", *SIDES, "sink", "run", "spark")
OPTIONAL = ("run", "spark")
# Whether a join fits its columns can not be told while one of these is wrong; the others have defaults that fit.
SHAPING = ("join", "join.on", "join.window", "join.lateness", "join.suffix")
# One way to say a thing: these settings of Spark have a key in the file.
ELSEWHERE = {
    "spark.master": "spark.master",
    "spark.app.name": "run.name",
    "spark.jars.packages": "spark.packages",
}
_LATENESS = (
    'how far a row may be behind the newest of its side, such as "10 seconds" or 0; later ones are dropped'
)
TRIGGERS = ("asap", "available-now")
_TRIGGER = 'asap, available-now, or a duration of at least a millisecond, such as "10 seconds"'
MOST_WORKERS = 1 << 16
SOME_WINDOW: Window = TimeWindow("1 s")  # stands in for one that was refused
_WINDOW = (
    'a duration such as "15 minutes", { rows = 1000 }, or one for each side, such as '
    '{ left = "10 minutes", right = 0 }'
)


@dataclass(frozen=True)
class JoinTable:
    """`[join]`: the arguments of `window_join`."""

    on: str
    window: Window | tuple[Window, Window]
    how: How
    lateness: str | int
    workers: int | None
    order: StreamOrder
    partitioning: Partitioning
    index: IndexName | Auto
    suffix: str

    @classmethod
    def read(cls, table: TomlTable) -> JoinTable:
        lateness = table.take("lateness", (str, int), _LATENESS)
        if isinstance(lateness, str) and not table.is_clean("lateness", lateness):
            lateness = 0
        length = (
            duration(table, "lateness", lateness) if isinstance(lateness, str) else Fraction(lateness or 0)
        )
        if length < 0:
            table.complain("lateness", f"is {lateness!r}: it can not be negative")
        return cls(
            table.text("on", "the condition in SQL, such as 'abs(left.x - right.a) <= 10'", lines=True) or "",
            read_window(table),
            table.choice("how", HOW, "inner"),
            lateness,
            table.whole(
                "workers", "how many state partitions the join is spread over", None, most=MOST_WORKERS
            ),
            table.choice("order", ORDERS, "any"),
            table.choice("partitioning", PARTITIONING, "auto"),
            table.choice("index", ("auto", *INDEXES), "auto"),
            table.text("suffix", "what a right column gets whose name is taken", "_right"),
        )


JOIN_KEYS = tuple(each.name for each in fields(JoinTable))


@dataclass(frozen=True)
class RunTable:
    """`[run]`: when micro-batches start, and what survives a restart."""

    name: str
    trigger: str
    checkpoint: str | None
    log: str

    @classmethod
    def read(cls, table: TomlTable, path: Path, sink: Sink) -> RunTable:
        trigger = table.text("trigger", _TRIGGER, "asap")
        if trigger not in TRIGGERS and not lasts(trigger):
            table.complain("trigger", f"is {trigger!r}; allowed: {_TRIGGER}")
        checkpoint = read_path(table, "checkpoint", "a folder for the query's state", path.parent, None)
        if checkpoint is None and "checkpoint" not in table.values and sink.checkpoint == "needed":
            table.complain(
                "checkpoint",
                f"is missing, and a {sink.kind} sink needs one: give a folder for the query's state",
            )
        if checkpoint is not None and sink.checkpoint == "impossible":
            table.complain(
                "checkpoint", f"is given, but a {sink.kind} sink can not go on from one: leave it out"
            )
        return cls(
            table.text("name", "a name for the query", path.stem),
            trigger,
            checkpoint,
            read_path(table, "log", "a file for Spark's log", path.parent, f"{path.stem}.spark.log") or "",
        )


@dataclass(frozen=True)
class SparkTable:
    """`[spark]`: where it runs. `packages` are fetched by Spark; `settings` win over ours."""

    master: str | None
    packages: tuple[str, ...]
    settings: dict[str, str]

    @classmethod
    def read(cls, table: TomlTable) -> SparkTable:
        packages = table.texts("packages", "Maven coordinates, such as 'group:artifact:1.0'", ())
        for package in packages:
            if package.count(":") != 2:
                table.complain("packages", f"has {package!r}; allowed: group:artifact:version")
        settings = table.settings("settings", '"spark.executor.memory" = "8g"')
        for name in settings:
            if not name.startswith("spark."):
                table.complain(f"settings.{name}", "is no setting of Spark: their names begin with 'spark.'")
            elif name in ELSEWHERE:
                table.complain(f"settings.{name}", f"has a key of its own: use {ELSEWHERE[name]}")
        master = table.text("master", "a Spark master, such as 'local[4]' or 'spark://host:7077'", None)
        if master is not None:
            table.checked("master", lambda: check_master(master), None)
        return cls(master, packages, settings)


@dataclass(frozen=True)
class Job:
    """A job file, read and checked."""

    path: Path
    join: JoinTable
    left: Side
    right: Side
    sink: Sink
    run: RunTable
    spark: SparkTable

    @classmethod
    def read(cls, path: Path) -> Job:
        """The job in a file; `JobError` tells everything that is wrong with it."""
        problems: list[tuple[str, str]] = []
        top = TomlTable(read_toml(path), "", problems)
        folder = path.resolve().parent
        sections = {name: top.table(name, f"a table [{name}]", name in OPTIONAL) for name in TABLES}
        join = JoinTable.read(sections["join"])
        left, right = (Side.read(sections[side], folder, side) for side in SIDES)
        sink = read_sink(sections["sink"], folder)
        run = RunTable.read(sections["run"], folder / path.name, sink)
        job = cls(path, join, left, right, sink, run, SparkTable.read(sections["spark"]))
        for table in (*sections.values(), top):
            table.close()
        if not any(key.split(".")[0] in SIDES or key in SHAPING for key, _ in problems):
            job.check_task(sections["join"], sections["sink"])
        job.check_places(sections["sink"], sections["run"])
        if problems:
            raise JobError(str(path), problems)
        return job

    def without_secrets(self, text: str) -> str:
        """A text of Spark's without the secrets in this file's options and settings."""
        sources = [each.source for side in SIDES for each in getattr(self, side).inputs]
        options = [getattr(part, "options", {}) for part in (*sources, self.sink)]
        return without_secrets(text, secrets_in([*options, self.spark.settings]))

    @property
    def spec(self) -> JoinSpec | None:
        """The join as the embedded engine would take it; None if only Spark can tell the columns."""
        left, right = self.left.columns, self.right.columns
        if left is None or right is None:
            return None
        return JoinSpec(
            arrow_schema("left", left),
            arrow_schema("right", right),
            self.join.on,
            self.join.window,
            self.left.time,
            self.right.time,
            lateness=self.join.lateness,
            suffix=self.join.suffix,
        )

    def task(self, workers: int) -> JoinTask | None:
        """What each of `workers` would have to do; None if only Spark can tell the columns."""
        join, spec = self.join, self.spec
        if spec is None:
            return None
        return make_task(spec, join.how, join.order, join.index, join.partitioning, join.workers or workers)

    def check_task(self, table: TomlTable, sink: TomlTable) -> None:
        """Complain about a predicate, window, index, suffix or sink that does not fit the columns."""
        try:
            task = self.task(workers=1)
            if task is not None:
                check_names(task, tells_case(self.spark.settings.get(CASE, "false")))
                self.sink.check(task.schema, sink)
        except SpecError as error:
            table.complain(*mistake(error))

    def check_places(self, sink: TomlTable, run: TomlTable) -> None:
        """Complain if the query would write where a file is, where a source reads, or two things into one folder."""
        results = self.sink.path if isinstance(self.sink, FilesSink) else ""
        sources = [each.source for side in SIDES for each in getattr(self, side).inputs]
        read = [source.path for source in sources if isinstance(source, FilesSource) and source.path]
        for key, table, place in (("checkpoint", run, self.run.checkpoint), ("path", sink, results)):
            if not place:
                continue
            if obstacle := in_the_way(place):
                table.complain(key, f"is {place!r}, {obstacle}: give a folder")
            elif reader := next((path for path in read if lies_in(place, path)), None):
                told = f"is {place!r}, which is read by the source {reader!r}: give another folder"
                table.complain(key, told)
            elif key == "checkpoint" and results and lies_in(results, place):
                table.complain(key, f"is {place!r}, where the results go: give a folder of its own")
        self.check_log(run)

    def check_log(self, run: TomlTable) -> None:
        """Complain if Spark's log could not be written: this process opens it, before there is a Spark."""
        log = self.run.log
        if is_remote(log):
            run.complain("log", f"is {log!r}; allowed: a file of this machine")
        elif os.path.isdir(log):
            run.complain("log", f"is {log!r}, which is a folder: give a file")
        elif obstacle := in_the_way(os.path.dirname(log)):
            run.complain("log", f"is {log!r}, in {os.path.dirname(log)!r}, {obstacle}: give another")

    def loaded(self, side: str, spark: SparkSession) -> DataFrame:
        """A side's stream; what only Spark could find wrong with it is told like the rest of the file's mistakes."""
        try:
            frame: DataFrame = getattr(self, side).load(spark, side, self.join.lateness)
            return frame
        except SideError as error:
            raise JobError(str(self.path), [(f"{side}.{error.key}", str(error))]) from None
        except WindowError as error:  # several sources are given watermarks, with this lateness
            raise self.refused(error) from None

    def settled(self, spark: SparkSession) -> Job:
        """The same job, with workers and partitioning as this Spark and the predicate have them where the file leaves
        them open."""
        join, left, right = self.join, self.loaded("left", spark), self.loaded("right", spark)
        workers = join.workers or spark.sparkContext.defaultParallelism
        try:
            spec = spec_of(left, right, join.on, join.window, self.left.time, self.right.time, join.suffix)
            task = make_task(spec, join.how, join.order, join.index, join.partitioning, workers)
            check_names(task, tells_case(spark.conf.get(CASE)))
        except SpecError as error:
            raise self.refused(error) from None
        kind = task.routing.kind if task.routing.kind in PARTITIONING else join.partitioning
        return replace(self, join=replace(join, workers=workers, partitioning=kind))

    def results(self, spark: SparkSession) -> DataFrame:
        """The joined stream, not started; what does not fit the columns is told as if the file had shown them."""
        join, left, right = self.join, self.loaded("left", spark), self.loaded("right", spark)
        try:
            return window_join(
                left,
                right,
                join.on,
                window=join.window,
                left_time=self.left.time,
                right_time=self.right.time,
                how=join.how,
                lateness=join.lateness,
                workers=join.workers,
                order=join.order,
                partitioning=join.partitioning,
                index=join.index,
                suffix=join.suffix,
                malformed="drop" if "drop" in (self.left.malformed, self.right.malformed) else "fail",
            )
        except SpecError as error:
            raise self.refused(error) from None

    def refused(self, error: SpecError) -> JobError:
        """An error of the join as one of the file."""
        key, told = mistake(error)
        return JobError(str(self.path), [(f"join.{key}" if key else "join", told)])

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Start the query; it goes on from its checkpoint if there is one."""
        writer = self.sink.write(self.results(spark)).outputMode("append")
        if self.sink.kind != "memory":  # whose query is named like its table
            writer = writer.queryName(self.run.name)
        if self.run.checkpoint is not None:
            writer = writer.option("checkpointLocation", self.run.checkpoint)
        if self.run.trigger == "available-now":
            return writer.trigger(availableNow=True).start()
        seconds = 0.0 if self.run.trigger == "asap" else float(nanoseconds(self.run.trigger, "trigger")) / 1e9
        return writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds").start()


def mistake(error: SpecError) -> tuple[str, str]:
    """The key of `[join]` that an error of the join is about, empty if there is no single one, and what is wrong."""
    told = str(error).replace("\n", "\n    ")
    if error.field is None:
        return "", told
    key = error.field.partition(".")[0]
    return (key if key in JOIN_KEYS else ""), told.removeprefix(f"{error.field} ")


def in_the_way(folder: str) -> str | None:
    """Why a local folder can not be there: a file in its place or above it, or no name that the system takes."""
    path = Path(folder)
    if is_remote(folder):
        return None
    try:
        there = next(each for each in (path, *path.parents) if each.exists())
    except OSError as error:
        return f"which can not be made ({error.strerror})"
    if there.is_dir():
        return None
    return "which is a file" if there == path else f"and {str(there)!r} is a file"


def lies_in(place: str, pattern: str) -> bool:
    """Whether a place is a folder that the pattern matches, or lies in one."""
    inner, outer = (PurePath(os.path.normpath(path).removeprefix("file:")).parts for path in (place, pattern))
    return len(inner) >= len(outer) and all(map(fnmatch, inner, outer))


def lasts(text: str) -> bool:
    """Whether this is a duration that Spark can wait for."""
    try:
        return nanoseconds(text, "") >= 10**6
    except WindowError:
        return False


def duration(table: TomlTable, name: str, text: str) -> Fraction:
    """A duration in nanoseconds; one that is none is complained about."""
    return table.checked(name, lambda: nanoseconds(text, ""), Fraction(1))


def read_window(table: TomlTable) -> Window | tuple[Window, Window]:
    """`window = "15 minutes"`, `{ rows = 9 }`, or `{ left = ..., right = ... }` of these."""
    value = table.take("window", (str, int, dict), _WINDOW)
    if isinstance(value, dict) and set(value) == set(SIDES):
        return one_window(table, "window.left", value["left"]), one_window(
            table, "window.right", value["right"]
        )
    return SOME_WINDOW if value is None else one_window(table, "window", value)


def one_window(table: TomlTable, name: str, value: object) -> Window:
    """A window of one kind; what is none is complained about."""

    def make() -> Window:
        if isinstance(value, dict) and set(value) == {"rows"}:
            return RowWindow(value["rows"])
        if isinstance(value, str) and not table.is_clean(name, value):
            return SOME_WINDOW
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return TimeWindow(value)
        raise WindowError(f"is {shown(value)}: give {_WINDOW}", field="window")

    try:
        return make()
    except WindowError as error:
        table.complain(name, mistake(error)[1])
        return SOME_WINDOW
