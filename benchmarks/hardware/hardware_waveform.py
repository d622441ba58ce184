"""The waveform of one join step: two tuples in two cores of the low-latency circuit.

A left and a right tuple with the same key arrive in the same cycle at the two edges. The picture shows the signals from
their arrival to the result, as Amaranth's simulator records them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.interpret import Interpreter
from streamjoin.hardware.simulate import Stream

SIGNALS = {
    "left.valid": "bench.top.left__valid",
    "left.ready": "bench.top.left__ready",
    "right.valid": "bench.top.right__valid",
    "right.ready": "bench.top.right__ready",
    "core 0: a tuple arrives": "bench.top.core_0.command__valid",
    "core 0: hands it on": "bench.top.core_0.forward__valid",
    "core 0: row of keys read": "bench.top.core_0.window.scan_row",
    "core 0: stores the tuple": "bench.top.core_0.window.store",
    "core 0: fetches a payload": "bench.top.core_0.window.fetch",
    "core 0: writes a result": "bench.top.core_0.fifo.write_valid",
    "core 1: a tuple arrives": "bench.top.core_1.command__valid",
    "output.valid": "bench.top.output__0__valid",
}
COLOURS = {
    "left": "tab:blue",
    "right": "tab:orange",
    "core 0": "tab:green",
    "core 1": "tab:olive",
    "output": "tab:red",
}
PERIOD = 10_000_000  # femtoseconds per cycle
FIRST, CYCLES = 11, 15  # the cycles to draw


def read_vcd(text: str) -> dict[str, list[tuple[int, int]]]:
    """Signals of a VCD file by their full name: (cycle, value) of each change."""
    scope: list[str] = []
    names: dict[str, list[str]] = {}
    changes: dict[str, list[tuple[int, int]]] = {}
    time = 0
    for line in text.splitlines():
        words = line.split()
        if line.startswith("$scope"):
            scope.append(words[2])
        elif line.startswith("$upscope"):
            scope.pop()
        elif line.startswith("$var"):
            names.setdefault(words[3], []).append(".".join([*scope, words[4]]))
        elif line.startswith("#"):
            time = int(line[1:])
        elif change := re.fullmatch(r"b([01]+) (\S+)|([01])(\S+)", line):
            value, key = (change[1], change[2]) if change[1] else (change[3], change[4])
            for name in names.get(key, ()):
                changes.setdefault(name, []).append((time, int(value, 2)))
    return changes


def sampled(changes: list[tuple[int, int]], first: int, cycles: int) -> Iterator[int]:
    """The value at the end of each cycle."""
    for cycle in range(first, first + cycles):
        yield ([0] + [value for time, value in changes if time <= cycle * PERIOD + PERIOD // 2 - 1])[-1]


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per signal, with its value in every cycle. Summary: cycles from arrival to result. Always quick."""
    design = DESIGNS["low-latency"]
    circuit = design.build(design.parameters(cores=2, lanes=1))
    with tempfile.TemporaryDirectory() as scratch:
        waves = Path(scratch) / "join.vcd"
        Interpreter(circuit).run(Stream([7], [1], None, [12]), Stream([7], [2], None, [12]), waves=waves)
        changes = read_vcd(waves.read_text())
    rows = [
        {"signal": label, "values": list(sampled(changes[name], FIRST, CYCLES))}
        for label, name in SIGNALS.items()
    ]
    first = {row["signal"]: row["values"].index(1) for row in rows if 1 in row["values"]}
    return {"rows": rows, "summary": {"cycles_to_result": first["output.valid"] - first["left.valid"]}}


def draw(rows: list[Row], canvas: Any) -> None:
    """One trace per signal, over the cycles."""
    axes = canvas.subplots()
    for number, row in enumerate(rows):
        colour = next(colour for start, colour in COLOURS.items() if row["signal"].startswith(start))
        trace(axes, -number, row["values"], colour)
    cycles = len(rows[0]["values"])
    axes.set_yticks([-number + 0.3 for number in range(len(rows))], [row["signal"] for row in rows])
    axes.set_xticks(range(cycles + 1))
    axes.set(xlabel="cycle", xlim=(0, cycles))
    axes.grid(axis="x", alpha=0.3)


def trace(axes: Any, base: float, values: list[int], colour: str) -> None:
    """A bit as a line that rises and falls; a number as a band with its value in it."""
    if max(values) <= 1:
        ends = [base + 0.6 * value for value in [*values, values[-1]]]
        axes.step(range(len(values) + 1), ends, where="post", color=colour)
        axes.fill_between(range(len(values) + 1), base, ends, step="post", color=colour, alpha=0.15)
        return
    for cycle, value in enumerate(values):
        axes.broken_barh([(cycle + 0.05, 0.9)], (base, 0.6), facecolor="none", edgecolor=colour)
        axes.text(cycle + 0.5, base + 0.28, f"{value}", ha="center", va="center", fontsize="small")


FIGURES = {"hardware_waveform": Panels(draw, size=(9, 4.5))}
