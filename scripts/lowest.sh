#!/usr/bin/env bash
# Make the virtual environment $1 with the interpreter $2, which has uv, and install this package (editable) with all
# extras into it, each direct dependency at the lowest version that pyproject.toml allows.
set -euo pipefail
venv=$1 python=$2
echo "==> installing the lowest versions into $venv"
"$python" -m uv venv --quiet --clear --python "$python" "$venv"
"$python" -m uv pip install --quiet --python "$venv/bin/python" --resolution lowest-direct \
    --group build -e ".[dev,spark,page,hardware,bench]"
