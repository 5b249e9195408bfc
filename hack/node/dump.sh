#!/bin/sh
# Prints what somebody needs who asks why something does not work in a namespace: pods, events, our objects, logs.
# Usage: dump.sh NAMESPACE
set -u
kubectl() { timeout 20 "$(dirname "$0")/kubectl.sh" --namespace "$namespace" "$@" 2>&1; }
namespace=$1
kubectl get all,networkpolicies --output wide
kubectl describe pods
kubectl get events --sort-by .lastTimestamp
kinds=$(kubectl api-resources --api-group toolhive.stacklok.dev --output name | paste -sd , -)
[ -z "$kinds" ] || kubectl get "$kinds" --output yaml
for pod in $(kubectl get pods --output name); do
    for previous in true false; do
        echo "--- log of $pod (before its last restart: $previous)"
        kubectl logs --all-containers --prefix --tail 100 --previous=$previous "$pod"
    done
done
