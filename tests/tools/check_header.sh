#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public header compiles alone, in C and in C++, with the strictest warnings. check_header.sh ROOT CC
set -eu
root=$1 cc=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '#include <cairn/cairn.h>\nint use(void);\nint use(void) { struct cairn_options o = CAIRN_OPTIONS_DEFAULT; return (int)o.connect_timeout_ms; }\n' > "$dir/a.c"
for std in c99 c11 c17; do
    "$cc" -std=$std -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -I"$root/include" -c "$dir/a.c" -o "$dir/a.o"
done
cxx=""
for candidate in c++ g++ clang++; do
    command -v $candidate > /dev/null && cxx=$candidate && break
done
[ -n "$cxx" ] || { echo "no C++ compiler: only C was checked"; exit 0; }
cp "$dir/a.c" "$dir/a.cc"
for std in c++11 c++17; do
    $cxx -std=$std -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$dir/a.cc" -o "$dir/a.o"
done
