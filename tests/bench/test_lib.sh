#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# test_lib.sh PMEMOBJ_TRANSFER PMEMOBJ_TRANSFER_COUNTED: the arithmetic of the comparisons, and that the yardstick for libpmemobj works and checks.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

expect() # WHAT IS SHALL-BE
{
    [ "$2" = "$3" ] && return
    echo "$1: \"$2\", expected \"$3\"" >&2
    exit 1
}

TEMP=$(mktemp -d /dev/shm/cairn-compare.XXXXXX)
trap 'rm -rf "$TEMP"' EXIT

printf '%s\n' 'a 1 10' 'b 1 5' 'a 2 1000' 'b 2 4' 'a 3 30.5' 'b 3 0.5' 'c 1 7' 'c 2 8' > "$TEMP/figures"
expect 'median of three' "$(median a)" 30.5
expect 'median of two' "$(median c)" 7.5
expect 'ratio of medians' "$(ratio a b)" 7.625
expect 'ratios of rounds' "$(ratios a b | array)" '[2.000,250.000,61.000]'

json='{ "throughput": 1234.5, "throughput_per_core": 9, "latency_ns": { "balance": { "p50": 1, "p99": 2 },
    "all": { "p50": 3e3, "mean": 4.25 } }, "per": { "work_requests": 7.125 } }'
expect 'a number' "$(field throughput <<< "$json")" 1234.5
expect 'a number in an object' "$(inside all p50 <<< "$json")" 3e3
expect 'no such number' "$(field absent <<< "$json")" ''
expect 'no such object' "$(inside absent p50 <<< "$json")" ''

json=$("$1" --pool "$TEMP/pool" --objects 64 --seconds 0.1 --warm-up 0.05 --locks)
expect 'verified' "$(grep -o '"verified": true' <<< "$json")" '"verified": true'
[ "$(field transfers <<< "$json")" -gt 100 ] || expect transfers "$json" 'more than 100'
[ ! -e "$TEMP/pool" ] || expect 'the pool' 'is left' removed
json=$("$2" --pool "$TEMP/pool" --objects 64 --seconds 0.1 --warm-up 0.05)
awk -v n="$(field fences_per_transfer <<< "$json")" 'BEGIN { exit !(n >= 2) }' || expect fences "$json" 'two at least'
status=0
"$1" --pool "$TEMP/none/pool" 2> /dev/null || status=$?
expect 'exit code without a place for the pool' $status 2
echo 'test_lib: good'
