/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the chunk table says of every offset what may lie there; opening reads descriptors and
 * roots only, and checks them against each other.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static void place_kind__any_offset__has_an_answer(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    const struct pm_chunks *c = &s->s->c;
    struct pm_lock_pm got;
    uint32_t count, items = 0, buckets = 0;

    (void)state;
    assert_int_equal(
        pm_heap_grant(s->s, 1, 2, 1, &got, &count), 0); /* 192 bytes: 21 blocks in 4096 */
    for (uint64_t off = 0; off < s->t->size + 65536; off += 8) {
        enum pm_kind kind = pm_place_kind(c, off);

        items += kind == PM_KIND_ITEM;
        buckets += kind == PM_KIND_BUCKET;
        if (kind == PM_KIND_BUCKET)
            assert_int_equal(pm_bucket_place(c, c->root[0], pm_bucket_number_at(c, off)), off);
    }
    assert_int_equal(items, 21);
    assert_int_equal(buckets, 8);
    assert_int_equal(pm_place_kind(c, UINT64_MAX), PM_KIND_NONE);
    assert_int_equal(pm_place_kind(c, UINT64_MAX - 63), PM_KIND_NONE);
    assert_false(pm_place_is_block(c, le64_get(got.off), 1));
    assert_true(pm_place_is_block(c, le64_get(got.off), 2));
    assert_true(pm_place_is_root(c, c->root[0]->index.off));
    assert_false(pm_place_is_root(c, c->root[0]->index.off + 8));
    assert_false(pm_place_is_root(c, UINT64_MAX));
    assert_int_equal(pm_bucket_place(c, c->root[0], UINT64_MAX), 0);
    ts_store_delete(&s);
}

static int load_strict(struct ts_store *s)
{
    struct pm_chunks c;
    int rc = pm_chunks_load(&c, &s->t->pool, true);

    if (rc == 0)
        pm_chunks_unload(&c);
    return rc;
}

static void load__damaged_metadata__is_an_error(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    struct pm *pm = &s->t->pm;
    struct pm_root *root = s->s->c.root[0];
    uint64_t d = pm_chunk_desc_off(&s->s->c, root->map[0]),
             map = root->index.off + PM_INDEX_MAP_OFF;
    uint64_t entry = pm_load64(pm, map), first = pm_load64(pm, d), second = pm_load64(pm, d + 8);

    (void)state;
    assert_int_equal(load_strict(s), 0);
    pm_store64(pm, map, 0);
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    pm_store64(pm, map, entry + 4096);
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    pm_store64(pm, map, entry);
    pm_store64(pm, map + 8, entry);
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    pm_store64(pm, map + 8, 0);
    pm_store64(pm, d, 0);
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    pm_store64(pm, d + 8, 0); /* a free chunk: then the map is wrong */
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    pm_store64(pm, d, first);
    pm_store64(pm, d + 8, second);
    pm_store64(pm, d, first ^ 0x10000); /* the hint is outside the crc */
    assert_int_equal(load_strict(s), 0);
    pm_store64(pm, root->index.off + 40, 1);
    assert_int_equal(load_strict(s), CAIRN_E_CORRUPT_INDEX);
    ts_store_delete(&s);
}

static void open__torn_descriptor__is_left_to_replay(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    struct pm_store *other;
    uint64_t d = pm_chunk_desc_off(&s->s->c, s->s->c.root[0]->map[0]);

    (void)state;
    pm_store64(&s->t->pm, d, 0);
    assert_int_equal(pm_store_open(&s->t->pool, NULL, &other), 0);
    assert_int_equal(other->c.chunk[s->s->c.root[0]->map[0]].kind, PM_CHUNK_BAD);
    pm_store_close(&other);
    assert_null(other);
    pm_store_close(&other);
    ts_store_delete(&s);
}

static void stats__count__what_there_is(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 1);
    struct pm_store_stats st;

    (void)state;
    assert_int_equal(ts_store_put(s, 1, 0, 10), 0);
    pm_store_stats(s->s, &st);
    assert_int_equal(st.chunks_roots, 1);
    assert_int_equal(st.chunks_buckets, 1);
    assert_int_equal(st.chunks_slab, 1);
    assert_int_equal(st.chunks_total, st.chunks_free + 3);
    assert_int_equal(st.chunks_taken, 3);
    assert_int_equal(st.class_[0].chunks, 1);
    assert_int_equal(st.class_[0].free_known, 63);
    assert_int_equal(st.class_[0].granted, 0);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_kind__any_offset__has_an_answer),
        cmocka_unit_test(load__damaged_metadata__is_an_error),
        cmocka_unit_test(open__torn_descriptor__is_left_to_replay),
        cmocka_unit_test(stats__count__what_there_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
