"""The physical plan of a join, as frozen data. Executors match on it and decide nothing again.

A `Plan` names the topology and what its nodes are, and has a `WindowPlan` for each side. What can only be known while
tuples come, such as the structure of each subwindow, is a rule in the plan (`WindowPlan.rule`), applied by
`plan/subwindows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from streamjoin.codegen.programs import WindowProgram
from streamjoin.plan.options import Options, StructureName, TopologyName
from streamjoin.semantics.analysis import Analysis
from streamjoin.semantics.spec import SIDES, JoinSpec

# What a window is: scanned; a chain of subwindows; or whichever of the two is cheaper at the moment.
WindowKind = Literal["scan", "chain", "adaptive"]
# How a chain chooses its subwindows: always one structure; by hashing or sorting one equality key; by sorting one or
# two band keys.
Rule = Literal["fixed", "equality", "band"]
# What runs a topology's work: the calling thread, perhaps with helpers; threads that run Python code; nodes compiled
# to machine code, over scanned windows or over hash tables. Keyed nodes hold the tuples of their share of the keys.
NodeKind = Literal["caller", "interpreted", "keyed", "scanning", "hashing"]


@dataclass(frozen=True)
class WindowPlan:
    """How the window of one side is kept and searched.

    `method`: how a scan compares. `bands`: the clauses that subwindows may serve, as numbers of the program's bands,
    and `keys` their keys as SQL. `scanned_up_to`: by the rows of a push, below which size an adaptive window is
    scanned. `residual`: what is left to be checked on the rows of candidate pairs, as SQL.
    """

    kind: WindowKind
    method: str
    structure: StructureName | None
    rule: Rule | None
    bands: tuple[int, ...]
    keys: tuple[str, ...]
    scanned_up_to: Mapping[int, int]
    residual: str | None
    why: str


@dataclass(frozen=True)
class NodePlan:
    """What runs the join: `count` threads or nodes of one kind. `band`: for keyed and hashing nodes, the equality that
    decides which node a tuple belongs to."""

    kind: NodeKind
    count: int
    band: int | None
    why: str


@dataclass(frozen=True)
class Plan:
    """A spec, the options it was planned with, and how it will run. By side: `windows`, and the compiled `programs`
    that prepare and compare tuples. `wait`: the seconds that a push may wait for others, to be joined with them."""

    spec: JoinSpec
    options: Options
    topology: TopologyName
    workers: int
    wait: float
    settles: bool  # tuples wait for their place in the total order
    windows: Mapping[str, WindowPlan]
    nodes: NodePlan
    analysis: Analysis | None
    programs: Mapping[str, WindowProgram]
    reasons: Mapping[str, str]  # why this topology, and why pushes wait or do not

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, for pages and tests."""
        spec = self.spec
        return {
            "on": spec.on if isinstance(spec.on, str) else getattr(spec.on, "__name__", "callable"),
            "windows": {
                side: {"window": str(spec.side_window(side)), **asdict(self.windows[side])} for side in SIDES
            },
            "topology": self.topology,
            "workers": self.workers,
            "nodes": asdict(self.nodes),
            "order": self.options.order,
            "settles": self.settles,
            "wait": self.wait,
            "max_results": self.options.max_results,
            "reasons": dict(self.reasons),
        }
