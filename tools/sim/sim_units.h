/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_units.h: all images that a power failure may leave of a pool, as a product of independent
 * units. A unit is a word that only the fabric has written, or a line with stores of the CPU. Each
 * has a list of alternatives, no two of which leave the same bytes: the first is the shadow (all is
 * lost); `kept` is what is visible. An image takes one alternative of each unit;
 * all combinations are admissible, and no two are equal. The rule is sim_line_image()'s.
 */
#ifndef SIM_UNITS_H
#define SIM_UNITS_H

#include "tools/sim/sim_pmem.h"

struct sim_alternative { /* what it changes of the unit's line in the shadow */
    uint64_t value[8];
    uint8_t mask; /* words that differ from the shadow */
};
struct sim_unit {
    uint32_t pool; /* number given by the caller */
    uint32_t line;
    uint8_t words; /* mask of what it is about */
    bool is_line;  /* has stores of the CPU */
    uint32_t count, first; /* of its alternatives; one only: it has no choice (SIM_EADR) */
    uint32_t kept;         /* the alternative that is visible: the last, or 0 if nothing changed */
    uint64_t seq;          /* of its oldest store */
};
struct sim_units {
    struct sim_unit *unit; /* by pool and seq */
    struct sim_alternative *alternative;
    uint32_t count, room, alternatives, alternative_room;
    double log2;   /* of the number of admissible images; exact while `complete` */
    bool complete; /* false: a line had more alternatives than SIM_ALTERNATIVES_MAX; some are left
                      out, none is wrong */
};
#define SIM_ALTERNATIVES_MAX 4096u

void sim_units_clear(struct sim_units *units);
/* Add what is dirty in a pool. */
void sim_units_add(struct sim_units *units, const struct sim_pool *pool, uint32_t number);
void sim_units_free(struct sim_units *units);

#endif
