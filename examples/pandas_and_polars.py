"""Clicks from pandas, impressions from polars, joined as Arrow data; the result goes to either library."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa

import streamjoin as sj

CLICKS = pa.schema({"ts": pa.timestamp("ns"), "user": pa.int64()})
IMPRESSIONS = pa.schema({"ts": pa.timestamp("us"), "user": pa.int64(), "ad": pa.large_string()})


def main() -> None:
    clicks = pd.DataFrame(
        {"ts": pd.to_datetime(["2024-05-06 12:00:05", "2024-05-06 12:11:00"]), "user": [1, 2]}
    ).astype({"ts": "datetime64[ns]"})
    impressions = pl.DataFrame(
        {"ts": ["2024-05-06 12:00:00", "2024-05-06 12:00:30"], "user": [1, 2], "ad": ["shoes", "tea"]}
    ).with_columns(pl.col("ts").str.to_datetime(time_unit="us"))

    spec = sj.JoinSpec(
        left=IMPRESSIONS,
        right=CLICKS,
        on="left.user = right.user",
        # A click matches an impression of the ten minutes before it.
        window=sj.TimeWindow(left="10 minutes", right=0),
        left_time="ts",
        right_time="ts",
    )
    with sj.open_join(spec) as join:
        join.push("left", impressions.to_arrow().cast(IMPRESSIONS))
        join.push("right", pa.Table.from_pandas(clicks, schema=CLICKS, preserve_index=False))
        result = join.finish()

    print(result.to_pandas())
    print(pl.from_arrow(result))
    assert result["ad"].to_pylist() == ["shoes"], "user 2 clicked ten and a half minutes later"


if __name__ == "__main__":
    main()
