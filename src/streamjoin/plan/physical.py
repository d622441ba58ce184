"""The physical plan of a join, as frozen data. Executors match on it and decide nothing again.

A `Plan` names the topology and the kind of its nodes, and has a `WindowPlan` for each side. On Spark it also says which
workers get a row (`Routing`). Some choices depend on the tuples, such as the structure of each subwindow. For these the
plan has a rule (`WindowPlan.rule`), which `plan/subwindows.py` applies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from streamjoin.codegen.programs import WindowProgram
from streamjoin.plan.drawing import WIDTH, plan_drawing
from streamjoin.plan.matching import matching_order, sorts_late
from streamjoin.plan.options import Options, Order, StructureName, TopologyName
from streamjoin.plan.ranges import KeyRange, key_ranges
from streamjoin.plan.routing import Routing
from streamjoin.plan.searching import SearchPlan
from streamjoin.plan.tuning import DEFAULT_TUNING, Tuning
from streamjoin.semantics.analysis import Analysis
from streamjoin.semantics.durations import duration_text
from streamjoin.semantics.errors import short_repr
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.windows import Delta

# A window is scanned, is a chain of subwindows, or switches to the cheaper of the two.
WindowKind = Literal["scan", "chain", "adaptive"]
# How a chain chooses its subwindows: always the same structure (fixed); an equality key, hashed or sorted (equality);
# one or two band keys, sorted (band).
Rule = Literal["fixed", "equality", "band"]
# What runs a topology's work: the calling thread, perhaps with helper threads (caller); the calling thread, which looks
# up the last row of each key (last_rows) or searches for the nearest rows (searching); threads that run Python code
# (interpreted), each with its share of the keys (keyed); nodes compiled to machine code, which scan (scanning) or use
# hash tables (hashing); Spark's tasks (spark).
NodeKind = Literal["caller", "last_rows", "searching", "interpreted", "keyed", "scanning", "hashing", "spark"]


@dataclass(frozen=True)
class RunPlan:
    """Which of a worker's stored runs are indexed on Spark: those with at least `indexed_rows` rows, once at least
    `indexed_probes` rows probe them. All others are scanned."""

    indexed_rows: int
    indexed_probes: int


@dataclass(frozen=True)
class WindowPlan:
    """How the window of one side is kept and searched.

    `method`: how a scan compares. `bands`: the bands that subwindows may serve, as numbers of the program's bands, and
    `keys` their keys as SQL. `scanned_up_to`: an adaptive window is scanned below this many tuples, by the rows of a
    push. `residual`: the condition that is checked on the rows of candidate pairs, as SQL, shortened. `runs`: on
    Spark, where a window consists of stored runs, which of them are indexed; None if all are scanned.
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
    runs: RunPlan | None = None


@dataclass(frozen=True)
class NodePlan:
    """What runs the join: `count` threads or nodes of one kind. `band`: for keyed and hashing nodes, the equality that
    decides which node a tuple belongs to, and `key` that equality as SQL."""

    kind: NodeKind
    count: int
    band: int | None
    why: str
    key: str | None = None


@dataclass(frozen=True, repr=False)
class Plan:
    """A spec, the options it was planned with, and how it will run.

    `matching`: the inner join that the topology runs; `how` and the spec's `keep` make result rows of its matches.
    `delta`: only matches with these differences of time count; None if all count. `windows`: the plans by side.
    `programs`: by side, what prepares and compares tuples, compiled. `wait`: how many seconds a push may wait to be
    joined together with others. `routing`: on Spark, which workers get a row. `search`: what searching nodes look for.
    """

    spec: JoinSpec
    matching: JoinSpec
    delta: Delta | None
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
    routing: Routing | None = None
    search: SearchPlan | None = None
    tuning: Tuning = DEFAULT_TUNING  # cost and memory, never the result; `to_dict` leaves it out

    @cached_property
    def key_ranges(self) -> dict[str, KeyRange]:
        """By side, a key whose ranges can spread rows, if there is one. Compiles the predicate's bounds."""
        return {} if self.analysis is None else key_ranges(self.spec, self.analysis)

    @property
    def has_outcomes(self) -> bool:
        """Whether `topologies/outcomes` makes the result rows; otherwise the matches are the result rows."""
        return (
            self.spec.how != "inner"
            or self.spec.keep != "all"
            or self.sorts_results
            or self.delta is not None
        )

    @property
    def sorts_results(self) -> bool:
        """Whether result rows are sorted after the topology, which then need not sort its matches."""
        return self.options.order == "timestamp" and sorts_late(self.spec)

    @property
    def matching_order(self) -> Order:
        """The order in which the topology gives its matches."""
        return matching_order(self.spec, self.options.order)

    def __repr__(self) -> str:
        workers = f"{self.workers} worker{'s' * (self.workers != 1)}"
        return (
            f"<Plan: {self.topology}, {workers}, {self.spec.how} join on {short_repr(self.to_dict()['on'])}>"
        )

    def _repr_html_(self) -> str:
        return f'<div style="max-width:{WIDTH}px">{plan_drawing(self.to_dict())}</div>'

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, for pages and tests."""
        spec = self.spec
        return {
            "on": spec.on if isinstance(spec.on, str) else getattr(spec.on, "__name__", "callable"),
            "keep": spec.keep if isinstance(spec.keep, str) else str(spec.keep),
            "windows": {
                side: {"window": window_text(spec, side), **asdict(self.windows[side])} for side in SIDES
            },
            "engine": self.options.engine,
            "partitioning": self.options.partitioning,
            "rate": self.options.rate,
            "latency": self.options.latency,
            "how": spec.how,
            "topology": self.topology,
            "workers": self.workers,
            "nodes": asdict(self.nodes),
            "order": self.options.order,
            "settles": self.settles,
            "wait": self.wait,
            "max_results": self.options.max_results,
            "reasons": dict(self.reasons),
            "routing": None if self.routing is None else self.routing.to_dict(),
        }


def window_text(spec: JoinSpec, side: str) -> str:
    """How long, or for how many later rows, rows of a side wait for partners."""
    window, unit = spec.side_window(side), spec.time_unit
    if window.rows:
        return f"{window.size:,} rows"
    if window.size < 0:
        return f"partners are at least {duration_text(-window.size, unit)} older"
    return duration_text(window.size, unit)
