"""Draw every picture of docs/drawings/.

    python -m scripts.drawings.all

`tests/test_docs.py` checks that they are up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scripts.drawings import imports, push, spark_state, streams, topologies

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "drawings"
DRAWINGS: dict[str, Callable[[], str]] = {
    "architecture": push.drawing,
    "imports": imports.drawing,
    "streams": streams.drawing,
    "spark_state": spark_state.drawing,
    "three_step": topologies.three_step,
    "celljoin": topologies.celljoin,
    "scalejoin": topologies.scalejoin,
    "panjoin": topologies.panjoin,
    "handshake": topologies.handshake,
    "low_latency_handshake": topologies.low_latency,
}


if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw())
        print(FOLDER / f"{name}.svg")
