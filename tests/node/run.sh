#!/bin/bash
# Brings the node up (or takes the one that runs), loads the images, runs the tests or the demo, and takes the node down whatever happened.
# Usage: run.sh test|demo [--keep] [TEST...]    --keep: the node stays up for the next run
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
what=$1
shift
if [ "${1:-}" = --keep ]; then shift; else trap '"$root/hack/node/down.sh"' EXIT; fi
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Attachments that are silent for so long are closed: usually four hours, for which no test waits.
STREAM_IDLE_TIMEOUT=1m "$root/hack/node/up.sh"
archives=$("$here/images.sh")
target=${CARGO_TARGET_DIR:-$root/target}
# shellcheck disable=SC2086 # A list.
"$root/hack/node/load-image.sh" $archives "$target"/images/*.tar
cd "$root"
if [ "$what" = demo ]; then
    "$target/debug/demo" node
else
    # With the whole workspace, as 'make test' has compiled it: alone, dependencies would have other features and be built again.
    cargo test --workspace --features portcullis-node/node --test node --test operator -- --test-threads=4 "$@"
fi
