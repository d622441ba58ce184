"""A core's segments of both windows as ring buffers: in block RAM if large, in lookup-table RAM if small."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.layouts import tuple_layout
from streamjoin.hardware.parameters import Parameters


class RingWindow(wiring.Component):
    """The latest tuples of both streams; a new one replaces the oldest of its stream.

    A row is one tuple of each bank. Each bank keeps its keys in a RAM of its own, so a whole row is read at once. The
    payload, with the key if a result needs it, is in another RAM that is read one tuple at a time. Both streams share
    each RAM, since a tuple reads the other stream's part and writes its own.

    scan, scan_right, scan_row                  read a row of keys; a right tuple (`scan_right`) reads left's keys
    keys                                        the keys read by the last scan; stable while `scan` is low
    fetch, fetch_right, fetch_row, fetch_bank   read the payload of one tuple, likewise of the other stream
    found                                       the payload read by the last fetch
    store, store_right, stored                  replace the oldest tuple of the stream
    ready                                       all slots are cleared (one row per cycle after reset)
    """

    def __init__(self, parameters: Parameters):
        p = self.parameters = parameters
        self.row_bits = (max(p.left_segment, p.right_segment) // p.comparators - 1).bit_length()
        self.bank_bits = (p.comparators - 1).bit_length()
        shape = tuple_layout(p)
        self.key_shape = data.StructLayout({"key": shape["key"].shape, "valid": 1})
        payload = {"payload": p.payload_width}
        self.payload_shape = data.StructLayout(
            payload if p.predicate.is_equality else {**payload, "key": shape["key"].shape}
        )
        bits = ("scan", "scan_right", "fetch", "fetch_right", "store", "store_right")
        super().__init__(
            {
                **{name: In(1) for name in bits},
                "scan_row": In(self.row_bits),
                "keys": Out(self.key_shape).array(p.comparators),
                "fetch_row": In(self.row_bits),
                "fetch_bank": In(self.bank_bits),
                "found": Out(self.payload_shape),
                "stored": In(shape),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        clear = Signal(self.row_bits + 2)
        m.d.comb += self.ready.eq(clear[-1])
        with m.If(~self.ready):
            m.d.sync += clear.eq(clear + 1)
        head = self._heads(m)
        bank, row = head[: self.bank_bits], Cat(head[self.bank_bits :], self.store_right)
        for i in range(p.comparators):
            memory = self._memory(m, f"keys_{i}", self.key_shape, self.row_bits + 1)
            write, read = memory.write_port(), memory.read_port()
            m.d.comb += [
                write.addr.eq(Mux(self.ready, row, clear)),
                write.en.eq(~self.ready | (self.store & (bank == i))),
                write.data.key.eq(self.stored.key),
                write.data.valid.eq(self.stored.valid & self.ready),
                read.addr.eq(Cat(self.scan_row, ~self.scan_right)),
                read.en.eq(self.scan),
                self.keys[i].eq(read.data),
            ]
        memory = self._memory(m, "payload", self.payload_shape, self.bank_bits + self.row_bits + 1)
        write, read = memory.write_port(), memory.read_port()
        m.d.comb += [
            write.addr.eq(Cat(head, self.store_right)),
            write.en.eq(self.store),
            *(write.data[name].eq(self.stored[name]) for name in self.payload_shape.members),
            read.addr.eq(Cat(self.fetch_bank, self.fetch_row, ~self.fetch_right)),
            read.en.eq(self.fetch),
            self.found.eq(read.data),
        ]
        return m

    def _heads(self, m: Module) -> Any:
        """The slot of the oldest tuple in the stream selected by `store_right`."""
        heads = []
        for name, segment in (
            ("left", self.parameters.left_segment),
            ("right", self.parameters.right_segment),
        ):
            head = Signal(self.bank_bits + self.row_bits, name=f"{name}_head")
            with m.If(self.store & (self.store_right == (name == "right"))):
                m.d.sync += head.eq(Mux(head == segment - 1, 0, head + 1))
            heads.append(head)
        return Mux(self.store_right, heads[1], heads[0])

    def _memory(self, m: Module, name: str, shape: Any, address_bits: int) -> Memory:
        # No slot is read in the cycle that writes it. `no_rw_check` says so; otherwise Yosys adds forwarding logic.
        memory = Memory(shape=shape, depth=1 << address_bits, init=[], attrs={"no_rw_check": 1})
        m.submodules[name] = memory
        return memory
