/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pm_growth_log.c: ring 0. Growth is a local transaction of the node: its record is committed when
 * it is durable (g_record), then applied, then released, all before the next one is begun. So at
 * most the last record in the ring is unapplied, and every earlier one is released durably; the
 * position is persisted lazily, but space is reused only below the persisted one.
 *
 * At start the window is replayed and the epoch raised: what was logged before can never be read
 * again.
 */
#include "pmem/pm_store_internal.h"

#include <errno.h>

/* ---- appending ---- */

static void pass_position(struct pm_store *s)
{
    s->slot0.position_seq = s->log_seq;
    s->slot0.position_off = s->log_tail;
    pm_slot_store(s->pool, &s->slot0);
    /* Space below may be overwritten from here on: all of it is released durably (a_release). */
    pm_fence(s->pm, CN_STEP_a_position);
}

void pm_growth_begin(struct pm_store *s, struct pm_record_writer *w)
{
    CAIRN_ASSERT(s->growth_started);
    pm_record_begin(w, s->record_buf, PM_GROWTH_RECORD_MAX);
    pm_record_add_participant(w, s->pool->super.node, 0, 0, 0, s->slot0.epoch, s->log_seq + 1);
}

/* Make room for a record of `size` bytes that does not cross the ring's end, with a pad if need be.
 */
static void make_room(struct pm_store *s, uint32_t size)
{
    uint64_t ring = s->pool->super.geometry.ring_size;
    uint64_t to_end = ring - s->log_tail % ring;
    uint64_t needed = size > to_end ? size + to_end : size;
    uint8_t line[PM_RECORD_ALIGN] __attribute__((aligned(8)));
    struct pm_place place;

    CAIRN_ASSERT(needed <= ring);
    if (s->log_tail + needed - s->slot0.position_off > ring / 2 ||
        s->log_seq + 1 - s->slot0.position_seq > s->pool->super.geometry.window / 2)
        pass_position(s);
    if (size <= to_end)
        return;
    place = pm_slot_place(s->pool, &s->slot0, s->log_tail);
    pm_record_make_pad(line, (uint32_t)to_end, &place);
    pm_copy(s->pm, pm_slot_log_at(s->pool, 0, s->log_tail), line, sizeof(line));
    pm_slot_flush_log(s->pool, 0, s->log_tail, sizeof(line));
    s->log_tail += to_end;
}

/* What the chunk table and the heap must know of an applied record. */
static int note_applied(struct pm_store *s, const struct pm_record *r)
{
    uint32_t cursor = r->writes_off;
    struct pm_record_write w;
    struct pm_chunk_pm descriptor;
    uint64_t number;
    int rc = 0;

    if (!pm_record_next_write(r, &cursor, &w) || w.op == PM_OP_SPLIT)
        return 0;
    if (w.op == PM_OP_CHUNK) {
        struct pm_chunk_op_pm op;

        memcpy(&op, w.value, sizeof(op));
        number = le64_get(op.chunk);
        descriptor = op.descriptor;
    } else {
        struct pm_root_op_pm op;
        struct pm_index index;

        memcpy(&op, w.value, sizeof(op));
        number = le64_get(op.chunk);
        descriptor = op.descriptor;
        rc = pm_index_look(&op.image, le64_get(op.root), s->pool->crc_seed, &index);
        if (rc == 0)
            rc = pm_chunks_note_root(&s->c, &index);
    }
    pm_chunks_note(&s->c, (uint32_t)number, &descriptor);
    s->free_chunks--;
    s->stats.chunks_taken++;
    s->roots_chunks += descriptor.kind == PM_CHUNK_ROOTS;
    if (descriptor.kind == PM_CHUNK_SLAB)
        rc = pm_heap_add_fresh(s, (uint32_t)number);
    return rc;
}

int pm_growth_commit(struct pm_store *s, struct pm_record_writer *w)
{
    uint32_t size = (uint32_t)cn_align_up(w->used, PM_RECORD_ALIGN);
    struct cn_txid id = {.coordinator = s->pool->super.pool, .count = s->log_seq + 1};
    struct pm_place place;
    struct pm_record record;
    int rc;

    CAIRN_ASSERT(!w->overflow);
    make_room(s, size);
    place = pm_slot_place(s->pool, &s->slot0, s->log_tail);
    size = pm_record_end(w, PM_RECORD_GROWTH, &id, s->log_seq + 1, s->pool->view_max, &place);
    CAIRN_ASSERT(size != 0);
    rc = pm_record_check(s->record_buf, size, &place, s->pool->super.node, &record);
    CAIRN_ASSERT(rc == 0); /* our own */
    rc = pm_growth_check(s, &record);
    if (rc != 0)
        return rc; /* nothing is written yet: the store contradicts what was read from it */
    pm_copy(s->pm, pm_slot_log_at(s->pool, 0, s->log_tail), s->record_buf, size);
    pm_slot_flush_log(s->pool, 0, s->log_tail, size);
    /* Before any body: from here on the record is committed, and a crash replays it. */
    pm_fence(s->pm, CN_STEP_g_record);
    s->log_tail += size;
    s->log_seq++;
    pm_growth_body(s, &record);
    /* Bodies before the state: an applied record is never replayed. */
    pm_fence(s->pm, CN_STEP_a_body);
    pm_slot_set_applied(s->pool, &s->slot0, s->log_seq);
    /* State before the words: who takes a released word may write over the body (R8). */
    pm_fence(s->pm, CN_STEP_a_applied);
    rc = note_applied(s, &record);
    pm_apply_release(s, &record);
    /* Words before the position, and before the next record of ring 0 (R9). */
    pm_fence(s->pm, CN_STEP_a_release);
    return rc;
}

/* ---- chunks ---- */

static int take_chunk(struct pm_store *s, uint32_t *ret_number)
{
    for (uint32_t i = 0; i < s->c.count; i++) {
        uint32_t n = (s->chunk_cursor + i) % s->c.count;

        if (s->c.chunk[n].kind != PM_CHUNK_FREE)
            continue;
        s->chunk_cursor = n;
        pm_zero(s->pm, pm_chunk_off(&s->c, n), UINT64_C(1) << s->c.shift);
        pm_flush(s->pm, pm_chunk_off(&s->c, n), UINT64_C(1) << s->c.shift);
        /* Before the descriptor: zero means not born, never used. */
        pm_fence(s->pm, CN_STEP_g_zero);
        *ret_number = n;
        return 0;
    }
    return cn_fail(CAIRN_E_POOL_FULL, "the pool has no free chunk");
}

static struct pm_chunk_pm make_descriptor(const struct pm_store *s, uint32_t number,
    enum pm_chunk_kind kind, uint32_t class_, const uint32_t index_seq[2])
{
    struct pm_chunk_pm d = {.kind = (uint8_t)kind,
        .class_ = (uint8_t)class_,
        .index = le32_make(index_seq[0]),
        .seq = le32_make(index_seq[1])};
    uint32_t free_hint = kind == PM_CHUNK_SLAB ? pm_chunk_blocks(&s->c, class_) / 16 : 0;

    d.free_hint = le16_make((uint16_t)free_hint);
    d.crc = le32_make(pm_chunk_crc(&d, number, s->pool->crc_seed));
    return d;
}

static int log_chunk(struct pm_store *s, const struct pm_chunk_op_pm *op)
{
    struct pm_record_writer w;
    struct pm_write_pm write = {
        .op = PM_OP_CHUNK, .value_size = le32_make(sizeof(*op)), .index = op->descriptor.index};

    pm_growth_begin(s, &w);
    (void)pm_record_add_write(&w, &write, NULL, op);
    return pm_growth_commit(s, &w);
}

int pm_growth_add_slab(struct pm_store *s, uint32_t class_)
{
    struct pm_chunk_op_pm op = {.root = le64_make(0)};
    uint32_t n;
    int rc = take_chunk(s, &n);

    if (rc != 0)
        return rc;
    op.chunk = le64_make(n);
    op.descriptor = make_descriptor(s, n, PM_CHUNK_SLAB, class_, (uint32_t[2]){0, 0});
    return log_chunk(s, &op);
}

int pm_growth_add_buckets(struct pm_store *s, struct pm_root *root, uint32_t seq)
{
    struct pm_chunk_op_pm op = {.root = le64_make(root->index.off), .map_entry = le64_make(seq)};
    uint32_t n;
    int rc;

    CAIRN_ASSERT(seq < root->index.map_max && root->map[seq] == PM_NONE);
    rc = take_chunk(s, &n);
    if (rc != 0)
        return rc;
    op.chunk = le64_make(n);
    op.descriptor = make_descriptor(
        s, n, PM_CHUNK_BUCKETS, 0, (uint32_t[2]){root->index.index, seq});
    return log_chunk(s, &op);
}

uint32_t pm_growth_reserve(const struct pm_store *s)
{
    uint32_t reserve = s->roots_chunks * s->c.roots_per_chunk > s->c.root_count ? 0 : 1;

    for (uint32_t id = 1; id <= s->c.root_count; id++) {
        const struct pm_root *root = pm_root_by_id(&s->c, id);

        if (root != NULL)
            reserve += (uint32_t)cn_min64(2, root->index.map_max - root->chunks);
    }
    return reserve;
}

/* ---- indexes ---- */

/* A free place for a root; 0: none. */
static uint64_t find_root_place(const struct pm_store *s)
{
    for (uint32_t n = 0; n < s->c.count; n++) {
        if (s->c.chunk[n].kind != PM_CHUNK_ROOTS)
            continue;
        for (uint32_t i = 0; i < s->c.roots_per_chunk; i++) {
            uint64_t off = pm_chunk_off(&s->c, n) + (uint64_t)i * s->c.root_size;

            if (pm_load64(s->pm, off) == 0)
                return off;
        }
    }
    return 0;
}

static int add_roots(struct pm_store *s)
{
    struct pm_chunk_op_pm op = {.root = le64_make(0)};
    uint32_t n;
    int rc = take_chunk(s, &n);

    if (rc != 0)
        return rc;
    op.chunk = le64_make(n);
    op.descriptor = make_descriptor(s, n, PM_CHUNK_ROOTS, 0, (uint32_t[2]){0, s->roots_chunks});
    return log_chunk(s, &op);
}

static void make_root(
    const struct pm_store *s, struct pm_root_op_pm *op, uint16_t table, uint16_t shard)
{
    const struct pm_geometry *g = &s->pool->super.geometry;
    struct pm_index_pm *root = &op->image;

    root->magic = le64_make(PM_INDEX_MAGIC);
    root->layout_version = le32_make(PM_LAYOUT_VERSION);
    root->index = le32_make(s->c.root_count + 1);
    root->table = le16_make(table);
    root->shard = le16_make(shard);
    root->kind = 1;
    root->depth0 = (uint8_t)g->depth0;
    root->bucket_slots = (uint8_t)g->bucket_slots;
    root->fingerprint_bits = (uint8_t)g->fingerprint_bits;
    root->map_max = le32_make(g->root_map_max);
    cn_random(s->pm->env, root->hash_key, sizeof(root->hash_key));
    root->grow = le64_make(pm_grow_make(g->depth0, 0));
    root->crc = le32_make(pm_index_crc(root, le64_get(op->root), s->pool->crc_seed));
}

int pm_store_create_index(struct pm_store *store, uint16_t table, uint16_t shard)
{
    struct pm_root_op_pm op;
    struct pm_record_writer w;
    struct pm_write_pm write = {.op = PM_OP_ROOT, .value_size = le32_make(sizeof(op))};
    uint64_t place;
    uint32_t n;
    int rc;

    if (pm_store_index(store, table, shard) != NULL)
        return 0;
    if (store->c.roots_per_chunk == 0 ||
        UINT64_C(1) << store->pool->super.geometry.depth0 > store->c.buckets_per_chunk)
        return cn_fail(
            CAIRN_E_CONFIG, "the pool's chunks are too small for an index of its geometry");
    memset(&op, 0, sizeof(op));
    place = find_root_place(store);
    if (store->free_chunks < (place == 0 ? 2 : 1))
        return cn_fail(
            CAIRN_E_POOL_FULL, "no free chunk for an index (table %u, shard %u)", table, shard);
    if (place == 0) {
        rc = add_roots(store);
        if (rc != 0)
            return rc;
        place = find_root_place(store);
        CAIRN_ASSERT(place != 0);
    }
    rc = take_chunk(store, &n);
    if (rc != 0)
        return rc;
    op.root = le64_make(place);
    op.chunk = le64_make(n);
    op.descriptor = make_descriptor(
        store, n, PM_CHUNK_BUCKETS, 0, (uint32_t[2]){store->c.root_count + 1, 0});
    make_root(store, &op, table, shard);
    write.index = op.image.index;
    pm_growth_begin(store, &w);
    (void)pm_record_add_write(&w, &write, NULL, &op);
    return pm_growth_commit(store, &w);
}

/* ---- start ---- */

static int add_found(void *arg, const struct pm_record *record)
{
    struct pm_found *f = arg;

    if (f->count == f->max) {
        uint32_t max = f->max == 0 ? 64 : 2 * f->max;
        struct pm_record *grown = realloc(f->record, max * sizeof(*grown));

        if (grown == NULL)
            return cn_fail(-ENOMEM, "no memory to replay growth");
        f->record = grown;
        f->max = max;
    }
    f->record[f->count++] = *record;
    return 0;
}

/* All that must be there is there: sequences are written one after the other. */
static int check_found(struct pm_store *s, const struct pm_found *f)
{
    uint64_t seq = s->slot0.position_seq;

    for (uint32_t i = 0; i < f->count; i++) {
        const struct pm_record *r = &f->record[i];

        if (r->type != PM_RECORD_GROWTH)
            return pm_refuse(r, "a record of type %d in ring 0", (int)r->type);
        while (++seq < r->seq) {
            if (!pm_slot_is_applied(s->pool, &s->slot0, seq))
                return cn_fail(CAIRN_E_CORRUPT_RECORD,
                    "ring 0: growth record %" PRIu64 " is missing, a later one is there", seq);
            cn_log(s->pm->env, CN_LOG_WARNING,
                "ring 0: growth record %" PRIu64 " is damaged; it was applied before", seq);
        }
        if (seq != r->seq)
            return cn_fail(CAIRN_E_CORRUPT_RECORD,
                "ring 0: growth record %" PRIu64 " lies before an earlier one", r->seq);
    }
    return 0;
}

static int replay_bodies(struct pm_store *s, const struct pm_found *f)
{
    int rc = 0;

    for (uint32_t i = 0; i < f->count; i++)
        pm_slot_flush_log(s->pool, 0, f->record[i].log_off, f->record[i].size);
    /* R11: what is acted on must not be taken away by a power failure later; that includes the
     * header and the states, whose write-back pm_slot_load() has started. */
    pm_fence(s->pm, CN_STEP_a_found);
    for (uint32_t i = 0; rc == 0 && i < f->count; i++) {
        const struct pm_record *r = &f->record[i];

        if (pm_slot_is_applied(s->pool, &s->slot0, r->seq))
            continue;
        rc = pm_apply_check(s, r, 0, PM_APPLY_REPLAY);
        if (rc != 0)
            break;
        pm_apply_body(s, r);
        pm_fence(s->pm, CN_STEP_a_body);
        pm_slot_set_applied(s->pool, &s->slot0, r->seq);
        pm_fence(s->pm, CN_STEP_a_applied);
    }
    return rc;
}

/* Replay the ring of the last epoch; afterwards nothing in it matters. */
static int replay(struct pm_store *s)
{
    struct pm_found *f = &s->found;
    struct pm_chunks fresh;
    int rc;

    /* Nobody but this node can write into ring 0: it is read where it lies. */
    rc = pm_slot_scan(
        s->pool, &s->slot0, pm_at(s->pm, pm_slot_log_at(s->pool, 0, 0)), add_found, f);
    if (rc == 0)
        rc = check_found(s, f);
    if (rc == 0)
        rc = replay_bodies(s, f);
    if (rc != 0)
        return rc;
    /* Descriptors and roots are whole now: what does not fit is corrupt. */
    rc = pm_chunks_load(&fresh, s->pool, true);
    if (rc != 0)
        return rc;
    pm_chunks_unload(&s->c);
    s->c = fresh;
    pm_heap_reset(s);
    for (uint32_t i = 0; i < f->count; i++)
        pm_apply_release(s, &f->record[i]);
    pm_fence(s->pm, CN_STEP_a_release);
    if (f->count != 0) {
        const struct pm_record *last = &f->record[f->count - 1];

        s->log_seq = last->seq;
        s->log_tail = last->log_off + last->size;
        pass_position(s);
    }
    return 0;
}

void pm_growth_forget(struct pm_store *s)
{
    free(s->found.record);
    s->found = (struct pm_found){0};
}

int pm_growth_start(struct pm_store *store)
{
    int rc = pm_slot_load(store->pool, 0, &store->slot0);

    CAIRN_ASSERT(!store->growth_started && store->grant_count == 0);
    if (rc != 0)
        return rc;
    rc = replay(store);
    pm_growth_forget(store);
    if (rc != 0)
        return rc;
    store->slot0.epoch++;
    store->slot0.nonce = cn_random64(store->pm->env);
    store->slot0.state = PM_SLOT_OPEN;
    store->slot0.owner = store->pool->super.pool;
    store->slot0.view = store->pool->view_max;
    store->slot0.incarnation = store->pool->incarnation;
    store->slot0.position_seq = store->slot0.position_off = 0;
    store->slot0.closing_seq = 0;
    store->slot0.tombstone_count = 0;
    pm_slot_store(store->pool, &store->slot0);
    /* Before the first record of the epoch: else its bytes could be read under the old nonce. */
    pm_fence(store->pm, CN_STEP_s_handout);
    store->log_seq = store->log_tail = 0;
    store->growth_started = true;
    return 0;
}
