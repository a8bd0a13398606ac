/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_apply_growth.c: growth records (slot 0): what they may say, their bodies and words. One write
 * each:
 *
 *   SPLIT  both images of a split; parent and child are the record's two locks
 *   CHUNK  a descriptor, and for a chunk of buckets its entry in the map of its index
 *   ROOT   an index: its root, the descriptor of its first chunk and the first 2^depth0 buckets
 *
 * The node wrote them itself, but they come back from media: checked like any record.
 */
#include "pmem/pm_store_internal.h"

/* ---- payloads: copied out, for alignment ---- */

static bool next_write(const struct pm_record *r, struct pm_record_write *ret)
{
    uint32_t cursor = r->writes_off;

    return r->write_count == 1 && pm_record_next_write(r, &cursor, ret);
}

static uint32_t payload_size(enum pm_op op)
{
    return op == PM_OP_SPLIT ? sizeof(struct pm_split_pm)
        : op == PM_OP_CHUNK  ? sizeof(struct pm_chunk_op_pm)
        : op == PM_OP_ROOT   ? sizeof(struct pm_root_op_pm)
                             : 0;
}

/* ---- splits ---- */

/* One image against its place. */
static int check_image(struct pm_store *s, const struct pm_record *r,
    const struct pm_split_pm *split, uint32_t n, struct pm_bucket_view *ret)
{
    struct pm_bucket_pm *b = &s->scratch.bucket;
    uint64_t off = le64_get(n == 0 ? split->parent : split->child),
             base = le64_get(r->lock[n].base);
    uint64_t meta;
    const struct pm_root *root;

    if (pm_place_kind(&s->c, off) != PM_KIND_BUCKET || le64_get(r->lock[n].off) != off ||
        base >= PM_VERSION_MAX)
        return pm_refuse(r, "split: no bucket's place at %#" PRIx64, off);
    memcpy(b, split->image[n], sizeof(*b));
    pm_bucket_look(b, off, s->pool->crc_seed, s->pool->tag, ret);
    root = pm_root_by_id(&s->c, ret->index);
    if (!ret->body_good || pm_word_version(le64_get(b->head.meta)) != base + 1 || root == NULL ||
        ret->index != pm_chunk_at(&s->c, off)->index ||
        ret->number != pm_bucket_number_at(&s->c, off))
        return pm_refuse(r, "split: an image does not fit the place %#" PRIx64, off);
    for (uint32_t k = 0; k < PM_BUCKET_SLOTS; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(b->slot[k]));

        if (b->slot[k].le != 0 && !pm_place_is_block(&s->c, ref.off, ref.class_))
            return pm_refuse(r, "split: slot %u of an image is wrong", k);
    }
    meta = pm_load64(s->pm, off + 8);
    if (pm_word_version(meta) == base + 1 && pm_meta_kind(meta) == PM_KIND_BUCKET)
        return 0;
    if (pm_word_version(meta) != base ||
        pm_meta_kind(meta) != (n == 0 ? PM_KIND_BUCKET : PM_KIND_NONE))
        return pm_refuse(r, "split: the bucket at %#" PRIx64 " is not at base %" PRIu64, off, base);
    return 0;
}

static int check_split(
    struct pm_store *s, const struct pm_record *r, const struct pm_split_pm *split)
{
    struct pm_bucket_view parent, child;
    int rc;

    if (r->lock_count != 2 || r->block_count != 0)
        return pm_refuse(r, "split: it must lock two buckets");
    rc = check_image(s, r, split, 0, &parent);
    if (rc == 0)
        rc = check_image(s, r, split, 1, &child);
    if (rc != 0)
        return rc;
    if (parent.index != child.index || parent.depth != child.depth || parent.depth == 0 ||
        child.number != parent.number + (UINT64_C(1) << (parent.depth - 1)))
        return pm_refuse(r, "split: the images are not of one split");
    return 0;
}

/* The child first: a parent that sends readers to a child that is not born yet sends them in
 * circles. */
static void store_split(struct pm_store *s, const struct pm_split_pm *split)
{
    uint64_t off[2] = {le64_get(split->parent), le64_get(split->child)};

    for (uint32_t i = 2; i-- > 0;) {
        pm_copy(s->pm, off[i] + 8, split->image[i] + 8, PM_BUCKET_SIZE - 8);
        pm_flush(s->pm, off[i], PM_BUCKET_SIZE);
    }
}

/* ---- chunks ---- */

/* On media each 8-byte unit is still the old one (zero, but for `mask`) or the new one. */
static bool units_fit(
    const struct pm_store *s, uint64_t off, const void *image, uint32_t size, uint64_t mask)
{
    for (uint32_t i = 0; i < size; i += 8) {
        struct le64 unit;
        uint64_t now = pm_load64(s->pm, off + i) & mask;

        memcpy(&unit, (const uint8_t *)image + i, sizeof(unit));
        if (now != 0 && now != (le64_get(unit) & mask))
            return false;
    }
    return true;
}

#define BUT_HINT \
    (~UINT64_C(0xffff0000)) /* of a descriptor's first unit; the second has no such bits */

static int check_descriptor(
    struct pm_store *s, const struct pm_record *r, uint64_t number, const struct pm_chunk_pm *d)
{
    uint64_t off;

    if (number >= s->c.count || s->c.chunk[number].kind == PM_CHUNK_OUTSIDE ||
        d->kind == PM_CHUNK_FREE || !pm_chunk_is_good(&s->c, d, (uint32_t)number))
        return pm_refuse(r, "chunk %" PRIu64 ": bad number or descriptor", number);
    off = pm_chunk_desc_off(&s->c, (uint32_t)number);
    if (!units_fit(s, off, d, 8, BUT_HINT) ||
        !units_fit(s, off + 8, (const uint8_t *)d + 8, 8, UINT64_MAX))
        return pm_refuse(r, "chunk %" PRIu64 " is in use otherwise", number);
    return 0;
}

static void store_descriptor(struct pm_store *s, uint64_t number, const struct pm_chunk_pm *d)
{
    uint64_t off = pm_chunk_desc_off(&s->c, (uint32_t)number);

    pm_copy(s->pm, off, d, sizeof(*d));
    pm_flush(s->pm, off, sizeof(*d));
}

static int check_chunk(
    struct pm_store *s, const struct pm_record *r, const struct pm_chunk_op_pm *op)
{
    uint64_t root_off = le64_get(op->root), entry = le64_get(op->map_entry), now;
    const struct pm_root *root = pm_root_by_id(&s->c, le32_get(op->descriptor.index));
    int rc = check_descriptor(s, r, le64_get(op->chunk), &op->descriptor);

    if (rc != 0)
        return rc;
    if (r->lock_count != 0 || r->block_count != 0)
        return pm_refuse(r, "chunk: it locks something");
    if ((op->descriptor.kind == PM_CHUNK_BUCKETS) != (root_off != 0))
        return pm_refuse(r, "chunk: a map entry without buckets, or the reverse");
    if (root_off == 0)
        return 0;
    if (root == NULL || root->index.off != root_off || entry >= root->index.map_max ||
        le32_get(op->descriptor.seq) != entry)
        return pm_refuse(r, "chunk: no such index or map entry");
    now = pm_load64(s->pm, root_off + PM_INDEX_MAP_OFF + 8 * entry);
    if (now != 0 && now != pm_chunk_off(&s->c, (uint32_t)le64_get(op->chunk)))
        return pm_refuse(r, "chunk: map entry %" PRIu64 " is set otherwise", entry);
    return 0;
}

static void store_map(struct pm_store *s, uint64_t root_off, uint64_t entry, uint64_t chunk)
{
    uint64_t off = root_off + PM_INDEX_MAP_OFF + 8 * entry;

    pm_store64(s->pm, off, pm_chunk_off(&s->c, (uint32_t)chunk));
    pm_flush(s->pm, off, 8);
}

/* ---- indexes ---- */

static int check_root(struct pm_store *s, const struct pm_record *r, const struct pm_root_op_pm *op)
{
    uint64_t off = le64_get(op->root);
    struct pm_index index;
    int rc = check_descriptor(s, r, le64_get(op->chunk), &op->descriptor);

    if (rc == 0 && !pm_place_is_root(&s->c, off))
        rc = pm_refuse(r, "root: %#" PRIx64 " is no place of a root", off);
    if (rc == 0)
        rc = pm_index_look(&op->image, off, s->pool->crc_seed, &index);
    if (rc != 0)
        return rc;
    if (op->descriptor.kind != PM_CHUNK_BUCKETS || le32_get(op->descriptor.index) != index.index ||
        le32_get(op->descriptor.seq) != 0 ||
        index.map_max != s->pool->super.geometry.root_map_max ||
        UINT64_C(1) << index.depth0 > s->c.buckets_per_chunk)
        return pm_refuse(r, "root: the first chunk does not fit the index");
    if (r->lock_count != 0 || r->block_count != 0 ||
        !units_fit(s, off, &op->image, 128, UINT64_MAX))
        return pm_refuse(r, "root: the place %#" PRIx64 " is in use", off);
    return 0;
}

static void bear_buckets(struct pm_store *s, const struct pm_root_op_pm *op)
{
    struct pm_bucket_pm *b = &s->scratch.bucket;
    uint64_t chunk_off = pm_chunk_off(&s->c, (uint32_t)le64_get(op->chunk));

    memset(b, 0, sizeof(*b));
    for (uint64_t n = 0; n < UINT64_C(1) << op->image.depth0; n++) {
        uint64_t off = chunk_off + n * PM_BUCKET_SIZE;

        b->head.meta = le64_make(pm_meta_make(0, PM_KIND_BUCKET, op->image.depth0));
        b->head.index = op->image.index;
        b->number = le64_make(n);
        pm_bucket_finish(b, off, 1, s->pool->crc_seed);
        pm_copy(s->pm, off + 8, (const uint8_t *)b + 8, 32); /* the rest is zero: gr_zero */
        pm_flush(s->pm, off, PM_LINE);
    }
}

static void store_root(struct pm_store *s, const struct pm_root_op_pm *op)
{
    uint64_t off = le64_get(op->root);

    bear_buckets(s, op);
    pm_copy(s->pm, off, &op->image, sizeof(op->image));
    pm_flush(s->pm, off, sizeof(op->image));
    store_map(s, off, 0, le64_get(op->chunk));
    store_descriptor(s, le64_get(op->chunk), &op->descriptor);
}

/* ---- all ---- */

union payload {
    struct pm_split_pm split;
    struct pm_chunk_op_pm chunk;
    struct pm_root_op_pm root;
};

int pm_growth_check(struct pm_store *s, const struct pm_record *record)
{
    struct pm_record_write w;
    union payload p;

    if (record->type != PM_RECORD_GROWTH)
        return pm_refuse(record, "a record of type %d in ring 0", (int)record->type);
    if (!next_write(record, &w) || payload_size(w.op) == 0 || payload_size(w.op) != w.value_size)
        return pm_refuse(record, "not one growth operation of the right size");
    memcpy(&p, w.value, w.value_size);
    if (w.op == PM_OP_SPLIT)
        return check_split(s, record, &p.split);
    if (w.op == PM_OP_CHUNK)
        return check_chunk(s, record, &p.chunk);
    return check_root(s, record, &p.root);
}

void pm_growth_body(struct pm_store *s, const struct pm_record *record)
{
    struct pm_record_write w;
    union payload p;
    bool found = next_write(record, &w);

    CAIRN_ASSERT(found && payload_size(w.op) == w.value_size);
    memcpy(&p, w.value, w.value_size);
    if (w.op == PM_OP_SPLIT) {
        store_split(s, &p.split);
    } else if (w.op == PM_OP_CHUNK) {
        store_descriptor(s, le64_get(p.chunk.chunk), &p.chunk.descriptor);
        if (p.chunk.root.le != 0)
            store_map(
                s, le64_get(p.chunk.root), le64_get(p.chunk.map_entry), le64_get(p.chunk.chunk));
    } else {
        store_root(s, &p.root);
    }
}

/* The words that a record's lock list does not name: those of the first buckets of an index. */
void pm_growth_release(struct pm_store *s, const struct pm_record *record)
{
    struct pm_record_write w;
    struct pm_root_op_pm op;
    uint64_t number;

    if (!next_write(record, &w) || w.op != PM_OP_ROOT || w.value_size != sizeof(op))
        return;
    memcpy(&op, w.value, sizeof(op));
    number = le64_get(op.chunk);
    if (number >= s->c.count || s->c.chunk[number].kind != PM_CHUNK_BUCKETS ||
        op.image.depth0 > PM_DEPTH_MAX || UINT64_C(1) << op.image.depth0 > s->c.buckets_per_chunk)
        return;
    for (uint64_t n = 0; n < UINT64_C(1) << op.image.depth0; n++)
        pm_release_word(s, pm_chunk_off(&s->c, (uint32_t)number) + n * PM_BUCKET_SIZE, 1);
}
