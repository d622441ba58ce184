"""ScaleGate: merges sorted streams and gives every reader all ready tuples, in one order, without locks
(Gulisano et al. 2015, sections IV-A and V-C, Algorithm 2).

A list with shortcuts, sorted by a key of two numbers. Each *source* adds nodes anywhere in it, by compare-and-swap,
and promises a *mark*: what it adds from then on has no smaller key. Equal keys stay in the order they came, and two
sources have none in common. So a node is *ready* once it is not above the mark of any source; each *reader* walks the
ready nodes with a head of its own. The paper keeps a source's newest tuple from being read instead; a mark also
lets a source without tuples, or with late ones, tell how far it is.

Two arrays hold everything. Nodes are known by number; 0 is the list's base and, as a successor, its end.

    nodes   NODE words a node: key, two values, owner, height (shortcuts + 1; the reclaimer's), a successor a level
    table   words of the whole gate, then a line a reader, then two lines a source, so that no two writers
            share a cache line

Memory is bounded: a source has nodes of its own, so that no other can take those it needs for the others to
become ready, and gets them back behind the readers. Nodes that all readers have passed are the list's front. Whoever
runs out of nodes unlinks that front (one thread at a time, and nobody waits for it), and hands it back when every
source that was in the middle of an addition has ended it: until then it may be standing on one of these nodes.

Why an addition never links behind an unlinked node: a source's key is not below its mark, readers reach only what is
not above any mark, and the last node they have reached stays. So its place is behind that node.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.concurrent.atomics import LINE, compare_exchange, fence, load, store

LEVELS = 6
FIRST, SECOND, VALUE, EXTRA, OWNER, HEIGHT, NEXT = range(7)
NODE = NEXT + LEVELS
BASE = END = 0

# Words of the table. The first line never changes but for VERSION.
READERS, SOURCES, VERSION = 0, 1, 2
LOCK, RETIRED, LIMBO, LIMBO_END = LINE, LINE + 1, LINE + 2, LINE + 3  # the reclaimer's; LOCK says who that is
HEAD, COUNT = 0, 1  # of a reader, written by it
MARK, MARK_SECOND, EPOCH, FRESH, FRESH_END, SEED = range(
    6
)  # of a source, written by it; EPOCH is odd while it adds
FREE, SEEN = LINE, LINE + 1  # of a source: nodes handed back to it; EPOCH as the reclaimer saw it

LEAST, MOST = -(2**63), 2**63 - 1
STALE = BUSY = -1


@inner
def reader_line(reader):
    return (2 + reader) * LINE


@inner
def source_line(table, source):
    return (2 + table[READERS] + 2 * source) * LINE


@inner
def precedes(nodes, node, first, second):
    """Whether a node's key is at most the given one: equal ones stay in the order they came."""
    at = node * NODE
    return nodes[at + FIRST] < first or (nodes[at + FIRST] == first and nodes[at + SECOND] <= second)


@inner
def allocate(nodes, table, line):
    """A node of this source, or END. Only the owner takes from its free list, so the head can not be replaced by an
    equal one meanwhile."""
    while True:
        node = load(table, line + FREE)  # acquire: the successor, written before the node was handed back
        if node == END:
            break
        if compare_exchange(table, line + FREE, node, nodes[node * NODE + NEXT]):
            return node
    if table[line + FRESH] == table[line + FRESH_END]:
        return END
    table[line + FRESH] += 1
    return table[line + FRESH] - 1


@inner
def random_height(table, line):
    """1 with 3/4, 2 with 3/16, ..."""
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
    """Move `path`, a node on each level that does not come after the key, up to the key."""
    current = path[LEVELS - 1]
    for level in range(LEVELS - 1, -1, -1):
        own = path[level] * NODE
        if precedes(nodes, current, nodes[own + FIRST], nodes[own + SECOND]):
            current = path[level]
        while True:
            # Acquire: a successor's key was written before it was linked.
            following = load(nodes, current * NODE + NEXT + level)
            if following == END or not precedes(nodes, following, first, second):
                break
            current = following
        path[level] = current


@inner
def link(nodes, node, level, after, first, second):
    """Insert a node into one level, behind `after` or further on."""
    while True:
        following = load(nodes, after * NODE + NEXT + level)  # acquire, as in `seek`
        if following != END and precedes(nodes, following, first, second):
            after = following
            continue
        nodes[node * NODE + NEXT + level] = following
        # Publishes the node with its key, values and successor; fails if another source linked here first.
        if compare_exchange(nodes, after * NODE + NEXT + level, following, node):
            return


@jit
def insert(nodes, table, source, firsts, seconds, values, extras, begin):
    """Add tuples from `begin` on, sorted by key, none below the source's mark; how many are in now, from 0 on.

    Fewer than all if the source is out of nodes. Call it from one thread at a time for a source.
    O(log n) for the first, amortised O(1) for tuples that follow each other closely.
    """
    line = source_line(table, source)
    path = np.zeros(LEVELS, np.int64)  # BASE on every level
    store(table, line + EPOCH, table[line + EPOCH] + 1)
    fence()  # the reclaimer sees that we are at it before we look at any node
    done = begin
    while done < len(firsts):
        node = allocate(nodes, table, line)
        if node == END:
            break
        at, first, second = node * NODE, firsts[done], seconds[done]
        nodes[at + FIRST], nodes[at + SECOND] = first, second
        nodes[at + VALUE], nodes[at + EXTRA] = values[done], extras[done]
        nodes[at + OWNER] = source
        height = random_height(table, line)
        nodes[at + HEIGHT] = height
        seek(nodes, path, first, second)
        for level in range(height):
            link(nodes, node, level, path[level], first, second)
            path[level] = node
        done += 1
    store(table, line + EPOCH, table[line + EPOCH] + 1)  # release: we stand on no node any more
    return done


# Adding and reclaiming give up the GIL, for a whole batch at a time. What follows takes microseconds, and keeps it:
# giving it up lets every thread that waits for it in between.


@jit(nogil=False)
def promise(table, source, first, second):
    """Raise a source's mark to a key: what it adds from now on has no smaller one. Smaller marks are ignored."""
    line = source_line(table, source)
    mark, mark_second = table[line + MARK], table[line + MARK_SECOND]  # its own
    if first < mark or (first == mark and second <= mark_second):
        return
    # A reader loads the first number, then the second. Whichever halves it sees, the pair is not above the mark: with
    # an old first number it is below the new mark, and with a new one the second is LEAST or newer.
    if first > mark:
        store(table, line + MARK_SECOND, LEAST)
        store(table, line + MARK, first)
    store(
        table, line + MARK_SECOND, second
    )  # release, all three: whoever sees them sees the nodes added before


@jit(nogil=False)
def next_ready(nodes, version, table, reader, values, extras):
    """Move the next ready tuples, as many as fit, into `values` and `extras`; how many. STALE: `nodes` were replaced
    meanwhile, get the new ones and call again."""
    first, second = MOST, MOST
    for source in range(table[SOURCES]):
        line = source_line(table, source)
        mark = load(table, line + MARK)  # acquire, both: all nodes up to the mark are in the list
        mark_second = load(table, line + MARK_SECOND)
        if mark < first or (mark == first and mark_second < second):
            first, second = mark, mark_second
    if load(table, VERSION) != version:
        return (
            STALE  # acquire, after the marks: with the old version, the nodes up to them are in these arrays
        )
    mine = reader_line(reader)
    node, count = table[mine + HEAD], 0
    while count < len(values):
        following = load(nodes, node * NODE + NEXT)  # acquire, as in `seek`
        at = following * NODE
        if following == END or nodes[at + FIRST] > first:
            break
        if nodes[at + FIRST] == first and nodes[at + SECOND] > second:
            break
        values[count], extras[count] = nodes[at + VALUE], nodes[at + EXTRA]
        node, count = following, count + 1
    table[mine + HEAD] = node
    store(table, mine + COUNT, table[mine + COUNT] + count)  # release: we have left the nodes before the head
    return count


@inner
def may_hand_back(table):
    """Whether every source has been outside of an addition since the front was unlinked."""
    for source in range(table[SOURCES]):
        line = source_line(table, source)
        if table[line + SEEN] % 2 == 1 and load(table, line + EPOCH) == table[line + SEEN]:
            return False
    return True


@inner
def hand_back(nodes, table):
    """Give the unlinked nodes to their owners; how many."""
    count, node, end = 0, table[LIMBO], table[LIMBO_END]
    while node != end:
        following = nodes[node * NODE + NEXT]
        free = source_line(table, nodes[node * NODE + OWNER]) + FREE
        while True:
            head = load(table, free)
            nodes[node * NODE + NEXT] = head
            if compare_exchange(table, free, head, node):  # publishes the successor
                break
        node, count = following, count + 1
    table[LIMBO] = table[LIMBO_END] = END
    return count


@inner
def unlink(nodes, table):
    """Take the nodes that all readers have left out of the list, but not out of the hands of sources."""
    passed = MOST
    for reader in range(table[READERS]):
        passed = min(passed, load(table, reader_line(reader) + COUNT))  # acquire: it has left them
    front = node = nodes[BASE * NODE + NEXT]
    while table[RETIRED] < passed - 1:  # the last node a reader reached stays: its head
        nodes[node * NODE + HEIGHT] = 0
        node = nodes[node * NODE + NEXT]
        table[RETIRED] += 1
    if node == front:
        return
    for level in range(LEVELS - 1, 0, -1):
        while True:
            first = load(nodes, BASE * NODE + NEXT + level)
            live = first
            while live != END and nodes[live * NODE + HEIGHT] == 0:
                live = load(nodes, live * NODE + NEXT + level)
            # A source may link behind an unlinked node here: then this shortcut is lost, and nothing else.
            if compare_exchange(nodes, BASE * NODE + NEXT + level, first, live):
                break
    store(nodes, BASE * NODE + NEXT, node)  # no source changes it: its place is behind a reader's head
    table[LIMBO], table[LIMBO_END] = front, node
    fence()  # a source that begins now does not find them; the others are seen here
    for source in range(table[SOURCES]):
        line = source_line(table, source)
        table[line + SEEN] = load(table, line + EPOCH)


@jit
def reclaim(nodes, table):
    """Hand nodes that all readers have passed back to their sources; how many. BUSY if there may be some, but another
    thread is at it, or in the middle of an addition that began before they were unlinked: it will soon have ended.

    Not from inside an addition. O(nodes passed since the last time).
    """
    if not compare_exchange(table, LOCK, 0, 1):
        return BUSY
    count = 0
    for _ in range(2):  # what the last call had to leave, then what it unlinks itself
        if table[LIMBO] == END:
            unlink(nodes, table)
        if table[LIMBO] != END and may_hand_back(table):
            count += hand_back(nodes, table)
    left = table[LIMBO] != END
    store(table, LOCK, 0)  # release: the next reclaimer sees what this one wrote
    return BUSY if left and count == 0 else count


@jit
def relabel(nodes, offset, changes):
    """Where a node's second number is from `offset` on, below offset + len(changes), add changes[number - offset].
    For one who keeps all sources from adding; the order of the nodes must stay the same."""
    node = nodes[BASE * NODE + NEXT]
    while node != END:
        number = nodes[node * NODE + SECOND] - offset
        if 0 <= number < len(changes):
            store(nodes, node * NODE + SECOND, offset + number + changes[number])
        node = nodes[node * NODE + NEXT]


class Gate:
    """The two arrays and their sizes. `capacity` is in nodes a source; the last node that the slowest reader reached is
    one of them."""

    def __init__(self, sources: int, readers: int, capacity: int):
        if min(sources, readers, capacity) < 1:
            raise ValueError(
                f"a gate needs sources, readers and a capacity from 1 on, not {sources}, {readers} and {capacity}"
            )
        self.sources, self.readers = sources, readers
        nodes = np.empty((1 + sources * capacity) * NODE, np.int64)
        nodes[:NODE] = END
        nodes[FIRST] = nodes[SECOND] = LEAST
        self.current = nodes, 0  # and their version; replaced as one
        self.table = np.zeros((2 + readers + 2 * sources) * LINE, np.int64)
        self.table[[READERS, SOURCES]] = readers, sources
        for source in range(sources):
            line = (2 + readers + 2 * source) * LINE
            self.table[line + FRESH] = 1 + source * capacity
            self.table[line + FRESH_END] = 1 + (source + 1) * capacity
            self.table[line + SEED] = source + 1
            self.table[[line + MARK, line + MARK_SECOND]] = LEAST

    def add(
        self,
        source: int,
        firsts: np.ndarray,
        seconds: np.ndarray,
        values: np.ndarray,
        extras: np.ndarray,
        begin: int = 0,
    ) -> int:
        """As `insert`, from `begin` on, and reclaims when nodes run out; how many are in now, from 0 on."""
        nodes = self.current[0]
        while True:
            begin = int(insert(nodes, self.table, source, firsts, seconds, values, extras, begin))
            if begin == len(firsts) or reclaim(nodes, self.table) == 0:
                return begin

    def promise(self, source: int, first: int, second: int) -> None:
        promise(self.table, source, first, second)

    def close(self, source: int) -> None:
        """The source adds nothing any more."""
        promise(self.table, source, MOST, MOST)

    def next_ready(self, reader: int, values: np.ndarray, extras: np.ndarray) -> int:
        """As the function."""
        while True:
            nodes, version = self.current
            count = int(next_ready(nodes, version, self.table, reader, values, extras))
            if count != STALE:
                return count

    @property
    def size(self) -> int:
        """Nodes of all sources."""
        return len(self.current[0]) // NODE - 1

    def grow(self, source: int, capacity: int) -> None:
        """Give a source that is out of fresh nodes that many more. For one who keeps all sources from adding."""
        old, version = self.current
        count = len(old) // NODE
        nodes = np.empty((count + capacity) * NODE, np.int64)
        nodes[: len(old)] = old
        line = (2 + self.readers + 2 * source) * LINE
        self.table[line + FRESH], self.table[line + FRESH_END] = count, count + capacity
        self.current = nodes, version + 1
        _publish_version(self.table, version + 1)

    def relabel(self, offset: int, changes: np.ndarray) -> None:
        """As the function."""
        relabel(self.current[0], offset, changes)


@jit(nogil=False)
def _publish_version(table, version):
    store(table, VERSION, version)  # release: the new arrays are filled


@cache
def rehearse() -> None:
    """Compile all that a gate calls, or load it from the cache."""
    gate, numbers = Gate(1, 1, 1), np.zeros(2, np.int64)
    gate.relabel(0, numbers)
    gate.add(0, numbers, numbers, numbers, numbers)  # room for one, so it looks for nodes that are free
    gate.grow(0, 1)
    gate.close(0)
    gate.next_ready(0, numbers, numbers)
