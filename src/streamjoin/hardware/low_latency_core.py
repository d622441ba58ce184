"""A core of low-latency handshake join: it stores the tuples it is home to, and every passing tuple probes it.

Roy et al., section 4: home nodes and expedited tuples. All tuples of both streams pass the cores in one order, so
each pair has the same order in every core and meets once, in the home of its earlier tuple.

The pipeline of a core:

    issue    read a row of the other stream's keys
    compare  one comparator per bank; the matches of the row become `pending`
    emit     take pending matches one by one and read their payload. A tuple is stored when its first row gets here:
             earlier tuples have emitted all their rows by then and no longer need the tuple it replaces
    write    write the result into the buffer

An almost full buffer stops `emit`, then the rows behind it and, if a tuple cannot finish, the upstream neighbour.
There is no global stall signal.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.fifo import ResultFifo
from streamjoin.hardware.layouts import result, result_layout, tuple_layout
from streamjoin.hardware.parameters import KeyPredicate, Parameters
from streamjoin.hardware.ring_window import RingWindow

# A tuple is stored two steps after its first row is issued; the next tuple must not probe for it earlier.
LEAST_PERIOD = 3
# The core reacts to the buffer's full flag one cycle late, while one more result is on its way.
PIPELINE_MARGIN = 2


def command_layout(parameters: Parameters) -> data.StructLayout:
    """The message that passes from core to core: a tuple, its stream, and the distance in cores to its home."""
    home = (parameters.cores - 1).bit_length()
    return data.StructLayout({"tuple": tuple_layout(parameters), "right": 1, "home": home})


def period(parameters: Parameters) -> int:
    """Cycles per tuple in a core that is not stalled."""
    return max(LEAST_PERIOD, max(parameters.left_segment, parameters.right_segment) // parameters.comparators)


class LowLatencyCore(wiring.Component):
    """One core. A tuple takes `period` cycles; it reaches the next core one cycle after this one.

    command   tuples of both streams in order; `ready` is a register, so no combinational path crosses cores
    forward   the same tuples, to the next core
    output    results, at most one per cycle
    """

    def __init__(self, parameters: Parameters):
        self.parameters = parameters
        commands = command_layout(parameters)
        super().__init__(
            {
                "command": In(stream.Signature(commands)),
                "forward": Out(stream.Signature(commands)),
                "output": Out(stream.Signature(result_layout(parameters))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.window = window = RingWindow(p)
        m.submodules.fifo = fifo = ResultFifo(result_layout(p), p.core_fifo, PIPELINE_MARGIN)
        wiring.connect(m, fifo.read, wiring.flipped(self.output))
        step = data.StructLayout(
            {"tuple": tuple_layout(p), "right": 1, "home": 1, "first": 1, "row": window.row_bits}
        )
        compare, emit, pending = Signal(step), Signal(step), Signal(p.comparators)
        full, advance, take = Signal(), Signal(), Signal()
        start, waiting, home = Signal(), Signal(), Signal()

        self._receive(m, start, waiting, home)
        issued = self._issue(m, window, start, waiting, home, advance, compare)
        others = pending & (pending - 1)  # all but the lowest
        m.d.sync += [full.eq(fifo.almost_full), emit.first.eq(0)]
        m.d.comb += [
            take.eq((pending != 0) & ~full),
            advance.eq((pending == 0) | ((others == 0) & ~full)),
        ]
        with m.If(advance):
            m.d.sync += [emit.eq(compare), emit.first.eq(compare.first)]
            m.d.sync += pending.eq(Cat(issued & self._match(compare, stored) for stored in window.keys))
        with m.Elif(take):
            m.d.sync += pending.eq(others)
        self._emit(m, window, emit, pending, take)
        self._write(m, window, fifo, emit, take)
        return m

    def _receive(self, m: Module, start: Any, waiting: Any, home: Any) -> None:
        """Hold a tuple until it has been forwarded and its scan has started."""
        arrived, forwarded = Signal(), Signal()
        gone = forwarded | self.forward.ready
        m.d.comb += [self.command.ready.eq(~arrived), self.forward.valid.eq(arrived & ~forwarded)]
        with m.If(~arrived):
            m.d.sync += [arrived.eq(self.command.valid), waiting.eq(self.command.valid), forwarded.eq(0)]
            m.d.sync += [
                self.forward.payload.eq(self.command.payload),
                self.forward.payload.home.eq(self.command.payload.home - 1),
                home.eq(self.command.payload.home == 0),
            ]
        with m.Else():
            m.d.sync += [
                arrived.eq(~gone | (waiting & ~start)),
                waiting.eq(waiting & ~start),
                forwarded.eq(gone),
            ]

    def _issue(
        self, m: Module, window: RingWindow, start: Any, waiting: Any, home: Any, advance: Any, compare: Any
    ) -> Any:
        """Read the rows that a tuple probes. Return whether the keys read belong to `compare`."""
        p, arrived = self.parameters, self.forward.payload
        last = period(p) - 1
        row, scanning, issued = Signal(range(last + 1)), Signal(), Signal()
        rows = Mux(compare.right, p.left_segment // p.comparators, p.right_segment // p.comparators)
        m.d.comb += [
            start.eq(waiting & ~scanning & advance & window.ready),
            window.scan.eq(advance),
            window.scan_right.eq(Mux(scanning, compare.right, arrived.right)),
            window.scan_row.eq(row),
        ]
        with m.If(advance):
            m.d.sync += [compare.first.eq(start), compare.row.eq(row)]
            m.d.sync += issued.eq(start | (scanning & (row < rows)))
        with m.If(start):
            m.d.sync += [
                compare.tuple.eq(arrived.tuple),
                compare.right.eq(arrived.right),
                compare.home.eq(home),
            ]
        with m.If(start | (scanning & advance)):
            m.d.sync += [row.eq(Mux(row == last, 0, row + 1)), scanning.eq(row != last)]
        return issued

    def _match(self, probe: Any, stored: Any) -> Any:
        """Whether the probing and the stored tuple match; mirrored if the probing tuple is from right."""
        predicate = self.parameters.predicate
        holds = predicate.circuit(probe.tuple.key, stored.key)
        if predicate.lo is None or predicate.hi is None or predicate.lo != -predicate.hi:
            lo, hi = (None if bound is None else -bound for bound in (predicate.hi, predicate.lo))
            mirrored = KeyPredicate(lo, hi, predicate.negated).circuit(probe.tuple.key, stored.key)
            holds = Mux(probe.right, mirrored, holds)
        return probe.tuple.valid & stored.valid & holds

    def _emit(self, m: Module, window: RingWindow, emit: Any, pending: Any, take: Any) -> None:
        """Fetch the payload of the lowest pending match; store the tuple when its first row is in this stage."""
        for bank in reversed(range(self.parameters.comparators)):
            with m.If(pending[bank]):
                m.d.comb += window.fetch_bank.eq(bank)
        m.d.comb += [
            window.fetch.eq(take),
            window.fetch_right.eq(emit.right),
            window.fetch_row.eq(emit.row),
            window.store.eq(emit.first & emit.home),
            window.store_right.eq(emit.right),
            window.stored.eq(emit.tuple),
        ]

    def _write(self, m: Module, window: RingWindow, fifo: ResultFifo, emit: Any, take: Any) -> None:
        """Write the result of the match whose payload was fetched in the previous cycle."""
        p = self.parameters
        probe, probe_right, found = Signal(tuple_layout(p)), Signal(), Signal(tuple_layout(p))
        m.d.sync += [fifo.write_valid.eq(take), probe.eq(emit.tuple), probe_right.eq(emit.right)]
        m.d.comb += [
            found.payload.eq(window.found.payload),
            found.key.eq(probe.key if p.predicate.is_equality else window.found.key),
        ]
        as_left, as_right = result(p, probe, found), result(p, found, probe)
        for field, value in as_left.items():
            m.d.comb += fifo.write_data[field].eq(Mux(probe_right, as_right[field], value))
