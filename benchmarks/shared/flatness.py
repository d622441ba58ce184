"""Soaks: how much a measured quantity rises over a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def rise(rows: Sequence[dict[str, Any]], column: str) -> float:
    """How much the fitted line of a column rises over these samples, as a fraction of the mean."""
    seconds, values = (np.array([row[name] for row in rows], float) for name in ("seconds", column))
    slope = np.polyfit(seconds - seconds.mean(), values, 1)[0]
    return float(slope * (seconds[-1] - seconds[0]) / max(values.mean(), 1.0))
