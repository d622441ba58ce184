"""The command line: parse, call, print. `streamjoin --help` lists the commands."""

from streamjoin.cli import hw as hw  # adds its commands to the app
from streamjoin.cli.app import main as main
