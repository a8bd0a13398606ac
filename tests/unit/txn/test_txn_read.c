/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the lookup state machine believes only what proves itself, waits only while holding
 * nothing, and answers hostile or damaged media with a distinct error. Method: real context over
 * the fake fabric; the test writes, locks and damages the objects in its own memory, also between
 * two reads of the same lookup (on_post).
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

static struct ts_fs fs;
static char buf[64];
static size_t size;

static int setup(void **state)
{
    (void)state;
    ts_fs_open(&fs, 1, 8);
    return 0;
}
/* The same where one completion speaks for a compare-and-swap and the read behind it. */
static int setup_ordered(void **state)
{
    (void)state;
    ts_fs_open(&fs, 1, 8);
    fs.fake.cas_orders_reads = true;
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
static int get(struct cairn_tx *tx, const char *key)
{
    return cairn_get(tx, 1, key, strlen(key), buf, sizeof(buf), &size);
}
static int get_for_update(struct cairn_tx *tx, const char *key)
{
    return cairn_get_for_update(tx, 1, key, strlen(key), buf, sizeof(buf), &size);
}
static void expect_read(int rc, const char *value)
{
    assert_int_equal(rc, 0);
    assert_int_equal(size, strlen(value));
    assert_memory_equal(buf, value, size);
}
static enum cairn_outcome commit(struct cairn_tx *tx)
{
    enum cairn_outcome outcome;

    assert_int_equal(cairn_commit(tx, &outcome), 0);
    return outcome;
}
static void read_once(const char *key, const char *value)
{
    struct cairn_tx *tx = begin();

    expect_read(get(tx, key), value);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
}

static void get__cold_then_warm__two_reads_then_one(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    uint32_t reads = ts_fake_count(&fs.fake, TS_FAKE_READ); /* root, map, bucket, item */
    assert_int_equal(reads, 4);
    read_once("a", "value");
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_READ), reads + 1);
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "b"), CAIRN_E_NOT_FOUND);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_READ), reads + 2);
}

/* ---- locks ---- */

static uint64_t unlock_off;
static uint32_t unlock_after;
static int unlock_later(struct ts_fake *fake, const struct ts_fake_post *post)
{
    (void)fake;
    if (post->op == TS_FAKE_READ && post->remote == unlock_off && --unlock_after == 0)
        *ts_fs_word(&fs, 1, unlock_off) = htole64(5);
    return 0;
}

static void get__locked_for_a_while__waits_for_it(void **state)
{
    (void)state;
    unlock_off = ts_fs_add(&fs, "a", "value");
    unlock_after = 6;
    *ts_fs_word(&fs, 1, unlock_off) = htole64(pm_word_make_locked(8, 5, 5));
    fs.fake.on_post = unlock_later;
    read_once("a", "value");
    assert_int_equal(unlock_after, 0);
}

static void get__locked_for_ever__asks_the_node_then_timeout(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    *ts_fs_word(&fs, 1, off) = htole64(pm_word_make_locked(8, 5, 5));
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_TIMEOUT);
    assert_non_null(strstr(cairn_last_error(), "slot 5"));
    assert_true(fs.words > 2);
    assert_true(fs.fake.now_ns < 8000000000u);
    assert_int_equal(get(tx, "b"), CAIRN_E_STATE); /* only abort is left */
    cairn_abort(tx);
}

static void get__old_tag__counts_as_unlocked(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    *ts_fs_word(&fs, 1, off) = htole64(pm_word_make_locked(7, 5, 5));
    read_once("a", "value");
    struct cairn_tx *tx = begin(); /* and is locked from its raw value */
    expect_read(get_for_update(tx, "a"), "value");
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), pm_word_make_locked(8, 3, 5));
    cairn_abort(tx);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), 5);
}

static void get__locked_while_holding_a_lock__conflict_at_once(void **state)
{
    (void)state;
    uint64_t held = ts_fs_add(&fs, "a", "value");
    uint64_t off = ts_fs_add(&fs, "b", "value");
    *ts_fs_word(&fs, 1, off) = htole64(pm_word_make_locked(8, 5, 5));
    struct cairn_tx *tx = begin();
    expect_read(get_for_update(tx, "a"), "value");
    uint64_t before = fs.fake.now_ns;
    assert_int_equal(get(tx, "b"), CAIRN_E_CONFLICT);
    assert_true(fs.fake.now_ns - before < 20000);            /* R13: no back-off */
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, held)), 5); /* and its lock is gone already */
    assert_int_equal(commit(tx), CAIRN_OUTCOME_ABORTED);
}

static void get_for_update__changed_since_cached__cold_way(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "old");
    read_once("a", "old");
    ts_fs_item(&fs, 1, off, 6, "a", "newer");
    struct cairn_tx *tx = begin();
    expect_read(get_for_update(tx, "a"), "newer");
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), pm_word_make_locked(8, 3, 6));
    expect_read(get(tx, "a"), "newer"); /* reads under its own lock */
    cairn_abort(tx);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), 6);
}

static void get_for_update__place_reused_at_that_version__gives_it_back(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    ts_fs_item(&fs, 1, off, 5, "other",
        "value"); /* cannot happen: versions go on. Believed all the same? */
    struct cairn_tx *tx = begin();
    int rc = get_for_update(tx, "a");
    assert_true(rc == CAIRN_E_NOT_FOUND || rc == CAIRN_E_CONFLICT);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), 5);
    cairn_abort(tx);
}

static uint64_t moved_off; /* where the item lies that move_at_cas() moves; 0: moved */

/* Another transaction moves the item between the read of it and its lock. */
static int move_at_cas(struct ts_fake *fake, const struct ts_fake_post *post)
{
    struct ts_fs *s = (struct ts_fs *)(void *)fake;
    if (post->op != TS_FAKE_CAS || moved_off == 0)
        return 0;
    uint64_t from = moved_off, to = from + 1024;
    uint64_t slot = ts_fs_slot(to, ts_fs_hash(s, 1, "a"));
    moved_off = 0;
    ts_fs_item(s, 1, from, 6, "other", "its place is used again");
    ts_fs_item(s, 1, to, 1, "a", "newer");
    ts_fs_bucket(s, 1, 0, 0, 0, 3, &slot, 1);
    return 0;
}

/* What was found before the lock failed is forgotten, all of it: neither the old value nor an
 * absence (of which the bucket alone would be the hint) comes of it. */
static void get_for_update__moved_between_read_and_lock__looked_up_again(void **state)
{
    (void)state;
    struct txn_hint hint;
    moved_off = ts_fs_add(&fs, "a", "old");
    uint64_t to = moved_off + 1024;
    fs.fake.on_post = move_at_cas;
    struct cairn_tx *tx = begin();
    expect_read(get_for_update(tx, "a"), "newer");
    fs.fake.on_post = NULL;
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, to)), pm_word_make_locked(8, 3, 1));
    assert_true(txn_cache_find(fs.cluster->cache, 1, fs.ctx->peer[0].incarnation, 1,
        ts_fs_hash(&fs, 1, "a"), &hint));
    assert_int_equal(hint.item, to);
    cairn_abort(tx);
}

/* One bucket guards both absences: its word is taken once, and what both looks do agrees on it. */
static void get_many__two_absent_keys_of_one_bucket_for_update__one_lock(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "c", "value");
    for (unsigned warm = 0; warm < 2; warm++) { /* cold, then by the remembered bucket */
        struct cairn_read reads[] = {
            {.table = 1, .key = "a", .key_size = 1, .buf = buf, .buf_size = 32, .for_update = 1},
            {.table = 1, .key = "b", .key_size = 1, .buf = buf + 32, .buf_size = 32,
                .for_update = 1},
        };
        uint32_t before = ts_fake_count(&fs.fake, TS_FAKE_CAS);
        struct cairn_tx *tx = begin();
        assert_int_equal(cairn_get_many(tx, reads, 2), 0);
        assert_int_equal(reads[0].status, CAIRN_E_NOT_FOUND);
        assert_int_equal(reads[1].status, CAIRN_E_NOT_FOUND);
        assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), before + 1);
        assert_int_equal(
            le64toh(*ts_fs_word(&fs, 1, TS_BUCKETS)), pm_word_make_locked(8, 3, 2));
        cairn_abort(tx);
        assert_int_equal(le64toh(*ts_fs_word(&fs, 1, TS_BUCKETS)), 2);
    }
}

/* One of two remembered places is stale: the other read is not looked up again, and both hold their
 * locks. */
static void get_many__one_of_two_changed_since_cached__both_locked(void **state)
{
    (void)state;
    uint64_t a = ts_fs_add(&fs, "a", "old"), b = ts_fs_add(&fs, "b", "value");
    read_once("a", "old");
    read_once("b", "value");
    ts_fs_item(&fs, 1, a, 6, "a", "newer");
    struct cairn_read reads[] = {
        {.table = 1, .key = "a", .key_size = 1, .buf = buf, .buf_size = 32, .for_update = 1},
        {.table = 1, .key = "b", .key_size = 1, .buf = buf + 32, .buf_size = 32, .for_update = 1},
    };
    uint32_t before = ts_fake_count(&fs.fake, TS_FAKE_CAS);
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_get_many(tx, reads, 2), 0);
    assert_int_equal(reads[0].status, 0);
    assert_memory_equal(buf, "newer", reads[0].value_size);
    assert_int_equal(reads[1].status, 0);
    assert_memory_equal(buf + 32, "value", reads[1].value_size);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), before + 3);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, a)), pm_word_make_locked(8, 3, 6));
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, b)), pm_word_make_locked(8, 3, 5));
    cairn_abort(tx);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, a)), 6);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, b)), 5);
}

static void get_many__remembered_key_twice_for_update__one_lock(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    struct cairn_read reads[] = {
        {.table = 1, .key = "a", .key_size = 1, .buf = buf, .buf_size = 32, .for_update = 1},
        {.table = 1, .key = "a", .key_size = 1, .buf = buf + 32, .buf_size = 32, .for_update = 1},
    };
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_get_many(tx, reads, 2), 0);
    assert_int_equal(reads[0].status, 0);
    assert_int_equal(reads[1].status, 0);
    assert_memory_equal(buf + 32, "value", 5);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 1);
    cairn_abort(tx);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, off)), 5);
}

/* Locked by another at the very version that is remembered: with one of two, the lock that was got
 * is given back, and nobody waits (R13). */
static void get_many__one_of_two_locked__conflict_and_the_other_released(void **state)
{
    (void)state;
    uint64_t a = ts_fs_add(&fs, "a", "value"), b = ts_fs_add(&fs, "b", "value");
    read_once("a", "value");
    read_once("b", "value");
    *ts_fs_word(&fs, 1, b) = htole64(pm_word_make_locked(8, 5, 5));
    struct cairn_read reads[] = {
        {.table = 1, .key = "a", .key_size = 1, .buf = buf, .buf_size = 32, .for_update = 1},
        {.table = 1, .key = "b", .key_size = 1, .buf = buf + 32, .buf_size = 32, .for_update = 1},
    };
    uint64_t before = fs.fake.now_ns;
    struct cairn_tx *tx = begin();
    assert_int_equal(cairn_get_many(tx, reads, 2), CAIRN_E_CONFLICT);
    assert_true(fs.fake.now_ns - before < 20000);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, a)), 5);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_ABORTED);
}

static uint64_t cut_read; /* reads of this place fail */
static int fail_read(struct ts_fake *fake, const struct ts_fake_post *post)
{
    (void)fake;
    return post->op == TS_FAKE_READ && post->remote == cut_read ? CAIRN_E_NODE_DOWN : 0;
}

/* The connection ends between the lock and the read behind it: an error, and nothing is committed
 * under a lock of which nobody knows. */
static void get_for_update__lost_behind_the_lock__error(void **state)
{
    (void)state;
    cut_read = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    fs.fake.on_post = fail_read;
    struct cairn_tx *tx = begin();
    assert_int_equal(get_for_update(tx, "a"), CAIRN_E_NODE_DOWN);
    fs.fake.on_post = NULL;
    assert_int_equal(cairn_put(tx, 1, "a", 1, "x", 1), CAIRN_E_STATE);
    cairn_abort(tx);
    *ts_fs_word(&fs, 1, cut_read) = htole64(5); /* its node has fenced the slot */
    read_once("a", "value");
}

/* The second key's bucket is locked by the first already: what is behind the lock is read all the
 * same. */
static void get_for_update__bucket_held_and_remembered__reads_it(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "c", "value");
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    assert_int_equal(get(tx, "b"), CAIRN_E_NOT_FOUND);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    tx = begin();
    assert_int_equal(get_for_update(tx, "a"), CAIRN_E_NOT_FOUND);
    expect_read(get(tx, "c"), "value"); /* other bytes lie where the next read will */
    assert_int_equal(get_for_update(tx, "b"), CAIRN_E_NOT_FOUND);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, TS_BUCKETS)), pm_word_make_locked(8, 3, 2));
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 1);
    cairn_abort(tx);
    assert_int_equal(le64toh(*ts_fs_word(&fs, 1, TS_BUCKETS)), 2);
}

/* Tries that failed leave entries behind, of as many places as a key was met at; they must not use
 * up the table. */
static void lock_want__many_failed_tries__entries_are_used_again(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    struct cairn_tx *tx = begin();
    expect_read(get_for_update(tx, "a"), "value");
    struct txn_lock held = tx->lock[0];
    for (uint64_t i = 0; i < 2 * TXN_LOCKS_MAX; i++) {
        struct txn_lock *lock = txn_lock_want(tx, 0, TS_BLOCKS + 64 * i, 1, false);
        assert_non_null(lock);
        assert_int_equal(lock->off, TS_BLOCKS + 64 * i);
        assert_int_equal(lock->state, TXN_LOCK_WANTED);
        assert_ptr_equal(lock->old, tx->words + (lock - tx->lock));
        lock->state = TXN_LOCK_FAILED;
    }
    assert_memory_equal(&held, &tx->lock[0], sizeof(held));
    cairn_abort(tx);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_CAS), 2);
}

static void get__twice_and_changed_between__conflict(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    struct cairn_tx *tx = begin();
    expect_read(get(tx, "a"), "value");
    expect_read(get(tx, "a"), "value");
    ts_fs_item(&fs, 1, off, 6, "a", "other");
    assert_int_equal(get(tx, "a"), CAIRN_E_CONFLICT);
    cairn_abort(tx);
}

/* ---- places ---- */

static void get__moved__follows(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value"), to = TS_ITEMS + 8192;
    uint64_t hash = ts_fs_hash(&fs, 1, "a"), slot = ts_fs_slot(to, hash);
    read_once("a", "value");
    struct pm_item_pm moved = {.head = {.word = le64_make(6),
                                   .meta = le64_make(pm_meta_make(6, PM_KIND_MOVED, TS_CLASS)),
                                   .index = le32_make(1)},
        .hash = le64_make(slot)};
    uint32_t seed = cn_crc32c(0, fs.fake.node[0].welcome.pool.b, 16);
    moved.head.crc = le32_make(pm_object_crc(&moved, sizeof(moved), off, seed));
    memcpy(fs.fake.node[0].memory + off, &moved, sizeof(moved));
    ts_fs_item(&fs, 1, to, 3, "a", "elsewhere");
    ts_fs_bucket(&fs, 1, 0, 0, 0, 9, &slot, 1);
    uint32_t reads = ts_fake_count(&fs.fake, TS_FAKE_READ);
    read_once("a", "elsewhere");
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_READ), reads + 2);
}

static void get__bucket_split__goes_to_the_child(void **state)
{
    (void)state;
    char key[16];
    uint64_t off = TS_ITEMS, slot, hash;
    uint32_t i = 0;

    do
        (void)snprintf(key, sizeof(key), "c%u", i++);
    while ((ts_fs_hash(&fs, 1, key) & 3) != 3);
    hash = ts_fs_hash(&fs, 1, key);
    slot = ts_fs_slot(off, hash);
    ts_fs_item(&fs, 1, off, 5, key, "value");
    ts_fs_bucket(&fs, 1, 0, 0, 1, 2, NULL, 0);
    ts_fs_bucket(&fs, 1, 1, 1, 2, 2, NULL, 0);
    ts_fs_bucket(&fs, 1, 3, 3, 2, 1, &slot, 1); /* bucket 2 is not born: 0 is of depth 1 */
    read_once(key, "value");
    /* learnt after a few: the last one goes there at once */
    struct cairn_stats s;
    cairn_ctx_stats(fs.ctx, &s);
    assert_int_equal(s.bucket_hops, 2);
    for (uint32_t n = 0; n < 5; n++) {
        cairn_ctx_stats(fs.ctx, &s);
        do
            (void)snprintf(key, sizeof(key), "c%u", i++);
        while ((ts_fs_hash(&fs, 1, key) & 3) != 3);
        struct cairn_tx *tx = begin();
        assert_int_equal(get(tx, key), CAIRN_E_NOT_FOUND);
        assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    }
    uint64_t hops = s.bucket_hops;
    cairn_ctx_stats(fs.ctx, &s);
    assert_int_equal(s.bucket_hops, hops);
}

static void get__split_in_circles__corrupt_index(void **state)
{
    (void)state;
    char key[16];
    uint32_t i = 0;

    do
        (void)snprintf(key, sizeof(key), "c%u", i++);
    while ((ts_fs_hash(&fs, 1, key) & 1) != 1);
    ts_fs_bucket(&fs, 1, 0, 0, 1, 2, NULL, 0); /* sends to bucket 1, which is not born */
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, key), CAIRN_E_CORRUPT_INDEX);
    cairn_abort(tx);
}

/* ---- absence (T1) ---- */

static void get__absent_with_false_candidate__rechecked_at_commit(void **state)
{
    (void)state;
    uint64_t hash = ts_fs_hash(&fs, 1, "a"), slot = ts_fs_slot(TS_ITEMS, hash);
    ts_fs_item(&fs, 1, TS_ITEMS, 5, "other", "value"); /* another key under a's fingerprint */
    ts_fs_bucket(&fs, 1, 0, 0, 0, 2, &slot, 1);
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    uint32_t reads = ts_fake_count(&fs.fake, TS_FAKE_READ);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_READ), reads + 1);
    /* and the bucket changed meanwhile */
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    ts_fs_bucket(&fs, 1, 0, 0, 0, 3, &slot, 1);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_ABORTED);
}

static void get__absent_and_bucket_locked__waits_present_is_found(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    *ts_fs_word(&fs, 1, TS_BUCKETS) = htole64(pm_word_make_locked(8, 5, 2));
    read_once("a", "value"); /* the item proves itself */
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "b"), CAIRN_E_TIMEOUT);
    cairn_abort(tx);
}

/* ---- damage ---- */

static void get__item_torn_for_ever__corrupt_item(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    fs.fake.node[0].memory[off + 41] ^= 1;
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_ITEM);
    assert_non_null(strstr(cairn_last_error(), "node 1"));
    cairn_abort(tx);
    fs.ctx->index[0].known = true;
    txn_cache_drop(fs.cluster->cache, 1, 1, ts_fs_hash(&fs, 1, "a"));
    tx = begin(); /* the same through the bucket */
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_ITEM);
    cairn_abort(tx);
}

/* A node that stopped in the middle of applying leaves new bodies under old words: no damage. */
static void get__item_torn_and_node_stopped__timeout_not_corrupt(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    fs.fake.node[0].memory[off + 41] ^= 1;
    fs.stopped = true;
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_TIMEOUT);
    cairn_abort(tx);
    assert_true(fs.words > 0); /* it was asked */
}

/* A record in doubt may be half applied since before a restart. */
static void get__item_torn_and_in_doubt__timeout_not_corrupt(void **state)
{
    (void)state;
    uint64_t off = ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    fs.fake.node[0].memory[off + 41] ^= 1;
    fs.word_answer = RD_WORD_IN_DOUBT;
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_TIMEOUT);
    cairn_abort(tx);
    assert_true(fs.words > 0);
}

static void get__bucket_damaged__corrupt_bucket(void **state)
{
    (void)state;
    fs.fake.node[0].memory[TS_BUCKETS + 40] ^= 1;
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_BUCKET);
    cairn_abort(tx);
    memset(fs.fake.node[0].memory + TS_BUCKETS, 0, PM_BUCKET_SIZE); /* never born below depth0 */
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_BUCKET);
    cairn_abort(tx);
}

static void get__hostile_places__refused_or_ignored(void **state)
{
    (void)state;
    uint64_t hash = ts_fs_hash(&fs, 1, "a");
    uint64_t slots[3] = {pm_slot_ref_pack(TS_MEMORY * 16, TS_CLASS, pm_fingerprint(hash, 16)),
        pm_slot_ref_pack(64, TS_CLASS, pm_fingerprint(hash, 16)),
        pm_slot_ref_pack(TS_MEMORY - 64, TS_CLASS, pm_fingerprint(hash, 16))};
    ts_fs_bucket(&fs, 1, 0, 0, 0, 2, slots, 3);
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_NOT_FOUND);
    for (uint32_t i = 0; i < fs.fake.post_count; i++)
        assert_true(fs.fake.post[i].remote + fs.fake.post[i].size <= TS_MEMORY);
    cairn_abort(tx);
    slots[0] = ts_fs_slot(TS_ITEMS, hash); /* a slot that points to a dead block, for ever */
    struct pm_item_pm dead = {.head = {.word = le64_make(6),
                                  .meta = le64_make(pm_meta_make(6, PM_KIND_DEAD, TS_CLASS)),
                                  .index = le32_make(1)}};
    uint32_t seed = cn_crc32c(0, fs.fake.node[0].welcome.pool.b, 16);
    dead.head.crc = le32_make(pm_object_crc(&dead, sizeof(dead), TS_ITEMS, seed));
    memcpy(fs.fake.node[0].memory + TS_ITEMS, &dead, sizeof(dead));
    ts_fs_bucket(&fs, 1, 0, 0, 0, 3, slots, 1);
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_BUCKET);
    cairn_abort(tx);
}

static void get__map_entry_hostile__corrupt_index(void **state)
{
    (void)state;
    *ts_fs_word(&fs, 1, TS_ROOT + PM_INDEX_MAP_OFF) = htole64(TS_MEMORY * 4);
    struct cairn_tx *tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_CORRUPT_INDEX);
    cairn_abort(tx);
}

static void get__node_gone__node_down_and_recovers(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    ts_fake_down(&fs.fake, 1, CAIRN_E_FENCED);
    fs.fake.now_ns += 2 * TXN_UNSEEN_NS; /* idle meanwhile */
    struct cn_uuid old = fs.ctx->session;
    read_once("a", "value"); /* noticed at begin: a new session */
    assert_false(cn_uuid_equal(&old, &fs.ctx->session));
    struct cairn_tx *tx = begin();
    ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
    assert_int_equal(get(tx, "a"), CAIRN_E_NODE_DOWN);
    cairn_abort(tx);
    fs.fake.node[0].refuse = CAIRN_E_SLOTS;
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_SLOTS);
    cairn_abort(tx);
    fs.fake.node[0].refuse = CAIRN_E_AGAIN; /* not serving yet: tried again until the deadline */
    uint32_t connects = fs.fake.node[0].connects;
    tx = begin();
    assert_int_not_equal(get(tx, "a"), 0);
    assert_true(fs.fake.node[0].connects > connects + 5);
    cairn_abort(tx);
    fs.fake.node[0].refuse = 0;
    fs.fake.node[0].silent = true;
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_TIMEOUT);
    assert_non_null(strstr(cairn_last_error(), "fake1"));
    cairn_abort(tx);
    fs.fake.node[0].silent = false;
    read_once("a", "value");
    fs.fake.node[0].silent = true; /* connected, and then nothing completes */
    tx = begin();
    assert_int_equal(get(tx, "a"), CAIRN_E_TIMEOUT);
    cairn_abort(tx);
    fs.fake.node[0].silent = false;
    read_once("a", "value");
}

static void ping__any_call__answered(void **state)
{
    (void)state;
    (void)ts_fs_add(&fs, "a", "value");
    read_once("a", "value");
    uint32_t sent = ts_fake_count(&fs.fake, TS_FAKE_SEND);
    ts_fake_send(&fs.fake, ts_fake_conn(&fs.fake, 1), RD_MSG_PING, 77);
    read_once("a", "value");
    assert_int_equal(ts_fake_count(&fs.fake, TS_FAKE_SEND), sent + 1);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, setup, teardown),                                        \
    {                                                                                              \
        #name " (ordered)", name, setup_ordered, teardown, NULL                                    \
    }
    const struct CMUnitTest tests[] = {
        CASE(get__cold_then_warm__two_reads_then_one),
        CASE(get__locked_for_a_while__waits_for_it),
        CASE(get__locked_for_ever__asks_the_node_then_timeout),
        CASE(get__old_tag__counts_as_unlocked),
        CASE(get__locked_while_holding_a_lock__conflict_at_once),
        CASE(get_for_update__changed_since_cached__cold_way),
        CASE(get_for_update__moved_between_read_and_lock__looked_up_again),
        CASE(get_for_update__place_reused_at_that_version__gives_it_back),
        CASE(get_many__two_absent_keys_of_one_bucket_for_update__one_lock),
        CASE(get_many__one_of_two_changed_since_cached__both_locked),
        CASE(get_many__remembered_key_twice_for_update__one_lock),
        CASE(get_many__one_of_two_locked__conflict_and_the_other_released),
        CASE(get_for_update__lost_behind_the_lock__error),
        CASE(get_for_update__bucket_held_and_remembered__reads_it),
        CASE(lock_want__many_failed_tries__entries_are_used_again),
        CASE(get__twice_and_changed_between__conflict),
        CASE(get__moved__follows),
        CASE(get__bucket_split__goes_to_the_child),
        CASE(get__split_in_circles__corrupt_index),
        CASE(get__absent_with_false_candidate__rechecked_at_commit),
        CASE(get__absent_and_bucket_locked__waits_present_is_found),
        CASE(get__item_torn_for_ever__corrupt_item),
        CASE(get__item_torn_and_node_stopped__timeout_not_corrupt),
        CASE(get__item_torn_and_in_doubt__timeout_not_corrupt),
        CASE(get__bucket_damaged__corrupt_bucket),
        CASE(get__hostile_places__refused_or_ignored),
        CASE(get__map_entry_hostile__corrupt_index),
        CASE(get__node_gone__node_down_and_recovers),
        CASE(ping__any_call__answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
