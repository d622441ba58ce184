"""The merger of BI-Sort (PanJoin, Figure 8): two sorted streams in, one out; one comparison and one item per cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class SortedMerger(wiring.Component):
    """`first` and `second` are sorted by key; so is `output`, with `first` before `second` at equal keys.

    first_done, second_done   that stream has no more items
    """

    def __init__(self, item: Any):
        super().__init__(
            {
                "first": In(stream.Signature(item)),
                "second": In(stream.Signature(item)),
                "first_done": In(1),
                "second_done": In(1),
                "output": Out(stream.Signature(item)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        first, second = self.first, self.second
        choose_second = Signal()
        known = (first.valid | self.first_done) & (second.valid | self.second_done)
        m.d.comb += [
            choose_second.eq(second.valid & (self.first_done | (second.payload.key < first.payload.key))),
            self.output.valid.eq(known & (first.valid | second.valid)),
            first.ready.eq(self.output.ready & known & ~choose_second),
            second.ready.eq(self.output.ready & known & choose_second),
        ]
        with m.If(choose_second):
            m.d.comb += self.output.payload.eq(second.payload)
        with m.Else():
            m.d.comb += self.output.payload.eq(first.payload)
        return m
