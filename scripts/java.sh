#!/usr/bin/env bash
# Print the JAVA_HOME of a Java 17 or newer on stdout: found, else installed, else say how (exit 1).
set -euo pipefail

version_of() { # major version of the java at home $1; empty if it does not run
    "$1/bin/java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 || true
}

look() {
    local on_path=""
    if command -v java >/dev/null; then
        on_path=$(dirname "$(dirname "$(readlink -f "$(command -v java)" 2>/dev/null || command -v java)")")
    fi
    local home version
    for home in "${JAVA_HOME:-}" "$on_path" /usr/lib/jvm/* /opt/java* /opt/jdk* /usr/local/opt/openjdk*/libexec/openjdk.jdk/Contents/Home \
        /opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home /Library/Java/JavaVirtualMachines/*/Contents/Home \
        "$HOME"/.sdkman/candidates/java/current; do
        [ -n "$home" ] && [ -x "$home/bin/java" ] || continue
        version=$(version_of "$home")
        if [ -n "$version" ] && [ "$version" -ge 17 ]; then echo "$home"; return 0; fi
    done
    return 1
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }

install() {
    if command -v apt-get >/dev/null; then as_root apt-get update -q && as_root apt-get install -qy openjdk-17-jre-headless
    elif command -v dnf >/dev/null; then as_root dnf install -qy java-17-openjdk-headless
    elif command -v apk >/dev/null; then as_root apk add --quiet openjdk17-jre-headless
    elif command -v brew >/dev/null; then brew install --quiet openjdk@17
    else return 1; fi
}

look && exit 0
echo "==> no Java 17 or newer in JAVA_HOME, PATH and the usual folders; trying the package manager" >&2
if install >&2 && look; then exit 0; fi
echo "streamjoin: Java 17 or newer is needed for Spark, and could not be installed here. Install it (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; Fedora: sudo dnf install java-17-openjdk-headless; macOS: brew install openjdk@17), or set JAVA_HOME to one you have." >&2
exit 1
