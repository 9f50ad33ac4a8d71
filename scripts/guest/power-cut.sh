#!/usr/bin/env bash
# Runs the daemon under load in a QEMU guest whose tier and backing each lie on a dm-log-writes recorder, and leaves in
# OUT: `tier.recording`, `backing.recording`, `journal`, `state/`, `server.log`, `load.log`, `console.log`.
# The cuts themselves are replayed on the host: tests/tests/power_cuts.rs.
#
# usage: power-cut.sh OUT PATTERN_BINARY SERVER_BINARY [NAME=VALUE...]
#   io=uring|threads  plant=NAME  wrapper=slow:...:  tier_mib=32  backing_mib=64  seconds=25  requests=4000  seed=1
#   server=forebay|nbdkit
#
# No KVM and no module of the host is needed: the kernel is Debian's cloud kernel under TCG, downloaded once to .cache.
set -euo pipefail

out=$1 pattern=$2 binary=$3
shift 3
io=uring plant='' wrapper='' tier_mib=32 backing_mib=64 seconds=25 requests=4000 seed=1 server=forebay
for assignment in "$@"; do
    case $assignment in
    io=* | plant=* | wrapper=* | tier_mib=* | backing_mib=* | seconds=* | requests=* | seed=* | server=*) declare "$assignment" ;;
    *) echo "power-cut.sh: unknown parameter $assignment" >&2; exit 2 ;;
    esac
done

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${FOREBAY_CACHE:-$(cd "$here/../.." && pwd)/.cache}/guest
for tool in qemu-system-x86_64 dmsetup dpkg-deb ldd strip; do
    command -v $tool >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null ||
        { echo "power-cut.sh: $tool is missing; run scripts/setup.sh" >&2; exit 1; }
done

# Kernel and busybox from Debian's archive, unpacked and never installed. The lock keeps parallel tests apart.
fetch() {
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    if ! [ -e "$cache/ready" ]; then
        rm -rf "$cache/x"
        (
            cd "$cache"
            # The metapackage names the current kernel.
            kernel=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends:.*linux-image/ { print $2; exit }')
            for package in "$kernel" busybox-static; do
                ls "${package}"_*.deb >/dev/null 2>&1 || apt-get download "$package"
            done
            for package in *.deb; do dpkg-deb -x "$package" x; done
        ) >&2
        touch "$cache/ready"
    fi
    exec 9>&-
}
fetch
kernel=$(echo "$cache"/x/boot/vmlinuz-*)
modules=$(echo "$cache"/x/lib/modules/*/kernel)

mkdir -p "$out"
root=$out/root
rm -rf "$root"
mkdir -p "$root"/{bin,lib,lib64,modules,proc,sys,dev,usr}
ln -s ../lib "$root/usr/lib"
# One folder per architecture in Debian; the loader of the guest finds all in /lib.
with_libraries() {
    ldd "$1" | awk '/=> \// { print $3 } /^\t\/lib64/ { print $1 }' | while read -r library; do
        case $library in
        /lib64/*) cp -Ln "$library" "$root/lib64/" ;;
        *) cp -Ln "$library" "$root/lib/" ;;
        esac
    done
}
install_binary() { # from, name
    cp -L "$1" "$root/bin/$2"
    with_libraries "$1"
}
cp "$cache/x/bin/busybox" "$root/bin/busybox"
for applet in sh mount mkdir cat echo sleep insmod poweroff cp cut kill tar sync seq grep; do
    ln -s busybox "$root/bin/$applet"
done
install_binary "$(PATH=$PATH:/usr/sbin:/sbin command -v dmsetup)" dmsetup
install_binary "$pattern" pattern
if [ "$server" = nbdkit ]; then
    install_binary "$(command -v nbdkit)" nbdkit
    plugin=$(nbdkit --dump-config | sed -n 's/^plugindir=//p')/nbdkit-file-plugin.so
    cp "$plugin" "$root/lib/"
    with_libraries "$plugin"
else
    install_binary "$binary" forebay
fi
# Debug information would double the guest's boot under TCG.
strip --strip-debug "$root/bin/pattern" "$root"/bin/forebay 2>/dev/null || strip --strip-debug "$root/bin/pattern"
for module in virtio/virtio virtio/virtio_ring virtio/virtio_pci_modern_dev virtio/virtio_pci_legacy_dev \
    virtio/virtio_pci block/virtio_blk md/dm-mod md/dm-log-writes; do
    # What the kernel has built in has no file.
    [ -e "$modules/drivers/$module.ko" ] || continue
    cp "$modules/drivers/$module.ko" "$root/modules/"
done
# virtio needs virtio_ring's symbols or the other way round, by kernel: the order is tried out in the guest's terms.
(cd "$root/modules" && for m in virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk \
    dm-mod dm-log-writes; do [ ! -e $m.ko ] || echo $m.ko; done >order)
cp "$here/init" "$root/init"
chmod +x "$root/init"
(cd "$root" && find . | "$cache/x/bin/busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$out/initrd"
rm -rf "$root"

rm -f "$out"/{tier,backing}.{recording,disk} "$out/back"
truncate -s 4G "$out/tier.recording" "$out/backing.recording"
truncate -s "${tier_mib}M" "$out/tier.disk"
truncate -s "${backing_mib}M" "$out/backing.disk"
truncate -s 256M "$out/back"
disk() { echo "-drive file=$1,format=raw,if=none,id=$2,cache=unsafe,discard=unmap -device virtio-blk-pci,drive=$2,write-cache=on"; }
# `cache=unsafe` spares the host the syncs: what counts is the recording, and the host does not lose power.
# shellcheck disable=SC2046
timeout -s KILL $((seconds + 120)) qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 768M \
    -nodefaults -no-reboot -display none -serial file:"$out/console.log" -kernel "$kernel" -initrd "$out/initrd" \
    $(disk "$out/tier.recording" vda) $(disk "$out/tier.disk" vdb) $(disk "$out/backing.recording" vdc) \
    $(disk "$out/backing.disk" vdd) $(disk "$out/back" vde) \
    -append "console=ttyS0 quiet panic=-1 fb_server=$server fb_io=$io fb_plant=$plant fb_wrapper=$wrapper fb_tier_mib=$tier_mib fb_seconds=$seconds fb_requests=$requests fb_seed=$seed" \
    || { echo "power-cut.sh: the guest did not end by itself:" >&2; tail -50 "$out/console.log" >&2; exit 1; }
tar -xf "$out/back" -C "$out" 2>/dev/null || true
rm -f "$out/back" "$out"/{tier,backing}.disk "$out/initrd"
if ! grep -q 'guest: DONE' "$out/console.log"; then
    echo "power-cut.sh: the guest's load failed; its console:" >&2
    tail -50 "$out/console.log" >&2
    exit 1
fi
