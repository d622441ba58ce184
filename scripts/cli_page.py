"""Writes docs/reference/cli.md from the commands themselves: `python -m scripts.cli_page`.

A test compares the page with what this makes, so it lists every command, argument and option.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from streamjoin.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cli.md"
START = """# Command line

`pip install` adds the command `streamjoin`. `python -m streamjoin.cli` is the same.

A mistake in what you give ends with exit code 2 and one message; a run that fails ends with 1.
[Job files](../jobs.md#while-it-runs) has the exit codes of `streamjoin run`.

`streamjoin --install-completion` installs completion for your shell (bash, zsh, fish or PowerShell);
`streamjoin --show-completion` prints it instead.
"""


def cli_page() -> str:
    """The whole page."""
    return "\n".join([START, *sections(typer.main.get_command(app), "streamjoin")])


# Commands and parameters are `Any`: newer versions of Typer have their own copy of click's classes.


def sections(group: Any, name: str) -> Iterator[str]:
    """A section for each command of a group, those of its groups included."""
    for each in group.commands.values():
        if each.hidden:
            continue
        if hasattr(each, "commands"):
            yield from sections(each, f"{name} {each.name}")
        else:
            yield section(each, f"{name} {each.name}")


def section(command: Any, name: str) -> str:
    """A heading, what the command does, and its parameters."""
    given = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [in_usage(each) for each in given if each.param_type_name == "argument"]
    usage = " ".join([name, *arguments])
    text = f"## {name}\n\n```sh\n{usage}\n```\n\n{(command.help or '').strip()}\n"
    rows = [row(each) for each in given if each.name != "help"]
    if not rows:
        return text
    return "\n".join([text, "| | | default |", "|---|---|---|", *rows, ""])


def in_usage(argument: Any) -> str:
    """An argument in a command's first line."""
    name = str(argument.name).upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def row(parameter: Any) -> str:
    """A line of the table: names, what to give, and the default."""
    names = [parameter.name.upper()] if parameter.param_type_name == "argument" else parameter.opts
    shown = ", ".join(f"`{each}`" for each in names)
    about = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    default = parameter.default
    if parameter.required:
        told = "required"
    elif default in (None, False, "") or callable(default):
        told = ""
    else:
        told = f"`{default}`"
    return f"| {shown} | {about} | {told} |"


if __name__ == "__main__":
    PAGE.write_text(cli_page())
