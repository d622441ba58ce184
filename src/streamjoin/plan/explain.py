"""A plan as text: all of it, in the same words for both engines."""

from __future__ import annotations

from collections.abc import Iterable

from streamjoin.plan.choose import TRAITS
from streamjoin.plan.physical import Plan, WindowPlan
from streamjoin.plan.subwindows import make_rule
from streamjoin.semantics.analysis import describe
from streamjoin.semantics.spec import SIDES, JoinSpec

Lines = list[tuple[str, str]]  # a heading, empty where the last one goes on, and a text


def explain_plan(plan: Plan) -> str:
    """The predicate and what an index can do for it, the windows, and how tuples meet."""
    return laid_out([*join_lines(plan), *window_lines(plan), *run_lines(plan)])


def laid_out(lines: Iterable[tuple[str, str]]) -> str:
    """Lines with their headings in one column."""
    return "\n".join(f"{heading:<13}{text}" for heading, text in lines)


def join_lines(plan: Plan) -> Lines:
    """The predicate, and how it is split."""
    on = plan.spec.on if isinstance(plan.spec.on, str) else getattr(plan.spec.on, "__name__", "callable")
    split = describe(plan.analysis) if plan.analysis else ["a compiled callable"]
    return [("join", on), *(("", line) for line in split)]


def window_lines(plan: Plan) -> Lines:
    """How the window of each side is kept, and why."""
    lines: Lines = []
    for side in SIDES:
        window = plan.windows[side]
        lines.append((f"{side} window", f"{length_of(plan.spec, side)}; {_kind(window)}: {window.why}"))
        if window.kind != "scan":
            rule = make_rule(window, plan.programs[side]).text
            lines.append(("", f"subwindows: {rule}{'; chosen anew for each' * (window.kind == 'adaptive')}"))
        if window.scanned_up_to:
            sizes = [
                f"{tuples:,} tuples ({batch:,}-row pushes)" for batch, tuples in window.scanned_up_to.items()
            ]
            lines.append(
                ("", f"scanned while smaller than about {', '.join(sizes)}; sooner indexed if many match")
            )
        if window.residual is not None:
            lines.append(("", f"checked on the rows of each candidate pair: {window.residual}"))
    return lines


def _kind(window: WindowPlan) -> str:
    if window.kind == "scan":
        return window.method
    return f"{window.structure} index" + (", or a scan" if window.kind == "adaptive" else "")


def run_lines(plan: Plan) -> Lines:
    """Who does the work, in which order, and when results are ready."""
    options, reasons = plan.options, plan.reasons
    threads = f"{plan.workers} worker{'s' * (plan.workers > 1)}"
    lines = [
        ("topology", f"{plan.topology}, {threads}: {reasons['topology']}"),
        ("", f"{plan.nodes.why}; {TRAITS[plan.topology].results}"),
        ("tuples", reasons["settling"]),
        ("pushes", reasons["pushes"]),
        ("order", options.order),
    ]
    if any(window.kind == "adaptive" for window in plan.windows.values()):
        lines.append(
            ("not chosen", "raptable, wibtree: used only if asked for; at most 5 % faster where measured")
        )
    return lines


def length_of(spec: JoinSpec, side: str) -> str:
    window = spec.side_window(side)
    return f"{window.size:,} {'rows' if window.rows else spec.time_unit or 'ticks'}"
