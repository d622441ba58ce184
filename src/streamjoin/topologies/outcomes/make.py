"""Choose what makes the result rows of a plan. What the plan does not need is not imported."""

from __future__ import annotations

from collections.abc import Callable

from streamjoin.lazy import LazyRegistry
from streamjoin.topologies.protocol import Task, Topology
from streamjoin.topologies.registry import TOPOLOGY_CLASSES

OUTCOME_CLASSES: LazyRegistry[Callable[..., Topology]] = LazyRegistry(
    all_matches="streamjoin.topologies.outcomes.outcomes:AllMatches",
    as_of="streamjoin.topologies.outcomes.as_of:AsOfJoin",
    nearest="streamjoin.topologies.outcomes.nearest:NearestSearch",
    picked="streamjoin.topologies.outcomes.picked:PickedMatches",
)


def make_topology(task: Task) -> Topology:
    """The topology itself if its matches are the result rows, in the requested order. Otherwise the topology that makes
    result rows from them."""
    plan = task.plan
    if plan.nodes.kind == "last_rows":
        return OUTCOME_CLASSES["as_of"](task)
    if plan.nodes.kind == "searching":
        return OUTCOME_CLASSES["all_matches"](task, OUTCOME_CLASSES["nearest"](task))
    topology = TOPOLOGY_CLASSES[plan.topology](task)
    if plan.spec.keep != "all":
        return OUTCOME_CLASSES["picked"](task, topology)
    return OUTCOME_CLASSES["all_matches"](task, topology) if plan.has_outcomes else topology
