"""Spark masters: checks them, and counts the cores of local ones."""

from __future__ import annotations

import os
import re

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.shown import shown

_NUMBER = "[1-9][0-9]{0,5}"
_LOCAL = rf"local(?:\[(\*|{_NUMBER})(?:,[0-9]{{1,6}})?\])?|local-cluster\[({_NUMBER}),({_NUMBER}),{_NUMBER}\]"
_CLUSTER = r"yarn|(?:spark|k8s)://\S+"
DEFAULT_MASTER = "local[*]"
ALLOWED_MASTERS = (
    "local, local[4], local[*], local-cluster[2,1,1024] (workers, cores and MiB of each), or a cluster: "
    "spark://host:7077, yarn, k8s://https://host:6443"
)


def check_master(master: str) -> None:
    """Raise unless Spark would accept this master; Spark itself answers with a stack trace."""
    if not re.fullmatch(f"{_LOCAL}|{_CLUSTER}", master):
        message = f"master is {shown(master)}; allowed: {ALLOWED_MASTERS}"
        raise SpecError(message, field="master", given=master, allowed=ALLOWED_MASTERS)


def local_cores(master: str) -> int | None:
    """The cores of a local master; None for a cluster, whose number of cores is unknown here."""
    match = re.fullmatch(_LOCAL, master)
    if match is None:
        return None
    threads, workers, each = match.groups()
    if workers is not None:
        return int(workers) * int(each)
    return (os.cpu_count() or 1) if threads == "*" else int(threads or 1)
