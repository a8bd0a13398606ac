#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The public headers compile alone, in C and in C++, with the strictest warnings. check_header.sh ROOT CC
set -eu
root=$1 cc=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '#include <cairn/cairn.h>\nint use(void);\nint use(void) { struct cairn_options o = CAIRN_OPTIONS_DEFAULT; return (int)o.connect_timeout_ms; }\n' > "$dir/a.c"
printf '#include <cairn/workload.h>\nuint32_t use(const struct cairn_workload *w);\nuint32_t use(const struct cairn_workload *w) { return w->abi; }\n' > "$dir/b.c"
for std in c99 c11 c17; do
    for file in a b; do
        "$cc" -std=$std -Wall -Wextra -Wpedantic -Wstrict-prototypes -Werror -I"$root/include" -c "$dir/$file.c" -o "$dir/$file.o"
    done
done
cxx=""
for candidate in c++ g++ clang++; do
    command -v $candidate > /dev/null && cxx=$candidate && break
done
[ -n "$cxx" ] || { echo "no C++ compiler: only C was checked"; exit 0; }
cp "$dir/a.c" "$dir/a.cc"
cp "$dir/b.c" "$dir/b.cc"
for std in c++11 c++17; do
    for file in a b; do
        $cxx -std=$std -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$dir/$file.cc" -o "$dir/$file.o"
    done
done
