"""A two-pin wrapper round a circuit, so that place and route measures the circuit, not the package's pins."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class PinHarness(wiring.Component):
    """A shift register fed by `bit_in` drives the inputs; the outputs are folded into another that ends in `bit_out`.

    Every port of the circuit starts or ends at a register, as it would next to other logic on the chip.
    """

    def __init__(self, circuit: Any):
        self.circuit = circuit
        super().__init__({"bit_in": In(1), "bit_out": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.circuit = self.circuit
        inputs: list[Any] = []
        outputs: list[Any] = []
        for _, member, port in self.circuit.signature.flatten(self.circuit):
            (inputs if member.flow == In else outputs).append(Value.cast(port))
        driven, folded = Signal(len(Cat(*inputs))), Signal(len(Cat(*outputs)))
        m.d.comb += [Cat(*inputs).eq(driven), self.bit_out.eq(folded[-1])]
        m.d.sync += [
            driven.eq(Cat(self.bit_in, driven[:-1])),
            folded.eq(Cat(self.bit_in, folded[:-1]) ^ Cat(*outputs)),
        ]
        return m
