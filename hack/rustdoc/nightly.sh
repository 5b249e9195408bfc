#!/bin/sh
# Runs 'cargo doc' as docs.rs does, with the stable toolchain: with `--cfg docsrs`, and with nightly's features for rustdoc.
# Usage: nightly.sh [ARGUMENT OF CARGO DOC]...
#   hack/rustdoc/nightly.sh -p portcullis --all-features --open
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# Beside other builds: a library says no version of Kubernetes, and what is said here instead would build k8s-openapi, and all above it, anew.
# tests/tidy/tests/api.rs has the dependencies here already.
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/api
K8S_OPENAPI_ENABLED_VERSION=${K8S_OPENAPI_ENABLED_VERSION:-1.33}
RUSTDOC=$here/rustdoc.sh
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} --cfg docsrs"
export CARGO_TARGET_DIR K8S_OPENAPI_ENABLED_VERSION RUSTDOC RUSTDOCFLAGS
exec cargo doc --no-deps "$@"
