/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a pool that is being made is no pool until it is one: crash at every event.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "tests/support/ts_pool.h"

static void pm_format__small_pool__attaches_as_asked(void **state)
{
    struct ts_pool *t = ts_pool_new(NULL, 0);
    const struct pm_super *s = &t->pool.super;

    (void)state;
    assert_int_equal(s->node, 1);
    assert_int_equal(s->cluster.b[0], 0xc1);
    assert_false(cn_uuid_is_zero(&s->pool));
    assert_int_equal(s->pool.b[6] >> 4, 4);
    assert_int_equal(s->geometry.chunk_shift, 12);
    assert_int_equal(s->geometry.depth0, 0);
    assert_int_equal(s->geometry.bucket_slots, 4);
    assert_int_equal(s->tombstone_max, 16);
    assert_int_equal(s->created_s, 1000000);
    assert_int_equal(s->extent[0].off, t->extent_off);
    assert_int_equal(t->pool.incarnation, 0);
    assert_int_equal(t->pool.member_state, PM_MEMBER_FULL);
    assert_true(t->pool.opened_clean);
    assert_int_equal(t->pool.fd, -1);
    assert_int_equal(t->step_count[CN_STEP_r_format], 1);
    assert_int_equal(t->step_count[CN_STEP_r_formatted], 1);
    assert_true(ts_pool_is_durable(t, 0, t->size));
    ts_pool_delete(&t);
}

static void pm_format__bad_request__config(void **state)
{
    struct ts_pool *t = ts_pool_new_blank(NULL, 0);
    struct pm_geometry big = ts_geometry_small;
    struct pm_extent_pm extent = {le64_make(4096), le64_make(t->size - 4096)};
    struct cn_uuid cluster = {{1}};

    (void)state;
    big.ring_size = 1 << 20;
    assert_int_equal(pm_format(&t->pm, &extent, 1, &big, &cluster, 1), CAIRN_E_CONFIG);
    assert_non_null(strstr(cairn_last_error(), "at least"));
    assert_int_equal(
        pm_format(&t->pm, &extent, 0, &ts_geometry_small, &cluster, 1), CAIRN_E_CONFIG);
    assert_int_equal(
        pm_format(&t->pm, &extent, 1, &ts_geometry_small, &cluster, 0), CAIRN_E_CONFIG);
    extent.off = le64_make(4096 + 64);
    assert_int_equal(
        pm_format(&t->pm, &extent, 1, &ts_geometry_small, &cluster, 1), CAIRN_E_CONFIG);
    extent = (struct pm_extent_pm){le64_make(4096), le64_make(t->size)};
    assert_int_equal(
        pm_format(&t->pm, &extent, 1, &ts_geometry_small, &cluster, 1), CAIRN_E_CONFIG);
    assert_int_equal(pm_attach(&t->pool, &t->pm, 4096), CAIRN_E_NOT_A_POOL);
    assert_int_equal(t->events, 0); /* nothing was stored */
    ts_pool_delete(&t);
}

static void pm_format__two_extents__both_in_the_superblock(void **state)
{
    struct ts_pool *t = ts_pool_new_blank(NULL, 0);
    struct pm_extent_pm extent[2] = {
        {le64_make(3 * 4096), le64_make(t->size - 10 * 4096)}, {le64_make(4096), le64_make(4096)}};
    struct cn_uuid cluster = {{1}};

    (void)state;
    assert_int_equal(pm_format(&t->pm, extent, 2, &ts_geometry_small, &cluster, 65535), 0);
    assert_int_equal(pm_attach(&t->pool, &t->pm, 3 * 4096), 0);
    assert_int_equal(t->pool.super.extent_count, 2);
    assert_int_equal(t->pool.super.extent[1].off, 4096);
    assert_int_equal(t->pool.super.node, 65535);
    assert_int_equal(pm_attach(&t->pool, &t->pm, 4096), CAIRN_E_NOT_A_POOL);
    ts_pool_delete(&t);
}

static void do_format(struct ts_pool *t, void *arg)
{
    (void)arg;
    assert_int_equal(ts_pool_format(t, NULL), 0);
}

static void pm_format__crash_anywhere__not_a_pool_or_whole(void **state)
{
    struct ts_pool *t = ts_pool_new_blank(NULL, 0);
    struct ts_image *image = ts_pool_save(t);
    unsigned nots = 0, wholes = 0;

    (void)state;
    for (uint64_t at = 1;; at++) {
        bool crashed = true;

        for (unsigned seed = 0; seed < 8 && crashed; seed++) {
            enum ts_crash mode = seed < 4 ? (enum ts_crash)seed : TS_CRASH_RANDOM;
            int rc;

            ts_pool_restore(t, image);
            crashed = ts_pool_run(t, at, do_format, NULL);
            rc = ts_pool_crash(t, seed + at * 100, mode);
            nots += rc == CAIRN_E_NOT_A_POOL;
            wholes += rc == 0;
            assert_true(rc == 0 || (crashed && rc == CAIRN_E_NOT_A_POOL));
            if (rc == 0)
                assert_int_equal(t->pool.generation, 2);
        }
        if (!crashed)
            break;
    }
    assert_true(nots > 100 && wholes > 2);
    ts_image_delete(&image);
    ts_pool_delete(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pm_format__small_pool__attaches_as_asked),
        cmocka_unit_test(pm_format__bad_request__config),
        cmocka_unit_test(pm_format__two_extents__both_in_the_superblock),
        cmocka_unit_test(pm_format__crash_anywhere__not_a_pool_or_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
