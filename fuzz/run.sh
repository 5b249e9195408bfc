#!/bin/sh
# Runs a fuzz target under libFuzzer on the stable toolchain, with no tool to install but a C++ compiler.
#
#   fuzz/run.sh review [RUNS]        RUNS bodies, a million unless said, from the committed seeds
#   fuzz/run.sh conversion [RUNS]
#   fuzz/run.sh certificates [RUNS]
#   fuzz/run.sh lease [RUNS]
#
# New inputs are kept in the target directory, and what crashes is kept there too: put it into fuzz/seeds, and mend the code.
# With cargo-fuzz: `cargo fuzz run --features libfuzzer --sanitizer none review fuzz/seeds/review`.
set -eu
cd "$(dirname "$0")/.."
target=${1:?usage: fuzz/run.sh TARGET [RUNS], where TARGET is review, conversion, certificates or lease}
runs=${2:-1000000}
command -v c++ >/dev/null || {
    echo "missing: c++. libFuzzer is written in it; on Debian 'apt-get install g++'." >&2
    exit 1
}
build=${CARGO_TARGET_DIR:-target/fuzz}
corpus=$build/corpus/$target
mkdir -p "$corpus"

# The counters that lead libFuzzer are a pass of LLVM, which stable rustc runs by name; LTO would take them away again.
RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1" \
    CARGO_PROFILE_RELEASE_LTO=false CARGO_TARGET_DIR=$build \
    cargo build --quiet --release --locked -p portcullis-fuzz --features libfuzzer --bin "$target" --target x86_64-unknown-linux-gnu

# The pool of JSON and Kubernetes words is in the seeds. A body that takes ten seconds, or a gigabyte, is a finding.
exec "$build/x86_64-unknown-linux-gnu/release/$target" -runs="$runs" -max_len=16384 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="$build/" -print_final_stats=1 "$corpus" "fuzz/seeds/$target"
