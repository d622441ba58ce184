"""`streamjoin demo`: run the demonstration, embedded or as a job on Spark, and check a sample against the oracle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from rich.table import Table

import streamjoin as sj
from streamjoin.cli.demo import (
    LEFT_SCHEMA,
    PREDICATE,
    RIGHT_SCHEMA,
    Sample,
    generate,
    read_results,
    read_stream,
    run_embedded,
    write_job,
)
from streamjoin.cli.jobs import job_module
from streamjoin.cli.run import progress_line, run_job
from streamjoin.cli.schema import parse_window
from streamjoin.cli.terminal import say, terminal

EMBEDDED_SECONDS = 60.0  # of real time, after which the embedded demonstration stops
SHOWN_PAIRS = 5  # pairs that are printed
STORY = """\
Two sensors report positions: the left one (x, y), the right one (a, b), each at a time. A pair is two reports of nearly
the same place: both coordinates differ by at most 10, and the times by at most the window."""


def embedded_demo(rows: int, rate: int, window: str, seed: int) -> bool:
    """Join in this process; return whether the sample's pairs are those of the oracle."""
    spec = demo_spec(window)
    left, right = generate(rows, rate, seed)
    say(f"{STORY}\n\ntwo streams of {streams_text(rows, rate)}; windows of {window}\non {PREDICATE}")
    sample = Sample(rows)
    rates = run_embedded(left, right, spec, EMBEDDED_SECONDS, sample, terminal)
    terminal.print(rates.table())
    terminal.print(pairs_table(pa.concat_tables(sample.results), rates.matches))
    # Rows that were not pushed before the time limit are not in the result.
    return say_checked(*sample.check(left.slice(0, rates.rows), right.slice(0, rates.rows), spec))


def spark_demo(folder: Path, rows: int, rate: int, window: str, seed: int, master: str | None) -> bool:
    """Join on Spark, in a folder that stays; return whether the sample's pairs are those of the oracle."""
    spec = demo_spec(window)
    # Report missing packages or a missing Java before anything is written.
    jobs, _ = job_module("file"), job_module("session").find_java()
    job = folder / "job.toml"
    if job.exists():
        say(f"{folder} exists: its job resumes from its checkpoint; remove the folder to start anew")
    else:
        check_empty(folder)
        say(
            f"{STORY}\n\nwriting a job and two streams of {streams_text(rows, rate)} to {folder}\n"
            f"{PREDICATE}\nwindows of {window}"
        )
        write_job(folder, *generate(rows, rate, seed), spec)
    read = jobs.Job.read(job)
    say(f"`streamjoin run {job} --explain` shows how it is run")
    finished = run_job(read, master, terminal)
    say(progress_line(finished.progress))
    if finished.stopped:
        say(f"stopped before the end, so nothing is checked yet: `streamjoin demo {folder}` resumes")
        return True
    left, right = read_stream(folder, "left"), read_stream(folder, "right")
    sample = Sample(left.num_rows)
    results = read_results(folder, spec.schema)
    sample.keep(results)
    terminal.print(pairs_table(results, results.num_rows))
    say(f"all {results.num_rows:,} pairs are in {folder / 'out'}")
    return say_checked(*sample.check(left, right, read.spec))


def demo_spec(window: str) -> sj.JoinSpec:
    windows = parse_window(window, None)
    return sj.JoinSpec(
        LEFT_SCHEMA, RIGHT_SCHEMA, on=PREDICATE, window=windows, left_time="ts", right_time="ts"
    )


def pairs_table(pairs: pa.Table, count: int) -> Table:
    """The first of the pairs, as a table to print: what each sensor saw, and how far apart. `count` are all."""
    first = pairs.sort_by([("ts_right", "ascending"), ("ts", "ascending")]).slice(0, SHOWN_PAIRS)
    table = Table(title=f"{first.num_rows} of {count:,} pairs", title_justify="left")
    for heading in ("left at", "x", "y", "right at", "a", "b", "seconds apart"):
        table.add_column(heading, justify="left" if heading.endswith(" at") else "right")
    for row in first.to_pylist():
        apart = (row["ts_right"] - row["ts"]).total_seconds()
        left, right = (f"{row[name]:%H:%M:%S}" for name in ("ts", "ts_right"))
        place = [f"{row[name]:,.0f}" if name in "xa" else f"{row[name]:,.1f}" for name in "xyab"]
        table.add_row(left, *place[:2], right, *place[2:], f"{apart:+,.0f}")
    return table


def streams_text(rows: int, rate: int) -> str:
    return f"{rows:,} rows ({rows / rate / 60:.3g} minutes at {rate:,}/s)"


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise sj.SpecError(
            f"{folder} holds something else: give another folder, or remove it",
            field="folder",
            given=str(folder),
            allowed="a folder that is empty or does not exist",
        )


def say_checked(expected: int, missing: int, wrong: int) -> bool:
    """Print what the oracle found in the sample; return whether the result is right."""
    if missing or wrong:
        say(f"check against the oracle FAILED: of {expected:,} pairs {missing:,} missing, {wrong:,} wrong")
    elif expected:
        say(f"checked against the oracle: all {expected:,} pairs of a sample are there, and no other")
    else:
        say("checked against the oracle: no pair of the sample should match, and none does")
    return not (missing or wrong)
