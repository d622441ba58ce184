"""The ring between two threads: a FIFO queue with a bound, also at capacity 1."""

from __future__ import annotations

import threading
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent import queue
from streamjoin.kernels.concurrent.atomics import LINE_PAIR, read, ring, wait_for_ring, yield_core


@jit
def send(ring, count):
    message = np.zeros(3, np.int64)
    for i in range(count):
        message[0], message[1], message[2] = i, 2 * i, -i
        while not queue.put(ring, message):
            yield_core()


@jit
def receive(ring, count):
    """How many messages were not the expected ones."""
    message = np.zeros(3, np.int64)
    wrong = 0
    for i in range(count):
        while not queue.take(ring, message):
            yield_core()
        wrong += message[0] != i or message[1] != 2 * i or message[2] != -i
    return wrong


def test_messages_come_out_in_order_and_a_full_ring_takes_none():
    ring, message = queue.new_ring(2, 2), np.zeros(2, np.int64)
    assert not queue.take(ring, message)
    assert queue.put(ring, np.array([1, 10])) and queue.put(ring, np.array([2, 20]))
    assert not queue.put(ring, np.array([3, 30]))
    assert queue.waiting(ring) == 2
    assert queue.take(ring, message) and message.tolist() == [1, 10]
    assert queue.put(ring, np.array([3, 30]))
    assert queue.take(ring, message) and message.tolist() == [2, 20]
    assert queue.take(ring, message) and message.tolist() == [3, 30]
    assert not queue.take(ring, message) and message.tolist() == [3, 30]


@given(
    capacity=st.integers(1, 5),
    words=st.integers(1, 3),
    acts=st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=60),
)
def test_a_ring_is_a_bounded_fifo_queue(capacity, words, acts):
    ring, message = queue.new_ring(capacity, words), np.zeros(words, np.int64)
    model: deque[list[int]] = deque()
    for act in acts:
        if act is None:
            assert queue.take(ring, message) == bool(model)
            if model:
                assert message.tolist() == model.popleft()
        else:
            sent = [act] * words
            assert queue.put(ring, np.array(sent, np.int64)) == (len(model) < capacity)
            if len(model) < capacity:
                model.append(sent)
        assert queue.waiting(ring) == len(model)


@pytest.mark.parametrize(("capacity", "count"), [(1, 1_000), (2, 1_000), (64, 50_000), (4096, 300_000)])
def test_two_threads_lose_and_tear_nothing(capacity, count):
    ring = queue.new_ring(capacity, 3)
    sender = threading.Thread(target=send, args=(ring, count))
    sender.start()
    wrong = receive(ring, count)
    sender.join()
    assert wrong == 0 and queue.waiting(ring) == 0


@pytest.mark.parametrize(("capacity", "words"), [(0, 1), (1, 0), (-1, 2)])
def test_a_ring_without_room_is_refused(capacity, words):
    with pytest.raises(ValueError, match="at least 1"):
        queue.new_ring(capacity, words)


@jit
def is_in_vain(bell, seen):
    """Sleep; whether nobody rings. Twice, since the other may be stopped just before it does."""
    return wait_for_ring(bell, seen, 2_000_000) == seen and wait_for_ring(bell, seen, 2_000_000) == seen


@jit
def send_or_sleep(messages, bell, consumer, count):
    """How often this slept in vain: no ring came though there was room."""
    message, vain = np.zeros(1, np.int64), 0
    for i in range(count):
        message[0] = i
        while True:
            seen = read(bell, 0)
            if queue.put(messages, message):
                break
            if is_in_vain(bell, seen) and queue.has_room(messages, 1):
                vain += 1
        ring(consumer)
    return vain


@jit
def receive_or_sleep(messages, bell, producer, count):
    """As `send_or_sleep`; the consumer rings for room only if the producer may wait for some."""
    message, vain = np.zeros(1, np.int64), 0
    for _ in range(count):
        while True:
            seen, taken = read(bell, 0), messages[queue.RING_HEAD]
            if queue.take(messages, message):
                break
            if is_in_vain(bell, seen) and queue.waiting(messages):
                vain += 1
        if queue.was_full(messages, 1, taken):
            ring(producer)
    return vain


def test_who_takes_knows_whether_the_other_may_wait_for_room():
    messages, one = queue.new_ring(2, 1), np.zeros(1, np.int64)
    assert queue.put(messages, one) and queue.has_room(messages, 1)
    assert queue.put(messages, one) and not queue.has_room(messages, 1)
    assert queue.take(messages, one) and queue.was_full(messages, 1, 0)
    assert queue.take(messages, one) and not queue.was_full(messages, 1, 1)


@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_nobody_sleeps_while_there_is_room(capacity):
    messages = queue.new_ring(capacity, 1)
    producer, consumer, count = np.zeros(LINE_PAIR, np.int64), np.zeros(LINE_PAIR, np.int64), 5_000
    vain: list[int] = []
    sender = threading.Thread(target=lambda: vain.append(send_or_sleep(messages, producer, consumer, count)))
    sender.start()
    vain.append(receive_or_sleep(messages, consumer, producer, count))
    sender.join()
    assert vain == [0, 0]
