"""The Spark session a job runs in: Java found, settings with a reason each, Spark's log kept out of the terminal."""

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
from typing import TYPE_CHECKING

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamjoin.semantics.errors import SpecError, StreamJoinError
from streamjoin.spark.job.failure import first_cause
from streamjoin.spark.job.shown import shown

if TYPE_CHECKING:
    from streamjoin.spark.job.file import Job

JAVA_VERSION = 17  # the oldest that Spark 4 runs on
# As in scripts/java.sh, which installs one where none is found.
JAVA_FOLDERS = (
    "/usr/lib/jvm/*",
    "/opt/java*",
    "/opt/jdk*",
    "/usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/current",
)
KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PARTITIONS = "spark.sql.shuffle.partitions"
_NUMBER = "[1-9][0-9]{0,5}"
LOCAL = rf"local(?:\[(\*|{_NUMBER})(?:,[0-9]{{1,6}})?\])?|local-cluster\[({_NUMBER}),({_NUMBER}),{_NUMBER}\]"
CLUSTER = r"yarn|(?:spark|k8s)://\S+"
DEFAULT_MASTER = "local[*]"


class SparkStartError(StreamJoinError, RuntimeError):
    """Spark could not be started: no Java, a package that can not be fetched, a master that does not answer."""


def settings_of(job: Job, master: str) -> dict[str, str]:
    """What the session of a job is made with. Settings of the job file win."""
    local = master.startswith("local")
    settings = {
        "spark.app.name": job.run.name,
        "spark.master": master,
        # transformWithState keeps its state in RocksDB; no other provider has the column families it needs.
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        # A micro-batch then writes what changed, and not a snapshot of the whole state.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Every value that is written or removed would be looked up first, to count them; the join counts its rows.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Streams can not use it; on, it only warns that it is switched off.
        "spark.sql.adaptive.enabled": "false",
        # Times without a zone in the input must mean the same on every machine.
        "spark.sql.session.timeZone": "UTC",
        # Files then say that their times are UTC; Spark's default, INT96, tells other readers nothing.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # The line of its progress bar would run through ours.
        "spark.ui.showConsoleProgress": "false",
    }
    if local:
        # The driver is the cluster: nobody has to reach it from outside, and no port is left open.
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        settings["spark.ui.enabled"] = "false"
        # By TCP, Java and a Python process wait 40 ms for each other in every task: one delays its acknowledgement, the
        # other what it sends after it. The folders of a cluster's hosts may be too long for the path of a socket.
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    packages = packages_of(job)
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
    return settings | job.spark.settings


def packages_of(job: Job) -> tuple[str, ...]:
    """The packages Spark has to fetch: those of the file, and the Kafka connector if it is used and not given."""
    kinds = {each.source.kind for side in (job.left, job.right) for each in side.inputs} | {job.sink.kind}
    given = (*job.spark.packages, job.spark.settings.get("spark.jars", ""))
    if "kafka" not in kinds or any("spark-sql-kafka" in name for name in given):
        return job.spark.packages
    return (KAFKA_CONNECTOR, *job.spark.packages)


def check_master(master: str) -> None:
    """Raise unless Spark could know such a master; it would tell so with a stack trace."""
    if not re.fullmatch(f"{LOCAL}|{CLUSTER}", master):
        raise SpecError(
            f"master is {shown(master)}; allowed: local, local[4], local[*], local-cluster[2,1,1024] (workers, cores "
            "and MiB of each), or a cluster's: spark://host:7077, yarn, k8s://https://host:6443"
        )


def cores(master: str) -> int | None:
    """The cores of a local master; None of a cluster, which has as many as it happens to have."""
    match = re.fullmatch(LOCAL, master)
    if match is None:
        return None
    threads, workers, each = match.groups()
    if workers is not None:
        return int(workers) * int(each)
    return (os.cpu_count() or 1) if threads == "*" else int(threads or 1)


def open_session(job: Job, master: str | None, inherited: Sequence[int] = ()) -> SparkSession:
    """A session of its own for the job; `master` (of the command line) wins over the file's.

    Spark's log and that of its workers go to the job's log file. Its JVM gets the descriptors `inherited`.
    """
    chosen = master or job.spark.master or DEFAULT_MASTER
    check_master(chosen)
    os.environ["JAVA_HOME"] = str(find_java())
    if chosen.startswith("local"):
        # Spark warns about a host name that resolves to loopback; loopback is what we want here.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # The workers need what is installed here; the first python3 on the PATH may be another.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for name, value in settings_of(job, chosen).items():
        conf.set(name, value)
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        # They print every refused expression as JSON with a stack trace, before we tell it in a sentence.
        PySparkLogger.getLogger(name).setLevel("CRITICAL")
    log = Path(job.run.log)
    told = begin_log(log)
    logging.basicConfig(filename=log)  # what py4j would tell the terminal, with a stack trace
    try:
        with log.open("ab") as errors:
            streams = {"stderr": errors, "pass_fds": inherited}
            gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        with same_interrupts():
            context = SparkContext(gateway=gateway, conf=conf)
        # A JVM that has ended is told by the query, in a sentence.
        context._accumulatorServer.handle_error = lambda *_: logging.exception("accumulators")  # type: ignore[method-assign]
        spark = SparkSession(context)
        # Each costs a state store's commit in every micro-batch, so there should be as many as workers, not 200.
        workers = job.join.workers or spark.sparkContext.defaultParallelism
        # Whatever is set, Spark looks at all settings now and refuses those that it can not read.
        spark.conf.set(PARTITIONS, job.spark.settings.get(PARTITIONS, workers))
    except Exception as error:  # what py4j and PySpark raise here has no common base
        raise SparkStartError(
            job.without_secrets(start_failure(error, log, told, packages_of(job)))
        ) from error
    return spark


@contextmanager
def same_interrupts() -> Iterator[None]:
    """Ctrl-C means afterwards what it meant before: Spark's own handler would cancel the jobs of a micro-batch, and
    raise an exception wherever this process happens to be."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def begin_log(log: Path) -> int:
    """Make the log if it is not there; how many bytes it has."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as file:
            return file.tell()
    except (OSError, ValueError) as error:
        raise SparkStartError(f"Spark's log (run.log) can not be written: {error}") from None


def start_failure(error: Exception, log: Path, told: int, packages: tuple[str, ...]) -> str:
    """Why Spark did not start; what its log had before is in the first `told` bytes."""
    text = log.read_bytes()[told:].decode(errors="replace")
    if missing := re.findall(r":: (\S+#\S+;\S+): not found", text):
        return (
            f"Spark could not fetch {', '.join(sorted(set(missing)))}, which {', '.join(packages)} needs. Check the "
            f'network, or name others in spark.packages, or give their files in spark.settings "spark.jars" ({log})'
        )
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"Spark did not start: {first_cause(str(error)) or lines[0]}\nits log: {log}"


def find_java() -> Path:
    """The home of a Java that is new enough: JAVA_HOME, the one on the PATH, or one in the usual folders."""
    on_path = shutil.which("java")
    homes = [os.environ["JAVA_HOME"]] if os.environ.get("JAVA_HOME") else []
    homes += [str(Path(on_path).resolve().parents[1])] if on_path else []
    homes += [home for folder in JAVA_FOLDERS for home in sorted(glob.glob(os.path.expanduser(folder)))]
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
        told = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(\d+)', told.stderr)
    return int(version[1]) if version else None
