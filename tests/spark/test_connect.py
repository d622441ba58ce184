"""The core suite on a Spark Connect server, which runs in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyspark

ROOT = Path(__file__).parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: Path) -> dict[str, str]:
    """What both processes get: the sources, this Python, and a cache of runs of their own."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "STREAMJOIN_SPARK_CACHE_DIR": str(folder),
    }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a server that listens on loopback."""
    port, home = free_port(), Path(pyspark.__file__).parent
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--class", SERVER, "--master", "local[2]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=log,
            stderr=log,
            start_new_session=True,  # so that the server and its workers can be ended together
        )
    try:
        wait_for(port, process, tmp_path / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path, seconds: float = 120) -> None:
    """Wait until the server takes connections."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text()[-3000:])


@pytest.mark.slow
def test_the_core_suite_passes_on_a_connect_server(server: str, tmp_path: Path) -> None:
    suite = Path(__file__).with_name("core_suite.py")
    done = subprocess.run(
        [sys.executable, str(suite), str(tmp_path / "suite"), server],
        env=environment(tmp_path) | {"SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"^(\d+) of \1 checks passed", done.stdout, re.MULTILINE)


@pytest.mark.slow
def test_the_core_suite_passes_on_the_spark_of_the_tests(tmp_path: Path) -> None:
    suite = Path(__file__).with_name("core_suite.py")
    command = [sys.executable, str(suite), str(tmp_path / "suite")]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
