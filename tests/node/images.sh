#!/bin/sh
# Builds the images that the tests on the node run beside the shipped ones, and prints where the archives are.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
hack=$here/../../hack
target=${CARGO_TARGET_DIR:-$here/../../target}/node-images
mkdir -p "$target"
"$hack/mcp-servers/build.sh" go >&2
(cd "$here/pod" && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$target/pod" .)
"$hack/images/pack.sh" localhost/portcullis/pod:test "$target/pod.tar" "$target/pod"
"$hack/images/pack.sh" localhost/portcullis/everything:test "$target/everything.tar" "$("$hack/mcp-servers/build.sh" where go)"
echo "$target/pod.tar" "$target/everything.tar"
