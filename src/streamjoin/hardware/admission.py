"""Admission control: no result is lost, because full buffers stop the cores and the input (Oge et al., section IV-D).

This module implements rule 1: while any full flag is set, all cores are suspended and arriving tuples are refused.
Rule 2 (a merger loads nothing while its own flag is set) is part of the merger.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.layouts import COUNTER_WIDTH


class AdmissionControl(wiring.Component):
    """Decides in each cycle whether a round starts.

    full                          the full flags of all cores and mergers
    ready                         the cores are in state 1
    left_valid, right_valid       a tuple waits at this edge
    left_ready, right_ready       the tuple is consumed: it enters a round or, unless `lossless`, is refused
    start, suspend                to all cores; `suspend` follows the flags one cycle later
    refused_left, refused_right   tuples refused so far
    """

    def __init__(self, flags: int, lossless: bool):
        self.lossless = lossless
        bits = ("ready", "left_valid", "right_valid")
        outs = ("left_ready", "right_ready", "start", "suspend")
        super().__init__(
            {
                "full": In(flags),
                **{name: In(1) for name in bits},
                **{name: Out(1) for name in outs},
                "refused_left": Out(COUNTER_WIDTH),
                "refused_right": Out(COUNTER_WIDTH),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        suspend = Signal()
        m.d.sync += suspend.eq(self.full.any())
        taking = self.ready & ~suspend
        edges_ready = taking if self.lossless else taking | suspend
        m.d.comb += [
            self.suspend.eq(suspend),
            self.start.eq(taking & (self.left_valid | self.right_valid)),
            self.left_ready.eq(edges_ready),
            self.right_ready.eq(edges_ready),
        ]
        if not self.lossless:
            with m.If(suspend):
                m.d.sync += [
                    self.refused_left.eq(self.refused_left + self.left_valid),
                    self.refused_right.eq(self.refused_right + self.right_valid),
                ]
        return m
