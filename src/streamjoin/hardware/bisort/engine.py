"""The BI-Sort engine (PanJoin, section IV, Figure 7): insertion and probing over external memory.

The window is a sorted array of (key, id) in one half of the main memory. To insert a batch, which lies sorted in the
batch memory, the merger writes both into the other half, and the indexer notes the first key of each partition. To
probe, the boundary generator turns each key of a sorted batch into the range of keys it joins with; a lower and an
upper partitioner and prober turn that into a range of positions. A result is an index record: the probe's number, the
first position, and the one past the last.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.memory import ExternalMemory
from streamjoin.hardware.bisort.merger import SortedMerger
from streamjoin.hardware.bisort.partitioner import Partitioner
from streamjoin.hardware.bisort.prober import Prober
from streamjoin.hardware.bisort.reader import Reader
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.fifo import ResultFifo

QUEUE = 16


class BiSortEngine(wiring.Component):
    """Engine and memories. `insert` or `probe` is held for one cycle while `busy` is low.

    insert, probe, batch   begin; `batch` items of the batch memory, sorted by key
    busy                   until all is written, or all records were taken
    count, half            items of the window, and the half of the main memory they are in
    records                probe number, start, end: the positions start .. end - 1 of the array join with the probe
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        self.main = ExternalMemory(p.item, 2 * p.capacity, 2, p.latency, p.interval)
        self.batches = ExternalMemory(p.item, p.capacity, 1, p.latency, p.interval)
        record = data.StructLayout({"number": p.count, "start": p.count, "end": p.count})
        super().__init__(
            {
                "insert": In(1),
                "probe": In(1),
                "batch": In(p.count),
                "busy": Out(1),
                "count": Out(p.count),
                "half": Out(1),
                "records": Out(stream.Signature(record)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        m.submodules.main, m.submodules.batches = self.main, self.batches
        readers = [Reader(p.item, range(2 * p.capacity + 1), p.latency + 2) for _ in range(3)]
        for i, (reader, memory, port) in enumerate(
            ((readers[0], self.main, 0), (readers[1], self.main, 1), (readers[2], self.batches, 0))
        ):
            m.submodules[f"reader_{i}"] = reader
            m.d.comb += memory.request[port].payload.eq(reader.request.payload)
            m.d.comb += memory.request[port].valid.eq(reader.request.valid)
            m.d.comb += reader.request.ready.eq(memory.request[port].ready)
            wiring.connect(m, memory.response[port], reader.response)
        index = Memory(shape=p.item["key"].shape, depth=p.partitions, init=[])
        m.submodules.index = index
        begin = (self.insert | self.probe) & ~self.busy
        m.d.comb += [readers[2].go.eq(begin), readers[2].end.eq(self.batch)]
        inserting, probing = Signal(), Signal()
        m.d.comb += self.busy.eq(inserting | probing)
        with m.If(begin):
            m.d.sync += [inserting.eq(self.insert), probing.eq(~self.insert & (self.batch != 0))]
        # Of what both drive, insertion comes last and so has the last word while it goes on.
        self._probing(m, readers, index, probing, begin)
        self._insertion(m, readers, index, inserting, begin)
        return m

    def _insertion(self, m: Module, readers: list[Reader], index: Memory, inserting: Any, begin: Any) -> None:
        """Merge the window and the batch into the other half; the indexer sees every item that is written."""
        p, main = self.parameters, self.main
        m.submodules.merger = merger = SortedMerger(p.item)
        written, in_partition, partition = (
            Signal(p.count),
            Signal(range(p.partition)),
            Signal(range(p.partitions + 1)),
        )
        note = index.write_port()
        step = Signal()
        for reader, port, done in (
            (readers[0], merger.first, merger.first_done),
            (readers[2], merger.second, merger.second_done),
        ):
            m.d.comb += [port.valid.eq(reader.items.valid & inserting), port.payload.eq(reader.items.payload)]
            m.d.comb += done.eq(reader.done)
            with m.If(inserting):
                m.d.comb += reader.items.ready.eq(port.ready)
        with m.If(begin & self.insert):
            m.d.comb += [readers[0].go.eq(1), readers[0].first.eq(Mux(self.half, p.capacity, 0))]
        m.d.comb += [
            main.write.valid.eq(merger.output.valid & inserting),
            main.write.payload.item.eq(merger.output.payload),
            main.write.payload.address.eq(written + Mux(self.half, 0, p.capacity)),
            merger.output.ready.eq(main.write.ready & inserting),
            step.eq(main.write.valid & main.write.ready),
            note.en.eq(step & (in_partition == 0)),
            note.addr.eq(partition),
            note.data.eq(merger.output.payload.key),
        ]
        with m.If(step):
            m.d.sync += [written.eq(written + 1), in_partition.eq(in_partition + 1)]
            m.d.sync += partition.eq(partition + (in_partition == 0))
            with m.If(in_partition == p.partition - 1):
                m.d.sync += in_partition.eq(0)
        with m.If(begin & self.insert):
            m.d.sync += [written.eq(0), in_partition.eq(0), partition.eq(0)]
        with m.If(inserting & merger.first_done & merger.second_done):
            m.d.sync += [inserting.eq(0), self.count.eq(written), self.half.eq(~self.half)]

    def _probing(self, m: Module, readers: list[Reader], index: Memory, probing: Any, begin: Any) -> None:
        """Each probe's two bounds go their own ways, and meet again in a record."""
        p = self.parameters
        probes, room, found = readers[2], [], []
        forward = Signal()
        base = Signal(range(2 * p.capacity + 1))
        m.d.comb += base.eq(Mux(self.half, p.capacity, 0))
        for i, bound in enumerate(self._bounds(probes.items.payload.key)):
            queue, way = ResultFifo(p.bound, QUEUE, 0), ("lower", "upper")[i]
            partitioner, prober, positions = (
                Partitioner(p),
                Prober(p),
                ResultFifo(range(p.capacity + 1), QUEUE, 0),
            )
            for name, part in (
                ("bounds", queue),
                ("partitioner", partitioner),
                ("prober", prober),
                ("found", positions),
            ):
                m.submodules[f"{way}_{name}"] = part
            port = index.read_port()
            m.d.comb += [
                queue.write_valid.eq(forward),
                queue.write_data.eq(bound),
                port.addr.eq(partitioner.index_at),
                partitioner.index_key.eq(port.data),
                partitioner.partitions.eq((self.count + p.partition - 1) // p.partition),
                prober.restart.eq(begin),
                prober.items.valid.eq(readers[i].items.valid & probing),
                prober.items.payload.eq(readers[i].items.payload),
                prober.done.eq(readers[i].done),
                readers[i].items.ready.eq(prober.items.ready & probing),
                readers[i].go.eq(prober.go),
                readers[i].first.eq(base + prober.first),
                readers[i].end.eq(base + self.count),
                prober.positions.ready.eq(~positions.almost_full),
                positions.write_valid.eq(prober.positions.valid & prober.positions.ready),
                positions.write_data.eq(prober.positions.payload),
            ]
            wiring.connect(m, queue.read, partitioner.bounds)
            wiring.connect(m, partitioner.output, prober.bounds)
            room.append(~queue.almost_full)
            found.append(positions.read)
        m.d.comb += forward.eq(probes.items.valid & probing & room[0] & room[1])
        with m.If(probing):
            m.d.comb += probes.items.ready.eq(room[0] & room[1])
        self._give_out(m, found, probing, begin)

    def _bounds(self, key: Any) -> list[Any]:
        """The boundary generator: the smallest key that joins with `key`, and the first beyond those that do.

        The probing tuple is left's, the window right's: lo <= key - stored <= hi.
        """
        p = self.parameters.predicate
        width = self.parameters.bound.width  # type: ignore[attr-defined]
        least, most = -(1 << width - 1), (1 << width - 1) - 1
        return [least if p.hi is None else key - p.hi, most if p.lo is None else key - p.lo + 1]

    def _give_out(self, m: Module, found: list[Any], probing: Any, begin: Any) -> None:
        number, left = Signal(self.parameters.count), Signal(self.parameters.count)
        taken = self.records.valid & self.records.ready
        m.d.comb += [
            self.records.valid.eq(found[0].valid & found[1].valid),
            self.records.payload.number.eq(number),
            self.records.payload.start.eq(found[0].payload),
            self.records.payload.end.eq(found[1].payload),
            *(position.ready.eq(taken) for position in found),
        ]
        with m.If(taken):
            m.d.sync += [number.eq(number + 1), left.eq(left - 1)]
            with m.If(left == 1):
                m.d.sync += probing.eq(0)
        with m.If(begin):
            m.d.sync += [number.eq(0), left.eq(self.batch)]
