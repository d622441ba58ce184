"""How the rows of a join on Spark are spread over workers: the last step of its plan."""

from __future__ import annotations

from dataclasses import replace

from streamjoin.codegen.programs import WindowProgram
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan
from streamjoin.plan.routing import Routing, choose_routing, kept_sides
from streamjoin.plan.subwindows import BandKey, condition_of
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec


def route_rows(plan: Plan, options: Options) -> Routing:
    """Choose which workers get a row; raise if the options ask for what the predicate or the windows do not allow."""
    asked, workers = options.partitioning, options.workers or 1
    equality = plan.analysis is not None and any(clause.is_equality for clause in plan.analysis.left.clauses)
    rows = any(plan.spec.side_window(side).rows for side in SIDES)
    # With row windows every worker has all rows, so each left row can pick at its own worker.
    kept = () if rows and plan.spec.keep != "all" else kept_sides(plan.spec)
    if asked == "hash" and (rows or not equality):
        why = "row windows are counted over all rows" if rows else "the predicate has no equality"
        ranges = "" if rows else ", range (for an interval of one width)"
        message = f"partitioning is 'hash', but {why}; allowed: auto, matrix{ranges}"
        raise SpecError(
            message,
            field="partitioning",
            given=asked,
            allowed=("auto", "matrix") if rows else ("auto", "matrix", "range"),
        )
    ranged = asked in ("auto", "range") and not (rows or (asked == "auto" and equality))
    ranges_by_side = plan.key_ranges if ranged else {}
    widths = {side: found.width for side, found in ranges_by_side.items()}
    chosen = choose_routing(asked, workers, equality, rows, kept, widths)
    if asked == "range" and chosen.kind != "range":
        message = f"partitioning is 'range', but {_why_no_ranges(kept, rows)}; allowed: auto, matrix"
        raise SpecError(message, field="partitioning", given=asked, allowed=("auto", "matrix"))
    if chosen.kind == "range":
        found = ranges_by_side[chosen.once]
        return replace(chosen, band=found.band, key=condition_of(found.program, BandKey(found.band)))
    if chosen.kind == "hash":
        program = equality_program(plan)
        return replace(chosen, key=condition_of(program, BandKey(program.indexable(equality=True)[0])))
    return chosen


def spread_plan(plan: Plan, options: Options, routing: Routing) -> Plan:
    """The plan of a whole join on Spark, from that of one worker."""
    nodes = replace(plan.nodes, count=routing.workers, band=routing.band)
    return replace(plan, options=options, routing=routing, workers=routing.workers, nodes=nodes)


def make_spark_plan(spec: JoinSpec, options: Options) -> Plan:
    """The plan of a whole join on Spark."""
    worker = make_plan(spec, replace(options, workers=None, partitioning="auto"))
    return spread_plan(worker, options, route_rows(worker, options))


def equality_program(plan: Plan) -> WindowProgram:
    """The program that finds the equality keys by which rows are hashed: left rows are stored, right rows probe."""
    path = None if plan.analysis is None else plan.analysis.left
    return WindowProgram(plan.spec.predicate, path, "left", indexed=True)


def _why_no_ranges(kept: tuple[str, ...], rows: bool) -> str:
    if rows:
        return "row windows are counted over all rows"
    if len(kept) == 2:
        return "a full join would need both sides in one place"
    return "the predicate has no interval condition whose width is the same for all rows"
