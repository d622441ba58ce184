"""Compiles the kernels of a job's workers ahead, without Spark."""

from __future__ import annotations

from streamjoin.semantics.errors import SpecError
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.masters import DEFAULT_MASTER, local_cores
from streamjoin.spark.join.rehearsal import rehearse_task


def compile_job(job: Job) -> None:
    """Compile what the workers of a job call."""
    workers = job.join.workers or local_cores(job.spark.master or DEFAULT_MASTER)
    task = job.task(workers or 1)
    if task is None:
        raise SpecError(
            f"{job.path} has a select whose columns only Spark knows, so its kernels cannot be compiled ahead: compile "
            "those of a JoinSpec with the same columns, as module:name",
            field="job",
            given=str(job.path),
            allowed="a job file that declares its columns",
        )
    rehearse_task(task)
