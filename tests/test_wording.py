"""Plain English: phrases that are always wrong stay out of the package, the pages, the benchmarks and the examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What not to write, as a pattern over text with single spaces, and what to write instead.
WRONG = {
    r"\bcan not\b": "cannot",
    r"\bis no (key|column|size|number|date|name|text|source|field)\b": "is not a ..., unknown ...",
    r"(?<!there )\bis none\b": "is not one, there is none",
    r"\b(tells?|told|says?) of\b": "says that, reports, describes",
    r"\bit is told\b": "it is notified, the message says",
    r"\b[Ww]ho(m?ever| (pushes|polls|waits|works|asks))\b": "name the thread, the program or the user",
    r"\b(go|goes|went) on\b(?! to\b)": "continues, resumes",
    r"\b(last|least|most|up to|about|of|in|by|after|at|every|for|than|holds?|with) so (many|much)\b": "n rows",
    r"\bright answer\b": "correct result",
    r"\bof before\b": "earlier, existing",
    r"\bby the way that\b": "through",
    r"\blets? expect\b": "continues",
    r"\bstands? in [\w./\[\]()]+\.md\b": "is in, defines",
    r"\bwas looked for\b": "we looked for",
    r"\bis of no\b": "has no",
    r": say ['{\w]*=|: say [\"'{]": "write (messages say what to write)",
    r"\bis no part\b": "is not part of",
    r"\bwants? room\b": "needs room",
}


# Folders of Python files.
FOLDERS = (
    "src", "benchmarks", "scripts", "examples", "tests/codegen", "tests/fuzz", "tests/jit", "tests/semantics",
)  # fmt: skip


def texts() -> list[Path]:
    """Pages, the package, benchmarks, scripts, examples, and some of the tests."""
    python = [path for top in FOLDERS for path in ROOT.glob(f"{top}/**/*.py")]
    return sorted([*ROOT.glob("*.md"), *ROOT.glob(".github/**/*.md"), *ROOT.glob("docs/**/*.md"), *python])


def complaints(text: str) -> list[str]:
    """The wrong phrases of a text, also those that cross the end of a line or of a comment's line."""
    flat = re.sub(r"\s+(# )?", " ", text)
    return [
        f"...{flat[max(0, found.start() - 40) : found.end() + 20]}...: write {better!r}"
        for pattern, better in WRONG.items()
        for found in re.finditer(pattern, flat)
    ]


@pytest.mark.parametrize("path", texts(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_phrase_is_one_that_is_always_wrong(path: Path) -> None:
    assert complaints(path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "A name that is no column.",
        "it can\n    # not wrap",
        "the last so many rows",
        "The other side goes on.",
        "Whoever pushes",
        "for who polls",
        "What a right answer is stands in semantics.md.",
        "how is 'outer': say 'full'",
        "a lambda is no part of SQL",
    ],
)
def test_a_wrong_phrase_is_reported(text: str) -> None:
    assert complaints(text)


@pytest.mark.parametrize(
    "text", ["It cannot wrap.", "so many rows that memory ends", "It goes on to the next."]
)
def test_plain_english_is_not_reported(text: str) -> None:
    assert complaints(text) == []
