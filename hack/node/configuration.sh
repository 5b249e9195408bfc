#!/bin/bash
# Writes the configuration of the node's programs into its state's folder. Called by up.sh. Usage: configuration.sh FOLDER-OF-BINARIES
# STREAM_IDLE_TIMEOUT is how long an attachment to a container may be silent; as usual, four hours without it.
set -euo pipefail
. "$(dirname "$0")/place.sh"
idle=${STREAM_IDLE_TIMEOUT:-4h}
cd $state/config
binaries=$1

mkdir -p cni
cat >cni/10-bridge.conflist <<CNI
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]]}
}]}
CNI

cat >containerd.toml <<CONTAINERD
version = 4
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.nri.v1.nri"]

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/portcullis/pause:1"

[plugins."io.containerd.grpc.v1.cri"]
  stream_idle_timeout = "$idle"

[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  # runc may not lower a process' oom_score_adj where root lacks CAP_SYS_RESOURCE, and fails with "can't get final child's PID from pipe".
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["$binaries/cni"]
    conf_dir = "$state/config/cni"
CONTAINERD

cat >kubelet.yaml <<KUBELET
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failCgroupV1: false # Version 1 is enough here.
failSwapOn: false
address: $node_address
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $state/pki/kubelet.crt
tlsPrivateKeyFile: $state/pki/kubelet.key
clusterDNS: [$dns_service]
clusterDomain: cluster.local
resolvConf: ""
# Images are loaded by hand: one that is collected is gone.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
streamingConnectionIdleTimeout: $idle
# Mounted Secrets follow within this time, where a minute is usual.
syncFrequency: 10s
nodeStatusUpdateFrequency: 5s
KUBELET

cat >proxy.yaml <<PROXY
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: $state/config/proxy.kubeconfig}
clusterCIDR: $pods
hostnameOverride: $node
# These settings belong to the host's network.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
PROXY
