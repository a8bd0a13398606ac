/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_explore_recover.c: one image: built in the level's arenas, recovered by the shipped code,
 * checked, taken back. First undisturbed, which says what is right; then again, and power fails
 * inside.
 *
 * What a check reads of a pool alone (fsck, slots, superblock) depends on its bytes without the
 * rings of coordinators; contents that were in order once are not read again.
 */
#include "tools/crash/explore/cr_explore_internal.h"

#include <stdarg.h>

#define OTHER_ORDER_EACH 64u /* of so many images one is recovered in the other order too */
#define AGAIN_EACH 8u
#define PAGE_SIZE 4096u

enum salt { SALT_FIRST = 1, SALT_AGAIN = 2 };

/* ---- environment and tracer of a recovery ---- */

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return UINT64_C(1000000000);
}

static uint64_t wall_s(void *arg)
{
    const struct cr_level *level = arg;
    return level->x->wall_s;
}

static void random_bytes(void *arg, void *buf, size_t size)
{
    struct cr_level *level = arg;
    uint8_t *to = buf;

    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0)
            level->random += UINT64_C(0x9e3779b97f4a7c15);
        to[i] = (uint8_t)(cn_mix64(level->random) >> 8 * (i % 8));
    }
}

static void log_line(void *arg, enum cn_log_level severity, const char *text)
{
    struct cr_level *level = arg;

    if (severity <= CN_LOG_WARNING)
        (void)snprintf(level->log, sizeof(level->log), "%s", text);
}

static void trace(struct cr_place *place, uint64_t what, uint64_t value)
{
    uint64_t number = (uint64_t)(place - place->level->place);

    place->level->trace = cn_mix64(place->level->trace + (what << 8 ^ number)) ^ cn_mix64(value);
}

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct cr_place *place = arg;
    struct sim_pool *pool = place->arena.pool;
    struct cr_watch watch = cr_watch_stop();

    for (uint64_t at = off; at < off + size; at += 8) {
        uint64_t value;
        memcpy(&value, pool->visible + at, sizeof(value));
        trace(place, at, value);
        cr_arena_touch(&place->arena, (uint32_t)(at / CR_LINE));
        if (place->level->x->options.directed)
            cr_reads_stored(place->level, place->arena.base->number, at);
    }
    pool->tracer.store(pool->tracer.arg, off, size);
    (void)cr_watch_set(watch);
}

static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    struct cr_place *place = arg;
    struct sim_pool *pool = place->arena.pool;

    trace(place, UINT64_C(1) << 40 | off, size);
    pool->tracer.flush(pool->tracer.arg, off, size);
}

static void note_pair(const struct cr_level *level, enum cn_step step)
{
    struct cr_explorer *x = level->x;
    uint64_t bit = UINT64_C(1) << step;

    if ((x->pair[level->moment.step_number] & bit) != 0)
        return;
    x->pair[level->moment.step_number] |= bit;
    x->stats.pairs++;
}

static void on_fence(void *arg, enum cn_step step)
{
    struct cr_place *place = arg;
    struct sim_pool *pool = place->arena.pool;

    struct cr_watch watch = cr_watch_stop();
    trace(place, UINT64_C(1) << 41, step);
    _Static_assert(CN_STEP_COUNT <= 64, "a bit per step");
    place->level->fences++;
    if (place->level->nesting)
        note_pair(place->level, step);
    pool->tracer.fence(pool->tracer.arg, step);
    (void)cr_watch_set(watch);
}

static void before_persist(void *arg, struct sim_pool *pool, const char *what)
{
    struct cr_level *level = arg;

    level->fencing = UINT32_MAX;
    for (uint32_t p = 0; p < level->x->pools && strcmp(what, "eviction") != 0; p++)
        if (level->place[p].arena.pool == pool)
            level->fencing = p;
    if (level->nesting)
        cr_explore_inside(level, what);
    level->fencing = UINT32_MAX;
}

void cr_level_init(struct cr_level *level, struct cr_explorer *x, uint32_t depth)
{
    *level = (struct cr_level){.x = x, .depth = depth};
    level->env = (struct cn_env){.arg = level, .now_ns = now_ns, .wall_s = wall_s,
        .random = random_bytes, .log = log_line};
    for (uint32_t p = 0; p < x->pools; p++) {
        struct cr_place *place = &level->place[p];
        place->level = level;
        cr_arena_init(&place->arena, &x->base[p], false);
        place->tracer = (struct pm_tracer){place, on_store, on_flush, on_fence};
        place->arena.pool->before_persist = before_persist;
        place->arena.pool->before_persist_arg = level;
    }
    if (x->options.directed)
        cr_reads_init(level);
}

void cr_level_fini(struct cr_level *level)
{
    for (uint32_t p = 0; p < CR_EXPLORE_POOLS_MAX; p++) {
        cr_arena_fini(&level->place[p].arena);
        sim_free(level->moment.diff[p].line);
    }
    cr_reads_fini(level);
    sim_units_free(&level->moment.units);
    sim_free(level->moment.delta);
    sim_free(level->moment.digit);
}

/* ---- the image ---- */

static const uint8_t *source_line(const struct cr_level *level, uint32_t p, uint32_t line)
{
    const struct cr_level *from = level->x->level[level->depth - 1];

    return from->place[p].arena.pool->persistent + (uint64_t)line * CR_LINE;
}

/* What the processes left in memory: all that is visible, as dirty as it was. */
static void add_dirty(struct cr_level *level)
{
    struct cr_explorer *x = level->x;

    for (uint32_t p = 0; p < x->pools; p++) {
        struct cr_arena *arena = &level->place[p].arena;
        const struct sim_pool *from = level->depth == 0
            ? x->live[p]
            : x->level[level->depth - 1]->place[p].arena.pool;
        for (uint32_t i = 0; i < from->dirty_count; i++)
            cr_arena_touch(arena, from->dirty[i]);
        sim_pool_copy_dirty(arena->pool, from);
    }
}

static void build(struct cr_level *level)
{
    const struct cr_moment *m = &level->moment;

    for (uint32_t p = 0; p < level->x->pools; p++)
        for (uint32_t i = 0; i < m->diff[p].count; i++)
            cr_arena_put_line(&level->place[p].arena, m->diff[p].line[i],
                source_line(level, p, m->diff[p].line[i]));
    if (m->dead) {
        add_dirty(level);
        return;
    }
    for (uint32_t i = 0; i < m->units.count; i++) {
        const struct sim_unit *unit = &m->units.unit[i];
        const struct sim_alternative *a = &m->units.alternative[unit->first + m->digit[i]];
        for (unsigned w = 0; w < 8; w++)
            if ((a->mask >> w & 1) != 0)
                cr_arena_put_word(&level->place[unit->pool].arena,
                    (uint64_t)unit->line * CR_LINE + 8u * w, a->value[w]);
    }
}

static void restore(struct cr_level *level)
{
    if (level->x->options.directed)
        cr_reads_forget(level);
    for (uint32_t p = 0; p < level->x->pools; p++)
        cr_arena_restore(&level->place[p].arena);
}

/* ---- a recovered pool, by itself ---- */

static void on_damage(void *arg, enum pm_fsck_severity severity, const char *text)
{
    char *first = arg;

    if (severity == PM_FSCK_DAMAGE && first[0] == '\0')
        (void)snprintf(first, 200, "%s", text);
}

/* Of a word that is open: whichever of these it is. */
static uint64_t hash_open(const struct cr_level *level, uint32_t p, uint64_t off)
{
    const struct cr_moment *m = &level->moment;
    uint32_t unit = level->reads.open[p][off / 8] - 1u;
    const struct sim_unit *u = &m->units.unit[unit];
    uint64_t sum = 0;

    for (uint32_t k = 0; k < u->count; k++) {
        uint64_t one = off;
        if (!cr_reads_has(level, unit, k))
            continue;
        for (unsigned w = 0; w < 8; w++)
            if ((u->words >> w & 1) != 0)
                one = cn_mix64(one + m->units.alternative[u->first + k].value[w]) + w;
        sum += cn_mix64(one);
    }
    return cn_mix64(sum ^ off ^ UINT64_C(0x2545f4914f6cdd1d));
}

/* Contents are known to be in order for the values that their open words may have, not for others.
 */
static void guard_pool(struct cr_level *level, uint32_t p)
{
    const struct cr_base *base = &level->x->base[p];
    const struct cr_moment *m = &level->moment;

    for (uint32_t i = 0; level->x->options.directed && i < m->units.count; i++) {
        uint64_t off = (uint64_t)m->units.unit[i].line * CR_LINE;
        if (m->units.unit[i].pool == p && (off < base->rings_from || off >= base->rings_to))
            cr_reads_guard(level, i, CR_GUARD_VALUE);
    }
}

/* A hash of a pool's contents without the rings of coordinators. What is open in the images of a
 * run's set is so there, whatever it is. */
static uint64_t hash_settled(const struct cr_level *level, uint32_t p)
{
    const struct cr_base *base = &level->x->base[p];
    const struct cr_moment *m = &level->moment;
    uint64_t hash = cr_arena_hash_settled(&level->place[p].arena);

    for (uint32_t i = 0; level->x->options.directed && i < m->units.count; i++) {
        const struct sim_unit *u = &m->units.unit[i];
        uint64_t off = (uint64_t)u->line * CR_LINE;
        if (u->pool != p || (off >= base->rings_from && off < base->rings_to))
            continue;
        for (unsigned w = 0; w < 8; w++, off += 8)
            if (level->reads.open[p][off / 8] != 0)
                hash += hash_open(level, p, off) -
                    cr_word_hash(p, off, cr_load(level->place[p].arena.pool->visible + off));
    }
    return hash;
}

/* The same of what fsck reads: chunks and what is in them, not what lies before. */
static uint64_t hash_chunks(const struct cr_level *level, uint32_t p, const struct pm_pool *look)
{
    const uint8_t *visible = level->place[p].arena.pool->visible;
    uint64_t hash = hash_settled(level, p);

    for (uint64_t off = 0; off < look->super.chunks_off; off += 8)
        hash -= level->x->options.directed && level->reads.open[p][off / 8] != 0
            ? hash_open(level, p, off)
            : cr_word_hash(p, off, cr_load(visible + off));
    return cn_mix64(hash);
}

static bool check_fsck(struct cr_level *level, uint32_t p, const struct pm_pool *look,
    uint64_t *ret_canonical)
{
    char first[200] = "";
    const struct pm_fsck_options options = {.report = on_damage, .arg = first};
    struct pm_fsck_report report = {0};
    bool is_new;
    const uint64_t *known =
        cr_known_at(&level->x->fscked, hash_chunks(level, p, look), &is_new);

    if (*known != 0) {
        guard_pool(level, p);
        *ret_canonical = *known;
        return true;
    }
    int rc = pm_fsck(look, &options, &report);
    if (rc != 0)
        cr_violation(level, "pool %u: fsck: %s", p, cairn_last_error());
    else if (report.damages != 0)
        cr_violation(level, "pool %u: fsck finds %llu damages, first: %s", p,
            (unsigned long long)report.damages, first);
    else if (report.words_locked != 0)
        cr_violation(level, "pool %u: %llu lock words are held after recovery", p,
            (unsigned long long)report.words_locked);
    else
        *ret_canonical = report.canonical | 1; /* one bit less of it */
    /* Words locked in earlier incarnations are not locked for as long as this one lasts. */
    if (!level->x->failed && report.words_old_tag == 0)
        *cr_known_at(&level->x->fscked, hash_chunks(level, p, look), &is_new) = *ret_canonical;
    return !level->x->failed;
}

static bool check_slots(struct cr_level *level, uint32_t p, const struct pm_pool *look)
{
    for (uint32_t i = 1; i < look->super.geometry.slot_count; i++) {
        struct pm_slot slot;
        if (pm_slot_load(look, (uint16_t)i, &slot) != 0) {
            cr_violation(level, "pool %u: %s", p, cairn_last_error());
            return false;
        }
        if (slot.state != PM_SLOT_FREE) {
            cr_violation(level,
                "pool %u: slot %u is not free after recovery: its ring is not drained (position "
                "%llu, closed at %llu)",
                p, i, (unsigned long long)slot.position_seq, (unsigned long long)slot.closing_seq);
            return false;
        }
    }
    return true;
}

/* Read it as the next one to open it would. */
static bool check_pool(struct cr_level *level, uint32_t p, uint64_t *ret_canonical)
{
    struct pm pm = level->place[p].pm_pool.pm;
    struct pm_pool look;

    pm.tracer = NULL;
    pm.read_only = true;
    if (pm_attach(&look, &pm, level->x->base[p].super_off) != 0) {
        cr_violation(level, "pool %u: after recovery: %s", p, cairn_last_error());
        return false;
    }
    if (!look.opened_clean) {
        cr_violation(level, "pool %u: a clean close is not noted", p);
        return false;
    }
    return check_fsck(level, p, &look, ret_canonical) && check_slots(level, p, &look);
}

/* All pools; *ret_settled tells the contents. */
static bool check_pools(struct cr_level *level, uint64_t *ret_settled)
{
    struct cr_explorer *x = level->x;
    bool is_new;

    level->canonical = *ret_settled = 0;
    for (uint32_t p = 0; p < x->pools; p++) {
        uint64_t settled = hash_settled(level, p), canonical = 0;
        const uint64_t *known = cr_known_at(&x->settled, settled, &is_new);
        if (*known == 0) {
            if (!check_pool(level, p, &canonical))
                return false;
            settled = hash_settled(level, p); /* some of what was open was read */
            known = cr_known_at(&x->settled, settled, &is_new);
            *cr_known_at(&x->settled, settled, &is_new) = canonical;
        } else {
            guard_pool(level, p);
        }
        level->canonical = cn_mix64(level->canonical + *known + p);
        *ret_settled = cn_mix64(*ret_settled + settled);
    }
    level->canonical = (level->canonical | (CR_CANONICAL_FREE + 1)) & ~CR_CANONICAL_FREE;
    return true;
}

/* ---- a recovery ---- */

static bool ask_caller(struct cr_level *level, struct pm_store *const *stores)
{
    struct cr_explorer *x = level->x;
    struct cr_recovered state = {
        .count = x->pools, .report = level->report, .depth = level->depth};
    char why[400] = "";
    bool right;

    for (uint32_t p = 0; p < x->pools; p++) {
        state.pool[p] = &level->place[p].pm_pool;
        state.store[p] = stores[p];
        state.pool[p]->pm.read_only = true;
    }
    right = x->options.check(x->options.arg, &state, why, sizeof(why));
    for (uint32_t p = 0; p < x->pools; p++)
        state.pool[p]->pm.read_only = false;
    if (!right)
        cr_violation(level, "%s", why);
    return right;
}

static void look(void *arg, struct pm_store *const *stores)
{
    struct cr_level *level = arg;
    uint64_t settled;

    level->looked = true;
    if (check_pools(level, &settled) && level->checking && level->x->options.check != NULL)
        (void)ask_caller(level, stores);
}

/* In memory, a superblock lies where it is found. */
static int attach(struct cr_level *level, uint32_t p)
{
    struct cr_place *place = &level->place[p];
    struct cr_base *base = &level->x->base[p];
    struct pm pm;
    int rc;

    sim_pool_pm(place->arena.pool, &level->env, &pm);
    pm.tracer = &place->tracer;
    if (base->super_off != 0)
        return pm_attach(&place->pm_pool, &pm, base->super_off);
    rc = CAIRN_E_NOT_A_POOL;
    for (uint64_t off = PAGE_SIZE; off < base->size && rc != 0; off += PAGE_SIZE) {
        if (pm_load64(&pm, off) != PM_SUPER_MAGIC)
            continue;
        rc = pm_attach(&place->pm_pool, &pm, off);
        if (rc == 0)
            base->super_off = off;
    }
    return rc != 0 ? cn_fail(rc, "there is no superblock") : 0;
}

/* What is in the arenas, to the end. False: a violation. */
static bool recover(struct cr_level *level, enum salt salt)
{
    struct cr_explorer *x = level->x;
    const struct rec_offline_options options = {.env = &level->env};
    struct pm_pool *pools[CR_EXPLORE_POOLS_MAX];

    x->stats.recoveries++;
    level->fences = 0;
    level->trace = 0;
    level->looked = false;
    level->log[0] = '\0';
    /* Nonces: the same in each run, and never twice in one pool. */
    level->random = cn_mix64(x->options.seed + 64 * (uint64_t)level->depth + (uint64_t)salt);
    for (uint32_t p = 0; p < x->pools; p++) {
        if (attach(level, p) != 0) {
            cr_violation(level, "pool %u: %s", p, cairn_last_error());
            return false;
        }
        cr_base_set_rings(&x->base[p], &level->place[p].pm_pool);
        pools[level->reversed ? x->pools - 1 - p : p] = &level->place[p].pm_pool;
    }
    int rc = rec_offline_pools(&options, pools, x->pools, level->report, look, level);
    if (rc != 0)
        cr_violation(level, "recovery: %s: %s", cairn_error_name(rc), cairn_last_error());
    return rc == 0 && !x->failed;
}

/* I5: the result recovers to itself. */
static void recover_again(struct cr_level *level, uint64_t settled)
{
    struct cr_explorer *x = level->x;
    uint64_t before = level->canonical, reads = level->reads.reads;
    bool is_new;

    if (*cr_known_at(&x->stable, settled, &is_new) != 0)
        return;
    /* Of the deepest, whose contents differ in little but their counters, some. */
    if (level->depth > 0 && level->depth + 1 == x->levels && x->stats.distinct % AGAIN_EACH != 0)
        return;
    for (uint32_t p = 0; p < x->pools; p++)
        sim_pool_forget(level->place[p].arena.pool);
    if (recover(level, SALT_AGAIN) && level->canonical != before)
        cr_violation(level, "recovering the result again gives another state");
    /* Where it has read what was open, it is not the same for all with this hash. */
    *cr_known_at(&x->stable, settled, &is_new) = level->reads.reads == reads;
}

/* I6 */
static void recover_reversed(struct cr_level *level)
{
    build(level);
    level->reversed = true;
    if (recover(level, SALT_FIRST) && level->canonical != level->right)
        cr_violation(level, "recovery of the pools in the other order gives another state");
    level->reversed = false;
    restore(level);
}

static void crash_inside(struct cr_level *level, uint64_t done)
{
    bool directed = level->x->options.directed;

    build(level);
    level->nesting = true;
    if (directed)
        cr_reads_start(level);
    if (recover(level, SALT_FIRST)) {
        struct cr_watch watch = cr_watch_stop();
        cr_explore_inside(level, NULL);
        (void)cr_watch_set(watch);
    }
    if (level->trace != done)
        cr_violation(level, "the same recovery does something else another time");
    if (directed)
        cr_reads_stop(level);
    level->nesting = false;
    restore(level);
}

/* I5. What a process left is not sure before recovery has made it so, and then it is. */
void cr_level_compare(struct cr_level *level, uint64_t canonical)
{
    const struct cr_level *from;

    if (level->depth == 0 || canonical == 0)
        return;
    from = level->x->level[level->depth - 1];
    if ((level->moment.at_end || !from->moment.dead) && canonical != from->right)
        cr_violation(level, "a crash inside recovery makes it end in another state");
}

/* Two recoveries that did the same from the first store to the last read the same of their images:
 * what differs between these counted for neither (words of a torn record). */
static bool is_representative(struct cr_level *level, uint64_t key)
{
    struct cr_explorer *x = level->x;
    bool is_new;

    if (!x->options.representatives)
        return true;
    uint64_t *left_out = cr_known_at(&x->alike, key, &is_new);
    x->stats.alike += !is_new;
    level->left_out = level->left_out || *left_out != 0;
    return is_new;
}

static void note_state(struct cr_level *level)
{
    struct cr_explorer *x = level->x;
    uint64_t key = cn_mix64(level->right ^ x->expectation);
    bool is_new;

    (void)cr_known_at(&x->ended, key, &is_new);
    x->stats.states += is_new;
    x->stats.states_hash += is_new ? cn_mix64(key + 1) : 0;
}

void cr_level_build(struct cr_level *level)
{
    build(level);
}

bool cr_level_recover(struct cr_level *level)
{
    bool right;

    level->checking = true;
    right = recover(level, SALT_FIRST);
    level->checking = false;
    return right;
}

void cr_level_restore(struct cr_level *level)
{
    restore(level);
}

void cr_level_visit(struct cr_level *level)
{
    struct cr_explorer *x = level->x;
    const struct cr_moment *m = &level->moment;
    uint64_t settled = 0;
    bool is_new;

    const bool directed = x->options.directed;

    level->left_out = false;
    for (uint32_t i = 0; i < m->units.count; i++)
        x->stats.units_lost += m->digit[i] != m->units.unit[i].kept;
    build(level);
    if (directed)
        cr_reads_start(level);
    bool right = cr_level_recover(level);
    uint64_t done = level->trace;
    if (level->depth == 0 && level->fences > x->stats.steps_max)
        x->stats.steps_max = level->fences;
    level->right = level->canonical;
    if (right && level->depth == 0)
        note_state(level);
    if (right)
        cr_level_compare(level, level->right);
    if (!x->failed) {
        (void)check_pools(level, &settled);
        recover_again(level, settled);
    }
    if (directed)
        cr_reads_stop(level);
    restore(level);
    if (!x->failed && x->pools > 1 && x->stats.distinct % OTHER_ORDER_EACH == 0)
        recover_reversed(level);
    if (directed && x->options.prove_each != 0 && x->stats.distinct % x->options.prove_each == 0)
        cr_prove(level, done);
    if (x->failed || level->depth + 1 == x->levels)
        return;
    uint64_t key = cn_mix64(done) ^ (x->expectation + ((uint64_t)level->depth << 56));
    if (directed) {
        if (!cr_directed_is_later(level) && !cr_directed_is_known(level, &key)) {
            crash_inside(level, done);
            cr_directed_note(level, key);
        }
    } else if (is_representative(level, key)) {
        crash_inside(level, done);
        if (x->options.representatives)
            *cr_known_at(&x->alike, key, &is_new) = level->left_out;
    }
}
