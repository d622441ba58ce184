"""Forks of the process: a join belongs to the one that opened it.

A fork has a copy of the join without its threads, and its locks are as they were at the fork: a poll would find
nothing, and a wait would never end. So a fork marks its joins as copies when it starts, and a push does not have to
check the process number.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from streamjoin.semantics.errors import StreamJoinError


class Owned(Protocol):
    """An object that works only in the process that made it."""

    def mark_as_copy(self) -> None:
        """Called in a fork of that process. Must take no lock."""


_OWNED: weakref.WeakSet[Owned] = weakref.WeakSet()


def own(thing: Owned) -> None:
    """Call `thing.mark_as_copy()` in every fork of this process."""
    _OWNED.add(thing)


def copy_error() -> StreamJoinError:
    return StreamJoinError(
        "this process is a fork of the one that opened the join, whose threads and results are there: open a join in "
        "this process, after the fork"
    )


def _mark_copies() -> None:
    for thing in list(_OWNED):
        thing.mark_as_copy()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no forks
    os.register_at_fork(after_in_child=_mark_copies)
