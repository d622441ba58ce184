#!/usr/bin/env bash
# Print the path of a Chromium or Chrome on stdout: found, else installed, else say how (exit 1).
set -euo pipefail

look() {
    local name
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" /Applications/Chromium.app/Contents/MacOS/Chromium; do
        if [ -n "$name" ] && command -v "$name"; then return 0; fi
    done
    return 1
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

install() {
    if command -v apt-get >/dev/null; then
        as_root apt-get update -q && as_root apt-get install -qy --no-install-recommends chromium
    elif command -v dnf >/dev/null; then as_root dnf install -qy chromium
    elif command -v apk >/dev/null; then as_root apk add --quiet chromium
    elif command -v brew >/dev/null; then brew install --quiet --cask chromium
    else return 1; fi
}

look && exit 0
echo "==> no Chromium in CHROMIUM, PATH and the usual folders; trying the package manager" >&2
if install >&2 && look; then exit 0; fi
echo "streamjoin: the tests that open the page in a browser are skipped, as there is no Chromium and it could not be installed here. Install it (Debian: sudo apt-get install chromium; Fedora: sudo dnf install chromium; macOS: brew install --cask chromium), or set CHROMIUM to one you have." >&2
exit 1
