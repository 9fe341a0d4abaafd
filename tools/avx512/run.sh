#!/usr/bin/env bash
# usage: tools/avx512/run.sh [FILTER...]
#
# Runs the tests of tl-kernels whose names contain a FILTER on an emulated CPU that has AVX-512.
# README.md says what it needs, and which variables choose another kernel, emulator or CPU.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
filters=("$@")
[ $# -gt 0 ] || filters=(guard:: kernels:: matmul:: attention::)
cpu=${CPU:-corei7_skylake_x}

die() {
    echo "$*" >&2
    exit 1
}

packages='bochs bochs-term bochsbios vgabios isolinux syslinux-common xorriso busybox-static cpio bsdutils'
bochs=$(command -v "${BOCHS:-bochs-bin}" || command -v "${BOCHS:-bochs}") || die "no bochs here: apt-get install $packages"
for tool in xorriso cpio script; do
    command -v "$tool" >/dev/null || die "no $tool here: apt-get install $packages"
done
isolinux=/usr/lib/ISOLINUX/isolinux.bin
ldlinux=/usr/lib/syslinux/modules/bios/ldlinux.c32
bios=${BXSHARE:-/usr/share/bochs}/BIOS-bochs-latest
vga=${BXSHARE:-/usr/share/bochs}/VGABIOS-lgpl-latest
busybox=/bin/busybox
for file in $isolinux $ldlinux $bios $vga $busybox; do
    [ -e "$file" ] || die "no $file here: apt-get install $packages"
done

out=$PWD/target/avx512
work=$out/machine
rm -rf "$work"
mkdir -p "$work/root/proc" "$work/iso/isolinux"

# The machine holds no libraries: the tests are linked statically, and are those of a release.
triple=x86_64-unknown-linux-gnu
tests=$(
    RUSTFLAGS='-C target-feature=+crt-static' CARGO_INCREMENTAL=0 \
        cargo test -p tl-kernels --lib --release --no-run \
        --target $triple --target-dir "$out" --message-format=json |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
)
[ -x "$tests" ] || die "cargo named no test program"

# Linux of the distribution, unpacked and not installed: the small one made for virtual machines.
if [ -z "${LINUX:-}" ]; then
    mkdir -p "$out/linux"
    if ! ls "$out"/linux/boot/vmlinuz-* >/dev/null 2>&1; then
        image=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -1)
        [ -n "$image" ] || die "apt knows no linux-image-cloud-amd64: apt-get update, or set LINUX to a kernel"
        (cd "$out/linux" && apt-get download "$image" && dpkg -x "$image"_*.deb . && rm "$image"_*.deb)
    fi
    LINUX=$(ls "$out"/linux/boot/vmlinuz-* | tail -1)
fi

cp "$busybox" "$here/init" "$work/root"
strip -o "$work/root/tests" "$tests"
printf '%s\n' "${filters[@]}" >"$work/root/filters"
chmod +x "$work/root/init"
(cd "$work/root" && find . | cpio --quiet -o -H newc >"$work/iso/initrd")
cp "$LINUX" "$work/iso/vmlinuz"
cp $isolinux $ldlinux "$work/iso/isolinux"
# Bochs 2.7 tells a wrong size of the compacted state that XSAVEC writes, whereupon Linux would do
# without AVX altogether.
cat >"$work/iso/isolinux/isolinux.cfg" <<'CFG'
DEFAULT tests
LABEL tests
 KERNEL /vmlinuz
 INITRD /initrd
 APPEND console=ttyS0,115200 quiet clearcpuid=xsavec,xsaves mitigations=off nokaslr tsc=reliable no_timer_check panic=-1
CFG
xorriso -as mkisofs -quiet -o "$work/boot.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat \
    -no-emul-boot -boot-load-size 4 -boot-info-table "$work/iso" 2>"$work/xorriso.log" ||
    die "xorriso failed: $(cat "$work/xorriso.log")"

cat >"$work/bochsrc" <<CFG
megs: 512
cpu: model=$cpu, count=1, ips=50000000, reset_on_triple_fault=0
romimage: file=$bios
vgaromimage: file=$vga
ata0: enabled=1
ata0-master: type=cdrom, path="$work/boot.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev="$work/serial"
display_library: term
clock: sync=none
log: "$work/bochs.log"
panic: action=fatal
CFG
help=$("$bochs" --help 2>&1 </dev/null)
if [[ $("$bochs" --help cpu 2>&1 </dev/null) != *"$cpu"* ]]; then
    die "this Bochs has no CPU $cpu: it was built without AVX-512 (--enable-evex)"
fi
# Builds with a debugger, such as Debian's, wait for a command first.
rc=()
if [[ $help == *-rc* ]]; then
    echo c >"$work/rc"
    rc=(-rc "$work/rc")
fi

# The display wants a terminal, which `script` makes, and draws a screen nobody needs.
echo "booting $(basename "$LINUX") on $cpu: some minutes" >&2
: >"$work/serial"
TERM=vt100 script -qec "$(printf '%q ' "$bochs" -q -f "$work/bochsrc" "${rc[@]}")" /dev/null \
    </dev/null >"$work/screen" 2>&1 &
machine=$!
trap 'kill $machine 2>/dev/null || true' EXIT
tail -q -n +1 --pid=$machine -f "$work/serial" || true
wait $machine || true
grep -q '^exit status: 0' "$work/serial" || die "the tests failed, or did not run to their end: $work/serial, $work/bochs.log"
