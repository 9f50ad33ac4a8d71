#!/usr/bin/env bash
# A fence by reservation, tried in a guest whose kernel is both hosts and the disk between them; leaves its words in
# OUT/console.log, the last of them `guest: DONE`. tests/tests/guests.rs looks at them.
#
# usage: fence.sh OUT FOREBAY_BINARY [fence|owners]     what is tried: `fence-check` by itself, or owners of a volume
set -euo pipefail

out=$1 binary=$2 what=${3:-fence}
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_tools dmsetup
fetch_kernel
fetch_unpacked open-iscsi libopeniscsiusr
mkdir -p "$out"
new_root "$out/root" sh mount mkdir cat echo sleep insmod poweroff cut tr seq grep dd dmesg ln test tail printf mv touch kill ifconfig
install_binary "$binary" forebay
install_binary "$(command -v dmsetup)" dmsetup
# The initiator's start from an initrd: no daemon, and nothing is installed here.
export LD_LIBRARY_PATH=$cache/x/usr/lib/x86_64-linux-gnu
install_binary "$cache/x/sbin/iscsistart" iscsistart
cp "$here/shared-disk" "$root/shared-disk"
if [ "$what" = owners ]; then
    require_tools etcd nbd-client
    install_binary "$(command -v etcd)" etcd
    install_binary "$(command -v nbd-client)" nbd-client
    ln -s busybox "$root/bin/unshare"
    ln -s busybox "$root/bin/sed"
fi
# Symbols would make the guest's boot under TCG longer.
strip "$root/bin/forebay"
with_modules scsi_common scsi_mod sd_mod configfs target_core_mod target_core_iblock brd dm-mod dm-delay libcrc32c iscsi_target_mod \
    scsi_transport_iscsi libiscsi libiscsi_tcp iscsi_tcp nbd
pack_root "$here/$what-init" "$out/initrd"

run_guest 900 -accel tcg,thread=multi -smp 2 -m 1G -append "console=ttyS0 quiet panic=-1 no_timer_check"
