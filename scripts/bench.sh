#!/bin/bash
# Measures, side by side and in one run: slow storage by itself, and behind Forebay. Prints tables; writes nothing but
# what lies in BENCH_DIR, which is removed at the end.
#
#   scripts/bench.sh [OPTION]...    options are passed to `forebay bench`, such as --time 30s or --json
#
# The storage is emulated: nbdkit's delay filter with 6 requests at a time for the plain side (750 IOPS at 8 ms; a little in its
# favour), `slow:iops=700,latency=8ms:` behind Forebay.
# BENCH_DIR (default: /var/tmp/forebay-bench) needs 5 GiB on the disk that is to hold the tier.
set -eu -o pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
dir=${BENCH_DIR:-/var/tmp/forebay-bench}
binary=target/release/forebay

cargo build --locked --release --quiet -j2 --package forebay-node
[ ! -e "$dir" ] || { echo "bench: $dir is there already; remove it, or name another by BENCH_DIR" >&2; exit 1; }
mkdir -p "$dir"
daemon=""
cleanup() {
    [ -z "$daemon" ] || { kill -KILL "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null || true; }
    [ ! -s "$dir/nbdkit.pid" ] || kill "$(cat "$dir/nbdkit.pid")" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT

for image in plain tiered; do dd if=/dev/zero of="$dir/$image.img" bs=1M count=1024 conv=fsync status=none; done
nbdkit --unix "$dir/plain.sock" --pidfile "$dir/nbdkit.pid" --threads 6 --filter=delay file "$dir/plain.img" \
    delay-read=8ms delay-write=8ms
"$binary" serve --backing "slow:iops=700,latency=8ms:$dir/tiered.img" --name bench --tier-size 1G --state "$dir/state" \
    --nbd "unix:$dir/nbd.sock" --api "$dir/api.sock" --http off >"$dir/daemon.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
    nbdinfo --size "nbd+unix:///bench?socket=$dir/nbd.sock" >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || { cat "$dir/daemon.log" >&2; exit 1; }
    sleep 0.1
done

echo "machine: $(nproc) cores, $(uname -sr), $(awk -F: '/model name/ { print $2; exit }' /proc/cpuinfo | sed 's/^ //'); tier on $(df --output=fstype,source "$dir" | tail -1)"
echo "commit: $(git describe --always --dirty)"
echo
"$binary" bench --backing "nbd+unix:///?socket=$dir/plain.sock" --volume "nbd+unix:///bench?socket=$dir/nbd.sock" --overwrite "$@"
echo
"$binary" bench --limit
