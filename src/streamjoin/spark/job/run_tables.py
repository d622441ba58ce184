"""`[run]` and `[spark]`: when micro-batches start, where state is kept, and where the job runs."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from streamjoin.semantics.durations import nanoseconds
from streamjoin.semantics.errors import SpecError, WindowError
from streamjoin.spark.job.masters import check_master
from streamjoin.spark.job.shown import shown
from streamjoin.spark.job.sink_kinds import SINK_KINDS
from streamjoin.spark.job.tables import (
    LEFT_OPEN,
    JobPath,
    OneOrMany,
    Settings,
    Table,
    TableContext,
    Text,
    as_tuple,
    raise_all,
)

# These settings of Spark have their own keys, so that there is only one way to set them.
OWN_KEYS = {
    "spark.master": "spark.master",
    "spark.app.name": "run.name",
    "spark.jars.packages": "spark.packages",
}
TRIGGERS = 'asap, available-now, or a duration of at least a millisecond, such as "10 seconds"'


def _named_like_the_file(value: object, info: ValidationInfo) -> object:
    return cast(TableContext, info.context).name if value is None and info.context else value


def _log_of_the_file(value: object, info: ValidationInfo) -> object:
    return f"{cast(TableContext, info.context).name}.spark.log" if value is None and info.context else value


class RunTable(Table):
    """When micro-batches start, and where state is kept."""

    name: Annotated[Text, BeforeValidator(_named_like_the_file)] = Field(LEFT_OPEN)
    """The name of the query; by default that of the file."""
    trigger: Text = "asap"
    """When micro-batches start: asap, available-now, or an interval such as "10 seconds".

    asap starts one after the other; available-now takes what is there, then ends."""
    checkpoint: JobPath | None = None
    """A folder of its own for the windows and the positions in the sources; the files and kafka sinks need one."""
    log: Annotated[JobPath, BeforeValidator(_log_of_the_file)] = Field(LEFT_OPEN)
    """A file on this machine for Spark's log; by default the job file's name with .spark.log."""

    @field_validator("trigger")
    @classmethod
    def _check_trigger(cls, trigger: str) -> str:
        if trigger not in ("asap", "available-now") and not _can_wait(trigger):
            raise SpecError(f"is {shown(trigger)}; allowed: {TRIGGERS}")
        return trigger

    @field_validator("checkpoint")
    @classmethod
    def _check_checkpoint(cls, checkpoint: str | None, info: ValidationInfo) -> str | None:
        if not info.context:
            return checkpoint
        context = cast(TableContext, info.context)
        needs = {
            SINK_KINDS[kind].checkpoint: kind
            for kind in (context.sink_kind, context.late_kind)
            if isinstance(kind, str) and kind in SINK_KINDS
        }
        if checkpoint is None and "needed" in needs:
            raise SpecError(
                f"is missing, and a {needs['needed']} sink needs one: give a folder for the state of the query"
            )
        if checkpoint is not None and "impossible" in needs and "needed" not in needs:
            raise SpecError(f"is given, but a {needs['impossible']} sink cannot resume from one: remove it")
        return checkpoint


def _can_wait(text: str) -> bool:
    """Whether this is a duration of at least a millisecond, Spark's unit of waiting."""
    try:
        return nanoseconds(text, "") >= 10**6
    except WindowError:
        return False


def _check_master(master: str) -> str:
    check_master(master)
    return master


def _check_package(package: str) -> str:
    if package.count(":") != 2:
        raise SpecError(f"is {shown(package)}; allowed: group:artifact:version")
    return package


class SparkTable(Table):
    """Where the job runs, and settings of Spark."""

    master: Annotated[Text, AfterValidator(_check_master)] | None = None
    """A Spark master, such as 'local[4]' or 'spark://host:7077'; --master wins."""
    packages: Annotated[
        tuple[Annotated[Text, AfterValidator(_check_package)], ...], BeforeValidator(as_tuple), OneOrMany
    ] = ()
    """Maven coordinates of packages that Spark fetches, such as 'group:artifact:1.0'."""
    settings: Settings = {}
    """A table of Spark's settings, such as { "spark.executor.memory" = "8g" }; they win over ours."""

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, settings: dict[str, str]) -> dict[str, str]:
        problems = []
        for name in settings:
            if not name.startswith("spark."):
                problems.append(
                    ((name,), SpecError("is not a setting of Spark: their names begin with 'spark.'"))
                )
            elif name in OWN_KEYS:
                problems.append(((name,), SpecError(f"has a key of its own: use {OWN_KEYS[name]}")))
        raise_all(problems)
        return settings
