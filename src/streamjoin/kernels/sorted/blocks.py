"""A sorted list in blocks, and the best rows of a sliding range of rows by a search outward from a target.

The list holds the rows at *places* `first` to `end` of one side, in the order of (word, key, place falling): rows of
one word are together, and of equal keys the later row comes first. Keys are float32, float64 or uint64, never NaN.

A block has ROOM for some entries, and `order` names the blocks from the lowest entries to the highest; after those in
use it names the free ones. So an insertion or a removal moves part of one block, O(log rows + ROOM), and a search of
the best `most` rows visits O(log rows + most) entries as long as few entries tie.
"""

from __future__ import annotations

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.sorted.block_lists import (
    END_PLACE,
    FIRST_PLACE,
    ROOM,
    USED,
    VISITED,
    emptied_at,
    searched_rows,
)

FEW = ROOM // 4  # a block with fewer entries is merged with a neighbour, if both fit into half a block
LAST = 2**63 - 1  # after every place
NOBODY = -1  # before every place


# Positions in the list: the number of a block in `order`, and of an entry in it.


@inner
def is_below(blocks, entry, word, key, place):
    """Whether an entry comes before (word, key, place)."""
    if blocks.words[entry] != word:
        return blocks.words[entry] < word
    if blocks.keys[entry] != key:
        return blocks.keys[entry] < key
    return blocks.places[entry] > place


@inner
def find(blocks, word, key, place):
    """The position of the first entry that is not below, in the last block that begins below it: it may be the one
    after that block's last entry."""
    low, high = 0, blocks.state[USED]
    while high - low > 1:
        middle = (low + high) >> 1
        if is_below(blocks, np.int64(blocks.order[middle]) * ROOM, word, key, place):
            low = middle
        else:
            high = middle
    rank, block = low, np.int64(blocks.order[low])
    low, high = 0, np.int64(blocks.sizes[block]) if blocks.state[USED] else 0
    while low < high:
        middle = (low + high) >> 1
        if is_below(blocks, block * ROOM + middle, word, key, place):
            low = middle + 1
        else:
            high = middle
    return rank, low


@inner
def following(blocks, rank, at):
    """This position, or the first of the next block if there is no entry."""
    if rank < blocks.state[USED] and at >= blocks.sizes[blocks.order[rank]]:
        return rank + 1, 0
    return rank, at


@inner
def preceding(blocks, rank, at):
    """The position before this one; block -1 if there is none."""
    if at > 0:
        return rank, at - 1
    if rank > 0:
        return rank - 1, np.int64(blocks.sizes[blocks.order[rank - 1]]) - 1
    return -1, 0


@inner
def entry_of(blocks, rank, at, word):
    """The entry at a position, -1 if there is none of this word."""
    if rank < 0 or rank >= blocks.state[USED]:
        return -1
    entry = np.int64(blocks.order[rank]) * ROOM + at
    return entry if blocks.words[entry] == word else -1


# Changes


@inner
def move_entries(blocks, begin, end, to):
    """Copy entries begin..end-1 to the entries from `to` on, which may overlap if they come later."""
    for back in range(1, end - begin + 1):
        blocks.words[to + end - begin - back] = blocks.words[end - back]
        blocks.keys[to + end - begin - back] = blocks.keys[end - back]
        blocks.places[to + end - begin - back] = blocks.places[end - back]


@inner
def split(blocks, rank):
    """Move the upper half of a full block into a free one after it."""
    used = blocks.state[USED]
    new = blocks.order[used]
    for i in range(used, rank + 1, -1):
        blocks.order[i] = blocks.order[i - 1]
    blocks.order[rank + 1] = new
    blocks.state[USED] = used + 1
    block, half = np.int64(blocks.order[rank]) * ROOM, ROOM // 2
    move_entries(blocks, block + half, block + ROOM, np.int64(new) * ROOM)
    blocks.sizes[blocks.order[rank]] = half
    blocks.sizes[new] = ROOM - half


@inner
def free(blocks, rank):
    """Take a block out of the list."""
    block = blocks.order[rank]
    blocks.state[USED] -= 1
    for i in range(rank, blocks.state[USED]):
        blocks.order[i] = blocks.order[i + 1]
    blocks.order[blocks.state[USED]] = block
    blocks.sizes[block] = 0


@inner
def merge_small(blocks, rank):
    """Merge a block with the one after it, if both exist and fit into half a block."""
    if rank < 0 or rank + 1 >= blocks.state[USED]:
        return
    low, high = np.int64(blocks.order[rank]), np.int64(blocks.order[rank + 1])
    size, more = np.int64(blocks.sizes[low]), np.int64(blocks.sizes[high])
    if size + more <= ROOM // 2:
        move_entries(blocks, high * ROOM, high * ROOM + more, low * ROOM + size)
        blocks.sizes[low] = size + more
        free(blocks, rank + 1)


@inner
def insert_entry(blocks, word, key, place):
    """Add an entry; False, and no change, if no block is free that may be needed."""
    used = blocks.state[USED]
    if used == len(blocks.order):
        return False
    if used == 0:
        blocks.state[USED] = 1
        blocks.sizes[blocks.order[0]] = 0
    rank, at = find(blocks, word, key, place)
    if blocks.sizes[blocks.order[rank]] == ROOM:
        split(blocks, rank)
        if at > ROOM // 2:
            rank, at = rank + 1, at - ROOM // 2
    block = np.int64(blocks.order[rank])
    entry, end = block * ROOM + at, block * ROOM + np.int64(blocks.sizes[block])
    move_entries(blocks, entry, end, entry + 1)
    blocks.words[entry], blocks.keys[entry], blocks.places[entry] = word, key, place
    blocks.sizes[block] += 1
    return True


@inner
def remove_entry(blocks, word, key, place):
    """Remove an entry, which must be there."""
    rank, at = find(blocks, word, key, place)
    rank, at = following(blocks, rank, at)
    block = np.int64(blocks.order[rank])
    size = np.int64(blocks.sizes[block]) - 1
    for entry in range(block * ROOM + at, block * ROOM + size):
        blocks.words[entry] = blocks.words[entry + 1]
        blocks.keys[entry] = blocks.keys[entry + 1]
        blocks.places[entry] = blocks.places[entry + 1]
    blocks.sizes[block] = size
    if size == 0:
        free(blocks, rank)
    elif size < FEW:
        merge_small(blocks, rank)
        merge_small(blocks, rank - 1)


@inner
def drop_entries(blocks):
    for rank in range(blocks.state[USED]):
        blocks.sizes[blocks.order[rank]] = 0
    blocks.state[USED] = 0


@inner
def add_row(blocks, rows, place):
    """Add the row at a place; False if there is no room."""
    i = place - rows.base
    return not rows.known[i] or insert_entry(blocks, rows.words[i], rows.keys[i], place)


@inner
def remove_row(blocks, rows, place):
    i = place - rows.base
    if rows.known[i]:
        remove_entry(blocks, rows.words[i], rows.keys[i], place)


@inner
def slide_to(blocks, rows, begin, end, most):
    """As `slide`."""
    state = blocks.state
    if begin >= state[END_PLACE] or end <= state[FIRST_PLACE]:
        drop_entries(blocks)
        state[FIRST_PLACE], state[END_PLACE] = begin, begin
    for _ in range(most):
        if state[END_PLACE] < end:
            if not add_row(blocks, rows, state[END_PLACE]):
                return False
            state[END_PLACE] += 1
        elif state[FIRST_PLACE] > begin:
            if not add_row(blocks, rows, state[FIRST_PLACE] - 1):
                return False
            state[FIRST_PLACE] -= 1
        elif state[END_PLACE] > end:
            state[END_PLACE] -= 1
            remove_row(blocks, rows, state[END_PLACE])
        elif state[FIRST_PLACE] < begin:
            remove_row(blocks, rows, state[FIRST_PLACE])
            state[FIRST_PLACE] += 1
        else:
            return True
    return False


@jit(fallback=emptied_at)
def slide(blocks, rows, begin, end, most):
    """Make the list hold the rows at places `begin` to `end`. False if it has no room, which `enlarged` gives it, or if
    more than `most` rows have to move: call again. Costs O(log rows + ROOM) for each row that enters or leaves."""
    return slide_to(blocks, rows, begin, end, most)


# Searches


@inner
def cost_of(target, key, turns):
    """How bad a key is; the smaller, the better. Differences of unsigned integers do not wrap."""
    if turns:
        return key - target if target < key else target - key
    return target + key


@inner
def after_run(blocks, entry):
    """The position after all entries of this word and key."""
    rank, at = find(blocks, blocks.words[entry], blocks.keys[entry], NOBODY)
    return following(blocks, rank, at)


@inner
def run_start(blocks, rank, at, word):
    """The first position with the word and key of this one, which may be no position of the word."""
    entry = entry_of(blocks, rank, at, word)
    if entry < 0:
        return rank, at
    before, before_at = preceding(blocks, rank, at)
    other = entry_of(blocks, before, before_at, word)
    if other < 0 or blocks.keys[other] != blocks.keys[entry]:
        return rank, at
    rank, at = find(blocks, word, blocks.keys[entry], LAST)
    return following(blocks, rank, at)


@inner
def keep_best(cost, place, count, costs, found):
    """Insert a row that is no better than those before it, unless its cost ties and it is later. Drops the worst of too
    many; the new count."""
    most = len(costs)
    i = min(count, most - 1)
    while i > 0 and costs[i - 1] == cost and found[i - 1] < place:
        costs[i], found[i] = costs[i - 1], found[i - 1]
        i -= 1
    costs[i], found[i] = cost, place
    return min(count + 1, most)


@inner
def search(blocks, word, target, turns, lowest, costs, found):
    """Fill `found` with the places of the best rows of a word, the best first, and return their number.

    Two positions move away from the target; the nearer is next. Below the target, equal keys are a run from `start` to
    `end`, which is walked upwards like all others: from the latest row to the earliest.
    """
    most, count, keys, places = len(costs), 0, blocks.keys, blocks.places
    up, up_at = find(blocks, word, target if turns else lowest, LAST)
    up, up_at = following(blocks, up, up_at)
    end, end_at = -1, 0
    if turns:
        end, end_at = preceding(blocks, up, up_at)
    start, start_at = run_start(blocks, end, end_at, word)
    down, down_at = start, start_at
    while True:
        above, below = entry_of(blocks, up, up_at, word), entry_of(blocks, down, down_at, word)
        if above < 0 and below < 0:
            return count
        blocks.state[VISITED] += 1
        upward = below < 0
        if above >= 0:
            cost = cost_of(target, keys[above], turns)
            if cost != cost:  # infinity less infinity
                up, up_at = after_run(blocks, above)
                continue
            if below >= 0:
                other = cost_of(target, keys[below], turns)
                upward = cost < other or (cost == other and places[above] > places[below])
        entry = above if upward else below
        cost, place = cost_of(target, keys[entry], turns), places[entry]
        if count == most and cost > costs[most - 1]:
            return count
        # Of a tie, only later rows count, and the rest of the run is earlier.
        done = count == most and place < found[most - 1]
        if not done:
            count = keep_best(cost, place, count, costs, found)
        if upward and done:
            up, up_at = after_run(blocks, entry)
        elif upward:
            up, up_at = following(blocks, up, up_at + 1)
        elif done or (down == end and down_at == end_at):
            end, end_at = preceding(blocks, start, start_at)
            start, start_at = run_start(blocks, end, end_at, word)
            down, down_at = start, start_at
        else:
            down, down_at = following(blocks, down, down_at + 1)


@jit(fallback=searched_rows)
def search_rows(blocks, rows, searches, turns, lowest, budget, costs, found, counts):
    """Fill found[i] with the places of up to len(costs) rows for search i, the best first, and counts[i] with their
    number. Of equal costs the later row is better.

        turns    the cost of a key is its distance from the target; else it is target + key
        lowest   the lowest key of its type
        budget   return once about this many entries have been visited, or a ROOM-th as many rows moved
        costs    scratch, of the keys' type

    Returns how many searches are answered: fewer if the budget is used up, or if the list has no free block.
    """
    stop, most_moved = blocks.state[VISITED] + budget, budget // ROOM + 1
    for i in range(len(counts)):
        counts[i] = 0
        if searches.known[i] and searches.begins[i] < searches.ends[i]:
            if not slide_to(blocks, rows, searches.begins[i], searches.ends[i], most_moved):
                return i
            counts[i] = search(blocks, searches.words[i], searches.targets[i], turns, lowest, costs, found[i])
        if blocks.state[VISITED] > stop:
            return i + 1
    return len(counts)
