"""Switching activity of a circuit, counted in simulation: the input of the model of dynamic power.

The circuit is flattened first, so that a net that crosses several modules counts once. We count every bit of every
word at register-transfer level: registers, outputs of operators, and memory cells. Glitches (transitions within a
cycle, before a word has settled) are not counted.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamjoin.hardware.simulate import JoinSimulator, SimulatedRun, Stream

_NET = re.compile(r"\((\S+) \(T0 .*\(TC (\d+)\)\)")


@dataclass(frozen=True)
class Activity:
    """`toggles`: transitions of all bits except the clock, from reset to the last event; `clock_edges`: the clock's."""

    toggles: int
    clock_edges: int
    run: SimulatedRun


def read_toggles(saif: str) -> dict[str, int]:
    """Return the transition count of each bit in a SAIF file."""
    return {name.replace("\\", ""): int(count) for name, count in _NET.findall(saif)}


def count_activity(design: Any, left: Stream, right: Stream) -> Activity:
    """Run both streams through the circuit and count transitions. Building the simulator takes about a minute."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "toggles.saif"
        run = JoinSimulator(design, trace=True).run(left, right, trace=trace)
        toggles = read_toggles(trace.read_text())
    edges = toggles.pop("clk")
    return Activity(sum(toggles.values()), edges, run)
