"""Results in a database: a PostgreSQL that the test starts on loopback gets every row once, whatever is killed."""

from __future__ import annotations

import glob
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from job_runs import last_entry, truth, write_job
from streamjoin.spark.job.database import ATTEMPT, DatabaseError, Target, _Database
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.toml import JobError

BINARIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))  # Debian's package postgresql
DRIVERS = [
    os.environ.get("STREAMJOIN_POSTGRES_JAR", ""),
    "/usr/share/java/postgresql.jar",  # Debian's package libpostgresql-jdbc-java
]


class Postgres:
    """A server of its own, in a folder, at a port of loopback. It refuses to run as root."""

    def __init__(self, folder: Path):
        self.folder, self.binaries = folder, Path(BINARIES[-1])
        self.user = "nobody" if os.geteuid() == 0 else None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        folder.mkdir()
        if self.user is not None:
            os.chown(folder, pwd.getpwnam(self.user).pw_uid, -1)
        self.run(
            "initdb",
            "-D",
            str(folder / "data"),
            "-U",
            "joiner",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
        )
        command = [str(self.binaries / "postgres"), "-D", str(folder / "data"), "-p", str(self.port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off"]
        with open(os.devnull, "wb") as nothing:
            self.process = subprocess.Popen(command, user=self.user, cwd="/", stdout=nothing, stderr=nothing)
        self.wait()

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> str:
        command = [str(self.binaries / program), *arguments]
        done = subprocess.run(command, user=self.user, cwd="/", capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sql(self, text: str) -> list[list[str]]:
        """The rows of a statement, as text."""
        server = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "joiner", "-d", "postgres"]
        told = self.run("psql", *server, "-v", "ON_ERROR_STOP=1", "-qAtX", "-F", "|", "-c", text)
        return [line.split("|") for line in told.splitlines()]

    def wait(self) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                self.sql("SELECT 1")
                return
            except AssertionError:
                assert time.monotonic() < end and self.process.poll() is None
                time.sleep(0.2)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # ends at once, with its processes
        self.process.wait()


def driver() -> str:
    found = next((path for path in DRIVERS if path and Path(path).exists()), None)
    if found is None:
        pytest.skip("no JDBC driver: install libpostgresql-jdbc-java, or set STREAMJOIN_POSTGRES_JAR")
    return found


@pytest.fixture
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if not BINARIES:
        pytest.skip("no PostgreSQL: install postgresql")
    driver()
    place = Path(f"/tmp/streamjoin-postgres-{os.getpid()}")  # which another user can reach
    shutil.rmtree(place, ignore_errors=True)
    server = Postgres(place)
    yield server
    server.stop()
    shutil.rmtree(place, ignore_errors=True)


def into(database: Any, more: str = "", late: str = "") -> Callable[[str], str]:
    """Change the job of `job_runs` to one that writes to the database."""

    def change(job: str) -> str:
        sink = f'kind = "jdbc"\nurl = "{database.url}"\noptions = {{ user = "joiner" }}\n'
        text = job.replace('kind = "files"\npath = "out"\n', f'{sink}table = "matched"\n{more}\n')
        text += f'[spark]\nmaster = "local[2]"\n[spark.settings]\n"spark.jars" = "{driver()}"\n'
        return text + (f'[late]\n{sink}table = "{late}"\n' if late else "")

    return change


def start(path: Path) -> subprocess.Popen[bytes]:
    with (path.parent / "log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "streamjoin", "run", str(path)],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(path: Path) -> None:
    process = start(path)
    assert process.wait(500) == 0, (path.parent / "log").read_text()[-3000:]


def pairs(database: Postgres) -> Counter[tuple[str, ...]]:
    return Counter(tuple(row) for row in database.sql("SELECT name, a FROM matched"))


def expected(files: int) -> Counter[tuple[str, ...]]:
    return Counter((str(row[2]), str(row[4])) for row in truth(files).elements())


@pytest.mark.slow
def test_a_database_has_each_row_once_though_a_micro_batch_runs_again(database, tmp_path):
    path = write_job(tmp_path, 3, into(database))
    finish(path)
    assert pairs(database) == expected(3)
    # As if the driver had died between the database's commit and Spark's.
    entry = last_entry(tmp_path / "checkpoint" / "commits")
    for each in (entry, entry.with_name(f".{entry.name}.crc")):
        each.unlink(missing_ok=True)
    finish(path)
    assert pairs(database) == expected(3)
    tables = {row[0] for row in database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert {"matched", "streamjoin_batches"} <= tables
    ((query, target, batch),) = database.sql("SELECT * FROM streamjoin_batches")
    assert query == json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert (target, int(batch)) == ("matched", int(entry.name))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_database_has_each_row_once_though_the_driver_is_killed(database, tmp_path, seed):
    random = Random(seed)
    path = write_job(tmp_path, 4, into(database))
    for _ in range(2):
        process = start(path)
        wanted = random.randrange(1, 4)
        while process.poll() is None and len(list((tmp_path / "checkpoint").glob("offsets/[0-9]*"))) < wanted:
            time.sleep(0.05)
        time.sleep(4 * random.random())
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finish(path)
    assert pairs(database) == expected(4)


@pytest.mark.slow
def test_a_key_replaces_rows_and_late_rows_have_a_table_of_their_own(database, tmp_path):
    database.sql(
        "CREATE TABLE matched (ts timestamptz, x int, name text PRIMARY KEY, ts_right timestamptz, a int)"
    )
    database.sql("INSERT INTO matched (name, x) VALUES ('row 0', -1), ('mine', 5)")
    job = into(database, 'key = "name"', late="late")
    keep = 'keep = { as_of = "nearest" }\nhow = "left"\nwindow ='
    path = write_job(tmp_path, 3, lambda text: job(text).replace("window =", keep))
    finish(path)
    found = {row[0]: row[1] for row in database.sql("SELECT name, x FROM matched")}
    assert found["mine"] == "5" and found["row 0"] == "0"
    assert len(found) > 40  # the last rows wait for nearer ones
    assert database.sql("SELECT count(*) FROM late") == [["0"]]


# Without a database


def test_rows_are_moved_by_one_statement(spark: SparkSession):
    rows = spark.sql("SELECT 1 AS id, 'a' AS `odd\"name`")
    added = _Database(Target("jdbc:postgresql://h/d", "s.t", (), {}), rows)
    assert (
        added.moving("b")
        == f'INSERT INTO s.t ("id", "odd""name") SELECT "id", "odd""name" FROM b WHERE "{ATTEMPT}" = ?'
    )
    replaced = _Database(Target("jdbc:postgresql://h/d", "s.t", ("id",), {}), rows)
    assert replaced.moving("b") == (
        f'MERGE INTO s.t t USING (SELECT "id", "odd""name" FROM b WHERE "{ATTEMPT}" = ?) s ON t."id" = s."id" '
        'WHEN MATCHED THEN UPDATE SET "odd""name" = s."odd""name" WHEN NOT MATCHED THEN INSERT ("id", "odd""name") '
        'VALUES (s."id", s."odd""name")'
    )


def test_rows_of_no_query_are_refused(spark: SparkSession):
    with pytest.raises(DatabaseError, match="by a query alone"):
        Target("jdbc:postgresql://h/d", "t", (), {}).write(spark.sql("SELECT 1 AS id"), 0)


def test_the_driver_follows_from_the_database_unless_it_is_given():
    assert Target("jdbc:postgresql://h/d", "t", (), {}).settings["driver"] == "org.postgresql.Driver"
    assert Target("jdbc:mysql://h/d", "t", (), {"driver": "a.B"}).settings["driver"] == "a.B"
    assert "driver" not in Target("jdbc:other://h/d", "t", (), {}).settings


class Recorded:
    """A connection that remembers statements, and says how many rows each changes."""

    def __init__(self, *changes: int):
        self.changes = list(changes)
        self.statements: list[str] = []

    def prepareStatement(self, text: str) -> Any:
        self.statements.append(text)
        return self

    def setString(self, place: int, value: str) -> None:
        pass

    setLong = setString

    def executeUpdate(self) -> int:
        return self.changes.pop(0)

    def close(self) -> None:
        pass


def test_a_micro_batch_that_loses_rows_on_its_way_fails(spark: SparkSession):
    database = _Database(Target("jdbc:postgresql://h/d", "t", (), {}), spark.sql("SELECT 1 AS id"))
    with pytest.raises(DatabaseError, match="2 of 3 rows of micro-batch 7 came into t"):
        database.move(Recorded(1, 2), "b", "attempt", 7, 3)
    whole = Recorded(1, 3, 0)
    assert database.move(whole, "b", "attempt", 7, 3)
    assert [text.split()[0] for text in whole.statements] == ["UPDATE", "INSERT", "DROP"]


@pytest.mark.parametrize(
    ("sink", "key", "message"),
    [
        ('kind = "jdbc"\nurl = "postgres://h/d"\ntable = "t"', "sink.url", "allowed: a URL such as 'jdbc:"),
        (
            'kind = "jdbc"\nurl = "jdbc:x://h"\ntable = "t"\nkey = "q"',
            "sink.key",
            "not a column of the result",
        ),
        ('kind = "jdbc"\nurl = "jdbc:x://h"', "sink.table", "is missing"),
        ('kind = "spark"', "sink.format", "is missing"),
        (
            'kind = "table"\ntable = "t"\npartition_by = "q"',
            "sink.partition_by",
            "not a column of the result",
        ),
        ('kind = "table"', "sink.table", "is missing"),
    ],
)
def test_mistakes_in_sinks_of_other_systems(tmp_path, sink, key, message):
    path = write_job(tmp_path, 1, lambda text: text.replace('kind = "files"\npath = "out"', sink))
    with pytest.raises(JobError) as refused:
        Job.read(path)
    assert key in str(refused.value) and message in str(refused.value)


def test_results_and_late_rows_cannot_have_one_table(tmp_path):
    sink = 'kind = "jdbc"\nurl = "jdbc:x://h"\ntable = "t"\n'
    change = lambda text: text.replace('kind = "files"\npath = "out"\n', sink) + f"[late]\n{sink}"  # noqa: E731
    with pytest.raises(JobError, match=r"late\.table: is 't', where the results go"):
        Job.read(write_job(tmp_path, 1, change))
