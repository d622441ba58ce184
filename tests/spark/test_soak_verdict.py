"""The verdict of Spark's soak: what counts as flat."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from benchmarks.spark.spark_soak import LINES, PEAKS, verdict

BOUNDS = LINES | PEAKS


def samples(column: str = "jvm_mb", rate: float = 0.0) -> list[dict[str, float]]:
    """Ten minutes; a column grows by this fraction of its first value in every sample."""
    rows = []
    for number in range(60):
        row = dict.fromkeys((*BOUNDS, "batch_seconds", "batches"), 100.0)
        row["seconds"] = 10.0 * number
        row[column] *= 1 + rate * number
        rows.append(row)
    return rows


def test_what_stays_is_flat():
    found = verdict("left", samples())
    assert found["left, flat"]
    assert found["left, time of a micro-batch flat"]


@pytest.mark.parametrize(("column", "bound"), BOUNDS.items())
def test_what_grows_steadily_is_not_flat(column, bound):
    found = verdict("left", samples(column, bound / 15))
    assert not found["left, flat"]
    assert found[f"left, rise of {column}, %"] > 100 * bound


def test_slower_micro_batches_have_a_verdict_of_their_own():
    found = verdict("left", samples("batch_seconds", 0.003))
    assert found["left, flat"]
    assert not found["left, time of a micro-batch flat"]


def test_what_grows_only_in_the_first_half_is_flat():
    rows = samples("python_mb")
    for row in rows[:30]:
        row["python_mb"] -= 60
    assert verdict("left", rows)["left, flat"]


def test_threads_that_go_and_come_back_are_flat_and_more_of_them_are_not():
    rows = samples()
    for row in rows[25:35]:
        row["jvm_threads"] = 60
    assert verdict("left", rows)["left, flat"]
    rows[50]["jvm_threads"] = 106
    assert not verdict("left", rows)["left, flat"]
