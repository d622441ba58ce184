"""`columns=` on Spark: workers see the columns alone that the join needs, and give those that were chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamjoin as sj

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_runs import EQUAL, NEAR, SCHEMA, WINDOWS, histories, make_task, run
from streamjoin.semantics.keep import HOW
from streamjoin.spark import in_time_order, window_join
from streamjoin.spark.join.task import JoinTask, differences
from streamjoin.spark.window_join import check_column_names, with_late

COLUMNS = ["left.name AS who", "left.ts", "left.ts AS again"]


def projected(rows: Sequence[tuple[Any, ...]], whole: JoinTask, narrow: JoinTask) -> list[tuple[Any, ...]]:
    """The chosen columns of the rows of a join without `columns`."""
    place = {(side, field.name): at for at, (side, field, _) in enumerate(whole.chosen)}
    places = [place[side, field.name] for side, field, _ in narrow.chosen]
    return sorted((tuple(row[at] for at in places) for row in rows), key=repr)


def test_workers_get_the_needed_columns_alone():
    task = make_task(columns=["right.name AS other"])
    assert (task.spec.left.names, task.spec.right.names) == (["ts", "x"], SCHEMA.names)
    assert task.schema.names == ["other"]
    assert make_task(how="semi").spec.right == SCHEMA  # as in checkpoints of before


def test_a_result_has_the_chosen_columns_in_their_order(start):
    query = start(make_task(how="left", columns=["right.name AS other", "left.ts"]), SCHEMA)
    assert query.batch(left=[(10, 1, "l"), (11, 2, "m")], right=[(12, 1, "r")]) == [("r", 10)]
    assert query.finish() == [(None, 11)]


@settings(max_examples=40)
@given(
    histories(),
    st.sampled_from([EQUAL, NEAR]),
    st.sampled_from(WINDOWS),
    st.sampled_from(
        [*((how, "all") for how in HOW), ("left", sj.AsOf()), ("inner", sj.AsOf("backward", True))]
    ),
    st.integers(1, 3),
    st.lists(st.sampled_from(["left.name", "left.ts", "left.x", "right.name", "right.ts"]), min_size=1),
)
def test_oracle_of_chosen_columns(start, oracle, history, on, window, made, workers, names):
    """Rows of equal time are ordered alike whatever is chosen, so that the same ones are picked."""
    (sides, batches), (how, keep) = history, made
    if how in ("semi", "anti"):
        names = [name.replace("right", "left") for name in names]
    columns = {f"c{at}": name for at, name in enumerate(names)}
    whole = make_task(on, window, how, workers=workers, keep=keep)
    narrow = make_task(on, window, how, workers=workers, keep=keep, columns=columns)
    assert run(start(narrow, SCHEMA), batches) == projected(oracle(whole, *sides), whole, narrow)


@pytest.mark.parametrize("how", ["inner", "semi"])
@pytest.mark.parametrize("columns", [COLUMNS, ["left.x"]], ids=str)
def test_late_rows_come_out_with_the_chosen_columns(start, how, columns):
    query = start(with_late(make_task(how=how, workers=1, columns=columns), "late"), SCHEMA)
    query.batch(left=[(21, 1, "l")], right=[(21, 1, "r")])
    query.batch(left=[(1, 2, "old")], right=[(2, 3, "old"), (30, 1, "r")], watermark=20)
    query.finish()
    values = {"left.name AS who": "old", "left.ts": 1, "left.ts AS again": 1, "left.x": 2}
    of_left, of_right = tuple(values[each] for each in columns), (None,) * len(columns)
    assert [row for row in query.rows if row[-1]] == [(*of_left, True), (*of_right, True)]


def test_a_checkpoint_belongs_to_the_columns_that_it_was_started_with():
    plain, some, others = (
        make_task(columns=columns).signature for columns in (None, ["left.x"], ["left.x AS y", "left.ts"])
    )
    assert "columns" not in plain
    assert differences(some, some) == []
    assert differences(plain, some) == ["columns was 'None' and is now 'left.x AS x'"]
    assert differences(some, plain) == ["columns was 'left.x AS x' and is now 'None'"]
    assert differences(some, others) == ["columns was 'left.x AS x' and is now 'left.x AS y, left.ts AS ts'"]
    assert json.loads(json.dumps(some)) == some


def test_names_that_spark_takes_for_one_are_refused_whether_chosen_or_not():
    schema = SCHEMA.append(SCHEMA.field("x").with_name("X"))
    spec = sj.JoinSpec(schema, SCHEMA, EQUAL, 3, "ts", "ts", columns=["left.x"])
    task = make_task(columns=["left.x"])
    with pytest.raises(sj.SpecError, match="left has columns 'x' and 'X'"):
        check_column_names(spec, task, case_sensitive=False)


# ---- on a real Spark

LEFT, RIGHT = [(1, 7, "l"), (20, 8, "m")], [(2, 7, "r"), (22, 8, "s"), (90, 1, "t")]
DDL = "ts LONG, x INT, name STRING"


def frames(spark: SparkSession, folder: Path, streaming: bool = False) -> list[DataFrame]:
    found = []
    for side, rows in (("left", LEFT), ("right", RIGHT)):
        path = str(folder / side)
        spark.createDataFrame(rows, DDL).coalesce(1).write.parquet(path)
        found.append(spark.readStream.schema(DDL).parquet(path) if streaming else spark.read.parquet(path))
    return found


def joined(left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
    return window_join(left, right, EQUAL, window=5, left_time="ts", right_time="ts", workers=2, **options)


def test_tables_give_chosen_columns_and_read_no_others(spark, tmp_path):
    result = joined(*frames(spark, tmp_path), columns={"who": "left.name", "later": "right.ts"})
    assert result.columns == ["who", "later"]
    assert sorted(tuple(row) for row in result.collect()) == [("l", 2), ("m", 22)]
    plan = result._jdf.queryExecution().executedPlan().toString()
    read = {line.split("ReadSchema: ")[1] for line in plan.splitlines() if "ReadSchema" in line}
    assert read == {"struct<ts:bigint,x:int,name:string>", "struct<ts:bigint,x:int>"}


def test_a_stream_gives_chosen_columns_and_keeps_to_them(spark, tmp_path):
    streams = frames(spark, tmp_path, streaming=True)

    def rows_of(**options: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        writer = joined(*streams, lateness=1, how="left", **options).writeStream.trigger(availableNow=True)
        writer = writer.foreachBatch(lambda batch, _: found.extend(map(tuple, batch.collect())))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return sorted(found)

    chosen = ["right.name AS other", "left.x"]
    assert rows_of(columns=chosen) == [("r", 7), ("s", 8)]
    spark.createDataFrame([(91, 1, "n")], DDL).write.mode("append").parquet(str(tmp_path / "left"))
    with pytest.raises(
        StreamingQueryException, match=r"columns was 'right\.name AS other, left\.x AS x' and is now 'None'"
    ):
        rows_of()
    assert rows_of(columns=chosen) == [("t", 1)]


def test_results_are_sorted_only_by_columns_that_they_have(spark, tmp_path):
    result = joined(*frames(spark, tmp_path), columns=["left.ts", "right.ts AS seen"])
    written: list[tuple[Any, ...]] = []
    in_time_order("ts", "seen", lambda batch, _: written.extend(map(tuple, batch.collect())))(result, 0)
    assert written == [(1, 2), (20, 22)]
    with pytest.raises(sj.SpecError, match="the result has no column 'ts_right'"):
        in_time_order("ts", "ts_right", lambda batch, _: None)(result, 0)
