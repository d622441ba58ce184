"""How long the rows of a join on Spark wait, in ticks: how far the watermark must be past a row's own time.

In windows of time all of it follows from lo <= r.ts - l.ts <= hi. A wait may be negative: where all partners of a row
are older than it, the row is decided that much before the watermark reaches it.
"""

from __future__ import annotations

from dataclasses import dataclass

from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.spec import SIDES, JoinSpec


@dataclass(frozen=True)
class Waits:
    """`decided`: until no match to come counts for a row. `kept`: until nothing needs the row any more. Both are None
    where rows are counted."""

    decided: int | None
    kept: int | None


def waits_of(spec: JoinSpec, matching: JoinSpec, settles: bool, in_order: bool) -> dict[str, Waits]:
    """By side. `matching`: the inner join that finds the matches. `settles`: rows do not probe before the watermark has
    passed them. `in_order`: no result may be earlier than one of an earlier micro-batch."""
    if spec.keep != "all":
        return _waits_of_picks(spec, matching, in_order)
    sizes = {side: spec.side_window(side).size for side in SIDES}
    ticks = {side: max(size, 0) if settles else size for side, size in sizes.items()}
    return {
        side: Waits(None, None) if spec.side_window(side).rows else Waits(ticks[side], ticks[side])
        for side in SIDES
    }


def _waits_of_picks(spec: JoinSpec, matching: JoinSpec, in_order: bool) -> dict[str, Waits]:
    """Left rows probe when they are decided, so right rows are kept for the left rows that wait.

    Results in order: a row that is decided at `l.ts + ahead` may have a result time as late as that. So results are
    held back by `ahead`, and what makes them is kept as long."""
    delta, window = matching.delta, spec.left_window
    if delta is None:
        backward = isinstance(spec.keep, AsOf) and spec.keep.direction == "backward"
        wait = 0 if backward else None if window.rows else window.size
        return {"left": Waits(wait, wait), "right": Waits(None, None)}
    ahead = max(delta.hi, 0)
    back = ahead if in_order else 0
    decided = ahead if in_order else delta.hi
    return {"left": Waits(decided, decided + back), "right": Waits(None, ahead - delta.lo + back)}
