"""The reference page of the command line lists every command and option; completion works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from scripts.cli_page import PAGE, cli_page


def test_the_page_is_that_of_the_commands():
    assert PAGE.read_text() == cli_page(), "run: python -m scripts.cli_page"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("streamjoin ru", {"run"}), ("streamjoin run --ex", {"--explain"}), ("streamjoin be", set())],
)
def test_completion_in_bash(words, expected):
    """As bash asks: the words so far and the number of the last one, in the environment."""
    asked = {
        "_STREAMJOIN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    command = [str(Path(sys.executable).with_name("streamjoin"))]
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, timeout=100)
    assert set(done.stdout.split()) == expected
