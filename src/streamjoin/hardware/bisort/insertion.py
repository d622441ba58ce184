"""One of the mergers that insert a batch (PanJoin, section IV and Figure 8), and the search for its share of the work.

The merged array is cut into pieces of equal size, one per unit. A binary search along a diagonal of the merge finds
where a piece starts in the array and in the batch: the first d merged items are i items of the array and d - i of the
batch. Each piece ends where the next one starts.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.merger import SortedMerger
from streamjoin.hardware.bisort.reader import Reader
from streamjoin.hardware.bisort.shapes import BiSortParameters


class InsertionUnit(wiring.Component):
    """Merges one piece: a binary search of at most log2(batch) steps of two reads, then at most one item per cycle.

    begin, count, batch, half      start to merge the array of `count` items in `half` with the batch
    diagonal                       number of merged items before this piece
    found, array_start             the piece's start in the array is known; in the batch it is diagonal - array_start
    merge, array_end, batch_end    the start of the next piece is known as well: merge
    write, note                    the merged items; the first key of each partition among them
    done                           everything is written

    `readers` read the array and the batch through memory ports of their own.
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        self.readers = [Reader(p), Reader(p)]
        counts = ("count", "batch", "diagonal", "array_end", "batch_end")
        super().__init__(
            {
                **{name: In(1) for name in ("begin", "half", "merge")},
                **{name: In(p.count) for name in counts},
                "found": Out(1),
                "array_start": Out(p.count),
                "write": Out(stream.Signature(p.write)),
                "note": Out(stream.Signature(p.note)),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.array, m.submodules.batch = array, batch = self.readers
        m.submodules.merger = merger = SortedMerger(p.item)
        at, hi, middle = self.array_start, Signal(p.count), Signal(p.count)
        base = Mux(self.half, p.capacity, 0)
        merging = Signal()
        both = array.items.valid & batch.items.valid
        m.d.comb += middle.eq((at + hi) >> 1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.done.eq(1)
                with m.If(self.begin):
                    least = Mux(self.diagonal > self.batch, self.diagonal - self.batch, 0)
                    m.d.sync += [
                        at.eq(least),
                        hi.eq(Mux(self.diagonal > self.count, self.count, self.diagonal)),
                    ]
                    m.next = "SEARCH"
            with m.State("SEARCH"):
                with m.If(at == hi):
                    m.next = "FOUND"
                with m.Else():
                    self._read(m, base + middle, p.batch_base + self.diagonal - 1 - middle)
                    m.next = "HALVE"
            with m.State("HALVE"):
                m.d.comb += [array.items.ready.eq(both), batch.items.ready.eq(both)]
                with m.If(both):
                    with m.If(array.items.payload.key <= batch.items.payload.key):
                        m.d.sync += at.eq(middle + 1)
                    with m.Else():
                        m.d.sync += hi.eq(middle)
                    m.next = "SEARCH"
            with m.State("FOUND"):
                m.d.comb += self.found.eq(1)
                with m.If(self.merge):
                    first = p.batch_base + self.diagonal - at
                    self._read(m, base + at, first, base + self.array_end, p.batch_base + self.batch_end)
                    m.next = "MERGE"
            with m.State("MERGE"):
                m.d.comb += merging.eq(1)
                with m.If(array.done & batch.done):
                    m.next = "IDLE"
        self._merge(m, merger, merging)
        return m

    def _read(self, m: Module, array: Any, batch: Any, array_end: Any = None, batch_end: Any = None) -> None:
        """Start both readers; without ends, each reads one item."""
        for reader, first, end in zip(self.readers, (array, batch), (array_end, batch_end), strict=True):
            m.d.comb += [
                reader.go.eq(1),
                reader.first.eq(first),
                reader.end.eq(first + 1 if end is None else end),
            ]

    def _merge(self, m: Module, merger: SortedMerger, merging: Any) -> None:
        """Write merged items to the other half; send those that start a partition to the indexer as well."""
        p, written = self.parameters, Signal(self.parameters.count)
        for reader, port, done in zip(
            self.readers, (merger.first, merger.second), (merger.first_done, merger.second_done), strict=True
        ):
            m.d.comb += [port.valid.eq(reader.items.valid & merging), port.payload.eq(reader.items.payload)]
            m.d.comb += done.eq(reader.done)
            with m.If(merging):
                m.d.comb += reader.items.ready.eq(port.ready)
        noted = written[: p.partition_bits] == 0
        step = self.write.valid & self.write.ready
        m.d.comb += [
            self.write.valid.eq(merger.output.valid & (self.note.ready | ~noted)),
            self.write.payload.item.eq(merger.output.payload),
            self.write.payload.address.eq(written + Mux(self.half, 0, p.capacity)),
            self.note.valid.eq(step & noted),
            self.note.payload.partition.eq(written >> p.partition_bits),
            self.note.payload.key.eq(merger.output.payload.key),
            merger.output.ready.eq(step),
        ]
        with m.If(self.begin):
            m.d.sync += written.eq(self.diagonal)
        with m.Elif(step):
            m.d.sync += written.eq(written + 1)
