/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: find or prevent at one participant, and the verdict over all.
 * Method: a small pool in memory; records are stored into a ring as a coordinator would.
 * Invariants: ABORTED only after a fence and for what can never be logged any more; PRESENT only
 * for the same transaction id and after it was made durable; an answer once given does not change.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recovery/rec_verdict.h"
#include "tests/support/ts_pool.h"

#define SLOT 2
#define EPOCH 5u

struct fixture {
    struct ts_pool *t;
    struct txn_part part;
    struct pm_store *store;
    struct pm_retired_table *retired;
    struct rec_finder finder;
    uint32_t fences;
    int fence_error;
    uint64_t log_off;
};

static int no_cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    (void)arg, (void)off, (void)expected, (void)desired, (void)ret_old;
    return CAIRN_E_FABRIC;
}

static int fence(void *arg, uint16_t number)
{
    struct fixture *f = arg;
    f->fences++;
    if (f->fence_error != 0 || f->part.slot[number].media.state != PM_SLOT_OPEN)
        return f->fence_error;
    int error = txn_part_scan(&f->part, &f->part.slot[number]);
    return error != 0 ? error : txn_part_seal(&f->part, &f->part.slot[number]);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct pm_cas cas = {f, no_cas};
    f->t = ts_pool_new(&ts_geometry_small, 0);
    assert_int_equal(txn_part_open(&f->part, &f->t->pool, &f->t->env), 0);
    assert_int_equal(pm_store_open(&f->t->pool, &cas, &f->store), 0);
    assert_int_equal(pm_retired_open(&f->t->pool, &f->retired), 0);
    f->part.store = f->store;
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
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    pm_retired_close(&f->retired);
    pm_store_close(&f->store);
    txn_part_close(&f->part);
    ts_pool_delete(&f->t);
    free(f);
    return 0;
}

static struct rd_place_wire place_of(const struct fixture *f, uint64_t seq, uint64_t count)
{
    struct rd_place_wire place = {
        .count = le64_make(count),
        .epoch = le64_make(EPOCH),
        .seq = le64_make(seq),
        .slot = le16_make(SLOT),
        .node = le16_make(f->finder.node),
    };
    memset(place.coordinator.b, 0xbb, sizeof(place.coordinator.b));
    return place;
}

static uint64_t put_record(struct fixture *f, uint64_t seq)
{
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_pool *pool = &f->t->pool;
    struct pm_place place = pm_slot_place(pool, &f->part.slot[SLOT].media, f->log_off);
    struct cn_txid txid = {.count = 100 + seq};
    struct pm_record_writer w;
    memset(txid.coordinator.b, 0xbb, 16);
    pm_record_begin(&w, buf, sizeof(buf));
    pm_record_add_participant(&w, pool->super.node, 0, 0, SLOT, EPOCH, seq);
    pm_record_add_participant(&w, (uint16_t)(pool->super.node + 1), 1, 0, SLOT, 1, seq);
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, seq, 1, &place);
    pm_copy(&pool->pm, pm_slot_log_at(pool, SLOT, f->log_off), buf, size);
    f->log_off += size;
    return f->log_off - size;
}

static enum rd_verdict find(struct fixture *f, uint64_t seq, uint64_t count)
{
    struct rd_place_wire place = place_of(f, seq, count);
    return rec_find(&f->finder, &place);
}

static void find__record_in_the_ring_not_polled__present_and_durable(void **state)
{
    struct fixture *f = *state;
    uint64_t at = put_record(f, 1);
    assert_int_equal(find(f, 1, 101), RD_VERDICT_PRESENT);
    assert_true(ts_pool_is_durable(f->t, pm_slot_log_at(&f->t->pool, SLOT, at), 128));
}

/* R11: a record that was polled but not persisted by this CPU is made durable before it is spoken
 * of. */
static void find__polled_volatile_record__made_durable_first(void **state)
{
    struct fixture *f = *state;
    uint64_t at = put_record(f, 1);
    txn_part_poll(&f->part, &f->part.slot[SLOT]);
    assert_false(ts_pool_is_durable(f->t, pm_slot_log_at(&f->t->pool, SLOT, at), 128));
    assert_int_equal(find(f, 1, 101), RD_VERDICT_PRESENT);
    assert_true(ts_pool_is_durable(f->t, pm_slot_log_at(&f->t->pool, SLOT, at), 128));
    assert_int_equal(f->fences, 0);
}

static void find__missing_record__fenced_then_aborted_for_ever(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(find(f, 1, 101), RD_VERDICT_ABORTED);
    assert_int_equal(f->fences, 1);
    put_record(f, 1); /* arrives late */
    assert_int_equal(find(f, 1, 101), RD_VERDICT_ABORTED);
}

/* Committed, and its record is damaged here: neither ABORTED nor PRESENT. */
static void find__marked_record_damaged__in_doubt(void **state)
{
    struct fixture *f = *state;
    uint64_t at = pm_slot_log_at(&f->t->pool, SLOT, put_record(f, 1));
    struct pm *pm = &f->t->pool.pm;
    pm_store64(pm, at + 24, pm_word_value(f->part.slot[SLOT].media.nonce, 1, PM_WORD_MARK));
    pm_store64(pm, at + 88, pm_load64(pm, at + 88) ^ 4);
    assert_int_equal(find(f, 1, 101), RD_VERDICT_IN_DOUBT);
    assert_int_equal(find(f, 2, 102), RD_VERDICT_ABORTED);
}

static void find__fence_fails__nothing_is_said(void **state)
{
    struct fixture *f = *state;
    f->fence_error = CAIRN_E_LIMIT;
    assert_int_equal(find(f, 1, 101), RD_VERDICT_NONE);
}

/* R15 */
static void find__another_transaction_id__never_a_verdict(void **state)
{
    struct fixture *f = *state;
    put_record(f, 1);
    assert_int_equal(find(f, 1, 777), RD_VERDICT_FORGOTTEN);
}

static void find__unknown_epoch_or_place__forgotten(void **state)
{
    struct fixture *f = *state;
    struct rd_place_wire place = place_of(f, 1, 101);
    place.epoch = le64_make(EPOCH - 1);
    assert_int_equal(rec_find(&f->finder, &place), RD_VERDICT_FORGOTTEN);
    place = place_of(f, 1, 101);
    place.slot = le16_make(0);
    assert_int_equal(rec_find(&f->finder, &place), RD_VERDICT_FORGOTTEN);
    place.slot = le16_make(60000);
    assert_int_equal(rec_find(&f->finder, &place), RD_VERDICT_FORGOTTEN);
    place = place_of(f, 1, 101);
    place.node = le16_make((uint16_t)(f->finder.node + 1));
    assert_int_equal(rec_find(&f->finder, &place), RD_VERDICT_FORGOTTEN);
    assert_int_equal(f->fences, 0);
}

/* Record 1 committed and passed, 2 aborted, 3 never logged; then the epoch is retired. */
static void find__retired_epoch__final_state_answers(void **state)
{
    struct fixture *f = *state;
    struct txn_part_slot *slot = &f->part.slot[SLOT];
    put_record(f, 1);
    put_record(f, 2);
    txn_part_poll(&f->part, slot);
    txn_part_commit(&f->part, slot, txn_part_find(&f->part, slot, 1));
    assert_int_equal(txn_part_abort(&f->part, slot, txn_part_find(&f->part, slot, 2)), 0);
    while (txn_part_apply(&f->part) != 0)
        continue;
    assert_int_equal(find(f, 1, 101), RD_VERDICT_COMMITTED);
    assert_int_equal(find(f, 2, 102), RD_VERDICT_ABORTED);
    assert_int_equal(find(f, 3, 103), RD_VERDICT_ABORTED);
    assert_true(txn_part_is_drained(slot));
    assert_int_equal(pm_retired_add(f->retired, &slot->media, 1000), 0);
    slot->media.state = PM_SLOT_FREE;
    pm_slot_store(&f->t->pool, &slot->media);
    assert_int_equal(find(f, 1, 101), RD_VERDICT_COMMITTED);
    assert_int_equal(find(f, 2, 102), RD_VERDICT_ABORTED);
    assert_int_equal(find(f, 3, 103), RD_VERDICT_ABORTED);
}

static void verdict_of__table(void **state)
{
    const enum rd_verdict N = RD_VERDICT_NONE, C = RD_VERDICT_COMMITTED, A = RD_VERDICT_ABORTED,
                          P = RD_VERDICT_PRESENT, F = RD_VERDICT_FORGOTTEN;
    const struct {
        uint8_t answer[3];
        enum rd_verdict verdict;
        bool contradiction;
    } table[] = {
        {{(uint8_t)P, (uint8_t)P, (uint8_t)P}, C, false},
        {{(uint8_t)P, (uint8_t)P, (uint8_t)N}, N, false},
        {{(uint8_t)P, (uint8_t)P, (uint8_t)F}, N, false},
        {{(uint8_t)P, (uint8_t)C, (uint8_t)N}, C, false},
        {{(uint8_t)A, (uint8_t)P, (uint8_t)N}, A, false},
        {{(uint8_t)P, (uint8_t)P, (uint8_t)A}, A, false},
        {{(uint8_t)C, (uint8_t)A, (uint8_t)P}, N, true},
        {{(uint8_t)N, (uint8_t)N, (uint8_t)N}, N, false},
    };
    (void)state;
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        bool contradiction;
        assert_int_equal(rec_verdict_of(table[i].answer, 3, &contradiction), table[i].verdict);
        assert_int_equal(contradiction, table[i].contradiction);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(find__record_in_the_ring_not_polled__present_and_durable),
        CASE(find__polled_volatile_record__made_durable_first),
        CASE(find__missing_record__fenced_then_aborted_for_ever),
        CASE(find__marked_record_damaged__in_doubt),
        CASE(find__fence_fails__nothing_is_said),
        CASE(find__another_transaction_id__never_a_verdict),
        CASE(find__unknown_epoch_or_place__forgotten),
        CASE(find__retired_epoch__final_state_answers),
        cmocka_unit_test(verdict_of__table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
