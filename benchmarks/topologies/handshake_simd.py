"""What handshake joins gain from vector instructions (Teubner & Mueller 2011, figure 15).

The papers' 2-D band with three kernels:
- `vector masks`: the code that the engine generates for bands.
- `loop, vectorised`: the predicate as a Python function, in the loop that the engine generates for functions.
- `loop, scalar`: the same loop, compiled with LLVM's vectorisers off.

Full 15-minute windows, batches of 256, chains of one and two nodes. The kernels take turns; the best of five runs
counts. The loops get windows of a fifth of the size: they fill slowly, and the rate of comparisons does not depend on
the size. `sustained_rate` is the rate that these nodes just sustain with 15-minute windows; work grows with its square.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from numba.core import config as numba_config

from benchmarks.shared.band import PREDICATE, WINDOW_SECONDS, open_band
from benchmarks.shared.chain import Chain, Variant
from benchmarks.shared.figures import Figure

config: Any = numba_config  # Numba creates its attributes at import
TOPOLOGIES = ("handshake", "low_latency_handshake")
WORKERS = (1, 2)
BATCH = 256
RUNS = 5
FIGURES = {
    "handshake_simd": Figure(
        "workers",
        {"sustained_rate": ""},
        "workers; two cores, windows of 15 minutes",
        "tuples/s per side",
        where={"topology": "handshake"},
        by="kernel",
    ),
}


def near(left: Any, right: Any) -> Any:
    """PREDICATE as a function of two rows."""
    return (
        (left.x >= right.a - 10)
        & (left.x <= right.a + 10)
        & (left.y >= right.b - 10)
        & (left.y <= right.b + 10)
    )


@contextmanager
def without_vectorisers() -> Iterator[None]:
    """Compile scalar code inside this context."""
    before = config.LOOP_VECTORIZE, config.SLP_VECTORIZE
    config.LOOP_VECTORIZE = config.SLP_VECTORIZE = 0
    try:
        yield
    finally:
        config.LOOP_VECTORIZE, config.SLP_VECTORIZE = before


def compile_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile the loop of a function: Numba does so once, when the first join with it opens."""
    open_band(1, function, topology="three_step", index="scan", workers=1).close()
    return function


def kernels() -> dict[str, str | Callable[..., Any]]:
    """Predicates by kernel. The vectorised loop comes first, so that code shared by both loops is vectorised."""
    vectorised = compile_loop(near)
    with without_vectorisers():
        scalar = compile_loop(types.FunctionType(near.__code__, near.__globals__, "near_scalar"))
    return {"vector masks": PREDICATE, "loop, vectorised": vectorised, "loop, scalar": scalar}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per topology, workers and kernel. Summary: sustained rates over that of the scalar loop."""
    rate, comparisons = (60, 5e8) if quick else (300, 4e9)
    rows: list[dict[str, Any]] = []
    predicates = kernels()
    for topology in TOPOLOGIES:
        for workers in WORKERS:
            best = dict.fromkeys(predicates, 0.0)
            chains = {
                kernel: Chain(Variant(topology), workers, rate if isinstance(on, str) else rate // 5, on)
                for kernel, on in predicates.items()
            }
            for _ in range(RUNS + 1):
                for kernel, chain in chains.items():
                    share = 1 if isinstance(predicates[kernel], str) else 8
                    count = max(4, round(comparisons / share / (2 * BATCH * chain.rate * WINDOW_SECONDS)))
                    best[kernel] = max(best[kernel], chain.measure(count, BATCH))
            for kernel, chain in chains.items():
                chain.join.close()
                rows.append(row(topology, workers, kernel, chain.rate * WINDOW_SECONDS, best[kernel]))
    return {"rows": rows, "summary": summary(rows)}


def row(topology: Any, workers: int, kernel: str, window: int, rate: float) -> dict[str, Any]:
    return {
        "topology": topology,
        "workers": workers,
        "kernel": kernel,
        "window": window,
        "comparisons_per_s": rate,
        "sustained_rate": (rate / (2 * WINDOW_SECONDS)) ** 0.5,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    rates = {(row["topology"], row["workers"], row["kernel"]): row["sustained_rate"] for row in rows}
    return {
        f"{kernel} over scalar, {topology}, {workers} workers": rates[topology, workers, kernel]
        / rates[topology, workers, "loop, scalar"]
        for topology in TOPOLOGIES
        for workers in WORKERS
        for kernel in ("vector masks", "loop, vectorised")
    }
