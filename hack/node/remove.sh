#!/bin/bash
# Ends the node's processes and removes what they left, in whatever state it is. Called by up.sh and down.sh, which hold the lock.
set -euo pipefail
. "$(dirname "$0")/place.sh"

deadline=$((SECONDS + 30))
while left=$(processes) && [ -n "$left" ]; do
    [ $SECONDS -lt $deadline ] || fail "these processes of the node do not end: $left"
    # shellcheck disable=SC2086 # One argument each; some have ended by now.
    kill -KILL $left 2>/dev/null || true
    sleep 0.1
done
! ip link show $link >/dev/null 2>&1 || ip link delete $link || true # It also goes with the other end, a moment after the last process.
for hierarchy in $(hierarchies); do
    [ ! -d "$hierarchy/$cgroup" ] || find "$hierarchy/$cgroup" -depth -type d -exec rmdir {} +
done
rm -rf --one-file-system $state
