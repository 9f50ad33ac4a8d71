#!/bin/bash
# The long versions: fresh seeds of the simulator, the larger worlds of the model, the black-box tests with many rounds,
# and every fuzz target; and the doctor's memory bandwidth beside that of other programs. For idle machines; a failure prints what repeats it.
#
#   scripts/soak.sh [MINUTES]     minutes of simulation (default 60), three quarters of them with several nodes, and of faults
#                                 at a cluster of real daemons; fuzzing takes a quarter as long, shared by the targets
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
minutes=${1:-60}
case $minutes in "" | *[!0-9]*) echo "usage: scripts/soak.sh [MINUTES]" >&2; exit 2 ;; esac
failed=""

# From a seed that differs each time, so that a night does not repeat the one before. The dev profile has assertions on. A seed
# that finds something does not end the night.
simulate() { cargo run --locked --quiet --package forebay-sim -j2 -- --go-on --from "$(date +%s)000" "$@"; }
echo "##### simulation of one node, $((minutes / 4 + 1)) minutes"
simulate --minutes $((minutes / 4 + 1)) || failed="$failed simulation"
echo "##### simulation of clusters, $((minutes * 3 / 4 + 4)) minutes"
simulate --cluster --minutes $((minutes * 3 / 8 + 1)) || failed="$failed clusters"
for family in restless hostile migrating parted; do
    simulate --$family --minutes $((minutes / 8 + 1)) || failed="$failed $family-clusters"
done

echo "##### model, larger worlds"
# Bounded by states and not by time: some 2 GiB and 10 to 15 minutes. What was cut off is said.
cargo run --locked --quiet --release --package forebay-model -j2 -- --deep || failed="$failed model"

echo "##### black box, long"
# Of clusters that are killed, stopped and cut off, some three rounds a minute, two at one time. Of volumes that share a thread with
# hostile clients and hung calls, half of the minutes. Of a mixed one the other version is FOREBAY_OTHER_BIN, or built by the test.
FOREBAY_SOAK=1 FOREBAY_SOAK_MINUTES=$minutes FOREBAY_CHAOS_ROUNDS=$((minutes * 6)) cargo test --locked --release --package forebay-tests -j2 || failed="$failed blackbox"

echo "##### memory bandwidth, beside other programs"
scripts/bench.sh matrix --times 5 --must-meet || failed="$failed matrix"

targets=$(find fuzz/fuzz_targets -name '*.rs' | wc -l)
each=$((minutes * 60 / 4 / targets + 1))
echo "##### fuzzing, $targets targets, $each seconds each"
cargo xtask fuzz --seconds "$each" || failed="$failed fuzzing"

if [ -n "$failed" ]; then echo "soak: FAILED:$failed"; exit 1; fi
echo "soak: nothing found"
