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

# On a full disk tests fail with everything but that.
free_gib=$(($(df --output=avail -k . | tail -1) / 1048576))
if [ "$free_gib" -lt 10 ]; then
    echo "gate: builds and tests here need 10 GiB of disk, and $free_gib GiB are free: make room (target/ of other work trees?)" >&2
    exit 1
fi

logs=target/gate
mkdir -p "$logs"
failed_parts=""
table=""

# Test programs wait most of the time: for leases and grace times to pass, for disks that are slow on purpose, for other hosts.
side_by_side=3
# Files with guests (power cuts, machines as clients, sockets) have their own part.
guests="power_cuts guests doctor_guest placement"

# Runs one test program where cargo would, and prints what it said when it has ended, all at once.
run_test() {
    local program="$PWD/$1" name log status=0
    name=$(basename "${1%-*}")
    log="target/gate/tests/$name.log"
    (cd tests && "$program") >"$log" 2>&1 || status=1
    {
        flock 9
        echo "     Running $name"
        cat "$log"
        if [ $status != 0 ]; then echo "FAILED: $name"; fi
    } 9>target/gate/tests/lock
    return $status
}
export -f run_test

# Runs test programs of the package, so many at one time. Those of several nodes take longest, and come first.
run_tests() { # AT_ONCE [--test NAME|--lib|--bins]...
    local at_once=$1 built program first=() later=()
    shift
    rm -rf target/gate/tests && mkdir -p target/gate/tests
    built=$(cargo test --locked --release --package forebay-tests -j2 --no-run "$@" 2>&1) || { echo "$built"; return 1; }
    echo "$built" | grep -v Executable
    for program in $(sed -n 's/^ *Executable .*(\(.*\))$/\1/p' <<<"$built"); do
        if grep -qs 'forebay_tests::cluster' "tests/tests/$(basename "${program%-*}").rs"; then first+=("$program"); else later+=("$program"); fi
    done
    # None where cargo says it otherwise one day: that must not read as if they had passed.
    if [ $((${#first[@]} + ${#later[@]})) -lt $(($# / 2)) ]; then
        echo "gate: cargo names ${#first[@]} + ${#later[@]} test programs for: $*" >&2
        return 1
    fi
    printf '%s\n' "${first[@]}" "${later[@]}" | xargs -P "$at_once" -I '{}' bash -c 'run_test "$1"' run_test '{}'
}

black_box() {
    local file name tests=()
    if [ -e target/former/forebay ]; then export FOREBAY_OTHER_BIN="$PWD/target/former/forebay"; fi
    for file in tests/tests/*.rs; do
        name=$(basename "$file" .rs)
        case " $guests " in *" $name "*) ;; *) tests+=(--test "$name") ;; esac
    done
    run_tests "$side_by_side" --lib --bins "${tests[@]}"
}

# The version that clusters are upgraded from: the last tag, or what the test of that names. A copy without its history goes without,
# and the test says so.
build_former() {
    local version source=target/former/source
    version=$(git describe --tags --abbrev=0 2>/dev/null) ||
        version=$(sed -n 's/^const FORMER: &str = "\(.*\)";$/\1/p' tests/tests/mixed_versions.rs)
    rm -rf target/former && mkdir -p "$source"
    git cat-file -e "$version^{commit}" 2>/dev/null || { echo "gate: the history does not reach to $version"; return 0; }
    git archive "$version" | tar -x -C "$source" &&
        cargo build --locked --release --package forebay-node -j2 --manifest-path "$source/Cargo.toml" --target-dir target &&
        mv target/release/forebay target/former/forebay && rm -rf "$source"
}

run_part() {
    case "$1" in
        setup) scripts/setup.sh --gate ;;
        build)
            # First the former version, then the binary with planted faults, which the proofs must catch, and away with each: they must
            # never be taken for one another. From one folder, because the libraries are the same.
            build_former &&
                cargo build --locked --release --package forebay-node --features planted -j2 &&
                mkdir -p target/planted/release && mv target/release/forebay target/planted/release/forebay &&
                cargo build --locked --release --workspace -j2
            ;;
        verify) cargo xtask verify --minutes "${FOREBAY_SIM_MINUTES:-0}" ;;
        blackbox) black_box ;;
        # shellcheck disable=SC2086 # the names are words
        powercuts) run_tests 1 $(printf -- '--test %s ' $guests) ;;
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
