"""Trades against quotes: which quotes of the five seconds before a trade include its price?

A band join: the price has no equality, so a database's hash join cannot answer it.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa

import streamjoin as sj

TRADES = pa.schema({"ts": pa.timestamp("ms"), "symbol": pa.string(), "price": pa.decimal128(12, 2)})
QUOTES = pa.schema(
    {
        "ts": pa.timestamp("ms"),
        "symbol": pa.string(),
        "bid": pa.decimal128(12, 2),
        "ask": pa.decimal128(12, 2),
    }
)


def main() -> None:
    spec = sj.JoinSpec(
        left=TRADES,
        right=QUOTES,
        on="left.symbol = right.symbol AND left.price BETWEEN right.bid AND right.ask",
        # A quote waits five seconds for trades; a trade waits for no quote.
        window=sj.TimeWindow(left=0, right="5 seconds"),
        left_time="ts",
        right_time="ts",
    )
    print(sj.explain(spec))

    opening = datetime.datetime(2024, 5, 6, 9, 30)

    def at(seconds: float) -> datetime.datetime:
        return opening + datetime.timedelta(seconds=seconds)

    quotes = [
        (at(0), "ACME", "10.00", "10.04"),
        (at(1), "INIT", "99.50", "99.90"),
        (at(3), "ACME", "10.02", "10.06"),
    ]
    trades = [(at(2), "ACME", "10.01"), (at(4), "ACME", "10.03"), (at(7), "INIT", "99.60")]

    with sj.open_join(spec, order="timestamp") as join:
        join.push("right", batch(QUOTES, quotes))
        join.push("left", batch(TRADES, trades))
        result = join.finish()

    for row in result.to_pylist():
        print(
            f"{row['ts']:%H:%M:%S} {row['symbol']} at {row['price']} is within {row['bid']} .. {row['ask']}"
        )
    prices = [(str(row["price"]), str(row["bid"])) for row in result.to_pylist()]
    # The INIT trade comes six seconds after its quote: too late.
    assert prices == [("10.01", "10.00"), ("10.03", "10.00"), ("10.03", "10.02")], prices


def batch(schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Rows as Arrow data; prices are written as text and cast, so that they stay exact."""
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [
            pa.array(values).cast(field.type)
            if pa.types.is_decimal(field.type)
            else pa.array(values, field.type)
            for field, values in zip(schema, columns, strict=True)
        ],
        schema=schema,
    )


if __name__ == "__main__":
    main()
