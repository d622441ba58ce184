"""A function on its way to Spark's workers, in a shell that needs nothing but Python: a worker without streamjoin then
says so in one sentence, instead of failing to read the function."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import cloudpickle

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


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
