/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_shrink_internal.h: the state of a shrink, between its files.
 */
#ifndef CR_SHRINK_INTERNAL_H
#define CR_SHRINK_INTERNAL_H

#include "tools/crash/tell/cr_shrink.h"

struct shrink {
    const struct cr_shrink_options *options;
    uint32_t runs_max;
    double begun;
    const char *phase;
    struct cr_shrink_result *best;
    bool stop;
};

/* ---- cr_shrink.c ---- */
/*
 * Run: `choice` of the tape listed, the rest calm. True: it fails as it should, and is the best one
 * now. False too when the bounds are reached: then shrink->stop.
 */
bool cr_shrink_try(struct shrink *s, const struct cr_setup *setup, uint64_t seed,
    const struct sim_choice *choice, size_t count);
/* The same with everything drawn from a seed. */
bool cr_shrink_try_seed(struct shrink *s, const struct cr_setup *setup, uint64_t seed);

/* ---- cr_shrink_setup.c ---- */
/* True: something became smaller. */
bool cr_shrink_setup(struct shrink *s, uint32_t new_seeds);
/* Operations one by one are left out. */
bool cr_shrink_operations(struct shrink *s);

/* ---- cr_shrink_tape.c ---- */
/* Kinds and large parts only. */
bool cr_shrink_tape_coarsely(struct shrink *s);
bool cr_shrink_tape(struct shrink *s);
bool cr_shrink_values(struct shrink *s);
/* What power failures lose becomes a choice for each line and word. */
bool cr_shrink_images(struct shrink *s);

#endif
