"""Cycles of the BI-Sort engine over batch and subwindow size (PanJoin, section V-B and Figure 14), counted exactly.

The memory is that of the paper's board: two channels of DDR3-1066 move 17.1 GB/s, which at the paper's clock of 252.7
MHz is 8.4 items of 8 bytes per cycle; the engine reads or writes 8. We assume that a read takes 32 cycles. Partitions
have 128 items, as with 8M items in 64K partitions. An insertion completes the subwindow; probes are equalities with
one partner on average. Subwindows are smaller than the paper's 8M, because only their ratio to the batch matters.
Records leave through separate ports. Cells are those of the engine without the memory, mapped to a Virtex-6.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.shared.circuits import cell, counted, lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.bisort.engine import BiSortEngine
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.bisort.simulate import BiSortSimulator, KeyAndId
from streamjoin.hardware.implementation import synthesise

SEED = 20190407
MHZ, BANDWIDTH, LATENCY, PARTITION = 252.7, 8, 32, 128
UNITS = (1, 2, 4, 8)
SUBWINDOWS = (1024, 4096, 16384)
BATCHES = (64, 256, 1024, 4096, 8192)


def parameters(units: int, capacity: int) -> BiSortParameters:
    return BiSortParameters(capacity, PARTITION, units=units, latency=LATENCY, bandwidth=BANDWIDTH)


def batch(dice: random.Random, count: int, keys: int) -> list[KeyAndId]:
    return sorted((dice.randrange(keys), i) for i in range(count))


def measure(engine: BiSortSimulator, subwindow: int, size: int) -> dict[str, Any]:
    """Fill the subwindow except for one batch, insert that batch, and probe with another."""
    dice = random.Random(f"{SEED} {subwindow} {size}")
    engine.clear()
    engine.insert(batch(dice, subwindow - size, subwindow))
    inserting = engine.insert(batch(dice, size, subwindow))
    records, probing = engine.probe(batch(dice, size, subwindow))
    return {
        "units": engine.parameters.units,
        "subwindow": subwindow,
        "batch": size,
        "insert_cycles": inserting,
        "probe_cycles": probing,
        "partners_per_probe": sum(end - start for _, start, end in records) / size,
        "insert_mtps": size / inserting * MHZ,
        "probe_mtps": size / probing * MHZ,
        "insert_of_bandwidth": 2 * subwindow / inserting / BANDWIDTH,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: units x subwindow x batch. Summary: rates, shares of the memory bandwidth, and cells by units."""
    capacity = SUBWINDOWS[0] if quick else SUBWINDOWS[-1]
    rows = []
    for units in UNITS[:2] if quick else UNITS:
        with BiSortSimulator(parameters(units, capacity)) as engine:
            rows += [
                measure(engine, subwindow, size)
                for subwindow in SUBWINDOWS
                for size in BATCHES
                if subwindow <= capacity and size <= subwindow // 2
            ]
    largest = {row["units"]: row for row in rows if row["subwindow"] == capacity}
    summary: dict[str, Any] = {"bandwidth_items_per_cycle": BANDWIDTH, "latency_cycles": LATENCY}
    for units, row in largest.items():
        cells = synthesise(BiSortEngine(parameters(units, capacity)), "xc6v")
        summary |= {
            f"{units}_units_insert_mtps": row["insert_mtps"],
            f"{units}_units_insert_of_bandwidth": row["insert_of_bandwidth"],
            f"{units}_units_probe_mtps": row["probe_mtps"],
            f"{units}_units_luts": cells.luts,
            f"{units}_units_flip_flops": cells.flip_flops,
            f"{units}_units_block_rams": cells.block_rams,
        }
    return {"rows": rows, "summary": summary}


def draw(rows: list[Row], canvas: Any) -> None:
    """Insertion and probing of the largest subwindow over the batch, one line per number of units."""
    largest = [row for row in rows if row["subwindow"] == max(row["subwindow"] for row in rows)]
    for axes, column in zip(canvas.subplots(1, 2), ("insert_mtps", "probe_mtps"), strict=True):
        lines(axes, counted(largest, "units"), "count", "batch", column)
        axes.set(xlabel=f"batch, items; subwindow of {largest[0]['subwindow']:,}", xscale="log", yscale="log")
        axes.set(ylabel=f"{column.split('_')[0]}, M tuples/s at 252.7 MHz")
        axes.set_xscale("log", base=2)
    batches = sorted({row["batch"] for row in largest})
    bound = [row["insert_mtps"] / row["insert_of_bandwidth"] for row in largest if row["units"] == 1]
    canvas.axes[0].plot(batches, bound, ":", color="grey", label="all of the memory's bandwidth")
    canvas.legend(*canvas.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)


def tables(result: Row) -> str:
    """Cycles by batch and units, rates by batch and subwindow, and cells by units."""
    largest = max(row["subwindow"] for row in result["rows"])
    rows = counted([row for row in result["rows"] if row["subwindow"] == largest], "units")
    titles = {
        "insert_cycles": f"BI-Sort: insertion into {largest:,} items, cycles (Figure 14a)",
        "probe_cycles": f"BI-Sort: probing {largest:,} items, cycles (Figure 14b)",
    }
    out = [table(title, rows, "batch", "count", column) for column, title in titles.items()]
    most = max(row["units"] for row in rows)
    every = [row for row in result["rows"] if row["units"] == most]
    for column in ("insert_mtps", "probe_mtps"):
        title = f"BI-Sort: {column.split('_')[0]}, M tuples/s at 252.7 MHz with {most} units, by subwindow"
        out.append(table(title, every, "batch", "subwindow", column))
    summary, kinds = result["summary"], ("luts", "flip_flops", "block_rams")
    out += [f"### BI-Sort: cells on a Virtex-6, subwindow of {largest:,}", ""]
    out += ["| units | lookup tables | flip-flops | block RAMs of 18 kbit |", "|---|---|---|---|"]
    for units in dict.fromkeys(row["units"] for row in rows):
        cells = " | ".join(cell(summary[f"{units}_units_{kind}"]) for kind in kinds)
        out.append(f"| {units} | {cells} |")
    return "\n".join([*out, ""])


FIGURES = {"hardware_bisort": Panels(draw)}
