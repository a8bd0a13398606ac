/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore.h: every image that a power failure may leave, recovered and checked.
 *
 * At a moment of a run all nodes lose power and all coordinators are gone. What each pool then
 * holds is its persistent shadow plus, line by line, a prefix of the CPU's stores, and word by word
 * what the fabric wrote (rules R19 to R31 of the crash model): the admissible images are the
 * product over all lines and words of all pools. Each chosen image is built in memory of its own at
 * another address, recovered by the shipped code (recovery/rec_offline.h), checked, and taken back
 * line by line.
 *
 * Crashes inside recovery: the recovery of an image is recorded (stores, flushes, fences); before
 * every fence of it the power fails again, the images that this may leave are recovered in turn,
 * down to `depth`. Nothing is lost by looking only before fences: between two of them an image is a
 * subset of what is dirty just before the second one, and an offline recovery says nothing to
 * anybody meanwhile. In a live run the same holds between two moments at which bytes become
 * durable, as long as what was acknowledged is checked at the later one.
 *
 * Which images, image by image: all of them where a moment has at most 2^exhaustive_log2; else the
 * extremes of R37 (all lost, all kept, each unit alone lost, each alone kept, each prefix and
 * suffix in the order of stores, per pool and over all pools) and `samples` drawn ones. Images that
 * are equal byte by byte are recovered once (64-bit hash of what differs from the shadow, and of
 * the shadow), as long as the check expects the same. By what recovery reads (`directed`): all of
 * them, each run for all that it cannot tell apart (cr_explore_reads.c, cr_explore_directed.c).
 *
 * Checked of each: the recovery returns 0; nothing is in doubt; fsck finds no damage; no lock word
 * is held, every slot is free (I9, I10, I11, I12); recovering the result again changes nothing, nor
 * does a crash inside the recovery make it another one (I5), nor, of a sample, the other order of
 * the pools (I6); and the caller's check.
 */
#ifndef CR_EXPLORE_H
#define CR_EXPLORE_H

#include "pmem/pm_store.h"
#include "recovery/rec_offline.h"
#include "tools/sim/sim_pmem.h"

#define CR_EXPLORE_POOLS_MAX 4u

struct cr_explorer;

/* What recovery made of an image: stores of all pools, open and read-only for the check. */
struct cr_recovered {
    uint32_t count;
    const struct rec_report_pool *report; /* count of them */
    struct pm_pool *pool[CR_EXPLORE_POOLS_MAX];
    struct pm_store *store[CR_EXPLORE_POOLS_MAX];
    uint32_t depth; /* 0: image of the run; 1: crashed once inside recovery; ... */
};
/* The value of a key in pool number `at`; CAIRN_E_NOT_FOUND. For checks. */
CN_MUST_CHECK int cr_recovered_get(struct cr_recovered *state, uint32_t at, uint32_t table,
    const void *key, size_t key_size, void *buf, size_t room, size_t *ret_size);

struct cr_explore_options {
    const struct cn_env *env;
    uint32_t depth;           /* crashes inside recovery, one in the other; 0: none */
    uint32_t exhaustive_log2; /* at most this: all images */
    uint32_t nested_log2;     /* the same for images inside recovery */
    uint32_t samples;         /* drawn ones where not all are taken */
    /* Also, at each moment: all processes die and power stays on. Recovery then finds what is
     * visible and may still be lost (R11, T5); with depth 1 power fails while it does. */
    bool process_death;
    /* Crashes inside recovery begin from one of all images whose recoveries do the same: the same
     * stores, flushes and fences in the same order. False: from every image. */
    bool representatives;
    /* Not image by image, but by what recovery reads (cr_explore_reads.c): one run for all images
     * that it cannot tell apart; a limit then is one of runs per moment. Needs cr_watch_works(). */
    bool directed;
    /* directed: the caller explores again before anything else becomes durable, and when it is
     * over. So images that have all that becomes durable now are crashed inside of only then. */
    bool goes_on;
    uint32_t prove_each; /* directed: of so many sets of images of one another member is tried */
    uint64_t seed;            /* of the drawn ones */
    /* Is it right? False: `why` says what is wrong. fsck, locks, in-doubt records and errors of the
     * recovery itself have been checked before. */
    bool (*check)(void *arg, struct cr_recovered *state, char *why, size_t size);
    /* What the check expects, as a number: while it is the same, the check would say the same of
     * the same state, so that an image is recovered once for all moments. NULL: once per moment. */
    uint64_t (*expectation)(void *arg);
    /* Words that count only together, as those of a record do: the same number, not 0, for all
     * words of one, by their pool offset; 0: the word counts alone. Then none, all and some of them
     * lost are what a moment has of them: with every combination of that taken it counts as
     * exhaustive. Lines with stores of the CPU are never of a group. NULL: no groups. */
    uint32_t (*group)(void *arg, uint32_t pool, uint64_t off);
    void *arg;
};

struct cr_explore_stats {
    /* Moments of the run, and those with nothing left out: every image of theirs, and of each
     * moment inside the recovery of one. Then the latter, which `inside` counts by themselves. */
    uint64_t moments, moments_exhaustive;
    uint64_t inside, inside_exhaustive;
    uint64_t inside_known; /* not counted there: the same moment was explored before */
    uint64_t proven;       /* other members of sets of images that were tried */
    uint64_t by_chance; /* moments with a record of which torn ones pass its crc, by chance */
    double admissible_log2;  /* of the sum over all moments at depth 0 */
    uint64_t images;         /* built, at any depth */
    uint64_t distinct;       /* of them recovered and checked; the others were known */
    uint64_t recoveries;
    uint64_t nested;         /* images at depth 1 and more */
    uint64_t pairs;          /* (step of the run or recovery before which, step of recovery) seen */
    uint64_t alike; /* images not crashed inside of, for another one's recovery did the same */
    uint64_t units_lost;
    uint64_t process_deaths;
    uint64_t violations;
    /* Different states that images of the run ended in, with what the check expected; and a hash of
     * all of them, in no order. */
    uint64_t states, states_hash;
    uint32_t steps_max;      /* fences of the longest recovery */
    double seconds;          /* of this CPU, spent in the explorer */
};

CN_MUST_CHECK int cr_explorer_new(
    const struct cr_explore_options *options, struct cr_explorer **ret_explorer);
void cr_explorer_delete(struct cr_explorer **explorer);
/*
 * Power fails for all pools now: explore. The pools are not changed. `step` names the moment in
 * reports and pairs. False: a violation; cr_explorer_failure() tells the image (pool, line, words
 * lost and kept) and what was wrong. Explores on after a violation only when called again.
 */
bool cr_explore(struct cr_explorer *explorer, struct sim_pool *const *pools, uint32_t count,
    const char *step);
const char *cr_explorer_failure(const struct cr_explorer *explorer);
const struct cr_explore_stats *cr_explorer_stats(const struct cr_explorer *explorer);

#endif
