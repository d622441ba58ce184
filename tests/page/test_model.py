"""Rows as text for a page: safe to show, short, and without the memory of their batch."""

from __future__ import annotations

import pyarrow as pa

from streamjoin.page.model import LAST_ROWS, LONGEST_CELL, cell_text, rows_as_text


def test_values_of_every_kind_become_text():
    batch = pa.record_batch(
        {
            "ns": pa.array([1, None], pa.timestamp("ns")),
            "float": pa.array([0.1, 2.5], pa.float32()),
            "list": pa.array([[1, 2], None], pa.list_(pa.int64())),
            "nested": pa.array([[1], [None]], pa.list_(pa.timestamp("ns"))),
            "binary": pa.array([b"\x00a", None], pa.binary()),
            "far": pa.array([2**62, 0], pa.timestamp("s")),
            "length": pa.array([1, None], pa.duration("ns")),
        }
    )
    first, second = rows_as_text(batch)
    assert first[:3] == ["1970-01-01 00:00:00.000000001", "0.1", "[1, 2]"]
    assert "000000001" in str(first[3]) and first[4] == "b'\\x00a'" and first[5] and first[6]
    assert second[0] is None and second[2] is None and second[4] is None


def test_only_the_last_rows_are_taken():
    batch = pa.record_batch({"x": range(100)})
    assert rows_as_text(batch) == [[str(number)] for number in range(100 - LAST_ROWS, 100)]
    assert rows_as_text(batch, 2) == [["98"], ["99"]]
    assert rows_as_text(batch.slice(0, 0)) == []


def test_a_cell_has_no_control_characters_and_is_cut():
    assert cell_text("a\x1b[31mb\n\u202ec") == "a\ufffd[31mb\ufffd\ufffdc"
    assert cell_text("\ud800") == "\ufffd"
    long = cell_text("x" * 1_000_000)
    assert len(long) == LONGEST_CELL and long.endswith("…")
