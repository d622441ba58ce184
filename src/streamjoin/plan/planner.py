"""Which topology and index run a join, and why: a plain cascade over the spec, what the predicate offers, and what is
known of the streams.

Constants of the topology's choice are measured (`benchmarks/topologies/topologies.py`, docs/topologies/README.md).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from streamjoin.codegen.programs import WindowProgram, has_one_key, has_two_ends, is_equality
from streamjoin.index.adaptive import AdaptiveWindow, scanned_up_to
from streamjoin.index.chain import ChainWindow
from streamjoin.index.chooser import BandChoice, EqualityChoice, FixedChoice, Structure
from streamjoin.index.protocol import WindowIndex
from streamjoin.index.rehearsal import rehearse_index, rehearse_residual, rehearse_rows, rehearse_scan
from streamjoin.index.scan import ScanWindow
from streamjoin.index.sliding import RowColumns
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.index.structures.hash import HashSubwindow
from streamjoin.index.structures.raptable import RaPTableSubwindow
from streamjoin.index.structures.wibtree import WiBTreeSubwindow
from streamjoin.semantics.analysis import AccessPath, Analysis, analyse, describe, describe_path
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import IndexNotApplicableError, SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.topologies.celljoin import CellJoin
from streamjoin.topologies.handshake.handshake import Handshake
from streamjoin.topologies.handshake.low_latency import LowLatencyHandshake
from streamjoin.topologies.panjoin.panjoin import PanJoin
from streamjoin.topologies.panjoin.records import rehearse_records
from streamjoin.topologies.protocol import MakeTopology
from streamjoin.topologies.scalejoin.scalejoin import ScaleJoin
from streamjoin.topologies.three_step import ThreeStep

TOPOLOGIES: dict[str, MakeTopology] = {
    "three_step": ThreeStep,
    "handshake": Handshake,
    "low_latency_handshake": LowLatencyHandshake,
    "panjoin": PanJoin,
    "scalejoin": ScaleJoin,
    "celljoin": CellJoin,
}
# Structures for the subwindows of a chain, and whether they serve equalities only.
STRUCTURES: dict[str, tuple[Structure, bool]] = {
    "hash": (HashSubwindow, True),
    "bisort": (BISortSubwindow, False),
    "raptable": (RaPTableSubwindow, False),
    "wibtree": (WiBTreeSubwindow, False),
}
INDEXES = ("scan", *STRUCTURES)
EXPLAINED_BATCHES = (1, 64, 1_024)
MOST_WORKERS = 64
PATIENT = 0.1  # seconds a result may wait, from which on pushes wait for each other
GATHERING = 0.02  # seconds that they do, at most
FEW = 64  # tuples that come meanwhile, below which it is not worth waiting
ORDERS = ("any", "punctuated", "timestamp")


@dataclass(frozen=True)
class Plan:
    """A spec and how it is run. `index` and `programs` are by side, `reasons` are sentences for `explain`."""

    spec: JoinSpec
    topology: str
    index: dict[str, str]
    workers: int
    order: str
    wait: float  # seconds that a push may wait for others, to be joined with them
    adaptive: bool  # the index was left to us: subwindows may differ in structure
    analysis: Analysis | None
    programs: dict[str, WindowProgram]
    reasons: tuple[str, ...]


def make_plan(
    spec: JoinSpec,
    topology: str,
    index: str,
    workers: int | None,
    order: str,
    rate: float | None = None,
    latency: float | None = None,
) -> Plan:
    """Check the choices and fill in what is left to us ("auto", None). `rate`: tuples a second and side that are
    expected; `latency`: seconds that a result may come after its push."""
    if not isinstance(spec, JoinSpec):
        raise SpecError(f"spec is a {type(spec).__name__}: give a JoinSpec")
    _check("topology", topology, ("auto", *TOPOLOGIES))
    _check("index", index, ("auto", *INDEXES))
    _check("order", order, ORDERS)
    if workers is not None and (
        isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= MOST_WORKERS
    ):
        raise SpecError(
            f"workers is {workers!r}; allowed: a whole number from 1 on, up to {MOST_WORKERS}, or None"
        )
    rate, latency = _amount("rate", rate), _amount("latency", latency)
    why, used = "as asked", min(workers or _cores(), MOST_WORKERS)
    if topology == "auto":
        topology, why = "three_step", "who pushes joins, and has the results when that is done"
    analysis = None if isinstance(spec.predicate, CallablePredicate) else analyse(spec.predicate)
    paths = {side: None if analysis is None else analysis.for_window(side) for side in SIDES}
    choices = {side: _choose_index(index, path) for side, path in paths.items()}
    indexes = {side: chosen for side, (chosen, _) in choices.items()}
    programs = {
        side: WindowProgram(spec.predicate, path, side, indexed=indexes[side] != "scan")
        for side, path in paths.items()
    }
    one_equality = all(program.is_one_equality for program in programs.values())
    adaptive = index == "auto" and not (one_equality and TOPOLOGIES[topology].hashes_one_equality)
    if index == "auto" and not adaptive:
        choices = dict.fromkeys(SIDES, ("hash", "for the equality, which compiled nodes look up"))
    wait, why_wait = _choose_wait(rate, latency)
    windows = [f"{side} window: {chosen}, {reason}" for side, (chosen, reason) in choices.items()]
    reasons = (_topology_reason(spec, topology, why, used, order, wait), why_wait, *windows)
    return Plan(spec, topology, indexes, used, order, wait, adaptive, analysis, programs, reasons)


def _choose_wait(rate: float | None, latency: float | None) -> tuple[float, str]:
    """Seconds that pushes wait for each other, and why."""
    if latency is None:
        return 0.0, "pushes: each by itself, as nothing says that results may wait (latency)"
    if latency < PATIENT:
        return 0.0, f"pushes: each by itself, since results may wait only {latency:g} s"
    wait = f"{1e3 * GATHERING:g} ms"
    if rate is not None and 2 * rate * GATHERING < FEW:
        return (
            0.0,
            f"pushes: each by itself, since fewer than {FEW} tuples come in {wait} at {rate:g} a second and side",
        )
    return (
        GATHERING,
        f"pushes: gathered for up to {wait} and joined together, which is faster, since results may wait {latency:g} s",
    )


def make_window(plan: Plan, side: str, rows: Mapping[str, RowColumns] | None = None) -> WindowIndex:
    """The window of one side, empty. An index does not hold again what `rows` hold of its side."""
    program = plan.programs[side]
    if plan.index[side] == "scan":
        return ScanWindow(program)
    choose, held = _chooser(plan, side), (rows or {}).get(side)
    if plan.adaptive:
        return AdaptiveWindow(program, choose, held)
    return ChainWindow(choose, len(program.keys.keys), rows=held)


def _chooser(plan: Plan, side: str) -> FixedChoice:
    """What chooses the subwindows of an indexed window."""
    program, name = plan.programs[side], plan.index[side]
    structure, equality = STRUCTURES[name]
    bands = program.indexable(equality)
    if plan.adaptive and equality:
        return EqualityChoice(program, name, structure, bands, ("bisort", STRUCTURES["bisort"][0]))
    if plan.adaptive:
        return BandChoice(program, name, structure, bands)
    return FixedChoice(program, name, structure, bands)


def compile_plan(plan: Plan) -> None:
    """Compile every kernel that the plan may need, or load it from the cache: seconds the first time, then
    milliseconds. A push compiles nothing afterwards."""
    schemas = {side: plan.spec.side_schema(side) for side in SIDES}
    rehearse_rows(schemas)
    for side in SIDES:
        program, indexed = plan.programs[side], plan.index[side] != "scan"
        if plan.adaptive or not indexed:
            rehearse_scan(program, schemas)
        rehearse_residual(program, schemas)
        for make, access in _chooser(plan, side).alternatives() if indexed else ():
            rehearse_index(program, make, access, schemas)
            if plan.topology == "panjoin" and make is BISortSubwindow:
                rehearse_records(access.dtype)


def _choose_index(asked: str, path: AccessPath | None) -> tuple[str, str]:
    """The index of one window, and why."""
    served = [] if path is None else [clause for clause in path.clauses if has_one_key(clause)]
    equality, interval = any(map(is_equality, served)), any(map(has_two_ends, served))
    if asked == "scan":
        return "scan", "as asked"
    if asked != "auto":
        if not served or (STRUCTURES[asked][1] and not equality):
            raise IndexNotApplicableError(_not_applicable(asked, path))
        return asked, "as asked"
    if path is None:
        return "scan", "a callable offers no key"
    if equality:
        return "hash", "for the equality, once the window is too large to be scanned"
    if interval:
        return "bisort", "for the interval condition, once the window is too large to be scanned"
    if not served:
        return "scan", "the predicate has no condition on one key"
    if path.residual is not None or len(served) < len(path.clauses):
        return (
            "scan",
            "which decides the whole predicate; an index would find half-open intervals and leave the rest",
        )
    return "bisort", "for the half-open interval, once the window is too large to be scanned"


def _not_applicable(asked: str, path: AccessPath | None) -> str:
    needs = "an equality" if STRUCTURES[asked][1] else "an equality or interval condition on one key"
    if path is None:
        return f"index {asked!r} needs {needs}, and a callable offers none; allowed: auto, scan"
    offers = "; ".join(describe_path(path))
    return f"index {asked!r} needs {needs} for the {path.stored} window; the predicate offers: {offers}"


def _cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(what: str, given: object, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise SpecError(f"{what} is {given!r}; allowed: {', '.join(allowed)}")


def _amount(what: str, given: object) -> float | None:
    if given is None:
        return None
    with contextlib.suppress(OverflowError):  # of numbers that are too large for a float
        if not isinstance(given, bool) and isinstance(given, Real) and 0 < float(given) < math.inf:
            return float(given)
    raise SpecError(f"{what} is {given!r}; allowed: a number above 0, or None if it is not known")


def _topology_reason(spec: JoinSpec, chosen: str, why: str, used: int, order: str, wait: float) -> str:
    threads = f"{used} thread{'s' if used > 1 else ''} of its own"
    who = f"{threads}, working on between calls; results come with a later poll"
    if chosen == "celljoin":
        who = f"{threads}, which push waits for"
    elif chosen == "three_step" and used > 1:
        who = f"the caller's thread, and {used - 1} more for larger batches"
    elif chosen == "three_step":
        who = "one thread, the caller's"
    reason = f"topology {chosen}: {why}; {who}"
    if spec.left_window.rows or spec.right_window.rows:
        return reason + "; tuples wait for their place in the total order, which row windows need"
    if order == "timestamp":
        return reason + "; tuples wait for their place in the total order, so that results leave in order"
    return reason + ("; tuples are joined in any order" if wait else "; tuples are joined when they arrive")


def _method(plan: Plan, side: str) -> str:
    name = plan.index[side]
    if name == "scan":
        return plan.programs[side].method
    return f"{name} index{', scanned while it is small' if plan.adaptive else ''}"


def _index_reasons(plan: Plan) -> list[str]:
    """What windows that are left to us become, and when."""
    if not plan.adaptive:
        return []
    reasons = []
    for side in SIDES:
        if plan.index[side] != "scan":
            program = plan.programs[side]
            sizes = [f"{scanned_up_to(program, batch):,} at {batch:,}" for batch in EXPLAINED_BATCHES]
            reasons.append(
                f"{side} window: scanned up to about so many tuples at so many rows a push: {', '.join(sizes)};"
                " fewer if many pairs match"
            )
            reasons.append(f"{side} window: then {_chooser(plan, side).text}; chosen anew for each subwindow")
    if reasons:
        reasons.append(
            "raptable and wibtree only if asked for: where measured, at most 9 % faster than what is chosen, or slower"
        )
    return reasons


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
        lines.append(f"{side} window".ljust(13) + f"{length}; {_method(plan, side)}")
    lines.append(f"order        {plan.order}")
    lines += [f"plan         {reason}" for reason in [*plan.reasons, *_index_reasons(plan)]]
    return "\n".join(lines)
