#!/bin/bash
# The main job on real I/O. Act one: a disk image on storage that does 700 operations a second at 8 ms answers at the speed of
# the tier in front of it, and a kill in the middle loses nothing. Act two (demo-nodes.sh): three nodes keep the log of a volume
# in the RAM of two of them, and the one that serves is killed.
#
#   scripts/demo.sh          before, after, kill and check; leaves the daemons and the page of the first up
#   scripts/demo.sh --exit   the same, then stops everything and removes it
#   scripts/demo.sh --stop   stops what an earlier demo left up, and removes it
#
# The slow storage is emulated (`slow:iops=700,latency=8ms:` before a file), because not everybody has an array at hand. "Before" is
# measured twice: by nbdkit with its own delay filter, which is not our code, and by Forebay writing through.
# DEMO_DIR (default: /var/tmp/forebay-demo) needs 2 GiB; DEMO_SECONDS (default 8) is the time of each measurement;
# DEMO_HTTP (default 127.0.0.1:7070) is the page's address. Act two needs root: by sudo, if this is not root.
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

# shellcheck source=scripts/demo-lib.sh
. scripts/demo-lib.sh

daemon_exe=$(readlink -f "$binary" 2>/dev/null || true)
nbdkit_exe=$(readlink -f "$(command -v nbdkit || true)" 2>/dev/null || true)

stop_all() {
    is_ours_or_absent "$dir" || die "$dir belongs to somebody else: remove it, or name another folder by DEMO_DIR"
    stop_process "$dir/nbdkit.pid" "$nbdkit_exe" TERM
    stop_process "$dir/daemon.pid" "$daemon_exe" KILL
    [ ! -e "$(nodes_dir "$dir")" ] || as_root scripts/demo-nodes.sh --stop
    rm -rf "$dir"
}

# With what the second act asks for in its environment.
as_root() { # a command
    if [ "$(id -u)" = 0 ]; then DEMO_DIR="$dir" DEMO_SECONDS="$seconds" "$@"; else sudo DEMO_DIR="$dir" DEMO_SECONDS="$seconds" "$@"; fi
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

interrupted=no
trap 'interrupted=yes; exit 130' INT TERM
trap 'if [ $interrupted = yes ]; then stop_all; else stop_process "$dir/nbdkit.pid" "$nbdkit_exe" TERM; fi' EXIT
stop_all
make_ours "$dir"

start_daemon() { # policy
    setsid "$binary" serve --backing "slow:iops=$iops,latency=${latency_ms}ms:$image" --name vm1 --policy "$1" --tier flash \
        --tier-size "${size_mib}M" --state "$dir/state-$1" --nbd "unix:$socket" --api "$dir/api.sock" --http "$http" >>"$dir/daemon.log" 2>&1 </dev/null &
    echo $! >"$dir/daemon.pid"
    # It is ended on purpose below; the shell need not report that.
    disown
    for _ in $(seq 100); do
        nbdinfo --size "$uri" >/dev/null 2>&1 && return 0
        running "$dir/daemon.pid" "$daemon_exe" || { cat "$dir/daemon.log" >&2; die "the daemon did not start (another address for its page: DEMO_HTTP=127.0.0.1:PORT)"; }
        sleep 0.1
    done
    cat "$dir/daemon.log" >&2
    die "the daemon did not answer within 10 seconds"
}

measure_all() { # uri, label: three rows, appended to the table
    local q1 q32 sync
    echo "  queue depth 1, $seconds s ..."
    q1=$(measure "$1" --size=256m --iodepth=1)
    echo "  queue depth 32, $seconds s ..."
    q32=$(measure "$1" --size=256m --iodepth=32)
    echo "  a flush after each write, $seconds s ..."
    sync=$(measure "$1" --size=256m --iodepth=1 --fsync=1)
    printf '%s|%s|%s|%s\n' "$2" "$q1" "$q32" "$sync" >>"$dir/table"
}

say "A disk image of $size_mib MiB, fully written: $image"
dd if=/dev/zero of="$image" bs=1M count=$size_mib conv=fsync status=none

# So many at a time, each for the latency, make the storage's operations per second; `slow:` counts the same way.
depth=$(((iops * latency_ms + 999) / 1000))
say "Before: nbdkit serves the image with a delay of $latency_ms ms, $depth requests at a time"
nbdkit --unix "$dir/slow.sock" --pidfile "$dir/nbdkit.pid" --threads "$depth" --filter=delay file "$image" \
    delay-read="${latency_ms}ms" delay-write="${latency_ms}ms"
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
echo "(Latencies are of the write alone, IOPS count the flush that follows as well. nbdkit's delay filter does not delay flushes,"
echo " so the last column flatters the plain row. The write-back rows last as long as the tier has room: a load that never"
echo " pauses ends at the storage's own speed.)"

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

# Act two. What it needs and this machine lacks is said, and nothing else is left out.
lacks=""
if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null && { [ ! -t 0 ] || ! sudo -v; }; then
    lacks="root, for network namespaces: run it as root, or by a user whom sudo lets"
elif ! as_root sh -c "ip netns add forebay-demo-probe-$$ && ip netns delete forebay-demo-probe-$$" 2>/dev/null; then
    lacks="network namespaces, which this machine does not let root make"
elif ! command -v etcd >/dev/null; then
    lacks="etcd: scripts/setup.sh installs it"
fi
if [ -n "$lacks" ]; then
    say "skipped: act two, three nodes: it needs $lacks"
elif [ $leave_up = yes ]; then
    as_root scripts/demo-nodes.sh
else
    as_root scripts/demo-nodes.sh --exit
fi

if [ $leave_up = no ]; then
    stop_all
    say "Stopped, $dir removed."
    exit 0
fi
say "The daemon of act one is up: its page is http://$http/ , the volume is $uri"
grep '^qemu' "$dir/daemon.log" | tail -1 || true
echo "Stop everything with: scripts/demo.sh --stop"
