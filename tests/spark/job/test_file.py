"""Job files: what they become, and that every mistake is reported with its key, before Spark starts."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamjoin as sj
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.generated import GeneratorSource, RateSource
from streamjoin.spark.job.kafka_source import KafkaSource, brokers
from streamjoin.spark.job.sink_kinds import SINK_KINDS
from streamjoin.spark.job.sinks import ConsoleSink, FilesSink, KafkaSink, MemorySink, NoopSink
from streamjoin.spark.job.sources import SOURCE_KINDS, FilesSource, SocketSource
from streamjoin.spark.job.toml import JobError

ROOT = Path(__file__).parents[3]
JOIN = '[join]\non = "abs(left.x - right.a) <= 10"\nwindow = "15 minutes"\nlateness = "5 seconds"\n'
SIDES = '[left]\nsource = { kind = "generator" }\n[right]\nsource = { kind = "generator" }\n'
SINK = '[sink]\nkind = "noop"\n'
MINIMAL = JOIN + SIDES + SINK
ALL = ["ts", "x", "y", "z", "ts_right", "a", "b", "c", "d"]  # columns of its result


def read(tmp_path: Path, text: str) -> Job:
    path = tmp_path / "job.toml"
    path.write_text(text)
    return Job.read(path)


def mistakes(tmp_path: Path, text: str) -> dict[str, str]:
    """The complaints about a file, by key."""
    with pytest.raises(JobError) as refused:
        read(tmp_path, text)
    assert str(tmp_path / "job.toml") in str(refused.value)
    found = dict(refused.value.problems)
    assert len(found) == len(refused.value.problems), "a key is told once"
    return found


def test_the_smallest_job_has_defaults_for_the_rest(tmp_path):
    job = read(tmp_path, MINIMAL)
    assert job.join.window == sj.TimeWindow("15 minutes")
    assert (job.join.how, job.join.order, job.join.index, job.join.workers) == ("inner", "any", "auto", None)
    assert job.left.sources == (GeneratorSource(kind="generator"),)
    assert job.left.time == "ts"
    assert isinstance(job.sink, NoopSink)
    assert (job.run.name, job.run.trigger, job.run.checkpoint) == ("job", "asap", None)
    assert job.spark.master is None


def test_a_job_with_everything(tmp_path):
    (tmp_path / "in").mkdir()
    job = read(
        tmp_path,
        """
        [join]
        on = "left.symbol = right.symbol AND left.price BETWEEN right.bid AND right.ask"
        window = { left = "10 minutes", right = 0 }
        how = "left"
        lateness = "10 seconds"
        workers = 4
        order = "timestamp"
        partitioning = "hash"
        index = "hash"
        suffix = "_quote"

        [left]
        time = "at"
        schema = "at TIMESTAMP, symbol STRING, price DECIMAL(10, 2)"
        [[left.source]]
        kind = "files"
        path = "in"
        format = "csv"
        header = true
        malformed = "drop"
        max_files = 5
        options = { sep = ";", recursiveFileLookup = true }
        [[left.source]]
        kind = "kafka"
        servers = ["one:9092", "two:9092"]
        topics = ["trades", "more-trades"]
        starting = "latest"
        max_rows = 1000

        [right]
        [right.source]
        kind = "socket"
        port = 9999
        format = "json"
        schema = "t BIGINT, symbol STRING, bid DECIMAL(10, 2), ask DECIMAL(10, 2)"
        select = ["timestamp_millis(t) AS ts", "symbol", "bid", "ask"]

        [sink]
        kind = "kafka"
        servers = "one:9092"
        topic = "matches"
        key = "symbol"

        [run]
        name = "fills"
        trigger = "10 seconds"
        checkpoint = "state/fills"

        [spark]
        master = "spark://host:7077"
        packages = ["org.example:thing_2.13:1.0"]
        [spark.settings]
        spark.executor.memory = "8g"
        "spark.task.cpus" = 2
        """,
    )
    assert job.join.window == (sj.TimeWindow("10 minutes"), sj.TimeWindow(0))
    files, kafka = job.left.sources
    assert isinstance(files, FilesSource)
    assert (files.path, files.format, files.malformed, files.max_files) == (
        str(tmp_path / "in"),
        "csv",
        "drop",
        5,
    )
    assert files.options == {"sep": ";", "recursiveFileLookup": "true"}
    assert isinstance(kafka, KafkaSource)
    assert (brokers(kafka.servers), kafka.topics) == ("one:9092,two:9092", ("trades", "more-trades"))
    assert isinstance(job.right.sources[0], SocketSource)
    assert job.right.columns is None, "only Spark knows what select gives"
    assert job.spec is None
    assert isinstance(job.sink, KafkaSink)
    assert job.run.checkpoint == str(tmp_path / "state" / "fills")
    assert job.spark.settings == {"spark.executor.memory": "8g", "spark.task.cpus": "2"}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('"250 ms"', sj.TimeWindow("250 ms")),
        ("0", sj.TimeWindow(0)),
        ("{ rows = 9 }", sj.RowWindow(9)),
        ("{ left = { rows = 9 }, right = '1 hour' }", (sj.RowWindow(9), sj.TimeWindow("1 hour"))),
        ("{ lower = '-10 s', upper = '-1 s' }", sj.Interval("-10 s", "-1 s")),
        ("{ lower = 0, upper = '1 s', closed = 'right' }", sj.Interval(0, "1 s", closed="right")),
    ],
)
def test_windows_in_a_file(tmp_path, written, meant):
    job = read(tmp_path, MINIMAL.replace('"15 minutes"', written))
    assert job.join.window == meant


@pytest.mark.parametrize(
    ("written", "key", "says"),
    [
        ('"15 minuts"', "join.window", "is '15 minuts', which is not a duration"),
        ('"-1 s"', "join.window", "cannot be negative"),
        ("15", "join.window", "plain number 15, but the time columns are timestamps"),
        ("true", "join.window", "is true: give a duration"),
        ("{ row = 9 }", "join.window", "{ rows = 1000 }"),
        ("{ rows = -1 }", "join.window", "cannot be negative"),
        ("{ rows = '7' }", "join.window", "is '7': give a whole number of rows"),
        ("{ left = '1 s', right = 'soon' }", "join.window.right", "not a duration"),
        (
            "{ left = '1 s', right = 15 }",
            "join.window.right",
            "plain number 15, but the time columns are timestamps",
        ),
        ("{ left = 15, right = { rows = 9 } }", "join.window.left", "plain number 15, but"),
        ("{ lower = '1 s' }", "join.window.upper", "is missing: give a duration such as '-5 seconds'"),
        ("{ lower = '1 s', upper = true }", "join.window.upper", "is true: give a duration"),
        (
            "{ lower = '1 s', upper = '2 parsecs' }",
            "join.window.upper",
            "is '2 parsecs', which is not a duration",
        ),
        ("{ lower = '1 s', upper = '2 s', close = 'left' }", "join.window.close", "did you mean closed?"),
        (
            "{ lower = '1 s', upper = '2 s', closed = 'lef' }",
            "join.window.closed",
            "is 'lef'; allowed: both, left",
        ),
        (
            "{ lower = '2 s', upper = '1 s' }",
            "join.window",
            "the lower bound is above the upper one: swap them",
        ),
        (
            "{ lower = 1, upper = 2 }",
            "join.window.lower",
            "plain number 1, but the time columns are timestamps",
        ),
    ],
)
def test_windows_that_are_none(tmp_path, written, key, says):
    assert says in mistakes(tmp_path, MINIMAL.replace('"15 minutes"', written))[key]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("'all'", "all"),
        ("{ as_of = 'backward' }", sj.AsOf()),
        ("{ as_of = 'nearest', strict = true }", sj.AsOf("nearest", strict=True)),
        ("{ nearest = 'abs(left.x - right.a)' }", sj.Nearest("abs(left.x - right.a)")),
        ("{ nearest = 'right.a', k = 3, largest = true }", sj.Nearest("right.a", k=3, largest=True)),
    ],
)
def test_what_is_kept_in_a_file(tmp_path, written, meant):
    job = read(tmp_path, MINIMAL.replace("[join]", f"[join]\nkeep = {written}\nright_tie = 'a'"))
    assert (job.join.keep, job.join.right_tie) == (meant, "a")
    assert job.spec is not None and (job.spec.keep, job.spec.right_tie) == (meant, "a")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("['left.x', 'right.a AS b']", (("x", "left.x"), ("b", "right.a"))),
        ("{ b = 'right.a', x = 'x' }", (("b", "right.a"), ("x", "left.x"))),
    ],
)
def test_chosen_columns(tmp_path, written, meant):
    job = read(tmp_path, MINIMAL.replace("[join]", f"[join]\ncolumns = {written}"))
    assert job.spec is not None and job.spec.columns == meant
    task = job.task(1)
    assert task is not None and task.schema.names == [name for name, _ in meant]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("'left.x'", "is 'left.x': give a list of the result's columns such as"),
        ("[1]", "give a list of the result's columns such as"),
        ("[]", "is empty: name at least one column"),
        ("['left.xx']", "'left.xx', which is not a column"),
        ("['x', 'left.x']", "the name 'x' to left.x and to left.x"),
        ("{ a = 'zz' }", "'zz', which is not a column"),
    ],
)
def test_mistakes_in_chosen_columns(tmp_path, written, says):
    assert (
        says in mistakes(tmp_path, MINIMAL.replace("[join]", f"[join]\ncolumns = {written}"))["join.columns"]
    )


@pytest.mark.parametrize(
    ("written", "key", "says"),
    [
        ("'backward'", "join.keep", "is 'backward': write"),
        ("1", "join.keep", "is 1: give the matches of a left row that count"),
        ("{}", "join.keep", "names none of its kinds: give { as_of = ... } or { nearest = ... }"),
        ("{ asof = 'backward' }", "join.keep", "(did you mean as_of?)"),
        ("{ as_of = 'backwards' }", "join.keep.as_of", "is 'backwards': write 'backward'"),
        ("{ as_of = 'backward', strikt = true }", "join.keep.strikt", "did you mean strict?"),
        ("{ as_of = 'backward', strict = 1 }", "join.keep.strict", "is 1: give True or False"),
        ("{ as_of = 'backward', k = 1 }", "join.keep.k", "is an unknown key; allowed: as_of, strict"),
        ("{ nearest = 5 }", "join.keep.nearest", "is 5: give SQL text"),
        ("{ nearest = 'right.a', k = 0 }", "join.keep.k", "is 0: give a whole number from 1 on"),
        ("{ nearest = 'right.zz' }", "join.keep.nearest", "zz"),
        ("{ as_of = 'backward' }\nhow = 'full'", "join.how", "rows are picked for left rows"),
        ("'all'\nright_tie = 'zz'", "join.right_tie", "is 'zz', which is not a column of right"),
    ],
)
def test_what_cannot_be_kept(tmp_path, written, key, says):
    assert says in mistakes(tmp_path, MINIMAL.replace("[join]", f"[join]\nkeep = {written}"))[key]


@pytest.mark.parametrize(
    ("changed", "into", "key", "says"),
    [
        ("[join]", "[joni]", "joni", "did you mean join?"),
        ("[join]", "[join]\nhwo = 'inner'", "join.hwo", "did you mean how?"),
        ("[join]", "[join]\nhow = 'outer'", "join.how", "is 'outer': write 'full'; allowed: inner, left,"),
        ("[join]", "[join]\nhow = 'inne'", "join.how", "is 'inne': write 'inner'; allowed: inner, left,"),
        ("[join]", "[join]\nhow = 'asof'", "join.how", "is 'asof': write keep = { as_of = 'backward' } with how"),
        ("[join]", "[join]\nhow = 1", "join.how", "is 1: give one of inner, left, right, full, semi, anti"),
        ("[join]", "[join]\nindex = 'hsah'", "join.index", "did you mean hash?"),
        ('"5 seconds"', "5", "join.lateness", "plain number 5"),
        ("[join]", "[join]\nindex = 'hash'", "join.index", "needs an equality"),
        ("[join]", "[join]\npartitioning = 'hash'", "join.partitioning", "is 'hash', but the predicate has no"),
        ("[join]", "[join]\nworkers = 0", "join.workers", "is 0; allowed: 1 to"),
        ("[join]", "[join]\nworkers = 65537", "join.workers", "is 65537; allowed: 1 to 65536"),
        ("[join]", "[join]\nworkers = true", "join.workers", "is true: give"),
        ("[join]", "[join]\nworkers = 1.5", "join.workers", "is 1.5: give a whole number"),
        ("[join]", "[join]\nworkers = '2'", "join.workers", "is '2': give"),
        ('"5 seconds"', "'-1 s'", "join.lateness", "negative"),
        ('"5 seconds"', "'late'", "join.lateness", "not a duration"),
        ('"5 seconds"', "'1e9 days 999999999 days'", "join.lateness", "not a duration"),
        ('"5 seconds"', "'999999999999 days'", "join.lateness", "is '999999999999 days', which overflows"),
        ('"15 minutes"', "2026-01-31", "join.window", "is 2026-01-31: give a duration"),
        ("left.x", "left.q", "join.on", "unknown column 'q' of table left"),
        ("left.x", "left.z", "join.on", "^"),
        ('on = "abs(left.x - right.a) <= 10"', "", "join.on", "is missing"),
        ("abs(left.x - right.a) <= 10", " ", "join.on", "is blank"),
        ("[left]", "[left]\ntime = 'tx'", "left.time", "allowed: ts, x, y, z"),
        ("[left]", "[left]\ntime = 'z'", "left.time", "of type STRING; allowed: TIMESTAMP"),
        ("[left]", "[left]\ntime = 'x'", "right.time", "left is int32 and that of right is timestamp"),
        ("[left]\nsource", "[left]\nsources", "left.source", "is missing: give one or more tables, such as { kind"),
        ('"generator" }\n[right]', '"kafak" }\n[right]', "left.source.kind", "did you mean kafka?"),
        ('"generator" }\n[right]', '"generator", seed = -1 }\n[right]', "left.source.seed", "is -1; allowed: 0 to"),
        ('"generator" }\n[right]', '"generator", sede = 2 }\n[right]', "left.source.sede", "did you mean seed?"),
        (SINK, "", "sink", "is missing: give a table [sink]"),
        ('"noop"', '"none"', "sink.kind", "allowed: files, kafka, spark, table, jdbc, console, memory, noop"),
        ('"noop"', '"files"', "sink.path", "is missing"),
        ('"noop"', '"files"', "run.checkpoint", "a files sink needs one"),
        ('"noop"', '"kafka"\nservers = []', "sink.servers", "is empty"),
        ('"noop"', '"kafka"\nservers = 9', "sink.servers", "is 9: give the brokers"),
        ('"noop"', '"kafka"\nservers = ["a:1", "b"]\ntopic = "t"', "sink.servers[1]", "is 'b'; allowed: host:port"),
        ('"noop"', '"kafka"\nservers = "a:1"\ntopic = "t"\nkey = "k"', "sink.key", "allowed: ts, x, y, z, ts_right"),
        ('"noop"', '"files"\npath = "o"\npartition_by = "k"', "sink.partition_by", "not a column of the result"),
        ('"noop"', f'"files"\npath = "o"\npartition_by = {ALL}', "sink.partition_by", "none is left for the files"),
        ('"noop"', '"memory"\ntable = "my results"', "sink.table", "is 'my results'; allowed: a name of letters"),
        (SINK, SINK + "[run]\ntrigger = 'often'", "run.trigger", "is 'often'; allowed: asap, available-now"),
        (SINK, SINK + "[run]\ntrigger = '3 us'", "run.trigger", "at least a millisecond"),
        (SINK, SINK + "[run]\ntrigger = '0 s'", "run.trigger", "allowed: asap, available-now"),
        ('"noop"', '"console"\n[run]\ncheckpoint = "c"', "run.checkpoint", "remove it"),
        (SINK, SINK + "[run]\ncheckpoint = 7", "run.checkpoint", "is 7: give a folder"),
        (SINK, SINK + "[spark]\nmaster = 'locl[2]'", "spark.master", "allowed: local, local[4]"),
        (SINK, SINK + "[spark]\nmaster = 'local[0]'", "spark.master", "allowed: local, local[4]"),
        (SINK, SINK + "[spark]\npackages = ['kafka']", "spark.packages[0]", "group:artifact:version"),
        (SINK, SINK + "[spark.settings]\nmaster = 'x'", "spark.settings.master", "begin with 'spark.'"),
        (SINK, SINK + "[spark.settings]\nspark.master = 'x'", "spark.settings.spark.master", "use spark.master"),
        (SINK, SINK + "[spark.settings]\nspark.x = [1]", "spark.settings.spark.x", "is an array: give text"),
        (SINK, SINK + "[spark]\nsettings = 5", "spark.settings", "is a whole number: give a table"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_key(tmp_path, changed, into, key, says):
    assert changed in MINIMAL
    assert says in mistakes(tmp_path, MINIMAL.replace(changed, into, 1))[key]


@pytest.mark.parametrize(
    ("source", "key", "says"),
    [
        ("kind = 'files'\npath = 'nowhere'\nschema = 'ts TIMESTAMP, x INT'", "path", "which does not exist"),
        ("kind = 'files'\npath = '.'", "schema", "no Parquet file"),
        ("kind = 'files'\npath = 'job.toml'\nschema = 'ts TIMESTAMP, x INT'", "path", "is a file: give its folder"),
        ("kind = 'files'\npath = 's3a://bucket/x'", "schema", "cannot be read before Spark runs"),
        ("kind = 'files'\npath = '.'\nformat = 'xml'\nschema = 'ts TIMESTAMP'", "format", "parquet, json, csv"),
        ("kind = 'files'\npath = '.'\nformat = 'json'", "schema", "json data does not contain it"),
        ("kind = 'files'\npath = '.'\nschema = 'ts TIMSTAMP'", "schema", "unknown type 'timstamp'"),
        ("kind = 'files'\npath = '.'\nformat = 'json'\nschema = 'ts TIMESTAMP'\nheader = true", "header", "with csv"),
        ("kind = 'files'\npath = '.'\nformat = 'json'\nschema = 'ts TIMESTAMP'\nheader = false", "header", "is false"),
        ("kind = 'kafka'\nservers = 'a:1'\nschema = 'ts TIMESTAMP'", "topics", "one of the two"),
        ("kind = 'kafka'\nservers = 'a:1'\ntopics = 't'\npattern = 't'\nschema = 'x INT'", "topics", "so is pattern"),
        ("kind = 'kafka'\ntopics = ['t', 4]\nservers = 'a:1'\nschema = 'ts TIMESTAMP'", "topics[1]", "is 4: give the"),
        ("kind = 'socket'\nport = 70000\nschema = 'ts TIMESTAMP'", "port", "allowed: 1 to 65535"),
        ("kind = 'rate'\nschema = 'ts TIMESTAMP'", "schema", "is an unknown key"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_source_is_told_with_its_key(tmp_path, source, key, says):
    text = MINIMAL.replace('[left]\nsource = { kind = "generator" }', f"[[left.source]]\n{source}")
    assert says in mistakes(tmp_path, text)[f"left.source[0].{key}"]


def test_a_missing_folder_is_one_mistake(tmp_path):
    text = MINIMAL.replace('"generator" }\n[right]', '"files", path = "nowhere" }\n[right]')
    assert set(mistakes(tmp_path, text)) == {"left.source.path"}
    assert set(mistakes(tmp_path, text.replace('"nowhere"', "['nowhere']"))) == {"left.source.path"}


@pytest.mark.parametrize("sink", ["in", "in/out", "./in/../in/out"])
def test_results_and_state_are_not_written_where_a_source_reads(tmp_path, sink):
    (tmp_path / "in" / "day").mkdir(parents=True)
    source = '"files", path = "{}", schema = "ts TIMESTAMP, x INT" }}\n[right]'
    text = MINIMAL.replace('"generator" }\n[right]', source.format("in"))
    files = f'"files"\npath = "{sink}"\n[run]\ncheckpoint = "{sink}/state"'
    told = mistakes(tmp_path, text.replace('"noop"', files))
    assert set(told) == {"sink.path", "run.checkpoint"}
    assert "which the source '" in told["sink.path"]
    # A pattern reads what lies in the folders that it matches.
    other = MINIMAL.replace('"generator" }\n[right]', source.format("in/d*"))
    assert read(tmp_path, other.replace('"noop"', files)).sink.kind == "files"


def test_a_file_is_no_place_for_results(tmp_path):
    (tmp_path / "out").touch()
    told = mistakes(tmp_path, MINIMAL.replace('"noop"', '"files"\npath = "out"\n[run]\ncheckpoint = "out"'))
    assert set(told) == {"sink.path", "run.checkpoint"}
    assert "which is a file: give a folder" in told["sink.path"]
    below = MINIMAL.replace(
        '"noop"', '"files"\npath = "out/a/b"\n[run]\ncheckpoint = "out/c"\nlog = "out/log"'
    )
    told = mistakes(tmp_path, below)
    assert set(told) == {"sink.path", "run.checkpoint", "run.log"}
    assert f"in {str(tmp_path / 'out')!r}, which is a file" in told["run.log"]
    assert f"and {str(tmp_path / 'out')!r} is a file" in told["run.checkpoint"]


def test_a_name_that_the_system_does_not_take_is_told(tmp_path):
    long = "x" * 300
    text = MINIMAL.replace(
        '"noop"', f'"files"\npath = "{long}"\n[run]\ncheckpoint = "{long}/c"\nlog = "{long}/l"'
    )
    told = mistakes(tmp_path, text)
    assert set(told) == {"sink.path", "run.checkpoint", "run.log"}
    assert all("File name too long" in sentence for sentence in told.values())


@pytest.mark.parametrize(
    ("log", "says"), [("logs", "which is a folder: give a file"), ("s3a://b/log", "a file on this machine")]
)
def test_a_log_that_can_not_be_written(tmp_path, log, says):
    (tmp_path / "logs").mkdir()
    assert says in mistakes(tmp_path, MINIMAL + f"[run]\nlog = '{log}'\n")["run.log"]


@pytest.mark.parametrize(
    ("folder", "results"),
    [
        ("both", "both"),
        ("both", "both/out"),
        ("s3a://bucket/both", "s3a://bucket/both"),
        ("/data/both", "file:///data/both"),
        ("file:/data/both", "/data/both/out"),
    ],
)
def test_results_and_state_have_folders_of_their_own(tmp_path, folder, results):
    files = f'"files"\npath = "{results}"\n[run]\ncheckpoint = "{folder}"'
    told = mistakes(tmp_path, MINIMAL.replace('"noop"', files))
    assert set(told) == {"run.checkpoint"}
    assert "give a folder of its own" in told["run.checkpoint"]


@pytest.mark.parametrize(
    ("sink", "key"), [("format = 'csv'", "format"), ("partition_by = 'tags'", "partition_by")]
)
def test_nested_columns_have_no_place_in_csv_and_in_names_of_folders(tmp_path, sink, key):
    (tmp_path / "in").mkdir()
    source = '"files", path = "in", schema = "ts TIMESTAMP, x INT, tags ARRAY<STRING>" }\n[right]'
    text = MINIMAL.replace('"generator" }\n[right]', source)
    told = mistakes(tmp_path, text.replace('"noop"', f'"files"\npath = "o"\n{sink}\n[run]\ncheckpoint = "c"'))
    assert set(told) == {f"sink.{key}"}
    assert "'tags'" in told[f"sink.{key}"]


def test_every_mistake_is_told_at_once(tmp_path):
    text = '[join]\nwindow = "x"\nhow = "outer"\n[left]\n[right]\nsource = {}\n[sink]\nkind = "files"\nformat = "orc"\n'
    assert set(mistakes(tmp_path, text)) == {
        "join.on",
        "join.window",
        "join.lateness",
        "join.how",
        "left.source",
        "right.source.kind",
        "sink.path",
        "sink.format",
        "run.checkpoint",
    }
    text = MINIMAL.replace("right.a", "right.zz").replace("[left]", 'how = "inne"\nindex = "tree"\n[left]')
    assert set(mistakes(tmp_path, text)) == {"join.on", "join.how", "join.index"}


def test_a_mistake_in_a_source_does_not_hide_those_of_its_side(tmp_path):
    wrong = MINIMAL.replace('"generator" }\n[right]', '"generator", seed = -1 }\ntime = "at"\n[right]')
    assert set(mistakes(tmp_path, wrong)) == {"left.source.seed", "left.time"}
    wrong = MINIMAL.replace('"generator" }\n[right]', '"generator", seed = -1 }\n[right]').replace(
        "left.x", "left.q"
    )
    assert set(mistakes(tmp_path, wrong)) == {"left.source.seed", "join.on"}


@pytest.mark.parametrize(
    "source", ['kind = "generator", selct = "ts AS at"', 'kind = "rat", rows_per_second = 0']
)
def test_a_mistake_that_hides_the_columns_is_alone(tmp_path, source):
    """What else is wrong cannot be known: the side may have other columns when it is mended."""
    text = MINIMAL.replace('kind = "generator" }\n[right]', f'{source} }}\ntime = "at"\n[right]').replace(
        "left.x", "left.q"
    )
    assert len(mistakes(tmp_path, text)) == 1


def test_an_empty_file_lacks_its_tables_and_nothing_else_is_said(tmp_path):
    assert set(mistakes(tmp_path, "")) == {"join", "left", "right", "sink"}


def test_a_file_that_is_missing_or_no_toml(tmp_path):
    with pytest.raises(JobError, match="no such file"):
        Job.read(tmp_path / "nothing.toml")
    assert "is not TOML" in mistakes(tmp_path, "[join\n")[""]
    assert read(tmp_path, "\ufeff" + MINIMAL).join.how == "inner", "a byte order mark is no mistake"
    with pytest.raises(JobError, match="cannot be read"):
        Job.read(tmp_path)


def test_sources_of_a_side_must_agree(tmp_path):
    both = "[left]\n[[left.source]]\nkind = 'generator'\n[[left.source]]\nkind = 'rate'"
    text = MINIMAL.replace('[left]\nsource = { kind = "generator" }', both)
    told = mistakes(tmp_path, text)["left.source[1]"]
    assert "timestamp TIMESTAMP, value BIGINT" in told
    assert "x INT" in told
    same = text.replace("kind = 'rate'", "kind = 'generator'\nseed = 2")
    assert len(read(tmp_path, same).left.sources) == 2


def test_a_clash_of_result_columns_is_told(tmp_path):
    clash = (
        JOIN
        + SINK
        + "".join(
            f"[{side}]\n[{side}.source]\nkind = 'kafka'\nservers = 'a:1'\ntopics = 't'\nschema = '{schema}'\n"
            for side, schema in (
                ("left", "ts TIMESTAMP, x INT, ts_right INT"),
                ("right", "ts TIMESTAMP, a INT"),
            )
        )
    )
    assert "choose another suffix" in mistakes(tmp_path, clash)["join.suffix"]
    assert read(tmp_path, clash.replace("[join]", "[join]\nsuffix = '_r'")).spec is not None


def test_columns_that_differ_in_case_alone_are_told(tmp_path):
    kafka = "[{}.source]\nkind = 'kafka'\nservers = 'a:1'\ntopics = 't'\nschema = 'ts TIMESTAMP, {} INT'\n"
    text = JOIN.replace("right.a", "right.X") + SINK + kafka.format("left", "x") + kafka.format("right", "X")
    told = mistakes(tmp_path, text)["join"]
    assert "the result has columns 'x' and 'X', which are one name to Spark" in told
    assert "set spark.sql.caseSensitive to true" in told
    semi = text.replace("[join]", "[join]\nhow = 'semi'")
    assert read(tmp_path, semi).spec is not None
    twice = semi.replace("ts TIMESTAMP, X INT", "ts TIMESTAMP, X INT, x INT")
    assert "right has columns 'X' and 'x', which" in mistakes(tmp_path, twice)["join"]
    told_apart = twice.replace("how = 'semi'", "") + "[spark.settings]\nspark.sql.caseSensitive = true\n"
    spec = read(tmp_path, told_apart).spec
    assert spec is not None and spec.schema.names == ["ts", "x", "ts_right", "X", "x_right"]


def test_parquet_tells_its_columns(tmp_path):
    folder = tmp_path / "in" / "day=1"
    folder.mkdir(parents=True)
    table = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), "x": pa.array([1], pa.int32())})
    pq.write_table(table, folder / "part-0.parquet")
    text = MINIMAL.replace(
        '[left]\nsource = { kind = "generator" }', "[left.source]\nkind = 'files'\npath = 'in'"
    )
    assert read(tmp_path, text).left.columns == parse_ddl("ts TIMESTAMP, x INT")
    (folder / "part-0.parquet").write_bytes(b"PAR1 but not really")
    assert "cannot be read from" in mistakes(tmp_path, text)["left.source.schema"]


@pytest.mark.parametrize(
    ("sink", "made"),
    [
        ("kind = 'console'\nrows = 5", ConsoleSink(kind="console", rows=5)),
        ("kind = 'memory'\ntable = 't'", MemorySink(kind="memory", table="t")),
        ("kind = 'files'\npath = 'hdfs://h/out'\nformat = 'json'\npartition_by = 'x'\n[run]\ncheckpoint = 'hdfs://h/c'",
         FilesSink(kind="files", path="hdfs://h/out", format="json", partition_by=("x",))),
    ],
)  # fmt: skip
def test_sinks(tmp_path, sink, made):
    assert read(tmp_path, MINIMAL.replace('kind = "noop"', sink)).sink == made


def test_rate_names_its_columns(tmp_path):
    text = MINIMAL.replace(
        '"generator" }\n[right]', '"rate", rows_per_second = 7 }\ntime = "timestamp"\n[right]'
    )
    job = read(tmp_path, text.replace("left.x", "left.value"))
    assert job.left.sources[0] == RateSource(kind="rate", rows_per_second=7)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples" / "jobs").glob("*.toml")), ids=lambda path: path.stem
)
def test_example_jobs_are_in_order(tmp_path, path):
    for folder in ("thermal", "radar-north", "radar-south"):
        (tmp_path / folder).mkdir()
    job = read(tmp_path, path.read_text())
    assert job.spec is not None or any(each.select for each in (*job.left.sources, *job.right.sources))


def toml_blocks() -> list[str]:
    page = (ROOT / "docs" / "jobs.md").read_text()
    return re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", toml_blocks())
def test_jobs_of_the_reference_are_in_order(tmp_path, text):
    for side, column in (("left", "x"), ("right", "a")):
        (tmp_path / "in" / side).mkdir(parents=True)
        table = pa.table({"ts": pa.array([0], pa.timestamp("us", "UTC")), column: pa.array([1], pa.int32())})
        pq.write_table(table, tmp_path / "in" / side / "0.parquet")
    assert read(tmp_path, text).run.checkpoint is not None


def test_the_reference_names_every_key_and_nothing_else(tmp_path):
    """The page has all keys of the reader: the error about an unknown key lists them."""
    page = (ROOT / "docs" / "jobs.md").read_text()
    sources = "".join(f"[[left.source]]\nkind = '{kind}'\nzz = 1\n" for kind in SOURCE_KINDS)
    text = f"[join]\nzz = 1\n[left]\nzz = 1\n{sources}[right]\n[run]\nzz = 1\n[spark]\nzz = 1\n"
    for sink in SINK_KINDS:
        told = mistakes(tmp_path, f"{text}[sink]\nkind = '{sink}'\nzz = 1\n")
        lists = [sentence for key, sentence in told.items() if key.endswith(".zz")]
        assert len(lists) == 5 + len(SOURCE_KINDS)
        for key in {key.strip() for sentence in lists for key in sentence.split("allowed: ")[1].split(",")}:
            assert f"`{key}`" in page, key


def test_the_reference_shows_a_refusal_as_it_is(tmp_path):
    text = JOIN + "hwo = 'left'\n" + SIDES.replace("generator", "kafak", 1)
    text += "[sink]\nkind = 'kafka'\nservers = 'a:1'\ntopic = 't'\n"
    page = (ROOT / "docs" / "jobs.md").read_text()
    told = mistakes(tmp_path, text)
    assert len(told) == 3
    for key, sentence in told.items():
        assert f"  {key}: {sentence}\n" in page
