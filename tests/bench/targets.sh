#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# targets.sh: every row of the table of docs/performance.md, measured N times, as a table in Markdown.
# shellcheck disable=SC2317 # functions are called by the name of their row
set -uo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

ROUNDS=3 SECONDS_EACH=3
# Name, at least or at most, aim, what it is. The name is a function below, measure_NAME ROUND, that notes it.
read -r -d '' ROWS << 'END' || true
pmemobj       least 1         transfer / local libpmemobj, per second
postgres      least 200       transfer / PostgreSQL two-phase commit, per second
smallbank     least 1000000   SmallBank, 3 participants, per second and core of coordinator
read          most  300       one key, warm: ns over a raw READ
instructions  most  3500      instructions of a transfer's commit, coordinator side
cores         least 1.85      two threads on two processors / one on one, nodes included, transfers per second
threads       least 1.85      two threads / one, both on all processors, transfers per second
inflight      least 20        64 in flight / one, round trip of 2 us (projection)
requests      most  10        work requests per transfer
replay        least 2000000   records replayed per second and core
replay_large  least 0.6       replay of 64 KiB values / copying them
vm_read       most  1.2       rpma in the VM: read one key / its raw parts
vm_write      most  1.2       rpma in the VM: write a key / its raw parts
vm_read_write most  1.2       rpma in the VM: read one, write another / its raw parts
vm_smallbank  most  3.5       rpma in the VM: SmallBank p50 / raw write and flush
vm_requests   most  7.5       rpma in the VM: work requests per SmallBank transaction
END
WANTED=()

usage()
{
    cat << END
Usage: tests/bench/targets.sh [--build DIR] [--rounds N] [--seconds S] [ROW...]

Measures the rows named, or all, N times (3), and prints a table in Markdown: aim, median, all rounds, met or missed. Use it on
a machine that does nothing else. Rows:

$(awk '{ name = $1; $1 = $2 = $3 = ""; sub(/^ +/, ""); printf "  %-14s %s\n", name, $0 }' <<< "$ROWS")

Exit: 0 all met, 1 one is missed, or could not be measured; 2 wrong usage or environment.
END
}

parse()
{
    while [ $# -gt 0 ]; do
        case $1 in
        --help | -h) usage && exit 0 ;;
        -*)
            common_option "$@"
            [ $SHIFT -gt 0 ] || { usage >&2 && die "no option $1"; }
            shift $SHIFT
            ;;
        *)
            grep -q "^$1 " <<< "$ROWS" || die "no row $1"
            WANTED+=("$1") && shift
            ;;
        esac
    done
}

# bench NAME OPTION...: one run of `cairn bench`, its JSON in $TEMP/NAME.json.
bench()
{
    local name=$1
    shift
    run "$name" "$BUILD/cairn" bench "$@" --json
}

# Another comparison: its JSON in $TEMP/NAME.json; that it is below its aim is no error here.
compare()
{
    local name=$1 code=0
    shift
    "$BENCH_DIR/compare_$name.sh" --build "$BUILD" --json "$@" > "$TEMP/$name.json" 2> "$TEMP/$name.log" || code=$?
    [ "$code" -le 1 ] || die "compare_$name.sh: $(tail -n 1 "$TEMP/$name.log")"
}

MICRO=(micro --participants 2 --spread --warmup 1)

# With 16 in flight, as a service would have; one at a time: compare_pmemobj.sh.
measure_pmemobj()
{
    compare pmemobj --rounds 3 --seconds "$SECONDS_EACH" --keys "$KEYS"
    note pmemobj "$1" "$(field ratio_cairn16 < "$TEMP/pmemobj.json")"
}

measure_postgres()
{
    compare postgres --rounds 3 --seconds "$SECONDS_EACH" --keys "$KEYS"
    note postgres "$1" "$(field ratio < "$TEMP/postgres.json")"
}

measure_smallbank()
{
    bench smallbank smallbank --participants 3 --inflight 16 --duration "$SECONDS_EACH"
    note smallbank "$1" "$(field throughput_per_core < "$TEMP/smallbank.json")"
}

measure_read()
{
    bench read rtt --seconds "$SECONDS_EACH"
    note read "$1" "$(($(inside commit_read_only p50 < "$TEMP/read.json") - $(inside raw_read p50 < "$TEMP/read.json")))"
}

measure_instructions()
{
    "$ROOT/tests/perf/transfer_count.sh" "$BUILD/tests/perf/transfer_count" commit "$ROOT/tests/perf/counts.txt" \
        > "$TEMP/instructions" 2>&1 # it judges by another number
    note instructions "$1" "$(sed -n 's/^commit: \([0-9]*\) instructions.*/\1/p' "$TEMP/instructions")"
}

# two_to_one ROW ROUND CPUS-OF-ONE: alternating, so that whatever else goes on hits both.
two_to_one()
{
    local i threads all=$CPUS
    for i in 1 2 3; do
        for threads in 1 2; do
            CPUS=$all
            [ "$threads" -gt 1 ] || CPUS=$3
            bench threads "${MICRO[@]}" --inflight 16 --threads "$threads" --duration 1
            note "$1$threads.$2" "$i" "$(field throughput < "$TEMP/threads.json")"
        done
    done
    note "$1" "$2" "$(ratio "${1}2.$2" "${1}1.$2")"
}
measure_cores() { two_to_one cores "$1" "${CPUS%%[,-]*}"; }
measure_threads() { two_to_one threads "$1" "$CPUS"; }

measure_inflight()
{
    bench inflight "${MICRO[@]}" --rtt 2 --gbps 100 --virtual --sweep 1,64 --duration "$SECONDS_EACH"
    note inflight "$1" "$(field sweep_gain < "$TEMP/inflight.json")"
}

# `bench rtt` waits until keys are free again, so that no conflict's second try is counted; rounded, for a key may have
# to be looked up now and then.
measure_requests()
{
    bench requests rtt --seconds 1
    note requests "$1" "$(sed -n '/"per_commit"/,$p' "$TEMP/requests.json" | inside commit_write_all work_requests |
        awk '{ printf "%.1f", $1 }')"
}

# Both rows come from one run, made for the first that is asked for in a round.
recover()
{
    [ -e "$TEMP/recovery$1.json" ] || bench "recovery$1" recovery --rounds 1 --seed "$1"
}

# series ROUND VALUE-SIZE NAME: of the series "replay".
series()
{
    tr -d '\n' < "$TEMP/recovery$1.json" | grep -oE "\{ *\"what\": \"replay\", *\"value_bytes\": $2,[^{}]*\}" | field "$3"
}

measure_replay()
{
    recover "$1"
    note replay "$1" "$(series "$1" 16 records_per_s)"
}

measure_replay_large()
{
    recover "$1"
    note replay_large "$1" "$(series "$1" 65536 ratio_to_copy)"
}

# All of the VM's rows from one boot.
vm() # ROUND ROW FIGURE
{
    [ -e "$TEMP/vm$1.json" ] || { compare vm --rounds 1 --seconds 5 && cp "$TEMP/vm.json" "$TEMP/vm$1.json"; }
    note "$2" "$1" "$(inside "$3" value < "$TEMP/vm$1.json")"
}
measure_vm_read() { vm "$1" vm_read read_only_over_raw_read; }
measure_vm_write() { vm "$1" vm_write write_commit_over_parts; }
measure_vm_read_write() { vm "$1" vm_read_write read_write_commit_over_parts; }
measure_vm_smallbank() { vm "$1" vm_smallbank smallbank_over_write_flush; }
measure_vm_requests() { vm "$1" vm_requests smallbank_work_requests; }

judge() # MOST-OR-LEAST AIM VALUE
{
    awk -v how="$1" -v aim="$2" -v v="$3" 'BEGIN { exit !(how == "most" ? v <= aim : v >= aim) }'
}

main()
{
    local name how aim what round value verdict missed=0
    parse "$@"
    prepare
    trap 'rm -rf "$TEMP"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    echo "| figure | aim | median | rounds | |"
    echo "|---|---|---|---|---|"
    while read -r name how aim what <&5; do
        [[ ${#WANTED[@]} -eq 0 || " ${WANTED[*]} " == *" $name "* ]] || continue
        for ((round = 1; round <= ROUNDS; round++)); do ("measure_$name" "$round") < /dev/null; done
        value=$(median "$name")
        verdict=met
        if [ -z "$value" ]; then
            verdict='not measured'
        elif ! judge "$how" "$aim" "$value"; then
            verdict=missed
        fi
        [ "$verdict" = met ] || missed=1
        echo "| $what | at $how $aim | $value | $(values "$name" | paste -sd ' ') | $verdict |"
    done 5<<< "$ROWS"
    exit $missed
}

main "$@"
