"""What a type checker knows about the installed package: it is typed (PEP 561), and results are not `Any`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import textwrap
import venv
import zipfile
from pathlib import Path

import pytest
from hatchling import build

import streamjoin as sj

ROOT = Path(__file__).parents[1]

EMBEDDED = """
    import pyarrow as pa
    import streamjoin as sj

    schema = pa.schema([pa.field("ts", pa.int64()), pa.field("x", pa.int32())])
    spec = sj.JoinSpec(schema, schema, "left.x = right.x", sj.TimeWindow(10), "ts", "ts")
    with sj.open_join(spec) as join:
        reveal_type(join)  # Join
        reveal_type(join.source("left", "a"))  # Source
        reveal_type(join.poll())  # list[RecordBatch]
        reveal_type(join.poll_table())  # Table
        reveal_type(join.schema)  # Schema
        reveal_type([batch for batch in join])  # list[RecordBatch]
        reveal_type(join.late("left"))  # Table
        reveal_type(join.stats())  # Stats
        reveal_type(join.stats().left_index)  # IndexStats
        reveal_type(join.finish())  # Table
    async def consume(join: sj.Join) -> None:
        async with join:
            await join.push_async("left", None)
            reveal_type([batch async for batch in join])  # list[RecordBatch]
            reveal_type(await join.poll_async())  # list[RecordBatch]
            reveal_type(await join.finish_async())  # Table

    reveal_type(spec.schema)  # Schema
    reveal_type(sj.explain(spec))  # str
    reveal_type(sj.join_tables(None, None, spec))  # Table
    table: pa.Table = pa.table({})
    reveal_type(sj.join(table, [], on="left.x = right.x", window="1 s", time="ts"))  # Table
    reveal_type(sj.stream(schema, schema, on="TRUE", window=5, time="ts"))  # Join
    sj.join(table, table, on="TRUE", windows=5, window=5)  # error: arg-type
    reveal_type(sj.oracle.join(pa.table({}), pa.table({}), spec))  # Table
    sj.open_join("a spec")  # error: arg-type
"""

SPARK = """
    from pyspark.sql import DataFrame
    from streamjoin.spark import in_time_order, join_metrics, window_join

    def run(left: DataFrame, right: DataFrame) -> None:
        found = window_join(left, right, "left.x = right.x", window="1 s", left_time="ts", right_time="ts")
        reveal_type(found)  # DataFrame
        reveal_type(join_metrics({}))  # dict[str, dict[str, int]]
        window_join(left, right, "left.x = right.x", window="1 s")  # error: call-arg
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules of an environment that has a built copy of the package, and all else from this one."""
    folder = tmp_path_factory.mktemp("installed")
    before = Path.cwd()
    os.chdir(ROOT)  # where a build front end would start it
    try:
        wheel = folder / build.build_wheel(str(folder))
    finally:
        os.chdir(before)
    venv.create(folder / "venv", symlinks=True)
    modules = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "venv")}))
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(modules)
    (modules / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return modules


def test_a_built_copy_has_the_marker_and_nothing_but_the_package(site: Path) -> None:
    assert (site / "streamjoin" / "py.typed").is_file()
    top = {path.name for path in site.iterdir()} - {"others.pth"}
    assert top == {"streamjoin", f"streamjoin-{sj.__version__}.dist-info"}


@pytest.mark.slow
@pytest.mark.parametrize("program", [EMBEDDED, SPARK], ids=["embedded", "spark"])
def test_a_user_program_sees_types(site: Path, tmp_path: Path, program: str) -> None:
    """Each comment of the program names the type that mypy reveals in its line, or the error that it reports."""
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(program))
    python = site.parents[2] / "bin" / "python"
    # PYTHONPATH would put a source tree in front of the installed copy.
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "MYPYPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--hide-error-context"]
    command += ["--config-file=", f"--cache-dir={tmp_path}", f"--python-executable={python}", file.name]
    told = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True).stdout
    assert seen(told) == expected(file.read_text()), told


def expected(program: str) -> dict[int, str]:
    lines = enumerate(program.splitlines(), 1)
    return {number: line.partition("# ")[2] for number, line in lines if "# " in line}


def seen(told: str) -> dict[int, str]:
    """By line, the revealed type without the modules of its names, or the code of the error."""
    found = re.findall(
        r'^\w+\.py:(\d+): (?:note: Revealed type is "(.*)"|error: .*\[(.*)\])$', told, re.MULTILINE
    )
    return {
        int(line): f"error: {code}" if code else re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed)
        for line, revealed, code in found
    }
