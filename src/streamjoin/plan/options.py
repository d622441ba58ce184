"""The options of a join: how it runs. They change the order of results and the cost, never the set of results."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from streamjoin.semantics.errors import SpecError, did_you_mean

TopologyName = Literal["three_step", "handshake", "low_latency_handshake", "panjoin", "scalejoin", "celljoin"]
StructureName = Literal["hash", "bisort", "raptable", "wibtree"]
IndexName = Literal["scan", "hash", "bisort", "raptable", "wibtree"]
Order = Literal["any", "punctuated", "timestamp"]
StreamOrder = Literal["any", "timestamp"]
Partitioning = Literal["auto", "hash", "range", "matrix"]
Engine = Literal["embedded", "spark"]
Auto = Literal["auto"]

TOPOLOGY_NAMES: tuple[TopologyName, ...] = get_args(TopologyName)
STRUCTURE_NAMES: tuple[StructureName, ...] = get_args(StructureName)
INDEXES: tuple[IndexName, ...] = get_args(IndexName)
ORDERS: tuple[Order, ...] = get_args(Order)
STREAM_ORDERS: tuple[StreamOrder, ...] = get_args(StreamOrder)
PARTITIONING: tuple[Partitioning, ...] = get_args(Partitioning)
ENGINES: tuple[Engine, ...] = get_args(Engine)
MOST_THREADS = 64
MAX_RESULTS = 1_000_000


@dataclass(frozen=True)
class Options:
    """How a join runs; checked on creation.

    `engine`: the engine that runs it. Both engines have `index`, `workers` and `order`; Spark has no punctuated order,
    and no upper limit of workers. `topology`, `max_results`, `rate` and `latency` are for the embedded engine,
    `partitioning` is for Spark.

    `max_results`: how many result rows may wait for `poll`. `rate`: the expected tuples per second and side. `latency`:
    how many seconds after its push a result may come; None means as soon as possible. `partitioning`: how rows are
    spread over Spark's workers.
    """

    topology: TopologyName | Auto = "auto"
    index: IndexName | Auto = "auto"
    workers: int | None = None
    order: Order = "any"
    max_results: int = MAX_RESULTS
    rate: float | None = None
    latency: float | None = None
    partitioning: Partitioning = "auto"
    engine: Engine = "embedded"

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ENGINES)
        embedded = self.engine == "embedded"
        check_choice("topology", self.topology, ("auto", *TOPOLOGY_NAMES) if embedded else ("auto",))
        check_choice("index", self.index, ("auto", *INDEXES))
        check_choice("order", self.order, ORDERS if embedded else STREAM_ORDERS)
        check_choice("partitioning", self.partitioning, ("auto",) if embedded else PARTITIONING)
        if self.workers is not None and not _is_count(self.workers, MOST_THREADS if embedded else math.inf):
            limit = f"from 1 to {MOST_THREADS}" if embedded else "from 1 on"
            raise not_allowed("workers", self.workers, f"a whole number {limit}, or None")
        if not _is_count(self.max_results, math.inf):
            raise not_allowed("max_results", self.max_results, "a whole number of rows, at least 1")
        for name in ("rate", "latency"):
            object.__setattr__(self, name, _amount(name, getattr(self, name)))


def check_choice(name: str, given: object, allowed: Sequence[str]) -> None:
    """Raise unless `given` is one of the allowed words."""
    if given not in allowed:
        raise not_allowed(name, given, allowed)


def not_allowed(name: str, given: object, allowed: str | Sequence[str]) -> SpecError:
    """The error for an option: the value given, and the values allowed, as words or as a sentence."""
    words = allowed if isinstance(allowed, str) else ", ".join(allowed) + did_you_mean(given, allowed)
    return SpecError(f"{name} is {given!r}; allowed: {words}", field=name, given=given, allowed=allowed)


def _is_count(given: object, most: float) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= most


def _amount(name: str, given: object) -> float | None:
    if given is None:
        return None
    with contextlib.suppress(OverflowError):  # the number is too large for a float
        if not isinstance(given, bool) and isinstance(given, Real) and 0 < float(given) < math.inf:
            return float(given)
    raise not_allowed(name, given, "a number above 0, or None if it is not known")
