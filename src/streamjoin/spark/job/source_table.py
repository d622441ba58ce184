"""The base of all sources of a job file: reads a streaming DataFrame and applies `select` to it.

Loading is lazy: Spark opens connections and lists files when the query starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, cast

from pydantic import Field, ValidationInfo, WithJsonSchema, field_validator
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.paths import SCHEMA
from streamjoin.spark.job.records import CORRUPT, ORIGIN, dropped, mistakes_of_records, reported
from streamjoin.spark.job.tables import (
    LEFT_OPEN,
    Expressions,
    Table,
    TableContext,
    check_lines,
    wrong_kind,
)
from streamjoin.spark.join.task import OnMalformed
from streamjoin.spark.window_join import quoted

RecordFormat = Literal["json", "csv", "text"]
TEXT_COLUMNS = parse_ddl("value STRING")  # the one column of lines of text
# The type that a `schema` becomes.
SchemaColumns = Annotated[types.StructType, WithJsonSchema({"type": "string"})]


def schema_text(value: object, info: ValidationInfo) -> str | None:
    """The source's own schema, or that of its side."""
    if value is None:
        return cast(TableContext, info.context).side_schema if info.context else None
    if not isinstance(value, str):
        raise wrong_kind()
    return check_lines(value)


class SourceTable(Table):
    """A stream, and the columns to take from it.

    `origin` is a SQL expression that describes where a row comes from. `hidden` is a column that only `select` can
    use. Each kind has `place` (where the source is, for messages), `columns` (before `select`) and `read_rows`.
    """

    origin: ClassVar[str] = "'the stream'"
    hidden: ClassVar[str | None] = None

    select: Expressions = ()
    """Spark SQL expressions, such as 'price * 100 AS cents'; without them, all columns are taken."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...
        @property
        def place(self) -> str: ...
        @property
        def columns(self) -> types.StructType: ...

    def read_rows(self, spark: SparkSession) -> DataFrame:
        """The stream before `select`, not started. CORRUPT has the text of a record that cannot be parsed."""
        raise NotImplementedError

    @property
    def drops_malformed(self) -> bool:
        """Whether records that cannot be joined are dropped instead of stopping the query."""
        return getattr(self, "malformed", "fail") == "drop"

    @property
    def selected_columns(self) -> types.StructType | None:
        """The columns after `select`; None if only Spark knows them."""
        return None if self.select else self.columns

    def load(self, spark: SparkSession, key: str, time: str) -> DataFrame:
        """The rows after `select`. If the source drops malformed rows, rows without a `time` are still among them, and
        the join drops them. `key` is the source's key in the file."""
        rows = self.read_rows(spark)
        mistakes = mistakes_of_records(rows, self.columns)
        if self.drops_malformed:
            return self._selected(dropped(rows, mistakes, key).drop(CORRUPT))
        rows = reported(rows, mistakes, key, F.expr(self.origin)).drop(CORRUPT)
        rows = self._selected(rows, f"{self.origin} AS {quoted(ORIGIN)}")
        missing = f"a row without a time ({time} is NULL)"
        timeless = {missing: F.col(quoted(time)).isNull()} if time in rows.columns else {}
        return reported(rows, timeless, key, F.col(quoted(ORIGIN))).drop(ORIGIN)

    def _selected(self, rows: DataFrame, *more: str) -> DataFrame:
        """Apply `select`, and add the expressions `more`."""
        if self.select:
            return rows.selectExpr(*self.select, *more)
        rows = rows.selectExpr("*", *more) if more else rows
        return rows if self.hidden is None else rows.drop(self.hidden)


class RecordSource(SourceTable):
    """A source of texts that are parsed into records."""

    format: RecordFormat = "json"
    """The format of the records; text has the one column value."""
    columns: SchemaColumns = Field(LEFT_OPEN, alias="schema")
    """The columns as Spark writes them, such as 'ts TIMESTAMP, x INT'.

    Wins over the schema of the side."""
    malformed: OnMalformed = "fail"
    """What happens to a record that cannot be joined: it stops the query (fail), or is left out and counted (drop)."""

    @field_validator("columns", mode="plain")
    @classmethod
    def _read_columns(cls, value: object, info: ValidationInfo) -> types.StructType:
        return record_columns(schema_text(value, info), info.data.get("format"))


def record_columns(text: str | None, form: str | None) -> types.StructType:
    """The columns of records of this format, of which `text` is the schema."""
    if form == "text":
        return TEXT_COLUMNS
    if text is not None:
        return parse_ddl(text)
    if form is None:  # report one mistake, not two
        return types.StructType()
    raise no_schema(form)


def no_schema(form: str) -> SpecError:
    return SpecError(f"is missing, and {form} data does not contain it: give {SCHEMA}")
