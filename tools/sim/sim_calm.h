/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_calm.h: what is the calm value of a choice: no fault, no delay, no reordering, nothing lost,
 * nothing torn, nobody interrupted, the plainest operation. It is not always 0: a chance says yes
 * from 0 on, an image keeps everything at its last value. A run of calm choices alone is one client
 * after the other doing plain things while nothing goes wrong; what a shrunk tape lists is what
 * must be otherwise for the failure.
 */
#ifndef SIM_CALM_H
#define SIM_CALM_H

#include "include/internal/cn_base.h"

/* The label's place in the table, for sim_calm_at(). */
uint32_t sim_calm_find(const char *label);
/* `chance`: 0 stands for "yes" and the last value for "no" (sim_tape_chance()). */
uint32_t sim_calm_at(uint32_t place, uint32_t bound, bool chance);
/* The label has a line of its own in the table, or is a delay. */
bool sim_calm_knows(const char *label, uint32_t bound);

#endif
