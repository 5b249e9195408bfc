#!/bin/sh
# rustdoc with nightly's options and features, to be named in RUSTDOC. RUSTC_BOOTSTRAP=1 for cargo as a whole does it too, but compiles all
# dependencies a second time, since some build scripts look for nightly's features:
#   RUSTDOC=$PWD/hack/rustdoc/rustdoc.sh cargo rustdoc -p portcullis-review -- -Z unstable-options --output-format json
export RUSTC_BOOTSTRAP=1
exec rustdoc "$@"
