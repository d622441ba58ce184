"""The README's Spark example runs as it stands, on two small tables."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


def test_the_example_joins_orders_with_the_quotes_they_lie_in(spark: SparkSession) -> None:
    blocks = re.findall(r"^```py\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, "one block for Spark; the others are ```python and run in tests/test_readme.py"
    noon = datetime(2026, 1, 1, 12)
    names: dict[str, Any] = {
        "orders": spark.createDataFrame(
            [(noon, "A", 10.5), (noon, "B", 10.5)], "ts timestamp, symbol string, price double"
        ),
        "quotes": spark.createDataFrame(
            [(noon, "A", 10.0, 11.0), (noon, "A", 11.0, 12.0)],
            "ts timestamp, symbol string, bid double, ask double",
        ),
    }
    exec(compile(blocks[0], "README.md", "exec"), names)
    assert [(row.symbol, row.price, row.bid) for row in names["matches"].collect()] == [("A", 10.5, 10.0)]
