"""Which matches become result rows: `how`, as in SQL, and `keep`, which picks among the matches of a left row.

M(l) are the right rows that are in the window with l and satisfy the predicate. `keep` selects K(l) from M(l): all of
it (`"all"`), the row nearest in time (`AsOf`), or the best few by an expression (`Nearest`). Where rows tie, the later
one in the total order is better, so the result is unique.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from streamjoin.semantics.durations import MAX_TICKS
from streamjoin.semantics.errors import SpecError, short_repr

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Direction = Literal["backward", "forward", "nearest"]
HOW: tuple[How, ...] = get_args(How)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
PICKING: tuple[How, ...] = ("inner", "left")  # the only values of `how` that allow a `keep` other than "all"

# Words of other systems, in lower case and without "join", spaces, hyphens and underscores.
_OTHER_WORDS = {
    "leftouter": "left", "rightouter": "right", "outer": "full", "fullouter": "full", "leftsemi": "semi",
    "leftanti": "anti",
}  # fmt: skip
_OTHER_WAYS = {
    "cross": "how='inner' with on='TRUE' joins every pair in the window",
    "asof": "write keep=sj.AsOf() with how='inner' or how='left'",
    "rightsemi": "swap the two sides and write how='semi'",
    "rightanti": "swap the two sides and write how='anti'",
}


def check_how(how: object) -> None:
    """Raise unless `how` is one of `HOW`. For a word of another system, the message names ours."""
    if isinstance(how, str) and how in HOW:
        return
    allowed = f"allowed: {', '.join(HOW)}"
    message = f"how is {short_repr(how)}; {allowed}"
    if isinstance(how, str):
        word = re.sub(r"join$", "", re.sub(r"[\s_-]", "", how.lower()))
        word = _OTHER_WORDS.get(word, word)
        if word in _OTHER_WAYS:
            message = f"how is {how!r}: {_OTHER_WAYS[word]}; {allowed}"
        elif close := difflib.get_close_matches(word, HOW, n=1):
            message = f"how is {how!r}: write {close[0]!r}; {allowed}"
    raise SpecError(message, field="how", given=how, allowed=HOW)


@dataclass(frozen=True)
class AsOf:
    """Keep the match that is nearest in time: not after the left row (backward), not before it (forward), or either.

    `strict` leaves out matches at the very time of the left row. The window is the tolerance.

    >>> AsOf("forward", strict=True)
    AsOf(direction='forward', strict=True)
    """

    direction: Direction = "backward"
    strict: bool = False

    def __post_init__(self) -> None:
        if self.direction not in DIRECTIONS:
            known = re.sub(r"(s|_?looking)$", "", str(self.direction).lower())
            hint = f": write {known!r}" if known in DIRECTIONS else ""
            message = (
                f"keep.direction is {short_repr(self.direction)}{hint}; allowed: {', '.join(DIRECTIONS)}"
            )
            raise SpecError(message, field="keep.direction", given=self.direction, allowed=DIRECTIONS)
        _check_flag("strict", self.strict)

    def allows(self, delta: int) -> bool:
        """Whether a match may be kept whose time is that of the left row plus `delta` ticks."""
        if delta == 0:
            return not self.strict
        return self.direction == "nearest" or (delta < 0) == (self.direction == "backward")


@dataclass(frozen=True)
class Nearest:
    """Keep the `k` matches with the smallest score (`largest`: the largest), an expression over both sides.

    A score that is NULL or NaN never counts.

    >>> Nearest("abs(left.price - right.price)", k=2)
    Nearest(by='abs(left.price - right.price)', k=2, largest=False)
    """

    by: str
    k: int = 1
    largest: bool = False

    def __post_init__(self) -> None:
        _check_text("by", self.by)
        whole = isinstance(self.k, (int, np.integer)) and not isinstance(self.k, bool)
        if not whole or not 1 <= self.k <= MAX_TICKS:
            allowed = "a whole number from 1 on"
            message = f"keep.k is {short_repr(self.k)}: give {allowed}"
            raise SpecError(message, field="keep.k", given=self.k, allowed=allowed)
        object.__setattr__(self, "k", int(self.k))
        _check_flag("largest", self.largest)


Keep = Literal["all"] | AsOf | Nearest


def check_keep(keep: object, how: str) -> None:
    """Raise unless `keep` is allowed, also together with `how`."""
    allowed = "'all', sj.AsOf(...) or sj.Nearest(...)"
    if isinstance(keep, type) and issubclass(keep, (AsOf, Nearest)):
        message = f"keep is the class {keep.__name__}: give one, such as sj.AsOf('backward')"
        raise SpecError(message, field="keep", given=keep, allowed=allowed)
    if isinstance(keep, str) and keep in DIRECTIONS:
        message = f"keep is {keep!r}: write sj.AsOf({keep!r})"
        raise SpecError(message, field="keep", given=keep, allowed=allowed)
    if not isinstance(keep, (AsOf, Nearest)) and not (isinstance(keep, str) and keep == "all"):
        message = f"keep is {short_repr(keep)}; allowed: {allowed}"
        raise SpecError(message, field="keep", given=keep, allowed=allowed)
    if keep != "all" and how not in PICKING:
        message = (
            f"how is {how!r}, and keep is {keep!r}: rows are picked for left rows, which needs "
            f"how='inner' or how='left'"
        )
        raise SpecError(message, field="how", given=how, allowed=PICKING)


def _check_flag(name: str, given: object) -> None:
    if not isinstance(given, bool):
        message = f"keep.{name} is {short_repr(given)}: give True or False"
        raise SpecError(message, field=f"keep.{name}", given=given, allowed="True or False")


def _check_text(name: str, given: object) -> None:
    if not isinstance(given, str):
        allowed = "SQL text over left and right, such as 'abs(left.price - right.price)'"
        message = f"keep.{name} is {short_repr(given)}: give {allowed}"
        raise SpecError(message, field=f"keep.{name}", given=given, allowed=allowed)
