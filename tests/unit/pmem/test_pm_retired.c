/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the table of retired epochs gives the true final state or none, whatever crash.
 * Method: crashes at every event of add and remove; a random history against a plain model.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pmem/pm_slot.h"
#include "tests/support/ts_pool.h"

#define SEEDS 16u

struct fixture {
    struct ts_pool *t;
    struct pm_retired_table *table;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->t = ts_pool_new(NULL, 0);
    assert_int_equal(pm_retired_open(&f->t->pool, &f->table), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    pm_retired_close(&f->table);
    ts_pool_delete(&f->t);
    free(f);
    return 0;
}

static void reopen(struct fixture *f)
{
    pm_retired_close(&f->table);
    assert_int_equal(pm_retired_open(&f->t->pool, &f->table), 0);
}

/* A closed slot with tombstones at 2, 4, 6, ... */
static struct pm_slot closed_slot(struct ts_pool *t, uint64_t epoch, unsigned tombstones)
{
    struct pm_slot slot = {.number = 1, .state = PM_SLOT_CLOSED, .epoch = epoch, .nonce = epoch * 7,
        .owner = {{(uint8_t)epoch}}, .view = 3, .position_seq = 100, .closing_seq = 100};

    for (unsigned i = 0; i < tombstones; i++)
        assert_int_equal(pm_slot_add_tombstone(&t->pool, &slot, 2 * i + 2), 0);
    return slot;
}

static void check_epoch(const struct fixture *f, uint64_t epoch, unsigned tombstones)
{
    const struct pm_retired *r = pm_retired_find(f->table, 1, epoch);

    assert_non_null(r);
    assert_int_equal(r->slot, 1);
    assert_int_equal(r->epoch, epoch);
    assert_int_equal(r->closing_seq, 100);
    assert_int_equal(r->retired_s, 5000);
    assert_int_equal(r->view, 3);
    assert_int_equal(r->owner.b[0], (uint8_t)epoch);
    assert_int_equal(r->tombstone_count, tombstones);
    for (uint64_t seq = 0; seq < 40; seq++)
        assert_int_equal(pm_retired_has_tombstone(f->table, r, seq),
            seq != 0 && seq % 2 == 0 && seq <= 2 * tombstones);
}

static void pm_retired_add__with_tombstones__found_after_power_failure(void **state)
{
    struct fixture *f = *state;
    static const unsigned counts[] = {0, 1, 5, 6, 16};
    uint32_t used = 0;

    for (unsigned i = 0; i < CN_ARRAY_SIZE(counts); i++) {
        struct pm_slot slot = closed_slot(f->t, i + 1, counts[i]);

        assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
        used += 1 + (counts[i] + 4) / 5;
        assert_int_equal(pm_retired_add(f->table, &slot, 6000), 0); /* again: changes nothing */
        assert_int_equal(pm_retired_free(f->table), 32 - used);
    }
    assert_int_equal(ts_pool_crash(f->t, 1, TS_CRASH_ALL_LOST), 0);
    reopen(f);
    assert_int_equal(pm_retired_free(f->table), 32 - used);
    for (unsigned i = 0; i < CN_ARRAY_SIZE(counts); i++)
        check_epoch(f, i + 1, counts[i]);
    assert_null(pm_retired_find(f->table, 1, 99));
    assert_null(pm_retired_find(f->table, 2, 1));
}

static void pm_retired_add__full__limit_until_removed(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot;
    uint64_t epoch = 1;

    for (; pm_retired_free(f->table) > 1; epoch++) {
        slot = closed_slot(f->t, epoch, 0);
        assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
    }
    slot = closed_slot(f->t, epoch, 1); /* needs two */
    assert_int_equal(pm_retired_add(f->table, &slot, 5000), CAIRN_E_LIMIT);
    assert_null(pm_retired_find(f->table, 1, epoch));
    pm_retired_remove(f->table, pm_retired_find(f->table, 1, 4));
    assert_null(pm_retired_find(f->table, 1, 4));
    assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
    check_epoch(f, epoch, 1);
    assert_int_equal(pm_retired_free(f->table), 0);
}

static void pm_retired_next__removing_on_the_way__visits_each_once(void **state)
{
    struct fixture *f = *state;
    const struct pm_retired *r = NULL;
    unsigned seen = 0, left = 0;

    for (uint64_t epoch = 1; epoch <= 8; epoch++) {
        struct pm_slot slot = closed_slot(f->t, epoch, epoch % 3 == 0 ? 6 : 0);

        assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
    }
    while ((r = pm_retired_next(f->table, r)) != NULL) {
        seen |= 1u << r->epoch;
        if (r->epoch % 2 == 0)
            pm_retired_remove(f->table, r);
    }
    assert_int_equal(seen, 0x1fe);
    assert_int_equal(ts_pool_crash(f->t, 1, TS_CRASH_ALL_LOST), 0);
    reopen(f);
    while ((r = pm_retired_next(f->table, r)) != NULL)
        left |= 1u << r->epoch;
    assert_int_equal(left, 0xaa);
    check_epoch(f, 3, 6);
}

struct job {
    struct pm_retired_table *table;
    const struct pm_slot *slot;
};

static void do_add(struct ts_pool *t CN_UNUSED, void *arg)
{
    struct job *job = arg;

    assert_int_equal(pm_retired_add(job->table, job->slot, 5000), 0);
}

static void do_remove(struct ts_pool *t CN_UNUSED, void *arg)
{
    struct job *job = arg;

    pm_retired_remove(job->table, pm_retired_find(job->table, 1, job->slot->epoch));
}

/* Crash it everywhere; after each crash epoch 9 is there as a whole or not at all, and can be
 * added. */
static void crash_everywhere(struct fixture *f, const struct pm_slot *slot,
    void (*fn)(struct ts_pool *, void *), bool there_at_end)
{
    struct ts_image *image = ts_pool_save(f->t);
    unsigned with = 0, without = 0;

    for (uint64_t at = 1;; at++) {
        bool crashed = true;

        for (unsigned seed = 0; seed < SEEDS && crashed; seed++) {
            enum ts_crash mode = seed < 4 ? (enum ts_crash)seed : TS_CRASH_RANDOM;
            struct job job;
            bool there;

            ts_pool_restore(f->t, image);
            reopen(f);
            job = (struct job){f->table, slot};
            crashed = ts_pool_run(f->t, at, fn, &job);
            assert_int_equal(ts_pool_crash(f->t, seed + 1000 * at, mode), 0);
            reopen(f);
            there = pm_retired_find(f->table, 1, 9) != NULL;
            with += there;
            without += !there;
            if (!crashed)
                assert_int_equal(there, there_at_end);
            if (there)
                check_epoch(f, 9, 11);
            assert_int_equal(pm_retired_free(f->table), 32 - 2 - (there ? 4 : 0));
            check_epoch(f, 5, 2);
            /* Done again, in other entries (left-overs must not mix with them), and durable. */
            if (seed % 2 == 1)
                pm_retired_remove(f->table, pm_retired_find(f->table, 1, 5));
            assert_int_equal(pm_retired_add(f->table, slot, 5000), 0);
            assert_int_equal(ts_pool_crash(f->t, 1, TS_CRASH_ALL_LOST), 0);
            reopen(f);
            check_epoch(f, 9, 11);
            assert_int_equal(pm_retired_free(f->table), 32 - (seed % 2 == 1 ? 4 : 6));
        }
        if (!crashed)
            break;
    }
    assert_true(with > 0 && without > 0);
    ts_image_delete(&image);
}

static void pm_retired_add__crash_anywhere__whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    struct pm_slot other = closed_slot(f->t, 5, 2), slot;

    assert_int_equal(pm_retired_add(f->table, &other, 5000), 0);
    slot = closed_slot(f->t, 9, 11); /* in the same slot: over the tombstones of the other */
    ts_pool_settle(f->t);
    check_epoch(f, 5, 2);
    crash_everywhere(f, &slot, do_add, true);
}

static void pm_retired_remove__crash_anywhere__whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    struct pm_slot other = closed_slot(f->t, 5, 2), slot;

    assert_int_equal(pm_retired_add(f->table, &other, 5000), 0);
    slot = closed_slot(f->t, 9, 11);
    assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
    ts_pool_settle(f->t);
    crash_everywhere(f, &slot, do_remove, false);
}

static void pm_retired_open__damaged_tombstones__epoch_is_forgotten_not_wrong(void **state)
{
    struct fixture *f = *state;
    struct pm_slot slot = closed_slot(f->t, 9, 11);
    uint64_t off = f->t->pool.super.retired_off;
    unsigned forgotten = 0;

    assert_int_equal(pm_retired_add(f->table, &slot, 5000), 0);
    for (unsigned bit = 0; bit < 4 * 64 * 8; bit++) {
        f->t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
        f->t->pool.pm.read_only = true; /* so that nothing is cleared */
        reopen(f);
        forgotten += pm_retired_find(f->table, 1, 9) == NULL;
        assert_null(pm_retired_next(f->table, NULL));
        f->t->pool.pm.read_only = false;
        f->t->visible[off + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(forgotten, 4 * 64 * 8);
    reopen(f);
    check_epoch(f, 9, 11);
}

static void pm_retired_add__random_history__equals_the_model(void **state)
{
    struct fixture *f = *state;
    uint64_t seed = 5;
    unsigned tombstones[64] = {0};
    bool there[64] = {false};

    for (unsigned round = 0; round < 2000; round++) {
        uint64_t epoch = 1 + ts_random(&seed) % 63;

        if (there[epoch]) {
            pm_retired_remove(f->table, pm_retired_find(f->table, 1, epoch));
            there[epoch] = false;
        } else {
            struct pm_slot slot;
            int rc;

            tombstones[epoch] = (unsigned)(ts_random(&seed) % 12);
            pm_zero(&f->t->pool.pm, f->t->pool.super.slots_off + f->t->pool.super.slot_stride,
                f->t->pool.super.slot_stride);
            slot = closed_slot(f->t, epoch, tombstones[epoch]);
            rc = pm_retired_add(f->table, &slot, 5000);
            there[epoch] = rc == 0;
            assert_true(rc == 0 || rc == CAIRN_E_LIMIT);
        }
        if (round % 50 == 0) {
            assert_int_equal(ts_pool_crash(f->t, round, TS_CRASH_RANDOM), 0);
            reopen(f);
        }
        for (epoch = 1; epoch < 64; epoch++) {
            if (there[epoch])
                check_epoch(f, epoch, tombstones[epoch]);
            else
                assert_null(pm_retired_find(f->table, 1, epoch));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            pm_retired_add__with_tombstones__found_after_power_failure, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_add__full__limit_until_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_next__removing_on_the_way__visits_each_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_add__crash_anywhere__whole_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_remove__crash_anywhere__whole_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_open__damaged_tombstones__epoch_is_forgotten_not_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(
            pm_retired_add__random_history__equals_the_model, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
