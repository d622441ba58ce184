"""The logs of a checkpoint: what Spark notes before and after each micro-batch.

An entry of `offsets` is a line with its version, one of JSON with the watermark and the settings that the query keeps,
and one for each source. An entry of `commits` says that the micro-batch is done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamjoin.spark.checkpoint.folder import Folder, log_entries
from streamjoin.spark.sessions import SHUFFLE_PARTITIONS
from streamjoin.spark.state.manifest import StateError

OFFSET_LOG, COMMITS = "offsets", "commits"


@dataclass(frozen=True)
class Committed:
    """The last committed micro-batch. `spark_ms`: its watermark. `conf`: the settings that the query keeps."""

    batch: int
    spark_ms: int
    conf: Mapping[str, str]


def last_committed(checkpoint: Folder) -> Committed:
    """The last committed micro-batch of a checkpoint. Raises `StateError` if there is none, or if its state has names
    that differ from version to version."""
    commits = log_entries(checkpoint.below(COMMITS))
    if not commits:
        raise StateError(f"{checkpoint} has no committed micro-batch, so there is no state to rescale")
    batch, name = commits[-1]
    if _entry(checkpoint.below(COMMITS).read(name)).get("stateUniqueIds"):
        raise StateError(
            f"{checkpoint} has state in Spark's format 2 of checkpoints, which cannot be rescaled: start a new query "
            "with spark.sql.streaming.stateStore.checkpointFormatVersion=1, which is Spark's default"
        )
    entry = _entry(checkpoint.below(OFFSET_LOG).read(str(batch)))
    return Committed(batch, int(entry["batchWatermarkMs"]), entry["conf"])


def _entry(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text.splitlines()[1])
    return found


def copy_logs(checkpoint: Folder, to: Folder, first: int, partitions: int) -> None:
    """Copy the logs and all other files of a checkpoint, except the state. The settings of micro-batches from `first`
    on get this number of partitions: that is what the query starts with."""
    for name in checkpoint.names():
        if name not in ("state", OFFSET_LOG):
            checkpoint.copy(name, to)
    offsets, copied = checkpoint.below(OFFSET_LOG), to.below(OFFSET_LOG)
    copied.make()
    for number, name in log_entries(offsets):
        text = offsets.read(name)
        copied.write(name, with_partitions(text, partitions) if number >= first else text)


def with_partitions(text: str, partitions: int) -> str:
    """An entry of `offsets` with another number of partitions."""
    version, _, *sources = text.splitlines()
    entry = _entry(text)
    entry["conf"][SHUFFLE_PARTITIONS] = str(partitions)
    return "\n".join([version, json.dumps(entry, separators=(",", ":")), *sources])


def metadata_with_partitions(text: str, partitions: int) -> str:
    """The metadata of a stateful operator with another number of partitions."""
    version, *_ = text.splitlines()
    entry = _entry(text)
    for store in entry["stateStoreInfo"]:
        store["numPartitions"] = partitions
    return "\n".join([version, json.dumps(entry, separators=(",", ":"))])
