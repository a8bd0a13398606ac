/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cache.h: takes the place of txn_cache.c in the simulator (the linker wraps its functions):
 * the real one recycles entries by a thread of its own, which no seed controls. What it gives are
 * hints, so this one also forgets, and gives an older hint, by choices of the tape.
 */
#ifndef CR_CACHE_H
#define CR_CACHE_H

#include "tools/sim/sim.h"

/* Whose tape to choose from; NULL: be kind. */
void cr_cache_use(struct sim *sim);

#endif
