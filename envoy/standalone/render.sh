#!/bin/sh
# Prints envoy.yaml with each ${NAME} replaced by the environment's NAME, which must be set (if only
# to nothing). Plain replacement of exactly these words, so that any language does it in a line.
#
#   WARMROUTE_WASM=… LISTEN_PORT=8080 … render.sh > envoy.yaml && envoy -c envoy.yaml
set -eu

awk '
# The comments at the head of the file explain the names: they stay as they are.
/^#/ { print; next }
{
    out = ""
    while (match($0, /\$\{[A-Z_]+\}/)) {
        name = substr($0, RSTART + 2, RLENGTH - 3)
        if (!(name in ENVIRON)) {
            print "render.sh: " name " is not set; see the head of envoy.yaml" > "/dev/stderr"
            exit 1
        }
        out = out substr($0, 1, RSTART - 1) ENVIRON[name]
        $0 = substr($0, RSTART + RLENGTH)
    }
    print out $0
}' "$(dirname "$0")/envoy.yaml"
