"""A bounded queue of messages from one thread to one other, without locks (Lamport's ring with cached counters).

A message is a fixed number of int64 words. The ring is one array:

    TAIL      messages put so far; written by the producer, read by the consumer
    TAIL + 1  the producer's copy of HEAD, so that it need not look at the consumer's cache line each time
    HEAD      messages taken so far; written by the consumer, read by the producer
    HEAD + 1  the consumer's copy of TAIL
    DATA...   capacity * words; a slot belongs to the producer until TAIL passes it, then to the consumer until
              HEAD does

Any capacity from 1 on is right. Wait-free; some 10 ns a message. Called from Python they keep the GIL, which is sooner
done than giving it up.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import jit
from streamjoin.kernels.concurrent.atomics import LINE, fence, load, store

TAIL, HEAD, DATA = 0, LINE, 2 * LINE


def new_ring(capacity: int, words: int) -> np.ndarray:
    """An empty ring for `capacity` messages of `words` numbers."""
    if capacity < 1 or words < 1:
        raise ValueError(f"a ring needs a capacity and words from 1 on, not {capacity} and {words}")
    return np.zeros(DATA + capacity * words, np.int64)


@jit(nogil=False)
def put(ring, message):
    """Append a message, all its words; False, and nothing changed, if the ring is full. The producer's."""
    words = np.int64(len(message))
    capacity = (len(ring) - DATA) // words
    tail = ring[TAIL]  # this thread's own: no ordering needed
    if tail - ring[TAIL + 1] >= capacity:
        fence()  # as in `was_full`
        # Acquire: the consumer has copied a message out before it counts it as taken, so its slot may be overwritten.
        ring[TAIL + 1] = load(ring, HEAD)
        if tail - ring[TAIL + 1] >= capacity:
            return False
    slot = DATA + tail % capacity * words
    for i in range(words):
        ring[slot + i] = message[i]
    store(ring, TAIL, tail + 1)  # release: the consumer that sees the count sees the words
    return True


@jit(nogil=False)
def take(ring, message):
    """Move the oldest message into `message`; False if there is none. The consumer's."""
    words = np.int64(len(message))
    capacity = (len(ring) - DATA) // words
    head = ring[HEAD]  # this thread's own
    if head == ring[HEAD + 1]:
        ring[HEAD + 1] = load(ring, TAIL)  # acquire: the words of every counted message are visible
        if head == ring[HEAD + 1]:
            return False
    slot = DATA + head % capacity * words
    for i in range(words):
        message[i] = ring[slot + i]
    store(ring, HEAD, head + 1)  # release: the words are copied before the producer may overwrite them
    return True


@jit(nogil=False)
def was_full(ring, words, head):
    """Whether the ring, of messages of so many words, was full while `head` were taken, or since: then the producer may
    wait for room. The consumer's, after it has taken some more.

    Both fences together: either the producer sees that messages were taken, or this sees what it put before."""
    fence()
    return load(ring, TAIL) - head >= (len(ring) - DATA) // words


@jit(nogil=False)
def has_room(ring, words):
    """Whether a message of so many words can be put. If not, the consumer will see that it `was_full`. The
    producer's."""
    fence()
    return ring[TAIL] - load(ring, HEAD) < (len(ring) - DATA) // words


@jit(nogil=False)
def waiting(ring):
    """Messages put and not yet taken. Exact for the two threads at its ends, each against the other's progress."""
    head = load(ring, HEAD)  # first: TAIL never falls, so the difference is never negative
    return load(ring, TAIL) - head
