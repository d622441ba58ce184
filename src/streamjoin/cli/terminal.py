"""The terminal that commands print to."""

from __future__ import annotations

from rich.console import Console

terminal = Console()


def say(text: str) -> None:
    """Print text as it is, unwrapped and uncoloured."""
    terminal.print(text, markup=False, highlight=False, soft_wrap=True)
