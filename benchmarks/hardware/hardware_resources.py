"""Lookup tables and flip-flops of join circuits over the number of cores (Oge et al., Figure 11).

Yosys maps the circuits to Virtex-6, the paper's family, and to ECP5. No open tool places for Virtex-6, so slices are
bounds: a slice holds four 6-input lookup tables and eight flip-flops, and is full at best, half full at worst.
"""

from __future__ import annotations

from typing import Any

from benchmarks.shared.circuits import lines, table
from benchmarks.shared.figures import Panels, Row
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise

CORES = (2, 4, 8, 16, 32, 64)
VIRTEX_6_SLICES = 37_680  # of the XC6VLX240T (Oge et al., Table I)
ECP5_CELLS = 83_640  # lookup tables of an ECP5-85F, and as many flip-flops


def measure(name: str, cores: int, target: str) -> dict[str, Any]:
    design = DESIGNS[name]
    used = synthesise(design.build(design.parameters(cores=cores)), target)
    row = {"design": name, "cores": cores, "target": target, "luts": used.luts, "flip_flops": used.flip_flops}
    row["block_rams"] = used.block_rams
    if target == "xc6v":
        full = max(used.luts / 4, used.flip_flops / 8)
        row |= {"slices_at_best": full / VIRTEX_6_SLICES, "slices_half_full": 2 * full / VIRTEX_6_SLICES}
    return row


def run(quick: bool) -> dict[str, Any]:
    """Rows: design x cores x target. Summary: cells of the low-latency circuit over the paper's at the most cores."""
    counts = CORES[:1] if quick else CORES
    rows = [
        measure(name, cores, target) for target in ("xc6v", "ecp5") for name in DESIGNS for cores in counts
    ]
    at = {(row["design"], row["target"]): row for row in rows if row["cores"] == counts[-1]}
    shares = {
        f"{target}_{what}_share": at["low-latency", target][what] / at["handshake", target][what]
        for target in ("xc6v", "ecp5")
        for what in ("luts", "flip_flops")
    }
    return {"rows": rows, "summary": {"cores": counts[-1], **shares}}


def draw(rows: list[Row], canvas: Any) -> None:
    """Lookup tables and flip-flops over the number of cores, one line per design."""
    panels = (
        ("luts", "xc6v", "lookup tables, Virtex-6"),
        ("luts", "ecp5", "lookup tables, ECP5"),
        ("flip_flops", "ecp5", "flip-flops, both"),
    )
    for axes, (column, target, label) in zip(canvas.subplots(1, 3), panels, strict=True):
        lines(axes, [row for row in rows if row["target"] == target], "design", "cores", column)
        axes.set(xlabel="cores", ylabel=label, ylim=(0, None))
        if target == "ecp5":
            axes.axhline(ECP5_CELLS, linestyle=":", color="grey", label="an ECP5-85F has")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k")
    canvas.axes[1].legend(loc="upper left")


def tables(result: Row) -> str:
    """Lookup tables and flip-flops by cores and design, for both targets; slices in words."""
    out = []
    for target, name in (("xc6v", "Virtex-6"), ("ecp5", "ECP5")):
        rows = [row for row in result["rows"] if row["target"] == target]
        for column in ("luts", "flip_flops"):
            what = "Lookup tables" if column == "luts" else "Flip-flops"
            out.append(table(f"{what}, {name} (Figure 11)", rows, "cores", "design", column))
    most = result["summary"]["cores"]
    slices = [
        f"{row['design']} {row['slices_at_best']:.0%} to {row['slices_half_full']:.0%}"
        for row in result["rows"]
        if row["target"] == "xc6v" and row["cores"] == most
    ]
    out.append(
        f"Slices of the paper's XC6VLX240T with {most} cores, full to half full: "
        f"{'; '.join(slices)}. The paper reports nearly 80 %.\n"
    )
    return "\n".join(out)


FIGURES = {"hardware_resources": Panels(draw)}
