/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_cache.h: takes the place of txn_cache.c in the simulator (the linker wraps its functions):
 * the real one recycles entries by a thread of its own, which no seed controls. What it gives are
 * hints, so this one also forgets, and gives an older hint, by choices of the tape.
 */
#ifndef SIM_CACHE_H
#define SIM_CACHE_H

#include "tests/sim/sim.h"

/* Whose tape to choose from; NULL: be kind. */
void sim_cache_use(struct sim *sim);

#endif
