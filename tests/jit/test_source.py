"""The cache of generated source: hits in a fresh process, survives concurrent writers, damage and a missing folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import pytest

from streamjoin.jit import source
from streamjoin.jit.source import StreamJoinWarning

DOUBLE = """
from streamjoin.jit.decorator import inner, jit

@inner
def twice(x):
    return x + x

@jit
def double(x):
    return twice(x) + {offset}
"""

# Loads DOUBLE in a process of its own and says what came of it.
PROBE = """
import json, sys, warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from streamjoin.jit import source
    module = source.load(sys.argv[1], "double")
    again = source.load(sys.argv[1], "double")
    result = module.double(21)
print(json.dumps({
    "result": result,
    "same": module is again,
    "hits": sum(module.double.stats.cache_hits.values()),
    "misses": sum(module.double.stats.cache_misses.values()),
    "file": module.__file__,
    "warnings": [str(w.message) for w in caught if w.category.__name__ == "StreamJoinWarning"],
}))
"""


def start(folder: Path, text: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "STREAMJOIN_CACHE_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", PROBE, text], env=environment, stdout=subprocess.PIPE, text=True
    )


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output)
    return found


def file_of(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


def load_in_fresh_process(folder: Path, offset: int = 0) -> dict[str, Any]:
    return outcome(start(folder, DOUBLE.format(offset=offset)))


def test_a_fresh_process_hits_and_damage_is_repaired(tmp_path):
    text = DOUBLE.format(offset=0)
    first = load_in_fresh_process(tmp_path)
    assert (first["result"], first["same"], first["hits"], first["misses"]) == (42, True, 0, 1)
    second = load_in_fresh_process(tmp_path)
    assert (second["result"], second["hits"], second["misses"]) == (42, 1, 0)

    Path(first["file"]).write_text(text.replace("x + x", "x - x"))  # edited source
    for compiled in tmp_path.rglob("double*.nbc"):  # truncated code
        compiled.write_bytes(compiled.read_bytes()[:-100])
    repaired = load_in_fresh_process(tmp_path)
    assert (repaired["result"], repaired["hits"], repaired["misses"]) == (42, 0, 1)
    assert Path(first["file"]).read_text() == text
    assert load_in_fresh_process(tmp_path)["hits"] == 1


def test_processes_that_write_at_once_all_get_it_right(tmp_path):
    text = DOUBLE.format(offset=1)
    outcomes = [outcome(process) for process in [start(tmp_path, text) for _ in range(3)]]
    assert [found["result"] for found in outcomes] == [43, 43, 43]
    assert len({found["file"] for found in outcomes}) == 1
    files = {path.suffix for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"}
    assert files == {".py", ".nbc"}, "nothing half written"
    assert load_in_fresh_process(tmp_path, offset=1)["hits"] == 1


def test_without_a_usable_folder_there_is_one_warning_and_a_right_result(tmp_path):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    found = load_in_fresh_process(in_the_way / "cache")
    assert (found["result"], found["hits"]) == (42, 0)
    assert len(found["warnings"]) == 1 and "STREAMJOIN_CACHE_DIR" in found["warnings"][0]


def test_another_fingerprint_gives_another_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    text = "VALUE = 'another fingerprint'"
    first = source.load(text, "value")
    monkeypatch.setattr(source, "fingerprint", lambda: "another Numba")
    second = source.load(text, "value")
    assert file_of(first) != file_of(second)
    assert file_of(first).read_text() == file_of(second).read_text() == text


def test_the_fingerprint_knows_versions_cpu_settings_and_kernel_sources(monkeypatch):
    def fresh() -> str:
        source.fingerprint.cache_clear()
        return source.fingerprint()

    found = {fresh()}
    monkeypatch.setattr(numba, "__version__", "0.0")
    found.add(fresh())
    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_name", lambda: "another")
    found.add(fresh())
    monkeypatch.setattr(numba.config, "LOOP_VECTORIZE", "another")
    found.add(fresh())
    monkeypatch.setattr(Path, "read_bytes", lambda self: b"edited")
    found.add(fresh())
    monkeypatch.undo()
    source.fingerprint.cache_clear()
    assert len(found) == 5


def test_threads_share_one_module(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    text, loaded = "import numpy as np\nVALUE = np.arange(3)", []
    threads = [threading.Thread(target=lambda: loaded.append(source.load(text, "shared"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(module) for module in loaded}) == 1 and len(loaded) == 8
    assert np.array_equal(loaded[0].VALUE, [0, 1, 2])
    assert sys.modules[loaded[0].__name__] is loaded[0]


def test_source_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        source.load("1 / 0", "failing")
    assert not [name for name in set(sys.modules) - before if "failing" in name]
    with pytest.raises(ValueError, match="not 'a b'"):
        source.load("", "a b")


def test_clear_empties_the_folder_and_old_files_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(source, "MAX_FILES", 4)
    files = []
    for number in range(5):
        files.append(file_of(source.load(f"VALUE = {number}", "counted")))
        os.utime(files[-1], (number, number))
    assert [file.exists() for file in files] == [False, False, False, True, True]
    source.clear()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["key"]


def test_the_default_folder_is_in_the_users_cache(monkeypatch):
    monkeypatch.delenv("STREAMJOIN_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert source.folder() == Path(f"/somewhere/streamjoin/kernels-{os.geteuid()}")


def test_an_unusable_folder_warns_in_this_process(tmp_path, monkeypatch):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv("STREAMJOIN_CACHE_DIR", str(in_the_way / "cache"))
    with pytest.warns(StreamJoinWarning, match="no cache of compiled kernels.*Not a directory"):
        module = source.load("def f():\n    raise KeyError('here')", "unsaved")
    with pytest.raises(KeyError) as caught:
        module.f()
    assert "raise KeyError('here')" in str(caught.traceback[-1])
