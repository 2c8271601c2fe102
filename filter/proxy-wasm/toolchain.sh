#!/bin/sh
# The way to compile for wasm32-unknown-unknown on this machine.
#
#   toolchain.sh install      make sure that there is one; says before it installs anything
#   toolchain.sh cargo ARG…   run cargo for wasm32-unknown-unknown with it
#   toolchain.sh dir          print where that puts what it builds
#   toolchain.sh which        print `rustup` or `debian`
#
# rustup:  the toolchain has the target's standard library, or `rustup target add` can get it.
# debian:  rustup's server can't be reached. Debian's packages rustc-web and rust-web-src bring a
#          compiler with the library's source beside it; cargo builds the library from that
#          (-Zbuild-std, about 45 s once). The compiler must be the one that the source belongs to.
# WASM_TOOLCHAIN=rustup|debian skips the choice.
set -eu

target=wasm32-unknown-unknown
debian_rustc=/usr/bin/rustc
root=$(cd "$(dirname "$0")/../.." && pwd)

say() { echo "wasm toolchain: $*" >&2; }

have_rustup_target() {
    [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]
}

have_debian() {
    [ -x "$debian_rustc" ] &&
        [ -f "$("$debian_rustc" --print sysroot)/lib/rustlib/src/rust/library/Cargo.lock" ]
}

which_toolchain() {
    if [ -n "${WASM_TOOLCHAIN:-}" ]; then
        echo "$WASM_TOOLCHAIN"
    elif have_rustup_target; then
        echo rustup
    elif have_debian; then
        echo debian
    else
        say "none: run 'make setup'"
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

install() {
    if [ -z "${WASM_TOOLCHAIN:-}" ]; then
        if have_rustup_target || have_debian; then return; fi
        if command -v rustup >/dev/null; then
            say "rustup target add $target"
            if timeout 60 rustup target add "$target" >&2 && have_rustup_target; then return; fi
            say "rustup has no $target here"
        fi
    fi
    if [ "${WASM_TOOLCHAIN:-debian}" = debian ] && ! have_debian; then
        if ! command -v apt-get >/dev/null; then
            say "no way to get the target's standard library: run 'rustup target add $target'"
            return 1
        fi
        say "installing Debian's packages rustc-web and rust-web-src (outside this checkout)"
        as_root apt-get update -qq >&2
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends rustc-web rust-web-src >&2
        have_debian || { say "the packages did not bring the library's source"; return 1; }
    fi
}

# No path of this machine goes into the module: panic messages name files.
remap() {
    printf '%s' "--remap-path-prefix=$root=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
}

# Two compilers in one target directory would rebuild everything at each change of hands.
target_dir() {
    toolchain=$(which_toolchain)
    echo "${CARGO_TARGET_DIR:-$root/target}/wasm-build/$toolchain${WASM_VARIANT:-}"
}

run_cargo() {
    toolchain=$(which_toolchain)
    command=$1
    shift
    flags="-Ctarget-feature=+simd128 $(remap)"
    # proptest's tree wants randomness, which the target has not; property tests run natively.
    if [ "$command" = test ]; then flags="$flags --cfg getrandom_backend=\"unsupported\""; fi
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="$flags"
    CARGO_TARGET_DIR=$(target_dir)
    export CARGO_TARGET_DIR
    if [ "$toolchain" = rustup ]; then
        exec cargo "$command" --target "$target" "$@"
    fi
    # rust-lld comes with rustup's toolchain; Debian has it as a package of its own, `lld`.
    host=$(rustc -vV | sed -n 's/^host: //p')
    PATH="$(rustc --print sysroot)/lib/rustlib/$host/bin:$PATH"
    command -v rust-lld >/dev/null ||
        export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld
    parts=std,panic_abort
    if [ "$command" = test ]; then parts=$parts,test; fi
    RUSTC=$debian_rustc RUSTC_BOOTSTRAP=1 \
        exec cargo "$command" -Zbuild-std=$parts --target "$target" "$@"
}

case "${1:-}" in
    install) install ;;
    which) which_toolchain ;;
    dir) dir=$(target_dir) && echo "$dir/$target" ;;
    cargo) shift; run_cargo "$@" ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
