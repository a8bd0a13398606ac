# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# What the comparisons of this folder share: where programs are, Cairn's transfer, medians and ratios. Figures are
# collected as lines "NAME ROUND VALUE" in $TEMP/figures.

BENCH_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$BENCH_DIR/../.." && pwd)
BUILD=$ROOT/build/release
ROUNDS=5 SECONDS_EACH=2 KEYS=100000 CPUS='' JSON='' TEMP=''

say() { [ -n "$JSON" ] || echo "$*"; }

die()
{
    echo "${0##*/}: $*" >&2
    exit 2
}

# An option that all have. Sets SHIFT to how many words it was; 0: it is not one of these.
SHIFT=0
# shellcheck disable=SC2034 # it is for the caller
common_option()
{
    SHIFT=2
    case $1 in
    --build) BUILD=${2:?--build needs a folder} ;;
    --rounds) ROUNDS=${2:?--rounds needs a number} ;;
    --seconds) SECONDS_EACH=${2:?--seconds needs a number} ;;
    --keys) KEYS=${2:?--keys needs a number} ;;
    --cpus) CPUS=${2:?--cpus needs a list} ;;
    --json) JSON=1 SHIFT=1 ;;
    *) SHIFT=0 ;;
    esac
}

common_usage()
{
    cat << END
  --build DIR       with the programs (build/release)
  --rounds N        of each, alternating (5)
  --seconds S       measured each time (2)
  --keys N          accounts in all (100000)
  --cpus LIST       that each program may use, nodes and servers included (as taskset: 0 or 0,1; all)
  --json            one JSON object
END
}

# Programs, CPUs, and a folder in memory that the caller removes.
prepare()
{
    [[ "$ROUNDS $SECONDS_EACH $KEYS" =~ ^[1-9][0-9]*(\ [1-9][0-9]*){2}$ ]] ||
        die '--rounds, --seconds and --keys want whole numbers'
    [ -x "$BUILD/cairn" ] || die "there is no $BUILD/cairn: ./dev build release"
    [ -n "$CPUS" ] || CPUS=$(taskset -cp $$ | sed 's/.*: //')
    TEMP=$(mktemp -d /dev/shm/cairn-compare.XXXXXX) || die 'no folder in /dev/shm'
    : > "$TEMP/figures"
}

# field NAME < JSON: the first number of that name, or nothing.
field()
{
    tr -d '\n' | grep -oE "\"$1\": *[-+0-9.eE]+" | sed -n '1s/.*: *//p' || true
}

# inside OBJECT NAME < JSON: the first number of that name in an object that has no objects in it.
inside()
{
    { tr -d '\n' | grep -oE "\"$1\": *\{[^{}]*\}" || true; } | sed -n 1p | field "$2"
}

# run NAME PROGRAM...: on the CPUs allowed; its output is $TEMP/NAME.json then.
run()
{
    local name=$1
    shift
    timeout 600 taskset -c "$CPUS" "$@" > "$TEMP/$name.json" 2> "$TEMP/$name.log" && return 0
    tail -n 20 "$TEMP/$name.log" >&2
    die "failed: $*"
}

# note NAME ROUND VALUE
note()
{
    [ -n "$3" ] || die "there is no figure for $1"
    echo "$1 $2 $3" >> "$TEMP/figures"
}

microseconds() { awk '{ printf "%.3f", $1 * 1e6 }'; }

# Cairn's transfer: both keys are read for update and written, each on another of two nodes, which are threads of the
# same process; with one in flight by the calls that wait. cairn_transfer NAME INFLIGHT ROUND
cairn_transfer()
{
    local how=(--inflight "$2")
    [ "$2" -gt 1 ] || how=(--blocking)
    run "$1" "$BUILD/cairn" bench micro --fabric emu --participants 2 --threads 1 "${how[@]}" --spread --reads 0 \
        --writes 2 --value-size 64 --write-back --keys "$KEYS" --duration "$SECONDS_EACH" --warmup 1 --seed "$3" --json
    note "$1" "$3" "$(field throughput < "$TEMP/$1.json")"
    note "$1.median_ns" "$3" "$(inside all p50 < "$TEMP/$1.json")"
    note "$1.coordinator_cpu_us" "$3" "$(field cpu_seconds_coordinator < "$TEMP/$1.json" | microseconds)"
    note "$1.nodes_cpu_us" "$3" "$(field cpu_seconds_nodes < "$TEMP/$1.json" | microseconds)"
}

# Of one figure: all rounds, one per line; their median; as a JSON array.
values() { awk -v name="$1" '$1 == name { print $3 }' "$TEMP/figures"; }
median()
{
    values "$1" | sort -g |
        awk '{ v[NR] = $1 } END { if (NR) print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}
array() { paste -sd , | sed 's/.*/[&]/'; }

# Of two figures, by their names: of each round, and of the medians.
ratios() { paste <(values "$1") <(values "$2") | awk '{ printf "%.3f\n", $1 / $2 }'; }
ratio() { awk -v a="$(median "$1")" -v b="$(median "$2")" 'BEGIN { printf "%.3f", a / b }'; }

cpu_model() { sed -n '0,/^model name/s/^model name[^:]*: //p' /proc/cpuinfo; }
