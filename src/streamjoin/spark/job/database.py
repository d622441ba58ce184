"""Write a micro-batch into a table of a database, so that the table holds each row once.

The rows go to a table beside the target first, from all tasks at once. Then one transaction on the driver moves them
into the target and notes the query and the micro-batch in the table `streamjoin_batches`. A micro-batch that the note
has already is not written again. So what a failed attempt left beside the target is never seen, and neither is half a
micro-batch.

Rows beside the target carry the attempt that wrote them, and the transaction counts what it moves: a driver that was
thought dead and still writes there cannot add rows or take any away without the micro-batch failing.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamjoin.semantics.errors import StreamJoinError

NOTES = "streamjoin_batches"  # the table with the last micro-batch of every query
CREATE_NOTES = (
    f"CREATE TABLE {NOTES} (query VARCHAR(64) NOT NULL, target VARCHAR(255) NOT NULL, batch BIGINT NOT NULL, "
    "PRIMARY KEY (query, target))"
)
MINE = "query = ? AND target = ?"  # the note of a query and a table
ATTEMPT = "streamjoin_attempt"  # the column of rows beside the target that says which attempt wrote them
# The driver of a database, by the kind of its URL: Java finds one by itself only where it was there when Java started.
JDBC_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
}
# Spark's local property with the id of a query, which its checkpoint keeps.
QUERY_ID = "sql.streaming.queryId"


class DatabaseError(StreamJoinError, RuntimeError):
    """A micro-batch that a database did not take as it was given."""


@dataclass(frozen=True)
class Target:
    """A table of a database. `key`: columns whose values identify a row: a row replaces the one with the same values.
    Without them rows are added."""

    url: str
    table: str
    key: Sequence[str]
    options: Mapping[str, str]

    @property
    def settings(self) -> dict[str, str]:
        """The options of Spark's JDBC source, with the database and its driver."""
        known = JDBC_DRIVERS.get(self.url.split(":")[1])
        return {**({"driver": known} if known else {}), **self.options, "url": self.url}

    def write(self, rows: DataFrame, batch: int) -> bool:
        """Write the rows of a micro-batch; return whether they were written now, and not before."""
        database = _Database(self, rows)
        if not database.query:
            raise DatabaseError(
                "rows are written to a database by a query alone, which numbers its micro-batches"
            )
        attempt = uuid.uuid4().hex
        rows.persist()  # computing them twice would update the state of the join twice
        try:
            count = rows.count()  # also when the database has them: it updates the state
            with database.connection() as connection:
                if database.has(connection, batch):
                    return False
            beside = database.fill(rows, attempt)
            with database.connection() as connection:
                return database.move(connection, beside, attempt, batch, count)
        finally:
            rows.unpersist()


class _Database:
    """The database of a target, as Spark's JDBC source reaches it."""

    def __init__(self, target: Target, rows: DataFrame):
        self.target, self.columns = target, rows.columns
        session: Any = rows.sparkSession
        self._jvm = session._jvm
        self.query = session.sparkContext.getLocalProperty(QUERY_ID) or ""
        dialects = self._jvm.org.apache.spark.sql.jdbc.JdbcDialects
        self.dialect = dialects.get(target.url)

    def fill(self, rows: DataFrame, attempt: str) -> str:
        """Create the target if it is missing, and write the rows beside it. Returns the name of that table."""
        beside = f"{self.target.table}_{zlib.crc32(self.query.encode()):08x}"
        self._save(rows.limit(0), self.target.table, "append")
        self._save(rows.withColumn(ATTEMPT, F.lit(attempt)), beside, "overwrite")
        return beside

    def _save(self, rows: DataFrame, table: str, mode: str) -> None:
        writer = rows.write.format("jdbc").options(**self.target.settings)
        writer.option("dbtable", table).mode(mode).save()

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection whose changes are committed together, or not at all."""
        options, utils = (
            self._options(NOTES),
            self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils,
        )
        connection = self.dialect.createConnectionFactory(options).apply(-1)
        try:
            # Before the transaction: looking for a table that is missing would abort it.
            if not utils.tableExists(connection, options):
                run(connection, CREATE_NOTES)
            connection.setAutoCommit(False)
            yield connection
            connection.commit()
        except BaseException:
            if not connection.getAutoCommit():
                connection.rollback()
            raise
        finally:
            connection.close()

    def _options(self, table: str) -> Any:
        jvm = self._jvm
        given = {**self.target.settings, "dbtable": table}
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite
        return options(jvm.PythonUtils.toScalaMap(given))

    def move(self, connection: Any, beside: str, attempt: str, batch: int, count: int) -> bool:
        """Move the rows of an attempt into the target, unless the micro-batch is there already."""
        if not self._note(connection, batch):
            return False
        moved = run(connection, self.moving(beside), attempt)
        if moved != count:
            raise DatabaseError(
                f"{moved} of {count} rows of micro-batch {batch} came into {self.target.table}: another process "
                f"writes to {beside}, or two rows have one key; nothing was changed"
            )
        run(connection, f"DROP TABLE {beside}")
        return True

    def has(self, connection: Any, batch: int) -> bool:
        """Whether the note has this micro-batch, or a later one."""
        known = f"SELECT batch FROM {NOTES} WHERE {MINE} AND batch >= ?"
        return rows_found(connection, known, self.query, self.target.table, batch) > 0

    def _note(self, connection: Any, batch: int) -> bool:
        """Note the micro-batch; False if it was noted before. Holds a lock on the note until the transaction ends."""
        mine = self.query, self.target.table
        if run(connection, f"UPDATE {NOTES} SET batch = ? WHERE {MINE} AND batch < ?", batch, *mine, batch):
            return True
        if self.has(connection, 0):
            return False
        run(connection, f"INSERT INTO {NOTES} (query, target, batch) VALUES (?, ?, ?)", *mine, batch)
        return True

    def moving(self, beside: str) -> str:
        """The statement that moves rows from the table beside the target."""
        table, quote = self.target.table, self.dialect.quoteIdentifier
        names = [quote(name) for name in self.columns]
        listed, mine = ", ".join(names), f"{quote(ATTEMPT)} = ?"
        if not self.target.key:
            return f"INSERT INTO {table} ({listed}) SELECT {listed} FROM {beside} WHERE {mine}"
        same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in self.target.key)
        others = [quote(name) for name in self.columns if name not in self.target.key]
        changed = ", ".join(f"{name} = s.{name}" for name in others)
        update = f"WHEN MATCHED THEN UPDATE SET {changed} " if changed else ""
        values = ", ".join(f"s.{name}" for name in names)
        return (
            f"MERGE INTO {table} t USING (SELECT {listed} FROM {beside} WHERE {mine}) s ON {same} {update}"
            f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
        )


def run(connection: Any, statement: str, *values: str | int) -> int:
    """Execute a statement with these values; return how many rows it changed."""
    prepared = _prepared(connection, statement, values)
    try:
        return int(prepared.executeUpdate())
    finally:
        prepared.close()


def rows_found(connection: Any, query: str, *values: str | int) -> int:
    """How many rows a query has."""
    prepared = _prepared(connection, query, values)
    try:
        rows, found = prepared.executeQuery(), 0
        while rows.next():
            found += 1
        return found
    finally:
        prepared.close()


def _prepared(connection: Any, statement: str, values: Sequence[str | int]) -> Any:
    prepared = cast(Any, connection.prepareStatement(statement))
    for place, value in enumerate(values, 1):
        if isinstance(value, str):
            prepared.setString(place, value)
        else:
            prepared.setLong(place, value)
    return prepared
