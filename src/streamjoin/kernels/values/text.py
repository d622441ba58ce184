"""Strings and binaries in kernels: a value is (bytes array, start, length), as Arrow lays them out."""

import numpy as np

from streamjoin.jit.decorator import jit


@jit
def compare(a, b):
    """-1, 0 or 1 by bytes, which for UTF-8 is the order of code points."""
    a_data, a_start, a_length = a
    b_data, b_start, b_length = b
    for i in range(min(a_length, b_length)):
        x, y = a_data[a_start + i], b_data[b_start + i]
        if x != y:
            return -1 if x < y else 1
    return 0 if a_length == b_length else (-1 if a_length < b_length else 1)


@jit
def equal(a, b):
    a_data, a_start, a_length = a
    b_data, b_start, b_length = b
    if a_length != b_length:
        return False
    for i in range(a_length):
        if a_data[a_start + i] != b_data[b_start + i]:
            return False
    return True


@jit
def hash64(a):
    """FNV-1a with a final mix; equal bytes give equal hashes in every process."""
    data, start, length = a
    state = np.uint64(0xCBF29CE484222325)
    for i in range(length):
        state = (state ^ np.uint64(data[start + i])) * np.uint64(0x100000001B3)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0xD6E8FEB86659FD93)
    state ^= state >> np.uint64(32)
    return np.int64(state)


@jit
def _next_character(data, at, end):
    """The position behind the UTF-8 character at `at`."""
    at += 1
    while at < end and (data[at] & 0xC0) == 0x80:
        at += 1
    return at


@jit
def characters(a):
    """The number of code points."""
    data, start, length = a
    count = 0
    for i in range(length):
        count += (data[start + i] & 0xC0) != 0x80
    return count


@jit
def substring(a, start, length):
    """At most `length` characters from position `start` on. Positions count from 1, and from the end if negative."""
    data, at, size = a
    end = at + size
    first = start if start >= 0 else start + characters(a) + 1
    if length > 0 and first < 1:
        length, first = length + (first - 1), np.int64(1)
    while first > 1 and at < end:
        at, first = _next_character(data, at, end), first - 1
    begin = at
    while length > 0 and at < end:
        at, length = _next_character(data, at, end), length - 1
    return data, begin, at - begin


@jit
def _is_one_of(data, at, end, characters):
    """Whether the character between `at` and `end` is one of some characters."""
    known, here, length = characters
    known_end = here + length
    while here < known_end:
        following = _next_character(known, here, known_end)
        if equal((data, at, end - at), (known, here, following - here)):
            return True
        here = following
    return False


@jit
def trim(a, characters, leading, trailing):
    """The text without the given characters at its ends."""
    data, at, length = a
    end = at + length
    while leading and at < end:
        following = _next_character(data, at, end)
        if not _is_one_of(data, at, following, characters):
            break
        at = following
    while trailing and at < end:
        last = end - 1
        while last > at and (data[last] & 0xC0) == 0x80:
            last -= 1
        if not _is_one_of(data, last, end, characters):
            break
        end = last
    return data, at, end - at


@jit
def like(a, pattern, escape):
    """SQL LIKE: % any characters, _ one character. `escape` is one ASCII byte or -1.

    Backtracks to the last % only, so it costs at most O(len(text) * len(pattern)).
    """
    data, at, length = a
    rule, here, rule_length = pattern
    end, rule_end = at + length, here + rule_length
    star, star_text = -1, at
    while True:
        matched = False
        if here < rule_end:
            byte = rule[here]
            if byte == 37 and escape != 37:
                star, star_text = here + 1, at
                here += 1
                continue
            if at < end:
                if byte == 95 and escape != 95:
                    at, here, matched = _next_character(data, at, end), here + 1, True
                else:
                    literal = here + 1 if byte == escape and here + 1 < rule_end else here
                    if rule[literal] == data[at]:
                        at, here, matched = at + 1, literal + 1, True
        elif at == end:
            return True
        if matched:
            continue
        if star < 0 or star_text >= end:
            return False
        star_text = _next_character(data, star_text, end)
        at, here = star_text, star


SPACE, PLUS, MINUS, POINT, ZERO = 0x20, 0x2B, 0x2D, 0x2E, 0x30
LEAST = -(2**63)


@jit
def number(a, scale):
    """The decimal number that a text spells, in units of 10**-scale, rounded half away from zero; and whether the text
    is a number that fits 64 bits. A sign, a decimal point and spaces around the number are allowed."""
    data, at, length = a
    end = at + length
    while at < end and data[at] == SPACE:
        at += 1
    while end > at and data[end - 1] == SPACE:
        end -= 1
    negative = at < end and data[at] == MINUS
    if at < end and (data[at] == PLUS or negative):
        at += 1
    value, digits, after, up, point = 0, 0, 0, 0, False  # the value is negative: these reach further
    while at < end:
        digit = np.int64(data[at]) - ZERO
        if data[at] == POINT and not point:
            point = True
        elif digit < 0 or digit > 9:
            return 0, False
        elif point and after == scale:
            after, up = after + 1, np.int64(digit >= 5)
        elif not point or after < scale:
            if value < (LEAST + digit) // 10 + (((LEAST + digit) % 10) != 0):
                return 0, False
            value = value * 10 - digit
            after += np.int64(point)
        digits += np.int64(data[at] != POINT)
        at += 1
    for _ in range(scale - after):
        if value < LEAST // 10 + 1:
            return 0, False
        value *= 10
    if digits == 0 or (up and value == LEAST):
        return 0, False
    value -= up
    if not negative and value == LEAST:
        return 0, False
    return (value if negative else -value), True
