"""`python -m streamjoin` is the command `streamjoin`."""

from streamjoin.cli import main

main()
