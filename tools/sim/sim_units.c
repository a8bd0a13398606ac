/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_units.c: from the versions of each dirty line to its alternatives. All choices that
 * sim_line_image() knows are put to it: each number of CPU stores, and for each word each of its
 * fabric stores as the newest one that persists. Equal results are one alternative.
 */
#include "tools/sim/sim_units.h"

#include <math.h>

#define LINE 64u

struct choice { /* per word: number of the fabric store that persists, or NONE */
    const struct sim_line *line;
    uint16_t newest[8];
};
#define NONE UINT16_MAX
#define ALL (UINT16_MAX - 1)

void sim_units_clear(struct sim_units *units)
{
    units->count = units->alternatives = 0;
    units->log2 = 0;
    units->complete = true;
}

void sim_units_free(struct sim_units *units)
{
    sim_free(units->unit);
    sim_free(units->alternative);
    *units = (struct sim_units){0};
}

static struct sim_unit *add_unit(struct sim_units *units, uint32_t line)
{
    if (units->count == units->room) {
        units->room = units->room == 0 ? 64 : 2 * units->room;
        units->unit = sim_realloc(units->unit, units->room * sizeof(*units->unit));
    }
    struct sim_unit *unit = &units->unit[units->count++];
    *unit = (struct sim_unit){.line = line, .first = units->alternatives};
    return unit;
}

static bool keep_newest(void *arg, uint16_t version)
{
    const struct choice *c = arg;
    uint16_t newest = c->newest[c->line->version[version].word];

    return newest == ALL || newest == version;
}

/* Enter the line that results, unless it is there already. Only the unit's words count. Returns its
 * number. */
static uint32_t add_alternative(struct sim_units *units, struct sim_unit *unit,
    const uint64_t *base, const uint64_t *image)
{
    if (units->alternatives == units->alternative_room) {
        units->alternative_room =
            units->alternative_room == 0 ? 256 : 2 * units->alternative_room;
        units->alternative = sim_realloc(
            units->alternative, units->alternative_room * sizeof(*units->alternative));
    }
    struct sim_alternative *a = &units->alternative[units->alternatives];
    memcpy(a->value, image, sizeof(a->value));
    a->mask = 0;
    for (unsigned w = 0; w < 8; w++)
        if ((unit->words >> w & 1) != 0 && image[w] != base[w])
            a->mask |= (uint8_t)(1u << w);
    for (uint32_t i = 0; i < unit->count; i++) {
        const struct sim_alternative *other = &units->alternative[unit->first + i];
        bool same = other->mask == a->mask;
        for (unsigned w = 0; same && w < 8; w++)
            same = (a->mask >> w & 1) == 0 || other->value[w] == a->value[w];
        if (same)
            return i;
    }
    units->alternatives++;
    return unit->count++;
}

static uint32_t try_choice(struct sim_units *units, struct sim_unit *unit, const uint64_t *base,
    uint16_t cpu_kept, struct choice *choice)
{
    uint64_t image[8];

    memcpy(image, base, sizeof(image));
    (void)sim_line_image(choice->line, cpu_kept, keep_newest, choice, (uint8_t *)image);
    return add_alternative(units, unit, base, image);
}

/* The next fabric store of a word behind `at`, or NONE. */
static uint16_t next_store(const struct sim_line *line, unsigned word, uint16_t at)
{
    for (uint16_t i = at == NONE ? 0 : (uint16_t)(at + 1); i < line->count; i++)
        if (line->version[i].nic && line->version[i].word == word)
            return i;
    return NONE;
}

/* Count up; false when all have been. */
static bool next_choice(struct choice *choice, unsigned words)
{
    for (unsigned w = 0; w < 8; w++) {
        if ((words >> w & 1) == 0)
            continue;
        choice->newest[w] = next_store(choice->line, w, choice->newest[w]);
        if (choice->newest[w] != NONE)
            return true;
    }
    return false;
}

/* What is visible. */
static void put_kept_last(struct sim_units *units, struct sim_unit *unit,
    const struct sim_line *line, const uint64_t *base)
{
    struct choice all = {.line = line};

    for (unsigned w = 0; w < 8; w++)
        all.newest[w] = ALL;
    unit->kept = try_choice(units, unit, base, UINT16_MAX, &all);
    if (unit->kept == 0)
        return; /* as it was before the first store */
    struct sim_alternative *list = &units->alternative[unit->first];
    struct sim_alternative swap = list[unit->count - 1];
    list[unit->count - 1] = list[unit->kept];
    list[unit->kept] = swap;
    unit->kept = unit->count - 1;
}

static void add_choices(struct sim_units *units, struct sim_unit *unit, const struct sim_line *line,
    const uint64_t *base)
{
    uint16_t cpu_count = unit->is_line ? sim_line_cpu_count(line) : 0;
    struct choice choice = {.line = line};
    bool more = true;

    for (uint16_t p = 0; more && p <= cpu_count; p++) {
        memset(choice.newest, 0xff, sizeof(choice.newest)); /* NONE */
        do {
            more = unit->count < SIM_ALTERNATIVES_MAX - 1;
            if (more)
                (void)try_choice(units, unit, base, p, &choice);
        } while (more && next_choice(&choice, unit->words));
    }
    units->complete = units->complete && more;
    put_kept_last(units, unit, line, base);
}

static void add_kept(struct sim_units *units, struct sim_unit *unit, const struct sim_line *line,
    const uint64_t *base)
{
    struct choice all = {.line = line};

    for (unsigned w = 0; w < 8; w++)
        all.newest[w] = ALL;
    (void)try_choice(units, unit, base, UINT16_MAX, &all);
}

/* The words in `words` of a dirty line as one unit. */
static void add_words(struct sim_units *units, const struct sim_pool *pool, uint32_t line_number,
    unsigned words, bool is_line)
{
    const struct sim_line *line = &pool->line[line_number];
    struct sim_unit *unit = add_unit(units, line_number);
    uint64_t base[8];

    unit->words = (uint8_t)words;
    unit->is_line = is_line;
    for (uint16_t i = 0; i < line->count && unit->seq == 0; i++)
        if ((words >> line->version[i].word & 1) != 0)
            unit->seq = line->version[i].seq;
    memcpy(base, pool->persistent + (uint64_t)line_number * LINE, LINE);
    if (sim_pool_keeps_all(pool))
        add_kept(units, unit, line, base);
    else
        add_choices(units, unit, line, base);
    if (unit->count == 1 && units->alternative[unit->first].mask == 0) {
        units->alternatives = unit->first; /* whatever persists, nothing changes */
        units->count--;
        return;
    }
    units->log2 += log2(unit->count);
}

static int by_seq(const void *a, const void *b)
{
    const struct sim_unit *x = a, *y = b;

    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

void sim_units_add(struct sim_units *units, const struct sim_pool *pool, uint32_t number)
{
    uint32_t from = units->count;

    for (uint32_t i = 0; i < pool->dirty_count; i++) {
        const struct sim_line *line = &pool->line[pool->dirty[i]];
        unsigned cpu = 0, nic = 0;
        for (uint16_t k = 0; k < line->count; k++) {
            unsigned bit = 1u << line->version[k].word;
            if (line->version[k].nic)
                nic |= bit;
            else
                cpu |= bit;
        }
        if (cpu != 0)
            add_words(units, pool, pool->dirty[i], cpu, true);
        for (unsigned w = 0; w < 8; w++)
            if ((nic & ~cpu) >> w & 1)
                add_words(units, pool, pool->dirty[i], 1u << w, false);
    }
    for (uint32_t i = from; i < units->count; i++)
        units->unit[i].pool = number;
    if (units->count > from)
        qsort(&units->unit[from], units->count - from, sizeof(*units->unit), by_seq);
}
