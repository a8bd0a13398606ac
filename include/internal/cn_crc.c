/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_crc.c: crc32c and crc64 by ISA-L. Its crc32c takes and gives the shift register as it is; the
 * usual crc inverts it before and after, which is also what makes chaining work.
 *
 * ISA-L folds blocks of 256 bytes; what is shorter (headers, most items, small records) goes
 * through the processor's own instruction where it has one, in half the time.
 */
#include <limits.h>

#include <isa-l/crc.h>
#include <isa-l/crc64.h>

#include "include/internal/cn_base.h"

#define SHORT_MAX 255u
#define SHORT_TWO_MAX 511u /* of two at once */

#if defined(__x86_64__)
static inline bool has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2") != 0;
}

/* By assembly, not by the compiler's builtin: that one is not inlined into a function that must run
 * on a processor without it, too. */
static inline uint64_t crc_word(uint64_t crc, const unsigned char *at)
{
    __asm__("crc32q %1, %0" : "+r"(crc) : "m"(*(const uint64_t(*)[1])(const void *)at));
    return crc;
}

static inline uint32_t crc_short(uint32_t state, const unsigned char *at, size_t size)
{
    uint64_t crc = state;

    /* Half a word comes first: what is checked ends at a multiple of 8, if anything does, and was
     * often written just now, in words. Reading over two of them would wait until both are in the
     * cache. */
    if ((size & 4) != 0) {
        uint32_t half;
        memcpy(&half, at, sizeof(half));
        __asm__("crc32l %1, %k0" : "+r"(crc) : "r"(half));
        at += sizeof(half);
        size -= sizeof(half);
    }
    for (; size >= 32; size -= 32, at += 32)
        crc = crc_word(crc_word(crc_word(crc_word(crc, at), at + 8), at + 16), at + 24);
    for (; size >= 8; size -= 8, at += 8)
        crc = crc_word(crc, at);
    for (; size > 0; size--) {
        uint8_t byte = *at++;
        __asm__("crc32b %1, %k0" : "+r"(crc) : "r"(byte));
    }
    return (uint32_t)crc;
}
#else
static inline bool has_instruction(void)
{
    return false;
}

static inline uint64_t crc_word(uint64_t crc, const unsigned char *at)
{
    return crc32_iscsi((unsigned char *)(uintptr_t)at, 8, (unsigned)crc);
}

static inline uint32_t crc_short(uint32_t state, const unsigned char *at, size_t size)
{
    return crc32_iscsi((unsigned char *)(uintptr_t)at, (int)size, state);
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
uint32_t cn_crc32c_behind(
    uint32_t crc, uint64_t first, uint64_t second, const void *data, size_t size)
{
    const struct le64 front[2] = {le64_make(first), le64_make(second)};
    const unsigned char *words = (const unsigned char *)front;

    if (CN_LIKELY(size <= SHORT_MAX && has_instruction()))
        return ~crc_short((uint32_t)crc_word(crc_word(~crc, words), words + 8), data, size);
    return cn_crc32c(cn_crc32c(crc, front, sizeof(front)), data, size);
}

CN_HOT
void cn_crc32c_two(uint32_t crc[2], const void *const data[2], const size_t size[2])
{
    const unsigned char *a = data[0], *b = data[1];
    size_t both = (size[0] < size[1] ? size[0] : size[1]) / 32 * 32;
    uint64_t state[2] = {(uint32_t)~crc[0], (uint32_t)~crc[1]};

    if (CN_UNLIKELY(both > SHORT_TWO_MAX || !has_instruction()))
        both = 0;
    for (size_t i = 0; i < both; i += 32) {
        state[0] = crc_word(state[0], a + i);
        state[1] = crc_word(state[1], b + i);
        state[0] = crc_word(state[0], a + i + 8);
        state[1] = crc_word(state[1], b + i + 8);
        state[0] = crc_word(state[0], a + i + 16);
        state[1] = crc_word(state[1], b + i + 16);
        state[0] = crc_word(state[0], a + i + 24);
        state[1] = crc_word(state[1], b + i + 24);
    }
    crc[0] = ~(uint32_t)state[0];
    crc[1] = ~(uint32_t)state[1];
    if (CN_UNLIKELY(size[0] != both))
        crc[0] = cn_crc32c(crc[0], a + both, size[0] - both);
    if (CN_UNLIKELY(size[1] != both))
        crc[1] = cn_crc32c(crc[1], b + both, size[1] - both);
}

CN_HOT
uint64_t cn_crc64(uint64_t crc, const void *data, size_t size)
{
    return size == 0 ? crc : crc64_ecma_refl(crc, data, size);
}
