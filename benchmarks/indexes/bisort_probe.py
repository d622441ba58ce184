"""BI-Sort beside NumPy and polars on the same rows: band probes with pairs or records out, and insertion.

Keys are 8M uniform 32-bit integers (1M with `quick`). Each rival has one thread; they take turns, and the best of five
runs counts, in processor time. Every call gets new probes.

`probe`: bands that match 4 tuples on average, over batch sizes; the output is pairs (probe, slot). NumPy searches both
bounds in sorted keys and expands the ranges, with probes in their order or sorted first. polars runs `join_where` over
a frame sorted by key, in its own process with one thread.
`select`: 1 to 16K matches per probe, as records and as pairs (Pan & Jacobsen, Figure 12e).
`insert`: batches into a half-full window until it has grown by an eighth. NumPy sorts everything again, or sorts the
batch and inserts it with `searchsorted` and `insert` (Figure 12b).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.shared.figures import Figure
from benchmarks.shared.results import ROOT
from benchmarks.shared.subwindows import search_and_insert, sort_again
from benchmarks.shared.timing import best_of_turns
from streamjoin.index.structures.bisort import BISortSubwindow
from streamjoin.kernels.pairs import PairBuffer

SEED = 20180605
RANGE = 2**31 - 1
MATCHES = 4
PROBE_BATCHES = (1024, 4096, 16384, 65536)
SELECTIVITIES = (1, 16, 256, 4096, 16384)
INSERT_BATCHES = (1, 64, 1024, 16384, 262144)
RUNS = 5
TARGET = 5.0
Array = np.ndarray[Any, Any]
Batch = tuple[Array, Array]
FIGURES = {
    "bisort_probe": Figure(
        "batch",
        {
            "records_per_s": "BI-Sort, records",
            "bisort_per_s": "BI-Sort, pairs",
            "numpy_2_per_s": "NumPy, probes sorted first",
            "numpy_per_s": "NumPy",
            "polars_per_s": "polars join_where",
        },
        "probes per batch; 8M keys, 4 matches per probe",
        "probes/s, one thread",
        where={"part": "probe"},
        log=True,
    ),
}


def window_keys(size: int) -> Array:
    return np.random.default_rng(SEED).integers(0, RANGE, size, dtype=np.int32)


def bands(size: int, batch: int, matches: int, seed: int = SEED + 1) -> Iterator[Batch]:
    """Endless batches of lower and upper bounds; a band matches `matches` of `size` keys on average."""
    random, width = np.random.default_rng(seed), RANGE * matches // size
    while True:
        lows = random.integers(0, RANGE - width, batch, dtype=np.int32)
        yield lows, lows + np.int32(width)


def timed(work: Callable[[Batch], int], batches: Iterator[Batch], count: int) -> float:
    """Processor seconds per batch; batches are made before the clock starts."""
    made = list(islice(batches, count))
    started = time.process_time()
    for batch in made:
        work(batch)
    return (time.process_time() - started) / count


class Ours:
    def __init__(self, keys: Array):
        self.window = BISortSubwindow(len(keys), keys.dtype)
        self.window.insert(keys, np.arange(len(keys), dtype=np.int32))
        self.window.seal()
        self.pairs = PairBuffer(1 << 17)

    def probe(self, batch: Batch) -> int:
        lows, highs = batch
        found, whole = 0, (np.zeros(len(lows), np.int64), np.full(len(lows), len(self.window)))
        for _ in self.window.probe(lows, highs, *whole, self.pairs):
            found += self.pairs.count
            self.pairs.count = 0
        return found

    def records(self, batch: Batch) -> int:
        records = self.window.probe_records(*batch)
        return int((records.lasts - records.firsts).sum())


class Numpy:
    def __init__(self, keys: Array):
        self.slots = np.argsort(keys).astype(np.int32)
        self.keys = keys[self.slots]

    def probe(self, batch: Batch) -> int:
        return self._expand(*batch, np.arange(len(batch[0]), dtype=np.int32))

    def probe_sorted(self, batch: Batch) -> int:
        order = np.argsort(batch[0]).astype(np.int32)
        return self._expand(batch[0][order], batch[1][order], order)

    def _expand(self, lows: Array, highs: Array, names: Array) -> int:
        firsts = np.searchsorted(self.keys, lows, "left")
        counts = np.searchsorted(self.keys, highs, "right") - firsts
        probes, ends = np.repeat(names, counts), np.cumsum(counts)
        places = np.arange(len(probes)) + np.repeat(firsts - (ends - counts), counts)
        return len(self.slots[places])


def polars_seconds(size: int, batch: int) -> float:
    """Seconds per batch of `join_where`, in a process that starts polars with one thread."""
    command = [sys.executable, "-m", "benchmarks.indexes.bisort_probe", str(size), str(batch)]
    environment = {**os.environ, "POLARS_MAX_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["seconds"])


def polars_main(size: int, batch: int) -> None:
    import polars as pl

    keys = window_keys(size)
    window = pl.DataFrame({"key": keys, "slot": np.arange(size, dtype=np.int32)}).sort("key")

    def probe(bounds: Batch) -> int:
        probes = pl.DataFrame(
            {"low": bounds[0], "high": bounds[1], "probe": np.arange(batch, dtype=np.int32)}
        )
        return len(probes.join_where(window, pl.col("key") >= pl.col("low"), pl.col("key") <= pl.col("high")))

    batches = bands(size, batch, MATCHES)
    assert probe(next(batches)) > 0
    print(json.dumps({"seconds": min(timed(probe, batches, 1) for _ in range(RUNS))}))


def row(
    part: str, batch: int, matches: int | None, per_s: dict[str, float | None], ratio: float | None
) -> Any:
    columns = ("bisort", "records", "numpy", "numpy_2", "polars")
    rates = {f"{name}_per_s": per_s.get(name) for name in columns}
    return {"part": part, "batch": batch, "matches": matches, **rates, "ratio": ratio}


def probe_rows(ours: Ours, numpy: Numpy, size: int) -> list[dict[str, Any]]:
    rows = []
    for batch in PROBE_BATCHES:
        check = next(bands(size, batch, MATCHES))
        assert ours.probe(check) == ours.records(check) == numpy.probe(check) == numpy.probe_sorted(check)
        batches, count = bands(size, batch, MATCHES, SEED + 2), max(1, 2**18 // batch)
        works = {
            "bisort": ours.probe,
            "records": ours.records,
            "numpy": numpy.probe,
            "numpy_2": numpy.probe_sorted,
        }
        seconds = best_of_turns(
            RUNS, {name: partial(timed, work, batches, count) for name, work in works.items()}
        )
        seconds["polars"] = polars_seconds(size, batch)
        ratio = min(seconds[peer] for peer in ("numpy", "numpy_2", "polars")) / seconds["bisort"]
        rates: dict[str, float | None] = {name: batch / taken for name, taken in seconds.items()}
        rows.append(row("probe", batch, MATCHES, rates, ratio))
    return rows


def select_rows(ours: Ours, size: int) -> list[dict[str, Any]]:
    rows, batch = [], 4096
    for matches in SELECTIVITIES:
        batches = bands(size, batch, matches)
        pairs, records = max(1, 2**18 // batch // matches), 2**18 // batch
        seconds = best_of_turns(
            RUNS,
            {
                "bisort": partial(timed, ours.probe, batches, pairs),
                "records": partial(timed, ours.records, batches, records),
            },
        )
        rows.append(row("select", batch, matches, {k: batch / taken for k, taken in seconds.items()}, None))
    return rows


def insert_ours(keys: Array, batch: int, most: int) -> float:
    """Seconds per tuple, into a window that holds half of the keys, for `most` batches or an eighth of the keys."""
    window, half = BISortSubwindow(len(keys), keys.dtype), len(keys) // 2
    slots = np.arange(len(keys), dtype=np.int32)
    window.insert(keys[:half], slots[:half])
    ends = range(half + batch, min(half + most * batch, half + max(batch, len(keys) // 8)) + 1, batch)
    started = time.process_time()
    for end in ends:
        window.insert(keys[end - batch : end], slots[end - batch : end])
    return (time.process_time() - started) / (len(ends) * batch)


def insert_numpy(keys: Array, batch: int, merge: Callable[[Array, Array, Array, Array], Any]) -> float:
    """Seconds per tuple, from one batch: all batches cost the same."""
    half = len(keys) // 2
    held, slots = np.sort(keys[:half]), np.arange(half, dtype=np.int32)
    new, new_slots = keys[half : half + batch], np.arange(half, half + batch, dtype=np.int32)
    started = time.process_time()
    merge(held, slots, new, new_slots)
    return (time.process_time() - started) / batch


def insert_rows(keys: Array) -> list[dict[str, Any]]:
    rows = []
    for batch in INSERT_BATCHES:
        most = max(2, 2**20 // batch) if batch > 1 else 2**16
        seconds = best_of_turns(
            RUNS,
            {
                "bisort": partial(insert_ours, keys, batch, most),
                "numpy": partial(insert_numpy, keys, batch, sort_again),
                "numpy_2": partial(insert_numpy, keys, batch, search_and_insert),
            },
        )
        rates: dict[str, float | None] = {name: 1 / taken for name, taken in seconds.items()}
        ratio = min(seconds["numpy"], seconds["numpy_2"]) / seconds["bisort"]
        rows.append(row("insert", batch, None, rates, ratio))
    return rows


def run(quick: bool) -> dict[str, Any]:
    """Rows: rates per second, by part and batch size or selectivity; `ratio` is to the fastest peer.

    `numpy_2` is NumPy with sorted probes, or with `searchsorted` and `insert`. Summary: the smallest ratios.
    """
    keys = window_keys(1 << 20 if quick else 1 << 23)
    ours, numpy = Ours(keys), Numpy(keys)
    probes = probe_rows(ours, numpy, len(keys))
    selects, inserts = select_rows(ours, len(keys)), insert_rows(keys)
    records = [line["records_per_s"] for line in selects]
    summary = {
        "keys": len(keys),
        "probe_smallest_ratio": min(line["ratio"] for line in probes),
        "target": TARGET,
        "records_slowest_to_fastest": min(records) / max(records),
        "insert_smallest_ratio": min(line["ratio"] for line in inserts),
        "bytes_per_tuple": ours.window.nbytes / len(keys),
    }
    return {"rows": probes + selects + inserts, "summary": summary}


if __name__ == "__main__":  # the process that polars_seconds starts
    polars_main(*map(int, sys.argv[1:]))
