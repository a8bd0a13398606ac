/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tl_pool.c: gather what a pool says: superblock, geometry, rings, records in doubt, retired
 * epochs, tables, space, and what fsck finds. The keys of the JSON are stable: docs/testing.md,
 * CHANGELOG.
 */
#include "tools/tl_pool.h"

#include <errno.h>

#include "pmem/pm_format.h"

#define RECORDS_KEPT_MAX 65536u

struct look {
    struct pm_pool *pool;
    struct tl_pool_look *ret;
    json_t *slots, *in_doubt, *retired, *errors;
    /* Private copies of the records in the rings, for fsck. */
    struct pm_record **record;
    uint16_t *record_slot;
    uint32_t record_count;
    int error;
};

static json_t *place_json(uint16_t node, uint16_t slot, uint64_t epoch, uint64_t seq)
{
    return json_pack("{s:i, s:i, s:o, s:o}", "node", (int)node, "slot", (int)slot, "epoch",
        tl_json_u64(epoch), "seq", tl_json_u64(seq));
}

static const char *slot_state_name(enum pm_slot_state state)
{
    switch (state) {
    case PM_SLOT_FREE: return "free";
    case PM_SLOT_OPEN: return "open";
    case PM_SLOT_CLOSED: return "closed";
    }
    return "?";
}

static void on_slot(void *arg, const struct pm_slot *slot, uint32_t records, uint32_t unmarked)
{
    struct look *l = arg;

    l->ret->records += records;
    if (slot->epoch == 0)
        return; /* never used */
    json_t *o = json_pack("{s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:i, s:i}", "slot",
        (int)slot->number, "state", slot_state_name(slot->state), "epoch", tl_json_u64(slot->epoch),
        "owner", tl_json_uuid(&slot->owner), "position_seq", tl_json_u64(slot->position_seq),
        "position_off", tl_json_u64(slot->position_off), "closing_seq",
        tl_json_u64(slot->closing_seq), "tombstones", (int)slot->tombstone_count, "records",
        (int)records, "unmarked", (int)unmarked);
    (void)json_array_append_new(l->slots, o);
}

static const void *moved(const void *p, const void *from, const void *to)
{
    if (p == NULL)
        return NULL;
    return (const uint8_t *)to + ((const uint8_t *)p - (const uint8_t *)from);
}

/* The record is only there during the callback: copy it, bytes and all. */
static int keep_record(struct look *l, const struct pm_slot *slot, const struct pm_record *record)
{
    struct pm_record *copy;

    if (l->record_count == RECORDS_KEPT_MAX)
        return cn_fail(CAIRN_E_LIMIT, "more than %u records in the rings", RECORDS_KEPT_MAX);
    copy = malloc(sizeof(*copy) + record->size);
    if (copy == NULL)
        return cn_fail(-ENOMEM, "out of memory for the records in the rings");
    *copy = *record;
    memcpy(copy + 1, record->head, record->size);
    copy->head = (const struct pm_record_pm *)(copy + 1);
    copy->participant = moved(record->participant, record->head, copy->head);
    copy->lock = moved(record->lock, record->head, copy->head);
    copy->block = moved(record->block, record->head, copy->head);
    l->record[l->record_count] = copy;
    l->record_slot[l->record_count++] = slot->number;
    return 0;
}

/* Is a word of the record still as the record found it? */
static bool waits_for(const struct look *l, const struct pm_lock_pm *named, bool locked)
{
    uint64_t off = le64_get(named->off);

    if (off % sizeof(uint64_t) != 0 || off > l->pool->pm.size - sizeof(uint64_t))
        return true; /* impossible: fsck says so */
    uint64_t word = pm_load64(&l->pool->pm, off);
    return pm_word_version(word) == le64_get(named->base) &&
        (!locked || pm_word_locked_bit(word));
}

/* Applied or aborted, and its words are released: it explains no lock any more, and later records
 * may have moved its words on. Such a record lies in a ring until the position passes it. */
static bool is_settled(const struct look *l, const struct rec_look_record *record)
{
    const struct pm_record *r = &record->record;

    if (!record->applied && !record->tombstone)
        return false;
    for (uint16_t i = 0; i < r->lock_count; i++)
        if (waits_for(l, &r->lock[i], record->tombstone))
            return false;
    for (uint16_t i = 0; i < r->block_count && record->applied; i++)
        if (waits_for(l, &r->block[i], false))
            return false;
    return true;
}

static void on_record(void *arg, const struct pm_slot *slot, const struct rec_look_record *record)
{
    struct look *l = arg;
    const struct pm_record *r = &record->record;
    char text[CN_TXID_TEXT_SIZE];

    if (l->error == 0 && l->record != NULL && !is_settled(l, record))
        l->error = keep_record(l, slot, r);
    if (r->type != PM_RECORD_TX || record->marked || record->applied || record->tombstone)
        return;
    l->ret->in_doubt++;
    json_t *places = json_array();
    for (uint16_t i = 0; i < r->participant_count; i++) {
        const struct pm_participant_pm *p = &r->participant[i];
        (void)json_array_append_new(places,
            place_json(le16_get(p->node), le16_get(p->slot), le64_get(p->epoch), le64_get(p->seq)));
    }
    (void)json_array_append_new(l->in_doubt,
        json_pack("{s:s, s:i, s:o, s:o, s:i, s:i, s:o}", "txid", cn_txid_format(&r->txid, text),
            "slot", (int)slot->number, "epoch", tl_json_u64(slot->epoch), "seq",
            tl_json_u64(r->seq), "locks", (int)r->lock_count, "writes", (int)r->write_count,
            "participants", places));
}

static void on_retired(void *arg, const struct pm_retired *r)
{
    struct look *l = arg;

    (void)json_array_append_new(l->retired,
        json_pack("{s:i, s:o, s:o, s:o, s:o, s:i}", "slot", (int)r->slot, "epoch",
            tl_json_u64(r->epoch), "owner", tl_json_uuid(&r->owner), "closing_seq",
            tl_json_u64(r->closing_seq), "retired_s", tl_json_u64(r->retired_s), "tombstones",
            (int)r->tombstone_count));
}

static void add_text(struct look *l, const char *text)
{
    l->ret->errors++;
    if (json_array_size(l->errors) < TL_POOL_TEXTS_MAX)
        (void)json_array_append_new(l->errors, json_string(text));
}

static void on_error(void *arg, int error, const char *text)
{
    (void)error;
    add_text(arg, text);
}

static void on_fsck(void *arg, enum pm_fsck_severity severity, const char *text)
{
    if (severity == PM_FSCK_DAMAGE)
        add_text(arg, text);
}

static json_t *geometry_json(const struct pm_super *s)
{
    const struct pm_geometry *g = &s->geometry;

    return json_pack("{s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:i, s:i}", "chunk_shift",
        (int)g->chunk_shift, "slots", (int)g->slot_count, "window", (int)g->window, "ring_size",
        tl_json_u64(g->ring_size), "retired_max", (int)g->retired_max, "root_map_max",
        (int)g->root_map_max, "bucket_slots", (int)g->bucket_slots, "fingerprint_bits",
        (int)g->fingerprint_bits, "depth0", (int)g->depth0);
}

static json_t *super_json(const char *path, const struct pm_pool *pool)
{
    const struct pm_super *s = &pool->super;
    json_t *root = json_pack("{s:s, s:o, s:o, s:i, s:i, s:o, s:b, s:s, s:o}", "path", path, "pool",
        tl_json_uuid(&s->pool), "cluster", tl_json_uuid(&s->cluster), "node", (int)s->node,
        "layout_version", (int)PM_LAYOUT_VERSION, "incarnation", tl_json_u64(pool->incarnation),
        "clean", (int)pool->opened_clean, "member_state",
        pool->member_state == PM_MEMBER_FULL ? "full" : "joining", "view_max",
        tl_json_u64(pool->view_max));

    (void)json_object_set_new(root, "created_s", tl_json_u64(s->created_s));
    (void)json_object_set_new(root, "pool_size", tl_json_u64(s->pool_size));
    (void)json_object_set_new(root, "last_pid", tl_json_u64(pool->last_opener.pid));
    (void)json_object_set_new(root, "geometry", geometry_json(s));
    json_t *extents = json_array();
    for (uint32_t i = 0; i < s->extent_count; i++)
        (void)json_array_append_new(extents,
            json_pack("{s:o, s:o}", "off", tl_json_u64(s->extent[i].off), "size",
                tl_json_u64(s->extent[i].size)));
    (void)json_object_set_new(root, "extents", extents);
    return root;
}

static json_t *tables_json(const struct pm_store *store)
{
    json_t *tables = json_array();

    for (uint32_t id = 1; id <= pm_store_index_count(store); id++) {
        const struct pm_index *x = pm_store_index_by_id(store, id);
        if (x == NULL)
            continue;
        (void)json_array_append_new(tables,
            json_pack("{s:i, s:i, s:i, s:o, s:o, s:i, s:o}", "table", (int)x->table, "shard",
                (int)x->shard, "index", (int)x->index, "root_off", tl_json_u64(x->off),
                "items_hint", tl_json_u64(x->items), "level", (int)x->level, "sweep",
                tl_json_u64(x->sweep)));
    }
    return tables;
}

static json_t *space_json(const struct look *l, const struct pm_store *store)
{
    struct pm_store_stats s;
    json_t *classes = json_array();

    pm_store_stats(store, &s);
    for (uint32_t c = 0; c < PM_CLASS_COUNT; c++) {
        if (s.class_[c].chunks == 0)
            continue;
        (void)json_array_append_new(classes,
            json_pack("{s:i, s:i, s:o, s:o}", "class", (int)c, "block_size", (int)pm_class_size(c),
                "chunks", tl_json_u64(s.class_[c].chunks), "bytes",
                tl_json_u64(s.class_[c].chunks << l->pool->super.geometry.chunk_shift)));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "chunks_total", tl_json_u64(s.chunks_total),
        "chunks_free", tl_json_u64(s.chunks_free), "chunks_slab", tl_json_u64(s.chunks_slab),
        "chunks_buckets", tl_json_u64(s.chunks_buckets), "chunks_roots",
        tl_json_u64(s.chunks_roots), "classes", classes);
}

/* No word is changed by a look. */
static int refuse_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret)
{
    (void)arg;
    (void)off;
    (void)expected;
    (void)desired;
    (void)ret;
    return cn_fail(CAIRN_E_STATE, "a look changes nothing");
}

static int look_at_store(struct look *l, json_t *root)
{
    static const struct pm_cas cas = {.cas = refuse_cas};
    struct pm_store *store;
    int rc = pm_store_open(l->pool, &cas, &store);

    if (rc != 0) {
        add_text(l, cairn_last_error());
        return rc == -ENOMEM ? rc : 0;
    }
    (void)json_object_set_new(root, "tables", tables_json(store));
    (void)json_object_set_new(root, "space", space_json(l, store));
    pm_store_close(&store);
    return 0;
}

static int check_store(struct look *l, json_t *root)
{
    const struct pm_fsck_options options = {
        .unresolved = (const struct pm_record *const *)l->record,
        .unresolved_slot = l->record_slot,
        .unresolved_count = l->record_count,
        .report = on_fsck,
        .arg = l,
    };
    struct pm_fsck_report *f = &l->ret->fsck;
    int rc = pm_fsck(l->pool, &options, f);
    char canonical[20];

    if (rc != 0)
        return rc;
    l->ret->checked = true;
    (void)snprintf(
        canonical, sizeof(canonical), "%016llx", (unsigned long long)f->canonical_values);
    (void)json_object_set_new(root, "check",
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "damages", tl_json_u64(f->damages),
            "items", tl_json_u64(f->items), "buckets", tl_json_u64(f->buckets), "chunks",
            tl_json_u64(f->chunks), "blocks_free", tl_json_u64(f->blocks_free), "words_locked",
            tl_json_u64(f->words_locked), "words_old_tag", tl_json_u64(f->words_old_tag),
            "values_hash", canonical));
    return 0;
}

static int look_inside(struct look *l, bool check, json_t *root)
{
    const struct rec_look callbacks = {
        .arg = l,
        .slot = on_slot,
        .record = on_record,
        .retired = on_retired,
        .error = on_error,
    };
    int rc;

    if (check) {
        l->record = calloc(RECORDS_KEPT_MAX, sizeof(*l->record));
        l->record_slot = calloc(RECORDS_KEPT_MAX, sizeof(*l->record_slot));
        if (l->record == NULL || l->record_slot == NULL)
            return cn_fail(-ENOMEM, "out of memory for the records in the rings");
    }
    rc = rec_look_at(l->pool, &callbacks);
    if (rc != 0 && rc != -ENOMEM) { /* said, and the rest is still worth a look */
        add_text(l, cairn_last_error());
        rc = 0;
    }
    if (rc == 0)
        rc = l->error;
    (void)json_object_set_new(root, "slots", json_incref(l->slots));
    (void)json_object_set_new(root, "in_doubt", json_incref(l->in_doubt));
    (void)json_object_set_new(root, "retired", json_incref(l->retired));
    if (rc == 0)
        rc = look_at_store(l, root);
    if (rc == 0 && check)
        rc = check_store(l, root);
    (void)json_object_set_new(root, "errors", json_incref(l->errors));
    (void)json_object_set_new(root, "error_count", tl_json_u64(l->ret->errors));
    return rc;
}

int tl_pool_look(const char *path, bool check, struct tl_pool_look *ret, json_t **ret_json)
{
    struct look l = {.ret = ret};
    json_t *root;
    int rc;

    memset(ret, 0, sizeof(*ret));
    rc = pm_pool_open(path, PM_OPEN_READ_ONLY, 0, cn_env_system(), &l.pool);
    if (rc != 0)
        return rc;
    const struct pm_opener opener = {
        l.pool->last_opener.pid, l.pool->last_opener.start, l.pool->last_opener.boot};
    ret->in_use = pm_opener_is_alive(&opener) ? opener.pid : 0;
    l.slots = json_array();
    l.in_doubt = json_array();
    l.retired = json_array();
    l.errors = json_array();
    root = super_json(path, l.pool);
    (void)json_object_set_new(root, "in_use", json_boolean(ret->in_use != 0));
    rc = look_inside(&l, check, root);
    for (uint32_t i = 0; i < l.record_count; i++)
        free(l.record[i]);
    free((void *)l.record);
    free(l.record_slot);
    json_decref(l.slots);
    json_decref(l.in_doubt);
    json_decref(l.retired);
    json_decref(l.errors);
    pm_pool_close(&l.pool);
    if (rc == 0 && ret_json != NULL)
        *ret_json = root;
    else
        json_decref(root);
    return rc;
}
