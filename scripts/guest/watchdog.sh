#!/usr/bin/env bash
# A node of a cluster in a guest whose machine has a hardware watchdog. It ends when that resets it, or by itself; its words are in
# OUT/console.log. tests/tests/guests.rs runs it.
#
# usage: watchdog.sh OUT FOREBAY_BINARY CONFIG IDENTITY TAP ADDRESS
set -euo pipefail

out=$1 binary=$2 config=$3 identity=$4 tap=$5 address=$6
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
fetch_kernel
use_machine_kernel
mkdir -p "$out"
new_root "$out/root" sh mount mkdir cat echo sleep insmod poweroff cut dmesg ifconfig nc kill grep seq
mkdir -p "$root"/{etc,tmp,run,state}
cp "$config" "$root/etc/node.toml"
cp "$identity" "$root/etc/identity.toml"
install_binary "$binary" forebay
strip "$root/bin/forebay"
with_modules virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci failover net_failover virtio_net watchdog i6300esb
pack_root "$here/watchdog-init" "$out/initrd"

# A reset ends the emulator (-no-reboot).
timeout -s KILL 580 qemu-system-x86_64 -accel tcg -cpu max -m 768M -nodefaults -no-reboot -display none \
    -serial file:"$out/console.log" -kernel "$kernel" -initrd "$out/initrd" \
    -device i6300esb -action watchdog=reset \
    -netdev tap,id=net,ifname="$tap",script=no,downscript=no -device virtio-net-pci,netdev=net,mac=52:54:00:77:00:01 \
    -append "console=ttyS0 quiet panic=-1 no_timer_check fb_address=$address"
rm -f "$out/initrd"
