/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_tape.h: the choice tape. Every nondeterministic choice of a simulation is one
 * sim_tape_choose(): drawn from a generator seeded by one 64-bit seed, or played back from a
 * recording. A rolling hash over choices and events (the "unseed") tells whether two runs were the
 * same.
 */
#ifndef SIM_TAPE_H
#define SIM_TAPE_H

#include "include/internal/cn_base.h"

struct sim_choice {
    const char *label; /* static text; for shrinking and reports */
    uint32_t value, bound;
};

struct sim_random { uint64_t s[4]; }; /* xoshiro256** */
void sim_random_seed(struct sim_random *random, uint64_t seed);
uint64_t sim_random_next(struct sim_random *random);

struct sim_tape {
    uint64_t seed;
    struct sim_random random;
    uint64_t hash, count;
    bool record;
    struct sim_choice *choice; /* recorded */
    size_t choice_count, choice_max;
    const struct sim_choice *replay; /* played back first, then the generator goes on */
    size_t replay_count;
    bool diverged; /* a replayed choice had another bound than recorded */
};

void sim_tape_init(struct sim_tape *tape, uint64_t seed, bool record);
/* Owner: the caller keeps `choice` while the tape is used. */
void sim_tape_play(struct sim_tape *tape, const struct sim_choice *choice, size_t count);
void sim_tape_fini(struct sim_tape *tape);
/* A number below `bound` (1 or more). */
uint32_t sim_tape_choose(struct sim_tape *tape, const char *label, uint32_t bound);
/* Something happened: into the hash. */
static inline void sim_tape_note(struct sim_tape *tape, uint64_t a, uint64_t b)
{
    tape->hash = cn_mix64(tape->hash ^ a ^ (b << 32 | b >> 32)) + UINT64_C(0x9e3779b97f4a7c15);
}

#endif
