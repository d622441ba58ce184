"""The commands `run`, `demo`, `explain` and `bench`. A mistake is one clear message and exit code 2."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console

import streamjoin as sj
from streamjoin.cli.demo import (
    LEFT,
    PREDICATE,
    RIGHT,
    Sample,
    generate,
    read_results,
    read_stream,
    run_embedded,
    write_job,
)
from streamjoin.cli.run import RunFailed, progress_line, run_job
from streamjoin.cli.schema import parse_schema, parse_window, with_time
from streamjoin.cli.version import version_lines

app = typer.Typer(
    help="Sliding-window joins over two streams, for any predicate.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()
EMBEDDED_SECONDS = 60.0  # of real time, after which the embedded demonstration stops where it is


def print_version(asked: bool) -> None:
    if asked:
        say("\n".join(version_lines()))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=print_version,
            is_eager=True,
            help="Print the versions of streamjoin, Python and the packages it uses.",
        ),
    ] = False,
) -> None:
    """Options that come before a command."""


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where the job and its data are put.")] = Path(
        "streamjoin-demo"
    ),
    embedded: Annotated[
        bool, typer.Option("--embedded", help="In this process, without Spark, Java or a folder.")
    ] = False,
    rate: Annotated[int, typer.Option(min=1, help="Tuples per second of each stream, in stream time.")] = 100,
    minutes: Annotated[float, typer.Option(min=0.01, help="Length of the streams, in stream time.")] = 20,
    window: Annotated[
        str, typer.Option(help="Of both sides; '10 minutes, 0' for left and right.")
    ] = "15 minutes",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated data.")] = 1,
    master: Annotated[str | None, typer.Option(help="Spark master, such as local[4].")] = None,
) -> None:
    """Join the papers' 2-D band benchmark on an embedded Spark, and check a sample against the oracle.

    The job file, the two streams and the results stay in the folder; run there again, it goes on.
    """
    windows = parse_window(window, None)
    spec = sj.JoinSpec(LEFT, RIGHT, on=PREDICATE, window=windows, left_time="ts", right_time="ts")
    rows = max(1, round(rate * minutes * 60))
    if embedded:
        left, right = generate(rows, rate, seed)
        say(
            f"two streams of {rows:,} tuples, {minutes:g} minutes at {rate:,}/s; windows of {window}\non {PREDICATE}"
        )
        sample = Sample(rows)
        rates = run_embedded(left, right, spec, EMBEDDED_SECONDS, sample, console)
        console.print(rates.table())
        # What was not pushed before the time limit is not in the result either.
        report(sample.check(left.slice(0, rates.rows), right.slice(0, rates.rows), spec))
        return
    # Before anything is written: what is missing here?
    jobs, _ = job_part("file"), job_part("session").find_java()
    job = folder / "job.toml"
    if job.exists():
        say(f"{folder} is there already: its job goes on where it ended; remove the folder to begin anew")
    else:
        check_empty(folder)
        say(
            f"writing two streams of {rows:,} rows ({minutes:g} minutes at {rate:,}/s) and a job to {folder}\n"
            f"{PREDICATE}\nwindows of {window}"
        )
        write_job(folder, *generate(rows, rate, seed), spec)
    read = jobs.Job.read(job)
    say(f"`streamjoin run {job} --explain` tells how it is run")
    ended = run_job(read, master, console)
    say(progress_line(ended.progress))
    if ended.stopped:
        say(f"stopped before the end, so there is nothing to check yet: `streamjoin demo {folder}` goes on")
        return
    left, right = read_stream(folder, "left"), read_stream(folder, "right")
    sample = Sample(left.num_rows)
    results = read_results(folder, spec.schema)
    sample.keep(results)
    say(f"{results.num_rows:,} pairs in {folder / 'out'}")
    report(sample.check(left, right, read.spec))


def check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise sj.SpecError(f"{folder} holds something else: give another folder, or remove it")


def report(checked: tuple[int, int, int]) -> None:
    """Say what the oracle found in the sample; exit code 1 if the result differs."""
    expected, missing, wrong = checked
    if missing or wrong:
        say(f"check against the oracle FAILED: of {expected:,} pairs {missing:,} missing, {wrong:,} wrong")
        raise typer.Exit(1)
    if expected:
        say(f"checked against the oracle: all {expected:,} pairs of a sample are there, and no other")
    else:
        say("checked against the oracle: no pair of the sample should match, and none does")


def say(text: str) -> None:
    """Print a line as it is, unwrapped and without colours that mean nothing."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


@app.command()
def run(
    job: Annotated[Path, typer.Argument(help="A job file in TOML; docs/jobs.md describes it.")],
    master: Annotated[
        str | None,
        typer.Option(help="Spark master, such as local[4] or spark://host:7077; wins over the file."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file, and start nothing.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how it would be run, and start nothing.")
    ] = False,
) -> None:
    """Run a job file on Spark; after a stop the same command goes on where it ended."""
    read = job_part("file").Job.read(job)
    if master is not None:
        job_part("session").check_master(master)
    if explain:
        say(job_part("explain").explain(read, master))
    elif dry_run:
        say(f"{job} is in order; nothing was started")
    else:
        say(progress_line(run_job(read, master, console).progress))


def job_part(name: str) -> ModuleType:
    """A module of `streamjoin.spark.job`; without PySpark, an error that says how to install it."""
    try:
        return importlib.import_module(f"streamjoin.spark.job.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("streamjoin"):
            raise
        raise sj.StreamJoinError(
            f"jobs run on Spark, and {error.name} is not installed: pip install 'streamjoin[spark]' "
            "(`streamjoin demo --embedded` needs neither Spark nor Java)"
        ) from None


@app.command()
def explain(
    predicate: Annotated[str, typer.Argument(help="SQL over the tables left and right.")],
    left: Annotated[str, typer.Option(help="Columns of left, such as 'x int, y float, p decimal(10, 2)'.")],
    right: Annotated[str, typer.Option(help="Columns of right.")],
    window: Annotated[
        str | None, typer.Option(help="Time window, such as '15 minutes' or '10 minutes, 0'.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Row window, such as 1000 or '100, 50'.")] = None,
    left_time: Annotated[
        str | None, typer.Option(help="Time column; else ts, which is added if missing.")
    ] = None,
    right_time: Annotated[str | None, typer.Option(help="Likewise for right.")] = None,
    index: Annotated[str, typer.Option(help="auto, scan, hash, bisort, raptable or wibtree.")] = "auto",
    order: Annotated[str, typer.Option(help="any, punctuated or timestamp.")] = "any",
) -> None:
    """Show how a join would be run, and why."""
    left_schema, left_time = with_time(parse_schema(left), left_time)
    right_schema, right_time = with_time(parse_schema(right), right_time)
    windows = parse_window(window, rows)
    spec = sj.JoinSpec(
        left_schema, right_schema, predicate, windows, left_time=left_time, right_time=right_time
    )
    chosen: Any = {"index": index, "order": order}  # checked by the call
    say(sj.explain(spec, **chosen))


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="The benchmark to run; none lists them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller inputs, to see that it works.")] = False,
) -> None:
    """List the benchmarks of the checkout, or run one and store its result."""
    harness = find_harness()
    arguments = [name] if name else ["--list"]
    finished = subprocess.run([sys.executable, str(harness), *arguments, *(["--quick"] if quick else [])])
    raise typer.Exit(finished.returncode)


def find_harness() -> Path:
    """The benchmark harness: of the checkout the package was installed from, else of the current folder."""
    for root in (Path(__file__).parents[3], Path.cwd()):
        harness = root / "benchmarks" / "harness.py"
        if harness.exists():
            return harness
    raise sj.StreamJoinError(
        "the benchmarks are not here: streamjoin was installed without its checkout. Clone the repository and run "
        "`streamjoin bench` (or `make bench`) in it"
    )


def main() -> None:
    """The entry point of the `streamjoin` command."""
    try:
        app()
    except sj.StreamJoinError as error:
        Console(stderr=True).print(
            f"streamjoin: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        raise SystemExit(1 if isinstance(error, RunFailed) else 2) from None
