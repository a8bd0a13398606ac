/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_internal.h: what the files of the image explorer share.
 *
 *   cr_explore.c          the explorer; a moment: its units, and which images of it are taken
 *   cr_explore_recover.c  one image: built, recovered, checked, crashed inside its recovery
 *   cr_explore_group.c    a moment's images by words that count together
 *   cr_explore_directed.c by what recovery reads: a moment, and moments inside recovery
 *   cr_explore_reads.c    sets of images that recovery cannot tell apart, and its reads
 *   cr_explore_prove.c    trying whether it cannot
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
#include "tools/crash/explore/cr_watch.h"
#include "tools/sim/sim_units.h"

#define CR_LEVELS_MAX 8u
#define CR_CANONICAL_FREE UINT64_C(31) /* of these: */
#define CR_KNOWN_DEPTH UINT64_C(15)    /* 1 + depth explored below */
#define CR_KNOWN_LEFT_OUT UINT64_C(16) /* that left something out */
#define CR_STEPS_MAX 256u /* names of moments */
#define CR_TAKEN_MAX 512u /* units in an exclusion: words of a record */

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
    bool left_out;      /* below one of its images some was not explored */
    struct sim_units units;
    uint64_t *delta; /* per alternative: what it adds to the hash */
    uint32_t delta_room;
    uint32_t *digit; /* per unit: the alternative taken */
    uint32_t digit_room;
    uint64_t hash; /* of the image that the digits say */
    /* Lines in which what was durable differs from the base. */
    struct { uint32_t *line; uint32_t count, room; } diff[CR_EXPLORE_POOLS_MAX];
};

/*
 * A set of images of a moment (cr_explore_reads.c): per unit the alternatives that are possible, as
 * bits from set_at[unit] on, and behind all of them the numbers of the exclusions in force, as
 * bits.
 */
struct cr_taken { uint32_t unit, alternative; };
struct cr_exclusion { uint32_t first, count; }; /* in `taken`: not all of these at once */
/* Of a word that has not been read: what it may be as well. */
enum cr_guard {
    CR_GUARD_NONE,  /* anything */
    CR_GUARD_VALUE, /* what it is in some image: the recovery does the same */
    CR_GUARD_STORE, /* the same, but one of them is stored and another not: the end is the same */
};
#define CR_COPY_SIZE 512u /* of a bucket */
struct cr_copy { /* of such bytes, with what was open in them */
    uintptr_t at; /* 0: none */
    uint16_t unit[CR_COPY_SIZE / 8]; /* as `open` below */
    bool written[CR_COPY_SIZE];
};
struct cr_reads {
    uint32_t *set_at, set_room, words; /* of a set of images, exclusions included */
    uint64_t *cube; /* what the run under way stands for */
    uint64_t *stack;
    uint32_t stack_count, stack_room; /* sets of images still to be visited */
    struct cr_exclusion exclusion[64];
    uint32_t exclusions;
    struct cr_taken *taken;
    uint32_t taken_count, taken_room;
    uint16_t *at[CR_EXPLORE_POOLS_MAX];    /* per word: 1 + the unit that it is of, if any */
    uint16_t *open[CR_EXPLORE_POOLS_MAX];  /* the same while it is open */
    uint8_t *stores[CR_EXPLORE_POOLS_MAX]; /* per word: stores of the recovery, up to 255 */
    uint8_t *guarded[CR_EXPLORE_POOLS_MAX]; /* per word: enum cr_guard */
    uintptr_t from, size; /* addresses of all pools of the level */
    uint8_t *lines; /* per 64 bytes of them: words that are open when the run begins */
    struct cr_copy copy;
    uint64_t mark[64]; /* a ring is searched for these in words at offset 24 of its lines */
    uint32_t marks;
    uint64_t marks_from, marks_to; /* addresses; 0, 0: it is not */
    bool left_out;   /* a set of images could not be told */
    bool by_chance;  /* some torn record would pass by chance, and was not visited */
    uint64_t reads;  /* decisions of the run */
};

struct cr_level {
    struct cr_explorer *x;
    uint32_t depth;
    struct cr_place place[CR_EXPLORE_POOLS_MAX];
    struct cr_moment moment;
    struct cr_reads reads;
    struct cn_env env;
    uint64_t random;       /* of the env */
    uint32_t fences;       /* of the recovery under way */
    uint32_t fencing;      /* number of the pool whose fence it is at; UINT32_MAX: none */
    uint64_t trace;        /* a hash of all that it stored, flushed and fenced */
    bool nesting;          /* power fails inside it */
    bool checking;         /* the caller's check is to be asked */
    bool looked;           /* the look at the end took place */
    uint64_t canonical;    /* found by it: a hash without the bits of CR_CANONICAL_FREE, not 0 */
    uint64_t right;        /* canonical state of the image when its recovery is left alone */
    bool left_out;         /* of what is below the image, some was not explored */
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
    struct cr_known fscked;  /* chunks and their contents that are in order; value: canonical */
    struct cr_known ended;   /* states that images of the run ended in */
    struct cr_known asked;   /* questions (cr_watch_ask.c) with one answer: 1 */
    struct cr_known cubes;   /* moments and sets of images that were explored inside */
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
/* Build the image that the digits say; recover it, once; back to the base. */
void cr_level_build(struct cr_level *level);
bool cr_level_recover(struct cr_level *level);
void cr_level_restore(struct cr_level *level);
/* Recover and check the image that the level's moment says. */
void cr_level_visit(struct cr_level *level);
/* The image ends in this state: is that the one it should? 0: not known yet. */
void cr_level_compare(struct cr_level *level, uint64_t canonical);

/* Lines in which what is durable differs from the base, and what that adds to the hash. */
void cr_explore_differences(struct cr_moment *moment, const struct cr_level *from);
void cr_explore_reserve(uint32_t **array, uint32_t *room, uint32_t count);
/* A word of a unit's line, where the moment's images have none of its alternatives. */
uint64_t cr_explore_under(const struct cr_level *level, const struct sim_unit *unit, unsigned word);

/* ---- cr_explore_directed.c ---- */

bool cr_directed_moment(struct cr_level *level, uint32_t limit_log2);
void cr_directed_inside(struct cr_level *level, const char *step);
/* All images of the level's set will be images of the run's next moment too. */
bool cr_directed_is_later(const struct cr_level *level);
bool cr_directed_is_known(struct cr_level *level, uint64_t *ret_key);
void cr_directed_note(struct cr_level *level, uint64_t key);

/* ---- cr_explore_prove.c ---- */

/* Other images of the set that a run has stood for: they do the same. */
void cr_prove(struct cr_level *level, uint64_t done);

/* ---- cr_explore_reads.c ---- */

void cr_reads_init(struct cr_level *level);
void cr_reads_fini(struct cr_level *level);
/* All images of the moment are to be visited. */
void cr_reads_begin(struct cr_level *level);
/* The next set of them: the digits say one image of it. */
bool cr_reads_next(struct cr_level *level);
bool cr_reads_is_possible(const struct cr_level *level);
/* A run of that image: from here on reads count; no longer. */
void cr_reads_start(struct cr_level *level);
void cr_reads_stop(struct cr_level *level);
void cr_reads_stored(struct cr_level *level, uint32_t pool, uint64_t off);
/* What was stored, before the arenas are restored. */
void cr_reads_forget(struct cr_level *level);
/* Of the set: has the unit this alternative; how many has it; do they differ in this word? */
bool cr_reads_has(const struct cr_level *level, uint32_t unit, uint32_t k);
uint32_t cr_reads_count(const struct cr_level *level, uint32_t unit);
bool cr_reads_differs(const struct cr_level *level, uint32_t unit, unsigned word);
void cr_reads_guard(struct cr_level *level, uint32_t unit, enum cr_guard guard);
/* The run stands for alternatives of the unit that are of its own's class. */
void cr_reads_split(struct cr_level *level, uint32_t unit, const uint64_t *class_of);
/* CR_COPY_SIZE bytes have been copied; they count as read where the copy is. */
void cr_reads_copied(struct cr_level *level, uint32_t pool, uint64_t off, const void *to);
/* Number of an exclusion; 64: there are too many. */
uint32_t cr_reads_exclude(struct cr_level *level, const struct cr_taken *taken, uint32_t count);
/* The set is cut in two: images with all of `taken`, and the others. `same`: the run goes on as the
 * former. */
void cr_reads_cut(
    struct cr_level *level, const struct cr_taken *taken, uint32_t count, bool same);
/* The level whose run is being watched; NULL. */
struct cr_level *cr_reads_level(void);
/* The pool in which this address is, and the offset; UINT32_MAX: in none. */
uint32_t cr_reads_pool(const struct cr_level *level, const void *at, uint64_t *ret_off);

/* ---- cr_explore_known.c ---- */

/* The value's place; *ret_new: it was not there and is 0. Valid until the next call. */
uint64_t *cr_known_at(struct cr_known *known, uint64_t key, bool *ret_new);
void cr_known_free(struct cr_known *known);
/* Number of a step's name. */
uint32_t cr_step_number(struct cr_explorer *x, const char *step);
/* Note the first violation: of the image that `level` has. */
void cr_violation(struct cr_level *level, const char *format, ...) CN_PRINTF(2, 3);

#endif
