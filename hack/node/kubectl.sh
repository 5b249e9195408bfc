#!/bin/sh
# kubectl for the node of this machine. Usage: kubectl.sh ARGUMENT...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/place.sh"
exec "$("$here/build.sh" where)/kubectl" --kubeconfig "$state/admin.kubeconfig" "$@"
