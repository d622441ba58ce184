"""Why a query failed, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkValueError, StreamingQueryException

from job_runs import write_job
from streamjoin.spark.job.failure import FAILURES, query_failure, why
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job


def test_only_a_jvm_that_does_not_answer_has_ended():
    refused = Py4JError(
        "An error occurred while calling o1.foo. Trace:\npy4j.Py4JException: Method foo([]) does not exist\n\tat x"
    )
    assert why(refused) == "Spark refused a call: Method foo([]) does not exist"
    assert "JVM has ended" in why(Py4JNetworkError("Answer from Java side is empty"))


def test_a_jvm_that_does_not_answer_is_told():
    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        Py4JError("An error occurred while calling o1.a"),
    ):
        assert isinstance(error, FAILURES)
        assert why(error).startswith("Spark's JVM has ended")
    assert why(PySparkValueError("[X] No. SQLSTATE: 56038")) == "the query failed: [X] No."


def test_a_malformed_record_stops_the_query_and_is_told(spark, tmp_path):
    def json_left(text: str) -> str:
        schema = 'path = "json", format = "json", schema = "ts TIMESTAMP, x INT"'
        text = text.replace('kind = "files"\npath = "out"', 'kind = "noop"')
        return text.replace('path = "left"', schema).replace('checkpoint = "checkpoint"', "")

    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "0.json").write_text('{"ts": "2026-01-01T00:00:00Z", "x": 1}\n{"x": [}\n')
    query = load_job(Job.read(write_job(tmp_path, 1, json_left)), spark).start()
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    told = query_failure(str(failed.value))
    assert told.startswith("the query failed: [FAILED_READ_FILE")
    assert "0.json" in told
    assert len(told.splitlines()) == 1


def test_a_failure_is_told_by_its_last_cause():
    text = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
streamjoin.spark.state.manifest.StateError: the checkpoint was written by another join:
  on was 'a' and is now 'b'

\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:1)
"""
    assert query_failure(text) == (
        "the query failed: the checkpoint was written by another join:\n  on was 'a' and is now 'b'"
    )
    missing = """Traceback (most recent call last):
ModuleNotFoundError: No module named 'numpy'
 SQLSTATE: XXKST SQLSTATE: XXKST
=== Streaming Query ===
Identifier: job
"""
    assert query_failure(missing) == (
        "the query failed: a Python worker raised ModuleNotFoundError: No module named 'numpy'"
    )
    assert query_failure("[PATH_NOT_FOUND] no such path\n\tat a.b.C").endswith(
        "[PATH_NOT_FOUND] no such path"
    )
    java = "An error occurred while calling o1.create.\n: java.io.IOException: Mkdirs failed to create /c\n\tat a.B"
    assert query_failure(java) == "the query failed: Mkdirs failed to create /c"
    stack = """org.apache.spark.SparkException: [CANNOT_COMMIT] Cannot perform commit. SQLSTATE: 58030
\tat org.apache.spark.sql.A.commit(A.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.B.write(B.java:2)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
    assert query_failure("[CANNOT_COMMIT] Cannot perform commit. SQLSTATE: 58030", stack) == (
        "the query failed: [CANNOT_COMMIT] Cannot perform commit. (No space left on device)"
    )
    assert query_failure(
        text, f"{stack}Caused by: PythonException: Traceback (most recent call last):\n"
    ).endswith("'b'")
    streaming = (
        "[STREAM_FAILED] Query [id] terminated with exception: [X] No. SQLSTATE: 56038 SQLSTATE: X0KST\nplan"
    )
    assert query_failure(streaming) == "the query failed: [X] No."


WORKER_ERROR = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
KeyError: 'first'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "worker.py", line 4222, in process
    assert wanted, found
           ^^^^^^
{error}
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("AssertionError", "a Python worker raised AssertionError"),
        ("KeyError: 'x'", "a Python worker raised KeyError: 'x'"),
        ("numba.core.errors.Refused: no\n  such type", "a Python worker raised Refused: no\n  such type"),
        ("streamjoin.semantics.errors.InputError: left time is NULL", "left time is NULL"),
    ],
)
def test_an_error_of_a_python_worker_is_told_by_its_last_line(error, told):
    """Whatever its type is called, with a message or without."""
    text = WORKER_ERROR.format(error=error)
    stack = f"org.apache.spark.SparkException: {text}\tat a.B.c(D.scala:1)\nCaused by: {text}\tat a.B.c(D.scala:1)\n"
    assert query_failure(text, stack) == f"the query failed: {told}"
    assert query_failure("Job aborted due to stage failure", stack) == f"the query failed: {told}"


def test_a_query_whose_python_worker_fails_tells_why(spark):
    def refuse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if next(batches):
            raise AssertionError
        yield from batches

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    query = (
        rows.mapInArrow(refuse, "value BIGINT").writeStream.format("noop").trigger(availableNow=True).start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    assert why(failed.value) == "the query failed: a Python worker raised AssertionError"
