# What both acts of the demo use; read by them, not run. They set `dir`, `seconds` and `binary` before.
# shellcheck shell=bash disable=SC2154

say() { printf '\n%s\n' "$*"; }
die() { echo "demo: $*" >&2; exit 1; }

# A folder where everybody may make one of its name: false where somebody else was first. What he put there is not believed.
is_ours_or_absent() { [ ! -e "$1" ] && [ ! -L "$1" ] || [ -O "$1" ] && [ ! -L "$1" ]; }
make_ours() {
    mkdir -p "$(dirname "$1")"
    mkdir -m 755 "$1" || die "cannot make $1 anew"
}

# Where the nodes of the second act lie, which root runs: below a folder of another user root's daemon would take no state.
nodes_dir() { echo "/var/tmp/forebay-demo-nodes-$(printf %s "$1" | cksum | cut -d' ' -f1)"; } # the demo's folder

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
    die "process $pid does not end after signal $3; its output is in $dir"
}

# One measurement by fio's own NBD client: "IOPS mean_ms p99_ms".
measure() { # uri, then fio options
    local target=$1
    shift
    fio --name=demo --ioengine=nbd --uri="$target" --rw=randwrite --bs=4k --runtime="$seconds" --time_based \
        --randrepeat=0 --norandommap --output-format=json "$@" >"$dir/fio.json" 2>"$dir/fio.err" ||
        { cat "$dir/fio.err" "$dir/fio.json" >&2; die "fio failed"; }
    # fio 3.33 prints a note before the JSON.
    sed -n '/^{/,$p' "$dir/fio.json" | jq -r '.jobs[0].write |
        "\(.iops | round) \(.lat_ns.mean / 1e6 | . * 1000 | round / 1000) \(.clat_ns.percentile."99.000000" / 1e6 | . * 1000 | round / 1000)"'
}
