"""External memory, simulated: stated latency and bandwidth, answers in order."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out


class ExternalMemory(wiring.Component):
    """`depth` items with `ports` ports to read and one to write.

    request[i], response[i]   an address in, its item `latency` cycles later; one that is not taken stops its port
    write                     an address and an item
    Each of them takes one item every `interval` cycles.
    """

    def __init__(self, item: Any, depth: int, ports: int, latency: int, interval: int):
        self.item, self.depth, self.ports = item, depth, ports
        self.latency, self.interval = latency, interval
        self.contents = Memory(shape=item, depth=depth, init=[])
        writes = data.StructLayout({"address": range(depth), "item": item})
        super().__init__(
            {
                "request": In(stream.Signature(range(depth))).array(ports),
                "response": Out(stream.Signature(item)).array(ports),
                "write": In(stream.Signature(writes)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.contents = self.contents
        write = self.contents.write_port()
        m.d.comb += [
            self.write.ready.eq(self._open(m, self.write.valid)),
            write.en.eq(self.write.valid & self.write.ready),
            write.addr.eq(self.write.payload.address),
            write.data.eq(self.write.payload.item),
        ]
        for i in range(self.ports):
            self._read_port(m, self.request[i], self.response[i])
        return m

    def _open(self, m: Module, taken: Any) -> Any:
        """1 once every `interval` cycles at most."""
        if self.interval == 1:
            return 1
        pause = Signal(range(self.interval))
        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(taken):
            m.d.sync += pause.eq(self.interval - 1)
        return pause == 0

    def _read_port(self, m: Module, request: Any, response: Any) -> None:
        read = self.contents.read_port()
        moving = ~response.valid | response.ready
        m.d.comb += [
            request.ready.eq(moving & self._open(m, request.valid & moving)),
            read.addr.eq(request.payload),
            read.en.eq(moving),
        ]
        item, valid = read.data, Signal()
        with m.If(moving):
            m.d.sync += valid.eq(request.valid & request.ready)
        for _ in range(self.latency - 1):
            later, later_valid = Signal(self.item), Signal()
            with m.If(moving):
                m.d.sync += [later.eq(item), later_valid.eq(valid)]
            item, valid = later, later_valid
        m.d.comb += [response.payload.eq(item), response.valid.eq(valid)]
