/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_offline.c: recovery of all pools of a cluster while no node runs. The same pieces as a node's
 * start and resolution, with the other participants' pools at hand instead of a connection to them:
 *
 *   open all -> cut off, scan, seal each -> replay, redo releases, relock each -> verdict of each
 *   record in doubt over all pools -> carry out -> retire -> note clean
 *
 * Can be stopped anywhere and run again. A dry run opens the pools read-only, scans, and only says.
 */
#include "recovery/rec_offline.h"

#include <errno.h>

#include "recovery/rec_verdict.h"

#define OPEN_WAIT_MS 5000u

struct offline_pool {
    struct rec_report_pool *report;
    struct pm_pool *pool;
    struct pm_store *store;
    struct pm_retired_table *retired;
    struct txn_part part;
    bool part_open;
    bool damaged; /* a marked record does not check: `text` of its report says which */
    bool busy;    /* a peer's process may still write into a ring's memory */
};
struct offline {
    const struct rec_offline_options *options;
    struct offline_pool *pool;
    uint32_t count;
    struct rd_ep *ep;
    uint64_t in_doubt;
};

static void say(const struct offline *o, const char *text)
{
    if (o->options->progress != NULL)
        o->options->progress(o->options->arg, text);
}

/* The text names the pool, once. */
static void fail_pool(struct offline_pool *p, int error)
{
    const char *text = cairn_last_error();
    bool named = strstr(text, p->report->path) != NULL;
    p->report->error = error;
    (void)snprintf(p->report->text, sizeof(p->report->text), "%s%s%s",
        named ? "" : p->report->path, named ? "" : ": ", text);
}

/* Nobody is connected while no node runs; an atomic of this CPU is enough. */
static int local_cas(
    void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct pm_pool *pool = arg;
    uint64_t *word = pm_at(&pool->pm, off);
    uint64_t old = htole64(expected);
    bool stored = __atomic_compare_exchange_n(
        word, &old, htole64(desired), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    if (CN_UNLIKELY(stored && pool->pm.tracer != NULL))
        pool->pm.tracer->store(pool->pm.tracer->arg, off, 8);
    *ret_old = le64toh(old);
    return 0;
}

/* A coordinator that is merely stopped could go on writing into its rings: cut it off first. */
static int revoke_rings(struct offline *o, struct offline_pool *p)
{
    const struct pm_super *super = &p->pool->super;
    if (o->ep == NULL || o->options->dry_run)
        return 0;
    for (uint32_t i = 1; i < super->geometry.slot_count; i++) {
        struct rd_region *ring;
        bool busy;
        struct rd_memory memory = {
            .base = p->pool->pm.base + pm_ring_off(p->pool, i),
            .pool_off = pm_ring_off(p->pool, i),
            .size = PM_RING_HEADER_SIZE + super->geometry.ring_size,
            .fd = p->pool->fd,
        };
        int error = rd_region_new(o->ep, &memory, RD_ACCESS_READ | RD_ACCESS_WRITE, &ring);
        if (error != 0)
            return error;
        error = rd_ring_revoke(ring, &busy);
        p->busy = p->busy || busy;
        rd_region_delete(ring);
        if (error != 0)
            return error;
    }
    return 0;
}

static int scan_pool(struct offline *o, struct offline_pool *p)
{
    for (uint32_t i = 1; i < p->part.slot_count; i++) {
        struct txn_part_slot *slot = &p->part.slot[i];
        if (slot->media.state == PM_SLOT_FREE)
            continue;
        /* In a dry run a node may be at work on the file. A memory image is nobody else's. */
        bool alone = o->ep != NULL ? !p->busy : p->pool->fd < 0;
        bool still = alone && !o->options->dry_run;
        int error = still ? txn_part_scan_still(&p->part, slot) : txn_part_scan(&p->part, slot);
        if (error == 0 && !o->options->dry_run)
            error = txn_part_seal(&p->part, slot);
        if (error != 0)
            return error;
        if (slot->damaged)
            (void)snprintf(p->report->text, sizeof(p->report->text), "%s: %s", p->report->path,
                slot->broken_text);
        p->damaged = p->damaged || slot->damaged;
    }
    return 0;
}

static void count_pool(struct offline_pool *p)
{
    struct rec_report_pool *r = p->report;
    for (uint32_t i = 1; i < p->part.slot_count; i++) {
        struct txn_part_slot *slot = &p->part.slot[i];
        for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
            const struct txn_entry *entry = txn_part_find(&p->part, slot, seq);
            if (entry == NULL || !entry->has_record)
                continue;
            r->records_found++;
            r->marked += entry->state == TXN_ENTRY_COMMITTED;
            r->replayed += entry->state == TXN_ENTRY_COMMITTED;
            r->releases_redone += entry->state == TXN_ENTRY_APPLIED;
            r->tombstoned +=
                entry->state == TXN_ENTRY_ABORTED || entry->state == TXN_ENTRY_DROPPED;
            r->in_doubt += entry->state == TXN_ENTRY_FOUND && entry->record.type == PM_RECORD_TX;
        }
    }
}

static int replay_pool(struct offline_pool *p)
{
    struct pm_cas cas = {p->pool, local_cas};
    int error = pm_store_open(p->pool, &cas, &p->store);
    if (error != 0)
        return error;
    p->part.store = p->store;
    error = pm_growth_start(p->store);
    if (error != 0)
        return error;
    txn_part_finish_aborted(&p->part);
    while (txn_part_apply(&p->part) != 0)
        continue; /* each call moves entries on, and nobody adds any */
    txn_part_relock(&p->part);
    return 0;
}

static int recover_pool(struct offline *o, struct offline_pool *p)
{
    int error = 0;
    say(o, p->report->path);
    if (!o->options->dry_run)
        error = pm_pool_raise_incarnation(p->pool);
    p->report->incarnation = p->pool->incarnation;
    if (error == 0)
        error = revoke_rings(o, p);
    if (error == 0)
        error = txn_part_open(&p->part, p->pool, o->options->env);
    p->part_open = error == 0;
    if (error == 0)
        error = pm_retired_open(p->pool, &p->retired);
    if (error == 0)
        error = scan_pool(o, p);
    if (error != 0)
        return error;
    count_pool(p);
    return o->options->dry_run ? 0 : replay_pool(p);
}

/* Pools of two clusters, or one node twice, are refused before anything is changed. */
static int check_set(const struct offline *o)
{
    const struct offline_pool *first = NULL;
    for (uint32_t i = 0; i < o->count; i++) {
        const struct offline_pool *p = &o->pool[i];
        if (p->pool == NULL)
            continue;
        if (first == NULL)
            first = p;
        if (!cn_uuid_equal(&p->report->cluster, &first->report->cluster))
            return cn_fail(CAIRN_E_WRONG_CLUSTER, "%s and %s belong to different clusters",
                p->report->path, first->report->path);
        for (uint32_t k = 0; k < i; k++)
            if (o->pool[k].pool != NULL && o->pool[k].report->node == p->report->node)
                return cn_fail(CAIRN_E_WRONG_NODE, "%s and %s both belong to node %u",
                    p->report->path, o->pool[k].report->path, p->report->node);
    }
    return 0;
}

static struct offline_pool *find_pool(struct offline *o, uint16_t node)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (o->pool[i].part_open && o->pool[i].report->error == 0 &&
            o->pool[i].report->node == node)
            return &o->pool[i];
    return NULL;
}

static int already_sealed(void *arg, uint16_t slot)
{
    (void)arg;
    (void)slot;
    return 0;
}

static enum rd_verdict ask_pool(struct offline_pool *p, const struct rd_place_wire *place)
{
    const struct rec_finder finder = {
        .node = p->report->node,
        .part = &p->part,
        .retired = p->retired,
        .fence = already_sealed,
    };
    return rec_find(&finder, place);
}

static void resolve_entry(
    struct offline *o, struct offline_pool *p, struct txn_part_slot *slot, struct txn_entry *entry)
{
    const struct pm_record *record = &entry->record;
    uint8_t answer[PM_RECORD_PARTICIPANTS_MAX] = {0};
    struct rec_report_tx report = {
        .txid = record->txid,
        .node = p->report->node,
        .slot = slot->media.number,
        .epoch = slot->media.epoch,
        .seq = entry->seq,
        .participants = record->participant_count,
    };
    bool contradiction;
    for (uint32_t i = 0; i < record->participant_count; i++) {
        struct rd_place_wire place;
        rec_participant_place(record, i, &place);
        struct offline_pool *at = find_pool(o, le16_get(place.node));
        if (at == NULL)
            report.missing++;
        else
            answer[i] = (uint8_t)ask_pool(at, &place);
        report.present += answer[i] == RD_VERDICT_PRESENT;
    }
    report.verdict = rec_verdict_of(answer, record->participant_count, &contradiction);
    if (report.verdict == RD_VERDICT_NONE) {
        report.verdict = RD_VERDICT_IN_DOUBT;
        o->in_doubt++;
    }
    if (o->options->transaction != NULL)
        o->options->transaction(o->options->arg, &report);
    if (o->options->dry_run)
        return;
    if (report.verdict == RD_VERDICT_COMMITTED)
        txn_part_commit(&p->part, slot, entry);
    else if (report.verdict == RD_VERDICT_ABORTED && txn_part_abort(&p->part, slot, entry) != 0)
        fail_pool(p, CAIRN_E_LIMIT);
}

static void resolve_pool(struct offline *o, struct offline_pool *p)
{
    for (uint32_t i = 1; i < p->part.slot_count; i++) {
        struct txn_part_slot *slot = &p->part.slot[i];
        for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
            struct txn_entry *entry = txn_part_find(&p->part, slot, seq);
            if (entry != NULL && entry->state == TXN_ENTRY_FOUND &&
                entry->record.type == PM_RECORD_TX)
                resolve_entry(o, p, slot, entry);
        }
    }
}

/* Apply the verdicts, and give back every slot that is done. */
static void finish_pool(struct offline *o, struct offline_pool *p)
{
    while (txn_part_apply(&p->part) != 0)
        continue;
    for (uint32_t i = 1; i < p->part.slot_count; i++) {
        struct txn_part_slot *slot = &p->part.slot[i];
        if (!txn_part_is_drained(slot) ||
            pm_retired_add(p->retired, &slot->media, cn_wall_s(o->options->env)) != 0)
            continue;
        slot->media.state = PM_SLOT_FREE;
        txn_part_store(&p->part, slot, CN_STEP_s_free);
    }
    pm_pool_note_clean(p->pool);
}

static void close_parts(struct offline_pool *p)
{
    pm_store_close(&p->store);
    pm_retired_close(&p->retired);
    if (p->part_open)
        txn_part_close(&p->part);
}

static bool usable(const struct offline_pool *p)
{
    return p->part_open && p->report->error == 0;
}

static void recover_all(struct offline *o)
{
    for (uint32_t i = 0; i < o->count; i++) {
        int error = o->pool[i].report->error != 0 ? 0 : recover_pool(o, &o->pool[i]);
        if (error != 0)
            fail_pool(&o->pool[i], error);
    }
    for (uint32_t i = 0; i < o->count; i++)
        if (usable(&o->pool[i]))
            resolve_pool(o, &o->pool[i]);
    for (uint32_t i = 0; i < o->count; i++)
        if (usable(&o->pool[i]) && !o->options->dry_run)
            finish_pool(o, &o->pool[i]);
}

/* What became of all of them, as one result. */
static int conclude(const struct offline *o)
{
    for (uint32_t i = 0; i < o->count; i++)
        if (o->pool[i].damaged && o->pool[i].report->error == 0)
            o->pool[i].report->error = CAIRN_E_CORRUPT_RECORD;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->pool[i].report->error != 0)
            return cn_fail(o->pool[i].report->error, "%s", o->pool[i].report->text);
    if (o->in_doubt != 0)
        return cn_fail(CAIRN_E_IN_DOUBT,
            "%llu records stay in doubt: give the pools of all their participants",
            (unsigned long long)o->in_doubt);
    return 0;
}

/* Tell the looker, while the stores are open. */
static void show(const struct offline *o,
    void (*look)(void *arg, struct pm_store *const *stores), void *arg)
{
    struct pm_store *store[REC_OFFLINE_LOOK_MAX];

    CAIRN_ASSERT(o->count <= CN_ARRAY_SIZE(store));
    for (uint32_t i = 0; i < o->count; i++)
        store[i] = o->pool[i].store;
    look(arg, store);
}

/* Over open pools; NULL for one that could not be opened, its report says why. */
static int run(struct offline *o, struct pm_pool *const *pools, struct rec_report_pool *reports,
    void (*look)(void *arg, struct pm_store *const *stores), void *arg)
{
    const struct rd_ep_config config = {
        .env = o->options->env,
        .connections_max = 1,
        .outstanding_max = 1,
        .memory_size = RD_CACHE_LINE,
        .name = "recover",
    };
    int error = 0;

    o->pool = calloc(o->count, sizeof(*o->pool));
    if (o->pool == NULL)
        return cn_fail(-ENOMEM, "no memory for %u pools", o->count);
    for (uint32_t i = 0; i < o->count; i++) {
        struct offline_pool *p = &o->pool[i];
        p->report = &reports[i];
        p->pool = pools[i];
        if (p->pool == NULL)
            continue;
        p->report->node = p->pool->super.node;
        p->report->pool = p->pool->super.pool;
        p->report->cluster = p->pool->super.cluster;
        p->report->was_clean = p->pool->opened_clean;
        p->report->incarnation = p->pool->incarnation;
    }
    if (o->options->fabric != NULL)
        error = rd_ep_open(o->options->fabric, &config, &o->ep);
    if (error == 0)
        error = check_set(o);
    if (error == 0) {
        recover_all(o);
        error = conclude(o);
        if (error == 0 && look != NULL && !o->options->dry_run)
            show(o, look, arg);
    }
    for (uint32_t i = 0; i < o->count; i++)
        close_parts(&o->pool[i]);
    if (o->ep != NULL)
        rd_ep_close(o->ep);
    free(o->pool);
    return error;
}

int rec_offline_pools(const struct rec_offline_options *options, struct pm_pool *const *pools,
    uint32_t count, struct rec_report_pool *reports,
    void (*look)(void *arg, struct pm_store *const *stores), void *arg)
{
    struct offline o = {.options = options, .count = count};

    memset(reports, 0, count * sizeof(*reports));
    for (uint32_t i = 0; i < count; i++) {
        CAIRN_ASSERT(options->dry_run == pools[i]->pm.read_only);
        reports[i].path = pools[i]->path != NULL ? pools[i]->path : "memory image";
    }
    return run(&o, pools, reports, look, arg);
}

int rec_offline(const struct rec_offline_options *options, const char *const *paths, uint32_t count,
    struct rec_report_pool *reports)
{
    struct rec_offline_options own = *options;
    struct offline o = {.options = &own, .count = count};
    enum pm_open_mode mode = options->dry_run ? PM_OPEN_READ_ONLY : PM_OPEN_OWNER;
    struct pm_pool **pools = calloc(count, sizeof(struct pm_pool *));
    int error;

    if (pools == NULL)
        return cn_fail(-ENOMEM, "no memory for %u pools", count);
    error = options->fabric == NULL ? rd_fabric_open("emu", NULL, &own.fabric) : 0;
    if (error != 0) {
        free(pools);
        return error;
    }
    memset(reports, 0, count * sizeof(*reports));
    for (uint32_t i = 0; i < count; i++) {
        reports[i].path = paths[i];
        error = pm_pool_open(paths[i], mode, OPEN_WAIT_MS, options->env, &pools[i]);
        if (error != 0)
            fail_pool(&(struct offline_pool){.report = &reports[i]}, error);
    }
    error = run(&o, pools, reports, NULL, NULL);
    for (uint32_t i = 0; i < count; i++)
        if (pools[i] != NULL)
            pm_pool_close(&pools[i]);
    if (options->fabric == NULL)
        rd_fabric_delete(own.fabric);
    free(pools);
    return error;
}
