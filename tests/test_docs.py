"""Pages refer to what exists: links lead to files and headings, and the glossary to where its words are used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob(".github/*.md"), *ROOT.glob("docs/**/*.md")])


def anchors(page: Path) -> set[str]:
    """The names by which GitHub links to a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        target = page.parent / path if path else page
        assert target.exists(), f"{path} is not there"
        target = (
            target / "README.md" if target.is_dir() and anchor else target
        )  # which GitHub shows with a folder
        assert not anchor or anchor in anchors(target), f"{target.name} has no heading #{anchor}"


def entries() -> list[tuple[str, str]]:
    """The words of the glossary and their files."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^\| ([\w -]+) \| .* \| \[.*\]\(\.\./(src/.*)\) \|$", text, re.MULTILINE)


def test_a_word_of_the_glossary_stands_there_once_and_in_the_file_it_names() -> None:
    words = [word for word, _ in entries()]
    assert len(words) > 50 and len(set(words)) == len(words)
    for word, path in entries():
        used = f"{path} {(ROOT / path).read_text()}".lower()
        assert all(part in used for part in re.split(r"[ -]", word.lower())), f"{word} is not in {path}"
