"""Switching activity of a circuit, counted in simulation: what a model of its dynamic power is computed from.

The circuit is flattened first, so that a net that passes several modules is one net. Counted is every bit of every
word of the register-transfer description: registers, what operators put out, and the cells of memories. Transitions
within a cycle, before a word has settled, are not seen.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamjoin.hardware.simulate import Run, Simulator, Stream

_NET = re.compile(r"\((\S+) \(T0 .*\(TC (\d+)\)\)")


@dataclass(frozen=True)
class Activity:
    """`toggles`: transitions of all bits but the clock's, from reset to silence; `clock_edges`: the clock's."""

    toggles: int
    clock_edges: int
    run: Run


def read_toggles(saif: str) -> dict[str, int]:
    """The transitions of each bit of a SAIF file."""
    return {name.replace("\\", ""): int(count) for name, count in _NET.findall(saif)}


def count_activity(design: Any, left: Stream, right: Stream) -> Activity:
    """Run both streams through the circuit and count. Building a simulator that counts takes about a minute."""
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "toggles.saif"
        run = Simulator(design, trace=True).run(left, right, trace=trace)
        toggles = read_toggles(trace.read_text())
    edges = toggles.pop("clk")
    return Activity(sum(toggles.values()), edges, run)
