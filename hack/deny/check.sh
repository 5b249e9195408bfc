#!/bin/sh
# Checks licences, banned crates and sources of the whole dependency tree against deny.toml, by cargo-deny. Advisories are checked as well
# where the RustSec database lies on this machine: `check.sh fetch db` gets it, into ${CARGO_HOME:-$HOME/.cargo}/advisory-dbs.
# cargo-deny is built from source into ${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/deny-VERSION, once per machine. Clones share the result.
# Usage: check.sh              builds cargo-deny if it is missing, and checks
#        check.sh where        prints the folder and builds nothing
#        check.sh ARGUMENT...  builds cargo-deny if it is missing, and runs it with these: check.sh list
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
# https://github.com/EmbarkStudios/cargo-deny
version=0.20.2
cache=${XDG_CACHE_HOME:-$HOME/.cache}/portcullis/deny-$version
if [ "${1:-}" = where ]; then
    echo "$cache"
    exit
fi

for tool in cargo cc; do
    if ! command -v "$tool" >/dev/null 2>&1; then
        echo "missing: $tool. It builds cargo-deny; install Rust with rustup, and a C compiler (on Debian 'apt-get install gcc')." >&2
        exit 1
    fi
done

clock() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }
stop_build() {
    [ -z "$build" ] || kill "$build" 2>/dev/null || true
    rm -rf "$work"
}
if [ ! -x "$cache/bin/cargo-deny" ]; then
    echo "building cargo-deny $version, once per machine: about three minutes on two cores"
    # Under a temporary name, and renamed: builds at the same time, or a broken one, do no harm.
    mkdir -p "$(dirname "$cache")"
    work=$(mktemp -d "$cache.build-XXXXXX")
    build=
    trap stop_build EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # Optimized a little: it compares the texts of some hundred licences.
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_OPT_LEVEL=1 \
        cargo install --locked --debug --no-track --target-dir "$work/target" --root "$work/root" "cargo-deny@$version" >"$work/log" 2>&1 &
    build=$!
    begun=$(date +%s)
    ticks=0
    while kill -0 "$build" 2>/dev/null; do
        sleep 1
        ticks=$((ticks + 1))
        [ $((ticks % 30)) -ne 0 ] || echo "  $(grep -c Compiling "$work/log" || true) crates, $(clock $(($(date +%s) - begun))) so far"
    done
    if ! wait "$build"; then
        build=
        tail -n 40 "$work/log" >&2
        echo "building cargo-deny failed: see above. Crates come from the registry that cargo is set up for; 'make deny' tries again." >&2
        exit 1
    fi
    build=
    mkdir -p "$cache/bin"
    mv -f "$work/root/bin/cargo-deny" "$cache/bin/cargo-deny"
    rm -rf "$work"
    trap - EXIT INT TERM HUP
    echo "cargo-deny is in $cache"
fi

# The crates of every platform: cargo-deny reads their manifests and licences. What is there already is not fetched again.
cargo fetch --locked --quiet
[ $# -eq 0 ] || exec "$cache/bin/cargo-deny" --locked "$@"
checks="bans licenses sources"
for database in "${CARGO_HOME:-$HOME/.cargo}"/advisory-dbs/*/; do
    if [ -d "$database" ]; then
        checks="advisories $checks"
    else
        echo "advisories are not checked: no database on this machine; 'hack/deny/check.sh fetch db' gets it"
    fi
    break
done
# shellcheck disable=SC2086 # one word each
exec "$cache/bin/cargo-deny" --locked --offline check --deny unused-wrapper $checks
