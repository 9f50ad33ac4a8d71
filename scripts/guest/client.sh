#!/usr/bin/env bash
# A QEMU guest as a client of a daemon on the host; leaves its words in OUT/console.log, the last of them
# `guest: DONE`. Who runs it may kill the daemon meanwhile: tests/tests/guests.rs.
#
# usage: client.sh image OUT SIZE_MIB         makes OUT/root.img, an ext4 root file system for `boot`
#        client.sh boot OUT SOCKET EXPORT     boots from a volume that holds it, by QEMU's NBD driver
#        client.sh nbd OUT PORT EXPORT        uses a volume by the kernel's NBD client over TCP to the host
#        client.sh take-over OUT PORT,PORT EXPORT   uses it by two servers on the host, until its last block says END
#   and for all kinds: [seconds=N] of load (default 12), for `take-over` at most
set -euo pipefail

kind=$1 out=$2
shift 2
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fetch_kernel
mkdir -p "$out"
applets="sh mount umount mkdir cat echo sleep insmod poweroff cut sync seq grep dd cmp sha256sum switch_root dmesg
    blockdev blkdiscard ifconfig rm printf head tr touch"

if [ "$kind" = image ]; then
    require_tools mkfs.ext4
    # shellcheck disable=SC2086 # the applets are words
    new_root "$out/root" $applets
    mkdir -p "$root"/{sbin,load}
    cp "$here/load" "$root/sbin/init"
    chmod +x "$root/sbin/init"
    rm -f "$out/root.img"
    mkfs.ext4 -q -d "$root" "$out/root.img" "${1}M"
    rm -rf "$root"
    exit 0
fi

place=$1 export=$2 seconds=12
shift 2
for assignment in "$@"; do
    case $assignment in
    seconds=*) declare "$assignment" ;;
    *) echo "client.sh: unknown parameter $assignment" >&2; exit 2 ;;
    esac
done
# shellcheck disable=SC2086
new_root "$out/root" $applets
mkdir -p "$root"/{volume,tmp,etc}
case $kind in
boot)
    with_modules virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk
    device=(
        -drive "driver=nbd,server.type=unix,server.path=$place,export=$export,reconnect-delay=60,if=none,id=volume,cache=none,discard=unmap,werror=report,rerror=report"
        -device virtio-blk-pci,drive=volume
    )
    ;;
nbd | take-over)
    require_tools nbd-client
    install_binary "$(command -v nbd-client)" nbd-client
    cp "$here/take-over" "$root/take-over"
    with_modules virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net nbd
    device=(-netdev user,id=net -device virtio-net-pci,netdev=net)
    ;;
*) echo "client.sh: no such kind of guest: $kind" >&2; exit 2 ;;
esac
pack_root "$here/client-init" "$out/initrd"

run_guest $((seconds + 150)) -accel tcg -m 384M "${device[@]}" \
    -append "console=ttyS0 quiet panic=-1 fb_kind=$kind fb_port=$place fb_export=$export fb_seconds=$seconds"
