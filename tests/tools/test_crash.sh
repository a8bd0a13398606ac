#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: `cairn crash` as a user meets it: exit codes, the keys of its JSON, one seed one run, bad options, replay from a
# seed and from a tape, planted bugs and their replay commands, runs that die, interruption, nothing left behind.
# test_crash.sh CAIRN SOURCE CC
set -euo pipefail
cairn=$(readlink -f "$1") source=$(readlink -f "$2") cc=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail()
{
    echo "FAILED: $*"
    exit 1
}
# expect CODE ARGUMENT...: `cairn crash ARGUMENT...`; what it prints goes to `out`, stderr too.
expect()
{
    local code=$1 got=0
    shift
    out=$(timeout 250 "$cairn" crash "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "crash $*: exit $got, wanted $code: $out"
}
# The same for a command line that a report printed ("cairn crash ...").
expect_line()
{
    local code=$1 got=0
    case $2 in "cairn crash "*) ;; *) fail "no command: $2" ;; esac
    out=$(eval "timeout 250 '$cairn' ${2#cairn }" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "$2: exit $got, wanted $code: $out"
}
says()
{
    local text
    for text in "$@"; do grep -qF -- "$text" <<< "$out" || fail "wanted \"$text\" in: $out"; done
}
# value KEY: of the JSON in `out`, a key of its top level.
value() { sed -n "s/^  \"$1\": \"\?\([^\",]*\)\"\?,\?\$/\1/p" <<< "$out"; }
again() { sed -n 's/^    again: //p' <<< "$out" | head -n 1; }
# Only seeds are run where a workload is named.
quick=(--workload bank)

# Help.
expect 0 --help
says 'Usage: cairn crash' 'cairn crash run --workload ./shop.so'
for command in run enum faults litmus replay shrink points mutants; do
    expect 0 help
    says "  $command "
    expect 0 "$command" --help
    says "Usage: cairn crash $command" 'Example:' 'Exit:'
done

# Bad usage.
expect 2 nonsense
expect 2 run extra
for options in '--seed x' '--seed 99999999999999999999' '--seeds 0' '--time 5y' '--time 0' '--jobs 0' '--mode wsp' \
    '--faults flood' '--workload nonsense' '--workload ./nothing.so' '--keep /dev/null/x' '--mutant nonsense' \
    '--nonsense'; do
    # shellcheck disable=SC2086
    expect 2 run $options
    says 'cairn crash run: '
done
expect 2 replay
expect 2 replay --seed 1 --tape x
expect 2 replay --tape nothing.tape
says 'nothing.tape: No such file'
expect 2 replay --seed 1 --setup 'nodes=9'
says 'nodes=9'
expect 2 enum --only 99999999
expect 2 enum --part 3 --parts 2
expect 2 enum --set some
expect 2 faults --only F99
says 'cairn crash faults: --only: no fault "F99"; there are: F13'
expect 2 faults F15

# One seed, one run; however many workers; another seed, another.
expect 0 run "${quick[@]}" --seeds 8 --json
for key in seed mode points_defined points_reached images_admissible_log2 images_explored images_distinct nested_pairs \
    recoveries violations states_per_s txns ok fail unknown unseed verdict seeds reruns mismatches build replay; do
    [ -n "$(value $key)" ] || fail "no key $key: $out"
done
[ "$(value verdict)" = pass ] && [ "$(value seeds)" = 8 ] && [ "$(value reruns)" = 8 ] || fail "$out"
[ "$(value mismatches)" = 0 ] && [ "$(value violations)" = 0 ] && [ "$(value txns)" -gt 50 ] || fail "$out"
unseed=$(value unseed)
expect 0 run "${quick[@]}" --seeds 8 --jobs 3 --json
[ "$(value unseed)" = "$unseed" ] || fail "3 workers, another unseed"
expect 0 run "${quick[@]}" --seed 2 --seeds 8 --json
[ "$(value unseed)" != "$unseed" ] || fail "another seed, the same unseed"

# The first and the last line say how to run it again.
expect 0 run "${quick[@]}" --seeds 8 --jobs 1
first=$(head -n 1 <<< "$out") last=$(tail -n 1 <<< "$out")
[[ $first == "cairn crash: seed 1, mode mixed, build "*"; again: cairn crash run --seed 1 --seeds 8 --workload bank" ]] ||
    fail "first line: $first"
[[ $last == "pass: seed 1, mode mixed, build "*"; again: cairn crash run --seed 1 --seeds 8 --workload bank" ]] ||
    fail "last line: $last"
says "$unseed"
expect_line 0 "${last#*again: }"
says "$unseed"
for mode in adr adr_gpspm adr_ddio eadr; do
    expect 0 run "${quick[@]}" --seeds 2 --mode $mode --json
    [ "$(value mode)" = $mode ] || fail "$mode: $out"
done
expect 0 run "${quick[@]}" --seeds 2 --faults none --json
[ "$(value partitions)$(value crashes_client)$(value pauses)" = 000 ] || fail "faults without faults: $out"

# Crash points: every step, told as where it is defined.
expect 0 points
sed -n 's|^    X(\([a-z_]*\)) */\* \(.*[^ ]\) *\*/ *\\\?$|\1 \2|p' "$source/include/internal/cn_env.h" > steps
[ "$(wc -l < steps)" -gt 40 ] || fail "cannot read the list of steps"
while read -r name text; do
    grep -qF -- "$text" <<< "$(grep "^$name " <<< "$out")" || fail "points: $name is not \"$text\""
done < steps
expect 0 points --json
grep -q '"c_log": {' <<< "$out" || fail "points --json: $out"

# A planted loss: the one-sided method where caches hide what it writes. The command that is printed shows it again, and
# the tape too.
expect 1 run "${quick[@]}" --seeds 60 --mode adr_ddio_apm --keep tapes
says 'violation: seed 1, mode adr_ddio_apm'
what=$(sed -n 's/^  seed \([0-9]*\): //p' <<< "$out" | head -n 1)
command=$(again)
expect_line 1 "$command"
says "$what"
tape=$(ls tapes/*.tape)
expect 1 replay --tape "$tape" --json
[ "$(value verdict)" = violation ] || fail "$out"
expect 1 replay --tape "$tape" --verbose --html page.html
says "$what" 'the same violation as on the tape' 'n1'
grep -qi '<html' page.html || fail "no page"
[ "$(ls)" = "$(printf 'page.html\nsteps\ntapes')" ] || fail "left behind: $(ls)"
# What is no file is written to, and stays what it is: root could replace a device. A page that cannot be written is no pass.
mkfifo pipe
for options in "run ${quick[*]} --seeds 1 --html pipe" "shrink --tape $tape --runs 1 --out pipe"; do
    timeout 250 cat pipe > piped &
    # shellcheck disable=SC2086
    timeout 250 "$cairn" crash $options > /dev/null 2>&1 < /dev/null || true
    [ -p pipe ] || fail "crash $options: has replaced a pipe"
    wait $! && [ -s piped ] || fail "crash $options: nothing came"
done
rm pipe piped
echo old > target
ln -s target link
expect 0 run "${quick[@]}" --seeds 1 --html link
expect 1 shrink --tape "$tape" --runs 1 --out link
[ -L link ] && grep -q '^mutant\|^seed\|^choice' target || fail "a link was replaced: $(ls -l link)"
rm link target
expect 2 run "${quick[@]}" --seeds 1 --html /dev/full
says 'inconclusive: seed 1' 'cannot write the page: No space left'
# Not this build, not whole, not a violation any more.
sed "s/^build .*/build 0123456789abcdef/" "$tape" > other.tape
expect 2 replay --tape other.tape
says 'checksum'
expect 2 replay --seed 3 --build 0123456789abcdef
says 'made by build 0123456789abcdef' '--force'
expect 0 replay --seed 3 --build 0123456789abcdef --force --workload bank
head -c 5000 "$tape" > cut.tape
expect 2 replay --tape cut.tape
says 'cut.tape: line'
# The same seeds, and the CPU makes flushes durable.
expect 0 run "${quick[@]}" --seeds 20 --mode adr_ddio

# A rule is broken on purpose.
expect 1 run "${quick[@]}" --seeds 150 --mutant c_skip_validate
what=$(sed -n 's/^  seed \([0-9]*\): //p' <<< "$out" | head -n 1)
command=$(again)
[[ $command == *"--mutant c_skip_validate"* ]] || fail "$command"
expect_line 1 "$command"
says "$what"
expect 1 run "${quick[@]}" --seeds 150 --mutant c_skip_validate --keep tapes
tape=$(grep -l '^mutant c_skip' tapes/*.tape)
expect 1 replay --tape "$tape"
says 'the same violation as on the tape'
# Made small and kept as a regression test: with the rule in force again it passes, as such.
expect 1 shrink --tape "$tape" --keep kept --out small.tape --runs 400
cmp small.tape kept/c_skip_validate-*.tape || fail "not kept: $out"
expect 1 replay --tape kept/c_skip_validate-*.tape
says 'the same violation as on the tape' 'not asked for 0'
expect 0 replay --mended --tape kept/c_skip_validate-*.tape --json
[ "$(value verdict)" = pass ] && [ "$(value tape_choices)" -gt 0 ] || fail "$out"
rm -r kept small.tape
# What is no violation: the harness cannot make such pools.
expect 2 replay --seed 1 --setup 'ops=2 chunks=1'
says 'inconclusive   format: CAIRN_E_CONFIG' 'violations     0'
expect 0 replay --seed 1 --diff-unseed --timeline steps.json
grep -q '"actors"' steps.json || fail "no timeline"
rm steps.json
expect 0 enum --set rings --list
says ' 2206 put a | delete a | put a; keys a@1; log 0 bytes'
expect 0 mutants --list
says 'n_no_fence'
expect 0 mutants --json
[ "$(value survivors)" = 0 ] && [ "$(value control)" = true ] && [ "$(value killed)" -ge 45 ] &&
    [ "$(value killed)" = "$(value mutants)" ] || fail "$out"

# The closed set: one case, with nothing left out, and image by image; a slice that is cut short is no pass.
expect 0 enum --only 3 --depth 1 --prove 4 --json
[ "$(value moments_inside)" -gt 20 ] && [ "$(value cases)" = 1 ] || fail "$out"
[ ! -x "$(dirname "$cairn")/cairn-crash-closed" ] || # not with every compiler
    [ "$(value moments_inside) $(value moments)" = "$(value moments_inside_exhaustive) $(value moments_exhaustive)" ] ||
    fail "$out"
expect 0 enum --only 3 --depth 1 --each-image --json
[ "$(value images_explored)" -gt 100 ] && [ "$(value images_proven)" = 0 ] || fail "$out"
expect 2 enum --time 0.01 --jobs 1
says 'inconclusive'
expect 2 litmus --runs 1
says 'inconclusive'

# Faults beyond crashes: a row per kind of bytes, the same for any number of workers, and part of the default campaign.
expect 0 faults --only F15 --seed 3
says 'F15   items' 'fault cases' 'pass: seed 3, mode all, build ' '; again: cairn crash faults --only F15 --seed 3'
cases=$(sed -n 's/^fault cases *\([0-9]*\) .*/\1/p' <<< "$out") unseed=$(sed -n 's/^unseed *//p' <<< "$out")
[ "$cases" -gt 100 ] || fail "faults: $out"
expect 0 faults --only F15 --seed 3 --jobs 3 --json
[ "$(value fault_cases)" = "$cases" ] && [ "$(value unseed)" = "$unseed" ] || fail "faults --json: $out"
says '"fault": "F15"' '"what": "superblock"' '"silent": 0'
expect 2 faults --time 0.01 --jobs 1
says 'inconclusive'
expect 0 run --seeds 1 --json
[ "$(value fault_cases)" -gt 1000 ] || fail "no faults in the default campaign: $out"
# A fence that cuts nobody off: the command that is printed shows it again.
expect 1 faults --only F25 --mutant n_no_fence
what=$(sed -n 's/^  seed \([0-9]*\): //p' <<< "$out" | head -n 1)
expect_line 1 "$(again)"
says "$what"

# A workload that dies takes nobody with it, and is not forgotten.
cat > dies.c << 'C'
#include <stdio.h>
#include <stdlib.h>
#include "cairn/workload.h"
static int setup(struct cairn_run *run, struct cairn_ctx *ctx) { (void)run; (void)ctx; return 0; }
static int step(struct cairn_run *run, struct cairn_ctx *ctx)
{
    (void)ctx;
    if (cairn_run_choose(run, "die", 4) != 0)
        return 0;
    fprintf(stderr, "my last words\n");
    abort();
}
static const struct cairn_workload workload = {.abi = CAIRN_WORKLOAD_ABI, .name = "dies", .summary = "dies",
    .setup = setup, .step = step, .check = setup};
const struct cairn_workload *cairn_workload(void) { return &workload; }
C
"$cc" -shared -fPIC -I "$source/include" -o dies.so dies.c
expect 1 run --workload ./dies.so --seeds 20 --jobs 2
says 'signal 6' 'my last words' '--workload ./dies.so'
expect_line 1 "$(again)"
says 'signal 6' 'my last words'
[ -z "$(find . -name 'core*')" ] || fail "a core file"

# Nothing comes about: that is no pass, however many runs.
sed 's/abort();/return CAIRN_E_CONFLICT;/; s/"dies"/"idle"/g; s/return 0;$/return CAIRN_E_CONFLICT;/' dies.c > idle.c
sed -i '/^static int setup/s/return CAIRN_E_CONFLICT;/return 0;/' idle.c
"$cc" -shared -fPIC -I "$source/include" -o idle.so idle.c
expect 2 run --workload ./idle.so --seeds 3
says 'no transaction was committed in 3 runs'
expect 2 rig --workload ./idle.so --time 1 --no-faults
says 'nothing was committed'

# Interrupted: what was done is told, and it is no pass.
timeout 250 "$cairn" crash run "${quick[@]}" --time 200 > out.txt 2> /dev/null &
pid=$!
until [ -s out.txt ]; do sleep 0.05; done
child=$(pgrep -P $pid || true)
kill -INT "${child:-$pid}"
got=0
wait $pid || got=$?
[ $got -eq 2 ] || fail "interrupted: exit $got: $(cat out.txt)"
grep -q 'inconclusive   interrupted' out.txt || fail "interrupted: $(cat out.txt)"

# Found beside `cairn`, in libexec of an installation, and missed with a clear message.
mkdir -p tree/bin tree/libexec/cairn
cp "$cairn" tree/bin/cairn
got=0
out=$(tree/bin/cairn crash points 2>&1) || got=$?
[ $got -eq 2 ] || fail "no program, exit $got"
says 'cairn-crash' 'libexec/cairn'
cp "$(dirname "$cairn")/cairn-crash" tree/libexec/cairn/
tree/bin/cairn crash points > /dev/null || fail "not found in libexec"
got=0
out=$(tree/bin/cairn crash mutants 2>&1) || got=$?
[ $got -eq 2 ] || fail "no program with mutants, exit $got"
says 'cairn-crash-mutants'
echo "crash: good"
