"""Pages refer to what exists: links lead to files and headings, paths and arrows are those of the code, and the
glossary names files that use its words."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from scripts.drawings import all as all_drawings
from scripts.drawings import imports, push
from tests import test_imports

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


def test_the_page_on_job_files_says_that_they_are_code_and_links_the_model_of_trust() -> None:
    paragraphs = (ROOT / "docs" / "jobs.md").read_text().split("\n\n")
    (warning,) = [text for text in paragraphs if "a job file is code" in text.lower()]
    assert "](../SECURITY.md)" in warning and "`select`" in warning
    security = ROOT / "SECURITY.md"
    assert {"report-a-vulnerability", "who-is-trusted-with-what", "a-job-file-is-code"} <= anchors(security)
    reporting = re.search(r"## Report a vulnerability\n(.*?)\n## ", security.read_text(), re.DOTALL)
    assert reporting and "in private" in reporting[1] and "Please do not open a public issue" in reporting[1]


# The architecture's page.

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
TOPS = ("src/streamjoin/", "docs/", "")


def paths_named(text: str) -> list[str]:
    """Files and folders that a page names in code, with a slash or a suffix."""
    words = re.findall(r"`([^`\s]+)`", text)
    return [word for word in words if re.fullmatch(r"[\w./-]+/[\w./-]*|[\w-]+\.(py|md|svg|toml)", word)]


@pytest.mark.parametrize(
    "page", ["architecture.md", "glossary.md", "topologies/README.md", "decisions/0010-chooser.md"]
)
def test_a_page_names_paths_that_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    missing = [path for path in paths_named(text) if not any((ROOT / top / path).exists() for top in TOPS)]
    assert missing == []


def test_the_architecture_answers_where_things_are() -> None:
    answers = re.search(r"## Where is \.\.\.\?\n(.*?)\n## ", ARCHITECTURE, re.DOTALL)
    rows = re.findall(r"^\| (.*\?) \| (.*) \|$", answers[1] if answers else "", re.MULTILINE)
    assert len(rows) >= 15
    assert [question for question, answer in rows if not paths_named(answer)] == []


def test_the_layout_lists_every_part_of_the_package() -> None:
    layout = re.search(r"## Layout\n+```\n(.*?)```", ARCHITECTURE, re.DOTALL)
    listed = set(re.findall(r"^  ([\w.]+)/? ", layout[1] if layout else "", re.MULTILINE))
    package = ROOT / "src" / "streamjoin"
    parts = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert listed == parts | {"__init__.py", "lazy.py", "daemon.py"}


def drawn_arrows() -> dict[str, set[str]]:
    """The arrows of the drawing of imports, by part."""
    arrows: dict[str, set[str]] = {}
    for part, other in imports.ARROWS:
        arrows.setdefault(part.replace("public", "__init__"), set()).add(other.replace("public", "__init__"))
    return arrows


def reached(arrows: dict[str, set[str]], part: str) -> set[str]:
    """The parts along all arrows from a part."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        for other in arrows.get(waiting.pop(), set()) - found:
            found.add(other)
            waiting.append(other)
    return found


def test_the_drawn_imports_are_those_that_are_allowed() -> None:
    arrows = drawn_arrows()
    for part, others in arrows.items():
        assert others <= test_imports.ARROWS[part], f"{part} may not import all of {others}"
    for part in set(test_imports.ARROWS) - {"__main__", "daemon"}:  # which Python starts
        assert test_imports.ARROWS[part] <= reached(arrows, part), f"{part} may import more than is drawn"


@pytest.mark.parametrize("name", all_drawings.DRAWINGS)
def test_a_drawing_is_the_one_that_the_script_draws_and_a_page_shows_it(name: str) -> None:
    drawn = (all_drawings.FOLDER / f"{name}.svg").read_text()
    assert drawn == all_drawings.DRAWINGS[name](), "run `make drawings`"
    assert any(f"drawings/{name}.svg" in page.read_text() for page in PAGES)
    ElementTree.fromstring(drawn)


def test_the_drawing_of_a_push_names_files_that_exist() -> None:
    files = {file for box in push.BOXES for file in box.files}
    assert [file for file in files if not (ROOT / "src" / "streamjoin" / file).exists()] == []
