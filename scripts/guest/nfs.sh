#!/usr/bin/env bash
# A daemon of a single node, whose images lie on a real NFS server: the server is cut off, restarted with and without giving the locks
# back, lets the client's lease end, is full, and somebody replaces the image meanwhile, or locks it. One guest is server and client;
# leaves its words in OUT/console.log, the last of them `guest: DONE`. tests/tests/guests.rs looks at them.
#
# usage: nfs.sh OUT FOREBAY_BINARY
set -euo pipefail

out=$1 binary=$2
# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_tools nbd-client ip flock
fetch_kernel
mkdir -p "$out"
new_root "$out/root" sh mount mkdir cat echo sleep insmod poweroff tr grep dd dmesg test tail printf mv cp touch kill ifconfig unshare \
    nsenter hostname md5sum rm timeout
install_binary "$binary" forebay
for tool in nbd-client ip flock; do install_binary "$(command -v "$tool")" "$tool"; done
# Symbols would make the guest's boot under TCG longer.
strip "$root/bin/forebay"
with_modules libcrc32c nbd veth sunrpc grace lockd nfs_acl auth_rpcgss nfsd dns_resolver netfs fscache nfs nfsv4
pack_root "$here/nfs-init" "$out/initrd"

run_guest 500 -accel tcg,thread=multi -smp 2 -m 1G -append "console=ttyS0 quiet panic=-1 no_timer_check"
