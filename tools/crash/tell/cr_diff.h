/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_diff.h: one seed, two runs, two hashes: where do they part? Both are recorded; the first
 * choice and the first moment that differ are told, with what went before. Such a difference is a
 * fault of the harness or of a workload, never of the cluster: something was decided by the clock,
 * by an address, by memory that nobody set, or by what an earlier run left.
 */
#ifndef CR_DIFF_H
#define CR_DIFF_H

#include <stdio.h>

#include "tools/crash/cluster/cr_cluster.h"

/* True: the same run. Else `to` is told where they part. */
bool cr_diff_unseed(const struct cr_setup *setup, uint64_t seed, FILE *to);

#endif
