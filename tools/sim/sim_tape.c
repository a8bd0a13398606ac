/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_tape.c: the choice tape: splitmix64 seeds xoshiro256**; recording and playing back,
 * and counting through.
 */
#include "tools/sim/sim_tape.h"
#include "tools/sim/sim_alloc.h"
#include "tools/sim/sim_calm.h"
#include "tools/sim/sim_replay.h"

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
    if (record)
        tape->keys = sim_keys_new(NULL, 0);
    sim_random_seed(&tape->random, seed);
}

void sim_tape_play(struct sim_tape *tape, const struct sim_choice *choice, size_t count)
{
    tape->replay = choice;
    tape->replay_count = count;
    sim_keys_delete(&tape->keys);
    if (tape->record || tape->calm_rest || count > 0)
        tape->keys = sim_keys_new(choice, count);
}

void sim_tape_fini(struct sim_tape *tape)
{
    sim_free(tape->choice);
    sim_keys_delete(&tape->keys);
    memset(tape, 0, sizeof(*tape));
}

static void remember(struct sim_tape *tape, const struct sim_choice *choice)
{
    if (tape->choice_count == tape->choice_max) {
        tape->choice_max = tape->choice_max == 0 ? 4096 : 2 * tape->choice_max;
        tape->choice = sim_realloc(tape->choice, tape->choice_max * sizeof(*tape->choice));
    }
    tape->choice[tape->choice_count++] = *choice;
}

/* ---- the odometer ---- */

void sim_odometer_init(struct sim_odometer *o)
{
    memset(o, 0, sizeof(*o));
}

void sim_odometer_fini(struct sim_odometer *o)
{
    sim_free(o->digit);
    memset(o, 0, sizeof(*o));
}

static bool is_fixed(const struct sim_odometer *o, const char *label)
{
    for (uint32_t i = 0; o->fixed != NULL && o->fixed[i] != NULL; i++)
        if (strcmp(o->fixed[i], label) == 0)
            return true;
    return false;
}

/* The digit at the current place; a new one is 0. */
static uint32_t turn(struct sim_odometer *o, const char *label, uint32_t bound)
{
    if (bound == 1 || is_fixed(o, label))
        return 0;
    if (o->at == o->count) {
        if (o->count == o->room) {
            o->room = o->room == 0 ? 64 : 2 * o->room;
            o->digit = sim_realloc(o->digit, o->room * sizeof(*o->digit));
        }
        o->digit[o->count++] = (struct sim_digit){0, bound};
    }
    struct sim_digit *d = &o->digit[o->at++];
    if (d->bound != bound) {
        o->diverged = true;
        return d->value % bound;
    }
    return d->value;
}

bool sim_odometer_next(struct sim_odometer *o)
{
    o->runs++;
    o->diverged = o->diverged || o->at != o->count;
    o->at = 0;
    while (o->count > 0) {
        struct sim_digit *last = &o->digit[o->count - 1];
        if (++last->value < last->bound)
            return true;
        o->count--;
    }
    return false;
}

/* ---- choices ---- */

/* Nothing may be repeated for ever for being calm: code that draws again until a value suits it
 * ends. */
#define CALM_AGAIN_MAX 1000u

static bool is_stuck(struct sim_tape *tape, const char *label)
{
    tape->calm_again = tape->calm_last == label ? tape->calm_again + 1 : 0;
    tape->calm_last = label;
    return tape->calm_again > CALM_AGAIN_MAX;
}

/* Of a chance only yes and no count, not how it came to it. */
static uint32_t decision(uint32_t value, uint32_t num)
{
    return num > 0 ? value < num : value;
}

/* From the tape, if it is there. Fills in what is recorded of the choice. */
static uint32_t play(struct sim_tape *tape, struct sim_choice *choice, uint32_t drawn, uint32_t num)
{
    uint32_t calm_at;
    size_t at = sim_keys_next(tape->keys, choice->label, choice->who, &choice->nth, &calm_at);
    uint32_t calm = sim_calm_at(calm_at, choice->bound, num > 0), value = drawn;

    if (at != SIZE_MAX) {
        const struct sim_choice *c = &tape->replay[at];
        tape->replay_used++;
        value = c->value < choice->bound ? c->value : choice->bound - 1;
        tape->diverged = tape->diverged || c->bound != choice->bound;
    } else if (tape->calm_rest && !is_stuck(tape, choice->label)) {
        value = calm;
    }
    if (!tape->calm_rest && at != tape->count && tape->count < tape->replay_count)
        tape->diverged = true;
    choice->calm = decision(value, num) == decision(calm, num);
    return value;
}

/* num: of a chance, that many values mean yes; 0: it is none. */
static uint32_t draw(struct sim_tape *tape, const char *label, uint32_t bound, uint32_t num)
{
    CAIRN_ASSERT(bound > 0);
    /* One draw per choice, played back or not, so that a recording's end joins the generator. */
    uint32_t value = (uint32_t)(((sim_random_next(&tape->random) >> 32) * bound) >> 32);

    struct sim_choice choice = {.label = label, .bound = bound, .who = tape->who};

    bool counted = tape->odometer != NULL && tape->odometer->on;
    if (tape->keys != NULL && !counted) {
        value = play(tape, &choice, value, num);
    } else if (counted) {
        if (num > 0) /* "no" comes first */
            value = turn(tape->odometer, label, 2) == 0 ? bound - 1 : 0;
        else if (bound > SIM_ODOMETER_WIDE)
            value = turn(tape->odometer, label, 2) == 0 ? 0 : bound - 1;
        else
            value = turn(tape->odometer, label, bound);
    }
    tape->count++;
    tape->hash = cn_mix64(tape->hash + ((uint64_t)bound << 32 | decision(value, num)));
    choice.value = value;
    if (tape->record)
        remember(tape, &choice);
    return value;
}

uint32_t sim_tape_choose(struct sim_tape *tape, const char *label, uint32_t bound)
{
    return draw(tape, label, bound, 0);
}

bool sim_tape_chance(struct sim_tape *tape, const char *label, uint32_t num, uint32_t den)
{
    return draw(tape, label, den, num < den ? num : 0) < num;
}
