#!/bin/bash
# The main job on real I/O: a disk image on storage that does 700 operations a second at 8 ms answers at the speed of
# the tier in front of it, and a kill in the middle loses nothing.
#
#   scripts/demo.sh          before, after, kill and check; leaves the daemon and its page up
#   scripts/demo.sh --exit   the same, then stops the daemon and removes everything
#   scripts/demo.sh --stop   stops what an earlier demo left up, and removes it
#
# The slow storage is emulated (`slow:iops=700,latency=8ms:` before a file), because not everybody has an array at hand. "Before" is
# measured twice: by nbdkit with its own delay and rate filters, which is not our code, and by Forebay writing through.
# DEMO_DIR (default: /var/tmp/forebay-demo) needs 2 GiB; DEMO_SECONDS (default 8) is the time of each measurement;
# DEMO_HTTP (default 127.0.0.1:7070) is the page's address.
set -eu -o pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"

dir=${DEMO_DIR:-/var/tmp/forebay-demo}
seconds=${DEMO_SECONDS:-8}
http=${DEMO_HTTP:-127.0.0.1:7070}
iops=700
latency_ms=8
size_mib=512
image=$dir/disk.img
socket=$dir/nbd.sock
uri="nbd+unix:///vm1?socket=$socket"
binary=target/release/forebay
pattern=target/release/pattern

say() { printf '\n%s\n' "$*"; }
die() { echo "demo: $*" >&2; exit 1; }

# True while the process in a pid file is the program that we started, not a later one with the same number.
running() {
    [ -s "$1" ] && [ "$(readlink "/proc/$(cat "$1")/exe" 2>/dev/null)" = "$2" ]
}

stop_process() { # pid file, executable, signal
    running "$1" "$2" || { rm -f "$1"; return 0; }
    local pid
    pid=$(cat "$1")
    kill "-$3" "$pid"
    for _ in $(seq 600); do
        running "$1" "$2" || { rm -f "$1"; return 0; }
        sleep 0.1
    done
    die "process $pid does not end after signal $3; its output is in $dir/daemon.log"
}

daemon_exe=$(readlink -f "$binary" 2>/dev/null || true)
nbdkit_exe=$(readlink -f "$(command -v nbdkit || true)" 2>/dev/null || true)

stop_all() {
    stop_process "$dir/nbdkit.pid" "$nbdkit_exe" TERM
    stop_process "$dir/daemon.pid" "$daemon_exe" KILL
    rm -rf "$dir"
}

case "${1:-}" in
    "") leave_up=yes ;;
    --exit) leave_up=no ;;
    --stop) stop_all; echo "demo: stopped, $dir removed"; exit 0 ;;
    *) echo "usage: scripts/demo.sh [--exit|--stop]" >&2; exit 2 ;;
esac

say "Building (release)"
cargo build --locked --release --quiet -j2 --package forebay-node --package forebay-tests
daemon_exe=$(readlink -f "$binary")

stop_all
mkdir -p "$dir"
trap 'stop_process "$dir/nbdkit.pid" "$nbdkit_exe" TERM' EXIT

start_daemon() { # policy
    setsid "$binary" serve --backing "slow:iops=$iops,latency=${latency_ms}ms:$image" --name vm1 --policy "$1" --tier flash \
        --tier-size 1G --state "$dir/state-$1" --nbd "unix:$socket" --http "$http" >>"$dir/daemon.log" 2>&1 </dev/null &
    echo $! >"$dir/daemon.pid"
    for _ in $(seq 100); do
        nbdinfo --size "$uri" >/dev/null 2>&1 && return 0
        running "$dir/daemon.pid" "$daemon_exe" || { cat "$dir/daemon.log" >&2; die "the daemon did not start"; }
        sleep 0.1
    done
    cat "$dir/daemon.log" >&2
    die "the daemon did not answer within 10 seconds"
}

# One measurement by fio's own NBD client: "IOPS mean_ms p99_ms".
measure() { # uri, then fio options
    local target=$1
    shift
    fio --name=demo --ioengine=nbd --uri="$target" --rw=randwrite --bs=4k --size=256m --runtime="$seconds" --time_based \
        --randrepeat=0 --norandommap --output-format=json "$@" >"$dir/fio.json" 2>"$dir/fio.err" ||
        { cat "$dir/fio.err" "$dir/fio.json" >&2; die "fio failed"; }
    # fio 3.33 prints a note before the JSON.
    sed -n '/^{/,$p' "$dir/fio.json" | jq -r '.jobs[0].write |
        "\(.iops | round) \(.lat_ns.mean / 1e6 | . * 1000 | round / 1000) \(.clat_ns.percentile."99.000000" / 1e6 | . * 1000 | round / 1000)"'
}

measure_all() { # uri, label: three rows, appended to the table
    local q1 q32 sync
    echo "  queue depth 1, $seconds s ..."
    q1=$(measure "$1" --iodepth=1)
    echo "  queue depth 32, $seconds s ..."
    q32=$(measure "$1" --iodepth=32)
    echo "  a flush after each write, $seconds s ..."
    sync=$(measure "$1" --iodepth=1 --fsync=1)
    printf '%s|%s|%s|%s\n' "$2" "$q1" "$q32" "$sync" >>"$dir/table"
}

say "A disk image of $size_mib MiB, fully written: $image"
dd if=/dev/zero of="$image" bs=1M count=$size_mib conv=fsync status=none

say "Before: nbdkit serves the image with a delay of $latency_ms ms and the bandwidth of $iops writes of 4 KiB a second"
nbdkit --unix "$dir/slow.sock" --pidfile "$dir/nbdkit.pid" --threads 64 --filter=delay --filter=rate file "$image" \
    delay-read="${latency_ms}ms" delay-write="${latency_ms}ms" rate=$((iops * 4096 * 8))
for _ in $(seq 50); do [ -s "$dir/nbdkit.pid" ] && break; sleep 0.1; done
measure_all "nbd+unix:///?socket=$dir/slow.sock" "plain storage (nbdkit)"
stop_process "$dir/nbdkit.pid" "$nbdkit_exe" TERM

say "The same storage behind Forebay, writing through"
start_daemon through
measure_all "$uri" "forebay, write-through"
stop_process "$dir/daemon.pid" "$daemon_exe" TERM

say "The same storage behind Forebay, writing back (tier: a file on this machine's disk)"
start_daemon back
measure_all "$uri" "forebay, write-back"

say "Random 4 KiB writes; IOPS, and latency mean / p99 in ms"
awk -F'|' 'BEGIN { printf "%-26s %26s %26s %26s\n", "", "queue depth 1", "queue depth 32", "flush after each" }
    { printf "%-26s", $1
      for (i = 2; i <= 4; i++) { split($i, v, " "); printf " %8d %8.2f /%8.2f", v[1], v[2], v[3] }
      printf "\n" }' "$dir/table"
echo "(p99 is of the write alone where a flush follows; IOPS count both. While it lasts, the write-back rows are the tier's"
echo " speed: a load that never pauses ends at the storage's own speed when the tier is full.)"

say "Now a load in which every sector says which write it is; the daemon is killed with SIGKILL in the middle of it"
set +e
"$pattern" write --uri "$uri" --journal "$dir/journal" --from $((256 << 20)) --seconds 30 --flush-every 20 --fua-percent 5 \
    --zero-percent 5 >"$dir/pattern.log" 2>&1 &
load=$!
sleep 4
stop_process "$dir/daemon.pid" "$daemon_exe" KILL
wait $load
status=$?
set -e
# 3: the connection was lost while writing, which is what a kill looks like to a client.
[ $status = 3 ] || { cat "$dir/pattern.log" >&2; die "the load ended with status $status instead of a lost connection"; }
echo "killed. Starting it again and reading everything back:"
start=$(date +%s%N)
start_daemon back
echo "  serving after $((($(date +%s%N) - start) / 1000000)) ms"
"$pattern" verify --uri "$uri" --journal "$dir/journal" --after kill || die "an acknowledged write is missing"
echo "  every acknowledged byte is there"

if [ $leave_up = no ]; then
    stop_all
    say "Stopped, $dir removed."
    exit 0
fi
say "The daemon is up: its page is http://$http/ , the volume is $uri"
grep -h 'qemu-system' "$dir/daemon.log" | tail -1 || true
echo "Stop it with: scripts/demo.sh --stop"
