"""The clock that join circuits reach on an ECP5-85F over cores (Oge et al., Figure 10; Teubner & Mueller, Figure 18).

Each circuit is synthesised with Yosys, then placed and routed with nextpnr for several seeds. Routed designs are
cached by content: the first run takes hours for all points, later ones reuse the cache. If a design does not fit, its
row holds the tool's message.
"""

from __future__ import annotations

from typing import Any

from benchmarks.shared.circuits import best, lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import place_and_route
from streamjoin.hardware.tools import ToolError

PAPER_MHZ = 150  # "nearly 150 MHz" for 2 to 64 cores on a Virtex-6 (Oge et al., section V-B)
# Seeds by cores, for each design and flow. With 64 cores, the paper's design needs more than an ECP5-85F has; with wide
# lookup tables, neither its 4 cores with seed 1 nor its 16 cores are routed within twenty minutes.
SEEDS: dict[tuple[str, str], dict[int, tuple[int, ...]]] = {
    ("handshake", "wide"): {2: (1,), 4: (2,), 8: (1,)},
    ("handshake", "narrow"): {4: (1,), 16: (1,)},
    ("handshake", "quick"): {16: (1,), 32: (1,)},
    ("low-latency", "wide"): {2: (1, 2), 4: (1, 2), 8: (1,), 16: (1, 2), 64: (1,)},
}


def measure(name: str, flow: str, cores: int, seed: int) -> dict[str, Any]:
    design = DESIGNS[name]
    row: dict[str, Any] = {"design": name, "cores": cores, "flow": flow, "seed": seed, "mhz": None}
    try:
        routed = place_and_route(design.build(design.parameters(cores=cores)), seed, flow=flow)
    except ToolError as error:
        return {**row, "failed": str(error).splitlines()[-1]}
    return {
        **row,
        "mhz": routed.mhz,
        "comb": routed.used["TRELLIS_COMB"][0],
        "flip_flops": routed.used["TRELLIS_FF"][0],
        "path_logic_ns": routed.path_logic_ns,
        "path_routing_ns": routed.path_routing_ns,
        "path_from": routed.path_from,
        "path_to": routed.path_to,
    }


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per placement. Summary: the best clock of each flow, and 16 cores against 4."""
    points = [
        (name, flow, cores, seed)
        for (name, flow), counts in SEEDS.items()
        for cores, seeds in counts.items()
        for seed in seeds
        if not quick or (cores <= 2 and seed == 1)
    ]
    rows = [measure(*point) for point in points]
    best: dict[str, float] = {}
    for row in rows:
        if row["mhz"] is not None:
            key = f"{row['design']} {row['cores']}, {row['flow']}"
            best[key] = max(best.get(key, 0.0), row["mhz"])
    kept = {
        f"{name} 16 against 4, {flow}": best[f"{name} 16, {flow}"] / best[f"{name} 4, {flow}"]
        for name, flow in SEEDS
        if {f"{name} 16, {flow}", f"{name} 4, {flow}"} <= best.keys()
    }
    return {"rows": rows, "summary": {**best, **kept}}


def draw(rows: list[Row], canvas: Any) -> None:
    """The best clock over the number of cores, one line per design."""
    axes = canvas.subplots()
    lines(axes, best(rows, ("design", "cores"), "mhz"), "design", "cores", "mhz")
    axes.axhline(PAPER_MHZ, linestyle=":", color="grey", label="the paper on a Virtex-6")
    axes.set(xlabel="cores", ylabel="MHz, best placement, ECP5-85F", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.legend()


def tables(result: Row) -> str:
    """The best clock by cores and design; all placements and failures in words."""
    rows = best(result["rows"], ("design", "cores"), "mhz")
    failed = [row for row in result["rows"] if row.get("failed")]
    placements = [
        f"{row['design']}, {row['cores']} cores, {row['flow']}, seed {row['seed']}: {row['mhz']:.0f}"
        for row in result["rows"]
        if row["mhz"] is not None
    ]
    note = f"All placements, MHz: {'; '.join(placements)}."
    longest = max(rows, key=lambda row: (row["design"], row["cores"]))
    note += (
        f" The longest path of the {longest['design']} circuit with {longest['cores']} cores is "
        f"{longest['path_logic_ns']} ns of logic and {longest['path_routing_ns']} ns of wires, "
        f"from {longest['path_from']} to {longest['path_to']}."
    )
    note += "".join(f" {row['design']} with {row['cores']} cores: {row['failed']}." for row in failed)
    return table(
        "Clock on an ECP5-85F, MHz, best placement (Figure 10)", rows, "cores", "design", "mhz", note
    )


FIGURES = {"hardware_clock": Panels(draw)}
