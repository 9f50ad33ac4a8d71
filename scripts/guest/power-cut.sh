#!/usr/bin/env bash
# Runs the daemon under load in a QEMU guest whose tier and backing each lie on a dm-log-writes recorder, and leaves in
# OUT: `tier.recording`, `backing.recording`, `journal`, `state/`, `server.log`, `load.log`, `console.log`.
# With `on=ext4` or `on=btrfs` the backing is a file, with its journal beside it, on a file system on that recorder; then
# `backing.base` is left as well, the disk as it was before the recording. The cuts themselves are replayed on the host:
# tests/tests/power_cuts.rs.
#
# usage: power-cut.sh OUT PATTERN_BINARY SERVER_BINARY [NAME=VALUE...]
#   io=uring|threads  plant=NAME  wrapper=slow:...:  tier_mib=32  backing_mib=64  seconds=25  requests=4000  seed=1
#   server=forebay|nbdkit  on=device|ext4|btrfs  image_mib=24  destage=auto  pause_us=0
set -euo pipefail

out=$1 pattern=$2 binary=$3
shift 3
io=uring plant='' wrapper='' tier_mib=32 backing_mib=64 seconds=25 requests=4000 seed=1 server=forebay
on=device image_mib=24 destage=auto pause_us=0
for assignment in "$@"; do
    case $assignment in
    io=* | plant=* | wrapper=* | tier_mib=* | backing_mib=* | seconds=* | requests=* | seed=* | server=* | on=* | image_mib=* | destage=* | pause_us=*) declare "$assignment" ;;
    *) echo "power-cut.sh: unknown parameter $assignment" >&2; exit 2 ;;
    esac
done

# shellcheck source=scripts/guest/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
require_tools dmsetup
fetch_kernel

mkdir -p "$out"
new_root "$out/root" sh mount umount mkdir cat echo sleep insmod poweroff cp cut kill tar sync seq grep
install_binary "$(command -v dmsetup)" dmsetup
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
with_modules virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_blk dm-mod dm-log-writes
if [ "$on" = btrfs ]; then with_modules xxhash_generic libcrc32c zstd_compress raid6_pq xor blake2b_generic btrfs; fi
pack_root "$here/init" "$out/initrd"

before_boot() {
    rm -f "$out"/{tier,backing}.{recording,disk} "$out/back"
    truncate -s 4G "$out/tier.recording" "$out/backing.recording"
    truncate -s "${tier_mib}M" "$out/tier.disk"
    truncate -s "${backing_mib}M" "$out/backing.disk"
    truncate -s 256M "$out/back"
    case $on in
    ext4)
        require_tools mkfs.ext4
        # A journal that commits often and a small one of its own: many of its barriers fall into the recording.
        mkfs.ext4 -q -b 4096 -J size=4 "$out/backing.disk"
        ;;
    btrfs)
        require_tools mkfs.btrfs
        mkfs.btrfs -q "$out/backing.disk"
        ;;
    esac
    if [ "$on" != device ]; then cp --sparse=always "$out/backing.disk" "$out/backing.base"; fi
}
disk() { echo "-drive file=$1,format=raw,if=none,id=$2,cache=unsafe,discard=unmap -device virtio-blk-pci,drive=$2,write-cache=on"; }
# `cache=unsafe` spares the host the syncs: what counts is the recording, and the host does not lose power.
# shellcheck disable=SC2046
run_guest $((seconds + 120)) -accel tcg,thread=multi -smp 2 -m 768M \
    $(disk "$out/tier.recording" vda) $(disk "$out/tier.disk" vdb) $(disk "$out/backing.recording" vdc) \
    $(disk "$out/backing.disk" vdd) $(disk "$out/back" vde) \
    -append "console=ttyS0 quiet panic=-1 no_timer_check fb_server=$server fb_io=$io fb_plant=$plant fb_wrapper=$wrapper fb_tier_mib=$tier_mib fb_seconds=$seconds fb_requests=$requests fb_seed=$seed fb_on=$on fb_image_mib=$image_mib fb_destage=$destage fb_pause_us=$pause_us"
tar -xf "$out/back" -C "$out" 2>/dev/null || true
rm -f "$out/back" "$out"/{tier,backing}.disk
