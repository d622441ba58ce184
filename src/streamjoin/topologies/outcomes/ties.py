"""Tie columns: how they rank rows of equal time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streamjoin.codegen.columns import ColumnData
from streamjoin.index.probing import Fetch
from streamjoin.semantics.columns import column_type
from streamjoin.semantics.expressions import Column
from streamjoin.semantics.spec import JoinSpec


def tie_column(spec: JoinSpec, side: str) -> Column | None:
    """The column that ranks rows of a side, if there is one."""
    name = spec.side_tie(side)
    if name is None:
        return None
    kind = column_type(spec.side_schema(side).field(name).type)
    assert kind is not None  # as JoinSpec checks
    return Column(side, name, kind)


def tie_ranks(fetch: Fetch, side: str, tie: Column, ids: np.ndarray) -> np.ndarray:
    """The order of the values of the tie column among these rows; NULL comes first, NaN last."""
    data = fetch(side, (tie,), ids)[tie]
    rank = np.unique(_comparable(data), return_inverse=True)[1]
    return rank if data.valid is None else np.where(data.valid, rank, -1)


def _comparable(data: ColumnData) -> np.ndarray:
    """The values of a column as an array that NumPy can sort."""
    values = data.parts[0]
    if len(data.parts) == 2:  # text: by its bytes
        text, ends = data.parts[1].tobytes(), values.tolist()
        return np.array([text[a:b] for a, b in pairwise(ends)] or [b""], object)[: len(data)]
    if values.ndim == 2:  # two limbs, the lower one without a sign
        return np.array([(high << 64) + (low % 2**64) for low, high in values.tolist()] or [0], object)[
            : len(data)
        ]
    return values
