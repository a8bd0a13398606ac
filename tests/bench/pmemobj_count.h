/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pmemobj_count.h: how often libpmemobj fences and how many cache lines it flushes. Linked with
 * pmemobj_count.c the calls to libpmem are counted, which takes time of its own; without it nothing
 * is, and no figure of time is disturbed.
 */
#ifndef PMEMOBJ_COUNT_H
#define PMEMOBJ_COUNT_H

#include <stdbool.h>
#include <stdint.h>

struct pmemobj_counts {
    uint64_t fences, lines;
};
/* What was counted since the last call. False: nothing is counted in this program. */
bool pmemobj_counts_take(struct pmemobj_counts *ret) __attribute__((weak));

#endif
