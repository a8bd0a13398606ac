/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_fsck.c: checks every invariant of the store on a pool at rest (I1 to I4, I6, I7).
 * Reads only, takes its own memory: a bit per block (a slot points to it).
 *
 * 1 descriptors, roots, maps   2 buckets   3 slots and the items they point to   4 blocks   5 words
 * 6 undecided records. Each inconsistency is one report with its pool offset.
 *
 * The canonical hashes are sums, so that two stores with the same contents compare equal whatever
 * the order of slots and the choice of blocks.
 */
#include "pmem/pm_store_internal.h"

#include <errno.h>
#include <stdarg.h>

#define WHOLE (UINT64_C(1) << PM_DEPTH_MAX) /* all hashes, as a sum of shares */

struct named {          /* by an undecided record */
    uint64_t off, base; /* off 0: empty */
    uint16_t slot;
    bool is_block;
    bool growth;
};

struct fsck {
    const struct pm_pool *pool;
    const struct pm_fsck_options *o;
    struct pm_fsck_report *ret;
    struct pm_chunks c;
    uint64_t *first; /* per chunk: number of its first block in the bit set */
    uint64_t *pointed;
    uint64_t *share; /* per index: covered by its buckets */
    struct named *named;
    uint32_t named_cap;
    uint8_t *buf; /* an item */
};

static void say(struct fsck *f, enum pm_fsck_severity severity, const char *format, ...)
    CN_PRINTF(3, 4);

static void say(struct fsck *f, enum pm_fsck_severity severity, const char *format, ...)
{
    char text[256];
    va_list args;

    if (severity == PM_FSCK_DAMAGE)
        f->ret->damages++;
    if (f->o->report == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    f->o->report(f->o->arg, severity, text);
}
#define DAMAGE(f, ...) say(f, PM_FSCK_DAMAGE, __VA_ARGS__)

/* ---- bits ---- */

static bool bit_get(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> i % 64 & 1) != 0;
}
static void bit_set(uint64_t *bits, uint64_t i)
{
    bits[i / 64] |= UINT64_C(1) << i % 64;
}

static uint64_t block_bit(const struct fsck *f, uint64_t off)
{
    return f->first[off >> f->c.shift] + pm_block_number(&f->c, off);
}

/* ---- undecided records ---- */

static struct named *named_at(const struct fsck *f, uint64_t off)
{
    uint32_t i = (uint32_t)cn_mix64(off) & (f->named_cap - 1);

    while (f->named[i].off != 0 && f->named[i].off != off)
        i = (i + 1) & (f->named_cap - 1);
    return &f->named[i];
}

static const struct named *find_named(const struct fsck *f, uint64_t off)
{
    const struct named *n = named_at(f, off);

    return n->off == 0 ? NULL : n;
}

static void name(struct fsck *f, const struct pm_record *r, uint16_t slot,
    const struct pm_lock_pm *l, bool is_block)
{
    uint64_t off = le64_get(l->off);
    enum pm_kind kind = pm_place_kind(&f->c, off);
    struct named *n;

    if (kind == PM_KIND_NONE || (is_block && kind != PM_KIND_ITEM)) {
        DAMAGE(f, "record %" PRIu64 " of slot %u names %#" PRIx64 ", where no %s can be", r->seq,
            slot, off, is_block ? "block" : "lock word");
        return;
    }
    n = named_at(f, off);
    if (n->off != 0) {
        DAMAGE(f, "%#" PRIx64 " is named by two undecided records, of slots %u and %u", off,
            n->slot, slot);
        return;
    }
    *n = (struct named){.off = off,
        .base = le64_get(l->base),
        .slot = slot,
        .is_block = is_block,
        .growth = r->type == PM_RECORD_GROWTH};
}

static int load_records(struct fsck *f)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < f->o->unresolved_count; i++)
        count += f->o->unresolved[i]->lock_count + f->o->unresolved[i]->block_count;
    f->named_cap = 8;
    while (f->named_cap < 2 * count)
        f->named_cap *= 2;
    f->named = calloc(f->named_cap, sizeof(*f->named));
    if (f->named == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->o->unresolved_count; i++) {
        const struct pm_record *r = f->o->unresolved[i];

        for (uint32_t k = 0; k < r->lock_count; k++)
            name(f, r, f->o->unresolved_slot[i], &r->lock[k], false);
        for (uint32_t k = 0; k < r->block_count; k++)
            name(f, r, f->o->unresolved_slot[i], &r->block[k], true);
    }
    return 0;
}

/* ---- words ---- */

/* The word of an object, against its copy. */
static void check_word(struct fsck *f, uint64_t off, uint64_t word, uint64_t meta)
{
    const struct named *n = find_named(f, off);
    uint64_t version = pm_word_version(word);

    if (pm_word_locked_bit(word) && pm_word_is_locked(word, f->pool->tag)) {
        f->ret->words_locked++;
        if (n == NULL)
            say(f, PM_FSCK_NOTE, "the word at %#" PRIx64 " is locked by slot %u, without a record",
                off, pm_word_slot(word));
        else if (pm_word_slot(word) != n->slot)
            DAMAGE(f, "the word at %#" PRIx64 " is locked by slot %u, a record of slot %u holds it",
                off, pm_word_slot(word), n->slot);
    } else if (pm_word_locked_bit(word)) {
        f->ret->words_old_tag++;
    } else if (word != version) {
        DAMAGE(f, "the word at %#" PRIx64 " is unlocked and has an owner: %#" PRIx64, off, word);
    }
    if (n != NULL && version != n->base && version != n->base + 1)
        DAMAGE(f,
            "the word at %#" PRIx64 " is at version %" PRIu64 ", a record names it at %" PRIu64,
            off, version, n->base);
    if (version != pm_word_version(meta) && n == NULL)
        DAMAGE(f, "the word at %#" PRIx64 " is at version %" PRIu64 ", its object at %" PRIu64, off,
            version, pm_word_version(meta));
}

/* ---- 1: descriptors, roots, maps ---- */

static void check_root_place(struct fsck *f, uint64_t off)
{
    uint8_t bytes[PM_INDEX_MAP_OFF];
    struct pm_index index;
    const struct pm_root *root;

    pm_read(&f->pool->pm, off, bytes, sizeof(bytes));
    if (((const struct pm_index_pm *)(const void *)bytes)->magic.le == 0) {
        for (uint32_t i = 0; i < f->c.root_size; i += 8) {
            if (pm_load64(&f->pool->pm, off + i) != 0) {
                DAMAGE(f, "index root at %#" PRIx64 ": no magic, but not empty", off);
                return;
            }
        }
        return;
    }
    if (pm_index_look(bytes, off, f->pool->crc_seed, &index) != 0) {
        DAMAGE(f, "%s", cairn_last_error());
        return;
    }
    root = pm_root_by_id(&f->c, index.index);
    if (root == NULL || root->index.off != off) {
        DAMAGE(f, "index root at %#" PRIx64 ": id %u is impossible or taken", off, index.index);
        return;
    }
    for (uint32_t id = 1; id < index.index; id++) {
        const struct pm_root *other = pm_root_by_id(&f->c, id);

        if (other != NULL && other->index.table == index.table && other->index.shard == index.shard)
            DAMAGE(f, "indexes %u and %u are both of table %u shard %u", id, index.index,
                index.table, index.shard);
    }
    for (uint32_t i = 0; i < index.map_max; i++) {
        uint64_t entry = pm_load64(&f->pool->pm, off + PM_INDEX_MAP_OFF + 8 * (uint64_t)i);

        if (entry != (root->map[i] == PM_NONE ? 0 : pm_chunk_off(&f->c, root->map[i])))
            DAMAGE(f, "index %u: map entry %u is %#" PRIx64 ", the descriptors differ", index.index,
                i, entry);
    }
}

static void check_chunks(struct fsck *f)
{
    for (uint32_t n = 0; n < f->c.count; n++) {
        const struct pm_chunk *chunk = &f->c.chunk[n];
        const struct pm_root *root = pm_root_by_id(&f->c, chunk->index);

        f->ret->chunks += chunk->kind != PM_CHUNK_OUTSIDE;
        if (chunk->kind == PM_CHUNK_BAD)
            DAMAGE(f, "the descriptor of chunk %u (at %#" PRIx64 ") is corrupt", n,
                pm_chunk_desc_off(&f->c, n));
        if (chunk->kind == PM_CHUNK_BUCKETS &&
            (root == NULL || chunk->seq >= root->index.map_max || root->map[chunk->seq] != n))
            DAMAGE(f, "chunk %u: buckets of no index, or of a taken place (index %u, %u)", n,
                chunk->index, chunk->seq);
        for (uint32_t i = 0; chunk->kind == PM_CHUNK_ROOTS && i < f->c.roots_per_chunk; i++)
            check_root_place(f, pm_chunk_off(&f->c, n) + (uint64_t)i * f->c.root_size);
    }
}

/* ---- 3: slots ---- */

struct seen_item {
    uint64_t hash, off;
    uint32_t key_size;
};

static uint64_t content_hash(const struct pm_item_view *v, uint64_t a, uint64_t b)
{
    static const uint8_t key1[16] = {1}, key2[16] = {2};
    uint64_t h = cn_mix64(cn_siphash(key1, v->key, v->key_size) ^ a);

    h = cn_mix64(h + b);
    return cn_mix64(h ^ cn_siphash(key2, v->value, v->value_size));
}

static bool same_key(const struct fsck *f, const struct seen_item *a, const struct seen_item *b)
{
    return a->hash == b->hash && a->key_size == b->key_size &&
        memcmp((const uint8_t *)pm_at(&f->pool->pm, a->off) + PM_ITEM_HEADER_SIZE,
            (const uint8_t *)pm_at(&f->pool->pm, b->off) + PM_ITEM_HEADER_SIZE, a->key_size) == 0;
}

/* Look at the block as if it were unlocked; true: a whole item. */
static bool look_item(struct fsck *f, uint64_t off, struct pm_item_view *view)
{
    uint32_t size = pm_class_size(pm_chunk_at(&f->c, off)->class_);
    struct le64 word;

    pm_read(&f->pool->pm, off, f->buf, size);
    memcpy(&word, f->buf, sizeof(word));
    word = le64_make(pm_word_version(le64_get(word)));
    memcpy(f->buf, &word, sizeof(word));
    pm_item_look(f->buf, size, off, f->pool->crc_seed, f->pool->tag, view);
    return view->seen == PM_SEEN_OK && view->class_ == pm_chunk_at(&f->c, off)->class_;
}

static void check_slot(struct fsck *f, const struct pm_root *root, const struct pm_bucket_view *b,
    uint64_t bucket, struct pm_slot_ref ref, struct seen_item *ret)
{
    struct pm_item_view view;

    ret->off = 0;
    if (!pm_place_is_block(&f->c, ref.off, ref.class_)) {
        DAMAGE(f, "the bucket at %#" PRIx64 " points to %#" PRIx64 ", no block of class %u", bucket,
            ref.off, ref.class_);
        return;
    }
    if (bit_get(f->pointed, block_bit(f, ref.off))) {
        DAMAGE(f, "two slots point to the block at %#" PRIx64 ", one in the bucket at %#" PRIx64,
            ref.off, bucket);
        return;
    }
    bit_set(f->pointed, block_bit(f, ref.off));
    if (!look_item(f, ref.off, &view)) {
        DAMAGE(f, "the bucket at %#" PRIx64 " points to %#" PRIx64 ", which is no whole item",
            bucket, ref.off);
        return;
    }
    if (view.index != b->index || pm_hash_number(view.hash, b->depth) != b->number ||
        pm_fingerprint(view.hash, root->index.fingerprint_bits) != ref.fingerprint ||
        pm_index_hash(&root->index, view.key, view.key_size) != view.hash)
        DAMAGE(f, "the item at %#" PRIx64 " does not belong into the bucket at %#" PRIx64, ref.off,
            bucket);
    *ret = (struct seen_item){.hash = view.hash, .off = ref.off, .key_size = view.key_size};
    f->ret->items++;
    f->ret->canonical += content_hash(&view, view.index, view.version);
    f->ret->canonical_values += content_hash(&view, root->index.table, root->index.shard);
    if (f->o->item != NULL)
        f->o->item(f->o->arg, &root->index, &view);
}

static void check_slots(
    struct fsck *f, const struct pm_root *root, const struct pm_bucket_view *b, uint64_t bucket)
{
    struct seen_item seen[PM_BUCKET_SLOTS];
    uint32_t used = 0;

    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++) {
        uint64_t packed = le64_get(b->slot[k]);

        if (packed == 0)
            continue;
        if (k >= root->index.bucket_slots)
            DAMAGE(f, "the bucket at %#" PRIx64 " uses slot %u", bucket, k);
        check_slot(f, root, b, bucket, pm_slot_ref_unpack(packed), &seen[used]);
        for (uint32_t i = 0; seen[used].off != 0 && i < used; i++) {
            if (seen[i].off != 0 && same_key(f, &seen[i], &seen[used]))
                DAMAGE(f, "one key twice, in the items at %#" PRIx64 " and %#" PRIx64, seen[i].off,
                    seen[used].off);
        }
        used++;
    }
    if (used != b->count)
        DAMAGE(f, "the bucket at %#" PRIx64 " uses %u slots and says %u", bucket, used, b->count);
}

/* ---- 2: buckets ---- */

static uint32_t bit_length(uint64_t n)
{
    return n == 0 ? 0 : 64 - (uint32_t)__builtin_clzll(n);
}

/* I1, with the sum of shares: each child of the bucket's splits is there. */
static void check_children(
    struct fsck *f, const struct pm_root *root, const struct pm_bucket_view *b, uint64_t bucket)
{
    uint32_t birth = bit_length(b->number);

    if (birth < root->index.depth0)
        birth = root->index.depth0;
    if (b->depth < birth)
        DAMAGE(f, "the bucket at %#" PRIx64 " has depth %u, it was born at %u", bucket, b->depth,
            birth);
    for (uint32_t i = birth; i < b->depth; i++) {
        uint64_t child = pm_bucket_place(&f->c, root, b->number + (UINT64_C(1) << i));

        if (child == 0 || pm_meta_kind(pm_load64(&f->pool->pm, child + 8)) != PM_KIND_BUCKET)
            DAMAGE(f, "the bucket at %#" PRIx64 " was split at depth %u, its child is not born",
                bucket, i);
    }
}

static void check_bucket(struct fsck *f, const struct pm_root *root, uint64_t off)
{
    struct pm_bucket_pm copy;
    struct pm_bucket_view view;
    const struct named *n = find_named(f, off);
    uint64_t *share = &f->share[root->index.index - 1];

    pm_read(&f->pool->pm, off, &copy, sizeof(copy));
    pm_bucket_look(&copy, off, f->pool->crc_seed, f->pool->tag, &view);
    check_word(f, off, view.word, le64_get(copy.head.meta));
    if (view.seen == PM_SEEN_EMPTY)
        return;
    if (n != NULL && n->growth && !view.body_good)
        return; /* half-stored by a growth record that will be replayed */
    if (!view.body_good || view.index != root->index.index ||
        view.number != pm_bucket_number_at(&f->c, off)) {
        DAMAGE(f, "the bucket at %#" PRIx64 " (index %u) is corrupt", off, root->index.index);
        return;
    }
    f->ret->buckets++;
    f->ret->canonical += cn_mix64(
        cn_mix64((uint64_t)view.index << 40 ^ view.number) + UINT64_C(0x1000) + view.depth);
    if (*share <= WHOLE)
        *share += WHOLE >> view.depth;
    check_children(f, root, &view, off);
    check_slots(f, root, &view, off);
}

static void check_buckets(struct fsck *f)
{
    for (uint32_t n = 0; n < f->c.count; n++) {
        const struct pm_chunk *chunk = &f->c.chunk[n];
        const struct pm_root *root = pm_root_by_id(&f->c, chunk->index);

        if (chunk->kind != PM_CHUNK_BUCKETS || root == NULL || chunk->seq >= root->index.map_max ||
            root->map[chunk->seq] != n)
            continue;
        for (uint32_t i = 0; i < f->c.buckets_per_chunk; i++)
            check_bucket(f, root, pm_chunk_off(&f->c, n) + (uint64_t)i * PM_BUCKET_SIZE);
    }
    for (uint32_t id = 1; id <= f->c.root_count; id++) {
        if (pm_root_by_id(&f->c, id) != NULL && f->share[id - 1] != WHOLE)
            DAMAGE(f,
                "index %u: its buckets do not cover all hashes once (%#" PRIx64 " of %#" PRIx64 ")",
                id, f->share[id - 1], (uint64_t)WHOLE);
    }
}

/* ---- 4: blocks ---- */

static void check_block(struct fsck *f, uint64_t off, uint32_t class_)
{
    struct pm_item_pm header;
    struct pm_item_view view;
    uint64_t meta;
    bool pointed = bit_get(f->pointed, block_bit(f, off));
    const struct named *n = find_named(f, off);

    pm_read(&f->pool->pm, off, &header, sizeof(header));
    meta = le64_get(header.head.meta);
    check_word(f, off, le64_get(header.head.word), meta);
    if (pm_meta_kind(meta) == PM_KIND_ITEM) {
        if (!pointed && (n == NULL || !n->is_block))
            DAMAGE(f, "no slot points to the item at %#" PRIx64, off);
        return;
    }
    if (n != NULL && n->is_block)
        return; /* free, or half-written by the record that names it */
    f->ret->blocks_free++;
    if (pointed)
        return; /* reported with the slot */
    header.head.word = le64_make(pm_word_version(le64_get(header.head.word)));
    pm_item_look(&header, sizeof(header), off, f->pool->crc_seed, f->pool->tag, &view);
    if (view.seen != PM_SEEN_EMPTY && (view.seen != PM_SEEN_OTHER || view.class_ != class_))
        DAMAGE(f, "the block at %#" PRIx64 " is neither unused nor dead nor an item", off);
}

static void check_blocks(struct fsck *f)
{
    for (uint32_t n = 0; n < f->c.count; n++) {
        const struct pm_chunk *chunk = &f->c.chunk[n];
        uint32_t count = chunk->kind == PM_CHUNK_SLAB ? pm_chunk_blocks(&f->c, chunk->class_) : 0;

        for (uint32_t i = 0; i < count; i++)
            check_block(f, pm_chunk_off(&f->c, n) + (uint64_t)i * pm_class_size(chunk->class_),
                chunk->class_);
    }
}

/* ---- all ---- */

static int prepare(struct fsck *f)
{
    uint64_t blocks = 0;
    int rc = pm_chunks_load(&f->c, f->pool, false);

    if (rc != 0)
        return rc;
    f->first = calloc((size_t)f->c.count + 1, sizeof(uint64_t));
    f->share = calloc((size_t)f->c.root_count + 1, sizeof(uint64_t));
    f->buf = aligned_alloc(PM_LINE, cn_align_up(pm_class_size(PM_CLASS_COUNT - 2), PM_LINE));
    if (f->first == NULL || f->share == NULL || f->buf == NULL)
        return -ENOMEM;
    for (uint32_t n = 0; n < f->c.count; n++) {
        f->first[n] = blocks;
        if (f->c.chunk[n].kind == PM_CHUNK_SLAB)
            blocks += pm_chunk_blocks(&f->c, f->c.chunk[n].class_);
    }
    f->pointed = calloc(blocks / 64 + 1, sizeof(uint64_t));
    if (f->pointed == NULL)
        return -ENOMEM;
    return load_records(f);
}

int pm_fsck(
    const struct pm_pool *pool, const struct pm_fsck_options *options, struct pm_fsck_report *ret)
{
    static const struct pm_fsck_options none;
    struct pm_fsck_report report = {0};
    struct fsck f = {.pool = pool, .o = options != NULL ? options : &none, .ret = &report};
    int rc = prepare(&f);

    if (rc == 0) {
        check_chunks(&f);
        check_buckets(&f);
        check_blocks(&f);
        *ret = report;
    } else if (rc == -ENOMEM) {
        rc = cn_fail(-ENOMEM, "no memory to check the store");
    }
    free(f.first);
    free(f.share);
    free(f.buf);
    free(f.pointed);
    free(f.named);
    pm_chunks_unload(&f.c);
    return rc;
}
