#!/bin/bash
# Runs the tests of blocks, kernels and the container under AddressSanitizer.
# Usage: tests/sanitizers/address.sh [test filter ...]
# What it finds, what it cannot, and the settings: README.md beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${SANITIZER_WORK:-${TMPDIR:-/tmp}/gguf-sanitizers}
triple=x86_64-unknown-linux-gnu
mkdir -p "$work"

export CARGO_TARGET_DIR=$work/address CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false
# Sanitizers are an unstable option of the compiler, whose runtime every toolchain of rustup has.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
# What is left at the end was meant to stay.
export ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}"
cd "$root"
tests=(cargo test --locked --jobs "${SANITIZER_JOBS:-1}" --target $triple)
"${tests[@]}" -p gguf-blocks -p gguf --lib --tests -- "$@"
# Of the runtime, what has unsafe code: kernels, parts of matrices, the pool.
(($#)) || set -- kernels:: memory:: pool::
"${tests[@]}" -p gguf-runtime --lib -- "$@"
