"""Hot keys of a join: their hashes, given or counted in a sample.

A key is counted by the hash that places its rows (`pack.equality_hashes`), so any equality can be counted, on both
sides alike. `plan/hot_keys.py` decides from the counts which keys are hot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.programs import combined
from streamjoin.page.model import rows_as_text
from streamjoin.plan.hot_keys import HotKey, KeyShare, placed
from streamjoin.plan.routing import kept_sides
from streamjoin.semantics.errors import SpecError, short_repr
from streamjoin.semantics.expressions import Column, columns
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.pack import equality_hashes, in_utc, narrowed
from streamjoin.spark.join.process import GARBAGE
from streamjoin.spark.join.task import JoinTask

MOST_COUNTED = 1000  # of each partition, the keys with the most rows
KEY_COUNTS_DDL = "side TINYINT, hash BIGINT, rows BIGINT, name STRING"
KEY_COUNTS = pa.schema({"side": pa.int8(), "hash": pa.int64(), "rows": pa.int64(), "name": pa.string()})

CountBatches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass
class KeyCounts:
    """How many rows have each key, by side and hash. `totals`: all rows, by side."""

    rows: dict[str, Counter[int]] = field(default_factory=lambda: {side: Counter() for side in SIDES})
    totals: Counter[str] = field(default_factory=Counter)
    names: dict[int, str] = field(default_factory=dict)

    def add(self, side: str, key: int | None, rows: int, name: str | None) -> None:
        """Count rows of a key; of all keys if it is None."""
        if key is None:
            self.totals[side] += rows
            return
        self.rows[side][key] += rows
        self.names.setdefault(key, name or "")

    def add_batch(self, task: JoinTask, side: str, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch that has at least the columns `counted_columns`."""
        batch = batch.filter(batch.column(task.spec.side_time(side)).is_valid())
        self.totals[side] += batch.num_rows
        hashes, ok = equality_hashes(task, side, batch)
        at = np.flatnonzero(ok)
        found, first, counts = np.unique(hashes[at], return_index=True, return_counts=True)
        most = np.argsort(-counts, kind="stable")[:MOST_COUNTED]
        new = [n for n in most.tolist() if int(found[n]) not in self.names]
        keys = batch.select(key_names(task, side)).take(pa.array(at[first[new]], pa.int64()))
        names = rows_as_text(keys, len(new))
        self.names |= {int(found[n]): ", ".join(map(str, name)) for n, name in zip(new, names, strict=True)}
        self.rows[side].update({int(found[n]): int(counts[n]) for n in most})

    def shares(self) -> list[KeyShare]:
        """The share of every key that was counted."""
        shares = {
            side: {key: rows / self.totals[side] for key, rows in self.rows[side].items()} for side in SIDES
        }
        keys = dict.fromkeys([*shares["left"], *shares["right"]])
        return [
            KeyShare(key, shares["left"].get(key, 0.0), shares["right"].get(key, 0.0), self.names[key])
            for key in keys
        ]


def hot_keys_of(task: JoinTask, shares: Sequence[KeyShare]) -> tuple[HotKey, ...]:
    """The hot keys of a join that spreads rows by hash, each with its workers."""
    return placed(shares, task.routing.workers, kept_sides(task.spec))


def with_hot_keys(task: JoinTask, hot: Sequence[HotKey]) -> JoinTask:
    """The task with this table of hot keys."""
    return replace(task, routing=replace(task.routing, hot=tuple(hot)))


def why_not_divided(task: JoinTask) -> str | None:
    """Why the rows of a key cannot be divided; None if they can."""
    if task.routing.kind != "hash":
        return f"rows are not spread by a hash of equality keys, but by {task.routing.describe()}"
    if len(kept_sides(task.spec)) == 2:
        return "a full join must have all rows of a key at one worker"
    return None


def check_divisible(task: JoinTask, given: object) -> None:
    """Raise if hot keys are given or asked for, and the join cannot divide the rows of a key."""
    if why := why_not_divided(task):
        raise SpecError(
            f"hot_keys is {short_repr(given)}, but {why}; allowed: None",
            field="hot_keys",
            given=given,
            allowed="None for this join",
        )


# Given keys


def given_hot_keys(task: JoinTask, keys: Sequence[Any]) -> tuple[HotKey, ...]:
    """The hot keys that a user lists: each is a value of left's key column, or a tuple of the values of all columns of
    left that the equalities read. Every one of them is divided among all workers."""
    if not keys:
        return ()
    check_divisible(task, list(keys))
    names = key_names(task, "left")
    rows = [_parts_of(key, names) for key in keys]
    arrays = {name: _key_column(task, name, values) for name, *values in zip(names, *rows, strict=True)}
    found = _hashes_of(task, arrays, len(keys)).tolist()
    texts = [", ".join(map(str, row)) for row in rows]
    shares = {key: KeyShare(key, name=text) for key, text in zip(found, texts, strict=True)}
    return tuple(
        sorted((hot_keys_of(task, [share])[0] for share in shares.values()), key=lambda each: each.hash)
        if task.routing.workers > 1
        else ()
    )


def _parts_of(key: Any, names: Sequence[str]) -> list[Any]:
    """The values of a given key, one for each key column."""
    values = list(key) if isinstance(key, (tuple, list)) else [key]
    if len(values) != len(names) or any(value is None for value in values):
        needed = f"a value of {names[0]!r}" if len(names) == 1 else f"a tuple of values of {', '.join(names)}"
        raise SpecError(
            f"hot_keys has {short_repr(key)}; allowed: for each key {needed}, without NULL",
            field="hot_keys",
            given=key,
            allowed=needed,
        )
    return values


def _key_column(task: JoinTask, name: str, values: Sequence[Any]) -> pa.Array:
    """Values of a key column of left, in its type."""
    kind = task.spec.left.field(name).type
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    try:
        return pa.array(values).cast(kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise SpecError(
            f"hot_keys has {short_repr(values)}, but the column {name!r} of left is of type {kind}; allowed: values of "
            "that type",
            field="hot_keys",
            given=values,
            allowed=f"values of type {kind}",
        ) from None


def _hashes_of(task: JoinTask, arrays: dict[str, pa.Array], count: int) -> np.ndarray:
    """The hashes of keys, given the columns of left that the equalities read."""
    program, band = task.equality()
    data = {
        column: to_column_data(
            arrays.get(column.name, pa.nulls(count, task.spec.left.field(column.name).type)), column.type
        )
        for column in program.stored_columns
    }
    return combined([program.key_of_band(program.prepare_stored(data, count), band)])


# Counted keys


def key_names(task: JoinTask, side: str) -> list[str]:
    """The columns of a side that the equalities read, in their order."""
    program, _ = task.equality()
    bands = [clause.bands[0] for clause in program.clauses if clause.is_equality]
    found: dict[str, None] = {}
    for band in bands:
        for read in columns(band.key if side == "left" else band.lo) if band.lo is not None else ():
            found |= {read.name: None} if read.side == side else {}
    return [*found]


def counted_columns(task: JoinTask, side: str) -> list[str]:
    """The columns of a side that `key_counter` needs."""
    program, _ = task.equality()
    read: tuple[Column, ...] = program.stored_columns if side == "left" else program.probe_columns
    return [*dict.fromkeys([task.spec.side_time(side), *(column.name for column in read)])]


def key_counter(task: JoinTask, side: str, rows: int) -> CountBatches:
    """The function that counts the keys of one partition, in its first `rows` rows."""
    names = counted_columns(task, side)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counts = KeyCounts()
        for batch in batches:
            if batch.num_rows:
                counts.add_batch(task, side, in_utc(narrowed(batch.rename_columns(names))))
            if counts.totals[side] >= rows:
                break
        number, most = SIDES.index(side), counts.rows[side].most_common(MOST_COUNTED)
        lines: list[tuple[int, int | None, int, str | None]] = [(number, None, counts.totals[side], None)]
        lines += [(number, key, found, counts.names[key]) for key, found in most]
        columns = zip(*lines, strict=True)
        yield pa.record_batch([list(column) for column in columns], schema=KEY_COUNTS)
        GARBAGE.end_task()

    return count
