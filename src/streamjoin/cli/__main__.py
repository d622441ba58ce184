"""`python -m streamjoin.cli` is the `streamjoin` command."""

from streamjoin.cli.app import main

main()
