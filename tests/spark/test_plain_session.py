"""The Spark example of the README runs as a reader would run it, and so does a join of streams: on a plain session,
by a Python whose environment is not activated, with no variable set but where Java is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
STREAM = """
left = spark.readStream.schema("ts timestamp, x int").parquet(f"{folder}/left")
right = spark.readStream.schema("ts timestamp, a int").parquet(f"{folder}/right")
joined = window_join(
    left, right, "abs(left.x - right.a) <= 1", window="1 minute", left_time="ts", right_time="ts", lateness="1 minute"
)
query = joined.writeStream.format("memory").queryName("joined").option("checkpointLocation", f"{folder}/c").start()
query.processAllAvailable()
query.stop()
print(sorted((row.x, row.a) for row in spark.table("joined").collect()))
print(spark.conf.get("spark.sql.shuffle.partitions"), spark.sparkContext.defaultParallelism)
"""
WRITE = """
for side, values in (("left", "1, 2, 9"), ("right", "2, 4")):
    column = "x" if side == "left" else "a"
    frame = spark.sql(f"SELECT TIMESTAMP '2026-01-01 12:00:00' AS ts, explode(array({values})) AS {column}")
    frame.coalesce(1).write.parquet(f"{folder}/{side}")
"""


def plain_environment(**more: str) -> dict[str, str]:
    """What a login shell has; the tests' own caches are kept, as they would only make this slower."""
    names = ("HOME", "JAVA_HOME", "STREAMJOIN_CACHE_DIR")
    return {name: os.environ[name] for name in names if name in os.environ} | {"PATH": os.defpath} | more


def run_plainly(source: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(source)
    return subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        env=plain_environment(**more),
        capture_output=True,
        text=True,
        timeout=550,
    )


def example() -> tuple[str, str]:
    """The README's code for Spark, and what it shows as its output."""
    found = re.findall(
        r"^```py\n(.*?)^```\n\n```text\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL
    )
    assert len(found) == 1, "one block for Spark; the others are ```python and run in tests/test_readme.py"
    code, printed = found[0]
    return code, printed


@pytest.mark.xdist_group("spark")
def test_the_first_spark_job_runs_on_a_plain_session(tmp_path: Path) -> None:
    page = (README.parent / "docs/start/first-spark-job.md").read_text()
    ((code, printed),) = re.findall(
        r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    done = run_plainly(code, tmp_path)
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr[-3000:]


@pytest.mark.xdist_group("spark")
def test_the_example_and_a_stream_run_on_a_plain_session(tmp_path: Path) -> None:
    code, printed = example()
    done = run_plainly(f"{code}\nfolder = {str(tmp_path)!r}\n{WRITE}\n{STREAM}", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(printed)
    pairs, partitions = done.stdout[len(printed) :].splitlines()
    assert pairs == "[(1, 2), (2, 2)]"
    assert len(set(partitions.split())) == 1, "one partition for each worker"
    said = [line for line in done.stderr.splitlines() if "window_join" in line]
    assert len(said) == 1 and "RocksDB" in said[0] and "shuffle partitions" in said[0]
