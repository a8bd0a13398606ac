#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Goal: the command line as a user meets it: helps, usage errors, exit codes, messages. No node runs.
# test_cli.sh CAIRN
set -euo pipefail
cairn=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail()
{
    echo "FAILED: $*"
    exit 1
}
# expect CODE TEXT ARGS...: exit code, and TEXT in what it says.
expect()
{
    local code=$1 text=$2 out got=0
    shift 2
    out=$("$cairn" "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" -eq "$code" ] || fail "cairn $*: exit $got, wanted $code: $out"
    grep -qF -- "$text" <<< "$out" || fail "cairn $*: wanted \"$text\" in: $out"
}
expect 2 'Usage: cairn COMMAND'
expect 0 'Usage: cairn COMMAND' --help
expect 2 'no command "nonsense"' nonsense
expect 0 'cairn 0.' version
expect 0 '"layout_version": 1' version --json
for command in init node recover inspect resolve get put delete demo bench version; do
    expect 0 'Example:' $command --help
    expect 0 'Exit: 0 good' $command --help
    expect 2 'no such option' $command --nonsense
done
expect 2 'an argument is missing' init
expect 2 'needs a value' node --config
expect 2 'must be a number from 1 to 65535' node --config x --id 0
expect 2 'must be a number' demo --seconds 1x
expect 2 'must be a number' demo --seconds -1
expect 2 'too many arguments' demo now
expect 2 '--config and --id are needed' node --id 1
expect 2 '--config is needed' get accounts alice
expect 2 '--config is needed' resolve c1-00
expect 2 'give either one POOL or --node ADDR' inspect
expect 2 'an argument is missing' recover
expect 2 'No such file' inspect "$dir/none.pool"
mkfifo "$dir/pipe" # not to be waited for
expect 2 'is neither a file nor a devdax device' inspect "$dir/pipe"
expect 2 'is neither a file nor a devdax device' recover "$dir/pipe"
expect 2 'cannot be read' crash run --workload "$dir/pipe"
expect 2 '"error": "ENOENT"' inspect --json "$dir/none.pool"
head -c 65536 /dev/zero > "$dir/zero.pool"
expect 2 'zero.pool' inspect "$dir/zero.pool"

expect 0 'cairn.conf' init --nodes 2 --tables accounts,orders "$dir/c"
expect 2 'is there already' init "$dir/c"
expect 2 'did you mean' inspect --node 1 --config <(sed 's/^nodes/nods/' "$dir/c/cairn.conf")
expect 2 'there is no node 3' node --config "$dir/c/cairn.conf" --id 3
expect 2 'no node with id or address 7' inspect --node 7 --config "$dir/c/cairn.conf"
expect 2 'CAIRN_E_NODE_DOWN' inspect --json --node 1 --config "$dir/c/cairn.conf"
expect 2 'no table' get --config "$dir/c/cairn.conf" nonsense alice
expect 2 'cannot be reached' get --config "$dir/c/cairn.conf" accounts alice
expect 2 'token' resolve --config "$dir/c/cairn.conf" c1-abc
expect 2 'hex digits' get --config "$dir/c/cairn.conf" --hex accounts xyz
expect 2 'longer than 255' get --config "$dir/c/cairn.conf" accounts "$(printf '%0300d' 0)"
expect 2 'must be a size' init --size 5X "$dir/d"
[ ! -e "$dir/d/cairn.conf" ] || fail "a wrong configuration was left behind"
expect 2 'nothing is made' init --size 1M "$dir/d"
[ ! -e "$dir/d" ] || fail "a folder was left behind"
# What init writes as a comment is what is so without it.
sed -e 's/^# \(completion = .*\)/\1/' -e 's/^#     };/    };/' "$dir/c/cairn.conf" > "$dir/c/said.conf"
grep -q 'linger_us = 1000;$' "$dir/c/said.conf" || fail "no completion in what init writes"
expect 2 'cannot be reached' get --config "$dir/c/said.conf" accounts alice
sed 's/^fabric = .*/fabric = "emo";/' "$dir/c/cairn.conf" > "$dir/c/emo.conf"
expect 2 "$dir/c/emo.conf: fabric: no fabric is named \"emo\"" get --config "$dir/c/emo.conf" accounts x
expect 2 'is given twice' recover "$dir/zero.pool" "$dir/../$(basename "$dir")/zero.pool"
sed "s|pool = \"n1.pool\"|pool = \"$dir\"|" "$dir/c/cairn.conf" > "$dir/c/folder.conf"
expect 2 "$dir is neither a file nor a devdax device; is \`pool\` right in $dir/c/folder.conf?" node --config "$dir/c/folder.conf" --id 1
expect 2 '--only: no operation "bogus"' bench rtt --only bogus
expect 2 'not with --only' bench rtt --only raw_read --check
expect 0 '--only NAME' bench rtt --help
echo ok
