/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_regress.h: a failing run kept as a regression test: its tape in a folder whose tapes a test
 * replays (tests/sim/regress). Once the bug is fixed, the run on the tape must pass.
 *
 * A tape follows the program: choices are named (sim_replay.h), so it survives changes elsewhere,
 * but when the code that it is about takes other steps, its choices no longer fit. It passes then
 * without testing what it was kept for; cr_regress_run() tells how much of it was still asked for.
 */
#ifndef CR_REGRESS_H
#define CR_REGRESS_H

#include "tools/crash/tell/cr_tape_file.h"

struct cr_regress_outcome {
    bool failed;
    char failure[1024], failure_class[SIM_CLASS_MAX];
    char was[1024];      /* what it was kept for */
    char mutant[64];     /* the rule that was broken when it failed; "none" */
    size_t listed, used; /* choices on the tape; of them asked for */
    uint64_t hash;
};

/*
 * Write `folder`/`name`.tape. Errors: -EINVAL: `name` has other characters than letters, digits,
 * - and _, or the tape is of a run that passed; those of cr_tape_write().
 */
CN_MUST_CHECK int cr_regress_write(
    const char *folder, const char *name, const struct cr_tape_file *tape);
/* Replay. Errors: those of cr_tape_read() and cr_setup_parse(), cr_work_open(). */
CN_MUST_CHECK int cr_regress_run(const char *path, struct cr_regress_outcome *ret);
/* The paths of the tapes of a folder, sorted. Owner: the caller, sim_free() of each and of the
 * array. Errors: -errno. */
CN_MUST_CHECK int cr_regress_list(const char *folder, char ***ret_paths, size_t *ret_count);

#endif
