#!/bin/sh
# Builds the reverse proxy once per state of its sources, outside of the repository.
# Usage: build.sh          builds it unless it is there already
#        build.sh where    prints its path and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
state=$(find . -type f \( -name '*.go' -o -name 'go.*' \) | LC_ALL=C sort | xargs cat | sha256sum | cut -c 1-16)
binary=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/benches/reverse-proxy-$state
if [ "${1:-}" = where ]; then
    echo "$binary"
    exit
fi
[ -x "$binary" ] && exit
if ! command -v go >/dev/null 2>&1; then
    echo "missing: go. It builds the reverse proxy to compare with; install Go 1.26 or newer." >&2
    exit 1
fi
echo "building the reverse proxy to compare with (once; some seconds)"
mkdir -p "$(dirname "$binary")"
partial=$binary.$$
trap 'rm -f "$partial"' EXIT
CGO_ENABLED=0 go build -trimpath -o "$partial" .
mv "$partial" "$binary"
