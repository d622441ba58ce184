#!/usr/bin/env bash
# Pin pyproject.toml for every platform and Python 3.11+: requirements-dev.lock (all extras), and
# requirements.lock, the part of it that running needs (Spark and the page included), at the same versions.
set -euo pipefail
python=${1:-python3}
# An existing pin would be kept; removing the files asks for the newest versions.
rm -f requirements-dev.lock requirements.lock
compile() {
    "$python" -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --custom-compile-command "make lock" --group build pyproject.toml "$@"
}
compile --all-extras -o requirements-dev.lock
compile --extra spark --extra page -c requirements-dev.lock -o requirements.lock
echo "==> wrote requirements-dev.lock and requirements.lock"
