"""Sizes and bit layouts of the BI-Sort engine. Checked on creation."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import signed
from amaranth.lib import data

from streamjoin.hardware.parameters import EQUALITY, HardwareError, KeyPredicate


@dataclass(frozen=True)
class BiSortParameters:
    """`capacity` items of a signed key and an id; a partition of the index is `partition` items.

    External memory answers a read `latency` cycles later and takes one read a port and one write every `interval`
    cycles: its bandwidth is 1 / interval items a cycle and port.
    """

    capacity: int = 1024
    partition: int = 16
    key_width: int = 32
    id_width: int = 32
    predicate: KeyPredicate = EQUALITY
    latency: int = 8
    interval: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("capacity", 2),
            ("partition", 1),
            ("key_width", 2),
            ("id_width", 1),
            ("latency", 1),
        ):
            if getattr(self, name) < least:
                raise HardwareError(f"{name} is {getattr(self, name)}: give at least {least}")
        if self.interval < 1:
            raise HardwareError(f"interval is {self.interval}: give at least 1")
        if self.capacity % self.partition:
            raise HardwareError(
                f"a capacity of {self.capacity} is no multiple of partitions of {self.partition}"
            )
        if self.predicate.negated:
            raise HardwareError("a sorted window finds ranges of keys: a negated predicate has two of them")

    @property
    def partitions(self) -> int:
        return self.capacity // self.partition

    @property
    def item(self) -> data.StructLayout:
        return data.StructLayout({"id": self.id_width, "key": signed(self.key_width)})

    @property
    def count(self) -> range:
        """Numbers of items, and addresses one past the end."""
        return range(self.capacity + 1)

    @property
    def bound(self) -> object:
        """A key moved by the predicate's constants, without wrapping."""
        constants = [abs(end) for end in (self.predicate.lo, self.predicate.hi) if end is not None]
        return signed(max(self.key_width, *(end.bit_length() + 1 for end in constants)) + 2)
