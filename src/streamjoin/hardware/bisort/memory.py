"""Simulated external memory with given latency and bandwidth; it answers in order."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.shapes import BiSortParameters


def response_layout(parameters: BiSortParameters) -> data.StructLayout:
    return data.StructLayout({"item": parameters.item, "valid": 1})


class ExternalMemory(wiring.Component):
    """Both halves of the main array, and the batch; `readers` read ports and `writers` write ports.

    request[i], response[i]   an address in; its item comes `latency` cycles later, and the reader must take it
    write[i]                  an address and an item
    host_write, host_item     the host writes batches, at no cost
    host_address, host_read   the host reads windows; `host_read` is the item at the previous cycle's address

    Every `interval` cycles the memory accepts `bandwidth` requests over all ports; waiting ports are served before
    those that were served last.
    """

    def __init__(self, parameters: BiSortParameters, readers: int, writers: int):
        self.parameters, self.readers, self.writers = parameters, readers, writers
        p = parameters
        super().__init__(
            {
                "request": In(stream.Signature(p.address)).array(readers),
                "response": Out(response_layout(p)).array(readers),
                "write": In(stream.Signature(p.write)).array(writers),
                "host_write": In(1),
                "host_address": In(p.address),
                "host_item": In(p.item),
                "host_read": Out(p.item),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.contents = contents = Memory(shape=p.item, depth=3 * p.capacity, init=[])
        host_write, host_read = contents.write_port(), contents.read_port()
        m.d.comb += [
            host_write.addr.eq(self.host_address),
            host_write.data.eq(self.host_item),
            host_write.en.eq(self.host_write),
            host_read.addr.eq(self.host_address),
            self.host_read.eq(host_read.data),
        ]
        ports = [*self.request, *self.write]
        granted = self._grant(m, Cat(port.valid for port in ports))
        m.d.comb += Cat(port.ready for port in ports).eq(granted)
        for i, port in enumerate(self.write):
            write = contents.write_port()
            m.d.comb += [
                write.addr.eq(port.payload.address),
                write.data.eq(port.payload.item),
                write.en.eq(port.valid & granted[self.readers + i]),
            ]
        for i, port in enumerate(self.request):
            read = contents.read_port()
            m.d.comb += read.addr.eq(port.payload)
            self._delay(m, read.data, port.valid & granted[i], self.response[i])
        return m

    def _delay(self, m: Module, item: Any, asked: Any, response: Any) -> None:
        """The item is available one cycle after the request; delay it for the rest of the latency."""
        valid = Signal()
        m.d.sync += valid.eq(asked)
        for _ in range(self.parameters.latency - 1):
            later, later_valid = Signal(self.parameters.item), Signal()
            m.d.sync += [later.eq(item), later_valid.eq(valid)]
            item, valid = later, later_valid
        m.d.comb += [response.item.eq(item), response.valid.eq(valid)]

    def _grant(self, m: Module, wanted: Any) -> Any:
        """Which ports are served in this cycle."""
        p, count = self.parameters, len(wanted)
        granted, served, firsts = Signal(count), Signal(count), Signal(count)
        takes = self._takes(m, wanted)
        m.d.comb += firsts.eq(wanted & ~served)
        ahead_of_first, ahead_of_second = 0, sum(firsts[i] for i in range(count))
        for i in range(count):
            ahead = Mux(firsts[i], ahead_of_first, ahead_of_second)
            m.d.comb += granted[i].eq(wanted[i] & takes & (ahead < p.bandwidth))
            ahead_of_first = ahead_of_first + firsts[i]
            ahead_of_second = ahead_of_second + (wanted[i] & served[i])
        with m.If((firsts & ~granted) != 0):
            m.d.sync += served.eq(served | granted)
        with m.Elif(granted != 0):
            m.d.sync += served.eq(granted & ~firsts)
        return granted

    def _takes(self, m: Module, wanted: Any) -> Any:
        """1 in one of `interval` cycles."""
        if self.parameters.interval == 1:
            return 1
        pause = Signal(range(self.parameters.interval))
        with m.If(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(wanted != 0):
            m.d.sync += pause.eq(self.parameters.interval - 1)
        return pause == 0
