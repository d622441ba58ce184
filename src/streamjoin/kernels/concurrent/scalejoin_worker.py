"""One worker of ScaleJoin over scanned windows, where tuples join at once, as compiled code (Gulisano et al. 2015,
Algorithm 1).

`advance_scalejoin_worker` takes entries from the gate and works on them. It can be called again at any time and
continues where it stopped. A thread runs `run_scalejoin_worker`, which also waits. Both return when they need Python:
to follow the gate or the shared rows to new arrays, or to enlarge a store. `topologies/scalejoin/compiled_worker.py`
calls them.

An entry is a tuple (its position among the rows of its side, and the side) or news (a floor, and NEWS plus a side): no
later pair contains a tuple of this side with an event time below the floor.

The worker joins entries in *chunks*. One pass over a chunk computes what each tuple reaches in the worker's store of
the other side, as it is when the tuple arrives, and appends the worker's own tuples to the stores. Then the chunk's
left tuples are compared with what they reach, all in one scan, and its right tuples in another. A tuple that is earlier
than its predecessor of its side, or than the end of its store, begins a new chunk. So a worker compares every pair
once, however it cuts the entries.

All state is in arrays that only this worker writes, except for these:

    table, nodes   the gate
    notes          a line each. The driver writes the first ones: the version of the shared rows of each side, and how
                   many finished entries it waits for. Each worker writes its own: how many entries it has finished, and
                   the floors as of then
    bell           the driver's, to which any thread adds
    outbox         pairs of ids, which the driver takes
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import (
    BELL_STOPPED,
    LINE_PAIR,
    fence,
    load_acquire,
    ring,
    sleep_for_ring,
    store_release,
    wait_for_ring,
)
from streamjoin.kernels.concurrent.gate import STALE, next_ready
from streamjoin.kernels.concurrent.queue import RING_HEAD, RING_TAIL, put
from streamjoin.kernels.concurrent.scanning_node import (
    CALL_CURSOR,
    CALL_OPERANDS,
    CALL_PROBES,
    CALL_ROWS,
    OPERAND_ADDRESS,
    OPERAND_SIZE,
    OPERAND_STAGED,
    call_kernel,
    first_above,
    first_not_below,
    move_bytes,
    view_at,
)
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN

NEWS = 2  # the side of an entry that is news, less the number of the side it is about
MOST_PROBES = 512  # of a side in a chunk

# The lines of `notes`: two versions, then WANTED_NOTE, then one for each worker. The words of a worker's line.
WANTED_NOTE, WORKER_NOTES = 2, 3
JOINED, JOINED_FLOORS = 0, 1  # finished entries; two floors

# The words of a worker. Two words each, one a side, where the comment says so.
OWN_TURN, ALL_TURNS = 0, 1  # the worker's number, and the number of workers
FLOORS = 2  # two: as of the finished entries
WINDOW_SIZES = 5  # two
# How many chunks this call may still join, and how many entries it takes from the gate at a time.
CHUNKS_LEFT, ENTRIES_MOST = 7, 8
PIECE_AT, PIECE_COUNT = 9, 10  # the next of the entries that were taken, and their number
CHUNK_COUNT = 11  # entries of the current chunk
NEXT_WORK = 12
ROWS_VERSION = 13  # two: of the shared rows whose arrays the worker has
ROWS_BASE = 15  # two: the position of the first row of those arrays
CHUNK_FROM = 17  # two: the first tuple of the chunk among those rows
CHUNK_PROBES = 19  # two: its tuples
CHUNK_PAIRS = 21  # two: how many comparisons they need
CHUNK_FLOORS = 23  # two: floors that the chunk brings
HELD_FROM, HELD_TO = 25, 27  # two each: the rows of a store
SCANNED_FROM = 29  # two: the first row of a store when the chunk began
PAIRS_FOUND, PAIRS_SENT, SCAN_ENDED = 31, 32, 33
# UNREPORTED: entries were finished since the driver was last told. SPINS_FIRST: the worker has a core of its own.
PAIRS_COMPARED, UNREPORTED, SPINS_FIRST = 34, 35, 36
WORKER_WORDS = 37

TAKE_CHUNK, SCAN_LEFT, SCAN_RIGHT = range(3)

# Why `advance_scalejoin_worker` returned.
NOTHING_READY, CHUNKS_SPENT, OUTBOX_IS_FULL, NEEDS_GATE, NEEDS_ROWS, NEEDS_STORE = range(6)

HELD_PLACE, HELD_ID = 0, 1  # the rows of a store's first array

# A further column of a store: the size of a value in bytes, its address among the shared rows, and in the store.
VALUE_SIZE, VALUE_SHARED, VALUE_HELD = range(3)


@inner
def plus(time, size):
    """The sum, saturating at the ends of 64 bits."""
    if size > 0 and time > INT64_MAX - size:
        return INT64_MAX
    if size < 0 and time < INT64_MIN - size:
        return INT64_MIN
    return time + size


@inner
def shift_rows(target, source, count, rows, columns):
    """Move `count` rows within a store."""
    for line in range(2):
        base = rows[line].ctypes.data
        move_bytes(base + 8 * target, base + 8 * source, 8 * count)
    for column in columns:
        size, base = column[VALUE_SIZE], column[VALUE_HELD]
        move_bytes(base + size * target, base + size * source, size * count)


@inner
def has_space(words, which, count, rows, columns):
    """Whether a store has room for `count` more rows. Moves its rows to the front if they are few."""
    begin, end, capacity = words[HELD_FROM + which], words[HELD_TO + which], rows.shape[1]
    if end + count <= capacity:
        return True
    held = end - begin
    if 2 * (held + count) > capacity:
        return False
    shift_rows(0, begin, held, rows, columns)
    words[HELD_FROM + which], words[HELD_TO + which] = 0, held
    return True


@inner
def hold(words, which, row, times, ids, rows, columns):
    """Insert a shared row into a store, behind the rows that are not later."""
    end, place = words[HELD_TO + which], times[row]
    at = end
    if end > words[HELD_FROM + which] and rows[HELD_PLACE, end - 1] > place:
        at = first_above(rows[HELD_PLACE], words[HELD_FROM + which], end, place)
        shift_rows(at + 1, at, end - at, rows, columns)
    rows[HELD_PLACE, at], rows[HELD_ID, at] = place, ids[row]
    for column in columns:
        size = column[VALUE_SIZE]
        move_bytes(column[VALUE_HELD] + at * size, column[VALUE_SHARED] + row * size, size)
    words[HELD_TO + which] = end + 1


@inner
def positions_between(places, begin, end, start, stop, low, high):
    """The range of positions with places from `low` to `high`, no earlier than the last range, `start` to `stop`."""
    if start < end and places[start] < low:
        start = first_not_below(places, start, end, low)
    if end > begin and places[end - 1] <= high:
        stop = end
    else:
        stop = first_above(places, stop, end, high)
    return start, max(start, stop)


@inner
def begins_chunk(words, side, row, times, known, rows):
    """Whether a tuple cannot follow the tuples of the current chunk."""
    count = words[CHUNK_PROBES + side]
    if count == MOST_PROBES:
        return True
    if count > 0:
        first = words[CHUNK_FROM + side]
        if row != first + count or times[row] < times[row - 1]:
            return True
    end = words[HELD_TO + side]
    late = end > words[HELD_FROM + side] and rows[HELD_PLACE, end - 1] > times[row]
    return late and words[CHUNK_COUNT] > 0


@inner
def begin_chunk(words, piece, blocks, stores, columns, reach):
    """Gather the next chunk, see above; return whether there was room for its tuples."""
    left = words[PIECE_COUNT] - words[PIECE_AT]
    more = min(left, 2 * MOST_PROBES) // words[ALL_TURNS] + 1
    for side in range(2):
        if not has_space(words, side, more, stores[side], columns[side]):
            return False
    words[CHUNK_COUNT] = 0
    start, stop = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for side in range(2):
        words[CHUNK_PROBES + side] = words[CHUNK_PAIRS + side] = 0
        words[CHUNK_FLOORS + side] = words[FLOORS + side]
        words[SCANNED_FROM + side] = start[side] = stop[side] = words[HELD_FROM + side]
    while words[CHUNK_COUNT] < left:
        at = words[PIECE_AT] + words[CHUNK_COUNT]
        value, side = piece[0, at], piece[1, at]
        if side >= NEWS:
            words[CHUNK_FLOORS + side - NEWS] = value
            words[CHUNK_COUNT] += 1
            continue
        times, ids, known, asks = blocks[side]
        row, other = value - words[ROWS_BASE + side], 1 - side
        if begins_chunk(words, side, row, times, known, stores[side]):
            break
        count, time = words[CHUNK_PROBES + side], times[row]
        if count == 0:
            words[CHUNK_FROM + side] = row
        start[other], stop[other] = positions_between(
            stores[other][HELD_PLACE], words[HELD_FROM + other], words[HELD_TO + other], start[other], stop[other],
            plus(time, -words[WINDOW_SIZES + other]), plus(time, words[WINDOW_SIZES + side]),
        )  # fmt: skip
        reach[side, 0, count] = start[other] - words[SCANNED_FROM + other]
        reach[side, 1, count] = stop[other] - words[SCANNED_FROM + other]
        words[CHUNK_PAIRS + side] += stop[other] - start[other]
        words[CHUNK_PROBES + side] = count + 1
        words[CHUNK_COUNT] += 1
        if value % words[ALL_TURNS] == words[OWN_TURN] and known[row]:
            late = words[HELD_TO + side] > words[HELD_FROM + side] and (
                stores[side][HELD_PLACE, words[HELD_TO + side] - 1] > time
            )
            hold(words, side, row, times, ids, stores[side], columns[side])
            if late:  # other tuples of this chunk would have positions before the move
                break
    return True


@inner
def begin_scan(words, side, call):
    """Prepare the scan of the chunk's tuples of a side."""
    words[NEXT_WORK] = SCAN_LEFT + side
    words[PAIRS_FOUND] = words[PAIRS_SENT] = 0
    words[SCAN_ENDED] = words[CHUNK_PAIRS + side] == 0
    view_at(call[side, CALL_CURSOR], CURSOR_SIZE, np.int64)[:] = 0


@inner
def scan_chunk(words, side, call, operands):
    """Compare the chunk's tuples of a side with what they reach, until all are done or the buffer is full."""
    here, other = call[side], 1 - side
    here[CALL_PROBES] = words[CHUNK_PROBES + side]
    here[CALL_ROWS] = words[HELD_TO + other] - words[SCANNED_FROM + other]
    for i in range(1, operands.shape[1]):
        of = operands[side, i]
        row = words[CHUNK_FROM + side] if of[OPERAND_STAGED] else words[SCANNED_FROM + other]
        here[CALL_OPERANDS + i - 1] = of[OPERAND_ADDRESS] + of[OPERAND_SIZE] * row
    words[PAIRS_FOUND] = call_kernel(operands[side, 0, OPERAND_ADDRESS], here.ctypes.data)
    words[PAIRS_SENT] = 0
    words[SCAN_ENDED] = view_at(here[CALL_CURSOR], 1, np.int64)[0] == DONE


@inner
def send_pairs(words, side, blocks, stores, probes, positions, outbox, bell):
    """Put the pairs in the buffer into the outbox, as ids of left and right; return whether all fitted."""
    other, pair, before = 1 - side, np.empty(2, np.int64), outbox[RING_TAIL]
    _, ids, _, asks = blocks[side]
    while words[PAIRS_SENT] < words[PAIRS_FOUND]:
        row = words[CHUNK_FROM + side] + probes[words[PAIRS_SENT]]
        if asks[row]:
            pair[side] = ids[row]
            pair[other] = stores[other][HELD_ID, words[SCANNED_FROM + other] + positions[words[PAIRS_SENT]]]
            if not put(outbox, pair):
                break
        words[PAIRS_SENT] += 1
    if outbox[RING_TAIL] > before:
        fence()  # either the driver, which looks again after taking pairs, sees these, or this sees that it took all
        if load_acquire(outbox, RING_HEAD) >= before:
            ring(bell)
    return words[PAIRS_SENT] == words[PAIRS_FOUND]


@inner
def end_chunk(words, stores, notes, bell):
    """Drop what expires with the chunk, and publish that its entries are finished."""
    for side in range(2):
        floor = words[CHUNK_FLOORS + side]
        if floor != words[FLOORS + side]:
            begin, end = words[HELD_FROM + side], words[HELD_TO + side]
            words[HELD_FROM + side] = (
                end if floor == INT64_MAX else first_not_below(stores[side][HELD_PLACE], begin, end, floor)
            )
            words[FLOORS + side] = floor
    words[PIECE_AT] += words[CHUNK_COUNT]
    mine = (WORKER_NOTES + words[OWN_TURN]) * LINE_PAIR
    joined = notes[mine + JOINED] + words[CHUNK_COUNT]
    for side in range(2):
        notes[mine + JOINED_FLOORS + side] = words[FLOORS + side]
    # Release: the driver that sees the count finds the pairs in the outbox, and the floors.
    store_release(notes, mine + JOINED, joined)
    words[UNREPORTED] = 1
    fence()  # either this sees what the driver waits for, or the driver sees the count; and so for the other workers
    wanted = load_acquire(notes, WANTED_NOTE * LINE_PAIR)
    if joined >= wanted > joined - words[CHUNK_COUNT] and least_joined(notes) >= wanted:
        ring(bell)


@jit(nogil=False)
def least_joined(notes):
    """How many entries all workers have finished."""
    least = load_acquire(notes, WORKER_NOTES * LINE_PAIR + JOINED)  # acquire: their pairs are in the outboxes
    for at in range((WORKER_NOTES + 1) * LINE_PAIR, len(notes), LINE_PAIR):
        least = min(least, load_acquire(notes, at + JOINED))
    return least


@jit(nogil=False)
def least_floors(notes, floors):
    """The floors that all workers have reached."""
    floors[:] = INT64_MAX
    for at in range(WORKER_NOTES * LINE_PAIR, len(notes), LINE_PAIR):
        for side in range(2):
            floors[side] = min(floors[side], notes[at + JOINED_FLOORS + side])


@jit(nogil=False)
def note_wanted(notes, wanted):
    """Publish how many finished entries the driver waits for; return whether all workers have finished them. If not,
    the last worker to do so rings."""
    store_release(notes, WANTED_NOTE * LINE_PAIR, wanted)
    fence()  # either this sees what a worker has finished, or the worker sees what is wanted
    return least_joined(notes) >= wanted


@inner
def report(words, notes, bell):
    """Ring the driver's bell if this is the last worker to finish all that is ready."""
    if words[UNREPORTED]:
        words[UNREPORTED] = 0
        if least_joined(notes) >= notes[(WORKER_NOTES + words[OWN_TURN]) * LINE_PAIR + JOINED]:
            ring(bell)


@inner
def take_entries(words, nodes, version, table, piece, notes, bell):
    """Take all ready entries that fit, if none are left; return why there are none, or CHUNKS_SPENT."""
    if words[PIECE_AT] < words[PIECE_COUNT]:
        return CHUNKS_SPENT
    size = min(piece.shape[1], words[ENTRIES_MOST])
    count = next_ready(nodes, version, table, words[OWN_TURN], piece[0, :size], piece[1, :size])
    if count == STALE:
        return NEEDS_GATE
    if count == 0:
        report(words, notes, bell)
        return NOTHING_READY
    words[PIECE_AT], words[PIECE_COUNT] = 0, count
    return CHUNKS_SPENT


@jit
def advance_scalejoin_worker(
    words, nodes, version, table, piece, notes, bell, blocks, stores, columns, reach, probes, positions, outbox,
    call, operands,
):  # fmt: skip
    """Join up to words[CHUNKS_LEFT] chunks. Returns why it stopped, and whether anything was done:

    NOTHING_READY   no entry is ready
    CHUNKS_SPENT    it has joined as many chunks as it may
    OUTBOX_IS_FULL  the outbox has no room
    NEEDS_GATE      the gate has new arrays
    NEEDS_ROWS      the rows of a side have new arrays
    NEEDS_STORE     enlarge the stores
    """
    busy = False
    while True:
        if words[NEXT_WORK] == TAKE_CHUNK:
            if words[CHUNKS_LEFT] <= 0:
                return CHUNKS_SPENT, busy
            why = take_entries(words, nodes, version, table, piece, notes, bell)
            if why != CHUNKS_SPENT:
                return why, busy
            for side in range(2):
                # Acquire, after the entries: while the version is the old one, their rows are in these arrays.
                if load_acquire(notes, side * LINE_PAIR) != words[ROWS_VERSION + side]:
                    return NEEDS_ROWS, True
            if not begin_chunk(words, piece, blocks, stores, columns, reach):
                return NEEDS_STORE, True
            busy = True
            words[CHUNKS_LEFT] -= 1
            begin_scan(words, 0, call)
            continue
        side = words[NEXT_WORK] - SCAN_LEFT
        if not send_pairs(words, side, blocks, stores, probes, positions, outbox, bell):
            ring(bell)
            return OUTBOX_IS_FULL, busy
        if not words[SCAN_ENDED]:
            scan_chunk(words, side, call, operands)
            busy = True
            continue
        words[PAIRS_COMPARED] += words[CHUNK_PAIRS + side]
        if side == 0:
            begin_scan(words, 1, call)
        else:
            end_chunk(words, stores, notes, bell)
            words[NEXT_WORK] = TAKE_CHUNK


@jit
def run_scalejoin_worker(own_bell, patience, arguments):
    """The loop of a thread: call `advance_scalejoin_worker` whenever the worker's bell has rung. Returns what needs
    Python, or any other reason once the bell was stopped or nothing has come for about `patience` microseconds."""
    words = arguments[0]
    while True:
        seen = load_acquire(own_bell, 0)  # acquire, before looking for entries: later ones ring again
        words[CHUNKS_LEFT] = 1  # one at a time, and then check whether to stop
        why, busy = advance_scalejoin_worker(*arguments)
        if why >= NEEDS_GATE or load_acquire(own_bell, BELL_STOPPED):
            return why
        if not busy:
            if words[SPINS_FIRST]:
                rung = wait_for_ring(own_bell, seen, patience)
            else:
                rung = sleep_for_ring(own_bell, seen, patience)
            if rung == seen:
                return why
