"""Low-latency handshake join with node-local indexes against scans (Roy et al. 2014, table 2).

`left.x = right.a`, keys uniform over as many values as a window has tuples: one match a tuple. Full windows of 270,000
and 2,700,000 tuples, batches of 1,024, two workers, with the scans of both handshake joins and `three_step` with the
same index beside it. A run ends when nothing is compared any more; the best of five counts, in turns. A scan
compares a tuple with the whole window, so it is not measured with the larger one: its rate is a tenth there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from benchmarks.handshake_throughput import Chain, Variant
from benchmarks.three_step import WINDOW_SECONDS

WORKERS = 2
BATCH = 1_024
RUNS = 5
EQUALITY = "left.x = right.a"


class Case(NamedTuple):
    topology: str
    structure: str

    @property
    def name(self) -> str:
        return f"{self.topology}, {self.structure}"


SCANS = (Case("handshake", "scan"), Case("low_latency_handshake", "scan"))
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
    """A join by equality, one match a tuple."""

    def __init__(self, case: Case, rate: int):
        super().__init__(Variant(case.topology), WORKERS, rate, EQUALITY, case.structure)

    def _side(self, schema: pa.Schema, micros: np.ndarray[Any, Any]) -> pa.RecordBatch:
        keys = self.random.integers(0, self.rate * WINDOW_SECONDS, len(micros), dtype=np.int32)
        values = np.zeros(len(micros), np.float32)
        return pa.record_batch(
            [pa.array(micros, pa.timestamp("us")), pa.array(keys), pa.array(values)], schema=schema
        )


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per window, topology and index. Summary: rates of the indexed ones over the scan's."""
    rows: list[dict[str, Any]] = []
    for rate, cases in ((60 if quick else 300, (*SCANS, *INDEXED)), (600 if quick else 3000, INDEXED)):
        joins = {case: Keyed(case, rate) for case in cases}
        best = dict.fromkeys(cases, 0.0)
        for _ in range(RUNS + 1):
            for case, join in joins.items():
                tuples = (5 if quick else 20) * BATCH * (1 if case in SCANS else 5)
                best[case] = max(best[case], tuples / join.timed(tuples // BATCH, BATCH)[0])
        for case, join in joins.items():
            join.join.close()
            rows.append(
                {
                    "join": case.name,
                    **case._asdict(),
                    "window": rate * WINDOW_SECONDS,
                    "tuples_per_s": best[case],
                }
            )
    return {"rows": rows, "summary": summary(rows)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    window = rows[0]["window"]
    rates = {row["join"]: row["tuples_per_s"] for row in rows if row["window"] == window}
    scan = rates[SCANS[1].name]
    return {f"{case.name} over low_latency_handshake, scan": rates[case.name] / scan for case in INDEXED}
