"""The BI-Sort engine in Verilator: batches in, records and cycles out."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np

from streamjoin.hardware.bisort.engine import BiSortSystem
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.parameters import HardwareError
from streamjoin.hardware.verilate import verilated

ENGINE_DRIVER = Path(__file__).with_name("simulation.cpp")
KeyAndId = tuple[int, int]
"""Key and id."""
Record = tuple[int, int, int]
"""Number of the probe, first position, the position past the last."""


class _Batch(ctypes.Structure):
    """`struct Batch` of simulation.cpp."""

    _fields_ = [
        ("items", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("insert", ctypes.c_int64),
        ("base", ctypes.c_int64),
        ("most_cycles", ctypes.c_int64),
        ("records", ctypes.c_void_p),
        ("record_count", ctypes.c_int64),
        ("cycles", ctypes.c_int64),
    ]


class BiSortSimulator:
    """An engine that keeps its window between batches. Items and records have at most 64 bits."""

    def __init__(self, parameters: BiSortParameters):
        self.parameters = p = parameters
        self.number_bits = p.capacity.bit_length()
        if p.key_width + p.id_width > 64 or 3 * self.number_bits > 64:
            raise HardwareError(
                f"{p.key_width + p.id_width} bits per item and {3 * self.number_bits} per record: "
                "the simulator supports up to 64",
                field="parameters",
                given=parameters,
                allowed="up to 64 bits per item and per record",
            )
        self.library = verilated(BiSortSystem(p), ENGINE_DRIVER, "records", p.units)
        self.library.open_engine.restype = ctypes.c_void_p
        self.library.read_window.restype = ctypes.c_int64
        self.engine = ctypes.c_void_p()
        self.clear()

    def clear(self) -> None:
        """Start over with an empty window."""
        self.close()
        self.engine, self.count = ctypes.c_void_p(self.library.open_engine()), 0

    def close(self) -> None:
        """Free the engine's memory. Afterwards only `clear` is allowed; closing twice does nothing."""
        self.library.close_engine(self.engine)
        self.engine = ctypes.c_void_p()

    def __enter__(self) -> BiSortSimulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def insert(self, items: Sequence[KeyAndId]) -> int:
        """Merge a batch, sorted by key, into the window. Return the cycles it took."""
        if self.count + len(items) > self.parameters.capacity:
            raise HardwareError(
                f"the window holds {self.count} items and the batch has {len(items)}: "
                f"the capacity is {self.parameters.capacity}",
                field="items",
                given=len(items),
                allowed=f"up to {self.parameters.capacity - self.count} items",
            )
        cycles = self._run(items, insert=True)[1]
        self.count += len(items)
        return cycles

    def probe(self, items: Sequence[KeyAndId]) -> tuple[list[Record], int]:
        """Probe with a batch, sorted by key. Return its records in order, and the cycles it took."""
        if len(items) > self.parameters.capacity:
            raise HardwareError(
                f"the batch has {len(items)} items: the memory has room for {self.parameters.capacity}",
                field="items",
                given=len(items),
                allowed=f"up to {self.parameters.capacity} items",
            )
        return self._run(items, insert=False)

    def window(self) -> list[KeyAndId]:
        """The sorted array as stored in the memory."""
        self._check_open()
        words = np.zeros(self.parameters.capacity, np.uint64)
        place = words.ctypes.data_as(ctypes.c_void_p)
        count = self.library.read_window(self.engine, ctypes.c_int64(self.parameters.capacity), place)
        return [self._item(int(word)) for word in words[:count]]

    def _run(self, items: Sequence[KeyAndId], insert: bool) -> tuple[list[Record], int]:
        self._check_open()
        self._check_batch(items)
        p = self.parameters
        keys, ids = (1 << p.key_width) - 1, (1 << p.id_width) - 1
        words = np.array([(key & keys) << p.id_width | number & ids for key, number in items], np.uint64)
        records = np.zeros(max(1, len(items)), np.uint64)
        batch = _Batch(
            items=words.ctypes.data,
            count=len(items),
            insert=insert,
            base=p.batch_base,
            most_cycles=1000 * p.interval * (p.latency + p.capacity),
            records=records.ctypes.data,
        )
        self.library.run_batch(self.engine, ctypes.byref(batch))
        if batch.cycles == batch.most_cycles or batch.record_count != (0 if insert else len(items)):
            raise HardwareError(
                f"the engine did not finish: {batch.record_count} records after {batch.cycles} cycles"
            )
        return sorted(self._record(int(word)) for word in records[: batch.record_count]), batch.cycles

    def _check_open(self) -> None:
        if not self.engine:
            raise HardwareError("the simulator is closed: call clear() to start over with an empty window")

    def _check_batch(self, items: Sequence[KeyAndId]) -> None:
        p = self.parameters
        lowest, beyond = -(1 << p.key_width - 1), 1 << p.key_width - 1
        for before, item in zip([(lowest, 0), *items], items, strict=False):
            if not (lowest <= item[0] < beyond and 0 <= item[1] < 1 << p.id_width):
                raise HardwareError(
                    f"item is {item}: keys are signed with {p.key_width} bits, ids unsigned with {p.id_width}",
                    field="items",
                    given=item,
                    allowed=f"keys of {p.key_width} bits, ids of {p.id_width}",
                )
            if item[0] < before[0]:
                raise HardwareError(
                    f"key {item[0]} comes after {before[0]}: sort the batch by key",
                    field="items",
                    given=item,
                    allowed=f"items whose keys ascend from {before[0]}",
                )

    def _item(self, word: int) -> KeyAndId:
        p = self.parameters
        key = word >> p.id_width
        return key - (key >> p.key_width - 1 << p.key_width), word & (1 << p.id_width) - 1

    def _record(self, word: int) -> Record:
        bits, mask = self.number_bits, (1 << self.number_bits) - 1
        return word & mask, word >> bits & mask, word >> 2 * bits & mask
