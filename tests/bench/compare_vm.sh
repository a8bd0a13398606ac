#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# compare_vm.sh: what commits cost over real verbs (Soft-RoCE in one VM, docs/vm.md), in units of the raw operations of the
# same boot; work requests; and counters that must add up. See vm_guest.sh for what runs there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

ROUNDS=3 SECONDS_EACH=5
RATIOS=(read_only_over_raw_read write_commit_over_parts read_write_commit_over_parts)
# What each figure may be at most.
declare -A AIM=([read_only_over_raw_read]=1.2 [write_commit_over_parts]=1.2 [read_write_commit_over_parts]=1.2
    [smallbank_over_write_flush]=3.5 [smallbank_work_requests]=7.5)
FIGURES=("${RATIOS[@]}" smallbank_over_write_flush smallbank_work_requests)

usage()
{
    cat << END
Usage: tests/bench/compare_vm.sh [--build DIR] [--rounds N] [--seconds S] [--json]

Boots one VM with Soft-RoCE, two nodes in it, and runs in turn, N times (3), S seconds each (5): \`bench rtt\`, \`bench
smallbank\` with one transaction at a time, \`bench counter\` with 4 keys and 8 in flight. Prints per round and as medians: commits against their raw
parts, the p50 of SmallBank against that of a raw write and flush, its work requests per transaction. That the counters' sum
is what was committed is checked by the benchmark: it fails otherwise.

Emulation is slow and noisy: ratios of one boot can be compared, times cannot.
Exit: 0 good, 1 above an aim, 2 wrong usage or environment, or a wrong sum; 77 no VMs here.
END
}

parse()
{
    while [ $# -gt 0 ]; do
        case $1 in --help | -h) usage && exit 0 ;; esac
        common_option "$@"
        [ $SHIFT -gt 0 ] || { usage >&2 && die "no option $1"; }
        shift $SHIFT
    done
}

# Each JSON of the guest into a file, $TEMP/NAME.ROUND.
split_output() { awk -v dir="$TEMP" '$1 == "@@" { file = dir "/" $2 "." $3; next } file { print > file }' "$TEMP/out"; }

collect()
{
    local round=$1 name raw bank
    for name in "${RATIOS[@]}"; do note "$name" "$round" "$(inside "$name" value < "$TEMP/rtt.$round")"; done
    raw=$(inside raw_write_flush p50 < "$TEMP/rtt.$round")
    bank=$(inside all p50 < "$TEMP/smallbank.$round")
    note raw_write_flush_ns "$round" "$raw"
    note smallbank_p50_ns "$round" "$bank"
    note smallbank_over_write_flush "$round" "$(awk -v a="$bank" -v b="$raw" 'BEGIN { printf "%.3f", a / b }')"
    note smallbank_work_requests "$round" "$(field work_requests < "$TEMP/smallbank.$round")"
    note counter_committed "$round" "$(field committed < "$TEMP/counter.$round")"
}

report_json()
{
    local name
    printf '{"comparison": "vm", "rounds": %d' "$ROUNDS"
    for name in "${FIGURES[@]}"; do
        printf ', "%s": {"value": %s, "rounds": %s, "aim": %s}' "$name" "$(median "$name")" "$(values "$name" | array)" \
            "${AIM[$name]}"
    done
    printf ', "raw_write_flush_ns": %s, "smallbank_p50_ns": %s, "counter_committed": %s}\n' \
        "$(values raw_write_flush_ns | array)" "$(values smallbank_p50_ns | array)" "$(values counter_committed | array)"
}

report()
{
    local name
    for name in "${FIGURES[@]}"; do
        printf '  %-32s %8s  aim %-5s rounds: %s\n' "$name" "$(median "$name")" "${AIM[$name]}" \
            "$(values "$name" | paste -sd ' ')"
    done
    echo "  raw write and flush p50 $(values raw_write_flush_ns | paste -sd ' ') ns; SmallBank p50 $(values smallbank_p50_ns | paste -sd ' ') ns"
    echo "  counters: $(values counter_committed | paste -sd ' ') committed, and that is their sum"
}

main()
{
    local round name code=0
    parse "$@"
    prepare
    trap 'rm -rf "$TEMP"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    "$ROOT/tests/vm/run" --build "$BUILD" --mem 3072 --timeout $((ROUNDS * (3 * SECONDS_EACH + 30) + 60)) --put cairn \
        --put "$BENCH_DIR/vm_guest.sh:/vm_guest.sh" sh /vm_guest.sh "$ROUNDS" "$SECONDS_EACH" \
        > "$TEMP/out" 2> "$TEMP/log" || code=$?
    if [ $code -ne 0 ]; then
        tail -n 20 "$TEMP/log" >&2
        [ $code -eq 77 ] && exit 77
        die "the VM ended with exit code $code"
    fi
    split_output
    for ((round = 1; round <= ROUNDS; round++)); do collect "$round"; done
    if [ -n "$JSON" ]; then report_json; else report; fi
    for name in "${FIGURES[@]}"; do
        awk -v v="$(median "$name")" -v aim="${AIM[$name]}" 'BEGIN { exit !(v <= aim) }' || code=1
    done
    exit $code
}

main "$@"
