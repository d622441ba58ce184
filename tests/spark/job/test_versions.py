"""Job files of earlier versions and the record of their checkpoints: both stay readable.

`job_1.toml` is a job file of 0.1.0, and `record_1.json` what that version noted of it in the job's checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from streamjoin.spark.job.checkpoint import CheckpointError, identity, refuse_changes
from streamjoin.spark.job.file import Job

JOB, RECORD = (Path(__file__).with_name(name) for name in ("job_1.toml", "record_1.json"))


def test_a_job_file_of_0_1_0_resumes_from_the_checkpoint_it_made():
    job, before = Job.read(JOB), json.loads(RECORD.read_text())
    refuse_changes(job, before, identity(job))
    changed = replace(job, join=job.join.model_copy(update={"how": "inner"}))
    with pytest.raises(CheckpointError, match=r"join\.how: was left, is inner"):
        refuse_changes(changed, before, identity(changed))
