"""The circular result buffer of cores and mergers (Oge et al., section IV-A): two addresses, an early full flag."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class ResultFifo(wiring.Component):
    """First in, first out; one write and one read per cycle; two cycles from a write to the reader.

    write_valid, write_data   a result to store; a write is never refused, so the writer must obey `almost_full`
    almost_full               at most `margin` of the `depth` entries are free
    read                      the oldest result, in an output register that is not one of the `depth` entries
    """

    def __init__(self, shape: Any, depth: int, margin: int):
        self.shape, self.depth, self.margin = shape, depth, margin
        super().__init__(
            {
                "write_valid": In(1),
                "write_data": In(shape),
                "almost_full": Out(1),
                "read": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # An entry is never read in the cycle that writes it. `no_rw_check` says so; otherwise Yosys adds forwarding
        # logic to block RAM.
        m.submodules.memory = memory = Memory(
            shape=self.shape, depth=self.depth, init=[], attrs={"no_rw_check": 1}
        )
        write, read = memory.write_port(), memory.read_port()
        # `stored` equals level != 0. It is a register of its own because it lies on the path back from the reader,
        # which must not include the adder.
        level, stored, load = Signal(range(self.depth + 1)), Signal(), Signal()
        last = write.addr == self._next(read.addr)  # exactly one entry is stored
        m.d.comb += [
            load.eq(stored & (~self.read.valid | self.read.ready)),
            write.en.eq(self.write_valid),
            write.data.eq(self.write_data),
            read.en.eq(load),
            self.read.payload.eq(read.data),
            self.almost_full.eq(level >= self.depth - self.margin),
        ]
        m.d.sync += [
            level.eq(level + self.write_valid - load),
            stored.eq(self.write_valid | (stored & ~(load & last))),
            self.read.valid.eq(stored | (self.read.valid & ~self.read.ready)),
        ]
        with m.If(self.write_valid):
            m.d.sync += write.addr.eq(self._next(write.addr))
        with m.If(load):
            m.d.sync += read.addr.eq(self._next(read.addr))
        return m

    def _next(self, address: Any) -> Any:
        return Mux(address == self.depth - 1, 0, address + 1)
