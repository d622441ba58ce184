"""The merging network: binary trees of mergers over the cores (Oge et al., section IV-C, Figures 7 and 8)."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from streamjoin.hardware.mergers import FairMerger, Merger


class MergingNetwork(wiring.Component):
    """Merges `inputs` result streams into `lanes` outputs: one tree for each group of neighbouring inputs.

    Any number of inputs is allowed: each level pairs neighbours, and an odd one passes to the next level. `full` has
    the flag of each of the inputs - lanes mergers.
    """

    def __init__(
        self, merger: type[Merger] | type[FairMerger], shape: Any, depth: int, inputs: int, lanes: int
    ):
        self.merger, self.shape, self.depth = merger, shape, depth
        self.count, self.lanes = inputs, lanes
        super().__init__(
            {
                "inputs": In(stream.Signature(shape)).array(inputs),
                "outputs": Out(stream.Signature(shape)).array(lanes),
                "full": Out(inputs - lanes),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        flags: list[Any] = []
        for lane in range(self.lanes):
            first, last = (self.count * end // self.lanes for end in (lane, lane + 1))
            level = [wiring.flipped(self.inputs[i]) for i in range(first, last)]
            while len(level) > 1:
                level, full = self._level(m, level, len(flags))
                flags += full
            wiring.connect(m, level[0], wiring.flipped(self.outputs[lane]))
        m.d.comb += self.full.eq(Cat(*flags))
        return m

    def _level(self, m: Module, streams: list[Any], number: int) -> tuple[list[Any], list[Any]]:
        """Pair neighbours. Return the streams of the next level and the flags of the new mergers."""
        merged: list[Any] = []
        flags: list[Any] = []
        for first, second in zip(streams[::2], streams[1::2], strict=False):
            merger = self.merger(self.shape, self.depth)
            m.submodules[f"merger_{number + len(flags)}"] = merger
            wiring.connect(m, first, merger.first)
            wiring.connect(m, second, merger.second)
            merged.append(merger.output)
            flags.append(merger.full)
        return merged + (streams[-1:] if len(streams) % 2 else []), flags
