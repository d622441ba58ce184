"""`window_join` on a real Spark: streams and tables, types, names, refusals, and what follows the join."""

from __future__ import annotations

import datetime
import decimal
import hashlib
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import VariantVal

from streamjoin.semantics.keep import HOW
from streamjoin.spark import in_time_order, join_metrics, window_join
from streamjoin.spark.sessions import PROCESS_POOL
from streamjoin.spark.window_join import MARKED, make_task, spec_of

SCHEMA = "ts TIMESTAMP, x INT, name STRING"
MINUTE = sj.TimeWindow("60 seconds")
BEGIN_OF_TIME = datetime.datetime(2024, 1, 1)
Rows = Sequence[tuple[Any, ...]]


def at(seconds: float) -> datetime.datetime:
    return BEGIN_OF_TIME + datetime.timedelta(seconds=seconds)


def rows(*given: tuple[float, int | None, str]) -> list[tuple[Any, ...]]:
    return [(at(seconds), x, name) for seconds, x, name in given]


LEFT = rows((10, 1, "a"), (20, 2, "b"), (35, 3, "c"), (36, None, "d"), (100, 2, "e"), (230, 1, "f"))
RIGHT = rows((12, 1, "p"), (25, 2, "q"), (95, 3, "r"), (96, 3, "s"), (110, None, "t"), (231, 1, "u"))


class Streams:
    """Two streams of files; every `put` adds one file a side, and so a micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str = SCHEMA):
        self.spark, self.folder, self.schema = spark, folder, schema
        self.written = 0
        for side in ("left", "right"):
            (folder / side).mkdir()

    def put(self, left: Rows, right: Rows) -> None:
        self.written += 1
        for side, given in (("left", left), ("right", right)):
            frame = self.spark.createDataFrame(list(given), self.schema).coalesce(1)
            frame.write.mode("append").parquet(str(self.folder / side))

    def frame(self, side: str) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / side))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Streams:
    return Streams(spark, tmp_path)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def run(
    streams: Streams,
    result: DataFrame,
    batches: Sequence[tuple[Rows, Rows]],
    name: str,
    mode: str = "append",
) -> tuple[list[tuple[Any, ...]], Any]:
    """All result rows of a query that gets these batches, and the query."""
    checkpoint = str(streams.folder / f"checkpoint-{name}")
    writer = result.writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint)
    query = writer.outputMode(mode).start()
    try:
        for left, right in batches:
            streams.put(left, right)
            query.processAllAvailable()
    finally:
        query.stop()
    return collected(streams.spark.table(name)), query


def oracle_rows(
    left: Rows, right: Rows, on: Any, window: Any, how: Any = "inner", **given: Any
) -> list[tuple[Any, ...]]:
    schema = pa.schema({"ts": pa.timestamp("us"), "x": pa.int32(), "name": pa.string()})
    tables = [
        pa.table(
            [pa.array(c, f.type) for c, f in zip(zip(*side, strict=True), schema, strict=True)], schema=schema
        )
        for side in (left, right)
    ]
    spec = sj.JoinSpec(schema, schema, on, window, "ts", "ts", how=how, **given)
    return sorted(
        (tuple(row.values()) for row in sj.oracle.join(tables[0], tables[1], spec).to_pylist()), key=repr
    )


NEAR = "abs(left.x - right.x) <= 1"
# A last row on either side that lets the watermark pass all the others; they match nothing but each other.
LAST = rows((10_000, 77, "last"))


@pytest.mark.parametrize(
    ("on", "window", "how", "order"),
    [
        ("left.x = right.x", MINUTE, "inner", "any"),
        (NEAR, sj.TimeWindow("1 minute", "10 seconds"), "full", "any"),
        (NEAR, sj.TimeWindow("1 minute", "10 seconds"), "left", "any"),
        (NEAR, sj.RowWindow(2), "inner", "any"),
        ("left.x = right.x", (sj.TimeWindow("2 minutes"), sj.RowWindow(3)), "inner", "timestamp"),
    ],
    ids=["hash", "matrix full", "ranges left", "rows", "mixed sorted"],
)
def test_a_stream_gives_the_rows_of_the_oracle(streams, on, window, how, order):
    result = window_join(
        streams.frame("left"),
        streams.frame("right"),
        on,
        window=window,
        left_time="ts",
        right_time="ts",
        how=how,
        order=order,
        lateness="60 seconds",
        workers=2,
    )
    batches = [(LEFT[:3], RIGHT[:4]), (LEFT[3:], RIGHT[4:]), (LAST, LAST)]
    found, query = run(streams, result, batches, f"stream_{how}_{order}_{abs(hash(str(window)))}")
    expected = oracle_rows([*LEFT, *LAST], [*RIGHT, *LAST], on, window, how)
    last = at(10_000)
    assert [r for r in found if last not in r] == [r for r in expected if last not in r]
    metrics = [m for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()]
    assert sum(m["rows_in"] for m in metrics) >= len(LEFT) + len(RIGHT)
    assert sum(m["matches"] for m in metrics) >= len(found) - 2 * len(LEFT)
    assert sum(m["late"] for m in metrics) == 0


# Every `how` with every way to spread rows and every kind of window.

WIDE = sj.TimeWindow("20 seconds", "8 seconds")
SPREADS: dict[str, tuple[str, Any, str]] = {
    "hash": ("left.x = right.x", WIDE, "hash"),
    "range": (NEAR, WIDE, "range"),
    "matrix": ("left.x = right.x", WIDE, "matrix"),
    "rows": (NEAR, sj.RowWindow(3, 2), "auto"),
    "mixed": ("left.x = right.x", (WIDE, sj.RowWindow(2)), "auto"),
}


def spread(name: str, how: Any) -> tuple[str, Any, Any]:
    """The case, with the grid of one worker where ranges are impossible."""
    on, window, partitioning = SPREADS[name]
    return on, window, "matrix" if (name, how) == ("range", "full") else partitioning


def history(seed: int) -> tuple[list[Any], list[Any], list[tuple[list[Any], list[Any]]]]:
    """Rows of both sides, no two of a side at one time, and the micro-batches they come in: out of order by less than
    30 seconds, cut anywhere, some of them without rows of a side, one without any."""
    random = Random(seed)
    sides = []
    for side in "lr":
        seconds = random.sample(range(120), 24)
        made = rows(*((s, random.choice([1, 2, 3, 5, 6, None]), f"{side}{s}") for s in seconds))
        sides.append(sorted(made, key=lambda row: row[0] + datetime.timedelta(seconds=random.random() * 25)))
    cuts = [[0, *sorted(random.randrange(25) for _ in range(3)), 24] for _ in sides]
    batches = [
        tuple(side[cut[at] : cut[at + 1]] for side, cut in zip(sides, cuts, strict=True)) for at in range(4)
    ]
    return sides[0], sides[1], [*batches[:2], ([], []), *batches[2:], (LAST, LAST)]  # type: ignore[list-item]


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", SPREADS)
def test_every_how_spread_and_window_gives_the_rows_of_the_oracle(streams, oracle, name, how):
    on, window, partitioning = spread(name, how)
    seed = zlib.crc32(f"{name} {how}".encode())
    left, right, batches = history(seed)
    frames = streams.frame("left"), streams.frame("right")
    options: dict[str, Any] = {"window": window, "left_time": "ts", "right_time": "ts"}
    result = window_join(
        *frames, on, how=how, partitioning=partitioning, lateness="60 seconds", workers=3, **options
    )
    found, query = run(streams, result, batches, f"every_{name}_{how}")
    task = make_task(spec_of(*frames, on, window, "ts", "ts", how=how), "any", "auto", partitioning, 3)
    assert [row for row in found if at(10_000) not in row] == oracle(task, left, right)
    assert sum(m["late"] for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()) == 0
    tables = streams.spark.createDataFrame(left, SCHEMA), streams.spark.createDataFrame(right, SCHEMA)
    backfill = window_join(*tables, on, how=how, partitioning=partitioning, workers=3, **options)
    assert collected(backfill) == oracle_rows(left, right, on, window, how)


@pytest.mark.slow
@pytest.mark.parametrize("lateness", [None, "40 seconds"])
def test_inputs_may_have_watermarks_of_their_own(streams, oracle, lateness):
    """Both, each with its delay; or one, beside a lateness that adds the other's and is shorter than the first's."""
    left, right, batches = history(seed=8)
    second = streams.frame("right")
    frames = (
        streams.frame("left").withWatermark("ts", "100 seconds"),
        second.withWatermark("ts", "50 seconds") if lateness is None else second,
    )
    options: dict[str, Any] = {"window": WIDE, "left_time": "ts", "right_time": "ts", "how": "full"}
    result = window_join(*frames, "left.x = right.x", lateness=lateness, workers=2, **options)
    found, query = run(streams, result, batches, f"own_watermarks_{lateness is None}")
    task = make_task(
        spec_of(*frames, "left.x = right.x", WIDE, "ts", "ts", how="full"), "any", "auto", "auto", 2
    )
    assert [row for row in found if at(10_000) not in row] == oracle(task, left, right)
    assert sum(m["late"] for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()) == 0


@pytest.mark.slow
def test_a_python_function_decides(streams):
    def near(left: Any, right: Any) -> bool:
        return bool(abs(left.x - right.x) <= 1 and left.x + right.x > 3)

    left, right, batches = history(seed=9)
    frames = streams.frame("left"), streams.frame("right")
    options: dict[str, Any] = {"window": WIDE, "left_time": "ts", "right_time": "ts", "how": "left"}
    result = window_join(*frames, near, lateness="60 seconds", workers=2, **options)
    found, _ = run(streams, result, batches, "function")
    expected = oracle_rows(left, right, near, WIDE, "left")
    assert [row for row in found if at(10_000) not in row] == expected
    tables = streams.spark.createDataFrame(left, SCHEMA), streams.spark.createDataFrame(right, SCHEMA)
    assert collected(window_join(*tables, near, workers=2, **options)) == expected


def test_functions_outside_the_join_keep_their_environment(streams):
    left, right = streams.frame("left"), streams.frame("right")
    window_join(left, right, NEAR, window=MINUTE, left_time="ts", right_time="ts", lateness="1 second")
    assert PROCESS_POOL not in streams.spark.sparkContext.environment


# What left rows pick. No two rows of a side have one time, so Spark's ties are those of the oracle.

PICKS: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    "as of": ("left.x = right.x", sj.TimeWindow("60 seconds"), "left", {"keep": sj.AsOf()}),
    "next": (
        NEAR,
        sj.Interval("1 second", "40 seconds"),
        "left",
        {"keep": sj.AsOf("forward"), "right_tie": "name"},
    ),
    "nearest": (
        NEAR,
        WIDE,
        "inner",
        {"keep": sj.Nearest("abs(left.x - right.x)", k=2), "partitioning": "matrix"},
    ),
    "rows": (NEAR, sj.RowWindow(3, 2), "left", {"keep": sj.AsOf("nearest", strict=True)}),
    "before": ("left.x = right.x", sj.Interval("-40 seconds", "-1 second"), "full", {}),
}


def pick_options(name: str) -> dict[str, Any]:
    _, window, how, given = PICKS[name]
    return {"window": window, "left_time": "ts", "right_time": "ts", "how": how, "workers": 3, **given}


@pytest.mark.parametrize("name", PICKS)
def test_tables_pick_the_rows_of_the_oracle(spark, name):
    left, right, _ = history(zlib.crc32(name.encode()))
    on, window, how, given = PICKS[name]
    tables = spark.createDataFrame(left, SCHEMA), spark.createDataFrame(right, SCHEMA)
    result = window_join(*tables, on, **pick_options(name))
    spec = {key: value for key, value in given.items() if key != "partitioning"}
    assert collected(result) == oracle_rows(left, right, on, window, how, **spec)


@pytest.mark.parametrize(
    "name",
    ["as of", *(pytest.param(name, marks=pytest.mark.slow) for name in PICKS if name != "as of")],
)
def test_streams_pick_the_rows_of_the_oracle(streams, oracle, name):
    on, window, how, given = PICKS[name]
    left, right, batches = history(zlib.crc32(name.encode()))
    frames = streams.frame("left"), streams.frame("right")
    result = window_join(*frames, on, lateness="60 seconds", **pick_options(name))
    found, query = run(streams, result, batches, f"picks_{name.replace(' ', '_')}")
    spec = {key: value for key, value in given.items() if key != "partitioning"}
    task = make_task(spec_of(*frames, on, window, "ts", "ts", how=how, **spec), "any", "auto", "auto", 3)
    assert [row for row in found if at(10_000) not in row] == oracle(task, left, right)
    assert sum(m["late"] for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()) == 0


def test_a_table_gives_the_rows_of_the_oracle(spark):
    left, right = (spark.createDataFrame(side, SCHEMA) for side in (LEFT, RIGHT))
    cases: Any = (
        ("left.x = right.x", MINUTE, "left"),
        (NEAR, sj.TimeWindow("1 minute"), "inner"),
        ("left.name < right.name", sj.RowWindow(3, 1), "full"),
    )
    for on, window, how in cases:
        result = window_join(
            left, right, on, window=window, left_time="ts", right_time="ts", how=how, workers=2
        )
        assert collected(result) == oracle_rows(LEFT, RIGHT, on, window, how)


TYPES = """ts TIMESTAMP_NTZ NOT NULL, k BIGINT, tiny TINYINT, short SMALLINT, real FLOAT, double DOUBLE,
    yes BOOLEAN, day DATE, exact DECIMAL(30, 4), bytes BINARY, text STRING,
    list ARRAY<STRUCT<a: INT, b: ARRAY<STRING>>>, map MAP<STRING, MAP<INT, DECIMAL(5, 1)>>,
    pair STRUCT<a: TIMESTAMP, b: STRUCT<c: DATE>, d: TIMESTAMP_NTZ>,
    span INTERVAL DAY TO SECOND, any VARIANT, anys ARRAY<VARIANT>"""
OF_EVERY_TYPE = (
    BEGIN_OF_TIME, 2**62, -128, 2**15 - 1, 0.5, 1e300, True,
    datetime.date(1, 1, 1), decimal.Decimal("12345678901234567890123456.7891"), b"\x00\xff", "ä𝄞",
    [(1, ["x", None]), None], {"a": {1: decimal.Decimal("2.5")}, "b": None},
    (datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), (datetime.date(9999, 12, 31),), BEGIN_OF_TIME),
    datetime.timedelta(days=3, microseconds=1), VariantVal.parseJson('{"a": [1, "x"]}'),
    [VariantVal.parseJson("1.5"), None],
)  # fmt: skip
OF_NOTHING = (BEGIN_OF_TIME, 2**62, *([None] * 15))
# One that finds no partner, of either side.
ALONE = (BEGIN_OF_TIME, 1, *([None] * 15))


def of_any_type(frame: DataFrame) -> list[str]:
    """What a full join on `k` of the first two rows with themselves, and of the third with nothing, must give."""
    first, second, alone = (tuple(row) for row in frame.collect())
    nothing = (None,) * len(alone)
    pairs = [l + r for l in (first, second) for r in (first, second)]
    return sorted(map(repr, [*pairs, alone + nothing, nothing + alone]))


LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"  # whether Spark gives Arrow offsets of 64 bits


@pytest.mark.parametrize("wide", ["false", "true"])
def test_any_type_travels_untouched(spark, wide):
    session = spark.newSession()
    session.conf.set(LARGE_TYPES, wide)
    frame = session.createDataFrame([OF_EVERY_TYPE, OF_NOTHING, ALONE], TYPES)
    joined = window_join(
        frame, frame, "left.k = right.k AND left.k > 1", window="1 second", left_time="ts", right_time="ts",
        how="full",
    )  # fmt: skip
    assert sorted(repr(tuple(row)) for row in joined.collect()) == of_any_type(frame)
    assert [f.dataType for f in joined.schema] == [f.dataType for f in frame.schema] * 2


@pytest.mark.slow
@pytest.mark.parametrize("wide", ["false", "true"])
def test_any_type_travels_through_the_state_of_a_stream(spark, tmp_path, wide):
    """Left rows come a micro-batch before right ones, so that they are read back from the state, and the session has a
    zone that instants are labelled with."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    session.conf.set(LARGE_TYPES, wide)
    streams = Streams(session, tmp_path, TYPES)
    result = window_join(
        streams.frame("left"), streams.frame("right"), "left.k = right.k AND left.k > 1", window="1 second",
        left_time="ts", right_time="ts", lateness="1 second", how="full", workers=2,
    )  # fmt: skip
    some = [OF_EVERY_TYPE, OF_NOTHING, ALONE]
    last = [(at(10_000), *ALONE[1:])]
    found, _ = run(streams, result, [(some, []), ([], some), (last, last)], f"types_{wide}")
    others = [row for row in found if at(10_000) not in row]
    assert sorted(map(repr, others)) == of_any_type(spark.createDataFrame(some, TYPES))
    kinds = [f.dataType for f in spark.createDataFrame([], TYPES).schema]
    assert [f.dataType for f in result.schema] == kinds * 2


@pytest.mark.slow
def test_rows_of_megabytes_come_out_whole(streams):
    """More than a batch of results, or a value of the state store, usually has."""
    left, right = (
        streams.frame(side).withColumn("name", F.expr("repeat(name, 1 << 20)")) for side in ("left", "right")
    )
    result = window_join(
        left, right, "left.x = right.x", window=MINUTE, left_time="ts", right_time="ts", lateness="1 s", workers=2
    )  # fmt: skip
    batches = [
        (rows(*((second, second % 2, f"l{second}") for second in range(12))), []),
        ([], rows(*((second, second % 2, f"r{second}") for second in range(6)))),
    ]
    found, query = run(streams, result.selectExpr("md5(name)", "md5(name_right)"), batches, "megabytes")

    def digest(name: str) -> str:
        return hashlib.md5((name * (1 << 20)).encode()).hexdigest()

    pairs = [(l, r) for l in range(12) for r in range(6) if l % 2 == r % 2]
    assert found == sorted(((digest(f"l{l}"), digest(f"r{r}")) for l, r in pairs), key=repr)
    metrics = [m for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()]
    assert (sum(m["rows_in"] for m in metrics), sum(m["matches"] for m in metrics)) == (18, len(pairs))


@pytest.mark.parametrize("streaming", [False, True], ids=["tables", "streams"])
def test_names_types_and_nullability_of_the_result(spark, streaming):
    source = spark.readStream.format("rate").load() if streaming else spark.range(1)
    moment = "TIMESTAMP '2024-01-01' AS ts"
    left = source.selectExpr(moment, "1 AS `a b`", "string(null) AS same")
    right = source.selectExpr(moment, "1D AS c", "'' AS same")

    def schema_of(**options: Any) -> list[tuple[str, str, bool]]:
        joined = window_join(
            left, right, 'left."a b" = right.c', window="1 s", left_time="ts", right_time="ts", lateness="1 s",
            **options,
        )  # fmt: skip
        marked = [f.name for f in joined.schema if f.metadata == MARKED]
        assert marked == ([name for name in joined.columns if name.startswith("ts")] if streaming else [])
        return [(f.name, f.dataType.simpleString(), f.nullable) for f in joined.schema]

    assert schema_of() == [
        ("ts", "timestamp", False), ("a b", "int", False), ("same", "string", True),
        ("ts_right", "timestamp", False), ("c", "double", False), ("same_right", "string", False),
    ]  # fmt: skip
    assert [nullable for _, _, nullable in schema_of(how="left")] == [False, False, True, True, True, True]
    assert [nullable for _, _, nullable in schema_of(how="right")] == [True, True, True, False, False, False]
    assert all(nullable for _, _, nullable in schema_of(how="full"))
    assert [name for name, _, _ in schema_of(how="anti")] == ["ts", "a b", "same"]
    assert [name for name, _, _ in schema_of(suffix="2")][3:] == ["ts2", "c", "same2"]


@pytest.mark.parametrize("streaming", [False, True], ids=["tables", "streams"])
def test_what_can_not_be_null_inside_a_value_stays_so(spark, streaming):
    source = spark.readStream.format("rate").load() if streaming else spark.range(1)
    nested = "named_struct('p', 1, 'q', array(1), 'r', map('a', 2)) AS nested"
    frame = source.selectExpr("TIMESTAMP '2024-01-01' AS ts", "1 AS k", nested)
    kinds = [f.dataType for f in frame.schema]
    assert not kinds[2]["p"].nullable and not kinds[2]["q"].dataType.containsNull
    joined = window_join(
        frame, frame, "left.k = right.k", window="1 s", left_time="ts", right_time="ts", lateness="1 s", how="left"
    )  # fmt: skip
    assert [f.dataType for f in joined.schema] == kinds * 2


@pytest.mark.slow
def test_an_aggregation_and_another_join_follow_the_result(streams):
    """The time columns of the result carry a watermark that no result row is behind, unmatched rows included."""
    left = streams.frame("left")
    right = streams.frame("right")
    options: dict[str, Any] = {"left_time": "ts", "right_time": "ts", "lateness": "10 seconds", "workers": 2}
    first = window_join(left, right, "left.x = right.x", window=MINUTE, how="left", **options)
    counted = first.groupBy(F.window("ts", "1 minute")).agg(F.count("*").alias("rows"))
    batches = [(LEFT[:3], RIGHT[:3]), (LEFT[3:], RIGHT[3:]), (LAST, LAST), (rows((20_000, 0, "")),) * 2]
    found, _ = run(streams, counted, batches, "counted")
    expected: dict[datetime.datetime, int] = {}
    for row in oracle_rows(LEFT, RIGHT, "left.x = right.x", MINUTE, "left"):
        minute = row[0].replace(second=0)
        expected[minute] = expected.get(minute, 0) + 1
    assert {row[0].start: row[1] for row in found if row[0].start < at(9_000)} == expected


@pytest.mark.slow
def test_what_follows_gets_results_alone(streams):
    """Workers also report their counts: no expression sees those, not even one that would fail for a zero."""
    left = streams.frame("left").withColumn("x", F.expr("coalesce(x, 9)"))
    assert not left.schema["x"].nullable
    result = window_join(
        left, streams.frame("right"), "left.x = right.x", window=MINUTE, left_time="ts", right_time="ts",
        lateness="60 seconds", workers=2,
    )  # fmt: skip
    counted = result.where("10 / x > 1").groupBy("x", F.expr("10 % x")).count()
    batches = [(LEFT[:3], RIGHT[:4]), (LEFT[3:], RIGHT[4:]), ([], []), (LAST, LAST)]
    found, query = run(streams, counted, batches, "alone", mode="complete")
    expected: dict[int, int] = {}
    for row in oracle_rows(LEFT, RIGHT, "left.x = right.x", MINUTE):
        expected[row[1]] = expected.get(row[1], 0) + 1
    assert found == [(x, 10 % x, count) for x, count in sorted(expected.items())]
    metrics = [m for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()]
    assert sum(m["matches"] for m in metrics) == sum(expected.values()) + 1, (
        "the last rows too, which x leaves out"
    )


@pytest.mark.slow
def test_a_second_join_takes_the_first_ones_result(streams):
    options: dict[str, Any] = {"left_time": "ts", "right_time": "ts", "workers": 2, "window": MINUTE}
    frames = {side: streams.frame(side) for side in ("left", "right")}
    first = window_join(
        frames["left"], frames["right"], "left.x = right.x", how="left", lateness="10 seconds", **options
    )
    third = streams.frame("right").withColumnsRenamed({"ts": "at", "x": "y", "name": "tag"})
    second = window_join(
        first, third, "left.x = right.y", **{**options, "right_time": "at"}, lateness="10 seconds"
    ).select("ts", "name", "name_right", "tag")
    batches = [(LEFT[:3], RIGHT[:3]), (LEFT[3:], RIGHT[3:]), (LAST, LAST), (rows((20_000, 0, "")),) * 2]
    found, _ = run(streams, second, batches, "second")
    expected = [
        (row[0], row[2], row[5], r[2])
        for row in oracle_rows(LEFT, RIGHT, "left.x = right.x", MINUTE, "left")
        for r in RIGHT
        if row[1] is not None and row[1] == r[1] and abs((r[0] - row[0]).total_seconds()) <= 60
    ]
    assert [row for row in found if row[0] < at(9_000)] == sorted(expected, key=repr)


def test_results_are_written_in_time_order(streams):
    result = window_join(
        streams.frame("left"), streams.frame("right"), NEAR, window=MINUTE, left_time="ts", right_time="ts",
        lateness="30 seconds", order="timestamp", workers=2,
    )  # fmt: skip
    seen: list[tuple[Any, ...]] = []

    def write(frame: DataFrame, _batch: int) -> None:
        seen.extend(tuple(row) for row in frame.collect())

    query = (
        result.writeStream.foreachBatch(in_time_order("ts", "ts_right", write))
        .option("checkpointLocation", str(streams.folder / "checkpoint"))
        .start()
    )
    try:
        for left, right in [(LEFT[:3], RIGHT[:2]), (LEFT[3:], RIGHT[2:]), (LAST, LAST)]:
            streams.put(left, right)
            query.processAllAvailable()
    finally:
        query.stop()
    times = [max(row[0], row[3]) for row in seen]
    assert times == sorted(times)
    assert sorted(seen, key=repr) == oracle_rows(LEFT, RIGHT, NEAR, MINUTE)


def test_integer_times_are_joined_as_streams_too(spark, tmp_path):
    streams = Streams(spark, tmp_path, "ts BIGINT, x INT")
    result = window_join(
        streams.frame("left"), streams.frame("right"), "left.x = right.x", window=5, left_time="ts",
        right_time="ts", lateness=3, how="left", workers=2,
    )  # fmt: skip
    batches = [([(100, 1), (104, 2)], [(103, 1)]), ([(150, 9)], [(150, 8)]), ([(900, 9)], [(900, 8)])]
    found, _ = run(streams, result, batches, "integers")
    assert [row for row in found if row[0] < 900] == [
        (100, 1, 103, 1), (104, 2, None, None), (150, 9, None, None)
    ]  # fmt: skip


def test_names_that_differ_in_case_alone_are_told_apart_where_spark_does(spark):
    session = spark.newSession()
    left = session.createDataFrame([(BEGIN_OF_TIME, 1)], "ts TIMESTAMP, x INT")
    right = session.createDataFrame([(BEGIN_OF_TIME, 1, 2)], "ts TIMESTAMP, X INT, `x` INT")
    options: dict[str, Any] = {"window": MINUTE, "left_time": "ts", "right_time": "ts"}
    with pytest.raises(sj.SpecError, match=r"right has columns 'X' and 'x'.*spark.sql.caseSensitive"):
        window_join(left, right, 'left.x = right."X"', how="semi", **options)
    session.conf.set("spark.sql.caseSensitive", "true")
    joined = window_join(left, right, 'left.x = right."X"', **options)
    assert joined.columns == ["ts", "x", "ts_right", "X", "x_right"]
    assert collected(joined) == [(BEGIN_OF_TIME, 1, BEGIN_OF_TIME, 1, 2)]


ODD = "`ts.at` TIMESTAMP, `x``y` INT, `a.b` STRING, `c` INT"


@pytest.mark.parametrize(
    "on", ['left."x`y" = right."x`y"', 'left."a.b" <> right."a.b"'], ids=["hash", "matrix"]
)
def test_names_with_dots_and_backticks_are_joined(spark, tmp_path, on):
    options: dict[str, Any] = {"window": MINUTE, "left_time": "ts.at", "right_time": "ts.at", "how": "left"}
    names = ["ts.at", "x`y", "a.b", "c", "ts.at_right", "x`y_right", "a.b_right", "c_right"]
    left, right = [(at(0), 1, "l", 5)], [(at(1), 1, "r", 6)]
    tables = [spark.createDataFrame(rows, ODD) for rows in (left, right)]
    joined = window_join(tables[0], tables[1], on, **options)
    assert joined.columns == names
    assert collected(joined) == [(*left[0], *right[0])]
    streams = Streams(spark, tmp_path, ODD)
    result = window_join(
        streams.frame("left"), streams.frame("right"), on, lateness="1 s", workers=2, **options
    )
    assert result.columns == names
    found, _ = run(streams, result, [(left, right)], f"odd_names_{len(on)}")
    assert found == [(*left[0], *right[0])]


@pytest.mark.slow
def test_times_without_a_zone_are_joined_as_streams_too(spark, tmp_path):
    """The session's zone has no 02:30 that day: taken for 03:30 there, it would make the row of 03:00 late."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    streams = Streams(session, tmp_path, "ts TIMESTAMP_NTZ, x INT, name STRING")
    result = window_join(
        streams.frame("left"), streams.frame("right"), "left.x = right.x", window=MINUTE, left_time="ts",
        right_time="ts", lateness="1 second", how="left", workers=2,
    )  # fmt: skip
    night = datetime.datetime(2024, 3, 10)
    made = [
        [(night + datetime.timedelta(seconds=s, microseconds=7), x, name) for s, x, name in side]
        for side in (
            [(9_000, 1, "2:30"), (10_800, 2, "3:00"), (10_930, 3, "alone")],
            [(9_001, 1, "2:30:01"), (10_859, 2, "3:00:59"), (10_990, 4, "other")],
        )
    ]
    batches = [([left], [right]) for left, right in zip(*made, strict=True)]
    last = [(night + datetime.timedelta(days=1), 77, "last")]
    found, query = run(streams, result, [*batches, (last, last)], "without_a_zone")
    expected = oracle_rows(made[0], made[1], "left.x = right.x", MINUTE, "left")
    assert [row for row in found if row[2] != "last"] == expected
    assert sum(m["late"] for p in query.recentProgress for m in join_metrics(p.observedMetrics).values()) == 0
    assert "spark.watermarkDelayMs" not in result.schema["ts"].metadata


# Refusals: each names what was given and what is allowed.


def frames(spark: SparkSession, tmp_path: Path) -> tuple[DataFrame, DataFrame]:
    streams = Streams(spark, tmp_path)
    return streams.frame("left"), streams.frame("right")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"how": "outer"}, "how is 'outer': write 'full'; allowed: inner, left, right, full, semi, anti"),
        ({"order": "punctuated"}, "order is 'punctuated'; allowed: any, timestamp"),
        ({"partitioning": "round"}, "partitioning is 'round'; allowed: auto, hash, range, matrix"),
        ({"workers": 0}, "workers is 0; allowed: a whole number from 1 on"),
        ({"lateness": None}, r"left has no watermark on 'ts'.*lateness=.*withWatermark\('ts'"),
        ({"lateness": 5}, "lateness is the plain number 5, but the time columns are timestamps"),
        ({"lateness": "-1 s"}, "cannot be negative"),
        ({"left_time": "at"}, "left_time is 'at', which is not a column of left"),
        ({"left_time": "name"}, "left_time 'name' has type"),
        ({"window": "-5 s"}, "cannot be negative"),
        ({"window": 5}, "is the plain number 5, but the time columns are timestamps"),
        ({"index": "btree"}, "index is 'btree'; allowed: auto, scan"),
        ({"on": "left.z = right.x"}, "z"),
        ({"on": NEAR, "partitioning": "hash"}, "partitioning is 'hash', but the predicate has no equality"),
        ({"suffix": ""}, "would become 'ts', which is taken"),
    ],
)
def test_refusals(spark, tmp_path, change, message):
    left, right = frames(spark, tmp_path)
    options = {
        "on": "left.x = right.x", "window": MINUTE, "left_time": "ts", "right_time": "ts", "lateness": "1 s"
    } | change  # fmt: skip
    with pytest.raises(sj.StreamJoinError, match=message):
        window_join(left, right, options.pop("on"), **options)


def test_a_column_that_arrow_does_not_know_is_named(spark):
    left = spark.createDataFrame(LEFT, SCHEMA)
    right = left.selectExpr("ts", "x", "array(INTERVAL '3' MONTH) AS span")
    with pytest.raises(
        sj.SpecError, match=r"right has a column 'span' of type array<interval month>, .* to Arrow: cast it"
    ):
        window_join(left, right, "left.x = right.x", window=MINUTE, left_time="ts", right_time="ts")


def test_a_stream_and_a_table_are_refused(spark, tmp_path):
    left, _ = frames(spark, tmp_path)
    table = spark.createDataFrame(RIGHT, SCHEMA)
    join: Callable[..., DataFrame] = window_join
    with pytest.raises(sj.SpecError, match=r"left is a stream and right is a table.*stream-static join"):
        join(left, table, "left.x = right.x", window=MINUTE, left_time="ts", right_time="ts")
    with pytest.raises(sj.SpecError, match="right is a list: give a Spark DataFrame"):
        join(table, RIGHT, "left.x = right.x", window=MINUTE, left_time="ts", right_time="ts")


def test_duplicates_of_a_join_are_dropped_and_forgotten_once_the_watermark_has_passed_them(streams: Streams):
    """Both left rows match; of their two results with one time and number, one is left."""
    joined = window_join(
        streams.frame("left"),
        streams.frame("right"),
        "left.x = right.x",
        window="60 seconds",
        left_time="ts",
        right_time="ts",
        lateness="60 seconds",
        workers=2,
    )
    twice = rows((10, 1, "a"), (10, 1, "b"), (20, 2, "c"))
    batches = [(twice, rows((12, 1, "p"), (25, 2, "q"))), (LAST, LAST), (LAST, LAST)]
    found, query = run(streams, joined.select("ts", "x").dropDuplicates(["ts", "x"]), batches, "distinct")
    assert [(ts, x) for ts, x in found if x < 77] == [(at(10), 1), (at(20), 2)]
    operators = {each.operatorName: each for each in query.lastProgress.stateOperators}
    assert operators["dedupe"].numRowsTotal == 1, "only the last rows; the others are behind the watermark"


def test_a_watermark_of_ours_looks_at_parcels_and_one_of_the_program_stays_where_it_is(spark):
    bare = spark.readStream.format("rate").load().selectExpr("timestamp AS ts", "value AS x")
    marked = bare.withWatermark("ts", "10 seconds")
    joined = window_join(
        bare, marked, "left.x = right.x", window="5 s", left_time="ts", right_time="ts", lateness="10 s"
    )
    left, right = joined._jdf.queryExecution().analyzed().toString().split("MapInArrow")[:2]
    of_parcels, of_rows = r"EventTimeWatermark .*newest#", r"EventTimeWatermark .*ts#"
    assert re.search(of_parcels, left) and not re.search(of_rows, left), "above where rows become parcels"
    assert not re.search("EventTimeWatermark", right), "that of the right is below where rows become parcels"
