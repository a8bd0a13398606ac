/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: mutants of the store are noticed at once. Method: built with CAIRN_MUTANTS
 * (tests/CMakeLists.txt); a small pool in memory and a record that locks a bucket without writing
 * it. Each situation with the rule in force, then broken.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "include/internal/cn_mutant.h"
#include "pmem/pm_store.h"
#include "tests/support/ts_pool.h"

#ifndef CAIRN_MUTANTS
static int cn_mutant_active; /* never set: the program says "skipped" */
#endif

#define SLOT 1

struct fixture {
    struct ts_pool *t;
    struct pm_store *store;
    uint64_t bucket, base;
    uint8_t buf[512] __attribute__((aligned(64)));
    struct pm_record record;
};

static int local_cas(
    void *arg, uint64_t off, uint64_t expected, uint64_t desired, uint64_t *ret_old)
{
    struct fixture *f = arg;
    *ret_old = pm_load64(&f->t->pool.pm, off);
    if (*ret_old == expected)
        pm_store64(&f->t->pool.pm, off, desired);
    return 0;
}

static void open_store(struct fixture *f)
{
    struct pm_cas cas = {f, local_cas};
    assert_int_equal(pm_store_open(&f->t->pool, &cas, &f->store), 0);
    assert_int_equal(pm_growth_start(f->store), 0);
}

static const struct pm_place place = {.slot = SLOT, .epoch = 7, .nonce = 99};

/* Lock a word of the record to be. */
static void lock(struct fixture *f, struct pm_record_writer *w, uint64_t off)
{
    const struct pm_pool *pool = &f->t->pool;
    uint64_t base = pm_word_version(pm_load64(&pool->pm, off));
    pm_store64(&pool->pm, off, pm_word_make_locked(pool->tag, SLOT, base));
    pm_record_add_lock(w, off, base);
}

static void end_record(struct fixture *f, struct pm_record_writer *w)
{
    struct cn_txid txid = {.count = 1};
    uint32_t size = pm_record_end(w, PM_RECORD_TX, &txid, 1, 1, &place);
    int rc = pm_record_check(f->buf, size, &place, f->t->pool.super.node, &f->record);
    assert_int_equal(rc, 0);
}

static void begin_record(struct fixture *f, struct pm_record_writer *w)
{
    pm_record_begin(w, f->buf, sizeof(f->buf));
    pm_record_add_participant(w, f->t->pool.super.node, 0, 0, SLOT, place.epoch, 1);
}

static void begin(struct fixture *f)
{
    struct pm_record_writer w;

    memset(f, 0, sizeof(*f));
    f->t = ts_pool_new(&ts_geometry_small, 0);
    const struct pm_pool *pool = &f->t->pool;
    open_store(f);
    assert_int_equal(pm_store_create_index(f->store, 1, 0), 0);
    const struct pm_index *index = pm_store_index(f->store, 1, 0);
    f->bucket = pm_load64(&pool->pm, index->off + PM_INDEX_MAP_OFF);
    f->base = pm_word_version(pm_load64(&pool->pm, f->bucket));
    begin_record(f, &w);
    lock(f, &w, f->bucket);
    end_record(f, &w);
    ts_pool_settle(f->t);
}

static void end(struct fixture *f)
{
    cn_mutant_active = CN_MUTANT_none;
    pm_store_close(&f->store);
    ts_pool_delete(&f->t);
}

/* T5: released, and the process dies before the fence; the release is done again at the next start.
 * Is the word durable then? */
static bool redone_release_is_durable(int mutant)
{
    struct fixture f;
    begin(&f);
    pm_apply_body(f.store, &f.record);
    pm_fence(&f.t->pool.pm, CN_STEP_a_body);
    pm_apply_release(f.store, &f.record);
    assert_int_equal(ts_pool_crash(f.t, 1, TS_CRASH_PROCESS), 0);
    assert_false(ts_pool_is_durable(f.t, f.bucket, 8));
    cn_mutant_active = mutant;
    pm_apply_release(f.store, &f.record);
    pm_fence(&f.t->pool.pm, CN_STEP_a_release);
    bool durable = ts_pool_is_durable(f.t, f.bucket, 8);
    end(&f);
    return durable;
}

static void flush_changed_only__noticed(void **state)
{
    (void)state;
    assert_true(redone_release_is_durable(CN_MUTANT_none));
    assert_false(redone_release_is_durable(CN_MUTANT_p_flush_changed_only));
}

/* The release of a record whose body was never stored. Returns the word's version. */
static uint64_t release_without_body(int mutant)
{
    struct fixture f;
    begin(&f);
    cn_mutant_active = mutant;
    pm_apply_release(f.store, &f.record);
    uint64_t version = pm_word_version(pm_load64(&f.t->pool.pm, f.bucket)) - f.base;
    end(&f);
    return version;
}

static void release_ahead__noticed(void **state)
{
    (void)state;
    assert_int_equal(release_without_body(CN_MUTANT_none), 0);
    assert_int_equal(release_without_body(CN_MUTANT_p_release_ahead), 1);
}

static void apply(struct fixture *f)
{
    int rc = pm_apply_check(f->store, &f->record, SLOT, PM_APPLY_LIVE);
    if (rc != 0)
        fail_msg("%s", cairn_last_error());
    pm_apply_body(f->store, &f->record);
    pm_apply_release(f->store, &f->record);
    pm_apply_done(f->store, &f->record, SLOT);
}

/* Insert a key into `block`, then delete it. */
static void insert_and_delete(struct fixture *f, const struct pm_lock_pm *block, uint8_t class_)
{
    const struct pm_index *index = pm_store_index(f->store, 1, 0);
    struct pm_record_writer w;
    struct pm_write_pm write = {
        .op = PM_OP_INSERT,
        .class_ = class_,
        .key_size = le16_make(1),
        .value_size = le32_make(1),
        .index = le32_make(index->index),
        .hash = le64_make(pm_index_hash(index, "k", 1)),
        .block = block->off,
        .bucket = le64_make(f->bucket),
    };
    begin_record(f, &w);
    lock(f, &w, f->bucket);
    pm_record_add_block(&w, le64_get(block->off), le64_get(block->base));
    assert_non_null(pm_record_add_write(&w, &write, "k", "v"));
    end_record(f, &w);
    apply(f);
    write.op = PM_OP_DELETE;
    write.class_ = 0;
    write.value_size = le32_make(0);
    write.item = write.block;
    write.block = le64_make(0);
    begin_record(f, &w);
    lock(f, &w, f->bucket);
    lock(f, &w, le64_get(write.item));
    (void)pm_record_add_write(&w, &write, "k", NULL);
    end_record(f, &w);
    apply(f);
}

/* I5: a block is used and freed; at which version is it granted again? */
static uint64_t version_after_reuse(int mutant)
{
    struct fixture f;
    struct pm_lock_pm first = {.off = le64_make(0)}, again = first;
    uint32_t got = 0;
    uint32_t class_ = pm_class_for(1, 1);

    begin(&f);
    pm_store64(&f.t->pool.pm, f.bucket, f.base); /* begin()'s record is not used */
    cn_mutant_active = mutant;
    while (pm_heap_grant(f.store, SLOT, class_, 1, &first, &got) == CAIRN_E_AGAIN)
        continue;
    assert_int_equal(got, 1);
    insert_and_delete(&f, &first, (uint8_t)class_);
    assert_int_equal(pm_heap_grant(f.store, SLOT, class_, 1, &again, &got), 0);
    assert_int_equal(le64_get(again.off), le64_get(first.off)); /* the lowest */
    end(&f);
    return le64_get(again.base) - le64_get(first.base);
}

static void version_restarts__noticed(void **state)
{
    (void)state;
    assert_int_equal(version_after_reuse(CN_MUTANT_none), 2);
    assert_int_equal(version_after_reuse(CN_MUTANT_p_version_restarts), 0);
}

int main(void)
{
#ifndef CAIRN_MUTANTS
    if (cn_mutant_active == 0)
        return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_changed_only__noticed),
        cmocka_unit_test(release_ahead__noticed),
        cmocka_unit_test(version_restarts__noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
