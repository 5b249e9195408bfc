#!/bin/sh
# Builds and fetches the real identity providers that the tests and the demo use, once per machine and state of the sources.
# Usage: build.sh [go|node|all]    go: the example provider of Zitadel's library (main.go); node: npm's oidc-provider, which provider.mjs runs
#        build.sh where go|node    prints where it is kept (the binary; the folder that holds node_modules) and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/identity-providers

go_state=$(cat "$here/main.go" "$here/go.mod" "$here/go.sum" | sha256sum | cut -c 1-16)
zitadel=$cache/zitadel-$go_state/zitadel
node_state=$(sha256sum <"$here/package-lock.json" | cut -c 1-16)
modules=$cache/npm-$node_state

need() { # command, what for
    command -v "$1" >/dev/null 2>&1 && return
    echo "missing: $1. It $2; install it and run 'make identity-providers' again." >&2
    exit 1
}

# Made under a temporary name and renamed, so builds at the same time, or a broken one, do no harm.
build_go() {
    [ -x "$zitadel" ] && return
    need go "builds the identity provider that the tests and the demo run (Go 1.26 or newer)"
    echo "building Zitadel's example identity provider (half a minute)"
    mkdir -p "$(dirname "$zitadel")"
    partial=$zitadel.$$
    trap 'rm -f "$partial"' EXIT
    (cd "$here" && CGO_ENABLED=0 go build -trimpath -o "$partial" .)
    mv "$partial" "$zitadel"
}

fetch_node() {
    [ -d "$modules" ] && return
    need node "runs the second identity provider of the tests (Node.js 20 or newer)"
    need npm "fetches the second identity provider of the tests (it comes with Node.js)"
    echo "fetching npm's oidc-provider"
    mkdir -p "$cache"
    partial=$modules.$$
    trap 'rm -rf "$partial"' EXIT
    mkdir "$partial"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$partial/"
    (cd "$partial" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error)
    # Whoever came first has put an equal folder there: then ours is dropped.
    mv -T "$partial" "$modules" 2>/dev/null || [ -d "$modules" ]
}

case ${1:-all} in
go) build_go ;;
node) fetch_node ;;
all) build_go && fetch_node ;;
where)
    case ${2:-} in
    go) echo "$zitadel" ;;
    node) echo "$modules" ;;
    *) echo "usage: build.sh where go|node" >&2; exit 1 ;;
    esac
    ;;
*) echo "usage: build.sh [go|node|all] | where go|node" >&2; exit 1 ;;
esac
