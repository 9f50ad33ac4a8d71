#!/bin/bash
# The demo's second act: three nodes, each a host of its own (a network namespace), keep a volume's log in the RAM of two of them.
# The node that serves is killed in the middle of a load, another one takes over, and every acknowledged write is looked for.
#
#   scripts/demo-nodes.sh          leaves the nodes up
#   scripts/demo-nodes.sh --exit   stops them and removes everything
#   scripts/demo-nodes.sh --stop   stops what an earlier one left up
#
# `make demo` runs it after the first act. It needs root (network namespaces, a tmpfs), and etcd. The hosts are joined by two switches
# that lead nowhere else:
#
#   alpha 10.77.0.1, 10.77.1.1     beta 10.77.0.2, 10.77.1.2     gamma 10.77.0.3, 10.77.1.3
set -eu -o pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin"

demo_dir=${DEMO_DIR:-/var/tmp/forebay-demo}
seconds=${DEMO_SECONDS:-3}
[ "$seconds" -le 3 ] || seconds=3
binary=${DEMO_BIN:-target/release}/forebay
pattern=${DEMO_BIN:-target/release}/pattern
nodes="alpha beta gamma"
iops=700
latency_ms=8
# shellcheck source=scripts/demo-lib.sh
. scripts/demo-lib.sh
dir=$(nodes_dir "$demo_dir")

# Two demos in two folders must not meet.
tag=$(printf %s "$demo_dir" | cksum | cut -d' ' -f1)
space() { echo "forebay-demo-$tag-$1"; }
# For nsenter: the process that is started in the background must be the program itself, not a shell around it.
net() { echo "--net=/run/netns/$(space "$1")"; } # host
api() { # host, then words for its daemon
    local host=$1
    shift
    "$binary" "$@" --api "$dir/$host/api.sock"
}
uri() { echo "nbd+unix:///vm1?socket=$dir/$1/nbd.sock"; }
daemon_exe=$(readlink -f "$binary" 2>/dev/null || true)
etcd_exe=$(readlink -f "$(command -v etcd || true)" 2>/dev/null || true)
load=""

stop_all() {
    is_ours_or_absent "$dir" || die "$dir belongs to somebody else: remove it"
    [ -z "$load" ] || kill "$load" 2>/dev/null || true
    local host
    for host in $nodes; do
        stop_process "$dir/$host/daemon.pid" "$daemon_exe" KILL
        stop_process "$dir/$host/etcd.pid" "$etcd_exe" KILL
        umount "$dir/$host/run/memory" 2>/dev/null || true
    done
    for host in $nodes switch; do
        [ ! -e "/run/netns/$(space "$host")" ] || ip netns delete "$(space "$host")"
    done
    rm -rf "$dir"
}

case "${1:-}" in
    "") leave_up=yes ;;
    --exit) leave_up=no ;;
    --stop) stop_all; exit 0 ;;
    *) echo "usage: scripts/demo-nodes.sh [--exit|--stop]" >&2; exit 2 ;;
esac

trap 'exit 130' INT TERM
trap stop_all EXIT
stop_all
make_ours "$dir"

# Says what it waited for, and with which words the daemons explain themselves.
await() { # seconds, what, then a command
    local left=$(($1 * 20)) what=$2
    shift 2
    until "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        if [ $left -le 0 ]; then
            for host in $nodes; do echo "--- $host"; tail -20 "$dir/$host/log"; done >&2
            die "waited in vain for $what"
        fi
        sleep 0.05
    done
}

# --- the hosts ---

make_hosts() {
    local switch host number=0 link
    switch=$(space switch)
    ip netns add "$switch"
    for link in 0 1; do
        ip -n "$switch" link add "bridge$link" type bridge
        ip -n "$switch" link set "bridge$link" up
    done
    for host in $nodes; do
        number=$((number + 1))
        ip netns add "$(space "$host")"
        ip -n "$(space "$host")" link set lo up
        for link in 0 1; do
            ip -n "$switch" link add "port$number$link" type veth peer name "link$link" netns "$(space "$host")"
            ip -n "$switch" link set "port$number$link" master "bridge$link" up
            ip -n "$(space "$host")" address add "10.77.$link.$number/24" dev "link$link"
            ip -n "$(space "$host")" link set "link$link" up
        done
    done
}

start_etcd() {
    local host number=0 members=alpha=http://10.77.0.1:2380,beta=http://10.77.0.2:2380,gamma=http://10.77.0.3:2380
    for host in $nodes; do
        number=$((number + 1))
        mkdir -p "$dir/$host"
        setsid nsenter "$(net "$host")" etcd --name "$host" --data-dir "$dir/$host/etcd" --log-level error \
            --listen-client-urls "http://10.77.0.$number:2379" --advertise-client-urls "http://10.77.0.$number:2379" \
            --listen-peer-urls "http://10.77.0.$number:2380" --initial-advertise-peer-urls "http://10.77.0.$number:2380" \
            --initial-cluster "$members" --auto-compaction-retention 1h >"$dir/$host/etcd.log" 2>&1 </dev/null &
        echo $! >"$dir/$host/etcd.pid"
        disown
    done
}

configure() {
    local host number=0
    "$binary" node init-ca --cluster demo --authority "$dir/authority" >/dev/null
    # shellcheck disable=SC2086 # the names are words
    "$binary" node enrol $nodes --authority "$dir/authority" --to "$dir" >/dev/null
    for host in $nodes; do
        number=$((number + 1))
        cat >"$dir/$host/node.toml" <<CONFIG
[node]
state = "$dir/$host/state"
shards = 1
[listen]
nbd = ["unix:$dir/$host/nbd.sock"]
api = "$dir/$host/api.sock"
[backings]
allow = ["slow:", "$dir"]
[cluster]
identity = "$dir/$host.identity.toml"
etcd = ["http://10.77.0.1:2379", "http://10.77.0.2:2379", "http://10.77.0.3:2379"]
[[link]]
own = "10.77.0.$number"
[[link]]
own = "10.77.1.$number"
CONFIG
    done
}

start_node() { # host
    RUNTIME_DIRECTORY="$dir/$1/run" setsid nsenter "$(net "$1")" "$binary" serve --config "$dir/$1/node.toml" >>"$dir/$1/log" 2>&1 </dev/null &
    echo $! >"$dir/$1/daemon.pid"
    # It is ended on purpose below; the shell need not report that.
    disown
}

# --- what is asked of them ---

answers() { api "$1" status; }
links_are_up() { # host
    api "$1" node list --json | jq -e '[.[] | select(.own | not)] | length == 2 and all(.up and ([.channels[] | select(.phase == "up")] | length == 2))'
}
is_served_by() { # host
    api "$1" volume show vm1 --json | jq -e '.cluster.state == "owner" and .phase == "serving"' && nbdinfo --size "$(uri "$1")"
}
is_written() { # host, effective policy, number of logs
    api "$1" volume show vm1 --json |
        jq -e ".policy.effective == \"$2\" and ([.cluster.members[] | select(.role != \"learner\")] | length == $3)"
}
taken_over() { for host in beta gamma; do if is_served_by "$host"; then echo "$host" >"$dir/owner"; return 0; fi; done; return 1; }
milliseconds() { echo $(($(date +%s%N) / 1000000)); }

row() { # label; the area is small, so that what is measured is the way of a write and not the drain of the log
    local figures
    figures=$(measure "$(uri alpha)" --iodepth=1 --size=16m)
    printf '%s|%s\n' "$1" "$figures" >>"$dir/table"
}

# --- the act ---

say "Act two: three nodes on this machine, joined by two links with TLS; a real etcd of three members; one image on the slow storage"
make_hosts
start_etcd
configure
for host in $nodes; do start_node "$host"; done
for host in $nodes; do await 60 "$host to answer" answers "$host"; done
await 60 "both links between all nodes" links_are_up alpha

api alpha volume create vm1 --backing "slow:iops=$iops,latency=${latency_ms}ms:$dir/shared.img" --size 128M --create \
    --policy through --peers 1 --tier memory --tier-size 256M >/dev/null
await 30 "the volume to be served" is_served_by alpha
echo "  the volume is alpha's; every write waits for the storage, $seconds s ..."
row "the slow storage (policy through)"
api alpha volume set vm1 --policy back --peers 0 >/dev/null
await 30 "acknowledgement by one log" is_written alpha back 1
echo "  WB+0: a write is acknowledged by alpha's RAM, $seconds s ..."
row "WB+0: in the RAM of one host"
api alpha volume set vm1 --peers 1 >/dev/null
await 30 "acknowledgement by two logs" is_written alpha back 2
echo "  WB+1: by the RAM of two hosts, $seconds s ..."
row "WB+1: in the RAM of two hosts"

say "Random 4 KiB writes, one at a time: operations a second, and latency in ms"
awk -F'|' 'BEGIN { printf "%-36s %10s %10s %10s\n", "", "IOPS", "mean", "p99" }
    { split($2, v, " "); printf "%-36s %10d %10.2f %10.2f\n", $1, v[1], v[2], v[3] }' "$dir/table"

say "Now the load in which every sector says which write it is; alpha is killed with SIGKILL in the middle of it"
set +e
"$pattern" write --uri "$(uri alpha)" --journal "$dir/journal" --from $((32 << 20)) --seconds 30 --flush-every 20 --fua-percent 5 \
    --zero-percent 5 >"$dir/pattern.log" 2>&1 &
load=$!
sleep 3
stop_process "$dir/alpha/daemon.pid" "$daemon_exe" KILL
killed=$(milliseconds)
wait $load
status=$?
load=""
set -e
# 3: the connection was lost while writing, which is what a kill looks like to a client.
[ $status = 3 ] || { cat "$dir/pattern.log" >&2; die "the load ended with status $status instead of a lost connection"; }
await 60 "another node to take over" taken_over
served=$(milliseconds)
owner=$(cat "$dir/owner")
awk -v host="$owner" -v ms=$((served - killed)) 'BEGIN {
    printf "killed. %s has taken over and serves after %.1f s (5 s of them it waits for a sign of life)\n", host, ms / 1000 }'
"$pattern" verify --uri "$(uri "$owner")" --journal "$dir/journal" --after kill >"$dir/verify.log" || die "an acknowledged write is missing"
acknowledged=$(sed -n 's/.* sent, \([0-9]*\) acknowledged.*/\1/p' "$dir/pattern.log")
checked=$(sed -n 's/.*; all that is promised of \([0-9]*\) requests$/\1/p' "$dir/verify.log")
[ "$checked" = "$acknowledged" ] || die "the load counted $acknowledged acknowledged requests, and $checked were checked"
echo "acknowledged requests checked: $checked of $acknowledged are there"

await 60 "a second log" is_written "$owner" back 2
awk -v ms=$(($(milliseconds) - killed)) 'BEGIN {
    printf "every write is in the RAM of two hosts again, %.1f s after the kill: the third node has been brought up to date\n", ms / 1000 }'
start_node alpha
await 60 "alpha to answer" answers alpha
await 60 "both links of alpha" links_are_up alpha
echo "alpha is started again, and stands by"

if [ $leave_up = no ]; then exit 0; fi
trap - EXIT
as_root=""
[ -z "${SUDO_USER:-}" ] || as_root="sudo "
say "The three nodes are up. To look at them, and to move the volume:"
for host in $nodes; do echo "  ${as_root}$binary volume show vm1 --api $dir/$host/api.sock"; done
echo "  ${as_root}$binary node list --api $dir/$owner/api.sock"
echo "  ${as_root}$binary volume hand-over vm1 alpha --api $dir/$owner/api.sock"
