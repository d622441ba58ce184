"""A compiled node of handshake join that scans its windows (`kernels/concurrent/flowing_node.py`). It calls Python only
to find rows in new memory, and to start a scan for a predicate without a band kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.kernels.concurrent import flowing_node as kernel
from streamjoin.kernels.concurrent import scanning_node as scanning
from streamjoin.kernels.stamping import INT64_MIN
from streamjoin.semantics.spec import SIDES
from streamjoin.topologies.handshake.chain_node import ChainContext
from streamjoin.topologies.handshake.scanning_node import ComparingNode, ScannedRows
from streamjoin.topologies.handshake.track import NO_TRACK_ROWS, Track, TrackMemory

POSITIONS = (scanning.STORE_BEGIN, kernel.SLICE_SENT, scanning.STORE_VISIBLE, scanning.STORE_END)


class Slice(ScannedRows):
    """The stretch of a track that a node holds: the rows that rest on it, and copies of those that it has sent on. The
    words hold where it begins and ends. `share`: the part of the track's memory that counts as this node's."""

    def __init__(self, number: int, words: np.ndarray, program: WindowProgram, track: Track, share: float):
        super().__init__(number, words, program)
        self._track, self._share, self._base = track, share, 0
        self.rows = NO_TRACK_ROWS
        self.stage: TrackMemory | None = None

    @property
    def nbytes(self) -> int:
        return int(self._track.nbytes * self._share)

    def follow(self) -> None:
        """Go over to the track's newest memory, which has all rows of the stretch."""
        memory = self._track.memory
        assert memory is not None
        places = [which + self._number for which in POSITIONS]
        self._words[places] -= memory.base - self._base
        self._base = memory.base
        self._words[kernel.TRACK_BASE + self._number] = memory.base
        self._words[kernel.TRACK_LIMIT + self._number] = memory.limit
        self.rows, self.columns, self.stage = memory.rows, memory.stored, memory

    def clear(self) -> None:
        self.rows, self.columns, self.stage, self._base = NO_TRACK_ROWS, Stored(), None, 0
        self._track.clear()


class FlowingNode(ComparingNode):
    """One node: its slice of both tracks. `flow`: see the kernel; `most`: the most rows of a block."""

    advance, wait_and_advance = (
        staticmethod(kernel.advance_flowing_node),
        staticmethod(kernel.run_flowing_node),
    )

    def __init__(
        self, number: int, shared: ChainContext, tracks: Sequence[Track], flow: np.ndarray, most: int
    ):
        super().__init__(number, shared, tracks, 1, kernel.FLOWING_WORDS, most)
        self._flow = flow
        self._words[[kernel.EXPIRED, kernel.EXPIRED + 1, kernel.ANNOUNCED, kernel.ANNOUNCED + 1]] = INT64_MIN
        self._words[kernel.BLOCK_ROWS] = most
        programs = [shared.plan.programs[side] for side in SIDES]
        self._slices = [
            Slice(side, self._words, programs[side], tracks[side], 1 / shared.count)
            for side in range(len(SIDES))
        ]
        self.windows = dict(zip(SIDES, self._slices, strict=True))

    @property
    def stores(self) -> Sequence[Slice]:
        return self._slices

    def probes(self, side: int) -> TrackMemory | None:
        return self._slices[side].stage

    def make_room(self) -> None:
        self._slices[self._words[scanning.MESSAGE_SIDE]].follow()

    def staged_rows(self) -> tuple[np.ndarray, ...]:
        return tuple(each.rows for each in self._slices)

    def gather(self) -> tuple[Any, ...]:
        call, operands = self.scan_arguments((1, 0))
        return (self._flow, self._reach, self._pairs.probe, self._pairs.pos, self.outbox.ring, call, operands)

    def clear(self) -> None:
        for each in self._slices:
            each.clear()
        super().clear()
