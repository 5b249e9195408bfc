#!/bin/sh
# Builds the OpenTelemetry Collector that `make release-check` exports to, once per machine and state of the sources.
# Usage: build.sh          builds it (main.go)
#        build.sh where    prints where its binary is kept and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
state=$(cat "$here/main.go" "$here/go.mod" "$here/go.sum" | sha256sum | cut -c 1-16)
collector=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/collector/$state/collector

if [ "${1:-}" = where ]; then
    echo "$collector"
    exit
fi
[ -x "$collector" ] && exit
command -v go >/dev/null 2>&1 || { echo "missing: go. It builds the OpenTelemetry Collector; install Go 1.26 or newer and try again." >&2; exit 1; }
echo "building the OpenTelemetry Collector (about two minutes)"
mkdir -p "$(dirname "$collector")"
# Made under a temporary name and renamed, so builds at the same time, or a broken one, do no harm.
partial=$collector.$$
trap 'rm -f "$partial"' EXIT
(cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$partial" .)
mv "$partial" "$collector"
