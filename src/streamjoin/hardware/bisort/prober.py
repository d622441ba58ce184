"""The prober of BI-Sort (PanJoin, Figure 9): rising bounds against the sorted array, as a merge does it."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.partitioner import located
from streamjoin.hardware.bisort.shapes import BiSortParameters


class Prober(wiring.Component):
    """For each bound the number of items below it. Bounds must not fall within a batch.

    It goes on where the last bound was found, or jumps to the bound's partition if that begins later; so a
    bound costs at most a partition of items and one latency of the memory.

    restart                   a new batch: bounds may begin anew
    bounds, positions         one position for each bound
    go, first                 to the reader: begin at an item
    items, done               from the reader
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        super().__init__(
            {
                "restart": In(1),
                "bounds": In(stream.Signature(located(p))),
                "positions": Out(stream.Signature(p.count)),
                "go": Out(1),
                "first": Out(p.count),
                "items": In(stream.Signature(p.item)),
                "done": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        at, running, bound = Signal(p.count), Signal(), Signal(p.bound)
        start = Signal(p.count)
        m.d.comb += [start.eq(self.bounds.payload.partition * p.partition), self.first.eq(start)]
        with m.FSM():
            with m.State("BOUND"):
                m.d.comb += self.bounds.ready.eq(1)
                m.d.sync += bound.eq(self.bounds.payload.bound)
                with m.If(self.bounds.valid):
                    with m.If(~running | (start > at)):
                        m.d.comb += self.go.eq(1)
                        m.d.sync += [at.eq(start), running.eq(1)]
                    m.next = "SCAN"
            with m.State("SCAN"):
                m.d.comb += self.positions.payload.eq(at)
                with m.If(self.items.valid & (self.items.payload.key < bound)):
                    m.d.comb += self.items.ready.eq(1)
                    m.d.sync += at.eq(at + 1)
                with m.Elif(self.items.valid | self.done):
                    m.d.comb += self.positions.valid.eq(1)
                    with m.If(self.positions.ready):
                        m.next = "BOUND"
        with m.If(self.restart):
            m.d.sync += running.eq(0)
        return m
