"""`streamjoin run` before Spark starts: dry runs, the plan, and mistakes in a job file."""

from __future__ import annotations

import socket
import sys

import pytest
from tests.cli.calls import JOB, call


def test_a_dry_run_checks_the_file_and_starts_nothing(monkeypatch, capsys, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    assert call(monkeypatch, "run", str(path), "--dry-run") == 0
    assert "has no mistakes; nothing was started" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


def test_run_explains_a_job(monkeypatch, capsys, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    assert call(monkeypatch, "run", str(path), "--explain", "--master", "local[6]") == 0
    printed = capsys.readouterr().out
    assert "on local[6]" in printed
    assert "ranges of 80" in printed
    assert "abs(left.x - right.a) <= 10" in printed


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            JOB.replace("15 minutes", "soon").replace("noop", "nope"),
            ["2 mistakes", "join.window", "sink.kind"],
        ),
        (JOB.replace("left.x", "left.q"), ["a mistake", "join.on", "unknown column 'q'", "^"]),
        ("[join", ["is not TOML"]),
    ],
)
def test_a_job_with_mistakes_is_refused_before_spark_starts(monkeypatch, capsys, tmp_path, text, messages):
    path = tmp_path / "job.toml"
    path.write_text(text)
    assert call(monkeypatch, "run", str(path)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for message in (str(path), *messages):
        assert message in printed.err


def test_without_pyspark_run_says_how_to_get_it(monkeypatch, capsys, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    for name in [name for name in sys.modules if name.startswith(("pyspark", "streamjoin.spark"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert call(monkeypatch, "run", str(path)) == 2
    assert "pip install 'streamjoin[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "place", ["8155", ":8155", "localhost", "localhost:", "localhost:x", "localhost:999999", ""]
)
def test_a_wrong_place_for_the_page_is_refused(monkeypatch, capsys, tmp_path, place):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    assert call(monkeypatch, "run", str(path), "--page-at", place) == 2
    assert f"--page-at is {place!r}: give HOST:PORT" in capsys.readouterr().err


def test_a_page_that_cannot_be_served_is_refused_before_spark_starts(monkeypatch, capsys, tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(JOB)
    with monkeypatch.context() as missing:
        missing.setitem(sys.modules, "uvicorn", None)
        assert call(monkeypatch, "run", str(path), "--page") == 2
    assert "pip install 'streamjoin[page]'" in capsys.readouterr().err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert call(monkeypatch, "run", str(path), "--page-at", f"127.0.0.1:{port}") == 2
    assert f"cannot be served at 127.0.0.1:{port}" in capsys.readouterr().err
