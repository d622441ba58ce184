"""Insertion into a subwindow and its memory, by structure, over batch size, subwindow size and partition count.

PanJoin's Figures 10a, 10b, 11a, 11b, 12a, 12b, 12f and 13a. A subwindow is filled to 11/16 in one batch; then batches
of every size are timed, smallest first, from some thousand to a million tuples of each. (A hash table doubles before
and after this stretch; `hash_probe` includes that.) Beside it, NumPy inserts as many keys and slots: it sorts the
batch and inserts it, or sorts everything again, whichever is faster.

A RaP-Table has splitters that fit the keys, as from a predecessor. `buffer` limits BI-Sort's insertion buffer (Figure
12f); in the other parts BI-Sort chooses its size. Memory is what a full structure allocates, open and sealed,
including key and slot (8 bytes); in an open one, pages that are never touched count as well.

Uniform keys, one pinned thread, processor time, the best of five runs after one that warms up.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure
from benchmarks.shared.subwindows import (
    PARTITIONED,
    PARTITIONS,
    RUNS,
    STRUCTURES,
    Array,
    empty,
    label,
    search_and_insert,
    sort_again,
    uniform_keys,
)
from benchmarks.shared.timing import pin
from streamjoin.index.structures.bisort import BISortSubwindow

HELD = 11 / 16
BATCHES = (1, 16, 256, 4096, 65_536, 1 << 20)
LARGEST, SMALLER = 1 << 23, (1 << 16, 1 << 18, 1 << 20)
BUFFER_WINDOW, BUFFERS, BUFFER_BATCHES = 1 << 16, (16, 64, 256, 1024, 4096), (1, 16, 64, 256, 1024)
FIGURES = {
    "structure_insert-batch": Figure(
        "batch",
        {"inserts_per_s": ""},
        "tuples per batch; subwindow of 8M",
        "tuples inserted/s, one thread",
        where={"part": "insert", "size": 1 << 23},
        by="series",
        log=True,
    ),
    "structure_insert-size": Figure(
        "size",
        {"inserts_per_s": ""},
        "tuples of the subwindow; batches of 256",
        "tuples inserted/s, one thread",
        where={"part": "insert", "batch": 256, "partitions": (None, 1024)},
        by="series",
        log=True,
    ),
    "structure_insert-buffer": Figure(
        "batch",
        {"inserts_per_s": "tuples buffered at most"},
        "tuples per batch; BI-Sort subwindow of 64K",
        "tuples inserted/s, one thread",
        where={"part": "buffer"},
        by="buffer",
        log=True,
    ),
}


def quota(size: int, batch: int) -> int:
    """Tuples to insert in batches of this size: a small part of the window, few calls, at least one batch."""
    return max(batch, min(8192 * batch, size // 32) // batch * batch)


def insert_seconds(window: Any, keys: Array, batches: list[int]) -> dict[int, float]:
    """Seconds per tuple for each batch size, into a subwindow that is first filled to HELD."""
    at, slots, seconds = int(HELD * len(keys)), np.arange(len(keys), dtype=np.int32), {}
    window.insert(keys[:at], slots[:at])
    for batch in batches:
        end = at + quota(len(keys), batch)
        started = time.process_time()
        for begin in range(at, end, batch):
            window.insert(keys[begin : begin + batch], slots[begin : begin + batch])
        seconds[batch] = (time.process_time() - started) / (end - at)
        at = end
    return seconds


def numpy_seconds(keys: Array, batches: list[int]) -> dict[int, float]:
    """The same with NumPy, for one batch of each size."""
    count = int(HELD * len(keys))
    held, slots = np.sort(keys[:count]), np.arange(count, dtype=np.int32)
    seconds = {}
    for batch in batches:
        new, new_slots = keys[count : count + batch], np.arange(count, count + batch, dtype=np.int32)
        times = []
        for merge in (sort_again, search_and_insert):
            started = time.process_time()
            merge(held, slots, new, new_slots)
            times.append(time.process_time() - started)
        seconds[batch] = min(times) / batch
    return seconds


def best(runs: list[dict[int, float]]) -> dict[int, float]:
    """The best tuples per second by batch size; the first run warms up."""
    return {batch: 1 / min(run[batch] for run in runs[1:]) for batch in runs[0]}


def rates(structure: str, size: int, partitions: int | None) -> dict[int, float]:
    keys = uniform_keys(size)
    batches = [batch for batch in BATCHES if batch <= size // 8]
    if structure == "numpy":
        return best([numpy_seconds(keys, batches) for _ in range(RUNS + 1)])
    like = keys[: 1 << 18]
    return best(
        [insert_seconds(empty(structure, size, partitions, like), keys, batches) for _ in range(RUNS + 1)]
    )


def insert_rows(quick: bool) -> list[dict[str, Any]]:
    largest = 1 << 20 if quick else LARGEST
    cases: list[tuple[str, int, int | None]] = []
    for size in (*(size for size in SMALLER if size < largest), largest):
        counts = PARTITIONS if size == largest else PARTITIONS[:1]
        for structure in (*STRUCTURES, "numpy"):
            cases += [(structure, size, p) for p in (counts if structure in PARTITIONED else [None])]
    return [
        row("insert", structure, size, partitions, batch=batch, inserts_per_s=rate)
        for structure, size, partitions in cases
        for batch, rate in rates(structure, size, partitions).items()
    ]


def buffer_rows() -> list[dict[str, Any]]:
    """Figure 12f: BI-Sort of 64K tuples, batches no larger than the buffer."""
    keys = uniform_keys(BUFFER_WINDOW)
    rows = []
    for most in BUFFERS:
        runs = []
        for _ in range(RUNS + 1):
            window = BISortSubwindow(len(keys), keys.dtype)
            window.most_buffered = most
            runs.append(insert_seconds(window, keys, list(BUFFER_BATCHES)))
        rows += [
            row("buffer", "bisort", BUFFER_WINDOW, None, batch=batch, inserts_per_s=rate, buffer=most)
            for batch, rate in best(runs).items()
        ]
    return rows


def memory_rows(size: int) -> list[dict[str, Any]]:
    """Bytes per tuple, with the partition counts that the engine uses."""
    keys, slots, rows = uniform_keys(size), np.arange(size, dtype=np.int32), []
    for structure in STRUCTURES:
        window = empty(structure, size, None, keys)
        window.insert(keys, slots)
        open_bytes = window.nbytes / size
        window.seal()
        sizes = {"open_bytes": open_bytes, "sealed_bytes": window.nbytes / size}
        rows.append(row("memory", structure, size, None, **sizes))
    return rows


def row(part: str, structure: str, size: int, partitions: int | None, **measured: Any) -> dict[str, Any]:
    columns = {"batch": None, "inserts_per_s": None, "buffer": None, "open_bytes": None, "sealed_bytes": None}
    name = {"part": part, "series": label(structure, partitions), "structure": structure}
    return {**name, "size": size, "partitions": partitions, **columns, **measured}


def run(quick: bool) -> dict[str, Any]:
    """Rows: tuples per second by structure, sizes and batch. Summary: ratios to NumPy, and bytes per tuple.

    A ratio is the smallest over the batch sizes, in the largest subwindow.
    """
    pin()
    inserts, memory = insert_rows(quick), memory_rows(1 << 20 if quick else LARGEST)
    largest = [line for line in inserts if line["size"] == max(r["size"] for r in inserts)]
    peer = {line["batch"]: line["inserts_per_s"] for line in largest if line["structure"] == "numpy"}
    summary: dict[str, Any] = {}
    for structure in STRUCTURES:
        own = [line for line in largest if line["structure"] == structure]
        ratios = [line["inserts_per_s"] / peer[line["batch"]] for line in own]
        summary[f"{structure}: smallest ratio to NumPy sort and merge"] = min(ratios)
    for line in memory:
        summary[f"{line['structure']}: bytes a tuple, sealed"] = line["sealed_bytes"]
    return {"rows": inserts + buffer_rows() + memory, "summary": summary}
