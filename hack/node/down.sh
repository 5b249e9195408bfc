#!/bin/bash
# Ends the node and removes all of it: processes, network, cgroups, files. Succeeds when there is none. Usage: down.sh
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
if [ ! -e "$state" ] && [ ! -d "$(counted)" ]; then
    echo "there is no node"
    exit
fi
[ "$(id -u)" -eq 0 ] || fail "the node was started by root, and root has to end it. Run: sudo $0"
lock
"$here/remove.sh"
echo "the node is gone"
