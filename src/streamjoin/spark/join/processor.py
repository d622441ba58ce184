"""The join as Spark runs it: a stateful processor that unpacks rows, has a worker join them, and packs the results."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streamjoin.semantics.spec import SIDES
from streamjoin.spark.join.carried import MANIFEST, STATE_KEY, STATE_VALUE, carried_processor
from streamjoin.spark.join.epoch import check_epoch, set_shift
from streamjoin.spark.join.kernels import use_forms
from streamjoin.spark.join.metrics import Counts
from streamjoin.spark.join.pack import binary_value, decode, encode
from streamjoin.spark.join.process import BACKGROUND, GARBAGE
from streamjoin.spark.join.routing import worker_ids
from streamjoin.spark.join.task import END_OF_TIME, JoinTask
from streamjoin.spark.join.worker import SparkWorker
from streamjoin.spark.state.manifest import MemoryStore, State, StateError

if TYPE_CHECKING:
    import pandas as pd

# Read answers after this many requests. With about 200 unread answers Spark stops reading, and the worker would block.
MOST_UNANSWERED = 64
SENT_BYTES = 1 << 21  # the send buffer, if the host allows this size; the worker blocks when it is full


class SparkStore:
    """Spark's state store as a `StateStore`, for the grouping key that Spark is handling. Each of the `kinds` of values
    costs about 3 ms per task, used or not, because Spark generates encoders for it."""

    def __init__(self, handle: StatefulProcessorHandle, kinds: Sequence[str]):
        self._manifest = handle.getValueState(MANIFEST, STATE_VALUE)
        self._values = {kind: handle.getMapState(kind, STATE_KEY, STATE_VALUE) for kind in kinds}

    def read_manifest(self) -> bytes | None:
        value = self._manifest.get()
        return None if value is None else bytes(value[0])

    def write_manifest(self, data: bytes) -> None:
        self._manifest.update((data,))

    def read(self, kind: str, number: int) -> bytes:
        value = self._values[kind].getValue((number,))
        assert value is not None, f"the manifest names {kind} {number}, which the state store does not have"
        return bytes(value[0])

    def write(self, kind: str, number: int, data: bytes) -> None:
        self._values[kind].updateValue((number,), (data,))

    def remove(self, kind: str, number: int) -> None:
        self._values[kind].removeKey((number,))


@contextlib.contextmanager
def answered_together(handle: StatefulProcessorHandle) -> Iterator[None]:
    """Send writes to the state store without waiting for each answer, and read MOST_UNANSWERED answers at a time. Spark
    would wait for every answer, which takes a millisecond or two on busy cores.

    Inside the block nothing may read from the store. That also holds for Spark while a `yield` leaves the block: it
    does not read before it has taken all results of the processor.
    """
    client: Any = getattr(handle, "_statefulProcessorApiClient", None)
    if client is None:  # Spark's handle for tests has no client
        yield
        return
    client._client_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
    receive, unanswered = client._receive_proto_message, 0

    def hear() -> None:
        """Read all answers that are due. After an error Spark sends no more."""
        nonlocal unanswered
        while unanswered:
            unanswered -= 1
            status, error, _ = receive()
            if status:
                raise StateError(f"Spark's state store did not accept the state of this micro-batch: {error}")

    def answer_later() -> tuple[int, str, bytes]:
        nonlocal unanswered
        unanswered += 1
        if unanswered == MOST_UNANSWERED:
            hear()
        return 0, "", b""

    client._receive_proto_message = answer_later
    try:
        yield
    except OSError:  # Spark has closed the connection: its answers may say why
        with contextlib.suppress(OSError, EOFError):
            hear()
        raise
    finally:
        del client._receive_proto_message
    hear()


def kinds_of_state(task: JoinTask) -> tuple[str, ...]:
    return ("runs", "matched") if task.kept else ("runs",)


def join_processor(task: JoinTask) -> StatefulProcessor:
    """The processor of a join, as Spark carries it."""
    return carried_processor(JoinProcessor(task), kinds_of_state(task))


class JoinProcessor(StatefulProcessor):
    """The processor for `transformWithStateInPandas`, grouped by worker id, with event-time timers."""

    def __init__(self, task: JoinTask):
        self.task = task

    def init(self, handle: StatefulProcessorHandle) -> None:
        use_forms(self.task)
        self._handle, self._store = handle, SparkStore(handle, kinds_of_state(self.task))
        self._acted: dict[int, int] = {}  # by worker id, the watermark of its last step
        self._stepped: list[SparkWorker] = []

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        batches: dict[str, list[pa.RecordBatch]] = {side: [] for side in SIDES}
        counts = Counts()
        for frame in rows:
            counts.turn("conversion")
            for side, data in zip(frame["side"], frame["rows"], strict=True):
                batches[SIDES[side]].append(decode(data))
            counts.turn(None)
        yield from self._run(key[0], batches, timerValues.getCurrentWatermarkInMs(), None, counts)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        fired, spark_ms = expiredTimerInfo.getExpiryTimeInMs(), timerValues.getCurrentWatermarkInMs()
        if self._acted.get(int(key[0])) != spark_ms:
            yield from self._run(key[0], {}, spark_ms, fired, Counts())

    def close(self) -> None:
        GARBAGE.end_task()
        BACKGROUND.begin([worker.prepare for worker in self._stepped])

    def _run(
        self,
        worker_id: int,
        batches: dict[str, list[pa.RecordBatch]],
        spark_ms: int,
        fired: int | None,
        counts: Counts,
    ) -> Iterator[pd.DataFrame]:
        # Imported here, because the driver and the processes that pack rows need no pandas.
        from streamjoin.spark.join.frames import output_frame, result_values, shown_of

        self._acted[int(worker_id)] = spark_ms
        BACKGROUND.finish()
        counts.turn("state")
        state = State(self.task, self._store, counts)
        set_shift(self.task, state, spark_ms)
        check_epoch(self.task, state, batches, spark_ms)
        number = worker_ids(self.task.routing.workers).index(int(worker_id))
        worker = SparkWorker(self.task, number, state, counts)
        last: pa.RecordBatch | None = None
        for result in worker.step(batches, self.task.watermark(spark_ms, state.shift_ms)):
            if last is not None:
                counts.turn("conversion")
                values = result_values(self.task.schema, last, self.task.tuning.value_bytes)
                frame = output_frame(values, shown=shown_of(self.task, None))
                counts.turn(None)
                yield frame
            last = result
        counts.turn("state")
        with answered_together(self._handle):
            self._set_timer(state, worker.wake_at(), spark_ms, fired)
            state.save()
            counts.turn("conversion")
            values = result_values(self.task.schema, last, self.task.tuning.value_bytes)
            shown = shown_of(self.task, last)
            counts.turn(None)
            # The state store answers while Spark takes these results. That time is not counted: the counts are sent.
            yield output_frame(values, [int(worker_id), *astuple(counts)], shown)
        self._stepped.append(worker)

    def _set_timer(self, state: State, ticks: int | None, spark_ms: int, fired: int | None) -> None:
        """Have Spark call us when the watermark reaches `ticks`, and delete the timer set before. A timer that is due
        already fires in this micro-batch: Spark removes it, and the call finds nothing to do."""
        wanted = None if ticks is None else max(self.task.timer_ms(ticks, state.shift_ms), spark_ms + 1)
        if wanted == state.timer:
            return
        if state.timer is not None and state.timer != fired and state.timer > spark_ms:
            self._handle.deleteTimer(state.timer)
        if wanted is not None:
            self._handle.registerTimer(wanted)
        state.timer = wanted


def join_group(task: JoinTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join all rows that one worker gets of two tables, in one step."""
    use_forms(task)
    parcels: dict[str, list[pa.RecordBatch]] = {side: [] for side in SIDES}
    number, kind = 0, pa.binary()
    for batch in batches:
        kind = batch.schema.field("rows").type  # Spark wants the offsets that it gives: 32 or 64 bits
        for worker, side, data in zip(*(batch.column(n) for n in ("worker", "side", "rows")), strict=True):
            parcels[SIDES[side.as_py()]].append(decode(data.as_buffer()))
            number = worker_ids(task.routing.workers).index(worker.as_py())
    counts = Counts()
    worker = SparkWorker(task, number, State(task, MemoryStore(), counts), counts)
    for result in worker.step(parcels, END_OF_TIME):
        yield pa.record_batch({"rows": binary_value(encode(result), kind)})
