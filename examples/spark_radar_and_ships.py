"""A band join on Spark: which radar echo may be which ship? First over two tables, then over two streams of files.

Ships report where they are; the radar sees echoes without names. An echo may be a ship if they lie within 500 m of each
other, east and north, no more than 30 seconds apart. No column is equal to another, so Spark's own stream-stream join
refuses this. Needs `pip install 'streamjoin[spark]'` and Java 17 or newer; run it with `python`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from streamjoin.spark import window_join

SETTINGS = {
    # State lives in RocksDB: no other state store of Spark supports stateful operators in Python.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Each partition costs a commit in every micro-batch; two workers need two of them, not Spark's 200.
    "spark.sql.shuffle.partitions": "2",
}
ECHOES, SHIPS = (
    "at TIMESTAMP, echo INT, east INT, north INT",
    "at TIMESTAMP, ship STRING, east INT, north INT",
)
NOON = datetime(2026, 6, 1, 12)
Rows = list[tuple[object, ...]]


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


# Two deliveries of either side; metres from the harbour.
ECHO_ROWS: list[Rows] = [
    [(after(0), 1, 1200, 400), (after(10), 2, 5000, 5000)],
    [(after(40), 3, 1500, 600), (after(90), 4, 1900, 800)],
]
SHIP_ROWS: list[Rows] = [
    [(after(5), "Aurora", 1250, 380), (after(20), "Borealis", 9000, 200)],
    [(after(45), "Aurora", 1490, 640), (after(48), "Cirrus", 5100, 4900)],
]


def possible_ships(echoes: DataFrame, ships: DataFrame) -> DataFrame:
    """The same call for tables and for streams."""
    return window_join(
        echoes,
        ships,
        on="abs(left.east - right.east) <= 500 AND abs(left.north - right.north) <= 500",
        window="30 seconds",
        left_time="at",
        right_time="at",
        lateness="1 minute",  # how long a stream waits for delayed rows; tables need none
    )


def from_tables(spark: SparkSession) -> DataFrame:
    echoes = spark.createDataFrame([row for rows in ECHO_ROWS for row in rows], ECHOES)
    ships = spark.createDataFrame([row for rows in SHIP_ROWS for row in rows], SHIPS)
    return possible_ships(echoes, ships)


def from_streams(spark: SparkSession, folder: str) -> DataFrame:
    """Join the files of two folders, a micro-batch each, into files of a third."""
    for side, schema, deliveries in (("echoes", ECHOES, ECHO_ROWS), ("ships", SHIPS, SHIP_ROWS)):
        for rows in deliveries:
            spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(f"{folder}/{side}")
    echoes, ships = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{side}")
        for side, schema in (("echoes", ECHOES), ("ships", SHIPS))
    )
    query = (
        possible_ships(echoes, ships)
        .writeStream.format("parquet")
        .option("path", f"{folder}/matches")
        .option(
            "checkpointLocation", f"{folder}/checkpoint"
        )  # windows and positions: a restart resumes from here
        .trigger(availableNow=True)  # process the files that exist, then stop
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{folder}/matches")


def run(spark: SparkSession) -> None:
    print("two tables:")
    tables = from_tables(spark).select("echo", "ship", "at", "at_right").orderBy("echo").cache()
    tables.show(truncate=False)
    with tempfile.TemporaryDirectory() as folder:
        print("two streams:")
        streams = from_streams(spark, folder).select("echo", "ship", "at", "at_right").orderBy("echo").cache()
        streams.show(truncate=False)
        assert streams.collect() == tables.collect(), "a stream and a backfill give the same rows"
    # Echo 2 and the Cirrus are near each other, but 38 seconds apart.
    assert [(row.echo, row.ship) for row in tables.collect()] == [(1, "Aurora"), (3, "Aurora")]


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need the packages installed here
    builder = SparkSession.builder.master("local[2]").appName("radar and ships")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    run(spark)
    spark.stop()


if __name__ == "__main__":
    main()
