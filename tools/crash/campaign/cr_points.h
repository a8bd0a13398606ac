/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_points.h: crash points: every named step (cn_env.h) x what may happen there, and runs of a
 * small cluster in which it does. Steps that a healthy cluster rarely passes are made likely by the
 * shape of the run.
 */
#ifndef CR_POINTS_H
#define CR_POINTS_H

#include "tools/crash/cluster/cr_cluster.h"
#include "tools/crash/tell/cr_report.h"

#define CR_POINT_TRIES 20u  /* runs of a point that are always made */
#define CR_POINT_TRIES_MAX 400u /* if none of those got there */

/* Points (step, kind) with kind PROCESS, POWER or PAUSED that are defined: number `at`; false:
 * there are no more. */
bool cr_point_at(uint32_t at, enum cn_step *ret_step, enum cr_cell *ret_kind);
/* The run that is to get there; `attempt` from 0. *ret_seed counts from `seed`. */
void cr_point_setup(enum cn_step step, enum cr_cell kind, uint32_t attempt, uint64_t seed,
    struct cr_setup *ret_setup, uint64_t *ret_seed);

#endif
