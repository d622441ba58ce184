"""Creates the windows of a plan, and compiles the kernels they may call before the first push."""

from __future__ import annotations

from collections.abc import Mapping

from streamjoin.index.access import make_access
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.chain import ChainWindow
from streamjoin.index.rehearsal import (
    rehearse_index,
    rehearse_last_rows,
    rehearse_residual,
    rehearse_rows,
    rehearse_scan,
    rehearse_search,
)
from streamjoin.index.scan import ScanWindow
from streamjoin.index.sliding import RowColumns
from streamjoin.index.window import WindowIndex
from streamjoin.plan.physical import Plan
from streamjoin.plan.subwindows import make_rule
from streamjoin.semantics.spec import SIDES


def make_window(plan: Plan, side: str, rows: Mapping[str, RowColumns] | None = None) -> WindowIndex:
    """Create the window of one side, empty. An index does not copy data that is in `rows`."""
    window, program = plan.windows[side], plan.programs[side]
    if window.kind == "scan":
        return ScanWindow(program, plan.tuning.window)
    rule, held = make_rule(window, program, plan.tuning.choice), (rows or {}).get(side)
    if window.kind == "adaptive":
        return AdaptiveWindow(program, rule, held, plan.tuning)
    return ChainWindow(program, rule, rows=held, tuning=plan.tuning.window)


def compile_plan(plan: Plan) -> None:
    """Compile every kernel that the plan's windows may call, or load it from the cache. This takes seconds the first
    time and milliseconds later; afterwards, a push compiles nothing."""
    schemas = {side: plan.spec.side_schema(side) for side in SIDES}
    rehearse_rows(schemas)
    if plan.nodes.kind == "last_rows":  # this plan has no windows
        rehearse_last_rows(plan.programs, schemas)
        return
    if plan.search is not None:  # nor has this one
        rehearse_search(plan.search, plan.programs, schemas)
        return
    for side in SIDES:
        window, program = plan.windows[side], plan.programs[side]
        if window.kind != "chain":
            rehearse_scan(program, schemas)
        rehearse_residual(program, schemas)
        if window.kind != "scan":
            for structure, key in make_rule(window, program, plan.tuning.choice).alternatives():
                rehearse_index(program, structure, make_access(program, key), schemas)
