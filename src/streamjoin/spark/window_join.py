"""`window_join`: two DataFrames in, one out. Checks everything it can before Spark runs anything.

Both sides are packed into parcels for the workers (`wire`), parcels are grouped by worker, and the workers join
(`processor`). A stream's workers are a stateful operator; a table's are a grouped map.

**Event time of the result.** Spark gives every stateful operator the least watermark of the whole query, and what
follows the join gets the same one. A result row is as old as the older of its two rows, so it can lie a window
behind the moment it is found. Where this module adds the watermarks itself, it makes them lag by the length of the
window (`slack`) and lets the workers act that much ahead of them: rows are late exactly when `lateness` says so,
nothing is kept longer, and no result row is behind the watermark that follows it. Both time columns of the result
then carry that watermark.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    DataType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from streamjoin.plan.options import Auto, IndexName, check_choice, not_allowed
from streamjoin.semantics.durations import Duration, lateness_ticks
from streamjoin.semantics.errors import SpecError
from streamjoin.semantics.spec import SIDES, JoinSpec
from streamjoin.semantics.windows import RowWindow, TimeWindow, Window
from streamjoin.spark.join import routing
from streamjoin.spark.join.metrics import MALFORMED, NAMES, OBSERVATION, WORKER, WORKERS, malformed_name
from streamjoin.spark.join.pack import COUNTED_DDL, PARCEL_DDL, ROWS, TOLD, packer, unpack
from streamjoin.spark.join.processor import JoinProcessor, join_group
from streamjoin.spark.join.task import (
    HOW,
    ON_MALFORMED,
    ORDERS,
    TIE,
    How,
    JoinTask,
    OnMalformed,
    StreamOrder,
)

Partitioning = Literal["auto", "hash", "range", "matrix"]
PARTITIONING: tuple[Partitioning, ...] = get_args(Partitioning)
DELAY = "spark.watermarkDelayMs"  # the key of a column's metadata by which Spark knows a watermark
CASE = "spark.sql.caseSensitive"  # by which Spark tells names apart that differ in their case alone
POOL = "STREAMJOIN_SPARK_POOL"  # the environment variable by which processes for the join differ from others
RESULT = "streamjoin.result"  # marks a column whose watermark comes from a join, which has no rows to spare
MARKED = {DELAY: 0, RESULT: True}  # the metadata of such a column
EVENT_TIME = "streamjoin time"  # a time column as a TIMESTAMP, the only type of which Spark keeps a watermark


def window_join(
    left: DataFrame,
    right: DataFrame,
    on: Any,
    *,
    window: Window | Duration | tuple[Window, Window],
    left_time: str,
    right_time: str,
    how: How = "inner",
    lateness: Duration | None = None,
    workers: int | None = None,
    order: StreamOrder = "any",
    partitioning: Partitioning = "auto",
    index: IndexName | Auto = "auto",
    suffix: str = "_right",
    malformed: OnMalformed = "fail",
) -> DataFrame:
    """Join two streaming DataFrames, or two batch ones, over a sliding window.

    `on` and `window` are those of `JoinSpec`; a plain duration means `TimeWindow`. `lateness`: how far a row may
    be behind the newest of its side, for sides without `withWatermark`. `workers`: into how many parts the
    join is divided, by default Spark's default parallelism. `how`: inner, left, right, full, semi, anti.
    `malformed`: a row without a time, or with NULL in a column that is NOT NULL, stops the query (`fail`), or is left
    out and counted (`drop`) in the metric `malformed`.
    """
    _check_frames(left, right)
    check_choice("malformed", malformed, ON_MALFORMED)
    spec = spec_of(left, right, on, window, left_time, right_time, suffix)
    task = make_task(spec, how, order, index, partitioning, _check_workers(left, workers))
    task = replace(task, malformed=malformed)
    check_names(task, tells_case(left.sparkSession.conf.get(CASE)))
    return assemble(*watermarked(task, left, right, lateness))


def assemble(
    task: JoinTask,
    frames: dict[str, DataFrame],
    processor: Callable[[JoinTask], StatefulProcessor] = JoinProcessor,
) -> DataFrame:
    """The whole plan; streams are joined by `processor`."""
    streaming = frames["left"].isStreaming
    packed = [_packed(frames[side], task, side) for side in SIDES]
    parcels = packed[0].unionByName(packed[1])
    if task.malformed == "drop":
        counted = parcels.observe(malformed_name(_observation(task)), F.sum(MALFORMED).alias(MALFORMED))
        parcels = counted.drop(MALFORMED)
    result = _result_schema(frames, task)
    return _streamed(parcels, task, processor(task), result) if streaming else _grouped(parcels, task, result)


# Checks


def _check_frames(left: DataFrame, right: DataFrame) -> None:
    """Both must be streams, or none."""
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
            "To join a stream with a table use Spark's own stream-static join, stream.join(table, condition)"
        )


def _check_workers(frame: DataFrame, workers: int | None) -> int:
    if workers is None:
        return int(frame.sparkSession.sparkContext.defaultParallelism)
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
) -> JoinSpec:
    """What is to be joined, with the columns of the DataFrames as Arrow knows them."""
    schemas = [arrow_schema(side, frame.schema) for side, frame in (("left", left), ("right", right))]
    if not isinstance(window, (TimeWindow, RowWindow, tuple)):
        window = TimeWindow(window)
    return JoinSpec(schemas[0], schemas[1], on, window, left_time, right_time, suffix=suffix)


def arrow_schema(side: str, columns: StructType) -> pa.Schema:
    """The columns of a side; instants are UTC, whatever time zone the session shows them in."""
    fields: list[pa.Field] = []
    for column in columns:
        try:
            fields += to_arrow_schema(StructType([column]), timezone="UTC")
        except PySparkTypeError:
            kind = column.dataType.simpleString()
            raise SpecError(
                f"{side} has a column {column.name!r} of type {kind}, which Spark can not hand to Arrow: cast it, or "
                "leave it out"
            ) from None
    return pa.schema(fields)


def make_task(
    spec: JoinSpec, how: str, order: str, index: IndexName | Auto, partitioning: str, workers: int
) -> JoinTask:
    """The join as its workers will know it, before anything is known of watermarks. Needs no Spark.

    Makes the plan, which refuses an index that does not fit.
    """
    check_choice("how", how, HOW)
    check_choice("order", order, ORDERS)
    check_choice("partitioning", partitioning, PARTITIONING)
    task = JoinTask(spec, how, order, index)
    analysis = task.plan().analysis
    equality = analysis is not None and any(clause.is_equality for clause in analysis.left.clauses)
    rows = any(spec.side_window(side).rows for side in SIDES)
    if partitioning == "hash" and (rows or not equality):
        why = "row windows are counted over all rows" if rows else "the predicate has no equality"
        ranges = "" if rows else ", range (for an interval of one width)"
        message = f"partitioning is 'hash', but {why}; allowed: auto, matrix{ranges}"
        raise SpecError(message, field="partitioning", given=partitioning)
    ranged = partitioning in ("auto", "range") and not (rows or (partitioning == "auto" and equality))
    widths = {side: found.width for side, found in task.compiled.ranges.items()} if ranged else {}
    chosen = routing.choose(partitioning, workers, equality, rows, task.kept, widths)
    if partitioning == "range" and chosen.kind != "range":
        message = f"partitioning is 'range', but {_why_no_ranges(task, rows)}; allowed: auto, matrix"
        raise SpecError(message, field="partitioning", given=partitioning, allowed=("auto", "matrix"))
    return replace(task, routing=chosen)


def tells_case(setting: str | None) -> bool:
    """What a value of the setting CASE says, in whatever case it is itself."""
    return setting is not None and setting.lower() == "true"


def check_names(task: JoinTask, case_sensitive: bool) -> None:
    """Raise if two columns of a side, or of the result, differ in their case alone and Spark does not look at it."""
    if case_sensitive:
        return
    spec = task.spec
    for whose, schema in (
        ("left has", spec.left),
        ("right has", spec.right),
        ("the result has", task.schema),
    ):
        seen: dict[str, str] = {}
        for name in schema.names:
            if (other := seen.setdefault(name.lower(), name)) is not name:
                raise SpecError(
                    f"{whose} columns {other!r} and {name!r}, which are one name to Spark: rename one of them, or set "
                    f"{CASE} to true"
                )


def _why_no_ranges(task: JoinTask, rows: bool) -> str:
    if rows:
        return "row windows are counted over all rows"
    if len(task.kept) == 2:
        return "a full join would need both sides in one place"
    return "the predicate has no interval condition whose width is the same for all rows"


# Watermarks


@dataclass(frozen=True)
class Mark:
    """The watermark of one input. `delay_ms`: of the one it has, or is to get (`added`)."""

    delay_ms: int
    added: bool
    from_join: bool = False


def watermarked(
    task: JoinTask, left: DataFrame, right: DataFrame, lateness: Duration | None
) -> tuple[JoinTask, dict[str, DataFrame]]:
    """Both sides with a watermark, and the task that knows how far it lags; tables need none."""
    frames = {"left": left, "right": right}
    if not left.isStreaming:
        return task, frames
    slack, marks = _slack(frames, task.spec, lateness)
    raw = tuple(side for side in SIDES if not marks[side].from_join)
    frames = {side: _watermarked(frames[side], task.spec, side, marks[side]) for side in SIDES}
    return replace(task, slack_ms=slack, watermarked=raw), frames


def _slack(
    frames: dict[str, DataFrame], spec: JoinSpec, lateness: Duration | None
) -> tuple[int, dict[str, Mark]]:
    """By how much the inputs' watermarks lag behind what can still come, and those watermarks."""
    given = None if lateness is None else _ceil_ms(lateness_ticks(lateness, spec.time_unit), spec)
    metadata = {side: frames[side].schema[spec.side_time(side)].metadata for side in SIDES}
    windows = [spec.side_window(side) for side in SIDES]
    span = 0 if any(w.rows for w in windows) else _ceil_ms(max(w.size for w in windows), spec)
    from_join = {side: RESULT in metadata[side] for side in SIDES}
    spare = []
    for side in SIDES:
        if DELAY not in metadata[side]:
            if given is None:
                name = spec.side_time(side)
                instants = isinstance(frames[side].schema[name].dataType, TimestampType)
                other = f', or {side}.withWatermark({name!r}, "10 seconds")' if instants else ""
                raise SpecError(
                    f"{side} has no watermark on {name!r}, so rows would be kept for ever: give "
                    f'lateness="10 seconds"{other}'
                )
            spare.append(span)
        else:
            delay = int(metadata[side][DELAY])
            spare.append(0 if given is None or from_join[side] else max(0, delay - given))
    slack = min(spare)
    return slack, {
        side: Mark(int(metadata[side][DELAY]), False, from_join[side])
        if DELAY in metadata[side]
        # A millisecond more, because Spark drops a row that is exactly as late as allowed.
        else Mark((given or 0) + slack + 1, True)
        for side in SIDES
    }


def _ceil_ms(ticks: int, spec: JoinSpec) -> int:
    return ticks if spec.time_unit is None else -(-ticks // 1000)


def _watermarked(frame: DataFrame, spec: JoinSpec, side: str, mark: Mark) -> DataFrame:
    """The side with a watermark, which for times that are no instants is kept on a column of its own."""
    if not mark.added:
        return frame
    name = spec.side_time(side)
    kind = frame.schema[name].dataType
    if not isinstance(kind, TimestampType):
        frame, name = frame.withColumn(EVENT_TIME, _instant(F.col(quoted(name)), kind)), EVENT_TIME
    return frame.withWatermark(quoted(name), f"{mark.delay_ms} milliseconds")


def _instant(time: Column, kind: DataType) -> Column:
    """An integer as so many milliseconds, a time without a zone as if it were UTC: a cast would ask the session's zone,
    in which some hours are there twice."""
    if not isinstance(kind, TimestampNTZType):
        return F.timestamp_millis(time)
    minutes = F.unix_date(time.cast("date")).cast("bigint") * 1440 + F.hour(time) * 60 + F.minute(time)
    seconds = F.date_part(F.lit("SECOND"), time) * 1_000_000  # with their fraction, as a decimal
    return F.timestamp_micros(minutes * 60_000_000 + seconds.cast("bigint"))


# The plan


def _packed(frame: DataFrame, task: JoinTask, side: str) -> DataFrame:
    """One side's rows as parcels for the workers."""
    names = task.spec.side_schema(side).names
    columns = [F.col(quoted(name)) for name in names]
    if task.tied:
        columns.append(_tie(frame.select(*columns)).alias(TIE))
    schema = COUNTED_DDL if task.malformed == "drop" else PARCEL_DDL
    return frame.select(*columns).mapInArrow(packer(task, side), schema)


def _tie(frame: DataFrame) -> Column:
    """A hash of a row, which decides where it goes and how rows of equal time are ordered: content, never chance.
    Spark can not hash maps and variants."""
    hashable = [F.col(quoted(field.name)) for field in frame.schema if _is_hashable(field.dataType)]
    return F.xxhash64(*hashable)


def _is_hashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_hashable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_hashable(kind.elementType)
    return not isinstance(kind, (MapType, VariantType))


def _streamed(
    parcels: DataFrame, task: JoinTask, processor: StatefulProcessor, result: StructType
) -> DataFrame:
    """The workers as a stateful operator; what they tell becomes observed metrics."""
    given = StructField(ROWS, ArrayType(result, containsNull=False))
    output = StructType([given, StructField(TOLD, ArrayType(LongType()))])
    with processes_of_its_own(parcels):
        joined = parcels.groupBy("worker").transformWithStateInPandas(
            processor, output, outputMode="Append", timeMode="EventTime"
        )
    # One aggregate that is not compiled: Spark would generate the code of every other anew in each task.
    counts = F.transform(F.collect_list(TOLD), _named_counts).alias(WORKERS)
    return _rows(joined.observe(_observation(task), counts), result)


def _observation(task: JoinTask) -> str:
    """The name under which a join's counts are observed. Two joins of a query have two names."""
    return f"{OBSERVATION}_{zlib.crc32(task.digest.encode()):08x}"


def _named_counts(told: Column) -> Column:
    """What a worker told, under the names it goes by."""
    return F.struct(*(F.get(told, F.lit(place)).alias(name) for place, name in enumerate((WORKER, *NAMES))))


def _rows(given: DataFrame, result: StructType) -> DataFrame:
    """The rows in the values of the column ROWS, each a row of its own: `given.select(F.inline(ROWS))`, but for types.
    Spark takes all that a stateful operator in Python gives to be nullable, at any depth, and has no function that
    says otherwise."""
    session = given.sparkSession
    jvm: Any = session._jvm
    java = session._jsparkSession
    catalyst = jvm.org.apache.spark.sql.catalyst
    plan = given._jdf.queryExecution().analyzed()
    columns = catalyst.types.DataTypeUtils.toAttributes(java.parseDataType(result.json()))
    inline, unused = catalyst.expressions.Inline(plan.output().apply(0)), jvm.PythonUtils.toSeq([0, 1])
    rows = catalyst.plans.logical.Generate(inline, unused, False, jvm.scala.Option.empty(), columns, plan)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, rows), session)


@contextlib.contextmanager
def processes_of_its_own(frame: DataFrame) -> Iterator[None]:
    """Python functions of a query made meanwhile share their processes with no others: Spark keeps a pool of them for
    each environment. The fewer take turns at the join's partitions, the fewer have to decode and index a new run."""
    environment = frame.sparkSession.sparkContext.environment
    environment[POOL] = "join"
    try:
        yield
    finally:
        del environment[POOL]


def _grouped(parcels: DataFrame, task: JoinTask, result: StructType) -> DataFrame:
    """The workers as a grouped map, whose values of rows are unpacked."""

    def join(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return join_group(task, batches)

    return parcels.groupBy("worker").applyInArrow(join, "rows BINARY").mapInArrow(unpack, result)


def _result_schema(frames: dict[str, DataFrame], task: JoinTask) -> StructType:
    """The columns of `task.schema` in Spark's types. Its event times are marked as such here: a projection that does so
    would copy every row."""
    sides = ("left",) if task.how in ("semi", "anti") else SIDES
    timed = frames["left"].isStreaming and _in_time(frames, task)
    columns = [
        (frames[side].schema[name].dataType, timed and name == task.spec.side_time(side))
        for side in sides
        for name in task.spec.side_schema(side).names
    ]
    return StructType(
        [
            StructField(field.name, kind, field.nullable, MARKED if marked else None)
            for field, (kind, marked) in zip(task.schema, columns, strict=True)
        ]
    )


def _in_time(frames: dict[str, DataFrame], task: JoinTask) -> bool:
    """Whether the result's times are instants of which none can be behind the watermark."""
    windows = [task.spec.side_window(side) for side in SIDES]
    instants = isinstance(frames["left"].schema[task.spec.left_time].dataType, TimestampType)
    if not instants or any(w.rows for w in windows):
        return False
    return task.slack_ms >= _ceil_ms(max(w.size for w in windows), task.spec)


def in_time_order(
    left_time: str, right_time: str, write: Callable[[DataFrame, int], None]
) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch` of an inner join with `order="timestamp"`: `write` gets each micro-batch in result order.

    A micro-batch of such a join has no result that is earlier than one of a micro-batch before; within it, rows come
    from several workers. They are sorted by result time, then by the later row and the earlier one. The names are those
    of the result's two time columns.
    """

    def sort_and_write(batch: DataFrame, batch_id: int) -> None:
        left, right = F.col(quoted(left_time)), F.col(quoted(right_time))
        ties = [F.col(quoted(f.name)) for f in batch.schema if _is_hashable(f.dataType)]
        ordered = batch.orderBy(F.greatest(left, right), left <= right, F.least(left, right), *ties)
        write(ordered, batch_id)

    return sort_and_write


def quoted(name: str) -> str:
    """A column name as Spark parses it, whatever it contains."""
    return "`" + name.replace("`", "``") + "`"
