#!/bin/sh
# Gives an image of the running node another name beside its own. Usage: tag-image.sh IMAGE NAME
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
[ $# -eq 2 ] || fail "usage: tag-image.sh IMAGE NAME"
holder=$(holder)
[ -n "$holder" ] || fail "no node runs: 'make node-up' brings one up"
output=$(nsenter --target "$holder" --mount --net "$("$here/build.sh" where)/ctr" --namespace k8s.io images tag --force "$1" "$2" 2>&1) ||
    fail "cannot call $1 $2: $output"
