"""Join circuits in Verilator: the Verilog compiled to machine code, driven cycle by cycle.

Compiled simulators are cached by their content. Up to 8 lanes.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamjoin.hardware.parameters import HardwareError, Parameters
from streamjoin.hardware.verilate import verilated

MOST_LANES = 8
JOIN_DRIVER = Path(__file__).with_name("simulation.cpp")

Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Stream:
    """The tuples of one side: keys and payloads, `valid` flags unless all are 1, the earliest cycle of each tuple."""

    keys: Sequence[int]
    payloads: Sequence[int]
    valid: Sequence[int] | None = None
    not_before: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class SimulatedRun:
    """The observations of one simulation.

    `accepted`: ("left" or "right", number in its stream), in the order the circuit accepted them. `refused`: the
    count of each side. `results`: (left key, left payload, right key, right payload) in output order, with the cycle
    and lane of each. `cycles`: the number of cycles up to the last accepted tuple or result.
    """

    accepted: list[tuple[str, int]]
    accepted_cycles: Integers
    refused: tuple[int, int]
    results: list[tuple[int, int, int, int]]
    result_cycles: Integers
    result_lanes: Integers
    cycles: int


class _Run(ctypes.Structure):
    """`struct Run` of simulation.cpp."""

    _fields_ = [
        ("tuples", ctypes.c_void_p * 2),
        ("not_before", ctypes.c_void_p * 2),
        ("counts", ctypes.c_int64 * 2),
        ("tuple_words", ctypes.c_int64),
        ("result_words", ctypes.c_int64),
        ("output_ready", ctypes.c_void_p),
        ("output_ready_length", ctypes.c_int64),
        ("drain", ctypes.c_int64),
        ("most_cycles", ctypes.c_int64),
        ("taken_cycle", ctypes.c_void_p * 2),
        ("results", ctypes.c_void_p),
        ("result_cycle", ctypes.c_void_p),
        ("result_lane", ctypes.c_void_p),
        ("result_room", ctypes.c_int64),
        ("result_count", ctypes.c_int64),
        ("cycles", ctypes.c_int64),
        ("finished", ctypes.c_int64),
        ("trace", ctypes.c_char_p),
    ]


class JoinSimulator:
    """A compiled join circuit. `trace` counts toggles of every net, which makes it slower.

    Building takes seconds (almost a minute for 64 cores) unless the cache has it.
    """

    def __init__(self, design: Any, trace: bool = False):
        self.parameters: Parameters = design.parameters
        if self.parameters.lanes > MOST_LANES:
            raise HardwareError(
                f"lanes is {self.parameters.lanes}: the simulator supports up to {MOST_LANES}",
                field="lanes",
                given=self.parameters.lanes,
                allowed=f"up to {MOST_LANES}",
            )
        self.trace = trace
        self.library = verilated(design, JOIN_DRIVER, "output", self.parameters.lanes, trace)

    def run(
        self,
        left: Stream,
        right: Stream,
        output_ready: Sequence[int] | None = None,
        most_cycles: int = 50_000_000,
        room: int | None = None,
        trace: Path | None = None,
    ) -> SimulatedRun:
        """Feed both streams and take all results.

        `output_ready` gives the lanes that are read in each cycle (bit i is lane i); the sequence repeats. Raises
        HardwareError if the circuit does not finish within `most_cycles` or finds more than `room` results.
        """
        p = self.parameters
        ready = np.array(output_ready or [(1 << p.lanes) - 1], np.uint8)
        room = room or len(left) * p.right_window + len(right) * p.left_window + 1
        words = -(-p.result_width // 64)
        sides = [_packed_tuples(side, p) for side in (left, right)]
        starts = [np.array(side.not_before or [0] * len(side), np.int64) for side in (left, right)]
        taken = [np.zeros(max(1, len(side)), np.int64) for side in (left, right)]
        results, lanes = np.zeros((room, words), np.uint64), np.zeros(room, np.uint8)
        cycles = np.zeros(room, np.int64)
        run = _Run(
            tuples=_pointers(sides),
            not_before=_pointers(starts),
            counts=(ctypes.c_int64 * 2)(len(left), len(right)),
            tuple_words=sides[0].shape[1],
            result_words=words,
            output_ready=ready.ctypes.data,
            output_ready_length=len(ready),
            drain=drain_cycles(p),
            most_cycles=most_cycles,
            taken_cycle=_pointers(taken),
            results=results.ctypes.data,
            result_cycle=cycles.ctypes.data,
            result_lane=lanes.ctypes.data,
            result_room=room,
            trace=None if trace is None else os.fsencode(trace),
        )
        self.library.run_join(ctypes.byref(run))
        if not run.finished:
            raise HardwareError(
                f"the circuit did not finish: {run.result_count} results after {most_cycles} cycles at most, "
                f"room for {room}"
            )
        count = run.result_count
        return _outcome(
            p, run.cycles, taken, (len(left), len(right)), results[:count], cycles[:count], lanes[:count]
        )


def drain_cycles(parameters: Parameters) -> int:
    """A generous bound on the cycles between two results while every lane is read."""
    p = parameters
    return 64 + 4 * (p.left_segment + p.right_segment) + 4 * p.cores + 16 * p.cores.bit_length()


def _pointers(arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    return (ctypes.c_void_p * 2)(*(array.ctypes.data for array in arrays))


def _packed_tuples(side: Stream, p: Parameters) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Tuples as rows of 64-bit words; from the lowest bit on: payload, key, valid."""
    words = -(-p.tuple_width // 64)
    keys, payloads = (1 << p.key_width) - 1, (1 << p.payload_width) - 1
    valid = side.valid or [1] * len(side)
    rows = bytearray()
    for key, payload, flag in zip(side.keys, side.payloads, valid, strict=True):
        bits = (flag << p.key_width | key & keys) << p.payload_width | payload & payloads
        rows += bits.to_bytes(8 * words, "little")
    return np.frombuffer(bytes(rows) or bytes(8 * words), np.uint64).reshape(-1, words)


def unpack_result(bits: int, p: Parameters) -> tuple[int, int, int, int]:
    """(left key, left payload, right key, right payload) of a result's bits."""
    payloads = (1 << p.payload_width) - 1
    right_payload, left_payload = bits & payloads, bits >> p.payload_width & payloads
    left_key = _key(bits >> 2 * p.payload_width, p)
    if p.predicate.is_equality:
        return left_key, left_payload, left_key, right_payload
    return left_key, left_payload, _key(bits >> 2 * p.payload_width + p.key_width, p), right_payload


def _key(bits: int, p: Parameters) -> int:
    bits &= (1 << p.key_width) - 1
    return bits - (1 << p.key_width) if p.signed and bits >> p.key_width - 1 else bits


def _outcome(
    p: Parameters,
    last: int,
    taken: Sequence[Integers],
    counts: tuple[int, int],
    results: np.ndarray[Any, Any],
    cycles: Integers,
    lanes: np.ndarray[Any, Any],
) -> SimulatedRun:
    accepted = sorted(
        (int(taken[side][i]), side, i)
        for side in range(2)
        for i in range(counts[side])
        if taken[side][i] >= 0
    )
    refused = [int((taken[side][: counts[side]] < 0).sum()) for side in range(2)]
    return SimulatedRun(
        accepted=[(("left", "right")[side], i) for _, side, i in accepted],
        accepted_cycles=np.array([cycle for cycle, _, _ in accepted], np.int64),
        refused=(refused[0], refused[1]),
        results=[unpack_result(int.from_bytes(row.tobytes(), "little"), p) for row in results],
        result_cycles=cycles.copy(),
        result_lanes=lanes.astype(np.int64),
        cycles=last,
    )
