#!/bin/bash
# Runs the tests of the runtime's pool of threads under ThreadSanitizer.
# Usage: tests/sanitizers/thread.sh [test filter ...]
# What it finds, what it cannot, and the settings: README.md beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=${SANITIZER_WORK:-${TMPDIR:-/tmp}/gguf-sanitizers}
triple=x86_64-unknown-linux-gnu
mkdir -p "$work/src"

# The pool alone, which takes minutes to build, not a quarter of an hour: its modules want one constant of other crates.
max=$(sed -n 's/^pub const MAX_THREADS.*= \([0-9]*\);$/\1/p' "$root/gguf/cli/src/pool.rs")
cat >"$work/src/lib.rs" <<EOF
//! Made by tests/sanitizers/thread.sh.
#![allow(dead_code)]
extern crate self as gguf_cli;
/// As in gguf-cli.
pub const MAX_THREADS: usize = $max;
#[path = "$root/runtime/src/memory.rs"]
mod memory;
#[path = "$root/runtime/src/pool/mod.rs"]
pub mod pool;
EOF
version() { sed -n "s/^$1 = .*version = \"\([^\"]*\)\".*/\1/p; s/^$1 = \"\([^\"]*\)\"$/\1/p" "$root/Cargo.toml"; }
cat >"$work/Cargo.toml" <<EOF
[package]
name = "pool-under-sanitizer"
version = "0.0.0"
edition = "2024"

[dependencies]
rustix = { version = "$(version rustix)", features = ["fs", "mm", "param", "thread"] }

[dev-dependencies]
tempfile = "$(version tempfile)"

[lints.rust]
unsafe_code = "deny"

[profile.dev]
opt-level = 1

[workspace]
EOF
cp "$root/Cargo.lock" "$work/Cargo.lock"

# The standard library is compiled with the sanitizer, too: else what it orders inside would be reported as races.
source=${RUST_SRC:-$(rustc --print sysroot)/lib/rustlib/src/rust/library}
if [ ! -d "$source" ]; then
    echo "error: no sources of the standard library in $source: run \`rustup component add rust-src\`," \
        "or name their folder \`library\` in RUST_SRC" >&2
    exit 2
fi
# Where cargo looks for it, if not in the toolchain.
export __CARGO_TESTS_ONLY_SRC_ROOT=$source

export CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=0
# Sanitizers are an unstable option of the compiler, whose runtime every toolchain of rustup has.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=thread
export TSAN_OPTIONS="history_size=7 ${TSAN_OPTIONS:-}"
cd "$work"
exec cargo test -Zbuild-std=std,panic_unwind,test --jobs "${SANITIZER_JOBS:-1}" --target $triple --lib -- --test-threads=1 "$@"
