"""The partitioner: in which partition of the sorted array a bound lies, by binary search in the index array."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.shapes import BiSortParameters


def located(parameters: BiSortParameters) -> data.StructLayout:
    """A bound and the last partition that begins below it; the first one if none does."""
    return data.StructLayout({"bound": parameters.bound, "partition": range(parameters.partitions + 1)})


class Partitioner(wiring.Component):
    """Bounds in, located bounds out, in their order; two cycles for each halving of the partitions.

    partitions                how many the index holds
    index_at, index_key       a port of the index array, which answers in the next cycle
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = parameters
        super().__init__(
            {
                "bounds": In(stream.Signature(parameters.bound)),
                "output": Out(stream.Signature(located(parameters))),
                "partitions": In(range(parameters.partitions + 1)),
                "index_at": Out(range(parameters.partitions)),
                "index_key": In(parameters.item["key"].shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        numbers = range(self.parameters.partitions + 1)
        # Partitions below `lo` begin below the bound, those from `hi` on do not.
        lo, hi, middle = Signal(numbers), Signal(numbers), Signal(numbers)
        bound = self.output.payload.bound
        m.d.comb += [middle.eq((lo + hi) >> 1), self.index_at.eq(middle)]
        with m.If(lo != 0):
            m.d.comb += self.output.payload.partition.eq(lo - 1)
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += self.bounds.ready.eq(1)
                m.d.sync += [bound.eq(self.bounds.payload), lo.eq(0), hi.eq(self.partitions)]
                with m.If(self.bounds.valid):
                    m.next = "READ"
            with m.State("READ"):
                with m.If(lo == hi):
                    m.d.comb += self.output.valid.eq(1)
                    with m.If(self.output.ready):
                        m.next = "TAKE"
                with m.Else():
                    m.next = "HALVE"
            with m.State("HALVE"):
                with m.If(self.index_key < bound):
                    m.d.sync += lo.eq(middle + 1)
                with m.Else():
                    m.d.sync += hi.eq(middle)
                m.next = "READ"
        return m
