/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the table finds what was put, forgets what was dropped, stays bounded, and goes on taking
 *       new keys as grace periods pass; two threads that write one key leave it whole.
 * Invariants: words that are found are those that were put together for that key.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "txn/txn_cache_table.h"

#define ROUNDS 40000u

static struct txn_cache_table *open_table(uint32_t entries)
{
    struct txn_cache_table *t;

    assert_int_equal(txn_cache_table_open(entries, &t), 0);
    return t;
}

static struct txn_cache_key key_of(uint64_t i)
{
    return (struct txn_cache_key){.place = 1, .hash = cn_mix64(i)};
}

static void words_of(uint64_t value, uint64_t word[TXN_CACHE_WORDS])
{
    for (uint32_t i = 0; i < TXN_CACHE_WORDS; i++)
        word[i] = value + i;
}

static bool is_whole(const uint64_t word[TXN_CACHE_WORDS])
{
    for (uint32_t i = 1; i < TXN_CACHE_WORDS; i++) {
        if (word[i] != word[0] + i)
            return false;
    }
    return true;
}

static void put(struct txn_cache_table *t, uint64_t i, uint64_t value)
{
    struct txn_cache_key key = key_of(i);
    uint64_t word[TXN_CACHE_WORDS];

    words_of(value, word);
    txn_cache_table_put(t, &key, word);
}

static bool find(struct txn_cache_table *t, uint64_t i, uint64_t *ret_value)
{
    struct txn_cache_key key = key_of(i);
    uint64_t word[TXN_CACHE_WORDS];

    if (!txn_cache_table_find(t, &key, word))
        return false;
    assert_true(is_whole(word) || word[0] == 0);
    *ret_value = word[0];
    return true;
}

static void put__again__overwrites_in_place(void **state)
{
    struct txn_cache_table *t = open_table(16);
    uint64_t value;

    (void)state;
    assert_false(find(t, 1, &value));
    for (uint64_t v = 10; v < 100; v++) {
        put(t, 1, v);
        assert_true(find(t, 1, &value));
        assert_int_equal(value, v);
    }
    assert_int_equal(txn_cache_table_count(t), 1);
    assert_false(find(t, 2, &value));
    txn_cache_table_close(&t);
    assert_null(t);
}

static void drop__there__words_are_zero(void **state)
{
    struct txn_cache_table *t = open_table(16);
    struct txn_cache_key key = key_of(1), other = key_of(2);
    uint64_t value;

    (void)state;
    txn_cache_table_drop(t, &key); /* of an empty table */
    put(t, 1, 10);
    txn_cache_table_drop(t, &other);
    assert_true(find(t, 1, &value) && value == 10);
    txn_cache_table_drop(t, &key);
    assert_true(find(t, 1, &value) && value == 0);
    put(t, 1, 11);
    assert_true(find(t, 1, &value) && value == 11);
    txn_cache_table_close(&t);
}

static void put__overflow__bounded_and_recycles(void **state)
{
    struct txn_cache_table *t = open_table(64);
    uint32_t late = 0;

    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        uint64_t value;
        put(t, i, 1000 + i);
        assert_true(txn_cache_table_count(t) <= 64);
        if (i % 50 == 0)
            (void)usleep(15000); /* let the grace-period worker run */
        if (i >= 4000)
            late += find(t, i, &value) && value == 1000 + i;
    }
    assert_true(late > 500);
    txn_cache_table_close(&t);
}

struct worker {
    struct txn_cache_table *table;
    uint64_t seed, found;
};

static void *hammer(void *arg)
{
    struct worker *w = arg;
    uint64_t x = w->seed, value;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        x = cn_mix64(x + 1);
        struct txn_cache_key key = key_of(x % 50);
        if (x >> 61 == 0)
            txn_cache_table_drop(w->table, &key);
        else if (x >> 61 < 4)
            put(w->table, x % 50, 1 + (x >> 8 & 0xffff));
        else
            w->found += find(w->table, x % 50, &value);
    }
    return NULL;
}

static void threads__one_set_of_keys__words_stay_whole(void **state)
{
    struct txn_cache_table *t = open_table(32);
    struct worker worker[2] = {{t, 1, 0}, {t, 2, 0}};
    pthread_t thread[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, &worker[i]), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_true(worker[i].found > 100);
    }
    assert_true(txn_cache_table_count(t) <= 32);
    txn_cache_table_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(put__again__overwrites_in_place),
        cmocka_unit_test(drop__there__words_are_zero),
        cmocka_unit_test(put__overflow__bounded_and_recycles),
        cmocka_unit_test(threads__one_set_of_keys__words_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
