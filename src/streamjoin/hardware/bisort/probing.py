"""A probing unit (PanJoin, section IV): boundary generator, partitioners and probers for a slice of a sorted batch."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.partitioner import Partitioner
from streamjoin.hardware.bisort.prober import BoundProber
from streamjoin.hardware.bisort.reader import Reader
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.fifo import ResultFifo

QUEUE_DEPTH = 16


class ProbingUnit(wiring.Component):
    """Probes the array with items `first` to `end` - 1 of the batch; one record for each, in order.

    begin, count, half, first, end    start to probe the array of `count` items in `half`
    index_at, index_key               two ports of the index array
    records, busy                     the results; `busy` until all records have been taken
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        self.readers = [Reader(p) for _ in range(3)]  # the array for lower and for upper bounds, the batch
        super().__init__(
            {
                "begin": In(1),
                "half": In(1),
                **{name: In(p.count) for name in ("count", "first", "end")},
                "index_at": Out(range(p.partitions)).array(2),
                "index_key": In(p.item["key"].shape).array(2),
                "records": Out(stream.Signature(p.record)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m, p = Module(), self.parameters
        batch = self.readers[2]
        m.submodules.lower, m.submodules.upper, m.submodules.batch = self.readers
        forward, room, found = Signal(), [], []
        for i, bound in enumerate(self._bounds(batch.items.payload.key)):
            queue = ResultFifo(p.bound, QUEUE_DEPTH, 0)
            m.submodules[f"{('lower', 'upper')[i]}_bounds"] = queue
            m.d.comb += [queue.write_valid.eq(forward), queue.write_data.eq(bound)]
            room.append(~queue.almost_full)
            found.append(self._way(m, i, queue.read))
        m.d.comb += [
            batch.go.eq(self.begin),
            batch.first.eq(p.batch_base + self.first),
            batch.end.eq(p.batch_base + self.end),
            forward.eq(batch.items.valid & room[0] & room[1]),
            batch.items.ready.eq(forward),
        ]
        self._give_out(m, found)
        return m

    def _bounds(self, key: Any) -> list[Any]:
        """The boundary generator: the smallest key that joins with `key`, and the first key after those that do.

        The probing tuple is from left, the window from right: lo <= key - stored <= hi.
        """
        p = self.parameters.predicate
        width = self.parameters.bound.width  # type: ignore[attr-defined]
        least, most = -(1 << width - 1), (1 << width - 1) - 1
        return [least if p.hi is None else key - p.hi, most if p.lo is None else key - p.lo + 1]

    def _way(self, m: Module, i: int, bounds: Any) -> Any:
        """The path from one of a probe's two bounds to its position in the array."""
        p, reader, name = self.parameters, self.readers[i], ("lower", "upper")[i]
        partitioner, prober = Partitioner(p), BoundProber(p)
        positions = ResultFifo(p.count, QUEUE_DEPTH, 0)
        for part, submodule in (("partitioner", partitioner), ("prober", prober), ("found", positions)):
            m.submodules[f"{name}_{part}"] = submodule
        base = Signal(p.address, name=f"{name}_base")
        wiring.connect(m, bounds, partitioner.bounds)
        wiring.connect(m, partitioner.output, prober.bounds)
        wiring.connect(m, reader.items, prober.items)
        m.d.comb += [
            base.eq(Mux(self.half, p.capacity, 0)),
            partitioner.restart.eq(self.begin),
            partitioner.partitions.eq((self.count + p.partition - 1) >> p.partition_bits),
            self.index_at[i].eq(partitioner.index_at),
            partitioner.index_key.eq(self.index_key[i]),
            prober.restart.eq(self.begin),
            prober.done.eq(reader.done),
            reader.go.eq(prober.go | self.begin),
            reader.first.eq(base + prober.first),
            reader.end.eq(base + self.count),
            prober.positions.ready.eq(~positions.almost_full),
            positions.write_valid.eq(prober.positions.valid & prober.positions.ready),
            positions.write_data.eq(prober.positions.payload),
        ]
        return positions.read

    def _give_out(self, m: Module, found: list[Any]) -> None:
        """Combine both positions of a probe into a record."""
        number, taken = Signal(self.parameters.count), Signal()
        end = Signal(self.parameters.count)
        m.d.comb += [
            self.busy.eq(number != end),
            taken.eq(self.records.valid & self.records.ready),
            self.records.valid.eq(found[0].valid & found[1].valid),
            self.records.payload.number.eq(number),
            self.records.payload.start.eq(found[0].payload),
            self.records.payload.end.eq(found[1].payload),
            *(position.ready.eq(taken) for position in found),
        ]
        with m.If(self.begin):
            m.d.sync += [number.eq(self.first), end.eq(self.end)]
        with m.Elif(taken):
            m.d.sync += number.eq(number + 1)
