"""Each component against a naive model and its contract, in Amaranth's simulator."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("amaranth")

from amaranth import ClockDomain, Module, Signal, signed, unsigned
from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st

from streamjoin.hardware.admission import AdmissionControl
from streamjoin.hardware.fifo import ResultFifo
from streamjoin.hardware.mergers import FairMerger, Merger
from streamjoin.hardware.network import MergingNetwork
from streamjoin.hardware.parameters import HardwareError, KeyPredicate, Parameters
from streamjoin.hardware.ring_window import RingWindow

WIDTH = 16


def simulate(design: Any, bench: Callable[[Any], Any]) -> None:
    frame = Module()  # a network of one input has no register, and so no clock of its own
    frame.domains.sync = ClockDomain()
    frame.submodules.design = design
    simulator = Simulator(frame)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()


# ---- the buffer


@given(
    st.integers(2, 9),
    st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=80),
)
@settings(max_examples=30)
def test_fifo_is_a_queue_and_its_flag_counts_free_places(depth, steps):
    fifo = ResultFifo(unsigned(WIDTH), depth, margin=1)

    async def bench(ctx):
        stored: deque[int] = deque()  # places of the memory; the output register is one more
        register: int | None = None
        for number, (offer, ready) in enumerate(steps):
            write = offer and len(stored) < depth
            ctx.set(fifo.write_valid, write)
            ctx.set(fifo.write_data, number)
            ctx.set(fifo.read.ready, ready)
            assert ctx.get(fifo.almost_full) == (len(stored) >= depth - 1)
            assert ctx.get(fifo.read.valid) == (register is not None)
            if register is not None:
                assert ctx.get(fifo.read.payload) == register
            if register is None or ready:
                register = stored.popleft() if stored else None
            if write:
                stored.append(number)
            await ctx.tick()

    simulate(fifo, bench)


# ---- mergers


class Sources:
    """Streams of numbers into a circuit's inputs and out of its outputs, with random pauses."""

    def __init__(
        self, inputs: list[Any], outputs: list[Any], counts: list[int], seed: int, eager: bool = False
    ):
        self.inputs, self.outputs, self.eager = inputs, outputs, eager
        self.random = random.Random(seed)
        self.waiting = [deque((i << 8) + n for n in range(count)) for i, count in enumerate(counts)]
        self.seen: list[list[int]] = [[] for _ in outputs]
        self.cycles = 0

    def _wants(self) -> bool:
        return self.eager or self.random.random() < 0.6

    async def bench(self, ctx: Any) -> None:
        offered = [False] * len(self.inputs)
        silent = 0
        while silent < 60:
            for i, port in enumerate(self.inputs):
                offered[i] = bool(self.waiting[i]) and (offered[i] or self._wants())
                ctx.set(port.valid, offered[i])
                ctx.set(port.payload, self.waiting[i][0] if self.waiting[i] else 0)
            for port in self.outputs:
                ctx.set(port.ready, self._wants())
            silent += 1
            for i, port in enumerate(self.inputs):
                if offered[i] and ctx.get(port.ready):
                    self.waiting[i].popleft()
                    offered[i] = False
                    silent = 0
            for out, port in zip(self.seen, self.outputs, strict=True):
                if ctx.get(port.valid) and ctx.get(port.ready):
                    out.append(ctx.get(port.payload))
                    silent = 0
            if silent == 0:
                self.cycles += 1
            await ctx.tick()


def test_sources_of_a_merger_keep_their_order_and_lose_nothing():
    for kind in (Merger, FairMerger):
        for depth in (2, 3, 4):
            merger = kind(unsigned(WIDTH), depth)
            sources = Sources([merger.first, merger.second], [merger.output], [40, 25], seed=depth)
            simulate(merger, sources.bench)
            for i, count in enumerate((40, 25)):
                assert [value & 255 for value in sources.seen[0] if value >> 8 == i] == list(range(count))
            assert not any(sources.waiting)


@pytest.mark.parametrize(("kind", "most_cycles"), [(Merger, 100), (FairMerger, 66)])
def test_progress_of_a_merger(kind, most_cycles):
    """The paper's merger passes two results in three cycles, the fair one a result every cycle."""
    merger = kind(unsigned(WIDTH), 4)
    sources = Sources([merger.first, merger.second], [merger.output], [32, 32], seed=0, eager=True)
    simulate(merger, sources.bench)
    assert len(sources.seen[0]) == 64
    assert sources.cycles <= most_cycles


def test_the_fair_merger_serves_both_inputs_in_turns():
    merger = FairMerger(unsigned(WIDTH), 4)
    sources = Sources([merger.first, merger.second], [merger.output], [20, 20], seed=0, eager=True)
    simulate(merger, sources.bench)
    assert [value >> 8 for value in sources.seen[0]] == [0, 1] * 20


def test_the_fair_merger_gives_a_lone_input_every_cycle():
    merger = FairMerger(unsigned(WIDTH), 4)
    sources = Sources([merger.first, merger.second], [merger.output], [30, 0], seed=0, eager=True)
    simulate(merger, sources.bench)
    assert sources.cycles <= 30 + 3


@pytest.mark.parametrize(("inputs", "lanes"), [(1, 1), (2, 1), (3, 1), (5, 2), (7, 3), (8, 8)])
def test_a_network_of_any_size_delivers_everything_once(inputs, lanes):
    network = MergingNetwork(FairMerger, unsigned(WIDTH), 2, inputs, lanes)
    counts = [6 + 3 * i for i in range(inputs)]
    sources = Sources(list(network.inputs), list(network.outputs), counts, seed=inputs)
    simulate(network, sources.bench)
    assert len(network.full) == inputs - lanes
    for i, count in enumerate(counts):
        [lane] = {n for n, seen in enumerate(sources.seen) for value in seen if value >> 8 == i}
        assert [value & 255 for value in sources.seen[lane] if value >> 8 == i] == list(range(count))


# ---- admission control


@pytest.mark.parametrize("lossless", [True, False])
def test_a_full_flag_suspends_all_and_refuses_or_holds_the_input(lossless):
    control = AdmissionControl(3, lossless)

    async def bench(ctx):
        ctx.set(control.ready, 1)
        ctx.set(control.left_valid, 1)
        assert ctx.get(control.start) and ctx.get(control.left_ready) and not ctx.get(control.suspend)
        ctx.set(control.full, 0b010)
        await ctx.tick()
        assert ctx.get(control.suspend) and not ctx.get(control.start)
        assert ctx.get(control.left_ready) == (not lossless)
        for _ in range(3):
            await ctx.tick()
        assert ctx.get(control.refused_left) == (0 if lossless else 3)
        assert ctx.get(control.refused_right) == 0
        ctx.set(control.full, 0)
        await ctx.tick()
        assert ctx.get(control.start) and not ctx.get(control.suspend)

    simulate(control, bench)


# ---- the ring


@pytest.mark.parametrize(("left", "right", "banks"), [(1, 1, 1), (4, 4, 2), (6, 3, 1), (8, 4, 4)])
def test_a_ring_window_holds_the_latest_tuples_of_both_streams(left, right, banks):
    p = Parameters(left_segment=left, right_segment=right, key_width=8, payload_width=8, comparators=banks)
    window = RingWindow(p)
    numbers = random.Random(left)

    async def read(ctx, other_right):
        """The window's tuples of the stream that a tuple of `other_right` would probe."""
        held = []
        for row in range((left if other_right else right) // banks):
            ctx.set(window.scan, 1)
            ctx.set(window.scan_right, other_right)
            ctx.set(window.scan_row, row)
            await ctx.tick()
            ctx.set(window.scan, 0)
            for bank in range(banks):
                if ctx.get(window.keys[bank].valid):
                    ctx.set(window.fetch, 1)
                    ctx.set(window.fetch_right, other_right)
                    ctx.set(window.fetch_row, row)
                    ctx.set(window.fetch_bank, bank)
                    key = ctx.get(window.keys[bank].key)
                    await ctx.tick()
                    held.append((key, ctx.get(window.found.payload)))
        return sorted(held)

    async def bench(ctx):
        while not ctx.get(window.ready):
            await ctx.tick()
        stored: dict[int, deque[tuple[int, int]]] = {0: deque(maxlen=left), 1: deque(maxlen=right)}
        for number in range(25):
            side = numbers.randrange(2)
            key = numbers.randrange(-128, 128)
            ctx.set(window.store, 1)
            ctx.set(window.store_right, side)
            ctx.set(window.stored.key, key)
            ctx.set(window.stored.payload, number)
            ctx.set(window.stored.valid, 1)
            await ctx.tick()
            ctx.set(window.store, 0)
            stored[side].append((key, number))
            for probing in (0, 1):
                assert await read(ctx, probing) == sorted(stored[1 - probing])

    simulate(window, bench)


# ---- predicates and parameters

PREDICATES = [
    KeyPredicate.equality(),
    KeyPredicate(0, 0, negated=True),
    KeyPredicate(-2, 3),
    KeyPredicate(None, -1),
    KeyPredicate(0, None),
    KeyPredicate(5, 5),
]


@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
@pytest.mark.parametrize("kind", [signed(4), unsigned(4)])
def test_a_predicate_circuit_does_not_wrap(predicate, kind):
    m, left, right, holds = Module(), Signal(kind), Signal(kind), Signal()
    m.d.comb += holds.eq(predicate.circuit(left, right))
    keys = range(-8, 8) if kind.signed else range(16)

    async def bench(ctx):
        for l in keys:
            for r in keys:
                ctx.set(left, l)
                ctx.set(right, r)
                assert bool(ctx.get(holds)) == predicate.holds(l, r), (l, r)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cores": 0}, "cores is 0: give a whole number from 1"),
        ({"key_width": 200}, "key_width is 200"),
        ({"lanes": 5}, "lanes is 5: give a whole number from 1 to 4"),
        ({"core_fifo": 1}, "core_fifo is 1"),
        ({"left_segment": True}, "left_segment is True"),
        ({"comparators": 3}, "3 comparators do not divide a segment of 8 tuples"),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    with pytest.raises(HardwareError, match=message):
        Parameters(**wrong)


def test_a_predicate_needs_a_bound_and_an_order():
    with pytest.raises(HardwareError, match="always true"):
        KeyPredicate(None, None)
    with pytest.raises(HardwareError, match="lo is 3 and hi is 2"):
        KeyPredicate(3, 2)
