"""ScaleGate against a sorted list, and under threads: every reader gets every ready tuple, once, in one order."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent import gate as kernels
from streamjoin.kernels.concurrent.atomics import yield_core
from streamjoin.kernels.concurrent.gate import Gate
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN


def column(*numbers):
    return np.array(numbers, np.int64)


def add(gate, source, *keys):
    """Add tuples (first, second) whose value is their first number; how many fit."""
    firsts, seconds = (column(*numbers) for numbers in zip(*keys, strict=True))
    return gate.add(source, firsts, seconds, firsts, seconds)


def read(gate, reader=0, most=100):
    values, extras = np.zeros(most, np.int64), np.zeros(most, np.int64)
    count = gate.next_ready(reader, values, extras)
    return list(zip(values[:count].tolist(), extras[:count].tolist(), strict=True))


def test_a_tuple_is_ready_when_no_source_can_bring_a_smaller_one():
    gate = Gate(2, 1, 10)
    add(gate, 0, (1, 0), (3, 0), (5, 0))
    gate.promise(0, 5, 0)
    assert read(gate) == []  # the other source has said nothing
    add(gate, 1, (2, 1), (4, 1))
    gate.promise(1, 4, 1)
    assert read(gate) == [(1, 0), (2, 1), (3, 0), (4, 1)]
    gate.promise(1, 4, 2)
    assert read(gate) == []
    gate.close(1)
    assert read(gate) == [(5, 0)]  # what the first source adds at 5 comes after it
    assert read(gate) == []


def test_marks_compare_both_numbers_and_never_fall():
    gate = Gate(1, 1, 10)
    add(gate, 0, (7, 1), (7, 2), (8, 0))
    gate.promise(0, 7, 1)
    assert read(gate) == [(7, 1)]
    gate.promise(0, 6, 9)
    gate.promise(0, 7, 0)
    assert read(gate) == []
    gate.promise(0, 8, INT64_MIN)
    assert read(gate) == [(7, 2)]
    gate.promise(0, 8, 0)
    assert read(gate) == [(8, 0)]


def test_equal_keys_of_a_source_keep_their_order():
    gate = Gate(1, 1, 10)
    gate.add(0, column(4, 4, 4), column(0, 0, 0), column(1, 2, 3), column(0, 0, 0))
    gate.add(0, column(4, 4), column(0, 0), column(4, 5), column(0, 0))
    gate.close(0)
    assert [value for value, _ in read(gate)] == [1, 2, 3, 4, 5]


def test_every_reader_gets_every_tuple():
    gate = Gate(1, 3, 10)
    add(gate, 0, (1, 0), (2, 0))
    gate.close(0)
    for reader in range(3):
        assert read(gate, reader, most=1) == [(1, 0)]
    for reader in range(3):
        assert read(gate, reader) == [(2, 0)]


def test_nodes_come_back_behind_the_slowest_reader():
    gate = Gate(1, 2, 3)
    assert add(gate, 0, *[(i, 0) for i in range(5)]) == 3
    gate.promise(0, 3, 0)
    assert len(read(gate, 0)) == 3
    assert add(gate, 0, (3, 0), (4, 0)) == 0  # the second reader has taken nothing
    assert len(read(gate, 1, most=2)) == 2
    assert add(gate, 0, (3, 0), (4, 0)) == 1  # its head stays
    gate.promise(0, 3, 0)
    assert read(gate, 0) == [(3, 0)] and read(gate, 1) == [(2, 0), (3, 0)]
    assert add(gate, 0, (4, 0), (5, 0), (6, 0)) == 2


def test_a_source_with_a_full_pool_does_not_keep_others_from_adding():
    gate = Gate(2, 1, 2)
    assert add(gate, 0, (1, 0), (2, 0), (3, 0)) == 2
    assert add(gate, 1, (0, 1), (1, 1)) == 2
    gate.promise(0, 3, 0)
    gate.promise(1, 1, 1)
    assert read(gate) == [(0, 1), (1, 0), (1, 1)]


def test_a_grown_gate_keeps_its_tuples_and_takes_more():
    gate = Gate(1, 2, 2)
    assert add(gate, 0, (1, 0), (2, 0), (3, 0)) == 2
    gate.promise(0, 1, 0)
    assert read(gate, 0) == [(1, 0)]
    gate.grow(0, 3)
    assert add(gate, 0, (3, 0), (4, 0)) == 2
    gate.close(0)
    assert read(gate, 0) == [(2, 0), (3, 0), (4, 0)]
    assert read(gate, 1) == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_relabelled_tuples_stay_in_their_places():
    gate = Gate(1, 1, 10)
    add(gate, 0, (1, 0), (1, 1), (2, 0), (2, 5))
    gate.relabel(0, column(0, 1))  # a label comes between 0 and 1
    add(gate, 0, (1, 1), (2, 1))
    gate.promise(0, 1, 1)
    assert [second for _, second in read(gate)] == [0, 1]
    gate.close(0)
    assert [value for value, _ in read(gate)] == [1, 2, 2, 2]


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_gate_needs_something_of_everything(sizes):
    with pytest.raises(ValueError, match="at least 1"):
        Gate(*sizes)


class Model:
    """A sorted list, and what each reader has taken of it."""

    def __init__(self, sources, readers):
        self.marks = [(INT64_MIN, INT64_MIN)] * sources
        self.tuples: list[tuple[int, int, int]] = []  # key and number
        self.taken = [0] * readers
        self.number = 0

    def add(self, keys):
        for first, second in keys:
            self.tuples.append((first, second, self.number))
            self.number += 1
        self.tuples.sort()

    def read(self, reader, most):
        ready = [number for *key, number in self.tuples if tuple(key) <= min(self.marks)]
        out = ready[self.taken[reader] :][:most]
        self.taken[reader] += len(out)
        return out


@st.composite
def scripts(draw):
    """Sources, readers, capacity, and what they do: ("add", source, keys), ("promise", source, key), ("read", ...)."""
    sources, readers = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    key = st.tuples(st.integers(0, 4), st.integers(0, 2))  # two sources have no key in common: see `play`
    source = st.integers(0, sources - 1)
    acts = st.one_of(
        st.tuples(st.just("add"), source, st.lists(key, max_size=4)),
        st.tuples(st.just("promise"), source, key),
        st.tuples(st.just("read"), st.integers(0, readers - 1), st.integers(0, 5)),
    )
    return sources, readers, draw(st.integers(1, 6)), draw(st.lists(acts, max_size=60))


def play(script, gate, model):
    """Both do the same and must give the same."""
    for act, who, what in script:
        if act == "read":
            values, extras = np.zeros(what, np.int64), np.zeros(what, np.int64)
            count = gate.next_ready(who, values, extras)
            assert values[:count].tolist() == model.read(who, what)
        elif act == "promise":
            mark = model.marks[who]
            model.marks[who] = max(mark, (what[0] + max(mark[0], 0), 3 * what[1] + who))
            gate.promise(who, *model.marks[who])
        elif what:
            base = max(model.marks[who], (0, who))
            keys = sorted((base[0] + first, 3 * second + who) for first, second in what)
            keys = [max(k, base) for k in keys]
            firsts, seconds = (column(*numbers) for numbers in zip(*keys, strict=True))
            values = np.arange(model.number, model.number + len(keys))
            count = gate.add(who, firsts, seconds, values, values)
            model.add(keys[:count])


@settings(max_examples=300)
@given(script=scripts())
def test_a_gate_is_a_sorted_list_with_marks(script):
    sources, readers, capacity, acts = script
    play(acts, Gate(sources, readers, capacity), Model(sources, readers))


@given(rounds=st.integers(1, 40), capacity=st.integers(2, 5), readers=st.integers(1, 3))
def test_a_gate_that_is_read_never_runs_out_of_nodes(rounds, capacity, readers):
    gate = Gate(1, readers, capacity)
    for i in range(rounds):
        assert add(gate, 0, (i, 0)) == 1
        gate.promise(0, i + 1, 0)
        assert [read(gate, reader) for reader in range(readers)] == [[(i, 0)]] * readers


# Threads. Compiled loops, so that they run at the same time.


@jit
def produce(gate_nodes, table, source, firsts, seconds, values):
    """Add all, a few at a time, and promise as far as that."""
    done = 0
    while done < len(firsts):
        some = min(done + 1 + (firsts[done] & 7), len(firsts))
        done = kernels.insert_nodes(
            gate_nodes, table, source, firsts[:some], seconds[:some], values, values, done
        )
        if done < len(firsts):
            kernels.promise(table, source, firsts[done], seconds[done])
        if done < some and kernels.reclaim(gate_nodes, table) <= 0:
            yield_core()
    kernels.promise(table, source, INT64_MAX, INT64_MAX)


@jit
def consume(gate_nodes, table, reader, out):
    """Take everything, `out` gets the values."""
    done, extras = 0, np.zeros(64, np.int64)
    while done < len(out):
        size = min(64, len(out) - done)
        count = kernels.next_ready(gate_nodes, 0, table, reader, out[done : done + size], extras[:size])
        if count == 0:
            yield_core()
        done += count


def stress(sources, readers, capacity, count, seed):
    random = np.random.default_rng(seed)
    gate = Gate(sources, readers, capacity)
    firsts = [np.sort(random.integers(0, count, count)) for _ in range(sources)]
    values = [np.arange(source * count, (source + 1) * count) for source in range(sources)]
    outs = [np.zeros(sources * count, np.int64) for _ in range(readers)]
    threads = [
        threading.Thread(
            target=produce,
            args=(gate.current[0], gate.table, s, firsts[s], np.full(count, s), values[s]),
        )
        for s in range(sources)
    ]
    threads += [
        threading.Thread(target=consume, args=(gate.current[0], gate.table, r, outs[r]))
        for r in range(readers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    order = np.lexsort((np.repeat(np.arange(sources), count), np.concatenate(firsts)))
    for out in outs:
        np.testing.assert_array_equal(out, np.concatenate(values)[order])


@pytest.mark.parametrize(
    ("sources", "readers", "capacity"), [(1, 1, 2), (2, 1, 3), (1, 3, 64), (3, 2, 16), (4, 4, 500)]
)
def test_threads_get_everything_in_order_and_nodes_are_used_again(sources, readers, capacity):
    stress(sources, readers, capacity, 2_000, seed=sources + readers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_threads_get_everything_in_order_for_longer(seed):
    random = np.random.default_rng(seed)
    stress(int(random.integers(1, 7)), int(random.integers(1, 5)), int(random.integers(2, 300)), 50_000, seed)
