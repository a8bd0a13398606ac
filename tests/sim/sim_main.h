/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_main.h: what the simulation's test programs share: which seeds to run, for how long, and how
 * a failure is reported. CAIRN_SIM_FIRST and CAIRN_SIM_SEEDS choose the seeds, CAIRN_SIM_SECONDS
 * the bound on time, CAIRN_SIM_VERBOSE prints every event.
 */
#ifndef SIM_MAIN_H
#define SIM_MAIN_H

#include "tests/sim/sim_cluster.h"

struct sim_sweep {
    uint64_t first, count;
    double seconds; /* stop after this, if all is well */
    uint64_t done;  /* filled in */
    double took;
    struct sim_counts counts;
    uint64_t steps[CN_STEP_COUNT], words_lost;
};
/* False: a seed failed, it is printed with how to run it again. */
bool sim_sweep(const char *program, const struct sim_setup *setup, struct sim_sweep *sweep);
void sim_sweep_print(const struct sim_sweep *sweep);
double sim_seconds(void);

#endif
