#!/bin/sh
# Runs the unit tests of the crates in the module, compiled to wasm32, under Node: the same tests
# where `usize` has 32 bits and there is no clock and no randomness.
#
#   test.sh install   build the runner that fits Cargo.lock into .tools (a minute, once)
#   test.sh           run them
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
runner=$root/.tools/bin/wasm-bindgen-test-runner

# The runner refuses test modules that another version of wasm-bindgen made.
locked=$(sed -n '/^name = "wasm-bindgen"$/{n;s/^version = "\(.*\)"$/\1/p;}' "$root/Cargo.lock")

runner_fits() {
    [ -x "$runner" ] && [ "$("$runner" --version 2>/dev/null)" = "wasm-bindgen-test-runner $locked" ]
}

if [ "${1:-}" = install ]; then
    runner_fits && exit
    echo "wasm tests: building wasm-bindgen-test-runner $locked into .tools (a minute, once)" >&2
    # Unoptimised: a third of the time to build, and only 4 s slower at each run.
    # Without --locked: the package's own lock file did not resolve when this was written.
    CARGO_PROFILE_DEV_DEBUG=false CARGO_TARGET_DIR="$root/.tools/build" \
        cargo install --debug --quiet --root "$root/.tools" \
        --bin wasm-bindgen-test-runner --version "=$locked" wasm-bindgen-cli
    rm -rf "$root/.tools/build"
    exit
fi

runner_fits || { echo "wasm tests: no runner for wasm-bindgen $locked: run 'make setup'" >&2; exit 1; }
# --lib: documentation tests would call rustup's rustdoc, which may not be the compiler's own.
CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=$runner exec "$here/toolchain.sh" cargo test --lib \
    --package warmroute-core --package warmroute-shared-state "$@"
