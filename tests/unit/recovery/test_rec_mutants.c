/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: each mutant of find or prevent is noticed at once (rules R11, R15, only durable facts).
 * Method: built with CAIRN_MUTANTS (tests/CMakeLists.txt); a small pool in memory, the test stores
 * records into a ring as a coordinator would. Each situation with the rule in force, then broken.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_mutant.h"
#include "recovery/rec_verdict.h"
#include "tests/support/ts_pool.h"

#ifndef CAIRN_MUTANTS
static int cn_mutant_active; /* never set: the program says "skipped" */
#endif

#define SLOT 2
#define EPOCH 5u

struct fixture {
    struct ts_pool *t;
    struct txn_part part;
    struct pm_retired_table *retired;
    struct rec_finder finder;
    uint32_t fences;
    uint64_t log_off;
};

static int fence(void *arg, uint16_t number)
{
    struct fixture *f = arg;
    f->fences++;
    int error = txn_part_scan(&f->part, &f->part.slot[number]);
    return error != 0 ? error : txn_part_seal(&f->part, &f->part.slot[number]);
}

static void begin(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    f->t = ts_pool_new(&ts_geometry_small, 0);
    assert_int_equal(txn_part_open(&f->part, &f->t->pool, &f->t->env), 0);
    assert_int_equal(pm_retired_open(&f->t->pool, &f->retired), 0);
    struct pm_slot *media = &f->part.slot[SLOT].media;
    media->state = PM_SLOT_OPEN;
    media->epoch = EPOCH;
    media->nonce = 99;
    memset(media->owner.b, 0xbb, sizeof(media->owner.b));
    pm_slot_store(&f->t->pool, media);
    pm_fence(&f->t->pool.pm, CN_STEP_s_handout);
    f->finder = (struct rec_finder){
        .node = f->t->pool.super.node,
        .part = &f->part,
        .retired = f->retired,
        .arg = f,
        .fence = fence,
    };
}

static void end(struct fixture *f)
{
    cn_mutant_active = CN_MUTANT_none;
    pm_retired_close(&f->retired);
    txn_part_close(&f->part);
    ts_pool_delete(&f->t);
}

/* Record 1, of transaction 101. Returns its pool offset. */
static uint64_t put_record(struct fixture *f)
{
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_pool *pool = &f->t->pool;
    struct pm_place place = pm_slot_place(pool, &f->part.slot[SLOT].media, f->log_off);
    struct cn_txid txid = {.count = 101};
    struct pm_record_writer w;
    memset(txid.coordinator.b, 0xbb, 16);
    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, pool->super.node, 0, 0, SLOT, EPOCH, 1);
    pm_record_add_participant(&w, (uint16_t)(pool->super.node + 1), 1, 0, SLOT, 1, 1);
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, 1, 1, &place);
    uint64_t at = pm_slot_log_at(pool, SLOT, f->log_off);
    pm_copy(&pool->pm, at, buf, size);
    f->log_off += size;
    return at;
}

static enum rd_verdict find(struct fixture *f, uint64_t count)
{
    struct rd_place_wire place = {
        .count = le64_make(count),
        .epoch = le64_make(EPOCH),
        .seq = le64_make(1),
        .slot = le16_make(SLOT),
        .node = le16_make(f->finder.node),
    };
    memset(place.coordinator.b, 0xbb, sizeof(place.coordinator.b));
    return rec_find(&f->finder, &place);
}

/* R11: is a record durable when PRESENT is said of it? */
static bool present_is_durable(int mutant)
{
    struct fixture f;
    begin(&f);
    uint64_t at = put_record(&f);
    txn_part_poll(&f.part, &f.part.slot[SLOT]);
    cn_mutant_active = mutant;
    assert_int_equal(find(&f, 101), RD_VERDICT_PRESENT);
    bool durable = ts_pool_is_durable(f.t, at, 128);
    end(&f);
    return durable;
}

static void present_volatile__noticed(void **state)
{
    (void)state;
    assert_true(present_is_durable(CN_MUTANT_none));
    assert_false(present_is_durable(CN_MUTANT_n_present_volatile));
}

/* R15: asked for another transaction at that sequence. */
static enum rd_verdict find_stranger(int mutant)
{
    struct fixture f;
    begin(&f);
    put_record(&f);
    cn_mutant_active = mutant;
    enum rd_verdict verdict = find(&f, 777);
    end(&f);
    return verdict;
}

static void present_without_txid__noticed(void **state)
{
    (void)state;
    assert_int_equal(find_stranger(CN_MUTANT_none), RD_VERDICT_FORGOTTEN);
    assert_int_equal(find_stranger(CN_MUTANT_n_present_without_txid), RD_VERDICT_PRESENT);
}

/* Section 6: asked before the record arrives, and again behind it. ABORTED must be for ever. */
static enum rd_verdict find_twice(int mutant)
{
    struct fixture f;
    begin(&f);
    cn_mutant_active = mutant;
    assert_int_equal(find(&f, 101), RD_VERDICT_ABORTED);
    put_record(&f);
    txn_part_poll(&f.part, &f.part.slot[SLOT]);
    enum rd_verdict verdict = find(&f, 101);
    end(&f);
    return verdict;
}

static void abort_without_fence__noticed(void **state)
{
    (void)state;
    assert_int_equal(find_twice(CN_MUTANT_none), RD_VERDICT_ABORTED);
    assert_int_equal(find_twice(CN_MUTANT_n_abort_without_fence), RD_VERDICT_PRESENT);
}

int main(void)
{
#ifndef CAIRN_MUTANTS
    if (cn_mutant_active == 0)
        return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(present_volatile__noticed),
        cmocka_unit_test(present_without_txid__noticed),
        cmocka_unit_test(abort_without_fence__noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
