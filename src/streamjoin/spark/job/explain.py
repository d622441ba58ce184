"""`streamjoin run --explain`: the sources, the sink and the plan of a job, as text."""

from __future__ import annotations

from dataclasses import replace

from streamjoin.plan.explain import HeadedLines, laid_out, plan_lines
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.hot_keys import SAMPLE
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.masters import DEFAULT_MASTER, check_master, local_cores
from streamjoin.spark.job.session import packages_of
from streamjoin.spark.job.shown import without_credentials
from streamjoin.spark.join.task import JoinTask


def explain_job(job: Job, master: str | None) -> str:
    """The plan of a job as text, without credentials; no Spark is started."""
    return without_credentials(laid_out(explained(job, master)))


def explained(job: Job, master: str | None) -> HeadedLines:
    """The lines of the plan."""
    chosen = master or job.spark.master or DEFAULT_MASTER
    check_master(chosen)
    workers = job.join.workers or local_cores(chosen)
    lines: HeadedLines = [("job", f"{job.run.name}, on {chosen}, {job.run.trigger}")]
    for side in SIDES:
        lines += [(side, f"{each.kind} {each.place}".rstrip()) for each in job.side(side).sources]
    for name, sink in job.sinks.items():
        lines.append((name, f"{sink.kind} {sink.place}".rstrip()))
    lines.append(("checkpoint", str(job.run.checkpoint or "none: a restart begins anew")))
    lines += [("package", package) for package in packages_of(job)]
    task = job.task(workers or 1)
    if task is None:
        return [*lines, ("join", job.join.on), ("", "select gives columns that only Spark knows")]
    if job.join.hot_keys == SAMPLE:
        lines.append(("hot keys", "found in a sample at the first start; a checkpoint keeps them"))
    return [*lines, *explain_task(task, workers)]


def explain_task(task: JoinTask, workers: int | None) -> HeadedLines:
    """The plan of the join. `workers` is None for a cluster whose size is unknown."""
    plan = task.plan()
    return plan_lines(replace(plan, options=replace(plan.options, workers=workers)))
