/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_store.c: the store over an open pool: its chunk table and its indexes.
 *
 * Opening reads 16 bytes per chunk and the index roots; no item, no bucket. The DRAM copy of the
 * descriptors decides where lock words may lie: every offset that comes from media or from a peer
 * passes pm_place_kind() before it is used. The map of an index is built from the descriptors
 * (index, seq) and must agree with the entries in its root, which are for remote readers.
 */
#include "pmem/pm_store_internal.h"

#include <errno.h>

/* ---- places ---- */

enum pm_kind pm_place_kind(const struct pm_chunks *c, uint64_t off)
{
    uint64_t number = off >> c->shift;
    uint32_t inside = (uint32_t)(off & ((UINT64_C(1) << c->shift) - 1));
    const struct pm_chunk *chunk;
    uint32_t size;

    if (number >= c->count || off % PM_LINE != 0)
        return PM_KIND_NONE;
    chunk = &c->chunk[number];
    if (chunk->kind == PM_CHUNK_BUCKETS)
        return inside % PM_BUCKET_SIZE == 0 ? PM_KIND_BUCKET : PM_KIND_NONE;
    if (chunk->kind != PM_CHUNK_SLAB)
        return PM_KIND_NONE;
    size = pm_class_size(chunk->class_);
    if (inside % size != 0 || inside / size >= pm_chunk_blocks(c, chunk->class_))
        return PM_KIND_NONE;
    return PM_KIND_ITEM;
}

bool pm_place_is_root(const struct pm_chunks *c, uint64_t off)
{
    uint64_t number = off >> c->shift;
    uint32_t inside = (uint32_t)(off & ((UINT64_C(1) << c->shift) - 1));

    return number < c->count && c->chunk[number].kind == PM_CHUNK_ROOTS &&
        inside % c->root_size == 0 && inside / c->root_size < c->roots_per_chunk;
}

uint64_t pm_bucket_place(const struct pm_chunks *c, const struct pm_root *root, uint64_t number)
{
    uint64_t seq = number / c->buckets_per_chunk;

    if (seq >= root->index.map_max || root->map[seq] == PM_NONE)
        return 0;
    return pm_chunk_off(c, root->map[seq]) + number % c->buckets_per_chunk * PM_BUCKET_SIZE;
}

/* ---- descriptors ---- */

uint32_t pm_chunk_crc(const struct pm_chunk_pm *d, uint32_t number, uint32_t crc_seed)
{
    uint8_t b[18];
    struct le64 n = le64_make(number);

    memcpy(b, &n, 8);
    b[8] = d->kind;
    b[9] = d->class_;
    memcpy(b + 10, &d->index, 4);
    memcpy(b + 14, &d->seq, 4);
    return cn_crc32c(crc_seed, b, sizeof(b));
}

/* Is chunk `number` wholly in the heap? */
static bool is_heap(const struct pm_super *super, uint32_t number)
{
    uint64_t size = UINT64_C(1) << super->geometry.chunk_shift;
    uint64_t off = (uint64_t)number << super->geometry.chunk_shift;

    for (uint32_t i = 0; i < super->extent_count; i++) {
        uint64_t from = super->extent[i].off, end = from + super->extent[i].size;

        if (i == 0)
            from = super->heap_off;
        if (from < end && cn_range_inside(off, size, from, end - from))
            return true;
    }
    return false;
}

bool pm_chunk_is_good(const struct pm_chunks *c, const struct pm_chunk_pm *d, uint32_t number)
{
    static const struct le32 zero;

    if (d->kind == PM_CHUNK_FREE)
        return d->class_ == 0 && memcmp(&d->index, &zero, 4) == 0 &&
            memcmp(&d->seq, &zero, 4) == 0 && memcmp(&d->crc, &zero, 4) == 0;
    if (d->kind > PM_CHUNK_ROOTS ||
        (d->kind == PM_CHUNK_SLAB && pm_chunk_blocks(c, d->class_) == 0))
        return false;
    return pm_chunk_crc(d, number, c->pool->crc_seed) == le32_get(d->crc);
}

void pm_chunks_note(struct pm_chunks *c, uint32_t number, const struct pm_chunk_pm *descriptor)
{
    struct pm_chunk *chunk = &c->chunk[number];

    CAIRN_ASSERT(number < c->count && chunk->bits == NULL);
    chunk->kind = descriptor->kind;
    chunk->class_ = descriptor->class_;
    chunk->hint = le16_get(descriptor->free_hint);
    chunk->index = le32_get(descriptor->index);
    chunk->seq = le32_get(descriptor->seq);
    if (chunk->kind == PM_CHUNK_SLAB)
        chunk->free = chunk->hint * 16u;
    if (chunk->kind == PM_CHUNK_BUCKETS) {
        struct pm_root *root = pm_root_by_id(c, chunk->index);

        if (root != NULL && chunk->seq < root->index.map_max && root->map[chunk->seq] == PM_NONE) {
            root->map[chunk->seq] = number;
            root->chunks++;
        }
    }
}

static int load_descriptors(struct pm_chunks *c, bool strict)
{
    for (uint32_t n = 0; n < c->count; n++) {
        struct pm_chunk_pm d;

        c->chunk[n].next = c->chunk[n].prev = PM_NONE;
        c->chunk[n].kind = PM_CHUNK_OUTSIDE;
        if (!is_heap(&c->pool->super, n))
            continue;
        pm_read(&c->pool->pm, pm_chunk_desc_off(c, n), &d, sizeof(d));
        if (pm_chunk_is_good(c, &d, n)) {
            pm_chunks_note(c, n, &d);
            continue;
        }
        c->chunk[n].kind = PM_CHUNK_BAD;
        if (strict)
            return cn_fail(CAIRN_E_CORRUPT_INDEX,
                "descriptor of chunk %u (pool offset %#" PRIx64 ") is corrupt", n,
                pm_chunk_off(c, n));
    }
    return 0;
}

/* ---- indexes ---- */

int pm_chunks_note_root(struct pm_chunks *c, const struct pm_index *index)
{
    struct pm_root **roots, *root;
    uint32_t id = index->index;

    if (id > c->root_count) {
        roots = realloc(c->root, id * sizeof(struct pm_root *));
        if (roots == NULL)
            return cn_fail(-ENOMEM, "no memory for %u indexes", id);
        memset(roots + c->root_count, 0, (id - c->root_count) * sizeof(struct pm_root *));
        c->root = roots;
        c->root_count = id;
    }
    if (c->root[id - 1] != NULL)
        return cn_fail(CAIRN_E_CORRUPT_INDEX, "index %u has two roots, %#" PRIx64 " and %#" PRIx64,
            id, c->root[id - 1]->index.off, index->off);
    root = calloc(1, sizeof(*root));
    if (root != NULL)
        root->map = malloc(index->map_max * sizeof(uint32_t));
    if (root == NULL || root->map == NULL) {
        free(root);
        return cn_fail(-ENOMEM, "no memory for index %u", id);
    }
    root->index = *index;
    root->items_stored = index->items;
    for (uint32_t i = 0; i < index->map_max; i++)
        root->map[i] = PM_NONE;
    c->root[id - 1] = root;
    for (uint32_t n = 0; n < c->count; n++) {
        const struct pm_chunk *chunk = &c->chunk[n];

        if (chunk->kind == PM_CHUNK_BUCKETS && chunk->index == id && chunk->seq < index->map_max &&
            root->map[chunk->seq] == PM_NONE) {
            root->map[chunk->seq] = n;
            root->chunks++;
        }
    }
    return 0;
}

static int load_root(struct pm_chunks *c, uint64_t off, uint32_t ids_max, bool strict)
{
    uint8_t bytes[PM_INDEX_MAP_OFF];
    struct pm_index index;
    int rc;

    pm_read(&c->pool->pm, off, bytes, sizeof(bytes));
    if (((const struct pm_index_pm *)(const void *)bytes)->magic.le == 0)
        return 0;
    rc = pm_index_look(bytes, off, c->pool->crc_seed, &index);
    if (rc == 0 && (index.map_max != c->pool->super.geometry.root_map_max || index.index > ids_max))
        rc = cn_fail(
            CAIRN_E_CORRUPT_INDEX, "index root at %#" PRIx64 ": impossible id or map size", off);
    if (rc == 0)
        rc = pm_chunks_note_root(c, &index);
    return strict || rc == -ENOMEM ? rc : 0;
}

/* Each map entry and each descriptor of a chunk of buckets must say the same. */
static int check_maps(const struct pm_chunks *c)
{
    for (uint32_t id = 1; id <= c->root_count; id++) {
        const struct pm_root *root = pm_root_by_id(c, id);

        if (root == NULL)
            return cn_fail(CAIRN_E_CORRUPT_INDEX, "index %u has no root", id);
        for (uint32_t i = 0; i < root->index.map_max; i++) {
            uint64_t entry = pm_load64(
                &c->pool->pm, root->index.off + PM_INDEX_MAP_OFF + 8 * (uint64_t)i);
            uint64_t off = root->map[i] == PM_NONE ? 0 : pm_chunk_off(c, root->map[i]);

            if (entry != off)
                return cn_fail(CAIRN_E_CORRUPT_INDEX,
                    "index %u: map entry %u is %#" PRIx64 ", the descriptors say %#" PRIx64, id, i,
                    entry, off);
        }
        if (root->map[0] == PM_NONE)
            return cn_fail(CAIRN_E_CORRUPT_INDEX, "index %u has no first chunk of buckets", id);
    }
    for (uint32_t n = 0; n < c->count; n++) {
        const struct pm_chunk *chunk = &c->chunk[n];
        const struct pm_root *root = pm_root_by_id(c, chunk->index);

        if (chunk->kind == PM_CHUNK_BUCKETS &&
            (root == NULL || chunk->seq >= root->index.map_max || root->map[chunk->seq] != n))
            return cn_fail(CAIRN_E_CORRUPT_INDEX, "chunk %u: buckets of no index (%u, place %u)", n,
                chunk->index, chunk->seq);
    }
    return 0;
}

int pm_chunks_load(struct pm_chunks *c, const struct pm_pool *pool, bool strict)
{
    const struct pm_super *super = &pool->super;
    uint64_t roots_max = 0;
    int rc;

    *c = (struct pm_chunks){
        .pool = pool, .count = (uint32_t)super->chunk_count, .shift = super->geometry.chunk_shift};
    c->buckets_per_chunk = (1u << c->shift) / PM_BUCKET_SIZE;
    c->root_size = (uint32_t)cn_align_up(
        PM_INDEX_MAP_OFF + 8 * (uint64_t)super->geometry.root_map_max, PM_LINE);
    c->roots_per_chunk = (1u << c->shift) / c->root_size;
    c->chunk = calloc(c->count, sizeof(*c->chunk));
    if (c->chunk == NULL)
        return cn_fail(-ENOMEM, "no memory for %u chunk descriptors", c->count);
    rc = load_descriptors(c, strict);
    for (uint32_t n = 0; n < c->count; n++)
        roots_max += c->chunk[n].kind == PM_CHUNK_ROOTS ? c->roots_per_chunk : 0;
    for (uint32_t n = 0; rc == 0 && n < c->count; n++) {
        if (c->chunk[n].kind != PM_CHUNK_ROOTS)
            continue;
        for (uint32_t i = 0; rc == 0 && i < c->roots_per_chunk; i++)
            rc = load_root(
                c, pm_chunk_off(c, n) + (uint64_t)i * c->root_size, (uint32_t)roots_max, strict);
    }
    if (rc == 0 && strict)
        rc = check_maps(c);
    if (rc != 0)
        pm_chunks_unload(c);
    return rc;
}

void pm_chunks_unload(struct pm_chunks *c)
{
    for (uint32_t i = 0; i < c->root_count; i++) {
        if (c->root[i] != NULL)
            free(c->root[i]->map);
        free(c->root[i]);
    }
    free(c->root);
    for (uint32_t n = 0; c->chunk != NULL && n < c->count; n++)
        free(c->chunk[n].bits);
    free(c->chunk);
    *c = (struct pm_chunks){0};
}

/* ---- the store ---- */

int pm_store_open(struct pm_pool *pool, const struct pm_cas *cas, struct pm_store **ret)
{
    struct pm_store *s = malloc(sizeof(*s));
    int rc;

    if (s == NULL)
        return cn_fail(-ENOMEM, "no memory for the store");
    /* The scratch is most of it, and written before it is read. */
    memset(s, 0, offsetof(struct pm_store, scratch));
    s->pool = pool;
    s->pm = &pool->pm;
    s->cas = cas != NULL ? *cas : (struct pm_cas){0};
    s->record_buf = aligned_alloc(PM_LINE, PM_GROWTH_RECORD_MAX);
    if (s->record_buf == NULL) {
        free(s);
        return cn_fail(-ENOMEM, "no memory for the store");
    }
    rc = pm_chunks_load(&s->c, pool, false);
    if (rc != 0) {
        free(s->record_buf);
        free(s);
        return rc;
    }
    pm_heap_reset(s);
    *ret = s;
    return 0;
}

void pm_store_close(struct pm_store **store)
{
    struct pm_store *s = *store;

    if (s == NULL)
        return;
    pm_growth_forget(s);
    pm_chunks_unload(&s->c);
    free(s->grant);
    free(s->record_buf);
    free(s);
    *store = NULL;
}

void pm_store_stats(const struct pm_store *store, struct pm_store_stats *ret)
{
    *ret = store->stats;
    ret->chunks_free = ret->chunks_slab = ret->chunks_buckets = ret->chunks_roots = 0;
    ret->chunks_total = 0;
    for (uint32_t n = 0; n < store->c.count; n++) {
        uint8_t kind = store->c.chunk[n].kind;

        ret->chunks_free += kind == PM_CHUNK_FREE;
        ret->chunks_slab += kind == PM_CHUNK_SLAB;
        ret->chunks_buckets += kind == PM_CHUNK_BUCKETS;
        ret->chunks_roots += kind == PM_CHUNK_ROOTS;
        ret->chunks_total += kind != PM_CHUNK_OUTSIDE;
    }
    for (uint32_t i = 0; i < PM_CLASS_COUNT; i++) {
        ret->class_[i].chunks = store->class_[i].chunks;
        ret->class_[i].free_known = store->class_[i].free;
        ret->class_[i].granted = store->class_[i].granted;
    }
}

const struct pm_index *pm_store_index(const struct pm_store *store, uint16_t table, uint16_t shard)
{
    for (uint32_t i = 0; i < store->c.root_count; i++) {
        const struct pm_root *root = store->c.root[i];

        if (root != NULL && root->index.table == table && root->index.shard == shard)
            return &root->index;
    }
    return NULL;
}

const struct pm_index *pm_store_index_by_id(const struct pm_store *store, uint32_t index)
{
    const struct pm_root *root = pm_root_by_id(&store->c, index);

    return root == NULL ? NULL : &root->index;
}

uint32_t pm_store_index_count(const struct pm_store *store)
{
    return store->c.root_count;
}

bool pm_store_has_word(const struct pm_store *store, uint64_t off)
{
    return pm_place_kind(&store->c, off) != PM_KIND_NONE;
}
