"""Sinks of any format and of the catalog's tables, written by real queries."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from job_runs import counted, run_to_the_end, truth, write_job


@pytest.mark.xdist_group("spark")
def test_a_format_by_its_name(spark, tmp_path):
    sink = 'kind = "spark"\nformat = "orc"\npath = "lake"\npartition_by = "x"\noptions = { compression = "zstd" }'
    path = write_job(tmp_path, 2, lambda text: text.replace('kind = "files"\npath = "out"', sink))
    run_to_the_end(spark, path)
    names = ["ts", "x", "name", "ts_right", "a"]
    assert counted(spark.read.orc(str(tmp_path / "lake")).select(names).toArrow().to_pylist()) == truth(2)
    assert list((tmp_path / "lake").glob("x=*"))


@pytest.mark.xdist_group("spark")
def test_a_table_of_the_catalog(spark, tmp_path):
    sink = 'kind = "table"\ntable = "matched_rows"\nformat = "parquet"'
    path = write_job(tmp_path, 2, lambda text: text.replace('kind = "files"\npath = "out"', sink))
    try:
        run_to_the_end(spark, path)
        assert counted(spark.table("matched_rows").toArrow().to_pylist()) == truth(2)
    finally:
        spark.sql("DROP TABLE IF EXISTS matched_rows")
