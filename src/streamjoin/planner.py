"""Which topology and index run a join, and why: a plain cascade over the spec and what the predicate offers."""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.scan import ScanWindow
from streamjoin.semantics.analysis import Analysis, analyse, describe
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.three_step import ThreeStep

TOPOLOGIES = {"three_step": ThreeStep}
INDEXES = {"scan": ScanWindow}
ORDERS = ("any", "punctuated", "timestamp")


@dataclass(frozen=True)
class Plan:
    """A spec and how it is run. `reasons` are sentences for `explain`."""

    spec: JoinSpec
    topology: str
    index: str
    workers: int
    order: str
    analysis: Analysis | None
    programs: dict[str, WindowProgram]
    reasons: tuple[str, ...]


def make_plan(spec: JoinSpec, topology: str, index: str, workers: int | None, order: str) -> Plan:
    """Check the choices and fill in what is left to us ("auto", None)."""
    if not isinstance(spec, JoinSpec):
        raise SpecError(f"spec is a {type(spec).__name__}: give a JoinSpec")
    _check("topology", topology, ("auto", *TOPOLOGIES))
    _check("index", index, ("auto", *INDEXES))
    _check("order", order, ORDERS)
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise SpecError(f"workers is {workers!r}; allowed: a whole number from 1 on, or None")
    analysis = None if isinstance(spec.predicate, CallablePredicate) else analyse(spec.predicate)
    programs = {
        side: WindowProgram(spec.predicate, None if analysis is None else getattr(analysis, side), side)
        for side in SIDES
    }
    chosen = "three_step" if topology == "auto" else topology
    reasons = [_topology_reason(spec, chosen, topology, workers, order)]
    reasons.append("index scan: every tuple in range is compared, whatever the predicate")
    return Plan(spec, chosen, "scan", TOPOLOGIES[chosen].workers, order, analysis, programs, tuple(reasons))


def _check(what: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise SpecError(f"{what} is {given!r}; allowed: {', '.join(allowed)}")


def _topology_reason(spec: JoinSpec, chosen: str, asked: str, workers: int | None, order: str) -> str:
    why = "as asked" if asked != "auto" else "it has the least latency"
    reason = f"topology {chosen}: {why}; one thread, the caller's"
    if workers is not None and workers > TOPOLOGIES[chosen].workers:
        reason += f" ({workers} workers were asked for)"
    if spec.left_window.rows or spec.right_window.rows:
        return reason + "; tuples wait for their place in the total order, which row windows need"
    if order == "timestamp":
        return reason + "; tuples wait for their place in the total order, so that results leave in order"
    return reason + "; tuples are joined when they arrive"


def explain_plan(plan: Plan) -> str:
    """The plan as text: predicate, split, windows, and how it is run."""
    spec = plan.spec
    unit = spec.time_unit or "ticks"
    lines = [
        f"join         {spec.on if isinstance(spec.on, str) else getattr(spec.on, '__name__', 'callable')}"
    ]
    split = describe(plan.analysis) if plan.analysis else ["a compiled callable"]
    lines += [f"             {line}" for line in split]
    for side in SIDES:
        window = spec.side_window(side)
        length = f"{window.size:,} rows" if window.rows else f"{window.size:,} {unit}"
        lines.append(f"{side} window".ljust(13) + f"{length}; {plan.programs[side].method}")
    lines.append(f"order        {plan.order}")
    lines += [f"plan         {reason}" for reason in plan.reasons]
    return "\n".join(lines)
