/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_directed.c: a moment, by what recovery reads (cr_explore_reads.c), and moments inside
 * recovery.
 *
 * A crash inside recovery is one of the whole set of images that the recovery stands for: what was
 * open in it and is not overwritten for sure is open still. So the units of the moment inside are
 * those of the one outside with the alternatives that are left, and the recovery's own stores;
 * where such a store is to a word of a unit that is open, line and unit are one, with each of its
 * alternatives under each prefix of the stores. Nothing is represented by anything else.
 *
 * The same moment, and the same set of images, is explored inside once: it is known by a hash of
 * its sure words and of its units' alternatives.
 */
#include "tools/crash/explore/cr_explore_internal.h"

#include <math.h>

enum { SALT_MOMENT = 1, SALT_CUBE = 2 };

/* ---- units of a moment inside ---- */

struct inner { /* under way */
    struct cr_level *from, *to;
    uint32_t *unit_of; /* per unit of `from`: 1 + the unit that it has become, alone */
    uint32_t pool;
};

static struct sim_unit *add_unit(struct cr_level *to, uint32_t pool, uint32_t line, unsigned words)
{
    struct sim_units *units = &to->moment.units;

    if (units->count == units->room) {
        units->room = units->room == 0 ? 64 : 2 * units->room;
        units->unit = sim_realloc(units->unit, units->room * sizeof(*units->unit));
    }
    struct sim_unit *unit = &units->unit[units->count++];
    *unit = (struct sim_unit){.pool = pool, .line = line, .words = (uint8_t)words,
        .is_line = (words & (words - 1)) != 0, .first = units->alternatives};
    return unit;
}

/* Unless it is there. False: there are too many. */
static bool add_alternative(struct sim_units *units, struct sim_unit *unit, const uint64_t *line)
{
    for (uint32_t k = 0; k < unit->count; k++) {
        const uint64_t *other = units->alternative[unit->first + k].value;
        bool same = true;
        for (unsigned w = 0; same && w < 8; w++)
            same = (unit->words >> w & 1) == 0 || other[w] == line[w];
        if (same)
            return true;
    }
    if (unit->count == SIM_ALTERNATIVES_MAX)
        return false;
    if (units->alternatives == units->alternative_room) {
        units->alternative_room = units->alternative_room == 0 ? 256 : 2 * units->alternative_room;
        units->alternative = sim_realloc(
            units->alternative, units->alternative_room * sizeof(*units->alternative));
    }
    struct sim_alternative *a = &units->alternative[units->alternatives++];
    memcpy(a->value, line, sizeof(a->value));
    a->mask = unit->words;
    unit->count++;
    return true;
}

/* One alternative is no choice; what the line has already needs none. */
static bool drop_if_sure(struct sim_units *units, const uint64_t *line)
{
    const struct sim_unit *unit = &units->unit[units->count - 1];
    const uint64_t *only = units->alternative[unit->first].value;

    if (unit->count != 1)
        return false;
    for (unsigned w = 0; w < 8; w++)
        if ((unit->words >> w & 1) != 0 && only[w] != line[w])
            return false;
    units->alternatives = unit->first;
    units->count--;
    return true;
}

static const struct sim_pool *arena_of(const struct cr_level *level, uint32_t pool)
{
    return level->place[pool].arena.pool;
}

/* Words of a line that the recovery has stored and made sure of. */
static unsigned sure_words(const struct cr_level *from, uint32_t pool, uint32_t line)
{
    const struct sim_line *l = &arena_of(from, pool)->line[line];
    uint32_t pending[8] = {0};
    unsigned sure = 0;

    for (uint16_t i = 0; i < l->count; i++)
        pending[l->version[i].word]++;
    for (unsigned w = 0; w < 8; w++)
        if (from->reads.stores[pool][(uint64_t)line * 8 + w] > pending[w])
            sure |= 1u << w;
    return sure;
}

static unsigned stored_words(const struct cr_level *from, uint32_t pool, uint32_t line)
{
    const struct sim_line *l = &arena_of(from, pool)->line[line];
    unsigned words = 0;

    for (uint16_t i = 0; i < l->count; i++)
        words |= 1u << l->version[i].word;
    return words;
}

/* The unit has one alternative, which is in the memory. */
static bool is_sure(const struct cr_level *from, uint32_t unit)
{
    return cr_reads_count(from, unit) == 1 && cr_reads_has(from, unit, from->moment.digit[unit]);
}

/* The unit's alternative with the same values; UINT32_MAX: it has none. */
static uint32_t find_alternative(const struct inner *in, uint32_t old, uint32_t k, uint32_t number)
{
    const struct sim_units *from = &in->from->moment.units, *to = &in->to->moment.units;
    const uint64_t *value = from->alternative[from->unit[old].first + k].value;
    const struct sim_unit *unit = &to->unit[number];

    for (uint32_t i = 0; i < unit->count; i++) {
        bool same = unit->words == from->unit[old].words;
        for (unsigned w = 0; same && w < 8; w++)
            same = (unit->words >> w & 1) == 0 ||
                to->alternative[unit->first + i].value[w] == value[w];
        if (same)
            return i;
    }
    return UINT32_MAX;
}

/* A unit that the recovery has not touched where it is open: with what is left of it. */
static void carry(struct inner *in, uint32_t number, unsigned words)
{
    const struct cr_moment *m = &in->from->moment;
    const struct sim_unit *old = &m->units.unit[number];
    const uint8_t *line = arena_of(in->from, old->pool)->persistent + (uint64_t)old->line * CR_LINE;
    struct sim_units *units = &in->to->moment.units;
    struct sim_unit *unit;
    uint64_t now[8];

    if (words == 0)
        return;
    unit = add_unit(in->to, old->pool, old->line, words);
    memcpy(now, line, sizeof(now));
    if (cr_reads_has(in->from, number, m->digit[number]))
        (void)add_alternative(
            units, unit, m->units.alternative[old->first + m->digit[number]].value);
    for (uint32_t k = 0; k < old->count; k++)
        if (cr_reads_has(in->from, number, k))
            (void)add_alternative(units, unit, m->units.alternative[old->first + k].value);
    unit->kept = old->kept < old->count
        ? find_alternative(in, number, old->kept, units->count - 1)
        : UINT32_MAX; /* what was written last is none of its alternatives any more */
    if (!drop_if_sure(units, now))
        in->unit_of[number] = units->count;
}

/* Every prefix of the recovery's stores over one state of what lies under them. */
static void add_prefixes(
    struct inner *in, struct sim_unit *unit, const struct sim_line *l, const uint64_t *under)
{
    struct sim_units *units = &in->to->moment.units;
    bool all = sim_pool_keeps_all(arena_of(in->from, in->pool));

    for (uint16_t n = all ? l->count : 0; n <= l->count; n++) {
        uint64_t image[8];
        memcpy(image, under, sizeof(image));
        for (uint16_t i = 0; i < n; i++)
            image[l->version[i].word] = l->version[i].value;
        if (!add_alternative(units, unit, image)) {
            in->to->reads.left_out = true;
            return;
        }
    }
}

/* A line with stores of the recovery, and `open` of the units under them. */
static void add_stored(
    struct inner *in, uint32_t line, unsigned words, const uint32_t *open, uint32_t count)
{
    const struct cr_moment *m = &in->from->moment;
    const struct sim_pool *pool = arena_of(in->from, in->pool);
    const unsigned sure = sure_words(in->from, in->pool, line);
    struct sim_unit *unit = add_unit(in->to, in->pool, line, words);
    uint32_t digit[8] = {0}, at = 0;
    uint64_t now[8];

    memcpy(now, pool->persistent + (uint64_t)line * CR_LINE, sizeof(now));
    do {
        uint64_t under[8];
        bool possible = true;
        memcpy(under, now, sizeof(under));
        for (uint32_t i = 0; i < count; i++) {
            const struct sim_unit *u = &m->units.unit[open[i]];
            const uint64_t *value = m->units.alternative[u->first + digit[i]].value;
            possible = possible && cr_reads_has(in->from, open[i], digit[i]);
            for (unsigned w = 0; w < 8; w++)
                if (((u->words & ~sure) >> w & 1) != 0)
                    under[w] = value[w];
        }
        if (possible)
            add_prefixes(in, unit, &pool->line[line], under);
        for (at = 0; at < count && ++digit[at] == m->units.unit[open[at]].count; at++)
            digit[at] = 0;
    } while (at < count);
    unit->kept = unit->count - 1;
    (void)drop_if_sure(&in->to->moment.units, now);
}

static void add_dirty_line(struct inner *in, uint32_t line)
{
    const struct cr_moment *m = &in->from->moment;
    unsigned sure = sure_words(in->from, in->pool, line);
    unsigned stored = stored_words(in->from, in->pool, line), words = stored;
    uint32_t open[8], count = 0;

    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *u = &m->units.unit[i];
        if (u->pool != in->pool || u->line != line || is_sure(in->from, i))
            continue;
        if ((u->words & ~sure & stored) == 0) {
            carry(in, i, u->words & ~sure);
        } else {
            words |= u->words & ~sure;
            open[count++] = i; /* units of a line share no word */
        }
    }
    add_stored(in, line, words, open, count);
}

static void add_inner_units(struct inner *in)
{
    const struct cr_moment *m = &in->from->moment;

    for (in->pool = 0; in->pool < in->from->x->pools; in->pool++) {
        const struct sim_pool *pool = arena_of(in->from, in->pool);
        for (uint32_t i = 0; i < pool->dirty_count; i++)
            add_dirty_line(in, pool->dirty[i]);
        for (uint32_t i = 0; i < m->units.count; i++) {
            const struct sim_unit *u = &m->units.unit[i];
            if (u->pool == in->pool && pool->line[u->line].count == 0 && !is_sure(in->from, i))
                carry(in, i, u->words & ~sure_words(in->from, in->pool, u->line));
        }
    }
}

/* What is excluded outside is inside, as far as its units are still there. */
static void carry_exclusion(struct inner *in, const struct cr_exclusion *e)
{
    const struct cr_reads *r = &in->from->reads;
    struct cr_taken taken[CR_TAKEN_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < e->count; i++) {
        const struct cr_taken *t = &r->taken[e->first + i];
        if (!cr_reads_has(in->from, t->unit, t->alternative))
            return; /* the set has none of it anyway */
        if (cr_reads_count(in->from, t->unit) == 1)
            continue;
        if (in->unit_of[t->unit] == 0)
            return;
        uint32_t number = in->unit_of[t->unit] - 1;
        uint32_t k = find_alternative(in, t->unit, t->alternative, number);
        if (k == UINT32_MAX)
            return;
        taken[count++] = (struct cr_taken){number, k};
    }
    if (count > 0)
        (void)cr_reads_exclude(in->to, taken, count);
}

/* The alternative of a line of which all stores have persisted; false: it is not one. */
static bool find_persisted(const struct inner *in, uint32_t line, struct cr_taken *ret)
{
    const struct sim_units *units = &in->to->moment.units;
    const struct sim_pool *pool = arena_of(in->from, in->from->fencing);
    const unsigned stored = stored_words(in->from, in->from->fencing, line);
    uint32_t found = 0;

    for (uint32_t i = 0; i < units->count; i++) {
        const struct sim_unit *u = &units->unit[i];
        if (u->pool != in->from->fencing || u->line != line || (u->words & stored) == 0)
            continue;
        for (uint32_t k = 0; k < u->count; k++) {
            const uint64_t *value = units->alternative[u->first + k].value;
            bool all = true;
            for (unsigned w = 0; all && w < 8; w++)
                all = (stored >> w & 1) == 0 ||
                    value[w] == cr_load(pool->visible + (uint64_t)line * CR_LINE + 8u * w);
            if (all)
                *ret = (struct cr_taken){i, k};
            found += all;
        }
        return found == 1;
    }
    return true; /* it changes nothing */
}

/*
 * What the fence makes sure of has persisted: those are images of the next moment of the recovery
 * as well, at which nothing of what is stored meanwhile has. So they are left to that one. True:
 * they are all there are.
 */
static bool leave_persisted(struct inner *in)
{
    struct cr_taken taken[CR_TAKEN_MAX];
    uint32_t count = 0;

    if (in->from->fencing == UINT32_MAX || in->to->moment.at_end)
        return false;
    const struct sim_pool *pool = arena_of(in->from, in->from->fencing);
    for (uint32_t i = 0; i < pool->writeback_count; i++) {
        const struct sim_writeback *wb = &pool->writeback[i];
        const struct sim_line *line = &pool->line[wb->line];
        struct cr_taken one = {.unit = UINT32_MAX};
        bool there = line->count == 0;
        if (!there && line->version[line->count - 1].seq > wb->seq)
            return false; /* some of it is not written back */
        if (!there && !find_persisted(in, wb->line, &one))
            return false;
        for (uint32_t k = 0; one.unit != UINT32_MAX && k < count; k++)
            there = there || taken[k].unit == one.unit;
        if (there || one.unit == UINT32_MAX)
            continue;
        if (count == CR_TAKEN_MAX)
            return false;
        taken[count++] = one;
    }
    if (count > 0)
        (void)cr_reads_exclude(in->to, taken, count);
    return count == 0;
}

/* False: there is nothing to explore. */
static bool begin_inside(struct cr_level *to, struct cr_level *from, const char *step)
{
    struct cr_explorer *x = to->x;
    struct cr_moment *m = &to->moment;
    struct inner in = {.from = from, .to = to,
        .unit_of = sim_calloc(from->moment.units.count + 1, sizeof(uint32_t))};

    m->step_number = cr_step_number(x, step != NULL ? step : "the end");
    m->step = x->step[m->step_number];
    m->at_end = step == NULL;
    m->dead = m->left_out = false;
    m->hash = 0;
    sim_units_clear(&m->units);
    to->reads.exclusions = to->reads.taken_count = 0;
    to->reads.left_out = from->reads.left_out;
    for (uint32_t p = 0; p < x->pools; p++)
        m->hash += x->base[p].hash;
    cr_explore_differences(m, from);
    add_inner_units(&in);
    for (uint64_t left = from->reads.cube[from->reads.words - 1]; left != 0; left &= left - 1)
        carry_exclusion(&in, &from->reads.exclusion[__builtin_ctzll(left)]);
    bool nothing = leave_persisted(&in);
    cr_explore_reserve(&m->digit, &m->digit_room, m->units.count + 1);
    for (uint32_t i = 0; i < m->units.count; i++)
        m->units.log2 += log2(m->units.unit[i].count);
    sim_free(in.unit_of);
    return !nothing;
}

/* ---- what is known ---- */

/* Sure words and open units: of the set that `level` has, in which all units of the moment may be
 * open. */
static uint64_t hash_of_set(const struct cr_level *level, uint64_t salt)
{
    const struct cr_moment *m = &level->moment;
    const struct cr_reads *r = &level->reads;
    uint64_t hash = m->hash, open = salt;

    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *u = &m->units.unit[i];
        uint64_t sum = 0;
        for (uint32_t k = 0; k < u->count; k++) {
            uint64_t one = 0;
            if (!cr_reads_has(level, i, k))
                continue;
            for (unsigned w = 0; w < 8; w++)
                if ((u->words >> w & 1) != 0)
                    one += cr_word_hash(u->pool, (uint64_t)u->line * CR_LINE + 8u * w,
                        m->units.alternative[u->first + k].value[w]);
            sum += cn_mix64(one + 1);
        }
        for (unsigned w = 0; w < 8; w++)
            if ((u->words >> w & 1) != 0)
                hash -= cr_word_hash(u->pool, (uint64_t)u->line * CR_LINE + 8u * w,
                    cr_explore_under(level, u, w));
        open += cn_mix64(sum + cn_mix64(((uint64_t)u->pool << 32 | u->line) << 8 | u->words));
    }
    for (uint64_t left = r->cube[r->words - 1]; left != 0; left &= left - 1) {
        const struct cr_exclusion *e = &r->exclusion[__builtin_ctzll(left)];
        uint64_t sum = 0;
        for (uint32_t i = 0; i < e->count; i++) {
            const struct sim_unit *u = &m->units.unit[r->taken[e->first + i].unit];
            const uint64_t *value =
                m->units.alternative[u->first + r->taken[e->first + i].alternative].value;
            for (unsigned w = 0; w < 8; w++)
                if ((u->words >> w & 1) != 0)
                    sum += cr_word_hash(u->pool, (uint64_t)u->line * CR_LINE + 8u * w, value[w]);
        }
        open += cn_mix64(sum ^ UINT64_C(0x5851f42d4c957f2d));
    }
    return cn_mix64(cn_mix64(hash) + open);
}

/* The place of what is known of the set of images that the level has. Whatever the check expects:
 * inside, an image has to end in the state that the one outside did, of which it has been asked. */
static uint64_t *known_of(struct cr_level *level, uint64_t salt, uint64_t *ret_key)
{
    bool is_new;

    *ret_key = cn_mix64(hash_of_set(level, salt));
    return cr_known_at(&level->x->cubes, *ret_key, &is_new);
}

/* The set was explored inside, as deep as now: nothing is to be done. */
bool cr_directed_is_known(struct cr_level *level, uint64_t *ret_key)
{
    uint32_t below = level->x->levels - 1 - level->depth;
    const uint64_t *known = known_of(level, SALT_CUBE, ret_key);

    if ((*known & CR_KNOWN_DEPTH) <= below)
        return false;
    level->left_out = level->left_out || (*known & CR_KNOWN_LEFT_OUT) != 0;
    level->x->stats.alike++;
    return true;
}

void cr_directed_note(struct cr_level *level, uint64_t key)
{
    uint32_t below = level->x->levels - 1 - level->depth;
    bool is_new;

    *cr_known_at(&level->x->cubes, key, &is_new) =
        level->right | (level->left_out ? CR_KNOWN_LEFT_OUT : 0) | (below + 1);
}

/* ---- what the next moment of the run has as well ---- */

enum becoming { STAYS_OPEN, BECOMES_SURE, UNCLEAR };

/* Of the versions of a unit's words, up to `seq` become sure. */
static enum becoming becomes(const struct sim_line *line, unsigned words, uint64_t seq)
{
    uint32_t sure = 0, all = 0;

    for (uint16_t i = 0; i < line->count; i++) {
        if ((words >> line->version[i].word & 1) == 0)
            continue;
        all++;
        sure += line->version[i].seq <= seq;
    }
    return sure == 0 ? STAYS_OPEN : sure == all ? BECOMES_SURE : UNCLEAR;
}

static enum becoming unit_becomes(const struct sim_pool *pool, const struct sim_unit *u)
{
    const struct sim_line *line = &pool->line[u->line];
    uint64_t off = (uint64_t)u->line * CR_LINE;
    unsigned inside = 0;

    if (pool->persisting.what == SIM_PERSIST_FENCE) {
        uint64_t seq = 0;
        for (uint32_t i = 0; i < pool->writeback_count; i++)
            if (pool->writeback[i].line == u->line)
                seq = cn_max64(seq, pool->writeback[i].seq);
        return becomes(line, u->words, seq);
    }
    uint64_t from = pool->persisting.off, to = from + pool->persisting.size;
    if (pool->persisting.what == SIM_PERSIST_LINES)
        from = from / CR_LINE * CR_LINE, to = cn_align_up(to, CR_LINE);
    for (unsigned w = 0; w < 8; w++)
        if (off + 8u * w + 8 > from && off + 8u * w < to)
            inside |= 1u << w;
    if ((u->words & inside) == 0)
        return STAYS_OPEN;
    return (u->words & ~inside) != 0 ? UNCLEAR : becomes(line, u->words, pool->persisting.seq);
}

bool cr_directed_is_later(const struct cr_level *level)
{
    const struct cr_explorer *x = level->x;
    const struct cr_moment *m = &level->moment;
    bool any = false;

    if (level->depth > 0 || !x->options.goes_on)
        return false;
    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *u = &m->units.unit[i];
        if (x->live[u->pool]->persisting.what == SIM_PERSIST_OTHER)
            continue;
        enum becoming becoming = unit_becomes(x->live[u->pool], u);
        if (becoming == UNCLEAR ||
            (becoming == BECOMES_SURE &&
                (cr_reads_count(level, i) != 1 || !cr_reads_has(level, i, u->kept))))
            return false;
        any = any || becoming == BECOMES_SURE;
    }
    return any;
}

/* ---- a moment ---- */

/* True: with nothing left out. */
bool cr_directed_moment(struct cr_level *level, uint32_t limit_log2)
{
    struct cr_explorer *x = level->x;
    struct cr_moment *m = &level->moment;
    uint64_t sets = 0;

    level->reads.by_chance = false;
    while (!x->failed && cr_reads_next(level)) {
        if (sets++ >> limit_log2 != 0)
            return false;
        x->stats.images++;
        x->stats.nested += level->depth > 0;
        x->stats.distinct++;
        cr_level_visit(level);
        m->left_out = m->left_out || level->left_out;
    }
    x->stats.by_chance += level->reads.by_chance;
    return !x->failed && !m->left_out && !level->reads.left_out;
}

/* A unit of an exclusion that is one with a line that has stores: what is excluded cannot be told
 * of it. UINT32_MAX: all can, or need not be, for one of the units is overwritten. */
static uint32_t find_mixed(const struct cr_level *level, const struct cr_exclusion *e,
    uint32_t *ret_alternative)
{
    const struct cr_reads *r = &level->reads;
    uint32_t mixed = UINT32_MAX;

    for (uint32_t i = 0; i < e->count; i++) {
        const struct cr_taken *t = &r->taken[e->first + i];
        const struct sim_unit *u = &level->moment.units.unit[t->unit];
        if (!cr_reads_has(level, t->unit, t->alternative))
            return UINT32_MAX;
        if (cr_reads_count(level, t->unit) == 1)
            continue;
        unsigned left = u->words & ~sure_words(level, u->pool, u->line);
        if (left == 0)
            return UINT32_MAX;
        if (left != u->words || (left & stored_words(level, u->pool, u->line)) != 0) {
            mixed = t->unit;
            *ret_alternative = t->alternative;
        }
    }
    return mixed;
}

static void explore_inside(struct cr_level *level, const char *step);

/* The set in two, by one unit: those without the alternative, of which nothing is excluded any
 * more, and those with it. */
static bool explore_halves(struct cr_level *level, const char *step)
{
    struct cr_reads *r = &level->reads;

    for (uint64_t left = r->cube[r->words - 1]; left != 0; left &= left - 1) {
        uint32_t k = 0;
        uint32_t unit = find_mixed(level, &r->exclusion[__builtin_ctzll(left)], &k);
        if (unit == UINT32_MAX)
            continue;
        size_t size = r->words * sizeof(*r->cube);
        uint32_t set = (level->moment.units.unit[unit].count + 63) / 64;
        uint64_t *whole = sim_calloc(r->words, sizeof(*whole));
        memcpy(whole, r->cube, size);
        r->cube[r->set_at[unit] + k / 64] &= ~(UINT64_C(1) << k % 64);
        explore_inside(level, step);
        memcpy(r->cube, whole, size);
        memset(&r->cube[r->set_at[unit]], 0, set * sizeof(*r->cube));
        r->cube[r->set_at[unit] + k / 64] |= UINT64_C(1) << k % 64;
        if (cr_reads_is_possible(level))
            explore_inside(level, step);
        memcpy(r->cube, whole, size);
        sim_free(whole);
        return true;
    }
    return false;
}

void cr_directed_inside(struct cr_level *level, const char *step)
{
    explore_inside(level, step);
}

static void explore_inside(struct cr_level *level, const char *step)
{
    struct cr_explorer *x = level->x;
    struct cr_level *next = x->level[level->depth + 1];
    uint32_t below = x->levels - 1 - next->depth;
    bool is_new;
    uint64_t key;

    if (explore_halves(level, step))
        return;
    if (!begin_inside(next, level, step))
        return;
    cr_reads_begin(next);
    const uint64_t *known = known_of(next, SALT_MOMENT, &key);
    if ((*known & CR_KNOWN_DEPTH) > below) {
        x->stats.inside_known++;
        level->left_out = level->left_out || (*known & CR_KNOWN_LEFT_OUT) != 0;
        cr_level_compare(next, *known & ~CR_CANONICAL_FREE);
        return;
    }
    bool whole = cr_directed_moment(next, x->options.nested_log2);
    x->stats.inside++;
    x->stats.inside_exhaustive += whole;
    level->left_out = level->left_out || !whole;
    if (!x->failed)
        *cr_known_at(&x->cubes, key, &is_new) =
            level->right | (whole ? 0 : CR_KNOWN_LEFT_OUT) | (below + 1);
}
