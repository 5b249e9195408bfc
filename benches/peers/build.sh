#!/bin/sh
# Builds a peer to compare with once per state of its sources, outside of the repository.
# Usage: build.sh NAME          builds the one in the folder NAME unless it is there already
#        build.sh NAME where    prints its path and builds nothing
set -eu
name=${1:-}
if [ -z "$name" ] || ! cd "$(dirname "$0")/$name" 2>/dev/null; then
    echo "usage: build.sh controller-runtime|reverse-proxy [where]" >&2
    exit 1
fi
state=$(find . -type f \( -name '*.go' -o -name 'go.*' \) | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-16)
binary=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/benches/$name-$state
if [ "${2:-}" = where ]; then
    echo "$binary"
    exit
fi
[ -x "$binary" ] && exit
if ! command -v go >/dev/null 2>&1; then
    echo "missing: go. It builds $name to compare with; install Go 1.26 or newer." >&2
    exit 1
fi
echo "building $name to compare with (once; seconds to two minutes)"
mkdir -p "$(dirname "$binary")"
partial=$binary.$$
trap 'rm -f "$partial"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$partial" .
mv "$partial" "$binary"
