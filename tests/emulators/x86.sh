#!/bin/bash
# Runs the library tests of one crate on an emulated CPU with AVX-512 (F, BW, VL, DQ, VNNI, VBMI,
# BF16) and AVX-VNNI. Usage: tests/emulators/x86.sh PACKAGE [test filter ...]
# Settings (environment), files and what the steps are for: README.md beside this script.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
[ $# -ge 1 ] || { sed -n 2,4p "$0" >&2; exit 2; }
package=$1
shift
work=${EMULATOR_WORK:-${TMPDIR:-/tmp}/gguf-emulators}
model=${EMULATOR_CPU:-sapphire_rapids}
exclude=${EMULATOR_EXCLUDE:-}
# Linux panics if the tile state is half there, as it is in Bochs 3.0.
[ "$model" = sapphire_rapids ] && exclude=amx,amx_int8,amx_bf16,amx_tf32,amx_fp16${exclude:+,$exclude}
limit=${EMULATOR_LIMIT:-1800}
target=${CARGO_TARGET_DIR:-$root/target}/emulators-x86
mkdir -p "$work"

install_tools() {
    local wanted=(xorriso isolinux syslinux-common cpio busybox-static) missing=() name
    for name in "${wanted[@]}"; do
        dpkg -s "$name" >/dev/null 2>&1 || missing+=("$name")
    done
    [ ${#missing[@]} -eq 0 ] && return
    apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# The newest kernel of the system's own release, unpacked but not installed.
fetch_kernel() {
    ls "$work"/kernel/boot/vmlinuz-* >/dev/null 2>&1 && return
    rm -rf "$work/kernel" && mkdir -p "$work/kernel"
    local name
    name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -1)
    [ -n "$name" ] || { echo "x86.sh: apt knows no linux-image-cloud-amd64; run apt-get update" >&2; exit 1; }
    (cd "$work/kernel" && apt-get download -o APT::Sandbox::User=root "$name" && dpkg-deb -x ./*.deb . && rm ./*.deb)
}

# Bochs 3.0 is in Debian 13 only: 2.7 of Debian 12 has no CPU with AVX-VNNI or BF16. It is unpacked
# with its libraries into a folder of its own and started by its own loader; the system stays as it is.
fetch_bochs() {
    [ -e "$work/bochs/ready" ] && return
    local archive apt=$work/apt
    archive=$(apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Origin: Debian' 'Created-By: Packages' |
        awk '$2 == "main" && $1 !~ /security/ && !found++ {print $1}')
    [ -n "$archive" ] || { echo "x86.sh: no Debian archive among apt's sources; run apt-get update" >&2; exit 1; }
    rm -rf "$apt" "$work/bochs"
    mkdir -p "$apt"/lists/partial "$apt"/cache/archives/partial "$work/bochs"
    : >"$apt/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg arch=amd64] $archive trixie main" >"$apt/sources.list"
    cat >"$apt/conf" <<END
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
END
    APT_CONFIG=$apt/conf apt-get update -qq
    APT_CONFIG=$apt/conf apt-get install -y -qq --download-only bochs bochs-term bochsbios vgabios >/dev/null
    local deb
    for deb in "$apt"/cache/archives/*.deb; do
        dpkg-deb -x "$deb" "$work/bochs"
    done
    rm -rf "$apt/cache"
    touch "$work/bochs/ready"
}

# Static, so that the initramfs needs no libraries; optimised, since each instruction is emulated.
build_tests() {
    (cd "$root" && CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0 \
        CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_OPT_LEVEL=${EMULATOR_OPT:-2} \
        CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static" \
        cargo test --jobs "${EMULATOR_JOBS:-1}" -p "$package" --lib --no-run \
        --target x86_64-unknown-linux-gnu --message-format=json-render-diagnostics) >"$work/build.json"
    local binary
    binary=$(grep -o '"executable":"[^"]*"' "$work/build.json" | tail -1 | cut -d'"' -f4)
    [ -x "$binary" ] || { echo "x86.sh: cargo built no library test for $package" >&2; exit 1; }
    cp "$binary" "$1/test"
    rustc -O --edition 2024 -C target-feature=+crt-static -o "$1/probe" "$here/probe.rs"
    strip "$1/test" "$1/probe"
}

# $1: the guest's root folder; the rest: arguments of the test binary.
write_init() {
    local guest=$1 path
    shift
    mkdir -p "$guest"/{bin,proc,dev,sys,tmp}
    cp "$(command -v busybox)" "$guest/bin/busybox"
    # Files that the tests open by their path in the checkout, named relative to it.
    for path in ${EMULATOR_FILES:-}; do
        mkdir -p "$guest$(dirname "$root/$path")"
        cp -rL "$root/$path" "$guest$root/$path"
    done
    {
        echo '#!/bin/busybox sh'
        echo 'b=/bin/busybox; $b mount -t proc p /proc; $b mount -t devtmpfs d /dev; $b mount -t sysfs s /sys'
        echo '$b grep -m1 "^model name" /proc/cpuinfo; $b grep -m1 "^flags" /proc/cpuinfo'
        echo "export RUST_BACKTRACE=0 TMPDIR=/tmp${GGUF_CPU:+ GGUF_CPU=$GGUF_CPU}"
        echo '/probe; echo "PROBE_RC=$?"'
        printf '/test --test-threads=1'
        [ $# -eq 0 ] || printf ' %q' "$@"
        echo '; echo "TESTS_RC=$?"'
        # The UART must drain before the power goes.
        echo '$b sleep 1; $b poweroff -f'
    } >"$guest/init"
    chmod +x "$guest/init"
}

make_disc() {
    local disc=$work/disc
    rm -rf "$disc" && mkdir -p "$disc/isolinux"
    cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$disc/isolinux/"
    cp "$(ls "$work"/kernel/boot/vmlinuz-* | tail -1)" "$disc/vmlinuz"
    (cd "$1" && find . | cpio -o -H newc --quiet) >"$disc/initrd"
    # clearcpuid: 124 aperfmperf (its registers are unknown to Bochs), 580 fsrm (without the fast-string
    # bit in MISC_ENABLE, which Bochs lacks, Linux 6.1's memmove with fsrm overruns). tsc and lpj: no
    # calibration. no5lvl: leaving the power-management interrupt with five levels stops Bochs.
    cat >"$disc/isolinux/isolinux.cfg" <<END
DEFAULT tests
PROMPT 0
LABEL tests
 KERNEL /vmlinuz
 INITRD /initrd
 APPEND console=ttyS0,115200 quiet loglevel=3 nokaslr mitigations=off no5lvl clearcpuid=124,580 tsc=reliable tsc_early_khz=100000 lpj=400000 random.trust_cpu=on panic=-1 audit=0 apparmor=0 cryptomgr.notests
END
    xorriso -as mkisofs -quiet -o "$work/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
        -no-emul-boot -boot-load-size 4 -boot-info-table "$disc" 2>/dev/null
}

run_bochs() {
    local files=$work/bochs
    local libraries=$files/usr/lib/x86_64-linux-gnu
    # Here: within the text below the shell would take the quotes away.
    local without=${exclude:+exclude_features=\"$exclude\", }
    cat >"$work/bochsrc" <<END
display_library: term
cpu: model=$model, ${without}count=1, ips=100000000
clock: sync=none, time0=utc
memory: guest=1024, host=1024
romimage: file=$files/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=$files/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path=$work/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial.log
log: $work/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
END
    # Debian's Bochs has its debugger built in, which waits for "c"; its text display wants a terminal.
    echo c >"$work/debugger"
    cat >"$work/start" <<END
stty rows 30 cols 90
LTDL_LIBRARY_PATH=$libraries/bochs/plugins exec timeout $limit $libraries/ld-linux-x86-64.so.2 --library-path $libraries $files/usr/bin/bochs-bin -q -f $work/bochsrc -rc $work/debugger
END
    rm -f "$work/serial.log" "$work/boot.iso.lock"
    TERM=xterm script -qec "sh $work/start" /dev/null </dev/null >"$work/screen.log" 2>&1 || true
}

install_tools
fetch_kernel
fetch_bochs
guest=$work/guest
rm -rf "$guest" && mkdir -p "$guest"
build_tests "$guest"
write_init "$guest" "$@"
make_disc "$guest"
echo "x86.sh: starting $model; follow $work/serial.log (limit ${limit} s)" >&2
run_bochs
tr -d '\r' <"$work/serial.log"
result=$(tr -d '\r' <"$work/serial.log" | sed -n 's/.*TESTS_RC=\([0-9]*\).*/\1/p' | tail -1)
[ -n "$result" ] || { echo "x86.sh: the emulated machine gave no result; see $work/serial.log, bochs.log, screen.log" >&2; exit 1; }
grep -q PROBE_RC=0 "$work/serial.log" || { echo "x86.sh: the probe found a wrong result" >&2; exit 1; }
exit "$result"
