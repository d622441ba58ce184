"""Cycles of the BI-Sort engine over batch and subwindow size (PanJoin, section V-B and Figure 14), in exact cycles.

The memory is that of the paper's board: two channels of DDR3-1066 move 17.1 GB/s, which at the paper's clock of
252.7 MHz is 8.4 items of 8 bytes a cycle; 8 are taken, read or written. A read is answered after 32 cycles, our
choice. Partitions have 128 items, as 8M items in 64K partitions do. An insertion completes the subwindow; probes are an
equi-join in which a probe has one partner on average. Subwindows are smaller than the paper's 8M: what counts is
their ratio to the batch. Records leave by ports of their own. Cells are those of the engine without the memory,
mapped to a Virtex-6.
"""

from __future__ import annotations

import random
from typing import Any

from streamjoin.hardware.bisort.engine import BiSortEngine
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.bisort.simulate import BiSortSimulator, Item
from streamjoin.hardware.implementation import synthesise

SEED = 20190407
MHZ, BANDWIDTH, LATENCY, PARTITION = 252.7, 8, 32, 128
UNITS = (1, 2, 4, 8)
SUBWINDOWS = (1024, 4096, 16384)
BATCHES = (64, 256, 1024, 4096, 8192)


def parameters(units: int, capacity: int) -> BiSortParameters:
    return BiSortParameters(capacity, PARTITION, units=units, latency=LATENCY, bandwidth=BANDWIDTH)


def batch(dice: random.Random, count: int, keys: int) -> list[Item]:
    return sorted((dice.randrange(keys), i) for i in range(count))


def measure(engine: BiSortSimulator, subwindow: int, size: int) -> dict[str, Any]:
    """Fill the subwindow but for a batch, insert the batch, probe with another."""
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
    """Rows: units x subwindow x batch. Summary: what more units bring, how much of the memory they use, and cells."""
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
