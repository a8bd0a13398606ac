/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_tape.h: the choice tape. Every nondeterministic choice of a simulation is one
 * sim_tape_choose(): drawn from a generator seeded by one 64-bit seed, played back from a
 * recording, or counted through by an odometer. A rolling hash over choices and events (the
 * "unseed") tells whether two runs were the same.
 */
#ifndef SIM_TAPE_H
#define SIM_TAPE_H

#include "include/internal/cn_base.h"

struct sim_choice {
    const char *label; /* static text; for shrinking and reports */
    uint32_t value, bound;
    uint32_t who, nth; /* its n-th choice of this label, from 0; see sim_replay.h */
    bool calm;         /* the value is the calm one; see sim_calm.h */
};
struct sim_keys;
#define SIM_DELAY_BOUND (1u << 20) /* of a delay: sim_delay() */

struct sim_random { uint64_t s[4]; }; /* xoshiro256** */
void sim_random_seed(struct sim_random *random, uint64_t seed);
uint64_t sim_random_next(struct sim_random *random);

/*
 * All tapes of a program, one run after the other: depth-first, the next tape increments the
 * rightmost digit below its bound and forgets what is right of it. Bounds come from the run itself,
 * so nothing has to be known of the program. A choice of many (a delay) is reduced to its least and
 * its greatest value, a chance to yes and no: that is the honest extent of "all".
 */
#define SIM_ODOMETER_WIDE 16u /* a bound above this is a choice of two */
struct sim_digit { uint32_t value, bound; };
struct sim_odometer {
    struct sim_digit *digit;
    size_t count, room, at;
    bool on; /* off: choices are drawn as without it: setting up, which has no say in the outcome */
    const char *const *fixed; /* labels, ended by NULL: always their first value; may be NULL */
    uint64_t runs;            /* completed */
    bool diverged; /* a digit met another bound than the run before: the program is not determined
                      by its tape */
};

struct sim_tape {
    uint64_t seed;
    struct sim_random random;
    uint64_t hash, count;
    bool record;
    struct sim_choice *choice; /* recorded */
    size_t choice_count, choice_max;
    uint32_t who; /* the actor or operation that asks: sim_core.c sets it */
    struct sim_keys *keys; /* with `record` or a replay: counts choices by label and who */
    const struct sim_choice *replay; /* these are played back, whatever is not among them ... */
    size_t replay_count, replay_used;
    bool calm_rest; /* ... is as sim_calm.h says; else drawn */
    const char *calm_last; /* so many calm choices of this label in a row */
    uint32_t calm_again;
    bool diverged; /* a replayed choice had another bound, or (without calm_rest) another place than
                      recorded */
    struct sim_odometer *odometer; /* NULL: none */
};

void sim_tape_init(struct sim_tape *tape, uint64_t seed, bool record);
/* Before the first choice. Owner: the caller keeps `choice` while the tape is used. */
void sim_tape_play(struct sim_tape *tape, const struct sim_choice *choice, size_t count);
void sim_tape_fini(struct sim_tape *tape);
/* A number below `bound` (1 or more). */
uint32_t sim_tape_choose(struct sim_tape *tape, const char *label, uint32_t bound);
/* True `num` times in `den`. */
bool sim_tape_chance(struct sim_tape *tape, const char *label, uint32_t num, uint32_t den);

void sim_odometer_init(struct sim_odometer *odometer);
void sim_odometer_fini(struct sim_odometer *odometer);
/* After a run: on to the next tape. False: there is none, all have been seen. */
bool sim_odometer_next(struct sim_odometer *odometer);

/* Something happened: into the hash. */
static inline void sim_tape_note(struct sim_tape *tape, uint64_t a, uint64_t b)
{
    tape->hash = cn_mix64(tape->hash ^ a ^ (b << 32 | b >> 32)) + UINT64_C(0x9e3779b97f4a7c15);
}

#endif
