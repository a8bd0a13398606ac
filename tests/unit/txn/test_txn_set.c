/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the read and write set: buffering, limits, compaction, and T13 (one word, one belief).
 * Method: real context over the fake fabric; beliefs are made to clash by changing memory between
 * two reads.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

static struct ts_fs fs;
static char buf[CAIRN_VALUE_SIZE_MAX];
static size_t size;

static int setup(void **state)
{
    (void)state;
    ts_fs_open(&fs, 1, 8);
    return 0;
}
static int teardown(void **state)
{
    (void)state;
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
static int get(struct cairn_tx *tx, const char *key)
{
    return cairn_get(tx, 1, key, strlen(key), buf, sizeof(buf), &size);
}

static void write__over_and_over__compacts_and_keeps_values(void **state)
{
    static uint8_t value[CAIRN_VALUE_SIZE_MAX];
    struct cairn_tx *tx = begin();

    (void)state;
    for (uint32_t round = 0; round < 200;
         round++) { /* many times the buffer, each longer than before */
        for (uint32_t k = 0; k < 5; k++) {
            char key[2] = {(char)('a' + k), 0};
            memset(value, (int)(round + k), sizeof(value));
            assert_int_equal(cairn_put(tx, 1, key, 1, value, 1000 + round * 64 + k), 0);
        }
    }
    assert_true(tx->values_used <= tx->values_size);
    for (uint32_t k = 0; k < 5; k++) {
        char key[2] = {(char)('a' + k), 0};
        assert_int_equal(get(tx, key), 0);
        assert_int_equal(size, 1000 + 199 * 64 + k);
        for (uint32_t i = 0; i < size; i++)
            assert_int_equal((uint8_t)buf[i], (uint8_t)(199 + k));
    }
    assert_int_equal(tx->writes, 5);
    assert_int_equal(
        ts_fake_count(&fs.fake, TS_FAKE_READ), 0); /* written keys cost nothing to read */
    cairn_abort(tx);
}

static void write__bytes_per_node__bounded(void **state)
{
    static uint8_t value[CAIRN_VALUE_SIZE_MAX];
    struct cairn_tx *tx = begin();
    int rc = 0;
    uint32_t n = 0;

    (void)state;
    while (rc == 0) {
        char key[8];
        (void)snprintf(key, sizeof(key), "%07u", n++);
        rc = cairn_put(tx, 1, key, 7, value, 60000);
    }
    assert_int_equal(rc, CAIRN_E_TX_SIZE);
    assert_int_equal(n, 9); /* 8 x 60,007 fit into 524,288 */
    assert_int_equal(cairn_put(tx, 1, "0000001", 7, value, 10), 0); /* less is always possible */
    cairn_abort(tx);
}

static void write__deleted_and_put__one_key(void **state)
{
    struct cairn_tx *tx = begin();

    (void)state;
    assert_int_equal(cairn_put(tx, 1, "a", 1, "v", 1), 0);
    assert_int_equal(cairn_delete(tx, 1, "a", 1), 0);
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    assert_int_equal(cairn_put(tx, 1, "a", 1, "", 0), 0);
    assert_int_equal(get(tx, "a"), 0);
    assert_int_equal(size, 0);
    assert_int_equal(tx->key_count, 1);
    assert_int_equal(tx->writes, 1);
    cairn_abort(tx);
}

static void commit__put_then_delete_of_absent__validates_the_absence_only(void **state)
{
    struct cairn_tx *tx = begin();

    (void)state;
    assert_int_equal(cairn_put(tx, 1, "a", 1, "v", 1), 0);
    assert_int_equal(cairn_delete(tx, 1, "a", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 0);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_WRITE), 0);
}

/* An item place believed to hold two keys, one belief older than the block's reuse (T13). */
static void commit__one_place_two_beliefs__aborts_before_locking(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), 0);
    uint64_t slot = ts_fs_slot(off, ts_fs_hash(&fs, 1, "b"));
    ts_fs_item(&fs, 1, off, 7, "b", "value");
    ts_fs_bucket(&fs, 1, 0, 0, 0, 9, &slot, 1);
    assert_int_equal(get(tx, "b"), 0);
    assert_int_equal(cairn_put(tx, 1, "a", 1, "1", 1), 0);
    assert_int_equal(cairn_put(tx, 1, "b", 1, "2", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_ABORTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 0);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), 7);
}

/* A bucket read twice at two versions: one absence is read only, the other is inserted. */
static void commit__one_bucket_two_beliefs__aborts_before_locking(void **state)
{
    (void)state;
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    ts_fs_bucket(&fs, 1, 0, 0, 0, 9, NULL, 0);
    assert_int_equal(get(tx, "b"), CAIRN_E_NOT_FOUND);
    assert_int_equal(cairn_put(tx, 1, "b", 1, "2", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_ABORTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 0);
    /* and two inserts at one version lock it once */
    tx = begin();
    assert_int_equal(cairn_put(tx, 1, "a", 1, "1", 1), 0);
    assert_int_equal(cairn_put(tx, 1, "b", 1, "2", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 1);
}

/* T3: near the end of its versions an item is moved, a bucket is an error. */
static void commit__versions_at_their_end__move_or_error(void **state)
{
    enum cairn_outcome outcome;

    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    ts_fs_item(&fs, 1, off, PM_VERSION_MAX - 2, "a", "value");
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), 0);
    assert_int_equal(cairn_put(tx, 1, "a", 1, "1", 1), 0);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(tx->key[0].effect, PM_OP_MOVE);
    uint64_t slot = ts_fs_slot(off, ts_fs_hash(&fs, 1, "a"));
    ts_fs_item(&fs, 1, off, 5, "a", "value");
    ts_fs_bucket(&fs, 1, 0, 0, 0, PM_VERSION_MAX - 2, &slot, 1);
    txn_cache_drop(fs.cluster->cache, 1, 1, ts_fs_hash(&fs, 1, "a"));
    tx = begin();
    assert_int_equal(get(tx, "a"), 0);
    assert_int_equal(cairn_delete(tx, 1, "a", 1), 0);
    assert_int_equal(cairn_commit(tx, &outcome), CAIRN_E_VERSION_END);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
}

static void histogram__quantiles__within_a_sixteenth(void **state)
{
    static uint64_t h[CAIRN_HISTOGRAM_BUCKETS];

    (void)state;
    assert_int_equal(cairn_histogram_quantile(h, 0.5), 0);
    for (uint64_t ns = 1; ns < UINT64_C(1) << 34; ns += 1 + ns / 7) {
        memset(h, 0, sizeof(h));
        txn_histogram_add(h, ns);
        uint64_t q = cairn_histogram_quantile(h, 1.0);
        assert_true(q <= ns && ns - q <= ns / 16);
    }
    memset(h, 0, sizeof(h));
    txn_histogram_add(h, UINT64_MAX);
    assert_int_equal(h[CAIRN_HISTOGRAM_BUCKETS - 1], 1);
    for (uint64_t i = 0; i < 99; i++)
        txn_histogram_add(h, 1000);
    assert_in_range(cairn_histogram_quantile(h, 0.5), 940, 1000);
    assert_true(cairn_histogram_quantile(h, 1.0) > 1000000);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(write__over_and_over__compacts_and_keeps_values),
        CASE(write__bytes_per_node__bounded),
        CASE(write__deleted_and_put__one_key),
        CASE(commit__put_then_delete_of_absent__validates_the_absence_only),
        CASE(commit__one_place_two_beliefs__aborts_before_locking),
        CASE(commit__one_bucket_two_beliefs__aborts_before_locking),
        CASE(commit__versions_at_their_end__move_or_error),
        CASE(histogram__quantiles__within_a_sixteenth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
