"""The Spark examples of the pages run as they stand; test_plain_session.py runs that of the README."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.test_readme import run_page

ROOT = Path(__file__).parents[2]
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
