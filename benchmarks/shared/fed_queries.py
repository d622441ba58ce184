"""Streaming queries that live through a benchmark and take turns: each works only while it is given files to read."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.shared.spark import NAMES, batches_of

# Micro-batches per turn of a query; odd, because the join merges runs every second or sixth time.
STRETCH = 5
Make = Callable[[Path], DataFrame]  # a query's result, from the folder with the files of both sides


class FedQuery:
    """A query into a no-op sink that works while it is fed."""

    def __init__(self, files: Path, make: Make):
        self.files, self._fed, self._last = files, 0, -1
        self.folder = Path(tempfile.mkdtemp(prefix="query"))
        for side in NAMES:
            (self.folder / side).mkdir()
        writer = make(self.folder).writeStream.format("noop")
        self.query = writer.option("checkpointLocation", str(self.folder / "checkpoint")).start()

    def feed(self, count: int) -> list[dict[str, Any]]:
        """Let it read the next `count` files of each side; return its micro-batches."""
        for number in range(self._fed, self._fed + count):
            for side in NAMES:
                name = f"{number:05}.parquet"
                os.link(self.files / side / name, self.folder / side / name)
        self._fed += count
        self.query.processAllAvailable()
        new = [each for each in batches_of(self.query) if each["batch"] > self._last]
        self._last = new[-1]["batch"]
        return new

    def stop(self) -> None:
        self.query.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def taking_turns(
    files: Path, makes: Mapping[str, Make], filling: int, rows: int, pairs: int
) -> dict[str, list[list[dict[str, Any]]]]:
    """The counted micro-batches of every query, by stretch: `rows` rows per side each, after `filling` files that fill
    the windows. Every query is first in every other round of turns; the first round is not counted, and neither is the
    first micro-batch of a stretch, which finds the processor's caches full of another query."""
    queries: dict[str, FedQuery] = {}
    found: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in makes}
    try:
        for name, make in makes.items():
            queries[name] = FedQuery(files, make)
            queries[name].feed(filling)
        for number in range(pairs + 1):
            for name in list(queries)[:: -1 if number % 2 else 1]:
                batches = queries[name].feed(STRETCH)
                # Spark may list one side's file before the other's, which gives micro-batches of half the rows.
                whole = [each for each in batches[1:] if each["rows"] == 2 * rows]
                found[name] += [whole] if number else []
    finally:
        for query in queries.values():
            query.stop()
    return found


def throughput(batches: Sequence[dict[str, Any]]) -> float:
    """Rows per second of several micro-batches together."""
    return float(sum(each["rows"] for each in batches) / sum(each["seconds"] for each in batches))
