/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a growth record that contradicts the store is refused; a good one may be checked and stored
 * again. Method: records found in ring 0 of a store that has grown, one thing in each made wrong.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

enum { CHUNK_ROOTS, ROOT, CHUNK_BUCKETS, SPLIT, KINDS };

struct grown {
    struct ts_store *s;
    uint8_t ring[32768] __attribute__((aligned(64)));
    struct pm_record record[KINDS];
    struct pm_split_pm *split;
    struct pm_chunk_op_pm *roots, *chunk;
    struct pm_root_op_pm *root;
};

static int see(void *arg, const struct pm_record *r)
{
    struct grown *g = arg;
    uint32_t cursor = r->writes_off;
    struct pm_record_write w;
    void *payload;

    assert_true(pm_record_next_write(r, &cursor, &w));
    payload = (void *)(uintptr_t)w.value;
    if (w.op == PM_OP_SPLIT) {
        g->record[SPLIT] = *r;
        g->split = payload;
    } else if (w.op == PM_OP_ROOT) {
        g->record[ROOT] = *r;
        g->root = payload;
    } else if (((struct pm_chunk_op_pm *)payload)->root.le != 0) {
        g->record[CHUNK_BUCKETS] = *r;
        g->chunk = payload;
    } else if (g->roots == NULL) {
        g->record[CHUNK_ROOTS] = *r;
        g->roots = payload;
    }
    return 0;
}

static void grow(struct grown *g)
{
    struct pm_geometry geometry = ts_geometry_small;

    memset(g, 0, sizeof(*g));
    geometry.window = 64;
    geometry.ring_size = 32768; /* so that the position stays at 0 */
    g->s = ts_store_new(&geometry, 0, 3);
    for (uint32_t i = 0; g->chunk == NULL && i < 12; i++) { /* one of these takes a chunk */
        assert_int_equal(pm_growth_room(g->s->s, pm_store_index(g->s->s, 1, 0)->off, 7, 100), 0);
        pm_slot_snapshot(&g->s->t->pool, 0, g->ring);
        g->roots = NULL;
        assert_int_equal(pm_slot_scan(&g->s->t->pool, &g->s->s->slot0, g->ring, see, g), 0);
    }
    for (uint32_t i = 0; i < KINDS; i++)
        assert_non_null(g->record[i].head);
}

static void check__applied_records__may_be_replayed(void **state)
{
    struct grown g;
    struct pm_fsck_report a, b;

    (void)state;
    grow(&g);
    assert_int_equal(pm_fsck(&g.s->t->pool, NULL, &a), 0);
    for (uint32_t i = 0; i < KINDS; i++) {
        if (i == SPLIT)
            continue; /* the parent may have been split again since */
        assert_int_equal(pm_apply_check(g.s->s, &g.record[i], 0, PM_APPLY_REPLAY), 0);
    }
    assert_int_equal(
        pm_apply_check(g.s->s, &g.record[SPLIT], 0, PM_APPLY_REPLAY), 0); /* the last one */
    pm_apply_body(g.s->s, &g.record[SPLIT]);
    pm_apply_body(g.s->s, &g.record[CHUNK_BUCKETS]);
    pm_apply_release(g.s->s, &g.record[SPLIT]);
    assert_int_equal(pm_fsck(&g.s->t->pool, NULL, &b), 0);
    assert_int_equal(a.damages + b.damages, 0);
    assert_int_equal(a.canonical, b.canonical);
    ts_store_delete(&g.s);
}

static void fix_image(struct grown *g, uint32_t n)
{
    struct pm_bucket_pm b;
    uint64_t off = le64_get(n == 0 ? g->split->parent : g->split->child);

    memcpy(&b, g->split->image[n], sizeof(b));
    pm_bucket_finish(&b, off, pm_word_version(le64_get(b.head.meta)), g->s->t->pool.crc_seed);
    memcpy(g->split->image[n], &b, sizeof(b));
}
static void set_image(struct grown *g, uint32_t n, size_t off, uint64_t value)
{
    struct le64 v = le64_make(value);

    memcpy(g->split->image[n] + off, &v, 8);
}

static void split_place(struct grown *g)
{
    g->split->parent.le += 8;
}
static void split_child_elsewhere(struct grown *g)
{
    g->split->child.le += 512;
}
static void split_lock(struct grown *g)
{
    ((struct pm_lock_pm *)(uintptr_t)g->record[SPLIT].lock)->base.le += 9;
}
static void split_locks(struct grown *g)
{
    g->record[SPLIT].lock_count = 1;
}
static void split_crc(struct grown *g)
{
    g->split->image[1][70] ^= 1;
}
static void split_depth(struct grown *g)
{
    uint64_t meta;

    memcpy(&meta, g->split->image[0] + 8, 8);
    set_image(g, 0, 8, meta + (UINT64_C(1) << 48));
    fix_image(g, 0);
}
static void split_slot(struct grown *g)
{
    set_image(g, 1, 64, pm_slot_ref_pack(64, 1, 1));
    fix_image(g, 1);
}
static void split_version(struct grown *g)
{
    uint64_t parent = le64_get(g->split->parent);

    pm_store64(&g->s->t->pm, parent + 8, pm_load64(&g->s->t->pm, parent + 8) + 3);
}
static void fix_chunk(struct grown *g, struct pm_chunk_op_pm *op)
{
    op->descriptor.crc = le32_make(
        pm_chunk_crc(&op->descriptor, (uint32_t)le64_get(op->chunk), g->s->t->pool.crc_seed));
}
static void chunk_number(struct grown *g)
{
    g->chunk->chunk = le64_make(100000);
}
static void chunk_outside(struct grown *g)
{
    g->chunk->chunk = le64_make(1);
    fix_chunk(g, g->chunk);
}
static void chunk_taken(struct grown *g)
{
    g->chunk->chunk = g->roots->chunk;
    fix_chunk(g, g->chunk);
}
static void chunk_other_kind(struct grown *g) /* T9: it is one of ROOTS for ever */
{
    g->roots->descriptor.kind = PM_CHUNK_SLAB;
    g->roots->descriptor.class_ = 1;
    fix_chunk(g, g->roots);
}
static void chunk_crc(struct grown *g)
{
    g->chunk->descriptor.crc.le ^= 1;
}
static void chunk_no_root(struct grown *g)
{
    g->chunk->root = le64_make(0);
}
static void chunk_other_root(struct grown *g)
{
    g->chunk->root.le += 64;
}
static void chunk_entry(struct grown *g)
{
    g->chunk->map_entry = le64_make(UINT64_MAX);
}
static void chunk_entry_taken(struct grown *g)
{
    uint64_t off = pm_store_index(g->s->s, 1, 0)->off + PM_INDEX_MAP_OFF +
        8 * le64_get(g->chunk->map_entry);

    pm_store64(&g->s->t->pm, off, 4096);
}
static void root_place(struct grown *g)
{
    g->root->root.le += 8;
}
static void root_crc(struct grown *g)
{
    g->root->image.hash_key[3] ^= 1;
}
static void root_depth(struct grown *g)
{
    g->root->image.depth0 = 9;
    g->root->image.crc = le32_make(
        pm_index_crc(&g->root->image, le64_get(g->root->root), g->s->t->pool.crc_seed));
}
static void root_taken(struct grown *g)
{
    g->root->image.table.le ^= 1;
    g->root->image.crc = le32_make(
        pm_index_crc(&g->root->image, le64_get(g->root->root), g->s->t->pool.crc_seed));
}

static void check__hostile_growth_record__is_refused(void **state)
{
    static const struct {
        void (*spoil)(struct grown *);
        uint32_t record;
        int error;
    } cases[] = {
        {split_place, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_child_elsewhere, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_lock, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_locks, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_crc, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_depth, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_slot, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {split_version, SPLIT, CAIRN_E_CORRUPT_RECORD},
        {chunk_number, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_outside, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_taken, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_other_kind, CHUNK_ROOTS, CAIRN_E_CORRUPT_RECORD},
        {chunk_crc, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_no_root, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_other_root, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_entry, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {chunk_entry_taken, CHUNK_BUCKETS, CAIRN_E_CORRUPT_RECORD},
        {root_place, ROOT, CAIRN_E_CORRUPT_RECORD},
        {root_crc, ROOT, CAIRN_E_CORRUPT_INDEX},
        {root_depth, ROOT, CAIRN_E_CORRUPT_RECORD},
        {root_taken, ROOT, CAIRN_E_CORRUPT_RECORD},
    };

    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(cases); i++) {
        struct grown g;
        uint64_t events;
        int rc;

        grow(&g);
        assert_int_equal(pm_apply_check(g.s->s, &g.record[cases[i].record], 0, PM_APPLY_REPLAY), 0);
        cases[i].spoil(&g);
        events = g.s->t->events;
        rc = pm_apply_check(g.s->s, &g.record[cases[i].record], 0, PM_APPLY_REPLAY);
        if (rc != cases[i].error)
            fail_msg("case %zu: %d, %s", i, rc, cairn_last_error());
        assert_int_equal(g.s->t->events, events);
        ts_store_delete(&g.s);
    }
}

static void check__growth_record_of_a_coordinator__is_refused(void **state)
{
    struct grown g;

    (void)state;
    grow(&g);
    for (uint32_t i = 0; i < KINDS; i++)
        assert_int_equal(
            pm_apply_check(g.s->s, &g.record[i], 1, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    g.record[SPLIT].write_count = 2;
    assert_int_equal(
        pm_apply_check(g.s->s, &g.record[SPLIT], 0, PM_APPLY_LIVE), CAIRN_E_CORRUPT_RECORD);
    ts_store_delete(&g.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__applied_records__may_be_replayed),
        cmocka_unit_test(check__hostile_growth_record__is_refused),
        cmocka_unit_test(check__growth_record_of_a_coordinator__is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
