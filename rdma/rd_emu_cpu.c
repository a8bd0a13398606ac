/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_cpu.c: write-back of one cache line by the best instruction this CPU has. The caller
 * orders with emu_store_barrier(), which waits for all of them.
 */
#include <cpuid.h>
#include <immintrin.h>

#include "rdma/rd_emu.h"

static void flush_clflush(const void *line)
{
    _mm_clflush(line);
}

__attribute__((target("clflushopt"))) static void flush_clflushopt(const void *line)
{
    _mm_clflushopt((void *)(uintptr_t)line);
}

__attribute__((target("clwb"))) static void flush_clwb(const void *line)
{
    _mm_clwb((void *)(uintptr_t)line);
}

void (*rd_emu_choose_flush(void))(const void *line)
{
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
        if ((b & (1u << 24)) != 0)
            return flush_clwb;
        if ((b & (1u << 23)) != 0)
            return flush_clflushopt;
    }
    return flush_clflush;
}
