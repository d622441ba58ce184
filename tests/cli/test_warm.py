"""`streamjoin warm` compiles ahead, and says what it compiled and where."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.calls import JOB, call

import streamjoin as sj
from streamjoin.cli import warm as command
from streamjoin.engine.ahead import kernel_folder, library_specs

SCHEMA = pa.schema({"ts": pa.int64(), "k": pa.int32(), "v": pa.float64()})
SPEC = sj.JoinSpec(SCHEMA, SCHEMA, "left.k = right.k", sj.TimeWindow(5), "ts", "ts")
SPECS = {"first": SPEC, "other": SPEC}
NOT_A_SPEC = 5


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Leaves out the kernels of the library, which take a minute; returns the calls."""
    called: list[str] = []
    monkeypatch.setattr(command, "compile_library", lambda: called.append("library"))
    return called


def test_what_is_compiled_is_counted_once_and_the_folder_is_named(monkeypatch, capsys, tmp_path, library):
    def compile_spec(spec: sj.JoinSpec) -> None:
        for number in range(3):
            (kernel_folder() / f"{spec.left_time}{number}.nbc").write_bytes(b"")

    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(command, "compile_spec", compile_spec)
    assert call(monkeypatch, "warm", "tests.cli.test_warm:SPEC", "tests.cli.test_warm:SPECS") == 0
    lines = capsys.readouterr().out.splitlines()
    assert library == ["library"]
    assert lines[0] == "library kernels: compiled already"
    assert lines[1].startswith("tests.cli.test_warm:SPEC: 3 compiled in ")
    assert lines[2] == "tests.cli.test_warm:SPECS: compiled already"
    assert lines[3].startswith(f"in {kernel_folder()}, for user {os.geteuid()} and processors of kind ")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nowhere", "warm cannot compile 'nowhere': give a job file (*.toml), or module:name of a JoinSpec"),
        ("no_such_module:SPEC", "there is no no_such_module"),
        ("tests.cli.test_warm:MISSING", "a name that tests.cli.test_warm has"),
        ("tests.cli.test_warm:NOT_A_SPEC", "the name of a JoinSpec, or of a list or dict of them"),
        ("missing.toml", "missing.toml"),
    ],
)
def test_a_target_that_cannot_be_compiled_is_refused_before_anything_is(
    monkeypatch, capsys, library, target, said
):
    assert call(monkeypatch, "warm", target) == 2
    assert said in " ".join(capsys.readouterr().err.split()) and library == []


def test_without_a_folder_for_kernels_there_is_an_error(monkeypatch, capsys, tmp_path, library):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(sj.StreamJoinWarning, match="there is no cache"):
        assert call(monkeypatch, "warm") == 2
    assert "set STREAMJOIN_CACHE_DIR to a folder that this user can write" in capsys.readouterr().err


def test_the_library_covers_equalities_and_bands_of_every_usual_type():
    kinds = {(str(spec.left.field("x").type), str(spec.on)[:9]) for spec in library_specs()}
    assert len(kinds) == 9 and ("string", "left.x = ") in kinds and ("float", "left.x BE") in kinds


@pytest.mark.slow
def test_after_warming_an_empty_cache_a_job_and_a_join_compile_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "my_joins.py").write_text(
        "import pyarrow as pa, streamjoin as sj\n"
        "SCHEMA = pa.schema({'ts': pa.int64(), 'k': pa.int32()})\n"
        "SPEC = sj.JoinSpec(SCHEMA, SCHEMA, 'left.k % 3 = right.k', sj.TimeWindow(5), 'ts', 'ts')\n"
    )
    environment = os.environ | {"STREAMJOIN_CACHE_DIR": str(tmp_path / "cache")}
    run = [sys.executable, "-m", "streamjoin.cli", "warm", "job.toml", "my_joins:SPEC"]
    first, second = (
        subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    # The library has all that the job's equality needs.
    assert first.stdout.count(" compiled in ") == 2 and "my_joins:SPEC: 6 compiled" in first.stdout
    assert "job.toml: compiled already" in first.stdout and first.stderr == ""
    assert second.stdout.count("compiled already") == 3
