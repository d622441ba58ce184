"""The prober of BI-Sort (PanJoin, Figure 9): merges ascending bounds with the sorted array to find their positions."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.partitioner import located
from streamjoin.hardware.bisort.reader import read_ahead
from streamjoin.hardware.bisort.shapes import BiSortParameters


class BoundProber(wiring.Component):
    """Counts the items below each bound. Within a batch, bounds must not decrease.

    Each cycle consumes an item or a bound. The prober continues where the last bound was found. It jumps to the bound's
    partition if that is further away than the items already requested from memory, so a jump is never slower than
    reading on.

    restart                   a new batch: the next bound may be smaller than the last
    bounds, positions         one position for each bound
    go, first                 to the reader: start at this item
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
            self.go.eq(self.bounds.valid & (~running | (self.first > at + read_ahead(p)))),
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
