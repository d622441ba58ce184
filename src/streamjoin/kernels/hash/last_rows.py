"""The last row of each key in a hash table, so that one merge of two sorted sides answers backward as-of joins.

A table has 2^n places with one key each. The columns of a place are WORDS (the key as 64 bits, `tables.word_of`), TIMES
and ROWS (the key's last row; ROWS is FREE where the place is free), EARLIER (the place in `earlier` of the row before),
and BEGINS and ENDS (the key's bytes in `arena`). Keys have no bytes where equal words prove that keys are equal. A key
is at its home place, or at the first free place after it.

`earlier` holds rows that a later row of their key has replaced and that a later left row may still need, from the
oldest to the newest. Its columns are PAST_TIMES, PAST_ROWS, REPLACED (the time of the row that replaced this one),
BEFORE (the place of the key's row before this one, or NONE), JUMP and DEPTH. JUMP skips rows as in a skew-binary list
(Myers 1983), so that the last row not after a time is found in O(log rows of the key).

The caller owns the memory. It keeps half of the places free, and provides room for what one row may need.
"""

import numpy as np

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.hash import last_rows_forms as forms
from streamjoin.kernels.hash.last_rows_forms import (
    BEFORE,
    BEGINS,
    BYTES_USED,
    DEPTH,
    EARLIER,
    EARLIEST,
    ENDS,
    FREE,
    JUMP,
    KEYS_FROM,
    NONE,
    PAST_ROWS,
    PAST_TIMES,
    PAST_USED,
    PLACES_USED,
    REPLACED,
    ROWS,
    TIMES,
    WORDS,
)
from streamjoin.kernels.hash.tables import home_of, word_of


@inner
def _add_key(table, place, word, arena, used, source, begin, end):
    """Give a key a free place, and keep its bytes."""
    at = used[BYTES_USED]
    if source is not None:
        for j in range(end - begin):
            arena[at + j] = source[begin + j]
    table[place, WORDS], table[place, EARLIER] = word, NONE
    table[place, BEGINS], table[place, ENDS] = at, at + end - begin
    used[BYTES_USED] += end - begin
    used[KEYS_FROM + used[PLACES_USED]] = place
    used[PLACES_USED] += 1


@inner
def _place_for(table, word):
    """A free place for a key that has none."""
    mask = len(table) - 1
    place = home_of(word, len(table))
    while table[place, ROWS] != FREE:
        place = (place + 1) & mask
    return place


@inner
def _append_past(earlier, used, ts, row, replaced, before):
    """Add a replaced row after all others; its place."""
    at = used[PAST_USED]
    used[PAST_USED] = at + 1
    jump, depth = NONE, 1
    if before != NONE:
        jump, depth = before, earlier[before, DEPTH] + 1
        far = earlier[before, JUMP]
        if far != NONE:
            farther = earlier[far, JUMP]
            far_depth = earlier[far, DEPTH]
            if farther != NONE and earlier[before, DEPTH] - far_depth == far_depth - earlier[farther, DEPTH]:
                jump = farther
    earlier[at, PAST_TIMES], earlier[at, PAST_ROWS], earlier[at, REPLACED] = ts, row, replaced
    earlier[at, BEFORE], earlier[at, JUMP], earlier[at, DEPTH] = before, jump, depth
    return at


@inner
def _last_before(earlier, at, last):
    """The newest of the rows from `at` back that is not after the time `last`, and its time; FREE if there is none."""
    while at != NONE and earlier[at, PAST_TIMES] > last:
        jump = earlier[at, JUMP]
        if jump != NONE and earlier[jump, PAST_TIMES] > last:
            at = jump
        else:
            at = earlier[at, BEFORE]
    if at == NONE:
        return FREE, last
    return earlier[at, PAST_ROWS], earlier[at, PAST_TIMES]


@jit(fallback=forms.found_last)
def find_last(left, right, right_rows, source, lo, hi, passed, needed, table, arena, earlier, used, out):
    """Fill `out` for each left row with the last right row of its key whose time is the left row's plus `lo` to `hi`
    (`hi` is not above 0), or FREE. Takes at least the first `passed` right rows into the table. Both sides are in the
    total order, and given by times, keys, whether each key is known, and where the key's bytes begin and end in
    `source`. If `source` is None, equal words prove that keys are equal. Later left rows need no right row that another
    one of its key has replaced up to the time `needed`.

    Returns how many left rows it has answered and how many right rows it has taken. Stops early when a row might find
    no room: the caller makes some and continues from there. O(left + right rows), and O(log rows of a key) more for a
    left row that comes after later ones.

    The search for a place is written out here, once for both sides, because a call counts references to its arrays.
    """
    left_ts, left_keys, left_known, left_begins, left_ends = left
    right_ts, right_keys, right_known, right_begins, right_ends = right
    answered, taken, count, mask = 0, 0, len(left_ts), len(table) - 1
    begin = end = 0
    while True:
        if answered < count:
            until = left_ts[answered] + hi
            reaches = (
                left_ts[answered] >= EARLIEST - hi
            )  # otherwise the sum has wrapped, as no times are so early
            takes = reaches and taken < len(right_ts) and right_ts[taken] <= until
        else:
            reaches, takes = True, taken < passed
        if takes:
            ts, key, known = right_ts[taken], right_keys[taken], right_known[taken]
            if source is not None:  # decided when the kernel is compiled, so this costs no branch
                begin, end = right_begins[taken], right_ends[taken]
            if 2 * used[PLACES_USED] > mask or used[PAST_USED] >= len(earlier):
                break
            if source is not None and used[BYTES_USED] + end - begin > len(arena):
                break
        elif answered < count:
            ts, key, known = left_ts[answered], left_keys[answered], left_known[answered] and reaches
            if source is not None:
                begin, end = left_begins[answered], left_ends[answered]
        else:
            break
        word, place, found = word_of(key), 0, FREE
        if known and key == key:
            place = home_of(word, len(table))
            while table[place, ROWS] != FREE:
                if table[place, WORDS] == word:
                    if source is None:
                        break
                    at, size = table[place, BEGINS], end - begin
                    same = table[place, ENDS] - at == size
                    for j in range(size if same else 0):
                        same = same and arena[at + j] == source[begin + j]
                    if same:
                        break
                place = (place + 1) & mask
            found = table[place, ROWS]
        elif takes:
            taken += 1
            continue
        if takes:
            if found == FREE:
                _add_key(table, place, word, arena, used, source, begin, end)
            elif ts > needed:
                before = table[place, EARLIER]
                table[place, EARLIER] = _append_past(earlier, used, table[place, TIMES], found, ts, before)
            else:
                table[place, EARLIER] = NONE
            table[place, TIMES], table[place, ROWS] = ts, right_rows[taken]
            taken += 1
            continue
        if found != FREE:
            time = table[place, TIMES]
            if time > until:
                found, time = _last_before(earlier, table[place, EARLIER], until)
            # The difference of times that are further apart than 64 bits wraps to a positive number.
            if time - ts < lo or time - ts > hi:
                found = FREE
        out[answered] = found
        answered += 1
    return answered, taken


@jit(fallback=forms.counted_needed)
def count_needed(table, earlier, used, needed, oldest):
    """How many last rows are from the time `oldest` on, and how many earlier rows, of those also replaced after the
    time `needed`; and the least of their numbers. O(rows)."""
    count, least = 0, np.int64(2**63 - 1)
    for place in used[KEYS_FROM : KEYS_FROM + used[PLACES_USED]]:
        if table[place, TIMES] >= oldest:
            count, least = count + 1, min(least, table[place, ROWS])
    for at in range(used[PAST_USED]):
        if earlier[at, REPLACED] > needed and earlier[at, PAST_TIMES] >= oldest:
            count, least = count + 1, min(least, earlier[at, PAST_ROWS])
    return count, least


@jit(fallback=forms.moved_earlier)
def move_earlier(earlier, count, needed, oldest, to, used, places):
    """Copy the first `count` rows to empty arrays, but for those that no left row needs: from before the time `oldest`,
    or replaced up to the time `needed`. Fills `places` with where each is now, or NONE. O(rows)."""
    for at in range(count):
        places[at] = NONE
        if earlier[at, REPLACED] > needed and earlier[at, PAST_TIMES] >= oldest:
            before = earlier[at, BEFORE]
            places[at] = _append_past(
                to, used, earlier[at, PAST_TIMES], earlier[at, PAST_ROWS], earlier[at, REPLACED],
                NONE if before == NONE else places[before],
            )  # fmt: skip


@jit(fallback=forms.moved_last)
def move_last(table, arena, live, places, to, to_arena, used):
    """Move the rows at the places `live` into an empty table, and the bytes of their keys. `places`: where their
    earlier rows are now. O(rows)."""
    for place in live:
        word, before = table[place, WORDS], table[place, EARLIER]
        new = _place_for(to, word)
        _add_key(to, new, word, to_arena, used, arena, table[place, BEGINS], table[place, ENDS])
        to[new, TIMES], to[new, ROWS] = table[place, TIMES], table[place, ROWS]
        to[new, EARLIER] = NONE if before == NONE else places[before]


@jit(fallback=forms.added_widths)
def add_widths(ends, widths):
    """Add the sizes of values to the ends of rows' keys: ends[i] += widths[0] + ... + widths[i - 1]."""
    total = 0
    for i in range(len(widths)):
        total += widths[i]
        ends[i + 1] += total


@jit(fallback=forms.appended_text)
def append_text(value_ends, values, at, out):
    """Write the size and the bytes of each value to `out` from at[i] on, and move at[i] behind them."""
    for i in range(len(at)):
        size = value_ends[i + 1] - value_ends[i]
        for j in range(8):
            out[at[i] + j] = np.uint8((size >> (8 * j)) & 255)
        for j in range(size):
            out[at[i] + 8 + j] = values[value_ends[i] + j]
        at[i] += 8 + size


@jit(fallback=forms.appended_words)
def append_words(keys, at, out):
    """Write each key as 64 bits to `out` from at[i] on, and move at[i] behind it."""
    for i in range(len(at)):
        word = word_of(keys[i])
        for j in range(8):
            out[at[i] + j] = np.uint8((word >> (8 * j)) & 255)
        at[i] += 8
