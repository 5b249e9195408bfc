#!/bin/sh
# Builds and fetches the real MCP servers and clients that the tests and the demo use, once per machine and version.
# Usage: build.sh [go|node|conformance|all]    go: the official Go SDK's `everything`; conformance: its server for MCP's conformance suite;
#                                               node: npm's `server-everything`, the TypeScript SDK and the suite
#        build.sh where go|node|conformance    prints where it is kept (the binary; the folder that holds node_modules) and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/mcp-servers

go_version=$(sed -n 's|.*github.com/modelcontextprotocol/go-sdk \(v[0-9.]*\).*|\1|p' "$here/go.mod" | head -n 1)
everything=$cache/$go_version/everything
conformance=$cache/$go_version/conformance-server
pinned() { sed -n "s|.*\"@modelcontextprotocol/$1\": \"\([^\"]*\)\".*|\1|p" "$here/package.json"; }
modules=$cache/npm-sdk-$(pinned sdk)-everything-$(pinned server-everything)-conformance-$(pinned conformance)

need() { # command, what for
    command -v "$1" >/dev/null 2>&1 && return
    echo "missing: $1. It $2; install it and run 'make mcp-servers' again." >&2
    exit 1
}

build_go() { # binary, package of the Go SDK
    [ -x "$1" ] && return
    need go "builds the MCP servers that the tests and the demo run (Go 1.26 or newer)"
    echo "building the Go SDK's $2 $go_version (a few seconds)"
    mkdir -p "$(dirname "$1")"
    partial=$1.$$
    trap 'rm -f "$partial"' EXIT
    (cd "$here" && CGO_ENABLED=0 go build -trimpath -o "$partial" "github.com/modelcontextprotocol/go-sdk/$2")
    mv "$partial" "$1"
}
build_everything() { build_go "$everything" examples/server/everything; }
build_conformance() { build_go "$conformance" conformance/everything-server; }

fetch_node() {
    cmp -s "$here/package-lock.json" "$modules/package-lock.json" && return
    need node "runs the second real MCP server and client (Node.js 20 or newer)"
    need npm "fetches the second real MCP server and client (it comes with Node.js)"
    echo "fetching npm's server-everything, the TypeScript SDK and the conformance suite"
    mkdir -p "$cache"
    partial=$modules.$$
    trap 'rm -rf "$partial"' EXIT
    mkdir "$partial"
    cp "$here/package.json" "$here/.npmrc" "$partial/"
    cp "$here/package-lock.json" "$partial/package-lock.json"
    (cd "$partial" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    rm -rf "$modules"
    # A build that ran at the same time may have put its own, equal folder there: then ours is dropped.
    mv -T "$partial" "$modules" 2>/dev/null || cmp -s "$here/package-lock.json" "$modules/package-lock.json"
}

case ${1:-all} in
go) build_everything ;;
node) fetch_node ;;
conformance) build_conformance ;;
all) build_everything && build_conformance && fetch_node ;;
where)
    case ${2:-} in
    go) echo "$everything" ;;
    conformance) echo "$conformance" ;;
    node) echo "$modules" ;;
    *) echo "usage: build.sh where go|node|conformance" >&2; exit 1 ;;
    esac
    ;;
*) echo "usage: build.sh [go|node|conformance|all] | where go|node|conformance" >&2; exit 1 ;;
esac
