/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_reads.c: sets of images that recovery cannot tell apart.
 *
 * A set of images is a product: of each unit the alternatives that are possible. One run of the
 * recovery of one of them, in which each word that is read before it is overwritten is noted,
 * stands for all that have the same values in those words: it goes the same way with them. The
 * others are cut off, as one set for each other value of each word read, in the order of reading,
 * and visited in turn. So the sets that are visited are disjoint, and all together are the moment.
 *
 * A word is *open* while its value in the set is not one and nothing has read or overwritten it.
 * Units that no run reads are never told apart, however many images they make.
 */
#include "tools/crash/explore/cr_explore_internal.h"

/* ---- sets ---- */

static bool has(const struct cr_reads *r, const uint64_t *cube, uint32_t unit, uint32_t k)
{
    return (cube[r->set_at[unit] + k / 64] >> k % 64 & 1) != 0;
}

bool cr_reads_has(const struct cr_level *level, uint32_t unit, uint32_t k)
{
    return has(&level->reads, level->reads.cube, unit, k);
}

/* The alternatives of a unit in a set: how many, and the first. */
static uint32_t count_of(const struct cr_reads *r, const uint64_t *cube,
    const struct sim_unit *unit, uint32_t number, uint32_t *ret_first)
{
    uint32_t n = 0;

    for (uint32_t w = (unit->count + 63) / 64; w-- > 0;) {
        uint64_t bits = cube[r->set_at[number] + w];
        if (bits == 0)
            continue;
        n += (uint32_t)__builtin_popcountll(bits);
        *ret_first = w * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return n;
}

uint32_t cr_reads_count(const struct cr_level *level, uint32_t unit)
{
    uint32_t first = 0;

    return count_of(
        &level->reads, level->reads.cube, &level->moment.units.unit[unit], unit, &first);
}

static void keep_only(struct cr_reads *r, uint64_t *cube, const struct sim_unit *unit,
    uint32_t number, uint32_t k)
{
    memset(&cube[r->set_at[number]], 0, (unit->count + 63) / 64 * sizeof(*cube));
    cube[r->set_at[number] + k / 64] |= UINT64_C(1) << k % 64;
}

static uint64_t value_of(const struct cr_moment *m, uint32_t unit, uint32_t k, unsigned w)
{
    return m->units.alternative[m->units.unit[unit].first + k].value[w];
}

/* A copy of the run's set, to be visited later. Valid until the next. */
static uint64_t *push(struct cr_reads *r)
{
    if (r->stack_count == r->stack_room) {
        r->stack_room = r->stack_room == 0 ? 64 : 2 * r->stack_room;
        r->stack = sim_realloc(r->stack, (size_t)r->stack_room * r->words * sizeof(*r->stack));
    }
    uint64_t *to = r->stack + (size_t)r->stack_count++ * r->words;
    memcpy(to, r->cube, r->words * sizeof(*to));
    return to;
}

/* ---- exclusions ---- */

static bool same_exclusion(
    const struct cr_reads *r, const struct cr_exclusion *e, const struct cr_taken *taken,
    uint32_t count)
{
    return e->count == count &&
        memcmp(&r->taken[e->first], taken, count * sizeof(*taken)) == 0;
}

/* Its number; 64: there are too many. */
uint32_t cr_reads_exclude(struct cr_level *level, const struct cr_taken *taken, uint32_t count)
{
    struct cr_reads *r = &level->reads;

    for (uint32_t i = 0; i < r->exclusions; i++)
        if (same_exclusion(r, &r->exclusion[i], taken, count))
            return i;
    if (r->exclusions == CN_ARRAY_SIZE(r->exclusion))
        return r->exclusions;
    if (r->taken_count + count > r->taken_room) {
        r->taken_room = 2 * r->taken_room + count;
        r->taken = sim_realloc(r->taken, r->taken_room * sizeof(*r->taken));
    }
    memcpy(&r->taken[r->taken_count], taken, count * sizeof(*taken));
    r->exclusion[r->exclusions] = (struct cr_exclusion){r->taken_count, count};
    r->taken_count += count;
    return r->exclusions++;
}

/* The image that the digits say is not the one that is excluded; false: the set has only that. */
static bool avoid(struct cr_level *level, const struct cr_exclusion *e)
{
    struct cr_reads *r = &level->reads;
    struct cr_moment *m = &level->moment;
    uint32_t first = 0;

    for (uint32_t i = 0; i < e->count; i++)
        if (m->digit[r->taken[e->first + i].unit] != r->taken[e->first + i].alternative)
            return true;
    for (uint32_t i = 0; i < e->count; i++) {
        uint32_t unit = r->taken[e->first + i].unit;
        if (count_of(r, r->cube, &m->units.unit[unit], unit, &first) < 2)
            continue;
        for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
            if (k != m->digit[unit] && has(r, r->cube, unit, k)) {
                m->digit[unit] = k;
                return true;
            }
    }
    return false;
}

/* Has the set any image? */
bool cr_reads_is_possible(const struct cr_level *level)
{
    const struct cr_reads *r = &level->reads;

    for (uint64_t left = r->cube[r->words - 1]; left != 0; left &= left - 1) {
        const struct cr_exclusion *e = &r->exclusion[__builtin_ctzll(left)];
        bool all = true;
        for (uint32_t i = 0; all && i < e->count; i++) {
            const struct cr_taken *t = &r->taken[e->first + i];
            all = cr_reads_has(level, t->unit, t->alternative) &&
                cr_reads_count(level, t->unit) == 1;
        }
        if (all)
            return false;
    }
    return true;
}

static bool choose(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;
    struct cr_moment *m = &level->moment;

    for (uint32_t i = 0; i < m->units.count; i++) {
        uint32_t first = 0;
        (void)count_of(r, r->cube, &m->units.unit[i], i, &first);
        m->digit[i] = first;
    }
    /* Another time: what avoids the second may be the first. */
    for (uint32_t round = 0; round < 2; round++)
        for (uint64_t left = r->cube[r->words - 1]; left != 0; left &= left - 1)
            if (!avoid(level, &r->exclusion[__builtin_ctzll(left)]))
                return false;
    return true;
}

/* ---- a moment ---- */

void cr_reads_begin(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;
    const struct sim_units *units = &level->moment.units;
    uint32_t words = 0;

    if (units->count + 1 > r->set_room) {
        r->set_room = 2 * units->count + 16;
        r->set_at = sim_realloc(r->set_at, r->set_room * sizeof(*r->set_at));
    }
    for (uint32_t i = 0; i < units->count; i++) {
        r->set_at[i] = words;
        words += (units->unit[i].count + 63) / 64;
    }
    r->words = words + 1;
    r->cube = sim_realloc(r->cube, r->words * sizeof(*r->cube));
    sim_free(r->stack);
    r->stack = NULL;
    r->stack_count = r->stack_room = 0;
    memset(r->cube, 0, r->words * sizeof(*r->cube));
    for (uint32_t i = 0; i < units->count; i++)
        for (uint32_t k = 0; k < units->unit[i].count; k++)
            r->cube[r->set_at[i] + k / 64] |= UINT64_C(1) << k % 64;
    r->cube[r->words - 1] =
        r->exclusions == 64 ? UINT64_MAX : (UINT64_C(1) << r->exclusions) - 1;
    (void)push(r);
}

bool cr_reads_next(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;

    while (r->stack_count > 0) {
        memcpy(r->cube, r->stack + (size_t)--r->stack_count * r->words,
            r->words * sizeof(*r->cube));
        if (choose(level))
            return true;
    }
    return false;
}

/* ---- a run ---- */

/* Do the images of the run's set differ in these bits of a word of a unit's line? */
static bool differs(const struct cr_level *level, uint32_t unit, unsigned w, uint64_t mask)
{
    const struct cr_moment *m = &level->moment;
    uint64_t here = value_of(m, unit, m->digit[unit], w);

    for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
        if (cr_reads_has(level, unit, k) && ((value_of(m, unit, k, w) ^ here) & mask) != 0)
            return true;
    return false;
}

bool cr_reads_differs(const struct cr_level *level, uint32_t unit, unsigned w)
{
    return differs(level, unit, w, UINT64_MAX);
}

/* The run stands for those images whose alternative of the unit is of the same class as its own;
 * the other classes are cut off, each as a set. */
void cr_reads_split(struct cr_level *level, uint32_t unit, const uint64_t *class_of)
{
    struct cr_reads *r = &level->reads;
    const struct cr_moment *m = &level->moment;
    const struct sim_unit *u = &m->units.unit[unit];
    uint32_t at = r->set_at[unit], set = (u->count + 63) / 64;
    uint64_t here = class_of[m->digit[unit]];

    r->reads++;
    for (uint32_t first = 0; first < u->count; first++) {
        if (!has(r, r->cube, unit, first) || class_of[first] == here)
            continue;
        uint64_t *other = push(r);
        memset(&other[at], 0, set * sizeof(*other));
        for (uint32_t k = first; k < u->count; k++) {
            if (!has(r, r->cube, unit, k) || class_of[k] != class_of[first])
                continue;
            other[at + k / 64] |= UINT64_C(1) << k % 64;
            r->cube[at + k / 64] &= ~(UINT64_C(1) << k % 64);
        }
    }
}

/* These bits of the word are read. */
static void decide(struct cr_level *level, uint32_t unit, unsigned w, uint64_t mask)
{
    static uint64_t value[SIM_ALTERNATIVES_MAX];
    const struct cr_moment *m = &level->moment;

    if (!differs(level, unit, w, mask))
        return;
    if (level->nesting) {
        cr_violation(level, "pool %u: the word at %#llx was not read when nothing failed, "
            "and now is", m->units.unit[unit].pool,
            (unsigned long long)m->units.unit[unit].line * CR_LINE + 8u * w);
        return;
    }
    for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
        value[k] = value_of(m, unit, k, w) & mask;
    cr_reads_split(level, unit, value);
}

/* A search for marks looks at a word that is none, whichever of its values it has. */
static bool is_no_mark(const struct cr_level *level, uint32_t unit, unsigned w, uintptr_t at)
{
    const struct cr_reads *r = &level->reads;
    const struct cr_moment *m = &level->moment;

    if (at < r->marks_from || at >= r->marks_to || w != 3)
        return false;
    for (uint32_t k = 0; k < m->units.unit[unit].count; k++)
        for (uint32_t i = 0; cr_reads_has(level, unit, k) && i < r->marks; i++)
            if (value_of(m, unit, k, w) == r->mark[i])
                return false;
    return true;
}

uint32_t cr_reads_pool(const struct cr_level *level, const void *at, uint64_t *ret_off)
{
    for (uint32_t p = 0; p < level->x->pools; p++) {
        const struct sim_pool *pool = level->place[p].arena.pool;
        if ((uintptr_t)at - (uintptr_t)pool->visible < pool->size) {
            *ret_off = (uint64_t)((uintptr_t)at - (uintptr_t)pool->visible);
            return p;
        }
    }
    return UINT32_MAX;
}

void cr_reads_guard(struct cr_level *level, uint32_t unit, enum cr_guard guard)
{
    const struct sim_unit *u = &level->moment.units.unit[unit];
    uint8_t *guarded = &level->reads.guarded[u->pool][(uint64_t)u->line * 8];

    for (unsigned w = 0; w < 8; w++)
        if ((u->words >> w & 1) != 0 && guarded[w] < guard)
            guarded[w] = (uint8_t)guard;
}

/* The bits of word `i` of which a byte is in [at, end), offsets. */
static uint64_t mask_of(uint64_t i, uint64_t at, uint64_t end)
{
    uint64_t mask = UINT64_MAX;

    if (at > 8 * i)
        mask <<= 8 * (at - 8 * i);
    if (end < 8 * i + 8)
        mask &= UINT64_MAX >> 8 * (8 * i + 8 - end);
    return mask;
}

static void read_pool(struct cr_level *level, uint32_t p, uint64_t off, uint64_t end, uintptr_t at)
{
    struct cr_reads *r = &level->reads;

    for (uint64_t i = off / 8; 8 * i < end; i++) {
        uint32_t unit = r->open[p][i];
        if (unit == 0 || is_no_mark(level, unit - 1, (unsigned)(i % 8), at - off + 8 * i))
            continue;
        decide(level, unit - 1, (unsigned)(i % 8), mask_of(i, off, end));
        if (!cr_reads_differs(level, unit - 1, (unsigned)(i % 8)))
            r->open[p][i] = 0;
    }
}

/* ---- a copy ---- */

static uint64_t live_bytes(const struct cr_copy *copy, uint32_t i)
{
    uint64_t mask = 0;

    for (uint32_t b = 0; b < 8; b++)
        if (!copy->written[8 * i + b])
            mask |= UINT64_C(0xff) << 8 * b;
    return mask;
}

static void read_copy(struct cr_level *level, uint64_t from, uint64_t end)
{
    const struct cr_copy *copy = &level->reads.copy;

    for (uint32_t i = (uint32_t)from / 8; 8 * i < end; i++)
        if (copy->unit[i] != 0)
            decide(level, copy->unit[i] - 1, i % 8, mask_of(i, from, end) & live_bytes(copy, i));
}

static void on_read(void *arg, const void *at, size_t size)
{
    struct cr_level *level = arg;
    const struct cr_copy *copy = &level->reads.copy;
    uintptr_t start = (uintptr_t)at, end = start + size;
    uint64_t off;
    uint32_t p;

    if (size == 0)
        return;
    if (copy->at != 0 && start < copy->at + CR_COPY_SIZE && end > copy->at)
        read_copy(level, cn_max64(start, copy->at) - copy->at,
            cn_min64(end, copy->at + CR_COPY_SIZE) - copy->at);
    p = cr_reads_pool(level, at, &off);
    if (p != UINT32_MAX)
        read_pool(level, p, off, cn_min64(off + size, level->x->base[p].size), start);
}

static void on_write(void *arg, const void *at, size_t size)
{
    struct cr_level *level = arg;
    struct cr_copy *copy = &level->reads.copy;
    uintptr_t start = (uintptr_t)at, end = start + size;

    for (uintptr_t i = cn_max64(start, copy->at); i < end && i < copy->at + CR_COPY_SIZE; i++)
        copy->written[i - copy->at] = true;
}

/* The bytes at `off` have been copied to `to` without being read: whoever reads them there reads
 * them. There is one such copy: what is left of the one before counts as read. */
void cr_reads_copied(struct cr_level *level, uint32_t pool, uint64_t off, const void *to)
{
    struct cr_copy *copy = &level->reads.copy;
    struct cr_watch watch;

    if (copy->at != 0)
        read_copy(level, 0, CR_COPY_SIZE);
    memset(copy, 0, sizeof(*copy));
    copy->at = (uintptr_t)to;
    for (uint32_t i = 0; i < CR_COPY_SIZE / 8; i++)
        copy->unit[i] = level->reads.open[pool][off / 8 + i];
    watch = cr_watch_stop();
    watch.copy = copy->at;
    watch.copy_size = CR_COPY_SIZE;
    (void)cr_watch_set(watch);
}

/* Of a unit, in `lines`. */
static uintptr_t line_of(const struct cr_level *level, const struct sim_unit *unit)
{
    return ((uintptr_t)level->place[unit->pool].arena.pool->visible - level->reads.from) / CR_LINE +
        unit->line;
}

void cr_reads_start(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;
    const struct sim_units *units = &level->moment.units;

    r->reads = 0;
    for (uint32_t i = 0; i < units->count; i++) {
        const struct sim_unit *u = &units->unit[i];
        memset(&r->guarded[u->pool][(uint64_t)u->line * 8], 0, 8);
        for (unsigned w = 0; w < 8; w++) {
            if ((u->words >> w & 1) == 0)
                continue;
            r->at[u->pool][(uint64_t)u->line * 8 + w] = (uint16_t)(i + 1);
            if (!cr_reads_differs(level, i, w))
                continue;
            r->open[u->pool][(uint64_t)u->line * 8 + w] = (uint16_t)(i + 1);
            r->lines[line_of(level, u)] = 1;
        }
    }
    r->copy.at = 0;
    (void)cr_watch_set((struct cr_watch){.from = r->from, .size = r->size, .lines = r->lines,
        .read = on_read, .write = on_write, .arg = level});
}

void cr_reads_stop(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;
    const struct sim_units *units = &level->moment.units;

    (void)cr_watch_stop();
    for (uint32_t i = 0; i < units->count; i++) {
        uint64_t at = (uint64_t)units->unit[i].line * 8;
        memset(&r->open[units->unit[i].pool][at], 0, 8 * sizeof(uint16_t));
        memset(&r->at[units->unit[i].pool][at], 0, 8 * sizeof(uint16_t));
        r->lines[line_of(level, &units->unit[i])] = 0;
    }
}

void cr_reads_forget(struct cr_level *level)
{
    for (uint32_t p = 0; p < level->x->pools; p++) {
        const struct cr_arena *arena = &level->place[p].arena;
        for (uint32_t i = 0; i < arena->touched_count; i++)
            memset(&level->reads.stores[p][(uint64_t)arena->touched[i] * 8], 0, 8);
    }
}

void cr_reads_stored(struct cr_level *level, uint32_t pool, uint64_t off)
{
    struct cr_reads *r = &level->reads;

    r->open[pool][off / 8] = 0;
    r->stores[pool][off / 8] = (uint8_t)cn_min64(r->stores[pool][off / 8] + 1u, UINT8_MAX);
}

struct cr_level *cr_reads_level(void)
{
    const struct cr_watch *now = cr_watch_now();

    return now->size != 0 && now->read == on_read ? now->arg : NULL;
}

/* Instead of the run's image, those with the units otherwise are cut off from its set, as one set:
 * `same` says whether the image is the one excluded there. */
void cr_reads_cut(
    struct cr_level *level, const struct cr_taken *taken, uint32_t count, bool same)
{
    struct cr_reads *r = &level->reads;
    const struct cr_moment *m = &level->moment;
    uint32_t number = cr_reads_exclude(level, taken, count);
    uint64_t *only = same ? r->cube : NULL, *other;

    r->reads++;
    if (number == 64) {
        r->left_out = true;
        return;
    }
    other = push(r);
    if (!same)
        only = other;
    (same ? other : r->cube)[r->words - 1] |= UINT64_C(1) << number;
    for (uint32_t i = 0; i < count; i++)
        keep_only(r, only, &m->units.unit[taken[i].unit], taken[i].unit, taken[i].alternative);
}

void cr_reads_init(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;
    uintptr_t end = 0;

    r->from = UINTPTR_MAX;
    for (uint32_t p = 0; p < level->x->pools; p++) {
        const struct sim_pool *pool = level->place[p].arena.pool;
        r->from = cn_min64(r->from, (uintptr_t)pool->visible);
        end = cn_max64(end, (uintptr_t)pool->visible + pool->size);
    }
    r->size = end - r->from;
    r->lines = sim_calloc(r->size / CR_LINE + 1, 1);
    for (uint32_t p = 0; p < level->x->pools; p++) {
        uint64_t words = level->x->base[p].size / 8;
        r->at[p] = sim_calloc(words, sizeof(*r->at[p]));
        r->open[p] = sim_calloc(words, sizeof(*r->open[p]));
        r->stores[p] = sim_calloc(words, 1);
        r->guarded[p] = sim_calloc(words, 1);
    }
}

void cr_reads_fini(struct cr_level *level)
{
    struct cr_reads *r = &level->reads;

    for (uint32_t p = 0; p < CR_EXPLORE_POOLS_MAX; p++) {
        sim_free(r->at[p]);
        sim_free(r->open[p]);
        sim_free(r->stores[p]);
        sim_free(r->guarded[p]);
    }
    sim_free(r->lines);
    sim_free(r->set_at);
    sim_free(r->cube);
    sim_free(r->stack);
    sim_free(r->taken);
}
