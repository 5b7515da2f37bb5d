#!/bin/bash
# Runs the library tests of one crate on an emulated 64-bit ARM CPU with byte dot products.
# Usage: tests/emulators/aarch64.sh PACKAGE [test filter ...]
# Settings (environment), files and what the steps are for: README.md beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# -ge 1 ] || { sed -n 2,4p "$0" >&2; exit 2; }
package=$1
shift
work=${EMULATOR_WORK:-${TMPDIR:-/tmp}/gguf-emulators}
triple=aarch64-unknown-linux-gnu
mkdir -p "$work"

# Debian's security updates carry a Rust new enough for the workspace, with the library for ARM.
wanted=(rustc-web libstd-rust-web-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)
missing=()
for name in "${wanted[@]}"; do
    dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name")
done
if [ ${#missing[@]} -gt 0 ]; then
    dpkg --add-architecture arm64
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

# cargo is the machine's own, rustc is Debian's: only that one has the library for ARM.
export RUSTC=/usr/bin/rustc
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/emulators-aarch64
export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_OPT_LEVEL=${EMULATOR_OPT:-2}
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# Static, so that the emulator needs no ARM libraries.
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu ${EMULATOR_CPU:-max}"

$RUSTC -O --edition 2024 --target $triple -C linker=aarch64-linux-gnu-gcc \
    -C target-feature=+crt-static -o "$work/probe_aarch64" "$here/probe_aarch64.rs"
$CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER "$work/probe_aarch64"

cd "$root"
exec cargo test --jobs "${EMULATOR_JOBS:-1}" -p "$package" --lib --target $triple -- "$@"
