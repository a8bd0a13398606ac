/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_shrink.h: makes a failing run small, so that a person can see what is wrong.
 *
 * Every candidate is run; it replaces the best one when it fails with the same class (the same
 * invariant, see sim_fail()). First the set-up: fewer operations, clients, nodes and kinds of work,
 * kinds of faults off, the plain geometry; where the tape at hand does not fail in the smaller
 * set-up, some new seeds are tried, for a smaller cluster takes other ways. Then the tape: its
 * choices are made calm (sim_calm.h), by label, by who made them, in ranges (delta debugging) and
 * one by one, as long as it still fails; what a power failure lost is taken word by word; what has
 * to stay is made as small as it can be. At the end only what must be otherwise is on the tape.
 *
 * Deterministic for the same bound of runs; a bound of time can cut it short at any candidate.
 */
#ifndef CR_SHRINK_H
#define CR_SHRINK_H

#include "tools/crash/cluster/cr_cluster.h"

struct cr_shrink_size {
    uint32_t nodes, clients;
    uint64_t operations; /* begun by clients */
    uint64_t faults;     /* crashes, power failures, pauses, partitions, breaks */
    uint64_t words_lost;
    uint64_t choices;    /* made in the run */
    uint64_t listed;     /* of them not calm */
    uint64_t events;
};

struct cr_shrink_progress {
    const char *phase; /* static text: "set-up", "tape", ... */
    uint32_t runs, runs_max;
    double seconds;
    struct cr_shrink_size best;
};

struct cr_shrink_options {
    const struct cr_setup *setup; /* with `replay`: that tape is played and shrunk */
    uint64_t seed;
    uint32_t runs_max;  /* 0: 6000 */
    double seconds;     /* 0: no limit */
    uint32_t new_seeds; /* tried for each smaller set-up; 0: 100, UINT32_MAX: none */
    /* May be NULL. False: stop here. */
    bool (*progress)(void *arg, const struct cr_shrink_progress *progress);
    void *arg;
};

struct cr_shrink_result {
    bool reproduced; /* it failed at all: without that nothing below is set */
    bool verified;   /* the result ran twice, with the same hash and the same class */
    bool cut_short;  /* by runs, time or progress(): it may be smaller still */
    struct cr_setup setup; /* replays the result: `replay` is `choice`, the rest calm */
    uint64_t seed;
    struct sim_choice *choice; /* what is not calm */
    size_t choice_count;
    char failure[1024], failure_class[SIM_CLASS_MAX];
    uint64_t hash;
    uint32_t runs;
    double seconds;
    struct cr_shrink_size before, after;
};

/* Owner of ret: cr_shrink_release(). */
void cr_shrink(const struct cr_shrink_options *options, struct cr_shrink_result *ret);
void cr_shrink_release(struct cr_shrink_result *result);

#endif
