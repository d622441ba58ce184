"""The joins that this process has built, found again in a DataFrame that was made with them.

Each join has a name in Spark's plan: that of its observed metrics, or of its Python function.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from typing import Any, cast

from pyspark.sql import DataFrame

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark.join.metrics import OBSERVATION
from streamjoin.spark.join.task import JoinTask
from streamjoin.spark.sessions import is_classic

MOST_BUILT = 1024  # forget the oldest joins of a process that builds more
_BUILT: OrderedDict[str, JoinTask] = OrderedDict()


def name_of(task: JoinTask) -> str:
    """The name of a join in a plan, and of its observed metrics. Two joins of one query have different names."""
    return f"{OBSERVATION}_{zlib.crc32(task.digest.encode()):08x}"


def remember(task: JoinTask) -> None:
    """Note that a join was built."""
    _BUILT[name_of(task)] = task
    _BUILT.move_to_end(name_of(task))
    if len(_BUILT) > MOST_BUILT:
        _BUILT.popitem(last=False)


def tasks_in(frame: DataFrame) -> list[JoinTask]:
    """The tasks of the joins in a DataFrame's plan, at least one, in the order of the plan. Runs no job."""
    names = dict.fromkeys(re.findall(rf"\b{OBSERVATION}_[0-9a-f]{{8}}\b", _plan(frame)))
    tasks = [_BUILT[name] for name in names if name in _BUILT]
    if not tasks:
        raise StreamJoinError(
            "joined is not made by window_join in this process: give the DataFrame that it returned",
            field="joined",
            given=type(frame).__name__,
            allowed="a DataFrame that window_join returned",
        )
    return tasks


def _plan(frame: DataFrame) -> str:
    if is_classic(frame.sparkSession):
        return str(cast(Any, frame)._jdf.queryExecution().analyzed().toString())
    return str(cast(Any, frame)._explain_string(extended=True))
