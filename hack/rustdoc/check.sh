#!/bin/sh
# Stands in for rustdoc under `cargo test --doc`: documents each library, warnings as errors, and runs none of its code. What the tests were
# compiled with serves, where `cargo doc` would compile the metadata of every dependency once more.
#   RUSTDOC=$PWD/hack/rustdoc/check.sh cargo test --workspace --doc
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tests=
skip=
for word; do
    shift
    case $word in
    --test) tests=yes ;;
    --test-run-directory) skip=yes ;;
    *)
        [ -n "$skip" ] || set -- "$@" "$word"
        skip=
        ;;
    esac
done
[ -z "$tests" ] || set -- "$@" -D warnings --out-dir "${CARGO_TARGET_DIR:-$root/target}/doc"
exec rustdoc "$@"
