"""The BI-Sort engine against sorted lists: insertion, equality and band probing, any memory."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from typing import Any

import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator

from streamjoin.hardware.bisort.engine import BiSortEngine
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.parameters import HardwareError, KeyPredicate

Item = tuple[int, int]


class Bench:
    """An engine and a testbench that fills its batch memory and waits for it."""

    def __init__(self, parameters: BiSortParameters, reader: list[int] | None = None):
        self.engine, self.reader = BiSortEngine(parameters), reader or [1]
        self.cycles = 0

    def run(self, work: Any) -> None:
        simulator = Simulator(self.engine)
        simulator.add_clock(1e-8)
        simulator.add_testbench(work)
        simulator.run()

    async def do(self, ctx: Any, what: str, items: list[Item]) -> list[tuple[int, int, int]]:
        """Insert or probe a batch; the records that came out."""
        engine, records = self.engine, []
        for at, (key, number) in enumerate(items):
            ctx.set(engine.batches.contents.data[at], {"key": key, "id": number})
        ctx.set(getattr(engine, what), 1)
        ctx.set(engine.batch, len(items))
        await ctx.tick()
        ctx.set(getattr(engine, what), 0)
        self.cycles = 0
        while ctx.get(engine.busy):
            ctx.set(engine.records.ready, self.reader[self.cycles % len(self.reader)])
            if ctx.get(engine.records.valid) and ctx.get(engine.records.ready):
                record = engine.records.payload
                records.append(tuple(ctx.get(record[name]) for name in ("number", "start", "end")))
            self.cycles += 1
            assert self.cycles < 20_000, "the engine does not come to an end"
            await ctx.tick()
        return records

    def window(self, ctx: Any) -> list[Item]:
        """The sorted array as it lies in the main memory."""
        first = self.engine.parameters.capacity if ctx.get(self.engine.half) else 0
        contents = self.engine.main.contents.data
        items = [ctx.get(contents[first + at]) for at in range(ctx.get(self.engine.count))]
        return [(item["key"], item["id"]) for item in items]


def batch(dice: random.Random, count: int, first: int) -> list[Item]:
    return sorted((dice.randrange(-20, 20), first + i) for i in range(count))


def expected(window: list[Item], probes: list[Item], predicate: KeyPredicate) -> list[tuple[int, int, int]]:
    """lo <= probe - stored <= hi is a range of the sorted array."""
    keys = [key for key, _ in window]
    found = []
    for number, (key, _) in enumerate(probes):
        start = 0 if predicate.hi is None else bisect_left(keys, key - predicate.hi)
        end = len(keys) if predicate.lo is None else bisect_right(keys, key - predicate.lo)
        found.append((number, start, end))
    return found


def test_four_items_by_eye():
    bench = Bench(BiSortParameters(capacity=8, partition=2, key_width=8, id_width=8))

    async def work(ctx):
        await bench.do(ctx, "insert", [(3, 0), (5, 1)])
        await bench.do(ctx, "insert", [(1, 2), (5, 3)])
        assert bench.window(ctx) == [(1, 2), (3, 0), (5, 1), (5, 3)]
        assert await bench.do(ctx, "probe", [(2, 0), (5, 1)]) == [(0, 1, 1), (1, 2, 4)]

    bench.run(work)


@pytest.mark.parametrize(
    ("predicate", "latency", "interval", "reader"),
    [
        (KeyPredicate.equality(), 1, 1, [1]),
        (KeyPredicate(-3, 2), 5, 1, [0, 0, 1]),
        (KeyPredicate(None, -1), 3, 3, [1]),
        (KeyPredicate(1, None), 8, 2, [1]),
    ],
    ids=str,
)
def test_insertion_and_probing_agree_with_sorted_lists(predicate, latency, interval, reader):
    p = BiSortParameters(64, 4, 8, 8, predicate, latency, interval)
    bench, dice = Bench(p, reader), random.Random(latency)

    async def work(ctx):
        window: list[Item] = []
        for count in (5, 1, 0, 12, 20):
            items = batch(dice, count, len(window))
            await bench.do(ctx, "insert", items)
            window = sorted([*window, *items], key=lambda item: item[0])  # stable: the window's come first
            assert bench.window(ctx) == window
            probes = batch(dice, 9, 0)
            assert await bench.do(ctx, "probe", probes) == expected(window, probes, predicate)

    bench.run(work)


def test_an_item_is_merged_every_cycle_whatever_the_latency():
    for latency in (1, 12):
        bench = Bench(BiSortParameters(capacity=64, partition=8, latency=latency))

        async def work(ctx, bench=bench, latency=latency):
            await bench.do(ctx, "insert", [(key, key) for key in range(0, 60, 2)])
            await bench.do(ctx, "insert", [(key, key) for key in range(1, 61, 2)])
            assert bench.cycles <= 60 + latency + 4

        bench.run(work)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 10, "partition": 4}, "a capacity of 10 is no multiple of partitions of 4"),
        ({"predicate": KeyPredicate(0, 0, negated=True)}, "a negated predicate has two"),
        ({"interval": 0}, "interval is 0"),
    ],
)
def test_bad_sizes_are_refused(wrong, message):
    with pytest.raises(HardwareError, match=message):
        BiSortParameters(**wrong)
