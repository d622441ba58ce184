"""One node of low-latency handshake join over scanned windows, as compiled code (Roy, Teubner & Gemulla 2014, figures
12 to 14): messages, acknowledgements, expeditions, rows that come to rest, ranges to be scanned.

`advance` takes messages and works on them; it can be called again at any time and goes on where it stopped, so a
scheduler may run it message by message. `work`, which waits in between, is what a thread runs. Both return when they
need Python: to make a store larger, or to compare rows by a predicate that has no kernel of bands (or where something
is NULL). All of a node's state is in arrays which only this node writes, but for these:

    rings    lock-free queues of messages (`kernels/concurrent/queue.py`), one producer and one consumer each
    bells    counters that wake a waiting thread; any thread adds to them
    marks    the number of the last message of the driver's that a node is done with, by node and side; each node writes
             its own. Behind them, the driver's: the number of its last message of either side, and how few of a
             side's must be on their way for it to be told
    stages   rows of the arrivals that are on their way; written by the driver before it sends the message, and not
             again before the marks have passed it

A *store* holds rows by position. From BEGIN to VISIBLE they can be found, sorted by place; from there to END they are
on expedition, in the order they came: VISIBLE is the paper's pointer. The copies of forwarded right rows have a store
of their own, in the order they came.

Two rows may meet iff the intervals [since, place] of both overlap.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import carray
from numba.core import cgutils, types
from numba.extending import intrinsic

from streamjoin.jit import source
from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import LINE, fence, load, ring, store, wait_for_ring
from streamjoin.kernels.concurrent.queue import DATA, HEAD, TAIL, has_room, put, take, waiting, was_full
from streamjoin.kernels.scan.bands import CURSOR_SIZE, Clauses, band_scan
from streamjoin.kernels.scan.bands import DONE as SCAN_DONE

LEFT, RIGHT, FORWARDED = 0, 1, 2  # sides, their ways and their stores; the store of forwarded right rows

# A message: what it is, its number, what it lets expire on the other side, and where its rows are staged.
KIND, NUMBER, EXPIRED, FIRST, COUNT, NULLS = range(6)
MESSAGE = 6
ARRIVAL, PROGRESS, ACKNOWLEDGEMENT, EXPEDITION_END = 1, 2, 3, 4

# Rings of a node: what comes on the way of a side, what goes on, what did not fit.
INLET, OUTLET, UNSENT = 0, 2, 4

# What every row has: on a stage its home, in a store the number of its arrival.
PLACE, SINCE, ID, HOME = range(4)
CAME_WITH = HOME

# Words of a node, behind those of the message at hand.
NODE, LAST = 6, 7  # its number, and that of the last one
SIDE, STEP = 8, 9  # whose way the message came on, and what is to be done next with it
TURN, MOST = 10, 11  # the way that a message was last taken from; how many more may be taken
STORE, SCANNED = 12, 13  # the store that is scanned; whether that is finished
PAIRS, HANDED = 14, 15  # pairs in the buffer, and those of them that are handed over
IN_REACH, COMPARED = 16, 17  # pairs that the scan compares, and that were compared before
SEEN_NULLS = 18  # whether a message has brought something that is NULL
BEGIN, VISIBLE, END = 19, 22, 25  # of the three stores
PROBED_FROM, FOUND_FROM = 28, 29  # rows of the stage and of the store that pairs in the buffer count from
WORDS = 30

# What is to be done next with the message at hand.
NOTHING, ENTER, MEET_STORED, MEET_FORWARDED, REST = range(5)

# Why `advance` returned: it had nothing to do, or took as many messages as it might; or who must act first.
IDLE, SPENT, SCAN, RESIZE, FULL = range(5)

FEW = 2  # the word behind the numbers of the driver's last messages

# Bells of the neighbours, by the way that leads from them; the driver's, who waits for marks, or until pairs are taken
# that have no room; that of who waits for pairs, and of who waits for what marks let go. Of a bell, the word that says
# stop.
DRIVER, FOUND, LET_GO = 2, 3, 4
STOP = 1

# Of a further column of a store: bytes of a value, address on the stage, address in the store.
SIZE, STAGED, STORED = range(3)

# Of an argument of a scan: bytes of a value, where it begins, and whether that is on the stage or in the store.
WIDTH, BASE, IS_STAGED = range(3)

# What a scan is called with: sizes and addresses, then those of keys, lows and highs.
PROBES, ROWS, STARTS, STOPS, CURSOR, OUT_PROBES, OUT_POSITIONS, ROOM, OPERANDS = range(9)


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
    """Call a function of one address by its own."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(word, [word]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return types.int64(types.int64, types.int64), generate


@inner
def below(values, lo, hi, bound):
    """The first position in lo..hi whose value is not below `bound`; values rise."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] < bound:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def up_to(values, lo, hi, bound):
    """The first position in lo..hi whose value is above `bound`; values rise."""
    while lo < hi:
        middle = (lo + hi) // 2
        if values[middle] <= bound:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def append(words, which, row, number, stage, rows, columns):
    """Let a staged row rest at the end of a store."""
    at = words[END + which]
    for column in range(HOME):
        rows[column, at] = stage[column, row]
    rows[CAME_WITH, at] = number
    for column in columns[which]:
        move_bytes(column[STORED] + at * column[SIZE], column[STAGED] + row * column[SIZE], column[SIZE])
    words[END + which] = at + 1


@inner
def shift(target, source, count, rows, columns, which):
    """Move `count` rows within a store."""
    for column in range(rows.shape[0]):
        base = rows[column].ctypes.data
        move_bytes(base + 8 * target, base + 8 * source, 8 * count)
    for column in columns[which]:
        size = column[SIZE]
        move_bytes(column[STORED] + size * target, column[STORED] + size * source, size * count)


@inner
def uncover(words, which, rows, columns):
    """Let the first row behind the pointer be found, at its place among the sorted ones."""
    at = words[VISIBLE + which]
    words[VISIBLE + which] = at + 1
    place = rows[PLACE, at]
    if at == words[BEGIN + which] or rows[PLACE, at - 1] <= place:
        return
    to = up_to(rows[PLACE], words[BEGIN + which], at, place)
    spare = rows.shape[1] - 1
    shift(spare, at, 1, rows, columns, which)
    shift(to + 1, to, at - to, rows, columns, which)
    shift(to, spare, 1, rows, columns, which)


@inner
def can_take(words, which, count, rows, columns):
    """Whether a store has room for more rows, after moving them to its front if they are few."""
    begin, end, capacity = words[BEGIN + which], words[END + which], rows.shape[1] - 1
    if end + count <= capacity:
        return True
    held = end - begin
    if 2 * (held + count) > capacity:
        return False
    shift(0, begin, held, rows, columns, which)
    words[BEGIN + which], words[END + which] = 0, held
    words[VISIBLE + which] -= begin
    return True


@inner
def is_end(words, way):
    """Whether the way of a side ends here."""
    return words[NODE] == (words[LAST] if way == LEFT else 0)


@inner
def send(words, way, message, rings, bells):
    """Send on the way of a side; at its end the message is forgotten. What does not fit waits here, so that no node
    waits for another. An answer includes those before it: one that waits at the end is replaced. So no more can wait
    than twice the driver's messages on the way, which it bounds."""
    unsent = rings[UNSENT + way]
    if is_end(words, way):
        return
    if waiting(unsent) == 0:
        if put(rings[OUTLET + way], message):
            ring(bells[1 - way])
            return
    elif message[KIND] in (ACKNOWLEDGEMENT, EXPEDITION_END):
        slots = (len(unsent) - DATA) // MESSAGE
        last = DATA + (unsent[TAIL] - 1) % slots * MESSAGE
        if unsent[last + KIND] == message[KIND]:
            unsent[last + NUMBER] = message[NUMBER]
            return
    if not put(unsent, message):
        raise RuntimeError("more messages than the driver lets in")


@inner
def send_waiting(words, rings, bells):
    """Send what did not fit, as far as it does now; whether anything was sent."""
    message, sent = np.empty(MESSAGE, np.int64), False
    for way in (LEFT, RIGHT):
        unsent, outlet = rings[UNSENT + way], rings[OUTLET + way]
        while waiting(unsent) > 0 and has_room(outlet, MESSAGE):
            take(unsent, message)
            put(outlet, message)
            ring(bells[1 - way])
            sent = True
    return sent


@inner
def next_message(words, rings, bells):
    """Take a message, from both ways in turns; whether there was one."""
    for _ in range(2):
        words[TURN] = 1 - words[TURN]
        inlet = rings[INLET + words[TURN]]
        taken = inlet[HEAD]
        if take(inlet, words[:MESSAGE]):
            if was_full(inlet, MESSAGE, taken):
                ring(bells[words[TURN]])  # who sends may wait for room
            words[SIDE] = words[TURN]
            words[SEEN_NULLS] |= words[NULLS]
            words[STEP] = ENTER
            return True
    return False


@jit(nogil=False)
def mark(marks, node, way, number):
    """Say that a node is done with a driver's message of a side; whether all nodes are."""
    # Release: whoever reads the mark finds in the node's outbox what it has found.
    store(marks, (2 * node + way) * LINE, number)
    fence()  # of two nodes that are done at once, one sees the other's mark
    return least_mark(marks, way) >= number


@jit(nogil=False)
def least_mark(marks, way):
    """The number of the last message of a side that all nodes are done with: its high-water mark; O(nodes). Acquires:
    what they have found before is in their outboxes."""
    least = load(marks, way * LINE)
    for at in range((2 + way) * LINE, len(marks) - LINE, 2 * LINE):
        least = min(least, load(marks, at))
    return least


@jit(nogil=False)
def is_due(marks, way, number):
    """Whether so few of a side's messages are on their way, now that all nodes are done with this one, that the driver
    is to be told. It has counted a message before it sends it: who is done with the last one tells in any case."""
    sent = len(marks) - LINE
    return load(marks, sent + way) - number <= load(marks, sent + FEW)


@jit(nogil=False)
def least_marks(marks):
    """Those of both sides."""
    return least_mark(marks, LEFT), least_mark(marks, RIGHT)


@inner
def end_message(words, marks, bells):
    """The node is done with the message at hand, one of the driver's. The last node that is tells."""
    if mark(marks, words[NODE], words[SIDE], words[NUMBER]):
        ring(bells[LET_GO])
        if is_due(marks, words[SIDE], words[NUMBER]):
            ring(bells[DRIVER])


@inner
def answer(words, way, kind, number, rings, bells):
    """Send a message of this node's own."""
    message = np.zeros(MESSAGE, np.int64)
    message[KIND], message[NUMBER] = kind, number
    send(words, way, message, rings, bells)


@inner
def end_expedition(words, number, rings, bells, rows, columns):
    """The left rows of an arrival, and of all before it, have reached the right end: right rows may find them here."""
    answer(words, RIGHT, EXPEDITION_END, number, rings, bells)
    while words[VISIBLE + LEFT] < words[END + LEFT] and rows[CAME_WITH, words[VISIBLE + LEFT]] <= number:
        uncover(words, LEFT, rows, columns)


@inner
def acknowledged(words, number, rows):
    """The left neighbour has taken the right rows of an arrival, and so of all before it."""
    at = words[BEGIN + FORWARDED]
    while at < words[END + FORWARDED] and rows[CAME_WITH, at] <= number:
        at += 1
    words[BEGIN + FORWARDED] = at


@inner
def meet(words, which, stage, rows, reach, cursor):
    """Prepare the scan of a store by the arrival at hand: what each of its rows reaches. Forwarded rows are few and not
    sorted: of those, every row meets all, and what is out of reach is left out afterwards."""
    begin, end = words[BEGIN + which], words[VISIBLE + which]
    words[IN_REACH] = 0
    for probe in range(words[COUNT]):
        row, start, stop = words[FIRST] + probe, begin, end
        if which != FORWARDED:
            start = below(rows[PLACE], begin, end, stage[SINCE, row])
            stop = max(start, up_to(rows[SINCE], begin, end, stage[PLACE, row]))
        reach[0, probe], reach[1, probe] = start - begin, stop - begin
        words[IN_REACH] += stop - start
    words[STORE], words[SCANNED] = which, begin == end
    words[PROBED_FROM], words[FOUND_FROM] = words[FIRST], begin
    words[PAIRS] = words[HANDED] = 0
    cursor[:] = 0


@inner
def hand_over(words, stage, rows, probes, positions, outbox, bells):
    """Put found pairs that reach each other into the outbox: ids and places, left and right. Whether all fitted."""
    mine, other, pair = words[SIDE], 1 - words[SIDE], np.empty(4, np.int64)
    before = words[HANDED]
    while words[HANDED] < words[PAIRS]:
        row, at = words[PROBED_FROM] + probes[words[HANDED]], words[FOUND_FROM] + positions[words[HANDED]]
        if stage[SINCE, row] <= rows[PLACE, at] and rows[SINCE, at] <= stage[PLACE, row]:
            pair[mine], pair[other] = stage[ID, row], rows[ID, at]
            pair[2 + mine], pair[2 + other] = stage[PLACE, row], rows[PLACE, at]
            if not put(outbox, pair):
                break
        words[HANDED] += 1
    if words[HANDED] > before:
        ring(bells[FOUND])
    if words[HANDED] < words[PAIRS]:
        ring(bells[DRIVER])
    return words[HANDED] == words[PAIRS]


@inner
def rest(words, stage, stores, columns, rings, bells):
    """Keep the rows of the arrival at hand that are at home here, and copies of right ones that have not been at home
    (figures 13 and 14)."""
    side, number = words[SIDE], words[NUMBER]
    for row in range(words[FIRST], words[FIRST] + words[COUNT]):
        if stage[HOME, row] == words[NODE]:
            append(words, side, row, number, stage, stores[side], columns)
            if side == RIGHT:
                uncover(words, RIGHT, stores[RIGHT], columns)
        elif side == RIGHT and stage[HOME, row] < words[NODE]:
            append(words, FORWARDED, row, number, stage, stores[FORWARDED], columns)
            words[VISIBLE + FORWARDED] += 1
    if side == RIGHT:
        answer(words, LEFT, ACKNOWLEDGEMENT, number, rings, bells)
    elif is_end(words, LEFT):
        end_expedition(words, number, rings, bells, stores[LEFT], columns)


@inner
def expire(words, rows):
    """Drop what the message at hand lets expire."""
    which = 1 - words[SIDE]
    words[BEGIN + which] = below(rows[PLACE], words[BEGIN + which], words[VISIBLE + which], words[EXPIRED])


@inner
def enter(words, stores, columns, rings, bells, marks):
    """Begin with the message at hand; what comes next."""
    kind = words[KIND]
    if kind == ARRIVAL:
        side = words[SIDE]
        ready = can_take(words, side, words[COUNT], stores[side], columns)
        if side == RIGHT:
            ready &= can_take(words, FORWARDED, words[COUNT], stores[FORWARDED], columns)
        if not ready:
            return ENTER
        send(words, side, words[:MESSAGE], rings, bells)
        return MEET_STORED
    if kind == PROGRESS:
        send(words, words[SIDE], words[:MESSAGE], rings, bells)
        expire(words, stores[1 - words[SIDE]])
        end_message(words, marks, bells)
    elif kind == ACKNOWLEDGEMENT:
        acknowledged(words, words[NUMBER], stores[FORWARDED])
    else:
        end_expedition(words, words[NUMBER], rings, bells, stores[LEFT], columns)
    return NOTHING


@inner
def scan(words, call, operands):
    """Compare the arrival at hand with what it reaches in a store, until all is done or the buffer is full; whether
    there is a kernel for it."""
    which = words[STORE]
    if operands[which, 0, BASE] == 0 or words[SEEN_NULLS]:
        return False
    call[PROBES], call[ROWS] = words[COUNT], words[VISIBLE + which] - words[BEGIN + which]
    for i in range(1, operands.shape[1]):
        of = operands[which, i]
        call[OPERANDS + i - 1] = of[BASE] + of[WIDTH] * (
            words[FIRST] if of[IS_STAGED] else words[BEGIN + which]
        )
    words[PAIRS], words[HANDED] = call_kernel(operands[which, 0, BASE], call.ctypes.data), 0
    words[SCANNED] = view_at(call[CURSOR], 1, np.int64)[0] == SCAN_DONE
    return True


@jit
def advance(
    words, rings, bells, marks, stages, stores, columns, reach, probes, positions, outbox, call, operands
):
    """Work on words[MOST] messages at most. Returns why it stopped, and whether anything was done:

    IDLE    no message waits
    SPENT   it has taken so many messages
    SCAN    compare the ranges `reach` of the store words[STORE] with the rows of the message at hand, put pairs (probe,
            position) into the buffer and their number into words[PAIRS], and set words[SCANNED] once all are found
    RESIZE  make the stores of the message's side larger
    FULL    the outbox has no room
    """
    busy, cursor = send_waiting(words, rings, bells), view_at(call[CURSOR], CURSOR_SIZE, np.int64)
    while True:
        step, stage = words[STEP], stages[words[SIDE]]
        if step == NOTHING:
            if words[MOST] <= 0:
                return SPENT, busy
            if not next_message(words, rings, bells):
                return IDLE, busy
            words[MOST] -= 1
            busy = True
        elif step == ENTER:
            words[STEP] = enter(words, stores, columns, rings, bells, marks)
            if words[STEP] == ENTER:
                return RESIZE, busy
            if words[STEP] == MEET_STORED:
                meet(words, 1 - words[SIDE], stage, stores[1 - words[SIDE]], reach, cursor)
        elif step == REST:
            rest(words, stage, stores, columns, rings, bells)
            expire(words, stores[1 - words[SIDE]])
            end_message(words, marks, bells)
            words[STEP] = NOTHING
        else:
            if not hand_over(words, stage, stores[words[STORE]], probes, positions, outbox, bells):
                return FULL, busy
            if not words[SCANNED]:
                if not scan(words, call, operands):
                    return SCAN, True
                continue
            words[COMPARED] += words[IN_REACH]
            if step == MEET_STORED and words[SIDE] == LEFT:
                words[STEP] = MEET_FORWARDED
                meet(words, FORWARDED, stage, stores[FORWARDED], reach, cursor)
            else:
                words[STEP] = REST


@jit
def work(bell, patience, arguments):
    """What a thread runs: `advance` whenever the node's bell has rung. Returns why it stopped: SCAN or RESIZE; or
    because it was told to stop, or nothing has come for about `patience` microseconds."""
    words = arguments[0]
    while True:
        seen = load(bell, 0)  # acquire, before looking for messages: what comes later rings again
        words[MOST] = 1  # and then look whether it should stop
        why, busy = advance(*arguments)
        if why in (SCAN, RESIZE) or load(bell, STOP):
            return why
        if not busy and wait_for_ring(bell, seen, patience) == seen:
            return why


def scan_address(clauses: Clauses) -> int:
    """The address of the kernel for `clauses`, as `scan` calls it. Costs a second the first time."""
    function = source.load(_scan_source(clauses), "scan_at").scan_at
    function.compile((types.int64,))
    compiled = function.overloads[(types.int64,)]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def _scan_source(clauses: Clauses) -> str:
    bands = [band for clause in clauses for band in clause]
    keys = dict(sorted({band.key: band.dtype for band in bands}.items()))
    kinds = [*keys.values(), *(band.dtype for band in bands), *(band.dtype for band in bands)]
    views = [
        f"view_at(call[OPERANDS + {i}], call[{'ROWS' if i < len(keys) else 'PROBES'}], np.{np.dtype(kind).name})"
        for i, kind in enumerate(kinds)
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
    CURSOR, OPERANDS, OUT_POSITIONS, OUT_PROBES, PROBES, ROOM, ROWS, STARTS, STOPS, view_at,
)
from streamjoin.kernels.scan.bands import CURSOR_SIZE
from {module} import scan


@jit
def scan_at(address):
    call = view_at(address, OPERANDS + {count}, np.int64)
    starts, stops = view_at(call[STARTS], call[PROBES], np.int64), view_at(call[STOPS], call[PROBES], np.int64)
    keys, lows, highs = {keys}, {lows}, {highs}
    cursor = view_at(call[CURSOR], CURSOR_SIZE, np.int64)
    found = view_at(call[OUT_PROBES], call[ROOM], np.int32), view_at(call[OUT_POSITIONS], call[ROOM], np.int32)
    return scan(starts, stops, keys, lows, highs, cursor, *found, 0)
"""


@jit
def take_pairs(outbox, pairs):
    """Move the oldest pairs into the columns of `pairs`, as many as it has room for; whether the node may wait for
    room. The driver's."""
    pair, count, taken = np.empty(4, np.int64), 0, outbox[HEAD]
    while count < pairs.shape[1] and take(outbox, pair):
        for column in range(4):
            pairs[column, count] = pair[column]
        count += 1
    return was_full(outbox, 4, taken)
