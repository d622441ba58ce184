"""What a running job shows of itself."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console

from streamjoin.cli.run import progress_line, progress_table, size_text
from streamjoin.spark.job.progress import QueryProgress, rows_behind
from streamjoin.spark.join.metrics import METRIC_NAMES, OBSERVATION, WORKER, WORKERS


def event(latest: object, end: object, workers: Sequence[int] = (0, 1)) -> StreamingQueryProgress:
    source = {
        "description": "",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 5,
    }
    source |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0, "metrics": {}}
    identifier = "00000000-0000-0000-0000-000000000000"
    told = {
        "id": identifier,
        "runId": identifier,
        "name": "n",
        "timestamp": "2026-01-01T00:00:09.000Z",
        "batchId": 3,
    }
    told |= {
        "batchDuration": 500,
        "durationMs": {},
        "stateOperators": [],
        "sources": [source],
        "numInputRows": 5,
    }
    told |= {"eventTime": {"max": "2026-01-01T00:00:07.500Z", "watermark": "2026-01-01T00:00:02.000Z"}}
    told |= {"sink": {"description": "", "numOutputRows": 1, "metrics": {}}, "processedRowsPerSecond": 10.0}
    counted = dict.fromkeys(METRIC_NAMES, 0) | {"state_rows": 40, "state_bytes": 600}
    shared = {"rows_in": 5, "candidates": 30, "matches": 4, "cache_hits": 7, "cache_misses": 1}
    shared |= {"kernel_us": 200_000, "state_us": 90_000, "conversion_us": 10_000}
    told_by = [{WORKER: worker} | counted | (shared if worker == workers[0] else {}) for worker in workers]
    observed = {f"{OBSERVATION}_1": {WORKERS: told_by}, "somebody else's": {"rows": 1_000}}
    return StreamingQueryProgress.fromJson(told | {"inputRowsPerSecond": 9.0, "observedMetrics": observed})


def test_progress_adds_up_and_knows_how_far_it_is_behind():
    kafka = event({"t": {"0": 30, "1": 5}}, {"t": {"0": 10, "1": 5}})
    assert rows_behind(kafka) == 20
    assert rows_behind(event(None, {"logOffset": 3})) is None
    progress = QueryProgress().after(kafka).after(kafka)
    assert (progress.batches, progress.rows, progress.busy_seconds, progress.behind) == (2, 10, 1.0, 20)
    assert (progress.candidates, progress.matches) == (60, 8)
    assert progress.lag_seconds == 1.5
    assert "watermark 2026-01-01 00:00:02" in progress_line(progress)
    assert "20 behind" in progress_line(progress)
    printed = Console(width=100, record=True, file=StringIO())
    printed.print(progress_table(progress, seconds=60.0))
    text = printed.export_text()
    for words in (
        "10  10/s; 10/s on average",
        "2  0.50 s; 0.50 s on average, running for 60 s",
        "newest row 1.5 s ago",
        "20  rows wait in Kafka",
        "8  8/s",  # matches
        "60  7.5 for a match",  # candidates
        "14  runs found; 2 read back from the state store",
        "0.30 s  kernels 0.20 s, state 0.09 s, conversion 0.01 s",
    ):
        assert words in text, text
    assert "late" not in text and "malformed" not in text
    assert progress_line(QueryProgress()) == "no micro-batch was run: nothing new has come"
    printed.print(progress_table(QueryProgress(late=3, malformed=2, batches=1), seconds=1.0))
    text = printed.export_text()
    assert "3  rows came too late" in text
    assert "2  rows could not be joined and were dropped" in text
    assert progress_line(QueryProgress(late=3, malformed=2, batches=1)).endswith(", 3 late, 2 malformed")


def test_a_worker_that_did_not_run_still_holds_what_it_held():
    progress = QueryProgress().after(event(None, None)).after(event(None, None, workers=(1,)))
    assert (progress.state_rows, progress.state_bytes) == (80, 1200)
    assert progress.after(event(None, None, workers=())).state_rows == 80


def test_a_worker_that_gets_most_rows_is_told_of():
    even = QueryProgress(batches=1, received={("j", n): 30_000 for n in range(4)})
    assert even.busiest is None and "workers" not in progress_line(even)
    assert QueryProgress(batches=1, received={("j", 0): 9_000, ("j", 1): 10}).busiest is None, "too few rows"
    uneven = QueryProgress(batches=1, received={("j", 0): 70_000} | {("j", n): 10_000 for n in (1, 2, 3)})
    assert progress_line(uneven).endswith(", 70% of the rows at one of 4 workers")
    printed = Console(width=100, record=True, file=StringIO())
    printed.print(progress_table(uneven, seconds=1.0))
    assert "70%  of the rows are at one of 4 workers; hot_keys spreads a key's rows" in printed.export_text()
    seen = QueryProgress().after(event(None, None)).after(event(None, None))
    assert [*seen.received.values()] == [10, 0]


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (2_100_000, "2.1 MB"), (3e12, "3,000.0 GB")]
)
def test_sizes_have_a_unit(size, text):
    assert size_text(size) == text
