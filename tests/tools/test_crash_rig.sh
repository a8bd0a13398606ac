#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: `cairn crash rig` runs workloads over real processes that are killed and stopped, and passes; with a rule broken
# in the coordinators it does not; it leaves nothing behind. Which moments are hit is up to the machine: so the broken
# rule is one that tens of thousands of transactions cannot miss.
# test_crash_rig.sh CAIRN
set -euo pipefail
cairn=$1
dir=$(mktemp -d /dev/shm/cairn-rt-XXXXXX)
kept=''
trap 'rm -rf "$dir" $kept' EXIT
fail()
{
    echo "FAILED: $*"
    exit 1
}
# expect CODE TEXT ARGS...
expect()
{
    local code=$1 text=$2 got=0
    shift 2
    "$cairn" crash rig "$@" > "$dir/out" 2>&1 < /dev/null || got=$?
    kept+=" $(sed -n 's/^pools and logs are kept in //p' "$dir/out")"
    [ "$got" -eq "$code" ] || fail "rig $*: exit $got, wanted $code: $(cat "$dir/out")"
    grep -qF -- "$text" "$dir/out" || fail "rig $*: wanted \"$text\" in: $(cat "$dir/out")"
}

expect 0 'Example:' --help
expect 2 'no workload' --workload nonsense
expect 2 'must be' --nodes 0
expect 2 'no mutant' --mutant nonsense
expect 2 'only rules of coordinators' --mutant n_no_fence
expect 2 'is not a folder' --history "$dir/none"
expect 2 'no fabric' --fabric nonsense --time 1

mkdir "$dir/history"
expect 0 'pass: seed 3' --workload mixed --seed 3 --time 6 --history "$dir/history" --verbose
grep -q 'SIGKILL node' "$dir/out" || fail "no node was killed: $(cat "$dir/out")"
grep -q ':f :txn' "$dir/history/list-append.edn" || fail "no history for elle-cli"
grep -q '"f"' "$dir/history/list-append.json" || fail "no history in JSON"
expect 0 '"violations": 0' --workload bank --seed 4 --time 2 --no-faults --json

# Validation left out: stale reads, which the history shows.
expect 1 'list-append: history: false' --workload list-append --mutant c_skip_validate --time 4 --no-faults
grep -q '^violation: ' "$dir/out" || fail "the last line does not say violation: $(cat "$dir/out")"
grep -q -- '--mutant c_skip_validate' "$dir/out" || fail "the command to run it again does not name the mutant"

[ -n "${kept// /}" ] || fail "the folder of a violation is not kept"
for folder in $kept; do
    [ -f "$folder/n1.pool" ] || fail "$folder: no pools are kept"
    [ -z "$(pgrep -f "$folder" || true)" ] || fail "processes are left"
done
echo "rig: good"
