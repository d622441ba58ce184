"""The structures of subwindows, one per file; each is imported on first use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamjoin.index.window import Subwindow
from streamjoin.lazy import LazyRegistry

Structure = Callable[[int, np.dtype, Subwindow | None], Subwindow]

STRUCTURE_CLASSES: LazyRegistry[Structure] = LazyRegistry(
    hash="streamjoin.index.structures.hash:HashSubwindow",
    bisort="streamjoin.index.structures.bisort:BISortSubwindow",
    raptable="streamjoin.index.structures.raptable:RaPTableSubwindow",
    wibtree="streamjoin.index.structures.wibtree:WiBTreeSubwindow",
)
