"""One node of low-latency handshake join over scanned windows, as compiled code (Roy, Teubner & Gemulla 2014, figures
12 to 14).

`advance_scanning_node` takes messages and works on them. It can be called again at any time and continues where it
stopped, so that a scheduler may run it one message at a time. A thread runs `run_scanning_node`, which also waits for
messages. Both return when they need Python: to enlarge a store, or to compare rows by a predicate that has no kernel
of bands (or where something is NULL). `topologies/handshake/scanning_node.py` calls them.

All state of a node is in arrays that only this node writes, except for these:

    rings    lock-free queues of messages (`kernels/concurrent/queue.py`), each with one producer and one consumer
    bells    counters that wake a waiting thread; any thread adds to them
    marks    by node and side, the number of the driver's last message that the node has finished; each node writes its
             own. The last words belong to the driver: the number of its last message of either side, and FEW_ON_WAY,
             the number of messages on their way from which the nodes wake the driver
    stages   rows of the arrivals that are on their way; the driver writes them before it sends the message, and
             overwrites them only after the marks have passed it

A *store* holds rows by position. Rows from STORE_BEGIN to STORE_VISIBLE can be found and are sorted by place; rows from
there to STORE_END are on expedition, in the order they came. STORE_VISIBLE is the paper's pointer. Copies of forwarded
right rows have a store of their own, in the order they came.

Two rows may meet iff their intervals [since, place] overlap.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from streamjoin.jit import source
from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import (
    BELL_STOPPED,
    LINE_PAIR,
    fence,
    load_acquire,
    ring,
    store_release,
    wait_for_ring,
)
from streamjoin.kernels.concurrent.queue import (
    RING_DATA,
    RING_HEAD,
    RING_TAIL,
    has_room,
    put,
    take,
    waiting,
    was_full,
)
from streamjoin.kernels.cursor import CURSOR_SIZE, DONE
from streamjoin.kernels.scan.bands import Clauses, band_scan

# Sides of the join, the ways of their messages, and their stores. Forwarded right rows have a store of their own.
LEFT_SIDE, RIGHT_SIDE, FORWARDED_RIGHT = 0, 1, 2

# The words of a message. EXPIRED: rows of the other side at smaller places have expired. FIRST, COUNT: its rows on the
# stage. NULLS: whether something in them is NULL.
MESSAGE_KIND, MESSAGE_NUMBER, MESSAGE_EXPIRED, MESSAGE_FIRST, MESSAGE_COUNT, MESSAGE_NULLS = range(6)
MESSAGE_WORDS = 6
ARRIVAL, PROGRESS, ACKNOWLEDGEMENT, EXPEDITION_END = 1, 2, 3, 4

# The rings of a node, one a way: messages that come in, messages that go out, and messages that wait for room.
INLET, OUTLET, UNSENT = 0, 2, 4

# The columns of a row. The last one is its home node on a stage, and the number of its arrival in a store.
ROW_PLACE, ROW_SINCE, ROW_ID, ROW_HOME = range(4)
ROW_ARRIVAL = ROW_HOME

# The words of a node. The first ones hold the message that it works on.
OWN_NODE, LAST_NODE = 6, 7  # the numbers of this node and of the last one in the chain
MESSAGE_SIDE, NEXT_STEP = 8, 9  # the way on which the message came, and the next step of the work on it
LAST_TAKEN_SIDE = 10  # the way from which the last message was taken; both take turns
MESSAGES_LEFT = 11  # how many more messages this call may take
PROBED_STORE, SCAN_FINISHED = 12, 13  # the store that is scanned, and whether all its pairs are in the buffer
PAIR_COUNT, PAIRS_HANDED = 14, 15  # pairs in the buffer, and how many of them are in the outbox already
IN_REACH, COMPARED = 16, 17  # pairs that the current scan compares, and pairs compared by all scans before it
SEEN_NULLS = 18  # whether any message has brought a NULL
STORE_BEGIN, STORE_VISIBLE, STORE_END = 19, 22, 25  # three words each, one a store
PROBED_FROM, FOUND_FROM = (
    28,
    29,
)  # the first row of the stage and of the store that pairs in the buffer count from
NODE_WORDS = 30

# NEXT_STEP: what to do next with the message.
NO_STEP, BEGIN_MESSAGE, MEET_STORED, MEET_FORWARDED, KEEP_ROWS = range(5)

# Why `advance_scanning_node` returned.
IDLE, SPENT, NEEDS_SCAN, NEEDS_RESIZE, OUTBOX_FULL = range(5)

FEW_ON_WAY = 2  # a word of the driver's in `marks`, after the numbers of its last messages

# Indices into `bells`: 0 and 1 are the upstream neighbours. DRIVER_BELL rings for marks that the driver waits for and
# when the outbox is full, FOUND_BELL for pairs, EXPIRY_BELL for every mark, which may let tuples go.
DRIVER_BELL, FOUND_BELL, EXPIRY_BELL = 2, 3, 4

# A further column of a store: the size of a value in bytes, its address on the stage, and its address in the store.
COLUMN_SIZE, COLUMN_STAGED, COLUMN_STORED = range(3)

# An argument of a scan: the size of a value in bytes, its address, and whether it lies on the stage or in the store.
OPERAND_SIZE, OPERAND_ADDRESS, OPERAND_STAGED = range(3)

# The arguments of a scan: sizes and addresses, then from CALL_OPERANDS on the addresses of keys, lows and highs.
CALL_PROBES, CALL_ROWS, CALL_STARTS, CALL_STOPS, CALL_CURSOR = range(5)
CALL_OUT_PROBES, CALL_OUT_POSITIONS, CALL_ROOM, CALL_OPERANDS = range(5, 9)


@intrinsic
def move_bytes(typing_context, target, source, count):
    """Copy `count` bytes between two addresses; they may overlap."""

    def generate(context, builder, signature, arguments):
        pointers = [builder.inttoptr(a, ir.IntType(8).as_pointer()) for a in arguments[:2]]
        cgutils.raw_memmove(builder, *pointers, arguments[2], 1)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), generate


@intrinsic
def _pointer_to(typing_context, address, like):
    """An address as a pointer to values of a type."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(types.int64, like), generate


@inner
def view_at(address, count, kind):
    """The values at an address, as an array."""
    return carray(_pointer_to(address, kind), count)


@intrinsic
def call_kernel(typing_context, function, argument):
    """Call the compiled function at an address, whose one argument is an address too."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return types.int64(types.int64, types.int64), generate


@inner
def first_not_below(values, lo, hi, bound):
    """The first position in lo..hi whose value is at least `bound`, among sorted values."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] < bound:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def first_above(values, lo, hi, bound):
    """The first position in lo..hi whose value is above `bound`, among sorted values."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] <= bound:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def keep_row(words, which, row, number, stage, rows, columns):
    """Copy a staged row to the end of a store."""
    at = words[STORE_END + which]
    for column in range(ROW_HOME):
        rows[column, at] = stage[column, row]
    rows[ROW_ARRIVAL, at] = number
    for column in columns[which]:
        size = column[COLUMN_SIZE]
        move_bytes(column[COLUMN_STORED] + at * size, column[COLUMN_STAGED] + row * size, size)
    words[STORE_END + which] = at + 1


@inner
def move_rows(target, source, count, rows, columns, which):
    """Move `count` rows within a store."""
    for column in range(rows.shape[0]):
        base = rows[column].ctypes.data
        move_bytes(base + 8 * target, base + 8 * source, 8 * count)
    for column in columns[which]:
        size = column[COLUMN_SIZE]
        move_bytes(column[COLUMN_STORED] + size * target, column[COLUMN_STORED] + size * source, size * count)


@inner
def uncover(words, which, rows, columns):
    """Make the first row behind the pointer visible: move it to its place among the sorted rows."""
    at = words[STORE_VISIBLE + which]
    words[STORE_VISIBLE + which] = at + 1
    place = rows[ROW_PLACE, at]
    if at == words[STORE_BEGIN + which] or rows[ROW_PLACE, at - 1] <= place:
        return
    to = first_above(rows[ROW_PLACE], words[STORE_BEGIN + which], at, place)
    spare = rows.shape[1] - 1
    move_rows(spare, at, 1, rows, columns, which)
    move_rows(to + 1, to, at - to, rows, columns, which)
    move_rows(to, spare, 1, rows, columns, which)


@inner
def can_take(words, which, count, rows, columns):
    """Whether a store has room for `count` more rows. Moves its rows to the front if they are few."""
    begin, end, capacity = words[STORE_BEGIN + which], words[STORE_END + which], rows.shape[1] - 1
    if end + count <= capacity:
        return True
    held = end - begin
    if 2 * (held + count) > capacity:
        return False
    move_rows(0, begin, held, rows, columns, which)
    words[STORE_BEGIN + which], words[STORE_END + which] = 0, held
    words[STORE_VISIBLE + which] -= begin
    return True


@inner
def is_end(words, way):
    """Whether this node is the last one on the way of a side."""
    return words[OWN_NODE] == (words[LAST_NODE] if way == LEFT_SIDE else 0)


@inner
def send(words, way, message, rings, bells):
    """Send a message on the way of a side; the last node on it drops the message.

    A message that does not fit waits in this node, so that no node waits for another. An answer includes the answers
    before it, so it replaces one that waits at the end. Hence at most twice as many messages wait as the driver has on
    their way, which it bounds.
    """
    unsent = rings[UNSENT + way]
    if is_end(words, way):
        return
    if waiting(unsent) == 0:
        if put(rings[OUTLET + way], message):
            ring(bells[1 - way])
            return
    elif message[MESSAGE_KIND] in (ACKNOWLEDGEMENT, EXPEDITION_END):
        slots = (len(unsent) - RING_DATA) // MESSAGE_WORDS
        last = RING_DATA + (unsent[RING_TAIL] - 1) % slots * MESSAGE_WORDS
        if unsent[last + MESSAGE_KIND] == message[MESSAGE_KIND]:
            unsent[last + MESSAGE_NUMBER] = message[MESSAGE_NUMBER]
            return
    if not put(unsent, message):
        raise RuntimeError("more messages than the driver lets in")


@inner
def send_waiting(words, rings, bells):
    """Send waiting messages as far as there is room; return whether any was sent."""
    message, sent = np.empty(MESSAGE_WORDS, np.int64), False
    for way in (LEFT_SIDE, RIGHT_SIDE):
        unsent, outlet = rings[UNSENT + way], rings[OUTLET + way]
        while waiting(unsent) > 0 and has_room(outlet, MESSAGE_WORDS):
            take(unsent, message)
            put(outlet, message)
            ring(bells[1 - way])
            sent = True
    return sent


@inner
def next_message(words, rings, bells):
    """Take a message from either direction, alternately; return whether there was one."""
    for _ in range(2):
        words[LAST_TAKEN_SIDE] = 1 - words[LAST_TAKEN_SIDE]
        inlet = rings[INLET + words[LAST_TAKEN_SIDE]]
        taken = inlet[RING_HEAD]
        if take(inlet, words[:MESSAGE_WORDS]):
            if was_full(inlet, MESSAGE_WORDS, taken):
                ring(bells[words[LAST_TAKEN_SIDE]])  # the sender may be waiting for room
            words[MESSAGE_SIDE] = words[LAST_TAKEN_SIDE]
            words[SEEN_NULLS] |= words[MESSAGE_NULLS]
            words[NEXT_STEP] = BEGIN_MESSAGE
            return True
    return False


@jit(nogil=False)
def set_mark(marks, node, way, number):
    """Record that a node has finished a driver's message of a side; return whether all nodes have."""
    # Release: a thread that reads the mark also sees the pairs that the node put into its outbox before.
    store_release(marks, (2 * node + way) * LINE_PAIR, number)
    fence()  # of two nodes that finish at the same time, at least one sees the other's mark
    return least_mark(marks, way) >= number


@jit(nogil=False)
def least_mark(marks, way):
    """The high-water mark of a side: the number of the last message that all nodes have finished; O(nodes).

    Acquires: the pairs that the nodes found up to it are in their outboxes.
    """
    least = load_acquire(marks, way * LINE_PAIR)
    for at in range((2 + way) * LINE_PAIR, len(marks) - LINE_PAIR, 2 * LINE_PAIR):
        least = min(least, load_acquire(marks, at))
    return least


@jit(nogil=False)
def is_due(marks, way, number):
    """Whether to wake the driver now that all nodes have finished this message: so few of the side's messages are on
    their way. The driver counts a message before it sends it, so the node that finishes the last one always wakes
    it."""
    sent = len(marks) - LINE_PAIR
    return load_acquire(marks, sent + way) - number <= load_acquire(marks, sent + FEW_ON_WAY)


@jit(nogil=False)
def least_marks(marks):
    """The high-water marks of both sides."""
    return least_mark(marks, LEFT_SIDE), least_mark(marks, RIGHT_SIDE)


@inner
def end_message(words, marks, bells):
    """Mark the current message, one of the driver's, as finished. The last node to finish it rings the bells."""
    if set_mark(marks, words[OWN_NODE], words[MESSAGE_SIDE], words[MESSAGE_NUMBER]):
        ring(bells[EXPIRY_BELL])
        if is_due(marks, words[MESSAGE_SIDE], words[MESSAGE_NUMBER]):
            ring(bells[DRIVER_BELL])


@inner
def answer(words, way, kind, number, rings, bells):
    """Send a message that this node makes itself, not one of the driver's."""
    message = np.zeros(MESSAGE_WORDS, np.int64)
    message[MESSAGE_KIND], message[MESSAGE_NUMBER] = kind, number
    send(words, way, message, rings, bells)


@inner
def end_expedition(words, number, rings, bells, rows, columns):
    """The left rows of an arrival, and of all before it, have reached the right end: make them visible to right
    rows."""
    answer(words, RIGHT_SIDE, EXPEDITION_END, number, rings, bells)
    while (
        words[STORE_VISIBLE + LEFT_SIDE] < words[STORE_END + LEFT_SIDE]
        and rows[ROW_ARRIVAL, words[STORE_VISIBLE + LEFT_SIDE]] <= number
    ):
        uncover(words, LEFT_SIDE, rows, columns)


@inner
def acknowledged(words, number, rows):
    """The left neighbour has taken the right rows of an arrival, and of all before it: drop the copies."""
    at = words[STORE_BEGIN + FORWARDED_RIGHT]
    while at < words[STORE_END + FORWARDED_RIGHT] and rows[ROW_ARRIVAL, at] <= number:
        at += 1
    words[STORE_BEGIN + FORWARDED_RIGHT] = at


@inner
def plan_scan(words, which, stage, rows, reach, cursor):
    """Prepare the scan of a store for the current arrival: compute the range that each of its rows reaches.

    Forwarded rows are few and not sorted: each row is compared with all of them, and `hand_over` drops pairs out of
    reach.
    """
    begin, end = words[STORE_BEGIN + which], words[STORE_VISIBLE + which]
    words[IN_REACH] = 0
    for probe in range(words[MESSAGE_COUNT]):
        row, start, stop = words[MESSAGE_FIRST] + probe, begin, end
        if which != FORWARDED_RIGHT:
            start = first_not_below(rows[ROW_PLACE], begin, end, stage[ROW_SINCE, row])
            stop = max(start, first_above(rows[ROW_SINCE], begin, end, stage[ROW_PLACE, row]))
        reach[0, probe], reach[1, probe] = start - begin, stop - begin
        words[IN_REACH] += stop - start
    words[PROBED_STORE], words[SCAN_FINISHED] = which, begin == end
    words[PROBED_FROM], words[FOUND_FROM] = words[MESSAGE_FIRST], begin
    words[PAIR_COUNT] = words[PAIRS_HANDED] = 0
    cursor[:] = 0


@inner
def hand_over(words, stage, rows, probes, positions, outbox, bells):
    """Put the pairs in the buffer that reach each other into the outbox, as ids and places of left and right; return
    whether all fitted."""
    mine, other, pair = words[MESSAGE_SIDE], 1 - words[MESSAGE_SIDE], np.empty(4, np.int64)
    before = words[PAIRS_HANDED]
    while words[PAIRS_HANDED] < words[PAIR_COUNT]:
        row, at = (
            words[PROBED_FROM] + probes[words[PAIRS_HANDED]],
            words[FOUND_FROM] + positions[words[PAIRS_HANDED]],
        )
        if stage[ROW_SINCE, row] <= rows[ROW_PLACE, at] and rows[ROW_SINCE, at] <= stage[ROW_PLACE, row]:
            pair[mine], pair[other] = stage[ROW_ID, row], rows[ROW_ID, at]
            pair[2 + mine], pair[2 + other] = stage[ROW_PLACE, row], rows[ROW_PLACE, at]
            if not put(outbox, pair):
                break
        words[PAIRS_HANDED] += 1
    if words[PAIRS_HANDED] > before:
        ring(bells[FOUND_BELL])
    if words[PAIRS_HANDED] < words[PAIR_COUNT]:
        ring(bells[DRIVER_BELL])
    return words[PAIRS_HANDED] == words[PAIR_COUNT]


@inner
def keep_rows(words, stage, stores, columns, rings, bells):
    """Store the rows of the current arrival whose home is this node, and copies of the right rows that have not reached
    their home yet (figures 13 and 14)."""
    side, number = words[MESSAGE_SIDE], words[MESSAGE_NUMBER]
    for row in range(words[MESSAGE_FIRST], words[MESSAGE_FIRST] + words[MESSAGE_COUNT]):
        if stage[ROW_HOME, row] == words[OWN_NODE]:
            keep_row(words, side, row, number, stage, stores[side], columns)
            if side == RIGHT_SIDE:
                uncover(words, RIGHT_SIDE, stores[RIGHT_SIDE], columns)
        elif side == RIGHT_SIDE and stage[ROW_HOME, row] < words[OWN_NODE]:
            keep_row(words, FORWARDED_RIGHT, row, number, stage, stores[FORWARDED_RIGHT], columns)
            words[STORE_VISIBLE + FORWARDED_RIGHT] += 1
    if side == RIGHT_SIDE:
        answer(words, LEFT_SIDE, ACKNOWLEDGEMENT, number, rings, bells)
    elif is_end(words, LEFT_SIDE):
        end_expedition(words, number, rings, bells, stores[LEFT_SIDE], columns)


@inner
def expire_sorted_rows(words, rows):
    """Drop the rows that expire with the current message."""
    which = 1 - words[MESSAGE_SIDE]
    begin, end = words[STORE_BEGIN + which], words[STORE_VISIBLE + which]
    words[STORE_BEGIN + which] = first_not_below(rows[ROW_PLACE], begin, end, words[MESSAGE_EXPIRED])


@inner
def begin_message(words, stores, columns, rings, bells, marks):
    """Begin to work on the current message; return the next step."""
    kind = words[MESSAGE_KIND]
    if kind == ARRIVAL:
        side = words[MESSAGE_SIDE]
        ready = can_take(words, side, words[MESSAGE_COUNT], stores[side], columns)
        if side == RIGHT_SIDE:
            ready &= can_take(words, FORWARDED_RIGHT, words[MESSAGE_COUNT], stores[FORWARDED_RIGHT], columns)
        if not ready:
            return BEGIN_MESSAGE
        send(words, side, words[:MESSAGE_WORDS], rings, bells)
        return MEET_STORED
    if kind == PROGRESS:
        send(words, words[MESSAGE_SIDE], words[:MESSAGE_WORDS], rings, bells)
        expire_sorted_rows(words, stores[1 - words[MESSAGE_SIDE]])
        end_message(words, marks, bells)
    elif kind == ACKNOWLEDGEMENT:
        acknowledged(words, words[MESSAGE_NUMBER], stores[FORWARDED_RIGHT])
    else:
        end_expedition(words, words[MESSAGE_NUMBER], rings, bells, stores[LEFT_SIDE], columns)
    return NO_STEP


@inner
def scan_store(words, call, operands):
    """Compare the current arrival with the rows in its reach, until all are done or the buffer is full; return whether
    there is a kernel for it."""
    which = words[PROBED_STORE]
    if operands[which, 0, OPERAND_ADDRESS] == 0 or words[SEEN_NULLS]:
        return False
    call[CALL_PROBES], call[CALL_ROWS] = (
        words[MESSAGE_COUNT],
        words[STORE_VISIBLE + which] - words[STORE_BEGIN + which],
    )
    for i in range(1, operands.shape[1]):
        of = operands[which, i]
        call[CALL_OPERANDS + i - 1] = of[OPERAND_ADDRESS] + of[OPERAND_SIZE] * (
            words[MESSAGE_FIRST] if of[OPERAND_STAGED] else words[STORE_BEGIN + which]
        )
    words[PAIR_COUNT], words[PAIRS_HANDED] = (
        call_kernel(operands[which, 0, OPERAND_ADDRESS], call.ctypes.data),
        0,
    )
    words[SCAN_FINISHED] = view_at(call[CALL_CURSOR], 1, np.int64)[0] == DONE
    return True


@jit
def advance_scanning_node(
    words, rings, bells, marks, stages, stores, columns, reach, probes, positions, outbox, call, operands
):
    """Work on up to words[MESSAGES_LEFT] messages. Returns why it stopped, and whether anything was done:

    IDLE          no message waits
    SPENT         it has taken as many messages as it may
    NEEDS_SCAN    compare the rows of the current message with the ranges `reach` of store words[PROBED_STORE]; put
                  pairs (probe, position) into the buffer and their number into words[PAIR_COUNT]; set
                  words[SCAN_FINISHED] once all pairs are found
    NEEDS_RESIZE  enlarge the stores of the message's side
    OUTBOX_FULL   the outbox has no room
    """
    busy, cursor = send_waiting(words, rings, bells), view_at(call[CALL_CURSOR], CURSOR_SIZE, np.int64)
    while True:
        step, stage = words[NEXT_STEP], stages[words[MESSAGE_SIDE]]
        if step == NO_STEP:
            if words[MESSAGES_LEFT] <= 0:
                return SPENT, busy
            if not next_message(words, rings, bells):
                return IDLE, busy
            words[MESSAGES_LEFT] -= 1
            busy = True
        elif step == BEGIN_MESSAGE:
            words[NEXT_STEP] = begin_message(words, stores, columns, rings, bells, marks)
            if words[NEXT_STEP] == BEGIN_MESSAGE:
                return NEEDS_RESIZE, busy
            if words[NEXT_STEP] == MEET_STORED:
                plan_scan(
                    words, 1 - words[MESSAGE_SIDE], stage, stores[1 - words[MESSAGE_SIDE]], reach, cursor
                )
        elif step == KEEP_ROWS:
            keep_rows(words, stage, stores, columns, rings, bells)
            expire_sorted_rows(words, stores[1 - words[MESSAGE_SIDE]])
            end_message(words, marks, bells)
            words[NEXT_STEP] = NO_STEP
        else:
            if not hand_over(words, stage, stores[words[PROBED_STORE]], probes, positions, outbox, bells):
                return OUTBOX_FULL, busy
            if not words[SCAN_FINISHED]:
                if not scan_store(words, call, operands):
                    return NEEDS_SCAN, True
                continue
            words[COMPARED] += words[IN_REACH]
            if step == MEET_STORED and words[MESSAGE_SIDE] == LEFT_SIDE:
                words[NEXT_STEP] = MEET_FORWARDED
                plan_scan(words, FORWARDED_RIGHT, stage, stores[FORWARDED_RIGHT], reach, cursor)
            else:
                words[NEXT_STEP] = KEEP_ROWS


@jit
def run_scanning_node(bell, patience, arguments):
    """The loop of a thread: call `advance_scanning_node` whenever the node's bell has rung.

    Returns NEEDS_SCAN or NEEDS_RESIZE, or any other reason once the bell was stopped or nothing has come for about
    `patience` microseconds.
    """
    words = arguments[0]
    while True:
        seen = load_acquire(bell, 0)  # acquire, before looking for messages: later ones ring again
        words[MESSAGES_LEFT] = 1  # one at a time, and then check whether to stop
        why, busy = advance_scanning_node(*arguments)
        if why in (NEEDS_SCAN, NEEDS_RESIZE) or load_acquire(bell, BELL_STOPPED):
            return why
        if not busy and wait_for_ring(bell, seen, patience) == seen:
            return why


def scan_address(clauses: Clauses) -> int:
    """The address of the kernel for `clauses` that `scan_store` calls. Compiling it takes a second the first time."""
    function = source.load(_scan_source(clauses), "scan_at").scan_at
    function.compile((types.int64,))
    compiled = function.overloads[(types.int64,)]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def _scan_source(clauses: Clauses) -> str:
    bands = [band for clause in clauses for band in clause]
    keys = dict(sorted({band.key: band.dtype for band in bands}.items()))
    kinds = [*keys.values(), *(band.dtype for band in bands), *(band.dtype for band in bands)]
    sizes = ["CALL_ROWS"] * len(keys) + ["CALL_PROBES"] * (len(kinds) - len(keys))
    views = [
        f"view_at(call[CALL_OPERANDS + {i}], call[{size}], np.{np.dtype(kind).name})"
        for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
    ]
    groups = views[: len(keys)], views[len(keys) : len(keys) + len(bands)], views[len(keys) + len(bands) :]
    keys_, lows, highs = (f"({', '.join(group)},)" for group in groups)
    return _SCAN_AT.format(
        module=band_scan(clauses).py_func.__module__,
        here=__name__,
        count=len(kinds),
        keys=keys_,
        lows=lows,
        highs=highs,
    )


_SCAN_AT = """\
import numpy as np

from streamjoin.jit.decorator import jit
from {here} import (
    CALL_CURSOR, CALL_OPERANDS, CALL_OUT_POSITIONS, CALL_OUT_PROBES, CALL_PROBES, CALL_ROOM, CALL_ROWS, CALL_STARTS,
    CALL_STOPS, view_at,
)
from streamjoin.kernels.cursor import CURSOR_SIZE
from {module} import scan


@jit
def scan_at(address):
    call = view_at(address, CALL_OPERANDS + {count}, np.int64)
    probes, room = call[CALL_PROBES], call[CALL_ROOM]
    starts, stops = view_at(call[CALL_STARTS], probes, np.int64), view_at(call[CALL_STOPS], probes, np.int64)
    keys, lows, highs = {keys}, {lows}, {highs}
    cursor = view_at(call[CALL_CURSOR], CURSOR_SIZE, np.int64)
    out = view_at(call[CALL_OUT_PROBES], room, np.int32), view_at(call[CALL_OUT_POSITIONS], room, np.int32)
    return scan(starts, stops, keys, lows, highs, cursor, *out, 0)
"""
