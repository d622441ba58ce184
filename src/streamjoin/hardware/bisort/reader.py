"""A run of consecutive items of external memory as a stream, so that its bandwidth is used whatever its latency."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.memory import response_layout
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.fifo import ResultFifo


def places(parameters: BiSortParameters) -> int:
    """What a reader holds: enough to ask for an item every cycle until the first one is handed out."""
    return parameters.latency + 4


class Reader(wiring.Component):
    """Reads the addresses from `first` up to `end`, which is not read itself. Never more is asked for than fits.

    go, first, end        begin; a run that is under way is given up, and what it has asked for is dropped
    request, response     a port of the memory
    items, done           the items; none is left
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
        m.submodules.fifo = fifo = ResultFifo(p.item, places(p), 0)
        at, end = Signal(p.address), Signal(p.address)
        # Of those asked for and not yet handed out, the stale ones belong to a run that was given up.
        asked, stale = Signal(range(places(p) + 1)), Signal(range(places(p) + 1))
        asking, passed = Signal(), Signal()
        m.d.comb += [
            fifo.write_valid.eq(self.response.valid),
            fifo.write_data.eq(self.response.item),
            self.request.valid.eq((at != end) & ~self.go & (asked != places(p))),
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
