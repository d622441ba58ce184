"""What a caller may choose about how a join runs. Nothing here changes the result, only its order and its cost."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from streamjoin.semantics.errors import SpecError

TopologyName = Literal["three_step", "handshake", "low_latency_handshake", "panjoin", "scalejoin", "celljoin"]
StructureName = Literal["hash", "bisort", "raptable", "wibtree"]
IndexName = Literal["scan", "hash", "bisort", "raptable", "wibtree"]
Order = Literal["any", "punctuated", "timestamp"]
Auto = Literal["auto"]

TOPOLOGIES: tuple[TopologyName, ...] = get_args(TopologyName)
STRUCTURES: tuple[StructureName, ...] = get_args(StructureName)
INDEXES: tuple[IndexName, ...] = get_args(IndexName)
ORDERS: tuple[Order, ...] = get_args(Order)
MOST_WORKERS = 64
MAX_RESULTS = 1_000_000


@dataclass(frozen=True)
class Options:
    """How a join runs; checked on creation.

    `max_results`: how many result rows may wait for `poll`. `rate`: the tuples per second that each side is expected to
    bring. `latency`: the seconds that a result may come after its push; None means as soon as possible.
    """

    topology: TopologyName | Auto = "auto"
    index: IndexName | Auto = "auto"
    workers: int | None = None
    order: Order = "any"
    max_results: int = MAX_RESULTS
    rate: float | None = None
    latency: float | None = None

    def __post_init__(self) -> None:
        check_choice("topology", self.topology, ("auto", *TOPOLOGIES))
        check_choice("index", self.index, ("auto", *INDEXES))
        check_choice("order", self.order, ORDERS)
        if self.workers is not None and not _is_count(self.workers, MOST_WORKERS):
            allowed = f"a whole number from 1 to {MOST_WORKERS}, or None"
            raise not_allowed("workers", self.workers, allowed)
        if not _is_count(self.max_results, math.inf):
            raise not_allowed("max_results", self.max_results, "a whole number of rows, at least 1")
        for name in ("rate", "latency"):
            object.__setattr__(self, name, _amount(name, getattr(self, name)))


def check_choice(name: str, given: object, allowed: Sequence[str]) -> None:
    """Raise unless `given` is one of the words that are allowed."""
    if given not in allowed:
        raise not_allowed(name, given, allowed)


def not_allowed(name: str, given: object, allowed: str | Sequence[str]) -> SpecError:
    """The error about an option: what was given, and what is allowed, as words or as a sentence."""
    words = allowed if isinstance(allowed, str) else ", ".join(allowed)
    return SpecError(f"{name} is {given!r}; allowed: {words}", field=name, given=given, allowed=allowed)


def _is_count(given: object, most: float) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= most


def _amount(name: str, given: object) -> float | None:
    if given is None:
        return None
    with contextlib.suppress(OverflowError):  # of numbers that are too large for a float
        if not isinstance(given, bool) and isinstance(given, Real) and 0 < float(given) < math.inf:
            return float(given)
    raise not_allowed(name, given, "a number above 0, or None if it is not known")
