#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What the library exports is what the map says, and nothing else. check_symbols.sh LIBRARY MAP
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 ~ /[TDBRVW]/ {print $3}' | sed 's/@.*//' | grep -v '^CAIRN_' | LC_ALL=C sort -u)
mapped=$(sed 's|/\*.*\*/||' "$2" | awk '/global:/ {g = 1; sub(/.*global:/, "")} /local:/ {g = 0} g' |
    tr ';' '\n' | sed 's/[[:space:]]//g' | grep -E '^[a-z_]+[a-z0-9_]*$' | LC_ALL=C sort -u)
# __gcov and sanitizer symbols of instrumented builds are not ours.
exported=$(grep -vE '^(__|_init|_fini|lprofDirMode)' <<< "$exported" || true)
if ! diff <(echo "$mapped") <(echo "$exported"); then
    echo "< in the map only, > exported only" >&2
    exit 1
fi
echo "$(wc -l <<< "$exported") symbols, as the map says"
