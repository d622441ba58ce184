"""The text of `explain` as a tree: headings are branches, and lines below them their leaves."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from streamjoin.cli.terminal import terminal

HEADING = 13  # `explain` keeps its headings in a column of this width
PIPED = 10_000  # columns of output that is not a terminal: a program that reads it finds whole lines


def explain_tree(text: str, title: str) -> Tree:
    """A branch for each heading; deeper indented lines hang below the ones before them."""
    tree = Tree(Text(title, "bold"), guide_style="dim")
    above: list[tuple[int, Tree]] = [(-1, tree)]
    for line in text.splitlines():
        heading, rest = line[:HEADING].strip(), line[HEADING:]
        depth = 0 if heading else 1 + len(rest) - len(rest.lstrip())
        while above[-1][0] >= depth:
            above.pop()
        label = Text(f"{heading}  ", "cyan") if heading else Text()
        above.append((depth, above[-1][1].add(label.append(rest.strip(), "default"))))
    return tree


def say_tree(text: str, title: str) -> None:
    """Print what `explain` says."""
    console = terminal if terminal.is_terminal else Console(width=PIPED)
    console.print(explain_tree(text, title), highlight=False)
