/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_enum_look.c: looking at a moment of a small run: which records lie in the rings, the images of
 * a power failure of all nodes, and whether what recovery makes of them is one of the states that
 * the model allows.
 *
 * The crash of one node's process, or the power failure of one node, with the coordinator gone and
 * the others' memory as it is, are images too: all that is visible is kept in those pools.
 *
 * A record on the wire is tens of words, each kept or lost, but only as a whole does it mean
 * anything: pm_record_check() refuses every strict subset of its changed words, whatever lay there
 * before (test_cr_enum.c enumerates them), and nothing else reads a ring's bytes than what has
 * passed it, but for the mark, which stays a word of its own here, and the sign of damage: a mark,
 * or a later record that calls it done, over one that does not check. So its images fall into none,
 * torn and whole; image by image, torn ones are represented by several.
 */
#include "tools/crash/explore/cr_enum_run.h"
#include "tools/crash/explore/cr_watch.h"

#define TABLE 1u
#define MARK_OFF 24u

/* ---- the environment of recoveries: no time passes, nothing is random ---- */

static uint64_t still_now(void *arg)
{
    (void)arg;
    return SIM_MS;
}

static uint64_t still_wall(void *arg)
{
    (void)arg;
    return UINT64_C(1700000000);
}

static void still_random(void *arg, void *buf, size_t size)
{
    (void)arg;
    memset(buf, 0x5a, size);
}

static const struct cn_env still_env = {
    .now_ns = still_now, .wall_s = still_wall, .random = still_random};

/* ---- the check ---- */

static bool read_id(const struct cr_small *run, struct cr_recovered *state, uint32_t key,
    uint32_t *ret_id, char *why, size_t size)
{
    uint8_t buf[256], value[CR_SMALL_VALUE_LARGE];
    size_t got;
    uint32_t at = run->turn[run->c->at[key]];
    int rc = cr_recovered_get(
        state, at, TABLE, run->key[key], strlen(run->key[key]), buf, sizeof(buf), &got);

    if (rc == CAIRN_E_NOT_FOUND) {
        *ret_id = 0;
        return true;
    }
    if (rc != 0) {
        snprintf(why, size, "key %c: %s (%s)", 'a' + (int)key, cairn_error_name(rc),
            cairn_last_error());
        return false;
    }
    for (uint32_t id = CR_VALUE_FIRST; id < cr_value_of(run->c->tx_count, 0); id++) {
        if (cr_small_value(run, key, id, value) == got && memcmp(value, buf, got) == 0) {
            *ret_id = id;
            return true;
        }
    }
    snprintf(why, size, "key %c has %zu bytes that nobody wrote", 'a' + (int)key, got);
    return false;
}

static bool still_is_still(const struct cr_small *run, struct cr_recovered *state, uint32_t at,
    char *why, size_t size)
{
    const struct cr_small_node *n = &run->node[at];
    uint8_t buf[CR_SMALL_STILL_MAX], value[CR_SMALL_STILL_MAX];
    size_t got = 0;
    int rc = cr_recovered_get(
        state, at, TABLE, n->still, strlen(n->still), buf, sizeof(buf), &got);

    if (rc == 0 && cr_small_still(n, value) == got && memcmp(buf, value, got) == 0)
        return true;
    snprintf(why, size, "a key of node %u that no transaction touches: %s, %zu bytes", at + 1,
        cairn_error_name(rc), got);
    return false;
}

static bool check_state(void *arg, struct cr_recovered *state, char *why, size_t size)
{
    const struct cr_small *run = arg;
    uint32_t value[CR_CASE_KEYS] = {0};
    char text[400];

    if (run->ready == 0)
        return true; /* still setting up: nothing was promised yet */
    for (uint32_t i = 0; i < run->c->key_count; i++)
        if (!read_id(run, state, i, &value[i], why, size))
            return false;
    for (uint32_t i = 0; i < run->c->node_count; i++)
        if (!still_is_still(run, state, i, why, size))
            return false;
    if (cr_case_allows(run->c, run->progress, value))
        return true;
    cr_case_tell(run->c, run->progress, value, text, sizeof(text));
    snprintf(why, size, "no serial order gives this: %s", text);
    return false;
}

/* ---- records in the rings ---- */

struct finder { struct cr_small *run; uint32_t pool; struct pm_pool *look; uint16_t slot; };

static int found_record(void *arg, const struct pm_record *record)
{
    struct finder *f = arg;
    uint64_t off = pm_slot_log_at(f->look, f->slot, record->log_off);

    if (f->run->group_count < CR_SMALL_GROUPS_MAX)
        f->run->group[f->run->group_count++] =
            (struct cr_small_group){f->pool, off, record->size, off + MARK_OFF};
    return 0;
}

static bool ring_is_dirty(const struct sim_pool *pool, uint64_t off, uint64_t size)
{
    for (uint32_t i = 0; i < pool->dirty_count; i++)
        if (cn_range_inside((uint64_t)pool->dirty[i] * PM_LINE, 1, off, size))
            return true;
    return false;
}

static void find_records(struct cr_small *run, uint32_t at)
{
    struct pm_pool look = run->node[at].pm_pool;
    uint64_t ring_size = look.super.geometry.ring_size;
    struct finder f = {run, at, &look, 0};

    if (look.pm.base == NULL)
        return; /* not attached yet */
    look.pm.tracer = NULL;
    look.pm.read_only = true;
    for (f.slot = 1; f.slot < look.super.geometry.slot_count; f.slot++) {
        struct pm_slot slot;
        uint64_t ring = pm_slot_log_at(&look, f.slot, 0);
        if (!ring_is_dirty(run->pool[at], ring, ring_size) ||
            pm_slot_load(&look, f.slot, &slot) != 0 || slot.state == PM_SLOT_FREE)
            continue;
        (void)!pm_slot_scan(&look, &slot, look.pm.base + ring, found_record, &f);
    }
}

static uint32_t group_of(void *arg, uint32_t pool, uint64_t off)
{
    const struct cr_small *run = arg;

    for (uint32_t i = 0; i < run->group_count; i++) {
        const struct cr_small_group *g = &run->group[i];
        if (g->pool == pool && off >= g->off && off - g->off < g->size && off != g->mark_off)
            return i + 1;
    }
    return 0;
}

/* ---- looking ---- */

static uint64_t stamp_of(const struct cr_small *run)
{
    uint64_t stamp = run->salt;

    for (uint32_t i = 0; i < run->c->node_count; i++)
        stamp = cn_mix64(stamp ^ run->pool[i]->seq) + 64 * run->pool[i]->folds +
            run->pool[i]->dirty_count;
    return stamp;
}

/* The phases and what was read: what the check depends on besides the image. */
static uint64_t salt_of(const struct cr_small *run)
{
    uint64_t salt = run->ready + 1;

    for (uint32_t i = 0; i < run->c->tx_count; i++) {
        const struct cr_progress *p = &run->progress[i];
        salt = cn_mix64(salt ^ (uint64_t)p->phase << 32 ^ p->begun ^ p->ended << 16);
        for (uint32_t k = 0; k < CR_CASE_OPS; k++)
            salt = cn_mix64(salt ^ p->seen[k]);
    }
    return salt;
}

static uint64_t expectation(void *arg)
{
    const struct cr_small *run = arg;

    return run->salt;
}

static enum cn_step step_of(const char *what)
{
    enum cn_step step = 0;

    while (step < CN_STEP_COUNT && strcmp(cn_step_name(step), what) != 0)
        step++;
    return step;
}

void cr_small_look(struct cr_small *run, const char *what)
{
    bool dirty = false;

    if (!run->exploring || run->sim.failed || run->options->no_images)
        return;
    run->salt = salt_of(run);
    for (uint32_t i = 0; i < run->c->node_count; i++)
        dirty = dirty || run->pool[i]->dirty_count > 0;
    uint64_t stamp = stamp_of(run);
    if (stamp == run->stamp || (!dirty && strcmp(what, "end") != 0))
        return;
    run->stamp = stamp;
    run->group_count = 0;
    sim_heap_use(NULL);
    for (uint32_t i = 0; i < run->c->node_count; i++)
        find_records(run, i);
    uint64_t before = cr_explorer_stats(run->explorer)->images;
    if (!cr_explore(run->explorer, run->pool, run->c->node_count, what))
        sim_fail(&run->sim, "power failure before %s: %.900s", what,
            cr_explorer_failure(run->explorer));
    enum cn_step step = step_of(what);
    if (step < CN_STEP_COUNT)
        run->steps.images[step] += cr_explorer_stats(run->explorer)->images - before;
    sim_heap_use(run->sim.running != NULL ? &run->sim.running->heap : NULL);
}

static void on_persist(void *arg, struct sim_pool *pool, const char *what)
{
    (void)pool;
    cr_small_look(arg, what);
}

void cr_small_watch(struct cr_small *run)
{
    run->discipline = cr_discipline_new(&run->sim);
    for (uint32_t i = 0; i < run->c->node_count; i++) {
        run->pool[i]->before_persist = on_persist;
        run->pool[i]->before_persist_arg = run;
        cr_discipline_watch(run->discipline, run->pool[i], run->node[i].super_off);
    }
}

bool cr_small_look_open(struct cr_small *run)
{
    const struct cr_enum_options *o = run->options;
    struct cr_explore_options options = {.env = &still_env, .depth = o->depth,
        .exhaustive_log2 = o->exhaustive_log2, .nested_log2 = o->nested_log2,
        .samples = o->samples, .representatives = !o->nest_every, .seed = o->seed,
        .directed = !o->each_image && cr_watch_works(), .prove_each = o->prove_each,
        .goes_on = true,
        .check = check_state,
        .expectation = expectation, .group = group_of, .arg = run};
    int rc = cr_explorer_new(&options, &run->explorer);

    if (rc != 0)
        sim_unable(&run->sim, "explorer: %s", cairn_last_error());
    return rc == 0;
}

void cr_small_look_close(struct cr_small *run)
{
    for (uint32_t i = 0; i < run->c->node_count; i++)
        if (run->pool[i] != NULL)
            run->pool[i]->before_persist = NULL;
    if (run->explorer != NULL)
        cr_explorer_delete(&run->explorer);
    if (run->discipline != NULL)
        cr_discipline_delete(&run->discipline);
}
