"""The command line: what it prints, how it refuses, and that its check of the demonstration can fail."""

from __future__ import annotations

import platform
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streamjoin as sj
from streamjoin.cli import app as commands
from streamjoin.cli import bench
from streamjoin.cli.demo import LEFT_SCHEMA, PREDICATE, RIGHT_SCHEMA, Sample, generate
from streamjoin.cli.demo_run import pairs_table
from streamjoin.cli.schema import parse_schema, parse_window, with_time
from streamjoin.cli.tree import say_tree
from streamjoin.cli.version import version_lines

ROOT = Path(__file__).parents[2]
EXPLAIN = ["explain", "abs(left.x - right.a) <= 10", "--left", "x int, y float", "--right", "a int, b float"]


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `streamjoin arguments`, run in this process."""
    monkeypatch.setattr(sys, "argv", ["streamjoin", *arguments])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    return int(ended.value.code or 0)


def test_the_package_is_run_as_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["streamjoin", "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("streamjoin", run_name="__main__")
    assert not ended.value.code
    assert "explain" in capsys.readouterr().out


def test_the_version_is_told_with_those_of_python_and_of_every_package(monkeypatch, capsys):
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.splitlines() == version_lines()
    first, python, system, *packages = version_lines(("numpy", "no-such-package"))
    assert first == f"streamjoin {sj.__version__}"
    assert platform.python_version() in python and platform.machine() in system
    assert packages == [f"numpy {np.__version__}", "no-such-package not installed"]


def test_a_schema_is_written_in_sql_names():
    schema = parse_schema("x int, y float , p decimal(10, 2), s varchar(20), t timestamp, w BIGINT")
    assert schema == pa.schema(
        {
            "x": pa.int32(),
            "y": pa.float32(),
            "p": pa.decimal128(10, 2),
            "s": pa.string(),
            "t": pa.timestamp("us"),
            "w": pa.int64(),
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "",
        "x int,",
        "x int y",
        "x decimal(50, 2)",
        "x decimal(3, 5)",
        "x money",
        "x int(3)",
        "x array<int>",
    ],
)
def test_a_schema_that_is_none_is_refused(text):
    with pytest.raises(sj.SpecError, match=r"not a list of columns|unknown type|1 to 38"):
        parse_schema(text)


def test_every_type_name_has_its_arrow_type():
    types = parse_schema("a timestamp_ns, b timestamptz, c numeric, d char, e uint8, f int8 NOT NULL").types
    assert types == [
        pa.timestamp("ns"),
        pa.timestamp("us", "UTC"),
        pa.decimal128(38, 0),
        pa.string(),
        pa.uint8(),
        pa.int8(),
    ]
    assert not parse_schema("f int8 NOT NULL").field("f").nullable


def test_the_time_column_is_named_or_ts_or_the_only_timestamp_or_added():
    assert with_time(parse_schema("at timestamp, x int"), None)[1] == "at"
    assert with_time(parse_schema("at timestamp, ts bigint"), None)[1] == "ts"
    assert with_time(parse_schema("at timestamp, x int"), "x")[1] == "x"
    added, name = with_time(parse_schema("x int"), None)
    assert (added.names, name) == (["ts", "x"], "ts")


def test_windows_are_one_value_or_two():
    assert parse_window("15 minutes", None) == sj.TimeWindow("15 minutes")
    assert parse_window("10 minutes, 0", None) == sj.TimeWindow("10 minutes", 0)
    assert parse_window(None, "100, 50") == sj.RowWindow(100, 50)


@pytest.mark.parametrize(
    ("window", "rows"), [(None, None), ("1 s", "5"), (None, "many"), ("1 s, 2 s, 3 s", None)]
)
def test_windows_that_are_none_are_refused(window, rows):
    with pytest.raises(sj.WindowError):
        parse_window(window, rows)


def test_explain_prints_the_plan(monkeypatch, capsys):
    assert call(monkeypatch, *EXPLAIN, "--window", "15 minutes") == 0
    printed = capsys.readouterr().out
    assert "left.x" in printed
    assert "right.a" in printed


def test_explain_is_a_tree_whose_lines_are_those_of_the_api(monkeypatch, capsys):
    spec = sj.JoinSpec(
        parse_schema("ts timestamp, x int"),
        parse_schema("ts timestamp, a int"),
        "left.x = right.a\nAND left.x > 3",
        sj.TimeWindow("15 minutes"),
        "ts",
        "ts",
    )
    say_tree(sj.explain(spec), "a join")
    title, *drawn = capsys.readouterr().out.splitlines()
    assert title == "a join"
    assert drawn[0] == "├── join  left.x = right.a"
    assert drawn[1] == "│   ├── AND left.x > 3"
    words = [re.sub(r"^[│├└─ ]+", "", line).replace("  ", " ") for line in drawn]
    assert words == [" ".join(line.split()) for line in sj.explain(spec).splitlines()]


def test_developers_commands_have_a_group_and_keep_their_old_names(monkeypatch, capsys):
    assert call(monkeypatch, "--help") == 0
    commands = capsys.readouterr().out.split("Commands")[1]
    assert " dev " in commands and " hw " not in commands and " bench " not in commands
    for names in (["dev", "hw"], ["hw"], ["dev", "bench"], ["bench"]):
        assert call(monkeypatch, *names, "--help") == 0
        assert names[-1] in capsys.readouterr().out


def test_explain_takes_row_windows(monkeypatch, capsys):
    assert call(monkeypatch, *EXPLAIN, "--rows", "1000") == 0
    assert "1,000 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "left.q = right.a", "--left", "x int", "--right", "a int", "--window", "1 s"], "q"),
        ([*EXPLAIN, "--window", "-3 minutes"], "negative"),
        ([*EXPLAIN, "--window", "soon"], "soon"),
        (
            ["explain", "left.x = right.a", "--left", "x money", "--right", "a int", "--window", "1 s"],
            "money",
        ),
        (EXPLAIN, "--window"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(monkeypatch, capsys, arguments, message):
    assert call(monkeypatch, *arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def test_a_small_embedded_demo_joins_and_checks_itself(monkeypatch, capsys):
    small = ("--rate", "50", "--minutes", "2", "--window", "30 seconds")
    assert call(monkeypatch, "demo", "--embedded", *small) == 0
    printed = capsys.readouterr().out
    assert "checked against the oracle" in printed
    assert "comparisons/s" in printed
    assert "seconds apart" in printed and "A pair is two reports" in printed


JOB = """
[join]
on = "abs(left.x - right.a) <= 10"
window = "15 minutes"
lateness = "1 second"
[left]
source = { kind = "generator" }
[right]
source = { kind = "generator" }
[sink]
kind = "noop"
"""


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


def demo_spec() -> sj.JoinSpec:
    return sj.JoinSpec(
        LEFT_SCHEMA, RIGHT_SCHEMA, PREDICATE, sj.TimeWindow("30 seconds"), left_time="ts", right_time="ts"
    )


def test_the_demo_shows_pairs_that_match():
    left, right = generate(20_000, rate=300, seed=3)
    table = pairs_table(sj.join_tables(left, right, demo_spec()), 1_234)
    assert table.title == "5 of 1,234 pairs"
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    x, y, a, b = ([float(cell.replace(",", "")) for cell in cells[number]] for number in (1, 2, 4, 5))
    assert len(x) == 5 and cells[3] == sorted(cells[3])
    assert all(abs(p - q) <= 10.1 for p, q in zip(x + y, a + b, strict=True))
    assert all(abs(int(seconds)) <= 30 for seconds in cells[6])


def test_generated_streams_are_ordered_uniform_and_repeatable():
    left, right = generate(1000, rate=100, seed=3)
    assert (left.schema, right.schema) == (LEFT_SCHEMA, RIGHT_SCHEMA)
    assert left.equals(generate(1000, rate=100, seed=3)[0])
    assert left["ts"].to_pylist() == sorted(left["ts"].to_pylist())
    assert set(map(len, left["z"].to_pylist())) == {20}
    assert min(left["x"].to_pylist()) >= 1
    assert max(right["a"].to_pylist()) <= 10_000


def test_the_demo_check_sees_what_is_missing_and_what_is_wrong():
    left, right = generate(20_000, rate=300, seed=3)
    truth = sj.oracle.join(
        Sample(20_000).take(left, "x", "y"), Sample(20_000).take(right, "a", "b"), demo_spec()
    )
    assert truth.num_rows > 2

    def check(results: pa.Table) -> tuple[int, int, int]:
        sample = Sample(20_000)
        sample.keep(results)
        return sample.check(left, right, demo_spec())

    assert check(truth) == (truth.num_rows, 0, 0)
    assert check(truth.slice(1)) == (truth.num_rows, 1, 0)
    assert check(pa.concat_tables([truth, truth.slice(0, 1)])) == (truth.num_rows, 0, 1)


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
