/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_known.c: sets of hashes; names of moments; how a violation is told.
 */
#include "tools/crash/explore/cr_explore_internal.h"

#include <stdarg.h>

#define TOLD_MAX 10u /* units named per pool; the rest is counted */

/* ---- sets ---- */

static uint64_t slot_of(const struct cr_known *known, uint64_t key)
{
    uint64_t i = key & (known->size - 1);

    while (known->key[i] != 0 && known->key[i] != key)
        i = (i + 1) & (known->size - 1);
    return i;
}

static void grow(struct cr_known *known)
{
    struct cr_known old = *known;

    known->size = old.size == 0 ? 4096 : 2 * old.size;
    known->key = sim_calloc(known->size, sizeof(*known->key));
    known->value = sim_calloc(known->size, sizeof(*known->value));
    for (uint64_t i = 0; i < old.size; i++) {
        if (old.key[i] == 0)
            continue;
        uint64_t at = slot_of(known, old.key[i]);
        known->key[at] = old.key[i];
        known->value[at] = old.value[i];
    }
    sim_free(old.key);
    sim_free(old.value);
}

uint64_t *cr_known_at(struct cr_known *known, uint64_t key, bool *ret_new)
{
    if (2 * (known->count + 1) > known->size)
        grow(known);
    if (key == 0)
        key = 1;
    uint64_t at = slot_of(known, key);
    *ret_new = known->key[at] == 0;
    known->key[at] = key;
    known->count += *ret_new;
    return &known->value[at];
}

void cr_known_free(struct cr_known *known)
{
    sim_free(known->key);
    sim_free(known->value);
    *known = (struct cr_known){0};
}

uint32_t cr_step_number(struct cr_explorer *x, const char *step)
{
    for (uint32_t i = 0; i < x->steps; i++)
        if (strcmp(x->step[i], step) == 0)
            return i;
    if (x->steps == CR_STEPS_MAX)
        return CR_STEPS_MAX - 1; /* the last ones share a number */
    char *copy = sim_calloc(1, strlen(step) + 1);
    memcpy(copy, step, strlen(step));
    x->step[x->steps] = copy;
    return x->steps++;
}

/* ---- violations ---- */

struct text { char *at; size_t left; };

static void add(struct text *t, const char *format, ...) CN_PRINTF(2, 3);

static void add(struct text *t, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(t->at, t->left, format, args);
    va_end(args);
    if (n < 0)
        return;
    size_t used = (size_t)n < t->left ? (size_t)n : t->left - 1;
    t->at += used;
    t->left -= used;
}

/* One unit: where, and which of its alternatives was taken (0: lost; the last: kept). */
static void add_unit(struct text *t, const struct sim_unit *unit, uint32_t digit)
{
    unsigned word = (unsigned)__builtin_ctz(unit->words);

    add(t, " %s %#llx:%u/%u", unit->is_line ? "line" : "word",
        (unsigned long long)unit->line * CR_LINE + (unit->is_line ? 0 : 8u * word), digit,
        unit->count - 1);
}

/* What was lost and kept of a pool: the shorter list is told. */
static void add_pool(struct text *t, const struct cr_moment *m, uint32_t pool)
{
    uint32_t count = 0, lost = 0, told = 0;

    for (uint32_t i = 0; i < m->units.count; i++) {
        if (m->units.unit[i].pool != pool)
            continue;
        count++;
        lost += m->digit[i] != m->units.unit[i].kept;
    }
    bool tell_lost = lost <= count - lost;
    if (lost == 0 || lost == count) {
        bool partly = false;
        for (uint32_t i = 0; i < m->units.count; i++)
            partly = partly || (m->units.unit[i].pool == pool && lost == count && m->digit[i] != 0);
        if (!partly) {
            add(t, "; pool %u: all %u units %s", pool, count, lost == 0 ? "kept" : "lost");
            return;
        }
        tell_lost = true;
    }
    add(t, "; pool %u: %u of %u units lost, %s:", pool, lost, count,
        tell_lost ? "lost" : "kept");
    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *unit = &m->units.unit[i];
        if (unit->pool != pool || (m->digit[i] != unit->kept) != tell_lost)
            continue;
        if (told++ == TOLD_MAX) {
            add(t, " ...");
            break;
        }
        add_unit(t, unit, m->digit[i]);
    }
}

void cr_violation(struct cr_level *level, const char *format, ...)
{
    struct cr_explorer *x = level->x;
    struct text t = {x->failure, sizeof(x->failure)};
    char what[700];
    va_list args;

    if (x->failed)
        return;
    x->failed = true;
    x->stats.violations++;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    add(&t, "%s", what);
    if (level->log[0] != '\0')
        add(&t, " (logged: %s)", level->log);
    for (uint32_t i = 0; i <= level->depth; i++) {
        const struct cr_moment *m = &x->level[i]->moment;
        add(&t, "; %s%s %s", i == 0 ? "" : "in the recovery of that, ",
            m->dead ? "all processes die before" : "power fails before", m->step);
        for (uint32_t p = 0; p < x->pools && !m->dead; p++)
            add_pool(&t, m, p);
    }
}
