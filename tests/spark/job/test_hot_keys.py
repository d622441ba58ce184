"""Hot keys in job files: what they may be, and that a checkpoint keeps them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from job_runs import JOB, ON, add_files, run_to_the_end, written
from streamjoin.plan.hot_keys import from_json
from streamjoin.semantics.spec import SIDES
from streamjoin.spark.job.checkpoint import RECORD, CheckpointError, claim
from streamjoin.spark.job.explain import explain_job
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.loaded import load_job
from streamjoin.spark.job.toml import JobError


def job(folder: Path, hot_keys: str, **changed: str) -> Job:
    """The job with an equality, and this value of `hot_keys`; nothing if it is empty."""
    text = JOB.replace(ON, changed.get("on", "left.x = right.a")).replace("workers = 2", "workers = 4")
    if hot_keys:
        text = text.replace("[join]", f"[join]\nhot_keys = {hot_keys}")
    if "how" in changed:
        text = text.replace("[join]", f'[join]\nhow = "{changed["how"]}"')
    path = folder / "job.toml"
    path.write_text(text)
    return Job.read(path)


def add_skewed_files(folder: Path, number: int, key: int) -> None:
    """Files of both sides, where all rows have one key."""
    add_files(folder, number)
    for side, name in zip(SIDES, ("x", "a"), strict=True):
        path = folder / side / f"{number}.parquet"
        table = pq.read_table(path)
        keys = pa.array([key] * table.num_rows, pa.int32())
        pq.write_table(table.set_column(table.schema.get_field_index(name), name, keys), path)


@pytest.mark.parametrize(
    ("value", "changed", "says"),
    [
        ("5", {}, 'join.hot_keys: is 5: give "sample", or a list of keys'),
        ("['many']", {}, "join.hot_keys: has \\['many'\\], but the column 'x' of left is of type int32"),
        ("[[1, 2]]", {}, "join.hot_keys: has .*; allowed: for each key a value of 'x'"),
        ("[{ x = 1 }]", {}, "join.hot_keys: is .*: give"),
        (
            "[1]",
            {"how": "full"},
            "join.hot_keys: is .*, but a full join must have all rows of a key at one worker",
        ),
        (
            "'sample'",
            {"on": ON},
            "join.hot_keys: is 'sample', but rows are not spread by a hash of equality keys",
        ),
    ],
)
def test_what_cannot_be_a_hot_key(tmp_path, value, changed, says):
    add_files(tmp_path, 0)
    with pytest.raises(JobError, match=says):
        job(tmp_path, value, **changed)


def test_explain_names_the_hot_keys(tmp_path):
    add_files(tmp_path, 0)
    assert "hot key 7: 2 x 2 workers" in explain_job(job(tmp_path, "[7]"), None)
    assert "hot keys     found in a sample at the first start" in explain_job(job(tmp_path, '"sample"'), None)


def recorded(folder: Path) -> Any:
    return json.loads((folder / "checkpoint" / RECORD).read_text())


@pytest.mark.slow
def test_a_checkpoint_keeps_the_hot_keys_of_its_first_start(spark, tmp_path):
    add_skewed_files(tmp_path, 0, key=7)
    run_to_the_end(spark, job(tmp_path, '"sample"').path)
    (hot,) = from_json(recorded(tmp_path)["join.hot_keys"])
    assert (hot.share.name, hot.rows, hot.columns) == ("7", 2, 2)
    add_skewed_files(tmp_path, 1, key=3)
    for value in ("", '"sample"', "[7]"):
        loaded, resumed = claim(load_job(job(tmp_path, value), spark))
        assert resumed and loaded.task.routing.hot == (hot,)
    for value in ("[3]", "[]"):
        with pytest.raises(CheckpointError, match=r"for the hot keys 7, and join.hot_keys lists others"):
            claim(load_job(job(tmp_path, value), spark))
    run_to_the_end(spark, job(tmp_path, '"sample"').path)
    assert written(spark, tmp_path) == matches(tmp_path)


def matches(folder: Path) -> Counter[tuple[Any, ...]]:
    left, right = (pq.read_table(folder / side).sort_by("ts").to_pylist() for side in SIDES)
    return Counter(
        (*l.values(), *r.values())
        for l in left
        for r in right
        if l["x"] == r["a"] and abs((l["ts"] - r["ts"]).total_seconds()) <= 10
    )


@pytest.mark.slow
def test_a_checkpoint_from_before_continues_without_hot_keys(spark, tmp_path):
    add_skewed_files(tmp_path, 0, key=7)
    run_to_the_end(spark, job(tmp_path, "").path)
    assert "join.hot_keys" not in recorded(tmp_path)
    with pytest.raises(CheckpointError, match=r"for no hot keys, and join.hot_keys lists others"):
        claim(load_job(job(tmp_path, "[7]"), spark))
    add_skewed_files(tmp_path, 1, key=7)
    run_to_the_end(spark, job(tmp_path, '"sample"').path)
    assert written(spark, tmp_path) == matches(tmp_path)
