"""An interrupt (Ctrl-C) while a topology starts its threads: it reaches the caller, and the join can be closed."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.options import TOPOLOGY_NAMES
from streamjoin.topologies.runtime.threads import WorkerThread

SCHEMA = pa.schema({"ts": pa.int64(), "x": pa.int32()})
WORKERS, ROWS = 3, 60_000  # so many that every topology shares the work


def rows() -> pa.RecordBatch:
    numbers = np.arange(ROWS)
    return pa.record_batch([numbers, (numbers % 1_000).astype(np.int32)], schema=SCHEMA)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if isinstance(thread, WorkerThread)]


@pytest.mark.parametrize("started", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(WORKERS - 1))
@pytest.mark.parametrize("topology", sorted(TOPOLOGY_NAMES))
def test_an_interrupt_while_threads_start_reaches_the_caller(topology, number, started, monkeypatch):
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.x = right.x", sj.TimeWindow(ROWS), "ts", "ts")
    start, calls = threading.Thread.start, iter(range(1_000))

    def interrupted(thread: threading.Thread) -> None:
        last = next(calls) == number
        if not last or started:
            start(thread)
        if last:
            raise KeyboardInterrupt

    join = sj.open_join(spec, topology, index="scan", workers=WORKERS)
    monkeypatch.setattr(WorkerThread, "start", interrupted)

    def use() -> None:
        with join:
            join.push("left", rows())
            join.push("right", rows())
            join.finish()

    with pytest.raises(KeyboardInterrupt):
        use()
    with pytest.raises(sj.StreamJoinError, match="KeyboardInterrupt"):
        join.finish()
    join.close()
    assert workers() == []
