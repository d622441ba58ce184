"""The Python of the README and the guide runs as it stands: block after block, as a reader would type them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The ```python blocks of a Markdown text with the line each starts on."""
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)) + 1, match[1]) for match in found]


@pytest.mark.parametrize("page", ["README.md", "docs/guide.md"])
def test_code_of_a_page_runs(page: str) -> None:
    blocks = python_blocks((ROOT / page).read_text())
    assert blocks, f"{page} shows no Python"
    names: dict[str, object] = {}
    for line, source in blocks:
        # Empty lines in front keep the page's line numbers in a traceback.
        exec(compile("\n" * (line - 1) + source, page, "exec"), names)


def test_links_of_the_readme_exist() -> None:
    targets = re.findall(r"\]\((?!https?://)([^)#]+)", (ROOT / "README.md").read_text())
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_measured_numbers_are_those_of_the_stored_results() -> None:
    path = ROOT / "benchmarks" / "plot.py"
    spec = importlib.util.spec_from_file_location("plot", path)
    assert spec is not None and spec.loader is not None
    plot = importlib.util.module_from_spec(spec)
    sys.modules["plot"] = plot  # its dataclasses look their module up
    spec.loader.exec_module(plot)
    text = (ROOT / "README.md").read_text()
    assert text == plot.with_measured(text), "run `make plots`"
