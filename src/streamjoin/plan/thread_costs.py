"""Whether threads that compare while the calling thread prepares the next push are faster than joining in that thread.

A model of the time per tuple, for gathered pushes and windows that are scanned. `three_step` adds what the caller does
alone to its share of the comparisons. In `scalejoin` the caller works beside the workers if it has a core of its own.
Otherwise one worker shares its core with the caller, and the others wait for that one, as all compare equally much:

    three_step  caller + helpers * hand_over + comparing / threads
    scalejoin   max(feeder, worker), or feeder + worker, where worker = reader + comparing / workers

The constants (`plan/tuning.py`, `ThreadCosts`) are measured on two cores. `benchmarks/topologies/auto_topology.py`
compares the model with measurements on one and two cores, where it can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamjoin.codegen.programs import WindowProgram
from streamjoin.plan.costs import comparison
from streamjoin.plan.options import Order
from streamjoin.plan.tuning import ThreadCosts
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.types import TIME_SCALE


@dataclass(frozen=True)
class ThreadEstimate:
    """Microseconds per tuple that the model expects of two topologies: of their slowest thread."""

    three_step: float
    scalejoin: float
    window: float  # tuples of a window, the mean of both sides

    @property
    def gain(self) -> float:
        """How many times as fast ScaleJoin is."""
        return self.three_step / self.scalejoin


def estimate(
    spec: JoinSpec,
    order: Order,
    programs: Mapping[str, WindowProgram],
    cores: int,
    threads: int,
    workers: int,
    costs: ThreadCosts,
    gathered: int,
    rate: float | None,
) -> ThreadEstimate | None:
    """The estimate for windows that are scanned; None if their size is not known.

    `threads`: those of `three_step`. `workers`: those of ScaleJoin, whose caller is one more thread. `gathered`: the
    rows that are joined together. `rate`: tuples a second and side.
    """
    sizes = {side: _window_rows(spec, side, rate) for side in SIDES}
    if any(size is None for size in sizes.values()):
        return None
    window = sum(size or 0.0 for size in sizes.values()) / 2
    comparing = sum((sizes[side] or 0.0) * _comparison(programs[side], costs) for side in SIDES) / 2
    sorts = order == "timestamp"
    worker = costs.reader + sorts * costs.reader_sorting + comparing / min(workers, cores)
    helpers = costs.hand_over * (threads - 1) / gathered
    return ThreadEstimate(
        three_step=costs.caller + sorts * costs.caller_sorting + helpers + comparing / min(threads, cores),
        scalejoin=max(costs.feeder, worker) if workers < cores else costs.feeder + worker,
        window=window,
    )


def _comparison(program: WindowProgram, costs: ThreadCosts) -> float:
    """Microseconds of one comparison by a scan."""
    return comparison(program)[0] * costs.band if program.clauses else costs.expression


def _window_rows(spec: JoinSpec, side: str, rate: float | None) -> float | None:
    """How many rows a window holds, if that is known: windows of time hold `rate` rows a second."""
    window = spec.side_window(side)
    if window.rows:
        return float(window.size)
    if rate is None or spec.time_unit is None:
        return None
    return max(0.0, rate * window.size / 10.0 ** TIME_SCALE[spec.time_unit])
