"""Job files that were changed at random: each is read, or refused with a `StreamJoinError`, within two seconds.

A case is a function of its number alone, so that one that fails can be repeated: `check(folder, 12345)`. Half of the
cases change the text of a good file, half change its tables and are written again. No Spark is started.
"""

from __future__ import annotations

import json
import math
import random
import re
import time
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.limits import no_hang

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.spark.job.checkpoint import identity
from streamjoin.spark.job.explain import explain_job
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.session import settings_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CHUNKS, CHUNK = 24, 1000
MOST_SECONDS = 2.0  # of the processor, so that a busy machine is no slow one
SECRET = "hunter2-secret"
SMALL = """
[join]
on = "abs(left.x - right.a) <= 10"
window = "15 minutes"
lateness = "5 seconds"
[left]
source = { kind = "generator" }
[right]
source = { kind = "generator", seed = 2 }
[sink]
kind = "noop"
"""
LARGE = """
[join]
on = "left.k = right.k AND left.x BETWEEN right.a - 5 AND right.a + 5"
window = { left = "5 seconds", right = { rows = 9 } }
lateness = 0
how = "left"
workers = 4
order = "timestamp"
partitioning = "matrix"
index = "auto"
suffix = "_r"
[left]
time = "at"
schema = "at TIMESTAMP NOT NULL, k STRING, x INT, tags ARRAY<STRUCT<a: INT, b: MAP<STRING, DECIMAL(10, 2)>>>"
[[left.source]]
kind = "kafka"
servers = ["one:9092", "two:9092"]
topics = ["a", "b"]
malformed = "drop"
options = { "kafka.ssl.key.password" = "hunter2-secret", failOnDataLoss = false }
[[left.source]]
kind = "files"
path = "in"
format = "json"
select = ["at", "k", "x", "tags"]
[right]
[right.source]
kind = "socket"
port = 9999
format = "csv"
schema = "ts TIMESTAMP, k STRING, a INT"
[sink]
kind = "files"
path = "out"
format = "json"
partition_by = ["k"]
options = { compression = "gzip" }
[run]
name = "fuzz"
trigger = "10 seconds"
checkpoint = "checkpoint"
log = "spark.log"
[spark]
master = "local[2]"
packages = ["g:a:1"]
settings = { "spark.sql.shuffle.partitions" = 4, "spark.hadoop.fs.s3a.secret.key" = "hunter2-secret" }
"""


def good_files() -> list[str]:
    blocks = re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "jobs.md").read_text(), re.M | re.S)
    examples = [path.read_text() for path in sorted((ROOT / "examples" / "jobs").glob("*.toml"))]
    return [SMALL, LARGE, *blocks, *examples]


GOOD = good_files()
WORDS = sorted({word for text in GOOD for word in re.findall(r"[\w.]+|[^\w\s]", text)})
# Texts that some part of a job file might stumble over.
TEXTS = (
    "", " ", "\n", "\x1b[2J", "\x00", "\u202e", "\\", "'", '"', "`", "``", "~", "~nosuchuser/x", "..", "/", ".", "*",
    "[", "[a-", "**", "in/*", "in/[", "file:/in", "s3a://key:word@bucket/x", "http://", "://", "a" * 5000,
    "/" * 5000, "é" * 300, "local[9", "local[0]", "local[*,1]", "spark://", "k8s://x:y", "yarn", "0 s", "-1 s", "1 ns",
    "1e9 days", "999999999999999999999 weeks", "0.0000000001 s", "5 minutes 3 s", "9" * 5000 + " s", "x INT",
    "ts TIMESTAMP", "ts TIMESTAMP, x INT, k STRING", "x " + "array<" * 50, "x decimal(38, 38)", "x decimal(99)",
    "x VARIANT", "x map<int>", "x struct<>", "`a b` INT", "x INT, X INT", "left.x", "left.x = right.a", "left.x =",
    "(" * 300, "NOT " * 300 + "TRUE", "left.x IN (" + "1, " * 300 + "1)", "TRUE", "NULL", "1 = 1", "left.* = right.*",
    "left.x = 99999999999999999999999999999999999999999", "left.z LIKE '%a'", "CAST(left.x AS ", "/* ", "-- ", ";",
    "g:a:1", "g:a", "a:1", "a:99999", ":1", "user:word@host:9092", "a:1,,b:2", "(", "(?P<x>", "(a+)+$",
    "asap", "available-now", "true", "nan", "2026-01-01", "${HOME}", "$(id)", "{}", "[]", "%s", "{0}",
)  # fmt: skip
MARKS = ("[", "{", "[[", "]", "}", "\n[", "=", ".", ",", "\n", "#", "'''", '"""')
VALUES: tuple[Any, ...] = (
    0, 1, -1, 65536, 65537, 2**31, 2**63 - 1, -(2**63), 2**63, 10**30, 10**4400, 0.5, -0.0, 1e308, math.inf, math.nan,
    True, False, [], {}, [[]], [{}], [1, "a"], ["a", "b"], {"rows": 5}, {"rows": -1}, {"left": 1, "right": "1 s"},
    {"left": {"rows": 2}, "right": 0}, {"a": {"b": {"c": SECRET}}}, {"password": [SECRET]}, ["x"] * 300,
    [{"kind": "generator"}] * 3, {"kind": "rate"}, {"kind": "files", "path": "in"},
)  # fmt: skip


def written(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value) if value.bit_length() < 10_000 else hex(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{json.dumps(str(name))} = {written(each)}" for name, each in value.items())
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(written(each) for each in value) + "]"
    if isinstance(value, str):
        return json.dumps(value)
    return str(value)  # floats and dates


def document(values: dict[str, Any]) -> str:
    """Tables in TOML."""
    return "".join(f"{json.dumps(name)} = {written(value)}\n" for name, value in values.items())


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every table or array with each of its keys or places."""
    if isinstance(value, (dict, list)):
        for key in value.keys() if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def other_value(choose: random.Random, old: Any) -> Any:
    """A replacement for a value: of another kind, or another text."""
    kind = choose.randrange(5)
    if kind == 0:
        return deepcopy(choose.choice(VALUES))
    if kind == 1 or not isinstance(old, str):
        return choose.choice(TEXTS)
    if kind == 2:
        return " ".join(choose.choice(WORDS) for _ in range(choose.randrange(1, 12)))
    if kind == 3:
        return old + choose.choice(TEXTS)
    return changed_text(choose, old).replace(SECRET, "word")  # whose name is not secret here


def changed_tables(choose: random.Random, text: str) -> str:
    """A file with some of its keys renamed, removed, moved or given another value."""
    values = tomllib.loads(text)
    for _ in range(choose.choice((1, 1, 2, 3, 6))):
        held, key = choose.choice(list(places(values)) or [(values, "join")])
        action = choose.randrange(6)
        if action < 4 or isinstance(held, list):
            held[key] = other_value(choose, held.get(key) if isinstance(held, dict) else held[key])
        elif action == 4:
            value = held.pop(key, None)
            if choose.random() < 0.5 and value is not None:
                held[choose.choice((*WORDS, *TEXTS))] = value
        else:
            held[choose.choice((*WORDS, *TEXTS))] = deepcopy(choose.choice(VALUES))
    return document(values)


def changed_text(choose: random.Random, text: str) -> str:
    """A text with some pieces removed, doubled or moved, or with something foreign inserted."""
    for _ in range(choose.choice((1, 1, 2, 4, 12))):
        at, to = sorted(choose.randrange(len(text) + 1) for _ in range(2))
        to = min(to, at + choose.choice((1, 3, 20, 200)))
        action = choose.randrange(5)
        if action == 0:
            text = text[:at] + text[to:]
        elif action == 1:
            text = text[:to] + text[at:to] * choose.choice((1, 2, 50)) + text[to:]
        elif action == 2:
            text = (
                text[:at]
                + choose.choice((*TEXTS, *WORDS, "[", "{", "[[", "\n[", "=", ".", "\n", "'''", '"""'))
                + text[at:]
            )
        elif action == 3:
            text = text[:at] + chr(choose.randrange(1, 0x3000)) + text[to:]
        else:
            other = choose.choice(GOOD)
            text = text[:at] + other[choose.randrange(len(other)) :]
    return text


def case(number: int) -> str:
    """Even cases change tables, odd ones text."""
    choose = random.Random(number)
    text = choose.choice(GOOD)
    return changed_text(choose, text) if number % 2 else changed_tables(choose, text)


def read(path: Path) -> tuple[bool, str]:
    """Whether a file is accepted, and the message about it."""
    try:
        job = Job.read(path)
        assert identity(job)
        assert settings_of(job, "local[2]")
        return True, explain_job(job, None)
    except sj.StreamJoinError as error:
        return False, str(error)


def read_in_time(path: Path, number: int) -> tuple[bool, str]:
    """The same, within MOST_SECONDS. The first file with a predicate may have kernels compiled for it, so a file that
    takes longer is read once more."""
    for _ in range(2):
        began = time.process_time()
        with no_hang(lambda: f"case {number}:\n{case(number)[:2000]}"):
            found = read(path)
        if time.process_time() - began < MOST_SECONDS:
            return found
    raise AssertionError(f"case {number} takes longer than {MOST_SECONDS} s:\n{case(number)[:2000]}")


def check(folder: Path, number: int) -> bool:
    """Read a case and return whether it was accepted. The message must have no secret and no control character."""
    path = folder / "job.toml"
    path.write_text(case(number), encoding="utf-8", errors="replace")
    try:
        accepted, told = read_in_time(path, number)
    except Exception as error:
        raise AssertionError(f"case {number} raises {error!r}:\n{case(number)[:2000]}") from error
    assert told.strip() and len(told) < 50_000, number
    assert number % 2 or SECRET not in told, number  # a change of text can make any key of an option
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", told), number
    return accepted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which the good files are valid."""
    for name in ("in", "in/left", "in/right", "thermal", "radar-north", "radar-south"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_changed_job_file_is_read_or_refused_soon(folder: Path, chunk: int) -> None:
    began = time.perf_counter()
    accepted = sum(check(folder, number) for number in range(chunk * CHUNK, (chunk + 1) * CHUNK))
    print(f"{CHUNK} files, {accepted} of them accepted, in {time.perf_counter() - began:.1f} s")
    assert accepted > 0, "changes that leave no file in order would test little"
