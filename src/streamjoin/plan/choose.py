"""Make a plan from a spec and options: plain cascades over what the predicate offers and what the caller asked for.

The constants are measured (`benchmarks/topologies/topologies.py`, docs/lab/topologies.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamjoin.codegen.programs import COMPOSITE, WindowProgram, has_one_key, has_two_ends, is_equality
from streamjoin.plan.costs import EXPLAINED_BATCHES, INDEXED_RUN_PROBES, INDEXED_RUN_ROWS, scanned_up_to
from streamjoin.plan.matching import matching_of, matching_order, picks_last_row, widened
from streamjoin.plan.options import (
    INDEXES,
    MOST_THREADS,
    Engine,
    IndexName,
    Options,
    StructureName,
    TopologyName,
)
from streamjoin.plan.physical import NodePlan, Plan, Rule, RunPlan, WindowPlan
from streamjoin.plan.searching import plan_search
from streamjoin.plan.subwindows import BandKey, condition_of
from streamjoin.plan.thread_costs import estimate
from streamjoin.plan.tuning import DEFAULT_TUNING, IndexCosts, Tuning
from streamjoin.semantics.analysis import AccessPath, analyse, band_text, describe_path
from streamjoin.semantics.callables import CallablePredicate
from streamjoin.semantics.errors import IndexNotApplicableError, SpecError, without_middle
from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.spec import SIDES, JoinSpec, check_spec

PATIENT = 0.1  # gather pushes if results may wait this many seconds or more
GATHERING = 0.02  # gather pushes for at most this many seconds
FEW_GATHERED = 64  # do not gather if fewer tuples than this are expected in that time
MEASURED_CORES = 2  # of the machine where topologies were measured side by side
THREADED: TopologyName = "scalejoin"  # what "auto" chooses where threads work between calls
CALLER_SHARE = 0.4  # of a core, which the caller takes while it feeds workers with batches of 64
EQUALITY_ONLY: tuple[StructureName, ...] = ("hash",)


@dataclass(frozen=True)
class Traits:
    """What the choices need to know about a topology. `shares_rows`: its windows may read the columns of pushed rows in
    place. `hashes_one_equality`: if one equality is the whole predicate, it is faster with hash tables from the first
    tuple on. `results`: when a push's results are ready. `on_threads`: it works between calls, too. `caller_feeds`:
    while workers compare, the calling thread prepares the next push."""

    results: str
    shares_rows: bool = False
    hashes_one_equality: bool = False
    on_threads: bool = True
    caller_feeds: bool = False


LATER = "results come with a later poll"
TRAITS: Mapping[TopologyName, Traits] = {
    "three_step": Traits("results are ready when push returns", shares_rows=True, on_threads=False),
    "celljoin": Traits("push waits for them"),
    "handshake": Traits(LATER, caller_feeds=True),
    "low_latency_handshake": Traits(LATER, hashes_one_equality=True, caller_feeds=True),
    "scalejoin": Traits(LATER, caller_feeds=True),
    "panjoin": Traits(LATER, caller_feeds=True),
}


def make_plan(spec: JoinSpec, options: Options | None = None, tuning: Tuning = DEFAULT_TUNING) -> Plan:
    """Choose what the options leave open ("auto", None), and raise if an option does not fit the predicate.

    A plan for Spark has one worker; `plan.spread.spread_plan` makes the plan for several.
    """
    check_spec(spec)
    options = options or Options()
    spark = options.engine == "spark"
    topology, why = _choose_topology(options)
    _check_runs(spec, options)
    wait, why_wait = _choose_wait(options)
    wanted = matching_of(spec)
    matching = widened(wanted) if topology == "handshake" else wanted
    # Matches in windows without zero are checked once more: at the ends of 64 bits bounds saturate, and a handshake
    # join runs a wider window.
    delta = None if wanted.delta is None or wanted.delta.contains_zero else wanted.delta
    analysis = None if isinstance(spec.predicate, CallablePredicate) else analyse(spec.predicate)
    paths = {side: None if analysis is None else analysis.for_window(side) for side in SIDES}
    indexes = {side: choose_index(options.index, path, options.engine) for side, path in paths.items()}
    programs = {
        side: WindowProgram(spec.predicate, path, side, indexed=indexes[side][0] != "scan")
        for side, path in paths.items()
    }
    hashed = TRAITS[topology].hashes_one_equality and all(p.is_one_equality for p in programs.values())
    auto = options.index == "auto"
    windows = {
        side: _plan_window(programs[side], *indexes[side], auto, hashed, tuning.costs) for side in SIDES
    }
    if spark:
        windows = {side: _as_runs(window) for side, window in windows.items()}
    search = plan_search(spec) if topology == "three_step" and auto and not spark else None
    if options.topology == "auto" and wait and search is None:
        topology, why = _prefer_threads(spec, options, windows, programs, tuning, (topology, why))
    workers, why_workers = (1, "") if spark else _choose_workers(options, topology)
    rows = spec.delta is None
    if spark:  # there left rows that pick wait for the watermark anyway
        settles = rows or (spec.keep == "all" and options.order == "timestamp")
    else:
        settles = rows or matching_order(spec, options.order) == "timestamp"
    nodes = (
        NodePlan("spark", workers, None, "a Spark task joins what a micro-batch brings to a worker")
        if spark
        else _SEARCHING
        if search is not None
        else _choose_nodes(topology, workers, windows, programs, settles, auto and picks_last_row(spec))
    )
    reasons = {"topology": why, "settling": _settling_reason(rows, settles, wait)}
    if why_workers:
        reasons["workers"] = why_workers
    if not spark:
        reasons["pushes"] = why_wait
    return Plan(
        *(spec, matching, delta, options, topology, workers, wait, settles),
        *(windows, nodes, analysis, programs, reasons),
        search=search,
        tuning=tuning,
    )


def _check_runs(spec: JoinSpec, options: Options) -> None:
    """Raise if the spec is valid but this engine cannot run it."""
    if spec.delta is not None:
        return
    for side in SIDES:
        tie, field = spec.side_tie(side), f"{side}_tie"
        if tie is not None:
            order = "time and a hash of the row" if options.engine == "spark" else "time, source and position"
            message = f"{field} is {tie!r}, and windows of rows are counted by {order} only: leave it out"
            raise SpecError(message, field=field, given=tie, allowed="None")
    picks_later = spec.keep != "all" and spec.keep not in (AsOf("backward"), AsOf("backward", strict=True))
    if options.engine == "spark" and options.order == "timestamp" and picks_later:
        message = (
            f"order is 'timestamp', and keep is {spec.keep!r} with a window of rows, which Spark cannot sort: "
            "write order='any', or give a window of time"
        )
        raise SpecError(message, field="order", given=options.order, allowed=("any",))


def _choose_topology(options: Options) -> tuple[TopologyName, str]:
    if options.engine == "spark":
        return "three_step", "each worker joins the rows that it gets in three steps"
    if options.topology != "auto":
        return options.topology, "as asked"
    cores = available_cores()
    assumed = f"; fastest on {MEASURED_CORES} cores, and assumed to be on {cores}" * (cores > MEASURED_CORES)
    return "three_step", f"runs in the calling thread{assumed}"


def _prefer_threads(
    spec: JoinSpec,
    options: Options,
    windows: Mapping[str, WindowPlan],
    programs: Mapping[str, WindowProgram],
    tuning: Tuning,
    caller: tuple[TopologyName, str],
) -> tuple[TopologyName, str]:
    """ScaleJoin where pushes are gathered, so that results may come later, and the model expects it to be faster;
    else the choice that was made."""
    if any(window.kind != "scan" for window in windows.values()):
        return caller
    cores = min(available_cores(), MOST_THREADS)
    threads, workers = options.workers or cores, _choose_workers(options, THREADED)[0]
    expected = estimate(
        *(spec, options.order, programs, cores, threads, workers, tuning.threads),
        tuning.engine.gathered_rows,
        options.rate,
    )
    if expected is None:
        return caller
    where = f"on {cores} core{'s' * (cores > 1)} in windows of {expected.window:,.0f} tuples"
    if expected.gain < tuning.threads.worth:
        why = f"runs in the calling thread; {THREADED} is expected to reach {expected.gain:.2f} of its rate {where}"
        return caller[0], why
    return (
        THREADED,
        f"expected to reach {expected.gain:.2f} times the rate of three_step {where}; results may wait",
    )


def _choose_workers(options: Options, topology: TopologyName) -> tuple[int, str]:
    """How many threads or nodes, and the reason if it is not obvious.

    Workers that share the comparisons equally are as slow as the one that shares its core with the caller. If the
    caller needs the part d of a core, n workers on n cores run at n * (1 - d), and n - 1 at n - 1: a core of its own
    pays from 1 / d cores on.
    """
    if options.workers is not None:
        return options.workers, ""
    cores = min(available_cores(), MOST_THREADS)
    if not TRAITS[topology].caller_feeds or cores * CALLER_SHARE <= 1:
        return cores, ""
    why = f"one core of {cores} is left to the calling thread, assumed to need {CALLER_SHARE:g} of it"
    return cores - 1, why


def available_cores() -> int:
    """The number of cores that this process may use."""
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


def choose_index(asked: str, path: AccessPath | None, engine: Engine) -> tuple[IndexName, str]:
    """The index of one window, and the reason."""
    large = f"once {'a run' if engine == 'spark' else 'the window'} is too large to be scanned"
    served = [] if path is None else [clause for clause in path.clauses if has_one_key(clause)]
    equality, interval = any(map(is_equality, served)), any(map(has_two_ends, served))
    match asked:
        case "scan":
            return "scan", "as asked"
        case "hash" | "bisort" | "raptable" | "wibtree":
            if not served or (asked in EQUALITY_ONLY and not equality):
                message = _not_applicable(asked, path)
                other = [name for name in INDEXES if name == "scan" or (served and name not in EQUALITY_ONLY)]
                raise IndexNotApplicableError(message, field="index", given=asked, allowed=("auto", *other))
            return asked, "as asked"
    if path is None:
        return "scan", "a callable offers no key"
    if equality:
        return "hash", f"serves the equality {large}"
    if interval:
        return "bisort", f"serves the interval condition {large}"
    if not served:
        return "scan", "the predicate has no condition on one key"
    if path.residual is not None or len(served) < len(path.clauses):
        return (
            "scan",
            "decides the whole predicate; an index would find half-open intervals and leave the rest",
        )
    return "bisort", f"serves the half-open interval {large}"


def _not_applicable(asked: str, path: AccessPath | None) -> str:
    needs = "an equality" if asked in EQUALITY_ONLY else "an equality or interval condition on one key"
    if path is None:
        return f"index {asked!r} needs {needs}, and a callable offers none; allowed: auto, scan"
    offers = without_middle("; ".join(describe_path(path)))
    return f"index {asked!r} needs {needs} for the {path.stored} window; the predicate offers: {offers}"


def _plan_window(
    program: WindowProgram, index: IndexName, why: str, auto: bool, hashed: bool, costs: IndexCosts
) -> WindowPlan:
    """The plan of one window. `auto`: the caller left the index to us. `hashed`: the topology wants hash tables from
    the first tuple on."""
    residual = None if program.residual is None else without_middle(to_sql(program.residual))
    if index == "scan":
        return WindowPlan("scan", program.method, None, None, (), (), {}, residual, why)
    equality = index in EQUALITY_ONLY
    bands = tuple(program.indexable(equality))
    keys = tuple(condition_of(program, BandKey(band)) for band in bands)
    rule: Rule = "equality" if equality else "band"
    if not auto or hashed:
        why = "serves the equality, which compiled nodes look up" if auto else why
        return WindowPlan("chain", program.method, index, "fixed", bands, keys, {}, residual, why)
    scanned = {batch: scanned_up_to(program, batch, costs) for batch in EXPLAINED_BATCHES}
    return WindowPlan("adaptive", program.method, index, rule, bands, keys, scanned, residual, why)


def _as_runs(window: WindowPlan) -> WindowPlan:
    """The window as runs in Spark's state. If the caller asked for an index, every run is indexed, else large ones."""
    runs = {
        "scan": None,
        "chain": RunPlan(0, 0),
        "adaptive": RunPlan(INDEXED_RUN_ROWS, INDEXED_RUN_PROBES),
    }[window.kind]
    return replace(window, scanned_up_to={}, runs=runs)


# Nodes

_SEARCHING = NodePlan(
    "searching",
    1,
    None,
    "the calling thread searches a sorted list of right rows, outward from each left row",
)


def _choose_nodes(
    topology: TopologyName,
    workers: int,
    windows: Mapping[str, WindowPlan],
    programs: Mapping[str, WindowProgram],
    settles: bool,
    picks_last: bool,
) -> NodePlan:
    """The kind of nodes or threads that run the topology's work, and the reason. `picks_last`: only the last row before
    each left row counts."""
    if topology == "three_step" and picks_last and programs["right"].compares_keys_only:
        return NodePlan(
            "last_rows",
            1,
            None,
            "the calling thread keeps the last right row of each key, for left rows to look up",
        )
    if topology == "three_step":
        more = f", with {workers - 1} helper thread{'s' * (workers > 2)} for large batches" * (workers > 1)
        return NodePlan("caller", workers, None, f"the calling thread does the work{more}")
    if topology == "scalejoin" and not settles and _are_scanned_bands(windows, programs):
        return NodePlan("scanning", workers, None, "compiled nodes scan their windows")
    if topology not in ("handshake", "low_latency_handshake"):
        return NodePlan("interpreted", workers, None, "nodes run Python code that calls kernels")
    if all(window.kind == "scan" and window.residual is None for window in windows.values()):
        return NodePlan("scanning", workers, None, "compiled nodes scan their windows")
    if topology == "handshake":
        return NodePlan("interpreted", workers, None, "nodes run Python code that calls kernels")
    band = _home_band(windows["left"], programs["left"])
    if band is None:
        return NodePlan(
            "interpreted", workers, None, "nodes run Python code: no equality assigns tuples to nodes"
        )
    key = _equality_text(programs["left"], band)
    if all(_is_hashed(windows[side], programs[side]) for side in SIDES):
        why = "compiled nodes look up their share of the keys in hash tables"
        return NodePlan("hashing", workers, band, why, key)
    why = "nodes run Python code, each on its share of the equality's keys"
    return NodePlan("keyed", workers, band, why, key)


def _are_scanned_bands(windows: Mapping[str, WindowPlan], programs: Mapping[str, WindowProgram]) -> bool:
    """Whether both windows are scanned by kernels of bands that decide the whole predicate."""
    return all(
        windows[side].kind == "scan"
        and windows[side].residual is None
        and programs[side].block is None
        and bool(programs[side].shapes)
        for side in SIDES
    )


def _home_band(window: WindowPlan, program: WindowProgram) -> int | None:
    """A band of the left window that is an equality by itself; its key decides which node gets a tuple."""
    if window.kind == "scan":
        return None
    alone = (b for b in program.indexable(True) if b == COMPOSITE or len(program.bands_beside(b)) == 1)
    return next(alone, None)


def _equality_text(program: WindowProgram, band: int) -> str:
    """The equality of a band as SQL; for COMPOSITE, all of them."""
    bands = [clause.bands[0] for clause in program.clauses if clause.is_equality]
    return " AND ".join(map(band_text, bands if band == COMPOSITE else [program.bounds.bands[band]]))


def _is_hashed(window: WindowPlan, program: WindowProgram) -> bool:
    """Whether a window is a chain of hash tables that decides the whole predicate."""
    return window.kind == "chain" and window.structure == "hash" and program.is_one_equality
