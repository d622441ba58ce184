"""Windows made as a plan says, and the kernels they may call, compiled before the first push."""

from __future__ import annotations

from collections.abc import Mapping

from streamjoin.index.access import make_access
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.chain import ChainWindow
from streamjoin.index.rehearsal import rehearse_index, rehearse_residual, rehearse_rows, rehearse_scan
from streamjoin.index.scan import ScanWindow
from streamjoin.index.sliding import RowColumns
from streamjoin.index.window import WindowIndex
from streamjoin.plan.physical import Plan
from streamjoin.plan.subwindows import make_rule
from streamjoin.semantics.spec import SIDES


def make_window(plan: Plan, side: str, rows: Mapping[str, RowColumns] | None = None) -> WindowIndex:
    """The window of one side, empty. An index does not hold again what `rows` hold of its side."""
    window, program = plan.windows[side], plan.programs[side]
    if window.kind == "scan":
        return ScanWindow(program)
    rule, held = make_rule(window, program), (rows or {}).get(side)
    if window.kind == "adaptive":
        return AdaptiveWindow(program, rule, held)
    return ChainWindow(program, rule, rows=held)


def compile_plan(plan: Plan) -> None:
    """Compile every kernel that the plan's windows may call, or load it from the cache: seconds the first time, then
    milliseconds. A push compiles nothing afterwards."""
    schemas = {side: plan.spec.side_schema(side) for side in SIDES}
    rehearse_rows(schemas)
    for side in SIDES:
        window, program = plan.windows[side], plan.programs[side]
        if window.kind != "chain":
            rehearse_scan(program, schemas)
        rehearse_residual(program, schemas)
        if window.kind != "scan":
            for structure, key in make_rule(window, program).alternatives():
                rehearse_index(program, structure, make_access(program, key), schemas)
