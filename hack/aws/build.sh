#!/bin/sh
# Fetches moto, the stand-in for AWS that the tests run, once per machine and state of its pins.
# Usage: build.sh          fetches it
#        build.sh where    prints the Python that has it, which serve.py runs with, and fetches nothing
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/aws
folder=$cache/moto-$(sha256sum <"$here/requirements.txt" | cut -c 1-16)

case ${1:-} in
where) echo "$folder/bin/python" ;;
'')
    [ ! -d "$folder" ] || exit 0
    echo "fetching moto"
    mkdir -p "$cache"
    partial=$folder.$$
    trap 'rm -rf "$partial"' EXIT
    python3 -m venv "$partial"
    "$partial/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
    # A build that ran at the same time may have put its own, equal folder there: then ours is dropped.
    mv -T "$partial" "$folder" 2>/dev/null || [ -d "$folder" ]
    ;;
*) echo "usage: build.sh [where]" >&2; exit 1 ;;
esac
