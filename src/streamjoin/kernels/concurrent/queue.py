"""A bounded queue of messages from one thread to one other, without locks (Lamport's ring with cached counters).

A message is a fixed number of int64 words. The ring is one array:

    RING_TAIL      messages put so far; written by the producer, read by the consumer
    RING_TAIL + 1  the producer's copy of RING_HEAD, which saves it a look at the consumer's cache line
    RING_HEAD      messages taken so far; written by the consumer, read by the producer
    RING_HEAD + 1  the consumer's copy of RING_TAIL
    RING_DATA...   capacity * words; a slot belongs to the producer until RING_TAIL passes it, then to the consumer
                   until RING_HEAD does

Any capacity from 1 on works. Wait-free; a message takes about 10 ns. Called from Python, these functions keep the GIL:
releasing it would take longer than the work. `take_many`, which may move thousands of messages, releases it.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent.atomics import LINE_PAIR, fence, load_acquire, store_release

RING_TAIL, RING_HEAD, RING_DATA = 0, LINE_PAIR, 2 * LINE_PAIR


def new_ring(capacity: int, words: int) -> np.ndarray:
    """An empty ring for `capacity` messages of `words` words each."""
    if capacity < 1 or words < 1:
        raise ValueError(
            f"a ring needs a capacity and a message size of at least 1; given: {capacity} and {words}"
        )
    return np.zeros(RING_DATA + capacity * words, np.int64)


@jit(nogil=False)
def put(ring, message):
    """Append a message; return False, and change nothing, if the ring is full. Only the producer calls it."""
    words = np.int64(len(message))
    capacity = (len(ring) - RING_DATA) // words
    tail = ring[RING_TAIL]  # written by this thread only: no ordering needed
    if tail - ring[RING_TAIL + 1] >= capacity:
        fence()  # as in `was_full`
        # Acquire: the consumer counts a message as taken after copying it out, so its slot may be overwritten.
        ring[RING_TAIL + 1] = load_acquire(ring, RING_HEAD)
        if tail - ring[RING_TAIL + 1] >= capacity:
            return False
    slot = RING_DATA + tail % capacity * words
    for i in range(words):
        ring[slot + i] = message[i]
    store_release(ring, RING_TAIL, tail + 1)  # release: the consumer that sees the count sees the words
    return True


@jit(nogil=False)
def take(ring, message):
    """Move the oldest message into `message`; return False if there is none. Only the consumer calls it."""
    words = np.int64(len(message))
    capacity = (len(ring) - RING_DATA) // words
    head = ring[RING_HEAD]  # written by this thread only
    if head == ring[RING_HEAD + 1]:
        # Acquire: the words of every counted message are visible.
        ring[RING_HEAD + 1] = load_acquire(ring, RING_TAIL)
        if head == ring[RING_HEAD + 1]:
            return False
    slot = RING_DATA + head % capacity * words
    for i in range(words):
        message[i] = ring[slot + i]
    # Release: the words are copied before the producer may overwrite them.
    store_release(ring, RING_HEAD, head + 1)
    return True


@jit(nogil=False)
def was_full(ring, words, head):
    """Whether the ring was full when `head` messages were taken, or has been since: then the producer may be waiting
    for room. The consumer calls it after it has taken more. A message has `words` words.

    The two fences pair up: either the producer sees that messages were taken, or this sees what the producer put
    before.
    """
    fence()
    return load_acquire(ring, RING_TAIL) - head >= (len(ring) - RING_DATA) // words


@jit
def take_many(ring, messages):
    """Move the oldest messages into the columns of `messages`, as many as fit; return whether the producer may be
    waiting for room. Only the consumer calls it."""
    words = messages.shape[0]
    message, count, taken = np.empty(words, np.int64), 0, ring[RING_HEAD]
    while count < messages.shape[1] and take(ring, message):
        for word in range(words):
            messages[word, count] = message[word]
        count += 1
    return was_full(ring, np.int64(words), taken)


@jit(nogil=False)
def has_room(ring, words):
    """Whether there is room for a message of `words` words. If not, the consumer will find that the ring `was_full`.
    Only the producer calls it."""
    fence()
    return ring[RING_TAIL] - load_acquire(ring, RING_HEAD) < (len(ring) - RING_DATA) // words


@jit(nogil=False)
def waiting(ring):
    """The number of messages put and not yet taken. The producer may see too many, the consumer too few, never the
    reverse."""
    head = load_acquire(ring, RING_HEAD)  # first: RING_TAIL never falls, so the difference is never negative
    return load_acquire(ring, RING_TAIL) - head
