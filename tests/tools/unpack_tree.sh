#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# unpack_tree.sh FILE DIR: make the tree that FILE describes (tests/fixtures/doctor/README) in DIR.
set -euo pipefail
dir=$2
while IFS= read -r line; do
    case $line in
    '#'* | '') continue ;;
    *' -> '*) path=${line%% -> *} ;;
    */) path=${line%/} ;;
    *) path=${line%%[:=] *} ;;
    esac
    mkdir -p "$dir/$(dirname "$path")"
    case $line in
    *' -> '*) ln -sfn "${line#* -> }" "$dir/$path" ;;
    */) mkdir -p "$dir/$path" ;;
    *"$path: "*) printf '%b\n' "${line#"$path: "}" > "$dir/$path" ;;
    *) printf '%b' "${line#"$path= "}" > "$dir/$path" ;;
    esac
done < "$1"
