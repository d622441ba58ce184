"""The core suite: what every session must be able to do, whatever its Spark and however it is reached.

    python tests/spark/core_suite.py FOLDER [REMOTE]

runs it in the session of this Python's Spark, or in that of a Spark Connect server, and prints a line for each check.
It needs no pytest and nothing but a Spark that streamjoin supports, so that it runs in environments of other versions.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamjoin as sj

TIME = pa.timestamp("us", "UTC")
LEFT = pa.schema({"ts": TIME, "x": pa.int32(), "name": pa.string()})
RIGHT = pa.schema({"ts": TIME, "a": pa.int32(), "note": pa.string()})
DDL = {"left": "ts TIMESTAMP, x INT, name STRING", "right": "ts TIMESTAMP, a INT, note STRING"}
SECOND, BEGIN = 1_000_000, 1_700_000_000 * 1_000_000
FILES, ROWS = 3, 12
EQUAL, NEAR = "left.x = right.a", "abs(left.x - right.a) <= 1"
CHECKS: list[Callable[[Any, Path], None]] = []


def check(function: Callable[[Any, Path], None]) -> Callable[[Any, Path], None]:
    """A part of the suite: gets a session and an empty folder."""
    CHECKS.append(function)
    return function


def rows_of(side: str, number: int) -> pa.Table:
    """The rows of one file; the last file has a row that lets the watermark pass all others."""
    seconds = [ROWS * number + at + (0.5 if side == "right" else 0) for at in range(ROWS)]
    if number == FILES - 1:
        seconds = [10_000.0]
    stamps = pa.array([BEGIN + int(second * SECOND) for second in seconds], TIME)
    keys = [None if int(second) % 11 == 5 else int(7 * second + 1) % 6 for second in seconds]
    columns = [stamps, pa.array(keys, pa.int32()), pa.array([f"{side} {second}" for second in seconds])]
    return pa.table(columns, schema=LEFT if side == "left" else RIGHT)


def write_rows(folder: Path) -> dict[str, pa.Table]:
    tables = {}
    for side in ("left", "right"):
        (folder / side).mkdir(parents=True)
        parts = [rows_of(side, number) for number in range(FILES)]
        for number, part in enumerate(parts):
            path = folder / side / f"{number}.parquet"
            pq.write_table(part, path)
            os.utime(path, (1e9 + number,) * 2)  # Spark reads files by age
        tables[side] = pa.concat_tables(parts)
    return tables


def expected(tables: dict[str, pa.Table], on: str, window: Any = "10 seconds", **given: Any) -> list[Any]:
    """The rows of the oracle."""
    spec = sj.JoinSpec(LEFT, RIGHT, on, window, "ts", "ts", **given)
    return listed(sj.oracle.join(tables["left"], tables["right"], spec))


def listed(rows: Any) -> list[Any]:
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def final(rows: list[Any]) -> list[Any]:
    """Without the last rows, which are never final in a stream."""
    last = ("left 10000.0", "right 10000.0")
    return [row for row in rows if not {*last} & {*row}]


def tables_of(spark: Any, folder: Path) -> list[Any]:
    return [spark.read.schema(DDL[side]).parquet(str(folder / side)) for side in DDL]


def streams_of(spark: Any, folder: Path) -> list[Any]:
    return [
        spark.readStream.schema(DDL[side]).option("maxFilesPerTrigger", 1).parquet(str(folder / side))
        for side in DDL
    ]


def joined(frames: list[Any], on: str, **given: Any) -> Any:
    from streamjoin.spark import window_join

    options: dict[str, Any] = {
        "window": "10 seconds",
        "left_time": "ts",
        "right_time": "ts",
        "workers": 2,
    } | given
    return window_join(frames[0], frames[1], on, **options)


def streamed(spark: Any, folder: Path, frame: Any) -> list[Any]:
    """The rows of a query, which runs until it has read all files."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return listed(spark.read.parquet(str(folder / "out")).toArrow())


@check
def tables_in_every_way(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    frames = tables_of(spark, folder)
    ways: tuple[tuple[str, dict[str, Any]], ...] = (
        (EQUAL, {"how": "inner"}),
        (EQUAL, {"how": "full"}),
        (NEAR, {"how": "left"}),
        (NEAR, {"how": "semi"}),
        ("left.name < right.note", {"how": "anti"}),
        (EQUAL, {"how": "left", "keep": sj.AsOf("backward")}),
        (NEAR, {"keep": sj.Nearest("abs(left.x - right.a)", k=2)}),
    )
    for on, given in ways:
        found = listed(joined(frames, on, **given).toArrow())
        assert found == expected(tables, on, **given), (on, given)


@check
def columns_are_chosen_and_renamed_and_left_transforms(spark: Any, folder: Path) -> None:
    from streamjoin.spark import window_join

    tables = write_rows(folder)
    left, right = tables_of(spark, folder)
    given: dict[str, Any] = {"window": "10 seconds", "left_time": "ts", "right_time": "ts", "workers": 2}
    result = left.transform(window_join, right, EQUAL, columns=["name", "right.note"], **given)
    assert result.columns == ["name", "note"]
    assert listed(result.toArrow()) == expected(tables, EQUAL, columns=["name", "right.note"])


@check
def names_with_dots(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    left, right = tables_of(spark, folder)
    left = left.withColumnRenamed("x", "x.y `z`")
    found = listed(joined([left, right], 'left."x.y `z`" = right.a').toArrow())
    assert found == expected(tables, EQUAL)


@check
def ansi_either_way(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        for ansi in ("true", "false"):
            spark.conf.set("spark.sql.ansi.enabled", ansi)
            assert listed(joined(tables_of(spark, folder), NEAR).toArrow()) == expected(tables, NEAR), ansi
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@check
def explains_itself(spark: Any, folder: Path) -> None:
    from streamjoin.spark import explain

    write_rows(folder)
    streams = joined(streams_of(spark, folder), NEAR, lateness="1 second").where("x > 1")
    assert NEAR in explain(streams) and "ranges" in explain(streams)
    assert EQUAL in explain(joined(tables_of(spark, folder), EQUAL).select("x"))


@check
def a_stream_with_an_equality(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    found = streamed(
        spark, folder, joined(streams_of(spark, folder), EQUAL, how="full", lateness="0 seconds")
    )
    assert final(found) == final(expected(tables, EQUAL, how="full"))


@check
def a_stream_with_a_band_resumes(spark: Any, folder: Path) -> None:
    from streamjoin.spark import read_state

    tables = write_rows(folder)
    last = [folder / side / f"{FILES - 1}.parquet" for side in DDL]
    for path in last:
        path.rename(folder / path.parent.name / ".later")

    def run() -> list[Any]:
        return streamed(
            spark, folder, joined(streams_of(spark, folder), NEAR, how="left", lateness="0 seconds")
        )

    run()
    (state,) = read_state(str(folder / "checkpoint"), spark)
    assert state.side("left").rows > 0 and state.settings["workers"] == "2"
    for path in last:
        (folder / path.parent.name / ".later").rename(path)
    assert final(run()) == final(expected(tables, NEAR, how="left"))


@check
def a_stream_of_nearest_rows(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    keep, ansi = sj.AsOf("nearest"), spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")  # other streams run with the default, which is true
    try:
        frame = joined(streams_of(spark, folder), EQUAL, keep=keep, lateness="0 seconds")
        found = streamed(spark, folder, frame)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
    assert final(found) == final(expected(tables, EQUAL, keep=keep))


@check
def a_stream_with_windows_of_rows(spark: Any, folder: Path) -> None:
    tables = write_rows(folder)
    window = sj.RowWindow(4)
    frame = joined(streams_of(spark, folder), NEAR, window=window, lateness="0 seconds")
    assert final(streamed(spark, folder, frame)) == final(expected(tables, NEAR, window))


@check
def a_stream_is_rescaled(spark: Any, folder: Path) -> None:
    from streamjoin.semantics.errors import StreamJoinError
    from streamjoin.spark import rescale
    from streamjoin.spark.sessions import is_classic

    tables = write_rows(folder)
    last = [folder / side / f"{FILES - 1}.parquet" for side in DDL]
    for path in last:
        path.rename(folder / path.parent.name / ".later")
    streamed(spark, folder, joined(streams_of(spark, folder), EQUAL, lateness="0 seconds"))
    for path in last:
        (folder / path.parent.name / ".later").rename(path)
    wider = joined(streams_of(spark, folder), EQUAL, lateness="0 seconds", workers=3)
    try:
        rescale(wider, str(folder / "checkpoint"))
    except StreamJoinError as error:
        if is_classic(spark) or "classic session" not in str(error):
            raise
        return
    assert final(streamed(spark, folder, wider)) == final(expected(tables, EQUAL))


def session_of(remote: str | None) -> Any:
    if remote is not None:
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(remote).getOrCreate()
    from streamjoin.spark import session

    return session("core", "local[2]")


def main(folder: Path, remote: str | None = None) -> int:
    """Run every check; return how many failed."""
    spark, failed = session_of(remote), 0
    if remote is None:
        spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    for function in CHECKS:
        try:
            function(spark, folder / function.__name__)
            print(f"ok      {function.__name__}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {function.__name__}\n{traceback.format_exc()[-4000:]}", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed with Spark {spark.version}", flush=True)
    spark.stop()
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:3]))
