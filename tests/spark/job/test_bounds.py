"""Hostile or broken job files are refused soon, with a message that has no secrets and no control characters."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import streamjoin as sj

pytest.importorskip("pyspark")

from streamjoin.spark.job.checkpoint import CheckpointError, identity, refuse_changes
from streamjoin.spark.job.ddl import parse_ddl
from streamjoin.spark.job.explain import explain_job
from streamjoin.spark.job.file import Job
from streamjoin.spark.job.masters import check_master, local_cores
from streamjoin.spark.job.paths import parquet_files
from streamjoin.spark.job.shown import secrets_in, shown, without_credentials, without_secrets, written_key
from streamjoin.spark.job.sinks import printable
from streamjoin.spark.job.sources import FilesSource
from streamjoin.spark.job.toml import MAX_FILE_BYTES, JobError

JOIN = '[join]\non = "abs(left.x - right.a) <= 10"\nwindow = "15 minutes"\nlateness = "5 seconds"\n'
SIDES = '[left]\nsource = { kind = "generator" }\n[right]\nsource = { kind = "generator" }\n'
SINK = '[sink]\nkind = "noop"\n'
MINIMAL = JOIN + SIDES + SINK
SECRET = "hunter2"
KAFKA = "[left.source]\nkind = 'kafka'\ntopics = 't'\nschema = 'ts TIMESTAMP, x INT'\n"
LEFT = '[left]\nsource = { kind = "generator" }\n'


def read(folder: Path, text: str) -> Job:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return Job.read(path)


# Seconds of processor time. What is bounded here takes about one; without its bound it takes minutes. A busy machine
# slows processors down, too.
SOON = 20


def refused(folder: Path, text: str) -> dict[str, str]:
    """The complaints about a file, by key; found soon."""
    began = time.process_time()
    with pytest.raises(JobError) as error:
        read(folder, text)
    assert time.process_time() - began < SOON
    assert len(str(error.value)) < 10_000
    return dict(error.value.problems)


# Bounds


def test_a_name_of_many_parts_is_refused_at_once(tmp_path):
    """tomllib takes two minutes for it."""
    for name in (".".join("a" * 34), ".".join("a" * 50_000), " . ".join(["'b'"] * 30_000)):
        for text in (f"\n{name} = 1", f"\n[{name}]", f"\n[[{name}]]", f"\nx = {{ {name} = 1 }}"):
            assert "nested more than 32 deep (at line 2)" in refused(tmp_path, text)[""]
    name = ".".join(["spark", *"abcdefghijklmnopqrstuvwxyz"])
    assert read(tmp_path, f"{MINIMAL}[spark.settings]\n{name} = 1\n").spark.settings == {name: "1"}


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ("{ a = ", "}")])
@pytest.mark.parametrize("depth", [40, 200, 20_000])
def test_tables_and_arrays_in_each_other_are_bounded(tmp_path, begin, end, depth):
    told = refused(tmp_path, f"x = {begin * depth}1{end * depth}")
    assert any("nested more than 32 deep" in sentence for sentence in told.values())


@pytest.mark.parametrize("number", ["9" * 4300, "9" * 5000, "-" + "9" * 20, "0x" + "f" * 10_000, str(2**63)])
def test_numbers_are_of_64_bits(tmp_path, number):
    told = refused(tmp_path, MINIMAL.replace("[join]", f"[join]\nworkers = {number}"))
    assert "allowed: 64-bit integers" in (told.get("join.workers") or told[""])


@pytest.mark.parametrize("key", ["window", "lateness"])
def test_durations_are_bounded(tmp_path, key):
    text = MINIMAL.replace('"15 minutes"' if key == "window" else '"5 seconds"', f"'{'9' * 5000} s'")
    assert refused(tmp_path, text) == {f"join.{key}": "has 5,002 characters; allowed: 4,096"}
    text = MINIMAL.replace('"15 minutes"', f"{{ left = '{'9' * 5000} s', right = 0 }}")
    assert refused(tmp_path, text) == {"join.window.left": "has 5,002 characters; allowed: 4,096"}


def test_a_file_has_a_size(tmp_path):
    assert f"more than {MAX_FILE_BYTES:,} bytes" in refused(tmp_path, MINIMAL + "#" * MAX_FILE_BYTES)[""]
    assert read(tmp_path, MINIMAL + "#" * (MAX_FILE_BYTES - len(MINIMAL))).sink.kind == "noop"


def test_many_mistakes_are_counted_and_the_first_told(tmp_path):
    with pytest.raises(JobError, match=r"has 1006 mistakes\n(  .*\n){20}  and 986 more$") as error:
        read(tmp_path, "".join(f"k{at} = 1\n" for at in range(1000)) + "[join]\n[sink]\n")
    assert len(error.value.problems) == 1006


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("x " + "array<" * 50_000, "nested more than 32 deep"),
        ("x " + "array<" * 33 + "int" + ">" * 33, "nested more than 32 deep"),
        ("x " + "struct<a: " * 40_000, "nested more than 32 deep"),
        ("x decimal(" + "9" * 5000 + ")", r"decimal\(999"),
        ("x decimal(٣)", r"decimal\(٣\): write decimal"),
        ("x " * 100_000, "is not a list of columns, at 'x'"),
        ("`" * 100_001, "at a quote that is not closed"),
        (" " * 200_000 + ";", "at ';'"),
        ("x INT, " * 30_000 + "x INT", "declared twice"),
        # As long as a job file can be. sqlglot's own rules for types take five seconds for each.
        ("x array<array<array<array<int>>>>, " * (MAX_FILE_BYTES // 35) + "x INT", "declared twice"),
        ("x map<int,int>, " * (MAX_FILE_BYTES // 16) + "x INT", "declared twice"),
    ],
)
def test_schemas_are_bounded(schema, told):
    began = time.process_time()
    with pytest.raises(sj.SpecError, match=told) as error:
        parse_ddl(schema)
    assert time.process_time() - began < 3  # seconds; the longest of these takes less than one
    assert len(str(error.value)) < 500
    assert parse_ddl("x " + "array<" * 32 + "int" + ">" * 32)


@pytest.mark.parametrize("key", ["path", "checkpoint", "log"])
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("~nosuchuser/x", "is '~nosuchuser/x', but the home folder of that user is unknown"),
        ("[" * 5000, "has 5,000 characters; allowed: 4,096"),
        ("a\\u0000b", r"contains the control character '\x00': remove it"),
    ],
)
def test_paths_that_are_none(tmp_path, key, path, told):
    text = '[sink]\nkind = "files"\npath = "out"\n[run]\ncheckpoint = "c"\nlog = "l"\n'
    keys = {"path": "sink.path", "checkpoint": "run.checkpoint", "log": "run.log"}
    text = "\n".join(f'{key} = "{path}"' if line.startswith(key) else line for line in text.splitlines())
    assert told in refused(tmp_path, JOIN + SIDES + text)[keys[key]]


def test_masters_have_so_many_cores_and_no_more():
    with pytest.raises(sj.SpecError, match=r"master is 'local\[999"):
        check_master(f"local[{'9' * 5000}]")
    check_master("local[999999]")
    assert local_cores("local[999999]") == 999_999


def test_a_large_folder_is_searched_in_part(tmp_path):
    for at in range(9):
        (tmp_path / "in" / f"{at}").mkdir(parents=True)
    (tmp_path / "in" / "8" / "0.parquet").touch()
    assert list(parquet_files(str(tmp_path / "in"), max_folders=3)) == []
    assert list(parquet_files(str(tmp_path / "in"), max_folders=20)) == [tmp_path / "in" / "8" / "0.parquet"]
    text = MINIMAL.replace(LEFT, "[left.source]\nkind = 'files'\npath = 'in'\n")
    assert "cannot be read from" in refused(tmp_path, text)["left.source.schema"]
    (tmp_path / "in" / "8" / "0.parquet").unlink()
    assert "there is no Parquet file in" in refused(tmp_path, text)["left.source.schema"]


def test_many_columns_are_read_soon(tmp_path):
    schema = ", ".join(["ts TIMESTAMP", "x INT", *(f"c{at} INT" for at in range(12_000))])
    source = f"[left.source]\nkind = 'socket'\nport = 1\nschema = '{schema}'\n"
    read(tmp_path, MINIMAL)  # compiles what the predicate needs
    began = time.process_time()
    spec = read(tmp_path, MINIMAL.replace(LEFT, source)).spec
    assert time.process_time() - began < SOON
    assert spec is not None and len(spec.left) == 12_002


# Control characters


@pytest.mark.parametrize(
    "control", [r"\u001b[2J", r"\u0007", r"\u009b31m", r"\u202e", r"\n", r"\r", r"\u0000"]
)
@pytest.mark.parametrize(
    ("text", "key"),
    [
        (MINIMAL + '[run]\nname = "{}"', "run.name"),
        (MINIMAL + '[run]\nlog = "{}"', "run.log"),
        (MINIMAL + '[spark]\nmaster = "spark://{}"', "spark.master"),
        (MINIMAL + '[spark]\npackages = ["a:b:{}"]', "spark.packages[0]"),
        (MINIMAL.replace("[join]", '[join]\nsuffix = "{}"'), "join.suffix"),
        (MINIMAL.replace("[left]", '[left]\ntime = "{}"'), "left.time"),
        (JOIN + SIDES + '[sink]\nkind = "kafka"\nservers = "h{}:1"\ntopic = "t"', "sink.servers"),
        (JOIN + SIDES + '[sink]\nkind = "kafka"\nservers = "h:1"\ntopic = "{}"', "sink.topic"),
        (JOIN + SIDES + '[sink]\nkind = "memory"\ntable = "{}"', "sink.table"),
    ],
)
def test_names_have_no_control_characters(tmp_path, text, key, control):
    told = refused(tmp_path, text.replace("{}", f"x{control}y"))
    assert "control character" in told[key]
    assert all(sentence.isprintable() for sentence in told.values())


def test_expressions_may_have_lines_but_no_other_control_characters(tmp_path):
    lines = MINIMAL.replace('"abs(left.x - right.a) <= 10"', '"""\nabs(left.x\n\t- right.a) <= 10"""')
    assert read(tmp_path, lines).join.on.count("\n") == 1
    assert "control character" in refused(tmp_path, lines.replace("10", r"10 \u001b[2J"))["join.on"]
    schema = '[left.source]\nkind = "socket"\nport = 1\nschema = """ts TIMESTAMP,\n\tx INT"""\n'
    assert read(tmp_path, MINIMAL.replace(LEFT, schema)).left.columns == parse_ddl("ts TIMESTAMP, x INT")


def test_an_option_may_have_any_character(tmp_path):
    (tmp_path / "in").mkdir()
    source = "[left.source]\nkind = 'files'\npath = 'in'\nformat = 'csv'\nschema = 'ts TIMESTAMP, x INT'\n"
    job = read(tmp_path, MINIMAL.replace(LEFT, source + 'options = { sep = "\\u0001" }\n'))
    found = job.left.sources[0]
    assert isinstance(found, FilesSource) and found.options == {"sep": "\x01"}


def test_keys_are_quoted_where_they_must_be(tmp_path):
    with pytest.raises(JobError) as error:
        read(tmp_path, MINIMAL.replace("[join]", r"[join]" + '\n"\\u001b[2J" = 1\n"a b" = 1\n"ключ" = 1'))
    assert set(dict(error.value.problems)) == {'join."\\u001b[2J"', 'join."a b"', "join.ключ"}
    assert written_key("k" * 1000) == "k" * 57 + "..."


def test_no_message_of_the_library_has_control_characters():
    told = str(sj.SpecError("a\x1b[2J\x9b\u202e\x00\tb\nc\ud800"))
    assert told == "a\\x1b[2J\\x9b\\u202e\\x00\tb\nc\\ud800"
    assert "\\x1b[2J" in str(sj.PredicateError("no \x1b[2J", "left.\x1b[2J", 0))


def test_rows_are_printed_without_control_characters(spark):
    rows = spark.sql(
        "SELECT 'a\x1b[2Jb' AS t, array('c\x9bd') AS `n\x07`, 5 AS i, named_struct('k', '\x7f') AS s, "
        "TIMESTAMP '2026-01-01 00:00:00Z' AS ts, CAST(NULL AS STRING) AS z"
    )
    printed = printable(rows)
    assert printed.columns == ["t", "n\u2407", "i", "s", "ts", "z"]
    assert [*printed.collect()[0]][:4] == ["a\u241b[2Jb", "[c\ufffdd]", 5, "{\u2421}"]
    assert printed.schema["ts"] == rows.schema["ts"]


# Secrets


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'a:1'\noptions = {{ 'kafka.ssl.key.password' = ['{SECRET}'] }}\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'a:1'\noptions = 'kafka.ssl.key.password={SECRET}'\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'a:1'\noptions = [{{ password = '{SECRET}' }}]\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'user:{SECRET}@host:9092'\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'user:{SECRET}@host'\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = ['SASL://user:{SECRET}@host:9092', 'b']\n"),
        MINIMAL.replace(LEFT, KAFKA + f"servers = 'a:1'\npassword = '{SECRET}'\n"),
        MINIMAL.replace(LEFT, f"[left]\nsource = [1, {{ kind = 'kafka', options = {{ p = '{SECRET}' }} }}]\n"),
        MINIMAL.replace(LEFT, f"[left]\nsource = [[{{ kind = 'kafka', options = {{ p = '{SECRET}' }} }}]]\n"),
        MINIMAL.replace(LEFT, f"[[left]]\noptions = {{ password = '{SECRET}' }}\n"),
        MINIMAL.replace(LEFT, f"[left.source]\nkind = 'files'\npath = 's3a://key:{SECRET}@bucket/x'\n"),
        MINIMAL.replace(LEFT, f"[left.source]\nkind = 'files'\npath = '/no/where?token={SECRET}'\n"),
        MINIMAL + f"[spark]\nmaster = 'sprak://user:{SECRET}@host:7077'\n",
        MINIMAL + f"[spark]\npackages = ['https://user:{SECRET}@host:1/x.jar']\n",
        MINIMAL + f"[spark]\nsettings = '{SECRET}'\n",
        MINIMAL + f"[spark.settings]\nspark.hadoop.fs.s3a.secret.key = ['{SECRET}']\n",
        MINIMAL + f"[spark.settings]\nsecret = '{SECRET}'\n",
        MINIMAL + f"[run]\nlog = 's3a://key:{SECRET}@bucket/log'\n",
        MINIMAL + f"[run]\ncheckpoint = {{ password = '{SECRET}' }}\n",
    ],
)  # fmt: skip
def test_no_mistake_tells_a_secret(tmp_path, text):
    with pytest.raises(JobError) as error:
        read(tmp_path, text)
    assert SECRET not in str(error.value)
    assert SECRET not in repr(error.value.problems)


STORED = f"""
[sink]
kind = "files"
path = "s3a://key:{SECRET}@bucket/out"
options = {{ password = "a: long-secret!" }}
[run]
checkpoint = "s3a://key:{SECRET}@bucket/checkpoint"
[spark.settings]
spark.hadoop.fs.s3a.secret.key = "other-secret"
spark.sql.shuffle.partitions = 4
"""


def test_what_is_told_and_noted_of_a_job_has_no_credentials(tmp_path):
    job = read(tmp_path, JOIN + SIDES + STORED)
    assert "files s3a://***@bucket/out" in explain_job(job, None)
    assert SECRET not in explain_job(job, None)
    assert identity(job)["sink.path"] == "s3a://***@bucket/out"
    before = identity(job) | {"sink.path": f"s3a://old:{SECRET}@bucket/out"}  # as 0.1.0 noted it
    refuse_changes(job, before, identity(job))
    with pytest.raises(CheckpointError, match=r"sink.path: was s3a://\*\*\*@elsewhere/out, is s3a") as error:
        refuse_changes(job, {"sink.path": f"s3a://k:{SECRET}@elsewhere/out"}, identity(job))
    assert SECRET not in str(error.value)


def test_what_spark_says_is_told_without_the_secrets_of_the_file(tmp_path):
    job = read(tmp_path, JOIN + SIDES + STORED)
    said = f"no login with a: long-secret! and other-secret at s3a://key:{SECRET}@bucket/out, 4 partitions"
    assert job.without_secrets(said) == "no login with *** and *** at s3a://***@bucket/out, 4 partitions"
    login = 'org.apache.kafka.PlainLoginModule required username="me" password="swordfish";'
    assert without_secrets("swordfish", secrets_in([{"kafka.sasl.jaas.config": login}])) == "***"
    assert secrets_in([{"kafka.security.protocol": "SASL_SSL", "a.password": "abc"}]) == set()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("s3a://bucket/a@b", "s3a://bucket/a@b"),
        ("k8s://https://u:p@host:6443", "k8s://https://***@host:6443"),
        ("jdbc:x://h/db?user=me&password=p%20w&x=1", "jdbc:x://h/db?user=me&password=***&x=1"),
        ("u:p@ss@host:1,b:2", "***@host:1,b:2"),
        ("at 12:30, me@example.org", "at 12:30, me@example.org"),
    ],
)
def test_credentials_are_those_of_urls_and_servers(text, told):
    assert without_credentials(text) == told


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        ("x" * 100, "'" + "x" * 56 + "..."),
        (["a", 1, [2], {"b": 3}], "['a', 1, an array, a table]"),
        ({"a": 1, "b c": 2}, 'a table with a, "b c"'),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7]"),
        ("\x1b", "'\\x1b'"),
    ],
)
def test_values_are_shown_shortly(value, text):
    assert shown(value) == text


def test_a_record_is_json_that_other_tools_read(tmp_path):
    job = read(tmp_path, JOIN + SIDES + STORED)
    assert json.loads(json.dumps(identity(job))) == identity(job)
