#!/bin/sh
# Builds the module: target/wasm/bench_floor.wasm.
set -eu

root=$(cd "$(dirname "$0")/../../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
toolchain=$root/filter/proxy-wasm/toolchain.sh

"$toolchain" cargo build --quiet --release --package bench-floor
mkdir -p "$target/wasm"
cp "$("$toolchain" dir)/release/bench_floor.wasm" "$target/wasm/bench_floor.wasm"
