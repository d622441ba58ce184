# amaranth: UnusedElaboratable=no
"""Whole joins against the oracles: every design, core count, predicate, arrival pattern and buffer depth."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("amaranth")

from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.hardware.designs import DESIGNS, Design, design_named
from streamjoin.hardware.interpret import Interpreter
from streamjoin.hardware.parameters import HardwareError, KeyPredicate, Parameters
from streamjoin.hardware.simulate import JoinSimulator, SimulatedRun, Stream

NAMES = list(DESIGNS)
EQUALITY = KeyPredicate.equality()
PREDICATES = [EQUALITY, KeyPredicate(-1, 2), KeyPredicate(None, -1), KeyPredicate(0, 0, negated=True)]
# Always; a slow reader; bursts; the last lane first. One entry a cycle.
READERS = [[255], [0, 0, 0, 255], [255] * 5 + [0] * 40, [0b1000, 0b0001, 255, 0b0010]]
ARRIVALS = ["both at once", "left idle", "right idle", "bursts", "random"]


def arrivals(pattern: str, side: str, count: int, seed: int) -> list[int]:
    """The cycle from which on each tuple of a side waits at the edge."""
    dice = random.Random(f"{pattern} {side} {seed}")
    if pattern == "both at once":
        return [0] * count
    if pattern == f"{side} idle":
        return [800] * count
    if pattern == "bursts":
        return [100 * (i // 5) for i in range(count)]
    return sorted(dice.randrange(0, 20 * count) for _ in range(count))


def streams(
    count: int, keys: int, pattern: str = "both at once", seed: int = 1, nulls: bool = False
) -> list[Stream]:
    """Left and right. Payloads are the tuples' numbers, so that a result says which pair it is."""
    dice = random.Random(seed)
    made = []
    for side in ("left", "right"):
        values = [dice.randrange(-(keys // 2), keys - keys // 2) for _ in range(count)]
        valid = [int(not nulls or dice.random() < 0.8) for _ in range(count)]
        made.append(Stream(values, list(range(count)), valid, arrivals(pattern, side, count, seed)))
    return made


def known_keys(stream: Stream) -> list[int | None]:
    valid = stream.valid or [1] * len(stream)
    return [key if flag else None for key, flag in zip(stream.keys, valid, strict=True)]


def rows(pairs: list[tuple[int, int]], left: Stream, right: Stream) -> Counter[tuple[int, int, int, int]]:
    """Pairs as the circuit's results, which carry keys and payloads."""
    return Counter((left.keys[l], left.payloads[l], right.keys[r], right.payloads[r]) for l, r in pairs)


def check(design: Design, p: Parameters, run: SimulatedRun, left: Stream, right: Stream) -> None:
    """Exactly the pairs of the oracle, each once; every tuple was either accepted or refused."""
    expected = rows(design.finds(run.accepted, known_keys(left), known_keys(right), p), left, right)
    assert Counter(run.results) == expected
    assert len(run.accepted) + sum(run.refused) == len(left) + len(right)
    assert sum(run.refused) == 0 or not p.lossless


# ---- cases one can check by eye


@pytest.mark.parametrize("name", NAMES)
def test_two_tuples_with_one_key_are_a_pair(name):
    design = DESIGNS[name]
    p = design.parameters(cores=1, left_segment=4, right_segment=4)
    run = Interpreter(design.build(p)).run(Stream([7, 8], [100, 101]), Stream([7, 9], [200, 201]))
    assert run.results == [(7, 100, 7, 200)]
    assert run.accepted == [("left", 0), ("right", 0), ("left", 1), ("right", 1)]


def test_handshake_join_finds_a_pair_only_when_it_meets():
    """Two cores of two: the tuples are at opposite ends until two more left ones have moved the first."""
    design = DESIGNS["handshake"]
    p = design.parameters(cores=2, left_segment=2, right_segment=2)
    right = Stream([5], [50])
    for others, found in ((0, []), (1, []), (2, [(5, 10, 5, 50)])):
        left = Stream([5] + [0] * others, range(10, 11 + others), [1] + [0] * others)
        assert Interpreter(design.build(p)).run(left, right).results == found


def test_the_low_latency_join_finds_it_at_once():
    design = DESIGNS["low-latency"]
    p = design.parameters(cores=2, left_segment=2, right_segment=2)
    run = Interpreter(design.build(p)).run(Stream([5], [10]), Stream([5], [50]))
    assert run.results == [(5, 10, 5, 50)]


@pytest.mark.parametrize("name", NAMES)
def test_a_window_forgets_its_oldest_tuple(name):
    """A window of two rows: the right tuple comes when three left ones have come."""
    design = DESIGNS[name]
    p = design.parameters(cores=1, left_segment=2, right_segment=2, comparators=1)
    left, right = Stream([1, 1, 1], [0, 1, 2]), Stream([1], [9], not_before=[500])
    run = Interpreter(design.build(p)).run(left, right)
    assert sorted(run.results) == [(1, 1, 1, 9), (1, 2, 1, 9)]


@pytest.mark.parametrize("name", NAMES)
def test_a_tuple_without_valid_takes_a_place_and_joins_with_nothing(name):
    design = DESIGNS[name]
    p = design.parameters(cores=1, left_segment=2, right_segment=2, comparators=1)
    left, right = Stream([1, 1], [0, 1], [1, 0]), Stream([1], [9], not_before=[500])
    assert Interpreter(design.build(p)).run(left, right).results == [(1, 0, 1, 9)]
    left = Stream([1, 1, 1], [0, 1, 2], [1, 0, 0])
    assert Interpreter(design.build(p)).run(left, right).results == []


# ---- properties


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=25)
def test_any_small_join_agrees_with_its_oracle(name, data):
    """In Amaranth's simulator: parameters, keys, arrivals and the reader are all drawn."""
    design = DESIGNS[name]
    comparators = 1 if name == "handshake" else data.draw(st.sampled_from([1, 2]))
    cores = data.draw(st.integers(1, 2))
    p = design.parameters(
        cores=cores,
        left_segment=comparators * data.draw(st.integers(1, 3)),
        right_segment=comparators * data.draw(st.integers(1, 3)),
        key_width=data.draw(st.sampled_from([3, 8])),
        payload_width=8,
        predicate=data.draw(st.sampled_from(PREDICATES)),
        core_fifo=data.draw(st.integers(3, 5)),
        merger_fifo=data.draw(st.integers(2, 4)),
        lossless=data.draw(st.booleans()),
        lanes=data.draw(st.integers(1, cores)),
        comparators=comparators,
    )
    keys = data.draw(st.sampled_from([1, 3, 8]))
    pattern = data.draw(st.sampled_from(["both at once", "bursts", "random"]))
    left, right = streams(8, keys, pattern, data.draw(st.integers(0, 99)), nulls=data.draw(st.booleans()))
    run = Interpreter(design.build(p)).run(left, right, data.draw(st.sampled_from(READERS)))
    check(design, p, run, left, right)


def conformance(name: str, cores: int, predicate: KeyPredicate, tuples: int = 120, **given_: Any) -> None:
    """One compiled circuit, all arrival patterns, match rates up to 1, all readers."""
    design = DESIGNS[name]
    p = design.parameters(cores=cores, predicate=predicate, **given_)
    simulator = JoinSimulator(design.build(p))
    for pattern in ARRIVALS:
        for keys in (1, 7):
            for reader in READERS:
                left, right = streams(tuples, keys, pattern, cores, nulls=keys == 7)
                check(design, p, simulator.run(left, right, reader), left, right)


@pytest.mark.parametrize("name", NAMES)
def test_conformance(name):
    """The smallest buffers and refusals; match rate 1 with a slow reader is where an overflow shows."""
    smallest = 2 if name == "handshake" else 3
    conformance(name, 3, EQUALITY, tuples=60, core_fifo=smallest, merger_fifo=2, lanes=1, lossless=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cores", [1, 2, 3, 4, 5, 7, 8, 13, 16, 32, 33, 64])
def test_conformance_of_many_cores(name, cores):
    conformance(name, cores, EQUALITY, tuples=8 * cores + 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("predicate", PREDICATES, ids=str)
@pytest.mark.parametrize("lossless", [True, False])
def test_conformance_of_every_predicate(name, predicate, lossless):
    conformance(name, 6, predicate, lossless=lossless, core_fifo=3, merger_fifo=2)


@pytest.mark.slow
def test_conformance_of_windows_in_block_ram():
    conformance("low-latency", 2, EQUALITY, tuples=1200, left_segment=512, right_segment=256)


# ---- the two definitions


@pytest.mark.parametrize("name", NAMES)
def test_a_flushed_join_is_the_row_window_join_of_the_definition(name):
    """The definitions agree where every pair has had time to meet: always in the low-latency join and in one core; in
    handshake join after as many more left tuples as its window holds."""
    design = DESIGNS[name]
    p = design.parameters(
        cores=2, left_segment=4, right_segment=2, key_width=8, predicate=KeyPredicate(-1, 1)
    )
    left, right = streams(20, 5, "random", seed=3, nulls=True)
    flush = 0 if design.immediate else p.left_window
    assert left.valid is not None and left.not_before is not None
    flushed = Stream(
        [*left.keys, *[0] * flush],
        range(20 + flush),
        [*left.valid, *[0] * flush],
        [*left.not_before, *[400] * flush],
    )
    run = Interpreter(design.build(p)).run(flushed, right)
    schema = pa.schema({"ts": pa.int64(), "key": pa.int8(), "number": pa.int64()})
    spec = sj.JoinSpec(
        schema,
        schema,
        "left.key - right.key BETWEEN -1 AND 1",
        sj.RowWindow(p.left_window, p.right_window),
        "ts",
        "ts",
    )
    tables = table_of(run, "left", flushed, schema), table_of(run, "right", right, schema)
    expected = sj.oracle.join(*tables, spec).to_pylist()
    assert Counter((l, r) for _, l, _, r in run.results) == Counter(
        (row["number"], row["number_right"]) for row in expected
    )
    assert expected


def table_of(run: SimulatedRun, side: str, stream: Stream, schema: pa.Schema) -> pa.Table:
    """The accepted tuples of a side; their time is their place in the order of acceptance, NULL keys are not valid."""
    taken = [(ts, number) for ts, (taken_side, number) in enumerate(run.accepted) if taken_side == side]
    keys = known_keys(stream)
    columns = [
        [ts for ts, _ in taken],
        [keys[number] for _, number in taken],
        [number for _, number in taken],
    ]
    return pa.table(
        [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)], schema=schema
    )


# ---- promises


def test_a_result_of_the_low_latency_join_leaves_within_a_bound():
    """Arrivals far apart: one hop a cycle, one scan, the pipeline, two cycles a level of the network."""
    design = DESIGNS["low-latency"]
    p = design.parameters(cores=8, left_segment=4, right_segment=4, lanes=1)
    left, right = (
        Stream([1] * 20, range(20), None, [200 * i for i in range(20)]),
        Stream([1], [0], None, [4100]),
    )
    run = JoinSimulator(design.build(p)).run(left, right)
    came = run.accepted_cycles[-1]
    assert len(run.results) == 20
    assert max(run.result_cycles) - came <= p.cores + 2 + 5 + 2 * 4 + len(run.results)


def test_refusals_are_counted_and_what_was_accepted_is_joined():
    for name in NAMES:
        design = DESIGNS[name]
        p = design.parameters(cores=2, left_segment=4, right_segment=4, lossless=False)
        left, right = streams(30, 1)
        run = Interpreter(design.build(p)).run(left, right, [0] * 15 + [255])
        assert min(run.refused) > 0
        check(design, p, run, left, right)


def test_an_unknown_design_and_impossible_settings_are_refused():
    with pytest.raises(HardwareError, match="design is 'x'; allowed: handshake, low-latency"):
        design_named("x")
    with pytest.raises(HardwareError, match="comparators is 2: give 1"):
        DESIGNS["handshake"].build(Parameters(comparators=2))
    with pytest.raises(HardwareError, match="core_fifo is 2: this design needs at least 3"):
        DESIGNS["low-latency"].build(Parameters(core_fifo=2))
