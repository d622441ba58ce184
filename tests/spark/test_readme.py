"""The Spark examples of the README and of the pages run as they stand."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.test_readme import run_page

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [
    str(page.relative_to(ROOT))
    for page in sorted([*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/how-to/*.md")])
    if "pyspark" in (text := page.read_text()) and "```python" in text
]


@pytest.mark.parametrize("page", PAGES)
def test_code_of_a_page_about_spark_runs_in_the_session_of_the_tests(
    page: str, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, capsys)


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
