"""Processor time of a Spark session by what spends it, from /proc: Java, the programs it starts, Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Seconds of processor time so far. `forked`: programs that Java started and that have ended, such as chmod.
    `python`: all its Python processes, ended ones included."""

    java: float
    forked: float
    python: float

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(session: SparkSession) -> Spent:
    """What the session has spent. Local masters only: all of Spark is one Java and its children."""
    context: Any = session.sparkContext
    stats = dict(_stats())
    java = context._gateway.proc.pid
    while stats[java].name != "java":  # spark-submit is a script
        java = next(pid for pid, stat in stats.items() if stat.parent == java)
    python, open_ = 0.0, [java]
    while open_:
        children = [pid for pid, stat in stats.items() if stat.parent in open_]
        python += sum(stats[pid].own + stats[pid].ended for pid in children)
        open_ = children
    return Spent(stats[java].own, stats[java].ended, python)


class _Stat(NamedTuple):
    """A process: its name and parent, its seconds, and those of its children that have ended."""

    name: str
    parent: int
    own: float
    ended: float


def _stats() -> Iterator[tuple[int, _Stat]]:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                text = file.read()
        except OSError:  # it has ended
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        user, system, ended_user, ended_system = map(int, fields[11:15])
        yield (
            int(pid),
            _Stat(name, int(fields[1]), (user + system) / TICKS, (ended_user + ended_system) / TICKS),
        )
