#!/bin/sh
# Builds and fetches the real MCP servers and clients that the tests and the demo use, once per machine and version.
# Usage: build.sh [go|node|conformance|all]    go: the official Go SDK's `everything`; conformance: its server for MCP's conformance suite;
#                                               node: npm's `server-everything`, the TypeScript SDK and the suite
#        build.sh sdks                         the programs of mcp/runner/tests/sdks, which `make release-check` runs (minutes)
#        build.sh where WHAT                   prints where it is kept and builds nothing; go, conformance: the binary; node: the folder that
#                                               holds node_modules; python, typescript, rust, go-sdk: the folder of that SDK's program
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

sdks=$here/../../mcp/runner/tests/sdks
# Named after its sources: another pin or another program is another folder.
sdk() { # SDK
    sources=$(cd "$sdks/$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-16)
    echo "$cache/sdk-$1-$sources"
}
build_sdk() { # SDK
    folder=$(sdk "$1")
    [ ! -d "$folder" ] || return 0
    echo "building the server and the client of the $1 SDK"
    mkdir -p "$cache"
    partial=$folder.$$
    trap 'rm -rf "$partial"' EXIT
    cp -R "$sdks/$1" "$partial"
    case $1 in
    go) (cd "$partial" && CGO_ENABLED=0 go build -trimpath -o greeter .) ;;
    python)
        python3 -m venv "$partial"
        "$partial/bin/pip" install --quiet --disable-pip-version-check --requirement "$partial/requirements.txt"
        ;;
    rust) # From here, where rust-toolchain.toml holds.
        (cd "$here" && cargo build --locked --quiet --config profile.dev.debug=false --manifest-path "$partial/Cargo.toml" --target-dir "$partial/target")
        mv "$partial/target/debug/greeter" "$partial"
        rm -rf "$partial/target"
        ;;
    typescript) (cd "$partial" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ;;
    esac
    # A build that ran at the same time may have put its own, equal folder there: then ours is dropped.
    mv -T "$partial" "$folder" 2>/dev/null || [ -d "$folder" ]
}

case ${1:-all} in
go) build_everything ;;
node) fetch_node ;;
conformance) build_conformance ;;
all) build_everything && build_conformance && fetch_node ;;
sdks) for name in go python rust typescript; do build_sdk $name; done ;;
where)
    case ${2:-} in
    go) echo "$everything" ;;
    conformance) echo "$conformance" ;;
    node) echo "$modules" ;;
    go-sdk) sdk go ;;
    python | rust | typescript) sdk "$2" ;;
    *) echo "usage: build.sh where go|node|conformance|go-sdk|python|rust|typescript" >&2; exit 1 ;;
    esac
    ;;
*) echo "usage: build.sh [go|node|conformance|all|sdks] | where WHAT" >&2; exit 1 ;;
esac
