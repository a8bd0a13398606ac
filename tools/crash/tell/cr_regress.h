/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_regress.h: a failing run kept as a regression test: its tape in a folder whose tapes a test
 * replays (`cairn crash replay --mended`; tests/sim/regress). Once the bug is fixed, the run on the
 * tape must pass.
 *
 * A tape follows the program: choices are named (sim_replay.h), so it survives changes elsewhere,
 * but when the code that it is about takes other steps, its choices no longer fit. It passes then
 * without testing what it was kept for; cr_result.replay_unused tells how much of it was not asked
 * for.
 */
#ifndef CR_REGRESS_H
#define CR_REGRESS_H

#include "tools/crash/tell/cr_tape_file.h"

/*
 * Write `folder`/`name`.tape. Errors: -EINVAL: `name` has other characters than letters, digits,
 * - and _, or the tape is of a run that passed; those of cr_tape_write().
 */
CN_MUST_CHECK int cr_regress_write(
    const char *folder, const char *name, const struct cr_tape_file *tape);

#endif
