/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmemobj_count.c: counts the fences and the flushed cache lines of libpmemobj: stands in front of
 * the functions of libpmem that it calls. See pmemobj_count.h.
 *
 * A copy of libpmem is counted as the lines that it touches and one fence, unless it was told to
 * leave flushing or the fence out.
 */
#include "tests/bench/pmemobj_count.h"

#include <dlfcn.h>
#include <libpmem.h>
#include <stdlib.h>

static struct pmemobj_counts counts;

bool pmemobj_counts_take(struct pmemobj_counts *ret)
{
    *ret = counts;
    counts = (struct pmemobj_counts){0};
    return true;
}

static void *find(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (function == NULL)
        abort();
    return function;
}

#define REAL(name, ret, ...)                                                                       \
    static ret (*real)(__VA_ARGS__);                                                               \
    if (real == NULL)                                                                              \
    *(void **)&real = find(name)

static void count_lines(const void *addr, size_t size)
{
    const uintptr_t first = (uintptr_t)addr / 64, last = ((uintptr_t)addr + size + 63) / 64;
    counts.lines += last - first;
}

static void count_copy(const void *addr, size_t size, unsigned flags)
{
    if ((flags & PMEM_F_MEM_NOFLUSH) != 0)
        return;
    count_lines(addr, size);
    if ((flags & PMEM_F_MEM_NODRAIN) == 0)
        counts.fences++;
}

void pmem_drain(void)
{
    REAL("pmem_drain", void, void);
    counts.fences++;
    real();
}

void pmem_flush(const void *addr, size_t len)
{
    REAL("pmem_flush", void, const void *, size_t);
    count_lines(addr, len);
    real(addr, len);
}

void pmem_persist(const void *addr, size_t len)
{
    REAL("pmem_persist", void, const void *, size_t);
    count_lines(addr, len);
    counts.fences++;
    real(addr, len);
}

void *pmem_memcpy(void *pmemdest, const void *src, size_t len, unsigned flags)
{
    REAL("pmem_memcpy", void *, void *, const void *, size_t, unsigned);
    count_copy(pmemdest, len, flags);
    return real(pmemdest, src, len, flags);
}

void *pmem_memmove(void *pmemdest, const void *src, size_t len, unsigned flags)
{
    REAL("pmem_memmove", void *, void *, const void *, size_t, unsigned);
    count_copy(pmemdest, len, flags);
    return real(pmemdest, src, len, flags);
}

void *pmem_memset(void *pmemdest, int c, size_t len, unsigned flags)
{
    REAL("pmem_memset", void *, void *, int, size_t, unsigned);
    count_copy(pmemdest, len, flags);
    return real(pmemdest, c, len, flags);
}
