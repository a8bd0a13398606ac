/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum.h: the closed set: small cases, all of them, each run once in a calm cluster, with the
 * power failing for all nodes at every moment before bytes become durable, and every image that
 * this may leave recovered and checked (cr_explore.h).
 *
 * Three sets, numbered through:
 * - singles: every transaction of up to 3 operations on up to 3 keys over up to 3 participants, for
 *   every presence of the keys before, up to renaming of keys and participants (cr_enum_list.c);
 * - pairs: two coordinators with a small transaction each on the same keys, in a number of
 *   interleavings;
 * - rings: transactions in a ring that wraps, at every offset, and slots that are used again after
 *   their coordinator died.
 */
#ifndef CR_ENUM_H
#define CR_ENUM_H

#include "tools/crash/tell/cr_report.h"
#include "tools/sim/sim_fabric.h"

enum cr_enum_set {
    CR_ENUM_SINGLES = 1,
    CR_ENUM_PAIRS = 2,
    CR_ENUM_RINGS = 4,
    CR_ENUM_ALL = 7,
};

struct cr_enum_progress {
    uint32_t number;      /* of the case that has just ended */
    uint32_t done, total; /* cases of this part */
    uint64_t images, distinct, violations;
    double seconds;
};

struct cr_enum_options {
    unsigned sets;            /* bits of enum cr_enum_set; 0: all */
    bool one;                 /* only case `only`, whatever `sets`, `part` and `parts` say */
    uint32_t only;
    uint32_t part, parts;     /* this is worker `part` (from 0) of `parts`; parts 0 is 1 */
    uint32_t depth;           /* crashes inside recovery, one in the other */
    /* Image by image, not by what recovery reads (cr_explore.h, directed): so where that is not
     * seen in any case. */
    bool each_image;
    uint32_t prove_each;      /* by reads: cr_explore.h */
    uint32_t exhaustive_log2; /* by reads: at most so many runs per moment; 0: 22, which is more
                                 than there are. By image: a moment with at most so many: all of
                                 them; 0: 22 for singles, else 14; with depth 12 */
    uint32_t nested_log2;     /* the same inside recovery; 0: 22, or 12 */
    uint32_t samples;         /* by image: drawn ones where a moment has more; 0: 64 */
    bool nest_every;          /* by image: crash inside the recovery of each, not of one of those
                                 whose recoveries do the same (cr_explore.h, representatives) */
    uint64_t seed;            /* of drawn images and interleavings, and which names stand for the
                                 keys and participants of a case */
    double seconds;           /* stop after so long: the report is cut_short; 0: no limit */
    enum rd_durability durability; /* how flushes become durable; 0: APM */
    enum sim_mode mode;
    uint32_t violations_max;  /* stop after so many; 0: 8 */
    bool no_images;           /* run only, under the flush discipline (cr_discipline.h) */
    bool verbose;             /* trace of the run on stderr; with `one` */
    void (*progress)(void *arg, const struct cr_enum_progress *progress); /* may be NULL */
    void *arg;
};

/* What cr_report has no place for. Plain data: sums. */
struct cr_enum_stats {
    uint64_t cases, committed, aborted, unknown;
    /* With anything to lose; of them those with nothing left out, also inside recovery; moments
     * inside recovery. */
    uint64_t moments, moments_exhaustive, inside, inside_exhaustive;
    uint64_t by_chance, proven; /* cr_explore.h */
    uint64_t states, states_hash; /* sums over the cases */
    uint64_t disciplined; /* acknowledgements whose records were looked at, cr_discipline.h */
};

/* Cases of these sets; numbers of a set are consecutive, singles first. */
uint32_t cr_enum_count(unsigned sets);
/* "put a@1 (there), read b@2 (absent)": false: there is no such case. */
bool cr_enum_describe(uint32_t number, char *buf, size_t size);
/*
 * Run; adds to what cr_report_init() has made of `report` and sets neither verdict nor rates
 * (cr_report_close()). Violations carry `cairn crash enum --only N` with what else they need.
 * `ret_stats` may be NULL.
 */
void cr_enum_run(const struct cr_enum_options *options, struct cr_report *report,
    struct cr_enum_stats *ret_stats);

#endif
