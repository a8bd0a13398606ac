/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_work.h: workloads by name: those built in (one table), and those in shared objects. A run may
 * have several, its parts: each has a state of its own, and every operation of a client is drawn
 * from one of them. "mixed" is that for all that are built in; it is the default.
 */
#ifndef CR_WORK_H
#define CR_WORK_H

#include <stdio.h>

#include "include/cairn/workload.h"
#include "include/internal/cn_base.h"

#define CR_PARTS_MAX 12u /* workloads of a run */

/* Built in, number `at` (enum cr_work); NULL: there are no more. "mixed" is not one of them. */
const struct cairn_workload *cr_work_at(uint32_t at);
/* Built in, by name; NULL: no such. */
const struct cairn_workload *cr_work_find(const char *name);
/*
 * From a shared object, which stays loaded. Its calls of cairn_* find this program's functions,
 * also when it was linked with libcairn.
 * Errors: CAIRN_E_CONFIG; the text names the file, what is wrong with it and what to do.
 */
CN_MUST_CHECK int cr_work_load(const char *path, const struct cairn_workload **ret_workload);
/* Is it one that can be run? `path` for the text only. Errors as above. */
CN_MUST_CHECK int cr_work_verify(const char *path, const struct cairn_workload *workload);
/*
 * What `--workload` says: a name, a file (with a slash, or ending in .so), or several of them with
 * commas; into the array, with a NULL behind the last. "mixed", alone: none, the seed of a run
 * picks. An array for cr_setup.workload. Errors: CAIRN_E_CONFIG, with the names that there are.
 */
CN_MUST_CHECK int cr_work_open(
    const char *text, const struct cairn_workload *ret_workload[CR_PARTS_MAX + 1]);
/* A line each: name and summary. */
void cr_work_list(FILE *to);
/* For who finds that two runs of one seed differ: whose mistake it most likely is, in a sentence.
 */
const char *cr_work_mismatch_hint(const struct cairn_workload *const *workload);

#endif
