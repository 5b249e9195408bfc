#!/bin/sh
# Records what ToolHive's own code decides of the vectors in mcp/authz/tests/vectors (main.go), as mcp/authz/tests/toolhive.json.
# Usage: run.sh            records it
#        run.sh --check    fails where it differs from what is recorded
# The first run compiles ToolHive (minutes); Go fetches the toolchain that go.mod names through the module proxy.
set -eu
export LC_ALL=C GOTOOLCHAIN=auto CGO_ENABLED=0
cd "$(dirname "$0")"
tests=$PWD/../../mcp/authz/tests
command -v go >/dev/null 2>&1 || { echo "missing: go. It builds the ToolHive that is asked; install Go 1.26 or newer and try again." >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go run . "$tests"/vectors/*.json >"$work/toolhive.json"
if [ "${1:-}" != --check ]; then
    cp "$work/toolhive.json" "$tests/toolhive.json"
elif ! diff -u "$tests/toolhive.json" "$work/toolhive.json"; then
    echo "ToolHive decides otherwise than mcp/authz/tests/toolhive.json says: a line is a case of tests/vectors. 'hack/cedar-vectors/run.sh' records anew." >&2
    exit 1
fi
