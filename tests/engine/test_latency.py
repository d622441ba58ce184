"""How long results take: the histogram, and the meter that fills it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamjoin as sj
from streamjoin.engine.latency import LatencyMeter
from streamjoin.topologies.protocol import Matches

QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0)


def measured(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> sj.LatencyHistogram:
    """The histogram of results that took so long, each pushed at zero and ready in a step of its own."""
    meter = LatencyMeter()
    meter.pushed("left", 0, 0.0)
    meter.pushed("right", 0, 0.0)
    for each in seconds:
        monkeypatch.setattr("streamjoin.engine.latency.time.perf_counter", lambda each=each: each)
        meter.ready(Matches(np.array([0]), np.array([0])))
    return meter.histogram()


def test_four_latencies_by_eye(monkeypatch):
    histogram = measured(monkeypatch, [0.0, 1.5e-6, 1e-3, 2.0])
    assert {bucket: count for bucket, count in enumerate(histogram.counts) if count} == {
        0: 1,
        1: 1,
        10: 1,
        21: 1,
    }
    # 1000 us lie between 512 and 1024, in parts of 16; 2 s between 2**20 and 2**21 us, in parts of 2**15.
    bounds = [histogram.quantile(q) * 1e6 for q in (0.25, 0.5, 0.75, 1.0)]
    assert bounds == pytest.approx([1 / 32, 1 + 17 / 32, 1008, 2**20 + 30 * 2**15])


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=200), st.sampled_from(QUANTILES))
def test_quantiles_are_right_within_a_thirty_second(seconds, q):
    with pytest.MonkeyPatch.context() as monkeypatch:
        told = measured(monkeypatch, seconds).quantile(q)
    true = np.quantile(seconds, q, method="inverted_cdf")
    assert true * (1 - 1e-9) <= told <= true * (1 + 1 / 32 + 1e-9)


def test_quantiles_of_a_heavy_tail_are_right(monkeypatch):
    seconds = (1e-4 * (1 + np.random.default_rng(5).pareto(1.1, 20_000))).tolist()
    histogram = measured(monkeypatch, seconds)
    for q in (0.5, 0.9, 0.99, 0.999):
        assert histogram.quantile(q) == pytest.approx(np.quantile(seconds, q), rel=0.05)
    assert histogram.seconds == pytest.approx(sum(seconds), rel=1 / 64)


def test_parts_add_up_to_the_buckets(monkeypatch):
    seconds = np.random.default_rng(6).lognormal(-7, 3, 5_000).tolist()
    histogram = measured(monkeypatch, seconds)
    assert sum(histogram.counts) == 5_000
    sums = np.array(histogram.parts).reshape(len(histogram.counts), -1).sum(axis=1)
    assert tuple(sums) == histogram.counts
    for bucket, count in enumerate(histogram.counts):
        low, high = (2.0 ** (bucket - 1) if bucket else 0), 2.0**bucket
        assert count == sum(low <= each * 1e6 < high for each in seconds)


def test_ages_are_counted_in_the_last_parts(monkeypatch):
    assert sum(measured(monkeypatch, [1e9]).counts) == 1
    assert math.isfinite(measured(monkeypatch, [1e300]).quantile(0.5))


def test_a_histogram_of_buckets_alone_is_as_before():
    histogram = sj.LatencyHistogram((1, 0, 2, 0, 1))
    assert histogram.quantile(1.0) == pytest.approx(16e-6)
    assert histogram.seconds == pytest.approx(0.5e-6 + 2 * 3e-6 + 12e-6)
