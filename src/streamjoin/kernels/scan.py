"""The scan: probes against every window position in their range, for an AND of ORs of closed bands.

`band_scan` generates a kernel for one shape of predicate. The kernel cuts the window into chunks that
stay in the L1 cache and meets each chunk with groups of four probes, so that a loaded vector of
keys serves four probes (Teubner & Mueller 2011, section 5, scan with SIMD in the same way). A unit of work is one
chunk and one group, in two steps: *collect* compares and keeps the non-zero words of match
bits, without a branch that depends on the data; *emit* turns their bits into pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamjoin.kernels import source, vector
from streamjoin.kernels.jit import jit
from streamjoin.kernels.vector import GROUP, bit_count, trailing_zeros

CHUNK_BYTES = 16384  # keys of one chunk: half of a small L1 cache, the rest is for words and pairs
MAX_CHUNK = 2048  # window positions
SLACK = 8  # `emit` writes pairs in fours and may overshoot
MIN_ROOM = GROUP * MAX_CHUNK + SLACK  # what one unit may write
CURSOR_SIZE = 3
DONE = -1
DTYPES = {"i1": 1, "i2": 2, "i4": 4, "i8": 8, "f4": 4, "f8": 8}


@dataclass(frozen=True)
class BandShape:
    """`low <= keys[key] <= high` with one bound or both; `dtype` is that of the key and of the bounds."""

    key: int
    dtype: str
    lo: bool = True
    hi: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ValueError(f"a band's dtype is one of {', '.join(DTYPES)}, not {self.dtype!r}")
        if not (self.lo or self.hi):
            raise ValueError("a band needs a lower or an upper bound")


Clauses = tuple[tuple[BandShape, ...], ...]


@functools.cache
def band_scan(clauses: Clauses, lanes: int | None = None) -> Callable[..., int]:
    """The compiled kernel for `clauses`: every clause holds if one of its bands does; no clause: all pairs match.

    `scan(start, stop, keys, lows, highs, cursor, out_probe, out_pos, count) -> count`

    start, stop      int64[n], both non-decreasing: probe i meets positions start[i] <= pos < stop[i] <= len(key)
    keys             tuple of contiguous arrays, the window's keys
    lows, highs      tuples of one array[n] per band, clause after clause; of any length, even 0, where
                     the band lacks that bound
    cursor           int64[CURSOR_SIZE], zeros at first; cursor[0] == DONE when all pairs are out
    out_probe, out_pos  int32, at least MIN_ROOM free places after `count`, else nothing is done
    count            pairs in the output so far; the return value is the new count, what is beyond it is scrap

    The kernel returns when it is done or fewer than MIN_ROOM places are left: drain or grow the output and call again
    with the same cursor and the same inputs. Bands are closed; an empty one (low > high) and NaN match
    nothing. Pairs come unit by unit: chunks of the window in order, in a chunk groups of probes in
    order, and in a group positions in order, probes of one position block apart. Cost: every position of the ranges
    is compared, GROUP * lanes at a time.
    """
    lanes = lanes or vector.lanes()
    if lanes not in vector.LANE_COUNTS:
        raise ValueError(f"lanes is one of {vector.LANE_COUNTS}, not {lanes}")
    return source.load(_Generator(clauses, lanes).text(), "band_scan").scan


@jit
def emit(words, places, found, shift, probe, out_probe, out_pos, count):
    """Write a pair for every bit: the probe is `probe + (bit >> shift)`, the position `place + (bit % 2**shift)`."""
    low = np.int64((1 << shift) - 1)
    for i in range(found):
        bits, place = words[i], places[i]
        end = count + bit_count(bits)
        while count < end:
            for j in range(4):
                bit = trailing_zeros(bits)
                at = np.uint64(count + j)
                out_probe[at] = np.int32(probe + (bit >> shift))
                out_pos[at] = np.int32(place + (bit & low))
                bits &= bits - np.uint64(1)
            count += 4
        count = end
    return count


@jit
def emit_within(words, places, found, shift, probe, start, stop, out_probe, out_pos, count):
    """As `emit`, for probes whose ranges differ: only pairs whose position is in the probe's range."""
    low = np.int64((1 << shift) - 1)
    for i in range(found):
        bits, place = words[i], places[i]
        while bits != 0:
            bit = trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            which, pos = probe + (bit >> shift), place + (bit & low)
            out_probe[np.uint64(count)] = np.int32(which)
            out_pos[np.uint64(count)] = np.int32(pos)
            count += np.int64(start[np.uint64(which)] <= pos) & np.int64(pos < stop[np.uint64(which)])
    return count


class _Generator:
    """Writes the source of one kernel."""

    def __init__(self, clauses: Clauses, lanes: int):
        self.clauses, self.lanes = clauses, lanes
        self.bands = [band for clause in clauses for band in clause]
        sizes = {band.key: DTYPES[band.dtype] for band in self.bands}
        self.chunk = min(MAX_CHUNK, max(GROUP * lanes, CHUNK_BYTES // max(sum(sizes.values()), 1) // 256 * 256))
        spans = {id(clause[0]) for clause in clauses if len(clause) == 1}
        self.spans = [b for b, band in enumerate(self.bands) if id(band) in spans and self._fits_span(band)]

    @staticmethod
    def _fits_span(band: BandShape) -> bool:
        """Whether both bounds make one unsigned comparison, `key - low <= high - low`."""
        return band.lo and band.hi and (band.dtype[0] == "i" or vector.has_unsigned_compare())

    def text(self) -> str:
        """The module's source."""
        return _TEMPLATE.format(
            lanes=self.lanes,
            chunk=self.chunk,
            group_bounds=self._lines(4, self._bounds(4)),
            group_block=self._lines(8, self._group(tail=False)),
            group_tail=self._lines(8, self._group(tail=True)),
            one_bounds=self._lines(4, self._bounds(1)),
            one_block=self._lines(8, self._one_block()),
            one_tail=self._lines(8, self._one_tail()),
            alive=" and ".join(f"lows[{b}][at] <= highs[{b}][at]" for b in self.spans) or "True",
        )

    @staticmethod
    def _lines(indent: int, lines: list[str]) -> str:
        return ("\n" + " " * indent).join(lines) or "pass"

    def _bounds(self, probes: int) -> list[str]:
        """Bounds of each band b and probe p, in every lane: low{b}_{p} and high{b}_{p} or span{b}_{p}."""
        lines = []
        for b, band in enumerate(self.bands):
            for p in range(probes):
                low, high = (f"splat({side}[{b}][np.uint64(probe + {p})], {self.lanes})" for side in ("lows", "highs"))
                if b in self.spans and band.dtype[0] == "f":
                    low, high = f"ordered_low({low})", f"ordered_high({high})"
                lines += [f"low{b}_{p} = {low}"] if band.lo else []
                if b in self.spans:
                    lines.append(f"span{b}_{p} = wrapping_sub({high}, low{b}_{p})")
                elif band.hi:
                    lines.append(f"high{b}_{p} = {high}")
        return lines

    def _loads(self, at: str, tail: bool = False, suffix: str = "") -> list[str]:
        """Keys at `at` as v{key}, and as ordered integers o{key} where a band needs them."""
        lines = []
        for key in sorted({band.key for band in self.bands}):
            rest = f"load_first(keys[{key}], {at}, end - at, {self.lanes})"
            lines.append(f"v{key}{suffix} = " + (rest if tail else f"load(keys[{key}], {at}, {self.lanes})"))
        for key in sorted({self.bands[b].key for b in self.spans if self.bands[b].dtype[0] == "f"}):
            lines.append(f"o{key}{suffix} = ordered(v{key}{suffix})")
        return lines

    def _test(self, b: int, p: int, suffix: str) -> str:
        band = self.bands[b]
        if b in self.spans:
            name = f"{'o' if band.dtype[0] == 'f' else 'v'}{band.key}{suffix}"
            return f"at_most_unsigned(wrapping_sub({name}, low{b}_{p}), span{b}_{p})"
        key = f"v{band.key}{suffix}"
        tests = [f"at_least({key}, low{b}_{p})"] if band.lo else []
        tests += [f"at_most({key}, high{b}_{p})"] if band.hi else []
        return _nest("both", tests)

    def _match(self, p: int, tail: bool = False, suffix: str = "") -> str:
        numbers = iter(range(len(self.bands)))
        clauses = [_nest("either", [self._test(next(numbers), p, suffix) for _ in clause]) for clause in self.clauses]
        return _nest("both", clauses + ([f"first(end - at, {self.lanes})"] if tail or not clauses else []))

    def _group(self, tail: bool) -> list[str]:
        masks = [f"m{p} = {self._match(p, tail)}" for p in range(GROUP)]
        return [*self._loads("at", tail), *masks, "bits = word_of_four(m0, m1, m2, m3)"]

    def _one_block(self) -> list[str]:
        lines = []
        for step in range(GROUP):
            lines += self._loads(f"at + {step * self.lanes}", suffix=f"_{step}")
            lines.append(f"m{step} = {self._match(0, suffix=f'_{step}')}")
        return [*lines, "bits = word_of_four(m0, m1, m2, m3)"]

    def _one_tail(self) -> list[str]:
        return [*self._loads("at", tail=True), f"bits = word({self._match(0, tail=True)})"]


def _nest(function: str, terms: list[str]) -> str:
    return functools.reduce(lambda left, right: f"{function}({left}, {right})", terms)


_TEMPLATE = '''\
import numpy as np

from streamjoin.kernels.jit import jit
from streamjoin.kernels.scan import DONE, MIN_ROOM, emit, emit_within
from streamjoin.kernels.vector import (
    at_least, at_most, at_most_unsigned, both, either, first, load, load_first, ordered, ordered_high,
    ordered_low, splat, word, word_of_four, wrapping_sub,
)

LANES = {lanes}
CHUNK = {chunk}
GROUP_SHIFT = LANES.bit_length() - 1  # a word of a group: LANES positions of each of four probes
ONE_SHIFT = 6  # a word of one probe: consecutive positions


@jit
def collect_group(at, end, probe, keys, lows, highs, words, places):
    """Words of match bits of four probes and positions at..end-1; only the non-zero ones are kept."""
    {group_bounds}
    found = np.uint64(0)
    while at + LANES <= end:
        {group_block}
        words[found] = bits
        places[found] = at
        found += np.uint64(bits != 0)
        at += LANES
    if at < end:
        {group_tail}
        words[found] = bits
        places[found] = at
        found += np.uint64(bits != 0)
    return np.int64(found)


@jit
def collect_one(at, end, probe, keys, lows, highs, words, places):
    """As `collect_group` for one probe, four blocks a word."""
    {one_bounds}
    found = np.uint64(0)
    while at + 4 * LANES <= end:
        {one_block}
        words[found] = bits
        places[found] = at
        found += np.uint64(bits != 0)
        at += 4 * LANES
    while at < end:
        {one_tail}
        words[found] = bits
        places[found] = at
        found += np.uint64(bits != 0)
        at += LANES
    return np.int64(found)


@jit
def alive(probe, lows, highs):
    """Whether no band that must hold is empty; the unsigned comparison can not see that."""
    at = np.uint64(probe)
    return {alive}


@jit
def meet_one(probe, lo, hi, start, stop, keys, lows, highs, words, places, out_probe, out_pos, count):
    at, end = max(lo, start[np.uint64(probe)]), min(hi, stop[np.uint64(probe)])
    if at < end and alive(probe, lows, highs):
        found = collect_one(at, end, probe, keys, lows, highs, words, places)
        count = emit(words, places, found, ONE_SHIFT, probe, out_probe, out_pos, count)
    return count


@jit
def meet_group(probe, lo, hi, start, stop, keys, lows, highs, words, places, out_probe, out_pos, count):
    final = probe + 3
    at, end = max(lo, start[np.uint64(probe)]), min(hi, stop[np.uint64(final)])
    if at >= end:
        return count
    living = True
    for one in range(probe, probe + 4):
        living &= alive(one, lows, highs)
    if not living or 2 * (start[np.uint64(final)] - at) > end - at:  # ranges that hardly overlap
        for one in range(probe, probe + 4):
            count = meet_one(one, lo, hi, start, stop, keys, lows, highs, words, places, out_probe, out_pos, count)
        return count
    found = collect_group(at, end, probe, keys, lows, highs, words, places)
    if start[np.uint64(final)] <= at and end <= stop[np.uint64(probe)]:
        return emit(words, places, found, GROUP_SHIFT, probe, out_probe, out_pos, count)
    return emit_within(words, places, found, GROUP_SHIFT, probe, start, stop, out_probe, out_pos, count)


@jit
def scan(start, stop, keys, lows, highs, cursor, out_probe, out_pos, count):
    n = len(start)
    words = np.empty(CHUNK // LANES + 2, np.uint64)
    places = np.empty(CHUNK // LANES + 2, np.int64)
    room = min(len(out_probe), len(out_pos))
    # Ranges never fall, so the probes that meet a chunk are consecutive: from `live` on.
    chunk, live, probe = cursor[0], cursor[1], cursor[2]
    while chunk != DONE:
        lo, hi = chunk * CHUNK, chunk * CHUNK + CHUNK
        while probe < n and start[probe] < hi:
            if room - count < MIN_ROOM:
                cursor[0], cursor[1], cursor[2] = chunk, live, probe
                return count
            if probe + 4 <= n:
                count = meet_group(
                    probe, lo, hi, start, stop, keys, lows, highs, words, places, out_probe, out_pos, count)
            else:
                for one in range(probe, n):
                    count = meet_one(
                        one, lo, hi, start, stop, keys, lows, highs, words, places, out_probe, out_pos, count)
            probe += 4
        while live < n and stop[min(live + 3, n - 1)] <= hi:
            live += 4
        probe = live
        chunk = max(chunk + 1, start[live] // CHUNK) if live < n else DONE
    cursor[0] = DONE
    return count
'''
