"""The paper's join core: segments of both windows as shift registers, scanned one tuple per cycle.

Oge et al., section IV-A and Figure 4. All cores of a join are in the same state in every cycle, so each takes its
neighbour's oldest tuple before the neighbour shifts. Immediate scan (Figure 5): a tuple that enters the core is
compared with the other stream's tuples in it. Left enters first, so right is compared with the new left tuple.
"""

from __future__ import annotations

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.fifo import ResultFifo
from streamjoin.hardware.layouts import result, result_layout, tuple_layout
from streamjoin.hardware.parameters import Parameters

# One more result may be written in the cycle in which the other cores see the full flag.
CORE_MARGIN = 1


class JoinCore(wiring.Component):
    """One core. A round with both tuples takes left_segment + right_segment + 5 cycles.

    start                     a round begins; `left_new` and `right_new` are set for the streams that bring a tuple
    left_in, right_in         the neighbours' oldest tuples, or the input streams; read two cycles after `start`
    left_out, right_out       the oldest tuples of this core's segments
    suspend                   stop the scan; no result is written
    ready, full, output       the core is in state 1; its buffer is almost full; results
    """

    def __init__(self, parameters: Parameters):
        self.parameters = parameters
        shape = tuple_layout(parameters)
        super().__init__(
            {
                "start": In(1),
                "left_new": In(1),
                "right_new": In(1),
                "left_in": In(shape),
                "right_in": In(shape),
                "left_out": Out(shape),
                "right_out": Out(shape),
                "suspend": In(1),
                "ready": Out(1),
                "full": Out(1),
                "output": Out(stream.Signature(result_layout(parameters))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        shape = tuple_layout(p)
        lefts = [Signal(shape, name=f"left_{i}") for i in range(p.left_segment)]
        rights = [Signal(shape, name=f"right_{i}") for i in range(p.right_segment)]
        left, right = Signal(shape), Signal(shape)
        at = Signal(range(max(p.left_segment, p.right_segment)))
        m.submodules.fifo = fifo = ResultFifo(result_layout(p), p.core_fifo, CORE_MARGIN)
        m.d.comb += [
            self.left_out.eq(lefts[-1]),
            self.right_out.eq(rights[-1]),
            self.full.eq(fifo.almost_full),
        ]
        wiring.connect(m, fifo.read, wiring.flipped(self.output))
        with m.FSM():
            with m.State("INIT"):
                m.next = "READY"
            with m.State("READY"):
                m.d.comb += self.ready.eq(1)
                with m.If(self.start):
                    m.next = "RECEIVE"
            with m.State("RECEIVE"):
                m.next = "LOAD"
            with m.State("LOAD"):
                m.d.sync += [left.eq(self.left_in), right.eq(self.right_in)]
                m.next = "CHECK_LEFT"
            self._enter(m, "LEFT", self.left_new, left, lefts, at, "CHECK_RIGHT")
            self._scan(m, "LEFT", left, rights, at, fifo, "CHECK_RIGHT")
            self._enter(m, "RIGHT", self.right_new, right, rights, at, "READY")
            self._scan(m, "RIGHT", right, lefts, at, fifo, "READY")
        return m

    def _enter(
        self, m: Module, side: str, new: Any, entering: Any, segment: list[Any], at: Any, otherwise: str
    ) -> None:
        """States 4 and 6: shift the segment if its stream has a new tuple, otherwise skip to the next state."""
        with m.State(f"CHECK_{side}"):
            m.d.sync += at.eq(0)
            with m.If(new):
                m.d.sync += Cat(*(slot.as_value() for slot in segment)).eq(
                    Cat(entering.as_value(), *(slot.as_value() for slot in segment[:-1]))
                )
                m.next = f"SCAN_{side}"
            with m.Else():
                m.next = otherwise

    def _scan(
        self, m: Module, side: str, entering: Any, others: list[Any], at: Any, fifo: ResultFifo, after: str
    ) -> None:
        """States 5 and 7: compare with one tuple of the other stream per cycle."""
        p = self.parameters
        with m.State(f"SCAN_{side}"):
            other = Signal(tuple_layout(p), name=f"other_{side.lower()}")
            m.d.comb += other.eq(Array(slot.as_value() for slot in others)[at])
            left, right = (entering, other) if side == "LEFT" else (other, entering)
            match = left.valid & right.valid & p.predicate.circuit(left.key, right.key)
            m.d.comb += fifo.write_valid.eq(match & ~self.suspend)
            for field, value in result(p, left, right).items():
                m.d.comb += fifo.write_data[field].eq(value)
            with m.If(~self.suspend):
                m.d.sync += at.eq(Mux(at == len(others) - 1, 0, at + 1))
                with m.If(at == len(others) - 1):
                    m.next = after
