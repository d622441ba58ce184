"""How a job would be run, in words: what comes from where, how the join is spread and indexed, and why."""

from __future__ import annotations

from streamjoin.plan.explain import Lines, join_lines, laid_out, window_lines
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.session import DEFAULT_MASTER, check_master, cores, packages_of
from streamjoin.spark.job.shown import without_credentials
from streamjoin.spark.join.routing import RANGE_INTERVALS, Routing
from streamjoin.spark.join.task import JoinTask

ROUTES = {
    "hash": "rows go where the hash of their equality keys sends them; none is replicated",
    "range": "rows go where the range of their key sends them, and to the next one where its edge is near",
    "matrix": "left rows go to a row of workers and right rows to a column, so each pair meets once",
    "every": "row windows count all rows, so every worker sees them all and probes for its share",
}


def explain(job: Job, master: str | None) -> str:
    """The plan of a job as text, without credentials; no Spark is started."""
    return without_credentials(laid_out(explained(job, master)))


def explained(job: Job, master: str | None) -> Lines:
    """The lines of the plan."""
    chosen = master or job.spark.master or DEFAULT_MASTER
    check_master(chosen)
    workers = job.join.workers or cores(chosen)
    lines: Lines = [("job", f"{job.run.name}, on {chosen}, {job.run.trigger}")]
    for side in SIDES:
        inputs = getattr(job, side).inputs
        lines += [(side, f"{each.source.kind} {each.source.place}".rstrip()) for each in inputs]
    lines.append(("sink", f"{job.sink.kind} {job.sink.place}".rstrip()))
    lines.append(("checkpoint", str(job.run.checkpoint or "none: a restart begins anew")))
    lines += [("package", package) for package in packages_of(job)]
    task = job.task(workers or 1)
    if task is None:
        return [*lines, ("join", job.join.on), ("", "select gives columns that only Spark knows")]
    return [*lines, *explain_task(task, workers)]


def explain_task(task: JoinTask, workers: int | None) -> Lines:
    """The join's lines: predicate, windows, indexes, routing."""
    plan = task.plan()
    lines = [*join_lines(plan), ("how", task.how), *window_lines(plan)]
    count = (
        f"{task.routing.workers} of {workers}" if workers is not None else "as many as the cluster has cores"
    )
    lines.append(("workers", f"{count}; {task.routing.describe()}: {ROUTES[task.routing.kind]}"))
    replicas = ", ".join(f"{side} {copies(task.routing, side)}" for side in SIDES)
    return [*lines, ("replicas", replicas)] if workers is not None else lines


def copies(routing: Routing, side: str) -> str:
    """How many workers get a row of a side; with ranges only rows near an edge go to two."""
    most = routing.replicas(side)
    return (
        f"{1 + 1 / RANGE_INTERVALS:g} on average, {most} at most"
        if routing.kind == "range" and most > 1
        else str(most)
    )
