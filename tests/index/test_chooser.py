"""What is chosen for a subwindow, and why: by batches and by a sample of tuples and probes; what a user sees of it."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from strategies import open_tuned
from streamjoin.codegen.columns import to_column_data
from streamjoin.codegen.prepared import Stored
from streamjoin.codegen.programs import WindowProgram
from streamjoin.index.tuples import ProbingTuples
from streamjoin.plan import subwindows as chooser
from streamjoin.plan.subwindows import (
    BandKey,
    BandRule,
    EqualityRule,
    FixedRule,
    StripsKey,
    Workload,
    condition_of,
)
from streamjoin.plan.tuning import ChoiceTuning, IndexCosts, Tuning
from streamjoin.semantics.analysis import analyse
from streamjoin.semantics.callables import CallablePredicate

LEFT = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.int32()})
RIGHT = pa.schema({"ts": pa.int64(), "a": pa.int32(), "b": pa.int32(), "w": pa.int32()})
PLANE = "x BETWEEN a - w AND a + w AND y BETWEEN b - 1 AND b + 1"


def make_program(on: str) -> WindowProgram:
    spec = sj.JoinSpec(LEFT, RIGHT, on, sj.TimeWindow(1), "ts", "ts")
    assert not isinstance(spec.predicate, CallablePredicate)
    return WindowProgram(spec.predicate, analyse(spec.predicate).left, "left", indexed=True)


def probes(program: WindowProgram, **columns: Any) -> ProbingTuples:
    count = len(next(iter(columns.values())))
    data = {c: to_column_data(pa.array(columns[c.name], pa.int32()), c.type) for c in program.probe_columns}
    zeros = np.zeros(count, np.int64)
    prepared = program.prepare_probe(data, count)
    return ProbingTuples(zeros, zeros, zeros.astype(np.int32), Stored(), False, prepared)


def stored(program: WindowProgram, **columns: Any) -> Stored:
    data = {c: to_column_data(pa.array(columns[c.name], pa.int32()), c.type) for c in program.stored_columns}
    return program.prepare_stored(data, len(next(iter(columns.values()))))


def asked(program: WindowProgram, batches: int, **columns: Any) -> Workload:
    workload = Workload()
    for _ in range(batches):
        workload.observe(probes(program, **columns).probing)
    return workload


def equality(on: str = "x = a", tuning: ChoiceTuning | None = None) -> EqualityRule:
    program = make_program(on)
    return EqualityRule(program, "hash", program.indexable(True), tuning)


def plane() -> BandRule:
    program = make_program(PLANE)
    return BandRule(program, "bisort", program.indexable(False))


# ---- the workload


def test_the_batch_follows_what_comes():
    program, workload = make_program("x = a"), Workload()
    for _ in range(100):
        workload.observe(probes(program, a=[1, 2, 3]).probing)
    assert workload.batch == 3
    for _ in range(20 * chooser.BATCHES_BETWEEN):
        workload.observe(probes(program, a=range(1000)).probing)
    assert 900 < workload.batch <= 1000


def test_the_sample_is_a_copy_of_some_recent_probes():
    program, workload = make_program("x = a"), Workload()
    assert workload.sample() is None
    batch = probes(program, a=range(1000))
    for _ in range(10 * chooser.BATCHES_BETWEEN):
        workload.observe(batch.probing)
    assert batch.probing.lows[0] is not None
    batch.probing.lows[0][:] = -1  # as a topology may, once the probe is done
    sample = workload.sample()
    assert sample is not None
    lows = sample.lows[0]
    assert lows is not None and len(lows) <= 2 * chooser.SAMPLED_PROBES
    assert set(lows.tolist()) <= set(range(1000)) and lows.max() > 800


def test_no_probes_are_no_batch():
    workload = asked(make_program("x = a"), 3, a=[])
    assert workload.batch == 0 and workload.sample() is None


# ---- equalities


@pytest.mark.parametrize(("on", "few"), [("x = a", 16), ("x = a AND y = b", 4)])
def test_equalities_are_hashed_unless_few_batches_fill_a_subwindow(on, few):
    """Wider keys, as hashes of several are, take longer to sort."""
    choose = equality(on)
    held = stored(choose.program, x=[1], y=[1])
    workload = asked(choose.program, 4, a=range(64), b=range(64))
    small, large = choose.choose(64 * (few + 1), held, workload), choose.choose(64 * few, held, workload)
    assert small.structure == "hash"
    assert large.structure == "bisort"
    assert small.key == large.key
    assert "batches of 64 are small" in small.reason and "batches of 64 are soon sorted" in large.reason


@pytest.mark.parametrize(("on", "structure"), [("x = a", "bisort"), ("x = a AND y = b", "hash")])
def test_very_large_batches_of_wide_keys_are_hashed(on, structure):
    """However few of them fill a subwindow: sorting them takes longer than the misses of a hash table do."""
    choose = equality(on)
    workload = Workload()
    workload.batch = 1 << 20
    chosen = choose.choose(1 << 20, stored(choose.program, x=[1], y=[1]), workload)
    assert chosen.structure == structure
    assert ("1,048,576 are sooner hashed than sorted" in chosen.reason) == (structure == "hash")
    workload.batch = 1 << 17
    assert choose.choose(1 << 17, stored(choose.program, x=[1], y=[1]), workload).structure == "bisort"


@pytest.mark.parametrize(("batch", "limit"), [(1, 110), (9, 150), (81, 190)])
def test_equalities_of_very_many_tuples_are_sorted(batch, limit):
    """However small the batches are: sorted subwindows are merged, hash tables are not. But what it costs to call each
    table is shared by a batch."""
    choose = equality(tuning=ChoiceTuning(hashed_up_to=100, more_in_batches=1, medium_batch=9))
    workload = asked(choose.program, 1, a=range(batch))
    few, many = (
        choose.choose(4096, stored(choose.program, x=range(held)), workload) for held in (limit, limit + 1)
    )
    assert few.structure == "hash"
    assert many.structure == "bisort"
    assert few.key == many.key and f"{limit + 1} tuples would be many hash tables" in many.reason


def test_all_equalities_are_one_condition():
    rule = equality("x = a AND y = b")
    assert condition_of(rule.program, BandKey(rule.bands[0])) == "left.x, left.y"


# ---- bands


def test_the_condition_that_leaves_fewer_candidates_is_indexed():
    choose = plane()
    held = stored(choose.program, x=range(1000), y=[5] * 1000)
    chosen = choose.choose(1000, held, asked(choose.program, 1, a=range(50), b=[5] * 50, w=[1] * 50))
    assert (chosen.structure, chosen.condition) == ("bisort", "left.x")
    assert "beside 1 by left.y" in chosen.reason
    held = stored(choose.program, x=[5] * 1000, y=range(1000))
    chosen = choose.choose(1000, held, asked(choose.program, 1, a=[5] * 50, b=range(50), w=[1] * 50))
    assert (chosen.structure, chosen.condition) == ("bisort", "left.y")


@pytest.mark.parametrize("choice", [BandRule, FixedRule])
@pytest.mark.parametrize(("rising", "width", "other"), [("left.x", 6, "left.y"), ("left.y", 1, "left.x")])
def test_a_key_that_rises_may_leave_a_few_more_candidates(choice, rising, width, other):
    """They lie together, and are checked four times faster."""
    program = make_program("x BETWEEN a - w AND a + w AND y BETWEEN b - 3 AND b + 3")
    choose = choice(program, "bisort", program.indexable(False))
    there, apart = range(1000), np.arange(1000) * 7919 % 1000
    x, y = (there, apart) if rising == "left.x" else (apart, there)
    workload = asked(program, 40, a=[500], b=[500], w=[width])
    chosen = choose.choose(1000, stored(program, x=x, y=y), workload)
    assert chosen.condition == rising
    assert "which lie together, beside" in chosen.reason and f"by {other}" in chosen.reason


def test_before_any_probe_the_first_condition_is_indexed():
    choose = plane()
    chosen = choose.choose(1000, stored(choose.program, x=[1], y=[1]), Workload())
    assert (chosen.structure, chosen.condition) == ("bisort", "left.x")
    assert "before any probe" in chosen.reason


def strips_for(choose: BandRule, width: int, shift: int = 0, capacity: int = 4096) -> StripsKey:
    rng = np.random.default_rng(1)
    held = stored(choose.program, x=shift + rng.integers(0, 50, 1000), y=rng.integers(0, 50, 1000))
    keys = {"a": shift + rng.integers(0, 50, 64), "b": rng.integers(0, 50, 64), "w": [width] * 64}
    chosen = choose.choose(capacity, held, asked(choose.program, 1, **keys))
    assert chosen.structure == "bisort" and isinstance(chosen.key, StripsKey)
    assert "candidates a probe" in chosen.reason
    return chosen.key


def test_strips_are_kept_while_they_suit():
    """Subwindows with the same strips share one set of questions, and can be merged."""
    choose = plane()
    first = strips_for(choose, 4)
    assert strips_for(choose, 5) is first
    assert strips_for(choose, 16) is not first
    assert strips_for(choose, 16, shift=10**8) is strips_for(choose, 16)
    first = strips_for(choose, 16, capacity=1 << 20)
    assert first.rulers.dtype == np.int32 and first is not strips_for(choose, 16)
    assert strips_for(choose, 16, shift=10**4, capacity=1 << 20) is strips_for(choose, 16, capacity=1 << 20)


def test_strips_are_made_anew_once_keys_are_too_far_from_where_they_were():
    for capacity, shift in ((1 << 20, 10**8), (4096, 2**31 - 100)):
        choose = plane()
        first = strips_for(choose, 4, -shift, capacity)
        assert (strips_for(choose, 4, shift, capacity) is first) == (capacity == 4096)


MOVING = ("falling", "drifting up", "drifting down")


@pytest.mark.parametrize(
    ("pattern", "narrow"),
    [(pattern, narrow) for pattern in MOVING for narrow in (False, True)] + [("moving now and then", False)],
)
def test_keys_that_move_on_have_about_as_few_candidates_as_those_that_rise(pattern, narrow):
    """Keys leave the range that strips were made for, in a window of 20,000 tuples, of which a probe finds three. Small
    places are only for keys that stay in it, and a jump cannot be predicted."""
    tuning = Tuning(choice=ChoiceTuning(worth_narrow=0) if narrow else ChoiceTuning())
    rng, count = np.random.default_rng(1), 80_000
    rows, noise = np.arange(count), rng.integers(-7_000, 7_000, count)
    keys = {
        "rising": rows,
        "falling": -rows,
        "drifting up": rows + noise,
        "drifting down": -rows + noise,
        "moving now and then": rows // 25_000 * 10**7 + rng.integers(0, 20_000, count),
    }
    compared = {name: candidates_of(keys[name], rng, tuning) for name in ("rising", pattern)}
    assert compared[pattern] < 3 * compared["rising"]


def candidates_of(x: np.ndarray, rng: np.random.Generator, tuning: Tuning) -> int:
    """What probes near tuples of the window look at, once it has slid."""
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32(), "y": pa.int32()})
    on = "left.x BETWEEN right.x - 150 AND right.x + 150 AND left.y BETWEEN right.y - 100 AND right.y + 100"
    spec = sj.JoinSpec(schema, schema, on, sj.RowWindow(left=20_000, right=0), "ts", "ts")
    y, batch, compared = rng.integers(0, 20_000, len(x)), 1_000, 0
    opened: sj.Join = open_tuned(tuning, spec, "three_step", workers=1, max_results=10**9)
    with opened as join:
        for at in range(0, len(x), batch):
            rows = np.arange(at, at + batch)
            asked = rng.integers(max(0, at - 20_000), at + batch, batch)
            join.push("left", pa.table({"ts": rows, "x": x[rows], "y": y[rows]}, schema=schema))
            if at == 40_000:
                compared = join.stats().comparisons
            join.push("right", pa.table({"ts": rows, "x": x[asked], "y": y[rows]}, schema=schema))
            join.poll()
        return join.stats().comparisons - compared


def test_ends_are_those_of_keys_that_are_not_null():
    choose = plane()
    held = stored(choose.program, x=[5, 7, 10**6], y=[1, 2, 3])
    held = Stored(held.columns, np.array([True, True, False]))
    assert choose._ends(0, held)[0] == (5.0, 7.0)


def test_candidates_that_lie_together_are_checked_sooner_than_looked_up_by_two_bands():
    choose = plane()
    for y, condition in (
        (range(1000), "left.y"),
        (np.arange(1000) * 7919 % 1000, "strips over left.x and left.y"),
    ):
        held = stored(choose.program, x=[5] * 1000, y=y)
        workload = asked(choose.program, 40, a=[5], b=[500], w=[1])
        assert choose.choose(200_000, held, workload).condition == condition


def test_alternatives_name_every_pair_of_bands_with_places_of_both_sizes():
    program = make_program(
        "x BETWEEN a - 1 AND a + 1 AND y BETWEEN b - 1 AND b + 1 AND x + y BETWEEN w AND w + 1"
    )
    choose = BandRule(program, "bisort", program.indexable(False))
    keys = [key for _, key in choose.alternatives()]
    both = [key for key in keys if isinstance(key, StripsKey)]
    assert (len(keys) - len(both), len(both)) == (3, 6)
    assert {key.rulers.dtype.name for key in both} == {"int32", "int64"}


def test_selectivity_is_a_part_of_the_window():
    choose = plane()
    held = stored(choose.program, x=range(100), y=[5] * 100)
    workload = asked(choose.program, 1, a=[50] * 8, b=[5] * 8, w=[9] * 8)
    assert choose.selectivity(held, workload) == (0.19, 0.19, 1.0, True)
    workload = asked(choose.program, 1, a=[50] * 8, b=[9] * 8, w=[9] * 8)
    assert choose.selectivity(held, workload) == (0.0, 0.0, 0.0, True)
    assert choose.selectivity(held, Workload()) == (0.0, 0.0, 0.0, False)


@pytest.mark.parametrize(("rising", "least", "most"), [(True, 1.0, 1.0), (False, 0.0, 0.05)])
def test_candidates_of_a_key_that_rises_lie_together_however_few_are_sampled(rising, least, most):
    choose = plane()
    x = np.arange(4096) if rising else np.arange(4096) * 7919 % 4096
    held = stored(choose.program, x=x, y=[5] * 4096)
    workload = asked(choose.program, 1, a=[2000] * 20, b=[5] * 20, w=[24] * 20)
    assert least <= choose.selectivity(held, workload).together <= most


def test_a_fixed_choice_is_fixed():
    program = make_program("x = a")
    choose = FixedRule(program, "bisort", program.indexable(False))
    chosen = choose.choose(1000, stored(program, x=[1]), asked(program, 3, a=range(1000)))
    assert (chosen.structure, chosen.reason) == ("bisort", "the only condition")


# ---- what a user sees


def spec_of(on: str) -> sj.JoinSpec:
    return sj.JoinSpec(LEFT, RIGHT, on, sj.TimeWindow(20_000), "ts", "ts")


def test_explain_says_when_a_window_is_indexed_and_how():
    text = sj.explain(spec_of("x = a"))
    for side in ("left", "right"):
        assert f"subwindows: hash on {side}." in text
    sizes = "380,000 tuples (1-row pushes), 17,000 tuples (64-row pushes), 4,000 tuples (1,024-row pushes)"
    assert f"scanned while smaller than about {sizes}" in text
    assert (
        "hash on left.x, or bisort if 16 batches or fewer fill a subwindow or the window holds more than "
        "4.8 million tuples (9.6 million in batches of 1,024)" in text
    )
    text = sj.explain(spec_of(PLANE))
    assert "bisort on left.x or left.y, whichever leaves fewer candidates, or both from 24" in text
    assert "raptable, wibtree: used only if asked for" in text
    assert "scanned while" not in sj.explain(spec_of("x = a"), index="hash")


def test_alternatives_of_equalities_are_called_equalities():
    text = sj.explain(spec_of("x = a OR x = b"))
    assert "equality: left.x = right.a OR left.x = right.b" in text
    assert "interval: left.x BETWEEN" in sj.explain(spec_of("x BETWEEN a AND b OR x = w"))


def push(join: sj.Join, at: int, count: int) -> None:
    ts = np.arange(at, at + count)
    keys = (ts * 7919 % 100_003).astype(np.int32)
    join.push("left", pa.table([ts, keys, keys], schema=LEFT))
    join.push("right", pa.table([ts, keys, keys, keys], schema=RIGHT))
    join.poll()


def test_stats_tell_what_windows_are_made_of_and_how_that_changed():
    with sj.open_join(spec_of("x = a")) as join:
        push(join, 0, 10)
        first = join.stats().left_index
        assert [part.structure for part in first.subwindows] == ["scan"] and first.changes == ()
        for at in range(10, 60_000, 500):
            push(join, at, 500)
        stats = join.stats()
        for index, side, held in (
            (stats.left_index, "left", stats.left_window),
            (stats.right_index, "right", stats.right_window),
        ):
            assert sum(part.tuples for part in index.subwindows) == held
            last = index.subwindows[-1]
            assert (last.structure, last.condition) == ("hash", f"{side}.{'x' if side == 'left' else 'a'}")
            assert last.tuples <= last.capacity and last.reason
            assert index.changes[0].startswith("indexed from")
            assert all(part.structure in str(index) for part in index.subwindows)
        for at in range(10**6, 10**6 + 1500):
            push(join, at, 1)
        assert [part.structure for part in join.stats().left_index.subwindows] == ["scan"]
        assert join.stats().left_index.changes[-1].startswith("scanned from")


def test_a_window_that_grows_and_shrinks_is_hashed_then_sorted_then_hashed_again():
    """Every 5,000th row has the same key, and is found in whatever subwindow it lies."""
    choice = ChoiceTuning(hashed_up_to=10_000, more_in_batches=0)
    tuning = Tuning(costs=IndexCosts(per_push=500_000), choice=choice)
    ts = np.cumsum(np.repeat([8, 1, 8], [4_000, 60_000, 16_000]))
    keys = np.arange(len(ts), dtype=np.int32) % 5_000
    made, found = [], 0
    with open_tuned(tuning, spec_of("x = a"), max_results=10**6) as join:
        for at in range(0, len(ts), 200):
            rows = [array[at : at + 200] for array in (ts, keys, keys, keys)]
            join.push("left", pa.table(rows[:3], schema=LEFT))
            join.push("right", pa.table(rows, schema=RIGHT))
            found += sum(out.num_rows for out in join.poll())
            made.append({part.structure for part in join.stats().left_index.subwindows})
        found += join.finish().num_rows
    later = sum(np.count_nonzero(ts[lag:] - ts[:-lag] <= 20_000) for lag in range(5_000, len(ts), 5_000))
    assert found == len(ts) + 2 * later
    assert [kinds for kinds, after in pairwise([*made, None]) if kinds != after] == [
        {"scan"}, {"hash"}, {"hash", "bisort"}, {"bisort"}, {"hash", "bisort"}, {"hash"},
    ]  # fmt: skip


@pytest.mark.parametrize("index", ["scan", "hash", "bisort"])
def test_stats_of_an_index_that_was_asked_for(index):
    with sj.open_join(spec_of("x = a"), index=index) as join:
        push(join, 0, 100)
        (part,) = join.stats().left_index.subwindows
        assert (part.structure, part.tuples) == (index, 100)
