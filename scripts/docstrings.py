"""For the reference in docs/reference/: show the examples in docstrings as code.

Docstrings here have doctests without a heading, or below `Example:`. The parser of docstrings knows `Examples:` alone.
"""

from __future__ import annotations

import re
from textwrap import indent
from typing import Any

import griffe

# A paragraph that begins with a prompt at the docstring's own indentation.
DOCTEST = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


class Examples(griffe.Extension):
    """Puts the doctests of a docstring below a line `Examples:`."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = obj.docstring.value
            text = text.replace("\nExample:\n", "\nExamples:\n")
            obj.docstring.value = DOCTEST.sub(lambda found: "Examples:\n" + indent(found[0], "    "), text)
