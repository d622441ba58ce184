"""The definition of what the join circuits must find, in plain Python. It shares only the parameters with them.

`accepted` lists the tuples in the order the circuit accepted them, as ("left" or "right", number in its stream).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamjoin.hardware.parameters import Parameters

Accepted = Iterable[tuple[str, int]]
TupleNumbers = tuple[int, int]
"""Numbers of a left and a right tuple."""


def _matches(p: Parameters, left: Sequence[int | None], right: Sequence[int | None], l: int, r: int) -> bool:
    """A key of None marks a tuple that is not valid."""
    a, b = left[l], right[r]
    return a is not None and b is not None and p.predicate.holds(a, b)


def row_window_join(
    accepted: Accepted, left: Sequence[int | None], right: Sequence[int | None], p: Parameters
) -> list[TupleNumbers]:
    """Every pair whose earlier tuple is still in its window when the later one arrives, in order of the later one."""
    before: dict[str, list[int]] = {"left": [], "right": []}
    pairs = []
    for side, number in accepted:
        other, size = ("right", p.right_window) if side == "left" else ("left", p.left_window)
        for partner in before[other][-size:]:
            l, r = (number, partner) if side == "left" else (partner, number)
            if _matches(p, left, right, l, r):
                pairs.append((l, r))
        before[side].append(number)
    return pairs


def handshake_join(
    accepted: Accepted, left: Sequence[int | None], right: Sequence[int | None], p: Parameters
) -> list[TupleNumbers]:
    """The pairs that met in a core. Cores move in lock step: each arrival shifts its stream by one slot in all cores.

    A core is a list of slots, newest tuple first. Left flows from core 0 up, right from the last core down.
    """
    lefts: list[list[int | None]] = [[None] * p.left_segment for _ in range(p.cores)]
    rights: list[list[int | None]] = [[None] * p.right_segment for _ in range(p.cores)]
    pairs = []
    for side, number in accepted:
        own, others = (lefts, rights) if side == "left" else (rights, lefts)
        entering: int | None = number
        for core in range(p.cores) if side == "left" else reversed(range(p.cores)):
            for partner in others[core]:
                if entering is None or partner is None:
                    continue
                l, r = (entering, partner) if side == "left" else (partner, entering)
                if _matches(p, left, right, l, r):
                    pairs.append((l, r))
            own[core].insert(0, entering)
            entering = own[core].pop()
    return pairs
