/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what a user meets at the limits: a full pool, a full ring, too many coordinators, too much
 * in one transaction, nodes that are down, stopped or given the wrong pool or file: each a distinct
 * error that names what it is about, in bounded time, and nothing is lost.
 * Method: nodes are processes of the program; the public API. Damaged bytes: test_damage.c.
 * Invariants: an error of a commit comes with ABORTED, and then the data are what they were.
 */
#include "tests/tools/lt_cluster.h"

#include "pmem/pm_store.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Small rings: quick to fill. */
#define SMALL "slots = 4; ring_size = \"1M\"; window = 64; lease_ms = 300; resolve_ms = 300"

/* ---- space ---- */

static int put_big(struct lt_cluster *c, uint32_t number, const uint8_t *value, size_t size)
{
    char key[32];

    (void)snprintf(key, sizeof(key), "big%u", number);
    return lt_put(c, key, value, size);
}

static pid_t resume_later(struct lt_cluster *c, uint32_t id)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)usleep(50000);
        lt_resume(c, id);
        _exit(0);
    }
    return pid;
}

static void pool__full__pool_full_before_commit_and_space_is_reused(void **state)
{
    (void)state;
    static uint8_t value[60000], got[60000];
    struct lt_cluster *c = lt_new(1, "36M", SMALL);
    uint32_t count = 0, again;
    size_t size;
    int rc = 0;

    lt_start(c, 1);
    lt_open(c);
    LT_OK(lt_put(c, "small", "1", 1));
    memset(value, 7, sizeof(value));
    for (; rc == 0 && count < 10000; count += rc == 0)
        rc = put_big(c, count, value, sizeof(value));
    lt_check_error(rc, CAIRN_E_POOL_FULL, "node 1", "put", __LINE__);
    assert_true(count > 50);
    /* nothing is half there, and what fits where it is goes on */
    char key[32];
    (void)snprintf(key, sizeof(key), "big%u", count);
    lt_expect_value(c, key, NULL);
    LT_OK(lt_put(c, "small", "2", 1));
    for (uint32_t round = 0; round < 3; round++) { /* a leak would make it less each time */
        for (uint32_t i = 0; i < count; i += 2) {
            (void)snprintf(key, sizeof(key), "big%u", i);
            LT_OK(lt_put(c, key, NULL, 0));
        }
        for (again = 0; again < count; again += 2)
            LT_OK(put_big(c, again, value, sizeof(value)));
        lt_check_error(
            put_big(c, count, value, sizeof(value)), CAIRN_E_POOL_FULL, "node 1", "put", __LINE__);
        LT_OK(lt_get(c, "big1", got, sizeof(got), &size));
        assert_int_equal(size, sizeof(value));
        assert_memory_equal(got, value, size);
    }
    lt_close(c);
    lt_kill(c, 1); /* and full pools recover */
    lt_start(c, 1);
    lt_open(c);
    lt_expect_value(c, "small", "2");
    LT_OK(lt_get(c, "big0", got, sizeof(got), &size));
    assert_memory_equal(got, value, size);
    /* The node finds the delete and the request for its room at once. */
    for (uint32_t i = 1; i < 20; i += 2) {
        (void)snprintf(key, sizeof(key), "big%u", i);
        lt_pause(c, 1);
        LT_OK(lt_put(c, key, NULL, 0));
        pid_t waker = resume_later(c, 1);
        LT_OK(put_big(c, i, value, sizeof(value)));
        assert_int_equal(waitpid(waker, NULL, 0), waker);
    }
    lt_close(c);
    lt_stop(c, 1);
    char path[128];
    LT_EXPECT(c, 0, "\"damages\": 0", "inspect", "--check", "--json", lt_path(c, path, "n1.pool"));
    lt_delete(&c);
}

#define RING_KEYS 200u

static void load_keys(struct lt_cluster *c, uint32_t count)
{
    char key[32];

    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(key, sizeof(key), "r%u", i);
        LT_OK(lt_put(c, key, "old", 3));
    }
}

/* The node is stopped: commits go on by themselves until the ring is full. Returns how many did. */
static uint32_t commit_until_full(struct lt_cluster *c, int *ret_error, uint64_t *ret_ms)
{
    char key[32];

    for (uint32_t i = 0; i < RING_KEYS; i++) {
        uint64_t begun = lt_now_ms();
        (void)snprintf(key, sizeof(key), "r%u", i);
        *ret_error = lt_try_put(c, key, "new", 3);
        *ret_ms = lt_now_ms() - begun;
        if (*ret_error != 0)
            return i;
    }
    return RING_KEYS;
}

static void ring__full__ring_full_in_time_and_nothing_lost(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    uint64_t ms;
    uint32_t acknowledged;
    char key[32];
    int rc;

    c->options.op_timeout_ms = 500;
    lt_start(c, 1);
    lt_open(c);
    load_keys(c, RING_KEYS);
    (void)usleep(200000);
    lt_pause(c, 1);
    acknowledged = commit_until_full(c, &rc, &ms);
    lt_check_error(rc, CAIRN_E_RING_FULL, "node 1", "commit", __LINE__);
    assert_true(acknowledged >= 32 && acknowledged <= 64); /* the window */
    assert_true(ms < 10000);
    lt_resume(c, 1);
    for (uint32_t i = 0; i < RING_KEYS; i++) {
        (void)snprintf(key, sizeof(key), "r%u", i);
        lt_expect_value(c, key, i < acknowledged ? "new" : "old");
    }
    (void)snprintf(key, sizeof(key), "r%u", acknowledged);
    LT_OK(lt_put(c, key, "new", 3)); /* and it goes on */
    lt_close(c);
    lt_stop(c, 1);
    lt_delete(&c);
}

static void ring__full_then_node_killed__nothing_lost(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    uint64_t ms;
    uint32_t acknowledged;
    char key[32];
    int rc;

    c->options.op_timeout_ms = 500;
    lt_start(c, 1);
    lt_open(c);
    load_keys(c, RING_KEYS);
    (void)usleep(200000);
    lt_pause(c, 1);
    acknowledged = commit_until_full(c, &rc, &ms);
    assert_int_equal(rc, CAIRN_E_RING_FULL);
    lt_kill(c, 1);
    lt_start(c, 1);
    for (uint32_t i = 0; i < RING_KEYS; i++) {
        (void)snprintf(key, sizeof(key), "r%u", i);
        if (i == 0) { /* the context learns that its connection is gone */
            char buf[8];
            size_t size;
            (void)lt_get(c, key, buf, sizeof(buf), &size);
        }
        lt_expect_value(c, key, i < acknowledged ? "new" : "old");
    }
    lt_delete(&c);
}

/* ---- counts and sizes ---- */

static void slots__all_taken__slots_until_one_is_closed(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(
        1, "64M", "slots = 3; ring_size = \"64k\"; window = 16; lease_ms = 300; resolve_ms = 300");
    struct cairn_ctx *second, *third, *mine;
    uint64_t begun, end;
    int rc;

    lt_start(c, 1);
    lt_open(c);
    mine = c->ctx;
    LT_OK(lt_put(c, "a", "1", 1));
    LT_OK(cairn_ctx_open(c->cairn, &second));
    LT_OK(cairn_ctx_open(c->cairn, &third));
    c->ctx = second;
    LT_OK(lt_put(c, "a", "2", 1));
    c->ctx = third;
    begun = lt_now_ms();
    rc = lt_put(c, "a", "3", 1);
    lt_check_error(rc, CAIRN_E_SLOTS, "node 1", "put", __LINE__);
    assert_true(lt_now_ms() - begun < 10000);
    c->ctx = mine; /* the others are not disturbed */
    lt_expect_value(c, "a", "2");
    cairn_ctx_close(&second);
    c->ctx = third;
    end = lt_now_ms() + 10000;
    while ((rc = lt_put(c, "a", "4", 1)) == CAIRN_E_SLOTS && lt_now_ms() < end)
        (void)usleep(10000);
    lt_check_error(rc, 0, NULL, "put", __LINE__);
    cairn_ctx_close(&third);
    c->ctx = mine;
    lt_expect_value(c, "a", "4");
    lt_delete(&c);
}

static void transaction__over_each_bound__its_own_error(void **state)
{
    (void)state;
    static uint8_t big[CAIRN_VALUE_SIZE_MAX + 1];
    struct lt_cluster *c = lt_new(
        1, "64M", "slots = 3; ring_size = \"16k\"; window = 16; lease_ms = 300; resolve_ms = 300");
    struct cairn_tx *tx;
    enum cairn_outcome outcome;
    char key[32], buf[8];
    size_t size;
    int rc = 0;

    lt_start(c, 1);
    lt_open(c);
    LT_OK(lt_put(c, "here", "1", 1));
    LT_OK(cairn_begin(c->ctx, &tx));
    LT_ERROR(CAIRN_E_KEY_SIZE, NULL, cairn_put(tx, LT_TABLE, "", 0, "v", 1));
    LT_ERROR(CAIRN_E_KEY_SIZE, NULL, cairn_get(tx, LT_TABLE, big, 256, buf, 8, &size));
    LT_ERROR(CAIRN_E_KEY_SIZE, NULL, cairn_delete(tx, LT_TABLE, big, 256));
    LT_ERROR(CAIRN_E_VALUE_SIZE, NULL, cairn_put(tx, LT_TABLE, "k", 1, big, sizeof(big)));
    LT_ERROR(CAIRN_E_NO_TABLE, NULL, cairn_put(tx, 77, "k", 1, "v", 1));
    LT_ERROR(CAIRN_E_NO_TABLE, NULL, cairn_get(tx, 77, "k", 1, buf, 8, &size));
    for (uint32_t i = 0; rc == 0 && i < 1000; i++) {
        int n = snprintf(key, sizeof(key), "%u", i);
        rc = cairn_put(tx, LT_TABLE, key, (size_t)n, "v", 1);
    }
    lt_check_error(rc, CAIRN_E_TX_SIZE, NULL, "keys", __LINE__);
    cairn_abort(tx);
    lt_expect_value(c, "0", NULL);
    /* less than the limit, more than this pool's ring takes: refused before anything is locked */
    LT_OK(cairn_begin(c->ctx, &tx));
    LT_OK(cairn_put(tx, LT_TABLE, "here", 4, big, 30000));
    rc = cairn_commit(tx, &outcome);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    lt_check_error(rc, CAIRN_E_TX_SIZE, "node 1", "commit", __LINE__);
    lt_expect_value(c, "here", "1");
    LT_OK(lt_put(c, "here", "2", 1));
    lt_delete(&c);
}

static void values__longest_key_and_value__survive_a_restart(void **state)
{
    (void)state;
    static uint8_t value[CAIRN_VALUE_SIZE_MAX], got[CAIRN_VALUE_SIZE_MAX];
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    char key[CAIRN_KEY_SIZE_MAX + 1];
    size_t size = 0;

    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (uint8_t)(cn_mix64(i) >> 5);
    memset(key, 'k', CAIRN_KEY_SIZE_MAX);
    key[CAIRN_KEY_SIZE_MAX] = '\0';
    lt_start(c, 1);
    lt_open(c);
    LT_OK(lt_put(c, key, value, sizeof(value)));
    LT_OK(lt_put(c, "empty", "", 0));
    LT_OK(lt_get(c, key, got, sizeof(got), &size));
    assert_int_equal(size, sizeof(value));
    assert_memory_equal(got, value, sizeof(value));
    LT_ERROR(CAIRN_E_BUFFER_SIZE, NULL, lt_get(c, key, got, sizeof(got) - 1, &size));
    assert_int_equal(size, sizeof(value));
    lt_close(c);
    lt_kill(c, 1);
    lt_start(c, 1);
    lt_open(c);
    memset(got, 0, sizeof(got));
    LT_OK(lt_get(c, key, got, sizeof(got), &size));
    assert_int_equal(size, sizeof(value));
    assert_memory_equal(got, value, sizeof(value));
    lt_expect_value(c, "empty", "");
    LT_OK(lt_put(c, key, NULL, 0));
    LT_ERROR(CAIRN_E_NOT_FOUND, NULL, lt_get(c, key, got, sizeof(got), &size));
    lt_delete(&c);
}

#define ONE_BUCKET (PM_BUCKET_SLOTS + 1)

/* Keys that all belong into one bucket of a fresh table: hash bits 0 .. depth0 - 1 alike. */
static void keys_of_one_bucket(struct lt_cluster *c, uint32_t key[ONE_BUCKET])
{
    static const struct pm_cas no_cas = {NULL, NULL};
    struct pm_pool *pool;
    struct pm_store *store;
    uint32_t found = 0;
    char path[128];

    LT_OK(pm_pool_open(lt_path(c, path, "n1.pool"), PM_OPEN_READ_ONLY, 0, cn_env_system(), &pool));
    LT_OK(pm_store_open(pool, &no_cas, &store));
    const struct pm_index *index = pm_store_index(store, LT_TABLE, 0);
    assert_non_null(index);
    for (uint32_t i = 0; found < ONE_BUCKET; i++)
        if ((pm_index_hash(index, &i, sizeof(i)) & 0xfff) == 0x123)
            key[found++] = i;
    pm_store_close(&store);
    pm_pool_close(&pool);
}

static int put_all(struct cairn_tx *tx, void *arg)
{
    const uint32_t *key = arg;
    int rc = 0;

    for (uint32_t i = 0; i < ONE_BUCKET && rc == 0; i++)
        rc = cairn_put(tx, LT_TABLE, &key[i], sizeof(key[i]), &key[i], sizeof(key[i]));
    return rc;
}

static int delete_all(struct cairn_tx *tx, void *arg)
{
    const uint32_t *key = arg;
    int rc = 0;

    for (uint32_t i = 0; i < ONE_BUCKET && rc == 0; i++)
        rc = cairn_delete(tx, LT_TABLE, &key[i], sizeof(key[i]));
    return rc;
}

static void bucket__57_inserts_in_one_transaction__room_is_made(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    uint32_t key[ONE_BUCKET], value;
    struct cairn_stats stats;
    struct cairn_tx *tx;
    enum cairn_outcome outcome;
    size_t size;
    char path[128];

    lt_start(c, 1);
    lt_open(c);
    LT_OK(lt_put(c, "first", "1", 1)); /* the table is there */
    keys_of_one_bucket(c, key);
    for (uint32_t round = 0; round < 2; round++) {
        LT_OK(cairn_run(c->ctx, put_all, key, 20000, NULL));
        LT_OK(cairn_begin(c->ctx, &tx));
        for (uint32_t i = 0; i < ONE_BUCKET; i++) {
            LT_OK(cairn_get(tx, LT_TABLE, &key[i], sizeof(key[i]), &value, sizeof(value), &size));
            assert_int_equal(value, key[i]);
        }
        LT_OK(cairn_commit(tx, &outcome));
        LT_OK(cairn_run(c->ctx, delete_all, key, 20000, NULL));
        LT_OK(cairn_begin(c->ctx, &tx));
        LT_ERROR(CAIRN_E_NOT_FOUND, NULL,
            cairn_get(tx, LT_TABLE, &key[56], sizeof(key[0]), &value, sizeof(value), &size));
        cairn_abort(tx);
    }
    cairn_ctx_stats(c->ctx, &stats);
    assert_true(stats.rooms > 0); /* it could not be without */
    lt_close(c);
    lt_stop(c, 1);
    LT_EXPECT(c, 0, "\"damages\": 0", "inspect", "--check", "--json", lt_path(c, path, "n1.pool"));
    lt_delete(&c);
}

/* ---- nodes down, stopped, wrong ---- */

static void node__down_or_stopped__its_own_error_in_time(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(2, "64M", SMALL);
    char k1[32], k2[32], buf[8];
    size_t size;
    uint64_t begun;

    (void)lt_key(c, 1, 1, k1);
    (void)lt_key(c, 2, 1, k2);
    c->options.op_timeout_ms = 500;
    c->options.connect_timeout_ms = 500;
    lt_start(c, 1);
    lt_start(c, 2);
    lt_open(c);
    LT_OK(lt_put(c, k1, "1", 1));
    LT_OK(lt_put(c, k2, "1", 1));
    lt_pause(c, 1); /* stopped, nobody connected */
    lt_open(c);
    begun = lt_now_ms();
    LT_ERROR(CAIRN_E_TIMEOUT, "node 1", lt_get(c, k1, buf, sizeof(buf), &size));
    assert_true(lt_now_ms() - begun < 10000);
    LT_OK(lt_get(c, k2, buf, sizeof(buf), &size)); /* the other serves */
    LT_OK(lt_put(c, k2, "2", 1));
    lt_resume(c, 1);
    c->options.connect_timeout_ms = 5000;
    lt_open(c);
    lt_expect_value(c, k1, "1");
    lt_kill(c, 1); /* down, with a connection, then without */
    begun = lt_now_ms();
    int rc;
    do /* one-sided reads go on until the loss is noticed */
        rc = lt_get(c, k1, buf, sizeof(buf), &size);
    while (rc == 0 && lt_now_ms() - begun < 5000);
    if (rc != CAIRN_E_NODE_DOWN && rc != CAIRN_E_FENCED)
        fail_msg("%s: %s", cairn_error_name(rc), cairn_last_error());
    assert_non_null(strstr(cairn_last_error(), "node 1"));
    LT_ERROR(CAIRN_E_NODE_DOWN, "node 1", lt_get(c, k1, buf, sizeof(buf), &size));
    lt_open(c);
    LT_ERROR(CAIRN_E_NODE_DOWN, "node 1", lt_get(c, k1, buf, sizeof(buf), &size));
    LT_ERROR(CAIRN_E_NODE_DOWN, "node 1", lt_try_put(c, k1, "9", 1));
    assert_true(lt_now_ms() - begun < 20000);
    lt_expect_value(c, k2, "2");
    lt_start(c, 1);
    lt_expect_value(c, k1, "1");
    lt_delete(&c);
}

static void copy(struct lt_cluster *c, const char *from, const char *to)
{
    char command[300], a[128], b[128];

    (void)snprintf(command, sizeof(command), "cp --sparse=always '%s' '%s'", lt_path(c, a, from),
        lt_path(c, b, to));
    assert_int_equal(system(command), 0);
}

/* The configuration with `from` replaced by `to` (same length not needed), as other.conf. */
static const char *edit_config(struct lt_cluster *c, const char *expression, char path[128])
{
    char command[400];

    (void)snprintf(command, sizeof(command), "sed '%s' '%s' > '%s'", expression, c->config,
        lt_path(c, path, "other.conf"));
    assert_int_equal(system(command), 0);
    return path;
}

static void node__second_with_one_id__distinct_errors(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(2, "64M", SMALL);
    char other[128], path[128];

    lt_start(c, 1);
    lt_open(c);
    char key[32];
    (void)lt_key(c, 1, 1, key);
    LT_OK(lt_put(c, key, "1", 1));
    /* the same pool */
    LT_EXPECT(c, 2, "which had the pool last, has not ended", "node", "--config", c->config, "--id",
        "1", "--wait", "0");
    LT_EXPECT(c, 2, "CAIRN_E_POOL_BUSY", "recover", "--json", lt_path(c, path, "n1.pool"));
    /* a pool of its own, the same address */
    (void)edit_config(c, "s/n1[.]pool/x1.pool/", other);
    LT_EXPECT(c, 2, "in use", "node", "--config", other, "--id", "1", "--wait", "0");
    lt_expect_value(c, key, "1");
    lt_stop(c, 1);
    /* another node's pool */
    copy(c, "n1.pool", "n2.pool");
    LT_EXPECT(c, 2, "belongs to node", "node", "--config", c->config, "--id", "2");
    LT_EXPECT(c, 2, "CAIRN_E_WRONG_NODE", "recover", "--json", lt_path(c, path, "n1.pool"),
        lt_path(c, other, "n2.pool"));
    lt_delete(&c);
}

static void pool__not_usable__distinct_errors(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    char other[128], path[128];

    lt_start(c, 1);
    lt_stop(c, 1);
    const char *pool = lt_path(c, path, "n1.pool");
    (void)edit_config(c, "s/^cluster = \"......../cluster = \"11111111/", other);
    LT_EXPECT(c, 2, "belongs to cluster", "node", "--config", other, "--id", "1");
    copy(c, "n1.pool", "good.pool");
    assert_int_equal(truncate(pool, 32 << 20), 0);
    LT_EXPECT(c, 2, "CAIRN_E_POOL_SIZE", "inspect", "--json", pool);
    LT_EXPECT(c, 2, "was made with", "node", "--config", c->config, "--id", "1");
    copy(c, "good.pool", "n1.pool");
    struct lt_file file = lt_map(c, 1);
    static const uint64_t magic = PM_SUPER_MAGIC;
    uint8_t *super = memmem(file.at, file.size, &magic, sizeof(magic));
    assert_non_null(super);
    struct pm_super_pm good, other_version;
    memcpy(&good, super, sizeof(good));
    other_version = good;
    other_version.layout_version = le32_make(PM_LAYOUT_VERSION + 1);
    other_version.crc = le32_make(0);
    other_version.crc = le32_make(cn_crc32c(0, &other_version, sizeof(other_version)));
    memcpy(super, &other_version, sizeof(other_version));
    LT_EXPECT(c, 2, "CAIRN_E_LAYOUT_VERSION", "inspect", "--json", pool);
    LT_EXPECT(c, 2, "layout version", "node", "--config", c->config, "--id", "1");
    memcpy(super, &good, sizeof(good));
    super[offsetof(struct pm_super_pm, layout_version)] ^= 2; /* a flipped bit is not a version */
    LT_EXPECT(c, 1, "CAIRN_E_CORRUPT_SUPER", "inspect", "--json", pool);
    memcpy(super, &good, sizeof(good));
    super[offsetof(struct pm_super_pm, window)] ^= 1;
    LT_EXPECT(c, 1, "CAIRN_E_CORRUPT_SUPER", "inspect", "--json", pool);
    LT_EXPECT(c, 1, "superblock", "node", "--config", c->config, "--id", "1");
    super[offsetof(struct pm_super_pm, window)] ^= 1;
    lt_unmap(&file);
    lt_start(c, 1);
    lt_stop(c, 1);
    assert_int_equal(truncate(pool, 0), 0);
    LT_EXPECT(c, 2, "has only 0 bytes", "node", "--config", c->config, "--id", "1");
    lt_delete(&c);
}

/* ---- a creation that is interrupted ---- */

static void die_at(void *arg, enum cn_step step)
{
    if (step == *(const enum cn_step *)arg)
        _exit(9);
}

static void create_until(struct lt_cluster *c, const char *path, enum cn_step step)
{
    struct cn_env env = *cn_env_system();
    struct txn_config *config;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        env.arg = &step;
        env.step = die_at;
        if (txn_config_load(c->config, &config) != 0)
            _exit(1);
        _exit(pm_pool_create(path, 64u << 20, &config->geometry, &config->cluster, 1, &env) != 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 9);
}

static void pool__made_halfway__not_a_pool_and_what_to_do(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    static const enum cn_step steps[] = {CN_STEP_r_format};
    char path[128];
    const char *pool = lt_path(c, path, "n1.pool");

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(steps); i++) {
        create_until(c, pool, steps[i]);
        LT_EXPECT(c, 2, "CAIRN_E_NOT_A_POOL", "inspect", "--json", pool);
        LT_EXPECT(c, 2, "remove it (zero the", "node", "--config", c->config, "--id", "1");
        assert_int_equal(unlink(pool), 0);
    }
    lt_start(c, 1); /* and then it is made */
    lt_stop(c, 1);
    lt_delete(&c);
}

static void config__typo__names_the_line_and_the_nearest(void **state)
{
    (void)state;
    struct lt_cluster *c = lt_new(1, "64M", SMALL);
    struct cairn *cairn;
    char other[128];

    (void)edit_config(c, "s/lease_ms/leas_ms/", other);
    LT_ERROR(CAIRN_E_CONFIG, "lease_ms", cairn_open(other, NULL, &cairn));
    assert_non_null(strstr(cairn_last_error(), "other.conf:"));
    LT_EXPECT(c, 2, "did you mean \"lease_ms\"", "node", "--config", other, "--id", "1");
    (void)edit_config(c, "s/lease_ms = 300/lease_ms = 0/", other);
    LT_ERROR(CAIRN_E_CONFIG, "lease_ms", cairn_open(other, NULL, &cairn));
    (void)edit_config(c, "s/^fabric.*/fabric = ;/", other);
    LT_ERROR(CAIRN_E_CONFIG, "other.conf:", cairn_open(other, NULL, &cairn));
    LT_ERROR(-ENOENT, "none.conf", cairn_open(lt_path(c, other, "none.conf"), NULL, &cairn));
    lt_delete(&c);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool__full__pool_full_before_commit_and_space_is_reused),
        cmocka_unit_test(ring__full__ring_full_in_time_and_nothing_lost),
        cmocka_unit_test(ring__full_then_node_killed__nothing_lost),
        cmocka_unit_test(slots__all_taken__slots_until_one_is_closed),
        cmocka_unit_test(transaction__over_each_bound__its_own_error),
        cmocka_unit_test(values__longest_key_and_value__survive_a_restart),
        cmocka_unit_test(bucket__57_inserts_in_one_transaction__room_is_made),
        cmocka_unit_test(node__down_or_stopped__its_own_error_in_time),
        cmocka_unit_test(node__second_with_one_id__distinct_errors),
        cmocka_unit_test(pool__not_usable__distinct_errors),
        cmocka_unit_test(pool__made_halfway__not_a_pool_and_what_to_do),
        cmocka_unit_test(config__typo__names_the_line_and_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
