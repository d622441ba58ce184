"""Which workers of a join on Spark get a row: every pair that can match must meet at exactly one of them.

- *hash*: an equality in the predicate sends equal keys to one worker; no row is copied. Keys with very many rows, if
  they are known, go to several workers (`plan/hot_keys.py`).
- *matrix*: without an equality, workers form a grid. A left row goes to a row of the grid and a right row to a column,
  so a pair meets in the one cell where they cross, and the number of copies grows with the square root of the workers.
  An outer join must know at one place whether a row has partners, and an as-of or nearest join must compare all
  candidates of a left row, so such a side is not copied: the grid is a single column or row.
- *range*: without an equality but with an interval of constant width, such as `abs(left.x - right.a) <= 10`, the line
  of the key is cut into ranges of a few such widths, which are dealt to the workers in turn. A row of one side goes to
  the worker of its key's range, a row of the other to those of the ranges that its interval touches, most often one.
  No distribution has to be sampled, and keys may drift.
- *every*: row windows count all rows, so every worker gets all of them. Each row probes at one worker, its owner.

This module chooses; `spark/join/routing.py` divides rows accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from streamjoin.plan.hot_keys import HotKey, digest_of
from streamjoin.semantics.spec import SIDES, JoinSpec

RoutingKind = Literal["hash", "range", "matrix", "every"]
RANGE_INTERVALS = 4  # a range is this many intervals wide, so one row in four has to go to a second worker
NO_WIDTHS: Mapping[str, float] = {}
KEPT: Mapping[str, tuple[str, ...]] = {"inner": (), "left": ("left",), "right": ("right",), "full": SIDES}


@dataclass(frozen=True)
class Routing:
    """`rows` x `columns` workers; only a matrix has more than one column.

    With ranges, each `width` long, a row of the side `once` goes to one worker, and `band` is the band of that side's
    window whose key is cut. `key`: what places a row, as SQL. `hot`: keys that a hash does not place, by their hashes.
    """

    kind: RoutingKind
    rows: int
    columns: int = 1
    once: str = ""
    width: float = 0.0
    band: int | None = field(default=None, compare=False)
    key: str | None = field(default=None, compare=False)
    hot: tuple[HotKey, ...] = ()

    @property
    def divides_keys(self) -> bool:
        """Whether the rows of some key are divided among workers, by a hash of the whole row."""
        return any(len(key.workers) > 1 for key in self.hot)

    @property
    def workers(self) -> int:
        return self.rows * self.columns

    def describe(self) -> str:
        """The routing in a few words, as checkpoints record it."""
        if self.kind == "range":
            return f"ranges of {self.width:g}, {self.once} rows once"
        if self.hot:
            return f"hash, {len(self.hot)} hot key{'s' * (len(self.hot) > 1)} ({digest_of(self.hot)})"
        return f"matrix of {self.rows} x {self.columns}" if self.kind == "matrix" else self.kind

    def replicas(self, side: str) -> int:
        """How many workers get a row of this side; with ranges or hot keys, at most."""
        if self.kind == "range":
            return 1 if side == self.once else min(2, self.workers)
        if self.kind == "hash":
            return max([1, *(key.columns if side == "left" else key.rows for key in self.hot)])
        if self.kind == "every":
            return self.workers
        return self.columns if side == "left" else self.rows

    def to_dict(self) -> dict[str, Any]:
        """The routing as plain data."""
        return {
            **asdict(replace(self, hot=())),
            "hot": [key.describe() for key in self.hot],
            "workers": self.workers,
            "replicas": {side: self.replicas(side) for side in SIDES},
        }


ONE_WORKER = Routing("matrix", 1, 1)


def kept_sides(spec: JoinSpec) -> tuple[str, ...]:
    """The sides whose rows must each have all their matches at one worker: those whose rows without a partner are asked
    for, and left if it picks among its matches."""
    return ("left",) if spec.keep != "all" else KEPT.get(spec.how, ("left",))


def choose_routing(
    asked: str,
    workers: int,
    has_equality: bool,
    rows: bool,
    kept: tuple[str, ...],
    widths: Mapping[str, float] = NO_WIDTHS,
) -> Routing:
    """The routing for a predicate with or without an equality, and for row windows or time windows.

    `kept`: the sides whose unmatched rows matter. `widths`: by side, the constant width of the intervals of its key
    that the other side's rows meet, if it is constant.
    """
    if rows:
        return Routing("every", 1 if kept else workers)
    if asked == "hash" or (asked == "auto" and has_equality):
        return Routing("hash", workers)
    once = kept[0] if kept else next(iter(widths), "")
    if once in widths and len(kept) < 2 and (asked == "range" or (asked == "auto" and workers > 1)):
        return Routing("range", workers, 1, once, RANGE_INTERVALS * widths[once])
    if len(kept) == 2:
        return Routing("matrix", 1, 1)
    if kept:
        return Routing("matrix", *((workers, 1) if kept == ("left",) else (1, workers)))
    return Routing("matrix", *_near_square(workers))


def _near_square(workers: int) -> tuple[int, int]:
    """The factors of `workers` that are nearest to each other: the fewest copies."""
    short = next(n for n in range(math.isqrt(workers), 0, -1) if workers % n == 0)
    return short, workers // short
