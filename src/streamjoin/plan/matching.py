"""The inner join that a topology runs for a spec. It finds the matches; `how` and `keep` make result rows of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamjoin.plan.options import Order
from streamjoin.semantics.keep import AsOf
from streamjoin.semantics.spec import JoinSpec
from streamjoin.semantics.windows import Delta, Interval


def matching_of(spec: JoinSpec) -> JoinSpec:
    """The inner join of the same streams. For an as-of join the window is cut to matches that it can pick."""
    if spec.how == "inner" and spec.keep == "all":
        return spec
    inner = replace(spec, how="inner", keep="all", left_tie=None, right_tie=None, columns=None)
    if not isinstance(spec.keep, AsOf) or spec.delta is None:
        return inner
    delta = cut_to(spec.keep, spec.delta)
    return inner if delta == spec.delta else replace(inner, window=_window_of(delta, spec.time_unit))


def cut_to(keep: AsOf, delta: Delta) -> Delta:
    """The part of a window that an as-of join can pick from; the whole window if there is none."""
    lo, hi = delta.lo, delta.hi
    if keep.direction == "backward":
        hi = min(hi, -1 if keep.strict else 0)
    elif keep.direction == "forward":
        lo = max(lo, 1 if keep.strict else 0)
    return Delta(lo, hi) if lo <= hi else delta


def can_pick(keep: AsOf, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`AsOf.allows`, for many pairs of event times. Their difference may need more than 64 bits."""
    if keep.direction == "backward":
        return right < left if keep.strict else right <= left
    if keep.direction == "forward":
        return right > left if keep.strict else right >= left
    return right != left if keep.strict else np.ones(len(left), np.bool_)


def widened(matching: JoinSpec) -> JoinSpec:
    """The same join over a window that contains zero, as handshake join needs it: each tuple meets those that precede
    it in time. The extra matches are removed afterwards."""
    delta = matching.delta
    if delta is None or delta.contains_zero:
        return matching
    return replace(matching, window=_window_of(Delta(min(delta.lo, 0), max(delta.hi, 0)), matching.time_unit))


def _window_of(delta: Delta, unit: str | None) -> Interval:
    if unit is None:
        return Interval(delta.lo, delta.hi)
    return Interval(f"{delta.lo} {unit}", f"{delta.hi} {unit}")


def picks_last_row(spec: JoinSpec) -> bool:
    """Whether, of the matches of a left row, the last one before it in the total order is the one that counts."""
    keep = spec.keep
    backward = isinstance(keep, AsOf) and keep.direction == "backward"
    return backward and spec.delta is not None


def sorts_late(spec: JoinSpec) -> bool:
    """Whether results in time order are sorted after the topology, which does not know tie columns."""
    return _found_early(spec) or spec.left_tie is not None or spec.right_tie is not None


def _found_early(spec: JoinSpec) -> bool:
    """Whether matches are found before their place in time order is known: `keep` picks among the matches of a window,
    and windows without zero are joined in the order of arrival."""
    return spec.keep != "all" or (spec.delta is not None and not spec.delta.contains_zero)


def matching_order(spec: JoinSpec, order: Order) -> Order:
    """The order in which the topology gives its matches. Unmatched rows need its punctuations: they say which times are
    complete."""
    if order == "timestamp":
        return "punctuated" if _found_early(spec) else "timestamp"
    return order if spec.how == "inner" and spec.keep == "all" else "punctuated"
