"""When a row of a join over windows of time may leave: the table of "What is final when" (docs/semantics.md) as a
function, with tables and predicates to try it on."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.semantics.oracle import ResultRow

KEYED = pa.schema({"ts": pa.int64(), "k": pa.int64()})
ON = ["left.k = right.k", "left.k <= right.k"]


def rows_of_a_side() -> st.SearchStrategy[pa.Table]:
    """Few rows at few times, so that many are equal or equally near."""
    rows = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1)), min_size=1, max_size=5).map(sorted)
    return rows.map(lambda rows: pa.table([[t for t, _ in rows], [k for _, k in rows]], schema=KEYED))


def leaves(
    row: ResultRow, spec: sj.JoinSpec, left: pa.Table, right: pa.Table, low: Mapping[str, float]
) -> bool:
    """The table of "What is final when", for time windows: whether a row may leave by these lows. A low is above every
    row of its side if the side has ended."""
    assert spec.delta is not None
    lo, hi = spec.delta.lo, spec.delta.hi
    if row.left is None:
        return bool(low["left"] > right["ts"][row.right].as_py() - lo)
    l = left["ts"][row.left].as_py()
    if isinstance(spec.keep, sj.AsOf) and spec.keep.direction == "backward":
        return bool(low["right"] > min(l - spec.keep.strict, l + hi))
    if row.right is None:
        return spec.how == "semi" or low["right"] > l + hi
    r = right["ts"][row.right].as_py()
    if isinstance(spec.keep, sj.AsOf):
        return bool(low["right"] > (r if spec.keep.direction == "forward" else min(l + abs(r - l), l + hi)))
    return spec.keep == "all" or low["right"] > l + hi
