"""One node of handshake join over scanned windows, as compiled code (Teubner & Mueller 2011, sections 4.2 to 4.4).

The rows of a side lie in one *track*, in the order in which the driver sent them. Every node holds a stretch of each
track, so rows move on by moving a border: no row is copied. Rows are numbered over the life of the join.

    track     | gone | copies | resting rows | not here yet
                   BEGIN    SENT           END          (positions in the track's current memory)

Rows from BEGIN to END can be met here. Those before SENT are on their way to the next node or there already: left rows
are forgotten when they are sent, right rows remain as *copies* until the next node acknowledges them (two-phase
forwarding). Rows move in blocks of up to BLOCK_ROWS, whatever the messages were in which they came, and a block is
acknowledged as a whole. So a hop costs one message, one acknowledgement and at most two wake-ups per block.

`advance_flowing_node` takes messages and works on them. It can be called again at any time and continues where it
stopped. A thread runs `run_flowing_node`, which also waits for messages. Both return when they need Python: to find
rows in a track's new memory, or to compare rows by a predicate that has no kernel of bands (or where something is
NULL). `topologies/handshake/flowing_node.py` calls them.

Messages, rings, bells and pairs are those of `kernels/concurrent/scanning_node.py`. All other state of a node is in
arrays that only this node writes, among them its words in these:

    marks    by node and side, the number of the row at BEGIN: the node has finished all rows before it
    flow     by node and side, the numbers of the rows at END and SENT (FLOW_TAKEN, FLOW_SENT). Neighbours read them to
             compare loads: a node sends a block on while it holds a block more than the next node
    tracks   the driver writes rows before it sends the message that names them, and never changes them
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
    store_release,
    wait_for_ring,
)
from streamjoin.kernels.concurrent.queue import RING_DATA, RING_HEAD, has_room, put, take, waiting, was_full
from streamjoin.kernels.concurrent.scanning_node import (
    ACKNOWLEDGEMENT,
    ARRIVAL,
    BEGIN_MESSAGE,
    CALL_CURSOR,
    COMPARED,
    DRIVER_BELL,
    EXPIRY_BELL,
    IDLE,
    IN_REACH,
    INLET,
    LAST_NODE,
    LAST_TAKEN_SIDE,
    LEFT_SIDE,
    MEET_STORED,
    MESSAGE_COUNT,
    MESSAGE_EXPIRED,
    MESSAGE_FIRST,
    MESSAGE_KIND,
    MESSAGE_NULLS,
    MESSAGE_NUMBER,
    MESSAGE_SIDE,
    MESSAGE_WORDS,
    MESSAGES_LEFT,
    NEEDS_RESIZE,
    NEEDS_SCAN,
    NEXT_STEP,
    NO_STEP,
    NODE_WORDS,
    OUTBOX_FULL,
    OUTLET,
    OWN_NODE,
    PROBED_STORE,
    PROGRESS,
    RIGHT_SIDE,
    ROW_PLACE,
    SCAN_FINISHED,
    SEEN_NULLS,
    SPENT,
    STORE_BEGIN,
    STORE_END,
    STORE_VISIBLE,
    first_not_below,
    hand_over,
    is_end,
    least_mark,
    plan_scan,
    scan_store,
    view_at,
)
from streamjoin.kernels.cursor import CURSOR_SIZE

# The words of a node, after those of `kernels/concurrent/scanning_node.py`; two words each, one a side.
SLICE_SENT = NODE_WORDS  # the position of the first row that has not been sent on
# The numbers of the first row in the track's memory that the node uses, and after its last one.
TRACK_BASE, TRACK_LIMIT = NODE_WORDS + 2, NODE_WORDS + 4
# Rows at smaller places have expired; what of that this node has reported upstream.
EXPIRED, ANNOUNCED = NODE_WORDS + 6, NODE_WORDS + 8
ACKNOWLEDGED, TO_ACKNOWLEDGE = NODE_WORDS + 10, NODE_WORDS + 11  # right rows before these numbers
BLOCK_ROWS = NODE_WORDS + 12  # the most rows of a block
FLOWING_WORDS = NODE_WORDS + 13

FLOW_TAKEN, FLOW_SENT = 0, 1  # a node's words of a side in `flow`
# A block is at most 1 / 2 ** SHARE_SHIFT of the rows that a node holds, so that small windows are balanced, too.
SHARE_SHIFT = 3


@inner
def block_size(load, most):
    """The rows of a block of a node that holds `load` rows."""
    return min(most, max(1, load >> SHARE_SHIFT))


@inner
def flow_of(node, side):
    """The index of a node's words of a side in `flow` and in `marks`."""
    return (2 * node + side) * LINE_PAIR


@inner
def next_node(words, side):
    """The number of the next node on the way of a side."""
    return words[OWN_NODE] + (1 if side == LEFT_SIDE else -1)


@jit(nogil=False)
def raise_mark(marks, node, side, number, following):
    """Record that a node has finished a side's rows before `number`; return whether all nodes have now finished more
    rows than before. O(1), and O(nodes) where the next node has finished more than this one had.

    If this node alone was behind, the next node had finished more, and this one reads that. Otherwise some other node
    is as far behind as this one was, and will find out itself.
    """
    at = flow_of(node, side)
    before = marks[at]  # written by this thread only
    # Release: a thread that reads the mark also sees the pairs that the node put into its outbox before.
    store_release(marks, at, number)
    fence()  # of two nodes that advance at the same time, at least one sees the other's mark
    if following >= 0 and load_acquire(marks, flow_of(following, side)) <= before:
        return False
    return least_mark(marks, side) > before


@inner
def leave(words, side, begin, bells, marks):
    """Forget the rows of a side before position `begin`."""
    if begin <= words[STORE_BEGIN + side]:
        return
    words[STORE_BEGIN + side] = begin
    following = -1 if is_end(words, side) else next_node(words, side)
    if raise_mark(marks, words[OWN_NODE], side, words[TRACK_BASE + side] + begin, following):
        ring(bells[EXPIRY_BELL])
        ring(bells[DRIVER_BELL])


@inner
def due_rows(words, side, rows, flow):
    """How many rows to send on now, at most BLOCK_ROWS: those that have expired, or a block if the next node holds a
    block less than this one. What is on its way to the next node counts as held there."""
    sent, end, most = words[SLICE_SENT + side], words[STORE_END + side], words[BLOCK_ROWS]
    expired = first_not_below(rows[ROW_PLACE], sent, min(end, sent + most), words[EXPIRED + side]) - sent
    size = block_size(end - sent, most)
    # Acquires nothing: an outdated number only costs balance. If the next node sends rows on after this, it reads what
    # this node published before the fence, and rings (`may_send_more`).
    fence()
    ahead = (
        words[TRACK_BASE + side]
        + sent
        - load_acquire(flow, flow_of(next_node(words, side), side) + FLOW_SENT)
    )
    return max(expired, size if end - sent >= ahead + size else 0)


@inner
def may_send_more(words, side, flow):
    """Whether the previous node on the way of a side holds a block more than this one. It may have looked before this
    node sent rows on, so this node looks after that."""
    if is_end(words, 1 - side):
        return False  # the driver sends what it has
    fence()  # as in `due_rows`
    previous = flow_of(next_node(words, 1 - side), side)
    sent = load_acquire(flow, previous + FLOW_SENT)
    load = load_acquire(flow, previous + FLOW_TAKEN) - sent
    ahead = sent - flow[flow_of(words[OWN_NODE], side) + FLOW_SENT]  # written by this thread only
    return load > 0 and load - ahead >= block_size(load, words[BLOCK_ROWS])


@inner
def count_sent(words, side, count, bells, marks, flow):
    """Count rows of a side as sent on. Left rows leave at once; right ones remain as copies, except at the end."""
    words[SLICE_SENT + side] += count
    sent = words[SLICE_SENT + side]
    # Release: pairs with the fences in `due_rows` and `may_send_more`.
    store_release(flow, flow_of(words[OWN_NODE], side) + FLOW_SENT, words[TRACK_BASE + side] + sent)
    if side == LEFT_SIDE or is_end(words, side):
        leave(words, side, sent, bells, marks)


@inner
def send_record(words, way, kind, number, first, count, rings):
    """Send a message on the way of a side; there must be room. It also reports what has expired on the other side."""
    message = np.empty(MESSAGE_WORDS, np.int64)
    message[MESSAGE_KIND], message[MESSAGE_NUMBER] = kind, number
    message[MESSAGE_EXPIRED] = words[ANNOUNCED + 1 - way] = words[EXPIRED + 1 - way]
    message[MESSAGE_FIRST], message[MESSAGE_COUNT], message[MESSAGE_NULLS] = first, count, words[SEEN_NULLS]
    put(rings[OUTLET + way], message)


@inner
def send_blocks(words, side, rows, rings, bells, marks, flow):
    """Send the due rows of a side on, as far as there is room; return whether there were any."""
    sent = False
    while words[STORE_END + side] > words[SLICE_SENT + side]:
        count = due_rows(words, side, rows, flow)
        if count == 0 or not has_room(rings[OUTLET + side], MESSAGE_WORDS):
            break
        first = words[TRACK_BASE + side] + words[SLICE_SENT + side]
        send_record(words, side, ARRIVAL, 0, first, count, rings)
        count_sent(words, side, count, bells, marks, flow)
        sent = True
    return sent


@inner
def drop_expired(words, side, rows, bells, marks, flow):
    """At the far end of a side, forget its expired rows; return whether there were any."""
    sent = words[SLICE_SENT + side]
    count = first_not_below(rows[ROW_PLACE], sent, words[STORE_END + side], words[EXPIRED + side]) - sent
    if count > 0:
        count_sent(words, side, count, bells, marks, flow)
    return count > 0


@inner
def acknowledge(words, rings):
    """Acknowledge the right rows that came from another node; return whether there were any, and room. Left rows must
    not overtake the acknowledgement."""
    if words[TO_ACKNOWLEDGE] == words[ACKNOWLEDGED] or not has_room(rings[OUTLET + LEFT_SIDE], MESSAGE_WORDS):
        return False
    words[ACKNOWLEDGED] = words[TO_ACKNOWLEDGE]
    send_record(words, LEFT_SIDE, ACKNOWLEDGEMENT, words[ACKNOWLEDGED], 0, 0, rings)
    return True


@inner
def announce(words, side, rows, rings):
    """Report upstream what has expired of a side; return whether there was anything to report, and room. While this
    node holds a row that has not expired, there is no expired one upstream: those are later."""
    way, end = 1 - side, words[STORE_END + side]
    if words[ANNOUNCED + side] >= words[EXPIRED + side] or is_end(words, way):
        return False
    if end > words[SLICE_SENT + side] and rows[ROW_PLACE, end - 1] >= words[EXPIRED + side]:
        return False
    if not has_room(rings[OUTLET + way], MESSAGE_WORDS):
        return False
    send_record(words, way, PROGRESS, 0, 0, 0, rings)
    return True


@inner
def pass_on(words, rows, rings, bells, marks, flow):
    """Send acknowledgements, rows and reports that are due; return whether there were any. Rings each neighbour at most
    once."""
    acknowledged = acknowledge(words, rings)
    rings_left, rings_right, dropped = False, acknowledged, False
    for side in (LEFT_SIDE, RIGHT_SIDE):
        moved, sent = False, False
        if is_end(words, side):
            moved = drop_expired(words, side, rows[side], bells, marks, flow)
        elif side == RIGHT_SIDE or words[TO_ACKNOWLEDGE] == words[ACKNOWLEDGED]:
            moved = sent = send_blocks(words, side, rows[side], rings, bells, marks, flow)
        dropped |= moved
        announced = announce(words, side, rows[side], rings)
        upstream = announced or (moved and may_send_more(words, side, flow))
        if side == LEFT_SIDE:
            rings_left, rings_right = rings_left or upstream, rings_right or sent
        else:
            rings_left, rings_right = rings_left or sent, rings_right or upstream
    if rings_left:
        ring(bells[LEFT_SIDE])
    if rings_right:
        ring(bells[RIGHT_SIDE])
    return rings_left or rings_right or dropped


@inner
def joins_current(words, inlet):
    """Whether the next message in an inlet can be taken together with the current one, as one block."""
    if waiting(inlet) == 0:  # acquires the words of what waits
        return False
    slots = (len(inlet) - RING_DATA) // MESSAGE_WORDS
    at = RING_DATA + inlet[RING_HEAD] % slots * MESSAGE_WORDS
    kind = inlet[at + MESSAGE_KIND]
    if kind == ACKNOWLEDGEMENT or words[MESSAGE_KIND] == ACKNOWLEDGEMENT:
        return False
    return words[MESSAGE_COUNT] + inlet[at + MESSAGE_COUNT] <= words[BLOCK_ROWS]


@inner
def join_message(words, more):
    """Add the rows and the report of a later message to the current one."""
    if words[MESSAGE_COUNT] == 0:
        words[MESSAGE_KIND], words[MESSAGE_FIRST] = more[MESSAGE_KIND], more[MESSAGE_FIRST]
    words[MESSAGE_COUNT] += more[MESSAGE_COUNT]
    words[MESSAGE_EXPIRED] = max(words[MESSAGE_EXPIRED], more[MESSAGE_EXPIRED])
    words[MESSAGE_NULLS] |= more[MESSAGE_NULLS]


@inner
def next_block(words, rings, bells):
    """Take messages from either way, in turns, as many as make a block; return whether there was one."""
    more = np.empty(MESSAGE_WORDS, np.int64)
    for _ in range(2):
        way = 1 - words[LAST_TAKEN_SIDE]
        words[LAST_TAKEN_SIDE] = way
        inlet = rings[INLET + way]
        taken = inlet[RING_HEAD]
        if take(inlet, words[:MESSAGE_WORDS]):
            while joins_current(words, inlet):
                take(inlet, more)
                join_message(words, more)
            if was_full(inlet, MESSAGE_WORDS, taken):
                ring(bells[way])  # the sender may be waiting for room
            words[MESSAGE_SIDE] = way
            words[SEEN_NULLS] |= words[MESSAGE_NULLS]
            words[NEXT_STEP] = BEGIN_MESSAGE
            return True
    return False


@inner
def learn_expiry(words):
    """Note what the current message reports as expired."""
    other = 1 - words[MESSAGE_SIDE]
    words[EXPIRED + other] = max(words[EXPIRED + other], words[MESSAGE_EXPIRED])


@inner
def begin_block(words, rows, reach, cursor, bells, marks):
    """Begin to work on the current message; return the next step."""
    side = words[MESSAGE_SIDE]
    if words[MESSAGE_KIND] == ACKNOWLEDGEMENT:
        learn_expiry(words)
        leave(words, RIGHT_SIDE, words[MESSAGE_NUMBER] - words[TRACK_BASE + RIGHT_SIDE], bells, marks)
        return NO_STEP
    if words[MESSAGE_COUNT] == 0:
        learn_expiry(words)
        return NO_STEP
    if words[MESSAGE_FIRST] + words[MESSAGE_COUNT] > words[TRACK_LIMIT + side]:
        return BEGIN_MESSAGE
    words[MESSAGE_FIRST] -= words[TRACK_BASE + side]  # from here on a position
    plan_scan(words, 1 - side, rows[side], rows[1 - side], reach, cursor)
    return MEET_STORED


@inner
def rest(words, flow):
    """The rows of the current message have met the other side's here: let them rest (figure 9)."""
    side = words[MESSAGE_SIDE]
    end = words[MESSAGE_FIRST] + words[MESSAGE_COUNT]
    words[STORE_END + side] = words[STORE_VISIBLE + side] = end
    number = words[TRACK_BASE + side] + end
    # Release: pairs with the fences in `due_rows` and `may_send_more`.
    store_release(flow, flow_of(words[OWN_NODE], side) + FLOW_TAKEN, number)
    if side == RIGHT_SIDE and words[OWN_NODE] < words[LAST_NODE]:
        words[TO_ACKNOWLEDGE] = number
    learn_expiry(words)  # after the rows: those that expire now have met them


@jit
def advance_flowing_node(
    words, rings, bells, marks, rows, flow, reach, probes, positions, outbox, call, operands
):
    """Work on up to words[MESSAGES_LEFT] blocks. Returns why it stopped, and whether anything was done:

    IDLE          no message waits
    SPENT         it has taken as many blocks as it may
    NEEDS_SCAN    as in `advance_scanning_node`
    NEEDS_RESIZE  find the rows of the current message in the new memory of their track
    OUTBOX_FULL   the outbox has no room
    """
    busy, cursor = False, view_at(call[CALL_CURSOR], CURSOR_SIZE, np.int64)
    while True:
        step, side = words[NEXT_STEP], words[MESSAGE_SIDE]
        if step == NO_STEP:
            busy |= pass_on(words, rows, rings, bells, marks, flow)
            if words[MESSAGES_LEFT] <= 0:
                return SPENT, busy
            if not next_block(words, rings, bells):
                return IDLE, busy
            words[MESSAGES_LEFT] -= 1
            busy = True
        elif step == BEGIN_MESSAGE:
            words[NEXT_STEP] = begin_block(words, rows, reach, cursor, bells, marks)
            if words[NEXT_STEP] == BEGIN_MESSAGE:
                return NEEDS_RESIZE, busy
        else:
            if not hand_over(words, rows[side], rows[words[PROBED_STORE]], probes, positions, outbox, bells):
                return OUTBOX_FULL, busy
            if not words[SCAN_FINISHED]:
                if not scan_store(words, call, operands):
                    return NEEDS_SCAN, True
                continue
            words[COMPARED] += words[IN_REACH]
            rest(words, flow)
            words[NEXT_STEP] = NO_STEP


@jit
def run_flowing_node(bell, patience, arguments):
    """The loop of a thread: call `advance_flowing_node` whenever the node's bell has rung.

    Returns NEEDS_SCAN or NEEDS_RESIZE, or any other reason once the bell was stopped or nothing has come for about
    `patience` microseconds.
    """
    words = arguments[0]
    while True:
        seen = load_acquire(bell, 0)  # acquire, before looking for messages: later ones ring again
        words[MESSAGES_LEFT] = 1  # one at a time, and then check whether to stop
        why, busy = advance_flowing_node(*arguments)
        if why in (NEEDS_SCAN, NEEDS_RESIZE) or load_acquire(bell, BELL_STOPPED):
            return why
        if not busy and wait_for_ring(bell, seen, patience) == seen:
            return why
