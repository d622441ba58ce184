"""ScaleGate: merges sorted streams and gives every reader all ready tuples, in one order, without locks
(Gulisano et al. 2015, sections IV-A and V-C, Algorithm 2).

The gate is a skip list, sorted by a key of two numbers. Each *source* adds nodes anywhere in it by compare-and-swap,
and promises a *mark*: the keys it adds later are not smaller. Equal keys keep the order in which they came, and no two
sources have a key in common. So a node is *ready* once it is not above the mark of any source, and each *reader* walks
the ready nodes with a head of its own. The paper instead holds back each source's newest tuple; with a mark, a source
that has no tuples, or late ones, can also say how far it is.

Two arrays hold everything. Nodes are known by number. Node 0 is LIST_BASE, the head of the list; as a successor, 0 is
LIST_END.

    nodes   NODE_SIZE words a node: key, two values, owner, height (shortcuts + 1; written by the reclaimer), and a
            successor for each level
    table   a line for the whole gate and one for the reclaimer, then a line for each reader, then two for each source,
            so that no two writers share a cache line

Memory is bounded. Each source has nodes of its own, so no other source can take the nodes it needs for the others to
become ready; it gets them back once all readers have passed them. A thread that runs out of nodes unlinks the front of
the list, which all readers have passed (one thread at a time; the others do not wait). It hands the nodes back when
every source that was in the middle of an addition has finished it, since until then the source may stand on one of
them.

An addition never links behind an unlinked node: a source's key is not below its mark, readers only reach nodes that are
not above any mark, and the last node they have reached stays. So the new node's place is behind that node.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import (
    LINE_PAIR,
    compare_exchange,
    fence,
    load_acquire,
    store_release,
)
from streamjoin.kernels.stamping import INT64_MAX, INT64_MIN

LEVELS = 6
NODE_FIRST, NODE_SECOND, NODE_VALUE, NODE_EXTRA, NODE_OWNER, NODE_HEIGHT, NODE_NEXT = range(7)
NODE_SIZE = NODE_NEXT + LEVELS
LIST_BASE = LIST_END = 0

# The table's first line is constant, except for GATE_VERSION. The second belongs to the thread that holds RECLAIM_LOCK.
READER_COUNT, SOURCE_COUNT, GATE_VERSION = 0, 1, 2
RECLAIM_LOCK, RETIRED, LIMBO, LIMBO_END = LINE_PAIR, LINE_PAIR + 1, LINE_PAIR + 2, LINE_PAIR + 3
READER_HEAD, READER_COUNTED = 0, 1  # the line of a reader, written by it
# The first line of a source, written by it. ADD_EPOCH is odd while the source adds nodes.
MARK, MARK_SECOND, ADD_EPOCH, FRESH, FRESH_END, SEED = range(6)
# The second line of a source: nodes that were handed back to it, and its ADD_EPOCH as the reclaimer saw it.
FREE_NODES, SEEN = LINE_PAIR, LINE_PAIR + 1

STALE = BUSY = -1


@inner
def reader_line(reader):
    return (2 + reader) * LINE_PAIR


@inner
def source_line(table, source):
    return (2 + table[READER_COUNT] + 2 * source) * LINE_PAIR


@inner
def precedes(nodes, node, first, second):
    """Whether a node's key is at most the given key, so that equal keys keep the order in which they came."""
    at = node * NODE_SIZE
    return nodes[at + NODE_FIRST] < first or (
        nodes[at + NODE_FIRST] == first and nodes[at + NODE_SECOND] <= second
    )


@inner
def allocate(nodes, table, line):
    """Take a free node of this source; LIST_END if there is none. Only the owner takes from its free list, so the head
    cannot be replaced by an equal one meanwhile."""
    while True:
        # Acquire: the successor, written before the node was handed back.
        node = load_acquire(table, line + FREE_NODES)
        if node == LIST_END:
            break
        if compare_exchange(table, line + FREE_NODES, node, nodes[node * NODE_SIZE + NODE_NEXT]):
            return node
    if table[line + FRESH] == table[line + FRESH_END]:
        return LIST_END
    table[line + FRESH] += 1
    return table[line + FRESH] - 1


@inner
def random_height(table, line):
    """1 with probability 3/4, 2 with 3/16, and so on."""
    bits = np.uint64(table[line + SEED])
    bits ^= bits << np.uint64(13)
    bits ^= bits >> np.uint64(7)
    bits ^= bits << np.uint64(17)
    table[line + SEED] = np.int64(bits)
    height = 1
    while height < LEVELS and bits & np.uint64(3) == 0:
        bits >>= np.uint64(2)
        height += 1
    return height


@inner
def seek(nodes, path, first, second):
    """Move `path`, which has a node on each level that does not come after the key, forward to the key."""
    current = path[LEVELS - 1]
    for level in range(LEVELS - 1, -1, -1):
        own = path[level] * NODE_SIZE
        if precedes(nodes, current, nodes[own + NODE_FIRST], nodes[own + NODE_SECOND]):
            current = path[level]
        while True:
            # Acquire: a successor's key was written before it was linked.
            following = load_acquire(nodes, current * NODE_SIZE + NODE_NEXT + level)
            if following == LIST_END or not precedes(nodes, following, first, second):
                break
            current = following
        path[level] = current


@inner
def link_node(nodes, node, level, after, first, second):
    """Insert a node into one level, behind `after` or later."""
    while True:
        following = load_acquire(nodes, after * NODE_SIZE + NODE_NEXT + level)  # acquire, as in `seek`
        if following != LIST_END and precedes(nodes, following, first, second):
            after = following
            continue
        nodes[node * NODE_SIZE + NODE_NEXT + level] = following
        # Publishes the node with its key, values and successor; fails if another source linked here first.
        if compare_exchange(nodes, after * NODE_SIZE + NODE_NEXT + level, following, node):
            return


@jit
def insert_nodes(nodes, table, source, firsts, seconds, values, extras, begin):
    """Add tuples from number `begin` on; return the number of tuples added so far, counted from 0.

    Tuples are sorted by key, and no key is below the source's mark. Fewer than all are added if the source runs out of
    nodes. Only one thread at a time may call it for a source. O(log n) for the first tuple, amortised O(1) for tuples
    that follow each other closely.
    """
    line = source_line(table, source)
    path = np.zeros(LEVELS, np.int64)  # LIST_BASE on every level
    store_release(table, line + ADD_EPOCH, table[line + ADD_EPOCH] + 1)
    fence()  # the reclaimer sees that an addition has begun before this thread reads any node
    done = begin
    while done < len(firsts):
        node = allocate(nodes, table, line)
        if node == LIST_END:
            break
        at, first, second = node * NODE_SIZE, firsts[done], seconds[done]
        nodes[at + NODE_FIRST], nodes[at + NODE_SECOND] = first, second
        nodes[at + NODE_VALUE], nodes[at + NODE_EXTRA] = values[done], extras[done]
        nodes[at + NODE_OWNER] = source
        height = random_height(table, line)
        nodes[at + NODE_HEIGHT] = height
        seek(nodes, path, first, second)
        for level in range(height):
            link_node(nodes, node, level, path[level], first, second)
            path[level] = node
        done += 1
    # Release: this thread stands on no node any more.
    store_release(table, line + ADD_EPOCH, table[line + ADD_EPOCH] + 1)
    return done


# Adding and reclaiming release the GIL for a whole batch. The functions below take microseconds and keep it: releasing
# it would let any waiting thread take it.


@jit(nogil=False)
def promise(table, source, first, second):
    """Raise a source's mark to a key: it will add no smaller one. A mark below the present one is ignored."""
    line = source_line(table, source)
    mark, mark_second = table[line + MARK], table[line + MARK_SECOND]  # written by this source only
    if first < mark or (first == mark and second <= mark_second):
        return
    # All three stores release: a reader that sees them sees the nodes added before.
    # A reader loads the first number, then the second. Whichever halves it sees, the pair is not above the mark: with
    # an old first number it is below the new mark, and with a new one the second is INT64_MIN or newer.
    if first > mark:
        store_release(table, line + MARK_SECOND, INT64_MIN)
        store_release(table, line + MARK, first)
    store_release(table, line + MARK_SECOND, second)


@jit(nogil=False)
def next_ready(nodes, version, table, reader, values, extras):
    """Move the next ready tuples, as many as fit, into `values` and `extras`; return how many.

    Returns STALE if `nodes` were replaced meanwhile: get the new arrays and call again.
    """
    first, second = INT64_MAX, INT64_MAX
    for source in range(table[SOURCE_COUNT]):
        line = source_line(table, source)
        mark = load_acquire(table, line + MARK)  # acquire, both: all nodes up to the mark are in the list
        mark_second = load_acquire(table, line + MARK_SECOND)
        if mark < first or (mark == first and mark_second < second):
            first, second = mark, mark_second
    if load_acquire(table, GATE_VERSION) != version:
        # Acquire, after the marks: while the version is the old one, the nodes up to the marks are in these arrays.
        return STALE
    mine = reader_line(reader)
    node, count = table[mine + READER_HEAD], 0
    while count < len(values):
        following = load_acquire(nodes, node * NODE_SIZE + NODE_NEXT)  # acquire, as in `seek`
        at = following * NODE_SIZE
        if following == LIST_END or nodes[at + NODE_FIRST] > first:
            break
        if nodes[at + NODE_FIRST] == first and nodes[at + NODE_SECOND] > second:
            break
        values[count], extras[count] = nodes[at + NODE_VALUE], nodes[at + NODE_EXTRA]
        node, count = following, count + 1
    table[mine + READER_HEAD] = node
    # Release: this reader has left the nodes before its head.
    store_release(table, mine + READER_COUNTED, table[mine + READER_COUNTED] + count)
    return count


@inner
def may_hand_back(table):
    """Whether every source has finished the addition, if any, that was under way when the front was unlinked."""
    for source in range(table[SOURCE_COUNT]):
        line = source_line(table, source)
        if table[line + SEEN] % 2 == 1 and load_acquire(table, line + ADD_EPOCH) == table[line + SEEN]:
            return False
    return True


@inner
def hand_back(nodes, table):
    """Return the unlinked nodes to their owners; the number of nodes."""
    count, node, end = 0, table[LIMBO], table[LIMBO_END]
    while node != end:
        following = nodes[node * NODE_SIZE + NODE_NEXT]
        free = source_line(table, nodes[node * NODE_SIZE + NODE_OWNER]) + FREE_NODES
        while True:
            head = load_acquire(table, free)
            nodes[node * NODE_SIZE + NODE_NEXT] = head
            if compare_exchange(table, free, head, node):  # publishes the successor
                break
        node, count = following, count + 1
    table[LIMBO] = table[LIMBO_END] = LIST_END
    return count


@inner
def unlink(nodes, table):
    """Take the nodes that all readers have passed out of the list. Sources may still stand on them."""
    passed = INT64_MAX
    for reader in range(table[READER_COUNT]):
        # Acquire: the reader has left them.
        passed = min(passed, load_acquire(table, reader_line(reader) + READER_COUNTED))
    front = node = nodes[LIST_BASE * NODE_SIZE + NODE_NEXT]
    while table[RETIRED] < passed - 1:  # the last node that a reader reached stays, as its head
        nodes[node * NODE_SIZE + NODE_HEIGHT] = 0
        node = nodes[node * NODE_SIZE + NODE_NEXT]
        table[RETIRED] += 1
    if node == front:
        return
    for level in range(LEVELS - 1, 0, -1):
        while True:
            first = load_acquire(nodes, LIST_BASE * NODE_SIZE + NODE_NEXT + level)
            live = first
            while live != LIST_END and nodes[live * NODE_SIZE + NODE_HEIGHT] == 0:
                live = load_acquire(nodes, live * NODE_SIZE + NODE_NEXT + level)
            # If a source links behind an unlinked node here, only this shortcut is lost.
            if compare_exchange(nodes, LIST_BASE * NODE_SIZE + NODE_NEXT + level, first, live):
                break
    # No source changes this successor: the places of its nodes are behind a reader's head.
    store_release(nodes, LIST_BASE * NODE_SIZE + NODE_NEXT, node)
    table[LIMBO], table[LIMBO_END] = front, node
    fence()  # a source that begins now does not find them; earlier ones are seen below
    for source in range(table[SOURCE_COUNT]):
        line = source_line(table, source)
        table[line + SEEN] = load_acquire(table, line + ADD_EPOCH)


@jit
def reclaim(nodes, table):
    """Hand nodes that all readers have passed back to their sources; return how many.

    BUSY: there may be some, but another thread is reclaiming, or an addition that began before they were unlinked has
    not finished; try again soon. Must not be called during an addition. O(nodes passed since the last call).
    """
    if not compare_exchange(table, RECLAIM_LOCK, 0, 1):
        return BUSY
    count = 0
    for _ in range(2):  # first the nodes that the last call had to leave, then those unlinked now
        if table[LIMBO] == LIST_END:
            unlink(nodes, table)
        if table[LIMBO] != LIST_END and may_hand_back(table):
            count += hand_back(nodes, table)
    left = table[LIMBO] != LIST_END
    store_release(table, RECLAIM_LOCK, 0)  # release: the next reclaimer sees what this one wrote
    return BUSY if left and count == 0 else count


@jit
def relabel(nodes, offset, changes):
    """Where a node's second number lies in [offset, offset + len(changes)), add changes[number - offset] to it.

    The caller keeps all sources from adding. The order of the nodes must stay the same.
    """
    node = nodes[LIST_BASE * NODE_SIZE + NODE_NEXT]
    while node != LIST_END:
        number = nodes[node * NODE_SIZE + NODE_SECOND] - offset
        if 0 <= number < len(changes):
            store_release(nodes, node * NODE_SIZE + NODE_SECOND, offset + number + changes[number])
        node = nodes[node * NODE_SIZE + NODE_NEXT]


class Gate:
    """The two arrays and their sizes. `capacity`: nodes for each source, one of which holds the last node that the
    slowest reader has reached."""

    def __init__(self, sources: int, readers: int, capacity: int):
        if min(sources, readers, capacity) < 1:
            raise ValueError(
                f"a gate needs at least 1 source, 1 reader and a capacity of 1; given: {sources}, {readers}, {capacity}"
            )
        self.sources, self.readers = sources, readers
        nodes = np.empty((1 + sources * capacity) * NODE_SIZE, np.int64)
        nodes[:NODE_SIZE] = LIST_END
        nodes[NODE_FIRST] = nodes[NODE_SECOND] = INT64_MIN
        self.current = nodes, 0  # with their version; replaced together
        self.table = np.zeros((2 + readers + 2 * sources) * LINE_PAIR, np.int64)
        self.table[[READER_COUNT, SOURCE_COUNT]] = readers, sources
        for source in range(sources):
            line = (2 + readers + 2 * source) * LINE_PAIR
            self.table[line + FRESH] = 1 + source * capacity
            self.table[line + FRESH_END] = 1 + (source + 1) * capacity
            self.table[line + SEED] = source + 1
            self.table[[line + MARK, line + MARK_SECOND]] = INT64_MIN

    def add(
        self,
        source: int,
        firsts: np.ndarray,
        seconds: np.ndarray,
        values: np.ndarray,
        extras: np.ndarray,
        begin: int = 0,
    ) -> int:
        """As `insert_nodes`, from number `begin` on; reclaims nodes when the source runs out of them."""
        nodes = self.current[0]
        while True:
            begin = int(insert_nodes(nodes, self.table, source, firsts, seconds, values, extras, begin))
            if begin == len(firsts) or reclaim(nodes, self.table) == 0:
                return begin

    def promise(self, source: int, first: int, second: int) -> None:
        promise(self.table, source, first, second)

    def close(self, source: int) -> None:
        """The source will add nothing more."""
        promise(self.table, source, INT64_MAX, INT64_MAX)

    def next_ready(self, reader: int, values: np.ndarray, extras: np.ndarray) -> int:
        """As the function, with the current arrays."""
        while True:
            nodes, version = self.current
            count = int(next_ready(nodes, version, self.table, reader, values, extras))
            if count != STALE:
                return count

    @property
    def size(self) -> int:
        """The number of nodes of all sources."""
        return len(self.current[0]) // NODE_SIZE - 1

    def grow(self, source: int, capacity: int) -> None:
        """Give a source that has no fresh nodes left `capacity` more. The caller keeps all sources from adding."""
        old, version = self.current
        count = len(old) // NODE_SIZE
        nodes = np.empty((count + capacity) * NODE_SIZE, np.int64)
        nodes[: len(old)] = old
        line = (2 + self.readers + 2 * source) * LINE_PAIR
        self.table[line + FRESH], self.table[line + FRESH_END] = count, count + capacity
        self.current = nodes, version + 1
        _publish_version(self.table, version + 1)

    def relabel(self, offset: int, changes: np.ndarray) -> None:
        """As the function, with the current arrays."""
        relabel(self.current[0], offset, changes)


@jit(nogil=False)
def _publish_version(table, version):
    store_release(table, GATE_VERSION, version)  # release: the new arrays are filled


@cache
def rehearse_gate() -> None:
    """Compile every function that a gate calls, or load it from the cache."""
    gate, numbers = Gate(1, 1, 1), np.zeros(2, np.int64)
    gate.relabel(0, numbers)
    gate.add(0, numbers, numbers, numbers, numbers)  # there is room for one, so this also reclaims
    gate.grow(0, 1)
    gate.close(0)
    gate.next_ready(0, numbers, numbers)
