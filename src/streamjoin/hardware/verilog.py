"""A design as RTLIL (Amaranth's output, Yosys' input) and as Verilog."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from streamjoin.hardware.tools import need, yosys

TOP = "top"
_NUMBERED_PORT = re.compile(r"\\port\$\d+\$\d+")


def to_rtlil(design: Any) -> str:
    """The design in Yosys' intermediate language."""
    need("amaranth", "a circuit")
    from amaranth.back import rtlil

    return share_modules(rtlil.convert(design, name=TOP, emit_src=False))


def share_modules(text: str) -> str:
    """Deduplicate modules: Amaranth writes one module for each of 64 equal cores.

    A module's submodules come after it in the text. Going backwards, equal modules therefore have equal texts once
    their submodules are shared and the ports, which Amaranth numbers across the design, are renumbered per module.
    """
    kept: dict[str, str] = {}  # text without its name -> name
    shared: dict[str, str] = {}  # name -> the equal module that stays
    ports: dict[str, dict[str, str]] = {}  # name -> its ports' old and new names

    def link(cell: re.Match[str]) -> str:
        renamed = ports.get(cell[2], {})
        inside = _NUMBERED_PORT.sub(lambda port: renamed.get(port[0], port[0]), cell[3])
        return f"{cell[1]}{shared.get(cell[2], cell[2])}{inside}"

    out = []
    for module in reversed(re.split(r"(?m)^(?=attribute \\generator)", text)):
        head = re.search(r"(?m)^module (\S+)$", module)
        name = head[1] if head else ""
        module = re.sub(r"(?ms)^(  cell )(\S+)(.*?^  end$)", link, module)
        declared = dict.fromkeys(re.findall(r"(?m)^  wire .*put \d+ +(\\port\$\S+)$", module))
        ports[name] = {old: f"\\port_{i}" for i, old in enumerate(declared)}
        for old, new in ports[name].items():
            module = module.replace(old, new)
        stays = kept.setdefault(module.replace(f"module {name}\n", "module\n"), name)
        if stays == name:
            out.append(module)
        else:
            shared[name] = stays
    return "".join(reversed(out))


def to_verilog(design: Any, flat: bool = False) -> str:
    """The design as Verilog 2005, with hierarchy and names; takes seconds for 64 cores.

    `flat` writes a single module in which every net has one name.
    """
    clean = "flatten; opt_clean -purge" if flat else "opt_clean"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "design.il").write_text(to_rtlil(design))
        yosys(["read_rtlil design.il", "proc", clean, "write_verilog -noattr design.v"], folder)
        return (folder / "design.v").read_text()
