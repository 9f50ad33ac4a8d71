#!/bin/bash
# Measures Forebay beside other programs, in turn and in one run; writes docs/benchmarks/results.json and renders
# docs/benchmarks.md with its plots from it.
#
#   scripts/bench.sh [SECTION]... [--times 3] [--seconds 5] [--long SECONDS] [--quick] [--render] [--must-meet]
#
# Without a section all are measured (about an hour); with some, the others keep their former results. --help lists them.
# What is measured, how, and what was aimed at is written with each section in scripts/bench/sections.py.
# BENCH_DIR (default: /var/tmp/forebay-bench) must not exist, lies on the disk that is to hold the flash tier, and needs 40 GiB;
# the restart section needs 12 GiB of free memory. Both are given back at the end. SQLite (flushes) is measured as root only: it mounts.
# Several nodes (replica, links, compression, takeover) as well: network namespaces. Ceph and GlusterFS are measured where they are installed:
# apt-get install --no-install-recommends ceph-mon ceph-osd ceph-mgr ceph-common glusterfs-server
# --must-meet writes nothing and exits with 1 where a goal is missed, as `make soak` wants it of the doctor's memory bandwidth (matrix).
# FOREBAY_BIN=FILE measures another build of the daemon.
set -eu -o pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
cargo build --locked --release --quiet -j2 --package forebay-node
cargo build --locked --release --quiet -j2 --package forebay-front --examples
exec /usr/bin/python3 scripts/bench/bench.py "$@"
