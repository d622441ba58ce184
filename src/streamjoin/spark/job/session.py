"""The Spark session of a job: finds Java, configures Spark (each setting has a reason) and redirects Spark's log."""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamjoin.semantics.errors import StreamJoinError
from streamjoin.spark.job.failure import first_cause
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.masters import DEFAULT_MASTER, check_master
from streamjoin.spark.job.paths import is_remote
from streamjoin.spark.sessions import LOCAL_SETTINGS, SHUFFLE_PARTITIONS, STREAM_SETTINGS, is_local

JAVA_VERSION = 17  # the oldest that Spark 4 runs on
# The same folders as in scripts/java.sh, which installs a Java if it finds none.
JAVA_FOLDERS = (
    "/usr/lib/jvm/*",
    "/opt/java*",
    "/opt/jdk*",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/current",
)
FILE_MANAGER_SETTING = "spark.sql.streaming.checkpointFileManagerClass"
# Writes the files of a checkpoint through Hadoop's FileSystem.
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
AVRO_DECODER = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"


class SparkStartError(StreamJoinError, RuntimeError):
    """Spark could not be started: no Java, a package that cannot be fetched, a master that does not answer."""


def settings_of(job: Job, master: str) -> dict[str, str]:
    """The settings of a job's session. Those in the job file win."""
    settings = {
        "spark.app.name": job.run.name,
        "spark.master": master,
        **STREAM_SETTINGS,
        # Streams cannot use it; if it is on, Spark only warns that it is ignored.
        "spark.sql.adaptive.enabled": "false",
        # Input times without a zone must mean the same on every machine.
        "spark.sql.session.timeZone": "UTC",
        # Parquet files then mark their times as UTC; with Spark's default, INT96, other readers cannot know.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Spark's progress bar would mix with ours.
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        settings |= LOCAL_SETTINGS | {"spark.ui.enabled": "false"}
        if job.run.checkpoint is None or not is_remote(job.run.checkpoint):
            # Spark's default starts eight programs (readlink) for each file of a local checkpoint, so for each
            # partition of a micro-batch. Both rename a finished file to its place, in one step.
            settings[FILE_MANAGER_SETTING] = FILE_MANAGER
    packages = packages_of(job)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    return settings | job.spark.settings


def packages_of(job: Job) -> tuple[str, ...]:
    """The packages that Spark must fetch: those of the file, and what Kafka and Avro need if it is not given."""
    parts = (*job.left.sources, *job.right.sources, *job.sinks.values())
    needed = [KAFKA_CONNECTOR] if any(each.kind == "kafka" for each in parts) else []
    needed += [AVRO_DECODER] if any(getattr(each, "format", "") == "avro" for each in parts) else []
    given = " ".join([*job.spark.packages, job.spark.settings.get("spark.jars", "")])
    missing = [each for each in needed if each.split(":")[1].partition("_")[0] not in given]
    return (*missing, *job.spark.packages)


def open_session(job: Job, master: str | None, inherited: Sequence[int] = ()) -> SparkSession:
    """A new session for the job; `master` (from the command line) wins over the file's.

    Spark and its workers log to the job's log file. The JVM inherits the file descriptors `inherited`.
    """
    chosen = master or job.spark.master or DEFAULT_MASTER
    check_master(chosen)
    os.environ["JAVA_HOME"] = str(find_java())
    if is_local(chosen):
        # Without it, Spark warns about a host name that resolves to loopback, which is intended here.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The workers need the packages installed here; the first python3 on the PATH may lack them.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for name, value in settings_of(job, chosen).items():
        conf.set(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # They would print every refused expression as JSON with a stack trace, before our one-line message.
        PySparkLogger.getLogger(name).setLevel("CRITICAL")
    log = Path(job.run.log)
    size = begin_log(log)
    logging.basicConfig(filename=log)  # py4j would print stack traces to the terminal
    try:
        with log.open("ab") as errors:
            streams = {"stderr": errors, "pass_fds": inherited}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        with same_interrupts():
            context = SparkContext(gateway=gateway, conf=conf)
        # The query reports in one sentence that the JVM has ended.
        context._accumulatorServer.handle_error = lambda *_: logging.exception("accumulators")  # type: ignore[method-assign]
        spark = SparkSession(context)
        # Every partition costs a commit of its state store per micro-batch: have one per worker, not 200.
        workers = job.join.workers or spark.sparkContext.defaultParallelism
        # Setting any value makes Spark check all settings now and refuse those that it cannot read.
        spark.conf.set(SHUFFLE_PARTITIONS, job.spark.settings.get(SHUFFLE_PARTITIONS, workers))
    except Exception as error:  # errors of py4j and PySpark have no common base
        raise SparkStartError(
            job.without_secrets(start_failure(error, log, size, packages_of(job)))
        ) from error
    return spark


@contextmanager
def same_interrupts() -> Iterator[None]:
    """Restore the handler of Ctrl-C: Spark's own would cancel the jobs of a micro-batch, and raise an exception at any
    point of this process."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def begin_log(log: Path) -> int:
    """Create the log if it is missing; return its size in bytes."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            return file.tell()
    except (OSError, ValueError) as error:
        raise SparkStartError(f"Spark's log (run.log) cannot be written: {error}") from None


def start_failure(error: Exception, log: Path, size: int, packages: tuple[str, ...]) -> str:
    """Why Spark did not start; the first `size` bytes of its log were there before."""
    text = log.read_bytes()[size:].decode(errors="replace")
    if missing := re.findall(r":: (\S+#\S+;\S+): not found", text):
        return (
            f"Spark could not fetch {', '.join(sorted(set(missing)))}, which {', '.join(packages)} needs. Check the "
            f'network, or name others in spark.packages, or give their files in spark.settings "spark.jars" ({log})'
        )
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"Spark did not start: {first_cause(str(error)) or lines[0]}\nits log: {log}"


def find_java(folders: Sequence[str] = JAVA_FOLDERS) -> Path:
    """The home of a Java that is new enough: from JAVA_HOME, the PATH, or the usual folders."""
    on_path = shutil.which("java")
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    homes += [str(Path(on_path).resolve().parents[1])] if on_path else []
    homes += [home for folder in folders for home in sorted(glob.glob(os.path.expanduser(folder)))]
    for home in map(Path, homes):
        if (version := java_version(home)) is not None and version >= JAVA_VERSION:
            return home
    raise SparkStartError(
        f"Spark needs Java {JAVA_VERSION} or newer, and there is none in JAVA_HOME, on the PATH or in the usual "
        "folders. `make java` in the checkout looks for one and installs it if it may. By hand: "
        "sudo apt-get install openjdk-17-jre-headless (Debian, Ubuntu), sudo dnf install java-17-openjdk-headless "
        "(Fedora), brew install openjdk@17 (macOS); or set JAVA_HOME to one you have"
    )


def java_version(home: Path) -> int | None:
    """The major version of the Java at `home`; None if it does not run."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', answer.stderr)
    return int(version[1]) if version else None
