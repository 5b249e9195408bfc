#!/bin/sh
# Loads images into the running node. Usage: load-image.sh ARCHIVE...    (OCI archives: tar files)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
[ $# -gt 0 ] || fail "usage: load-image.sh ARCHIVE..."
holder=$(holder)
[ -n "$holder" ] || fail "no node runs: 'make node-up' brings one up"
for archive; do
    output=$(nsenter --target "$holder" --mount --net "$("$here/build.sh" where)/ctr" --namespace k8s.io images import --local - <"$archive" 2>&1) ||
        fail "cannot load $archive: $output"
    echo "loaded $archive"
done
