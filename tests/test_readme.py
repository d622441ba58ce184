"""The Python code of the README and of the pages runs unchanged, block after block, as a reader would type it.
Pages for Spark run in tests/spark/test_readme.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import plot

ROOT = Path(__file__).parents[1]


def python_blocks(text: str) -> list[tuple[int, str, str | None]]:
    """The ```python blocks of a Markdown text: the line each starts on, its code, and what it prints where a ```text
    block follows that shows it."""
    found = re.finditer(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1], match[2]) for match in found]


def pages_with_code() -> list[str]:
    """The README and the pages for users that show Python, without those that need Spark."""
    pages = [ROOT / "docs" / "index.md", ROOT / "docs" / "guide.md"]
    pages += sorted([*ROOT.glob("docs/start/*.md"), *ROOT.glob("docs/how-to/*.md")])
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages}
    return [
        "README.md",
        *(page for page, text in texts.items() if "```python" in text and "pyspark" not in text),
    ]


def run_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = python_blocks((ROOT / page).read_text())
    assert blocks, f"{page} shows no Python"
    names: dict[str, object] = {}
    for line, source, printed in blocks:
        # Empty lines in front keep the page's line numbers in a traceback.
        exec(compile("\n" * (line - 1) + source, page, "exec"), names)
        output = capsys.readouterr().out
        assert printed is None or output == printed, f"{page}, line {line}"


@pytest.mark.parametrize("page", pages_with_code())
def test_code_of_a_page_runs_and_prints_what_the_page_shows(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, capsys)


def test_the_readme_shows_joined_rows() -> None:
    assert any(printed for _, _, printed in python_blocks((ROOT / "README.md").read_text()))


def test_links_of_the_readme_exist() -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", (ROOT / "README.md").read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


@pytest.mark.parametrize("page", plot.PAGES)
def test_measured_numbers_are_those_of_the_stored_results(page: str) -> None:
    assert (ROOT / page).read_text() == plot.with_measured(page), "run `make plots`"
