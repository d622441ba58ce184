"""A join imports only what its plan uses: other topologies, structures and outcomes do not slow down the start."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamjoin.index.structures import STRUCTURE_CLASSES
from streamjoin.topologies.outcomes.make import OUTCOME_CLASSES
from streamjoin.topologies.registry import TOPOLOGY_CLASSES

JOINED = """
import sys
import pyarrow as pa
import streamjoin as sj

schema = pa.schema({{"ts": pa.int64(), "x": pa.int64()}})
spec = sj.JoinSpec(schema, schema, {on!r}, sj.TimeWindow(10), "ts", "ts", {options})
with sj.open_join(spec, workers=1) as join:
    for side in ("left", "right"):
        join.push(side, [{{"ts": 1, "x": 7}}])
    assert join.finish().num_rows == 1
print("\\n".join(sys.modules))
"""
OPTIONAL = ("amaranth", "duckdb", "polars", "pyspark", "rich", "typer")  # pyarrow imports pandas where it can


def modules_of(registry: dict[str, object]) -> dict[str, str]:
    """The module that each name of a registry imports on first use."""
    values = {name: dict.get(registry, name) for name in registry}
    return {
        name: value.partition(":")[0] if isinstance(value, str) else value.__module__
        for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("on", "options", "used"),
    [
        ("left.x = right.x", "", {"three_step", "hash", "bisort"}),
        ("abs(left.x - right.x) <= 3", "", {"three_step", "bisort"}),
        ("left.x = right.x", "how='left'", {"three_step", "hash", "bisort", "all_matches"}),
        ("left.x = right.x", "keep=sj.AsOf()", {"as_of", "bisort"}),
    ],
    ids=["equality", "band", "left", "as-of"],
)
def test_a_join_imports_only_what_its_plan_uses(on: str, options: str, used: set[str]) -> None:
    source = JOINED.format(on=on, options=options)
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    registered = {
        **modules_of(TOPOLOGY_CLASSES),
        **modules_of(STRUCTURE_CLASSES),
        **modules_of(OUTCOME_CLASSES),
    }
    assert {name for name, module in registered.items() if module in imported} <= used
    parts = {name.split(".")[1] for name in imported if name.startswith("streamjoin.")}
    assert not parts & {"hardware", "spark", "cli"}
    assert not imported & set(OPTIONAL)
