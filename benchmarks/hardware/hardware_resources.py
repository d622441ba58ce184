"""Lookup tables and flip-flops of join circuits over the number of cores (Oge et al., Figure 11).

Mapped by Yosys to Virtex-6, the paper's family, and to ECP5. There is no open placement for Virtex-6, so slices
are bounds: a slice holds four 6-input lookup tables and eight flip-flops, and is at best full, at worst half full.
"""

from __future__ import annotations

from typing import Any

from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.implementation import synthesise

CORES = (2, 4, 8, 16, 32, 64)
VIRTEX_6_SLICES = 37_680  # of the XC6VLX240T (Oge et al., Table I)


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
    """Rows: design x cores x target. Summary: the low-latency circuit's share of the paper's at the most cores."""
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
