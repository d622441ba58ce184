"""Low-latency handshake join with node-local indexes against scans (Roy et al. 2014, table 2).

`left.x = right.a`, with keys uniform over as many values as a window has tuples: one match per tuple. Full windows of
270,000 and 2,700,000 tuples; batches of 1,024, and also of 64 for the hash index; two workers. Beside it run the scans
of both handshake joins (the slower one only with the smaller windows) and `three_step` with the hash index. A run ends
when everything is joined; the rivals take turns, and the best of five runs counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.shared.band import WINDOW_SECONDS
from benchmarks.shared.chain import Chain, Variant
from benchmarks.shared.figures import Figure

WORKERS = 2
BATCH, SMALL_BATCH = 1_024, 64
RUNS = 5
EQUALITY = "left.x = right.a"
FIGURES = {
    "handshake_index": Figure(
        "join",
        {"tuples_per_s": ""},
        "2 workers, windows of 270,000 tuples, one match per tuple",
        "tuples/s per side",
        where={"window": 270_000},
    ),
}


class Case(NamedTuple):
    topology: Any
    structure: str

    @property
    def name(self) -> str:
        return f"{self.topology}, {self.structure}"

    @property
    def batches(self) -> tuple[int, ...]:
        both = self.structure == "hash" and self.topology != "handshake"
        return (BATCH, SMALL_BATCH) if both else (BATCH,)


SCANS = (Case("low_latency_handshake", "scan"), Case("handshake", "scan"))
INDEXED = tuple(
    Case(topology, index)
    for topology, index in (
        ("handshake", "hash"),
        ("low_latency_handshake", "hash"),
        ("low_latency_handshake", "bisort"),
        ("three_step", "hash"),
    )
)


class Keyed(Chain):
    """A join by equality, with one match per tuple."""

    def __init__(self, case: Case, rate: int):
        super().__init__(Variant(case.topology), WORKERS, rate, EQUALITY, case.structure)

    def side(self, schema: pa.Schema, micros: np.ndarray[Any, Any]) -> pa.RecordBatch:
        keys = self.random.integers(0, self.rate * WINDOW_SECONDS, len(micros), dtype=np.int32)
        values = np.zeros(len(micros), np.float32)
        return pa.record_batch(
            [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)], schema=schema
        )

    def rate_of(self, count: int, batch: int) -> float:
        """Tuples per second and side, for `count` tuples in batches."""
        return count // batch * batch / self.timed(count // batch, batch).seconds


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per window, topology, index and batch. Summary: ratios of indexes to the scan and to `three_step`."""
    rows: list[dict[str, Any]] = []
    for rate, cases in (
        (60 if quick else 300, (*SCANS, *INDEXED)),
        (600 if quick else 3000, (SCANS[0], *INDEXED)),
    ):
        joins = {case: Keyed(case, rate) for case in cases}
        runs = [(case, batch) for case in cases for batch in case.batches]
        best = dict.fromkeys(runs, 0.0)
        for _ in range(RUNS + 1):
            for case, batch in runs:
                tuples = (5 if quick else 20) * BATCH * (5 if case in INDEXED and batch == BATCH else 1)
                best[case, batch] = max(best[case, batch], joins[case].rate_of(tuples, batch))
        for join in joins.values():
            join.join.close()
        rows += [row(case, batch, rate, best[case, batch]) for case, batch in runs]
    return {"rows": rows, "summary": summary(rows)}


def row(case: Case, batch: int, rate: int, tuples_per_s: float) -> dict[str, Any]:
    return {
        "join": case.name if batch == BATCH else f"{case.name}, batches of {batch}",
        **case._asdict(),
        "batch": batch,
        "window": rate * WINDOW_SECONDS,
        "tuples_per_s": tuples_per_s,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for window in dict.fromkeys(row["window"] for row in rows):
        rates = {row["join"]: row["tuples_per_s"] for row in rows if row["window"] == window}
        for case in INDEXED:
            for peer in (SCANS[0], INDEXED[-1]):
                if case is not peer:
                    found[f"{case.name} over {peer.name}, {window:,}"] = rates[case.name] / rates[peer.name]
    return found
