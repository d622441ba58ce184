"""The base of all sources of a job file: reads a streaming DataFrame and applies `select` to it.

Loading is lazy: Spark opens connections and lists files when the query starts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F

from streamjoin.spark.job.records import CORRUPT, ORIGIN, dropped, mistakes_of_records, reported
from streamjoin.spark.job.tables import Expressions, Table
from streamjoin.spark.window_join import quoted


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
