"""The sorted list in blocks holds the rows of its range, and its searches find what sorting all of them would."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.kernels.sorted import block_lists
from streamjoin.kernels.sorted import blocks as listed
from streamjoin.kernels.sorted.block_lists import ROOM, KeyedRows, Searches

LARGEST = 2**64 - 1
KEYS: dict[Any, list[Any]] = {
    np.uint64: [0, 1, 5, 6, 2**63, LARGEST - 1, LARGEST],
    np.float64: [-math.inf, -1e18, -1.0, -0.0, 0.0, 0.5, 1.0, 1e18, math.inf],
    np.float32: [-math.inf, -3e7, -0.0, 0.0, 0.125, 1.0, 16777216.0, 16777217.0, math.inf],
}


def rows_of(draw: random.Random, kind: Any, count: int, base: int, distinct: bool) -> KeyedRows:
    """Rows with keys that are equal, at the ends, or mostly distinct."""
    keys = [draw.randrange(2**64) if kind is np.uint64 else 100 * draw.random() - 50 for _ in range(count)]
    if not distinct:
        keys = [draw.choice(KEYS[kind]) for _ in range(count)]
    words = [draw.choice([-5, 7]) for _ in range(count)]
    known = [draw.random() < 0.9 for _ in range(count)]
    return KeyedRows(np.array(words, np.int64), np.array(keys, kind), np.array(known), base)


def entries(blocks: Any) -> list[tuple[Any, ...]]:
    """All entries in the order of the list."""
    found: list[tuple[Any, ...]] = []
    for block in blocks.order[: blocks.state[block_lists.USED]]:
        at = slice(block * ROOM, block * ROOM + blocks.sizes[block])
        found += zip(*(column[at].tolist() for column in blocks[:3]), strict=True)
    return found


def cost(target: Any, key: Any, turns: bool) -> Any:
    if not turns:
        return target + key
    return key - target if target < key else target - key


def best(rows: KeyedRows, search: tuple[Any, ...], most: int, turns: bool) -> list[int]:
    """The places of the best rows, by sorting all."""
    word, target, begin, end = search
    scored = [
        (float(c) if isinstance(c, np.floating) else int(c), -place)
        for place in range(begin, end)
        if rows.known[place - rows.base] and rows.words[place - rows.base] == word
        for c in [cost(target, rows.keys[place - rows.base], turns)]
        if c == c
    ]
    return [-place for _, place in sorted(scored)[:most]]


def search(
    blocks: Any, rows: KeyedRows, asked: list[tuple[Any, ...]], most: int, turns: bool, budget: int = 1 << 60
) -> Any:
    """What is found for each search, in a list that grows as it has to."""
    kind, count = rows.keys.dtype, len(asked)
    words, targets, begins, ends = (list(column) for column in zip(*asked, strict=True))
    searches = Searches(
        np.array(words, np.int64), np.array(targets, kind), np.ones(count, np.bool_),
        np.array(begins, np.int64), np.array(ends, np.int64),
    )  # fmt: skip
    lowest = kind.type(-np.inf if kind.kind == "f" else 0)
    found, counts, done = np.empty((count, most), np.int64), np.zeros(count, np.int64), 0
    while done < count:
        rest = Searches(*(column[done:] for column in searches))
        done += listed.search_rows(
            blocks, rows, rest, turns, lowest, budget, np.empty(most, kind), found[done:], counts[done:]
        )
        if block_lists.is_full(blocks):
            blocks = block_lists.enlarged(blocks)
    return blocks, [row[:n].tolist() for row, n in zip(found, counts, strict=True)]


@pytest.mark.parametrize("kind", [np.uint64, np.float64, np.float32])
@settings(max_examples=25, deadline=None)
@given(draw=st.randoms(use_true_random=False), count=st.integers(1, 400), most=st.integers(1, 9))
def test_any_range_is_held_and_searched(kind, draw, count, most):
    base, turns = draw.choice([0, 1000]), draw.random() < 0.7
    rows = rows_of(draw, kind, count, base, draw.random() < 0.5)
    blocks = block_lists.make_blocks(2, np.dtype(kind))
    for _ in range(4):
        asked = []
        for _ in range(draw.randint(1, 5)):
            begin, end = sorted(draw.randint(base, base + count) for _ in range(2))
            target = draw.choice([*KEYS[kind], *rows.keys[:3].tolist()]) if turns or kind != np.uint64 else 0
            asked.append((draw.choice([-5, 7, 8]), kind(target), begin, end))
        blocks, found = search(blocks, rows, asked, most, turns, draw.choice([0, 9 * ROOM, 1 << 60]))
        with np.errstate(all="ignore"):
            assert found == [best(rows, each, most, turns) for each in asked]
        held = range(int(blocks.state[block_lists.FIRST_PLACE]), int(blocks.state[block_lists.END_PLACE]))
        there = [
            (int(rows.words[p - base]), rows.keys[p - base].item(), -p) for p in held if rows.known[p - base]
        ]
        assert [(word, key, -place) for word, key, place in entries(blocks)] == sorted(there)
        assert sorted(blocks.order.tolist()) == list(range(len(blocks.order)))


def test_later_rows_are_the_better_ones_of_a_tie_on_both_sides():
    rows = KeyedRows(np.zeros(6, np.int64), np.array([4, 6, 4, 6, 5, 4], np.uint64), np.ones(6, np.bool_), 0)
    found = search(block_lists.make_blocks(2, rows.keys.dtype), rows, [(0, 5, 0, 6)], 4, True)[1]
    assert found == [[4, 5, 3, 2]]


def test_equal_keys_are_not_visited_one_by_one():
    """Of 50,000 rows at each of two distances, a search visits a few."""
    keys = np.tile(np.array([3, 5, 8], np.uint64), 50_000)
    rows = KeyedRows(np.zeros(len(keys), np.int64), keys, np.ones(len(keys), np.bool_), 0)
    blocks, found = search(block_lists.make_blocks(2, keys.dtype), rows, [(0, 4, 0, 150_000)] * 3, 2, True)
    assert found == [[149_998, 149_997]] * 3
    assert blocks.state[block_lists.VISITED] < 40


def test_a_list_that_few_rows_are_left_in_keeps_few_blocks():
    keys = np.random.default_rng(3).random(20_000)
    rows = KeyedRows(np.zeros(len(keys), np.int64), keys, np.ones(len(keys), np.bool_), 0)
    blocks, _ = search(block_lists.make_blocks(2, keys.dtype), rows, [(0, 0.5, 0, 20_000)], 1, True)
    assert listed.slide(blocks, rows, 19_000, 20_000, 20_000)
    assert blocks.state[block_lists.USED] * ROOM <= 8 * 1_000
    assert not block_lists.is_sparse(blocks, len(blocks.order))


def test_a_call_moves_no_more_rows_than_it_may_and_the_next_goes_on():
    """So a join that is closed, or interrupted, does not wait until a large window has been listed."""
    keys = np.random.default_rng(3).random(5_000)
    rows = KeyedRows(np.zeros(len(keys), np.int64), keys, np.ones(len(keys), np.bool_), 0)
    searches = Searches(
        np.zeros(1, np.int64), np.zeros(1), np.ones(1, np.bool_), np.zeros(1, np.int64), np.full(1, len(keys))
    )
    blocks, costs = block_lists.make_blocks(1_000, keys.dtype), np.empty(1)
    found, counts, ends = np.empty((1, 1), np.int64), np.zeros(1, np.int64), []
    while not listed.search_rows(blocks, rows, searches, True, -np.inf, 999 * ROOM, costs, found, counts):
        ends.append(int(blocks.state[block_lists.END_PLACE]))
    assert ends == [1_000, 2_000, 3_000, 4_000, 5_000]
    assert found.tolist() == [[int(keys.argmin())]]
    for left in (4_000, 3_000):
        assert not listed.slide(blocks, rows, 4_999, 5_000, 1_000)
        assert blocks.state[block_lists.END_PLACE] - blocks.state[block_lists.FIRST_PLACE] == left
