"""The Spark session of a job: Java, settings, packages, and what is said when Spark does not start."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

import streamjoin as sj
from job_runs import write_job
from streamjoin.cli.run import stopping
from streamjoin.spark.job import session as sessions
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.masters import check_master, local_cores
from streamjoin.spark.job.session import (
    FILE_MANAGER,
    FILE_MANAGER_SETTING,
    KAFKA_CONNECTOR,
    find_java,
    packages_of,
    settings_of,
)


def test_settings_follow_the_master_and_the_file_wins(tmp_path):
    job = Job.read(
        write_job(tmp_path, 1, lambda text: text + '[spark.settings]\n"spark.ui.enabled" = true\n')
    )
    local = settings_of(job, "local[4]")
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.ui.enabled"] == local["spark.python.unix.domain.socket.enabled"] == "true"
    cluster = settings_of(job, "spark://host:7077")
    assert not {"spark.driver.bindAddress", "spark.python.unix.domain.socket.enabled"} & cluster.keys()
    masters = {"local": 1, "local[3]": 3, "local[3,2]": 3, "local-cluster[2,3,1024]": 6, "yarn": None}
    assert {master: local_cores(master) for master in masters} == masters
    with pytest.raises(sj.SpecError, match="master is 'sprak://host'; allowed: local"):
        check_master("sprak://host")


def test_files_of_a_local_checkpoint_are_written_without_programs(tmp_path):
    def writer(master: str, change: Callable[[str], str] = lambda text: text) -> str | None:
        return settings_of(Job.read(write_job(tmp_path, 1, change)), master).get(FILE_MANAGER_SETTING)

    assert writer("local[2]") == FILE_MANAGER
    assert writer("spark://host:7077") is None
    assert (
        writer("local[2]", lambda text: text.replace('checkpoint = "', 'checkpoint = "s3a://bucket/')) is None
    )
    own = f'[spark.settings]\n"{FILE_MANAGER_SETTING}" = "com.example.Files"\n'
    assert writer("local[2]", lambda text: text + own) == "com.example.Files"


def test_the_kafka_connector_is_fetched_when_it_is_needed(tmp_path):
    def kafka(text: str) -> str:
        return text.replace('kind = "files"\npath = "out"', 'kind = "kafka"\nservers = "a:1"\ntopic = "t"')

    assert packages_of(Job.read(write_job(tmp_path, 1))) == ()
    assert packages_of(Job.read(write_job(tmp_path, 1, kafka))) == (KAFKA_CONNECTOR,)
    own = '[spark]\npackages = ["org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"]\n'
    assert packages_of(Job.read(write_job(tmp_path, 1, lambda text: kafka(text) + own))) == (
        own.split('"')[1],
    )
    jars = '[spark.settings]\n"spark.jars" = "/jars/spark-sql-kafka-0-10_2.13-4.2.0.jar"\n'
    assert packages_of(Job.read(write_job(tmp_path, 1, lambda text: kafka(text) + jars))) == ()


def test_without_java_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    assert (find_java() / "bin" / "java").exists()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sessions.SparkStartError, match=r"Java 17 or newer.*JAVA_HOME"):
        find_java(folders=())
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    old.chmod(0o755)
    with pytest.raises(sessions.SparkStartError):
        find_java(folders=())
    old.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    assert find_java() == tmp_path


def test_spark_does_not_take_ctrl_c_for_itself(monkeypatch, tmp_path):
    """It would be an exception anywhere, from the moment there is a context until the query runs."""
    found = []

    class Context:
        defaultParallelism, _accumulatorServer = 2, SimpleNamespace()

        def __init__(self, **_given: object):
            signal.signal(signal.SIGINT, signal.default_int_handler)

    class Session:
        def __init__(self, context: Context):
            self.sparkContext, self.conf = context, self

        def set(self, *_given: object) -> None:
            found.append(signal.getsignal(signal.SIGINT))

    for name in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that it is afterwards as it was
    monkeypatch.setattr(sessions, "launch_gateway", lambda *_given: None)
    monkeypatch.setattr(sessions, "SparkContext", Context)
    monkeypatch.setattr(sessions, "SparkSession", Session)
    job, stop = Job.read(write_job(tmp_path, 1)), threading.Event()
    with stopping(stop, Console(file=StringIO()), "some day"):
        sessions.open_session(job, "local[2]")
        signal.raise_signal(signal.SIGINT)
    assert stop.is_set()
    assert found[0] is not signal.default_int_handler


def test_a_log_that_can_not_be_written_is_told(tmp_path):
    (tmp_path / "file").touch()
    for log in (tmp_path / "file" / "log", tmp_path / ("x" * 300), tmp_path):
        with pytest.raises(sessions.SparkStartError, match=r"run.log\) cannot be written"):
            sessions.begin_log(log)
    assert sessions.begin_log(tmp_path / "logs" / "new") == 0


def test_packages_that_can_not_be_fetched_and_settings_that_can_not_be_read_are_named(tmp_path):
    log = tmp_path / "log"
    log.write_text("\t\t:: org.example#thing_2.13;1.0: not found\n")
    told = sessions.start_failure(
        RuntimeError("JAVA_GATEWAY_EXITED"), log, 0, ("org.example:thing_2.13:1.0",)
    )
    assert "could not fetch org.example#thing_2.13;1.0" in told
    assert "spark.packages" in told
    setting = """Error while instantiating 'SessionStateBuilder':

JVM stacktrace:
java.lang.IllegalArgumentException: Error while instantiating 'SessionStateBuilder':
\tat org.apache.spark.sql.classic.SparkSession.sessionState(SparkSession.scala:205)
Caused by: org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE] The value 'many' is. SQLSTATE: 22022
\tat org.apache.spark.internal.config.ConfigHelpers$.toNumber(ConfigBuilder.scala:36)
"""
    before = log.stat().st_size
    told = sessions.start_failure(ValueError(setting), log, before, ())
    assert told.splitlines()[0] == "Spark did not start: [INVALID_CONF_VALUE] The value 'many' is."
    assert "the JVM died" in sessions.start_failure(RuntimeError("the JVM died"), log, before, ())
