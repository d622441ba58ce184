"""Handshake join as Oge et al. built it: n cores in lock step, left and right flowing in opposite directions.

Each row window is split into n segments. A pair is found when its tuples meet in a core: either the later one enters
the core that holds the earlier one, or further arrivals move them to a common core. Tuples whose `valid` is 0 move a
window without joining, so one left window of them flushes out every remaining pair.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring

from streamjoin.hardware.admission import AdmissionControl
from streamjoin.hardware.join_core import JoinCore
from streamjoin.hardware.layouts import join_members, result_layout, tuple_layout
from streamjoin.hardware.mergers import Merger
from streamjoin.hardware.network import MergingNetwork
from streamjoin.hardware.parameters import HardwareError, Parameters


class HandshakeJoin(wiring.Component):
    """The ports are `join_members`. A round takes the tuples waiting at both edges, left before right."""

    def __init__(self, parameters: Parameters):
        if parameters.comparators != 1:
            raise HardwareError(
                f"comparators is {parameters.comparators}: give 1, as in the paper; "
                "the low-latency design allows more",
                field="comparators",
                given=parameters.comparators,
                allowed="1",
            )
        self.parameters = parameters
        super().__init__(join_members(parameters))

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        cores = [JoinCore(p) for _ in range(p.cores)]
        network = MergingNetwork(Merger, result_layout(p), p.merger_fifo, p.cores, p.lanes)
        control = AdmissionControl(2 * p.cores - p.lanes, p.lossless)
        m.submodules.network, m.submodules.control = network, control
        m.d.comb += [
            control.full.eq(Cat(network.full, *(core.full for core in cores))),
            control.ready.eq(cores[0].ready),
            control.left_valid.eq(self.left.valid),
            control.right_valid.eq(self.right.valid),
            self.left.ready.eq(control.left_ready),
            self.right.ready.eq(control.right_ready),
            self.refused_left.eq(control.refused_left),
            self.refused_right.eq(control.refused_right),
        ]
        self._chain(m, cores, control)
        for i, core in enumerate(cores):
            m.submodules[f"core_{i}"] = core
            wiring.connect(m, core.output, network.inputs[i])
        for lane in range(p.lanes):
            wiring.connect(m, network.outputs[lane], wiring.flipped(self.output[lane]))
        return m

    def _chain(self, m: Module, cores: list[JoinCore], control: AdmissionControl) -> None:
        """Left enters core 0, right enters the last core; cores read the input registers in state 3."""
        shape = tuple_layout(self.parameters)
        left, right, left_new, right_new = Signal(shape), Signal(shape), Signal(), Signal()
        with m.If(control.start):
            m.d.sync += [left.eq(self.left.payload), right.eq(self.right.payload)]
            m.d.sync += [left_new.eq(self.left.valid), right_new.eq(self.right.valid)]
        for i, core in enumerate(cores):
            m.d.comb += [
                core.start.eq(control.start),
                core.suspend.eq(control.suspend),
                core.left_new.eq(left_new),
                core.right_new.eq(right_new),
                core.left_in.eq(cores[i - 1].left_out if i else left),
                core.right_in.eq(cores[i + 1].right_out if i + 1 < len(cores) else right),
            ]
