"""What index="auto" costs beside every fixed index, over predicates, key patterns, window and batch sizes.

A cell is one full window in steady state. A push brings `batch` probes of the other side and `batch` new tuples, and
expires as many. The clock covers probe, insert and expire of the window alone. Work that is the same for every index
(Arrow in and out, the pair buffer, residual conditions, result rows) is left out or shared, so that it cannot hide a
difference.

A round makes a new window for each rival in random order, warms them up, and sends them the same pushes, in turns of a
few milliseconds and in random order. It gives one ratio: the time of auto over that of the fixed index with the best
median of all rounds. A cell's ratio is the median over its rounds, with a 95 % interval by order statistics, which
makes no assumption about the distribution. Every cell has ROUNDS rounds. Cells whose interval contains TARGET get
ROUNDS more, in turn and repeatedly, up to MOST_ROUNDS or until RUN_SECONDS have passed; what is still open then counts
as undecided. The best of several indexes in the same rounds was partly lucky in them, so ratios are biased against
auto; nothing corrects for that.

Some fixed indexes are dropped from a cell: those that took HOPELESS times as long as the best one during warm-up;
those that took SLOWER times as long in both of the first two rounds; and all but the best, where all took twice as
long as auto in both. A scan that is hopeless, or anything ten times slower still, is also skipped for larger batches.

Key patterns: `uniform`; `increasing`, where each stored key is greater than all before and probes ask for any key in
the window; `skewed`, with 99 % of the keys in 1 % of the range (rank-size). Equalities, narrow bands and 2-D bands
find about two tuples per probe. The wide band and the inequality find a 64th of the window, limited to a million pairs
per push. LARGE_CLASSES with uniform keys also have a larger window with larger batches: the largest subwindow and
batch of the paper (Pan & Jacobsen, section V-A).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

import streamjoin as sj
from benchmarks.shared.medians import interval_of_median
from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.adaptive import AdaptiveWindow
from streamjoin.index.build import compile_plan, make_window
from streamjoin.index.times import Reach
from streamjoin.index.tuples import ProbingTuples, Tuples
from streamjoin.index.window import WindowIndex
from streamjoin.kernels.pairs import PairBuffer
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan

SEED = 20180416
WINDOWS = (1 << 10, 1 << 14, 1 << 18, 1 << 21)
BATCHES = (1, 64, 1024, 16_384)
PATTERNS = ("uniform", "increasing", "skewed")
LARGE_WINDOW, LARGE_BATCHES = 1 << 23, (*BATCHES, 1 << 20)
LARGE_CLASSES = ("equi", "band", "composite")
FIXED = ("scan", "hash", "bisort", "raptable", "wibtree")
ROUND_SECONDS, TURN_SECONDS, RUN_SECONDS, FEWEST_PUSHES = 0.03, 0.003, 1800, 6
ROUNDS, MOST_ROUNDS = 6, 36
HOPELESS, SLOWER = 3.0, 1.25
LONGEST_STREAM = 4 << 20  # tuples after the window is full; increasing keys must not run out before
WARM_UP = 50_000  # tuples to warm up with; each push counts as 256 more
HELD_FIRST = 4096  # tuples in the window of auto when the first probe comes
MOST_PAIRS = 1_000_000
TARGET = 1.10

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.int32()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.int32(), "w": pa.int32(), "v": pa.int32()})
RANK = np.zeros(1, np.int32)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Class:
    """A class of predicates over x, y of left (stored) and a, b of right (probing), with half-widths w and v.

    `found(window, batch)`: tuples that a probe should find by x, and also by y with `plane`.
    """

    on: str
    found: Callable[[int, int], float]
    plane: bool = False  # y is as selective as x
    shift: bool = False  # an inequality: probes ask for the upper end of the range

    def offers(self, index: Any) -> bool:
        return index != "hash" or "=" in self.on.replace(">=", "")


def few(_window: int, _batch: int) -> float:
    return 2.0


def many(window: int, batch: int) -> float:
    return min(window / 64, MOST_PAIRS / batch)


CLASSES = {
    "equi": Class("x = a", few),
    "band": Class("x BETWEEN a - w AND a + w", few),
    "wide": Class("x BETWEEN a - w AND a + w", many),
    "inequality": Class("x >= a", many, shift=True),
    "plane": Class("x BETWEEN a - w AND a + w AND y BETWEEN b - v AND b + v", few, plane=True),
    "residual": Class("x = a AND (y * b) % 2 = 0", few),
    "composite": Class("x = a AND y = b", few, plane=True),
}


class Data:
    """The two streams of a cell: left rows at times `at`, `at + 1`, ..., and the right rows that probe them."""

    def __init__(self, kind: Class, pattern: str, window: int, batch: int):
        self.kind, self.pattern, self.window, self.at = kind, pattern, window, 0
        self.random = np.random.default_rng(SEED)
        share = kind.found(window, batch) / window  # the part of the window that a probe finds
        equality = "BETWEEN" not in kind.on and not kind.shift
        part = share**0.5 if kind.plane else share
        # The number of different keys sets the share of an equality, the width that of a band.
        self.range = max(2, round(1 / part)) if equality else 1 << 30
        if pattern == "increasing" and not equality:
            self.range = window * ((1 << 31) // (window + LONGEST_STREAM))
        self.dense = 100 if pattern == "skewed" else 1  # nearly all keys lie in 1/dense of the range
        self.half = 0 if equality else max(1, round(part * self.range / 2 / self.dense))
        self.y_range = self.range if kind.plane else 1 << 20
        self.y_half = 0 if equality else max(1, round(part * self.y_range / 2))
        if equality:
            self.range *= self.dense
        self.part = part

    def keys(self, count: int) -> Array:
        if self.pattern == "skewed":
            wide = self.random.random(count) < 0.01
            return self.random.integers(0, np.where(wide, self.range, self.range // 100), dtype=np.int32)
        if self.pattern == "increasing":
            return self._rising(np.arange(self.at, self.at + count))
        return self.random.integers(0, self.range, count, dtype=np.int32)

    def _rising(self, places: Array) -> Array:
        """The key of the tuple at each place: keys grow by `range` over a window."""
        return (places * self.range // self.window - (1 << 30)).astype(np.int32)

    def asked(self, count: int) -> Array:
        """The keys that probes ask for."""
        if self.kind.shift:
            return self._tail(count)
        if self.pattern == "increasing":
            return self._rising(self.at + self.random.integers(-self.window, 0, count))
        return self.keys(count)

    def _tail(self, count: int) -> Array:
        """Keys that about `part` of the window is greater than or equal to."""
        jitter = self.part * self.random.uniform(0.5, 1.5, count)
        if self.pattern == "increasing":
            return self._rising(self.at - np.maximum(1, jitter * self.window).astype(np.int64))
        if self.pattern == "uniform":
            return ((1 - jitter) * self.range).astype(np.int32)
        beyond = np.maximum(0, 1 - jitter * 100) if self.part < 0.01 else np.zeros(count)
        inside = 1 - np.maximum(0, jitter - 0.01) / 0.99
        dense = self.range // 100
        return np.where(jitter < 0.01, dense + beyond * (self.range - dense), inside * dense).astype(np.int32)

    def stored(self, count: int) -> dict[str, Array]:
        ys = self.random.integers(0, self.y_range, count, dtype=np.int32)
        return {"ts": np.arange(self.at, self.at + count), "x": self.keys(count), "y": ys}

    def probing(self, count: int) -> dict[str, Array]:
        ys = self.random.integers(0, self.y_range, count, dtype=np.int32)
        widths = {"w": np.full(count, self.half, np.int32), "v": np.full(count, self.y_half, np.int32)}
        return {"ts": np.full(count, self.at - 1), "a": self.asked(count), "b": ys, **widths}


@cache
def plan_of(on: str, index: Any) -> Plan:
    spec = sj.JoinSpec(LEFT, RIGHT, on, sj.TimeWindow(1), "ts", "ts")
    plan = make_plan(spec, Options(index=index))
    compile_plan(plan)
    return plan


def prepared(program: WindowProgram, rows: dict[str, Array], side: str) -> Any:
    """Rows in the role of their side for the left window, numbered by their place in the stream."""
    read = program.stored_columns if side == "left" else program.probe_columns
    data = {c: to_column_data(pa.array(rows[c.name]), c.type) for c in read}
    ts, count = rows["ts"], len(rows["ts"])
    header = ts, ts, np.zeros(count, np.int32)
    if side == "left":
        return Tuples(*header, program.prepare_stored(data, count), nulls=False)
    return ProbingTuples(*header, Stored(), False, program.prepare_probe(data, count))


Push = tuple[ProbingTuples, Reach, Tuples, int]


def some_pushes(data: Data, program: WindowProgram, count: int, batch: int) -> list[Push]:
    """The next `count` pushes: probes and their reach, new tuples, and the least time in reach after them."""
    made = []
    for _ in range(count):
        probes = prepared(program, data.probing(batch), "right")
        reach = Reach(np.full(batch, data.at - data.window), np.full(batch, data.at))
        tuples = prepared(program, data.stored(batch), "left")
        data.at += batch
        made.append((probes, reach, tuples, data.at - data.window))
    return made


class Rival:
    """The left window with one index; the caller owns `pairs`."""

    def __init__(self, plan: Plan, fill: Tuples, first: Push, pairs: PairBuffer):
        self.window: WindowIndex = make_window(plan, "left")
        self.pairs = pairs
        if isinstance(self.window, AdaptiveWindow):
            # As in a stream, it sees probes before it is full. Probing a full window by scan may take minutes.
            self.window.insert(fill.pick(slice(HELD_FIRST)), RANK)
            self._probe(*first[:2])
            fill = fill.pick(slice(HELD_FIRST, None))
        self.window.insert(fill, RANK)

    def measure(self, pushes: list[Push]) -> list[float]:
        """The seconds of each push."""
        times = []
        for probes, reach, tuples, past in pushes:
            started = time.perf_counter()
            self._probe(probes, reach)
            self.window.insert(tuples, RANK)
            self.window.expire(past)
            times.append(time.perf_counter() - started)
        return times

    def _probe(self, probes: ProbingTuples, reach: Reach) -> None:
        self.pairs.count = 0
        for _ in self.window.probe(probes, reach, self.pairs):
            pass


class Cell:
    """All rivals on the same streams: tuples that fill the window, pushes that warm it up, and pushes that count.

    `taken`: seconds per push of each rival, by round. `left_out`: seconds per push of each rival that was dropped.
    """

    def __init__(self, kind: Class, pattern: str, window: int, batch: int, names: list[str]):
        self.plans = {name: plan_of(kind.on, name) for name in (*names, "auto")}
        self.program = self.plans["auto"].programs["left"]
        self.data, self.batch = Data(kind, pattern, window, batch), batch
        self.fill = prepared(self.program, self.data.stored(window), "left")
        self.data.at = window
        # The first pushes warm the caches; the others let auto evaluate its costs.
        self.warm_up = [self._pushes(count) for count in (3, max(4, WARM_UP // (256 + batch)))]
        self.pushes: list[Push] = []
        self.pairs, self.random = PairBuffer(65_536), np.random.default_rng(SEED)
        self.taken: dict[str, list[float]] = {name: [] for name in self.plans}
        self.left_out: dict[str, float] = {}
        self.chosen, self.undecided = "", True

    def _pushes(self, count: int) -> list[Push]:
        return some_pushes(self.data, self.program, count, self.batch)

    def measure(self) -> dict[str, Any]:
        """Run ROUNDS more rounds; return microseconds per push of each rival, and the ratio of auto to the best."""
        for _ in range(ROUNDS):
            self._round()
        medians = {name: float(np.median(times)) for name, times in self.taken.items()}
        best = min((name for name in medians if name != "auto"), key=medians.__getitem__)
        ratios = np.array(self.taken["auto"]) / np.array(self.taken[best])
        low, high = interval_of_median(ratios)
        self.undecided = low <= TARGET <= high
        times = medians | self.left_out
        row = {name: 1e6 * times[name] if name in times else None for name in (*FIXED, "auto")}
        outcome = {"best": best, "ratio": float(np.median(ratios)), "low": low, "high": high}
        return row | outcome | {"rounds": len(ratios), "chosen": self.chosen}

    def _round(self) -> None:
        """Measure new windows of all rivals that are still in."""
        rivals = {
            name: Rival(self.plans[name], self.fill, self.warm_up[0][0], self.pairs)
            for name in self.random.permutation([*self.taken])
        }
        for pushes, limit in zip(self.warm_up, (10 * HOPELESS, HOPELESS), strict=True):
            # Medians, because one of the few pushes may complete a subwindow, which is rare and slow.
            usual = {name: float(np.median(rival.measure(pushes))) for name, rival in rivals.items()}
            least = min(seconds for name, seconds in usual.items() if name != "auto")
            if not self.taken["auto"]:
                self._leave_out({name: took for name, took in usual.items() if took >= limit * least})
            rivals = {name: rival for name, rival in rivals.items() if name in self.taken}
        if not self.pushes:
            self.pushes = self._pushes(int(np.clip(ROUND_SECONDS / least, FEWEST_PUSHES, 1000)))
        for name, seconds in self._in_turns(rivals, least).items():
            self.taken[name].append(seconds)
        self.chosen = chosen_by(rivals["auto"].window)
        if len(self.taken["auto"]) == 2:
            self._leave_out_slower()

    def _leave_out_slower(self) -> None:
        fixed = {name: np.array(times) for name, times in self.taken.items() if name != "auto"}
        best = np.minimum.reduce([*fixed.values()])
        slower = {name for name, times in fixed.items() if (times >= SLOWER * best).all()}
        if (best >= 2 * np.array(self.taken["auto"])).all():
            slower = fixed.keys() - {min(fixed, key=lambda name: float(fixed[name].sum()))}
        self._leave_out({name: float(np.median(fixed[name])) for name in slower})

    def _leave_out(self, seconds: dict[str, float]) -> None:
        for name in seconds.keys() - {"auto"}:
            self.left_out[name] = seconds[name]
            del self.taken[name]

    def _in_turns(self, rivals: dict[str, Rival], seconds: float) -> dict[str, float]:
        """Seconds per push of each rival; a push takes about `seconds`.

        The order changes every time, because a rival that follows a similar one finds warm caches.
        """
        total = dict.fromkeys(rivals, 0.0)
        turn = max(1, int(TURN_SECONDS / seconds))
        for begin in range(0, len(self.pushes), turn):
            for name in self.random.permutation([*rivals]):
                total[name] += sum(rivals[name].measure(self.pushes[begin : begin + turn]))
        return {name: taken / len(self.pushes) for name, taken in total.items()}


def chosen_by(window: WindowIndex) -> str:
    """The structure that auto chose for the window."""
    if not window.links:
        return "scan"
    kinds = [f"{link.choice.structure} {link.choice.condition}" for link in window.links]
    return f"{len(kinds)} x {kinds[-1]}"


Measured = tuple[dict[str, Any], Cell]


def streams_of(name: str, quick: bool) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """Key pattern, window and batches of each group of cells of a class."""
    for pattern in PATTERNS[:1] if quick else PATTERNS:
        for window in WINDOWS[:3] if quick else WINDOWS:
            yield pattern, window, BATCHES
    if name in LARGE_CLASSES and not quick:
        yield PATTERNS[0], LARGE_WINDOW, LARGE_BATCHES


def first_rounds(name: str, quick: bool) -> Iterator[Measured]:
    """Measure the cells of a class; yield each with its row."""
    kind = CLASSES[name]
    for pattern, window, batches in streams_of(name, quick):
        names = [index for index in FIXED if kind.offers(index)]
        for batch in batches:
            cell = Cell(kind, pattern, window, batch, names)
            row = cell.measure()
            yield {"class": name, "pattern": pattern, "window": window, "batch": batch, **row}, cell
            times = {n: row[n] / row[row["best"]] for n in names}
            names = [n for n in names if times[n] < (HOPELESS if n == "scan" else 10 * HOPELESS)]


def further_rounds(undecided: list[Measured], until: float) -> None:
    """Measure the undecided cells in turn and update their rows."""
    while undecided:
        for row, cell in undecided:
            if time.perf_counter() >= until:
                return
            row |= cell.measure()
        undecided = [(row, cell) for row, cell in undecided if cell.undecided and row["rounds"] < MOST_ROUNDS]


def run(quick: bool) -> dict[str, Any]:
    """Rows: one per cell, in microseconds per push. Summary: how far auto is behind the best fixed index."""
    until = time.perf_counter() + RUN_SECONDS
    rows, undecided = [], []
    for name in CLASSES:
        for row, cell in first_rounds(name, quick):
            rows.append(row)
            if cell.undecided:
                undecided.append((row, cell))
    further_rounds(undecided, until)
    worst = max(rows, key=lambda row: row["ratio"])
    summary = {
        "cells": len(rows),
        "target": TARGET,
        "within_target": sum(row["ratio"] <= TARGET for row in rows),
        "within_target_for_sure": sum(row["high"] < TARGET for row in rows),
        "beyond_target_for_sure": sum(row["low"] > TARGET for row in rows),
        "undecided": sum(row["low"] <= TARGET <= row["high"] for row in rows),
        "worst_ratio": worst["ratio"],
        "worst_cell": {name: worst[name] for name in ("class", "pattern", "window", "batch", "chosen")},
        "median_ratio": float(np.median([row["ratio"] for row in rows])),
        "rounds": sum(row["rounds"] for row in rows),
        "best_fixed": {name: sum(row["best"] == name for row in rows) for name in FIXED},
    }
    return {"rows": rows, "summary": summary}
