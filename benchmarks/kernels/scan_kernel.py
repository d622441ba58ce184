"""Comparisons per second of the generated scan kernel against the same scan written by hand in C.

The papers' 2-D band: x int32 and y float32, uniform in 1..10000, bands of +-10, one match in 250,000 pairs. Windows and
batches of several sizes are measured first, then wider bands for a curve over hit rates. Both kernels take turns on one
pinned core; the best run of each counts.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure, Row
from benchmarks.shared.timing import pin
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.scan.bands import MIN_SCAN_ROOM, BandShape, band_scan

SEED = 20110612
WINDOWS = (1 << 16, 1 << 18, 1 << 20)
BATCHES = (1, 4, 16, 64, 256, 1024)
HALF_WIDTHS = (5, 10, 50, 160, 500, 1100, 1600, 2400, 5000)  # hit rates of about 1:1,000,000 to 1:2
ROOM = 8 * MIN_SCAN_ROOM
REQUIRED_RATIO = 0.9
FIGURES = {
    "scan_kernel": Figure(
        "batch",
        {"kernel_gcps": "generated kernel", "c_gcps": "C, -O3 -march=native"},
        "probes per batch, window of 262,144 tuples",
        "G comparisons/s, one core",
        where={"series": "band", "window": 1 << 18},
    ),
}


@dataclass(frozen=True)
class Work:
    """One window, one batch of probes and a buffer for the pairs."""

    x: np.ndarray
    y: np.ndarray
    lows: tuple[np.ndarray, np.ndarray]
    highs: tuple[np.ndarray, np.ndarray]
    out: tuple[np.ndarray, np.ndarray]

    @property
    def comparisons(self) -> int:
        return len(self.x) * len(self.lows[0])


def make_work(window: int, batch: int, half_width: int) -> Work:
    """Uniform keys and bands of +-half_width around uniform centres."""
    random = np.random.default_rng(SEED)
    x, a = (random.integers(1, 10_001, size, dtype=np.int32) for size in (window, batch))
    y, b = (random.uniform(1, 10_000, size).astype(np.float32) for size in (window, batch))
    step, float_step = np.int32(half_width), np.float32(half_width)
    out = np.empty(ROOM, np.int32), np.empty(ROOM, np.int32)
    return Work(x, y, (a - step, b - float_step), (a + step, b + float_step), out)


def compile_c(folder: Path) -> Callable[..., int] | None:
    """`scan` of scan_kernel.c, compiled for this machine; None where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "scan_kernel.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)
    function = ctypes.CDLL(str(library)).scan
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 9 + [ctypes.c_int64]
    return function


def kernel_caller(work: Work) -> Callable[[], int]:
    """A call that runs the generated kernel over `work` and returns the number of pairs."""
    scan = band_scan(((BandShape(0, "i4"),), (BandShape(1, "f4"),)))
    probes = len(work.lows[0])
    start, stop = np.zeros(probes, np.int64), np.full(probes, len(work.x), np.int64)
    keys, cursor = (work.x, work.y), np.zeros(CURSOR_SIZE, np.int64)

    def call() -> int:
        pairs, cursor[:] = 0, 0
        while cursor[0] != DONE:
            pairs += scan(start, stop, keys, work.lows, work.highs, cursor, *work.out, 0)
        return pairs

    return call


def c_caller(function: Callable[..., int], work: Work) -> Callable[[], int]:
    """As `kernel_caller`, for the C kernel."""
    cursor = np.zeros(2, np.int64)
    low_x, low_y, high_x, high_y = (*work.lows, *work.highs)
    arrays = [work.x, work.y, low_x, high_x, low_y, high_y, cursor, *work.out]
    addresses = [array.ctypes.data for array in arrays]

    def call() -> int:
        pairs, cursor[:] = 0, 0
        while cursor[0] != -1:
            pairs += function(len(low_x), len(work.x), *addresses, ROOM)
        return pairs

    return call


def best_times(calls: list[Callable[[], int]], runs: int, seconds: float) -> list[float]:
    """Best time of each call; a run repeats it for about `seconds`, and runs alternate between the calls.

    The thread's own processor time is taken, which leaves out other programs that want the same core.
    """
    once = []
    for call in calls:
        call()
        begin = time.thread_time()
        call()
        once.append(time.thread_time() - begin)
    repeats = max(1, round(seconds / max(once)))
    best = [float("inf")] * len(calls)
    for _ in range(runs):
        for number, call in enumerate(calls):
            begin = time.thread_time()
            for _ in range(repeats):
                call()
            best[number] = min(best[number], (time.thread_time() - begin) / repeats)
    return best


def measure(
    c_scan: Callable[..., int], window: int, batch: int, half_width: int, quick: bool
) -> dict[str, Any]:
    """One row: both kernels on the same work, after a check that they find as many pairs."""
    work = make_work(window, batch, half_width)
    calls = [kernel_caller(work), c_caller(c_scan, work)]
    pairs, c_pairs = (call() for call in calls)
    if pairs != c_pairs:
        raise RuntimeError(f"the kernels disagree: {pairs} pairs, and {c_pairs} in C")
    ours, c_time = best_times(calls, *((11, 0.002) if quick else (31, 0.004)))
    return {
        "window": window,
        "batch": batch,
        "half_width": half_width,
        "pairs": pairs,
        "comparisons_per_pair": work.comparisons / pairs if pairs else None,
        "kernel_gcps": work.comparisons / ours / 1e9,
        "c_gcps": work.comparisons / c_time / 1e9,
        "ratio": c_time / ours,
        "kernel_ns_per_pair": ours * 1e9 / pairs if pairs else None,
    }


def run(quick: bool) -> dict[str, Any]:
    """All rows and their summary; `quick` takes fewer sizes and shorter runs."""
    windows, batches = (WINDOWS[:1], BATCHES[:4]) if quick else (WINDOWS, BATCHES)
    pin()
    with tempfile.TemporaryDirectory() as folder:
        c_scan = compile_c(Path(folder))
        if c_scan is None:
            return {"rows": [], "summary": {"skipped": "no C compiler (gcc, clang or cc) was found"}}
        rows = [measure(c_scan, window, batch, 10, quick) for window in windows for batch in batches]
        curve = [measure(c_scan, WINDOWS[0], 256, half_width, quick) for half_width in HALF_WIDTHS]
    required = [row for row in rows if row["batch"] >= 4]
    summary = {
        "best_gcps": max(row["kernel_gcps"] for row in rows),
        "least_ratio": min(row["ratio"] for row in required),
        "least_ratio_of_curve": min(row["ratio"] for row in curve),
        "required_ratio": REQUIRED_RATIO,
        "reached": all(row["ratio"] >= REQUIRED_RATIO for row in required),
    }
    tagged = [{"series": "band", **row} for row in rows] + [{"series": "hit_rate", **row} for row in curve]
    return {"rows": tagged, "summary": summary}


def main_rows(result: Row) -> list[tuple[str, str]]:
    """The lines of the lab's main table."""
    summary = result["summary"]
    return [
        ("scan kernel, 2-D band, one core", f"{summary['best_gcps']:.1f} G comparisons/s"),
        ("the same against C, batches of 4 and more", f"at least {summary['least_ratio']:.2f} of its rate"),
    ]
