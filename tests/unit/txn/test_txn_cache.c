/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the location cache finds what was put, forgets what it must, stays bounded, and is safe and
 *       consistent under threads; after opening it takes no memory.
 * Invariants: a hint that is found is one that was put for that key: all its fields belong
 * together.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "txn/txn_cache.h"

#define THREADS 4
#define ROUNDS 60000u

static struct txn_hint hint_of(uint64_t version)
{
    return (struct txn_hint){
        .item = version * 64,
        .version = version,
        .bucket = version * 512,
        .bucket_version = version + 1,
        .item_size = (uint32_t)(version % 1000),
        .class_ = (uint8_t)(version % 21),
    };
}

static bool hint_is_whole(const struct txn_hint *h)
{
    struct txn_hint e = hint_of(h->version);
    return h->item == e.item && h->bucket == e.bucket && h->bucket_version == e.bucket_version &&
        h->item_size == e.item_size && h->class_ == e.class_;
}

static struct txn_cache *open_cache(uint32_t entries)
{
    struct txn_cache *cache;

    assert_int_equal(txn_cache_open(entries, &cache), 0);
    return cache;
}

static void txn_cache_find__put_before__same_hint(void **state)
{
    struct txn_cache *cache = open_cache(1024);
    struct txn_hint put = hint_of(5), got;

    (void)state;
    assert_false(txn_cache_find(cache, 1, 1, 1, 42, &got));
    txn_cache_put(cache, 1, 1, 1, 42, &put);
    assert_true(txn_cache_find(cache, 1, 1, 1, 42, &got));
    assert_int_equal(got.version, 5);
    assert_true(hint_is_whole(&got));
    /* Another node, table or hash is another key. */
    assert_false(txn_cache_find(cache, 2, 1, 1, 42, &got));
    assert_false(txn_cache_find(cache, 1, 1, 2, 42, &got));
    assert_false(txn_cache_find(cache, 1, 1, 1, 43, &got));
    assert_int_equal(txn_cache_count(cache), 1);
    txn_cache_close(&cache);
    assert_null(cache);
}

/* Sizes and classes share words with offsets. */
static void txn_cache_put__greatest_and_unaligned__whole_or_not_kept(void **state)
{
    struct txn_cache *cache = open_cache(16);
    const struct txn_hint most = {.item = (UINT64_C(1) << 48) - 64,
        .bucket = (UINT64_C(1) << 48) - 512,
        .version = UINT64_MAX,
        .bucket_version = UINT64_MAX - 1,
        .item_size = (1u << 24) - 1,
        .class_ = UINT8_MAX};
    struct txn_hint got, bad[] = {most, most, most, most};

    (void)state;
    txn_cache_put(cache, 1, 1, 1, 42, &most);
    assert_true(txn_cache_find(cache, 1, 1, 1, 42, &got));
    assert_memory_equal(&got.item, &most.item, offsetof(struct txn_hint, item_size));
    assert_int_equal(got.item_size, most.item_size);
    assert_int_equal(got.class_, most.class_);
    bad[0].item += 64;
    bad[1].bucket += 8;
    bad[2].item_size++;
    bad[3].item++;
    for (uint32_t i = 0; i < CN_ARRAY_SIZE(bad); i++) {
        txn_cache_put(cache, 1, 1, 1, 43 + i, &bad[i]);
        assert_false(txn_cache_find(cache, 1, 1, 1, 43 + i, &got));
    }
    txn_cache_close(&cache);
}

/* Those that have no room in their lines are in the table. */
static void txn_cache_find__full__all_that_are_kept(void **state)
{
    enum { COUNT = 4096 };
    struct txn_cache *cache = open_cache(COUNT);
    struct txn_hint got;

    (void)state;
    for (uint64_t i = 1; i <= COUNT; i++) {
        struct txn_hint put = hint_of(i);
        txn_cache_put(cache, 1, 1, 1, cn_mix64(i), &put);
    }
    assert_int_equal(txn_cache_count(cache), COUNT);
    for (unsigned round = 0; round < 2; round++) {
        for (uint64_t i = 1; i <= COUNT; i++) {
            txn_cache_hint(cache, 1, 1, cn_mix64(i));
            assert_true(txn_cache_find(cache, 1, 1, 1, cn_mix64(i), &got));
            assert_int_equal(got.version, i);
            assert_true(hint_is_whole(&got));
        }
    }
    txn_cache_close(&cache);
}

static void txn_cache_find__other_incarnation__not_found(void **state)
{
    struct txn_cache *cache = open_cache(16);
    struct txn_hint put = hint_of(5), got;

    (void)state;
    txn_cache_put(cache, 1, 7, 1, 42, &put);
    assert_false(txn_cache_find(cache, 1, 8, 1, 42, &got));
    put = hint_of(6);
    txn_cache_put(cache, 1, 8, 1, 42, &put);
    assert_true(txn_cache_find(cache, 1, 8, 1, 42, &got));
    assert_int_equal(got.version, 6);
    assert_int_equal(txn_cache_count(cache), 1);
    txn_cache_close(&cache);
}

static void txn_cache_put__again__overwrites(void **state)
{
    struct txn_cache *cache = open_cache(16);
    struct txn_hint got;

    (void)state;
    for (uint64_t v = 1; v < 1000; v++) {
        struct txn_hint put = hint_of(v);
        txn_cache_put(cache, 1, 1, 1, 42, &put);
        assert_true(txn_cache_find(cache, 1, 1, 1, 42, &got));
        assert_int_equal(got.version, v);
    }
    assert_int_equal(txn_cache_count(cache), 1);
    txn_cache_close(&cache);
}

static void txn_cache_drop__there__gone(void **state)
{
    struct txn_cache *cache = open_cache(16);
    struct txn_hint put = hint_of(5), got;

    (void)state;
    txn_cache_put(cache, 1, 1, 1, 42, &put);
    txn_cache_drop(cache, 1, 1, 43);
    assert_int_equal(txn_cache_count(cache), 1);
    txn_cache_drop(cache, 1, 1, 42);
    assert_false(txn_cache_find(cache, 1, 1, 1, 42, &got));
    txn_cache_drop(cache, 1, 1, 42);
    assert_false(txn_cache_find(cache, 1, 0, 1, 42, &got));
    txn_cache_put(cache, 1, 1, 1, 42, &put);
    assert_true(txn_cache_find(cache, 1, 1, 1, 42, &got));
    txn_cache_close(&cache);
}

/* Far more keys than entries: bounded, and it goes on taking new ones once grace periods pass. */
static void txn_cache_put__overflow__bounded_and_recycles(void **state)
{
    struct txn_cache *cache = open_cache(64);
    uint32_t late = 0;

    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        struct txn_hint put = hint_of(i), got;
        txn_cache_put(cache, 1, 1, 1, i, &put);
        assert_true(txn_cache_count(cache) <= 64 * 2 + 64 / 4);
        if (i % 50 == 0)
            (void)usleep(15000); /* let the grace-period worker run */
        if (i >= 4000)
            late += txn_cache_find(cache, 1, 1, 1, i, &got);
    }
    assert_true(late > 500);
    txn_cache_close(&cache);
}

/* A key in use survives a stream of keys seen once. */
static void txn_cache_put__overflow__keeps_what_is_used(void **state)
{
    struct txn_cache *cache = open_cache(256);
    struct txn_hint put = hint_of(7), got;
    uint32_t hits = 0;

    (void)state;
    txn_cache_put(cache, 1, 1, 1, UINT64_MAX, &put);
    for (uint64_t i = 0; i < 2000; i++) {
        put = hint_of(i);
        txn_cache_put(cache, 1, 1, 1, i, &put);
        hits += txn_cache_find(cache, 1, 1, 1, UINT64_MAX, &got);
        if (i % 100 == 0)
            (void)usleep(12000);
    }
    assert_true(hits > 1900);
    txn_cache_close(&cache);
}

static void txn_cache_put__after_open__takes_no_memory(void **state)
{
    struct txn_cache *cache = open_cache(128);
    struct mallinfo2 before, after;

    (void)state;
    before = mallinfo2();
    for (uint64_t i = 0; i < 1000; i++) {
        struct txn_hint put = hint_of(i), got;
        txn_cache_put(cache, 1, 1, 1, i % 300, &put);
        (void)txn_cache_find(cache, 1, 1, 1, i % 300, &got);
        txn_cache_drop(cache, 1, 1, i % 7);
    }
    after = mallinfo2();
    assert_int_equal(before.uordblks, after.uordblks);
    txn_cache_close(&cache);
}

/* A process that exits with a cluster open must not crash in the worker. */
static void exit__cache_open__clean(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        pid_t pid = fork();
        int status;
        assert_true(pid >= 0);
        if (pid == 0) {
            struct txn_cache *cache;
            if (txn_cache_open(16, &cache) != 0)
                _exit(1);
            for (uint64_t key = 0; key < 100; key++) {
                struct txn_hint put = hint_of(key);
                txn_cache_put(cache, 1, 1, 1, key, &put);
            }
            exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

struct worker {
    struct txn_cache *cache;
    uint64_t seed, found, broken;
};

static void *hammer(void *arg)
{
    struct worker *w = arg;
    uint64_t x = w->seed;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct txn_hint hint;
        x = cn_mix64(x + 1);
        uint64_t key = x % 100;
        switch (x >> 60) {
        case 0: txn_cache_drop(w->cache, 1, 1, key); break;
        case 1:
        case 2:
        case 3:
        case 4:
            hint = hint_of((x >> 8 & 0xffff) * 100 + key);
            txn_cache_put(w->cache, 1, 1, 1, key, &hint);
            break;
        default:
            if (txn_cache_find(w->cache, 1, 1, 1, key, &hint)) {
                w->found++;
                w->broken += !hint_is_whole(&hint) || hint.version % 100 != key;
            }
        }
    }
    return NULL;
}

static void txn_cache__threads__hints_stay_whole(void **state)
{
    struct txn_cache *cache = open_cache(64);
    struct worker worker[THREADS];
    pthread_t thread[THREADS];

    (void)state;
    for (unsigned i = 0; i < THREADS; i++) {
        worker[i] = (struct worker){.cache = cache, .seed = i * 1000003u};
        assert_int_equal(pthread_create(&thread[i], NULL, hammer, &worker[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        assert_int_equal(worker[i].broken, 0);
        assert_true(worker[i].found > 100);
    }
    assert_true(txn_cache_count(cache) <= 64 * 2 + 64 / 4);
    txn_cache_close(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(txn_cache_find__put_before__same_hint),
        cmocka_unit_test(txn_cache_put__greatest_and_unaligned__whole_or_not_kept),
        cmocka_unit_test(txn_cache_find__full__all_that_are_kept),
        cmocka_unit_test(txn_cache_find__other_incarnation__not_found),
        cmocka_unit_test(txn_cache_put__again__overwrites),
        cmocka_unit_test(txn_cache_drop__there__gone),
        cmocka_unit_test(txn_cache_put__overflow__bounded_and_recycles),
        cmocka_unit_test(txn_cache_put__overflow__keeps_what_is_used),
        cmocka_unit_test(txn_cache_put__after_open__takes_no_memory),
        cmocka_unit_test(exit__cache_open__clean),
        cmocka_unit_test(txn_cache__threads__hints_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
