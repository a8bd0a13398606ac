#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: the program end to end: a cluster of two nodes, reads and writes, a look that changes no byte, refusals,
# SIGKILL and recovery online and offline, a clean stop. test_cluster.sh CAIRN EXAMPLE
set -euo pipefail
cairn=$1 example=$2 async=$3
base=/dev/shm
[ -w $base ] || base=${TMPDIR:-/tmp}
dir=$(mktemp -d "$base/cairn-test-XXXXXX")
pids=()
cleanup()
{
    local pid
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2> /dev/null || true; done
    rm -rf "$dir"
}
trap cleanup EXIT
fail()
{
    echo "FAILED: $*"
    tail -n 20 "$dir"/*.log
    exit 1
}
expect()
{
    local code=$1 text=$2 out got=0
    shift 2
    out=$("$cairn" "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "cairn $*: exit $got, wanted $code: $out"
    grep -qF -- "$text" <<< "$out" || fail "cairn $*: wanted \"$text\" in: $out"
}
# start ID: leaves its pid in pids[ID]; waits until it serves.
start()
{
    local ready=$dir/ready$1 i
    rm -f "$ready"
    "$cairn" node --config "$dir/cairn.conf" --id "$1" --ready-fd 3 3> "$ready" >> "$dir/n$1.log" 2>&1 < /dev/null &
    pids[$1]=$!
    for ((i = 0; i < 300; i++)); do
        grep -q ^ready "$ready" 2> /dev/null && return 0
        kill -0 "${pids[$1]}" 2> /dev/null || fail "node $1 ended at start"
        sleep 0.1
    done
    fail "node $1 does not become ready"
}
stop()
{
    kill -TERM "${pids[$1]}"
    wait "${pids[$1]}" || fail "node $1 did not end cleanly"
    unset "pids[$1]"
}
config=$dir/cairn.conf
"$cairn" init --nodes 2 "$dir" > /dev/null 2>&1
# Small rings, so that the test is quick.
sed -i 's/options = {/options = { slots = 8; ring_size = "256k"; window = 64; lease_ms = 300;/; s/256M/64M/' "$config"
start 1
start 2
expect 0 COMMITTED put --config "$config" accounts alice 100
expect 0 100 get --config "$config" accounts alice
expect 0 '"value": "100"' get --config "$config" --json accounts alice
expect 1 'no such key' get --config "$config" accounts nobody
expect 1 '"found": false' get --config "$config" --json accounts nobody
expect 0 '"token": "c1-' put --config "$config" --json --hex accounts 00ff 0102
expect 0 'hex:0102' get --config "$config" --hex accounts 00ff
expect 0 COMMITTED delete --config "$config" accounts alice
expect 1 'no such key' get --config "$config" accounts alice
token=$("$cairn" put --config "$config" --json accounts carol 7 | sed -n 's/.*"token": "\(.*\)".*/\1/p')
expect 0 COMMITTED resolve --config "$config" "$token"
expect 2 'mistyped' resolve --config "$config" "${token%?}$([ "${token: -1}" = 0 ] && echo 1 || echo 0)"
[ "$("$cairn" inspect --node 1 --config "$config" --json | tr -d ' \n' | grep -o '"node":1')" = '"node":1' ] || fail "live statistics"
expect 0 '"node": 2' inspect --node "$dir/n2.sock" --json
expect 0 '"durability": "emulated"' inspect --node "$dir/n2.sock" --json
# Refusals: the pool is open; a second node of the same id.
expect 2 'n1.pool' node --config "$config" --id 1 --wait 0
# The example runs twice and continues.
"$example" "$config" | grep -q committed || fail "the example"
"$example" "$config" | grep -q committed || fail "the example, again"
"$async" "$config" 2000 | grep -q '^2000 transfers, 32 in flight; 100000 coins' || fail "transfers in flight"
expect 0 80 get --config "$config" accounts alice
expect 0 120 get --config "$config" accounts bob
# A look while it runs changes nothing it should not: it only opens for reading.
expect 0 'tables' inspect "$dir/n1.pool"
expect 0 '"in_use": true' inspect --json "$dir/n1.pool"
# Kill everything; look, dry run, recover offline; then online again.
kill -KILL "${pids[1]}" "${pids[2]}"
wait "${pids[1]}" "${pids[2]}" 2> /dev/null || true
pids=()
before=$(cat "$dir"/n?.pool | sha256sum)
expect 0 '"damages": 0' inspect --check --json "$dir/n1.pool"
expect 0 '"durability": "emulated"' inspect --json "$dir/n1.pool"
expect 0 '"persistence": "auto"' inspect --json --config "$config" "$dir/n1.pool"
expect 0 '"pmem": false' inspect --json --config "$config" "$dir/n1.pool"
sed -e 's/emu/rpma/' -e 's|address = "n\([0-9]\).sock"|address = "127.0.0.1:7\11"; persistence = "apm"|' "$config" > "$dir/real.conf"
expect 0 'is not persistent memory' inspect --json --config "$dir/real.conf" "$dir/n1.pool"
expect 0 '"dry_run": true' recover --dry-run --json "$dir/n1.pool" "$dir/n2.pool"
[ "$before" = "$(cat "$dir"/n?.pool | sha256sum)" ] || fail "a look or a dry run changed a byte"
expect 0 '"result": "OK"' recover --json "$dir/n1.pool" "$dir/n2.pool"
expect 0 'result: OK' recover "$dir/n1.pool" "$dir/n2.pool"
start 1
start 2
expect 0 7 get --config "$config" accounts carol
expect 0 'hex:0102' get --config "$config" --hex accounts 00ff
"$example" "$config" | grep -q committed || fail "the example, after recovery"
"$async" "$config" 500 | grep -q '^500 transfers, 32 in flight; 100000 coins' ||
    fail "transfers in flight, after recovery"
expect 0 130 get --config "$config" accounts bob
stop 1
expect 2 'cannot be reached' inspect --node 1 --config "$config"
stop 2
for id in 1 2; do
    out=$("$cairn" inspect --check --json "$dir/n$id.pool") || fail "inspect after a clean stop: $out"
    grep -q '"clean": true' <<< "$out" || fail "pool $id is not clean: $out"
    grep -q '"in_use": false' <<< "$out" || fail "pool $id is in use: $out"
    grep -q '"words_locked": 0' <<< "$out" || fail "pool $id has locked words: $out"
done
# Descriptors that are closed or that nobody has opened do not become the pool's, and so are not written to.
expect 2 'descriptor 9 is not open for writing' node --config "$config" --id 1 --ready-fd 9 9>&-
expect 2 'descriptor 9 is not open for writing' node --config "$config" --id 1 --ready-fd 9 9< /dev/null
expect 2 'ready-fd' node --config "$config" --id 1 --ready-fd 2
start 2
rm -f "$dir/ready1"
"$cairn" node --config "$config" --id 1 --ready-fd 3 3> "$dir/ready1" <&- >&- 2>&- &
pids[1]=$!
for ((i = 0; i < 300; i++)); do
    grep -q ^ready "$dir/ready1" && break
    sleep 0.1
done
expect 0 130 get --config "$config" accounts bob
stop 1
stop 2
expect 0 '"clean": true' inspect --check --json "$dir/n1.pool"
"$cairn" recover "$dir/n1.pool" "$dir/n2.pool" > /dev/null 2>&- || fail "recover, stderr closed"
expect 0 '"damages": 0' inspect --check --json "$dir/n1.pool"
# Damage is an answer, and a bad one, for whoever looks: 1.
cp "$dir/n1.pool" "$dir/bad.pool"
dd if=/dev/zero of="$dir/bad.pool" bs=64 count=1 seek=65536 conv=notrunc 2> /dev/null # the superblock
expect 1 'bad.pool: the superblock' inspect "$dir/bad.pool"
expect 1 '"error": "CAIRN_E_CORRUPT_SUPER"' inspect --check --json "$dir/bad.pool"
expect 1 'bad.pool: the superblock' recover "$dir/bad.pool"
sed 's/n1.pool/bad.pool/' "$config" > "$dir/bad.conf"
expect 1 'bad.pool: the superblock' node --config "$dir/bad.conf" --id 1
# An address that is no socket.
touch "$dir/file"
sed 's|address = "n1.sock"|address = "file"|' "$config" > "$dir/file.conf"
expect 2 'is a file, and no socket' node --config "$dir/file.conf" --id 1
# A pool of another cluster, and a truncated one.
sed 's/^cluster = "......../cluster = "11111111/' "$config" > "$dir/other.conf"
expect 2 'cluster' node --config "$dir/other.conf" --id 1
truncate -s 8M "$dir/n2.pool"
expect 2 'n2.pool' inspect "$dir/n2.pool"
echo ok
