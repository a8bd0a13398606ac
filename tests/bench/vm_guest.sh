#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
#
# vm_guest.sh ROUNDS SECONDS: what compare_vm.sh runs inside the VM. Raw operations and commits beside them, SmallBank, and
# counters, in turn, in one boot; prints "@@ NAME ROUND", then the JSON of each.
rounds=$1 seconds=$2

# measure BENCHMARK OPTION...
measure()
{
    echo "@@ $1 $round"
    cairn bench "$@" --fabric rpma --participants 2 --json || exit 1
}

round=1
while [ "$round" -le "$rounds" ]; do
    measure rtt --seconds "$seconds"
    # The guest has two processors, of which Soft-RoCE takes its part: nobody may poll there for what may come.
    measure smallbank --inflight 1 --accounts 20000 --duration "$seconds" --warmup 1 --seed "$round" --completion event
    measure counter --keys 4 --inflight 8 --duration "$seconds" --warmup 1 --seed "$round"
    round=$((round + 1))
done
