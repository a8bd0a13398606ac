#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# profile_transfer.sh: where the coordinator's instructions and cache misses of one two-key transfer go, by phase:
# callgrind with its cache and branch simulation over tests/perf/transfer_count, inclusive costs of a few functions. Counts, so
# that it does not matter what else the machine does.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

WHAT=many
TRANSACTIONS=$(sed -n 's|^TRANSACTIONS=||p' "$ROOT/tests/perf/transfer_count.sh")
# Function, depth, what it is. A function that is not there (inlined, renamed) is left out.
read -r -d '' PHASES << 'END' || true
measure_pass      0 all
cairn_begin       1 begin
cairn_get_many    1 get_many: lock and read both keys in one trip
cairn_get_for_update 1 get_for_update, each key a trip
cairn_get         1 get: read the key
txn_cache_find    2 where the item is: the location cache
pm_item_look      2 checks of the items that came
cairn_put         1 put: both values into the write set
cairn_commit      1 commit
txn_plan          2 what goes to which node
txn_log_all       2 records: built, written, flushes posted
pm_record_sign_two 3 their checksums
txn_wait_trip     1 of both: waiting and polling
txn_mark_all      2 marks
txn_plan_learn    2 the cache learns
txn_doorbell      2 doorbells
END

usage()
{
    cat << END
Usage: tests/bench/profile_transfer.sh [--build DIR] [--what many|get|read]

Counts (callgrind) a warm transfer of two keys on two nodes, per transaction and phase: instructions, first-level cache misses,
misses of the last level, mispredicted branches. many: both keys by one get_many; get: two get_for_update; read: one read.
The emulated fabric's own part is the last line; everything else contains what it called.

Exit: 0 good, 2 wrong usage or environment.
END
}

parse()
{
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) usage && exit 0 ;;
        --build) BUILD=${2:?--build needs a folder} ;;
        --what) WHAT=${2:?--what needs a word} ;;
        *) usage >&2 && die "no option $1" ;;
        esac
        shift 2
    done
}

# Lines "function Ir D1 LL mispredicted", per transaction.
annotate()
{
    callgrind_annotate --inclusive=yes --threshold=100 --show-percs=no "$TEMP/out" |
        awk -v n="$TRANSACTIONS" '
            /^ *[0-9][0-9,]* / && NF >= 14 {
                for (i = 1; i <= 13; i++) gsub(/[,.]/, "", $i)
                name = $14
                sub(/^.*:/, "", name)
                printf "%s %.1f %.2f %.2f %.2f\n", name, $1 / n, ($5 + $6) / n, ($8 + $9) / n, ($11 + $13) / n
            }' > "$TEMP/costs"
}

row() { printf '%-48s %9s %9s %9s %9s\n' "$@"; }

report()
{
    local name depth what cost
    row "per transaction ($WHAT)" instr. 'D1 miss' 'LL miss' mispred.
    while read -r name depth what; do
        cost=$(awk -v name="$name" '$1 == name { print $2, $3, $4, $5; exit }' "$TEMP/costs")
        # shellcheck disable=SC2086 # four words
        [ -z "$cost" ] || row "$(printf '%*s%s' $((2 * depth)) '' "$what")" $cost
    done <<< "$PHASES"
    # shellcheck disable=SC2046 # four words
    row 'of all: the emulated fabric' $(awk '$1 ~ /^seam_/ { a += $2; b += $3; c += $4; d += $5 }
        END { printf "%.1f %.2f %.2f %.2f", a, b, c, d }' "$TEMP/costs")
}

main()
{
    local program
    parse "$@"
    program=$BUILD/tests/perf/transfer_count
    [ -x "$program" ] || die "there is no $program: ./dev build release all"
    command -v valgrind > /dev/null || die 'needs valgrind: apt-get install valgrind'
    TEMP=$(mktemp -d)
    trap 'rm -rf "$TEMP"' EXIT
    timeout 600 valgrind --tool=callgrind --fair-sched=yes --cache-sim=yes --branch-sim=yes --toggle-collect=measure_pass \
        --callgrind-out-file="$TEMP/out" "$program" "$WHAT" "$TRANSACTIONS" > "$TEMP/log" 2>&1 ||
        { tail -n 20 "$TEMP/log" >&2 && die 'it failed under valgrind'; }
    annotate
    report
}

main "$@"
