"""From a spec and options to a plan: plain cascades over what the predicate offers and what the caller asked for.

The constants are measured (`benchmarks/topologies/topologies.py`, docs/topologies/README.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from streamjoin.codegen.programs import COMPOSITE, WindowProgram, has_one_key, has_two_ends, is_equality
from streamjoin.plan.costs import EXPLAINED_BATCHES, scanned_up_to
from streamjoin.plan.options import MOST_WORKERS, IndexName, Options, StructureName, TopologyName
from streamjoin.plan.physical import NodePlan, Plan, Rule, WindowPlan
from streamjoin.plan.subwindows import BandKey, condition_of
from streamjoin.semantics.analysis import AccessPath, analyse, describe_path
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import IndexNotApplicableError, SpecError
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.spec import SIDES, JoinSpec

PATIENT = 0.1  # gather pushes if results may wait this many seconds or more
GATHERING = 0.02  # gather them for at most this many seconds
FEW_GATHERED = 64  # unless fewer tuples than this are expected to come meanwhile
EQUALITY_ONLY: tuple[StructureName, ...] = ("hash",)


@dataclass(frozen=True)
class Traits:
    """What the choices need to know of a topology. `shares_rows`: its windows may read the columns of pushed rows in
    place. `hashes_one_equality`: it is faster with hash tables from the first tuple on where one equality is the whole
    predicate. `results`: when a push's results are ready."""

    results: str
    shares_rows: bool = False
    hashes_one_equality: bool = False


LATER = "results come with a later poll"
TRAITS: Mapping[TopologyName, Traits] = {
    "three_step": Traits("results are ready when push returns", shares_rows=True),
    "celljoin": Traits("push waits for them"),
    "handshake": Traits(LATER),
    "low_latency_handshake": Traits(LATER, hashes_one_equality=True),
    "scalejoin": Traits(LATER),
    "panjoin": Traits(LATER),
}


def make_plan(spec: JoinSpec, options: Options | None = None) -> Plan:
    """Fill in what the options leave open ("auto", None), and refuse what does not fit the predicate."""
    if not isinstance(spec, JoinSpec):
        raise SpecError(f"spec is a {type(spec).__name__}: give a JoinSpec")
    options = options or Options()
    topology, why = _choose_topology(options)
    workers = min(options.workers or available_cores(), MOST_WORKERS)
    analysis = None if isinstance(spec.predicate, CallablePredicate) else analyse(spec.predicate)
    paths = {side: None if analysis is None else analysis.for_window(side) for side in SIDES}
    indexes = {side: choose_index(options.index, path) for side, path in paths.items()}
    programs = {
        side: WindowProgram(spec.predicate, path, side, indexed=indexes[side][0] != "scan")
        for side, path in paths.items()
    }
    hashed = TRAITS[topology].hashes_one_equality and all(p.is_one_equality for p in programs.values())
    windows = {
        side: _plan_window(programs[side], *indexes[side], options.index == "auto", hashed) for side in SIDES
    }
    rows = any(spec.side_window(side).rows for side in SIDES)
    settles = rows or options.order == "timestamp"
    wait, why_wait = _choose_wait(options)
    nodes = _choose_nodes(topology, workers, windows, programs)
    reasons = {"topology": why, "pushes": why_wait, "settling": _settling_reason(rows, settles, wait)}
    return Plan(spec, options, topology, workers, wait, settles, windows, nodes, analysis, programs, reasons)


def _choose_topology(options: Options) -> tuple[TopologyName, str]:
    if options.topology != "auto":
        return options.topology, "as asked"
    return "three_step", "runs in the calling thread; results are ready when push() returns"


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _choose_wait(options: Options) -> tuple[float, str]:
    """For how many seconds pushes are gathered, and why."""
    latency, rate, wait = options.latency, options.rate, f"{1e3 * GATHERING:g} ms"
    if latency is None:
        return 0.0, "joined one by one, because no latency says that results may wait"
    if latency < PATIENT:
        return 0.0, f"joined one by one, because results may wait only {latency:g} s"
    if rate is not None and 2 * rate * GATHERING < FEW_GATHERED:
        return 0.0, (
            f"joined one by one, because fewer than {FEW_GATHERED} tuples come in {wait} at {rate:g} a second and side"
        )
    return GATHERING, (
        f"gathered for up to {wait} and joined together, which is faster, because results may wait {latency:g} s"
    )


def _settling_reason(rows: bool, settles: bool, wait: float) -> str:
    if rows:
        return "wait for their place in the total order, which row windows need"
    if settles:
        return "wait for their place in the total order, so that results leave in order"
    return "are joined in any order" if wait else "are joined as soon as they arrive"


# Windows


def choose_index(asked: str, path: AccessPath | None) -> tuple[IndexName, str]:
    """The index of one window, and why."""
    served = [] if path is None else [clause for clause in path.clauses if has_one_key(clause)]
    equality, interval = any(map(is_equality, served)), any(map(has_two_ends, served))
    match asked:
        case "scan":
            return "scan", "as asked"
        case "hash" | "bisort" | "raptable" | "wibtree":
            if not served or (asked in EQUALITY_ONLY and not equality):
                raise IndexNotApplicableError(_not_applicable(asked, path), field="index", given=asked)
            return asked, "as asked"
    if path is None:
        return "scan", "a callable offers no key"
    if equality:
        return "hash", "serves the equality once the window is too large to be scanned"
    if interval:
        return "bisort", "serves the interval condition once the window is too large to be scanned"
    if not served:
        return "scan", "the predicate has no condition on one key"
    if path.residual is not None or len(served) < len(path.clauses):
        return (
            "scan",
            "decides the whole predicate; an index would find half-open intervals and leave the rest",
        )
    return "bisort", "serves the half-open interval once the window is too large to be scanned"


def _not_applicable(asked: str, path: AccessPath | None) -> str:
    needs = "an equality" if asked in EQUALITY_ONLY else "an equality or interval condition on one key"
    if path is None:
        return f"index {asked!r} needs {needs}, and a callable offers none; allowed: auto, scan"
    offers = "; ".join(describe_path(path))
    return f"index {asked!r} needs {needs} for the {path.stored} window; the predicate offers: {offers}"


def _plan_window(program: WindowProgram, index: IndexName, why: str, auto: bool, hashed: bool) -> WindowPlan:
    """`auto`: the index was left to us. `hashed`: the topology wants hash tables from the first tuple on."""
    residual = None if program.residual is None else to_sql(program.residual)
    if index == "scan":
        return WindowPlan("scan", program.method, None, None, (), (), {}, residual, why)
    equality = index in EQUALITY_ONLY
    bands = tuple(program.indexable(equality))
    keys = tuple(condition_of(program, BandKey(band)) for band in bands)
    rule: Rule = "equality" if equality else "band"
    if not auto or hashed:
        why = "serves the equality, which compiled nodes look up" if auto else why
        return WindowPlan("chain", program.method, index, "fixed", bands, keys, {}, residual, why)
    scanned = {batch: scanned_up_to(program, batch) for batch in EXPLAINED_BATCHES}
    return WindowPlan("adaptive", program.method, index, rule, bands, keys, scanned, residual, why)


# Nodes


def _choose_nodes(
    topology: TopologyName,
    workers: int,
    windows: Mapping[str, WindowPlan],
    programs: Mapping[str, WindowProgram],
) -> NodePlan:
    """What runs the topology's work."""
    if topology == "three_step":
        more = f", with {workers - 1} helper thread{'s' * (workers > 2)} for large batches" * (workers > 1)
        return NodePlan("caller", workers, None, f"the calling thread does the work{more}")
    if topology != "low_latency_handshake":
        return NodePlan("interpreted", workers, None, "nodes run Python code that calls kernels")
    if all(window.kind == "scan" and window.residual is None for window in windows.values()):
        return NodePlan("scanning", workers, None, "compiled nodes scan their windows")
    band = _home_band(windows["left"], programs["left"])
    if band is None:
        return NodePlan(
            "interpreted", workers, None, "nodes run Python code: no equality assigns tuples to nodes"
        )
    if all(_is_hashed(windows[side], programs[side]) for side in SIDES):
        return NodePlan(
            "hashing", workers, band, "compiled nodes look up their share of the keys in hash tables"
        )
    return NodePlan("keyed", workers, band, "nodes run Python code, each on its share of the equality's keys")


def _home_band(window: WindowPlan, program: WindowProgram) -> int | None:
    """A band of the left window that is an equality by itself, which decides the node of a tuple."""
    if window.kind == "scan":
        return None
    alone = (b for b in program.indexable(True) if b == COMPOSITE or len(program.bands_beside(b)) == 1)
    return next(alone, None)


def _is_hashed(window: WindowPlan, program: WindowProgram) -> bool:
    """Whether a window is a chain of hash tables that decides the whole predicate."""
    return window.kind == "chain" and window.structure == "hash" and program.is_one_equality
