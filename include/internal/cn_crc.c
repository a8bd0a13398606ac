/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cn_crc.c: crc32c by ISA-L. Its function takes and gives the shift register as it is; the usual
 * crc inverts it before and after, which is also what makes chaining work.
 */
#include <limits.h>

#include <isa-l/crc.h>

#include "include/internal/cn_base.h"

uint32_t cn_crc32c(uint32_t crc, const void *data, size_t size)
{
    const unsigned char *at = data;
    unsigned int state = ~crc;

    while (size > 0) { /* its length is an int */
        size_t part = size < INT_MAX ? size : INT_MAX;

        state = crc32_iscsi((unsigned char *)(uintptr_t)at, (int)part, state);
        at += part;
        size -= part;
    }
    return ~state;
}
