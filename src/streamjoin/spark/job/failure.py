"""Extracts one sentence that says why Spark failed from its pages of stack traces."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

TRACEBACK = "Traceback (most recent call last):"
# Where a message ends: an empty line, the frames of Java, or what Spark appends.
_END = r"(?=\n\s*\n|\n\s*at |\n?\s*SQLSTATE|\n===|\Z)"
# After the indented frames of a traceback: the type of a worker's error, and its message if it has one.
_PYTHON = rf"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*?))?[ ]*{_END}"
_JAVA = rf"^:? ?(?:\w+\.)*\w+(?:Error|Exception): (?!Traceback|\[PYTHON_EXCEPTION\])(.+?){_END}"
_STREAM = r"\[STREAM_FAILED\].*? terminated with exception: (.+)"  # what follows is Spark's plan
_CAUSE = r"^Caused by: [\w.$]+: (.+?)(?: SQLSTATE: \w{5})*$"
_RAISED = "[USER_RAISED_EXCEPTION] "  # how Spark marks what `raise_error` says
_OURS = "streamjoin."  # the messages of this package's errors need no type in front


# PySpark raises the first for a query that failed; py4j raises the others for a JVM that does not answer.
FAILURES = (PySparkException, Py4JError, ConnectionError)


def why(error: Exception) -> str:
    """Why a query failed; `error` is one of `FAILURES`."""
    if isinstance(error, (PySparkException, Py4JJavaError)):
        return query_failure(str(error), getattr(error, "_stackTrace", ""))  # PySpark's, with all causes
    if (trace := re.search(r"Trace:\s*(?:[\w.]+: )?(.+)", str(error))) is not None:  # the JVM has answered
        return f"Spark refused a call: {trace[1]}"
    return "Spark's JVM has ended, killed or out of memory; the next run resumes from what was committed"


def query_failure(text: str, stack: str = "") -> str:
    """Why a query failed. If the `stack` has a root cause (a full disk, for example), it follows in parentheses."""
    sentence = python_error(text) or python_error(stack) or java_error(text)
    sentence = re.sub(r"(?: SQLSTATE: [0-9A-Z]{5})+$", "", sentence.strip()).removeprefix(_RAISED)
    cause = first_cause(stack)
    more = "" if cause is None or cause in sentence or TRACEBACK in cause else f" ({cause})"
    return f"the query failed: {sentence}{more}"


def python_error(text: str) -> str | None:
    """The error of a Python worker: the lines after the frames of the last traceback; None without a traceback."""
    _, found, after = text.rpartition(TRACEBACK)
    error = re.search(_PYTHON, after, re.M | re.S) if found else None
    if error is None:
        return None
    kind, message = error["type"], (error["message"] or "").strip()
    if message and kind.startswith(_OURS):
        return message
    name = kind.rpartition(".")[2]
    return f"a Python worker raised {name}: {message}" if message else f"a Python worker raised {name}"


def java_error(text: str) -> str:
    """The last exception that a text names, else Spark's message about a stream, else the first lines of the text."""
    causes, stream = re.findall(_JAVA, text, re.M | re.S), re.match(_STREAM, text)
    if causes or stream:
        return str(causes[-1] if causes else stream[1] if stream else "")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:4])


def first_cause(stack: str) -> str | None:
    """The message of the innermost exception of a Java stack trace; None if no exception has a cause."""
    causes: list[str] = re.findall(_CAUSE, stack, re.M)
    return causes[-1] if causes else None
