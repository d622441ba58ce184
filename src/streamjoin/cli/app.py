"""The `streamjoin` command. A mistake is one clear message and exit code 2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import streamjoin as sj
from streamjoin.cli import checkpoints
from streamjoin.cli.bench import run_benchmark
from streamjoin.cli.demo_run import embedded_demo, spark_demo
from streamjoin.cli.jobs import job_module
from streamjoin.cli.run import RunFailed, progress_line, run_job
from streamjoin.cli.schema import parse_schema, parse_window, with_time
from streamjoin.cli.terminal import say, terminal
from streamjoin.cli.tree import say_tree
from streamjoin.cli.version import version_lines
from streamjoin.cli.warm import warm
from streamjoin.page.open import LOOPBACK

app = typer.Typer(
    help="Sliding-window joins over two streams, for any predicate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
# What users do not need. Its commands also have their names of 0.1, without `dev`, which the help does not list.
dev = typer.Typer(
    help="For developers of streamjoin: benchmarks, and joins as circuits.", no_args_is_help=True
)
app.add_typer(dev, name="dev")


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


@app.command("demo")
def demo_command(
    folder: Annotated[Path, typer.Argument(help="The folder for the job and its data.")] = Path(
        "streamjoin-demo"
    ),
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Run in this process, without Spark, Java or a folder.")
    ] = False,
    rate: Annotated[int, typer.Option(min=1, help="Rows per second of each stream, in stream time.")] = 100,
    minutes: Annotated[float, typer.Option(min=0.01, help="Length of the streams, in stream time.")] = 20,
    window: Annotated[
        str, typer.Option(help="The window of both sides; '10 minutes, 0' for left and right.")
    ] = "15 minutes",
    seed: Annotated[int, typer.Option(min=0, help="The seed of the generated data.")] = 1,
    master: Annotated[str | None, typer.Option(help="A Spark master, such as local[4].")] = None,
) -> None:
    """Join the papers' 2-D band benchmark on a local Spark, and check a sample against the oracle.

    The job file, the two streams and the results stay in the folder; run there again, the job resumes.
    """
    rows = max(1, round(rate * minutes * 60))
    if embedded:
        right = embedded_demo(rows, rate, window, seed)
    else:
        right = spark_demo(folder, rows, rate, window, seed, master)
    raise typer.Exit(0 if right else 1)


@app.command("run")
def run_command(
    job: Annotated[Path, typer.Argument(help="A job file in TOML; docs/jobs.md describes it.")],
    master: Annotated[
        str | None,
        typer.Option(help="A Spark master, such as local[4] or spark://host:7077; wins over the file."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file, and start nothing.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how the job would run, and start nothing.")
    ] = False,
    page: Annotated[
        bool,
        typer.Option("--page", help="Show the run in the browser: a page on this machine, at a free port."),
    ] = False,
    page_at: Annotated[
        str | None,
        typer.Option(
            help="As --page, at HOST:PORT, such as localhost:8155. 0.0.0.0:8155 shows it to everyone who can connect."
        ),
    ] = None,
) -> None:
    """Run a job file on Spark; after a stop, the same command resumes it."""
    place = (LOOPBACK, 0) if page and page_at is None else page_place(page_at)
    read = job_module("file").Job.read(job)
    if master is not None:
        job_module("masters").check_master(master)
    if explain:
        say_tree(job_module("explain").explain_job(read, master), f"how {job} would run")
    elif dry_run:
        say(f"{job} has no mistakes; nothing was started")
    else:
        say(progress_line(run_job(read, master, terminal, place).progress))


def page_place(text: str | None) -> tuple[str, int] | None:
    """The host and port of `--page-at`."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5:
        raise sj.StreamJoinError(
            f"--page-at is {text!r}: give HOST:PORT, such as localhost:8155 or [::1]:8155",
            field="--page-at",
            given=text,
            allowed="HOST:PORT",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


@app.command("warm")
def warm_command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="Job files, and joins as module:name, the name of a JoinSpec or of a list or dict of them."
        ),
    ] = None,
) -> None:
    """Compile kernels ahead, such as while an image is built: those of the library, and those of the given joins.

    Prints how many were compiled, and the folder they are in. STREAMJOIN_CACHE_DIR chooses that folder. Compiled
    kernels are for the user and the kind of processor that compiled them.
    """
    warm(what or ())


@app.command("state")
def state_command(
    job: Annotated[Path, typer.Argument(help="A job file; its run.checkpoint is read.")],
    master: Annotated[str | None, typer.Option(help="A Spark master, as for run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; times are ticks.")] = False,
) -> None:
    """Show what a job's checkpoint holds: rows, bytes and times of each worker.

    The query is not started. It may run meanwhile.
    """
    read = job_module("file").Job.read(job)
    joins = checkpoints.run_state(read, master, Console(stderr=True) if as_json else terminal)
    if as_json:
        print(checkpoints.state_json(joins))
        return
    for join in joins:
        say(checkpoints.state_heading(join))
        terminal.print(checkpoints.state_table(join))


@app.command("rescale")
def rescale_command(
    job: Annotated[Path, typer.Argument(help="A job file whose query is stopped.")],
    workers: Annotated[
        int, typer.Option(min=1, max=1 << 16, help="How many parts the join is to be divided into.")
    ],
    partitioning: Annotated[
        str | None, typer.Option(help="hash, range or matrix; without it as before.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master, as for run.")] = None,
) -> None:
    """Bring a stopped job's checkpoint to another number of workers; then run it again.

    No row is lost or repeated. The old checkpoint is replaced at the end, in one step: the command can be interrupted
    at any moment and repeated.
    """
    checkpoints.check_partitioning(partitioning)
    read = job_module("file").Job.read(job)
    done = checkpoints.run_rescale(read, master, workers, partitioning, terminal)
    for each in done:
        say(checkpoints.rescaled_line(each))
    if not done:
        say(f"{job}: the checkpoint fits already; nothing was changed")
    for line in job_module("rescaling").contradictions(read, workers, partitioning):
        say(f"change this in {job} before you run it: {line}")


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of job files, for completion and checks in editors."""
    print(job_module("file").job_schema())


@app.command("explain")
def explain_command(
    predicate: Annotated[str, typer.Argument(help="SQL over the tables left and right.")],
    left: Annotated[str, typer.Option(help="Columns of left, such as 'x int, y float, p decimal(10, 2)'.")],
    right: Annotated[str, typer.Option(help="Columns of right.")],
    window: Annotated[
        str | None, typer.Option(help="Time window, such as '15 minutes' or '10 minutes, 0'.")
    ] = None,
    rows: Annotated[str | None, typer.Option(help="Row window, such as 1000 or '100, 50'.")] = None,
    left_time: Annotated[
        str | None, typer.Option(help="Time column; by default ts, which is added if missing.")
    ] = None,
    right_time: Annotated[str | None, typer.Option(help="The same for right.")] = None,
    index: Annotated[str, typer.Option(help="auto, scan, hash, bisort, raptable or wibtree.")] = "auto",
    order: Annotated[str, typer.Option(help="any, punctuated or timestamp.")] = "any",
) -> None:
    """Show how a join would run, and why."""
    left_schema, left_time = with_time(parse_schema(left), left_time)
    right_schema, right_time = with_time(parse_schema(right), right_time)
    windows = parse_window(window, rows)
    spec = sj.JoinSpec(
        left_schema, right_schema, predicate, windows, left_time=left_time, right_time=right_time
    )
    chosen: Any = {"index": index, "order": order}  # checked by the call
    say_tree(sj.explain(spec, **chosen), "how the join would run")


def bench_command(
    name: Annotated[str | None, typer.Argument(help="The benchmark to run; without it, list them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller inputs, to see that it works.")] = False,
) -> None:
    """List the benchmarks of the checkout, or run one and store its result."""
    raise typer.Exit(run_benchmark(name, quick))


dev.command("bench")(bench_command)
app.command("bench", hidden=True)(bench_command)


def main() -> None:
    """The entry point of the `streamjoin` command."""
    try:
        app()
    except sj.StreamJoinError as error:
        Console(stderr=True).print(
            f"streamjoin: {error}", style="red", markup=False, highlight=False, soft_wrap=True
        )
        raise SystemExit(1 if isinstance(error, RunFailed) else 2) from None
