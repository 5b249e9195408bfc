#!/bin/sh
# Builds etcd, kube-apiserver and kube-controller-manager at the versions that go.mod pins (go.sum holds the checksums),
# into ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/control-plane/VERSION, once per machine. Clones share the result.
# Each program is built under a temporary name and renamed, so builds at the same time, or a broken one, do no harm.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kubernetes=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$here/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/control-plane/$kubernetes

missing=
for name in etcd kube-apiserver kube-controller-manager; do
    [ -x "$cache/$name" ] || missing="$missing $name"
done
[ -n "$missing" ] || exit 0

minimum=$(sed -n 's|^go \([0-9]*\.[0-9]*\).*|\1|p' "$here/go.mod")
found=$(go env GOVERSION 2>/dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1) || true
if [ "$(printf '%s\n%s\n' "$minimum" "${found:-0}" | sort -V | head -n 1)" != "$minimum" ]; then
    echo "missing: go $minimum or newer (found: ${found:-none}). It builds the test control plane; install it from your distribution or go.dev." >&2
    exit 1
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/.build-XXXXXX")
build= # the compiler that runs now
tidy() {
    [ -z "$build" ] || kill "$build" 2>/dev/null || true
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
say() { # the same line over and over on a terminal, else a line each
    if [ -t 1 ]; then printf '\r\033[K%s' "$1"; else echo "$1"; fi
}

begun=$(date +%s)
total=$(echo "$missing" | wc -w)
echo "building$missing for Kubernetes $kubernetes, once per machine: about five minutes on two cores, less with a warm Go cache"

number=0
for name in $missing; do
    number=$((number + 1))
    version=k8s.io/component-base/version
    minor=${kubernetes#v*.}
    flags="-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} -X $version.gitTreeState=clean"
    case $name in
    etcd) package=go.etcd.io/etcd/server/v3 rough="half a minute" ;;
    kube-apiserver) package=k8s.io/kubernetes/cmd/$name rough="three minutes" ;;
    *) package=k8s.io/kubernetes/cmd/$name rough="one minute" ;;
    esac
    (cd "$here" && CGO_ENABLED=0 exec go build -trimpath -ldflags "$flags" -o "$work/$name" "$package") >"$work/log" 2>&1 &
    build=$!
    label="  $number of $total: $name (about $rough)"
    say "$label"
    ticks=0
    while kill -0 "$build" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        # A log file gets a line every half minute, a terminal every second.
        if [ -t 1 ] || [ $((ticks % 30)) -eq 0 ]; then say "$label, $(clock $(($(date +%s) - begun))) so far"; fi
    done
    if ! wait "$build"; then
        build=
        echo
        tail -n 40 "$work/log" >&2
        echo "building $name failed: see above. Modules are fetched through GOPROXY ($(go env GOPROXY)); 'make control-plane' tries again and keeps what is done." >&2
        exit 1
    fi
    build=
    mv -f "$work/$name" "$cache/$name"
    say "  $number of $total: $name done, $(clock $(($(date +%s) - begun))) so far"
    if [ -t 1 ]; then echo; fi
done
echo "the control plane is in $cache"
