#!/bin/sh
# Builds the programs of the node (kubelet, container runtime, network plugins, DNS server and so on) at the versions that the go.mod files pin,
# and the two images that the node itself needs, into ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/node/STATE, once per machine and state of the pins.
# Usage: build.sh          builds what is missing; needs no root
#        build.sh where    prints the folder and builds nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../go-programs.sh"
pins=$here/../control-plane # One pin of Kubernetes for all of its programs.
state=$(cat "$pins/go.mod" "$pins/go.sum" "$here"/*/go.mod "$here"/*/go.sum "$here"/*/*.go "$here/build.sh" | sha256sum | cut -c 1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/node/$state
if [ "${1:-}" = where ]; then
    echo "$cache"
    exit
fi
[ -f "$cache/complete" ] && exit

echo "building the node's programs, once per machine: about fifteen minutes on two cores, less with a warm Go cache"
pinned() { sed -n "s|^.*$1 \(v[0-9.]*\).*|\1|p" "$2/go.mod" | head -n 1; }
version=$(kubernetes_flags "$(pinned k8s.io/kubernetes "$pins")")
containerd=github.com/containerd/containerd/v2
plugins=github.com/containernetworking/plugins/plugins
build_programs "$cache" "hack/node/build.sh" <<PROGRAMS
containerd $here/runtime $containerd/cmd/containerd two-minutes -X $containerd/version.Version=$(pinned "$containerd" "$here/runtime")
containerd-shim-runc-v2 $here/runtime $containerd/cmd/containerd-shim-runc-v2 a-few-seconds
ctr $here/runtime $containerd/cmd/ctr a-few-seconds
cni/bridge $here/runtime $plugins/main/bridge a-few-seconds
cni/loopback $here/runtime $plugins/main/loopback a-few-seconds
cni/host-local $here/runtime $plugins/ipam/host-local a-few-seconds
kubelet $pins k8s.io/kubernetes/cmd/kubelet three-minutes $version
kube-proxy $pins k8s.io/kubernetes/cmd/kube-proxy half-a-minute $version
kube-scheduler $pins k8s.io/kubernetes/cmd/kube-scheduler half-a-minute $version
kubectl $pins k8s.io/kubernetes/cmd/kubectl one-minute $version
coredns $here/coredns . two-minutes
network-policies $here/policies . a-few-seconds
pause $here/pause . a-few-seconds
PROGRAMS
"$here/../images/pack.sh" localhost/portcullis/pause:1 "$cache/pause.tar" "$cache/pause"
"$here/../images/pack.sh" localhost/portcullis/coredns:1 "$cache/coredns.tar" "$cache/coredns"
touch "$cache/complete"
echo "the node's programs are in $cache"
