"""The scan: compares probes with every window position in their range, for an AND of ORs of closed bands.

`band_scan` generates a kernel for one shape of predicate. The kernel cuts the window into chunks that stay in the L1
cache, and compares each chunk with groups of four probes, so that a loaded vector of keys serves four probes. It
evaluates predicates completely, and only match bits leave the vector registers (Teubner & Mueller 2011, section 5.3).
A unit of work is one chunk and one group, in two steps. The first step keeps the non-zero words of match bits,
without a branch that depends on the data. The second step, *emit*, turns their bits into pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamjoin.jit import source
from streamjoin.jit.decorator import with_fallback
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.scan import vector
from streamjoin.kernels.scan.vector import GROUP_PROBES

CHUNK_BYTES = 16384  # keys of one chunk: half of a small L1 cache, so that words and pairs fit too
MAX_CHUNK = 2048  # positions in a chunk, at most
EMIT_OVERSHOOT = 16  # `emit` writes whole vectors and may write this far beyond the end
MIN_SCAN_ROOM = GROUP_PROBES * MAX_CHUNK + EMIT_OVERSHOOT  # the most that one unit may write
CURSOR_BUDGET = 3  # word of a cursor: one more than the units of work that a call may do; 0 for no limit
NUMPY_UNITS = (
    4096  # chunks that one call of the NumPy form compares with a probe each: some hundredths of a second
)
DENSE_BITS = 3  # from this many bits a word on, packing whole masks beats writing bit by bit
DTYPE_SIZES = {"i1": 1, "i2": 2, "i4": 4, "i8": 8, "f4": 4, "f8": 8}


@dataclass(frozen=True)
class BandShape:
    """`low <= keys[key] <= high` with one bound or both; `dtype` is the type of the key and of the bounds."""

    key: int
    dtype: str
    lo: bool = True
    hi: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_SIZES:
            raise ValueError(f"a band's dtype is one of {', '.join(DTYPE_SIZES)}, not {self.dtype!r}")
        if not (self.lo or self.hi):
            raise ValueError("a band needs a lower or an upper bound")
        if self.key < 0:
            raise ValueError(f"a band's key is an index into the keys, not {self.key}")


Clauses = tuple[tuple[BandShape, ...], ...]
KeyArrays = tuple[np.ndarray, ...]


@functools.cache
def band_scan(clauses: Clauses, lanes: int | None = None) -> Callable[..., int]:
    """The compiled kernel for `clauses`. A pair matches if at least one band holds in every clause; without clauses,
    all pairs match.

        `scan(start, stop, keys, lows, highs, cursor, out_probe, out_pos, count) -> count`

        start, stop   int64[n], never decreasing: probe i meets positions start[i] <= pos < stop[i], all
                      of which the keys have, below 2**31
        keys          tuple of contiguous arrays, the window's keys
        lows, highs   tuples of one array[n] per band, clause after clause; of any length, even 0, where
                      the band lacks that bound
        cursor        int64[CURSOR_SIZE], zeros at first; cursor[0] == DONE when all pairs are written;
                      cursor[CURSOR_BUDGET] may be set before each call
        out_probe, out_pos   int32; pairs are appended from `count` on, and scrap may follow them
        count         pairs in the output so far; the new number is returned

    The kernel returns when it is done, when it has used its budget, or as soon as fewer than MIN_SCAN_ROOM places are
    free. Then drain or grow the output and call again with the same cursor and inputs. An empty band (low > high) and
    NaN, in keys or bounds, match nothing. Pairs come unit by unit: the window's chunks in order, and in a chunk the
    groups of probes in order; the order within a unit is not specified. Cost: each position in range is compared with
    GROUP_PROBES probes at a time, `lanes` positions at once.
    """
    lanes = lanes or vector.lanes()
    if lanes not in vector.LANE_COUNTS:
        raise ValueError(f"lanes is one of {vector.LANE_COUNTS}, not {lanes}")
    _check(clauses)
    emit = source.load(_EMIT.format(lanes=lanes, dense=DENSE_BITS if vector.has_compress() else 64), "emit")
    kernel = source.load(_kernel_source(clauses, lanes, emit.__name__), "band_scan").scan
    scan: Callable[..., int] = with_fallback(kernel, _numpy_scan(clauses, _chunk(clauses, lanes)))
    return scan


def _chunk(clauses: Clauses, lanes: int) -> int:
    """The positions in a chunk."""
    total = sum({band.key: DTYPE_SIZES[band.dtype] for band in _bands(clauses)}.values())
    return min(MAX_CHUNK, max(GROUP_PROBES * lanes, CHUNK_BYTES // max(1, total) // 256 * 256))


def _numpy_scan(clauses: Clauses, chunk: int) -> Callable[..., int]:
    """A NumPy form of the kernel. Its cursor means the same, so either may continue where the other stopped."""

    def scan(
        starts: np.ndarray, stops: np.ndarray, keys: KeyArrays, lows: KeyArrays, highs: KeyArrays, cursor: np.ndarray,
        out_probes: np.ndarray, out_positions: np.ndarray, count: int,
    ) -> int:  # fmt: skip
        n, room, budget = len(starts), min(len(out_probes), len(out_positions)), NUMPY_UNITS
        number, live, probe = (int(each) for each in cursor[:3])
        while number != DONE:
            lo, hi = number * chunk, number * chunk + chunk
            while probe < n and starts[probe] < hi:
                budget -= 1
                if room - count < MIN_SCAN_ROOM or budget == 0:
                    cursor[:3] = number, live, probe
                    return count
                first, end = max(lo, int(starts[probe])), min(hi, int(stops[probe]))
                if first < end:
                    hits = _hits(clauses, slice(first, end), keys, lows, highs, probe)
                    found = np.arange(first, end) if hits is None else np.flatnonzero(hits) + first
                    out_probes[count : count + len(found)] = probe
                    out_positions[count : count + len(found)] = found
                    count += len(found)
                probe += 1
            while live < n and stops[live] <= hi:
                live += 1
            probe = live
            number = max(number + 1, int(starts[live]) // chunk) if live < n else DONE
        cursor[0] = DONE
        return count

    return scan


def _hits(
    clauses: Clauses, positions: slice, keys: KeyArrays, lows: KeyArrays, highs: KeyArrays, probe: int
) -> np.ndarray | None:
    """Which of some positions satisfy all clauses for a probe; None if there is no clause."""
    number, result = 0, None
    for clause in clauses:
        either = None
        for band in clause:
            key = keys[band.key][positions]
            inside = key >= lows[number][probe] if band.lo else key <= highs[number][probe]
            if band.lo and band.hi:
                inside &= key <= highs[number][probe]
            either = inside if either is None else either | inside
            number += 1
        result = either if result is None else result & either
    return result


def _check(clauses: Clauses) -> None:
    if () in clauses:
        raise ValueError(f"a clause needs at least one band, but clause {clauses.index(())} has none")
    dtypes: dict[int, str] = {}
    for band in _bands(clauses):
        if dtypes.setdefault(band.key, band.dtype) != band.dtype:
            raise ValueError(f"key {band.key} is {dtypes[band.key]} in one band and {band.dtype} in another")


def _bands(clauses: Clauses) -> list[BandShape]:
    return [band for clause in clauses for band in clause]


def _kernel_source(clauses: Clauses, lanes: int, emit_module: str) -> str:
    bands = _bands(clauses)
    sizes = {band.key: DTYPE_SIZES[band.dtype] for band in bands}
    pointers = [f"key{key} = pointer(keys[{key}])" for key in sizes]
    pointers += [f"all_low{b} = pointer(lows[{b}])" for b, band in enumerate(bands) if band.lo]
    pointers += [f"all_high{b} = pointer(highs[{b}])" for b, band in enumerate(bands) if band.hi]
    group, one = _Block(clauses, lanes, GROUP_PROBES), _Block(clauses, lanes, 1)
    return _SCAN.format(
        lanes=lanes,
        chunk=_chunk(clauses, lanes),
        emit_module=emit_module,
        pointers=_lines(4, pointers),
        group_alive=group.alive(),
        group_bounds=_lines(16, group.bounds()),
        group_block=_lines(20, group.block()),
        group_tail=_lines(20, group.tail()),
        one_alive=one.alive(),
        one_bounds=_lines(16, one.bounds()),
        one_block=_lines(20, one.block()),
        one_tail=_lines(20, one.tail()),
    )


def _lines(indent: int, lines: list[str]) -> str:
    return ("\n" + " " * indent).join(lines) or "pass"


def _nest(function: str, terms: list[str]) -> str:
    return functools.reduce(lambda left, right: f"{function}({left}, {right})", terms)


class _Block:
    """Generates the comparison of a block of positions with `probes` probes: one vector with GROUP_PROBES probes, or
    GROUP_PROBES vectors with one probe.

    A *span* is a band whose two bounds become one unsigned comparison, `key - low <= high - low`. It cannot detect an
    empty band, so it is used only for clauses of one band, where an empty band skips the probe. Floats must be
    converted to integers in the same order. This pays if GROUP_PROBES probes share the conversion and the CPU has
    unsigned comparisons.
    """

    def __init__(self, clauses: Clauses, lanes: int, probes: int):
        self.clauses, self.lanes, self.probes = clauses, lanes, probes
        self.bands = _bands(clauses)
        alone = [len(clause) == 1 for clause in clauses for _ in clause]
        floats = probes > 1 and vector.has_unsigned_compare()
        self.spans = [
            b
            for b, band in enumerate(self.bands)
            if alone[b] and band.lo and band.hi and (floats or band.dtype[0] == "i")
        ]

    def alive(self) -> str:
        """Whether no span is empty or NaN. Uses `&`, because a branch for each would cost more."""
        at = range(self.probes)
        tests = [f"(all_low{b}[probe + {p}] <= all_high{b}[probe + {p}])" for b in self.spans for p in at]
        return f"({' & '.join(tests) or True})"

    def bounds(self) -> list[str]:
        """The bounds in every lane of a vector: low and high, or low and span."""
        probes = range(self.probes)
        return [line for b in range(len(self.bands)) for p in probes for line in self._bounds(b, p)]

    def block(self) -> list[str]:
        """Computes `bits` of a whole block."""
        if self.probes == GROUP_PROBES:
            masks = [f"m{p} = {self._match(p)}" for p in range(GROUP_PROBES)]
            return [*self._loads("load_vector", "at"), *masks, "bits = word_of_four(m0, m1, m2, m3)"]
        lines = []
        for step in range(GROUP_PROBES):
            lines += self._loads("load_vector", f"at + {step * self.lanes}")
            lines.append(f"m{step} = {self._match(0)}")
        return [*lines, "bits = word_of_four(m0, m1, m2, m3)"]

    def tail(self) -> list[str]:
        """Computes `bits` of the positions before `end`, fewer than a vector near the end."""
        loads, here = self._loads("load_first", "at, end - at"), f"first(end - at, {self.lanes})"
        masks = [f"both({self._match(p)}, {here})" for p in range(self.probes)]
        return [*loads, f"bits = {'word' if self.probes == 1 else 'word_of_four'}({', '.join(masks)})"]

    def _name(self, what: str, b: int, p: int) -> str:
        return f"{what}{b}_of_{p}" if self.probes > 1 else f"{what}{b}"  # their types may differ

    def _bounds(self, b: int, p: int) -> list[str]:
        band = self.bands[b]
        low, high = (f"splat({side}{b}[probe + {p}], {self.lanes})" for side in ("all_low", "all_high"))
        low_name = self._name("low", b, p)
        if b not in self.spans:
            lines = [f"{low_name} = {low}"] if band.lo else []
            return lines + ([f"{self._name('high', b, p)} = {high}"] if band.hi else [])
        if band.dtype[0] == "f":
            low, high = f"ordered_low({low})", f"ordered_high({high})"
        return [f"{low_name} = {low}", f"{self._name('span', b, p)} = wrapping_sub({high}, {low_name})"]

    def _loads(self, function: str, place: str) -> list[str]:
        keys = sorted({band.key for band in self.bands})
        lines = [f"v{key} = {function}(key{key}, {place}, {self.lanes})" for key in keys]
        floats = sorted({self.bands[b].key for b in self.spans if self.bands[b].dtype[0] == "f"})
        return lines + [f"o{key} = ordered(v{key})" for key in floats]

    def _match(self, p: int) -> str:
        numbers = iter(range(len(self.bands)))
        clauses = [_nest("either", [self._test(next(numbers), p) for _ in clause]) for clause in self.clauses]
        return _nest("both", clauses) if clauses else f"first({self.lanes}, {self.lanes})"

    def _test(self, b: int, p: int) -> str:
        band, low, high = self.bands[b], self._name("low", b, p), self._name("high", b, p)
        if b in self.spans:
            key = f"{'o' if band.dtype[0] == 'f' else 'v'}{band.key}"
            return f"at_most_unsigned(wrapping_sub({key}, {low}), {self._name('span', b, p)})"
        tests = [f"at_least(v{band.key}, {low})"] if band.lo else []
        return _nest("both", tests + ([f"at_most(v{band.key}, {high})"] if band.hi else []))


_EMIT = '''\
import numpy as np

from streamjoin.jit.decorator import inner
from streamjoin.kernels.scan.vector import bit_count, ramp, splat, store_compressed, store_vector, trailing_zeros

LANES = {lanes}
DENSE_BITS = {dense}  # bits a word from which on packing wins


@inner
def emit_dense(words, places, found, shift, probe, out_probe, out_pos, count):
    """As `emit`, by packing all lanes of a mask at once: the same time for one bit and for all."""
    low = (1 << shift) - 1
    for i in range(found):
        bits, place = words[i], places[i]
        for bit in range(0, 4 * LANES, LANES):
            part = (bits >> np.uint64(bit)) & np.uint64((1 << LANES) - 1)
            store_vector(splat(np.int32(probe + (bit >> shift)), LANES), out_probe, count)
            store_compressed(ramp(np.int32(place + (bit & low)), LANES), part, out_pos, count)
            count += bit_count(part)
    return count


@inner
def emit(words, places, found, shift, probe, out_probe, out_pos, count):
    """Write a pair for every bit: the probe is `probe + (bit >> shift)`, the position `place + (bit % 2**shift)`."""
    total = 0
    for i in range(found):
        total += bit_count(words[i])
    if total > found * DENSE_BITS:
        return emit_dense(words, places, found, shift, probe, out_probe, out_pos, count)
    low = (1 << shift) - 1
    for i in range(found):
        bits, place = words[i], places[i]
        end = count + bit_count(bits)
        while count < end:
            # Four at a time whether or not there are as many: a branch for each bit would be mispredicted.
            for j in range(4):
                bit = trailing_zeros(bits)
                out_probe[count + j] = np.int32(probe + (bit >> shift))
                out_pos[count + j] = np.int32(place + (bit & low))
                bits &= bits - np.uint64(1)
            count += 4
        count = end
    return count


@inner
def clip(words, places, found, probe, start, stop):
    """Clear the bits of a group's words that are outside their probe's range."""
    for i in range(found):
        keep = np.uint64(0)
        for p in range(4):
            before = min(max(start[probe + p] - places[i], 0), LANES)
            until = min(max(stop[probe + p] - places[i], 0), LANES)
            lanes = ((np.uint64(1) << np.uint64(until)) - np.uint64(1)) >> np.uint64(before) << np.uint64(before)
            keep |= lanes << np.uint64(p * LANES)
        words[i] &= keep
'''


_SCAN = """\
import numpy as np

from streamjoin.jit.decorator import jit
from streamjoin.kernels.cursor import DONE
from streamjoin.kernels.scan.bands import CURSOR_BUDGET, MIN_SCAN_ROOM
from streamjoin.kernels.scan.vector import (
    at_least, at_most, at_most_unsigned, both, either, first, load_first, load_vector, ordered, ordered_high,
    ordered_low, pointer, splat, stack_array, word, word_of_four, wrapping_sub,
)
from {emit_module} import clip, emit

LANES = {lanes}
CHUNK = {chunk}
WORDS = CHUNK // LANES + 4  # of one unit, with room for tails
GROUP_SHIFT = LANES.bit_length() - 1  # a word of a group: LANES positions of each of four probes
ONE_SHIFT = 6  # a word of one probe: consecutive positions


@jit
def scan(starts, stops, keys, lows, highs, cursor, out_probes, out_positions, count):
    n, room = len(starts), min(len(out_probes), len(out_positions))
    start, stop, out_probe, out_pos = pointer(starts), pointer(stops), pointer(out_probes), pointer(out_positions)
    {pointers}
    words, places = stack_array(np.uint64(0), WORDS), stack_array(np.int64(0), WORDS)
    # Ranges never fall, so the probes that meet a chunk are consecutive: from `live` on.
    chunk, live, probe, budget = cursor[0], cursor[1], cursor[2], cursor[CURSOR_BUDGET]
    while chunk != DONE:
        lo, hi = chunk * CHUNK, chunk * CHUNK + CHUNK
        while probe < n and start[probe] < hi:
            budget -= 1
            if room - count < MIN_SCAN_ROOM or budget == 0:
                cursor[0], cursor[1], cursor[2] = chunk, live, probe
                return count
            at, end, final, grouped = max(lo, start[probe]), hi, probe + 3, False
            found = 0
            if final < n:
                end = min(hi, stop[final])
                # Four together unless their ranges hardly overlap, or a band is empty: `span` cannot detect that.
                grouped = (at < end) & (2 * (start[final] - at) <= end - at) & {group_alive}
            if grouped:
                same = start[final] <= at and end <= stop[probe]
                {group_bounds}
                while at + LANES <= end:
                    {group_block}
                    words[found] = bits
                    places[found] = at
                    found += np.int64(bits != 0)
                    at += LANES
                if at < end:
                    {group_tail}
                    words[found] = bits
                    places[found] = at
                    found += np.int64(bits != 0)
                if not same:
                    clip(words, places, found, probe, start, stop)
                count = emit(words, places, found, GROUP_SHIFT, probe, out_probe, out_pos, count)
                probe += 4
                continue
            end = min(hi, stop[probe])
            if at < end and {one_alive}:
                {one_bounds}
                while at + 4 * LANES <= end:
                    {one_block}
                    words[found] = bits
                    places[found] = at
                    found += np.int64(bits != 0)
                    at += 4 * LANES
                while at < end:
                    {one_tail}
                    words[found] = bits
                    places[found] = at
                    found += np.int64(bits != 0)
                    at += LANES
                count = emit(words, places, found, ONE_SHIFT, probe, out_probe, out_pos, count)
            probe += 1
        while live < n and stop[live] <= hi:
            live += 1
        probe = live
        chunk = max(chunk + 1, start[live] // CHUNK) if live < n else DONE
    cursor[0] = DONE
    return count
"""
