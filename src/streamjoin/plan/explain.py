"""Explain a plan as text: all of it, in the same words for both engines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from streamjoin.plan.choose import TRAITS
from streamjoin.plan.physical import Plan, RunPlan, WindowPlan, window_text
from streamjoin.plan.routing import RANGE_INTERVALS, Routing, RoutingKind
from streamjoin.plan.searching import SearchPlan
from streamjoin.plan.subwindows import make_rule
from streamjoin.semantics.analysis import describe
from streamjoin.semantics.errors import without_middle
from streamjoin.semantics.keep import AsOf, Nearest
from streamjoin.semantics.render import to_sql
from streamjoin.semantics.spec import SIDES, JoinSpec

HeadedLines = list[tuple[str, str]]  # (heading, text); an empty heading continues the line above
HOT_KEYS_NAMED = 5  # name this many hot keys
MAX_LINE = 600  # characters of a line's text; a predicate may have 500,000


class Explanation(str):
    """A plan as text, which notebooks show with a drawing."""

    plan: Plan

    def _repr_html_(self) -> str:
        return f"{self.plan._repr_html_()}<pre>{escape(self)}</pre>"


def explain_plan(plan: Plan) -> str:
    """The text of a plan: the predicate, its analysis, the windows, and how tuples meet."""
    text = Explanation(laid_out(plan_lines(plan)))
    text.plan = plan
    return text


def plan_lines(plan: Plan) -> HeadedLines:
    """All lines of a plan, for either engine. A text longer than MAX_LINE loses its middle."""
    lines = [*join_lines(plan), *outcome_lines(plan.spec), *window_lines(plan), *run_lines(plan)]
    return [(heading, without_middle(text, MAX_LINE)) for heading, text in lines]


def laid_out(lines: Iterable[tuple[str, str]]) -> str:
    """The lines as text, with the headings in one column. Further lines of a text, as in a predicate, are below it."""
    return "\n".join(
        f"{heading:<13}" + f"\n{'':13}".join(text.strip("\n").splitlines()) for heading, text in lines
    )


def join_lines(plan: Plan) -> HeadedLines:
    """The predicate, and its parts that an index can serve."""
    on = plan.spec.on if isinstance(plan.spec.on, str) else getattr(plan.spec.on, "__name__", "callable")
    split = describe(plan.analysis) if plan.analysis else ["a compiled callable"]
    return [("join", on), *(("", line) for line in split)]


def window_lines(plan: Plan) -> HeadedLines:
    """How the window of each side is kept, and why."""
    lines: HeadedLines = []
    if plan.nodes.kind == "last_rows":
        return [
            ("left window", "rows wait until right has passed their time"),
            ("right window", f"{window_text(plan.spec, 'right')}; the last row of each key, in a hash table"),
        ]
    if plan.search is not None:
        return _search_lines(plan.spec, plan.search)
    for side in SIDES:
        window = plan.windows[side]
        lines.append((f"{side} window", f"{window_text(plan.spec, side)}; {_kind(window)}: {window.why}"))
        if window.kind != "scan":
            rule = make_rule(window, plan.programs[side], plan.tuning.choice).text
            parts = "subwindows" if window.runs is None else "runs"
            lines.append(("", f"{parts}: {rule}{'; chosen anew for each' * (window.kind == 'adaptive')}"))
        if window.runs is not None:
            lines.append(("", _scanned_runs(window.runs)))
        if window.scanned_up_to:
            sizes = [
                f"{tuples:,} tuples ({batch:,}-row pushes)" for batch, tuples in window.scanned_up_to.items()
            ]
            lines.append(
                ("", f"scanned while smaller than about {', '.join(sizes)}; indexed sooner if many match")
            )
        if window.residual is not None:
            lines.append(("", f"checked on the rows of each candidate pair: {window.residual}"))
    return lines


def _search_lines(spec: JoinSpec, search: SearchPlan) -> HeadedLines:
    key = to_sql(search.shape.key)
    if search.equalities:
        key = ", ".join([*(to_sql(clause.bands[0].key) for clause in search.equalities), key])
    lines = [
        (
            "left window",
            "rows wait until right has passed the end of their window, and are searched for once",
        ),
        ("right window", f"{window_text(spec, 'right')}; one list, sorted by {key}"),
    ]
    if search.residual is not None:
        text = without_middle(to_sql(search.residual))
        lines.append(("", f"checked on the rows of each pair that is found: {text}"))
    return lines


def _kind(window: WindowPlan) -> str:
    if window.kind == "scan":
        return window.method
    return f"{window.structure} index" + (", or a scan" if window.kind == "adaptive" else "")


def _scanned_runs(runs: RunPlan) -> str:
    rows, probes = runs.indexed_rows, runs.indexed_probes
    if not rows and not probes:
        return "every run is indexed"
    few_rows, few_probes = f"fewer than {rows:,} rows", f"fewer than {probes:,}"
    return f"a run is scanned while it has {few_rows}, or a micro-batch probes it with {few_probes}"


def run_lines(plan: Plan) -> HeadedLines:
    """Which threads or workers join, in which order results come, and when."""
    lines = _topology_lines(plan) if plan.routing is None else _routing_lines(plan, plan.routing)
    lines.append(("tuples", plan.reasons["settling"]))
    if "pushes" in plan.reasons:
        lines.append(("pushes", plan.reasons["pushes"]))
    lines.append(("order", plan.options.order))
    if plan.routing is None:
        lines.append(("results", f"at most {plan.options.max_results:,} rows wait for poll"))
    if any(window.kind == "adaptive" for window in plan.windows.values()):
        lines.append(
            ("not chosen", "raptable, wibtree: used only if asked for; at most 5 % faster where measured")
        )
    return lines


def _topology_lines(plan: Plan) -> HeadedLines:
    threads = f"{plan.workers} worker{'s' * (plan.workers > 1)}"
    lines = [
        ("topology", f"{plan.topology}, {threads}: {plan.reasons['topology']}"),
        ("", f"{plan.nodes.why}; {TRAITS[plan.topology].results}"),
    ]
    if "workers" in plan.reasons:
        lines.append(("", plan.reasons["workers"]))
    if plan.nodes.key is not None:
        lines.append(("", f"each tuple goes to one node, by its key in {plan.nodes.key}"))
    return lines


# Which workers get a row.
ROUTES: Mapping[RoutingKind, str] = {
    "hash": "a hash of the equality keys ({key}) sends each row to one worker",
    "range": "the range of {key} sends a row to a worker, and to a second one if its interval ends beyond it",
    "matrix": "left rows go to a row of workers and right rows to a column, so each pair meets once",
    "every": "row windows count all rows, so each worker gets all of them and probes with its share",
}


def _routing_lines(plan: Plan, routing: Routing) -> HeadedLines:
    """How rows are spread over workers. If the plan was made for more workers than the routing can use, or for an
    unknown number, the first line says so."""
    asked = plan.options.workers
    count = "as many as the cluster has cores" if asked is None else f"{routing.workers} of {asked}"
    way = f"{routing.describe()}: {ROUTES[routing.kind].format(key=routing.key)}"
    if routing.workers == 1 and asked is not None and routing.kind in ("matrix", "every"):
        way = "one worker gets all rows"
    lines = [("workers", f"{count}; {way}")]
    lines += [("", line) for line in _hot_key_lines(routing)]
    if plan.spec.keep != "all":
        lines.append(("", "all matches of a left row are found at one worker, where it picks among them"))
    if asked is not None:
        lines.append(("replicas", ", ".join(f"{side} {_copies(routing, side)}" for side in SIDES)))
    return [*lines, ("topology", f"{plan.topology}: {plan.reasons['topology']}; {plan.nodes.why}")]


def _hot_key_lines(routing: Routing) -> list[str]:
    """The hot keys with the most rows, and their workers."""
    largest = sorted(routing.hot, key=lambda key: key.share.left + key.share.right, reverse=True)
    lines = [f"hot key {key.describe()}" for key in largest[:HOT_KEYS_NAMED]]
    return [*lines, f"and {len(largest) - HOT_KEYS_NAMED} more"] if len(largest) > HOT_KEYS_NAMED else lines


def _copies(routing: Routing, side: str) -> str:
    """The number of workers that get a row of a side. With ranges, only rows near the end of a range go to two."""
    most = routing.replicas(side)
    if routing.hot and most > 1:
        return f"1, of hot keys up to {most}"
    if routing.kind == "range" and most > 1:
        return f"{1 + 1 / RANGE_INTERVALS:g} on average, {most} at most"
    return str(most)


def outcome_lines(spec: JoinSpec) -> HeadedLines:
    """Which result rows `how` and `keep` make of the matches, and when. No lines for an inner join that keeps all."""
    lines: HeadedLines = []
    match spec.keep:
        case AsOf(direction, strict):
            which = {
                "backward": f"latest match {'before' if strict else 'at or before'} its own time",
                "forward": f"earliest match {'after' if strict else 'at or after'} its own time",
                "nearest": f"nearest match in time{', but none at its own time' * strict}",
            }[direction]
            lines.append(("keep", f"each left row gets its {which}, once that is final"))
        case Nearest(by, k, largest):
            best = "largest" if largest else "smallest"
            lines.append(
                ("keep", f"each left row gets its {k} matches with the {best} {by}, once they are final")
            )
    text = {
        "left": "left rows without a match leave once none can come, with NULL for right's columns",
        "right": "right rows without a match leave once none can come, with NULL for left's columns",
        "full": "rows without a match leave once none can come, with NULL for the other side's columns",
        "semi": "a left row leaves with its first match, once",
        "anti": "a left row leaves once no match can come",
    }
    return [*lines, ("how", f"{spec.how}: {text[spec.how]}")] if spec.how in text else lines
