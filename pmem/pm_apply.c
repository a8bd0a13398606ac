/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_apply.c: the gate. A transaction's record comes from a remote peer; before anything is stored
 * for it, every offset, class, kind, key and version in it is held against the store. A record that
 * passes can be applied whatever its author meant: at worst it changes keys, never the structure.
 *
 * Live, each locked object must be locked by the record's slot at its base and be what the record
 * believes; each named block must be granted to the slot. In replay an object may carry any mix of
 * old and new 8-byte units: then only what cannot tear or never changes is believed (meta; a
 * bucket's number, depth and index; hash and key of an item), and ver(meta) is base or base + 1.
 */
#include "pmem/pm_store_internal.h"

#include <stdarg.h>

#define LINEAR_MAX 16u
#define PREFETCH_MAX 8u
#define ITEM_LINES 2u

int pm_refuse(const struct pm_record *record, const char *format, ...)
{
    char text[160], id[CN_TXID_TEXT_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return cn_fail(CAIRN_E_CORRUPT_RECORD, "record %" PRIu64 " of transaction %s: %s", record->seq,
        cn_txid_format(&record->txid, id), text);
}

static void fetch(const struct pm_store *s, uint64_t off)
{
    const struct pm *pm = s->pm;
    uint64_t number = off >> s->c.shift;
    uint32_t lines = ITEM_LINES;

    if (number >= s->c.count || off + PM_BUCKET_SIZE > pm->size)
        return;
    if (s->c.chunk[number].kind == PM_CHUNK_BUCKETS)
        lines = PM_BUCKET_SIZE / PM_LINE;
    for (uint32_t k = 0; k < lines; k++)
        __builtin_prefetch(pm->base + off + k * PM_LINE, 1);
}

void pm_apply_prefetch(const struct pm_store *store, const struct pm_record *record)
{
    for (uint32_t i = 0; i < record->lock_count && i < PREFETCH_MAX; i++)
        fetch(store, le64_get(record->lock[i].off));
    for (uint32_t i = 0; i < record->block_count && i < PREFETCH_MAX; i++)
        fetch(store, le64_get(record->block[i].off));
}

/* ---- decoding ---- */

static uint32_t hash_at(uint64_t off)
{
    return (uint32_t)cn_mix64(off) % PM_SCRATCH_HASH;
}

static void hash_put(struct pm_apply_scratch *x, uint64_t off, uint32_t value)
{
    uint32_t i = hash_at(off);

    while (x->hash[i] != 0)
        i = (i + 1) % PM_SCRATCH_HASH;
    x->hash[i] = (uint16_t)value;
}

static void index_lists(struct pm_apply_scratch *x, const struct pm_record *r)
{
    memset(x->hash, 0, sizeof(x->hash));
    for (uint32_t i = 0; i < r->lock_count; i++)
        hash_put(x, le64_get(r->lock[i].off), 1 + i);
    for (uint32_t i = 0; i < r->block_count; i++)
        hash_put(x, le64_get(r->block[i].off), 1 + PM_RECORD_LOCKS_MAX + i);
}

/* Number of the lock (or block) at an offset; PM_NO_LOCK: it is not listed. */
static uint16_t find_listed(
    const struct pm_apply_scratch *x, const struct pm_record *r, bool block, uint64_t off)
{
    const struct pm_lock_pm *list = block ? r->block : r->lock;
    uint32_t count = block ? r->block_count : r->lock_count;

    if ((uint32_t)r->lock_count + r->block_count <= LINEAR_MAX) {
        for (uint32_t i = 0; i < count; i++) {
            if (le64_get(list[i].off) == off)
                return (uint16_t)i;
        }
        return PM_NO_LOCK;
    }
    for (uint32_t i = hash_at(off); x->hash[i] != 0; i = (i + 1) % PM_SCRATCH_HASH) {
        uint32_t n = x->hash[i] - 1u;

        if (block != (n >= PM_RECORD_LOCKS_MAX))
            continue;
        n -= block ? PM_RECORD_LOCKS_MAX : 0;
        if (le64_get(list[n].off) == off)
            return (uint16_t)n;
    }
    return PM_NO_LOCK;
}

static bool has_bucket(enum pm_op op)
{
    return op != PM_OP_UPDATE;
}
static bool has_item(enum pm_op op)
{
    return op != PM_OP_INSERT;
}
static bool has_block(enum pm_op op)
{
    return op == PM_OP_INSERT || op == PM_OP_MOVE;
}

/* Tie write `i` to the lock or block it names. */
static int tie_write(struct pm_apply_scratch *x, const struct pm_record *r, uint16_t i)
{
    const struct pm_record_write *w = &x->write[i];
    uint16_t n;

    if (w->op < PM_OP_UPDATE || w->op > PM_OP_DELETE)
        return pm_refuse(r, "write %u: a growth operation in a coordinator's record", i);
    x->next[i] = x->write_bucket[i] = x->write_item[i] = x->write_block[i] = PM_NO_LOCK;
    if (has_item(w->op)) {
        n = find_listed(x, r, false, w->item);
        if (n == PM_NO_LOCK || x->kind[n] != PM_KIND_ITEM)
            return pm_refuse(r, "write %u: its item %#" PRIx64 " is not locked", i, w->item);
        if (x->used[n])
            return pm_refuse(r, "two writes of the item at %#" PRIx64, w->item);
        x->used[n] = true;
        x->write_item[i] = n;
    }
    if (has_block(w->op)) {
        n = find_listed(x, r, true, w->block);
        if (n == PM_NO_LOCK)
            return pm_refuse(r, "write %u: its block %#" PRIx64 " is not listed", i, w->block);
        if (x->block_used[n])
            return pm_refuse(r, "two writes into the block at %#" PRIx64, w->block);
        x->block_used[n] = true;
        x->write_block[i] = n;
    }
    if (has_bucket(w->op)) {
        n = find_listed(x, r, false, w->bucket);
        if (n == PM_NO_LOCK || x->kind[n] != PM_KIND_BUCKET)
            return pm_refuse(r, "write %u: its bucket %#" PRIx64 " is not locked", i, w->bucket);
        if (x->used[n])
            x->next[x->tail[n]] = i;
        else
            x->head[n] = i;
        x->tail[n] = i;
        x->used[n] = true;
        x->write_bucket[i] = n;
    }
    return 0;
}

int pm_apply_prepare(struct pm_store *s, const struct pm_record *record)
{
    struct pm_apply_scratch *x = &s->scratch;
    uint32_t cursor = record->writes_off;

    if ((uint32_t)record->lock_count + record->block_count > LINEAR_MAX)
        index_lists(x, record);
    for (uint32_t i = 0; i < record->lock_count; i++) {
        uint64_t off = le64_get(record->lock[i].off);

        x->kind[i] = (uint8_t)pm_place_kind(&s->c, off);
        if (x->kind[i] == PM_KIND_NONE)
            return pm_refuse(record, "no lock word can be at %#" PRIx64, off);
        x->used[i] = false;
        x->head[i] = PM_NO_LOCK;
    }
    for (uint32_t i = 0; i < record->block_count; i++)
        x->block_used[i] = false;
    for (uint16_t i = 0; i < record->write_count; i++) {
        int rc;

        if (!pm_record_next_write(record, &cursor, &x->write[i]))
            return pm_refuse(record, "it has fewer writes than it says");
        rc = tie_write(x, record, i);
        if (rc != 0)
            return rc;
    }
    for (uint32_t i = 0; i < record->block_count; i++) {
        if (!x->block_used[i])
            return pm_refuse(
                record, "no write uses its block at %#" PRIx64, le64_get(record->block[i].off));
    }
    return 0;
}

/* ---- the checks ---- */

struct gate {
    struct pm_store *s;
    const struct pm_record *r;
    uint16_t slot;
    bool live;
};

/* A version copy: the base; in replay base + 1 as well. */
static bool version_fits(const struct gate *g, uint64_t meta, uint64_t base)
{
    uint64_t version = pm_word_version(meta);

    return version == base || (!g->live && version == base + 1);
}

static int check_lock(const struct gate *g, uint32_t i)
{
    uint64_t off = le64_get(g->r->lock[i].off), base = le64_get(g->r->lock[i].base);
    uint64_t word = pm_load64(g->s->pm, off), meta = pm_load64(g->s->pm, off + 8);

    if (base >= PM_VERSION_MAX)
        return pm_refuse(g->r, "the version of %#" PRIx64 " is at its end", off);
    if (g->live && word != pm_word_make_locked(g->s->pool->tag, g->slot, base))
        return pm_refuse(g->r,
            "slot %u does not hold the lock at %#" PRIx64 " (word %#" PRIx64 ", base %" PRIu64 ")",
            g->slot, off, word, base);
    if (pm_word_version(word) > base + 1 || !version_fits(g, meta, base))
        return pm_refuse(g->r,
            "%#" PRIx64 " is not at base %" PRIu64 " (word %#" PRIx64 ", copy %" PRIu64 ")", off,
            base, word, pm_word_version(meta));
    return 0;
}

static int check_block(const struct gate *g, uint32_t i)
{
    const struct pm_lock_pm *b = &g->r->block[i];
    uint64_t off = le64_get(b->off), base = le64_get(b->base), word, meta;
    unsigned kind;

    if (pm_place_kind(&g->s->c, off) != PM_KIND_ITEM)
        return pm_refuse(g->r, "there is no block at %#" PRIx64, off);
    if (base >= PM_VERSION_MAX)
        return pm_refuse(g->r, "the version of block %#" PRIx64 " is at its end", off);
    word = pm_load64(g->s->pm, off);
    meta = pm_load64(g->s->pm, off + 8);
    kind = pm_meta_kind(meta);
    if (g->live) {
        if (!pm_heap_is_granted(g->s, g->slot, off))
            return pm_refuse(g->r, "block %#" PRIx64 " was not granted to slot %u", off, g->slot);
        if (pm_word_version(word) != base || !pm_heap_block_is_free(g->s, off))
            return pm_refuse(g->r, "block %#" PRIx64 " is not free at base %" PRIu64, off, base);
        return 0;
    }
    if (pm_word_version(word) > base + 1 || !version_fits(g, meta, base))
        return pm_refuse(g->r, "block %#" PRIx64 " is not at base %" PRIu64, off, base);
    if (pm_word_version(meta) == base ? kind == PM_KIND_ITEM || kind == PM_KIND_BUCKET
                                      : kind != PM_KIND_ITEM)
        return pm_refuse(g->r, "block %#" PRIx64 " is in use", off);
    return 0;
}

/* The key at an item's place; the block is of the item's class, and large enough for the key. */
static bool key_is_there(const struct pm_store *s, uint64_t off, const struct pm_record_write *w)
{
    return memcmp((const uint8_t *)pm_at(s->pm, off) + PM_ITEM_HEADER_SIZE, w->key, w->key_size) ==
        0;
}

static unsigned kind_after(enum pm_op op)
{
    return op == PM_OP_UPDATE ? PM_KIND_ITEM : op == PM_OP_DELETE ? PM_KIND_DEAD : PM_KIND_MOVED;
}

/* The item that a write updates, moves or deletes. */
static int check_old_item(const struct gate *g, const struct pm_record_write *w, uint64_t base)
{
    struct pm_item_pm item;
    uint32_t class_ = pm_chunk_at(&g->s->c, w->item)->class_;
    uint64_t meta;
    unsigned kind;

    if (pm_item_size(w->key_size, w->op == PM_OP_UPDATE ? w->value_size : 0) >
        pm_class_size(class_))
        return pm_refuse(g->r, "a write does not fit into the item at %#" PRIx64, w->item);
    pm_read(g->s->pm, w->item, &item, sizeof(item));
    meta = le64_get(item.head.meta);
    kind = pm_meta_kind(meta);
    if (pm_meta_sub(meta) != class_ ||
        kind != (pm_word_version(meta) == base ? PM_KIND_ITEM : kind_after(w->op)))
        return pm_refuse(
            g->r, "there is no item at %#" PRIx64 " to write (kind %u)", w->item, kind);
    if (le32_get(item.head.index) != w->index)
        return pm_refuse(g->r, "the item at %#" PRIx64 " is of another index", w->item);
    /* In replay a DELETE or MOVE may have replaced hash and sizes; nothing replaces the key. */
    if ((g->live || w->op == PM_OP_UPDATE) &&
        (le64_get(item.hash) != w->hash || le16_get(item.key_size) != w->key_size))
        return pm_refuse(g->r, "the item at %#" PRIx64 " has another key", w->item);
    if (!key_is_there(g->s, w->item, w))
        return pm_refuse(g->r, "the item at %#" PRIx64 " has another key", w->item);
    return 0;
}

static int check_write(const struct gate *g, uint32_t i)
{
    const struct pm_apply_scratch *x = &g->s->scratch;
    const struct pm_record_write *w = &x->write[i];
    const struct pm_root *root = pm_root_by_id(&g->s->c, w->index);

    if (root == NULL)
        return pm_refuse(g->r, "write %u: no index %u", i, w->index);
    if (w->key_size == 0)
        return pm_refuse(g->r, "write %u: empty key", i);
    if (pm_index_hash(&root->index, w->key, w->key_size) != w->hash)
        return pm_refuse(g->r, "write %u: the hash is not the key's", i);
    if (has_block(w->op) &&
        (!pm_place_is_block(&g->s->c, w->block, w->class_) ||
            pm_item_size(w->key_size, w->value_size) > pm_class_size(w->class_)))
        return pm_refuse(g->r, "write %u: it does not fit into its block, class %u", i, w->class_);
    if (has_item(w->op))
        return check_old_item(g, w, le64_get(g->r->lock[x->write_item[i]].base));
    return 0;
}

/* ---- buckets ---- */

static bool slot_is_at(struct le64 slot, uint64_t off)
{
    return le64_get(slot) >> 21 == off / 64;
}

/* Is a slot's block removed, or added, by a write of the bucket's chain? */
static bool chain_touches(const struct pm_apply_scratch *x, uint16_t first, struct le64 slot)
{
    for (uint16_t i = first; i != PM_NO_LOCK; i = x->next[i]) {
        const struct pm_record_write *w = &x->write[i];

        if ((has_item(w->op) && slot_is_at(slot, w->item)) ||
            (has_block(w->op) && slot_is_at(slot, w->block)))
            return true;
    }
    return false;
}

/* Would an insert make a second item of one key? Its own, half applied, lies in its own block. */
static bool key_exists(const struct gate *g, uint16_t first, const struct pm_record_write *w,
    const struct pm_index *index)
{
    const struct pm_apply_scratch *x = &g->s->scratch;
    uint16_t fp = pm_fingerprint(w->hash, index->fingerprint_bits);

    for (uint32_t k = 0; k < index->bucket_slots; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(x->bucket.slot[k]));
        struct pm_item_pm item;

        if (x->bucket.slot[k].le == 0 || ref.fingerprint != fp ||
            !pm_place_is_block(&g->s->c, ref.off, ref.class_) ||
            chain_touches(x, first, x->bucket.slot[k]))
            continue;
        pm_read(g->s->pm, ref.off, &item, sizeof(item));
        if (le64_get(item.hash) == w->hash && le16_get(item.key_size) == w->key_size &&
            pm_item_size(w->key_size, 0) <= pm_class_size(ref.class_) &&
            key_is_there(g->s, ref.off, w))
            return true;
    }
    for (uint16_t i = first; i != PM_NO_LOCK; i = x->next[i]) {
        const struct pm_record_write *other = &x->write[i];

        if (other != w && other->op != PM_OP_DELETE && other->hash == w->hash &&
            other->key_size == w->key_size && memcmp(other->key, w->key, w->key_size) == 0)
            return true;
    }
    return false;
}

/* Header and slots of a bucket as it lies in the scratch; *ret_view: what its header says. */
static int check_bucket_body(const struct gate *g, uint32_t n, struct pm_bucket_view *ret_view)
{
    struct pm_bucket_pm *b = &g->s->scratch.bucket;
    uint64_t off = le64_get(g->r->lock[n].off), base = le64_get(g->r->lock[n].base);
    uint32_t seed = g->s->pool->crc_seed;
    uint64_t meta = le64_get(b->head.meta);
    const struct pm_root *root = pm_root_by_id(&g->s->c, le32_get(b->head.index));
    bool good;

    pm_bucket_look(b, off, seed, g->s->pool->tag, ret_view);
    good = ret_view->body_good;
    if (!good && !g->live) {
        /* Torn: what cannot tear must make sense. Untouched but for its version: the crc tells. */
        good = pm_meta_kind(meta) == PM_KIND_BUCKET && ret_view->depth <= PM_DEPTH_MAX &&
            ret_view->number >> ret_view->depth == 0;
        if (good && !g->s->scratch.used[n]) {
            uint32_t crc = le32_get(b->head.crc);

            b->head.meta = le64_make(pm_meta_make(base, PM_KIND_BUCKET, ret_view->depth));
            good = pm_object_crc(b, sizeof(*b), off, seed) == crc;
            b->head.meta = le64_make(pm_meta_make(base + 1, PM_KIND_BUCKET, ret_view->depth));
            good = good || pm_object_crc(b, sizeof(*b), off, seed) == crc;
        }
    }
    if (!good || root == NULL || ret_view->index != pm_chunk_at(&g->s->c, off)->index ||
        ret_view->number != pm_bucket_number_at(&g->s->c, off))
        return cn_fail(CAIRN_E_CORRUPT_BUCKET, "the bucket at %#" PRIx64 " is corrupt", off);
    /* Under a good crc they are what this node stored. */
    for (uint32_t k = 0; !ret_view->body_good && k < PM_BUCKET_SLOTS; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(b->slot[k]));

        if (b->slot[k].le != 0 &&
            (k >= root->index.bucket_slots || !pm_place_is_block(&g->s->c, ref.off, ref.class_)))
            return cn_fail(
                CAIRN_E_CORRUPT_BUCKET, "the bucket at %#" PRIx64 ": slot %u is corrupt", off, k);
    }
    return 0;
}

static int check_bucket_write(
    const struct gate *g, uint16_t first, uint16_t i, const struct pm_bucket_view *view)
{
    const struct pm_apply_scratch *x = &g->s->scratch;
    const struct pm_record_write *w = &x->write[i];
    const struct pm_index *index = &pm_root_by_id(&g->s->c, view->index)->index;
    bool item_seen = false, block_seen = false;

    if (w->index != view->index || pm_hash_number(w->hash, view->depth) != view->number)
        return pm_refuse(
            g->r, "write %u: the bucket at %#" PRIx64 " does not cover its key", i, w->bucket);
    if (w->op == PM_OP_INSERT && key_exists(g, first, w, index))
        return pm_refuse(g->r, "write %u: it inserts a key that exists", i);
    if (!g->live)
        return 0;
    for (uint32_t k = 0; k < index->bucket_slots; k++) {
        item_seen = item_seen || (has_item(w->op) && slot_is_at(x->bucket.slot[k], w->item));
        block_seen = block_seen || (has_block(w->op) && slot_is_at(x->bucket.slot[k], w->block));
    }
    if (has_item(w->op) && !item_seen)
        return pm_refuse(
            g->r, "write %u: the bucket at %#" PRIx64 " does not hold its item", i, w->bucket);
    if (block_seen)
        return pm_refuse(
            g->r, "write %u: its block %#" PRIx64 " is in the bucket already", i, w->block);
    return 0;
}

static int check_bucket(const struct gate *g, uint32_t n)
{
    struct pm_apply_scratch *x = &g->s->scratch;
    struct pm_bucket_view view;
    uint16_t first = x->head[n];
    uint32_t used = 0, added = 0;
    int rc;

    pm_read(g->s->pm, le64_get(g->r->lock[n].off), &x->bucket, sizeof(x->bucket));
    rc = check_bucket_body(g, n, &view);
    for (uint16_t i = first; rc == 0 && i != PM_NO_LOCK; i = x->next[i]) {
        rc = check_bucket_write(g, first, i, &view);
        added += has_block(x->write[i].op);
    }
    if (rc != 0 || added == 0)
        return rc;
    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++)
        used += x->bucket.slot[k].le != 0 && !chain_touches(x, first, x->bucket.slot[k]);
    if (used + added > pm_root_by_id(&g->s->c, view.index)->index.bucket_slots)
        return pm_refuse(g->r, "the bucket at %#" PRIx64 " has no room: %u used, %u more",
            le64_get(g->r->lock[n].off), used, added);
    return 0;
}

/* An item that is locked and not written: its body must be whole, for its version and crc are
 * renewed. */
static int check_untouched_item(const struct gate *g, uint32_t n)
{
    uint64_t off = le64_get(g->r->lock[n].off), base = le64_get(g->r->lock[n].base);
    struct pm_item_pm *item = (void *)g->s->scratch.payload;
    uint32_t class_ = pm_chunk_at(&g->s->c, off)->class_, size, crc, seed = g->s->pool->crc_seed;
    uint64_t meta;
    bool good;

    pm_read(g->s->pm, off, item, sizeof(*item));
    meta = le64_get(item->head.meta);
    size = pm_item_size(le16_get(item->key_size), le32_get(item->value_size));
    if (pm_meta_kind(meta) != PM_KIND_ITEM || pm_meta_sub(meta) != class_)
        return pm_refuse(g->r, "it locks %#" PRIx64 ", which is no item", off);
    if (size > pm_class_size(class_))
        return cn_fail(CAIRN_E_CORRUPT_ITEM, "the item at %#" PRIx64 " is corrupt", off);
    pm_read(g->s->pm, off, item, cn_align_up(size, 8));
    crc = le32_get(item->head.crc);
    item->head.meta = le64_make(pm_meta_make(base, PM_KIND_ITEM, class_));
    good = pm_object_crc(item, size, off, seed) == crc;
    item->head.meta = le64_make(pm_meta_make(base + 1, PM_KIND_ITEM, class_));
    good = good || (!g->live && pm_object_crc(item, size, off, seed) == crc);
    return good ? 0 : cn_fail(CAIRN_E_CORRUPT_ITEM, "the item at %#" PRIx64 " is corrupt", off);
}

int pm_apply_check(
    struct pm_store *store, const struct pm_record *record, uint16_t slot, enum pm_apply_mode mode)
{
    struct gate g = {.s = store, .r = record, .slot = slot, .live = mode == PM_APPLY_LIVE};
    int rc;

    store->prepared = NULL;
    if (slot == 0)
        return pm_growth_check(store, record);
    if (record->type != PM_RECORD_TX)
        return pm_refuse(
            record, "a record of type %d in the ring of slot %u", (int)record->type, slot);
    rc = pm_apply_prepare(store, record);
    for (uint32_t i = 0; rc == 0 && i < record->lock_count; i++)
        rc = check_lock(&g, i);
    for (uint32_t i = 0; rc == 0 && i < record->block_count; i++)
        rc = check_block(&g, i);
    for (uint32_t i = 0; rc == 0 && i < record->write_count; i++)
        rc = check_write(&g, i);
    for (uint32_t i = 0; rc == 0 && i < record->lock_count; i++) {
        if (store->scratch.kind[i] == PM_KIND_BUCKET)
            rc = check_bucket(&g, i);
        else if (!store->scratch.used[i])
            rc = check_untouched_item(&g, i);
    }
    if (rc == 0)
        store->prepared = record;
    return rc;
}
