#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: tidy finds what it should: a small tree with one planted fault per rule. test_tidy.sh TIDY
set -euo pipefail
tidy=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir -p include/cairn include/internal pmem rdma txn recovery tools tests/unit/pmem tests/unit/rdma examples
good='/* SPDX-License-Identifier: BSD-3-Clause */
/* A file. */'
fresh()
{
    rm -f ./*/*.c tests/unit/*/*.c
    printf '%s\nint a(void);\n' "$good" > pmem/pm_a.c
    printf '%s\n' "$good" > tests/unit/pmem/test_pm_a.c
}
expect()
{
    local out
    if out=$("$tidy" "$dir"); then
        echo "not found: $1"
        exit 1
    fi
    if ! grep -qF -- "$1" <<< "$out"; then
        echo "wanted \"$1\", got: $out"
        exit 1
    fi
}
fresh; "$tidy" "$dir" > /dev/null || { echo "a tidy tree is refused:"; "$tidy" "$dir"; exit 1; }
fresh; echo 'int b;' > pmem/pm_a.c; expect 'pmem/pm_a.c:1: the first line is not the SPDX line'
fresh; printf '%0120d\n' 0 >> pmem/pm_a.c; expect 'pmem/pm_a.c:4: the line has more than 100 columns'
fresh; seq 900 | sed 's|.*|/* & */|' >> pmem/pm_a.c; expect 'the file has more than 800 lines'
fresh; { echo 'void f(void)'; echo '{'; seq 71 | sed 's|.*|    a();|'; echo '}'; } >> pmem/pm_a.c; expect 'pmem/pm_a.c:5: the function has more than 70 lines (71)'
fresh; printf '\tint c;\n' >> pmem/pm_a.c; expect 'a tab'
fresh; echo '#include "rdma/rd.h"' >> pmem/pm_a.c; expect 'pmem/pm_a.c:4: pmem may not include'
fresh; echo '#include <infiniband/verbs.h>' >> pmem/pm_a.c; expect 'verbs'
fresh; printf '%s\n#include <libpmemobj.h>\n' "$good" > rdma/rd_b.c; expect 'rdma may not include libpmem'
fresh; printf '%s\n#include "recovery/rec_node.h"\n' "$good" > txn/txn_b.c; expect 'txn may not include recovery'
fresh; printf '%s\n#include "tools/tl.h"\n' "$good" > recovery/rec_b.c; expect 'recovery may not include tools'
# includes FILE WHAT: fresh, and that file includes that
includes()
{
    fresh
    mkdir -p "${1%/*}"
    find tools -mindepth 2 -name '*.[ch]' -delete
    printf '%s\n#include "%s"\n' "$good" "$2" > "$1"
}
crash=tools/crash
while read -r from to; do
    includes "$from" "$to"; expect "may not include $to"
done << END
tools/sim/sim_a.c $crash/cluster/cr_cluster.h
tools/history/hs_a.c tools/sim/sim.h
$crash/workload/cr_a.c $crash/cluster/cr_cluster.h
$crash/cluster/cr_a.c $crash/tell/cr_report.h
$crash/explore/cr_a.c $crash/faults/cr_stand.h
$crash/faults/cr_a.c $crash/tell/cr_html.h
$crash/tell/cr_a.c $crash/campaign/cr_jobs.h
$crash/campaign/cr_a.c $crash/cr_args.h
$crash/rig/cr_a.c $crash/cluster/cr_cluster.h
$crash/rig/cr_rig_client.c $crash/tell/cr_report.h
tools/a.c $crash/workload/cr_work.h
END
includes $crash/workload/cr_a.c txn/txn_ctx.h; expect 'what is not in the public header'
for allowed in "$crash/cluster/cr_a.c $crash/workload/cr_work.h" "$crash/explore/cr_a.c $crash/tell/cr_report.h" \
    "$crash/rig/cr_a.c $crash/tell/cr_report.h" "$crash/cr_a.c $crash/campaign/cr_jobs.h"; do
    includes "${allowed% *}" "${allowed#* }"
    "$tidy" "$dir" > /dev/null || { echo "$allowed is refused:"; "$tidy" "$dir"; exit 1; }
done
find tools -mindepth 2 -name '*.[ch]' -delete
fresh; printf '%s\n' "$good" > pmem/other.c; expect 'does not begin with pm'
for call in strcpy sprintf gets strtok rand alloca atoi 'time' clock_gettime; do
    fresh; echo "int b(void) { return $call(0); }" >> pmem/pm_a.c; expect 'banned call'
done
fresh; echo '/* strcpy(a) */ const char *t = "time(0)"; int my_time(int); int z = x.time(0);' >> pmem/pm_a.c
"$tidy" "$dir" > /dev/null || { echo "comments and strings are not calls:"; "$tidy" "$dir"; exit 1; }
fresh; rm tests/unit/pmem/test_pm_a.c; expect 'there is no tests/unit/pmem/test_pm_a.c'
echo ok
