"""Hot keys: keys of an equality with more rows than one worker should get.

The rows of a hot key go to a grid of workers instead of one worker: a left row to all workers of one grid row, a right
row to all workers of one grid column. So each pair of rows meets at exactly one worker, as in a join matrix, but only
the rows of hot keys are copied. Keys of medium size get one worker, chosen instead of hashed, so that two of them do
not meet at one worker by accident.

A share is the part of a side's rows that have the key. Shares decide the cost alone: any table of hot keys gives the
same result, as long as everyone who places rows uses the same one.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

SPARE_WORKERS = (
    2  # give a key this many times the workers that its share of the work asks for, to fill gaps evenly
)
LEAST_WORK = 0.2  # keys with less than this part of a worker's mean work stay where their hash puts them
MOST_HOT_KEYS = 1000


@dataclass(frozen=True)
class KeyShare:
    """A key of the equality by its `hash`, its shares of the rows of left and right, and a `name` for people."""

    hash: int
    left: float = 1.0
    right: float = 1.0
    name: str = ""


@dataclass(frozen=True)
class HotKey:
    """A key and its grid of `rows` x `columns` workers, which `workers` lists row by row."""

    hash: int
    rows: int
    columns: int
    workers: tuple[int, ...]
    share: KeyShare = field(compare=False)

    def describe(self) -> str:
        """The key and its workers in a few words."""
        share = f"{self.share.left:.1%} of left, {self.share.right:.1%} of right"
        place = (
            f"{self.rows} x {self.columns} workers" if len(self.workers) > 1 else f"worker {self.workers[0]}"
        )
        return f"{self.share.name}: {place} ({share})"


def placed(keys: Sequence[KeyShare], workers: int, kept: Sequence[str]) -> tuple[HotKey, ...]:
    """The keys that are hot for this many workers, each with its grid. `keys`: all keys that were counted. `kept`: the
    sides whose rows must each have all their matches at one worker; with both, no key can be divided.

    The work of a key is its part of all rows, or of all pairs if that is more. The largest keys are placed first, each
    where least work lies so far. O(keys * workers)."""
    if workers == 1 or len(kept) == 2:
        return ()
    pairs = sum(key.left * key.right for key in keys) or 1.0
    load = [[0.0, 0.0] for _ in range(workers)]  # by worker, its parts of all rows and of all pairs
    works = sorted(((_work_of(key, pairs), key) for key in keys), key=lambda each: (-each[0], each[1].hash))
    found: list[HotKey] = []
    for work, key in works:
        if work * workers < LEAST_WORK or len(found) == MOST_HOT_KEYS:
            break
        rows, columns = grid(key, min(workers, math.ceil(SPARE_WORKERS * workers * work)), kept)
        chosen = heapq.nsmallest(
            rows * columns, range(workers), key=lambda worker: (max(load[worker]), worker)
        )
        for worker in chosen:
            load[worker][0] += (key.left / rows + key.right / columns) / 2
            load[worker][1] += key.left * key.right / pairs / len(chosen)
        found.append(HotKey(key.hash, rows, columns, tuple(sorted(chosen)), key))
    return tuple(sorted(found, key=lambda key: key.hash))


def grid(key: KeyShare, most: int, kept: Sequence[str]) -> tuple[int, int]:
    """The grid of at most `most` workers that gives each the fewest rows of a key. A side in `kept` is not copied."""
    if kept:
        return (most, 1) if "left" in kept else (1, most)
    shapes = [(rows, most // rows) for rows in range(1, most + 1)]
    return min(shapes, key=lambda shape: (key.left / shape[0] + key.right / shape[1], shape))


def _work_of(key: KeyShare, pairs: float) -> float:
    return max((key.left + key.right) / 2, key.left * key.right / pairs)


def digest_of(keys: Sequence[HotKey]) -> str:
    """Identifies a table of hot keys in a checkpoint."""
    table = [[key.hash, key.rows, key.columns, key.workers] for key in keys]
    return hashlib.sha256(json.dumps(table).encode()).hexdigest()[:12]


def to_json(keys: Sequence[HotKey]) -> str:
    """A table of hot keys as text, as checkpoints record it."""
    return json.dumps([asdict(key) for key in keys])


def from_json(text: str) -> tuple[HotKey, ...]:
    """The table of hot keys that `to_json` wrote."""
    return tuple(
        HotKey(key["hash"], key["rows"], key["columns"], tuple(key["workers"]), KeyShare(**key["share"]))
        for key in json.loads(text)
    )
