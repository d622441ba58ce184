#!/usr/bin/env bash
# Make the virtual environment $1 with the interpreter $2, which has uv, and install this package (editable) with all
# extras into it, each direct dependency at the lowest version that pyproject.toml allows. The tests need Spark's tester of
# stateful processors, which is new in 4.2 and differs from ours before 4.3; scripts/spark_versions.sh tries older versions.
set -euo pipefail
venv=$1 python=$2
echo "==> installing the lowest versions into $venv"
"$python" -m uv venv --quiet --clear --python "$python" "$venv"
"$python" -m uv pip install --quiet --python "$venv/bin/python" --resolution lowest-direct \
    --group build -e ".[dev,spark,page,hardware,bench]" "pyspark>=4.3"
