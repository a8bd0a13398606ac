#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: the page that a newcomer follows is true: the commands of docs/crash-testing.md (its quarter of an hour, and the
# section on replay) are taken out of it and run as they stand there, each in its turn; only --time is cut short. What
# is broken there on purpose must be found, all else must pass. Then the table of the JSON keys against a report.
# test_crash_docs.sh CAIRN SOURCE CC
set -euo pipefail
cairn=$(readlink -f "$1") source=$(readlink -f "$2") cc=$3
page=$source/docs/crash-testing.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
ln -s "$source/include" include
ln -s "$source/examples" examples
mkdir -p build/release
ln -s "$cairn" build/release/cairn
fail()
{
    echo "FAILED: $*"
    exit 1
}
# section TITLE: its indented lines, without the indentation.
section() { awk -v t="$1" '/^## /{ on = ($0 == "## " t) } on && /^    /' "$page" | sed 's/^    //'; }

section 'Testing your own service' | awk '/^#include <cairn.workload.h>/ { on = 1 } on' |
    awk '{ print } /^}$/ && last { exit } /cairn_workload\(void\)$/ { last = 1 }' > mine.c
[ "$(wc -l < mine.c)" -gt 40 ] || fail "no program of one's own in the page"
{
    section 'Testing your own service'
    section 'Replay, shrink, tapes'
} | grep -E '^(cc|build/release/cairn) ' > commands
[ "$(grep -c . commands)" -ge 10 ] || fail "only these commands in the page: $(cat commands)"
while read -r line; do
    expected=0
    case $line in *crash*broken.so* | *--tape*) expected=1 ;; esac
    line=${line/#cc /"$cc" }
    line=${line/--time 20/--seeds 300}
    got=0
    out=$(timeout 100 bash -c "$line" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$expected" ] || fail "$line: exit $got, wanted $expected: $out"
    case $line in
    *"crash run"*) [[ $(tail -n 1 <<< "$out") == *"; again: cairn crash run --seed 1 "* ]] || fail "$line: $out" ;;
    esac
done < commands
grep -q '"' small.html || fail "no page small.html"

# Each key of a report is in the table of the page, and each key of the table in a report.
build/release/cairn crash run --workload ./mine.so --seeds 5 --json 2> /dev/null |
    sed -n 's/^  "\([a-z_0-9]*\)": .*/\1/p' | sort > in_report
section_rows() { awk '/^## Reading a report/ { on = 1 } /^### The story/ { on = 0 } on && /^\| `/' "$page"; }
section_rows | grep -v '^| `[a-z]*` | [012] |' | cut -d '|' -f 2 | grep -o '`[a-z_0-9]*`' | tr -d '`' | sort > in_page
diff in_page in_report || fail "keys: < only in the page, > only in the report"

# A workload that commits nothing, one that is named twice, a file that is not all there: no pass, no crash.
refused()
{
    local got=0
    out=$(build/release/cairn crash run --seeds 30 "${@:2}" 2>&1) || got=$?
    [ "$got" -eq 2 ] && grep -q "$1" <<< "$out" || fail "$*: exit $got: $out"
}
printf '#include <cairn/workload.h>\nstatic int f(struct cairn_run *r, struct cairn_ctx *c) { return 0; }\n%s\n' \
    'const struct cairn_workload *cairn_workload(void) { static const struct cairn_workload w = {.abi = 1, .name = "idle",
     .summary = "", .setup = f, .step = f, .check = f}; return &w; }' > idle.c
"$cc" -shared -fPIC -I include -o idle.so idle.c
head -c 3000 mine.so > cut.so
refused 'no transaction was committed' --workload ./idle.so
refused 'is named twice' --workload bank,bank
refused 'its end is missing' --workload ./cut.so
refused 'cannot write into /nowhere' --html /nowhere/page.html
echo "crash-docs: $(grep -c . commands) commands, $(grep -c . in_page) keys"
