"""Why Spark failed, in a sentence: taken out of its pages of stack traces."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

TRACEBACK = "Traceback (most recent call last):"
# Where a message ends: an empty line, the frames of Java, or what Spark appends.
_END = r"(?=\n\s*\n|\n\s*at |\n?\s*SQLSTATE|\n===|\Z)"
# Behind a traceback's indented frames: the type of a worker's error, and its message if it has one.
_PYTHON = rf"^(?P<type>[A-Za-z_][\w.]*)(?:: ?(?P<message>.*?))?[ ]*{_END}"
_JAVA = rf"^:? ?(?:\w+\.)*\w+(?:Error|Exception): (?!Traceback|\[PYTHON_EXCEPTION\])(.+?){_END}"
_STREAM = r"\[STREAM_FAILED\].*? terminated with exception: (.+)"  # what follows is Spark's plan
_CAUSE = r"^Caused by: [\w.$]+: (.+?)(?: SQLSTATE: \w{5})*$"
_RAISED = "[USER_RAISED_EXCEPTION] "  # how Spark marks what `raise_error` says
_OURS = "streamjoin."  # errors of this package say all in their message


# What PySpark raises for a query that failed, and py4j for a JVM that does not answer.
FAILURES = (PySparkException, Py4JError, ConnectionError)


def why(error: Exception) -> str:
    """Why a query failed, by one of the `FAILURES`."""
    if isinstance(error, (PySparkException, Py4JJavaError)):
        return query_failure(str(error), getattr(error, "_stackTrace", ""))  # PySpark's, of all causes
    if (trace := re.search(r"Trace:\s*(?:[\w.]+: )?(.+)", str(error))) is not None:  # the JVM has answered
        return f"Spark refused a call: {trace[1]}"
    return "Spark's JVM has ended, killed or out of memory; the next run goes on from what was committed"


def query_failure(text: str, stack: str = "") -> str:
    """Why a query failed. The first cause of all, if the `stack` has one (a disk that is full, say), follows in
    parentheses."""
    sentence = python_error(text) or python_error(stack) or java_error(text)
    sentence = re.sub(r"(?: SQLSTATE: [0-9A-Z]{5})+$", "", sentence.strip()).removeprefix(_RAISED)
    cause = first_cause(stack)
    more = "" if cause is None or cause in sentence or TRACEBACK in cause else f" ({cause})"
    return f"the query failed: {sentence}{more}"


def python_error(text: str) -> str | None:
    """The error of a Python worker: what stands behind the frames of the last traceback; None if there is none."""
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
    """The last exception that a text names, what Spark says of a stream, or the text's first lines."""
    causes, told = re.findall(_JAVA, text, re.M | re.S), re.match(_STREAM, text)
    if causes or told:
        return str(causes[-1] if causes else told[1] if told else "")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:4])


def first_cause(stack: str) -> str | None:
    """What the innermost exception of a Java stack trace says; None if no exception there has a cause."""
    causes: list[str] = re.findall(_CAUSE, stack, re.M)
    return causes[-1] if causes else None
