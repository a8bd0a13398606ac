/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_crc.c: crc32c and crc64 by ISA-L. Its crc32c takes and gives the shift register as it is; the
 * usual crc inverts it before and after, which is also what makes chaining work.
 *
 * ISA-L's cost of a call is that of some 50 bytes, so short data (headers, most items) go through
 * the processor's own instruction where it has one.
 */
#include <limits.h>

#include <isa-l/crc.h>
#include <isa-l/crc64.h>

#include "include/internal/cn_base.h"

#define SHORT_MAX 192u

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static inline uint32_t crc_short(
    uint32_t state, const unsigned char *at, size_t size)
{
    uint64_t crc = state, part;

    for (; size >= sizeof(part); size -= sizeof(part), at += sizeof(part)) {
        memcpy(&part, at, sizeof(part));
        crc = __builtin_ia32_crc32di(crc, part);
    }
    if (size >= sizeof(uint32_t)) {
        uint32_t half;
        memcpy(&half, at, sizeof(half));
        crc = __builtin_ia32_crc32si((uint32_t)crc, half);
        at += sizeof(half);
        size -= sizeof(half);
    }
    for (; size > 0; size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at++);
    return (uint32_t)crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc_short_two(uint32_t state,
    const unsigned char *a, size_t a_size, const unsigned char *b, size_t b_size)
{
    return crc_short(crc_short(state, a, a_size), b, b_size);
}

static inline bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}
#else
static uint32_t crc_short(uint32_t state, const unsigned char *at, size_t size)
{
    return crc32_iscsi((unsigned char *)(uintptr_t)at, (int)size, state);
}

static uint32_t crc_short_two(uint32_t state, const unsigned char *a, size_t a_size,
    const unsigned char *b, size_t b_size)
{
    return crc_short(crc_short(state, a, a_size), b, b_size);
}

static inline bool has_instruction(void)
{
    return false;
}
#endif

CN_HOT
uint32_t cn_crc32c(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;
    unsigned int state = ~crc;

    if (CN_LIKELY(size <= SHORT_MAX && has_instruction()))
        return ~crc_short(state, at, size);

    while (size > 0) { /* its length is an int */
        size_t part = size < INT_MAX ? size : INT_MAX;

        state = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)part, state);
        at += part;
        size -= part;
    }
    return ~state;
}

CN_HOT
uint32_t cn_crc32c_two(
    uint32_t crc, const void *a, size_t a_size, const void *b, size_t b_size)
{
    if (CN_LIKELY(a_size <= SHORT_MAX && b_size <= SHORT_MAX && has_instruction()))
        return ~crc_short_two(~crc, a, a_size, b, b_size);
    return cn_crc32c(cn_crc32c(crc, a, a_size), b, b_size);
}

CN_HOT
uint64_t cn_crc64(uint64_t crc, const void *data, size_t size)
{
    return size == 0 ? crc : crc64_ecma_refl(crc, data, size);
}
