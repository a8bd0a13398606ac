/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sw_regress.h: the tapes of a folder (cr_regress.h), replayed in the test's own process, which may
 * have a rule broken.
 */
#ifndef SW_REGRESS_H
#define SW_REGRESS_H

#include "tools/crash/tell/cr_regress.h"

struct sw_regress_outcome {
    bool failed;
    char failure[1024], failure_class[SIM_CLASS_MAX];
    char was[1024];      /* what it was kept for */
    char mutant[64];     /* the rule that was broken when it failed; "none" */
    size_t listed, used; /* choices on the tape; of them asked for */
    uint64_t hash;
};

/* Replay. Errors: those of cr_tape_read() and cr_setup_parse(), cr_work_open(). */
CN_MUST_CHECK int sw_regress_run(const char *path, struct sw_regress_outcome *ret);
/* The paths of the tapes of a folder, sorted. Owner: the caller, sim_free() of each and of the
 * array. Errors: -errno. */
CN_MUST_CHECK int sw_regress_list(const char *folder, char ***ret_paths, size_t *ret_count);

#endif
