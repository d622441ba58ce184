"""Hash tables of window tuples: open addressing over distinct keys, with the tuples of one key side by side.

A *table* consists of lines of 64 bytes with four buckets each: first the words of four keys, then an entry for each,
`count << 32 | ref`, 0 if the bucket is free. If the key has one tuple, `ref` is its slot. If it has more, `ref` is
where their ascending slots begin in the *pool*. They are in an area of a power of two places, and move to one of
twice the size when it is full, so that a probe always reads consecutive memory. Areas left behind are chained by size
and reused.

A key's home is the line to which its hash scales; the key goes to the first free bucket from there on. Scaling keeps
the order of hashes, so a rebuild reads and writes both tables from front to end. The last line always has a free
bucket, so searches stop there without a check.

To hide memory latency, kernels hash a block of keys first, and prefetch lines some keys ahead of their use. They do
not branch on which bucket a key has, or on whether it has no, one or few tuples: such branches cannot be predicted,
and a misprediction costs as much as the rest of the work.
"""

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.hash import last_rows_forms
from streamjoin.kernels.scan import vector
from streamjoin.kernels.scan.vector import (
    load_vector,
    pointer,
    pointer_at,
    prefetch,
    splat,
    stack_array,
    store_vector,
    trailing_zeros,
)

WAYS = 4  # buckets in a line
LINE_WORDS = 2 * WAYS  # int64 words in a line
KEYS_PER_BLOCK = 256  # keys hashed together
FETCH_AHEAD = 32  # this many keys ahead, their lines are prefetched
HOMES_SIZE = 288  # KEYS_PER_BLOCK + FETCH_AHEAD; Numba requires a literal
SLOTS_PER_COPY = 8  # slots copied by one instruction
COPY_OVERSHOOT = SLOTS_PER_COPY  # a copy may write this far beyond its end, in the pool and in the output
MIN_TABLE_ROOM = KEYS_PER_BLOCK + COPY_OVERSHOOT  # room for the pairs of a block of keys with one tuple each
FIRST_CLASS = 2  # a key's second to fourth slots are in an area of 2**2 places

# The counters of a table, an int64 array: distinct keys, tuples taken, the last slot, places of the pool in use, and
# for each size the first area left behind, or -1.
DISTINCT_KEYS, TUPLE_COUNT, LAST_SLOT, POOL_END, LEFT_BEHIND = 0, 1, 2, 3, 4
COUNTER_WORDS = LEFT_BEHIND + 32
# A table as a row of an array of several: the addresses of table and pool, the lines, the number of the row at slot 0.
PART_TABLE, PART_POOL, PART_LINES, PART_FIRST = range(4)
PART_WORDS = 4
CURRENT_PART = 2  # the word of a cursor with the table that was being probed
# The reasons why `insert` stopped.
TABLE_FULL, TAIL_FULL, POOL_FULL, FALLING_SLOT = -1, -2, -3, -4


def inline(function):
    """As `inner`, for functions called for every tuple, where a call would cost as much as the work."""
    return jit(function, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)


@intrinsic
def word_of(typing_context, key):
    """A number as int64, the same for equal numbers of one kind: floats as the bits of float64, both zeros as
    +0.0."""
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


@inline
def mixed(word):
    """A bijection of uint64 in which every bit of the word affects every bit of the result."""
    state = np.uint64(word)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0xD6E8FEB86659FD93)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0xD6E8FEB86659FD93)
    return state ^ (state >> np.uint64(32))


@inline
def home_of(word, lines):
    """The line where the search for a word starts; less than `lines`, which is less than 2**32."""
    return np.int64(((mixed(word) >> np.uint64(32)) * np.uint64(lines)) >> np.uint64(32))


@jit(fallback=last_rows_forms.mixed_column)
def _mix_column(keys, first, out):
    for i in range(len(keys)):
        seed = np.uint64(0x9E3779B97F4A7C15) if first else np.uint64(out[i])
        out[i] = np.int64(mixed(seed ^ np.uint64(word_of(keys[i]))))


def combine(keys, out):
    """Fill `out` (int64) with a hash of each row of the columns `keys`, numbers of any type. O(rows * columns).

    Equal rows have equal hashes, even if a column is int32 on one side and int64 on the other; -0.0 equals 0.0. After
    equal hashes the caller must compare the columns, because unequal rows may share a hash, and NaNs have hashes too.
    """
    for number, column in enumerate(keys):
        _mix_column(column, number == 0, out)


@inline
def _equal(vectors, others):
    return vector.at_most_unsigned(vector.wrapping_sub(vectors, others), splat(np.int64(0), WAYS))


@inline
def _search(table, line, word):
    """The place of a word's entry, or of the free bucket where it belongs."""
    while True:
        equal = _equal(load_vector(table, line * LINE_WORDS, WAYS), splat(word, WAYS))
        free = _equal(load_vector(table, line * LINE_WORDS + WAYS, WAYS), splat(np.int64(0), WAYS))
        bits = vector.word(vector.either(equal, free))
        if bits != 0:
            return line * LINE_WORDS + WAYS + trailing_zeros(bits)
        line += 1


@inner
def _new_area(pools, counters, size_class):
    """The place of a free area of 2**size_class slots; -1 if the pool must grow first."""
    place = counters[LEFT_BEHIND + size_class]
    if place >= 0:
        counters[LEFT_BEHIND + size_class] = pools[place]
        return place
    place = counters[POOL_END]
    if place + (1 << size_class) + COPY_OVERSHOOT > len(pools):
        return -1
    counters[POOL_END] = place + (1 << size_class)
    return place


@inner
def _with_slot(pools, counters, said, slot):
    """The entry of a key after one more tuple; -1 if the pool must grow first."""
    count, ref = said >> 32, said & 0xFFFFFFFF
    if count == 1:
        area = _new_area(pools, counters, FIRST_CLASS)
        if area < 0:
            return -1
        pools[area] = ref
        ref = area
    elif count >= (1 << FIRST_CLASS) and (count & (count - 1)) == 0:
        full = trailing_zeros(np.uint64(count))
        area = _new_area(pools, counters, full + 1)
        if area < 0:
            return -1
        for i in range(count):
            pools[area + i] = pools[ref + i]
        pools[ref] = counters[LEFT_BEHIND + full]
        counters[LEFT_BEHIND + full] = ref
        ref = area
    pools[ref + count] = slot
    return ((count + 1) << 32) | ref


@inner
def _rising(slots, last):
    falls = np.int64(len(slots) > 0 and slots[0] <= last)
    for i in range(1, len(slots)):
        falls |= np.int64(slots[i] <= slots[i - 1])
    return falls == 0


@jit
def insert_in_table(keys, slots, begin, tables, lines, most, pools, counters):
    """Add tuples from number `begin` on, with ascending slots. Return how many are in the table, or the reason why
    the rest must wait.

    On TABLE_FULL (there are `most` distinct keys), TAIL_FULL (the last line is reached) and POOL_FULL the caller
    makes room and continues at counters[TUPLE_COUNT]. FALLING_SLOT: no tuple was taken. O(1) a tuple.
    """
    if begin == 0 and not _rising(slots, counters[LAST_SLOT]):
        return FALLING_SLOT
    table, last = pointer(tables), len(tables) - LINE_WORDS
    words, homes = stack_array(np.int64(0), KEYS_PER_BLOCK), stack_array(np.int64(0), HOMES_SIZE)
    for i in range(HOMES_SIZE):
        homes[i] = 0
    for block in range(begin, len(keys), KEYS_PER_BLOCK):
        size = min(KEYS_PER_BLOCK, len(keys) - block)
        for i in range(size):
            words[i] = word_of(keys[block + i])
            homes[i] = home_of(words[i], lines)
        for i in range(FETCH_AHEAD):
            prefetch(table, LINE_WORDS * homes[i])
        for i in range(size):
            prefetch(table, LINE_WORDS * homes[i + FETCH_AHEAD])
            slot = slots[block + i]
            if keys[block + i] == keys[block + i]:  # a NaN counts, but no probe finds it
                at = _search(table, homes[i], words[i])
                said = table[at]
                if said != 0:
                    said = _with_slot(pools, counters, said, slot)
                    if said < 0:
                        return POOL_FULL
                else:
                    if at >= last:
                        return TAIL_FULL
                    if counters[DISTINCT_KEYS] >= most:
                        return TABLE_FULL
                    counters[DISTINCT_KEYS] += 1
                    table[at - WAYS] = words[i]
                    said = (np.int64(1) << 32) | np.int64(slot)
                table[at] = said
            counters[LAST_SLOT] = slot
            counters[TUPLE_COUNT] += 1
    return len(keys)


@jit
def pooled(tables):
    """How many slots the pool of a table holds, without gaps and areas left behind. O(buckets)."""
    total = 0
    for line in range(0, len(tables), LINE_WORDS):
        for place in range(line + WAYS, line + LINE_WORDS):
            count = tables[place] >> 32
            total += count if count > 1 else 0
    return total


@jit
def rebuild(old_tables, old_pools, tables, lines, pools, packed):
    """Fill another table, of `lines` homes, from an old one. Return False if its last line is reached.

    `packed`: slots are copied to `pools` without gaps; otherwise they stay where they are. O(buckets of both +
    slots), from front to end.
    """
    old, table, last, end = pointer(old_tables), pointer(tables), len(tables) - LINE_WORDS, 0
    for i in range(len(tables)):
        table[i] = 0
    for line in range(0, len(old_tables), LINE_WORDS):
        for place in range(line, line + WAYS):
            word, said = old[place], old[place + WAYS]
            if said == 0:
                break
            at = _search(table, home_of(word, lines), word)
            if at >= last:
                return False
            count, ref = said >> 32, said & 0xFFFFFFFF
            if packed and count > 1:
                for i in range(count):
                    pools[end + i] = old_pools[ref + i]
                said = (count << 32) | end
                end += count
            table[at - WAYS] = word
            table[at] = said
    return True


@jit
def all_equalities(lows, highs):
    """Whether no interval has room for two different keys."""
    wide = 0
    for i in range(len(lows)):
        wide |= np.int64(lows[i] < highs[i])
    return wide == 0


@inline
def _locate(low, high, begin, size, table, lines, pool, words, found):
    """Find the entries of the keys of `size` probes, 0 without a match; return the sum of their counts."""
    for i in range(size):
        words[i] = word_of(low[begin + i])
        found[i] = home_of(words[i], lines)
    for i in range(FETCH_AHEAD):
        prefetch(table, LINE_WORDS * found[i])
    total = 0
    for i in range(size):
        prefetch(table, LINE_WORDS * found[i + FETCH_AHEAD])
        # False for NaN and for the ends of empty intervals.
        equal = np.int64(low[begin + i] == high[begin + i])
        said = table[_search(table, found[i], words[i])] * equal
        many = said >> 32
        prefetch(pool, (said & 0xFFFFFFFF) if many > 1 else 0)
        found[i] = said
        total += many
    return total


@inner
def _below(pool, ref, count, bound):
    """How many of the `count` ascending slots from pool[ref] on are below the bound."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if pool[ref + middle] < bound:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _copy(probe, ref, many, base, pool, out_probe, out_pos, count):
    """Write `many` pairs, none if it is negative; return the new count. Overshoots by less than COPY_OVERSHOOT."""
    zero = splat(np.int32(-base), SLOTS_PER_COPY)
    for i in range(0, many, SLOTS_PER_COPY):
        store_vector(splat(np.int32(probe), SLOTS_PER_COPY), out_probe, count + i)
        slots = load_vector(pool, ref + i, SLOTS_PER_COPY)
        store_vector(vector.wrapping_sub(slots, zero), out_pos, count + i)
    return count + max(many, 0)


@inner
def _write_some(probe, said, start, stop, base, pool, out_probe, out_pos, count):
    """As `_write`, for many slots, or for slots that may be out of range."""
    many, ref = said >> 32, said & 0xFFFFFFFF
    if many <= 1:
        return count + (many & np.int64(start <= ref) & np.int64(ref < stop))
    begin, end = _below(pool, ref, many, start), _below(pool, ref, many, stop)
    return _copy(probe, ref + begin, end - begin, base, pool, out_probe, out_pos, count)


@inline
def _write(probe, said, start, stop, base, pool, out_probe, out_pos, count):
    """Write the pairs of one probe with slots in [start, stop); return the new count. Slot 0 has position `base`.
    Overshoots by up to COPY_OVERSHOOT."""
    many, ref = said >> 32, said & 0xFFFFFFFF
    several = -np.int64(many > 1)  # a mask of all bits or none
    place = ref & several
    first = (pool[place] & several) | (ref & ~several)
    last = (pool[place + ((many - 1) & several)] & several) | (ref & ~several)
    store_vector(splat(np.int32(probe), SLOTS_PER_COPY), out_probe, count)
    slots, zero = load_vector(pool, place, SLOTS_PER_COPY), splat(np.int32(-base), SLOTS_PER_COPY)
    store_vector(vector.wrapping_sub(slots, zero), out_pos, count)
    out_pos[count] = np.int32(first + base)
    if (many <= SLOTS_PER_COPY) & (start <= first) & (last < stop):
        return count + many
    return _write_some(probe, said, start, stop, base, pool, out_probe, out_pos, count)


@inner
def _probe_one(n, low, high, start, stop, table, lines, pool, base, cursor, out_probe, out_pos, room, count):
    """As `probe_table`, by pointers; slot 0 has position `base`, and so start and stop are positions."""
    words, found = stack_array(np.int64(0), KEYS_PER_BLOCK), stack_array(np.int64(0), HOMES_SIZE)
    for i in range(HOMES_SIZE):
        found[i] = 0
    begin, skip = cursor[0], cursor[1]
    while begin < n:
        size = min(KEYS_PER_BLOCK, n - begin)
        total = _locate(low, high, begin, size, table, lines, pool, words, found)
        if skip == 0 and count + total <= room:
            for i in range(begin, begin + size):
                first, end = start[i] - base, stop[i] - base
                count = _write(i, found[i - begin], first, end, base, pool, out_probe, out_pos, count)
            begin += size
            continue
        # Room may be short: write probe by probe, and possibly only part of the last one.
        for i in range(begin, begin + size):
            many, ref = found[i - begin] >> 32, found[i - begin] & 0xFFFFFFFF
            if many <= 1:
                if count == room:
                    cursor[0], cursor[1] = i, 0
                    return count
                out_probe[count], out_pos[count] = np.int32(i), np.int32(ref + base)
                count += many & np.int64(start[i] - base <= ref) & np.int64(ref < stop[i] - base)
                continue
            first = _below(pool, ref, many, start[i] - base) + skip
            left = _below(pool, ref, many, stop[i] - base) - first
            if left > room - count:
                cursor[0], cursor[1] = i, skip + room - count
                return _copy(i, ref + first, room - count, base, pool, out_probe, out_pos, count)
            count = _copy(i, ref + first, left, base, pool, out_probe, out_pos, count)
            skip = 0
        begin += size
    cursor[0] = DONE
    return count


@jit
def probe_table(lows, highs, starts, stops, tables, lines, pools, cursor, out_probes, out_positions, count):
    """Write (probe, slot) pairs of equal keys with slots in [start, stop) from `count` on; return the new count.

    Needs MIN_TABLE_ROOM. Returns when the room is used up, with the place to continue in `cursor` (zeros at first),
    or when it has written all pairs, with DONE in it. O(probes + pairs).
    """
    room = min(len(out_probes), len(out_positions)) - COPY_OVERSHOOT
    probes = len(lows), pointer(lows), pointer(highs), pointer(starts), pointer(stops)
    out = pointer(out_probes), pointer(out_positions)
    return _probe_one(*probes, pointer(tables), lines, pointer(pools), 0, cursor, *out, room, count)


@jit
def probe_all_tables(parts, gone, lows, highs, starts, stops, cursor, out_probes, out_positions, count):
    """As `probe_table`, for one table after the other, and for positions instead of slots.

    parts   int64[number of tables, PART_WORDS]; the caller keeps the memory alive that it has addresses of. A tuple's
            position is its slot + PART_FIRST - gone
    """
    room = min(len(out_probes), len(out_positions)) - COPY_OVERSHOOT
    probes = len(lows), pointer(lows), pointer(highs), pointer(starts), pointer(stops)
    out = pointer(out_probes), pointer(out_positions)
    while cursor[CURRENT_PART] < len(parts):
        part = parts[cursor[CURRENT_PART]]
        table, pool = pointer_at(part[PART_TABLE], parts), pointer_at(part[PART_POOL], out_positions)
        count = _probe_one(
            *probes, table, part[PART_LINES], pool, part[PART_FIRST] - gone, cursor, *out, room, count
        )
        if cursor[0] != DONE:
            return count
        cursor[0], cursor[1] = 0, 0
        cursor[CURRENT_PART] += 1
    cursor[0] = DONE
    return count
