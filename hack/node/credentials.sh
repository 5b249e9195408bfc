#!/bin/bash
# Makes the certificates, tokens and kubeconfigs of a new node, in its state's folder. Called by up.sh.
set -euo pipefail
. "$(dirname "$0")/place.sh"
cd $state/pki
{
    key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }
    certificate() { # FILE SUBJECT [NAMES]
        key "$1"
        openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
        printf 'extendedKeyUsage=serverAuth,clientAuth\n%s\n' "${3:+subjectAltName=$3}" >"$1.ext"
        openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt"
    }
    key ca
    openssl req -x509 -new -key ca.key -days 30 -subj /CN=portcullis-node -out ca.crt
    openssl genrsa -out accounts.key 2048
    certificate apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$node_address,IP:$first_service"
    certificate apiserver-kubelet /O=system:masters/CN=apiserver-kubelet
    certificate kubelet "/O=system:nodes/CN=system:node:$node" "DNS:$node,IP:$node_address"
} 2>openssl.log || fail "openssl cannot make the certificates: $(tail -n 3 openssl.log)"

# A user for each program, with the rights that Kubernetes gives to its name.
user() { # KUBECONFIG NAME [GROUP]
    local token
    token=$(openssl rand -hex 16)
    echo "$token,$2,$2,${3:-}" >>tokens.csv
    cat >"$1" <<KUBECONFIG
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://$node_address:6443", certificate-authority: $state/pki/ca.crt}}]
users: [{name: node, user: {token: $token}}]
contexts: [{name: node, context: {cluster: node, user: node}}]
current-context: node
KUBECONFIG
}
user ../admin.kubeconfig admin system:masters
user ../config/controller-manager.kubeconfig system:kube-controller-manager
user ../config/scheduler.kubeconfig system:kube-scheduler
user ../config/proxy.kubeconfig system:kube-proxy
user ../config/policies.kubeconfig network-policies
user ../config/kubelet.kubeconfig system:node:$node system:nodes
