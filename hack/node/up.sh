#!/bin/bash
# Brings up a cluster of one real node on this machine and prints its kubeconfig; says so when it is up already.
# Usage: up.sh            brings it up
#        up.sh --check    only says what is missing for that: root, and packages of the distribution
# It needs root; what it changes is in the message below. All of it is gone after down.sh, and when the node's processes are killed
# only empty cgroups and the folder are left for down.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
if [ "$(id -u)" -ne 0 ]; then
    fail "a node needs root: it makes namespaces (network, mounts, processes), cgroups named '$cgroup', a network link named '$link' with routes
to $pods and $services, and writes to $state. It changes no setting of the kernel and nothing else of the host's, but loads the module
br_netfilter where that is missing; 'make node-down' removes it all but the module. Run
  sudo env PATH=\"\$PATH\" XDG_CACHE_HOME=${XDG_CACHE_HOME:-$HOME/.cache} $0
or, for 'make e2e', put the same before make."
fi
missing=
for program in runc:runc nft:nftables ip:iproute2 unshare:util-linux nsenter:util-linux openssl:openssl; do
    command -v "${program%:*}" >/dev/null || missing="$missing ${program#*:}"
done
[ -z "$missing" ] || fail "missing:$missing. The node runs containers with runc and its kube-proxy writes nftables rules; install: apt-get install$missing"
[ -d /proc/sys/net/bridge ] || modprobe br_netfilter || fail "missing: the kernel's module br_netfilter, without which Services do not reach pods of the same bridge"
[ "${1:-}" != --check ] || exit 0

binaries=$("$here/build.sh" where)
control_plane=$("$here/../control-plane/build.sh" where)
[ -f "$binaries/complete" ] || fail "missing: the node's programs. Run $here/build.sh (it needs no root)"
[ -x "$control_plane/kube-controller-manager" ] || fail "missing: the control plane. Run 'make control-plane' (it needs no root)"

lock
kubectl() { timeout 10 "$binaries/kubectl" --kubeconfig "$state/admin.kubeconfig" "$@"; }
how_to_use() {
    echo
    echo "  export KUBECONFIG=$state/admin.kubeconfig"
    echo "  kubectl is $binaries/kubectl; Services ($services) and pods ($pods) can be called from here"
    echo "  images are loaded with $here/load-image.sh ARCHIVE...; pods name them with imagePullPolicy: Never"
    echo "  'make node-down' ends it"
}
ready() { [ "$(kubectl get node $node -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = True ]; }
dns_ready() { [ "$(kubectl --namespace kube-system get deployment coredns -o 'jsonpath={.status.readyReplicas}')" = 1 ]; }
if [ -n "$(holder)" ] && ready 2>/dev/null && dns_ready 2>/dev/null; then
    echo "the node is up already"
    how_to_use
    exit
fi
if [ -e "$state" ] || [ -d "$(counted)" ]; then
    echo "removing what an earlier node left"
    "$here/remove.sh"
fi

begun=$(date +%s%N)
say() { printf '  %5d ms  %s\n' $((($(date +%s%N) - begun) / 1000000)) "$1"; }
give_up() {
    echo "$*; the last lines of its programs (all of them are in $state/log until 'make node-down'):" >&2
    tail -n 5 "$state"/log/*.log >&2
    exit 1
}
wait_for() { # SECONDS WHAT COMMAND...: until the command succeeds, while the node lives
    local deadline=$((SECONDS + $1)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        kill -0 $! 2>/dev/null || give_up "the node ended while it waited for $what"
        [ $SECONDS -lt $deadline ] || give_up "waited in vain for $what"
        sleep 0.1
    done
    say "$what"
}

echo "bringing up a cluster of one node (about fifteen seconds)"
mkdir --mode 0700 "$state" # Keys are in it.
mkdir "$state"/{pki,log,config,var,run}
for hierarchy in $(hierarchies); do mkdir -p "$hierarchy/$cgroup"; done
mkdir -p "$(counted)/system"
"$here/credentials.sh"
"$here/configuration.sh" "$binaries"

# The shell writes itself down and enters the cgroup before it becomes the holder: there is no moment at which down.sh would miss it.
# shellcheck disable=SC2016 # The inner shell expands these.
setsid sh -c 'echo $$ >"$1" && echo $$ >"$2/system/cgroup.procs" && shift 2 && exec "$@"' - "$state/holder" "$(counted)" \
    unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc "$here/inside.sh" "$binaries" "$control_plane" \
    9<&- >"$state/log/node.log" 2>&1 </dev/null &
namespaced() {
    local holder
    holder=$(holder)
    [ -n "$holder" ] && [ "$(readlink "/proc/$holder/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}
wait_for 10 "its namespaces" namespaced
ip link add $link type veth peer name eth0 netns "$(holder)"
ip address add $host_address/30 dev $link
ip link set $link up
for range in $pods $services; do
    ip route add $range via $node_address dev $link || fail "this machine has a route to $range already; the node cannot use that range"
done

wait_for 90 "the API server" kubectl get --raw /readyz
enforced() { nsenter --target "$(holder)" --net nft list table ip network-policies; }
wait_for 90 "NetworkPolicies are enforced" enforced
wait_for 30 "the container runtime" "$here/load-image.sh" "$binaries/pause.tar" "$binaries/coredns.tar"
kubectl apply --server-side -f "$here/dns.yaml" >/dev/null
wait_for 90 "the node is Ready" ready
wait_for 90 "the DNS server answers" dns_ready
how_to_use
