"""The last row of each key in a hash table, so that one merge of two sorted sides answers backward as-of joins.

The table is three arrays of 2^n places: `words` (a key as 64 bits, `tables.word_of`), `times`, and `rows`, which is
FREE where a place is free. A key is at its home place, or at the first free place after it. The caller owns the
memory and keeps half of the places free.
"""

from streamjoin.jit.decorator import inner, jit
from streamjoin.kernels.hash.tables import home_of, word_of

FREE = -1  # in `rows`
EARLIEST = -(2**63)  # time


@inner
def _place_of(words, rows, word):
    """The place of a word, or the free place where it belongs."""
    mask = len(rows) - 1
    place = home_of(word, len(rows))
    while rows[place] != FREE and words[place] != word:
        place = (place + 1) & mask
    return place


@inner
def _put(words, times, rows, key, ts, row):
    """Make this the last row of its key; return the number of places newly used, 0 or 1."""
    word = word_of(key)
    place = _place_of(words, rows, word)
    new = rows[place] == FREE
    words[place], times[place], rows[place] = word, ts, row
    return 1 if new else 0


@jit
def find_last(
    left_ts, left_keys, left_known, right_ts, right_keys, right_known, right_rows, lo, hi, passed,
    words, times, rows, used, most_used, out,
):  # fmt: skip
    """Fill `out` for each left row with the last right row of its key whose time is the left row's plus `lo` to `hi`
    (`hi` is not above 0), or FREE. Takes at least the first `passed` right rows into the table. Both sides are in the
    total order.

    Returns how many left rows it has answered, how many right rows it has taken, and how many places are used. Stops
    early when more than `most_used` places are used: the caller enlarges the table and continues from there. O(left +
    right rows).
    """
    taken = 0
    for i in range(len(left_ts)):
        last = left_ts[i] + hi
        reaches = left_ts[i] >= EARLIEST - hi  # otherwise the sum has wrapped, because no times are so early
        while reaches and taken < len(right_ts) and right_ts[taken] <= last:
            if used >= most_used:
                return i, taken, used
            key = right_keys[taken]
            if right_known[taken] and key == key:
                used += _put(words, times, rows, key, right_ts[taken], right_rows[taken])
            taken += 1
        out[i] = FREE
        key = left_keys[i]
        if left_known[i] and key == key:
            place = _place_of(words, rows, word_of(key))
            # The difference of times that are further apart than 64 bits wraps to a negative number.
            if rows[place] != FREE:
                apart = times[place] - left_ts[i]
                if apart <= hi and apart >= lo:
                    out[i] = rows[place]
    while taken < passed:
        if used >= most_used:
            break
        key = right_keys[taken]
        if right_known[taken] and key == key:
            used += _put(words, times, rows, key, right_ts[taken], right_rows[taken])
        taken += 1
    return len(left_ts), taken, used


@jit
def move_rows(words, times, rows, oldest, new_words, new_times, new_rows):
    """Move the rows from the time `oldest` on into an empty table; return their number. O(places)."""
    count = 0
    for place in range(len(rows)):
        if rows[place] != FREE and times[place] >= oldest:
            to = _place_of(new_words, new_rows, words[place])
            new_words[to], new_times[to], new_rows[to] = words[place], times[place], rows[place]
            count += 1
    return count
