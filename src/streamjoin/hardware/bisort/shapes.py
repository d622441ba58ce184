"""Sizes and bit layouts of the BI-Sort engine. Checked on creation."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth import signed
from amaranth.lib import data

from streamjoin.hardware.parameters import EQUALITY, HardwareError, KeyPredicate


@dataclass(frozen=True)
class BiSortParameters:
    """A window of `capacity` items, each a signed key and an id; a partition of the index covers `partition` items.

    `units` mergers and as many pairs of probers work in parallel. External memory answers a read after `latency`
    cycles; every `interval` cycles it transfers `bandwidth` items, read or written, over all ports.
    """

    capacity: int = 1024
    partition: int = 16
    key_width: int = 32
    id_width: int = 32
    predicate: KeyPredicate = EQUALITY
    units: int = 1
    latency: int = 8
    bandwidth: int = 2
    interval: int = 1

    def __post_init__(self) -> None:
        least = {"capacity": 2, "partition": 1, "key_width": 2, "id_width": 1, "units": 1}
        for name, lowest in {**least, "latency": 1, "bandwidth": 1, "interval": 1}.items():
            if getattr(self, name) < lowest:
                raise HardwareError(
                    f"{name} is {getattr(self, name)}: give at least {lowest}",
                    field=name,
                    given=getattr(self, name),
                    allowed=f"at least {lowest}",
                )
        for name in ("partition", "units"):
            if getattr(self, name) & (getattr(self, name) - 1):
                raise HardwareError(
                    f"{name} is {getattr(self, name)}: give a power of two",
                    field=name,
                    given=getattr(self, name),
                    allowed="a power of two",
                )
        if self.capacity % self.partition:
            raise HardwareError(
                f"capacity is {self.capacity}: give a multiple of the partition size, {self.partition}",
                field="capacity",
                given=self.capacity,
                allowed=f"a multiple of {self.partition}",
            )
        if self.predicate.negated:
            raise HardwareError(
                "predicate is negated: a sorted window finds one range of keys per probe, not two",
                field="predicate",
                given=self.predicate,
                allowed="a predicate that is not negated",
            )

    @property
    def partitions(self) -> int:
        return self.capacity // self.partition

    @property
    def partition_bits(self) -> int:
        return self.partition.bit_length() - 1

    @property
    def unit_bits(self) -> int:
        return self.units.bit_length() - 1

    @property
    def item(self) -> data.StructLayout:
        return data.StructLayout({"id": self.id_width, "key": signed(self.key_width)})

    @property
    def count(self) -> range:
        """Counts of items, and positions including the one past the end."""
        return range(self.capacity + 1)

    @property
    def address(self) -> range:
        """Addresses in external memory and the one past its end: both halves of the array, then the batch."""
        return range(3 * self.capacity + 1)

    @property
    def batch_base(self) -> int:
        return 2 * self.capacity

    @property
    def bound(self) -> object:
        """A key plus or minus the predicate's constants, wide enough not to wrap."""
        constants = [abs(end) for end in (self.predicate.lo, self.predicate.hi) if end is not None]
        return signed(max(self.key_width, *(end.bit_length() + 1 for end in constants)) + 2)

    @property
    def record(self) -> data.StructLayout:
        """A result: the positions start .. end - 1 of the array join with probe `number`."""
        return data.StructLayout({"number": self.count, "start": self.count, "end": self.count})

    @property
    def write(self) -> data.StructLayout:
        return data.StructLayout({"address": self.address, "item": self.item})

    @property
    def note(self) -> data.StructLayout:
        """An entry of the index array: the first key of a partition."""
        return data.StructLayout({"partition": range(self.partitions), "key": self.item["key"].shape})
