#!/bin/sh
# What the filter does for each request, part by part.
#
#   count.sh test    hold each case to its budget of fuel: instructions as an interpreter counts them
#   count.sh time    time each case natively, and in V8 with the flags of Envoy's
set -eu

here=$(cd "$(dirname "$0")" && pwd)
toolchain=$here/../../filter/proxy-wasm/toolchain.sh

"$toolchain" cargo build --quiet --release --package hot-paths --lib
HOT_PATHS_WASM=$("$toolchain" dir)/release/hot_paths.wasm
export HOT_PATHS_WASM

case "${1:-}" in
    test)
        exec cargo test --quiet --profile native --package hot-paths --features budgets --test budgets -- --nocapture
        ;;
    time)
        cargo run --quiet --profile native --package hot-paths
        exec node --no-liftoff --no-wasm-lazy-compilation "$here/v8.mjs" "$HOT_PATHS_WASM"
        ;;
    *) sed -n '2,5p' "$0" >&2; exit 2 ;;
esac
