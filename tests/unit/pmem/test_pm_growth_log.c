/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: growth is durable, exactly once, whatever a crash keeps and wherever it strikes; ring 0 is
 * reused only below its persisted position. Method: every crash point of index creation, chunk
 * assignment and splits, recovered and crashed again.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_store_internal.h"
#include "tests/support/ts_store.h"

static void run_restart(struct ts_pool *t, void *arg)
{
    (void)t;
    ts_store_restart(arg);
}

static void grow_everything(struct ts_pool *t, void *arg)
{
    struct ts_store *s = arg;
    struct pm_lock_pm got;
    uint32_t count;

    (void)t;
    assert_int_equal(pm_store_create_index(s->s, 2, 0), 0);
    assert_int_equal(pm_heap_grant(s->s, 1, 7, 1, &got, &count), 0);
    for (uint32_t i = 0; i < 8; i++) /* some take a chunk of buckets */
        assert_int_equal(
            pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, ts_random(&s->seed), 100), 0);
    while (pm_growth_step(s->s, 5) != 0)
        ;
}

static bool crash_growth_at(uint64_t at, enum ts_crash mode, bool twice)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    uint64_t seed = at;
    bool crashed;

    g.ring_size = 4096;
    g.slot_count = 2;
    g.retired_max = 4;
    g.root_map_max = 32;
    s = ts_store_new(&g, 0, 2);
    for (uint32_t key = 0; key < 5; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    ts_pool_settle(s->t);
    crashed = ts_pool_run(s->t, at, grow_everything, s);
    if (crashed) {
        assert_int_equal(ts_pool_crash(s->t, at, mode), 0);
        if (twice && ts_pool_run(s->t, 1 + ts_random(&seed) % 150, run_restart, s))
            assert_int_equal(ts_pool_crash(s->t, at + 1, TS_CRASH_RANDOM), 0);
        ts_store_restart(s);
    }
    ts_store_check(s);
    grow_everything(s->t, s); /* goes on from wherever it was */
    ts_store_check(s);
    ts_store_delete(&s);
    return crashed;
}

static void growth__crash_at_every_event__store_is_whole(void **state)
{
    uint64_t at = 1;

    (void)state;
    /* Zeroing a chunk is 512 events of one kind: strides there, every event elsewhere by the
     * offsets. */
    while (crash_growth_at(at, (enum ts_crash)(at % 4), at % 3 == 0))
        at += at % 5 == 0 ? 7 : 1;
    assert_true(at > 1000);
}

static void start__replay__is_repeatable_after_process_death(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 2);
    struct pm_fsck_report a, b;
    bool crashed;

    (void)state;
    for (uint32_t key = 0; key < 5; key++)
        assert_int_equal(ts_store_put(s, 1, key, 10), 0);
    crashed = ts_pool_run(s->t, 900, grow_everything, s);
    assert_true(crashed);
    assert_int_equal(ts_pool_crash(s->t, 1, TS_CRASH_PROCESS), 0);
    ts_store_restart(s);
    assert_int_equal(pm_fsck(&s->t->pool, NULL, &a), 0);
    ts_store_restart(s);
    ts_store_restart(s);
    assert_int_equal(pm_fsck(&s->t->pool, NULL, &b), 0);
    assert_int_equal(a.damages + b.damages, 0);
    assert_int_equal(a.canonical, b.canonical);
    ts_store_delete(&s);
}

/* A process dies with the header visible only; then power fails while the next one starts. */
static void start__header_in_cache_only__is_not_lost(void **state)
{
    bool crashed = true;

    (void)state;
    for (uint64_t at = 1; crashed; at++) {
        struct ts_store *s = ts_store_new(NULL, 0, 2);

        s->s->slot0.position_seq = s->s->log_seq;
        s->s->slot0.position_off = s->s->log_tail;
        pm_slot_store(&s->t->pool, &s->s->slot0);
        assert_int_equal(ts_pool_crash(s->t, at, TS_CRASH_PROCESS), 0);
        crashed = ts_pool_run(s->t, at, run_restart, s);
        assert_int_equal(
            ts_pool_crash(s->t, at, at % 2 == 0 ? TS_CRASH_RANDOM : TS_CRASH_ALL_LOST), 0);
        ts_store_restart(s);
        ts_store_check(s);
        ts_store_delete(&s);
    }
}

static void ring__many_records__wraps_and_persists_the_position(void **state)
{
    struct pm_geometry g = ts_geometry_small;
    struct ts_store *s;
    uint64_t epoch;

    (void)state;
    g.ring_size = 4096;
    s = ts_store_new(&g, 0, 2);
    epoch = s->s->slot0.epoch;
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(
            pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, ts_random(&s->seed), 100), 0);
    assert_true(s->s->log_tail > 4 * 4096);
    assert_true(s->t->step_count[CN_STEP_a_position] > 4);
    assert_true(s->s->log_tail - s->s->slot0.position_off <= 4096);
    ts_store_restart(s);
    assert_int_equal(s->s->slot0.epoch, epoch + 1);
    assert_int_equal(s->s->log_tail, 0);
    ts_store_check(s);
    ts_store_delete(&s);
}

static void start__a_record_is_missing__is_an_error_unless_applied(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 2);
    struct pm_slot slot;
    uint64_t off;

    (void)state;
    ts_store_restart(s); /* an empty ring 0 */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, 0, 100), 0);
    assert_int_equal(s->s->slot0.position_seq, 0);
    off = pm_slot_log_at(&s->t->pool, 0, 0);
    pm_store64(&s->t->pm, off + 200, ~pm_load64(&s->t->pm, off + 200));
    ts_pool_settle(s->t);
    pm_store_close(&s->s);
    assert_int_equal(pm_store_open(&s->t->pool, &s->cas, &s->s), 0);
    assert_int_equal(pm_growth_start(s->s), 0); /* applied and released long ago */
    assert_int_equal(pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, 0, 100), 0);
    assert_int_equal(pm_growth_room(s->s, pm_store_index(s->s, 1, 0)->off, 0, 100), 0);
    slot = s->s->slot0;
    pm_store64(&s->t->pm, off + 200, ~pm_load64(&s->t->pm, off + 200));
    /* Its state gone as well: then nobody can say what it did. */
    slot.nonce ^= 1;
    pm_slot_set_applied(&s->t->pool, &slot, 1);
    ts_pool_settle(s->t);
    pm_store_close(&s->s);
    assert_int_equal(pm_store_open(&s->t->pool, &s->cas, &s->s), 0);
    assert_int_equal(pm_growth_start(s->s), CAIRN_E_CORRUPT_RECORD);
    ts_store_delete(&s);
}

static void start__corrupt_descriptor__is_an_error(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 2);
    uint64_t off = pm_chunk_desc_off(&s->s->c, (uint32_t)(pm_store_index(s->s, 1, 0)->off >> 12));

    (void)state;
    ts_store_restart(s);
    pm_store64(&s->t->pm, off + 8, 77);
    pm_store_close(&s->s);
    assert_int_equal(pm_store_open(&s->t->pool, &s->cas, &s->s), 0);
    assert_int_equal(pm_growth_start(s->s), CAIRN_E_CORRUPT_INDEX);
    ts_store_delete(&s);
}

static void create_index__again__is_idempotent(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 2);
    struct pm_store_stats a, b;

    (void)state;
    pm_store_stats(s->s, &a);
    assert_int_equal(pm_store_create_index(s->s, 1, 0), 0);
    pm_store_stats(s->s, &b);
    assert_int_equal(a.chunks_free, b.chunks_free);
    assert_int_equal(pm_store_index_count(s->s), 1);
    assert_int_equal(pm_store_create_index(s->s, 1, 1), 0);
    assert_int_equal(pm_store_index_count(s->s), 2);
    ts_store_restart(s);
    assert_int_equal(pm_store_index_count(s->s), 2);
    assert_int_equal(pm_store_index(s->s, 1, 1)->index, 2);
    assert_ptr_equal(pm_store_index_by_id(s->s, 2), pm_store_index(s->s, 1, 1));
    assert_null(pm_store_index(s->s, 2, 0));
    assert_null(pm_store_index_by_id(s->s, 3));
    assert_null(pm_store_index_by_id(s->s, 0));
    ts_store_check(s);
    ts_store_delete(&s);
}

static void create_index__no_chunk_left__is_full_and_changes_nothing(void **state)
{
    struct ts_store *s = ts_store_new(NULL, 0, 2);
    uint16_t shard = 1;
    int rc = 0;

    (void)state;
    while (rc == 0 && shard < 200)
        rc = pm_store_create_index(s->s, 1, shard++);
    assert_int_equal(rc, CAIRN_E_POOL_FULL);
    ts_store_check(s);
    ts_store_restart(s);
    ts_store_check(s);
    ts_store_delete(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growth__crash_at_every_event__store_is_whole),
        cmocka_unit_test(start__replay__is_repeatable_after_process_death),
        cmocka_unit_test(start__header_in_cache_only__is_not_lost),
        cmocka_unit_test(ring__many_records__wraps_and_persists_the_position),
        cmocka_unit_test(start__a_record_is_missing__is_an_error_unless_applied),
        cmocka_unit_test(start__corrupt_descriptor__is_an_error),
        cmocka_unit_test(create_index__again__is_idempotent),
        cmocka_unit_test(create_index__no_chunk_left__is_full_and_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
