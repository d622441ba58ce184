"""Hash tables of window tuples: open addressing over distinct keys, the tuples of one key side by side.

The *table* holds a pair of int64 per bucket: the key as a word, and `count << 32 | ref`, 0 if the bucket is
free. With one tuple, `ref` is its slot. With more, it is where their slots, rising, lie in the *pool*: in an
area of a power of two places that is left for one of twice the size when it is full, so that a probe always
reads consecutive memory. Areas left behind are chained per size and used again.

A key's home is its hash scaled to the number of *homes*; the next free bucket from there on is taken.
Scaling keeps the order of hashes, so that a rebuild reads and writes both tables from front to end. The last
bucket always stays free: searches stop there without a check.

Memory latency is hidden by working in blocks: all homes of a block are computed and prefetched first.
"""

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

import numpy as np

from streamjoin.kernels.jit import inner, jit
from streamjoin.kernels.vector import load, pointer, splat, stack_array, store

BLOCK = 64  # keys whose buckets are on their way from memory at the same time
LANES = 8  # slots copied at once
FIRST_AREA = 4  # places for the slots of a key's second to fourth tuple
SLACK = LANES  # copying may overshoot, in the pool and in the output
MIN_ROOM = BLOCK + SLACK  # for pairs of a block of keys that have one tuple each
CURSOR_SIZE = 2
DONE = -1

# The counters of a table, an int64 array.
DISTINCT, TUPLES, LAST_SLOT, POOL_END, FREE = 0, 1, 2, 3, 4
COUNTERS = FREE + 33  # the last are the first free area of each size, or -1
# Why `insert` stopped.
TABLE_FULL, TAIL_FULL, POOL_FULL, FALLING_SLOT = -1, -2, -3, -4


@intrinsic
def word_of(typing_context, key):
    """A number as int64, the same for equal numbers of one sort: floats as the bits of float64, zeros as +0.0."""
    if not isinstance(key, (types.Integer, types.Float, types.Boolean)):
        return None

    def generate(context, builder, signature, arguments):
        value = arguments[0]
        if isinstance(key, types.Float):
            if key.bitwidth < 64:
                value = builder.fpext(value, ir.DoubleType())
            return builder.bitcast(builder.fadd(value, ir.DoubleType()(0.0)), ir.IntType(64))
        if value.type.width == 64:
            return value
        extend = builder.sext if isinstance(key, types.Integer) and key.signed else builder.zext
        return extend(value, ir.IntType(64))

    return types.int64(key), generate


@intrinsic
def prefetch(typing_context, start, index):
    """Have the cache line of start[index] brought in; changes nothing, and any index is allowed."""

    def generate(context, builder, signature, arguments):
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        function = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        call = cgutils.get_or_insert_function(builder.module, function, "llvm.prefetch.p0")
        builder.call(call, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(start, types.intp), generate


@inner
def mixed(word):
    """A bijection of uint64 in which every bit of the word moves every bit of the result."""
    state = np.uint64(word)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0xD6E8FEB86659FD93)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0xD6E8FEB86659FD93)
    return state ^ (state >> np.uint64(32))


@inner
def home_of(word, homes):
    """The bucket at which the search for a word starts; `homes` is below 2**32."""
    return np.int64(((mixed(word) >> np.uint64(32)) * np.uint64(homes)) >> np.uint64(32))


@jit
def _mix_column(keys, first, out):
    for i in range(len(keys)):
        seed = np.uint64(0x9E3779B97F4A7C15) if first else np.uint64(out[i])
        out[i] = np.int64(mixed(seed ^ np.uint64(word_of(keys[i]))))


def combine(keys, out):
    """Fill `out` (int64) with one hash of the columns `keys`, numbers of any type, row by row. O(rows * columns).

    Equal rows have equal hashes, also if one column is int32 here and int64 there; -0.0 equals 0.0. Whoever
    finds equal hashes compares the columns: unequal rows may share one, and NaN has one as well.
    """
    for number, column in enumerate(keys):
        _mix_column(column, number == 0, out)


@inner
def _slots_from(pool, ref, count, bound):
    """How many of the `count` rising slots at pool[ref] are below the bound."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if pool[ref + middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _area(pools, counters, size_class):
    """The place of a free area of 2**size_class slots; -1 if the pool has to grow first."""
    pool, free = pointer(pools), counters[FREE + size_class]
    if free >= 0:
        counters[FREE + size_class] = pool[free]
        return free
    place = counters[POOL_END]
    if place + (1 << size_class) + SLACK > len(pools):
        return -1
    counters[POOL_END] = place + (1 << size_class)
    return place


@inner
def _size_class(size):
    bits = 0
    while (1 << bits) < size:
        bits += 1
    return bits


@inner
def _with_slot(pools, counters, found, slot):
    """What a bucket says after one more tuple, `found` being what it says now; -1 if the pool has to grow first."""
    pool = pointer(pools)
    count, ref = found >> 32, found & 0xFFFFFFFF
    if count == 1:
        area = _area(pools, counters, _size_class(FIRST_AREA))
        if area < 0:
            return -1
        pool[area] = ref
        ref = area
    elif count >= FIRST_AREA and (count & (count - 1)) == 0:
        old_class = _size_class(count)
        area = _area(pools, counters, old_class + 1)
        if area < 0:
            return -1
        for i in range(count):
            pool[area + i] = pool[ref + i]
        # The free list is chained through int32 places: the pool has less than 2**31.
        pool[ref] = counters[FREE + old_class]
        counters[FREE + old_class] = ref
        ref = area
    pool[ref + count] = slot
    return ((count + 1) << 32) | ref


@jit
def insert(keys, slots, begin, tables, homes, most, pools, counters):
    """Add tuples from number `begin` on, of rising slots; how many are in now, or why the rest must wait.

    The table takes `most` distinct keys, which must leave buckets free. On TABLE_FULL, TAIL_FULL (the last
    buckets are taken) and POOL_FULL the caller makes room and goes on from counters[TUPLES]. O(1) a tuple.
    """
    table, last = pointer(tables), len(tables) // 2 - 1
    words, places = stack_array(np.int64(0), BLOCK), stack_array(np.int64(0), BLOCK)
    for block in range(begin, len(keys), BLOCK):
        size = min(BLOCK, len(keys) - block)
        for i in range(size):
            words[i] = word_of(keys[block + i])
            places[i] = home_of(words[i], homes)
        for i in range(size):
            prefetch(table, 2 * places[i])
        for i in range(size):
            slot = slots[block + i]
            if slot <= counters[LAST_SLOT]:
                return FALLING_SLOT
            if keys[block + i] == keys[block + i]:
                word, at = words[i], places[i]
                while table[2 * at + 1] != 0 and table[2 * at] != word:
                    at += 1
                found = table[2 * at + 1]
                if found == 0:
                    if at == last:
                        return TAIL_FULL
                    if counters[DISTINCT] == most:
                        return TABLE_FULL
                    counters[DISTINCT] += 1
                    table[2 * at] = word
                    found = (np.int64(1) << 32) | np.int64(slot)
                else:
                    found = _with_slot(pools, counters, found, slot)
                    if found < 0:
                        return POOL_FULL
                table[2 * at + 1] = found
            counters[LAST_SLOT] = slot
            counters[TUPLES] += 1
    return len(keys)


@jit
def rebuild(old_tables, tables, homes, old_pools, pools):
    """Fill an empty table from another one; False if its last buckets are taken too early.

    Slots are packed into `pools` without gaps, unless it is `old_pools`: then they stay where they are.
    O(buckets of both), from front to end.
    """
    old, table, pool, old_pool = pointer(old_tables), pointer(tables), pointer(pools), pointer(old_pools)
    packed, last, end = len(pools) != len(old_pools), len(tables) // 2 - 1, 0
    table_end = len(tables)
    for i in range(table_end):
        table[i] = 0
    for bucket in range(len(old_tables) // 2):
        word, found = old[2 * bucket], old[2 * bucket + 1]
        if found == 0:
            continue
        at = home_of(word, homes)
        while table[2 * at + 1] != 0:
            at += 1
        if at == last:
            return False
        table[2 * at] = word
        count, ref = found >> 32, found & 0xFFFFFFFF
        if packed and count > 1:
            for i in range(count):
                pool[end + i] = old_pool[ref + i]
            found = (count << 32) | end
            end += count
        table[2 * at + 1] = found
    return True


@inner
def _locate(low, high, begin, size, table, homes, pool, words, found):
    """What the buckets of `size` probes say, 0 without a match; the sum of their counts."""
    for i in range(size):
        words[i] = word_of(low[begin + i])
        found[i] = home_of(words[i], homes)
    for i in range(size):
        prefetch(table, 2 * found[i])
    total = 0
    for i in range(size):
        word, at = words[i], found[i]
        # Two steps without a branch: whether the home is taken by another key can not be predicted.
        at += np.int64((table[2 * at + 1] != 0) & (table[2 * at] != word))
        at += np.int64((table[2 * at + 1] != 0) & (table[2 * at] != word))
        while table[2 * at + 1] != 0 and table[2 * at] != word:
            at += 1
        # Not so for NaN and for empty intervals.
        here = table[2 * at + 1] * np.int64(low[begin + i] == high[begin + i])
        found[i] = here
        many = here >> 32
        prefetch(pool, (here & 0xFFFFFFFF) if many > 1 else 0)
        total += many
    return total


@inner
def _write(probe, here, start, stop, pool, out_probe, out_pos, count):
    """Write the pairs of one probe whose slots are in range; the new count. Overshoots by up to SLACK.

    No branch depends on whether there are no, one or a few slots: that can not be predicted.
    """
    many, ref = here >> 32, here & 0xFFFFFFFF
    place = ref if many > 1 else 0
    first, last = pool[place], pool[place + max(many - 1, 0)]
    first, last = (first, last) if many > 1 else (np.int32(ref), np.int32(ref))
    store(splat(np.int32(probe), LANES), out_probe, count)
    store(load(pool, place, LANES), out_pos, count)
    out_pos[count] = first
    if (many <= LANES) & (start <= first) & (last < stop):
        return count + many
    if many <= 1:
        return count + (many & np.int64(start <= ref) & np.int64(ref < stop))
    begin, end = _slots_from(pool, ref, many, start), _slots_from(pool, ref, many, stop)
    return _copy(probe, ref + begin, end - begin, pool, out_probe, out_pos, count)


@inner
def _copy(probe, ref, many, pool, out_probe, out_pos, count):
    for i in range(0, many, LANES):
        store(splat(np.int32(probe), LANES), out_probe, count + i)
        store(load(pool, ref + i, LANES), out_pos, count + i)
    return count + max(many, 0)


@jit
def is_equality(lows, highs):
    """Whether no interval holds more than one key."""
    for i in range(len(lows)):
        if lows[i] < highs[i]:
            return False
    return True


@jit
def probe(lows, highs, starts, stops, tables, homes, pools, cursor, out_probes, out_positions, count):
    """Write (probe, slot) pairs of equal keys with slots in [start, stop) from `count` on; the new count.

    Needs MIN_ROOM. Returns when the room is used, with the place to go on in `cursor` (zeros at first), or
    when all is done, with DONE there. O(probes + pairs).
    """
    low, high, start, stop = pointer(lows), pointer(highs), pointer(starts), pointer(stops)
    table, pool = pointer(tables), pointer(pools)
    out_probe, out_pos = pointer(out_probes), pointer(out_positions)
    room = min(len(out_probes), len(out_positions)) - SLACK
    words, found = stack_array(np.int64(0), BLOCK), stack_array(np.int64(0), BLOCK)
    begin, skip = cursor[0], cursor[1]
    while begin < len(lows):
        size = min(BLOCK, len(lows) - begin)
        total = _locate(low, high, begin, size, table, homes, pool, words, found)
        if skip == 0 and count + total <= room:
            for i in range(size):
                at = begin + i
                count = _write(at, found[i], start[at], stop[at], pool, out_probe, out_pos, count)
            begin += size
            continue
        # Room may be short: probe by probe, the last one in part.
        for i in range(size):
            at, many, ref = begin + i, found[i] >> 32, found[i] & 0xFFFFFFFF
            if many <= 1:
                if count >= room:
                    cursor[0], cursor[1] = at, 0
                    return count
                count = _write(at, found[i], start[at], stop[at], pool, out_probe, out_pos, count)
                continue
            first = _slots_from(pool, ref, many, start[at]) + skip
            end = _slots_from(pool, ref, many, stop[at])
            if end - first > room - count:
                written = room - count
                cursor[0], cursor[1] = at, skip + written
                return _copy(at, ref + first, written, pool, out_probe, out_pos, count)
            count = _copy(at, ref + first, end - first, pool, out_probe, out_pos, count)
            skip = 0
        begin += size
    cursor[0] = DONE
    return count
