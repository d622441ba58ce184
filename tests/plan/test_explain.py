"""The text of a plan, for both engines: what is planned is what is printed, in the same words."""

from __future__ import annotations

import json
from dataclasses import replace
from inspect import signature
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.plan.choose import make_plan
from streamjoin.plan.explain import MAX_LINE, explain_plan
from streamjoin.plan.options import Options
from streamjoin.plan.physical import Plan
from streamjoin.plan.spread import make_spark_plan

SCHEMA = pa.schema({"ts": pa.timestamp("us"), "k": pa.int32(), "x": pa.float64(), "s": pa.string()})
EQUAL, NEAR, LESS = "left.k = right.k", "abs(left.x - right.x) <= 10", "left.x > right.x"
MIXED = f"{EQUAL} AND left.s < right.s"
TIME, ROWS = sj.TimeWindow("15 minutes"), sj.RowWindow(1000)
SCANNED_RUNS = (
    "a run is scanned while it has fewer than 4,096 rows, or a micro-batch probes it with fewer than 256"
)


def spec_of(on: str, window: Any = TIME) -> sj.JoinSpec:
    return sj.JoinSpec(SCHEMA, SCHEMA, on, window, "ts", "ts")


def on_spark(on: str, how: Any = "inner", window: Any = TIME, keep: Any = "all", **given: Any) -> Plan:
    return make_spark_plan(replace(spec_of(on, window), how=how, keep=keep), Options(engine="spark", **given))


def embedded(on: str, window: Any = TIME, **given: Any) -> Plan:
    return make_plan(spec_of(on, window), Options(**{"workers": 2, **given}))


def test_the_whole_text_of_a_plan_for_spark():
    assert explain_plan(on_spark(NEAR, "left", workers=4, order="timestamp")).splitlines() == [
        "join         abs(left.x - right.x) <= 10",
        "             left window:",
        "               interval: left.x - right.x >= -10.0 AND left.x - right.x <= 10.0",
        "               residual: none",
        "             right window:",
        "               interval: left.x - right.x <= 10.0 AND left.x - right.x >= -10.0",
        "               residual: none",
        "how          left: left rows without a match leave once none can come, with NULL for right's columns",
        "left window  15 minutes; bisort index, or a scan: serves the interval condition once a run is too large to"
        " be scanned",
        "             runs: bisort on left.x; chosen anew for each",
        f"             {SCANNED_RUNS}",
        "right window 15 minutes; bisort index, or a scan: serves the interval condition once a run is too large to"
        " be scanned",
        "             runs: bisort on right.x; chosen anew for each",
        f"             {SCANNED_RUNS}",
        "workers      4 of 4; ranges of 80, left rows once: the range of left.x sends a row to a worker, and"
        " to a second one if its interval ends beyond it",
        "replicas     left 1, right 1.25 on average, 2 at most",
        "topology     three_step: each worker joins the rows that it gets in three steps; a Spark task joins what a"
        " micro-batch brings to a worker",
        "tuples       wait for their place in the total order, so that results leave in order",
        "order        timestamp",
        "not chosen   raptable, wibtree: used only if asked for; at most 5 % faster where measured",
    ]


@pytest.mark.parametrize(
    ("plan", "lines"),
    [
        (
            lambda: on_spark(EQUAL, workers=4),
            [
                "workers      4 of 4; hash: a hash of the equality keys (left.k) sends each row to one worker",
                "replicas     left 1, right 1",
                "tuples       are joined as soon as they arrive",
            ],
        ),
        (
            lambda: on_spark(f"{EQUAL} AND left.x = right.x", "full", workers=4),
            [
                "how          full: rows without a match leave once none can come",
                "workers      4 of 4; hash: a hash of the equality keys (left.k, left.x) sends",
            ],
        ),
        (
            lambda: on_spark(NEAR, "right", workers=3),
            [
                "workers      3 of 3; ranges of 80, right rows once: the range of right.x sends",
                "replicas     left 1.25 on average, 2 at most, right 1",
            ],
        ),
        (
            lambda: on_spark(LESS, workers=6),
            [
                "bisort index, or a scan: serves the half-open interval once a run is too large to be scanned",
                "workers      6 of 6; matrix of 2 x 3: left rows go to a row of workers and right rows to a column",
                "replicas     left 3, right 2",
            ],
        ),
        (lambda: on_spark(NEAR, "full", workers=6), ["workers      1 of 6; one worker gets all rows"]),
        (
            lambda: on_spark(LESS, workers=6, keep=sj.AsOf()),
            [
                "keep         each left row gets its latest match at or before its own time, once that is final",
                "workers      6 of 6; matrix of 6 x 1: left rows go to a row of workers",
                "             all matches of a left row are found at one worker, where it picks among them",
                "replicas     left 1, right 6",
            ],
        ),
        (
            lambda: on_spark(NEAR, window=ROWS, workers=3, keep=sj.Nearest("left.x - right.x", k=2)),
            ["workers      3 of 3; every: row windows count all rows", "replicas     left 3, right 3"],
        ),
        (
            lambda: on_spark(MIXED, window=ROWS, workers=3, index="bisort"),
            [
                "left window  1,000 rows; bisort index: as asked",
                "             runs: bisort on left.k",
                "             every run is indexed",
                "             checked on the rows of each candidate pair: left.s < right.s",
                "workers      3 of 3; every: row windows count all rows, so each worker gets all of them",
                "replicas     left 3, right 3",
                "tuples       wait for their place in the total order, which row windows need",
            ],
        ),
        (
            lambda: on_spark("left.s <> right.s", workers=4),
            ["left window  15 minutes; all pairs: the predicate has no condition on one key"],
        ),
        (
            lambda: embedded(EQUAL),
            [
                "left window  15 minutes; hash index, or a scan: serves the equality once the window is too large",
                "             scanned while smaller than about",
                "topology     three_step, 2 workers: runs in the calling thread",
                "             the calling thread does the work, with 1 helper thread for large batches; results are"
                " ready when push returns",
                "pushes       joined one by one",
            ],
        ),
        (
            lambda: embedded(NEAR, topology="panjoin", index="raptable", order="timestamp"),
            [
                "left window  15 minutes; raptable index: as asked",
                "             subwindows: raptable on left.x",
                "topology     panjoin, 2 workers: as asked",
                "             nodes run Python code that calls kernels; results come with a later poll",
                "order        timestamp",
                "results      at most 1,000,000 rows wait for poll",
            ],
        ),
        (
            lambda: embedded(EQUAL, topology="low_latency_handshake", max_results=77),
            [
                "compiled nodes look up their share of the keys in hash tables; results come with a later poll",
                "             each tuple goes to one node, by its key in left.k = right.k",
                "results      at most 77 rows wait for poll",
            ],
        ),
        (
            lambda: embedded(f"{MIXED} AND left.x = right.x", topology="low_latency_handshake"),
            ["             each tuple goes to one node, by its key in left.k = right.k AND left.x = right.x"],
        ),
    ],
)
def test_lines_of_a_plan(plan, lines):
    text = explain_plan(plan())
    for line in lines:
        assert any(line in each for each in text.splitlines()), f"{line}\n\n{text}"
    assert "{" not in text and "None" not in text


@pytest.mark.parametrize("on", [EQUAL, NEAR, LESS, MIXED, "left.s <> right.s"])
def test_both_engines_say_the_same_of_the_predicate_and_choose_the_same_index(on):
    spark, local = on_spark(on, workers=2), embedded(on)
    lines = [explain_plan(plan).split("left window  ")[0] for plan in (spark, local)]
    assert lines[0] == lines[1]
    for side in ("left", "right"):
        ours, theirs = spark.windows[side], local.windows[side]
        assert (ours.kind, ours.structure, ours.rule, ours.bands, ours.residual) == (
            theirs.kind,
            theirs.structure,
            theirs.rule,
            theirs.bands,
            theirs.residual,
        )


def test_a_plan_for_spark_is_data():
    plan = on_spark(NEAR, "left", workers=4).to_dict()
    assert json.loads(json.dumps(plan)) is not None
    assert (plan["engine"], plan["how"], plan["workers"], plan["nodes"]["kind"]) == (
        "spark",
        "left",
        4,
        "spark",
    )
    assert plan["windows"]["left"]["window"] == "15 minutes"
    assert plan["windows"]["left"]["runs"] == {"indexed_rows": 4096, "indexed_probes": 256}
    assert plan["routing"] == {
        "kind": "range",
        "rows": 4,
        "columns": 1,
        "once": "left",
        "width": 80.0,
        "band": 0,
        "key": "left.x",
        "hot": [],
        "workers": 4,
        "replicas": {"left": 1, "right": 2},
    }
    assert on_spark(NEAR, partitioning="matrix").to_dict()["partitioning"] == "matrix"
    assert embedded(NEAR).to_dict()["routing"] is None
    assert embedded(NEAR).to_dict()["windows"]["left"]["runs"] is None


def test_an_embedded_plan_is_data():
    plan = embedded(EQUAL, topology="low_latency_handshake", rate=5, latency=0.5, max_results=9).to_dict()
    assert json.loads(json.dumps(plan)) is not None
    assert (plan["rate"], plan["latency"], plan["max_results"], plan["partitioning"]) == (5.0, 0.5, 9, "auto")
    assert (plan["nodes"]["kind"], plan["nodes"]["key"]) == ("hashing", "left.k = right.k")
    assert embedded(EQUAL).to_dict()["nodes"]["key"] is None


@pytest.mark.parametrize(
    ("direction", "strict", "text"),
    [
        ("backward", False, "latest match at or before its own time"),
        ("backward", True, "latest match before its own time"),
        ("forward", False, "earliest match at or after its own time"),
        ("forward", True, "earliest match after its own time"),
        ("nearest", False, "nearest match in time"),
        ("nearest", True, "nearest match in time, but none at its own time"),
    ],
)
def test_an_as_of_join_is_explained(direction, strict, text):
    plan = make_plan(replace(spec_of(EQUAL), keep=sj.AsOf(direction, strict=strict)))
    assert (
        f"keep         each left row gets its {text}, once that is final" in explain_plan(plan).splitlines()
    )


def test_explain_takes_the_options_of_open_join():
    assert set(signature(sj.explain).parameters) == set(signature(sj.open_join).parameters)


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ({"topology": "panjoin", "engine": "spark"}, "topology is 'panjoin'; allowed: auto$"),
        ({"order": "punctuated", "engine": "spark"}, "order is 'punctuated'; allowed: any, timestamp$"),
        ({"partitioning": "hash"}, "partitioning is 'hash'; allowed: auto$"),
        (
            {"partitioning": "rows", "engine": "spark"},
            "partitioning is 'rows'; allowed: auto, hash, range, matrix$",
        ),
        ({"workers": 65}, "workers is 65; allowed: a whole number from 1 to 64, or None"),
        ({"workers": 0, "engine": "spark"}, "workers is 0; allowed: a whole number from 1 on, or None"),
        ({"engine": "flink"}, "engine is 'flink'; allowed: embedded, spark"),
    ],
)
def test_an_option_that_an_engine_does_not_have_is_refused(given, allowed):
    with pytest.raises(sj.StreamJoinError, match=allowed):
        Options(**given)
    assert Options(workers=65, engine="spark").workers == 65


@pytest.mark.parametrize("plan_of", [embedded, on_spark])
def test_a_long_predicate_is_explained_in_short_lines(plan_of):
    long = " OR ".join(f"left.x * right.x < {number}.5" for number in range(3_000))
    plan = plan_of(f"left.k = right.k AND left.x < 3 AND ({long})")
    assert all(len(window.residual or "") <= MAX_LINE + 10 for window in plan.windows.values())
    lines = explain_plan(plan).splitlines()
    assert max(map(len, lines)) < MAX_LINE + 30
    residual = next(line for line in lines if "residual: " in line)
    assert "left.x < 3" in residual and " ... " in residual and residual.endswith("right.x < 2999.5)")
