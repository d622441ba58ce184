"""Fill windows without comparing: a window filled as a stream would fill it meets every probe on the way.

That takes longer than the measurement itself. Each context manager here keeps the join from probing while windows fill,
each at the place where its topology probes. Tuples pushed meanwhile are stored as usual, and later probes find them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np

import streamjoin as sj
from streamjoin.kernels.concurrent.scanning_node import PAIR_COUNT, PAIRS_HANDED, SCAN_FINISHED
from streamjoin.topologies.handshake.flowing_node import FlowingNode
from streamjoin.topologies.handshake.handshake import Handshake
from streamjoin.topologies.matching import Matcher


@contextmanager
def few_probes(join: sj.Join, most: int) -> Iterator[Callable[[], None]]:
    """Let the first `most` probes of each push through to each window, and drop the others.

    An index that adapts to its probes still sees some. The caller calls the yielded function before each push.
    """
    asked: set[int] = set()  # ids of the windows probed since the push began

    def thinned(probe: Callable[..., Iterator[int]], window: int) -> Callable[..., Iterator[int]]:
        def probe_few(probes: Any, reach: Any, *rest: Any) -> Iterator[int]:
            few = np.arange(min(len(probes), 0 if window in asked else most))
            asked.add(window)
            return probe(probes.pick(few), reach.pick(few), *rest)

        return probe_few

    windows: list[Any] = list(join._topology.windows.values())
    for window in windows:
        window.probe = thinned(window.probe, id(window))
    try:
        yield asked.clear
    finally:
        for window in windows:
            del window.probe


@contextmanager
def without_probes(join: sj.Join) -> Iterator[None]:
    """Drop every probe of ScaleJoin's or CellJoin's workers."""
    topology: Any = join._topology
    matchers = [topology] if hasattr(topology, "_match") else topology.workers
    probing = [matcher._match for matcher in matchers]
    for matcher in matchers:
        matcher._match = lambda *_, **__: iter(())
    yield
    for matcher, match in zip(matchers, probing, strict=True):
        matcher._match = match


@contextmanager
def without_reach(join: sj.Join) -> Iterator[None]:
    """Stamp the tuples of a chain as if they reached only their own place; no effect on other topologies."""
    stamps: Any = getattr(join._topology, "_stamps", None)
    if stamps is None:
        yield
        return
    stamped = stamps.push

    def push_without_reach(*given: Any) -> None:
        stamped(*given)
        side, tuples = stamps._arrived[-1]
        stamps._arrived[-1] = side, replace(tuples, since=tuples.ts, until=tuples.ts)

    if stamps.settles:
        stamps._since = lambda stored, ts, preceding, places: places.copy()
    else:
        stamps.push = push_without_reach
    yield
    del stamps.__dict__["_since" if stamps.settles else "push"]


@contextmanager
def without_meeting(join: sj.Join) -> Iterator[None]:
    """Let tuples pass the nodes of handshake join uncompared.

    Their stamps must be right: the tuples that fill the windows move on while a run is measured, and are then compared
    on every node that they reach.
    """
    filling, nodes = [True], cast("Any", join._topology).nodes
    for node in nodes:
        if isinstance(node, FlowingNode):
            _skip_scans(node, filling)
        else:
            node.match = lambda *_: iter(())
    yield
    filling.clear()
    for node in nodes:
        if not isinstance(node, FlowingNode):
            node.match = Matcher(node._shared.prober, node.outbox).match


def _skip_scans(node: Any, filling: list[bool]) -> None:
    """Let a compiled node ask Python for each scan, and answer that nothing was found. Once `filling` is empty, the
    node's own thread undoes this."""
    arguments, compare = node.scan_arguments, node._compare

    def without_kernels(sides: Any) -> tuple[Any, Any]:
        call, operands = arguments(sides)
        return call, np.zeros_like(operands)

    def skip() -> None:
        if filling:
            node._words[[PAIR_COUNT, PAIRS_HANDED, SCAN_FINISHED]] = 0, 0, 1
        else:
            del node.scan_arguments, node._compare
            node._arguments = ()
            compare()

    node.scan_arguments, node._compare, node._arguments = without_kernels, skip, ()


@contextmanager
def without_comparing(join: sj.Join) -> Iterator[None]:
    """Compare nothing, on any threaded topology."""
    topology: Any = join._topology
    workers = getattr(topology, "workers", None)
    if isinstance(workers, list) and hasattr(workers[0], "reach_nothing"):
        for worker in workers:
            worker.reach_nothing()
        yield
        for worker in workers:
            worker.reach_as_planned()
        return
    probes = hasattr(topology, "_match") or (isinstance(workers, list) and hasattr(workers[0], "_match"))
    if isinstance(topology, Handshake):
        skipping = without_meeting
    else:
        skipping = without_probes if probes else without_reach
    with skipping(join):
        yield
