#!/usr/bin/env bash
# Run the core suite (tests/spark/core_suite.py) on other versions of Spark, each in an environment of its own.
#
#   scripts/spark_versions.sh [VERSION...]     # by default the last release of each minor version
#
# Every environment takes a gigabyte in build/spark-VERSION; it is kept, so that the second run is short.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
JAVA_HOME=$(scripts/java.sh)
export JAVA_HOME SPARK_LOCAL_IP=127.0.0.1
for version in "${@:-4.0.5 4.1.4 4.2.1}"; do for each in $version; do
  place=build/spark-$each
  if ! "$place/bin/python" -c "import streamjoin.spark" 2>/dev/null; then
    "$python" -m venv --clear "$place"
    "$place/bin/python" -m pip install --quiet -e ".[spark]" "pyspark[connect]==$each"
  fi
  suite=$(mktemp -d)
  PYSPARK_PYTHON="$PWD/$place/bin/python" "$place/bin/python" tests/spark/core_suite.py "$suite"
  rm -rf "$suite"
done; done
