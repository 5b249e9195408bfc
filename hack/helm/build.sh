#!/bin/sh
# Builds helm at the version that go.mod pins (go.sum holds the checksums), into
# ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/helm/VERSION, once per machine. Clones share the result.
# It is built under a temporary name and renamed, so builds at the same time, or a broken one, do no harm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"
module=helm.sh/helm/v4
version=$(sed -n "s|^[[:space:]]*$module \(v[0-9.]*\).*|\1|p" go.mod)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/helm/$version
[ ! -x "$cache/helm" ] || exit 0

if ! command -v go >/dev/null 2>&1; then
    echo "missing: go. It builds the helm that the tests of charts/ run; install Go 1.26 or newer." >&2
    exit 1
fi
echo "building helm $version, once per machine: about three minutes on two cores, less with a warm Go cache"
mkdir -p "$cache"
work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
stamp="-X $module/internal/version.version=$version"
if ! CGO_ENABLED=0 go build -trimpath -ldflags "-s -w $stamp" -o "$work/helm" $module/cmd/helm >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "building helm failed: see above. Modules are fetched through GOPROXY; 'make helm' tries again." >&2
    exit 1
fi
mv -f "$work/helm" "$cache/helm"
echo "helm is in $cache"
