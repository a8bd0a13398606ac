/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_prove.c: is it true that recovery does not tell the images of a set apart?
 *
 * Of a run's set other images are taken: with alternatives of the open units drawn, and with
 * rubbish in the words that nothing was told of (cr_reads_guard()). Their recovery must store,
 * flush and fence the same, and end in the same state. A read that was not seen shows here.
 */
#include "tools/crash/explore/cr_explore_internal.h"

enum variant {
    OTHER_IMAGE,   /* does the same */
    RUBBISH,       /* no image at all, and does the same */
    ANY_OTHER,     /* ends in the same state */
    VARIANT_COUNT,
};

static uint64_t draw(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return cn_mix64(*state);
}

static enum cr_guard guard_of(const struct cr_level *level, const struct sim_unit *u, unsigned w)
{
    return level->reads.guarded[u->pool][(uint64_t)u->line * 8 + w];
}

static void put_rubbish(struct cr_level *level, uint32_t unit, uint64_t *state)
{
    const struct sim_unit *u = &level->moment.units.unit[unit];

    for (unsigned w = 0; w < 8; w++)
        if ((u->words >> w & 1) != 0 && guard_of(level, u, w) == CR_GUARD_NONE &&
            cr_reads_differs(level, unit, w))
            cr_arena_put_word(&level->place[u->pool].arena,
                (uint64_t)u->line * CR_LINE + 8u * w, draw(state));
}

/* Draw an alternative of the unit for the digit. */
static void draw_other(struct cr_level *level, uint32_t unit, enum variant variant, uint64_t *state)
{
    struct cr_moment *m = &level->moment;
    const struct sim_unit *u = &m->units.unit[unit];
    uint32_t nth = (uint32_t)(draw(state) % cr_reads_count(level, unit));

    for (unsigned w = 0; variant == OTHER_IMAGE && w < 8; w++)
        if ((u->words >> w & 1) != 0 && guard_of(level, u, w) == CR_GUARD_STORE)
            return;
    for (uint32_t k = 0; k < u->count; k++)
        if (cr_reads_has(level, unit, k) && nth-- == 0)
            m->digit[unit] = k;
}

static bool is_excluded(const struct cr_level *level)
{
    const struct cr_reads *r = &level->reads;

    for (uint64_t left = r->cube[r->words - 1]; left != 0; left &= left - 1) {
        const struct cr_exclusion *e = &r->exclusion[__builtin_ctzll(left)];
        bool all = true;
        for (uint32_t i = 0; all && i < e->count; i++)
            all = level->moment.digit[r->taken[e->first + i].unit] ==
                r->taken[e->first + i].alternative;
        if (all)
            return true;
    }
    return false;
}

static bool is_open(const struct cr_level *level)
{
    for (uint32_t i = 0; i < level->moment.units.count; i++)
        if (cr_reads_count(level, i) > 1)
            return true;
    return false;
}

static void prove(struct cr_level *level, enum variant variant, uint64_t done, uint64_t *state)
{
    struct cr_explorer *x = level->x;
    const struct cr_moment *m = &level->moment;

    for (uint32_t i = 0; variant != RUBBISH && i < m->units.count; i++)
        draw_other(level, i, variant, state);
    if (is_excluded(level))
        return;
    cr_level_build(level);
    for (uint32_t i = 0; variant == RUBBISH && i < m->units.count; i++)
        put_rubbish(level, i, state);
    x->stats.proven++;
    if (cr_level_recover(level)) {
        if (variant != ANY_OTHER && level->trace != done)
            cr_violation(level, "what recovery is said not to read makes it do something else");
        if (level->canonical != level->right)
            cr_violation(level, "what recovery is said not to read makes it end elsewhere");
    }
    cr_level_restore(level);
}

void cr_prove(struct cr_level *level, uint64_t done)
{
    struct cr_moment *m = &level->moment;
    uint64_t state = cn_mix64(level->x->options.seed ^ level->x->stats.distinct);
    size_t size = m->units.count * sizeof(*m->digit);
    uint32_t *digit;

    if (level->x->failed || !is_open(level))
        return;
    digit = sim_calloc(m->units.count, sizeof(*digit));
    memcpy(digit, m->digit, size);
    for (enum variant v = 0; v < VARIANT_COUNT && !level->x->failed; v++) {
        prove(level, v, done, &state);
        if (!level->x->failed)
            memcpy(m->digit, digit, size);
    }
    sim_free(digit);
}
