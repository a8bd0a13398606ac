/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_pmem.c: pools. Each store of a word that is not sure to persist is a version, kept in its
 * line's list in order; making sure of versions up to a sequence folds them into the persistent
 * shadow.
 *
 * When a line's list is long its oldest half is folded: an eviction, which may happen at any time.
 */
#include "tools/sim/sim_pmem.h"

#define LINE 64u
#define VERSIONS_MAX 128u
#define NOT_LISTED UINT32_MAX

static uint64_t load(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return v;
}

static void list_line(struct sim_pool *pool, uint32_t number)
{
    struct sim_line *line = &pool->line[number];

    if (line->list_at != NOT_LISTED)
        return;
    line->list_at = pool->dirty_count;
    pool->dirty[pool->dirty_count++] = number;
}

static void unlist_line(struct sim_pool *pool, uint32_t number)
{
    struct sim_line *line = &pool->line[number];
    uint32_t last = pool->dirty[--pool->dirty_count];

    pool->dirty[line->list_at] = last;
    pool->line[last].list_at = line->list_at;
    line->list_at = NOT_LISTED;
}

/* Fold versions up to seq of the words in `mask`. A CPU store cannot persist before an older CPU
 * store of its line, so those are folded too. */
static void fold(struct sim_pool *pool, uint32_t number, unsigned mask, uint64_t seq)
{
    struct sim_line *line = &pool->line[number];
    uint64_t cpu_seq = 0, word_seq[8] = {0};
    uint16_t kept = 0;

    for (uint16_t i = 0; i < line->count; i++) {
        const struct sim_version *v = &line->version[i];
        if (v->seq <= seq && (mask >> v->word & 1) != 0 && !v->nic)
            cpu_seq = v->seq;
    }
    for (uint16_t i = 0; i < line->count; i++) {
        struct sim_version v = line->version[i];
        bool sure = (v.seq <= seq && (mask >> v.word & 1) != 0) || (!v.nic && v.seq <= cpu_seq);
        if (sure) {
            memcpy(pool->persistent + (uint64_t)number * LINE + v.word * 8u, &v.value, 8);
            word_seq[v.word] = v.seq;
        }
    }
    for (uint16_t i = 0; i < line->count; i++) {
        struct sim_version v = line->version[i];
        /* What is older than the folded value of its word cannot come back. */
        bool sure = (v.seq <= seq && (mask >> v.word & 1) != 0) || (!v.nic && v.seq <= cpu_seq);
        if (!sure && v.seq > word_seq[v.word])
            line->version[kept++] = v;
    }
    pool->folds += kept != line->count;
    line->count = kept;
    if (kept == 0 && line->list_at != NOT_LISTED)
        unlist_line(pool, number);
}

static void announce(struct sim_pool *pool, const char *what)
{
    if (pool->before_persist != NULL)
        pool->before_persist(pool->before_persist_arg, pool, what);
}

static void announce_range(struct sim_pool *pool, const char *what, enum sim_persist persist,
    uint64_t off, uint64_t size, uint64_t seq)
{
    pool->persisting.off = off;
    pool->persisting.size = size;
    pool->persisting.seq = seq;
    pool->persisting.what = persist;
    announce(pool, what);
    pool->persisting.what = SIM_PERSIST_OTHER;
}

static void add_version(struct sim_pool *pool, uint64_t off, bool nic)
{
    uint32_t number = (uint32_t)(off / LINE);
    struct sim_line *line = &pool->line[number];

    if (line->count >= VERSIONS_MAX) {
        announce(pool, "eviction");
        fold(pool, number, 0xff, line->version[line->count / 2].seq);
    }
    if (line->count == line->room) {
        line->room = (uint16_t)(line->room == 0 ? 8 : 2 * line->room);
        line->version = sim_realloc(line->version, line->room * sizeof(*line->version));
    }
    line->version[line->count++] = (struct sim_version){
        ++pool->seq, load(pool->visible + off), (uint8_t)(off % LINE / 8), nic,
        nic ? pool->origin : 0};
    list_line(pool, number);
    if (pool->before_persist != NULL && sim_pool_keeps_all(pool))
        announce(pool, "store");
}

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct sim_pool *pool = arg;
    struct sim *sim = pool->sim;

    for (uint64_t i = 0; i < size; i += 8)
        add_version(pool, off + i, false);
    if (sim == NULL || sim->running == NULL || sim->running != pool->owner)
        return;
    uint32_t hazard = sim->hazard[SIM_NODE].store;
    if (hazard != 0 && sim_chance(sim, "store-power", 1, hazard))
        sim_actor_die(pool->owner, SIM_CRASH_POWER);
    if (sim->store_yield != 0 && sim_chance(sim, "store", 1, sim->store_yield))
        sim_yield(sim, sim_delay(sim, "store-delay"));
}

static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    struct sim_pool *pool = arg;
    uint32_t first = (uint32_t)(off / LINE), last = (uint32_t)((off + size - 1) / LINE);

    pool->flush_lines += last - first + 1;
    for (uint32_t n = first; n <= last; n++) {
        if (pool->line[n].count == 0) {
            pool->flush_lines_clean++;
            continue;
        }
        if (pool->writeback_count == pool->writeback_room) {
            pool->writeback_room = pool->writeback_room == 0 ? 64 : 2 * pool->writeback_room;
            pool->writeback =
                sim_realloc(pool->writeback, pool->writeback_room * sizeof(*pool->writeback));
        }
        pool->writeback[pool->writeback_count++] = (struct sim_writeback){n, pool->seq};
    }
}

static void on_fence(void *arg, enum cn_step step)
{
    struct sim_pool *pool = arg;
    bool any = false;

    pool->fences++;
    pool->fences_idle += pool->writeback_count == 0;
    for (uint32_t i = 0; i < pool->writeback_count && !any; i++) {
        const struct sim_line *line = &pool->line[pool->writeback[i].line];
        any = line->count > 0 && line->version[0].seq <= pool->writeback[i].seq;
    }
    if (any) {
        pool->persisting.what = SIM_PERSIST_FENCE;
        announce(pool, cn_step_name(step));
        pool->persisting.what = SIM_PERSIST_OTHER;
    }
    if (any && pool->sim != NULL && sim_is_watched(pool->sim))
        sim_tell_fence(pool);
    for (uint32_t i = 0; i < pool->writeback_count; i++)
        fold(pool, pool->writeback[i].line, 0xff, pool->writeback[i].seq);
    pool->writeback_count = 0;
}

static void flush_nothing(const void *addr, size_t size)
{
    (void)addr;
    (void)size;
}

static void drain_nothing(void)
{
}

static void take_memory(struct sim_pool *pool)
{
    pool->allocation = sim_calloc(1, pool->size + 4096);
    pool->visible = (uint8_t *)cn_align_up((uintptr_t)pool->allocation, 4096);
}

struct sim_pool *sim_pool_new(struct sim *sim, uint64_t size)
{
    struct sim_pool *pool = sim_calloc(1, sizeof(*pool));

    CAIRN_ASSERT(size % LINE == 0);
    pool->sim = sim;
    pool->size = size;
    take_memory(pool);
    pool->persistent = sim_calloc(1, size);
    pool->line = sim_calloc(size / LINE, sizeof(*pool->line));
    pool->dirty = sim_calloc(size / LINE, sizeof(*pool->dirty));
    for (uint64_t i = 0; i < size / LINE; i++)
        pool->line[i].list_at = NOT_LISTED;
    pool->tracer = (struct pm_tracer){pool, on_store, on_flush, on_fence};
    return pool;
}

void sim_pool_forget(struct sim_pool *pool)
{
    while (pool->dirty_count > 0) {
        uint32_t number = pool->dirty[pool->dirty_count - 1];
        pool->line[number].count = 0;
        unlist_line(pool, number);
    }
    pool->writeback_count = 0;
}

void sim_pool_copy_dirty(struct sim_pool *to, const struct sim_pool *from)
{
    CAIRN_ASSERT(to->size == from->size && to->dirty_count == 0);
    to->seq = cn_max64(to->seq, from->seq);
    for (uint32_t i = 0; i < from->dirty_count; i++) {
        uint32_t number = from->dirty[i];
        const struct sim_line *old = &from->line[number];
        struct sim_line *line = &to->line[number];
        uint64_t off = (uint64_t)number * LINE;
        memcpy(to->visible + off, from->visible + off, LINE);
        memcpy(to->persistent + off, from->persistent + off, LINE);
        if (line->room < old->count) {
            line->room = old->room;
            line->version = sim_realloc(line->version, line->room * sizeof(*line->version));
        }
        memcpy(line->version, old->version, old->count * sizeof(*line->version));
        line->count = old->count;
        list_line(to, number);
    }
}

void sim_pool_delete(struct sim_pool *pool)
{
    for (uint64_t i = 0; i < pool->size / LINE; i++)
        sim_free(pool->line[i].version);
    sim_free(pool->allocation);
    sim_free(pool->persistent);
    sim_free(pool->line);
    sim_free(pool->dirty);
    sim_free(pool->writeback);
    sim_free(pool);
}

void sim_pool_pm(struct sim_pool *pool, const struct cn_env *env, struct pm *ret)
{
    *ret = (struct pm){.base = pool->visible,
        .size = pool->size,
        .flush_lines = flush_nothing,
        .drain = drain_nothing,
        .env = env,
        .tracer = &pool->tracer};
}

void sim_pool_settle(struct sim_pool *pool)
{
    sim_pool_forget(pool);
    memcpy(pool->persistent, pool->visible, pool->size);
}

void sim_pool_nic_store(struct sim_pool *pool, uint64_t off, const void *data, uint64_t size)
{
    const uint8_t *from = data;
    uint64_t done = 0;

    while (done < size) {
        uint64_t at = off + done, n = cn_min64(size - done, 8 - at % 8);
        memcpy(pool->visible + at, from + done, n);
        add_version(pool, at & ~UINT64_C(7), true);
        done += n;
    }
}

/* Does any of these lines hold a version up to `seq`? */
static bool any_in(const struct sim_pool *pool, uint64_t off, uint64_t size, uint64_t seq)
{
    for (uint64_t n = off / LINE; n <= (off + size - 1) / LINE; n++)
        if (pool->line[n].count > 0 && pool->line[n].version[0].seq <= seq)
            return true;
    return false;
}

void sim_pool_persist(struct sim_pool *pool, uint64_t off, uint64_t size, uint64_t seq)
{
    if (pool->before_persist != NULL && size != 0 && any_in(pool, off, size, seq))
        announce_range(pool, "fabric flush", SIM_PERSIST_WORDS, off, size, seq);
    for (uint64_t at = off & ~UINT64_C(7); at < off + size;) {
        uint32_t number = (uint32_t)(at / LINE);
        unsigned mask = 0;
        for (; at < off + size && at / LINE == number; at += 8)
            mask |= 1u << (at % LINE / 8);
        fold(pool, number, mask, seq);
    }
}

void sim_pool_cpu_store(struct sim_pool *pool, uint64_t off)
{
    CAIRN_ASSERT(off % 8 == 0);
    add_version(pool, off, false);
}

/* Write-backs of the owner that are still to be fenced are left alone, though a fence of its CPU
 * would cover them: no promise is made of that. */
void sim_pool_write_back(struct sim_pool *pool, uint64_t off, uint64_t size)
{
    if (pool->before_persist != NULL && any_in(pool, off, size, pool->seq))
        announce_range(pool, "write-back for a peer", SIM_PERSIST_LINES, off, size, pool->seq);
    for (uint64_t n = off / LINE; n <= (off + size - 1) / LINE; n++)
        fold(pool, (uint32_t)n, 0xff, pool->seq);
}

enum image { IMAGE_LOST, IMAGE_KEPT, IMAGE_LINES, IMAGE_FEW_LOST, IMAGE_FEW_KEPT, IMAGE_COUNT };

/* ---- what is admissible ---- */

bool sim_pool_keeps_all(const struct sim_pool *pool)
{
    return pool->keeps_all || (pool->sim != NULL && pool->sim->mode == SIM_EADR);
}

uint16_t sim_line_cpu_count(const struct sim_line *line)
{
    uint16_t count = 0;

    for (uint16_t i = 0; i < line->count; i++)
        count = (uint16_t)(count + !line->version[i].nic);
    return count;
}

uint32_t sim_line_image(const struct sim_line *line, uint16_t cpu_kept, sim_keep_fn keep,
    void *arg, uint8_t *image)
{
    uint16_t cpu_seen = 0;
    uint32_t kept_count = 0;
    bool stuck[8] = {false};

    for (uint16_t i = 0; i < line->count; i++) {
        const struct sim_version *v = &line->version[i];
        bool kept;
        if (!v->nic) {
            kept = ++cpu_seen <= cpu_kept;
            stuck[v->word] = !kept;
        } else {
            kept = !stuck[v->word] && keep(arg, i);
        }
        if (kept) {
            memcpy(image + v->word * 8u, &v->value, 8);
            kept_count++;
        }
    }
    return kept_count;
}

struct draw { struct sim *sim; uint32_t keep, of; };

static bool draw_keep(void *arg, uint16_t version)
{
    const struct draw *d = arg;

    (void)version;
    return d->keep == d->of ||
        (d->keep != 0 && sim_chance(d->sim, "image-nic", d->keep, d->of));
}

/* Words that only the fabric wrote, and that are what they were before. */
static void spoil(struct sim_pool *pool, uint32_t number, const uint8_t *before)
{
    const struct sim_line *line = &pool->line[number];
    uint8_t *now = pool->persistent + (uint64_t)number * LINE;
    bool nic[8] = {false}, cpu[8] = {false};

    for (uint16_t i = 0; i < line->count; i++)
        *(line->version[i].nic ? &nic[line->version[i].word] : &cpu[line->version[i].word]) = true;
    for (uint32_t w = 0; w < 8; w++) {
        uint64_t rubbish = cn_mix64(pool->sim->tape.seed ^ pool->seq ^ ((uint64_t)number * 8 + w));
        if (!nic[w] || cpu[w] || memcmp(now + 8 * w, before + 8 * w, 8) != 0)
            continue;
        memcpy(now + 8 * w, &rubbish, 8);
        pool->words_spoiled++;
    }
}


/* Draw what persists of one line: nothing (keep 0), all (keep == of), or by chance. */
static void draw_line(struct sim_pool *pool, uint32_t number, uint32_t keep, uint32_t of)
{
    struct draw draw = {pool->sim, keep, of};
    const struct sim_line *line = &pool->line[number];
    uint16_t cpu_count = sim_line_cpu_count(line), cpu_kept = 0;
    uint64_t off = (uint64_t)number * LINE;
    uint8_t before[LINE];

    memcpy(before, pool->persistent + off, LINE);
    if (cpu_count > 0)
        cpu_kept = (uint16_t)(keep == of ? cpu_count
                : keep == 0                ? 0
                                           : sim_choose(pool->sim, "image-cpu", cpu_count + 1u));
    uint32_t kept = sim_line_image(
        line, cpu_kept, draw_keep, &draw, pool->persistent + off);
    if (off >= pool->garbage_from && off < pool->garbage_end)
        spoil(pool, number, before);
    pool->words_kept += kept;
    pool->words_lost += line->count - kept;
}

void sim_pool_power_fail(struct sim_pool *pool)
{
    struct sim *sim = pool->sim;
    uint32_t kind = IMAGE_COUNT, who = sim->tape.who; /* uniform */

    /* Each failure asks in its own name: what one does not ask shifts no other's choices. */
    sim->tape.who = SIM_WHO_POWER | sim->stats.power_failures++ << 8 |
        (pool->owner != NULL ? pool->owner->id : 0);

    if (!sim->product)
        kind = sim_choose(sim, "image", IMAGE_COUNT + 1);

    if (sim_pool_keeps_all(pool))
        kind = IMAGE_KEPT;

    for (uint32_t i = 0; i < pool->dirty_count; i++) {
        uint32_t keep = kind == IMAGE_LOST ? 0 : kind == IMAGE_KEPT ? 8 : 4;
        if (kind == IMAGE_FEW_LOST)
            keep = sim_chance(sim, "few-lost", 1, 8) ? 0 : 8;
        if (kind == IMAGE_FEW_KEPT)
            keep = sim_chance(sim, "few-kept", 1, 8) ? 8 : 0;
        if (kind == IMAGE_LINES)
            keep = sim_chance(sim, "line", 1, 2) ? 8 : 0;
        draw_line(pool, pool->dirty[i], keep, 8);
    }
    sim->tape.who = who;
    sim_trace(sim, "power failure: %u dirty lines, image %u", pool->dirty_count, kind);
    if (sim_is_watched(sim))
        sim_tell_loss(pool);
    sim_pool_forget(pool);
    memcpy(pool->visible, pool->persistent, pool->size);
}

void sim_pool_reopen(struct sim_pool *pool)
{
    void *old = pool->allocation;
    uint8_t *from = pool->visible;

    take_memory(pool);
    memcpy(pool->visible, from, pool->size);
    memset(from, 0xdb, pool->size); /* a stored raw pointer would show */
    sim_free(old);
    pool->writeback_count = 0;
}
