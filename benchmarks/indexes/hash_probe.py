"""Equality probes of the hash subwindow beside joins of polars, DuckDB and pandas, and its insertion, on one thread.

The window holds random distinct int64 keys, and each probe has one match (selectivity 1). All rivals return pairs
(probe number, window position). The peers get the same rows in their own format, made before the clock starts, and
join the batch with the whole window. They keep no hash table between batches: they build one of the smaller side
(pandas: of both) and read the whole window every time. Our table was built tuple by tuple before; the insertion rate
shows what that costs. One peer keeps a hash table: pandas' `Index.get_indexer`. It needs distinct keys and cannot
grow; it counts as a peer all the same.

Insertion fills an empty subwindow batch by batch, including growth and the first touch of memory. Beside it, NumPy
sorts a batch and merges it into a sorted array of the window's size.

Everything runs on one pinned core, in turns, with new probes in every run. The best of five runs counts, in processor
time of the whole process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

# polars reads this when it is imported.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import duckdb
import numpy as np
import pandas as pd
import polars as pl

from benchmarks.shared.figures import Figure
from benchmarks.shared.timing import pin
from streamjoin.index.structures.hash import HashSubwindow
from streamjoin.kernels.pairs import PairBuffer

SEED = 20200420
WINDOWS = (1 << 20, 8 << 20)
BATCHES = (1 << 10, 1 << 12, 1 << 14, 1 << 16)
RUNS = 5
PROBES = 1 << 19  # probes of the hash subwindow in one run, in batches; a peer takes one batch
PEERS = ("polars", "duckdb", "pandas", "pandas_index")
Array = np.ndarray[Any, Any]
FIGURES = {
    "hash_probe": Figure(
        "batch",
        {
            "ours_probes_per_s": "hash subwindow",
            "pandas_index_probes_per_s": "pandas Index.get_indexer",
            "polars_probes_per_s": "polars join",
            "duckdb_probes_per_s": "DuckDB join",
            "pandas_probes_per_s": "pandas merge",
        },
        "probes per batch; 8M keys, one match per probe",
        "probes/s, one thread",
        where={"window": 8 << 20},
        log=True,
    ),
}


class Ours:
    """A sealed hash subwindow, probed batch by batch."""

    def __init__(self, keys: Array):
        self.window = HashSubwindow(len(keys), keys.dtype)
        self.window.insert(keys, np.arange(len(keys), dtype=np.int32))
        self.window.seal()
        self.pairs = PairBuffer()

    def join(self, keys: Array, batch: int) -> tuple[float, int]:
        """Return the seconds for all probes, in batches, and the number of pairs."""
        start, stop = np.zeros(batch, np.int64), np.full(batch, len(self.window), np.int64)
        found, started = 0, time.process_time()
        for begin in range(0, len(keys), batch):
            probes = keys[begin : begin + batch]
            for _ in self.window.probe(probes, probes, start, stop, self.pairs):
                found += self.pairs.count
                self.pairs.count = 0
        return time.process_time() - started, found


class Peers:
    """The window in each peer's own format; `join` returns the seconds and the number of pairs."""

    def __init__(self, keys: Array):
        slots = np.arange(len(keys), dtype=np.int32)
        self.polars = pl.DataFrame({"key": keys, "slot": slots})
        self.pandas = pd.DataFrame({"key": keys, "slot": slots})
        self.duckdb = duckdb.connect(config={"threads": 1})
        self.duckdb.register("rows", self.pandas)
        self.duckdb.execute("CREATE TABLE stored AS SELECT * FROM rows")
        self.index = pd.Index(keys)
        self.index.get_indexer(keys[:1])  # builds its hash table

    def join(self, peer: str, keys: Array) -> tuple[float, int]:
        numbers = np.arange(len(keys), dtype=np.int32)
        call: Callable[[], int] = getattr(self, f"_{peer}")(keys, numbers)
        started = time.process_time()
        found = call()
        return time.process_time() - started, found

    def _polars(self, keys: Array, numbers: Array) -> Callable[[], int]:
        probes = pl.DataFrame({"key": keys, "probe": numbers})
        return lambda: probes.join(self.polars, on="key").select("probe", "slot").height

    def _duckdb(self, keys: Array, numbers: Array) -> Callable[[], int]:
        self.duckdb.register("rows", pd.DataFrame({"key": keys, "probe": numbers}))
        self.duckdb.execute("CREATE OR REPLACE TABLE probes AS SELECT * FROM rows")
        query = "SELECT probe, slot FROM probes JOIN stored USING (key)"
        return lambda: len(self.duckdb.execute(query).fetchnumpy()["slot"])

    def _pandas(self, keys: Array, numbers: Array) -> Callable[[], int]:
        probes = pd.DataFrame({"key": keys, "probe": numbers})
        return lambda: len(probes.merge(self.pandas, on="key")[["probe", "slot"]])

    def _pandas_index(self, keys: Array, numbers: Array) -> Callable[[], int]:
        def look_up() -> int:
            slots = self.index.get_indexer(keys)
            return len(np.stack([numbers, slots])[:, slots >= 0][0])

        return look_up


def insertion(keys: Array, batch: int) -> float:
    """Seconds to fill an empty subwindow."""
    slots = np.arange(len(keys), dtype=np.int32)
    window = HashSubwindow(len(keys), keys.dtype)
    started = time.process_time()
    for begin in range(0, len(keys), batch):
        window.insert(keys[begin : begin + batch], slots[begin : begin + batch])
    return time.process_time() - started


def sort_and_merge(held: Array, batch: Array) -> float:
    """Seconds to sort a batch and merge it into a sorted array with NumPy."""
    started = time.process_time()
    ordered = np.sort(batch)
    np.insert(held, np.searchsorted(held, ordered), ordered)
    return time.process_time() - started


def probing(keys: Array, ours: Ours, peers: Peers, batch: int, runs: int) -> dict[str, float]:
    """The best rate of each rival in probes per second; the first run warms up."""
    random, best = np.random.default_rng(SEED + batch), dict.fromkeys(("ours", *PEERS), np.inf)
    for number in range(runs + 1):
        probes = random.choice(keys, max(PROBES, batch))
        measured = {"ours": ours.join(probes, batch)}
        measured |= {peer: peers.join(peer, probes[:batch]) for peer in PEERS}
        for name, (seconds, found) in measured.items():
            expected = len(probes) if name == "ours" else batch
            if found != expected:
                raise AssertionError(f"{name} found {found} pairs, not {expected}")
            if number > 0:
                best[name] = min(best[name], seconds / expected)
    return {f"{name}_probes_per_s": 1 / seconds for name, seconds in best.items()}


def inserting(keys: Array, held: Array, batch: int, runs: int) -> dict[str, float]:
    """The best rates of the subwindow and of NumPy in tuples per second; the first run warms up."""
    ours = [insertion(keys, batch) / len(keys) for _ in range(runs + 1)]
    merges = [sort_and_merge(held, keys[number * batch :][:batch]) / batch for number in range(runs + 1)]
    return {"insert_per_s": 1 / min(ours[1:]), "sort_merge_insert_per_s": 1 / min(merges[1:])}


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per window and batch size. Summary: the smallest ratios to the best peer and to sorting and merging."""
    pin()
    if pl.thread_pool_size() != 1:
        raise RuntimeError(f"polars has {pl.thread_pool_size()} threads, not 1: set POLARS_MAX_THREADS=1")
    rows, runs = [], 2 if quick else RUNS
    for window in WINDOWS[:1] if quick else WINDOWS:
        random = np.random.default_rng(SEED)
        keys = np.unique(random.integers(-(2**63), 2**63 - 1, window))
        held = keys.copy()
        random.shuffle(keys)
        ours, peers = Ours(keys), Peers(keys)
        for batch in BATCHES:
            rates = probing(keys, ours, peers, batch, runs) | inserting(keys, held, batch, runs)
            best = max(rates[f"{peer}_probes_per_s"] for peer in PEERS)
            rows.append(
                {
                    "window": window,
                    "batch": batch,
                    **rates,
                    "ratio": rates["ours_probes_per_s"] / best,
                    "insert_ratio": rates["insert_per_s"] / rates["sort_merge_insert_per_s"],
                    "bytes_per_tuple": ours.window.nbytes / len(keys),
                }
            )
    summary = {
        "smallest_ratio": min(row["ratio"] for row in rows),
        "target": 1.0,
        "smallest_insert_ratio": min(row["insert_ratio"] for row in rows),
        "best_probes_per_s": max(row["ours_probes_per_s"] for row in rows),
        "best_insert_per_s": max(row["insert_per_s"] for row in rows),
        "bytes_per_tuple": max(row["bytes_per_tuple"] for row in rows),
    }
    return {"rows": rows, "summary": summary}
