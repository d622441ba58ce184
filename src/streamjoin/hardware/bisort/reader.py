"""Streams consecutive items from external memory and requests ahead, so that latency does not cost bandwidth."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.memory import response_layout
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.fifo import ResultFifo


def read_ahead(parameters: BiSortParameters) -> int:
    """The number of items a reader can hold: enough to request one every cycle until the first is consumed."""
    return parameters.latency + 4


class Reader(wiring.Component):
    """Reads the addresses `first` to `end` - 1. It never requests more items than it can hold.

    go, first, end        start; a read in progress is abandoned and the items it requested are dropped
    request, response     a memory port
    items, done           the items; no item is left
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        super().__init__(
            {
                "go": In(1),
                "first": In(p.address),
                "end": In(p.address),
                "request": Out(stream.Signature(p.address)),
                "response": In(response_layout(p)),
                "items": Out(stream.Signature(p.item)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.fifo = fifo = ResultFifo(p.item, read_ahead(p), 0)
        at, end = Signal(p.address), Signal(p.address)
        # `asked`: items requested and not yet consumed. The first `stale` of them belong to an abandoned read.
        asked, stale = Signal(range(read_ahead(p) + 1)), Signal(range(read_ahead(p) + 1))
        asking, passed = Signal(), Signal()
        m.d.comb += [
            fifo.write_valid.eq(self.response.valid),
            fifo.write_data.eq(self.response.item),
            self.request.valid.eq((at != end) & ~self.go & (asked != read_ahead(p))),
            self.request.payload.eq(at),
            asking.eq(self.request.valid & self.request.ready),
            self.items.valid.eq(fifo.read.valid & (stale == 0) & ~self.go),
            self.items.payload.eq(fifo.read.payload),
            fifo.read.ready.eq((self.items.ready & ~self.go) | (stale != 0)),
            passed.eq(fifo.read.valid & fifo.read.ready),
            self.done.eq((at == end) & (asked == stale) & ~self.go),
        ]
        m.d.sync += asked.eq(asked + asking - passed)
        with m.If(self.go):
            m.d.sync += [at.eq(self.first), end.eq(self.end), stale.eq(asked - passed)]
        with m.Else():
            m.d.sync += [at.eq(at + asking), stale.eq(stale - (passed & (stale != 0)))]
        return m
