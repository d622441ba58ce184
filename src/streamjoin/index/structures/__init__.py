"""What a subwindow can be made of: one structure a file, imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamjoin.index.window import Subwindow
from streamjoin.lazy import LazyRegistry

Structure = Callable[[int, np.dtype, Subwindow | None], Subwindow]

STRUCTURES: LazyRegistry[Structure] = LazyRegistry(
    hash="streamjoin.index.structures.hash:HashSubwindow",
    bisort="streamjoin.index.structures.bisort:BISortSubwindow",
    raptable="streamjoin.index.structures.raptable:RaPTableSubwindow",
    wibtree="streamjoin.index.structures.wibtree:WiBTreeSubwindow",
)
