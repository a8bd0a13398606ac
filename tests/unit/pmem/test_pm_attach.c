/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each thing that can be wrong with a superblock has its own error, nothing is taken that is
 * wrong, and the incarnation never goes back. Method: every bit of the superblock flipped; fields
 * changed with the crc mended; crash at every event of raising the incarnation and of a clean
 * close.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "tests/support/ts_pool.h"

static int setup(void **state)
{
    struct ts_pool *t = ts_pool_new(NULL, 0);

    *state = t;
    return 0;
}

static int teardown(void **state)
{
    struct ts_pool *t = *state;

    ts_pool_delete(&t);
    return 0;
}

static int attach(struct ts_pool *t)
{
    return pm_attach(&t->pool, &t->pm, t->extent_off);
}

static void pm_attach__any_flipped_bit_of_the_static_part__refused(void **state)
{
    struct ts_pool *t = *state;

    for (unsigned bit = 0; bit < sizeof(struct pm_super_pm) * 8; bit++) {
        t->visible[t->extent_off + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(attach(t), bit < 64 ? CAIRN_E_NOT_A_POOL : CAIRN_E_CORRUPT_SUPER);
        t->visible[t->extent_off + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(attach(t), 0);
}

static void mend(struct ts_pool *t)
{
    struct pm_super_pm media;

    memcpy(&media, t->visible + t->extent_off, sizeof(media));
    media.crc = le32_make(0);
    media.crc = le32_make(cn_crc32c(0, &media, sizeof(media)));
    memcpy(t->visible + t->extent_off, &media, sizeof(media));
}

static void expect(struct ts_pool *t, size_t field, uint8_t value, int error)
{
    uint8_t *at = t->visible + t->extent_off + field, old = *at;
    int rc;

    *at = value;
    mend(t);
    rc = attach(t);
    if (rc != error)
        fail_msg("field at %zu := %u gives %s", field, value, cairn_error_name(rc));
    *at = old;
    mend(t);
}

static void pm_attach__wrong_fields_with_good_crc__each_its_error(void **state)
{
    struct ts_pool *t = *state;

    expect(t, 8, 2, CAIRN_E_LAYOUT_VERSION);
    expect(t, 56, 1, 0);                       /* a compatible feature */
    expect(t, 64, 1, CAIRN_E_LAYOUT_VERSION);  /* an incompatible one */
    expect(t, 72, 1, CAIRN_E_LAYOUT_VERSION);  /* one that allows reading */
    expect(t, 82, 1, CAIRN_E_POOL_SIZE);
    expect(t, 48, 0, CAIRN_E_CORRUPT_SUPER);   /* node 0 */
    expect(t, 50, 1, CAIRN_E_CORRUPT_SUPER);   /* node > 65535 */
    expect(t, 52, 63, CAIRN_E_CORRUPT_SUPER);  /* chunk_shift */
    expect(t, 52, 13, CAIRN_E_CORRUPT_SUPER);
    expect(t, 96, 0, CAIRN_E_CORRUPT_SUPER);   /* slot_count */
    expect(t, 99, 0xff, CAIRN_E_CORRUPT_SUPER);
    expect(t, 104, 0, CAIRN_E_CORRUPT_SUPER);  /* window */
    expect(t, 107, 0xff, CAIRN_E_CORRUPT_SUPER);
    expect(t, 111, 0xff, CAIRN_E_CORRUPT_SUPER); /* tombstone_max */
    expect(t, 119, 0xff, CAIRN_E_CORRUPT_SUPER); /* ring_size */
    expect(t, 127, 0xff, CAIRN_E_CORRUPT_SUPER); /* ring_stride */
    expect(t, 131, 0xff, CAIRN_E_CORRUPT_SUPER); /* retired_max */
    expect(t, 132, 2, CAIRN_E_CORRUPT_SUPER);    /* extent_count: the second is empty */
    expect(t, 132, 0, CAIRN_E_CORRUPT_SUPER);
    expect(t, 135, 0xff, CAIRN_E_CORRUPT_SUPER);
    for (size_t field = 136; field <= 176; field += 8) {
        expect(t, field + 7, 0xff, CAIRN_E_CORRUPT_SUPER);
        expect(t, field + 7, 0x7f, CAIRN_E_CORRUPT_SUPER);
    }
    expect(t, 188, 57, CAIRN_E_CORRUPT_SUPER);   /* bucket_slots */
    expect(t, 192, 0, CAIRN_E_CORRUPT_SUPER);    /* fingerprint_bits */
    expect(t, 196, 99, CAIRN_E_CORRUPT_SUPER);   /* depth0 */
    expect(t, 200, 1, CAIRN_E_CORRUPT_SUPER);    /* reserved */
    expect(t, 257, 0x20, CAIRN_E_CORRUPT_SUPER); /* the first extent is elsewhere */
    expect(t, 271, 0xff, CAIRN_E_CORRUPT_SUPER);
    expect(t, 272 + 16, 1, CAIRN_E_CORRUPT_SUPER); /* an unused extent */
    assert_int_equal(attach(t), 0);
    t->pm.read_only = true;
    expect(t, 72, 1, 0);
    expect(t, 64, 1, CAIRN_E_LAYOUT_VERSION);
}

static void pm_attach__cut_or_moved__refused(void **state)
{
    struct ts_pool *t = *state;

    t->pm.size -= 4096;
    assert_int_equal(attach(t), CAIRN_E_POOL_SIZE);
    t->pm.size = 8192;
    assert_int_equal(attach(t), CAIRN_E_NOT_A_POOL);
    t->pm.size = t->size;
    assert_int_equal(pm_attach(&t->pool, &t->pm, UINT64_MAX & ~4095ull), CAIRN_E_NOT_A_POOL);
    assert_int_equal(pm_attach(&t->pool, &t->pm, 64), CAIRN_E_NOT_A_POOL);
    memcpy(t->visible + 20 * 4096, t->visible + t->extent_off, PM_SUPER_AREA_SIZE);
    assert_int_equal(pm_attach(&t->pool, &t->pm, 20 * 4096), CAIRN_E_CORRUPT_SUPER);
}

static void pm_attach__any_flipped_bit_of_one_dynamic_copy__same_state(void **state)
{
    struct ts_pool *t = *state;

    t->pool.view_max = 7;
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    for (unsigned copy = 0; copy < 2; copy++) {
        uint64_t off = t->extent_off + PM_SUPER_DYN_OFF + copy * PM_SUPER_DYN_STRIDE;
        uint64_t other = t->extent_off + PM_SUPER_DYN_OFF + (1 - copy) * PM_SUPER_DYN_STRIDE;

        for (unsigned bit = 0; bit < sizeof(struct pm_super_dyn_pm) * 8; bit++) {
            t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
            assert_int_equal(attach(t), 0);
            assert_int_equal(t->pool.incarnation, 1);
            assert_int_equal(t->pool.view_max, 7);
            t->visible[other + 40] ^= 1;
            assert_int_equal(attach(t), CAIRN_E_CORRUPT_SUPER);
            t->visible[other + 40] ^= 1;
            t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

static void do_raise(struct ts_pool *t, void *arg)
{
    (void)arg;
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
}

static void pm_pool_raise_incarnation__crash_anywhere__old_or_new(void **state)
{
    struct ts_pool *t = *state;
    struct ts_image *image;
    unsigned olds = 0, news = 0;

    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    image = ts_pool_save(t);
    for (uint64_t at = 1;; at++) {
        bool crashed = true, passed;

        for (unsigned seed = 0; seed < 40 && crashed; seed++) {
            enum ts_crash mode = seed < 4 ? (enum ts_crash)seed : TS_CRASH_RANDOM;

            ts_pool_restore(t, image);
            memset(t->step_count, 0, sizeof(t->step_count));
            crashed = ts_pool_run(t, at, do_raise, NULL);
            passed = t->step_count[CN_STEP_r_incarnation] > 0;
            assert_int_equal(ts_pool_crash(t, seed + at * 100, mode), 0);
            assert_true(t->pool.incarnation == 3 || t->pool.incarnation == 4);
            if (passed)
                assert_int_equal(t->pool.incarnation, 4);
            assert_int_equal(t->pool.tag, 1 + t->pool.incarnation % PM_TAG_COUNT);
            olds += t->pool.incarnation == 3;
            news += t->pool.incarnation == 4;
            assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0); /* and goes on from there */
        }
        if (!crashed)
            break;
    }
    assert_true(olds > 50 && news > 50);
    ts_image_delete(&image);
}

/* A process dies on the way, the next one starts, and then the power fails. */
static void pm_pool_raise_incarnation__process_death_then_power_failure__attaches(void **state)
{
    struct ts_pool *t = *state;
    struct ts_image *image;
    bool first = true, second;

    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    image = ts_pool_save(t);
    for (uint64_t at = 1; first; at++) {
        second = true;
        for (uint64_t then = 1; second; then++) {
            for (unsigned seed = 0; seed < 6; seed++) {
                uint64_t seen;

                ts_pool_restore(t, image);
                first = ts_pool_run(t, at, do_raise, NULL);
                assert_int_equal(ts_pool_crash(t, 0, TS_CRASH_PROCESS), 0);
                seen = t->pool.incarnation;
                memset(t->step_count, 0, sizeof(t->step_count));
                second = ts_pool_run(t, then, do_raise, NULL);
                assert_int_equal(ts_pool_crash(t, seed + at * 1000 + then, TS_CRASH_RANDOM), 0);
                assert_true(t->pool.incarnation <= seen + 1);
                if (t->step_count[CN_STEP_r_incarnation] > 0)
                    assert_int_equal(t->pool.incarnation, seen + 1);
            }
        }
    }
    ts_image_delete(&image);
}

static void pm_pool_raise_incarnation__tags_would_repeat__again(void **state)
{
    struct ts_pool *t = *state;
    uint64_t done = t->extent_off + PM_SCRUB_OFF + offsetof(struct pm_scrub_pm, done);

    t->pool.incarnation = PM_TAG_COUNT - 2;
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    assert_int_equal(t->pool.incarnation, 2046);
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), CAIRN_E_AGAIN);
    assert_int_equal(t->pool.incarnation, 2046);
    pm_store64(&t->pool.pm, done, 1);
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), CAIRN_E_AGAIN);
    pm_store64(&t->pool.pm, done, 2048); /* beyond the incarnation */
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), CAIRN_E_CORRUPT_SUPER);
}

static void pm_pool_note_clean__then_raise__clean_is_seen_once(void **state)
{
    struct ts_pool *t = *state;

    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    assert_false(t->pool.opened_clean);
    t->pool.member_state = PM_MEMBER_JOINING;
    t->pool.view_max = 12;
    pm_pool_note_clean(&t->pool);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    assert_true(t->pool.opened_clean);
    assert_int_equal(t->pool.last_opener.pid, 0);
    assert_int_equal(t->pool.member_state, PM_MEMBER_JOINING);
    assert_int_equal(t->pool.view_max, 12);
    assert_int_equal(t->pool.incarnation, 1);
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    assert_false(t->pool.opened_clean);
    assert_int_equal(t->pool.incarnation, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            pm_attach__any_flipped_bit_of_the_static_part__refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_attach__wrong_fields_with_good_crc__each_its_error, setup, teardown),
        cmocka_unit_test_setup_teardown(pm_attach__cut_or_moved__refused, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_attach__any_flipped_bit_of_one_dynamic_copy__same_state, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_pool_raise_incarnation__crash_anywhere__old_or_new, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_pool_raise_incarnation__process_death_then_power_failure__attaches, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_pool_raise_incarnation__tags_would_repeat__again, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_pool_note_clean__then_raise__clean_is_seen_once, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
