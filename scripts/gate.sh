#!/bin/bash
# The gate: everything that must hold before a change is taken. Runs every part even when one failed, prints the
# minutes of each and a last line with the counts; exit status 1 if anything failed.
#
#   scripts/gate.sh [PART]...     parts: setup build verify blackbox powercuts demo (default: all)
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH
export CARGO_TERM_COLOR=never
# Built by the part `build`; without these the tests would look for them, and build them, once more.
export FOREBAY_BIN="$PWD/target/release/forebay" FOREBAY_PLANTED_BIN="$PWD/target/planted/release/forebay"

all="setup build verify blackbox powercuts demo"
parts="${*:-$all}"
for part in $parts; do
    case " $all " in *" $part "*) ;; *) echo "gate: no such part: $part (parts: $all)" >&2; exit 2 ;; esac
done

logs=target/gate
mkdir -p "$logs"
failed_parts=""
table=""

# All test files of the package but those with guests (power cuts, machines as clients, sockets), which have their own part. Those of
# several nodes mostly wait for leases and grace times to pass: they run beside the others.
black_box() {
    local file alone=() several=() log=target/gate/several-nodes.log status=0
    for file in tests/tests/*.rs; do
        if grep -q 'forebay_tests::cluster' "$file"; then
            several+=(--test "$(basename "$file" .rs)")
        else
            case $(basename "$file" .rs) in power_cuts | guests | doctor_guest | placement) ;; *) alone+=(--test "$(basename "$file" .rs)") ;; esac
        fi
    done
    local run=(cargo test --locked --release --package forebay-tests -j2 --no-fail-fast)
    "${run[@]}" --lib --bins "${alone[@]}" "${several[@]}" --no-run || return 1
    "${run[@]}" "${several[@]}" >"$log" 2>&1 &
    "${run[@]}" --lib --bins "${alone[@]}" || status=1
    wait $! || status=1
    cat "$log"
    return $status
}

run_part() {
    case "$1" in
        setup) scripts/setup.sh --gate ;;
        build)
            # First the binary with planted faults, which the proofs must catch, and away with it: the two must never be taken for each
            # other. From one folder, because the libraries are the same.
            cargo build --locked --release --package forebay-node --features planted -j2 &&
                mkdir -p target/planted/release && mv target/release/forebay target/planted/release/forebay &&
                cargo build --locked --release --workspace -j2
            ;;
        verify) cargo xtask verify --minutes "${FOREBAY_SIM_MINUTES:-0}" ;;
        blackbox) black_box ;;
        powercuts) cargo test --locked --release --package forebay-tests -j2 --test power_cuts --test guests --test doctor_guest --test placement ;;
        # Short, and beside a demo that somebody has left up.
        demo) DEMO_DIR="$PWD/target/gate/demo" DEMO_SECONDS=1 DEMO_HTTP=off scripts/demo.sh --exit ;;
    esac
}

for part in $parts; do
    echo "##### $part"
    start=$(date +%s)
    if run_part "$part" 2>&1 | tee "$logs/$part.log"; then word=ok; else word=FAILED; failed_parts="$failed_parts $part"; fi
    took=$(($(date +%s) - start))
    table="$table$(printf '%6d.%01d  %-9s %s' $((took / 60)) $((took % 60 / 6)) "$part" "$word")
"
done

echo
echo "##### minutes"
printf '%s' "$table"

# Counts of single tests as the test runners print them, and of skips as the tests print them.
logs_of_parts=""
for part in $parts; do logs_of_parts="$logs_of_parts $logs/$part.log"; done
# shellcheck disable=SC2086 # the names are words
summary=$(awk '
    /^test result:/ {
        for (i = 2; i <= NF; i++) {
            if ($i == "passed;") passed += $(i - 1)
            if ($i == "failed;") failed += $(i - 1)
            if ($i == "ignored;") skipped += $(i - 1)
        }
    }
    /^(skipped:|SKIPPED )/ { skipped++ }
    END { printf "%d passed, %d failed, %d skipped", passed, failed, skipped }' $logs_of_parts)
if [ -n "$failed_parts" ]; then summary="$summary; FAILED:$failed_parts"; fi
echo "$summary" | tee "$logs/summary"
[ -z "$failed_parts" ]
