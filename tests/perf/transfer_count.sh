#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# transfer_count.sh PROGRAM WHAT COUNTS: count the coordinator's instructions of one transaction
# (see transfer_count.c), and fail if there are over 10 % more than the file COUNTS says, or so many
# fewer that the file should be brought up to date. Skipped (77) where there is no valgrind.
#
# What is counted: all of the calling thread between cairn_begin() and the return of cairn_commit()
# (with "commit": inside that call alone), up to the fabric's operations and not inside them. The fabric's own part is printed beside it.
set -euo pipefail

TRANSACTIONS=200
program=$1 what=$2 counts=$3

command -v valgrind > /dev/null || {
    echo "skipped: valgrind is not installed (apt-get install valgrind)"
    exit 77
}
expected=$(awk -v what="$what" '$1 == what { print $2 }' "$counts")
[ -n "$expected" ] || {
    echo "no line for \"$what\" in $counts" >&2
    exit 2
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# count TOGGLE...: instructions per transaction, with collection turned over by these functions.
count()
{
    valgrind --tool=callgrind --fair-sched=yes --callgrind-out-file=/dev/null "$@" "$program" \
        "$what" "$TRANSACTIONS" > "$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
    # The most of all processes: what removes the pools may be one of its own.
    awk -v n="$TRANSACTIONS" '/Collected :/ && $NF > most { most = $NF } END { printf "%d", most / n }' "$log"
}

measured=measure_pass
[ "$what" != commit ] || measured=measure_commit
here=$(count --toggle-collect=$measured --toggle-collect='seam_*')
all=$(count --toggle-collect=$measured)
echo "$what: $here instructions, and $((all - here)) inside the emulated fabric; expected $expected"
[ "$here" -gt 0 ] || {
    echo "nothing was counted" >&2
    exit 1
}
if [ "$((here * 10))" -gt "$((expected * 11))" ]; then
    echo "more than 10 % over $expected: see callgrind_annotate, or change $counts" >&2
    exit 1
fi
if [ "$((here * 10))" -lt "$((expected * 9))" ]; then
    echo "more than 10 % below $expected: lower it in $counts, so that it stays so" >&2
    exit 1
fi
