"""An as-of join on Spark: every trade with the last quote of its symbol. First over two tables, then over two streams.

A trade gets the quote that held when it was made, at most ten seconds old, and comes out once: when the watermark says
that no earlier quote can still come. It needs `pip install 'streamjoin[spark]'` and Java 17 or newer. Run it with
`python`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

import streamjoin as sj
from streamjoin.spark import window_join

SETTINGS = {
    # State lives in RocksDB: no other state store of Spark supports stateful operators in Python.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Each partition costs a commit in every micro-batch; two workers need two of them, not Spark's 200.
    "spark.sql.shuffle.partitions": "2",
}
TRADES, QUOTES = (
    "ts TIMESTAMP, symbol STRING, paid INT",
    "ts TIMESTAMP, symbol STRING, number BIGINT, ask INT",
)
OPENING = datetime(2026, 5, 6, 9, 30)
Rows = list[tuple[object, ...]]


def after(seconds: float) -> datetime:
    return OPENING + timedelta(seconds=seconds)


# Two deliveries of either side. Quotes come late and out of order; two of ACME have one time, and are numbered.
TRADE_ROWS: list[Rows] = [
    [(after(2), "ACME", 101), (after(5), "INIT", 55), (after(6), "ACME", 103)],
    [(after(30), "ACME", 99), (after(300), "ACME", 90)],
]
QUOTE_ROWS: list[Rows] = [
    [(after(4), "ACME", 3, 103), (after(1), "ACME", 1, 100)],
    [(after(1), "ACME", 2, 101), (after(5), "INIT", 4, 54), (after(301), "ACME", 5, 91)],
]


def with_quotes(trades: DataFrame, quotes: DataFrame) -> DataFrame:
    """The same call for tables and for streams."""
    return window_join(
        trades,
        quotes,
        on="left.symbol = right.symbol",
        window=sj.TimeWindow(left=0, right="10 seconds"),
        left_time="ts",
        right_time="ts",
        how="left",  # a trade without a quote comes out, too
        keep=sj.AsOf("backward"),
        right_tie="number",
        lateness="20 seconds",  # how long a stream waits for delayed rows; tables need none
    )


def from_tables(spark: SparkSession) -> DataFrame:
    trades = spark.createDataFrame([row for rows in TRADE_ROWS for row in rows], TRADES)
    quotes = spark.createDataFrame([row for rows in QUOTE_ROWS for row in rows], QUOTES)
    return with_quotes(trades, quotes)


def from_streams(spark: SparkSession, folder: str) -> DataFrame:
    """Join the files of two folders, a micro-batch each, into files of a third."""
    for side, schema, deliveries in (("trades", TRADES, TRADE_ROWS), ("quotes", QUOTES, QUOTE_ROWS)):
        for rows in deliveries:
            spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(f"{folder}/{side}")
    trades, quotes = (
        spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(f"{folder}/{side}")
        for side, schema in (("trades", TRADES), ("quotes", QUOTES))
    )
    query = (
        with_quotes(trades, quotes)
        .writeStream.format("parquet")
        .option("path", f"{folder}/quoted")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # process the files that exist, then stop
        .start()
    )
    query.awaitTermination()
    return spark.read.parquet(f"{folder}/quoted")


def run(spark: SparkSession) -> None:
    columns = ["ts", "symbol", "paid", "ask", "ts_right"]
    print("two tables:")
    tables = from_tables(spark).select(*columns).orderBy("ts").cache()
    tables.show(truncate=False)
    with tempfile.TemporaryDirectory() as folder:
        print("two streams:")
        streams = from_streams(spark, folder).select(*columns).orderBy("ts").cache()
        streams.show(truncate=False)
        # The last trade is not final: a quote from before it may still come.
        assert streams.collect() == tables.collect()[:-1], "a stream and a backfill give the same rows"
    found = [(row.symbol, row.paid, row.ask) for row in tables.collect()]
    assert found == [
        ("ACME", 101, 101),
        ("INIT", 55, 54),
        ("ACME", 103, 103),
        ("ACME", 99, None),
        ("ACME", 90, None),
    ]


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers need the packages installed here
    builder = SparkSession.builder.master("local[2]").appName("trades and quotes")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    run(spark)
    spark.stop()


if __name__ == "__main__":
    main()
