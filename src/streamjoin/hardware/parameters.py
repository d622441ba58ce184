"""The parameters of a join circuit: cores, windows, widths, predicate, buffers. Checked on creation.

The defaults are those of the evaluation in Oge et al., section V: 32-bit keys and payloads, 8 tuples of each stream
per core, buffers of 8 results per core and 4 per merger.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamjoin.semantics.errors import SpecError

MOST_BITS = 128
MOST_CORES = 1024


class HardwareError(SpecError):
    """A circuit cannot be built: a parameter is out of range, or the join is one that no circuit can do."""


@dataclass(frozen=True)
class KeyPredicate:
    """`lo <= left.key - right.key <= hi` over the integers, without wrapping; None is unbounded.

    Equality is lo = hi = 0; `left < right` is hi = -1; `negated` inverts the answer, so a negated equality is `<>`.

    >>> KeyPredicate(-5, 5).holds(10, 14), KeyPredicate.equality().holds(1, 2)
    (True, False)
    """

    lo: int | None
    hi: int | None
    negated: bool = False

    def __post_init__(self) -> None:
        if self.lo is None and self.hi is None:
            raise HardwareError(
                "a predicate without lo and hi is always true: give at least one of them",
                field="lo",
                given=None,
                allowed="lo, hi or both",
            )
        if self.lo is not None and self.hi is not None and self.lo > self.hi:
            raise HardwareError(
                f"lo is {self.lo} and hi is {self.hi}: lo may not exceed hi",
                field="lo",
                given=self.lo,
                allowed=f"up to {self.hi}",
            )

    @classmethod
    def equality(cls) -> KeyPredicate:
        return cls(0, 0)

    @property
    def is_equality(self) -> bool:
        """Whether matching keys are equal, so that a result needs only one of them."""
        return (self.lo, self.hi, self.negated) == (0, 0, False)

    def holds(self, left: int, right: int) -> bool:
        """The definition, for models and tests."""
        difference = left - right
        inside = (self.lo is None or self.lo <= difference) and (self.hi is None or difference <= self.hi)
        return inside is not self.negated

    def circuit(self, left: Any, right: Any) -> Any:
        """The same for two Amaranth values; their difference is one bit wider than they are, so it cannot wrap."""
        if self.lo == self.hi == 0:
            inside = left == right
        else:
            difference = left - right
            bounds = [] if self.lo is None else [difference >= self.lo]
            bounds += [] if self.hi is None else [difference <= self.hi]
            inside = bounds[0] if len(bounds) == 1 else bounds[0] & bounds[1]
        return ~inside if self.negated else inside

    def __str__(self) -> str:
        if self.lo == self.hi:
            text = f"left.key - right.key = {self.lo}" if self.lo else "left.key = right.key"
        else:
            lo = "" if self.lo is None else f"{self.lo} <= "
            hi = "" if self.hi is None else f" <= {self.hi}"
            text = f"{lo}left.key - right.key{hi}"
        return f"NOT ({text})" if self.negated else text


EQUALITY = KeyPredicate.equality()


@dataclass(frozen=True)
class Parameters:
    """Everything a circuit is built from.

    The windows hold `cores * left_segment` left and `cores * right_segment` right tuples. `lanes` is the number of
    results that can leave per cycle. `comparators` is the number per core: a power of two in the low-latency design,
    one in the paper's. With `lossless`, full buffers make the sources wait; otherwise tuples that arrive meanwhile
    are refused and counted.
    """

    cores: int = 4
    left_segment: int = 8
    right_segment: int = 8
    key_width: int = 32
    payload_width: int = 32
    signed: bool = True
    predicate: KeyPredicate = EQUALITY
    core_fifo: int = 8
    merger_fifo: int = 4
    lossless: bool = True
    lanes: int = 1
    comparators: int = 1

    def __post_init__(self) -> None:
        ranges = {
            "cores": (1, MOST_CORES),
            "left_segment": (1, 1 << 16),
            "right_segment": (1, 1 << 16),
            "key_width": (1, MOST_BITS),
            "payload_width": (1, 8 * MOST_BITS),
            "core_fifo": (2, 1 << 12),
            "merger_fifo": (2, 1 << 12),
            "lanes": (1, self.cores if isinstance(self.cores, int) else 1),
            "comparators": (1, 64),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise HardwareError(
                    f"{name} is {value!r}: give a whole number from {least} to {most}",
                    field=name,
                    given=value,
                    allowed=f"a whole number from {least} to {most}",
                )
        for segment in (self.left_segment, self.right_segment):
            if segment % self.comparators:
                raise HardwareError(
                    f"{self.comparators} comparators do not divide a segment of {segment} tuples evenly",
                    field="comparators",
                    given=self.comparators,
                    allowed=f"a divisor of {segment}",
                )

    @property
    def left_window(self) -> int:
        return self.cores * self.left_segment

    @property
    def right_window(self) -> int:
        return self.cores * self.right_segment

    @property
    def tuple_width(self) -> int:
        """Bits of a tuple: payload, key, and the valid flag."""
        return self.payload_width + self.key_width + 1

    @property
    def result_width(self) -> int:
        """Bits of a result: both payloads, and both keys unless they are equal by definition."""
        return 2 * self.payload_width + self.key_width * (1 if self.predicate.is_equality else 2)
