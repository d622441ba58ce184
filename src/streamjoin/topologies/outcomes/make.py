"""What gives the result rows of a plan."""

from __future__ import annotations

from streamjoin.topologies.outcomes.as_of import AsOfJoin
from streamjoin.topologies.outcomes.outcomes import AllMatches
from streamjoin.topologies.outcomes.picked import PickedMatches
from streamjoin.topologies.protocol import Task, Topology
from streamjoin.topologies.registry import TOPOLOGY_CLASSES


def make_topology(task: Task) -> Topology:
    """The topology itself where its matches are the result, in the order asked for; else what makes rows of them."""
    plan = task.plan
    if plan.nodes.kind == "last_rows":
        return AsOfJoin(task)
    topology = TOPOLOGY_CLASSES[plan.topology](task)
    if plan.spec.keep != "all":
        return PickedMatches(task, topology)
    return AllMatches(task, topology) if plan.has_outcomes else topology
