# amaranth: UnusedElaboratable=no
"""Circuits with one mistake each: the oracle must notice every one of them."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("amaranth")

from streamjoin.hardware import (
    admission,
    fifo,
    handshake,
    join_core,
    low_latency,
    low_latency_core,
    mergers,
    ring_window,
)
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.interpret import Interpreter
from streamjoin.hardware.parameters import HardwareError
from streamjoin.hardware.simulate import Stream


def mutated(module: ModuleType, old: str, new: str) -> SimpleNamespace:
    """The names of a module whose source has `new` in the one place where it had `old`."""
    source = Path(str(module.__file__)).read_text()
    assert source.count(old) == 1, f"{old!r} is there {source.count(old)} times"
    names: dict[str, object] = {"__name__": module.__name__}
    exec(compile(source.replace(old, new), f"mutant of {module.__name__}", "exec"), names)
    return SimpleNamespace(**names)


def is_right(name: str) -> bool:
    """Match rate 1 and 1/3, invalid tuples, a slow reader, the smallest buffers."""
    design = DESIGNS[name]
    smallest = 2 if name == "handshake" else 3
    dice = random.Random(7)
    for segment, keys in ((6, 1), (2, 1), (2, 3)):
        p = design.parameters(
            cores=3, left_segment=segment, right_segment=segment, core_fifo=smallest, merger_fifo=2, lanes=1
        )
        left, right = (
            Stream(
                [dice.randrange(keys) for _ in range(16)],
                range(16),
                [int(dice.random() < 0.8) for _ in range(16)],
            )
            for _ in range(2)
        )
        try:
            run = Interpreter(design.build(p)).run(left, right, [0] * 3 + [1], most_cycles=1_500)
        except HardwareError:
            return False
        known = [
            [k if v else None for k, v in zip(s.keys, s.valid or (), strict=True)] for s in (left, right)
        ]
        expected = Counter(design.finds(run.accepted, known[0], known[1], p))
        if Counter((l, r) for _, l, _, r in run.results) != expected:
            return False
    return True


@pytest.mark.parametrize("name", list(DESIGNS))
def test_the_circuits_themselves_are_right(name):
    assert is_right(name)


# What is wrong -> module, text, wrong text, and who uses the changed class.
MUTANTS = {
    "almost full one slot late": (join_core, "CORE_MARGIN = 1", "CORE_MARGIN = 0", handshake, "JoinCore"),
    "a dropped valid bit": (join_core, "left.valid & right.valid &", "left.valid &", handshake, "JoinCore"),
    "writing while suspended": (join_core, "match & ~self.suspend", "match", handshake, "JoinCore"),
    "right before left": (join_core, 'm.next = "CHECK_LEFT"', 'm.next = "CHECK_RIGHT"', handshake, "JoinCore"),
    "a merger that loads one too many": (
        mergers, "fifo = self._buffer(m, margin=1)\n        loaded", "fifo = self._buffer(m, margin=0)\n        loaded",
        handshake, "Merger",
    ),
    "a merger that takes what it did not load": (
        mergers, "flag.eq(port.valid & port.ready)", "flag.eq(port.valid)", handshake, "Merger",
    ),
    "one flag instead of all": (admission, "self.full.any()", "self.full[0]", handshake, "AdmissionControl"),
    "almost full one slot late, low latency": (
        low_latency_core, "PIPELINE_MARGIN = 2", "PIPELINE_MARGIN = 1", low_latency, "LowLatencyCore",
    ),
    "a tuple that looks too early": (
        low_latency_core, "LEAST_PERIOD = 3", "LEAST_PERIOD = 1", low_latency, "LowLatencyCore",
    ),
    "a dropped valid bit, low latency": (
        low_latency_core, "probe.tuple.valid & stored.valid", "probe.tuple.valid", low_latency, "LowLatencyCore",
    ),
    "a row emitted twice": (
        low_latency_core, "pending.eq(others)", "pending.eq(pending)", low_latency, "LowLatencyCore",
    ),
    "a full merger that takes one more": (
        mergers, "(self.first.valid | self.second.valid) & ~full", "self.first.valid | self.second.valid",
        low_latency, "FairMerger",
    ),
    "one place too few in a ring": (
        ring_window, "head == segment - 1", "head == segment - 2", low_latency_core, "RingWindow",
    ),
    "a buffer that forgets its last": (
        fifo, "stored & ~(load & last)", "stored & ~load", low_latency_core, "ResultFifo",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", list(MUTANTS))
def test_a_mutant_is_caught(what, monkeypatch):
    module, old, new, user, name = MUTANTS[what]
    monkeypatch.setattr(user, name, getattr(mutated(module, old, new), name))
    assert not is_right("handshake" if user is handshake else "low-latency")


def test_an_unfair_merger_is_caught(monkeypatch):
    """With both inputs busy a fair network lets no core wait: the results of all cores come out mixed."""
    design = DESIGNS["low-latency"]
    p = design.parameters(cores=2, left_segment=8, right_segment=8, lanes=1, core_fifo=3, merger_fifo=2)
    left, right = Stream([1] * 24, range(24)), Stream([1] * 4, range(4), None, [400] * 4)

    def longest_wait() -> int:
        """The most results of one core in a row, while both have some; a left tuple's core is its number mod 2."""
        run = Interpreter(design.build(p)).run(left, right)
        cores = [l % 2 for _, l, _, _ in run.results]
        runs, longest = 1, 1
        for before, after in pairwise(cores):
            runs = runs + 1 if before == after else 1
            longest = max(longest, runs)
        return longest

    fair = longest_wait()
    unfair = mutated(mergers, "turn.eq(~choose_second)", "turn.eq(0)")
    monkeypatch.setattr(low_latency, "FairMerger", unfair.FairMerger)
    assert fair <= 3 < longest_wait()
