"""WiB+-Tree: balance, separators, leaves full of equal keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.index.structures.wibtree import WiBTreeSubwindow
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.kernels.partitioned import llat, wibtree, wibtree_leaves, wibtree_nodes


def leaves_below(tree: WiBTreeSubwindow) -> list[tuple[int, int, int]]:
    """(depth, leaf, upper) of every leaf, by a walk from the root that checks each node on the way."""
    highest = np.iinfo(np.int32).max

    def walk(node: int, depth: int, low: int, high: int) -> list[tuple[int, int, int]]:
        if depth == tree.height:
            return [(depth, node, high)]
        children = tree._children[node]
        count = int((children != llat.NO_ENTRY).sum())
        assert (children[:count] != llat.NO_ENTRY).all()
        assert count >= (2 if depth == 0 else wibtree_nodes.NODE_FANOUT // 2)
        separators = tree._separators[node * wibtree_nodes.NODE_FANOUT :][: wibtree_nodes.NODE_FANOUT]
        used = separators[: count - 1].tolist()
        assert used == sorted(set(used))
        assert (separators[count - 1 :] == highest).all()
        assert all(low < separator < high for separator in used)
        ends = [low, *used, high]
        return [
            leaf
            for i in range(count)
            for leaf in walk(int(children[i]), depth + 1, int(ends[i]), int(ends[i + 1]))
        ]

    return walk(int(tree._header[wibtree_nodes.TREE_ROOT]), 0, np.iinfo(np.int32).min, highest)


def keys_of(tree: WiBTreeSubwindow, leaf: int) -> np.ndarray:
    parts, entry = [], leaf
    while entry != llat.NO_ENTRY:
        head = tree._entries[entry, llat.ENTRY_COUNT]
        parts.append(tree._keys[entry * tree.width :][:head])
        entry = int(tree._entries[entry, llat.ENTRY_NEXT])
    return np.concatenate(parts)


def check(tree: WiBTreeSubwindow, keys: np.ndarray) -> None:
    """All leaves on one level, separators rising without duplicates, each key in the leaf of its range, none lost."""
    found = leaves_below(tree)
    assert {depth for depth, _, _ in found} == {tree.height}
    firsts, uppers = tree._ordered_partitions()
    assert firsts.tolist() == [leaf for _, leaf, _ in found]
    assert uppers.tolist() == [upper for _, _, upper in found]
    lower, contents = None, []
    for _, leaf, upper in found:
        content = keys_of(tree, leaf)
        assert (content <= upper).all() and (lower is None or (content > lower).all())
        if tree._entries[leaf, wibtree_leaves.ENTRY_PURE]:
            assert len(np.unique(content)) == 1
        else:
            assert len(content) <= wibtree_leaves.MOST_ENTRIES * tree.width
        lower = upper
        contents.append(content)
    assert sorted(np.concatenate(contents).tolist()) == sorted(keys.tolist())


def grown(keys: np.ndarray, partitions: int, batch: int = 100) -> WiBTreeSubwindow:
    tree = WiBTreeSubwindow(len(keys), np.dtype("int32"), partitions=partitions)
    slots = np.arange(len(keys), dtype=np.int32)
    for at in range(0, len(keys), batch):
        tree.insert(keys[at : at + batch].astype(np.int32), slots[at : at + batch])
    check(tree, keys)
    return tree


def test_a_full_leaf_is_cut_in_the_middle():
    tree = grown(np.array([5, 1, 4, 2, 3]), partitions=1)
    assert tree.height == 0 and tree.width == 7
    tree = grown(np.array([5, 1, 4, 2, 3, 9]), partitions=2)
    assert tree.width == 4 and tree.height == 1
    firsts, uppers = tree._ordered_partitions()
    assert uppers.tolist() == [2, np.iinfo(np.int32).max]
    assert [keys_of(tree, leaf).tolist() for leaf in firsts] == [[1, 2], [5, 4, 3, 9]]


@pytest.mark.parametrize("order", [1, -1])
def test_keys_that_rise_or_fall_keep_the_tree_balanced(order):
    tree = grown(np.arange(40_000)[::order], partitions=5_000)
    assert tree.height == 3
    tree = grown(np.arange(40_000)[::order], partitions=100)
    assert tree.height == 2


def test_random_keys_give_about_as_many_leaves_as_asked_for():
    tree = grown(np.random.default_rng(5).integers(-(2**31), 2**31, 50_000), partitions=500)
    assert 400 < len(tree._ordered_partitions()[0]) < 1000


def test_equal_keys_become_a_leaf_of_their_own_and_leave_the_others_alone():
    rng = np.random.default_rng(6)
    keys = np.where(rng.random(20_000) < 0.9, 77, rng.integers(0, 1000, 20_000))
    tree = grown(keys, partitions=200)
    firsts, _ = tree._ordered_partitions()
    pure = [leaf for leaf in firsts if tree._entries[leaf, wibtree_leaves.ENTRY_PURE]]
    assert len(pure) == 1 and (keys_of(tree, pure[0]) == 77).all()
    assert len(keys_of(tree, pure[0])) == (keys == 77).sum()
    assert max(len(keys_of(tree, leaf)) for leaf in firsts if leaf != pure[0]) <= tree.width


def test_a_different_key_opens_a_leaf_on_its_side_of_a_pure_one_once():
    keys = np.r_[np.zeros(400), np.arange(100, 0, -1), np.arange(-100, 0)]
    tree = grown(keys, partitions=20, batch=1)
    firsts, uppers = tree._ordered_partitions()
    assert {-1, 0} <= set(uppers.tolist())
    assert all(len(keys_of(tree, leaf)) >= 10 for leaf in firsts)


def test_rising_probes_backtrack_to_the_same_answers():
    def found(lows):
        pairs = PairBuffer()
        lows, zero = lows.astype(np.int32), np.zeros(len(lows), np.int64)
        for _ in tree.probe(lows, lows + np.int32(2), zero, zero + 3000, pairs):
            pass
        return pairs.take()

    keys = np.random.default_rng(7).integers(0, 500, 3000).astype(np.int32)
    tree = grown(keys, partitions=60)
    lows = np.sort(np.random.default_rng(8).integers(-5, 505, 2000))
    assert len(lows) >= wibtree.DENSE_PROBES * tree.entries_used
    shuffled = np.random.default_rng(9).permutation(len(lows))
    (probes, slots), (mixed, mixed_slots) = found(lows), found(lows[shuffled])
    assert sorted(zip(probes, slots, strict=True)) == sorted(zip(shuffled[mixed], mixed_slots, strict=True))
    assert len(probes) == ((keys >= lows[:, None]) & (keys <= lows[:, None] + 2)).sum()


@given(
    blocks=st.lists(
        st.tuples(st.integers(-50, 50), st.integers(1, 30), st.sampled_from([0, 1, -1, 7])),
        min_size=1,
        max_size=50,
    ),
    partitions=st.integers(1, 100),
    batch=st.integers(1, 50),
)
def test_the_tree_stays_a_tree(blocks, partitions, batch):
    keys = np.concatenate([first + step * np.arange(length) for first, length, step in blocks])
    grown(keys, min(partitions, len(keys)), batch)
