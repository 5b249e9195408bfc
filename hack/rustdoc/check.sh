#!/bin/sh
# Stands in for rustdoc under `cargo test --doc`: checks the documentation of each library, warnings as errors, writes no pages and runs none of
# its code. What the tests were compiled with serves, where `cargo doc` would compile the metadata of every dependency once more.
#   RUSTDOC=$PWD/hack/rustdoc/check.sh cargo test --workspace --doc
set -eu
tests=
skip=
for word; do
    shift
    case $word in
    --test) tests=yes ;;
    --test-run-directory | --test-args) skip=yes ;;
    *)
        [ -n "$skip" ] || set -- "$@" "$word"
        skip=
        ;;
    esac
done
[ -n "$tests" ] || exec rustdoc "$@"
RUSTC_BOOTSTRAP=1 exec rustdoc "$@" -D warnings -Z unstable-options --check
