"""`window_join`: two DataFrames in, one out. Checks everything it can before Spark runs anything.

Both sides are packed into parcels for the workers (`join/pack.py`), Spark groups the parcels by worker, and the workers
join (`join/processor.py`). For streams the workers are a stateful operator, for tables a grouped map.

**Event time of the result.** Spark gives every stateful operator the least watermark of the whole query, and the
operators after the join get the same one. A result row is as old as the older of its two rows, so it can be found up to
a window's length after its own time. Where this module adds the watermarks, it makes them lag by the length of the
window (`slack`), and the workers act that much ahead of them. So rows are late exactly when `lateness` says so, nothing
is kept longer, and no result row is behind the watermark that follows it. Both time columns of the result then carry
that watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from streamjoin.plan.options import (
    Auto,
    IndexName,
    Options,
    Partitioning,
    StreamOrder,
    check_choice,
    not_allowed,
)
from streamjoin.plan.spread import route_rows
from streamjoin.semantics.durations import Duration, lateness_ticks
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.keep import How, Keep
from streamjoin.semantics.result_columns import Columns
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.windows import WindowForm
from streamjoin.spark.ahead import compile_ahead
from streamjoin.spark.batch_limit import lift_limit
from streamjoin.spark.built import name_of, remember
from streamjoin.spark.hot_keys import HotKeys, choose_hot_keys
from streamjoin.spark.join.carried import carried
from streamjoin.spark.join.epoch import SHIFT_MS, shifted_instant
from streamjoin.spark.join.hot_keys import with_hot_keys
from streamjoin.spark.join.metrics import (
    MALFORMED,
    METRIC_NAMES,
    SHOWN,
    WORKER,
    WORKERS,
    malformed_name,
)
from streamjoin.spark.join.pack import COUNTS_COLUMN, NEWEST, PARCEL_COLUMNS, ROWS_COLUMN, packer, unpack
from streamjoin.spark.join.processor import join_group, join_processor
from streamjoin.spark.join.task import ON_MALFORMED, JoinTask, OnMalformed
from streamjoin.spark.packages import minor_version
from streamjoin.spark.sessions import (
    is_classic,
    parallelism,
    prepare_session,
    processes_of_its_own,
    python_of_workers,
)

DELAY = (
    "spark.watermarkDelayMs"  # the key in a column's metadata under which Spark keeps its watermark's delay
)
CASE = "spark.sql.caseSensitive"  # the setting that makes Spark distinguish names that differ only in case
RESULT = "streamjoin.result"  # marks a column whose watermark comes from a join: its rows cannot be late
SPARK = minor_version(pyspark.__version__)
# How Spark is told that instants are UTC in Arrow; before 4.2 they always are.
IN_UTC: Any = {"timezone": "UTC"} if SPARK >= (4, 2) else {}
MARKED = {DELAY: 0, RESULT: True}  # the metadata of such a column


def window_join(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    *,
    window: WindowForm,
    left_time: str,
    right_time: str,
    how: How = "inner",
    keep: Keep = "all",
    left_tie: str | None = None,
    right_tie: str | None = None,
    lateness: Duration | None = None,
    workers: int | None = None,
    order: StreamOrder = "any",
    partitioning: Partitioning = "auto",
    index: IndexName | Auto = "auto",
    suffix: str = "_right",
    columns: Columns | None = None,
    malformed: OnMalformed = "fail",
    late: str | None = None,
    hot_keys: HotKeys | None = None,
) -> DataFrame:
    """Join two streaming DataFrames, or two batch ones, over a sliding window.

    Arguments:
        left, right: two streams, or two tables.
        on: the predicate, as SQL over `left` and `right`, or a Python function of two rows.
        window: a duration (`"15 minutes"`, a timedelta, an int for integer times), a `TimeWindow`, `Interval` or
            `RowWindow`, or a pair (left's, right's).
        left_time, right_time: the columns with the event times: both TIMESTAMP, both TIMESTAMP_NTZ, or both integers.
        how: `inner`, `left`, `right`, `full`, `semi` or `anti`.
        keep: which matches of a left row count: `"all"`, `sj.AsOf(...)` or `sj.Nearest(...)`.
        left_tie, right_tie: columns that rank rows of equal time; without one they are ranked by a hash of the row.
        lateness: how far a row may be behind the newest row of its side. Needed for streams without `withWatermark`.
        workers: how many parts the join is divided into. None: Spark's default parallelism.
        order: `any`, or `timestamp`: no micro-batch has a result that is earlier than one of an earlier micro-batch.
        partitioning: how rows are spread over workers: by `hash` of equality keys, by `range` of a key, in a `matrix`,
            or `auto`, which chooses by the predicate.
        index: how workers find partners: `auto`, `scan`, `hash`, `bisort`, `raptable` or `wibtree`.
        suffix: appended to right columns whose name left has too.
        columns: the result's columns and their names, such as `["left.ts", "page", "right.ts AS viewed"]`, or a dict of
            new names and columns. Columns that nothing needs are neither shuffled nor kept. None: all.
        malformed: a row without a time, or with NULL in a NOT NULL column, stops the query (`fail`), or is left out and
            counted in the metric `malformed` (`drop`).
        late: a name for another column, a BOOLEAN that is true for rows that came too late. They come out once, with
            NULL for the other side. None: they are dropped. They are counted in the metric `late` either way.
        hot_keys: keys of the equality whose rows are divided among several workers, because they are most of all rows:
            a list, `"sample"` to find them in a sample of two tables, or a `HotKeySample`. None: no key is divided.

    Returns the joined DataFrame. Raises a `StreamJoinError` if the arguments do not fit; starts nothing, except to take
    a sample of hot keys.

    Example:
        >>> left = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:00' AS ts, 1 AS x")
        >>> right = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:05' AS ts, 1 AS y")
        >>> matches = window_join(
        ...     left, right, "left.x = right.y", window="10 seconds", left_time="ts", right_time="ts", workers=1
        ... )
        >>> matches.count()
        1
    """
    _check_frames(left, right)
    check_choice("malformed", malformed, ON_MALFORMED)
    spec = spec_of(
        *(left, right, on, window, left_time, right_time, suffix),
        how=how,
        keep=keep,
        left_tie=left_tie,
        right_tie=right_tie,
        columns=columns,
    )
    task = make_task(spec, order, index, partitioning, _check_workers(left, workers))
    task = with_late(replace(task, malformed=malformed), late)
    check_column_names(spec, task, tells_case(left.sparkSession.conf.get(CASE)))
    task, frames = watermarked(task, left, right, lateness)
    prepare_session(left.sparkSession, left.isStreaming, task.routing.workers)
    hot = choose_hot_keys(task, {"left": left, "right": right}, hot_keys)
    return assemble(lift_limit(left.sparkSession, with_hot_keys(task, hot), left.isStreaming), frames)


def assemble(
    task: JoinTask,
    frames: dict[str, DataFrame],
    processor: Callable[[JoinTask], StatefulProcessor] = join_processor,
) -> DataFrame:
    """Build the whole DataFrame plan; `processor` joins streams."""
    streaming = frames["left"].isStreaming
    task = replace(task, compiles_ahead=compile_ahead(frames["left"].sparkSession, task))
    remember(task)
    with python_of_workers(frames["left"].sparkSession):
        packed = [_packed(frames[side], task, side) for side in SIDES]
        parcels = packed[0].unionByName(packed[1])
        if task.malformed == "drop":
            counted = parcels.observe(malformed_name(name_of(task)), F.sum(MALFORMED).alias(MALFORMED))
            parcels = counted.drop(MALFORMED)
        result = _result_schema(frames, task)
        return (
            _joined_streams(parcels, task, processor(task), result)
            if streaming
            else _joined_tables(parcels, task, result)
        )


# Checks


def _check_frames(left: DataFrame, right: DataFrame) -> None:
    """Raise unless both are DataFrames, and both are streams or both are tables."""
    for side, frame in (("left", left), ("right", right)):
        if not isinstance(frame, DataFrame):
            raise SpecError(
                f"{side} is a {type(frame).__name__}: give a Spark DataFrame",
                field=side,
                given=frame,
                allowed="a Spark DataFrame",
            )
    if left.isStreaming != right.isStreaming:
        stream, table = ("left", "right") if left.isStreaming else ("right", "left")
        raise SpecError(
            f"{stream} is a stream and {table} is a table: a window join needs two streams, or two tables. "
            "To join a stream with a table use Spark's own stream-static join, stream.join(table, condition)",
            field=table,
            given=left if table == "left" else right,
            allowed="two streams, or two tables",
        )


def _check_workers(frame: DataFrame, workers: int | None) -> int:
    if workers is None:
        return parallelism(frame.sparkSession)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise not_allowed("workers", workers, "a whole number from 1 on, or None")
    return workers


def spec_of(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    window: Any,
    left_time: str,
    right_time: str,
    suffix: str = "_right",
    **options: Any,
) -> JoinSpec:
    """The spec of the join, with the columns of the DataFrames in Arrow's types. `options`: how, keep, ties and
    columns."""
    schemas = [arrow_schema(side, frame.schema) for side, frame in (("left", left), ("right", right))]
    return JoinSpec(schemas[0], schemas[1], on, window, left_time, right_time, suffix=suffix, **options)


def arrow_schema(side: str, columns: StructType) -> pa.Schema:
    """The columns of a side in Arrow's types. Instants are UTC, whatever the session's time zone."""
    fields: list[pa.Field] = []
    for column in columns:
        try:
            fields += to_arrow_schema(StructType([column]), **IN_UTC)
        except PySparkTypeError:
            kind = column.dataType.simpleString()
            raise SpecError(
                f"{side} has a column {column.name!r} of type {kind}, which Spark cannot convert to Arrow: cast it, or "
                "leave it out",
                field=f"{side}.{column.name}",
                given=kind,
                allowed="a type that Spark converts to Arrow",
            ) from None
    return pa.schema(fields)


def make_task(
    spec: JoinSpec,
    order: StreamOrder,
    index: IndexName | Auto,
    partitioning: Partitioning,
    workers: int,
) -> JoinTask:
    """Plan the join as its workers will see it, without watermarks. Needs no Spark. If the spec chooses columns,
    workers see those alone that the join needs.

    Raises if the index or the partitioning does not fit the predicate.
    """
    options = Options(index=index, workers=workers, order=order, partitioning=partitioning, engine="spark")
    task = JoinTask(spec if spec.columns is None else spec.narrowed(), options)
    return replace(task, routing=route_rows(task.compiled.plan, options))


def with_late(task: JoinTask, late: str | None) -> JoinTask:
    """The task with a column that marks late rows."""
    if late is not None and (not isinstance(late, str) or not late):
        raise not_allowed("late", late, "the name of a new column, such as 'late', or None")
    task = replace(task, late=late)
    if late in task.schema.names[:-1]:
        message = f"late is {late!r}, which the result has already: give another name"
        raise SpecError(message, field="late", given=late, allowed="a name that no column of the result has")
    return task


def tells_case(setting: str | None) -> bool:
    """Whether a value of the setting CASE, in upper or lower case, means true."""
    return setting is not None and setting.lower() == "true"


def check_column_names(spec: JoinSpec, task: JoinTask, case_sensitive: bool) -> None:
    """Raise if two columns of a side, or of the result, differ only in case and Spark ignores case. `spec`: the join of
    whole rows."""
    if case_sensitive:
        return
    for field, whose, schema in (
        ("left", "left has", spec.left),
        ("right", "right has", spec.right),
        ("result", "the result has", task.schema),
    ):
        seen: dict[str, str] = {}
        for name in schema.names:
            if (other := seen.setdefault(name.lower(), name)) is not name:
                raise SpecError(
                    f"{whose} columns {other!r} and {name!r}, which are one name to Spark: rename one of them, or set "
                    f"{CASE} to true",
                    field=field,
                    given=name,
                    allowed=f"names that differ in more than case, or {CASE} = true",
                )


# Watermarks


@dataclass(frozen=True)
class InputWatermark:
    """The watermark of one input. `delay_ms`: its delay. `added`: the input has none, so we add it. `from_join`: the
    input is the result of another join, so its rows cannot be late."""

    delay_ms: int
    added: bool
    from_join: bool = False


def watermarked(
    task: JoinTask, left: DataFrame, right: DataFrame, lateness: Duration | None
) -> tuple[JoinTask, dict[str, DataFrame]]:
    """Both sides with a watermark, and the task with its slack; tables need neither."""
    frames = {"left": left, "right": right}
    if not left.isStreaming:
        return task, frames
    slack, marks = _slack(frames, task, lateness)
    raw = tuple(side for side in SIDES if not marks[side].from_join)
    delays = tuple((side, marks[side].delay_ms) for side in SIDES if marks[side].added)
    shift = _shift(left, task.spec)
    return replace(task, slack_ms=slack, shift_ms=shift, watermarked=raw, delays_ms=delays), frames


def _shift(left: DataFrame, spec: JoinSpec) -> int:
    """By how much the watermark is shifted: times that are not instants have a watermark column of our own."""
    return 0 if isinstance(left.schema[spec.left_time].dataType, TimestampType) else SHIFT_MS


def _slack(
    frames: dict[str, DataFrame], task: JoinTask, lateness: Duration | None
) -> tuple[int, dict[str, InputWatermark]]:
    """The milliseconds by which the query's watermark lags behind the times that can still come, and the watermark of
    each input."""
    spec = task.spec
    given = None if lateness is None else _ceil_ms(lateness_ticks(lateness, spec.time_unit), spec)
    metadata = {side: frames[side].schema[spec.side_time(side)].metadata for side in SIDES}
    span = _ceil_ms(task.span or 0, spec)
    from_join = {side: RESULT in metadata[side] for side in SIDES}
    spare = []
    for side in SIDES:
        if DELAY not in metadata[side]:
            if given is None:
                name = spec.side_time(side)
                instants = isinstance(frames[side].schema[name].dataType, TimestampType)
                other = f', or {side}.withWatermark({name!r}, "10 seconds")' if instants else ""
                raise SpecError(
                    f"{side} has no watermark on {name!r}, so its rows could never be dropped: give "
                    f'lateness="10 seconds"{other}',
                    field="lateness",
                    given=None,
                    allowed="a duration such as '10 seconds', or watermarks on both sides",
                )
            spare.append(span)
        else:
            delay = int(metadata[side][DELAY])
            spare.append(0 if given is None or from_join[side] else max(0, delay - given))
    slack = min(spare)
    return slack, {
        side: InputWatermark(int(metadata[side][DELAY]), False, from_join[side])
        if DELAY in metadata[side]
        # A millisecond more, because Spark drops a row that is exactly as late as allowed.
        else InputWatermark((given or 0) + slack + 1, True)
        for side in SIDES
    }


def _ceil_ms(ticks: int, spec: JoinSpec) -> int:
    return ticks if spec.time_unit is None else -(-ticks // 1000)


def _watermarked(parcels: DataFrame, task: JoinTask, side: str, time: DataType) -> DataFrame:
    """Parcels with the watermark that we add to a side, from the time of each parcel's newest row. Spark's own operator
    would look at every row, and would copy it: its code is not compiled together with what is around it."""
    delay = dict(task.delays_ms).get(side)
    if delay is None:
        return parcels
    if not isinstance(time, TimestampType):
        parcels = parcels.withColumn(NEWEST, shifted_instant(F.col(NEWEST), time))
    return parcels.withWatermark(NEWEST, f"{delay} milliseconds").drop(NEWEST)


# The plan


def _packed(frame: DataFrame, task: JoinTask, side: str) -> DataFrame:
    """One side's rows as parcels for the workers, with the columns that the task has. They are renamed, because where
    Spark calls a Python function it reads a dot in a name as a field of a struct. The tie that orders rows is that of
    whole rows: it must not depend on the chosen columns."""
    columns = [F.col(quoted(name)) for name in task.spec.side_schema(side).names]
    tie = [_tie(frame if task.ordered else frame.select(*columns))] if task.tied else []
    renamed = [column.alias(f"column {place}") for place, column in enumerate([*columns, *tie])]
    time = frame.schema[task.spec.side_time(side)].dataType
    schema = StructType([*PARCEL_COLUMNS])
    if task.malformed == "drop":
        schema.add(MALFORMED, LongType())
    if side in dict(task.delays_ms):
        schema.add(NEWEST, time)
    parcels = frame.select(*renamed).mapInArrow(carried(packer(task, side)), schema)
    return _watermarked(parcels, task, side, time)


def _tie(frame: DataFrame) -> Column:
    """A hash of a row's content. It decides which workers get the row, and how rows of equal time are ordered. Maps and
    variants are left out, because Spark cannot hash them."""
    hashable = [F.col(quoted(field.name)) for field in frame.schema if _is_hashable(field.dataType)]
    return F.xxhash64(*hashable)


def _is_hashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_hashable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_hashable(kind.elementType)
    return not isinstance(kind, (MapType, VariantType))


def _joined_streams(
    parcels: DataFrame, task: JoinTask, processor: StatefulProcessor, result: StructType
) -> DataFrame:
    """The workers as a stateful operator. Their counts become observed metrics."""
    given = StructField(ROWS_COLUMN, ArrayType(result, containsNull=False))
    output = StructType([given, StructField(COUNTS_COLUMN, ArrayType(LongType()))])
    if task.shown_rows:
        output.add(SHOWN, ArrayType(StringType()))
    with processes_of_its_own(parcels.sparkSession):
        joined = parcels.groupBy("worker").transformWithStateInPandas(
            processor, output, outputMode="Append", timeMode="EventTime"
        )
    # collect_list is one aggregate that Spark does not compile. It would generate code for any other in each task.
    observed = [F.transform(F.collect_list(COUNTS_COLUMN), _named_counts).alias(WORKERS)]
    if task.shown_rows:
        observed.append(F.flatten(F.collect_list(SHOWN)).alias(SHOWN))
    return _rows(joined.observe(name_of(task), *observed), result)


def _named_counts(counts: Column) -> Column:
    """The counts of a worker, under their names."""
    return F.struct(
        *(F.get(counts, F.lit(place)).alias(name) for place, name in enumerate((WORKER, *METRIC_NAMES)))
    )


def _rows(given: DataFrame, result: StructType) -> DataFrame:
    """Unpack the column ROWS, whose values are lists of rows, as `given.select(F.inline(ROWS))` does, but with the
    types of `result`. Spark treats all output of a stateful Python operator as nullable, at any depth, and has no
    function that changes this: on Spark Connect, which has no other way, all columns are nullable."""
    session = given.sparkSession
    if not is_classic(session):
        return given.select(F.inline(ROWS_COLUMN))
    jvm: Any = session._jvm
    java = session._jsparkSession
    catalyst = jvm.org.apache.spark.sql.catalyst
    plan = given._jdf.queryExecution().analyzed()
    columns = catalyst.types.DataTypeUtils.toAttributes(java.parseDataType(result.json()))
    inline = catalyst.expressions.Inline(plan.output().apply(0))
    unused = jvm.PythonUtils.toSeq([*range(len(given.columns))])
    rows = catalyst.plans.logical.Generate(inline, unused, False, jvm.scala.Option.empty(), columns, plan)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, rows), session)


def _joined_tables(parcels: DataFrame, task: JoinTask, result: StructType) -> DataFrame:
    """The workers as a grouped map; the binary values that it returns are unpacked into rows."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_group(task, batches)

    def join_at_once(table: pa.Table) -> pa.Table:
        return pa.Table.from_batches(
            join_group(task, iter(table.to_batches())), table.select(["rows"]).schema
        )

    # Spark 4.0 gives and takes all rows of a worker at once.
    work: Any = join if SPARK >= (4, 1) else join_at_once
    work.__name__ = name_of(task)  # finds the join in the plan of a DataFrame
    # A partition for each worker, whatever number the session has chosen for its other queries.
    spread = parcels.repartition(task.routing.workers, "worker")
    return spread.groupBy("worker").applyInArrow(work, "rows BINARY").mapInArrow(unpack, result)


def _result_schema(frames: dict[str, DataFrame], task: JoinTask) -> StructType:
    """The columns of `task.schema` in Spark's types. We mark the event times here, because a projection that does it
    would copy every row."""
    timed = frames["left"].isStreaming and _in_time(frames, task)
    columns = [
        (frames[side].schema[field.name].dataType, timed and field.name == task.spec.side_time(side))
        for side, field, _ in task.chosen
    ]
    if task.late is not None:
        columns.append((BooleanType(), False))
    return StructType(
        [
            StructField(field.name, kind, field.nullable, MARKED if marked else None)
            for field, (kind, marked) in zip(task.schema, columns, strict=True)
        ]
    )


def _in_time(frames: dict[str, DataFrame], task: JoinTask) -> bool:
    """Whether the result's times are instants, and none of them can be behind the watermark, as late rows are."""
    if task.late is not None:
        return False
    instants = isinstance(frames["left"].schema[task.spec.left_time].dataType, TimestampType)
    return instants and task.span is not None and task.slack_ms >= _ceil_ms(task.span, task.spec)


def in_time_order(
    left_time: str, right_time: str, write: Callable[[DataFrame, int], None]
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch` of an inner join with `order="timestamp"`: `write` gets each micro-batch in result order.

    No result of such a join is earlier than one of an earlier micro-batch, but within a micro-batch rows come from
    several workers. This function sorts them by result time, then by the later row and the earlier one. `left_time` and
    `right_time` name the two time columns of the result, which `columns` must choose.
    """

    def sort_and_write(batch: DataFrame, batch_id: int) -> None:
        known = [name.lower() for name in batch.columns]
        if missing := [name for name in (left_time, right_time) if name.lower() not in known]:
            told = f"the result has no column {missing[0]!r}, but {batch.columns}: name its two time columns"
            raise SpecError(
                told,
                given=missing[0],
                allowed=batch.columns,
                field="left_time" if missing[0] == left_time else "right_time",
            )
        left, right = F.col(quoted(left_time)), F.col(quoted(right_time))
        ties = [F.col(quoted(f.name)) for f in batch.schema if _is_hashable(f.dataType)]
        ordered = batch.orderBy(F.greatest(left, right), left <= right, F.least(left, right), *ties)
        write(ordered, batch_id)

    return sort_and_write


def quoted(name: str) -> str:
    """A column name as Spark parses it, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"
