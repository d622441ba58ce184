"""The partitioner (PanJoin, section IV): finds the partition of the sorted array in which a bound lies.

The bounds of a batch ascend, so each search starts where the last one ended. It doubles its step until it overshoots,
then bisects: the rebounding binary search of section III-E.
"""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.bisort.shapes import BiSortParameters


def located(parameters: BiSortParameters) -> data.StructLayout:
    """A bound and the last partition that starts below it, or the first partition if none does."""
    return data.StructLayout({"bound": parameters.bound, "partition": range(parameters.partitions + 1)})


class Partitioner(wiring.Component):
    """Ascending bounds in, located bounds out, in the same order.

    A bound in the same partition as the previous one takes one cycle; d partitions further, about 4 log2(d) cycles.

    restart                   a new batch: the next bound may be smaller than the last
    partitions                number of partitions in the index
    index_at, index_key       a port of the index array, which answers in the next cycle
    """

    def __init__(self, parameters: BiSortParameters):
        self.parameters = parameters
        super().__init__(
            {
                "restart": In(1),
                "bounds": In(stream.Signature(parameters.bound)),
                "output": Out(stream.Signature(located(parameters))),
                "partitions": In(range(parameters.partitions + 1)),
                "index_at": Out(range(parameters.partitions)),
                "index_key": In(parameters.item["key"].shape),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        numbers = range(2 * self.parameters.partitions + 1)
        # Partitions before `lo` start below the bound; those from `hi` on do not.
        lo, hi, step, wanted, shown = (
            Signal(numbers, name=n) for n in ("lo", "hi", "step", "wanted", "shown")
        )
        bound, below, known, here = self.bounds.payload, Signal(), Signal(), Signal()
        m.d.sync += shown.eq(wanted)
        m.d.comb += [
            self.index_at.eq(wanted),
            known.eq((shown == wanted) & self.bounds.valid),
            below.eq(self.index_key < bound),
            here.eq(self.bounds.valid & ((lo == self.partitions) | (known & ~below))),
            self.output.payload.bound.eq(bound),
            self.output.payload.partition.eq(Mux(lo == 0, 0, lo - 1)),
        ]
        with m.FSM():
            with m.State("HERE"):
                m.d.comb += [
                    wanted.eq(lo),
                    self.output.valid.eq(here),
                    self.bounds.ready.eq(here & self.output.ready),
                ]
                with m.If(known & ~here):
                    m.d.sync += [lo.eq(lo + 1), step.eq(1)]
                    m.next = "DOUBLE"
            with m.State("DOUBLE"):
                m.d.comb += wanted.eq(lo + step)
                with m.If(wanted >= self.partitions):
                    m.d.sync += hi.eq(self.partitions)
                    m.next = "HALVE"
                with m.Elif(known & below):
                    m.d.sync += [lo.eq(wanted + 1), step.eq(step << 1)]
                with m.Elif(known):
                    m.d.sync += hi.eq(wanted)
                    m.next = "HALVE"
            with m.State("HALVE"):
                m.d.comb += wanted.eq((lo + hi) >> 1)
                with m.If(lo == hi):
                    m.next = "HERE"
                with m.Elif(known & below):
                    m.d.sync += lo.eq(wanted + 1)
                with m.Elif(known):
                    m.d.sync += hi.eq(wanted)
        with m.If(self.restart):
            m.d.sync += lo.eq(0)
        return m
