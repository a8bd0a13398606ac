/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a slot's header, states and tombstones survive a crash at any store, flush or fence as the
 * old or the new, never as something else. Method: crash at every event, with nothing, everything
 * and random words kept.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_format.h"
#include "pmem/pm_slot.h"
#include "tests/support/ts_pool.h"

#define SEEDS 24u

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

static struct pm_slot example(void)
{
    return (struct pm_slot){.number = 2, .state = PM_SLOT_OPEN, .epoch = 3, .nonce = 99, .view = 4,
        .owner = {{8, 9}}, .position_seq = 5, .position_off = 640, .incarnation = 6};
}

static void store_durably(struct ts_pool *t, struct pm_slot *slot)
{
    pm_slot_store(&t->pool, slot);
    pm_fence(&t->pool.pm, CN_STEP_s_handout);
}

static void assert_same(const struct pm_slot *a, const struct pm_slot *b)
{
    assert_int_equal(a->number, b->number);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->nonce, b->nonce);
    assert_int_equal(a->view, b->view);
    assert_true(cn_uuid_equal(&a->owner, &b->owner));
    assert_int_equal(a->position_seq, b->position_seq);
    assert_int_equal(a->position_off, b->position_off);
    assert_int_equal(a->closing_seq, b->closing_seq);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->closed_s, b->closed_s);
}

static void pm_slot_load__never_used__free_with_epoch_0(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot;

    for (uint16_t i = 0; i < t->pool.super.geometry.slot_count; i++) {
        assert_int_equal(pm_slot_load(&t->pool, i, &slot), 0);
        assert_int_equal(slot.state, PM_SLOT_FREE);
        assert_int_equal(slot.epoch, 0);
        assert_int_equal(slot.number, i);
        assert_int_equal(slot.tombstone_count, 0);
    }
}

static void pm_slot_store__several_times__the_last_is_loaded(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), loaded;

    for (unsigned i = 0; i < 5; i++) {
        slot.position_seq++;
        slot.position_off += 128;
        store_durably(t, &slot);
        assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
        assert_same(&loaded, &slot);
        assert_int_equal(slot.generation, i + 1);
    }
    assert_int_equal(pm_slot_load(&t->pool, 1, &loaded), 0); /* the neighbour is untouched */
    assert_int_equal(loaded.epoch, 0);
}

static void store_next(struct ts_pool *t, void *arg)
{
    struct pm_slot *slot = arg;

    pm_slot_store(&t->pool, slot);
    pm_fence(&t->pool.pm, CN_STEP_s_handout);
}

static void pm_slot_store__crash_anywhere__old_or_new(void **state)
{
    struct ts_pool *t = *state;
    unsigned olds = 0, news = 0;

    for (unsigned generation = 0; generation < 3; generation++) {
        struct pm_slot old = example(), new, loaded;
        struct ts_image *image;

        if (generation == 0)
            old = (struct pm_slot){.number = 2};
        else
            store_durably(t, &old);
        if (generation == 2)
            store_durably(t, &old);
        image = ts_pool_save(t);
        for (uint64_t at = 1;; at++) {
            bool crashed = true;

            for (unsigned seed = 0; seed < SEEDS && crashed; seed++) {
                enum ts_crash mode = seed < 4 ? (enum ts_crash)seed : TS_CRASH_RANDOM;

                ts_pool_restore(t, image);
                new = old;
                new.epoch = 77;
                new.state = PM_SLOT_OPEN;
                new.nonce = 1234567;
                new.position_seq = 0;
                new.position_off = 0;
                crashed = ts_pool_run(t, at, store_next, &new);
                assert_int_equal(ts_pool_crash(t, seed + at * 100, mode), 0);
                assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
                if (!crashed)
                    assert_int_equal(loaded.epoch, 77); /* it was durable */
                assert_same(&loaded, loaded.epoch == 77 ? &new : &old);
                olds += loaded.epoch != 77;
                news += loaded.epoch == 77;
            }
            if (!crashed)
                break;
        }
        ts_pool_restore(t, image);
        ts_image_delete(&image);
    }
    assert_true(olds > 100 && news > 50);
}

/* A process dies on the way, the next one loads and stores, and then the power fails. */
static void pm_slot_store__process_death_then_power_failure__loads(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), copy, loaded;
    struct ts_image *image;
    bool first = true, second;

    store_durably(t, &slot);
    store_durably(t, &slot);
    image = ts_pool_save(t);
    for (uint64_t at = 1; first; at++) {
        second = true;
        for (uint64_t then = 1; second; then++) {
            for (unsigned seed = 0; seed < 6; seed++) {
                ts_pool_restore(t, image);
                copy = slot;
                copy.position_seq = 50;
                first = ts_pool_run(t, at, store_next, &copy);
                assert_int_equal(ts_pool_crash(t, 0, TS_CRASH_PROCESS), 0);
                assert_int_equal(pm_slot_load(&t->pool, 2, &copy), 0);
                pm_fence(&t->pool.pm, CN_STEP_a_found);
                assert_true(copy.position_seq == 50 || copy.position_seq == slot.position_seq);
                loaded = copy;
                copy.position_seq = 70;
                second = ts_pool_run(t, then, store_next, &copy);
                assert_int_equal(ts_pool_crash(t, seed + at * 1000 + then, TS_CRASH_RANDOM), 0);
                assert_int_equal(pm_slot_load(&t->pool, 2, &copy), 0);
                assert_true(
                    copy.position_seq == 70 || copy.position_seq == loaded.position_seq);
            }
        }
    }
    ts_image_delete(&image);
}

static void pm_slot_load__any_flipped_bit__the_other_copy_or_corrupt(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), loaded;
    uint64_t off = t->pool.super.slots_off + 2ull * t->pool.super.slot_stride;

    store_durably(t, &slot);
    store_durably(t, &slot);
    for (unsigned bit = 0; bit < sizeof(struct pm_slot_pm) * 8; bit++) {
        t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
        assert_int_equal(loaded.generation, 1);
        t->visible[off + PM_SLOT_COPY_STRIDE + 17] ^= 1;
        assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), CAIRN_E_CORRUPT_SLOT);
        t->visible[off + PM_SLOT_COPY_STRIDE + 17] ^= 1;
        t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    /* A good header in another slot's place is not good. */
    memcpy(t->visible + off - t->pool.super.slot_stride, t->visible + off, 256);
    assert_int_equal(pm_slot_load(&t->pool, 1, &loaded), CAIRN_E_CORRUPT_SLOT);
}

/* Change a header's field, mend its crc. */
static void expect_impossible(struct ts_pool *t, size_t field, uint8_t value)
{
    uint64_t off = t->pool.super.slots_off + 2ull * t->pool.super.slot_stride + PM_SLOT_COPY_STRIDE;
    struct pm_slot slot = example(), loaded;
    struct le32 seed = le32_make(2), crc = le32_make(0);

    memset(t->visible + off - PM_SLOT_COPY_STRIDE, 0, 256);
    store_durably(t, &slot);
    t->visible[off + field] = value;
    memcpy(t->visible + off + 8, &crc, 4);
    crc = le32_make(cn_crc32c(cn_crc32c(t->pool.crc_seed, &seed, 4), t->visible + off, 128));
    memcpy(t->visible + off + 8, &crc, 4);
    if (pm_slot_load(&t->pool, 2, &loaded) == 0 && loaded.epoch == 3)
        fail_msg("field at %zu := %u was taken", field, value);
}

static void pm_slot_load__impossible_with_good_crc__corrupt(void **state)
{
    struct ts_pool *t = *state;

    expect_impossible(t, 0, 2);   /* a generation that belongs into the other copy */
    expect_impossible(t, 12, 3);  /* state */
    expect_impossible(t, 14, 1);  /* reserved */
    expect_impossible(t, 16, 0);  /* no epoch */
    expect_impossible(t, 64, 1);  /* position not aligned */
    expect_impossible(t, 12, PM_SLOT_CLOSED); /* closing sequence before the position */
    expect_impossible(t, 96, 1);
    expect_impossible(t, 127, 1);
}

static void pm_slot_set_applied__sequence__only_that_and_only_this_epoch(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), other = slot;
    uint32_t window = t->pool.super.geometry.window;

    other.nonce++;
    assert_false(pm_slot_is_applied(&t->pool, &slot, 6));
    pm_slot_set_applied(&t->pool, &slot, 6);
    assert_true(pm_slot_is_applied(&t->pool, &slot, 6));
    assert_false(pm_slot_is_applied(&t->pool, &slot, 6 + window));
    assert_false(pm_slot_is_applied(&t->pool, &slot, 7));
    assert_false(pm_slot_is_applied(&t->pool, &other, 6));
    pm_slot_set_applied(&t->pool, &slot, 6 + window);
    assert_false(pm_slot_is_applied(&t->pool, &slot, 6));
    pm_fence(&t->pool.pm, CN_STEP_a_applied);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    assert_true(pm_slot_is_applied(&t->pool, &slot, 6 + window));
    for (uint64_t seq = 1; seq <= window; seq++) /* a whole window does not collide */
        pm_slot_set_applied(&t->pool, &slot, seq);
    for (uint64_t seq = 1; seq <= window; seq++)
        assert_true(pm_slot_is_applied(&t->pool, &slot, seq));
}

/* Over the window's end; and each line is written back once. */
static void pm_slot_set_applied_run__around_the_window__all_of_it_and_few_flushes(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example();
    uint32_t window = t->pool.super.geometry.window;
    uint64_t first = 2 * window - 2, events = t->events;

    pm_slot_set_applied_run(&t->pool, &slot, first, 5);
    assert_int_equal(t->events - events, 5 + 2); /* stores, and a flush on each side of the end */
    pm_fence(&t->pool.pm, CN_STEP_a_applied);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    for (uint64_t seq = first; seq < first + 5; seq++)
        assert_true(pm_slot_is_applied(&t->pool, &slot, seq));
    assert_false(pm_slot_is_applied(&t->pool, &slot, first - 1));
    assert_false(pm_slot_is_applied(&t->pool, &slot, first + 5));
}

static void pm_slot_add_tombstone__until_full__limit_and_all_kept(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), loaded;
    uint32_t max = t->pool.super.tombstone_max;
    uint64_t seqs[64];

    store_durably(t, &slot);
    assert_true(max <= 64);
    for (uint64_t i = 1; i <= max; i++) {
        assert_false(pm_slot_has_tombstone(&t->pool, &slot, i));
        assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, i), 0);
        assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, i), 0); /* again: no second entry */
        assert_true(pm_slot_has_tombstone(&t->pool, &slot, i));
    }
    assert_int_equal(slot.tombstone_count, max);
    assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, max + 1), CAIRN_E_LIMIT);
    assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, max), 0);
    pm_fence(&t->pool.pm, CN_STEP_a_tombstone);
    assert_int_equal(ts_pool_crash(t, 1, TS_CRASH_ALL_LOST), 0);
    assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
    assert_int_equal(loaded.tombstone_count, max);
    assert_int_equal(pm_slot_tombstones(&t->pool, &loaded, seqs, 3), max);
    assert_int_equal(seqs[2], 3);
    slot.epoch++;
    slot.nonce = 5;
    slot.tombstone_count = 0;
    store_durably(t, &slot);
    assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
    assert_int_equal(loaded.tombstone_count, 0); /* those were of the epoch before */
    assert_int_equal(pm_slot_add_tombstone(&t->pool, &loaded, 1), 0);
    assert_int_equal(loaded.tombstone_count, 1);
}

static void add_two(struct ts_pool *t, void *arg)
{
    struct pm_slot *slot = arg;

    assert_int_equal(pm_slot_add_tombstone(&t->pool, slot, 7), 0);
    assert_int_equal(pm_slot_add_tombstone(&t->pool, slot, 9), 0);
    pm_fence(&t->pool.pm, CN_STEP_a_tombstone);
}

static void pm_slot_add_tombstone__crash_anywhere__each_there_or_not(void **state)
{
    struct ts_pool *t = *state;
    struct pm_slot slot = example(), loaded;
    struct ts_image *image;
    unsigned holes = 0;

    slot.nonce = 1; /* entries of an earlier epoch lie below */
    for (uint64_t seq = 7; seq < 12; seq++)
        assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, seq), 0);
    slot = example();
    store_durably(t, &slot);
    assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, 3), 0);
    pm_fence(&t->pool.pm, CN_STEP_a_tombstone);
    image = ts_pool_save(t);
    for (uint64_t at = 1;; at++) {
        bool crashed = true;

        for (unsigned seed = 0; seed < 4 * SEEDS && crashed; seed++) {
            enum ts_crash mode = seed < 4 ? (enum ts_crash)seed : TS_CRASH_RANDOM;
            struct pm_slot copy = slot;
            bool seven, nine;

            ts_pool_restore(t, image);
            crashed = ts_pool_run(t, at, add_two, &copy);
            assert_int_equal(ts_pool_crash(t, seed + at * 100, mode), 0);
            assert_int_equal(pm_slot_load(&t->pool, 2, &loaded), 0);
            seven = pm_slot_has_tombstone(&t->pool, &loaded, 7);
            nine = pm_slot_has_tombstone(&t->pool, &loaded, 9);
            assert_true(pm_slot_has_tombstone(&t->pool, &loaded, 3));
            assert_int_equal(loaded.tombstone_count, 1 + seven + nine);
            for (uint64_t seq = 0; seq < 20; seq++) {
                if (seq != 3 && seq != 7 && seq != 9)
                    assert_false(pm_slot_has_tombstone(&t->pool, &loaded, seq));
            }
            assert_true(crashed || (seven && nine));
            holes += nine && !seven;
            /* What was not there must not appear when others are added. */
            assert_int_equal(pm_slot_add_tombstone(&t->pool, &loaded, 15), 0);
            assert_int_equal(pm_slot_has_tombstone(&t->pool, &loaded, 7), seven);
            assert_int_equal(pm_slot_has_tombstone(&t->pool, &loaded, 9), nine);
        }
        if (!crashed)
            break;
    }
    assert_true(holes > 0);
    ts_image_delete(&image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            pm_slot_load__never_used__free_with_epoch_0, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_store__several_times__the_last_is_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_store__crash_anywhere__old_or_new, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_store__process_death_then_power_failure__loads, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_load__any_flipped_bit__the_other_copy_or_corrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_load__impossible_with_good_crc__corrupt, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_set_applied__sequence__only_that_and_only_this_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_set_applied_run__around_the_window__all_of_it_and_few_flushes, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_add_tombstone__until_full__limit_and_all_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_slot_add_tombstone__crash_anywhere__each_there_or_not, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
