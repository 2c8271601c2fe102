#!/bin/sh
# Builds the module that Envoy loads and checks it.
#
#   build.sh                   target/wasm/warmroute_filter.wasm
#   build.sh fault-injection   target/wasm/warmroute_filter_faults.wasm: traps on demand, for tests
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$(cd "$here/../.." && pwd)/target}
features=${1:-}
name=warmroute_filter
if [ -n "$features" ]; then
    name=${name}_faults
    # A directory of its own: a cdylib's file has no hash in its name, so two sets of features in
    # one directory rebuild each other's module at every turn.
    export WASM_VARIANT="-$features"
fi

"$here/toolchain.sh" cargo build --release --package warmroute-filter --features "$features"
built=$("$here/toolchain.sh" dir)/release/warmroute_filter.wasm

mkdir -p "$target/wasm"
# In place of a file that an Envoy may be reading, never into it.
cp "$built" "$target/wasm/$name.wasm.new"
mv "$target/wasm/$name.wasm.new" "$target/wasm/$name.wasm"
node "$here/check-module.mjs" "$target/wasm/$name.wasm"
