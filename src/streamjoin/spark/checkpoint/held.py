"""What a checkpoint holds, read with Spark's own reader of state. The query is not started.

The reader gives what the last committed micro-batch left. A running query does not notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.routing import worker_ids
from streamjoin.spark.state.manifest import UNSHIFTED_VERSION, StateError, check_version

# The state variables of a join's operator. Joins that keep which rows have found a partner have a third.
MANIFEST_VALUE, RUNS, MATCHED = "manifest", "runs", "matched"


@dataclass(frozen=True)
class SideState:
    """What a worker, or all of them, hold of one side, replicas included. `oldest`, `newest`: the times of rows, in
    ticks; None if there are no rows."""

    rows: int
    nbytes: int
    runs: int
    oldest: int | None
    newest: int | None


@dataclass(frozen=True)
class WorkerState:
    """What one worker holds. `partition`: Spark's partition that it runs in."""

    number: int
    partition: int
    left: SideState
    right: SideState


@dataclass(frozen=True)
class JoinState:
    """What a checkpoint holds of one join. `operator`: its number in the query. `batch`: the last committed
    micro-batch. `version`: that of the state's format. `settings`: those that the join was started with."""

    operator: int
    batch: int
    version: int
    partitions: int
    settings: Mapping[str, str]
    workers: tuple[WorkerState, ...]

    def side(self, name: str) -> SideState:
        """What all workers hold of a side."""
        return total([getattr(worker, name) for worker in self.workers])

    @property
    def ticks_are_micros(self) -> bool:
        """Whether times are timestamps, in microseconds since 1970; otherwise they are integers."""
        time, columns = (self.settings.get(name, "") for name in ("left_time", "left"))
        return f"\n{time}: timestamp" in f"\n{columns}"


@dataclass(frozen=True)
class Operator:
    """A stateful operator of a query, as its checkpoint describes it."""

    number: int
    name: str
    partitions: int
    batch: int
    variables: tuple[str, ...]

    @property
    def joins(self) -> bool:
        """Whether it is one of our joins."""
        return {MANIFEST_VALUE, RUNS} <= {*self.variables}


@dataclass(frozen=True)
class HeldManifest:
    """The manifest of one worker. `key`: the worker's grouping key."""

    key: int
    partition: int
    values: dict[str, Any]


def read_state(checkpoint: str, spark: SparkSession | None = None) -> tuple[JoinState, ...]:
    """What a query's checkpoint holds of its joins: rows, bytes, times, workers and version. Starts no query; reads the
    workers' manifests, not their rows.

    `spark`: the session that reads; by default the active one. Raises `StateError` if there is no state of a join.

    Example:
        >>> for join in read_state("/data/checkpoint"):  # doctest: +SKIP
        ...     print(len(join.workers), "workers hold", join.side("left").rows, "rows of left")
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise StreamJoinError("there is no Spark session to read with: give spark=, or start one before")
    found = [operator for operator in operators(session, checkpoint) if operator.joins]
    if not found:
        raise StateError(f"{checkpoint} holds no state of a window join")
    return tuple(join_state(each, manifests(session, checkpoint, each)) for each in found)


def operators(spark: SparkSession, checkpoint: str) -> list[Operator]:
    """The stateful operators of a query. Raises if the checkpoint has none, or no committed micro-batch."""
    try:
        rows = spark.read.format("state-metadata").load(checkpoint).collect()
    except PySparkException as error:
        raise no_state(checkpoint, error) from None
    return sorted((_operator(row) for row in rows), key=lambda operator: operator.number)


def no_state(checkpoint: str, error: Exception) -> StateError:
    """An error about a folder from which no state can be read."""
    why = str(error).strip().splitlines()[0]
    return StateError(
        f"{checkpoint} holds no state that can be read: give the checkpoint of a query that has finished a micro-batch "
        f"({why})"
    )


def _operator(row: Any) -> Operator:
    properties = json.loads(row["operatorProperties"] or "{}")
    variables = tuple(each["stateName"] for each in properties.get("stateVariables", ()))
    return Operator(
        row["operatorId"], row["operatorName"], row["numPartitions"], row["maxBatchId"], variables
    )


def values(spark: SparkSession, checkpoint: str, operator: int, variable: str) -> DataFrame:
    """The values of one state variable."""
    reader = spark.read.format("statestore").option("operatorId", operator)
    return reader.option("stateVarName", variable).load(checkpoint)


def manifests(spark: SparkSession, checkpoint: str, operator: Operator) -> list[HeldManifest]:
    """The manifests of a join's workers that have state."""
    try:
        rows = values(spark, checkpoint, operator.number, MANIFEST_VALUE).collect()
    except PySparkException as error:
        raise no_state(checkpoint, error) from None
    return [
        HeldManifest(row["key"][0], row["partition_id"], _manifest(bytes(row["value"][0]))) for row in rows
    ]


def _manifest(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    check_version(found["version"])
    return found


def join_state(operator: Operator, held: Sequence[HeldManifest]) -> JoinState:
    """What the manifests of a join's workers say together."""
    if not held:
        return JoinState(operator.number, operator.batch, UNSHIFTED_VERSION, operator.partitions, {}, ())
    settings = held[0].values["join"]
    ids = worker_ids(int(settings["workers"]))
    workers = [
        WorkerState(ids.index(each.key), each.partition, *(_side(each, side) for side in SIDES))
        for each in held
    ]
    version = max(each.values["version"] for each in held)
    by_number = tuple(sorted(workers, key=lambda worker: worker.number))
    return JoinState(operator.number, operator.batch, version, operator.partitions, settings, by_number)


def _side(held: HeldManifest, side: str) -> SideState:
    runs = held.values["runs"][side]
    return total([SideState(run["rows"], run["nbytes"], 1, run["oldest"], run["newest"]) for run in runs])


def total(parts: Sequence[SideState]) -> SideState:
    """Several parts together."""
    oldest = [part.oldest for part in parts if part.oldest is not None]
    newest = [part.newest for part in parts if part.newest is not None]
    return SideState(
        sum(part.rows for part in parts),
        sum(part.nbytes for part in parts),
        sum(part.runs for part in parts),
        min(oldest, default=None),
        max(newest, default=None),
    )


def stored_runs(held: Sequence[HeldManifest]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The runs of all workers: the worker's key, the side, and the run as the manifest has it."""
    for each in held:
        for side in SIDES:
            for run in each.values["runs"][side]:
                yield each.key, side, run
