#!/bin/sh
# Builds and fetches the real MCP servers and clients that the tests and the demo use, once per machine and version.
# Usage: build.sh [go|node|all]      go: the official Go SDK's `everything`; node: npm's `server-everything` and the TypeScript SDK
#        build.sh where go|node      prints where it is kept (the binary; the folder that holds node_modules) and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/mcp-servers

go_version=$(sed -n 's|.*github.com/modelcontextprotocol/go-sdk \(v[0-9.]*\).*|\1|p' "$here/go.mod" | head -n 1)
binary=$cache/$go_version/everything
pinned() { sed -n "s|.*\"@modelcontextprotocol/$1\": \"\([0-9.]*\)\".*|\1|p" "$here/package.json"; }
modules=$cache/npm-sdk-$(pinned sdk)-everything-$(pinned server-everything)

need() { # command, what for
    command -v "$1" >/dev/null 2>&1 && return
    echo "missing: $1. It $2; install it and run 'make mcp-servers' again." >&2
    exit 1
}

build_go() {
    [ -x "$binary" ] && return
    need go "builds the MCP server that the tests and the demo run (Go 1.26 or newer)"
    echo "building the Go SDK's everything server $go_version (a few seconds)"
    mkdir -p "$(dirname "$binary")"
    partial=$binary.$$
    trap 'rm -f "$partial"' EXIT
    (cd "$here" && CGO_ENABLED=0 go build -trimpath -o "$partial" github.com/modelcontextprotocol/go-sdk/examples/server/everything)
    mv "$partial" "$binary"
}

fetch_node() {
    cmp -s "$here/package-lock.json" "$modules/package-lock.json" && return
    need node "runs the second real MCP server and client (Node.js 20 or newer)"
    need npm "fetches the second real MCP server and client (it comes with Node.js)"
    echo "fetching npm's server-everything and the TypeScript SDK"
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
go) build_go ;;
node) fetch_node ;;
all) build_go && fetch_node ;;
where)
    case ${2:-} in
    go) echo "$binary" ;;
    node) echo "$modules" ;;
    *) echo "usage: build.sh where go|node" >&2; exit 1 ;;
    esac
    ;;
*) echo "usage: build.sh [go|node|all] | where go|node" >&2; exit 1 ;;
esac
