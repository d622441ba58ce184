"""`streamjoin bench`: the benchmarks of a checkout."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.calls import call

from streamjoin.cli import bench


def test_bench_lists_the_benchmarks_of_the_checkout():
    command = [sys.executable, "-m", "streamjoin.cli", "bench"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert listed.returncode == 0, listed.stderr
    assert {"three_step", "first_result"} <= {line.split()[0] for line in listed.stdout.splitlines()}


def test_bench_refuses_an_unknown_name():
    command = [sys.executable, "-m", "streamjoin.cli", "bench", "nothing"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert "no benchmark named 'nothing'" in refused.stderr


def test_bench_says_so_where_there_is_no_checkout(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path / "site")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "bench") == 2
    assert "Clone the repository" in capsys.readouterr().err
