#!/usr/bin/env bash
# Owners that lose what lets them write while they live: the lock on a file of a real NFS server, which takes it back, and the
# registration with a reserved SCSI disk, which somebody else preempts. One guest is server, disk and both nodes; leaves its words in
# OUT/console.log, the last of them `guest: DONE`. tests/tests/guests.rs looks at them.
#
# usage: locks.sh OUT FOREBAY_BINARY
set -euo pipefail

out=$1 binary=$2
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_tools dmsetup etcd nbd-client ip
fetch_kernel
# The library's package is called by its version.
library=$(apt-cache depends sg3-utils | awk '/Depends:.*libsgutils/ { print $2; exit }')
fetch_unpacked open-iscsi libopeniscsiusr sg3-utils "$library"
mkdir -p "$out"
new_root "$out/root" sh mount mkdir cat echo sleep insmod poweroff cut tr seq grep dd dmesg ln test tail printf mv touch kill ifconfig \
    unshare nsenter sed hostname md5sum rm
install_binary "$binary" forebay
for tool in dmsetup etcd nbd-client ip; do install_binary "$(command -v "$tool")" "$tool"; done
export LD_LIBRARY_PATH=$cache/x/usr/lib/x86_64-linux-gnu
install_binary "$cache/x/sbin/iscsistart" iscsistart
install_binary "$cache/x/usr/bin/sg_persist" sg_persist
cp "$here/shared-disk" "$root/shared-disk"
# Symbols would make the guest's boot under TCG longer.
strip "$root/bin/forebay" "$root/bin/etcd"
with_modules scsi_common scsi_mod sd_mod configfs target_core_mod target_core_iblock brd dm-mod dm-delay libcrc32c iscsi_target_mod \
    scsi_transport_iscsi libiscsi libiscsi_tcp iscsi_tcp nbd \
    veth sunrpc grace lockd nfs_acl auth_rpcgss nfsd dns_resolver netfs fscache nfs nfsv4
pack_root "$here/locks-init" "$out/initrd"

run_guest 600 -accel tcg,thread=multi -smp 2 -m 1G -append "console=ttyS0 quiet panic=-1 no_timer_check"
