"""One node of low-latency handshake join whose homes follow from a key, over hash tables, as compiled code (Roy,
Teubner & Gemulla 2014, sections 4.1 and 7.6).

Both rows of a pair pass their one home, and whichever comes second finds the other there. So a node forwards every
arrival and works only on its own part, which is contiguous: the driver stages an arrival sorted by home. Messages,
rings, bells and marks, and which thread writes what, are those of `kernels/concurrent/scanning_node.py`; likewise
`advance_hashing_node` can be called again at any time, and a thread runs `run_hashing_node`. Both return when they need
Python: to enlarge a store or a table, or to begin another table. `topologies/handshake/hashing_node.py` calls them.

A *store* holds the node's rows of one side in the order they came, from STORE_BEGIN to STORE_END. Rows are numbered
over the life of the join: NUMBER_OF_FIRST is the number of the row at position 0. A *table* (`kernels/hash/tables.py`)
finds consecutive rows by key. Only the newest table takes rows, and tables of expired rows are not probed.

Two rows meet iff their keys are equal and their intervals [since, place] overlap.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import BELL_STOPPED, load_acquire, wait_for_ring
from streamjoin.kernels.concurrent.scanning_node import (
    ARRIVAL,
    BEGIN_MESSAGE,
    COMPARED,
    FOUND_FROM,
    IDLE,
    KEEP_ROWS,
    MESSAGE_COUNT,
    MESSAGE_EXPIRED,
    MESSAGE_FIRST,
    MESSAGE_KIND,
    MESSAGE_SIDE,
    MESSAGE_WORDS,
    MESSAGES_LEFT,
    NEXT_STEP,
    NO_STEP,
    NODE_WORDS,
    OUTBOX_FULL,
    OWN_NODE,
    PAIR_COUNT,
    PAIRS_HANDED,
    PROBED_FROM,
    ROW_HOME,
    ROW_ID,
    ROW_PLACE,
    ROW_SINCE,
    SPENT,
    STORE_BEGIN,
    STORE_END,
    STORE_VISIBLE,
    can_take,
    end_message,
    first_not_below,
    hand_over,
    move_bytes,
    next_message,
    send,
    send_waiting,
    view_at,
)
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.hash import tables as hashing

# The words of a node, after those of `kernels/concurrent/scanning_node.py`.
OWN_FIRST, OWN_COUNT = NODE_WORDS, NODE_WORDS + 1  # the rows of the current arrival whose home is this node
PROBED_TABLE = NODE_WORDS + 2  # the table that is probed
NUMBER_OF_FIRST = NODE_WORDS + 3  # the number of the row at position 0, for each of the two stores
KEYED_WORDS = NODE_WORDS + 5

PROBE_TABLES = KEEP_ROWS + 1  # a further value of NEXT_STEP
NEEDS_ROOM, NEEDS_LARGER_TABLE = OUTBOX_FULL + 1, OUTBOX_FULL + 2  # further reasons to return

# The words of a table. FIRST_ROW: the number of its first row. CAPACITY: 0 where there is no table.
TABLE_FIRST_ROW, TABLE_CAPACITY, TABLE_LINES, TABLE_MOST_KEYS = range(4)
# Addresses and sizes.
TABLE_CELLS, TABLE_CELL_COUNT, TABLE_POOL, TABLE_POOL_SIZE, TABLE_COUNTERS = range(4, 9)


@jit(nogil=False)
def deal(lows, highs, known, nodes, homes):
    """Fill `homes` with the node of each key, a number below `nodes`, or with -1 for what matches nothing: an empty
    interval, NaN, or a key that is not `known`. The node and the line in a table are chosen by different bits."""
    for i in range(len(lows)):
        mixed = hashing.mixed(hashing.word_of(lows[i])) & np.uint64(0xFFFFFFFF)
        home = np.int64((mixed * np.uint64(nodes)) >> np.uint64(32))
        homes[i] = home if known[i] and lows[i] == highs[i] else -1


@jit(nogil=False)
def stage_by_home(place, since, ids, homes, keys, nodes, first, rows, words):
    """Write an arrival to a stage from row `first` on, sorted by home, stably.

    Keys become words of 64 bits, equal iff the keys are, so that one compiled node serves keys of every type.
    """
    ends = np.zeros(nodes + 2, np.int64)
    for home in homes:
        ends[home + 2] += 1
    for node in range(1, nodes + 2):
        ends[node] += ends[node - 1]
    for i in range(len(homes)):
        at = first + ends[homes[i] + 1]
        ends[homes[i] + 1] += 1
        rows[ROW_PLACE, at], rows[ROW_SINCE, at] = place[i], since[i]
        rows[ROW_ID, at], rows[ROW_HOME, at] = ids[i], homes[i]
        words[at] = hashing.word_of(keys[i])


@inner
def tuples_in(table):
    """The number of rows in a table."""
    return view_at(table[TABLE_COUNTERS], hashing.COUNTER_WORDS, np.int64)[hashing.TUPLE_COUNT]


@inner
def newest(tables, side):
    """The index of the table that takes rows of a side; -1 if there is none."""
    at = 0
    while at < tables.shape[1] and tables[side, at, TABLE_CAPACITY] > 0:
        at += 1
    return at - 1


@inner
def find_own(words, stage):
    """Locate the rows of the current arrival whose home is this node."""
    first, end = words[MESSAGE_FIRST], words[MESSAGE_FIRST] + words[MESSAGE_COUNT]
    words[OWN_FIRST] = first_not_below(stage[ROW_HOME], first, end, words[OWN_NODE])
    words[OWN_COUNT] = (
        first_not_below(stage[ROW_HOME], words[OWN_FIRST], end, words[OWN_NODE] + 1) - words[OWN_FIRST]
    )


@inner
def has_room_for_own(words, rows, tables, no_columns):
    """Whether the store and the newest table of the arrival's side have room for the node's own rows."""
    side, count = words[MESSAGE_SIDE], words[OWN_COUNT]
    before, table = words[STORE_BEGIN + side], newest(tables, side)
    fits = can_take(words, side, count, rows, no_columns)
    words[NUMBER_OF_FIRST + side] += before - words[STORE_BEGIN + side]
    return (
        fits and table >= 0 and tables[side, table, TABLE_CAPACITY] - tuples_in(tables[side, table]) >= count
    )


@inner
def begin_keyed_message(words, stage, rows, tables, no_columns, rings, bells, cursor):
    """Begin to work on the current message; return the next step."""
    words[OWN_COUNT] = 0
    if words[MESSAGE_KIND] == ARRIVAL:
        find_own(words, stage)
        if words[OWN_COUNT] > 0 and not has_room_for_own(words, rows, tables, no_columns):
            return BEGIN_MESSAGE
    send(words, words[MESSAGE_SIDE], words[:MESSAGE_WORDS], rings, bells)
    words[PROBED_TABLE], cursor[0] = -1, DONE
    words[PAIR_COUNT] = words[PAIRS_HANDED] = 0
    return PROBE_TABLES if words[OWN_COUNT] > 0 else KEEP_ROWS


@inner
def next_table(words, tables, reach):
    """Advance to the next table of the other side that holds unexpired rows; return whether there is one."""
    other, count = 1 - words[MESSAGE_SIDE], words[OWN_COUNT]
    oldest = words[NUMBER_OF_FIRST + other] + words[STORE_BEGIN + other]
    for at in range(words[PROBED_TABLE] + 1, tables.shape[1]):
        table = tables[other, at]
        if table[TABLE_CAPACITY] == 0:
            return False
        held = tuples_in(table)
        if table[TABLE_FIRST_ROW] + held > oldest:
            words[PROBED_TABLE] = at
            words[PROBED_FROM] = words[OWN_FIRST]
            words[FOUND_FROM] = table[TABLE_FIRST_ROW] - words[NUMBER_OF_FIRST + other]
            reach[0, :count] = max(0, oldest - table[TABLE_FIRST_ROW])
            reach[1, :count] = held
            return True
    return False


@inner
def probe_tables(words, keys, tables, reach, cursor, probes, positions):
    """Probe a table with the node's own rows until it is done or the buffer is full; return whether there was a table
    left."""
    if cursor[0] == DONE:
        if not next_table(words, tables, reach):
            return False
        cursor[:] = 0
    table, count = tables[1 - words[MESSAGE_SIDE], words[PROBED_TABLE]], words[OWN_COUNT]
    own = keys[words[OWN_FIRST] : words[OWN_FIRST] + count]
    cells = view_at(table[TABLE_CELLS], table[TABLE_CELL_COUNT], np.int64)
    pool = view_at(table[TABLE_POOL], table[TABLE_POOL_SIZE], np.int32)
    words[PAIR_COUNT] = hashing.probe_table(
        own,
        own,
        reach[0, :count],
        reach[1, :count],
        cells,
        table[TABLE_LINES],
        pool,
        cursor,
        probes,
        positions,
        0,
    )
    words[PAIRS_HANDED] = 0
    words[COMPARED] += words[PAIR_COUNT]
    return True


@inner
def keep_own_rows(words, stage, keys, rows, tables, slots):
    """Store the node's own rows of the arrival; return False if the table has to grow first."""
    side, count = words[MESSAGE_SIDE], words[OWN_COUNT]
    if count == 0:
        return True
    table, end = tables[side, newest(tables, side)], words[STORE_END + side]
    # Slots count all rows of a table, so the first one's follows from its number, even if some rows are in already.
    slot = words[NUMBER_OF_FIRST + side] + end - table[TABLE_FIRST_ROW]
    for i in range(count):
        slots[i] = slot + i
    own = keys[words[OWN_FIRST] : words[OWN_FIRST] + count]
    cells = view_at(table[TABLE_CELLS], table[TABLE_CELL_COUNT], np.int64)
    pool = view_at(table[TABLE_POOL], table[TABLE_POOL_SIZE], np.int32)
    counters = view_at(table[TABLE_COUNTERS], hashing.COUNTER_WORDS, np.int64)
    done = counters[hashing.TUPLE_COUNT] - slot
    lines, most = table[TABLE_LINES], table[TABLE_MOST_KEYS]
    if hashing.insert_in_table(own, slots[:count], done, cells, lines, most, pool, counters) < 0:
        return False
    for column in range(ROW_HOME):
        target, source = rows[column].ctypes.data + 8 * end, stage[column].ctypes.data + 8 * words[OWN_FIRST]
        move_bytes(target, source, 8 * count)
    words[STORE_END + side] = words[STORE_VISIBLE + side] = end + count
    return True


@inner
def expire_oldest_rows(words, rows):
    """Drop the oldest rows of the other side that expire with the current message."""
    which = 1 - words[MESSAGE_SIDE]
    at = words[STORE_BEGIN + which]
    while at < words[STORE_END + which] and rows[ROW_PLACE, at] < words[MESSAGE_EXPIRED]:
        at += 1
    words[STORE_BEGIN + which] = at


@jit
def advance_hashing_node(
    words, rings, bells, marks, stages,
    keys, stores, tables, no_columns, reach, slots, cursor, probes, positions, outbox,
):  # fmt: skip
    """Work on up to words[MESSAGES_LEFT] messages. Returns why it stopped, and whether anything was done:

    IDLE                no message waits
    SPENT               it has taken as many messages as it may
    NEEDS_ROOM          make room for the node's own rows, in the store and in a table of the arrival's side
    NEEDS_LARGER_TABLE  enlarge the newest table of the arrival's side
    OUTBOX_FULL         the outbox has no room
    """
    busy = send_waiting(words, rings, bells)
    while True:
        step, side = words[NEXT_STEP], words[MESSAGE_SIDE]
        if step == NO_STEP:
            if words[MESSAGES_LEFT] <= 0:
                return SPENT, busy
            if not next_message(words, rings, bells):
                return IDLE, busy
            words[MESSAGES_LEFT] -= 1
            busy = True
        elif step == BEGIN_MESSAGE:
            words[NEXT_STEP] = begin_keyed_message(
                words, stages[side], stores[side], tables, no_columns, rings, bells, cursor
            )
            if words[NEXT_STEP] == BEGIN_MESSAGE:
                return NEEDS_ROOM, busy
        elif step == PROBE_TABLES:
            if not hand_over(words, stages[side], stores[1 - side], probes, positions, outbox, bells):
                return OUTBOX_FULL, busy
            if not probe_tables(words, keys[side], tables, reach, cursor, probes, positions):
                words[NEXT_STEP] = KEEP_ROWS
        else:
            if not keep_own_rows(words, stages[side], keys[side], stores[side], tables, slots):
                return NEEDS_LARGER_TABLE, busy
            expire_oldest_rows(words, stores[1 - side])
            end_message(words, marks, bells)
            words[NEXT_STEP] = NO_STEP


@jit
def run_hashing_node(bell, patience, arguments):
    """The loop of a thread: call `advance_hashing_node` whenever the node's bell has rung.

    Returns NEEDS_ROOM or NEEDS_LARGER_TABLE, or any other reason once the bell was stopped or nothing has come for
    about `patience` microseconds.
    """
    words = arguments[0]
    while True:
        seen = load_acquire(bell, 0)  # acquire, before looking for messages: later ones ring again
        words[MESSAGES_LEFT] = 1  # one at a time, and then check whether to stop
        why, busy = advance_hashing_node(*arguments)
        if why in (NEEDS_ROOM, NEEDS_LARGER_TABLE) or load_acquire(bell, BELL_STOPPED):
            return why
        if not busy and wait_for_ring(bell, seen, patience) == seen:
            return why
