"""Atomic operations: what they return, and that no increment or exchange is lost between threads."""

# mypy: disable-error-code="call-arg,var-annotated,unreachable"
# Intrinsics have another signature inside kernels than mypy sees.

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent import atomics

ROUNDS = 100_000


@jit
def add_each(words, index, count):
    previous = 0
    for _ in range(count):
        previous = atomics.fetch_add(words, index, 2)
    return previous


@jit
def add_by_exchange(words, index, count):
    lost = 0
    for _ in range(count):
        while True:
            value = atomics.load_acquire(words, index)
            if atomics.compare_exchange(words, index, value, value + 1):
                break
            lost += 1
    return lost


@jit
def exchange(words, index, expected, value):
    return atomics.compare_exchange(words, index, expected, value)


@jit
def write_then_publish(words, rounds):
    for i in range(1, rounds + 1):
        words[atomics.LINE_PAIR] = i * 3
        atomics.store_release(words, 0, i)
        while atomics.load_acquire(words, 2 * atomics.LINE_PAIR) != i:
            atomics.pause()


@jit
def check_published(words, rounds):
    wrong = 0
    for i in range(1, rounds + 1):
        while atomics.load_acquire(words, 0) != i:
            atomics.pause()
        wrong += words[atomics.LINE_PAIR] != i * 3
        atomics.store_release(words, 2 * atomics.LINE_PAIR, i)
    return wrong


def together(*calls):
    """Run compiled calls on threads of their own; their results."""
    results = [None] * len(calls)

    def run(number, call):
        results[number] = call()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_fetch_add_returns_what_was_there():
    words = np.zeros(4, np.int64)
    assert add_each(words, 2, 3) == 4
    assert words.tolist() == [0, 0, 6, 0]


def test_an_exchange_happens_only_if_the_expected_value_is_there():
    words = np.array([5, 7])
    assert exchange(words, 1, 7, 9) and words.tolist() == [5, 9]
    assert not exchange(words, 1, 7, 11) and words.tolist() == [5, 9]


def test_no_addition_is_lost_between_threads():
    words = np.zeros(1, np.int64)
    together(*[lambda: add_each(words, 0, ROUNDS)] * 4)
    assert words[0] == 4 * 2 * ROUNDS


def test_no_exchange_is_lost_between_threads():
    words = np.zeros(1, np.int64)
    together(*[lambda: add_by_exchange(words, 0, ROUNDS)] * 4)
    assert words[0] == 4 * ROUNDS


def test_whoever_sees_a_stored_value_sees_what_was_written_before():
    words = np.zeros(3 * atomics.LINE_PAIR, np.int64)
    rounds = 2_000  # on one core every round costs a time slice
    _, wrong = together(lambda: write_then_publish(words, rounds), lambda: check_published(words, rounds))
    assert wrong == 0


@jit(cached=False)
def nap_for_ring(bell, seen, patience):
    """`wait_for_ring`, where the system cannot let a thread sleep until it is woken."""
    return atomics.nap_until_rung(bell, seen, patience)


def new_bell(rung=0):
    bell = np.zeros(atomics.LINE_PAIR, np.int64)
    bell[atomics.BELL_RUNG] = rung
    return bell


waits = pytest.mark.parametrize("wait", [atomics.wait_for_ring, nap_for_ring], ids=["sleeping", "napping"])


@waits
def test_waiting_ends_with_a_ring(wait):
    bell = new_bell()
    threading.Timer(0.01, lambda: atomics.ring(bell)).start()
    assert wait(bell, 0, 60_000_000) == 1
    assert bell[atomics.BELL_SLEEPERS] == 0


@waits
def test_waiting_for_a_bell_that_has_rung_returns_at_once(wait):
    assert wait(new_bell(3), 2, 10**9) == 3


@waits
def test_waiting_does_not_outlast_its_patience(wait):
    started = time.perf_counter()
    assert wait(new_bell(2), 2, 2_000) == 2
    assert time.perf_counter() - started >= 0.002


def test_no_ring_is_lost_on_a_thread_that_falls_asleep():
    """Two threads wake each other in turn. One that misses a ring waits for a minute, and then has seen none."""
    bells, patience = (new_bell(), new_bell()), 60_000_000

    def play(own, other):
        for turn in range(2_000):
            atomics.ring(bells[other])
            assert atomics.wait_for_ring(bells[own], turn, patience) > turn
        return True

    assert together(lambda: play(0, 1), lambda: play(1, 0)) == [True, True]


def test_a_count_beyond_32_bits_is_slept_on():
    assert atomics.wait_for_ring(new_bell(2**32 + 5), 2**32 + 5, 2_000) == 2**32 + 5


@pytest.mark.parametrize("array", [np.zeros(2, np.int32), np.zeros((2, 2), np.int64), np.zeros(2)])
def test_only_int64_vectors_are_taken(array):
    with pytest.raises(Exception, match=r"No implementation|Failed in nopython"):
        atomics.read(array, 0)
