#!/usr/bin/env bash
# Make the virtual environment $1 and install the lock file $2 and this package (editable) into it.
set -euo pipefail
venv=$1 lock=$2

say()  { echo "==> $*"; }
stop() { echo "streamjoin: $*" >&2; exit 1; }
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || stop "PYTHON=$PYTHON was not found. Give the path of a Python 3.11 or newer."
        new_enough "$PYTHON" || stop "PYTHON=$PYTHON is $("$PYTHON" -V 2>&1), but 3.11 or newer is needed."
        echo "$PYTHON"; return
    fi
    for candidate in python3.14 python3.13 python3.12 python3.11 python3 python; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then echo "$candidate"; return; fi
    done
    found=$(python3 -V 2>/dev/null || echo "no python3")
    stop "Python 3.11 or newer is needed, but there is $found on the PATH. Install it (Debian/Ubuntu: apt-get install python3 python3-venv; Fedora: dnf install python3; macOS: brew install python) or name one: make PYTHON=/path/to/python3.12 ..."
}

if [ ! -x "$venv/bin/python" ] || ! new_enough "$venv/bin/python"; then
    python=$(find_python)
    say "making $venv with $("$python" -V) ($(command -v "$python"))"
    "$python" -m venv --clear "$venv" || {
        rm -rf "$venv"
        stop "$python could not make a virtual environment. On Debian/Ubuntu install the venv module: apt-get install python3-venv"
    }
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check --quiet "$@"; }

say "installing $lock into $venv (a minute or two the first time)"
pip install --require-hashes -r "$lock" ||
    stop "pip could not install $lock (its message is above). Check the network or proxy; PIP_INDEX_URL, PIP_FIND_LINKS and PIP_CERT are respected. Then run make again."
say "installing streamjoin (editable)"
# The build backend is in the lock file: nothing is fetched here.
pip install --no-deps --no-build-isolation -e . ||
    stop "pip could not install the package itself (its message is above)."
