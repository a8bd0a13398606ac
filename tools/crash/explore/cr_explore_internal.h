/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_internal.h: what the files of the image explorer share.
 *
 *   cr_explore.c          the explorer; a moment: its units, and which images of it are taken
 *   cr_explore_recover.c  one image: built, recovered, checked, crashed inside its recovery
 *   cr_explore_group.c    a moment's images by words that count together
 *   cr_explore_known.c    what has been seen before; texts
 *   cr_recovered.c        what a check may ask of a recovered state
 *
 * Level 0 recovers images of the run, level n + 1 those of a crash inside a recovery of level n. A
 * level has an arena per pool, and the moment whose images it recovers.
 */
#ifndef CR_EXPLORE_INTERNAL_H
#define CR_EXPLORE_INTERNAL_H

#include "tools/crash/explore/cr_explore.h"
#include "tools/crash/explore/cr_image.h"
#include "tools/sim/sim_units.h"

#define CR_LEVELS_MAX 8u
#define CR_CANONICAL_FREE UINT64_C(15)
#define CR_STEPS_MAX 256u /* names of moments */

struct cr_level;

struct cr_place { /* an arena and whose it is: what its tracer gets */
    struct cr_level *level;
    struct cr_arena arena;
    struct pm_tracer tracer; /* before the arena's own */
    struct pm_pool pm_pool;  /* attached to the image */
};

struct cr_moment {
    const char *step;   /* before what */
    uint32_t step_number;
    bool at_end;        /* the recovery had said that it was done */
    bool dead;          /* not power: the processes; all is visible still, and as dirty */
    struct sim_units units;
    uint64_t *delta; /* per alternative: what it adds to the hash */
    uint32_t delta_room;
    uint32_t *digit; /* per unit: the alternative taken */
    uint32_t digit_room;
    uint64_t hash; /* of the image that the digits say */
    /* Lines in which what was durable differs from the base. */
    struct { uint32_t *line; uint32_t count, room; } diff[CR_EXPLORE_POOLS_MAX];
};

struct cr_level {
    struct cr_explorer *x;
    uint32_t depth;
    struct cr_place place[CR_EXPLORE_POOLS_MAX];
    struct cr_moment moment;
    struct cn_env env;
    uint64_t random;       /* of the env */
    uint32_t fences;       /* of the recovery under way */
    uint64_t trace;        /* a hash of all that it stored, flushed and fenced */
    bool nesting;          /* power fails inside it */
    bool checking;         /* the caller's check is to be asked */
    bool looked;           /* the look at the end took place */
    uint64_t canonical;    /* found by it: a hash without the bits of CR_CANONICAL_FREE, not 0 */
    uint64_t right;        /* canonical state of the image when its recovery is left alone */
    struct rec_report_pool report[CR_EXPLORE_POOLS_MAX]; /* in the order of the pools given */
    bool reversed;         /* that order is the other one */
    char log[200];         /* the last line that the recovery logged */
};

struct cr_known { /* a set of hashes, each with a value */
    uint64_t *key, *value; /* key 0: empty */
    uint64_t count, size;
};

struct cr_explorer {
    struct cr_explore_options options;
    struct cr_explore_stats stats;
    uint64_t wall_s;
    uint32_t pools; /* 0: not begun */
    struct cr_base base[CR_EXPLORE_POOLS_MAX];
    struct sim_pool *const *live; /* the run's, during cr_explore() */
    struct cr_level *level[CR_LEVELS_MAX];
    uint32_t levels;
    uint64_t expectation; /* mixed into what is known of images: see cr_explore.h */
    struct cr_known images;  /* value: its canonical state, and 1 + depth explored below it */
    struct cr_known settled; /* a pool's settled contents that are in order; value: canonical */
    struct cr_known alike;   /* recoveries, by what they did, that were crashed inside of */
    struct cr_known stable;  /* settled contents of all pools that recovery does not change */
    char *step[CR_STEPS_MAX];
    uint32_t steps;
    uint64_t pair[CR_STEPS_MAX]; /* a bit per step of the recovery */
    bool failed;
    char failure[2048];
};

/* ---- cr_explore.c ---- */

/* Explore the images that a crash inside `level`'s recovery may leave now; `step` NULL: at its end.
 */
void cr_explore_inside(struct cr_level *level, const char *step);
/* Unit `i` of a moment gets this alternative. */
void cr_explore_digit(struct cr_moment *moment, uint32_t i, uint32_t digit);
/* The image that the digits say, unless it is known. */
void cr_explore_try(struct cr_level *level);

/* ---- cr_explore_group.c ---- */

/* A moment by its groups. True: with nothing left out but torn ones like those taken. */
bool cr_explore_groups(struct cr_level *level, uint32_t limit_log2);

/* ---- cr_explore_recover.c ---- */

void cr_level_init(struct cr_level *level, struct cr_explorer *x, uint32_t depth);
void cr_level_fini(struct cr_level *level);
/* Recover and check the image that the level's moment says. */
void cr_level_visit(struct cr_level *level);
/* The image ends in this state: is that the one it should? 0: not known yet. */
void cr_level_compare(struct cr_level *level, uint64_t canonical);

/* ---- cr_explore_known.c ---- */

/* The value's place; *ret_new: it was not there and is 0. Valid until the next call. */
uint64_t *cr_known_at(struct cr_known *known, uint64_t key, bool *ret_new);
void cr_known_free(struct cr_known *known);
/* Number of a step's name. */
uint32_t cr_step_number(struct cr_explorer *x, const char *step);
/* Note the first violation: of the image that `level` has. */
void cr_violation(struct cr_level *level, const char *format, ...) CN_PRINTF(2, 3);

#endif
