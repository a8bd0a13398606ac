/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: rec_offline_pools() recovers pools that are open already: resolves what is in doubt across
 * them, leaves them open, shows the stores at the end, and every store that it makes is told to the
 * tracer. Method: two small pools in memory with a shadow (ts_pool.h); records in their rings as
 * coordinators would leave them, each locking the first bucket.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recovery/rec_offline.h"
#include "tests/support/ts_pool.h"
#include "txn/txn_part.h"

#define POOLS 2u
#define SLOT 1
#define EPOCH 7u

struct fixture {
    struct ts_pool *t[POOLS];
    struct pm_pool *pool[POOLS];
    uint64_t bucket[POOLS];
    struct rec_report_pool report[POOLS];
    struct rec_report_tx tx;
    uint32_t told, looked;
    bool stores_there;
    struct pm_tracer own[POOLS]; /* the pools', behind the one that listens */
    struct listener { struct fixture *f; uint32_t i; } listener[POOLS];
    uint64_t heard[POOLS]; /* value of the last store to the bucket's word */
};

static void on_store(void *arg, uint64_t off, uint64_t size)
{
    struct listener *l = arg;
    struct fixture *f = l->f;
    if (off == f->bucket[l->i])
        f->heard[l->i] = pm_load64(&f->t[l->i]->pm, off);
    f->own[l->i].store(f->own[l->i].arg, off, size);
}
static void on_flush(void *arg, uint64_t off, uint64_t size)
{
    struct listener *l = arg;
    l->f->own[l->i].flush(l->f->own[l->i].arg, off, size);
}
static void on_fence(void *arg, enum cn_step step)
{
    struct listener *l = arg;
    l->f->own[l->i].fence(l->f->own[l->i].arg, step);
}

static int cas(void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct ts_pool *t = arg;
    *ret_old = pm_load64(&t->pool.pm, off);
    if (*ret_old == expected)
        pm_store64(&t->pool.pm, off, desired);
    return 0;
}

/* An index, and a slot that is handed out. */
static void start(struct fixture *f, uint32_t i)
{
    struct ts_pool *t = f->t[i];
    struct pm_cas by = {t, cas};
    struct txn_part part;
    struct pm_store *store;
    assert_int_equal(pm_pool_raise_incarnation(&t->pool), 0);
    assert_int_equal(txn_part_open(&part, &t->pool, &t->env), 0);
    assert_int_equal(pm_store_open(&t->pool, &by, &store), 0);
    assert_int_equal(pm_growth_start(store), 0);
    assert_int_equal(pm_store_create_index(store, 1, 0), 0);
    f->bucket[i] =
        pm_load64(&t->pool.pm, pm_store_index(store, 1, 0)->off + PM_INDEX_MAP_OFF);
    struct pm_slot *media = &part.slot[SLOT].media;
    media->state = PM_SLOT_OPEN;
    media->epoch = EPOCH;
    media->nonce = 1234567 + i;
    media->incarnation = t->pool.incarnation;
    memset(media->owner.b, 0xaa, sizeof(media->owner.b));
    txn_part_store(&part, &part.slot[SLOT], CN_STEP_s_handout);
    pm_store_close(&store);
    txn_part_close(&part);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    for (uint32_t i = 0; i < POOLS; i++) {
        struct pm_super_pm media;
        f->t[i] = ts_pool_new(&ts_geometry_small, 0);
        /* Another node of the same cluster. */
        pm_read(&f->t[i]->pm, f->t[i]->extent_off, &media, sizeof(media));
        media.node = le32_make(i + 1);
        media.crc = le32_make(0);
        media.crc = le32_make(cn_crc32c(0, &media, sizeof(media)));
        pm_copy(&f->t[i]->pm, f->t[i]->extent_off, &media, sizeof(media));
        ts_pool_settle(f->t[i]);
        assert_int_equal(ts_pool_crash(f->t[i], 1, TS_CRASH_ALL_KEPT), 0);
        f->own[i] = f->t[i]->tracer;
        f->listener[i] = (struct listener){f, i};
        f->t[i]->tracer = (struct pm_tracer){&f->listener[i], on_store, on_flush, on_fence};
        start(f, i);
        f->pool[i] = &f->t[i]->pool;
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < POOLS; i++)
        ts_pool_delete(&f->t[i]);
    free(f);
    return 0;
}

/* Record 1 of the slot, of a transaction over both pools, which has locked the bucket. */
static void log_record(struct fixture *f, uint32_t i)
{
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_pool *pool = f->pool[i];
    struct cn_txid txid = {.count = 101};
    struct pm_record_writer w;
    struct pm_slot slot;
    assert_int_equal(pm_slot_load(pool, SLOT, &slot), 0);
    struct pm_place place = pm_slot_place(pool, &slot, 0);
    memset(txid.coordinator.b, 0xaa, 16);
    pm_record_begin(&w, buf, sizeof(buf));
    for (uint32_t k = 0; k < POOLS; k++)
        pm_record_add_participant(&w, f->pool[k]->super.node, 0, 0, SLOT, EPOCH, 1);
    uint64_t base = pm_word_version(pm_load64(&pool->pm, f->bucket[i]));
    pm_record_add_lock(&w, f->bucket[i], base);
    pm_store64(&pool->pm, f->bucket[i], pm_word_make_locked(pool->tag, SLOT, base));
    uint32_t size = pm_record_end(&w, PM_RECORD_TX, &txid, 1, 1, &place);
    assert_int_not_equal(size, 0);
    pm_copy(&pool->pm, pm_slot_log_at(pool, SLOT, 0), buf, size);
    ts_pool_settle(f->t[i]);
}

static void note_tx(void *arg, const struct rec_report_tx *tx)
{
    struct fixture *f = arg;
    f->tx = *tx;
    f->told++;
}

static void look(void *arg, struct pm_store *const *stores)
{
    struct fixture *f = arg;
    f->looked++;
    f->stores_there = true;
    for (uint32_t i = 0; i < POOLS; i++)
        f->stores_there = f->stores_there && stores[i] != NULL &&
            pm_store_index(stores[i], 1, 0) != NULL;
}

static int recover(struct fixture *f, uint32_t count)
{
    const struct rec_offline_options options = {
        .env = &f->t[0]->env, .transaction = note_tx, .arg = f};
    return rec_offline_pools(&options, f->pool, count, f->report, look, f);
}

/* What is durable alone: no lock, every slot free, closed cleanly. */
static void expect_clean(struct fixture *f, uint64_t raised)
{
    for (uint32_t i = 0; i < POOLS; i++) {
        struct pm_slot slot;
        uint64_t before = pm_load64(&f->pool[i]->pm, f->bucket[i]);
        assert_int_equal(ts_pool_crash(f->t[i], 1, TS_CRASH_ALL_LOST), 0);
        assert_int_equal(pm_load64(&f->pool[i]->pm, f->bucket[i]), before);
        assert_false(pm_word_is_locked(before, f->pool[i]->tag));
        assert_int_equal(pm_word_version(before), raised);
        assert_int_equal(pm_slot_load(f->pool[i], SLOT, &slot), 0);
        assert_int_equal(slot.state, PM_SLOT_FREE);
        assert_true(f->pool[i]->opened_clean);
    }
}

static uint64_t version(const struct fixture *f)
{
    return pm_word_version(pm_load64(&f->pool[0]->pm, f->bucket[0]));
}

static void pools__records_at_both__committed_and_shown(void **state)
{
    struct fixture *f = *state;
    uint64_t before = version(f), incarnation = f->pool[0]->incarnation;
    log_record(f, 0);
    log_record(f, 1);
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->tx.verdict, RD_VERDICT_COMMITTED);
    assert_int_equal(f->tx.present, 2);
    assert_int_equal(f->looked, 1);
    assert_true(f->stores_there);
    assert_int_equal(f->report[0].node, 1);
    assert_int_equal(f->report[1].node, 2);
    assert_int_equal(f->report[0].records_found + f->report[1].records_found, 2);
    assert_int_equal(f->report[0].incarnation, incarnation + 1);
    assert_string_equal(f->report[0].path, "memory image");
    expect_clean(f, before + 1);
    /* Still open: again, and nothing is left to do. */
    f->told = 0;
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->told, 0);
    assert_true(f->report[0].was_clean);
    assert_int_equal(f->report[0].records_found, 0);
}

static void pools__record_at_one__aborted(void **state)
{
    struct fixture *f = *state;
    uint64_t before = version(f);
    log_record(f, 1);
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->tx.verdict, RD_VERDICT_ABORTED);
    assert_int_equal(f->looked, 1);
    expect_clean(f, before);
}

/* Its lock is of an incarnation ago, and goes by compare-and-swap. */
static void pools__tombstone_and_lock_left__swap_is_told(void **state)
{
    struct fixture *f = *state;
    uint64_t before = version(f);
    struct pm_slot slot;
    log_record(f, 1);
    assert_int_equal(pm_slot_load(f->pool[1], SLOT, &slot), 0);
    assert_int_equal(pm_slot_add_tombstone(f->pool[1], &slot, 1), 0);
    ts_pool_settle(f->t[1]);
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->told, 0);
    assert_int_equal(f->heard[1], before);
    expect_clean(f, before);
}

static void pools__other_order__the_same(void **state)
{
    struct fixture *f = *state;
    uint64_t before = version(f);
    struct pm_pool *swap = f->pool[0];
    log_record(f, 0);
    log_record(f, 1);
    f->pool[0] = f->pool[1];
    f->pool[1] = swap;
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->report[0].node, 2);
    f->pool[1] = f->pool[0];
    f->pool[0] = swap;
    expect_clean(f, before + 1);
}

static void pools__one_is_missing__in_doubt_and_not_shown(void **state)
{
    struct fixture *f = *state;
    log_record(f, 0);
    log_record(f, 1);
    assert_int_equal(recover(f, 1), CAIRN_E_IN_DOUBT);
    assert_int_equal(f->tx.missing, 1);
    assert_int_equal(f->looked, 0);
    assert_true(pm_word_is_locked(
        pm_load64(&f->pool[0]->pm, f->bucket[0]), f->pool[0]->tag)); /* until it is decided */
    assert_int_equal(recover(f, POOLS), 0);
    assert_int_equal(f->looked, 1);
}

static void pools__one_twice__refused_and_untouched(void **state)
{
    struct fixture *f = *state;
    uint64_t incarnation = f->pool[0]->incarnation;
    f->pool[1] = f->pool[0];
    assert_int_equal(recover(f, POOLS), CAIRN_E_WRONG_NODE);
    assert_int_equal(f->looked, 0);
    assert_int_equal(f->pool[0]->incarnation, incarnation);
}

static void pools__dry_run__changes_no_byte(void **state)
{
    struct fixture *f = *state;
    const struct rec_offline_options options = {
        .env = &f->t[0]->env, .transaction = note_tx, .arg = f, .dry_run = true};
    uint8_t *before = malloc(f->t[0]->size);
    assert_non_null(before);
    log_record(f, 0);
    log_record(f, 1);
    memcpy(before, f->t[0]->visible, f->t[0]->size);
    for (uint32_t i = 0; i < POOLS; i++)
        f->pool[i]->pm.read_only = true;
    assert_int_equal(rec_offline_pools(&options, f->pool, POOLS, f->report, look, f), 0);
    assert_int_equal(f->tx.verdict, RD_VERDICT_COMMITTED);
    assert_int_equal(f->report[0].in_doubt, 1);
    assert_int_equal(f->looked, 0);
    assert_memory_equal(before, f->t[0]->visible, f->t[0]->size);
    free(before);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pools__records_at_both__committed_and_shown),
        CASE(pools__record_at_one__aborted),
        CASE(pools__tombstone_and_lock_left__swap_is_told),
        CASE(pools__other_order__the_same),
        CASE(pools__one_is_missing__in_doubt_and_not_shown),
        CASE(pools__one_twice__refused_and_untouched),
        CASE(pools__dry_run__changes_no_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
