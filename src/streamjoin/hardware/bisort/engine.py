"""The BI-Sort engine (PanJoin, section IV, Figure 7): insertion and probing over external memory.

The window is a sorted array of (key, id) in one half of the external memory reserved for it. The batch, also sorted,
is stored after both halves. To insert the batch, mergers write the merged array to the other half, and the indexer
notes the first key of each partition. To probe, boundary generators turn each key of the batch into the range of keys
it joins with; partitioners and probers turn that into a range of positions. A result is an index record: the probe's
number, the first position, and the position after the last. Insertion and probing do not overlap in time.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.indexer import Indexer
from streamjoin.hardware.bisort.insertion import InsertionUnit
from streamjoin.hardware.bisort.memory import ExternalMemory, response_layout
from streamjoin.hardware.bisort.probing import ProbingUnit
from streamjoin.hardware.bisort.shapes import BiSortParameters

READERS_PER_UNIT = 5  # two to insert, three to probe


class BiSortEngine(wiring.Component):
    """`units` of each kind. To start, set `insert` or `probe` for one cycle while `busy` is low.

    insert, probe, batch        start; the batch part of the memory holds `batch` items, sorted by key
    busy                        set until everything is written, or all records have been taken
    count, half                 items in the window, and the half of the main array that holds them
    records[unit]               probe number, start, end: the positions start .. end - 1 join with the probe
    request, response, write    memory ports
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        self.indexer, self.inserting = Indexer(p), Signal(name="inserting")
        super().__init__(
            {
                "insert": In(1),
                "probe": In(1),
                "batch": In(p.count),
                "busy": Out(1),
                "count": Out(p.count),
                "half": Out(1),
                "records": Out(stream.Signature(p.record)).array(p.units),
                "request": Out(stream.Signature(p.address)).array(READERS_PER_UNIT * p.units),
                "response": In(response_layout(p)).array(READERS_PER_UNIT * p.units),
                "write": Out(stream.Signature(p.write)).array(p.units),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        mergers = [InsertionUnit(p) for _ in range(p.units)]
        probers = [ProbingUnit(p) for _ in range(p.units)]
        readers = [
            reader for pair in zip(mergers, probers, strict=True) for u in pair for reader in u.readers
        ]
        for i, reader in enumerate(readers):
            wiring.connect(m, reader.request, wiring.flipped(self.request[i]))
            m.d.comb += reader.response.eq(self.response[i])
        for i in range(p.units):
            m.submodules[f"merger_{i}"], m.submodules[f"prober_{i}"] = mergers[i], probers[i]
        size = Signal(p.count)  # items in the current batch
        with m.If((self.insert | self.probe) & ~self.busy):
            m.d.sync += size.eq(self.batch)
        self._insertion(m, mergers, size)
        self._probing(m, probers)
        return m

    def _insertion(self, m: Module, units: list[InsertionUnit], size: Any) -> None:
        """All units search for their pieces, then merge them; the halves are swapped when all are done."""
        p, indexer = self.parameters, self.indexer
        m.submodules.indexer = indexer
        began, total = Signal(), Signal(p.count)
        inserting = self.inserting
        found, done = (Cat(getattr(unit, name) for unit in units).all() for name in ("found", "done"))
        m.d.sync += began.eq(self.insert & ~self.busy)
        m.d.comb += total.eq(self.count + size)
        for i, unit in enumerate(units):
            wiring.connect(m, unit.write, wiring.flipped(self.write[i]))
            wiring.connect(m, unit.note, indexer.notes[i])
            after = units[i + 1] if i + 1 < p.units else None
            m.d.comb += [
                unit.begin.eq(began),
                unit.half.eq(self.half),
                unit.count.eq(self.count),
                unit.batch.eq(size),
                unit.diagonal.eq((total * i) >> p.unit_bits),
                unit.merge.eq(found),
                unit.array_end.eq(after.array_start if after is not None else self.count),
                unit.batch_end.eq(after.diagonal - after.array_start if after is not None else size),
            ]
        with m.If(self.insert & ~self.busy):
            m.d.sync += inserting.eq(1)
        with m.Elif(inserting & ~began & done & indexer.idle):
            m.d.sync += [inserting.eq(0), self.count.eq(total), self.half.eq(~self.half)]

    def _probing(self, m: Module, units: list[ProbingUnit]) -> None:
        """Each unit takes its share of the batch."""
        p = self.parameters
        begin = self.probe & ~self.insert & ~self.busy
        m.d.comb += self.busy.eq(self.inserting | Cat(unit.busy for unit in units).any())
        for i, unit in enumerate(units):
            wiring.connect(m, unit.records, wiring.flipped(self.records[i]))
            m.d.comb += [
                unit.begin.eq(begin),
                unit.half.eq(self.half),
                unit.count.eq(self.count),
                unit.first.eq((self.batch * i) >> p.unit_bits),
                unit.end.eq((self.batch * (i + 1)) >> p.unit_bits),
            ]
            for way in range(2):
                self._index(m, f"index_{i}_{way}", unit.index_at[way], unit.index_key[way])

    def _index(self, m: Module, name: str, at: Any, key: Any) -> None:
        """A copy of the index array for each partitioner, since on-chip RAM has only two ports."""
        p, noted = self.parameters, self.indexer.noted
        m.submodules[name] = index = Memory(shape=p.item["key"].shape, depth=p.partitions, init=[])
        write, read = index.write_port(), index.read_port()
        m.d.comb += [
            write.en.eq(self.indexer.write),
            write.addr.eq(noted.partition),
            write.data.eq(noted.key),
            read.addr.eq(at),
            key.eq(read.data),
        ]


class BiSortSystem(wiring.Component):
    """An engine with its memory: the ports of the engine, and the host's ports of the memory."""

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        super().__init__(
            {
                "insert": In(1),
                "probe": In(1),
                "batch": In(p.count),
                "busy": Out(1),
                "count": Out(p.count),
                "half": Out(1),
                "records": Out(stream.Signature(p.record)).array(p.units),
                "host_write": In(1),
                "host_address": In(p.address),
                "host_item": In(p.item),
                "host_read": Out(p.item),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.engine = engine = BiSortEngine(p)
        m.submodules.memory = memory = ExternalMemory(p, READERS_PER_UNIT * p.units, p.units)
        for name in ("insert", "probe", "batch"):
            m.d.comb += getattr(engine, name).eq(getattr(self, name))
        for name in ("busy", "count", "half"):
            m.d.comb += getattr(self, name).eq(getattr(engine, name))
        for name in ("host_write", "host_address", "host_item"):
            m.d.comb += getattr(memory, name).eq(getattr(self, name))
        m.d.comb += self.host_read.eq(memory.host_read)
        for i in range(READERS_PER_UNIT * p.units):
            wiring.connect(m, engine.request[i], memory.request[i])
            m.d.comb += engine.response[i].eq(memory.response[i])
        for i in range(p.units):
            wiring.connect(m, engine.write[i], memory.write[i])
            wiring.connect(m, engine.records[i], wiring.flipped(self.records[i]))
        return m
