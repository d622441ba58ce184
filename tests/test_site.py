"""The site of docs/ builds without a warning, has every page and public name, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamjoin as sj
import streamjoin.spark

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text()
# What a browser fetches by itself: scripts, style sheets, pictures, fonts and frames. Only readers follow links.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "scripts" / "site.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", CONFIG, re.MULTILINE)
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert sorted(listed) == sorted({*listed}) and {*listed} == pages | {"CHANGELOG.md"}


@pytest.mark.parametrize(("module", "page"), [(sj, "api"), (streamjoin.spark, "spark-api")])
def test_the_reference_has_every_public_name(module: Any, page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text()
    named = re.findall(rf"^::: {module.__name__}\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(module.__all__)


def test_the_site_shows_docstrings_and_their_examples(site: Path) -> None:
    text = (site / "reference" / "api.html").read_text()
    for name in sj.__all__:
        assert f'id="streamjoin.{name}"' in text, f"{name} has no entry: does it have a docstring?"
    assert "&gt;&gt;&gt; " in re.sub(r"<span[^>]*>", "", text)
    assert "<blockquote>" not in text, "an example is taken for a quotation"


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page.name for page in pages if FETCHED.search(page.read_text())] == []
    assert [
        css
        for css in site.rglob("*.css")
        if re.search(r"(url\(|@import )[\"']?(https?:)?//", css.read_text())
    ] == []


def test_every_image_of_a_page_is_in_the_site(site: Path) -> None:
    shown = [
        (page.parent / source).resolve()
        for page in site.rglob("*.html")
        for source in re.findall(r'<img[^>]+src="([^"]+)"', page.read_text())
        if not source.startswith(("data:", "/"))
    ]
    assert len(shown) > 30
    assert [path for path in shown if not path.is_file()] == []


def test_links_to_files_of_the_repository_lead_to_their_listings(site: Path) -> None:
    assert "class JoinSpec" in re.sub(
        r"<[^>]*>", "", (site / "source/src/streamjoin/semantics/spec.py.html").read_text()
    )
