/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore.c: the explorer, and a moment: the product of the units of all pools, walked through
 * completely by an odometer, or by its extremes (R37) and a sample.
 *
 * An image is a digit per unit. Its hash follows each change of a digit, so that an image that is
 * known costs a few additions; it is built only when it is new.
 */
#include "tools/crash/explore/cr_explore_internal.h"

#include <math.h>
#include <time.h>

#define ALL_POOLS UINT32_MAX
#define PAGE 4096u

/* ---- a moment's units ---- */

static struct sim_pool *pool_at(struct cr_level *from, struct sim_pool *const *pools, uint32_t i)
{
    return from != NULL ? from->place[i].arena.pool : pools[i];
}

void cr_explore_reserve(uint32_t **array, uint32_t *room, uint32_t count)
{
    if (count <= *room)
        return;
    *room = count + count / 2 + 16;
    *array = sim_realloc(*array, *room * sizeof(**array));
}

/* Lines that were made durable since the base: all images of the moment have them. */
void cr_explore_differences(struct cr_moment *m, const struct cr_level *from)
{
    for (uint32_t p = 0; p < CR_EXPLORE_POOLS_MAX; p++) {
        m->diff[p].count = 0;
        if (from == NULL || p >= from->x->pools)
            continue;
        const struct cr_arena *arena = &from->place[p].arena;
        cr_explore_reserve(&m->diff[p].line, &m->diff[p].room, arena->touched_count);
        for (uint32_t i = 0; i < arena->touched_count; i++) {
            uint64_t delta = cr_arena_line_delta(arena, arena->touched[i]);
            if (delta == 0)
                continue;
            m->diff[p].line[m->diff[p].count++] = arena->touched[i];
            m->hash += delta;
        }
    }
}

static uint64_t alternative_delta(
    const struct sim_unit *unit, const struct sim_alternative *a, const uint8_t *durable)
{
    uint64_t sum = 0;

    for (unsigned w = 0; w < 8; w++) {
        uint64_t off = (uint64_t)unit->line * CR_LINE + 8u * w;
        if ((a->mask >> w & 1) != 0)
            sum += cr_word_hash(unit->pool, off, a->value[w]) -
                cr_word_hash(unit->pool, off, cr_load(durable + off));
    }
    return sum;
}

/* `from`: the level in whose recovery power fails; NULL: in the run, whose pools these are. */
static void begin_moment(
    struct cr_level *level, struct cr_level *from, struct sim_pool *const *pools, const char *step)
{
    struct cr_explorer *x = level->x;
    struct cr_moment *m = &level->moment;

    m->step_number = cr_step_number(x, step);
    m->step = x->step[m->step_number];
    m->at_end = m->dead = m->left_out = false;
    m->hash = 0;
    sim_units_clear(&m->units);
    for (uint32_t p = 0; p < x->pools; p++) {
        m->hash += x->base[p].hash;
        sim_units_add(&m->units, pool_at(from, pools, p), p);
    }
    cr_explore_differences(m, from);
    cr_explore_reserve(&m->digit, &m->digit_room, m->units.count);
    if (m->units.alternatives > m->delta_room) {
        m->delta_room = 2 * m->units.alternatives;
        m->delta = sim_realloc(m->delta, m->delta_room * sizeof(*m->delta));
    }
    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *unit = &m->units.unit[i];
        const uint8_t *durable = pool_at(from, pools, unit->pool)->persistent;
        for (uint32_t k = 0; k < unit->count; k++)
            m->delta[unit->first + k] =
                alternative_delta(unit, &m->units.alternative[unit->first + k], durable);
        m->digit[i] = 0;
        m->hash += m->delta[unit->first];
    }
}

uint64_t cr_explore_under(const struct cr_level *level, const struct sim_unit *unit, unsigned word)
{
    struct cr_level *from = level->depth == 0 ? NULL : level->x->level[level->depth - 1];

    return cr_load(pool_at(from, level->x->live, unit->pool)->persistent +
        (uint64_t)unit->line * CR_LINE + 8u * word);
}

void cr_explore_digit(struct cr_moment *m, uint32_t i, uint32_t digit)
{
    const struct sim_unit *unit = &m->units.unit[i];

    m->hash += m->delta[unit->first + digit] - m->delta[unit->first + m->digit[i]];
    m->digit[i] = digit;
}

/* ---- which images ---- */

void cr_explore_try(struct cr_level *level)
{
    struct cr_explorer *x = level->x;
    uint32_t below = x->levels - 1 - level->depth; /* levels under this one */
    bool is_new;

    x->stats.images++;
    x->stats.nested += level->depth > 0;
    uint64_t key = cn_mix64(level->moment.hash ^ x->expectation);
    uint64_t *known = cr_known_at(&x->images, key, &is_new);
    if ((*known & CR_KNOWN_DEPTH) > below) {
        level->moment.left_out = level->moment.left_out || (*known & CR_KNOWN_LEFT_OUT) != 0;
        cr_level_compare(level, *known & ~CR_CANONICAL_FREE);
        return;
    }
    *known = below + 1;
    x->stats.distinct++;
    cr_level_visit(level);
    level->moment.left_out = level->moment.left_out || level->left_out;
    *cr_known_at(&x->images, key, &is_new) =
        level->right | (level->left_out ? CR_KNOWN_LEFT_OUT : 0) | (below + 1);
}

static void visit_all(struct cr_level *level)
{
    struct cr_moment *m = &level->moment;
    uint32_t i = 0;

    while (i < m->units.count && !level->x->failed) {
        if (i == 0)
            cr_explore_try(level);
        if (m->digit[i] + 1 < m->units.unit[i].count) {
            cr_explore_digit(m, i, m->digit[i] + 1);
            i = 0;
        } else {
            cr_explore_digit(m, i, 0);
            i++;
        }
    }
    if (m->units.count == 0)
        cr_explore_try(level);
}

/* Units of a pool, or all: lost or kept. */
static void set_pool(struct cr_moment *m, uint32_t pool, bool kept)
{
    for (uint32_t i = 0; i < m->units.count; i++)
        if (pool == ALL_POOLS || m->units.unit[i].pool == pool)
            cr_explore_digit(m, i, kept ? m->units.unit[i].kept : 0);
}

/* Each prefix (or suffix) of the units from..to the other way than the rest. */
static void visit_ends(struct cr_level *level, uint32_t from, uint32_t to, bool kept, bool suffix)
{
    struct cr_moment *m = &level->moment;

    for (uint32_t n = 0; n < to - from && !level->x->failed; n++) {
        uint32_t i = suffix ? to - 1 - n : from + n;
        cr_explore_digit(m, i, kept ? m->units.unit[i].kept : 0);
        cr_explore_try(level);
    }
    for (uint32_t i = from; i < to; i++)
        cr_explore_digit(m, i, kept ? 0 : m->units.unit[i].kept);
}

/* Each unit alone otherwise than the rest, in each way it can be. */
static void visit_single(struct cr_level *level, uint32_t from, uint32_t to)
{
    struct cr_moment *m = &level->moment;

    for (uint32_t i = from; i < to; i++) {
        uint32_t rest = m->digit[i];
        for (uint32_t d = 0; d < m->units.unit[i].count && !level->x->failed; d++) {
            if (d == rest)
                continue;
            cr_explore_digit(m, i, d);
            cr_explore_try(level);
        }
        cr_explore_digit(m, i, rest);
    }
}

/* R37: for each pool, with the others lost or kept. As pools follow each other, that includes all
 * prefixes and suffixes over all of them. */
static void visit_extremes(struct cr_level *level)
{
    struct cr_moment *m = &level->moment;
    uint32_t from = 0;

    while (from < m->units.count && !level->x->failed) {
        uint32_t to = from, pool = m->units.unit[from].pool;
        while (to < m->units.count && m->units.unit[to].pool == pool)
            to++;
        for (unsigned way = 0; way < 4; way++) {
            bool kept = (way & 1) != 0; /* what the pool's rest is */
            set_pool(m, ALL_POOLS, (way & 2) != 0);
            set_pool(m, pool, kept);
            cr_explore_try(level);
            visit_ends(level, from, to, !kept, false);
            visit_ends(level, from, to, !kept, true);
            visit_single(level, from, to);
        }
        from = to;
    }
}

/* Most lost, most kept, or anything. */
static void visit_samples(struct cr_level *level)
{
    struct cr_explorer *x = level->x;
    struct cr_moment *m = &level->moment;
    uint64_t state = cn_mix64(x->options.seed ^ m->hash) + x->stats.moments;

    for (uint32_t n = 0; n < x->options.samples && !x->failed; n++) {
        uint32_t few = n % 4; /* 0: few lost; 1: few kept; else uniform */
        for (uint32_t i = 0; i < m->units.count; i++) {
            const struct sim_unit *unit = &m->units.unit[i];
            state += UINT64_C(0x9e3779b97f4a7c15);
            uint64_t r = cn_mix64(state);
            uint32_t digit = (uint32_t)((r >> 8) % unit->count);
            if (few < 2 && (r & 7) != 0)
                digit = few == 0 ? unit->kept : 0;
            cr_explore_digit(m, i, digit);
        }
        cr_explore_try(level);
    }
}

/* What the processes had stored, neither lost nor sure. */
static void visit_process_death(struct cr_level *level)
{
    struct cr_explorer *x = level->x;
    struct cr_moment *m = &level->moment;
    uint64_t durable;
    bool is_new;

    if (!x->options.process_death || m->units.count == 0 || x->failed)
        return;
    set_pool(m, ALL_POOLS, false);
    durable = m->hash;
    set_pool(m, ALL_POOLS, true);
    x->stats.images++;
    x->stats.nested += level->depth > 0;
    (void)cr_known_at(&x->images,
        cn_mix64(cn_mix64(durable) + m->hash) ^ (x->expectation + level->depth), &is_new);
    if (!is_new)
        return;
    x->stats.distinct++;
    x->stats.process_deaths++;
    m->dead = true;
    cr_level_visit(level);
    m->left_out = m->left_out || level->left_out;
    m->dead = false;
}

/* True: with nothing left out, here and inside the recoveries of its images. */
static bool visit_moment(struct cr_level *level, uint32_t limit_log2)
{
    struct cr_moment *m = &level->moment;
    bool whole = true;

    if (level->x->options.directed) {
        m->hash = 0;
        for (uint32_t p = 0; p < level->x->pools; p++)
            m->hash += level->x->base[p].hash;
        level->reads.exclusions = level->reads.taken_count = 0;
        level->reads.left_out = !m->units.complete;
        cr_reads_begin(level);
        return cr_directed_moment(level, limit_log2);
    }
    visit_process_death(level);
    set_pool(m, ALL_POOLS, false);
    if (m->units.complete && m->units.log2 <= (double)limit_log2 + 1e-6) {
        visit_all(level);
    } else {
        whole = cr_explore_groups(level, limit_log2);
        visit_extremes(level);
        visit_samples(level);
    }
    return whole && !m->left_out && !level->x->failed;
}

void cr_explore_inside(struct cr_level *level, const char *step)
{
    struct cr_explorer *x = level->x;
    struct cr_level *next = x->level[level->depth + 1];

    if (x->failed)
        return;
    if (x->options.directed) {
        cr_directed_inside(level, step);
        return;
    }
    begin_moment(next, level, NULL, step != NULL ? step : "the end");
    next->moment.at_end = step == NULL;
    bool whole = visit_moment(next, x->options.nested_log2);
    x->stats.inside++;
    x->stats.inside_exhaustive += whole;
    level->left_out = level->left_out || !whole;
}

/* ---- the explorer ---- */

int cr_explorer_new(const struct cr_explore_options *options, struct cr_explorer **ret_explorer)
{
    struct cr_explorer *x;

    if (options->depth >= CR_LEVELS_MAX)
        return cn_fail(CAIRN_E_CONFIG, "crashes inside recovery nest at most %u deep, not %u",
            CR_LEVELS_MAX - 1, options->depth);
    if (options->directed && (options->process_death || !cr_watch_works()))
        return cn_fail(CAIRN_E_CONFIG, "what recovery reads is not seen in this build");
    x = sim_calloc(1, sizeof(*x));
    x->options = *options;
    x->wall_s = cn_wall_s(options->env);
    x->levels = options->depth + 1;
    x->stats.admissible_log2 = -INFINITY;
    *ret_explorer = x;
    return 0;
}

void cr_explorer_delete(struct cr_explorer **explorer)
{
    struct cr_explorer *x = *explorer;

    *explorer = NULL;
    if (x == NULL)
        return;
    for (uint32_t i = 0; i < x->levels && x->level[i] != NULL; i++) {
        cr_level_fini(x->level[i]);
        sim_free(x->level[i]);
    }
    for (uint32_t i = 0; i < CR_EXPLORE_POOLS_MAX; i++)
        cr_base_fini(&x->base[i]);
    for (uint32_t i = 0; i < x->steps; i++)
        sim_free(x->step[i]);
    cr_known_free(&x->images);
    cr_known_free(&x->settled);
    cr_known_free(&x->stable);
    cr_known_free(&x->alike);
    cr_known_free(&x->cubes);
    cr_known_free(&x->asked);
    cr_known_free(&x->ended);
    cr_known_free(&x->fscked);
    sim_free(x);
}

static void begin(struct cr_explorer *x, struct sim_pool *const *pools, uint32_t count)
{
    CAIRN_ASSERT(count >= 1 && count <= CR_EXPLORE_POOLS_MAX);
    x->pools = count;
    for (uint32_t p = 0; p < count; p++)
        cr_base_init(&x->base[p], p, pools[p]->size);
    for (uint32_t i = 0; i < x->levels; i++) {
        x->level[i] = sim_calloc(1, sizeof(*x->level[i]));
        cr_level_init(x->level[i], x, i);
    }
}

/* The base becomes what is durable now; so do all arenas. */
static void follow(struct cr_explorer *x, const struct sim_pool *live, uint32_t p)
{
    struct cr_base *base = &x->base[p];

    for (uint64_t page = 0; page < base->size; page += PAGE) {
        uint64_t end = cn_min64(page + PAGE, base->size);
        if (memcmp(base->memory + page, live->persistent + page, end - page) == 0)
            continue;
        for (uint64_t off = page; off < end; off += CR_LINE) {
            if (memcmp(base->memory + off, live->persistent + off, CR_LINE) == 0)
                continue;
            cr_base_put_line(base, (uint32_t)(off / CR_LINE), live->persistent + off);
            for (uint32_t i = 0; i < x->levels; i++)
                cr_arena_follow(&x->level[i]->place[p].arena, (uint32_t)(off / CR_LINE));
        }
    }
    for (uint32_t i = 0; i < x->levels; i++)
        x->level[i]->place[p].arena.pool->keeps_all = sim_pool_keeps_all(live);
}

/* Of a sum of two numbers given as log2. */
static double add_log2(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;

    return isinf(low) ? high : high + log2(1 + exp2(low - high));
}

static double cpu_seconds(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

bool cr_explore(
    struct cr_explorer *x, struct sim_pool *const *pools, uint32_t count, const char *step)
{
    double start = cpu_seconds();
    struct sim_heap *heap = sim_heap_swap(NULL); /* these are not the allocations of an actor */

    if (x->pools == 0)
        begin(x, pools, count);
    CAIRN_ASSERT(count == x->pools);
    x->failed = false;
    for (uint32_t p = 0; p < count; p++) {
        CAIRN_ASSERT(pools[p]->size == x->base[p].size);
        follow(x, pools[p], p);
    }
    x->stats.moments++;
    x->expectation = cn_mix64(x->options.expectation == NULL
            ? x->stats.moments
            : x->options.expectation(x->options.arg));
    x->live = pools;
    begin_moment(x->level[0], NULL, pools, step);
    x->stats.admissible_log2 =
        add_log2(x->stats.admissible_log2, x->level[0]->moment.units.log2);
    x->stats.moments_exhaustive += visit_moment(x->level[0], x->options.exhaustive_log2);
    (void)sim_heap_swap(heap);
    x->stats.seconds += cpu_seconds() - start;
    return !x->failed;
}

const char *cr_explorer_failure(const struct cr_explorer *explorer)
{
    return explorer->failure;
}

const struct cr_explore_stats *cr_explorer_stats(const struct cr_explorer *explorer)
{
    return &explorer->stats;
}
