#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# compare_pmemobj.sh: Cairn's transfer between two nodes beside a local libpmemobj transaction over two objects of 64
# bytes on the same memory (pmemobj_transfer.c), alternating, in one run. One thread of work each.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

TARGET=1 NAMES=(cairn cairn16 pmemobj pmemobj_locks)

usage()
{
    cat << END
Usage: tests/bench/compare_pmemobj.sh [OPTION...]

\`cairn bench micro\`, two nodes, both keys read for update and written, one transaction at a time and 16 in flight,
against pmemobj_transfer, plainly and with a PMEMmutex of each object. Values and objects have 64 bytes, all lies in
/dev/shm, both flush all that they write by CLWB and SFENCE (\`--write-back\`; nodes do anyway).

$(common_usage)

Cairn's nodes are threads beside the coordinator's; with --cpus 0 all share one processor. libpmemobj does all of its
work in the one thread, finds objects by index, and (without locks) isolates from nobody.
Prints throughputs, their ratio in each round, and the ratio of the medians; the aim is $TARGET.

Example: tests/bench/compare_pmemobj.sh --rounds 3 --cpus 0,1
Exit: 0 good, 1 below the aim, 2 wrong usage or environment. A wrong total at the end of a run is 2, without figures.
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

# pmemobj_transfer NAME ROUND OPTION...
pmemobj_transfer()
{
    local name=$1 round=$2
    shift 2
    run "$name" "$BUILD/tests/bench/pmemobj_transfer" --pool "$TEMP/pool" --objects "$KEYS" --seconds "$SECONDS_EACH" \
        --seed "$round" "$@"
    note "$name" "$round" "$(field throughput < "$TEMP/$name.json")"
    note "$name.median_ns" "$round" "$(field median_ns < "$TEMP/$name.json")"
    note "$name.cpu_us" "$round" "$(field cpu_us_per_transfer < "$TEMP/$name.json")"
}

cpu_names() { awk '$1 ~ /cpu_us$/ && !seen[$1]++ { print $1 }' "$TEMP/figures"; }

report_json()
{
    local name
    printf '{"comparison": "pmemobj", "cpu": "%s", "cpus": "%s", "rounds": %d, "keys": %d' "$(cpu_model)" "$CPUS" \
        "$ROUNDS" "$KEYS"
    for name in "${NAMES[@]}"; do printf ', "%s": %s' "$name" "$(values "$name" | array)"; done
    for name in $(cpu_names); do printf ', "%s": %s' "${name/./_}" "$(median "$name")"; done
    for name in cairn cairn16; do
        printf ', "ratio_%s": %s, "ratio_%s_of_rounds": %s' $name "$(ratio $name pmemobj)" $name \
            "$(ratios $name pmemobj | array)"
    done
    printf ', "ratio_of_median_times": %s, "median_ns": [%s, %s]' "$(ratio pmemobj.median_ns cairn.median_ns)" \
        "$(median cairn.median_ns)" "$(median pmemobj.median_ns)"
    printf ', "ratio_to_locks": %s, "pmemobj_fences": %s, "target": %s}\n' "$(ratio cairn16 pmemobj_locks)" \
        "$(median fences)" $TARGET
}

report()
{
    local name
    echo
    echo "transfers per second, verified, medians of $ROUNDS rounds, on CPUs $CPUS for each, nodes included"
    for name in "${NAMES[@]}"; do printf '  %-34s %12s\n' "$name" "$(median "$name")"; done
    echo "microseconds of CPU per transfer"
    for name in $(cpu_names); do printf '  %-34s %12s\n' "$name" "$(median "$name")"; done
    echo "pmemobj: $(median fences) fences, $(median lines) lines flushed per transfer"
    for name in cairn cairn16; do
        echo "ratio $(ratio $name pmemobj) of medians ($name / pmemobj); rounds:" \
            "$(ratios $name pmemobj | paste -sd ' '); with locks $(ratio $name pmemobj_locks); aim $TARGET"
    done
    echo "one at a time, by the median time of a transfer, which others on the machine disturb least:" \
        "cairn $(median cairn.median_ns) ns, pmemobj $(median pmemobj.median_ns) ns, ratio" \
        "$(ratio pmemobj.median_ns cairn.median_ns); rounds: $(ratios pmemobj.median_ns cairn.median_ns | paste -sd ' ')"
}

main()
{
    local round
    parse "$@"
    prepare
    trap 'rm -rf "$TEMP"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    [ -x "$BUILD/tests/bench/pmemobj_transfer" ] || die "there is no pmemobj_transfer in $BUILD: ./dev build release all"
    run counted "$BUILD/tests/bench/pmemobj_transfer_counted" --pool "$TEMP/pool" --objects "$KEYS" --seconds 0.2
    note fences 0 "$(field fences_per_transfer < "$TEMP/counted.json")"
    note lines 0 "$(field lines_flushed_per_transfer < "$TEMP/counted.json")"
    for ((round = 1; round <= ROUNDS; round++)); do
        cairn_transfer cairn 1 "$round"
        pmemobj_transfer pmemobj "$round"
        cairn_transfer cairn16 16 "$round"
        pmemobj_transfer pmemobj_locks "$round" --locks
        say "round $round: $(for name in "${NAMES[@]}"; do echo -n "$name $(values "$name" | tail -n 1)  "; done)"
    done
    if [ -n "$JSON" ]; then report_json; else report; fi
    awk -v r="$(ratio cairn16 pmemobj)" -v t=$TARGET 'BEGIN { exit !(r >= t) }' || exit 1
}

main "$@"
