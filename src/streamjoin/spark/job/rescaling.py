"""`streamjoin rescale` and `streamjoin state`: the checkpoint of a job, brought to other workers, or described.

The job's session does it, on the job's master. The note in the checkpoint that says which job it belongs to gets the
new numbers in the same step as the state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from streamjoin.plan.hot_keys import HotKey, from_json
from streamjoin.plan.options import Partitioning
from streamjoin.spark.checkpoint.exchange import settle
from streamjoin.spark.checkpoint.folder import Folder
from streamjoin.spark.checkpoint.held import JoinState, read_state
from streamjoin.spark.checkpoint.rescale import Rescaled, rescale_checkpoint
from streamjoin.spark.hot_keys import SAMPLE
from streamjoin.spark.job.checkpoint import (
    HOT_KEYS,
    RECORD,
    SPREAD,
    columns_of,
    continued,
    hot_keys_in,
    identity,
    mend,
    recorded,
    refuse_changes,
    refused,
)
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import LoadedJob, load_job
from streamjoin.spark.join.hot_keys import hot_keys_of, why_not_divided
from streamjoin.spark.sessions import SHUFFLE_PARTITIONS
from streamjoin.spark.state.manifest import StateError


def state_of_job(job: Job, spark: SparkSession) -> tuple[JoinState, ...]:
    """What the checkpoint of a job holds. The query may run meanwhile."""
    return read_state(_checkpoint(job), spark)


def rescale_job(
    job: Job,
    spark: SparkSession,
    workers: int,
    partitioning: Partitioning | None,
    say: Callable[[str], object],
) -> tuple[Rescaled, ...]:
    """Bring the checkpoint of a stopped job to another number of workers, and to another partitioning if one is given.
    The job must hold the lock of its checkpoint. Returns nothing if the checkpoint fits already."""
    checkpoint = _checkpoint(job)
    settle(spark, checkpoint)
    folder = Folder(spark, checkpoint)
    if not folder.has(RECORD):
        told = "which `streamjoin run` has not started: set workers in the file, and start it"
        raise refused(job, told)
    if (torn := mend(spark, job)) is not None:
        say(f"micro-batch {torn} was only half written, and will be repeated")
    before, loaded = recorded(folder, job), load_job(job, spark)
    hot = from_json(before.get(HOT_KEYS, "[]"))
    now = _spread(loaded, before, workers, partitioning)
    now = replace(now, hot_keys=_divided_anew(now, hot))
    kept = identity(now.job) | columns_of(now)
    refuse_changes(job, {key: text for key, text in before.items() if key not in SPREAD}, kept)
    noted = kept | hot_keys_in(now)
    partitions = int(job.spark.settings.get(SHUFFLE_PARTITIONS, now.task.routing.workers))
    try:
        return rescale_checkpoint(
            *(spark, checkpoint, [now.task], partitions, say),
            notes={RECORD: json.dumps(noted, indent=1)},
            hot=hot,
        )
    except StateError as error:
        raise StateError(job.without_secrets(str(error))) from None


def _checkpoint(job: Job) -> str:
    if job.run.checkpoint is None:
        raise refused(job, "so the job keeps no state: give it a folder")
    return job.run.checkpoint


def _spread(
    loaded: LoadedJob, before: dict[str, str], workers: int, partitioning: Partitioning | None
) -> LoadedJob:
    """The job on other workers. Its rows are spread as they were, unless another way is given."""
    join = continued(loaded.job.join.model_copy(update={"workers": None}), before)
    changed = {"workers": workers, "partitioning": partitioning or join.partitioning}
    return loaded.with_join(join.model_copy(update=changed)).settled()


def _divided_anew(loaded: LoadedJob, hot: Sequence[HotKey]) -> tuple[HotKey, ...]:
    """The hot keys for the job's workers: those that the file lists, or those that the checkpoint records."""
    task, listed = loaded.task, loaded.job.join.hot_keys
    if why_not_divided(task):
        return ()
    if listed is None or listed == SAMPLE:
        return hot_keys_of(task, [key.share for key in hot])
    return task.routing.hot


def contradictions(job: Job, workers: int, partitioning: Partitioning | None) -> Sequence[str]:
    """What the job file says and the rescaled checkpoint does not: lines to change before the next run."""
    found = []
    if job.join.workers not in (None, workers):
        found.append(f"workers = {job.join.workers}, now {workers}")
    if partitioning is not None and job.join.partitioning not in ("auto", partitioning):
        found.append(f"partitioning = {job.join.partitioning!r}, now {partitioning!r}")
    return found
