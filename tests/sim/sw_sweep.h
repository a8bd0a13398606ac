/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sw_sweep.h: what the simulation's test programs share: which seeds to run, for how long, and how
 * a failure is reported. CAIRN_SIM_FIRST and CAIRN_SIM_SEEDS choose the seeds, CAIRN_SIM_SECONDS
 * the bound on time, CAIRN_SIM_VERBOSE prints every event.
 */
#ifndef SW_SWEEP_H
#define SW_SWEEP_H

#include "tools/crash/cluster/cr_cluster.h"

struct sw_sweep {
    uint64_t first, count;
    double seconds; /* stop after this, if all is well */
    uint64_t done;  /* filled in */
    double took;
    struct cr_counts counts;
    uint64_t steps[CN_STEP_COUNT], words_lost;
};
/* False: a seed failed, it is printed with how to run it again. */
bool sw_sweep(const char *program, const struct cr_setup *setup, struct sw_sweep *sweep);
void sw_sweep_print(const struct sw_sweep *sweep);
double sw_seconds(void);

#endif
