#!/bin/bash
# Brings the node up (or takes the one that runs), loads the images, runs the tests, the demo or a bench, and takes the node down whatever happened.
# Usage: run.sh test|demo|bench [--keep] [TEST...]    --keep: the node stays up for the next run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
. "$root/hack/node/place.sh"
what=${1:-}
case $what in test | demo | bench) shift ;; *) fail "usage: run.sh test|demo|bench [--keep] [TEST...]" ;; esac
if [ "${1:-}" = --keep ]; then shift; else trap '"$root/hack/node/down.sh"' EXIT; fi
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Attachments that are silent for so long are closed: usually four hours, for which no test waits.
STREAM_IDLE_TIMEOUT=1m "$root/hack/node/up.sh"
archives=$("$here/images.sh")
target=${CARGO_TARGET_DIR:-$root/target}
[ "$what" = bench ] || archives="$archives $target/images/mcp-operator.tar $target/images/mcp-runner.tar"
[ "$what" != test ] || archives="$archives $target/images/dynamo-webhooks.tar"
# shellcheck disable=SC2086 # A list.
"$root/hack/node/load-image.sh" $archives
cd "$root"
case $what in
test)
    # With the whole workspace, as 'make test' has compiled it: alone, dependencies would have other features and be built again.
    cargo test --workspace --test node --test operator --test second_operator -- --test-threads=4 "$@"
    ;;
demo) "$target/debug/demo" node ;;
bench)
    "$here/bench-pod.sh" "$target/release" | "$root/hack/node/kubectl.sh" replace --force -f -
    "$root/hack/node/kubectl.sh" wait pod bench-0 --for=condition=Ready --timeout=1m
    KUBECONFIG=$state/admin.kubeconfig "$target/release/proxy" --only attach "$@"
    ;;
esac
