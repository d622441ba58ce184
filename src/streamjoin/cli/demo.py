"""The papers' benchmark as a demonstration: two streams, a 2-D band, 15-minute windows.

R(x, y, z) and S(a, b, c, d) hold uniform values of 1..10000; a pair matches if both x and a, and
y and b, lie within 10 of each other: about one pair in 250,000 (Teubner & Mueller 2011, section 6).
On Spark the demonstration is a folder with a job file, which stays for trying things out.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import Progress, TextColumn
from rich.table import Table

import streamjoin as sj

LOW, HIGH, Z_LENGTH = 1, 10_000, 20
REFRESH_SECONDS = 0.1
SAMPLE_ROWS = 300  # a side: the oracle's nested loops see the square of it
START = 1_767_225_600_000_000  # 2026-01-01 in microseconds: the streams are as repeatable as their seed
FILES_PER_SIDE = 6  # each is a micro-batch
PUSH_ROWS = 256  # that one push to the embedded engine takes
LEFT_SCHEMA = pa.schema(
    {"ts": pa.timestamp("us", "UTC"), "x": pa.int32(), "y": pa.float32(), "z": pa.string()}
)
RIGHT_SCHEMA = pa.schema(
    {"ts": pa.timestamp("us", "UTC"), "a": pa.int32(), "b": pa.float32(), "c": pa.float64(), "d": pa.bool_()}
)
PREDICATE = "left.x BETWEEN right.a - 10 AND right.a + 10 AND left.y BETWEEN right.b - 10 AND right.b + 10"


def generate(rows: int, rate: int, seed: int) -> tuple[pa.Table, pa.Table]:
    """R and S with `rows` tuples each, at random times, `rate` of them per second on average."""
    random = np.random.default_rng(seed)
    micros = max(1, rows * 1_000_000 // rate)

    def times() -> pa.Array:
        return pa.array(START + np.sort(random.integers(0, micros, rows)), LEFT_SCHEMA.field("ts").type)

    def integers() -> pa.Array:
        return pa.array(random.integers(LOW, HIGH + 1, rows, dtype=np.int32))

    def floats(kind: type) -> pa.Array:
        return pa.array(random.uniform(LOW, HIGH, rows).astype(kind))

    letters = random.integers(ord("a"), ord("z") + 1, rows * Z_LENGTH, dtype=np.uint8)
    offsets = np.arange(0, rows * Z_LENGTH + 1, Z_LENGTH, dtype=np.int32)
    words = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    left = pa.table([times(), integers(), floats(np.float32), words], schema=LEFT_SCHEMA)
    flags = pa.array(random.integers(0, 2, rows).astype(bool))
    right = pa.table(
        [times(), integers(), floats(np.float32), floats(np.float64), flags], schema=RIGHT_SCHEMA
    )
    return left, right


class Sample:
    """A square of the (x, y) plane that holds about SAMPLE_ROWS rows of either stream.

    With time windows a pair is in the result or not whatever other rows there are, so joining just
    the rows of the square must give just the pairs of the whole result that lie in it.
    """

    def __init__(self, rows: int):
        half = 0.5 * (HIGH - LOW) * min(1.0, (SAMPLE_ROWS / rows) ** 0.5)
        middle = 0.5 * (HIGH + LOW)
        self.lo, self.hi = middle - half, middle + half
        self.results: list[pa.Table] = []

    def take(self, rows: pa.Table, *columns: str) -> pa.Table:
        """The rows whose `columns` lie inside."""
        inside = pa.scalar(True)
        for column in columns:
            values = pc.cast(rows[column], pa.float64())
            inside = pc.and_(
                inside, pc.and_(pc.greater_equal(values, self.lo), pc.less_equal(values, self.hi))
            )
        return rows.filter(inside)

    def keep(self, results: pa.RecordBatch | pa.Table) -> None:
        """Remember the results that lie inside; the others are only counted by the caller."""
        table = pa.Table.from_batches([results]) if isinstance(results, pa.RecordBatch) else results
        self.results.append(self.take(table, "x", "y", "a", "b"))

    def check(self, left: pa.Table, right: pa.Table, spec: sj.JoinSpec) -> tuple[int, int, int]:
        """Count the oracle's pairs in the sample, and the missing and the wrong pairs in ours."""
        expected = sj.oracle.join(self.take(left, "x", "y"), self.take(right, "a", "b"), spec)
        ours = Counter(rows_of(self.results))
        truth = Counter(rows_of([expected]))
        return truth.total(), (truth - ours).total(), (ours - truth).total()


def rows_of(tables: Iterable[pa.Table]) -> Iterator[tuple[object, ...]]:
    """The rows as tuples, which can be counted."""
    for table in tables:
        yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


def short(number: float) -> str:
    """A number with a metric prefix: an index compares millions, a scan billions."""
    prefix, size = next(((p, s) for p, s in (("G", 1e9), ("M", 1e6), ("k", 1e3)) if number >= s), ("", 1.0))
    return f"{number / size:.1f} {prefix}".strip()


@dataclass
class Rates:
    """The progress of a run. `rows` counts one side; `windows` are sizes in tuples."""

    rows: int
    seconds: float
    matches: int
    comparisons: int
    windows: tuple[int, int]

    @classmethod
    def of(cls, join: sj.Join, rows: int, matches: int, started: float) -> Rates:
        stats = join.stats()
        windows = (stats.left_window, stats.right_window)
        return cls(rows, time.perf_counter() - started, matches, stats.comparisons, windows)

    def line(self) -> str:
        """One line for the progress bar."""
        left, right = self.windows
        return (
            f"{self.rows / self.seconds:,.0f} rows/s, {short(self.comparisons / self.seconds)} comparisons/s, "
            f"{self.matches:,} matches, windows {left / 1000:,.0f}k + {right / 1000:,.0f}k"
        )

    def table(self) -> Table:
        """The rates as a table to print."""
        table = Table(show_header=False, title="sustained", title_justify="left")
        table.add_column(justify="left")
        table.add_column(justify="right")
        table.add_row("tuples of each stream", f"{self.rows:,}")
        table.add_row("seconds", f"{self.seconds:.2f}")
        table.add_row("tuples/s of each stream", f"{self.rows / self.seconds:,.0f}")
        table.add_row("comparisons", f"{self.comparisons:,}")
        table.add_row("comparisons/s", short(self.comparisons / self.seconds))
        table.add_row("matches", f"{self.matches:,}")
        return table


def run_embedded(
    left: pa.Table,
    right: pa.Table,
    spec: sj.JoinSpec,
    limit: float,
    sample: Sample,
    console: Console,
) -> Rates:
    """Push both tables alternately, for at most `limit` seconds; keep the sample's results."""
    with console.status("compiling the predicate, which is cached for the next time"):
        join = sj.open_join(spec)
    columns = (TextColumn("{task.percentage:>3.0f}% {task.fields[line]}"),)
    with join, Progress(*columns, console=console) as progress:
        bar = progress.add_task("join", total=left.num_rows, line="")
        started = shown = time.perf_counter()
        at = matches = 0
        while at < left.num_rows and time.perf_counter() - started < limit:
            join.push("left", left.slice(at, PUSH_ROWS))
            join.push("right", right.slice(at, PUSH_ROWS))
            at = min(at + PUSH_ROWS, left.num_rows)
            for out in join.poll():
                matches += out.num_rows
                sample.keep(out)
            if time.perf_counter() - shown > REFRESH_SECONDS:
                shown = time.perf_counter()
                progress.update(bar, completed=at, line=Rates.of(join, at, matches, started).line())
        # The last windows are worth showing; after the end they are empty.
        progress.update(bar, completed=at, line=Rates.of(join, at, matches, started).line())
        rest = join.finish()
        sample.keep(rest)
        return Rates.of(join, at, matches + rest.num_rows, started)


JOB = """\
# Written by `streamjoin demo`. Run it again with `streamjoin run job.toml`: it resumes from its checkpoint, so put
# new files into left/ or right/ first. To change the join, remove checkpoint/ and out/.

[join]
on = \"\"\"
{predicate}
\"\"\"
window = {window}
lateness = 0  # the rows of either stream come in the order of their times

[left]
time = "ts"
[left.source]
kind = "files"
path = "left"
max_files = 1  # one micro-batch, like some minutes of a live stream

[right]
time = "ts"
[right.source]
kind = "files"
path = "right"
max_files = 1

[sink]
kind = "files"
path = "out"

[run]
checkpoint = "checkpoint"
trigger = "available-now"  # read what is available, then end; "asap" waits for more files
"""


def write_job(folder: Path, left: pa.Table, right: pa.Table, spec: sj.JoinSpec) -> Path:
    """Fill the folder with both streams, cut into files, and the job that joins them; the path of the job file."""
    for side, rows in (("left", left), ("right", right)):
        (folder / side).mkdir(parents=True)
        size = -(-rows.num_rows // FILES_PER_SIDE)
        for number in range(FILES_PER_SIDE):
            path = folder / side / f"{number:03}.parquet"
            pq.write_table(rows.slice(number * size, size), path)
            # Spark reads the oldest file first, so no two files may have the same time.
            os.utime(path, (1e9 + number, 1e9 + number))
    window = spec.window
    assert isinstance(window, sj.TimeWindow)
    both = f"{{ left = {json.dumps(window.left)}, right = {json.dumps(window.right)} }}"
    job = folder / "job.toml"
    text = PREDICATE.replace(" AND left", "\nAND left")
    job.write_text(JOB.format(predicate=text, window=both))
    return job


def read_stream(folder: Path, side: str) -> pa.Table:
    """A stream of the demonstration's folder, including files added later."""
    return ds.dataset(folder / side).to_table()


def read_results(folder: Path, schema: pa.Schema) -> pa.Table:
    """The results of the job: only files listed in the sink's log, so none that is half written. Spark may write times
    in another unit than `schema` has."""
    committed: dict[str, None] = {}
    log = folder / "out" / "_spark_metadata"
    for entry in log.glob("[0-9]*"):
        for line in entry.read_text().splitlines()[1:]:  # the first line is the version
            committed[json.loads(line)["path"].removeprefix("file://")] = None
    return ds.dataset(list(committed)).to_table().cast(schema) if committed else schema.empty_table()
