/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_tape.c: the choice tape: splitmix64 seeds xoshiro256**; recording and playing back.
 */
#include "tests/sim/sim_tape.h"
#include "tests/sim/sim_alloc.h"

void sim_random_seed(struct sim_random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        random->s[i] = cn_mix64(seed);
    }
}

static inline uint64_t rotate(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t sim_random_next(struct sim_random *random)
{
    uint64_t *s = random->s;
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

void sim_tape_init(struct sim_tape *tape, uint64_t seed, bool record)
{
    memset(tape, 0, sizeof(*tape));
    tape->seed = seed;
    tape->hash = seed;
    tape->record = record;
    sim_random_seed(&tape->random, seed);
}

void sim_tape_play(struct sim_tape *tape, const struct sim_choice *choice, size_t count)
{
    tape->replay = choice;
    tape->replay_count = count;
}

void sim_tape_fini(struct sim_tape *tape)
{
    sim_free(tape->choice);
    memset(tape, 0, sizeof(*tape));
}

static void remember(struct sim_tape *tape, const char *label, uint32_t value, uint32_t bound)
{
    if (tape->choice_count == tape->choice_max) {
        tape->choice_max = tape->choice_max == 0 ? 4096 : 2 * tape->choice_max;
        tape->choice = sim_realloc(tape->choice, tape->choice_max * sizeof(*tape->choice));
    }
    tape->choice[tape->choice_count++] = (struct sim_choice){label, value, bound};
}

uint32_t sim_tape_choose(struct sim_tape *tape, const char *label, uint32_t bound)
{
    CAIRN_ASSERT(bound > 0);
    /* One draw per choice, played back or not, so that a recording's end joins the generator. */
    uint32_t value = (uint32_t)(((sim_random_next(&tape->random) >> 32) * bound) >> 32);

    if (tape->count < tape->replay_count) {
        const struct sim_choice *c = &tape->replay[tape->count];
        if (c->bound != bound)
            tape->diverged = true;
        value = c->value % bound;
    }
    tape->count++;
    tape->hash = cn_mix64(tape->hash + ((uint64_t)bound << 32 | value));
    if (tape->record)
        remember(tape, label, value, bound);
    return value;
}
