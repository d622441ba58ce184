"""What joins, specs, plans and counts look like when they are printed or shown in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.choose import make_plan
from streamjoin.plan.options import Options
from streamjoin.semantics import durations, temporal

SCHEMA = pa.schema([("ts", pa.timestamp("ms")), pa.field("x", pa.int32(), nullable=False)])
INTEGERS = pa.schema({"ts": pa.int64(), "name": pa.string()})


def spec_of(on: str = "left.x = right.x", **options: Any) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, sj.TimeWindow("10 minutes", "90 s"), "ts", "ts", **options)


def test_a_spec_prints_what_was_given_on_one_line():
    assert repr(spec_of(how="left")) == (
        "JoinSpec(left=(ts: timestamp[ms], x: int32 not null), right=(ts: timestamp[ms], x: int32 not null), "
        "on='left.x = right.x', window=TimeWindow(left='10 minutes', right='90 s'), left_time='ts', right_time='ts', "
        "how='left')"
    )


def test_a_spec_of_a_function_names_it():
    def near(l, r):
        return l.ts == r.ts

    spec = sj.JoinSpec(INTEGERS, INTEGERS, near, sj.RowWindow(3), "ts", "ts")
    assert "on=near, window=RowWindow(left=3, right=3)" in repr(spec)


def test_a_join_prints_its_state_and_does_not_wait():
    with sj.open_join(spec_of(), "three_step") as join:
        join.push("left", pa.table({"ts": [0], "x": [1]}, SCHEMA))
        join.push("right", pa.table({"ts": [0], "x": [1]}, SCHEMA))
        join._work.run(lambda: print(join))  # as another thread would while a step is under way
        assert (
            repr(join) == "<Join open: 1 left and 1 right tuples, 1 matches, 1 results to poll; three_step>"
        )
    assert repr(join).startswith("<Join closed: 1 left")


def test_counts_print_one_on_a_line():
    with sj.open_join(spec_of(), "three_step", workers=2) as join:
        join.push("left", pa.table({"ts": [0] * 1_500, "x": [1] * 1_500}, SCHEMA))
        lines = repr(join.stats()).splitlines()
        shown = join.stats()._repr_html_()
    assert lines[:2] == ["Stats", "  left_tuples         1,500"]
    assert "  worker_comparisons  0, 0" in lines and lines[-1] == "  latency             no results"
    assert '<td style="text-align:left">1,500</td>' in shown


def test_a_notebook_shows_the_plan_as_a_picture():
    spec = spec_of("left.x = right.x AND left.x < 5")
    for shown in (sj.explain(spec)._repr_html_(), sj.open_join(spec)._repr_html_()):  # type: ignore[attr-defined]
        picture = ElementTree.fromstring(shown[shown.index("<svg") : shown.index("</svg>") + 6])
        words = "".join(picture.itertext())
        for part in (
            "left",
            "right",
            "window: 10 minutes",
            "window: 1 minute 30 seconds",
            "hash index",
            "three_step",
        ):
            assert part in words
    assert str(sj.explain(spec)).startswith("join         left.x = right.x")


@pytest.mark.parametrize("engine", ["embedded", "spark"])
def test_text_of_the_spec_is_escaped(engine):
    evil = '<script>alert(1)</script>&"'
    schema = pa.schema({"ts": pa.int64(), evil: pa.string()})
    on = f'left."{evil.replace(chr(34), chr(34) * 2)}" = right."{evil.replace(chr(34), chr(34) * 2)}"'
    spec = sj.JoinSpec(schema, schema, on, sj.TimeWindow(3), "ts", "ts")
    plan = make_plan(spec, Options(engine=engine))
    for shown in (spec._repr_html_(), plan._repr_html_()):
        assert "<script" not in shown
        assert "&lt;script&gt;" in shown
    ElementTree.fromstring(plan._repr_html_())


def test_every_kind_of_plan_is_drawn():
    for window in (sj.TimeWindow(5), sj.RowWindow(5), sj.Interval(2, 5)):
        for how in ("inner", "full"):
            spec = sj.JoinSpec(INTEGERS, INTEGERS, "left.name = right.name", window, "ts", "ts", how=how)
            words = "".join(ElementTree.fromstring(make_plan(spec, Options())._repr_html_()).itertext())
            assert f"{how} join" in words
    as_of = sj.JoinSpec(
        INTEGERS, INTEGERS, "left.name = right.name", sj.TimeWindow(5), "ts", "ts", keep=sj.AsOf("backward")
    )
    assert "AsOf" in make_plan(as_of, Options())._repr_html_()


# ---- times


@pytest.mark.parametrize(
    ("count", "unit", "text"),
    [
        (0, "ms", "0 seconds"),
        (1_000, "ms", "1 second"),
        (90_061_001, "ms", "1 day 1 hour 1 minute 1.001 seconds"),
        (900_000_000, "us", "15 minutes"),
        (999, "ns", "999 ns"),
        (1_500_000, "ns", "1.5 ms"),
        (-90, "s", "-1 minute 30 seconds"),
        (1, None, "1 tick"),
        (-1_000, None, "-1,000 ticks"),
        (2**63 - 1, "ns", "106,751 days 23 hours 47 minutes 16.854775807 seconds"),
    ],
)
def test_durations_in_words(count, unit, text):
    assert durations.duration_text(count, unit) == text
    if unit is not None:
        assert durations.ticks(text.replace(",", "").lstrip("-"), unit, "window") == abs(count)


@pytest.mark.parametrize(
    ("ticks", "unit", "tz", "text"),
    [
        (0, "s", False, "1970-01-01 00:00:00"),
        (1_500, "ms", False, "1970-01-01 00:00:01.5"),
        (-1, "ns", True, "1969-12-31 23:59:59.999999999+00:00"),
        (7, None, False, "7"),
        (2**63 - 1, "s", False, "9223372036854775807 s after 1970-01-01"),
    ],
)
def test_times_in_words(ticks, unit, tz, text):
    assert temporal.time_text(ticks, unit, tz) == text


def test_messages_show_times_as_times():
    with sj.open_join(spec_of()) as join:
        join.push("left", pa.table({"ts": [60_000], "x": [1]}, SCHEMA))
        with pytest.raises(
            sj.InputError, match=r"falls from 1970-01-01 00:01:00 to 1970-01-01 00:00:59\.5 at row 0"
        ):
            join.push("left", pa.table({"ts": [59_500], "x": [1]}, SCHEMA))
    nanos = pa.schema({"ts": pa.timestamp("ns", "UTC")})
    seconds = pa.schema({"ts": pa.timestamp("s", "UTC")})
    spec = sj.JoinSpec(seconds, nanos, "TRUE", sj.TimeWindow("1 s"), "ts", "ts")
    with (
        sj.open_join(spec) as join,
        pytest.raises(sj.InputError, match=r"left time 2400-01-01 00:00:00 overflows.*timestamp\[ns\]"),
    ):
        join.push("left", pa.table({"ts": [13_569_465_600]}, seconds))
