#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: each load of `cairn bench` runs, finds in the cluster what it committed, and reports it; a seed gives the same
# transactions again; a drawing is well-formed and shows every series; a cluster of its own leaves nothing behind, a
# running one is used as it is. Times are not judged: the machine is shared. That a check finds what is wrong:
# tests/unit/tools/test_bn_*.c.
# test_bench_loads.sh CAIRN
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

expect 0 'micro ' bench --help
expect 0 'ycsb ' bench --help
expect 0 '--skew' bench micro --help
expect 2 'must be emu, emu-ipc or rpma' bench micro --fabric nonsense
expect 2 'must be adaptive, poll or event' bench micro --completion lazy
expect 2 'not with --config' bench micro --config x --completion poll
expect 2 'numbers from 1 to 256' bench micro --sweep 1,,2
expect 2 'numbers from 1 to 256' bench micro --sweep 257
expect 2 'not with --inflight' bench micro --sweep 1,2 --inflight 2
expect 2 'not with --inflight' bench micro --blocking --inflight 2
expect 2 'give --rtt or --gbps' bench micro --virtual
expect 2 'model a network' bench micro --rtt 2 --fabric rpma
expect 2 'keys per transaction' bench micro --writes 0
expect 2 'too few for distinct keys' bench micro --keys 20
expect 2 'must be a number from 0 to 10' bench micro --skew much
expect 2 'nothing to read' bench micro --writes 0 --inserts 1 --read-share 5
expect 2 'D and E need an ordered index' bench ycsb --workload E
expect 2 'cannot write' bench micro --transactions 10 --keys 1000 --svg /nowhere/x.svg
[ -n "$(ls /sys/class/infiniband 2> /dev/null)" ] || expect 2 'no RDMA device' bench micro --fabric rpma
expect 2 '"CAIRN_E_CONFIG"' bench micro --keys 20 --json

# load NAME CHECK ARGS...: run it, and let python check its JSON (as d) by the expression CHECK.
load()
{
    local name=$1 check=$2
    shift 2
    "$cairn" bench "$@" --json > "$dir/$name.json" 2> "$dir/err" || fail "bench $*: exit $?: $(cat "$dir/err" "$dir/$name.json")"
    python3 - "$dir/$name.json" "$check" << 'END' || fail "bench $*: $check: $(cat "$dir/$name.json")"
import json, sys
d = json.load(open(sys.argv[1]))
p = d["per_transaction"]
k = d["kinds"]
assert d["verified"]["good"] and d["throughput"] > 0 and d["throughput_per_core"] > 0, "figures"
assert list(d)[:8] == ["benchmark", "projection", "note", "seed", "options", "cpu", "verified", "inflight"], "order of keys"
assert d["latency_ns"]["all"]["count"] == d["committed"] == sum(x["committed"] for x in k.values()), "counts"
assert d["latency_ns"]["all"]["p50"] <= d["latency_ns"]["all"]["p99.9"] <= d["latency_ns"]["all"]["max"], "latency"
assert eval("(" + sys.argv[2] + ")"), sys.argv[2]
END
}
some='--transactions 400 --keys 2000'
load transfer 'd["committed"] == 400 and k["read_write"]["committed"] == 400 and d["verified"]["conditions"] == 2001 and
    p["writes"] >= 2 and p["node_records_applied"] > 0 and p["node_fences"] > 0 and p["cpu_seconds_nodes"] > 0' micro $some --participants 2 --spread
load threads 'd["committed"] == 800 and d["verified"]["conditions"] == 2002 and d["options"]["threads"] == 2' \
    micro $some --threads 2 --skew 0.9
load inserts 'd["verified"]["conditions"] == 2001 + 2 * 441' micro $some --inserts 2 --writes 0
load blind 'p["writes"] > 1' micro $some --blind --value-size 200
load readers 'k["read_only"]["committed"] == 400 and p["writes"] == 0 and 1 <= p["round_trips"] < 1.5' \
    micro $some --writes 0 --reads 1 --blocking
load processes 'p["cpu_seconds_nodes"] > 0 and p["node_records_applied"] is None' micro $some --fabric emu-ipc
for w in A B C F; do
    load ycsb$w 'd["options"]["workload"] == "'$w'" and d["committed"] == 300' ycsb --workload $w --transactions 300 --keys 1000
done
for w in A F; do # hot keys, and transactions that overtake each other
    load hot$w 'd["committed"] == 1000 and sum(x["tries"] for x in k.values()) > 1000' \
        ycsb --workload $w --transactions 1000 --keys 64 --inflight 16 --skew 1.2
done
load many 'd["inflight"] == 8 and d["committed"] == 400' micro $some --inflight 8 --writes 3
load model 'd["projection"] is True and d["targets"][0]["rtt_us"] == 2 and d["targets"][0]["value"] is None' micro $some --rtt 2 --gbps 100 --virtual
"$cairn" bench micro $some --rtt 2 > "$dir/text" 2> "$dir/err" || fail "bench micro --rtt: $(cat "$dir/err")"
head -1 "$dir/text" | grep -q PROJECTION || fail "a projection that does not say so: $(cat "$dir/text")"

load smallbank 'd["committed"] > 300 and len(k) == 6 and d["targets"][0]["figure"] == "throughput_per_core" and
    d["targets"][0]["is"] == "at_least" and d["targets"][0]["value"] > 0 and d["targets"][1]["met"] is None' smallbank --transactions 500 --accounts 2000 --inflight 8
load tatp 'd["committed"] > 300 and len(k) == 7' tatp --transactions 500 --subscribers 500 --inflight 8
load tpcc 'd["committed"] > 200 and len(k) == 5 and "specification" in d["note"]' \
    tpcc --transactions 300 --scale 30 --warehouses 1 --inflight 4
load counter 'd["committed"] == 400 and d["options"]["keys"] == 4' counter --transactions 200 --threads 2 --inflight 8

# The same seed: the same transactions.
same='[d["committed"], k]'
load once "print($same) is None" ycsb --workload A --transactions 300 --keys 1000 > "$dir/a"
load again "print($same) is None" ycsb --workload A --transactions 300 --keys 1000 > "$dir/b"
load other "print($same) is None" ycsb --workload A --transactions 300 --keys 1000 --seed 2 > "$dir/c"
kinds()
{
    sed -E "s/'tries': [0-9]+//g" "$1"
}
[ "$(kinds "$dir/a")" = "$(kinds "$dir/b")" ] || fail "one seed, two results: $(cat "$dir/a" "$dir/b")"
[ "$(kinds "$dir/a")" != "$(kinds "$dir/c")" ] || fail "two seeds, one result: $(cat "$dir/a" "$dir/c")"

# A sweep and its drawing: well-formed, with all its series.
load sweep '[x["inflight"] for x in d["sweep"]] == [1, 2, 4] and all(x["committed"] == 400 for x in d["sweep"]) and
    d["sweep_gain"] >= 1' micro $some --sweep 1,2,4 --svg "$dir/sweep.svg"
python3 - "$dir/sweep.svg" << 'END' || fail "the drawing is wrong"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
for wanted in ["cairn bench micro", "1 in flight", "2 in flight", "4 in flight", "percentile", "latency",
        "transactions in flight", "transactions per second", "per second", "per second and core of coordinator", "50 %"]:
    assert wanted in texts, wanted
lines = [p for p in root.iter("{http://www.w3.org/2000/svg}path") if p.get("class") == "line"]
assert len(lines) == 2 * (3 + 2), len(lines)
assert all("nan" not in p.get("d") and "inf" not in p.get("d") for p in lines)
END

# A running cluster: its tables must be there, and are used.
cat > "$dir/b.conf" << END
cluster = "0b0e5c1e-2c39-4d25-9c5e-5f2b1b9a7e12";
nodes = ( { id = 1; address = "n1.sock"; pool = "n1.pool"; size = "64M"; } );
tables = ( { id = 1; name = "t"; }, { id = 2; name = "micro"; } );
options = { slots = 8; ring_size = "512k"; };
END
"$cairn" node --config "$dir/b.conf" --id 1 --quiet 2> "$dir/node.log" &
node=$!
for _ in $(seq 100); do
    "$cairn" put --config "$dir/b.conf" t k v > /dev/null 2>&1 && break
    sleep 0.1
done
expect 2 'no table "ycsb"' bench ycsb --config "$dir/b.conf" --transactions 10
load config 'd["options"]["participants"] == 1 and p["cpu_seconds_nodes"] is None' micro $some --config "$dir/b.conf"
load config2 'd["committed"] == 400' micro $some --config "$dir/b.conf" --inserts 1
expect 0 v get --config "$dir/b.conf" t k
kill -TERM $node
wait $node || fail "the node does not end cleanly: $(cat "$dir/node.log")"
node=''

# Nothing is left behind, also when interrupted; its folder has the number of its process.
"$cairn" bench micro --duration 60 --keys 2000 > "$dir/out" 2>&1 &
bench=$!
for _ in $(seq 100); do
    [ -z "$(find /dev/shm -maxdepth 1 -name "cairn-bench-$bench-*")" ] || break
    sleep 0.1
done
[ -n "$(find /dev/shm -maxdepth 1 -name "cairn-bench-$bench-*")" ] || fail "no folder of its own: $(cat "$dir/out")"
kill -INT $bench
got=0
wait $bench || got=$?
[ $got -eq 2 ] || fail "bench, interrupted: exit $got: $(cat "$dir/out")"
grep -q interrupted "$dir/out" || fail "bench, interrupted: $(cat "$dir/out")"
[ -z "$(find /dev/shm -maxdepth 1 -name "cairn-bench-$bench-*")" ] || fail "a load leaves its folder behind"
echo "bench-loads: good"
