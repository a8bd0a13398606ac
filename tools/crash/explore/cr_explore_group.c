/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_group.c: moments with words that count only together. The caller says which words are
 * of one record. Of those, only none, all, and some of them lost make a difference: such a *group*
 * is turned like one unit with a few patterns, of which those with some words lost stand for all of
 * their kind. So a moment with a record on its way, tens of words, can be walked through completely
 * in combination with everything else.
 */
#include "tools/crash/explore/cr_explore_internal.h"

#include <math.h>

enum pattern {
    PATTERN_NONE,
    PATTERN_ALL,
    PATTERN_FIRST_LINE,    /* the header, without what follows */
    PATTERN_NO_FIRST_LINE, /* what follows, without the header */
    PATTERN_ONE_LOST,
    PATTERN_ONE_KEPT,
    PATTERN_COUNT,
};

struct wheel { /* a unit, or the units of one group */
    uint32_t first, count; /* in `member` */
    uint32_t group;        /* 0: a single unit */
    uint32_t line;         /* first of a group */
    uint32_t drawn;        /* the member that is lost, or kept, alone */
    uint32_t positions;    /* of a group: of its patterns */
    uint8_t pattern[PATTERN_COUNT];
    uint32_t at;
};

struct wheels {
    struct cr_level *level;
    struct wheel *wheel;
    uint32_t *member; /* numbers of units, a wheel's together */
    uint32_t count;
    double log2;
};

static uint32_t group_of(const struct cr_level *level, const struct sim_unit *unit)
{
    const struct cr_explore_options *o = &level->x->options;
    unsigned word = 0;

    if (unit->is_line || unit->count != 2)
        return 0;
    while ((unit->words >> word & 1) == 0)
        word++;
    return o->group(o->arg, unit->pool, (uint64_t)unit->line * CR_LINE + 8u * word);
}

static struct wheel *wheel_of(struct wheels *w, uint32_t group)
{
    for (uint32_t i = 0; group != 0 && i < w->count; i++)
        if (w->wheel[i].group == group)
            return &w->wheel[i];
    w->wheel[w->count] = (struct wheel){.group = group, .line = UINT32_MAX};
    return &w->wheel[w->count++];
}

static void add_pattern(struct wheel *wheel, enum pattern pattern)
{
    wheel->pattern[wheel->positions++] = (uint8_t)pattern;
}

static void choose_patterns(struct wheels *w, struct wheel *wheel)
{
    const struct sim_units *units = &w->level->moment.units;
    const struct cr_explorer *x = w->level->x;
    uint32_t in_first = 0;

    for (uint32_t i = 0; i < wheel->count; i++)
        in_first += units->unit[w->member[wheel->first + i]].line == wheel->line;
    wheel->drawn = (uint32_t)(cn_mix64(x->options.seed ^ x->stats.moments << 8 ^ wheel->group) %
        wheel->count);
    add_pattern(wheel, PATTERN_NONE);
    add_pattern(wheel, PATTERN_ALL);
    if (in_first < wheel->count) {
        add_pattern(wheel, PATTERN_FIRST_LINE);
        add_pattern(wheel, PATTERN_NO_FIRST_LINE);
    }
    if (wheel->count > 1)
        add_pattern(wheel, PATTERN_ONE_LOST);
    if (wheel->count > 2)
        add_pattern(wheel, PATTERN_ONE_KEPT);
}

/* Two passes over the units: how many each wheel has, then which. */
static void make_wheels(struct wheels *w)
{
    const struct sim_units *units = &w->level->moment.units;
    uint32_t *of = sim_calloc(units->count, sizeof(*of)), next = 0;

    for (uint32_t i = 0; i < units->count; i++) {
        struct wheel *wheel = wheel_of(w, group_of(w->level, &units->unit[i]));
        of[i] = (uint32_t)(wheel - w->wheel);
        wheel->count++;
        wheel->line = (uint32_t)cn_min64(wheel->line, units->unit[i].line);
    }
    for (uint32_t i = 0; i < w->count; i++) {
        w->wheel[i].first = next;
        next += w->wheel[i].count;
        w->wheel[i].count = 0;
    }
    for (uint32_t i = 0; i < units->count; i++) {
        struct wheel *wheel = &w->wheel[of[i]];
        w->member[wheel->first + wheel->count++] = i;
    }
    w->log2 = 0;
    for (uint32_t i = 0; i < w->count; i++) {
        struct wheel *wheel = &w->wheel[i];
        if (wheel->group != 0)
            choose_patterns(w, wheel);
        else
            wheel->positions = units->unit[w->member[wheel->first]].count;
        w->log2 += log2((double)wheel->positions);
    }
    sim_free(of);
}

static bool is_kept(const struct wheel *wheel, uint32_t number, uint32_t line, enum pattern pattern)
{
    switch (pattern) {
    case PATTERN_ALL: return true;
    case PATTERN_FIRST_LINE: return line == wheel->line;
    case PATTERN_NO_FIRST_LINE: return line != wheel->line;
    case PATTERN_ONE_LOST: return number != wheel->drawn;
    case PATTERN_ONE_KEPT: return number == wheel->drawn;
    default: return false;
    }
}

static void turn(struct wheels *w, struct wheel *wheel, uint32_t position)
{
    struct cr_moment *m = &w->level->moment;

    wheel->at = position;
    if (wheel->group == 0) {
        cr_explore_digit(m, w->member[wheel->first], position);
        return;
    }
    for (uint32_t i = 0; i < wheel->count; i++) {
        uint32_t unit = w->member[wheel->first + i];
        bool kept = is_kept(wheel, i, m->units.unit[unit].line, wheel->pattern[position]);
        cr_explore_digit(m, unit, kept ? m->units.unit[unit].kept : 0);
    }
}

static void turn_all(struct wheels *w)
{
    uint32_t i = 0;

    for (uint32_t k = 0; k < w->count; k++)
        turn(w, &w->wheel[k], 0);
    while (i < w->count && !w->level->x->failed) {
        if (i == 0)
            cr_explore_try(w->level);
        if (w->wheel[i].at + 1 < w->wheel[i].positions) {
            turn(w, &w->wheel[i], w->wheel[i].at + 1);
            i = 0;
        } else {
            turn(w, &w->wheel[i], 0);
            i++;
        }
    }
}

static void turn_some(struct wheels *w)
{
    const struct cr_explorer *x = w->level->x;
    uint64_t state = cn_mix64(x->options.seed ^ w->level->moment.hash ^ x->stats.moments);

    for (uint32_t n = 0; n < x->options.samples && !x->failed; n++) {
        for (uint32_t k = 0; k < w->count; k++) {
            state += UINT64_C(0x9e3779b97f4a7c15);
            turn(w, &w->wheel[k], (uint32_t)(cn_mix64(state) % w->wheel[k].positions));
        }
        cr_explore_try(w->level);
    }
}

bool cr_explore_groups(struct cr_level *level, uint32_t limit_log2)
{
    uint32_t units = level->moment.units.count;
    struct wheels w = {.level = level};

    if (level->x->options.group == NULL || level->depth > 0 || units == 0)
        return false;
    w.wheel = sim_calloc(units, sizeof(*w.wheel));
    w.member = sim_calloc(units, sizeof(*w.member));
    make_wheels(&w);
    bool all = level->moment.units.complete && w.log2 <= (double)limit_log2 + 1e-6;
    if (all)
        turn_all(&w);
    else
        turn_some(&w);
    sim_free(w.wheel);
    sim_free(w.member);
    return all;
}
