"""Sorted lists in blocks: their memory, and NumPy forms of the kernels of blocks.py.

The forms search the rows themselves. A list is where kernels keep rows from one search to the next, so it may hold any
of them, or none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ROOM = 64  # entries of a block
USED, FIRST_PLACE, END_PLACE, VISITED = 0, 1, 2, 3  # positions in `state`


class Blocks(NamedTuple):
    """The list. `state`: how many blocks are used, the places of the first row and after the last, and how many entries
    searches have visited."""

    words: np.ndarray
    keys: np.ndarray
    places: np.ndarray
    sizes: np.ndarray  # by block
    order: np.ndarray
    state: np.ndarray


class KeyedRows(NamedTuple):
    """Rows in the order of their places, the first at `base`. Rows that are not `known` never enter the list."""

    words: np.ndarray
    keys: np.ndarray
    known: np.ndarray
    base: int


class Searches(NamedTuple):
    """What is searched for: the rows of a word at places `begins` to `ends`, by their keys' distance from `targets`."""

    words: np.ndarray
    targets: np.ndarray
    known: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def make_blocks(count: int, dtype: np.dtype) -> Blocks:
    """An empty list of `count` blocks."""
    entries = count * ROOM
    return Blocks(
        np.empty(entries, np.int64), np.empty(entries, dtype), np.empty(entries, np.int64),
        np.zeros(count, np.int32), np.arange(count, dtype=np.int32), np.zeros(4, np.int64),
    )  # fmt: skip


def is_full(blocks: Blocks) -> bool:
    """Whether no block is free."""
    return bool(blocks.state[USED] == len(blocks.order))


def is_sparse(blocks: Blocks, most_kept: int) -> bool:
    """Whether most of more than `most_kept` blocks are free."""
    return len(blocks.order) > most_kept and blocks.state[USED] < len(blocks.order) // 16


def emptied(blocks: Blocks, count: int) -> Blocks:
    """An empty list of `count` blocks in place of this one."""
    fewer = make_blocks(count, blocks.keys.dtype)
    fewer.state[FIRST_PLACE] = fewer.state[END_PLACE] = blocks.state[END_PLACE]
    fewer.state[VISITED] = blocks.state[VISITED]
    return fewer


def enlarged(blocks: Blocks) -> Blocks:
    """The same list with room for twice as many blocks."""
    larger = make_blocks(2 * len(blocks.order), blocks.keys.dtype)
    for old, new in zip(blocks, larger, strict=True):
        new[: len(old)] = old
    return larger


def emptied_at(blocks: Blocks, _rows: KeyedRows, begin: int, _end: int, _most: int) -> bool:
    """The form of `slide`: the next search adds the rows that it needs."""
    blocks.sizes[blocks.order[: blocks.state[USED]]] = 0
    blocks.state[USED], blocks.state[FIRST_PLACE], blocks.state[END_PLACE] = 0, begin, begin
    return True


def searched_rows(
    blocks: Blocks, rows: KeyedRows, searches: Searches, turns: bool, _lowest: object, budget: int, costs: np.ndarray,
    found: np.ndarray, counts: np.ndarray,
) -> int:  # fmt: skip
    """The form of `search_rows`: looks at all rows at the places of each search."""
    stop, most = blocks.state[VISITED] + budget, len(costs)
    for i in range(len(counts)):
        begin, end = (int(ends[i]) for ends in (searches.begins, searches.ends))
        counts[i] = 0
        if searches.known[i] and begin < end:
            some = slice(begin - rows.base, end - rows.base)
            places = np.flatnonzero(rows.known[some] & (rows.words[some] == searches.words[i]))
            best = _best(rows.keys[some][places], searches.targets[i], turns, most)
            counts[i] = len(best)
            found[i, : len(best)] = begin + places[best]
            blocks.state[VISITED] += end - begin
        if blocks.state[VISITED] > stop:
            return i + 1
    return len(counts)


def _best(keys: np.ndarray, target: np.generic, turns: bool, most: int) -> np.ndarray:
    """Which up to `most` of the keys have the least costs, the best first; of equal costs, the later one."""
    with np.errstate(invalid="ignore", over="ignore"):
        costs = np.where(target < keys, keys - target, target - keys) if turns else target + keys
    some = np.flatnonzero(costs == costs)  # infinity less infinity is no cost
    if len(some) > most:
        some = some[costs[some] <= np.partition(costs[some], most - 1)[most - 1]]
    best: np.ndarray = some[np.lexsort((-some, costs[some]))][:most]
    return best
