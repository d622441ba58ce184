"""A run of consecutive items of external memory as a stream, so that its bandwidth is used whatever its latency."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class Reader(wiring.Component):
    """Reads the addresses from `first` up to `end`, which is not read itself.

    go, first, end        begin; a run that is under way is given up, and what it has asked for is dropped
    request, response     to a port of the memory
    items, done           the items; none is left
    """

    def __init__(self, item: Any, addresses: Any, outstanding: int):
        self.item, self.addresses, self.outstanding = item, addresses, outstanding
        super().__init__(
            {
                "go": In(1),
                "first": In(addresses),
                "end": In(addresses),
                "request": Out(stream.Signature(addresses)),
                "response": In(stream.Signature(item)),
                "items": Out(stream.Signature(item)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        at, end = Signal(self.addresses), Signal(self.addresses)
        asked, stale = Signal(range(self.outstanding + 1)), Signal(range(self.outstanding + 1))
        asking, answered = Signal(), Signal()
        m.d.comb += [
            self.request.valid.eq((at != end) & ~self.go & (asked != self.outstanding)),
            self.request.payload.eq(at),
            asking.eq(self.request.valid & self.request.ready),
            self.items.valid.eq(self.response.valid & (stale == 0) & ~self.go),
            self.items.payload.eq(self.response.payload),
            self.response.ready.eq((self.items.ready & ~self.go) | (stale != 0)),
            answered.eq(self.response.valid & self.response.ready),
            self.done.eq((at == end) & (asked == stale) & ~self.go),
        ]
        m.d.sync += asked.eq(asked + asking - answered)
        with m.If(self.go):
            m.d.sync += [at.eq(self.first), end.eq(self.end), stale.eq(asked - answered)]
        with m.Else():
            m.d.sync += [at.eq(at + asking), stale.eq(stale - (answered & (stale != 0)))]
        return m
