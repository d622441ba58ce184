"""Intervals looked up in a sorted run: searches in lock step, records or pairs out (Pan & Jacobsen, section III-D)."""

from __future__ import annotations

import numpy as np

from streamjoin.kernels import vector
from streamjoin.kernels.jit import inner, jit
from streamjoin.kernels.sorting import FANOUT, MAX_LEVELS, level_sizes
from streamjoin.kernels.vector import (
    at_least, at_most, bit_count, both, first, load, pointer, splat, stack_array, store, store_compressed, word,
)

GROUP = 16


@inner
def lower_bounds(key, count, index, sizes, offsets, top, lows, probe, group, found):
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            node = load(index, base + found[g] * FANOUT, FANOUT)
            above = bit_count(word(at_least(node, splat(lows[probe + g], FANOUT))))
            found[g] = min(found[g] * FANOUT + FANOUT - above, last)
    for g in range(group):
        node = load(key, found[g] * FANOUT, FANOUT)
        above = bit_count(word(at_least(node, splat(lows[probe + g], FANOUT))))
        found[g] = min(found[g] * FANOUT + FANOUT - above, count)


@inner
def upper_bounds(key, count, index, sizes, offsets, top, highs, which, group, found):
    for g in range(group):
        found[g] = 0
    for level in range(top, 0, -1):
        base, last = offsets[level], sizes[level] - 1
        for g in range(group):
            node = load(index, base + found[g] * FANOUT, FANOUT)
            below = bit_count(word(at_most(node, splat(highs[which[g]], FANOUT))))
            found[g] = min(found[g] * FANOUT + below, last)
    for g in range(group):
        node = load(key, found[g] * FANOUT, FANOUT)
        below = bit_count(word(at_most(node, splat(highs[which[g]], FANOUT))))
        found[g] = min(found[g] * FANOUT + below, count)


@inner
def ranges(key, count, index, sizes, offsets, top, lows, highs, probe, group, begin, end):
    """Places [begin, end) of `group` probes from `probe` on."""
    far, ends = stack_array(np.int64(0), GROUP), stack_array(np.int64(0), GROUP)
    lower_bounds(key, count, index, sizes, offsets, top, lows, probe, group, begin)
    many = 0
    for g in range(group):
        hits = bit_count(word(at_most(load(key, begin[g], FANOUT), splat(highs[probe + g], FANOUT))))
        end[g] = min(begin[g] + hits, count)
        far[many] = probe + g
        many += np.int64(hits == FANOUT)
    if many:
        upper_bounds(key, count, index, sizes, offsets, top, highs, far, many, ends)
        for g in range(many):
            end[far[g] - probe] = ends[g]


@jit
def find_records(keys, count, index, lows, highs, first_out, last_out):
    key, tree, low, high = pointer(keys), pointer(index), pointer(lows), pointer(highs)
    begin, end = stack_array(np.int64(0), GROUP), stack_array(np.int64(0), GROUP)
    sizes, offsets = stack_array(np.int64(0), MAX_LEVELS), stack_array(np.int64(0), MAX_LEVELS)
    top = level_sizes(count, sizes, offsets)
    for probe in range(0, len(lows), GROUP):
        group = min(GROUP, len(lows) - probe)
        ranges(key, count, tree, sizes, offsets, top, low, high, probe, group, begin, end)
        for g in range(group):
            first_out[probe + g] = begin[g]
            last_out[probe + g] = end[g]
