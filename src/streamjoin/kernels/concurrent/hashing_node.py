"""One node of low-latency handshake join whose homes follow from a key, over hash tables, as compiled code (Roy,
Teubner & Gemulla 2014, sections 4.1 and 7.6).

Both rows of a pair pass their one home, and whichever comes second finds the other there. So a node forwards every
arrival and works on its own part of it, which lies in one piece: the driver stages an arrival by home. Messages, rings,
bells, marks and who writes what are those of `kernels/concurrent/scanning_node.py`, and so is how `advance` and
`work` are called. Both return when they need Python: to make a store or a table larger, or to begin another table.

A *store* holds the node's rows of one side in the order they came, from BEGIN to END. They are counted on as long as
the join lasts: NUMBER_OF_FIRST is the number of the one at position 0. A *table* (`kernels/hash/tables.py`) finds some
consecutive ones by key; only the newest takes rows, and expired ones are not asked.

Two rows meet iff their keys are equal and the intervals [since, place] of both overlap.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import load, wait_for_ring
from streamjoin.kernels.concurrent.scanning_node import (
    ARRIVAL,
    BEGIN,
    COMPARED,
    COUNT,
    END,
    ENTER,
    EXPIRED,
    FIRST,
    FOUND_FROM,
    FULL,
    HANDED,
    HOME,
    ID,
    IDLE,
    KIND,
    MESSAGE,
    MOST,
    NODE,
    NOTHING,
    PAIRS,
    PLACE,
    PROBED_FROM,
    REST,
    SIDE,
    SINCE,
    SPENT,
    STEP,
    STOP,
    VISIBLE,
    WORDS,
    below,
    can_take,
    end_message,
    hand_over,
    move_bytes,
    next_message,
    send,
    send_waiting,
    view_at,
)
from streamjoin.kernels.hash import tables as hashing

# Words of a node, behind those of `kernels/concurrent/scanning_node.py`.
OWN, OWN_COUNT = WORDS, WORDS + 1  # of the arrival at hand, the rows that are at home here
ASKED = WORDS + 2  # the table that is asked
NUMBER_OF_FIRST = WORDS + 3  # of the row at position 0, of both stores
KEYED_WORDS = WORDS + 5

MEET = (
    REST + 1
)  # what is to be done next with the message at hand, besides those of `kernels/concurrent/scanning_node.py`
ROOM, GROW = FULL + 1, FULL + 2  # why `advance` returned, besides those

# Of a table: the number of its first row, and how many it can take (0: there is no table); its lines and most keys;
# addresses and sizes of its cells and its pool, and the address of its counters.
FIRST_ROW, CAPACITY, LINES, MOST_KEYS, CELLS, CELL_COUNT, POOL, POOL_SIZE, COUNTERS = range(9)


@jit(nogil=False)
def deal(lows, highs, known, nodes, homes):
    """Fill `homes` with the node of each key, below `nodes`; -1 for what matches nothing: an interval without a
    number, NaN, or not `known`. Other bits than those that choose a line in a table choose it."""
    for i in range(len(lows)):
        mixed = hashing.mixed(hashing.word_of(lows[i])) & np.uint64(0xFFFFFFFF)
        home = np.int64((mixed * np.uint64(nodes)) >> np.uint64(32))
        homes[i] = home if known[i] and lows[i] == highs[i] else -1


@jit(nogil=False)
def stage_by_home(place, since, ids, homes, keys, nodes, first, rows, words):
    """Write an arrival to a stage from row `first` on, sorted by home, those of a home in their order. Keys become
    words of 64 bits, equal iff the keys are, so that nodes are the same code whatever their type."""
    ends = np.zeros(nodes + 2, np.int64)
    for home in homes:
        ends[home + 2] += 1
    for node in range(1, nodes + 2):
        ends[node] += ends[node - 1]
    for i in range(len(homes)):
        at = first + ends[homes[i] + 1]
        ends[homes[i] + 1] += 1
        rows[PLACE, at], rows[SINCE, at], rows[ID, at], rows[HOME, at] = place[i], since[i], ids[i], homes[i]
        words[at] = hashing.word_of(keys[i])


@inner
def tuples_in(table):
    """How many rows a table has taken."""
    return view_at(table[COUNTERS], hashing.COUNTERS, np.int64)[hashing.TUPLES]


@inner
def newest(tables, side):
    """The table that takes rows of a side; -1 if there is none."""
    at = 0
    while at < tables.shape[1] and tables[side, at, CAPACITY] > 0:
        at += 1
    return at - 1


@inner
def find_own(words, stage):
    """Where the part of the arrival at hand lies that is at home here."""
    first, end = words[FIRST], words[FIRST] + words[COUNT]
    words[OWN] = below(stage[HOME], first, end, words[NODE])
    words[OWN_COUNT] = below(stage[HOME], words[OWN], end, words[NODE] + 1) - words[OWN]


@inner
def has_room(words, rows, tables, no_columns):
    """Whether the store and the newest table of the arrival's side can take its part."""
    side, count = words[SIDE], words[OWN_COUNT]
    before, table = words[BEGIN + side], newest(tables, side)
    fits = can_take(words, side, count, rows, no_columns)
    words[NUMBER_OF_FIRST + side] += before - words[BEGIN + side]
    return fits and table >= 0 and tables[side, table, CAPACITY] - tuples_in(tables[side, table]) >= count


@inner
def enter(words, stage, rows, tables, no_columns, rings, bells, cursor):
    """Begin with the message at hand; what comes next."""
    words[OWN_COUNT] = 0
    if words[KIND] == ARRIVAL:
        find_own(words, stage)
        if words[OWN_COUNT] > 0 and not has_room(words, rows, tables, no_columns):
            return ENTER
    send(words, words[SIDE], words[:MESSAGE], rings, bells)
    words[ASKED], cursor[0] = -1, hashing.DONE
    words[PAIRS] = words[HANDED] = 0
    return MEET if words[OWN_COUNT] > 0 else REST


@inner
def next_table(words, tables, reach):
    """Go on to the next table of the other side with rows that have not expired; whether there is one."""
    other, count = 1 - words[SIDE], words[OWN_COUNT]
    oldest = words[NUMBER_OF_FIRST + other] + words[BEGIN + other]
    for at in range(words[ASKED] + 1, tables.shape[1]):
        table = tables[other, at]
        if table[CAPACITY] == 0:
            return False
        held = tuples_in(table)
        if table[FIRST_ROW] + held > oldest:
            words[ASKED] = at
            words[PROBED_FROM] = words[OWN]
            words[FOUND_FROM] = table[FIRST_ROW] - words[NUMBER_OF_FIRST + other]
            reach[0, :count] = max(0, oldest - table[FIRST_ROW])
            reach[1, :count] = held
            return True
    return False


@inner
def ask(words, keys, tables, reach, cursor, probes, positions):
    """Find rows with the keys of the arrival's part, until a table is done or the buffer is full; whether there was one
    left to ask."""
    if cursor[0] == hashing.DONE:
        if not next_table(words, tables, reach):
            return False
        cursor[:] = 0
    table, count = tables[1 - words[SIDE], words[ASKED]], words[OWN_COUNT]
    own = keys[words[OWN] : words[OWN] + count]
    cells = view_at(table[CELLS], table[CELL_COUNT], np.int64)
    pool = view_at(table[POOL], table[POOL_SIZE], np.int32)
    words[PAIRS] = hashing.probe(
        own, own, reach[0, :count], reach[1, :count], cells, table[LINES], pool, cursor, probes, positions, 0
    )
    words[HANDED] = 0
    words[COMPARED] += words[PAIRS]
    return True


@inner
def rest(words, stage, keys, rows, tables, slots):
    """Keep the arrival's part; False if its table has to grow first."""
    side, count = words[SIDE], words[OWN_COUNT]
    if count == 0:
        return True
    table, end = tables[side, newest(tables, side)], words[END + side]
    # Every row of a table has a slot, so the first one's is known however many are in by now.
    slot = words[NUMBER_OF_FIRST + side] + end - table[FIRST_ROW]
    for i in range(count):
        slots[i] = slot + i
    own = keys[words[OWN] : words[OWN] + count]
    cells = view_at(table[CELLS], table[CELL_COUNT], np.int64)
    pool = view_at(table[POOL], table[POOL_SIZE], np.int32)
    counters = view_at(table[COUNTERS], hashing.COUNTERS, np.int64)
    done = counters[hashing.TUPLES] - slot
    if hashing.insert(own, slots[:count], done, cells, table[LINES], table[MOST_KEYS], pool, counters) < 0:
        return False
    for column in range(HOME):
        target, source = rows[column].ctypes.data + 8 * end, stage[column].ctypes.data + 8 * words[OWN]
        move_bytes(target, source, 8 * count)
    words[END + side] = words[VISIBLE + side] = end + count
    return True


@inner
def expire(words, rows):
    """Drop the oldest rows of the other side, as far as the message at hand lets them expire."""
    which = 1 - words[SIDE]
    at = words[BEGIN + which]
    while at < words[END + which] and rows[PLACE, at] < words[EXPIRED]:
        at += 1
    words[BEGIN + which] = at


@jit
def advance(
    words, rings, bells, marks, stages,
    keys, stores, tables, no_columns, reach, slots, cursor, probes, positions, outbox,
):  # fmt: skip
    """Work on words[MOST] messages at most. Returns why it stopped, and whether anything was done:

    IDLE    no message waits
    SPENT   it has taken so many messages
    ROOM    make room for the part of the arrival at hand, in the store and in a table of its side
    GROW    make the newest table of the arrival's side larger
    FULL    the outbox has no room
    """
    busy = send_waiting(words, rings, bells)
    while True:
        step, side = words[STEP], words[SIDE]
        if step == NOTHING:
            if words[MOST] <= 0:
                return SPENT, busy
            if not next_message(words, rings, bells):
                return IDLE, busy
            words[MOST] -= 1
            busy = True
        elif step == ENTER:
            words[STEP] = enter(words, stages[side], stores[side], tables, no_columns, rings, bells, cursor)
            if words[STEP] == ENTER:
                return ROOM, busy
        elif step == MEET:
            if not hand_over(words, stages[side], stores[1 - side], probes, positions, outbox, bells):
                return FULL, busy
            if not ask(words, keys[side], tables, reach, cursor, probes, positions):
                words[STEP] = REST
        else:
            if not rest(words, stages[side], keys[side], stores[side], tables, slots):
                return GROW, busy
            expire(words, stores[1 - side])
            end_message(words, marks, bells)
            words[STEP] = NOTHING


@jit
def work(bell, patience, arguments):
    """What a thread runs: `advance` whenever the node's bell has rung. Returns why it stopped: ROOM or GROW; or because
    it was told to stop, or nothing has come for about `patience` microseconds."""
    words = arguments[0]
    while True:
        seen = load(bell, 0)  # acquire, before looking for messages: what comes later rings again
        words[MOST] = 1  # and then look whether it should stop
        why, busy = advance(*arguments)
        if why in (ROOM, GROW) or load(bell, STOP):
            return why
        if not busy and wait_for_ring(bell, seen, patience) == seen:
            return why
