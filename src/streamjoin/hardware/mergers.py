"""Mergers: two result streams in, one out. The paper's three-state merger, and one that passes a result every cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.fifo import ResultFifo


class _Merger(wiring.Component):
    """The ports of both mergers: inputs `first` and `second`, `output`, and `full`, the flag of the result buffer."""

    def __init__(self, shape: Any, depth: int):
        self.shape, self.depth = shape, depth
        members = {"first": In(stream.Signature(shape)), "second": In(stream.Signature(shape))}
        super().__init__({**members, "output": Out(stream.Signature(shape)), "full": Out(1)})

    def _buffer(self, m: Module, margin: int) -> ResultFifo:
        m.submodules.fifo = fifo = ResultFifo(self.shape, self.depth, margin)
        m.d.comb += self.full.eq(fifo.almost_full)
        wiring.connect(m, fifo.read, wiring.flipped(self.output))
        return fifo


class Merger(_Merger):
    """The paper's merger (section IV-B, Figure 6): load both inputs, store the first, store the second.

    At most two results in three cycles. It loads nothing while its own full flag is set (section IV-D, rule 2).
    """

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # Loaded results must fit, and both inputs may bring one in the same cycle.
        fifo = self._buffer(m, margin=1)
        loaded = [Signal(self.shape, name=f"loaded_{i}") for i in range(2)]
        valid = [Signal(name=f"valid_{i}") for i in range(2)]
        with m.FSM():
            with m.State("LOAD"):
                for port, value, flag in zip((self.first, self.second), loaded, valid, strict=True):
                    m.d.comb += port.ready.eq(~fifo.almost_full)
                    m.d.sync += [value.eq(port.payload), flag.eq(port.valid & port.ready)]
                m.next = "STORE_FIRST"
            for i, (name, after) in enumerate((("STORE_FIRST", "STORE_SECOND"), ("STORE_SECOND", "LOAD"))):
                with m.State(name):
                    m.d.comb += [fifo.write_valid.eq(valid[i]), fifo.write_data.eq(loaded[i])]
                    m.next = after
        return m


class FairMerger(_Merger):
    """One result per cycle: from the only input that has one, or from the input that was not served last."""

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # The full flag is registered to shorten the critical path, so one more result may arrive.
        fifo = self._buffer(m, margin=1)
        full, choose_second = Signal(), Signal()
        turn = Signal()  # serve the second input if both have a result
        m.d.sync += full.eq(fifo.almost_full)
        m.d.comb += [
            choose_second.eq(self.second.valid & (turn | ~self.first.valid)),
            self.first.ready.eq(~choose_second & ~full),
            self.second.ready.eq(choose_second & ~full),
            fifo.write_valid.eq((self.first.valid | self.second.valid) & ~full),
        ]
        with m.If(choose_second):
            m.d.comb += fifo.write_data.eq(self.second.payload)
        with m.Else():
            m.d.comb += fifo.write_data.eq(self.first.payload)
        with m.If(fifo.write_valid):
            m.d.sync += turn.eq(~choose_second)
        return m
