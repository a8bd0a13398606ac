/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_apply_body.c: steps 1 to 6 of applying a record (pmem/STORE.md), and what is done
 * instead to one that is not decided (relock) or aborted (unlock).
 *
 * The same code applies and replays. A body is a function of the record and of what never changes
 * under it, so storing it again, over any mix of old and new 8-byte units, ends in the same bytes;
 * slots of a bucket are a set keyed by block. Every line of an object touched, or found right
 * already, is flushed: after a process death what looks right may be only in cache (T5).
 */
#include "include/internal/cn_mutant.h"
#include "pmem/pm_store_internal.h"

#define LONG_PAYLOAD 4096u

/* ---- step 1: items ---- */

static void store_word_pair(
    const struct pm *pm, uint64_t off, const struct pm_item_pm *item, size_t from, size_t size)
{
    pm_copy(pm, off + from, (const uint8_t *)item + from, size);
}

/* An item's bytes from `from` on, then `size` bytes of its header behind the word. A short one is
 * written back as a whole, for its lines are few and shared. */
static void store_payload(const struct pm *pm, uint64_t off, uint64_t from, const void *payload,
    uint64_t payload_size, const struct pm_item_pm *header, size_t size)
{
    if (payload_size >= LONG_PAYLOAD) {
        pm_copy_flush(pm, off + from, payload, payload_size);
        store_word_pair(pm, off, header, 8, size);
        pm_flush(pm, off, from);
        return;
    }
    pm_copy(pm, off + from, payload, payload_size);
    store_word_pair(pm, off, header, 8, size);
    pm_flush(pm, off, from + payload_size);
}

static void make_header(struct pm_item_pm *ret, const struct pm_record_write *w, uint64_t version,
    unsigned kind, uint32_t class_)
{
    memset(ret, 0, sizeof(*ret));
    ret->head.meta = le64_make(pm_meta_make(version, kind, class_));
    ret->head.index = le32_make(w->index);
    ret->hash = le64_make(w->hash);
}

/* crc of an item whose key and value lie in the record just as they will in the block. */
static void finish_item(
    struct pm_store *s, struct pm_item_pm *header, const struct pm_record_write *w, uint64_t off)
{
    uint32_t size = pm_item_size(w->key_size, w->value_size);
    uint32_t crc;

    header->value_size = le32_make(w->value_size);
    header->key_size = le16_make(w->key_size);
    crc = pm_object_crc(header, PM_ITEM_HEADER_SIZE, off, s->pool->crc_seed);
    crc = cn_crc32c(crc, w->key, size - PM_ITEM_HEADER_SIZE);
    header->head.crc = le32_make(crc);
}

static void store_new_item(struct pm_store *s, const struct pm_record_write *w, uint64_t base)
{
    struct pm_item_pm header;
    uint64_t payload = cn_align_up(w->key_size, 8) + cn_align_up(w->value_size, 8);

    make_header(&header, w, base + 1, PM_KIND_ITEM, w->class_);
    finish_item(s, &header, w, w->block);
    store_payload(s->pm, w->block, PM_ITEM_HEADER_SIZE, w->key, payload, &header,
        sizeof(header) - 8);
}

/* In place: hash and key stay, for splits read the hash without the item's lock. */
static void store_update(struct pm_store *s, const struct pm_record_write *w, uint64_t base)
{
    struct pm_item_pm header;
    uint64_t value_off = w->item + PM_ITEM_HEADER_SIZE + cn_align_up(w->key_size, 8);
    uint64_t value_room = cn_align_up(w->value_size, 8);

    make_header(&header, w, base + 1, PM_KIND_ITEM, pm_chunk_at(&s->c, w->item)->class_);
    finish_item(s, &header, w, w->item);
    /* Of the header: meta, crc and index, sizes. */
    store_payload(s->pm, w->item, value_off - w->item, w->value, value_room, &header, 24);
}

/* DEAD, or MOVED with the new place. */
static void store_old_header(struct pm_store *s, const struct pm_record_write *w, uint64_t base)
{
    struct pm_item_pm header;
    bool moved = w->op == PM_OP_MOVE;

    make_header(&header, w, base + 1, moved ? PM_KIND_MOVED : PM_KIND_DEAD,
        pm_chunk_at(&s->c, w->item)->class_);
    if (moved) {
        const struct pm_root *root = pm_root_by_id(&s->c, w->index);

        header.hash = le64_make(pm_slot_ref_pack(
            w->block, w->class_, pm_fingerprint(w->hash, root->index.fingerprint_bits)));
    }
    header.head.crc = le32_make(pm_object_crc(&header, sizeof(header), w->item, s->pool->crc_seed));
    store_word_pair(s->pm, w->item, &header, 8, sizeof(header) - 8);
    pm_flush(s->pm, w->item, sizeof(header));
}

static void store_item(struct pm_store *s, const struct pm_record *r, uint32_t i)
{
    const struct pm_apply_scratch *x = &s->scratch;
    const struct pm_record_write *w = &x->write[i];

    if (x->write_block[i] != PM_NO_LOCK)
        store_new_item(s, w, le64_get(r->block[x->write_block[i]].base));
    if (w->op == PM_OP_UPDATE)
        store_update(s, w, le64_get(r->lock[x->write_item[i]].base));
    else if (x->write_item[i] != PM_NO_LOCK)
        store_old_header(s, w, le64_get(r->lock[x->write_item[i]].base));
}

/* ---- step 2: buckets ---- */

void pm_bucket_finish(
    struct pm_bucket_pm *bucket, uint64_t off, uint64_t version, uint32_t crc_seed)
{
    unsigned depth = pm_meta_sub(le64_get(bucket->head.meta));
    uint32_t count = 0;

    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++)
        count += bucket->slot[k].le != 0;
    bucket->count = le16_make((uint16_t)count);
    bucket->head.meta = le64_make(pm_meta_make(version, PM_KIND_BUCKET, depth));
    bucket->head.crc = le32_make(pm_object_crc(bucket, sizeof(*bucket), off, crc_seed));
}

/* Position of the slot that points to a block (0: of an empty one); PM_BUCKET_SLOTS: none. */
static uint32_t find_slot(const struct pm_bucket_pm *b, uint64_t off, uint32_t slots)
{
    for (uint32_t k = 0; k < slots; k++) {
        if (le64_get(b->slot[k]) >> 21 == off / 64)
            return k;
    }
    return PM_BUCKET_SLOTS;
}

/* Change the set of slots; *ret_changed, *ret_flush: by slot. */
static void change_slots(
    struct pm_store *s, uint16_t first, uint64_t *ret_changed, uint64_t *ret_flush)
{
    struct pm_apply_scratch *x = &s->scratch;
    struct pm_bucket_pm *b = &x->bucket;
    const struct pm_root *root = pm_root_by_id(&s->c, le32_get(b->head.index));
    uint64_t changed = 0, flush = 0;

    for (uint16_t i = first; i != PM_NO_LOCK; i = x->next[i]) {
        uint32_t k;

        if (x->write_item[i] == PM_NO_LOCK)
            continue;
        k = find_slot(b, x->write[i].item, PM_BUCKET_SLOTS);
        if (k == PM_BUCKET_SLOTS) {
            flush = UINT64_MAX; /* gone already, and nobody knows from where: T5 */
            continue;
        }
        b->slot[k] = le64_make(0);
        changed |= UINT64_C(1) << k;
    }
    for (uint16_t i = first; i != PM_NO_LOCK; i = x->next[i]) {
        const struct pm_record_write *w = &x->write[i];
        uint32_t k;

        if (x->write_block[i] == PM_NO_LOCK)
            continue;
        k = find_slot(b, w->block, PM_BUCKET_SLOTS);
        if (k == PM_BUCKET_SLOTS) {
            k = find_slot(b, 0, root->index.bucket_slots);
            CAIRN_ASSERT(k < root->index.bucket_slots); /* the check counted */
            b->slot[k] = le64_make(pm_slot_ref_pack(
                w->block, w->class_, pm_fingerprint(w->hash, root->index.fingerprint_bits)));
            changed |= UINT64_C(1) << k;
        }
        flush |= UINT64_C(1) << k;
    }
    *ret_changed = changed;
    *ret_flush = flush | changed;
}

static void store_bucket(struct pm_store *s, const struct pm_record *r, uint32_t n)
{
    struct pm_bucket_pm *b = &s->scratch.bucket;
    uint64_t off = le64_get(r->lock[n].off), changed, flush;

    pm_read(s->pm, off, b, sizeof(*b));
    change_slots(s, s->scratch.head[n], &changed, &flush);
    pm_bucket_finish(b, off, le64_get(r->lock[n].base) + 1, s->pool->crc_seed);
    for (uint64_t left = changed; left != 0; left &= left - 1) {
        unsigned k = (unsigned)__builtin_ctzll(left);

        pm_store64(s->pm, off + offsetof(struct pm_bucket_pm, slot) + 8 * k, le64_get(b->slot[k]));
    }
    pm_copy(s->pm, off + 8, (const uint8_t *)b + 8, 32); /* meta, crc and index, number, count */
    pm_flush(s->pm, off, PM_LINE);
    for (unsigned line = 0; line < PM_BUCKET_SLOTS / 8; line++) {
        if ((flush >> 8 * line & 0xff) != 0)
            pm_flush(s->pm, off + PM_LINE * (1 + line), PM_LINE);
    }
}

/* A locked item that nobody writes: it is released at base + 1 too, so its copy says so. */
static void store_untouched_item(struct pm_store *s, uint64_t off, uint64_t version)
{
    struct pm_item_pm *item = (void *)s->scratch.payload;
    uint32_t class_ = pm_chunk_at(&s->c, off)->class_, size;

    pm_read(s->pm, off, item, sizeof(*item));
    size = pm_item_size(le16_get(item->key_size), le32_get(item->value_size));
    CAIRN_ASSERT(size <= pm_class_size(class_)); /* the check looked */
    pm_read(s->pm, off, item, cn_align_up(size, 8));
    item->head.meta = le64_make(pm_meta_make(version, PM_KIND_ITEM, class_));
    item->head.crc = le32_make(pm_object_crc(item, size, off, s->pool->crc_seed));
    store_word_pair(s->pm, off, item, 8, 16);
    pm_flush(s->pm, off, PM_LINE);
}

void pm_apply_body(struct pm_store *store, const struct pm_record *record)
{
    struct pm_apply_scratch *x = &store->scratch;
    int rc;

    if (record->type == PM_RECORD_GROWTH) {
        pm_growth_body(store, record);
        return;
    }
    /* pm_apply_check() passed on the same private copy; mostly just now. */
    rc = store->prepared == record ? 0 : pm_apply_prepare(store, record);
    CAIRN_ASSERT(rc == 0);
    store->prepared = NULL;
    for (uint32_t i = 0; i < record->write_count; i++)
        store_item(store, record, i);
    for (uint32_t i = 0; i < record->lock_count; i++) {
        if (x->kind[i] == PM_KIND_BUCKET)
            store_bucket(store, record, i);
        else if (!x->used[i])
            store_untouched_item(
                store, le64_get(record->lock[i].off), le64_get(record->lock[i].base) + 1);
    }
}

/* ---- step 5: words ---- */

void pm_release_word(struct pm_store *s, uint64_t off, uint64_t version)
{
    uint64_t word = pm_load64(s->pm, off);

    if (CN_MUTANT(p_flush_changed_only) && pm_word_version(word) >= version)
        return;
    /* Never ahead of the copy: a record found after a restart may have been replaced by its peer.
     */
    if (pm_word_version(word) < version &&
        (pm_word_version(pm_load64(s->pm, off + 8)) >= version || CN_MUTANT(p_release_ahead)))
        pm_store64(s->pm, off, version);
    pm_flush(s->pm, off, 8);
}

void pm_apply_release(struct pm_store *store, const struct pm_record *record)
{
    const struct pm_lock_pm *list[2] = {record->lock, record->block};
    const uint32_t count[2] = {record->lock_count, record->block_count};

    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < count[k]; i++) {
            uint64_t off = le64_get(list[k][i].off), base = le64_get(list[k][i].base);

            if (pm_place_kind(&store->c, off) != PM_KIND_NONE && base < PM_VERSION_MAX)
                pm_release_word(store, off, base + 1);
        }
    }
    if (record->type == PM_RECORD_GROWTH)
        pm_growth_release(store, record);
}

/* ---- step 6 ---- */

void pm_apply_done(struct pm_store *store, const struct pm_record *record, uint16_t slot)
{
    uint32_t cursor = record->writes_off;
    struct pm_record_write w;

    (void)slot;
    if (record->type != PM_RECORD_TX)
        return;
    for (uint32_t i = 0; i < record->block_count; i++)
        pm_heap_consume(store, le64_get(record->block[i].off));
    while (pm_record_next_write(record, &cursor, &w)) {
        struct pm_root *root = pm_root_by_id(&store->c, w.index);

        if (root == NULL || w.op == PM_OP_UPDATE)
            continue;
        if (w.op == PM_OP_INSERT)
            root->index.items++;
        else if (w.op == PM_OP_DELETE && root->index.items > 0)
            root->index.items--;
        if (CN_MUTANT(p_version_restarts) && (w.op == PM_OP_MOVE || w.op == PM_OP_DELETE)) {
            pm_zero(store->pm, w.item, PM_ITEM_HEADER_SIZE);
            pm_flush(store->pm, w.item, PM_ITEM_HEADER_SIZE);
        }
        if (w.op == PM_OP_MOVE || w.op == PM_OP_DELETE)
            pm_heap_free(store, w.item);
        if (w.op == PM_OP_INSERT && pm_place_kind(&store->c, w.bucket) == PM_KIND_BUCKET) {
            const struct pm_bucket_pm *b = pm_at(store->pm, w.bucket);

            pm_growth_note(store, root, w.bucket, le16_get(b->count));
        }
    }
}

/* ---- undecided and aborted records ---- */

void pm_apply_unlock(struct pm_store *store, const struct pm_record *record, uint16_t slot)
{
    uint16_t tag = store->pool->tag;

    for (uint32_t i = 0; i < record->lock_count; i++) {
        uint64_t off = le64_get(record->lock[i].off), base = le64_get(record->lock[i].base), word,
                 old;

        if (pm_place_kind(&store->c, off) == PM_KIND_NONE)
            continue;
        word = pm_load64(store->pm, off);
        if (base <= PM_VERSION_MAX && word == pm_word_make_locked(tag, slot, base)) {
            pm_store64(store->pm, off, base);
        } else if (pm_word_locked_bit(word) && pm_word_tag(word) != tag &&
            pm_word_version(word) == base && store->cas.cas != NULL) {
            /* Counts as unlocked, so a coordinator may take it at this moment: not a plain store.
             * If it fails, the scrub clears it. */
            (void)store->cas.cas(store->cas.arg, off, word, base, &old);
        }
        pm_flush(store->pm, off, 8);
    }
    for (uint32_t i = 0; i < record->block_count; i++)
        pm_heap_return_of(store, slot, le64_get(record->block[i].off));
}

int pm_apply_relock(struct pm_store *store, const struct pm_record *record, uint16_t slot)
{
    uint16_t tag = store->pool->tag;

    for (uint32_t i = 0; i < record->lock_count; i++) {
        uint64_t off = le64_get(record->lock[i].off), base = le64_get(record->lock[i].base), word;

        if (pm_place_kind(&store->c, off) == PM_KIND_NONE)
            return pm_refuse(record, "no lock word can be at %#" PRIx64, off);
        word = pm_load64(store->pm, off);
        if (base > PM_VERSION_MAX || pm_word_version(word) != base)
            return cn_fail(CAIRN_E_CORRUPT_ITEM,
                "the word at %#" PRIx64 " is at version %" PRIu64
                ", an undecided record locks it at %" PRIu64,
                off, pm_word_version(word), base);
        if (pm_word_is_locked(word, tag) && word != pm_word_make_locked(tag, slot, base))
            return cn_fail(CAIRN_E_CORRUPT_ITEM,
                "the word at %#" PRIx64 " is locked by two undecided "
                "records, of slots %u and %u",
                off, pm_word_slot(word), slot);
    }
    for (uint32_t i = 0; i < record->lock_count; i++) {
        uint64_t off = le64_get(record->lock[i].off);

        pm_store64(store->pm, off, pm_word_make_locked(tag, slot, le64_get(record->lock[i].base)));
        pm_flush(store->pm, off, 8);
    }
    for (uint32_t i = 0; i < record->block_count; i++)
        pm_heap_set_aside(store, le64_get(record->block[i].off));
    return 0;
}
