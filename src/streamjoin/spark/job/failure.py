"""Why Spark failed, in a sentence: taken out of its pages of stack traces."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

# A worker's error is what follows its traceback, up to an empty line or the frames of Java.
_ERROR = (
    r"^:? ?(?:\w+\.)*\w+(?:Error|Exception): (?!Traceback)(.+?)(?=\n\s*\n|\n\s*at |\n\s*SQLSTATE|\n===|\Z)"
)
_STREAM = r"\[STREAM_FAILED\].*? terminated with exception: (.+)"  # what follows is Spark's plan
_CAUSE = r"^Caused by: [\w.$]+: (.+?)(?: SQLSTATE: \w{5})*$"


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
    causes, told = re.findall(_ERROR, text, re.M | re.S), re.match(_STREAM, text)
    if causes or told:
        sentence = causes[-1] if causes else told[1] if told else ""
    else:
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        sentence = "\n".join(lines[:4])
    sentence = re.sub(r"(?: SQLSTATE: [0-9A-Z]{5})+$", "", sentence.strip())
    cause = first_cause(stack)
    more = "" if cause is None or cause in sentence or cause.startswith("Traceback") else f" ({cause})"
    return f"the query failed: {sentence}{more}"


def first_cause(stack: str) -> str | None:
    """What the innermost exception of a Java stack trace says; None if no exception there has a cause."""
    causes: list[str] = re.findall(_CAUSE, stack, re.M)
    return causes[-1] if causes else None
