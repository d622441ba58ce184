"""The page "in production": each command on it runs, in their order, on a job that works meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

from job_runs import add_files, truth, write_job, written

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "production.md"


def commands() -> list[str]:
    """The lines of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "STREAMJOIN_SPARK_CACHE_DIR": str(folder)}


def test_the_page_names_commands_that_exist():
    names = {tuple(command.split()[:2]) for command in commands()}
    assert names == {
        ("streamjoin", "run"),
        ("streamjoin", "state"),
        ("streamjoin", "rescale"),
        ("streamjoin", "--version"),
    }
    assert (ROOT / "examples" / "grafana.json").exists()


@pytest.mark.slow
def test_each_command_of_the_page_runs(spark, tmp_path):
    write_job(tmp_path, 2, lambda text: text.replace("workers = 2\n", "") + '[spark]\nmaster = "local[2]"\n')
    said, files = "", 2
    for command in commands():
        words = command.split()
        said += run([sys.executable, "-m", *words], tmp_path)
        if words[:2] == ["streamjoin", "rescale"]:
            add_files(tmp_path, files)
            files += 1
    assert "rescaled from" in said and "to 3 workers" in said
    assert written(spark, tmp_path) == truth(files)


PROGRAM = """
import sys
from pyspark.sql import SparkSession
import streamjoin
from streamjoin.spark import window_join
print(streamjoin.__file__)
spark = SparkSession.builder.getOrCreate()
table = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:00' AS ts, 1 AS x")
print(window_join(table, table, "left.x = right.x", window="1 s", left_time="ts", right_time="ts", workers=2).count())
"""


# Joins streams, too.
STREAM = """
left, right = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 20).load()
    .selectExpr("timestamp AS ts", f"value AS {name}") for name in ("x", "a")
)
joined = window_join(
    left, right, "left.x = right.a", window="1 s", left_time="ts", right_time="ts", lateness="1 s", workers=2
)
query = joined.writeStream.format("memory").queryName("streams").start()
while spark.table("streams").count() < 40:
    assert query.isActive, query.exception()
print(spark.table("streams").where("x < 40").count())
query.stop()
"""
# Says which environment the workers run.
SHOWS_PYTHON = """
context = SparkSession.builder.getOrCreate().sparkContext
print(context.parallelize([0], 1).map(lambda _: __import__("sys").prefix).first())
"""


@pytest.mark.slow
def test_the_package_runs_from_a_zip(tmp_path):
    archive = tmp_path / "streamjoin.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in (ROOT / "src" / "streamjoin").rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                packed.write(path, path.relative_to(ROOT / "src"))
    (tmp_path / "program.py").write_text(PROGRAM)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    command = [submit, "--master", "local[2]", "--py-files", str(archive), str(tmp_path / "program.py")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={name: value for name, value in environment(tmp_path).items() if name != "PYTHONPATH"}
        | {"PYSPARK_PYTHON": sys.executable, "STREAMJOIN_CACHE_DIR": str(tmp_path / "kernels")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    assert any(line.endswith("streamjoin.zip/streamjoin/__init__.py") for line in lines), done.stderr[-3000:]
    assert lines[-1] == "1", done.stderr[-3000:]


@pytest.mark.slow
def test_workers_run_the_python_of_an_archive(tmp_path):
    """On a cluster of processes of their own. The archive's Python finds its packages where this one has them. It is
    unpacked beside the program, too: the driver of a stream starts it."""
    place = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    found = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "there.pth").write_text("\n".join([str(ROOT / "src"), *found]))
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as packed:
        packed.add(place, ".")
    (tmp_path / "program.py").write_text(PROGRAM.replace("print(streamjoin.__file__)", SHOWS_PYTHON) + STREAM)
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    archives = ["--archives", f"{tmp_path}/environment.tar.gz#environment", str(tmp_path / "program.py")]
    done = subprocess.run(
        [submit, "--master", "local-cluster[1,1,1024]", *archives],
        cwd=tmp_path,
        env=environment(tmp_path)
        | {
            "PYSPARK_PYTHON": "./environment/bin/python",
            "SPARK_WORKER_DIR": str(tmp_path / "work"),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "STREAMJOIN_CACHE_DIR": str(tmp_path / "kernels"),
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if re.fullmatch(r"[0-9]+|/.*", line)]
    assert re.fullmatch(r".*/app-.*/environment", lines[0]) and lines[1:] == ["1", "40"], lines


@pytest.mark.slow
def test_a_notebook_without_a_file_joins(tmp_path):
    """As notebooks run cells: in a namespace whose `__main__` has no file."""
    program = PROGRAM.replace("SparkSession.builder", "SparkSession.builder.master('local[2]')")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; assert not hasattr(sys.modules['__main__'], '__file__')\n" + program,
        ],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout.splitlines()[-1:] == ["1"], done.stderr[-3000:]
