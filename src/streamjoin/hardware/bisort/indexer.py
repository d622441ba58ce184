"""The indexer (PanJoin, section IV): writes the first key of each partition to the index array during a merge."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.shapes import BiSortParameters


class Indexer(wiring.Component):
    """Writes one note per cycle. A unit sends one per `partition` items, so up to `partition` units never wait.

    notes              from the units
    write, noted       to the index array
    idle               all notes are written
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        super().__init__(
            {
                "notes": In(stream.Signature(p.note)).array(p.units),
                "write": Out(1),
                "noted": Out(p.note),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        held = [Signal(p.note, name=f"held_{i}") for i in range(p.units)]
        full = Signal(p.units)
        m.d.comb += [self.idle.eq(full == 0), self.write.eq(full != 0)]
        m.d.comb += Cat(note.ready for note in self.notes).eq(~full)
        lowest = full & -full
        m.d.sync += full.eq((full & ~lowest[: p.units]) | Cat(note.valid & note.ready for note in self.notes))
        for i in reversed(range(p.units)):
            with m.If(full[i]):
                m.d.comb += self.noted.eq(held[i])
            with m.If(~full[i]):
                m.d.sync += held[i].eq(self.notes[i].payload)
        return m
