"""`streamjoin demo`: what it generates and shows, and that its check can fail."""

from __future__ import annotations

import pyarrow as pa
from tests.cli.calls import call

import streamjoin as sj
from streamjoin.cli.demo import LEFT_SCHEMA, PREDICATE, RIGHT_SCHEMA, Sample, generate
from streamjoin.cli.demo_run import pairs_table


def test_a_small_embedded_demo_joins_and_checks_itself(monkeypatch, capsys):
    small = ("--rate", "50", "--minutes", "2", "--window", "30 seconds")
    assert call(monkeypatch, "demo", "--embedded", *small) == 0
    printed = capsys.readouterr().out
    assert "checked against the oracle" in printed
    assert "comparisons/s" in printed
    assert "seconds apart" in printed and "A pair is two reports" in printed


def demo_spec() -> sj.JoinSpec:
    return sj.JoinSpec(
        LEFT_SCHEMA, RIGHT_SCHEMA, PREDICATE, sj.TimeWindow("30 seconds"), left_time="ts", right_time="ts"
    )


def test_the_demo_shows_pairs_that_match():
    left, right = generate(20_000, rate=300, seed=3)
    table = pairs_table(sj.join_tables(left, right, demo_spec()), 1_234)
    assert table.title == "5 of 1,234 pairs"
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    x, y, a, b = ([float(cell.replace(",", "")) for cell in cells[number]] for number in (1, 2, 4, 5))
    assert len(x) == 5 and cells[3] == sorted(cells[3])
    assert all(abs(p - q) <= 10.1 for p, q in zip(x + y, a + b, strict=True))
    assert all(abs(int(seconds)) <= 30 for seconds in cells[6])


def test_generated_streams_are_ordered_uniform_and_repeatable():
    left, right = generate(1000, rate=100, seed=3)
    assert (left.schema, right.schema) == (LEFT_SCHEMA, RIGHT_SCHEMA)
    assert left.equals(generate(1000, rate=100, seed=3)[0])
    assert left["ts"].to_pylist() == sorted(left["ts"].to_pylist())
    assert set(map(len, left["z"].to_pylist())) == {20}
    assert min(left["x"].to_pylist()) >= 1
    assert max(right["a"].to_pylist()) <= 10_000


def test_the_demo_check_sees_what_is_missing_and_what_is_wrong():
    left, right = generate(20_000, rate=300, seed=3)
    truth = sj.oracle.join(
        Sample(20_000).take(left, "x", "y"), Sample(20_000).take(right, "a", "b"), demo_spec()
    )
    assert truth.num_rows > 2

    def check(results: pa.Table) -> tuple[int, int, int]:
        sample = Sample(20_000)
        sample.keep(results)
        return sample.check(left, right, demo_spec())

    assert check(truth) == (truth.num_rows, 0, 0)
    assert check(truth.slice(1)) == (truth.num_rows, 1, 0)
    assert check(pa.concat_tables([truth, truth.slice(0, 1)])) == (truth.num_rows, 0, 1)
