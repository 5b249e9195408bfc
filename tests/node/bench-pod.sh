#!/bin/sh
# Prints the pod whose MCP server is the bench's own, from this machine's disk. Usage: bench-pod.sh FOLDER-OF-BINARIES
set -eu
mount() { echo "{mountPath: $1, name: $2, readOnly: true}"; }
volume() { echo "{name: $1, hostPath: {path: $2, type: Directory}}"; }
cat <<POD
apiVersion: v1
kind: Pod
metadata: {name: bench-0}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers:
  - name: mcp
    image: localhost/portcullis/pod:test
    imagePullPolicy: Never
    command: [/bench/proxy, backend]
    stdin: true
    stdinOnce: true
    # Its libraries are this machine's too.
    volumeMounts: [$(mount /bench bench), $(mount /usr usr), $(mount /lib lib), $(mount /lib64 lib64)]
  volumes: [$(volume bench "$1"), $(volume usr /usr), $(volume lib "$(realpath /lib)"), $(volume lib64 "$(realpath /lib64)")]
POD
