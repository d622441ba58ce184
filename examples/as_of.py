"""Trades with the last quote before them: a streaming as-of join, where each row that comes out is final.

A trade gets the latest quote of its symbol that is not after it and at most ten seconds old, or none. It leaves as soon
as the quotes have passed its time.
"""

from __future__ import annotations

import pyarrow as pa

import streamjoin as sj

TRADES = pa.schema({"ts": pa.timestamp("ms"), "symbol": pa.string(), "price": pa.float64()})
QUOTES = pa.schema({"ts": pa.timestamp("ms"), "symbol": pa.string(), "bid": pa.float64()})


def main() -> None:
    spec = sj.JoinSpec(
        left=TRADES,
        right=QUOTES,
        on="left.symbol = right.symbol",
        window=sj.TimeWindow(left=0, right="10 seconds"),  # a quote serves trades for ten seconds
        left_time="ts",
        right_time="ts",
        how="left",
        keep=sj.AsOf("backward"),
    )
    with sj.open_join(spec) as join:
        join.push("right", batch(QUOTES, (1000, "ACME", 10.00), (2000, "INIT", 99.5), (3000, "ACME", 10.02)))
        join.push("left", batch(TRADES, (2500, "ACME", 10.01), (3500, "ACME", 10.03), (13500, "INIT", 99.6)))
        show("quotes are at 3 s:", join.poll())
        join.push("right", batch(QUOTES, (14000, "ACME", 10.05)))
        show("quotes are at 14 s:", join.poll())
        assert join.finish().num_rows == 0


def batch(schema: pa.Schema, *rows: tuple[int, str, float]) -> pa.RecordBatch:
    """Rows as an Arrow batch; times are milliseconds."""
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=schema)


def show(title: str, batches: list[pa.RecordBatch]) -> None:
    """Print what has come out; a trade without a quote has NULL for it."""
    print(title)
    for row in pa.Table.from_batches(batches).to_pylist():
        quote = "no quote" if row["bid"] is None else f"bid {row['bid']:.2f} of {row['ts_right']:%S.%f}"[:-5]
        print(f"  {row['ts']:%S.%f}"[:-5], f"{row['symbol']} {row['price']:.2f}: {quote}")


if __name__ == "__main__":
    main()
