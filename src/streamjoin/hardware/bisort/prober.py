"""The prober of BI-Sort (PanJoin, Figure 9): rising bounds against the sorted array, as a merge does it."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.partitioner import located
from streamjoin.hardware.bisort.reader import places
from streamjoin.hardware.bisort.shapes import BiSortParameters


class Prober(wiring.Component):
    """For each bound the number of items below it. Bounds must not fall within a batch.

    A cycle takes either an item or a bound. The prober goes on where the last bound was found, or jumps to the bound's
    partition if that is further away than what is on its way from the memory, so that no jump is slower than
    reading on.

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
        at, running, below, beyond = Signal(p.count), Signal(), Signal(), Signal()
        m.d.comb += [
            self.first.eq(self.bounds.payload.partition << p.partition_bits),
            self.go.eq(self.bounds.valid & (~running | (self.first > at + places(p)))),
            below.eq(self.items.valid & (self.items.payload.key < self.bounds.payload.bound)),
            beyond.eq((self.items.valid & ~below) | self.done),
            self.items.ready.eq(self.bounds.valid & below & ~self.go),
            self.positions.valid.eq(self.bounds.valid & beyond & ~self.go),
            self.positions.payload.eq(at),
            self.bounds.ready.eq(self.positions.valid & self.positions.ready),
        ]
        with m.If(self.go):
            m.d.sync += [at.eq(self.first), running.eq(1)]
        with m.Elif(self.items.ready):
            m.d.sync += at.eq(at + 1)
        with m.If(self.restart):
            m.d.sync += running.eq(0)
        return m
