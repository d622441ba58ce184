"""The command line: parse, call, print. `streamjoin --help` lists the commands."""

from streamjoin.cli import hw
from streamjoin.cli.app import main

__all__ = ["hw", "main"]
