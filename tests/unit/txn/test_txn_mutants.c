/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: mutants whose harm a random run seldom shows are noticed at once in the situation they are
 * about. Method: built with CAIRN_MUTANTS (tests/CMakeLists.txt); each situation with the rule in
 * force, then broken.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

#ifndef CAIRN_MUTANTS
static int cn_mutant_active; /* never set: the program says "skipped" */
#endif

static struct ts_fs fs;
static char buf[64];
static size_t size;

static int setup(void **state)
{
    (void)state;
    cn_mutant_active = 0;
    ts_fs_open(&fs, 1, 8);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    cn_mutant_active = 0;
    ts_fs_close(&fs);
    return 0;
}
static struct cairn_tx *begin(void)
{
    struct cairn_tx *tx = NULL;

    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    return tx;
}
static enum cairn_outcome commit(struct cairn_tx *tx)
{
    enum cairn_outcome outcome;

    assert_int_equal(cairn_commit(tx, &outcome), 0);
    return outcome;
}

/* T1: an absence that read a candidate, and the bucket changed before the commit. */
static enum cairn_outcome absence(void)
{
    uint64_t slot = ts_fs_slot(TS_ITEMS, ts_fs_hash(&fs, 1, "a"));

    txn_cache_drop(fs.cluster->cache, 1, 1, ts_fs_hash(&fs, 1, "a"));
    ts_fs_item(&fs, 1, TS_ITEMS, 5, "other", "value");
    ts_fs_bucket(&fs, 1, 0, 0, 0, 2, &slot, 1);
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    ts_fs_bucket(&fs, 1, 0, 0, 0, 3, &slot, 1);
    return commit(tx);
}

static void skip_absence_recheck__noticed(void **state)
{
    (void)state;
    assert_int_equal(absence(), CAIRN_OUTCOME_ABORTED);
    cn_mutant_active = CN_MUTANT_c_skip_absence_recheck;
    assert_int_equal(absence(), CAIRN_OUTCOME_COMMITTED);
}

/* T13: one bucket proves two absences, at two versions; an insert locks it at the newer one. */
static enum cairn_outcome two_beliefs(void)
{
    enum cairn_outcome outcome;
    struct cairn_tx *tx;

    txn_cache_drop(fs.cluster->cache, 1, 1, ts_fs_hash(&fs, 1, "a"));
    txn_cache_drop(fs.cluster->cache, 1, 1, ts_fs_hash(&fs, 1, "b"));
    ts_fs_bucket(&fs, 1, 0, 0, 0, 4, NULL, 0);
    tx = begin();
    assert_int_equal(cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    ts_fs_bucket(&fs, 1, 0, 0, 0, 5, NULL, 0); /* somebody inserts "a" and deletes it, say */
    assert_int_equal(cairn_get(tx, 1, "b", 1, buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    assert_int_equal(cairn_put(tx, 1, "b", 1, "v", 1), 0);
    outcome = commit(tx);
    return outcome;
}

static void merge_beliefs__noticed(void **state)
{
    (void)state;
    assert_int_equal(two_beliefs(), CAIRN_OUTCOME_ABORTED);
    cn_mutant_active = CN_MUTANT_c_merge_beliefs;
    assert_int_equal(two_beliefs(), CAIRN_OUTCOME_COMMITTED);
}

/* R15: the sequence that a token named, after its transaction was aborted. Returns the next
 * record's. */
static uint64_t sequence_after_abort(uint64_t *ret_taken)
{
    char token[CAIRN_TOKEN_SIZE];
    struct txn_token t;
    struct cairn_tx *tx = begin();

    assert_int_equal(cairn_put(tx, 1, "a", 1, "v", 1), 0);
    assert_int_equal(cairn_tx_token(tx, token), 0);
    assert_int_equal(txn_token_parse(token, &fs.config.cluster, &t), 0);
    *ret_taken = t.seq;
    cairn_abort(tx);
    return fs.ctx->peer[0].seq + 1;
}

static void reuse_sequence__noticed(void **state)
{
    uint64_t taken, next;

    (void)state;
    next = sequence_after_abort(&taken);
    assert_true(next > taken);
    cn_mutant_active = CN_MUTANT_c_reuse_sequence;
    next = sequence_after_abort(&taken);
    assert_int_equal(next, taken);
}

/* R13: meets a lock while it holds one. Returns how long it waited. */
static uint64_t wait_for_lock(int expected)
{
    struct cairn_tx *tx = begin();
    uint64_t before;

    assert_int_equal(cairn_get_for_update(tx, 1, "a", 1, buf, sizeof(buf), &size), 0);
    before = fs.fake.now_ns;
    assert_int_equal(cairn_get(tx, 1, "b", 1, buf, sizeof(buf), &size), expected);
    uint64_t waited = fs.fake.now_ns - before;
    cairn_abort(tx);
    return waited;
}

static void wait_holding_lock__noticed(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    uint64_t off = ts_fs_add(&fs, "b", "value");
    *ts_fs_word(&fs, 1, off) = htole64(pm_word_make_locked(8, 5, 5));
    assert_true(wait_for_lock(CAIRN_E_CONFLICT) < 100000);
    cn_mutant_active = CN_MUTANT_c_wait_holding_lock;
    assert_true(wait_for_lock(CAIRN_E_TIMEOUT) > 1000000000);
}

/* R4: the window is full. */
static void ring_past_position__noticed(void **state)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    int rc = 0;
    uint32_t commits = 0;

    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    for (; rc == 0 && commits < 20; commits += rc == 0) {
        if (commits == 10)
            break;
        struct cairn_tx *tx = begin();
        assert_int_equal(cairn_put(tx, 1, "a", 1, "v", 1), 0);
        rc = cairn_commit(tx, &outcome);
        if (rc == 0)
            ts_fs_item(
                &fs, 1, off, pm_word_version(le64toh(*ts_fs_word(&fs, 1, off))) + 1, "a", "v");
    }
    assert_int_equal(rc, CAIRN_E_RING_FULL);
    assert_int_equal(commits, 8);
    cn_mutant_active = CN_MUTANT_c_ring_past_position;
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_put(tx, 1, "a", 1, "v", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
}

/* R4: a mark comes when the log has gone on by `gone` bytes since its record began. Returns how
 * many are posted. */
static uint32_t late_mark(uint64_t gone)
{
    struct txn_peer *peer = &fs.ctx->peer[0];
    struct txn_rec rec = {.off = 128};
    struct txn_batch batch = {0};
    uint32_t marks = 0, from = fs.fake.post_count;

    peer->log_off = rec.off + gone;
    txn_post_mark(peer, &batch, peer->ring_off + RD_RING_HEADER_SIZE + rec.off, 7, &rec.mark);
    txn_ring(fs.ctx);
    assert_int_equal(batch.left, 0);
    for (uint32_t i = from; i < fs.fake.post_count; i++)
        marks += fs.fake.post[i].op == TS_FAKE_MARK;
    return marks;
}

static void mark_late__noticed(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_get(tx, 1, "a", 1, buf, sizeof(buf), &size), 0); /* meets the node */
    cairn_abort(tx);
    uint64_t ring_size = fs.ctx->peer[0].ring_size;
    assert_int_equal(late_mark(64), 1);
    assert_int_equal(late_mark(ring_size), 1);
    assert_int_equal(late_mark(ring_size + 64), 0);
    cn_mutant_active = CN_MUTANT_c_mark_late;
    assert_int_equal(late_mark(ring_size + 64), 1);
}

int main(void)
{
#ifndef CAIRN_MUTANTS
    if (cn_mutant_active == 0)
        return 77;
#endif
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(skip_absence_recheck__noticed),
        CASE(merge_beliefs__noticed),
        CASE(reuse_sequence__noticed),
        CASE(wait_holding_lock__noticed),
        CASE(ring_past_position__noticed),
        CASE(mark_late__noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
