"""The same runs in Amaranth's simulator: a thousand times slower, but it needs no compiler and writes waveforms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.sim import Simulator as AmaranthSimulator

from streamjoin.hardware.parameters import HardwareError, Parameters
from streamjoin.hardware.simulate import SimulatedRun, Stream, drain_cycles, unpack_result


class Interpreter:
    """Like `JoinSimulator`: the same streams in, the same `SimulatedRun` out."""

    def __init__(self, design: Any):
        self.design = design
        self.parameters: Parameters = design.parameters

    def run(
        self,
        left: Stream,
        right: Stream,
        output_ready: Sequence[int] | None = None,
        most_cycles: int = 100_000,
        waves: Path | None = None,
    ) -> SimulatedRun:
        """Feed both streams and take all results; `waves` is the path of a VCD file of all signals to write."""
        log = _Log(self.design, {"left": left, "right": right}, output_ready, most_cycles)
        simulator = AmaranthSimulator(self.design)
        simulator.add_clock(1e-8)
        simulator.add_testbench(log.drive)
        with simulator.write_vcd(str(waves)) if waves else nullcontext():
            simulator.run()
        if not log.finished:
            raise HardwareError(
                f"the circuit did not finish: {len(log.results)} results after {most_cycles} cycles"
            )
        return log.outcome()


class _Log:
    """The testbench and its observations."""

    def __init__(
        self, design: Any, streams: dict[str, Stream], output_ready: Sequence[int] | None, most_cycles: int
    ):
        self.design, self.streams, self.most_cycles = design, streams, most_cycles
        self.everything = (1 << design.parameters.lanes) - 1
        self.ready = output_ready or [self.everything]
        self.next = {"left": 0, "right": 0}
        self.refused = {"left": 0, "right": 0}
        self.accepted: list[tuple[int, str, int]] = []
        self.results: list[tuple[int, int, int]] = []
        self.last, self.finished = 0, False

    async def drive(self, ctx: Any) -> None:
        silent = 0
        for cycle in range(self.most_cycles):
            ready = self.ready[cycle % len(self.ready)]
            offered = [side for side in self.streams if self._offer(ctx, side, cycle)]
            for lane, output in enumerate(self.design.output):
                ctx.set(output.ready, ready >> lane & 1)
            taken = [side for side in offered if ctx.get(getattr(self.design, side).ready)]
            found = [
                (cycle, lane, ctx.get(output.payload.as_value()))
                for lane, output in enumerate(self.design.output)
                if ready >> lane & 1 and ctx.get(output.valid)
            ]
            await ctx.tick()
            self.results += found
            for side in taken:
                self._take(ctx, side, cycle)
            if taken or found:
                self.last = cycle + 1
            waiting = any(self.next[side] < len(stream) for side, stream in self.streams.items())
            silent = 0 if taken or found or waiting else silent + (ready & self.everything == self.everything)
            if silent > drain_cycles(self.design.parameters):
                self.finished = True
                return

    def _offer(self, ctx: Any, side: str, cycle: int) -> bool:
        stream, port, at = self.streams[side], getattr(self.design, side), self.next[side]
        offered = at < len(stream) and (stream.not_before is None or stream.not_before[at] <= cycle)
        ctx.set(port.valid, offered)
        if offered:
            valid = 1 if stream.valid is None else stream.valid[at]
            ctx.set(port.payload.key, stream.keys[at])
            ctx.set(port.payload.payload, stream.payloads[at])
            ctx.set(port.payload.valid, valid)
        return offered

    def _take(self, ctx: Any, side: str, cycle: int) -> None:
        refused = ctx.get(getattr(self.design, f"refused_{side}"))
        if refused == self.refused[side]:
            self.accepted.append((cycle, side, self.next[side]))
        self.refused[side] = refused
        self.next[side] += 1

    def outcome(self) -> SimulatedRun:
        return SimulatedRun(
            accepted=[(side, number) for _, side, number in self.accepted],
            accepted_cycles=np.array([cycle for cycle, _, _ in self.accepted], np.int64),
            refused=(self.refused["left"], self.refused["right"]),
            results=[unpack_result(bits, self.design.parameters) for _, _, bits in self.results],
            result_cycles=np.array([cycle for cycle, _, _ in self.results], np.int64),
            result_lanes=np.array([lane for _, lane, _ in self.results], np.int64),
            cycles=self.last,
        )
