"""NumPy forms of the kernels of last_rows.py, and the layout of the memory that both use, so that either can continue
where the other stopped. A row costs some microseconds here."""

from __future__ import annotations

import numpy as np

FREE = -1  # in ROWS
NONE = -1  # in EARLIER, BEFORE and JUMP
EARLIEST = -(2**63)  # time
WORDS, TIMES, ROWS, EARLIER, BEGINS, ENDS = range(6)  # of a table
PAST_TIMES, PAST_ROWS, REPLACED, BEFORE, JUMP, DEPTH = range(6)  # of `earlier`
COLUMNS = 6  # of a table, and of `earlier`
PLACES_USED, BYTES_USED, PAST_USED = range(3)  # of `used`,
KEYS_FROM = 3  # from where it has the places of the keys, in the order they came

# Of a side: times, keys, which keys are known, and where their bytes begin and end.
Rows = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def words(keys: np.ndarray) -> np.ndarray:
    """`tables.word_of` of each key."""
    if keys.dtype.kind == "f":
        return (keys.astype(np.float64) + 0.0).view(np.int64)
    return keys.astype(np.int64)


def mixed_words(numbers: np.ndarray) -> np.ndarray:
    """`tables.mixed` of each uint64."""
    shift, factor = np.uint64(32), np.uint64(0xD6E8FEB86659FD93)
    state = numbers ^ (numbers >> shift)
    state = state * factor
    state = (state ^ (state >> shift)) * factor
    mixed: np.ndarray = state ^ (state >> shift)
    return mixed


def mixed_column(keys: np.ndarray, first: bool, out: np.ndarray) -> None:
    seed = np.uint64(0x9E3779B97F4A7C15) if first else out.view(np.uint64)
    out[:] = mixed_words(seed ^ words(keys).view(np.uint64)).view(np.int64)


def homes(keys: np.ndarray, places: int) -> list[int]:
    """`tables.home_of` of each word."""
    shift = np.uint64(32)
    found: list[int] = (((mixed_words(keys.view(np.uint64)) >> shift) * np.uint64(places)) >> shift).tolist()
    return found


class _Side:
    """Rows of one side as Python numbers."""

    def __init__(self, rows: Rows, places: int):
        ts, keys, known, begins, ends = rows
        self.ts, self.words, self.begins, self.ends = ts.tolist(), words(keys), begins.tolist(), ends.tolist()
        self.known = (known & (keys == keys)).tolist()
        self.homes = homes(self.words, places)
        self.words = self.words.tolist()


class _Table:
    """The arrays of the kernels, a row at a time."""

    def __init__(
        self,
        table: np.ndarray,
        arena: np.ndarray,
        earlier: np.ndarray,
        used: np.ndarray,
        source: np.ndarray | None,
    ):
        self.table, self.arena, self.earlier, self.used, self.source = table, arena, earlier, used, source

    def place_of(self, side: _Side, i: int) -> int:
        """The place of a row's key, or the free one that it would get."""
        table, place, word = self.table, side.homes[i], side.words[i]
        while table[place, ROWS] != FREE:
            if table[place, WORDS] == word and (self.source is None or self._has(place, side, i)):
                break
            place = (place + 1) & (len(table) - 1)
        return place

    def _has(self, place: int, side: _Side, i: int) -> bool:
        """Whether the key at a place has the bytes of this row's."""
        assert self.source is not None
        held = self.arena[self.table[place, BEGINS] : self.table[place, ENDS]]
        return held.tobytes() == self.source[side.begins[i] : side.ends[i]].tobytes()

    def has_room(self, side: _Side, i: int) -> bool:
        """Whether there is room for whatever this right row may need."""
        used, more = self.used, side.ends[i] - side.begins[i] if self.source is not None else 0
        full = 2 * used[PLACES_USED] >= len(self.table) or used[PAST_USED] >= len(self.earlier)
        return not full and bool(used[BYTES_USED] + more <= len(self.arena) or self.source is None)

    def take(self, side: _Side, i: int, row: int, needed: int) -> None:
        """Make a right row the last one of its key."""
        place, ts, table = self.place_of(side, i), side.ts[i], self.table
        if table[place, ROWS] == FREE:
            source, span = self.source, (side.begins[i], side.ends[i]) if self.source is not None else (0, 0)
            add_key(table, place, side.words[i], self.arena, self.used, source, *span)
        elif ts > needed:
            time, last, before = (int(table[place, column]) for column in (TIMES, ROWS, EARLIER))
            table[place, EARLIER] = append_past(self.earlier, self.used, time, last, ts, before)
        else:
            table[place, EARLIER] = NONE
        table[place, TIMES], table[place, ROWS] = ts, row

    def answer(self, side: _Side, i: int, lo: int, hi: int) -> int:
        """The right row that a left row gets."""
        place, ts = self.place_of(side, i), side.ts[i]
        found, time = int(self.table[place, ROWS]), int(self.table[place, TIMES])
        if found != FREE and time > ts + hi:
            found, time = self._last_before(int(self.table[place, EARLIER]), ts + hi)
        return found if found != FREE and lo <= time - ts <= hi else FREE

    def _last_before(self, at: int, last: int) -> tuple[int, int]:
        earlier = self.earlier
        while at != NONE and earlier[at, PAST_TIMES] > last:
            jump = int(earlier[at, JUMP])
            at = jump if jump != NONE and earlier[jump, PAST_TIMES] > last else int(earlier[at, BEFORE])
        return (FREE, last) if at == NONE else (int(earlier[at, PAST_ROWS]), int(earlier[at, PAST_TIMES]))


def add_key(
    table: np.ndarray, place: int, word: int, arena: np.ndarray, used: np.ndarray, source: np.ndarray | None,
    begin: int, end: int,
) -> None:  # fmt: skip
    at, size = int(used[BYTES_USED]), end - begin
    if source is not None:
        arena[at : at + size] = source[begin:end]
    table[place, WORDS], table[place, EARLIER] = word, NONE
    table[place, BEGINS], table[place, ENDS] = at, at + size
    used[BYTES_USED] += size
    used[KEYS_FROM + used[PLACES_USED]] = place
    used[PLACES_USED] += 1


def append_past(earlier: np.ndarray, used: np.ndarray, ts: int, row: int, replaced: int, before: int) -> int:
    at = int(used[PAST_USED])
    used[PAST_USED] = at + 1
    jump, depth = NONE, 1
    if before != NONE:
        jump, depth = before, int(earlier[before, DEPTH]) + 1
        far = int(earlier[before, JUMP])
        farther = NONE if far == NONE else int(earlier[far, JUMP])
        if (
            farther != NONE
            and depth - 1 - earlier[far, DEPTH] == earlier[far, DEPTH] - earlier[farther, DEPTH]
        ):
            jump = farther
    earlier[at] = ts, row, replaced, before, jump, depth
    return at


def found_last(
    left: Rows, right: Rows, right_rows: np.ndarray, source: np.ndarray | None, lo: int, hi: int, passed: int,
    needed: int, table: np.ndarray, arena: np.ndarray, earlier: np.ndarray, used: np.ndarray, out: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    rows = _Table(table, arena, earlier, used, source)
    lefts, rights = _Side(left, len(table)), _Side(right, len(table))
    answered, taken, count, ends = 0, 0, len(lefts.ts), len(rights.ts)
    while answered < count or taken < passed:
        if answered < count:
            until = lefts.ts[answered] + hi
            takes = taken < ends and rights.ts[taken] <= until
        else:
            takes = True
        if not takes:
            out[answered] = rows.answer(lefts, answered, lo, hi) if lefts.known[answered] else FREE
            answered += 1
            continue
        if not rows.has_room(rights, taken):
            break
        if rights.known[taken]:
            rows.take(rights, taken, int(right_rows[taken]), needed)
        taken += 1
    return answered, taken


def counted_needed(
    table: np.ndarray, earlier: np.ndarray, used: np.ndarray, needed: int, oldest: int
) -> tuple[int, int]:
    last, past = table[used[KEYS_FROM : KEYS_FROM + used[PLACES_USED]]], earlier[: used[PAST_USED]]
    rows = np.concatenate([
        last[last[:, TIMES] >= oldest, ROWS],
        past[(past[:, REPLACED] > needed) & (past[:, PAST_TIMES] >= oldest), PAST_ROWS],
    ])  # fmt: skip
    return len(rows), int(rows.min(initial=2**63 - 1))


def moved_earlier(
    earlier: np.ndarray,
    count: int,
    needed: int,
    oldest: int,
    to: np.ndarray,
    used: np.ndarray,
    places: np.ndarray,
) -> None:
    for at in range(count):
        time, row, replaced, before = earlier[at, :JUMP].tolist()
        places[at] = NONE
        if replaced > needed and time >= oldest:
            before = NONE if before == NONE else int(places[before])
            places[at] = append_past(to, used, time, row, replaced, before)


def moved_last(
    table: np.ndarray, arena: np.ndarray, live: np.ndarray, places: np.ndarray, to: np.ndarray, to_arena: np.ndarray,
    used: np.ndarray,
) -> None:  # fmt: skip
    for place, home in zip(live.tolist(), homes(table[live, WORDS], len(to)), strict=True):
        word, time, row, before, begin, end = table[place].tolist()
        new = home
        while to[new, ROWS] != FREE:
            new = (new + 1) & (len(to) - 1)
        add_key(to, new, word, to_arena, used, arena, begin, end)
        to[new, TIMES], to[new, ROWS] = time, row
        to[new, EARLIER] = NONE if before == NONE else places[before]


def added_widths(ends: np.ndarray, widths: np.ndarray) -> None:
    ends[1:] += np.cumsum(widths)


def appended_text(value_ends: np.ndarray, values: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    sizes = np.diff(value_ends[: len(at) + 1])
    appended_words(sizes.astype(np.int64), at, out)
    for i, size in enumerate(sizes.tolist()):
        out[at[i] : at[i] + size] = values[value_ends[i] : value_ends[i] + size]
    at += sizes


def appended_words(keys: np.ndarray, at: np.ndarray, out: np.ndarray) -> None:
    out[at[:, None] + np.arange(8)] = words(keys).astype("<i8").view(np.uint8).reshape(-1, 8)
    at += 8
