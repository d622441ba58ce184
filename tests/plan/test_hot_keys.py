"""Placing hot keys: which keys get which workers, and how even the work is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.plan.hot_keys import HotKey, KeyShare, digest_of, from_json, grid, placed, to_json
from streamjoin.plan.routing import Routing

HOT = KeyShare(7, 0.99, 0.99, "AAPL")


def loads(hot: tuple[HotKey, ...], keys: list[KeyShare], workers: int) -> list[tuple[float, float]]:
    """For each worker, its parts of all rows and of all pairs, copies counted; the other keys are spread evenly."""
    pairs = sum(key.left * key.right for key in keys)
    shares = [key.share for key in hot]
    rest = (
        1 - sum(key.left + key.right for key in shares) / 2,
        1 - sum(k.left * k.right for k in shares) / pairs,
    )
    found = [[part / workers for part in rest] for _ in range(workers)]
    for key in hot:
        for worker in key.workers:
            found[worker][0] += (key.share.left / key.rows + key.share.right / key.columns) / 2
            found[worker][1] += key.share.left * key.share.right / pairs / len(key.workers)
    return [(rows, part) for rows, part in found]


@pytest.mark.parametrize(
    ("workers", "kept", "shape"),
    [
        (4, (), (2, 2)),
        (2, (), (1, 2)),
        (7, (), (2, 3)),
        (4, ("left",), (4, 1)),
        (4, ("right",), (1, 4)),
    ],
)
def test_a_key_with_almost_all_rows_gets_all_workers(workers, kept, shape):
    (key,) = placed([HOT], workers, kept)
    assert (key.rows, key.columns) == shape and len(set(key.workers)) == shape[0] * shape[1]


def test_a_key_that_is_hot_on_one_side_alone_copies_the_other_side():
    assert grid(KeyShare(1, left=0.9, right=0.001), 8, ()) == (8, 1)


@pytest.mark.parametrize(("workers", "kept"), [(1, ()), (4, ("left", "right"))])
def test_one_worker_and_full_joins_divide_no_key(workers, kept):
    assert placed([HOT], workers, kept) == ()


def test_even_keys_are_not_hot():
    assert placed([KeyShare(n, 0.001, 0.001) for n in range(1000)], 16, ()) == ()


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 7, 8, 16, 40])
@pytest.mark.parametrize("kept", [(), ("left",), ("right",)])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
def test_no_worker_has_much_more_than_the_mean_work(workers, kept, power):
    """Keys with shares as in a Zipf distribution."""
    weights = [n**-power for n in range(1, 2001)]
    keys = [KeyShare(n, weight / sum(weights), weight / sum(weights)) for n, weight in enumerate(weights)]
    hot = placed(keys, workers, kept)
    for part in zip(*loads(hot, keys, workers), strict=True):
        assert max(part) <= 1.5 * sum(part) / workers


SHARES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=12)


@given(SHARES, st.integers(1, 12), st.sampled_from([(), ("left",), ("right",), ("left", "right")]))
def test_every_grid_is_full_and_copies_no_kept_side(shares, workers, kept):
    keys = [KeyShare(n, left, right, str(n)) for n, (left, right) in enumerate(shares)]
    for key in placed(keys, workers, kept):
        assert len(set(key.workers)) == len(key.workers) == key.rows * key.columns
        assert set(key.workers) <= set(range(workers))
        assert key.columns == 1 or "left" not in kept
        assert key.rows == 1 or "right" not in kept


def test_a_table_of_hot_keys_survives_a_checkpoint():
    hot = placed([HOT, KeyShare(-3, 0.2, 0.4, "é")], 6, ())
    again = from_json(to_json(hot))
    assert again == hot and [key.share for key in again] == [key.share for key in hot]
    assert digest_of(again) == digest_of(hot) != digest_of(hot[:1])


def test_a_routing_describes_its_hot_keys():
    hot: Any = placed([HOT], 4, ())
    route = Routing("hash", 4, hot=hot)
    assert route.describe() == f"hash, 1 hot key ({digest_of(hot)})"
    assert (route.replicas("left"), route.replicas("right"), route.divides_keys) == (2, 2, True)
    assert Routing("hash", 4).describe() == "hash" and not Routing("hash", 4).divides_keys
    assert hot[0].describe() == "AAPL: 2 x 2 workers (99.0% of left, 99.0% of right)"
