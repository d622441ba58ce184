"""What Spark's processes read of a join before they import streamjoin."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import streamjoin as sj
from streamjoin.spark.join.processor import join_processor, kinds_of_state
from streamjoin.spark.window_join import make_task

SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "k": pa.int32()})
# A driver's process in which streamjoin and what it needs cannot be imported.
DRIVER = """
import pickle, sys
from types import SimpleNamespace
for name in ("streamjoin", "numba", "pandas"):
    sys.modules[name] = None
processor = pickle.load(sys.stdin.buffer)
declared = []
handle = SimpleNamespace(
    _statefulProcessorApiClient=SimpleNamespace(handle_state=SimpleNamespace(name="PRE_INIT")),
    getValueState=lambda name, schema: declared.append(name),
    getMapState=lambda name, key, schema: declared.append(name),
)
processor.init(handle)
processor.close()
print(declared)
"""


@pytest.mark.parametrize(("how", "kinds"), [("inner", ["runs"]), ("left", ["runs", "matched"])])
def test_the_driver_learns_which_state_there_is_without_importing_streamjoin(how, kinds):
    spec = sj.JoinSpec(SCHEMA, SCHEMA, "left.k = right.k", "1 minute", "ts", "ts", how=how)
    task = make_task(spec, "any", "auto", "auto", 2)
    assert list(kinds_of_state(task)) == kinds
    data = cloudpickle.dumps(join_processor(task))
    done = subprocess.run([sys.executable, "-c", DRIVER], input=data, capture_output=True, timeout=60)
    assert done.stdout.decode().strip() == str(["manifest", *kinds]), done.stderr.decode()
