"""Low-latency handshake join as a circuit: a result leaves a bounded number of cycles after its later tuple arrives.

Roy et al., section 4, in hardware. Tuples are stored round-robin: number i of a stream goes to core i mod n and
replaces the tuple that is one window older. Every tuple passes all cores, one hop per cycle, and probes each. In
handshake join a pair may wait for later arrivals to bring its tuples together; here no pair waits, and nothing needs
flushing.

Cores and mergers stall only their neighbours, so admission control is local: there is no global stall signal, and no
core stops without need (future work in Oge et al., section VI).
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring

from streamjoin.hardware.layouts import join_members, result_layout
from streamjoin.hardware.low_latency_core import PIPELINE_MARGIN, LowLatencyCore, command_layout, period
from streamjoin.hardware.mergers import FairMerger
from streamjoin.hardware.network import MergingNetwork
from streamjoin.hardware.parameters import HardwareError, Parameters


class LowLatencyJoin(wiring.Component):
    """The ports are `join_members`. If both streams have a tuple, they alternate, left first.

    Unless `lossless`, tuples are refused and counted once the first core has accepted none for two periods.
    """

    def __init__(self, parameters: Parameters):
        if parameters.comparators & (parameters.comparators - 1):
            raise HardwareError(
                f"comparators is {parameters.comparators}: give a power of two",
                field="comparators",
                given=parameters.comparators,
                allowed="a power of two",
            )
        if parameters.core_fifo <= PIPELINE_MARGIN:
            raise HardwareError(
                f"core_fifo is {parameters.core_fifo}: this design needs at least {PIPELINE_MARGIN + 1}",
                field="core_fifo",
                given=parameters.core_fifo,
                allowed=f"at least {PIPELINE_MARGIN + 1}",
            )
        self.parameters = parameters
        super().__init__(join_members(parameters))

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        cores = [LowLatencyCore(p) for _ in range(p.cores)]
        m.submodules.network = network = MergingNetwork(
            FairMerger, result_layout(p), p.merger_fifo, p.cores, p.lanes
        )
        for i, core in enumerate(cores):
            m.submodules[f"core_{i}"] = core
            wiring.connect(m, core.output, network.inputs[i])
            if i:
                wiring.connect(m, cores[i - 1].forward, core.command)
        m.d.comb += cores[-1].forward.ready.eq(1)
        for lane in range(p.lanes):
            wiring.connect(m, network.outputs[lane], wiring.flipped(self.output[lane]))
        self._enter(m, cores[0])
        return m

    def _enter(self, m: Module, first: LowLatencyCore) -> None:
        """Merge both inputs into one order and give each tuple its home core."""
        p, command = self.parameters, first.command
        turn, right, refuse = Signal(), Signal(), Signal()  # turn: right goes next if both wait
        homes = []
        for name, taken in (("left", ~right), ("right", right)):
            home = Signal(command_layout(p)["home"].shape, name=f"{name}_home")
            with m.If(command.valid & command.ready & taken):
                m.d.sync += home.eq(Mux(home == p.cores - 1, 0, home + 1))
            homes.append(home)
        m.d.comb += [
            right.eq(self.right.valid & (turn | ~self.left.valid)),
            command.valid.eq(self.left.valid | self.right.valid),
            command.payload.tuple.eq(Mux(right, self.right.payload.as_value(), self.left.payload.as_value())),
            command.payload.right.eq(right),
            command.payload.home.eq(Mux(right, homes[1], homes[0])),
            self.left.ready.eq((command.ready & ~right) | refuse),
            self.right.ready.eq((command.ready & right) | refuse),
        ]
        with m.If(command.valid & command.ready):
            m.d.sync += turn.eq(~right)
        if not p.lossless:
            patience = 2 * period(p)
            waited = Signal(range(patience + 1))
            m.d.comb += refuse.eq((waited == patience) & ~command.ready)
            with m.If(command.ready):
                m.d.sync += waited.eq(0)
            with m.Elif(waited != patience):
                m.d.sync += waited.eq(waited + 1)
            with m.If(refuse):
                m.d.sync += self.refused_left.eq(self.refused_left + self.left.valid)
                m.d.sync += self.refused_right.eq(self.refused_right + self.right.valid)
