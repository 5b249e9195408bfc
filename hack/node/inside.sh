#!/bin/bash
# The first process of the node, in namespaces of its own: sets up its file system and network, runs its programs, and ends when one of
# them ends; with it the kernel ends all others, containers too. Started by up.sh.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
binaries=$1 control_plane=$2
export PATH=$binaries:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
hostname $node

# What programs write to /var and /run, by flag or by habit, lands in the state's folder, which keeps its own path.
mkdir -p "$state"/var/{lib,log,tmp} "$state$state" "$state/run/lock"
ln -sfn /run "$state/var/run"
mount --bind "$state" "$state$state"
mount --rbind "$state/var" /var
mount --bind "$state/run" /run
mount --make-rshared /
cd $state

# kubelet sets these for the whole machine: it gets files that look like them.
mkdir -p $state/sysctl
for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    copy=$state/sysctl/${setting//\//.}
    cat /proc/sys/$setting >"$copy"
    mount --bind "$copy" /proc/sys/$setting
done

# A bridge without a port is the default route: an address of a Service needs some route before kube-proxy replaces it, and what is
# not replaced ends there. There is no way out of this network but the link to the host, which routes nothing further.
ip link set lo up
ip link add sink type bridge
ip link set sink up
ip address add 198.18.255.1/32 dev sink
ip route add default dev sink src 198.18.255.1
until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
ip address add $node_address/30 dev eth0
ip link set eth0 up
sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1

run() { "${@:2}" >"log/$1.log" 2>&1 & }
run etcd "$control_plane/etcd" --data-dir=etcd --unsafe-no-fsync --log-level=warn
run containerd containerd --config config/containerd.toml
run kube-apiserver "$control_plane/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --advertise-address=$node_address \
    --tls-cert-file=pki/apiserver.crt --tls-private-key-file=pki/apiserver.key --client-ca-file=pki/ca.crt --token-auth-file=pki/tokens.csv \
    --kubelet-client-certificate=pki/apiserver-kubelet.crt --kubelet-client-key=pki/apiserver-kubelet.key --kubelet-certificate-authority=pki/ca.crt \
    --kubelet-preferred-address-types=InternalIP --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file=pki/accounts.key --service-account-signing-key-file=pki/accounts.key \
    --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction --service-cluster-ip-range=$services
until kubectl --kubeconfig admin.kubeconfig --request-timeout=5s get --raw /readyz >/dev/null 2>&1; do
    # The others are started late, as they give up soon without an API server; without one of the first three there is none.
    for program in $(jobs -p); do kill -0 "$program"; done
    sleep 0.1
done
run kube-controller-manager "$control_plane/kube-controller-manager" --kubeconfig=config/controller-manager.kubeconfig --leader-elect=false --secure-port=0 \
    --service-account-private-key-file=pki/accounts.key --root-ca-file=pki/ca.crt --use-service-account-credentials=true --allocate-node-cidrs=false
kubectl --kubeconfig admin.kubeconfig apply --server-side -f "$here/policies.yaml" >/dev/null
run network-policies network-policies --kubeconfig=config/policies.kubeconfig
run kube-scheduler kube-scheduler --kubeconfig=config/scheduler.kubeconfig --leader-elect=false --secure-port=0
run kube-proxy kube-proxy --config=config/proxy.yaml
run kubelet kubelet --config=config/kubelet.yaml --kubeconfig=config/kubelet.kubeconfig --hostname-override=$node --node-ip=$node_address
wait -n || true
echo "one of the node's programs ended, so the node ends"
