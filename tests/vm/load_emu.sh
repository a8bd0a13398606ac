#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# load_emu.sh CAIRN VM_LOAD: vm_load on three nodes over `emu`, whose processes are killed while it runs: its check
# must find nothing. Then ledgers that claim more or less than was done: its check must find that.
set -euo pipefail
CAIRN=$1 VM_LOAD=$2 KILLS=${3:-8} STOPS=${4:-3}

DIR=$(mktemp -d "${CAIRN_TMP:-/dev/shm}/cairn-load-XXXXXX")
PID=('' '' '' '')
LOAD='' OTHER=''

clean_up()
{
    local pid
    for pid in "${PID[@]}" $LOAD $OTHER; do
        [ -z "$pid" ] || kill -9 "$pid" 2> /dev/null || true
    done
    wait 2> /dev/null || true
    if [ -n "${KEEP:-}" ]; then echo "kept in $DIR" >&2; else rm -rf "$DIR"; fi
}
trap clean_up EXIT

die()
{
    echo "load_emu: $*" >&2
    exit 1
}

start_node()
{
    "$CAIRN" node --config "$DIR/cairn.conf" --id "$1" --quiet 2>> "$DIR/n$1.log" &
    PID[$1]=$!
}

kill_node()
{
    kill -9 "${PID[$1]}"
    wait "${PID[$1]}" 2> /dev/null || true
    PID[$1]=''
}

# load SEED ARGS...; in the background it is the program itself that gets the signals.
load() { exec "$VM_LOAD" --config "$DIR/cairn.conf" --ledger "$DIR/ledger" --seed "$@" run; }

# check LEDGER: prints its JSON; its exit code.
check() { "$VM_LOAD" --config "$DIR/cairn.conf" --ledger "$1" --deadline 40 check; }

# expect CODE PATTERN LEDGER
expect()
{
    local status=0 text
    text=$(check "$3" 2> "$DIR/check.log") || status=$?
    if [ $status -ne "$1" ] || ! grep -q "$2" <<< "$text"; then
        cat "$DIR/check.log" >&2
        die "check of $3: expected exit code $1 and $2, got $status: $text"
    fi
    echo "$text"
}

cat > "$DIR/cairn.conf" << END
cluster = "6a3f9f3e-58a1-4d0e-9a33-6f6d2d0f7c11";
fabric = "emu";
nodes = (
    { id = 1; address = "n1.sock"; pool = "n1.pool"; size = "64M"; },
    { id = 2; address = "n2.sock"; pool = "n2.pool"; size = "64M"; },
    { id = 3; address = "n3.sock"; pool = "n3.pool"; size = "64M"; }
);
tables = ( { id = 1; name = "a"; }, { id = 2; name = "b"; } );
options = { slots = 16; ring_size = "256k"; window = 256; lease_ms = 500; resolve_ms = 200; };
END

for i in 1 2 3; do start_node $i; done
load 1 > "$DIR/load.json" 2> "$DIR/load.log" &
LOAD=$!
sleep 1.5
for ((k = 0; k < KILLS; k++)); do
    sleep "0.$((RANDOM % 5 + 2))"
    kill -0 $LOAD 2> /dev/null || { cat "$DIR/load.log" >&2; die "the load has ended"; }
    if [ $((k % 4)) -eq 3 ]; then
        for i in 1 2 3; do kill_node $i; done
        sleep "0.$((RANDOM % 5))"
        for i in 1 2 3; do start_node $i; done
    else
        i=$((RANDOM % 3 + 1))
        kill_node $i
        sleep "0.$((RANDOM % 5))"
        start_node $i
    fi
done
sleep 1
kill -TERM $LOAD
status=0
wait $LOAD || status=$?
[ $status -eq 0 ] || { cat "$DIR/load.log" >&2; die "the load ended with $status: $(cat "$DIR/load.json")"; }
LOAD=''
cat "$DIR/load.json"
expect 0 '"lost":0,"torn":0' "$DIR/ledger"

# The load's own death: one transaction of each thread may have been in flight.
load 2 --threads 3 > /dev/null 2>&1 &
LOAD=$!
sleep 1.3
kill -9 $LOAD
wait $LOAD 2> /dev/null || true
LOAD=''
(load 3 --seconds 1 --doubt 20) > "$DIR/load.json" 2> "$DIR/load.log" || die "the third load failed: $(cat "$DIR/load.log")"
expect 0 '"lost":0,"torn":0' "$DIR/ledger"
cat "$DIR/load.json"
grep -q ' committed ;' "$DIR/ledger" && grep -q ' aborted ;' "$DIR/ledger" || die "no verdicts in the ledger"
status=0
(load 1 --seconds 1) > /dev/null 2>&1 || status=$?
[ $status -eq 2 ] || die "a seed was taken twice"

# Two loads that meet each other; one is stopped now and then, and fenced while it holds locks: UNKNOWN outcomes.
load 4 --threads 4 --seconds 30 > /dev/null 2> "$DIR/other.log" &
OTHER=$!
load 5 --threads 4 > "$DIR/load.json" 2> "$DIR/load.log" &
LOAD=$!
sleep 0.5
for ((k = 0; k < STOPS; k++)); do
    kill -STOP $LOAD
    sleep 1
    kill -CONT $LOAD
    sleep "0.$((RANDOM % 3))"
done
kill -TERM $LOAD $OTHER
wait $LOAD || die "the stopped load failed: $(cat "$DIR/load.log")"
LOAD=''
wait $OTHER || die "the other load failed: $(cat "$DIR/other.log")"
OTHER=''
cat "$DIR/load.json"
expect 0 '"lost":0,"torn":0' "$DIR/ledger"

# Planted: an acknowledgement of what was not done, one that is missing, a verdict turned round, and nonsense.
{ cat "$DIR/ledger"; echo 'ok 1 0 4000000000 3 0 . ;'; } > "$DIR/more"
expect 1 '"lost":1,' "$DIR/more"
grep -v "^end 3 " "$DIR/ledger" | awk '/^ok 3 0 /{ last = NR } { line[NR] = $0 }
    END { for (i = 1; i <= NR; i++) if (i != last) print line[i]; print "end 3 0 999999 ;"; print "end 3 1 999999 ;" }' \
    > "$DIR/fewer"
expect 1 '"phantom":[12],' "$DIR/fewer"
sed '0,/^verdict 3 .* committed ;/s/^\(verdict 3 .*\) committed ;/\1 aborted ;/' "$DIR/ledger" > "$DIR/turned"
expect 1 '"verdicts":1,' "$DIR/turned"
{ cat "$DIR/ledger"; echo 'ok 1 0 5 3 0 . ;'; } > "$DIR/wrong"
status=0
check "$DIR/wrong" > /dev/null 2>&1 || status=$?
[ $status -eq 2 ] || die "a ledger whose numbers go back: exit code $status"

for i in 1 2 3; do kill -TERM "${PID[$i]}"; done
for i in 1 2 3; do
    wait "${PID[$i]}" || die "node $i does not end cleanly"
    PID[$i]=''
    "$CAIRN" inspect --check --json "$DIR/n$i.pool" > "$DIR/inspect.json" || die "pool $i: $(cat "$DIR/inspect.json")"
done
echo "load_emu: good"
