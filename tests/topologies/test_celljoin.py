"""CellJoin: the oracle's result however the scan is cut, on the simulator and on threads; errors that come out."""

from __future__ import annotations

import random
import threading
from functools import partial

import numpy as np
import pytest

import handshake_runs
import streamjoin as sj
from handshake_runs import ORDERS, WINDOWS, check, check_large_join, pushes, small_tables, spec_of, table
from strategies import push_all
from streamjoin.engine.join import Join
from streamjoin.plan.tuning import Tuning, WindowTuning
from streamjoin.topologies.celljoin import Cores, Scanner
from streamjoin.topologies.runtime.simulator import Simulator, from_seed

# Every part is worth a worker.
SHARED = Tuning(window=WindowTuning(shared_comparisons=1, shared_lookups=1))

open_with = partial(handshake_runs.open_with, "celljoin", tuning=SHARED)


def check_interleaving(seed: int) -> Join:
    """One small join, everything about it drawn from the seed."""
    draw = random.Random(seed)
    left, right = small_tables(seed)
    spec = spec_of(WINDOWS[draw.choice(list(WINDOWS))])
    order, index = draw.choice(ORDERS), draw.choice(["scan", "scan", "scan", "bisort"])
    simulator = Simulator(from_seed(seed))
    options = {"index": index, "workers": draw.randint(1, 5), "order": order, "batch": draw.randint(1, 6)}
    join: Join = open_with(spec, max_results=draw.choice([3, 1000]), executor=simulator, **options)
    check(join, spec, left, right, order, seed, simulator)
    return join


def test_the_window_is_cut_into_equal_parts():
    simulator = Simulator(from_seed(2))
    with open_with(spec_of(sj.TimeWindow(100)), workers=4, executor=simulator) as join:
        source = np.random.default_rng(1)
        join.push("left", table(source, 40, 50, 3))
        join.push("right", table(source, 5, 50, 3))
        assert join.stats().worker_comparisons == (50, 50, 50, 50)
        join.finish()


@pytest.mark.parametrize("window", list(WINDOWS))
@pytest.mark.parametrize("index", ["scan", "hash", "bisort", "auto"])
def test_every_window_and_index_equals_the_oracle(window, index):
    source = np.random.default_rng(5)
    left, right = table(source, 40, 25, 4), table(source, 40, 25, 4)
    spec = spec_of(WINDOWS[window])
    for number, order in enumerate(ORDERS):
        simulator = Simulator(from_seed(number))
        join = open_with(spec, None, index, 1 + 2 * number, order, batch=7, executor=simulator)
        check(join, spec, left, right, order, number, simulator)


def test_hundreds_of_interleavings():
    shared = 0
    for seed in range(200):
        shared += len(set(check_interleaving(seed).stats().worker_comparisons)) > 1
    assert shared > 20  # workers did have parts of their own


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_interleavings(part):
    for seed in range(1000 * part + 1000, 1000 * part + 2000):
        check_interleaving(seed)


@pytest.mark.parametrize("workers", [1, 2, 5, 64])
def test_threads_give_the_oracles_result(workers):
    for seed in range(6):
        left, right = small_tables(seed + 100)
        window, order = random.Random(seed).choice(list(WINDOWS.values())), ORDERS[seed % 3]
        spec = spec_of(window)
        check(open_with(spec, workers=workers, order=order, max_results=5), spec, left, right, order, seed)


@pytest.mark.parametrize("order", ORDERS)
def test_large_joins_equal_those_of_one_thread(order):
    check_large_join("celljoin", "scan", order, sj.TimeWindow(300))


class Breaking(RuntimeError):
    pass


def test_an_error_in_a_worker_comes_out_and_stops_the_rest(monkeypatch):
    def broken(self: Scanner, most: int) -> bool:
        if self.name.endswith("1") and len(self.inlet):
            raise Breaking("a worker broke")
        return False

    monkeypatch.setattr(Scanner, "step", broken)
    before = threading.active_count()
    spec, (left, right) = spec_of(sj.TimeWindow(50)), small_tables(7)
    with open_with(spec, workers=2) as join:
        with pytest.raises(Breaking) as caught:
            push_all(join, pushes(left, right, 7), lambda: False)
        assert "celljoin 1" in "".join(caught.value.__notes__)
        with pytest.raises(sj.StreamJoinError, match="stopped after an error"):
            join.push("left", left)
    assert threading.active_count() <= before


def test_without_waiting_for_all_parts_results_are_lost(monkeypatch):
    monkeypatch.setattr(Cores, "_result", lambda self, node: bool(node.outlet.first() or True))
    with pytest.raises((AssertionError, IndexError)):  # pairs lost, or of a window that has changed since
        test_hundreds_of_interleavings()
