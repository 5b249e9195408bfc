#!/bin/sh
# Says in its first second what is missing for a make target, and how to get it. Usage: prerequisites.sh TARGET
set -eu
target=${1:-demo}
missing=0

need() { # command, minimum version, its version now, how to get it
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "missing: $1${2:+ ($2 or newer)}. $4" >&2
        missing=1
    elif [ -n "$2" ] && [ -z "$3" ]; then
        echo "'$1 --version' says nothing; is it installed whole? $4" >&2
        missing=1
    elif [ -n "$2" ] && [ "$(printf '%s\n%s\n' "$2" "$3" | sort -V | head -n 1)" != "$2" ]; then
        echo "too old: $1 $3; $2 or newer is needed. $4" >&2
        missing=1
    fi
}
version() { # the first dotted number that a command prints
    "$@" 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1 || true
}

case $target in
control-plane | cert-manager | helm | mcp-servers | identity-providers | aws | node-up) ;;
*)
    need cargo 1.95 "$(version cargo --version)" "Install Rust with rustup; rust-toolchain.toml names the toolchain."
    need cc "" "" "Install a C compiler: on Debian 'apt-get install gcc'."
    ;;
esac
case $target in
demo | test | release-check | bench | control-plane | cert-manager | helm | mcp-servers | identity-providers | node-up | e2e)
    need go 1.26 "$(version go version)" "It builds the control plane and the node, cert-manager, helm, a real MCP server and a real identity provider. Install Go 1.26 from your distribution or go.dev."
    ;;
esac
case $target in
test | release-check | aws)
    need python3 3.10 "$(version python3 --version)" "It runs moto, which stands in for AWS, and the official Python SDK. On Debian 'apt-get install python3-venv'."
    ;;
esac
if [ "$target" = release-check ]; then
    need java "" "" "Its HttpClient is one of the clients that are tried. On Debian 'apt-get install default-jdk-headless'."
fi
case $target in
test | release-check | mcp-servers | identity-providers)
    need node 20 "$(version node --version)" "It runs the second real MCP server and client, and the second identity provider. Install Node.js 20 or newer."
    need npm 10 "$(version npm --version)" "It comes with Node.js."
    ;;
esac
if [ "$target" = test ]; then
    need openssl "" "" "It makes certificates as users do. On Debian 'apt-get install openssl'."
    need git "" "" "It lists the files whose form is checked. On Debian 'apt-get install git'."
    need redis-cli "" "" "It comes with redis-server."
fi
case $target in
test | e2e) need redis-server 7 "$(version redis-server --version)" "Replicas share sessions and limits in it; tests start their own. On Debian 'apt-get install redis-server'." ;;
esac
if [ "$target" = chance ]; then
    need taskset "" "" "It pins tests to one CPU. On Debian 'apt-get install util-linux'."
fi
if [ "$target" = images ]; then
    case $(uname -s)-$(cc -print-file-name=libc.a 2>/dev/null) in
    Linux-/*) ;;
    Linux-*) need libc.a "" "" "Binaries without libraries are linked with it: on Debian 'apt-get install libc6-dev', on Fedora 'dnf install glibc-static'." ;;
    *)
        echo "images are built on Linux, not on $(uname -s): run 'make images' there" >&2
        missing=1
        ;;
    esac
    need git "" "" "The images are named after the commit. On Debian 'apt-get install git'."
    for tool in tar gzip sha256sum readelf; do
        need $tool "" "" "It packs images. On Debian 'apt-get install tar gzip coreutils binutils'."
    done
fi
configured() { # whether there is something that names a cluster, where kubectl looks for it
    files=${KUBECONFIG:-${HOME:-}/.kube/config}
    while [ -n "$files" ]; do
        [ ! -f "${files%%:*}" ] || return 0
        case $files in *:*) files=${files#*:} ;; *) files= ;; esac
    done
    [ -n "${KUBERNETES_SERVICE_HOST:-}" ] && [ -f /var/run/secrets/kubernetes.io/serviceaccount/token ]
}
case $target:${CLUSTER:-own} in
demo:own | demo:current | demo:node) ;;
demo:*)
    echo "CLUSTER=$CLUSTER is none of 'own', a control plane of the demo's own, 'current', your kubeconfig's, and 'node', a real node" >&2
    missing=1
    ;;
esac
if [ "$target" = demo ] && [ "${CLUSTER:-own}" = current ] && ! configured; then
    echo "missing: a cluster. No file at ${KUBECONFIG:-${HOME:-}/.kube/config}; set KUBECONFIG to an administrator's kubeconfig. Or run 'make demo', which needs none." >&2
    missing=1
fi
if [ "$missing" -ne 0 ]; then
    echo "'make $target' stops here: see to what is named above and run it again." >&2
    exit 1
fi
