#!/bin/bash
# The gate: everything that must hold before a change is taken. Runs every part even when one failed, prints the
# minutes of each and a last line with the counts; exit status 1 if anything failed.
#
#   scripts/gate.sh [PART]...     parts: setup build verify blackbox guest (default: all)
set -u -o pipefail
cd "$(dirname "$0")/.." || exit 1
PATH="$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin"
export PATH
export CARGO_TERM_COLOR=never

all="setup build verify blackbox guest"
parts="${*:-$all}"
for part in $parts; do
    case " $all " in *" $part "*) ;; *) echo "gate: no such part: $part (parts: $all)" >&2; exit 2 ;; esac
done

logs=target/gate
mkdir -p "$logs"
failed_parts=""
table=""

run_part() {
    case "$1" in
        setup) scripts/setup.sh ;;
        build) cargo build --locked --release --workspace -j2 ;;
        verify) cargo xtask verify --minutes "${FOREBAY_SIM_MINUTES:-2}" ;;
        # One at a time: each starts daemons and measures nothing while another one takes the two cores.
        blackbox) cargo test --locked --release --package forebay-tests -j2 -- --test-threads=1 ;;
        guest) scripts/guest/power-cut.sh ;;
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
    /^skipped[: ]/ { skipped++ }
    /^power-cut: [0-9]+ passed, [0-9]+ failed/ { passed += $2; failed += $4 }
    END { printf "%d passed, %d failed, %d skipped", passed, failed, skipped }' $logs_of_parts)
if [ -n "$failed_parts" ]; then summary="$summary; FAILED:$failed_parts"; fi
echo "$summary" | tee "$logs/summary"
[ -z "$failed_parts" ]
