/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_retired.c: the table of retired epochs: what is left of a slot epoch when its slot goes on to
 * a new owner, so that questions about old transactions still get their answer.
 *
 * An epoch takes one EPOCH entry and, if it has tombstones, TOMBSTONES entries of five each. Those
 * are durable before the EPOCH entry, and are forgotten after it: an EPOCH entry on media always
 * has all its tombstones. TOMBSTONES entries without one are left-overs of a crash; opening the
 * table clears them, durably, before anything is added, so that they never meet a later entry of
 * the same epoch.
 *
 * An entry whose crc does not fit is one that a crash tore, and is free. An EPOCH entry with fewer
 * tombstones than it states is damaged: it is not used, since a missing tombstone would turn
 * ABORTED into COMMITTED; questions about it get FORGOTTEN.
 *
 * The index is volatile: chains by entry number, one per hash of (slot, epoch) for EPOCH entries,
 * and one per EPOCH entry for its TOMBSTONES entries.
 */
#include <errno.h>

#include "pmem/pm_slot.h"

#define NONE UINT32_MAX

enum entry_kind { ENTRY_FREE, ENTRY_EPOCH, ENTRY_TOMBSTONES, ENTRY_DAMAGED };

struct entry {
    enum entry_kind kind;
    uint32_t next;       /* in its chain */
    uint32_t tombstones; /* EPOCH: chain of its TOMBSTONES entries */
    union {
        struct pm_retired r;           /* EPOCH */
        uint64_t seq[PM_RETIRED_SEQS]; /* TOMBSTONES */
    };
};

struct pm_retired_table {
    struct pm_pool *pool;
    uint32_t max, free_count, free_from; /* where to look for a free entry first */
    uint32_t bucket_mask;
    uint32_t *bucket;
    struct entry *entry;
    uint64_t *seq; /* scratch: the tombstones of one slot */
};

static uint64_t entry_off(const struct pm_retired_table *t, uint32_t i)
{
    return t->pool->super.retired_off + (uint64_t)i * sizeof(struct pm_retired_pm);
}

static uint32_t entry_crc(
    const struct pm_retired_table *t, uint32_t i, const struct pm_retired_pm *m)
{
    struct pm_retired_pm copy = *m;
    struct le32 seed = le32_make(i);

    copy.crc = le32_make(0);
    return cn_crc32c(cn_crc32c(t->pool->crc_seed, &seed, sizeof(seed)), &copy, sizeof(copy));
}

/* Read entry `i`: its type; NONE if free, torn or nonsense. */
static enum pm_retired_type read_entry(const struct pm_retired_table *t, uint32_t i,
    struct pm_retired_pm *m)
{
    uint16_t type;

    pm_read(&t->pool->pm, entry_off(t, i), m, sizeof(*m));
    type = le16_get(m->type);
    if (type == PM_RETIRED_NONE || le32_get(m->crc) != entry_crc(t, i, m))
        return PM_RETIRED_NONE;
    if (le16_get(m->slot) >= t->pool->super.geometry.slot_count)
        return PM_RETIRED_NONE;
    if (type == PM_RETIRED_EPOCH && le64_get(m->u.e.reserved) == 0)
        return PM_RETIRED_EPOCH;
    if (type == PM_RETIRED_TOMBSTONES && le64_get(m->u.t.reserved) == 0)
        return PM_RETIRED_TOMBSTONES;
    return PM_RETIRED_NONE;
}

static void store_entry(struct pm_retired_table *t, uint32_t i, struct pm_retired_pm *m)
{
    m->crc = le32_make(entry_crc(t, i, m));
    pm_copy(&t->pool->pm, entry_off(t, i), m, sizeof(*m));
    pm_flush(&t->pool->pm, entry_off(t, i), sizeof(*m));
}

static void clear_entry(struct pm_retired_table *t, uint32_t i)
{
    pm_zero(&t->pool->pm, entry_off(t, i), sizeof(struct pm_retired_pm));
    pm_flush(&t->pool->pm, entry_off(t, i), sizeof(struct pm_retired_pm));
}

/* ---- volatile index ---- */

static uint32_t *bucket_of(const struct pm_retired_table *t, uint16_t slot, uint64_t epoch)
{
    return &t->bucket[cn_mix64(epoch ^ cn_mix64(slot)) & t->bucket_mask];
}

static struct entry *find_entry(const struct pm_retired_table *t, uint16_t slot, uint64_t epoch)
{
    for (uint32_t i = *bucket_of(t, slot, epoch); i != NONE; i = t->entry[i].next) {
        if (t->entry[i].r.slot == slot && t->entry[i].r.epoch == epoch)
            return &t->entry[i];
    }
    return NULL;
}

static void set_used(struct pm_retired_table *t, uint32_t i, enum entry_kind kind)
{
    CAIRN_ASSERT(t->entry[i].kind == ENTRY_FREE && t->free_count > 0);
    t->entry[i].kind = kind;
    t->free_count--;
}

static void set_free(struct pm_retired_table *t, uint32_t i)
{
    CAIRN_ASSERT(t->entry[i].kind != ENTRY_FREE);
    t->entry[i] = (struct entry){.kind = ENTRY_FREE, .next = NONE, .tombstones = NONE};
    t->free_count++;
}

static void index_epoch(struct pm_retired_table *t, uint32_t i, const struct pm_retired_pm *m)
{
    struct entry *e = &t->entry[i];
    uint32_t *bucket = bucket_of(t, le16_get(m->slot), le64_get(m->epoch));

    set_used(t, i, ENTRY_EPOCH);
    e->r = (struct pm_retired){
        .entry = i,
        .slot = le16_get(m->slot),
        .epoch = le64_get(m->epoch),
        .closing_seq = le64_get(m->u.e.closing_seq),
        .retired_s = le64_get(m->u.e.retired_s),
        .view = le32_get(m->u.e.view),
        .tombstone_count = le32_get(m->u.e.tombstone_count),
        .owner = m->u.e.owner,
    };
    e->next = *bucket;
    *bucket = i;
}

static void unindex_epoch(struct pm_retired_table *t, struct entry *e)
{
    uint32_t *link = bucket_of(t, e->r.slot, e->r.epoch);

    while (*link != e->r.entry)
        link = &t->entry[*link].next;
    *link = e->next;
}

/* Put TOMBSTONES entry `i` in front of a chain. */
static void chain_tombstones(struct pm_retired_table *t, uint32_t *chain, uint32_t i,
    const struct pm_retired_pm *m)
{
    set_used(t, i, ENTRY_TOMBSTONES);
    for (uint32_t k = 0; k < PM_RETIRED_SEQS; k++)
        t->entry[i].seq[k] = le64_get(m->u.t.seq[k]);
    t->entry[i].next = *chain;
    *chain = i;
}

/* ---- opening ---- */

static uint32_t count_tombstones(const struct pm_retired_table *t, const struct entry *e)
{
    uint32_t count = 0;

    for (uint32_t i = e->tombstones; i != NONE; i = t->entry[i].next) {
        for (uint32_t k = 0; k < PM_RETIRED_SEQS; k++)
            count += t->entry[i].seq[k] != 0;
    }
    return count;
}

static void load_epochs(struct pm_retired_table *t)
{
    struct pm_retired_pm m;

    for (uint32_t i = 0; i < t->max; i++) {
        if (read_entry(t, i, &m) != PM_RETIRED_EPOCH)
            continue;
        if (find_entry(t, le16_get(m.slot), le64_get(m.epoch)) == NULL)
            index_epoch(t, i, &m);
        else
            set_used(t, i, ENTRY_DAMAGED);
    }
}

/* Chain TOMBSTONES entries to their epochs; clear those of none. */
static void load_tombstones(struct pm_retired_table *t)
{
    struct pm_retired_pm m;

    for (uint32_t i = 0; i < t->max; i++) {
        struct entry *e;

        if (t->entry[i].kind != ENTRY_FREE || read_entry(t, i, &m) != PM_RETIRED_TOMBSTONES)
            continue;
        e = find_entry(t, le16_get(m.slot), le64_get(m.epoch));
        if (e != NULL)
            chain_tombstones(t, &e->tombstones, i, &m);
        else if (!t->pool->pm.read_only)
            clear_entry(t, i);
    }
    if (t->pool->pm.read_only)
        return;
    pm_flush(&t->pool->pm, entry_off(t, 0), t->max * (uint64_t)sizeof(struct pm_retired_pm));
    /* Persist point: what is seen is durable (after a mere process death it need not be: an entry
     * cleared then could come back), and no left-over is there when the next epoch is entered. */
    pm_fence(&t->pool->pm, CN_STEP_s_purged);
}

static void set_damaged_aside(struct pm_retired_table *t)
{
    for (uint32_t i = 0; i < t->max; i++) {
        struct entry *e = &t->entry[i];

        if (e->kind != ENTRY_EPOCH || count_tombstones(t, e) == e->r.tombstone_count)
            continue;
        cn_log(t->pool->pm.env, CN_LOG_ERROR,
            "retired epoch %llu of slot %u has lost tombstones: it counts as forgotten",
            (unsigned long long)e->r.epoch, e->r.slot);
        unindex_epoch(t, e);
        e->kind = ENTRY_DAMAGED; /* its entries stay as they are, for whoever looks into it */
    }
}

int pm_retired_open(struct pm_pool *pool, struct pm_retired_table **ret)
{
    struct pm_retired_table *t = calloc(1, sizeof(*t));
    uint32_t buckets = 16;

    if (t == NULL)
        return cn_fail(-ENOMEM, "no memory for the table of retired epochs");
    t->pool = pool;
    t->max = pool->super.geometry.retired_max;
    t->free_count = t->max;
    while (buckets < t->max)
        buckets *= 2;
    t->bucket_mask = buckets - 1;
    t->bucket = malloc(buckets * sizeof(*t->bucket));
    t->entry = calloc(t->max, sizeof(*t->entry));
    t->seq = calloc(pool->super.tombstone_max, sizeof(*t->seq));
    if (t->bucket == NULL || t->entry == NULL || t->seq == NULL) {
        pm_retired_close(&t);
        return cn_fail(-ENOMEM, "no memory for the table of retired epochs");
    }
    for (uint32_t i = 0; i < buckets; i++)
        t->bucket[i] = NONE;
    for (uint32_t i = 0; i < t->max; i++)
        t->entry[i] = (struct entry){.kind = ENTRY_FREE, .next = NONE, .tombstones = NONE};
    load_epochs(t);
    load_tombstones(t);
    set_damaged_aside(t);
    *ret = t;
    return 0;
}

void pm_retired_close(struct pm_retired_table **table)
{
    struct pm_retired_table *t = *table;

    *table = NULL;
    if (t == NULL)
        return;
    free(t->bucket);
    free(t->entry);
    free(t->seq);
    free(t);
}

/* ---- changes ---- */

static uint32_t take_free(struct pm_retired_table *t)
{
    for (uint32_t n = 0; n < t->max; n++) {
        uint32_t i = (t->free_from + n) % t->max;

        if (t->entry[i].kind == ENTRY_FREE) {
            t->free_from = i + 1;
            return i;
        }
    }
    cn_panic(__FILE__, __LINE__, "free_count is wrong");
}

static void flush_again(struct pm_retired_table *t, const struct entry *e)
{
    for (uint32_t i = e->tombstones; i != NONE; i = t->entry[i].next)
        pm_flush(&t->pool->pm, entry_off(t, i), sizeof(struct pm_retired_pm));
    pm_fence(&t->pool->pm, CN_STEP_s_retired);
    pm_flush(&t->pool->pm, entry_off(t, e->r.entry), sizeof(struct pm_retired_pm));
    pm_fence(&t->pool->pm, CN_STEP_s_retired);
}

/* Store the tombstones (in t->seq) in free entries; *ret_chain gets the list of them. */
static void store_tombstones(struct pm_retired_table *t, const struct pm_slot *slot, uint32_t count,
    uint32_t *ret_chain)
{
    uint32_t chain = NONE;

    for (uint32_t done = 0; done < count; done += PM_RETIRED_SEQS) {
        struct pm_retired_pm m = {
            .type = le16_make(PM_RETIRED_TOMBSTONES),
            .slot = le16_make(slot->number),
            .epoch = le64_make(slot->epoch),
        };
        uint32_t i = take_free(t);

        for (uint32_t k = 0; k < PM_RETIRED_SEQS && done + k < count; k++)
            m.u.t.seq[k] = le64_make(t->seq[done + k]);
        store_entry(t, i, &m);
        chain_tombstones(t, &chain, i, &m);
    }
    *ret_chain = chain;
}

static void store_epoch(struct pm_retired_table *t, const struct pm_slot *slot, uint64_t now_s,
    uint32_t tombstone_count, uint32_t chain)
{
    struct pm_retired_pm m = {
        .type = le16_make(PM_RETIRED_EPOCH),
        .slot = le16_make(slot->number),
        .epoch = le64_make(slot->epoch),
        .u.e = {
            .owner = slot->owner,
            .closing_seq = le64_make(slot->closing_seq),
            .retired_s = le64_make(now_s),
            .tombstone_count = le32_make(tombstone_count),
            .view = le32_make((uint32_t)slot->view),
        },
    };
    uint32_t i = take_free(t);

    store_entry(t, i, &m);
    index_epoch(t, i, &m);
    t->entry[i].tombstones = chain;
}

int pm_retired_add(struct pm_retired_table *table, const struct pm_slot *slot, uint64_t now_s)
{
    struct pm_retired_table *t = table;
    struct entry *e = find_entry(t, slot->number, slot->epoch);
    uint32_t count, needed, chain = NONE;

    CAIRN_ASSERT(slot->state == PM_SLOT_CLOSED && slot->position_seq == slot->closing_seq);
    if (e != NULL) { /* of an earlier try: visible, but was it durable? */
        flush_again(t, e);
        return 0;
    }
    count = pm_slot_tombstones(t->pool, slot, t->seq, t->pool->super.tombstone_max);
    needed = 1 + (count + PM_RETIRED_SEQS - 1) / PM_RETIRED_SEQS;
    if (needed > t->free_count)
        return cn_fail(CAIRN_E_LIMIT,
            "the table of retired epochs is full: %u entries needed, %u free; it empties as "
            "verdicts "
            "expire and all nodes acknowledge",
            needed, t->free_count);
    if (count > 0) {
        store_tombstones(t, slot, count, &chain);
        /* Persist point: the tombstones are there before the epoch that needs them. Stopped here:
         * left-overs, cleared at the next open; the slot is still CLOSED and is retired again. */
        pm_fence(&t->pool->pm, CN_STEP_s_retired);
    }
    store_epoch(t, slot, now_s, count, chain);
    /* Persist point: the epoch answers from here; the slot may be freed. */
    pm_fence(&t->pool->pm, CN_STEP_s_retired);
    return 0;
}

void pm_retired_remove(struct pm_retired_table *table, const struct pm_retired *r)
{
    struct pm_retired_table *t = table;
    struct entry *e = &t->entry[r->entry];
    uint32_t i = e->tombstones, next;

    CAIRN_ASSERT(e->kind == ENTRY_EPOCH && r == &e->r);
    unindex_epoch(t, e);
    clear_entry(t, r->entry);
    /* Persist point: the epoch goes before its tombstones. Stopped here: left-overs. */
    pm_fence(&t->pool->pm, CN_STEP_s_purged);
    if (i != NONE) {
        for (uint32_t k = i; k != NONE; k = t->entry[k].next)
            clear_entry(t, k);
        /* Persist point: its entries may be used again. */
        pm_fence(&t->pool->pm, CN_STEP_s_purged);
    }
    for (; i != NONE; i = next) {
        next = t->entry[i].next;
        set_free(t, i);
    }
    i = r->entry; /* lies in the entry that is cleared now, but `entry` stays for pm_retired_next()
                   */
    set_free(t, i);
    t->entry[i].r.entry = i;
}

/* ---- questions ---- */

const struct pm_retired *pm_retired_find(const struct pm_retired_table *table, uint16_t slot,
    uint64_t epoch)
{
    const struct entry *e = find_entry(table, slot, epoch);

    return e != NULL ? &e->r : NULL;
}

bool pm_retired_has_tombstone(const struct pm_retired_table *table, const struct pm_retired *r,
    uint64_t seq)
{
    if (seq == 0)
        return false;
    for (uint32_t i = table->entry[r->entry].tombstones; i != NONE; i = table->entry[i].next) {
        for (uint32_t k = 0; k < PM_RETIRED_SEQS; k++) {
            if (table->entry[i].seq[k] == seq)
                return true;
        }
    }
    return false;
}

uint32_t pm_retired_free(const struct pm_retired_table *table)
{
    return table->free_count;
}

const struct pm_retired *pm_retired_next(
    const struct pm_retired_table *table, const struct pm_retired *r)
{
    for (uint32_t i = r == NULL ? 0 : r->entry + 1; i < table->max; i++) {
        if (table->entry[i].kind == ENTRY_EPOCH)
            return &table->entry[i].r;
    }
    return NULL;
}
