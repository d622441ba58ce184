"""What is on its way to Spark's workers, in a shell that needs nothing but Python and PySpark.

A worker without streamjoin then says so in one sentence, instead of failing to read a function. And before the first
micro-batch Spark reads the processor in a process of the driver, which only asks what state it declares: the shell
answers without importing streamjoin, which takes that process most of a second.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
MANIFEST = "manifest"
STATE_VALUE = StructType([StructField("data", BinaryType())])
STATE_KEY = StructType([StructField("number", LongType())])


def carried(function: ArrowFunction) -> ArrowFunction:
    """The same function. Pickled by value, because it is nested, and its globals are modules of Python's own."""
    code: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]

    def run(batches):  # type: ignore[no-untyped-def]  # annotations would be pickled, and they name pyarrow
        try:
            carried_function = pickle.loads(code)
        except ImportError as error:
            message = (
                f"the Python of a Spark worker, {sys.executable}, cannot import {error.name}: install streamjoin and "
                "what it needs there, or name a Python that has them in PYSPARK_PYTHON, before Spark starts"
            )
            raise ImportError(message, name=error.name) from None
        return carried_function(batches)

    run.__name__ = run.__qualname__ = function.__name__
    return run


def carried_processor(processor: StatefulProcessor, kinds: Sequence[str]) -> StatefulProcessor:
    """The same processor, whose state is a manifest and these `kinds` of values. Pickled by value, as above."""
    code: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]
    manifest, value, number = MANIFEST, STATE_VALUE, STATE_KEY

    class Carried(StatefulProcessor):
        def init(self, handle):  # type: ignore[no-untyped-def]  # annotations would be pickled
            self.carried: Any = None
            client = getattr(handle, "_statefulProcessorApiClient", None)  # Spark's handle for tests has none
            if getattr(getattr(client, "handle_state", None), "name", None) == "PRE_INIT":
                handle.getValueState(manifest, value)
                for kind in kinds:
                    handle.getMapState(kind, number, value)
            else:
                self.carried = pickle.loads(code)
                self.carried.init(handle)

        def handleInputRows(self, key, rows, timerValues):  # type: ignore[no-untyped-def]
            return self.carried.handleInputRows(key, rows, timerValues)

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # type: ignore[no-untyped-def]
            return self.carried.handleExpiredTimer(key, timerValues, expiredTimerInfo)

        def close(self):  # type: ignore[no-untyped-def]
            if self.carried is not None:
                self.carried.close()

    return Carried()
