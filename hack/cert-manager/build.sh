#!/bin/sh
# Builds the real cert-manager controllers (main.go) at the version that go.mod pins, and takes the CRDs out of the module,
# into ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/cert-manager/VERSION, once per machine and state of the sources.
# All is made in a temporary folder and renamed, so builds at the same time, or a broken one, do no harm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
module=github.com/cert-manager/cert-manager
version=$(sed -n "s|^[[:space:]]*$module \(v[0-9.]*\).*|\1|p" go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/cert-manager/$version
state=$(cat main.go go.mod go.sum | sha256sum | cut -c 1-16)
[ -x "$cache/cert-manager" ] && [ "$(cat "$cache/state" 2>/dev/null)" = "$state" ] && exit 0

if ! command -v go >/dev/null 2>&1; then
    echo "missing: go. It builds the cert-manager that the tests run; install Go 1.26 or newer." >&2
    exit 1
fi
echo "building cert-manager $version, once per machine: about three minutes on two cores, less with a warm Go cache"
mkdir -p "$cache"
work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$work/cert-manager" . >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "building cert-manager failed: see above. Modules are fetched through GOPROXY; 'make cert-manager' tries again." >&2
    exit 1
fi
mkdir -p "$cache/crds"
for crd in certificaterequests certificates clusterissuers issuers; do
    cp "$(go list -m -f '{{.Dir}}' $module)/deploy/crds/cert-manager.io_$crd.yaml" "$work/$crd.yaml"
    chmod u+w "$work/$crd.yaml"
    mv -f "$work/$crd.yaml" "$cache/crds/$crd.yaml"
done
mv -f "$work/cert-manager" "$cache/cert-manager"
echo "$state" >"$work/state"
mv -f "$work/state" "$cache/state"
echo "cert-manager is in $cache"
