#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: `cairn bench rtt` measures what it says: the round trips of each kind of commit are those of the design, a
# cluster of its own leaves nothing behind, a running one is left as it was. Times are not judged: the machine is shared.
# `cairn bench check` judges right and wrong histories. (Loads: test_bench_loads.sh.)
# test_bench.sh CAIRN
set -euo pipefail
cairn=$1
dir=$(mktemp -d /dev/shm/cairn-bt-XXXXXX)
node=''
trap '[ -z "$node" ] || kill $node 2> /dev/null || true; rm -rf "$dir"' EXIT
fail()
{
    echo "FAILED: $*"
    exit 1
}
# expect CODE TEXT ARGS...
expect()
{
    local code=$1 text=$2 out got=0
    shift 2
    out=$("$cairn" "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "cairn $*: exit $got, wanted $code: $out"
    grep -qF -- "$text" <<< "$out" || fail "cairn $*: wanted \"$text\" in: $out"
}
# value FILE OBJECT NAME: of "OBJECT": { ... "NAME": VALUE in `per_commit` or `latency_ns`.
value()
{
    awk -v object="\"$2\":" -v name="\"$3\":" '
        $1 == object { inside = 1 }
        inside && $1 == name { sub(/,$/, "", $2); print $2; exit }' "$1"
}
# trips FILE KIND WANTED
trips()
{
    local section got
    section=$(sed -n '/"per_commit"/,/"ratios"/p' "$1")
    got=$(value /dev/stdin "$2" round_trips <<< "$section")
    [ "$got" = "$3" ] || fail "$2: $got round trips, wanted $3"
    got=$(value /dev/stdin "$2" messages <<< "$section")
    [ "$got" = 0.0 ] || fail "$2: $got messages per commit on the critical path"
}

expect 2 'Usage: cairn bench BENCHMARK' bench
expect 2 'no benchmark "nonsense"' bench nonsense
expect 0 'rtt ' bench --help
expect 0 'Example:' bench rtt --help
expect 0 'verdict: true' bench check --transactions 20000 --rounds 1
expect 0 '"transactions": 20000' bench check --transactions 20000 --rounds 1 --json
expect 1 'verdict: false' bench check --transactions 20000 --rounds 1 --stale
expect 2 'must be' bench check --per-key 0
expect 2 'must be a number' bench rtt --samples many
expect 2 'is no size' bench recovery --log-size big
expect 2 'at most 65536 for each' bench recovery --slots 1 --records 70000
expect 2 'must be auto, apm' bench rtt --persistence magnetic
expect 2 'not with --config' bench rtt --config x --address 10.0.0.1
expect 2 'no fabric' bench rtt --fabric nonsense
if [ -z "$(ls /sys/class/infiniband 2> /dev/null)" ]; then
    expect 2 'no RDMA device' bench rtt --fabric rpma
    expect 2 'CAIRN_E_NO_DEVICE' bench rtt --fabric rpma --json
fi

# leaves_nothing OUT ARGS...: runs it; of its folder, which has the number of its process, nothing is left.
leaves_nothing()
{
    local out=$1 process
    shift
    "$cairn" "$@" > "$out" 2> "$dir/err" &
    process=$!
    wait $process || fail "cairn $*: $(cat "$dir/err")"
    [ -z "$(find /dev/shm -maxdepth 1 -name "cairn-*-$process-*")" ] || fail "cairn $*: leaves its folder behind"
}
leaves_nothing "$dir/two.json" bench rtt --samples 300 --json
trips "$dir/two.json" commit_read_only 1.0
trips "$dir/two.json" commit_write 2.0
trips "$dir/two.json" commit_write_all 2.0
trips "$dir/two.json" commit_read_write 3.0
for op in raw_read raw_cas raw_lock_read raw_write_flush raw_write_flush_all raw_validate commit_read_only; do
    [ "$(value "$dir/two.json" $op count)" = 300 ] || fail "$op: not 300 samples"
done

# One node: nothing that takes two. A target that emulated RDMA cannot meet: exit 1.
got=0
"$cairn" bench rtt --samples 50 --participants 1 --check > "$dir/one" 2> "$dir/err" || got=$?
[ $got -le 1 ] || fail "bench rtt --check: exit $got: $(cat "$dir/err")"
! grep -q 'all nodes' "$dir/one" || fail "one node, and it measures two: $(cat "$dir/one")"
if grep -q exceeded "$dir/one"; then [ $got -eq 1 ]; else [ $got -eq 0 ]; fi || fail "--check: exit $got"

# Starts after a crash: everything is replayed and looked up, for one node and for two, small values and large.
leaves_nothing "$dir/start" bench recovery --records 500 --slots 3 --rounds 1 --value-size 24 --participants 2 --json
[ "$(grep -c '"records": 500' "$dir/start")" = 2 ] || fail "bench recovery: not 500 records: $(cat "$dir/start")"
[ "$(grep -c '"verified": true' "$dir/start")" = 1 ] || fail "bench recovery: nothing verified"
leaves_nothing "$dir/start" bench recovery --records 64 --slots 2 --rounds 1 --value-size 65536
grep -q 'every value was looked up' "$dir/start" || fail "bench recovery: $(cat "$dir/start")"

# A running cluster: the keys are gone afterwards; what is not the benchmark's is not touched.
conf=$dir/cairn.conf
cat > "$conf" << END
cluster = "0b0e5c1e-2c39-4d25-9c5e-5f2b1b9a7e12";
nodes = ( { id = 1; address = "n1.sock"; pool = "n1.pool"; size = "64M"; } );
tables = ( { id = 1; name = "t"; }, { id = 2; name = "u"; } );
options = { slots = 8; ring_size = "512k"; };
END
"$cairn" node --config "$conf" --id 1 --quiet 2> "$dir/node.log" &
node=$!
for _ in $(seq 100); do
    "$cairn" put --config "$conf" u bnw00000 mine > /dev/null 2>&1 && break
    sleep 0.1
done
expect 0 'write a known key' bench rtt --config "$conf" --samples 50 --table t
expect 1 'no such key' get --config "$conf" t bnw00000
expect 2 'not a benchmark' bench rtt --config "$conf" --samples 50 --table u
expect 0 'mine' get --config "$conf" u bnw00000
expect 2 'no table "w"' bench rtt --config "$conf" --samples 50 --table w
kill -TERM $node
wait $node || fail "the node does not end cleanly: $(cat "$dir/node.log")"
node=''
echo "bench: good"
