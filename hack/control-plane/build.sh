#!/bin/sh
# Builds etcd, kube-apiserver and kube-controller-manager at the versions that go.mod pins (go.sum holds the checksums),
# into ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/control-plane/VERSION, once per machine. Clones share the result.
# Usage: build.sh          builds what is missing
#        build.sh where    prints the folder and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../go-programs.sh"
kubernetes=$(sed -n 's|^[[:space:]]*k8s.io/kubernetes \(v[0-9.]*\).*|\1|p' "$here/go.mod")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/control-plane/$kubernetes
if [ "${1:-}" = where ]; then
    echo "$cache"
    exit
fi
[ -x "$cache/etcd" ] && [ -x "$cache/kube-apiserver" ] && [ -x "$cache/kube-controller-manager" ] && exit

echo "building the control plane of Kubernetes $kubernetes, once per machine: about five minutes on two cores, less with a warm Go cache"
version=$(kubernetes_flags "$kubernetes")
build_programs "$cache" "make control-plane" <<PROGRAMS
etcd $here go.etcd.io/etcd/server/v3 half-a-minute
kube-apiserver $here k8s.io/kubernetes/cmd/kube-apiserver three-minutes $version
kube-controller-manager $here k8s.io/kubernetes/cmd/kube-controller-manager one-minute $version
PROGRAMS
echo "the control plane is in $cache"
