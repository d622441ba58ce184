"""Small pieces of HTML for notebooks. All text is escaped; colours are the notebook's own."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

MAX_CELL = 600  # characters of a cell; a predicate may have 500,000


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values below a title."""
    cells = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(_cut_text(str(value)))}</td></tr>'
        for name, value in rows
    )
    return f"<div><b>{escape(title)}</b><table>{cells}</table></div>"


def _cut_text(text: str) -> str:
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL // 2]} ... {text[-MAX_CELL // 2 :]}"
