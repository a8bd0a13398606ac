/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the public API over real nodes on emulated RDMA.
 * Method: three nodes in threads; one or more contexts in this thread.
 * Invariants: what was committed is read; what was aborted is not; errors are distinct.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "recovery/rec_offline.h"
#include "tests/support/ts_cluster.h"
#include "txn/txn_ctx.h"

#include <fcntl.h>
#include <unistd.h>

#define NODES 3u
#define T 1u

struct fixture {
    struct ts_cluster *cluster;
    struct cairn_ctx *ctx;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    f->cluster = ts_cluster_new(NODES, NULL, NULL);
    assert_int_equal(cairn_ctx_open(f->cluster->cairn, &f->ctx), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    cairn_ctx_close(&f->ctx);
    ts_cluster_delete(&f->cluster);
    free(f);
    return 0;
}

#define OK(call) ok((call), #call, __LINE__)

static void ok(int rc, const char *what, int line)
{
    if (rc != 0)
        fail_msg("line %d: %s: %s: %s", line, what, cairn_error_name(rc), cairn_last_error());
}

static struct cairn_tx *begin(struct cairn_ctx *ctx)
{
    struct cairn_tx *tx = NULL;

    OK(cairn_begin(ctx, &tx));
    return tx;
}

static enum cairn_outcome commit(struct cairn_tx *tx)
{
    enum cairn_outcome outcome;

    OK(cairn_commit(tx, &outcome));
    return outcome;
}

static void put(struct cairn_tx *tx, const char *key, const char *value)
{
    OK(cairn_put(tx, T, key, strlen(key), value, strlen(value)));
}

/* Put in a transaction of its own, whatever it takes. */
struct one {
    const char *key, *value;
};
static int put_one(struct cairn_tx *tx, void *arg)
{
    const struct one *o = arg;

    return o->value == NULL ? cairn_delete(tx, T, o->key, strlen(o->key))
                            : cairn_put(tx, T, o->key, strlen(o->key), o->value, strlen(o->value));
}
static void store(struct cairn_ctx *ctx, const char *key, const char *value)
{
    struct one o = {key, value};
    struct cairn_run_result r;

    OK(cairn_run(ctx, put_one, &o, 5000, &r));
    assert_int_equal(r.outcome, CAIRN_OUTCOME_COMMITTED);
}

static void expect(struct cairn_tx *tx, const char *key, const char *value)
{
    char buf[64];
    size_t size = 999;
    int rc = cairn_get(tx, T, key, strlen(key), buf, sizeof(buf), &size);

    if (value == NULL) {
        assert_int_equal(rc, CAIRN_E_NOT_FOUND);
        return;
    }
    OK(rc);
    assert_int_equal(size, strlen(value));
    assert_memory_equal(buf, value, size);
}

static void expect_now(struct cairn_ctx *ctx, const char *key, const char *value)
{
    struct cairn_tx *tx = begin(ctx);

    expect(tx, key, value);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
}

static void commit__writes_on_three_nodes__are_read_back(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx = begin(f->ctx);
    char key[32], name[16];

    for (uint32_t i = 0; i < 12; i++) {
        (void)ts_cluster_key(f->cluster, T, i % NODES, i, key);
        (void)snprintf(name, sizeof(name), "v%u", i);
        put(tx, key, name);
        expect(tx, key, name); /* reads as written */
    }
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    struct cairn_ctx *other;
    OK(cairn_ctx_open(f->cluster->cairn, &other));
    tx = begin(other);
    for (uint32_t i = 0; i < 12; i++) {
        (void)ts_cluster_key(f->cluster, T, i % NODES, i, key);
        (void)snprintf(name, sizeof(name), "v%u", i);
        expect(tx, key, name);
    }
    expect(tx, "never", NULL);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    cairn_ctx_close(&other);
}

static void abort__after_writes__leaves_nothing(void **state)
{
    struct fixture *f = *state;

    store(f->ctx, "a", "1");
    expect_now(f->ctx, "a", "1"); /* a lock waits for the node's release but for a moment */
    struct cairn_tx *tx = begin(f->ctx);
    put(tx, "a", "2");
    put(tx, "b", "2");
    char buf[8];
    size_t size;
    int rc = cairn_get_for_update(tx, T, "a", 1, buf, sizeof(buf), &size);
    OK(rc);
    cairn_abort(tx);
    expect_now(f->ctx, "a", "1");
    expect_now(f->ctx, "b", NULL);
    struct cairn_stats s;
    cairn_ctx_stats(f->ctx, &s);
    assert_int_equal(s.aborts_user, 1);
}

static int net_effects(struct cairn_tx *tx, void *arg)
{
    (void)arg;
    OK(cairn_delete(tx, T, "a", 1));
    expect(tx, "a", NULL);
    put(tx, "a", "2"); /* an update */
    put(tx, "b", "1");
    OK(cairn_delete(tx, T, "b", 1)); /* nothing */
    return 0;
}

static void put_delete__net_effects__as_written_last(void **state)
{
    struct fixture *f = *state;

    store(f->ctx, "a", "1");
    OK(cairn_run(f->ctx, net_effects, NULL, 5000, NULL));
    expect_now(f->ctx, "a", "2");
    expect_now(f->ctx, "b", NULL);
    store(f->ctx, "a", NULL);
    expect_now(f->ctx, "a", NULL);
    store(f->ctx, "a", "3");
    expect_now(f->ctx, "a", "3");
    store(f->ctx, "gone", NULL); /* deleting what is not there is no error */
}

static void put__value_grows_and_shrinks__moves(void **state)
{
    struct fixture *f = *state;
    static uint8_t value[CAIRN_VALUE_SIZE_MAX], got[CAIRN_VALUE_SIZE_MAX];
    const size_t sizes[] = {0, 1, 24, 100, 5000, CAIRN_VALUE_SIZE_MAX - 128, 60, 30000, 0};
    uint64_t seed = 1;

    for (uint32_t i = 0; i < CN_ARRAY_SIZE(sizes); i++) {
        size_t size = 999;
        for (uint32_t b = 0; b < sizes[i]; b++)
            value[b] = (uint8_t)(seed = cn_mix64(seed + b));
        enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
        for (uint32_t tries = 0; outcome != CAIRN_OUTCOME_COMMITTED && tries < 1000; tries++) {
            struct cairn_tx *tx = begin(f->ctx);
            OK(cairn_put(tx, T, "key", 3, value, sizes[i]));
            outcome = commit(tx);
            (void)usleep(100);
        }
        assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
        struct cairn_tx *tx = begin(f->ctx);
        OK(cairn_get(tx, T, "key", 3, got, sizeof(got), &size));
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(got, value, size);
        if (size > 1)
            assert_int_equal(cairn_get(tx, T, "key", 3, got, 1, &size), CAIRN_E_BUFFER_SIZE);
        assert_int_equal(size, sizes[i]);
        assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    }
}

static void arguments__out_of_bounds__distinct_errors(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx = begin(f->ctx), *second;
    static uint8_t big[CAIRN_VALUE_SIZE_MAX + 1];
    size_t size;
    char token[CAIRN_TOKEN_SIZE];
    uint32_t table;

    assert_int_equal(cairn_begin(f->ctx, &second), CAIRN_E_STATE);
    assert_int_equal(cairn_put(tx, T, "", 0, "v", 1), CAIRN_E_KEY_SIZE);
    assert_int_equal(cairn_put(tx, T, big, 256, "v", 1), CAIRN_E_KEY_SIZE);
    assert_int_equal(cairn_put(tx, T, "k", 1, big, sizeof(big)), CAIRN_E_VALUE_SIZE);
    assert_int_equal(cairn_put(tx, 9, "k", 1, "v", 1), CAIRN_E_NO_TABLE);
    assert_int_equal(cairn_get(tx, 9, "k", 1, big, 1, &size), CAIRN_E_NO_TABLE);
    assert_int_equal(cairn_tx_token(tx, token), CAIRN_E_STATE);
    assert_int_equal(cairn_table(f->cluster->cairn, "u", &table), 0);
    assert_int_equal(table, 2);
    assert_int_equal(cairn_table(f->cluster->cairn, "x", &table), CAIRN_E_NO_TABLE);
    int rc = 0;
    for (uint32_t i = 0; i < 40 && rc == 0; i++) {
        char key[32];
        size_t n = ts_cluster_key(f->cluster, T, 0, i, key);
        rc = cairn_put(tx, T, key, n, big, CAIRN_VALUE_SIZE_MAX);
        if (rc != 0)
            assert_int_equal(i, 7); /* 8 x 64 KiB and their keys are more than 512 KiB */
    }
    assert_int_equal(rc, CAIRN_E_TX_SIZE);
    cairn_abort(tx);
    tx = begin(f->ctx);
    for (uint32_t i = 0; i < CAIRN_TX_KEYS_MAX; i++) {
        char key[32];
        int n = snprintf(key, sizeof(key), "%u", i);
        OK(cairn_put(tx, T, key, (size_t)n, "v", 1));
    }
    assert_int_equal(cairn_put(tx, T, "one more", 8, "v", 1), CAIRN_E_TX_SIZE);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    expect_now(f->ctx, "255", "v");
}

static void get_for_update__held_by_another__conflict(void **state)
{
    struct fixture *f = *state;
    struct cairn_ctx *other;
    char buf[8];
    size_t size;

    store(f->ctx, "a", "1");
    store(f->ctx, "b", "1");
    OK(cairn_ctx_open(f->cluster->cairn, &other));
    expect_now(other, "a", "1");
    struct cairn_tx *t1 = begin(f->ctx);
    OK(cairn_get_for_update(t1, T, "a", 1, buf, sizeof(buf), &size));
    struct cairn_tx *t2 = begin(other);
    OK(cairn_get_for_update(t2, T, "b", 1, buf, sizeof(buf), &size));
    /* t2 holds a lock: it does not wait */
    assert_int_equal(
        cairn_get_for_update(t2, T, "a", 1, buf, sizeof(buf), &size), CAIRN_E_CONFLICT);
    assert_int_equal(cairn_get(t2, T, "b", 1, buf, sizeof(buf), &size), CAIRN_E_STATE);
    enum cairn_outcome outcome;
    OK(cairn_commit(t2, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    /* b is free again, and t1 goes on */
    OK(cairn_get_for_update(t1, T, "b", 1, buf, sizeof(buf), &size));
    put(t1, "a", "2");
    put(t1, "b", "2");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_COMMITTED);
    expect_now(other, "a", "2");
    expect_now(other, "b", "2");
    cairn_ctx_close(&other);
}

static void get_for_update__absent__locks_the_absence(void **state)
{
    struct fixture *f = *state;
    struct cairn_ctx *other;
    char buf[8];
    size_t size;

    OK(cairn_ctx_open(f->cluster->cairn, &other));
    struct cairn_tx *t1 = begin(f->ctx);
    assert_int_equal(
        cairn_get_for_update(t1, T, "new", 3, buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    struct cairn_tx *t2 = begin(other);
    put(t2, "new", "2");
    assert_int_equal(commit(t2), CAIRN_OUTCOME_ABORTED);
    put(t1, "new", "1");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_COMMITTED);
    expect_now(other, "new", "1");
    /* locked and not written: the lock is given back */
    t1 = begin(f->ctx);
    assert_int_equal(
        cairn_get_for_update(t1, T, "new2", 4, buf, sizeof(buf), &size), CAIRN_E_NOT_FOUND);
    OK(cairn_get_for_update(t1, T, "new", 3, buf, sizeof(buf), &size));
    put(t1, "else", "1");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_COMMITTED);
    expect_now(f->ctx, "new", "1");
    store(other, "new2", "2");
    store(other, "new", "3");
    expect_now(f->ctx, "new", "3");
    cairn_ctx_close(&other);
}

static void commit__read_changed_meanwhile__aborted(void **state)
{
    struct fixture *f = *state;
    struct cairn_ctx *other;

    store(f->ctx, "a", "1");
    store(f->ctx, "b", "1");
    OK(cairn_ctx_open(f->cluster->cairn, &other));
    /* write skew: each reads what the other writes */
    struct cairn_tx *t1 = begin(f->ctx), *t2 = begin(other);
    expect(t1, "a", "1");
    expect(t1, "b", "1");
    expect(t2, "a", "1");
    expect(t2, "b", "1");
    put(t1, "a", "2");
    put(t2, "b", "2");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(commit(t2), CAIRN_OUTCOME_ABORTED);
    /* an absence that ended */
    t1 = begin(f->ctx);
    expect(t1, "c", NULL);
    store(other, "c", "1");
    put(t1, "a", "3");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_ABORTED);
    /* read only */
    t1 = begin(f->ctx);
    expect(t1, "a", "2");
    expect(t1, "b", "1");
    store(other, "b", "5");
    assert_int_equal(commit(t1), CAIRN_OUTCOME_ABORTED);
    cairn_ctx_close(&other);
}

static void insert__many_keys__buckets_split(void **state)
{
    struct fixture *f = *state;
    char key[32];

    for (uint32_t i = 0; i < 40; i++) {
        enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
        for (uint32_t tries = 0; outcome == CAIRN_OUTCOME_ABORTED && tries < 2000; tries++) {
            struct cairn_tx *tx = begin(f->ctx);
            for (uint32_t j = 0; j < 60; j++) {
                (void)snprintf(key, sizeof(key), "n%u", i * 60 + j);
                put(tx, key, key);
            }
            outcome = commit(tx);
            if (outcome == CAIRN_OUTCOME_ABORTED)
                (void)usleep(200);
        }
        if (outcome != CAIRN_OUTCOME_COMMITTED) {
            struct cairn_stats s;
            cairn_ctx_stats(f->ctx, &s);
            print_message("batch %u: lock %llu validate %llu read %llu error %llu rooms %llu "
                          "agains %llu fulls %llu trips %llu\n",
                i, (unsigned long long)s.aborts_lock, (unsigned long long)s.aborts_validate,
                (unsigned long long)s.aborts_read, (unsigned long long)s.aborts_error,
                (unsigned long long)s.rooms, (unsigned long long)s.agains,
                (unsigned long long)s.fulls, (unsigned long long)s.round_trips);
        }
        assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    }
    for (uint32_t i = 0; i < 2400; i += 7) {
        (void)snprintf(key, sizeof(key), "n%u", i);
        expect_now(f->ctx, key, key);
    }
    expect_now(f->ctx, "n2400", NULL);
}

/* ---- tokens ---- */

static void resolve__committed_and_aborted__verdicts(void **state)
{
    struct fixture *f = *state;
    char token[CAIRN_TOKEN_SIZE], token2[CAIRN_TOKEN_SIZE];
    enum cairn_outcome outcome;

    assert_int_equal(cairn_ctx_token(f->ctx, token), CAIRN_E_STATE);
    struct cairn_tx *tx = begin(f->ctx);
    put(tx, "a", "1");
    put(tx, "b", "1");
    OK(cairn_tx_token(tx, token));
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    OK(cairn_ctx_token(f->ctx, token2));
    assert_string_equal(token, token2);
    struct cairn_ctx *other;
    OK(cairn_ctx_open(f->cluster->cairn, &other));
    OK(cairn_resolve(other, token, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    tx = begin(f->ctx);
    put(tx, "a", "2");
    OK(cairn_tx_token(tx, token));
    cairn_abort(tx);
    store(f->ctx, "c", "1"); /* the ring goes on behind the void */
    expect_now(other, "a", "1");
    OK(cairn_resolve(other, token, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
    token[8] = token[8] == '0' ? '1' : '0';
    assert_int_equal(cairn_resolve(other, token, &outcome), CAIRN_E_TOKEN);
    /* a token of a transaction whose writes at that node cancel out: still a verdict */
    tx = begin(f->ctx);
    put(tx, "never", "1");
    OK(cairn_tx_token(tx, token));
    OK(cairn_delete(tx, T, "never", 5));
    put(tx, "a", "4");
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    OK(cairn_resolve(other, token, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    cairn_ctx_close(&other);
}

/* ---- nodes going down ---- */

static void node_down__others_serve__and_it_returns(void **state)
{
    struct fixture *f = *state;
    char k0[32], k1[32], buf[8];
    size_t size;

    (void)ts_cluster_key(f->cluster, T, 0, 1, k0);
    (void)ts_cluster_key(f->cluster, T, 1, 1, k1);
    store(f->ctx, k0, "1");
    store(f->ctx, k1, "1");
    expect_now(f->ctx, k1, "1");
    ts_cluster_stop(f->cluster, 0, false);
    (void)usleep(20000);
    struct cairn_tx *tx = begin(f->ctx);
    int rc = cairn_get(tx, T, k0, strlen(k0), buf, sizeof(buf), &size);
    /* ... or it has been noticed already, and nobody listens there. */
    if (rc != CAIRN_E_NODE_DOWN && rc != CAIRN_E_FENCED && rc != CAIRN_E_REJECTED)
        fail_msg("%s: %s", cairn_error_name(rc), cairn_last_error());
    assert_non_null(strstr(cairn_last_error(), "node 1"));
    cairn_abort(tx);
    store(f->ctx, k1, "2");
    expect_now(f->ctx, k1, "2");
    ts_cluster_start(f->cluster, 0);
    expect_now(f->ctx, k0, "1");
    store(f->ctx, k0, "2");
    expect_now(f->ctx, k0, "2");
}

/* The first transaction afterwards knows: none is lost to connections that were gone before. */
static void begin__node_restarted_while_idle__no_transaction_fails(void **state)
{
    struct fixture *f = *state;
    struct cairn_stats s;
    char k0[32], k1[32];

    (void)ts_cluster_key(f->cluster, T, 0, 1, k0);
    (void)ts_cluster_key(f->cluster, T, 1, 1, k1);
    for (uint32_t i = 0; i < 3; i++) {
        store(f->ctx, k0, "1");
        store(f->ctx, k1, "1");
        ts_cluster_stop(f->cluster, 0, false);
        ts_cluster_start(f->cluster, 0);
        (void)usleep(50000);
        struct cairn_tx *tx = begin(f->ctx);
        put(tx, k1, "2");
        put(tx, k0, "2");
        assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
        cairn_ctx_stats(f->ctx, &s);
        assert_int_equal(s.reconnects, i + 1);
    }
    expect_now(f->ctx, k0, "2");
}

/* ---- contention ---- */

struct counter {
    struct ts_cluster *cluster;
    uint32_t adds;
};

static int add_one(struct cairn_tx *tx, void *arg)
{
    uint64_t v[2] = {0, 0};
    size_t size;

    (void)arg;
    for (uint32_t i = 0; i < 2; i++) {
        int rc = cairn_get_for_update(tx, T, i == 0 ? "c0" : "c1", 2, &v[i], 8, &size);
        if (rc != 0 && rc != CAIRN_E_NOT_FOUND)
            return rc;
        v[i]++;
        rc = cairn_put(tx, T, i == 0 ? "c0" : "c1", 2, &v[i], 8);
        if (rc != 0)
            return rc;
    }
    return v[0] == v[1] ? 0 : CAIRN_E_STATE;
}

static void *add_many(void *arg)
{
    struct counter *c = arg;
    struct cairn_ctx *ctx;

    OK(cairn_ctx_open(c->cluster->cairn, &ctx));
    for (uint32_t i = 0; i < c->adds; i++)
        OK(cairn_run(ctx, add_one, NULL, 20000, NULL));
    cairn_ctx_close(&ctx);
    return NULL;
}

static void run__two_threads_add__no_update_is_lost(void **state)
{
    struct fixture *f = *state;
    struct counter c = {f->cluster, 150};
    pthread_t other;
    uint64_t v;
    size_t size;

    assert_int_equal(pthread_create(&other, NULL, add_many, &c), 0);
    for (uint32_t i = 0; i < c.adds; i++)
        OK(cairn_run(f->ctx, add_one, NULL, 20000, NULL));
    assert_int_equal(pthread_join(other, NULL), 0);
    struct cairn_tx *tx = begin(f->ctx);
    OK(cairn_get(tx, T, "c1", 2, &v, 8, &size));
    assert_int_equal(v, 2 * c.adds);
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    struct cairn_stats s;
    cairn_ctx_stats(f->ctx, &s);
    assert_true(s.commits >= c.adds && cairn_histogram_quantile(s.commit_latency, 0.5) > 0);
}

/* ---- offline ---- */

/* A coordinator that is merely stopped has its rings mapped still. When it goes on, what it logs
 * must not pass for durable: `cairn recover` has decided without it. */
static void recover__coordinator_has_its_rings_mapped__it_is_cut_off(void **state)
{
    struct fixture *f = *state;
    const char *paths[NODES];
    struct rec_report_pool report[NODES];
    const struct rec_offline_options options = {.env = cn_env_system()};
    uint64_t fence = 0;

    if (!ts_fabric_is_emu())
        skip();
    store(f->ctx, "a", "1");
    const struct txn_peer *peer = f->ctx->peer;
    while (peer->state != TXN_PEER_UP)
        peer++;
    for (uint32_t i = 0; i < NODES; i++) {
        ts_cluster_stop(f->cluster, i, true);
        paths[i] = f->cluster->config->node[i].pool;
    }
    OK(rec_offline(&options, paths, NODES, report));
    int fd = open(paths[peer->at], O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &fence, sizeof(fence), (off_t)peer->ring_off), sizeof(fence));
    assert_int_equal(close(fd), 0);
    assert_int_not_equal(fence, 0);
    for (uint32_t i = 0; i < NODES; i++)
        ts_cluster_start(f->cluster, i);
    expect_now(f->ctx, "a", "1");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(commit__writes_on_three_nodes__are_read_back),
        CASE(abort__after_writes__leaves_nothing),
        CASE(put_delete__net_effects__as_written_last),
        CASE(put__value_grows_and_shrinks__moves),
        CASE(arguments__out_of_bounds__distinct_errors),
        CASE(get_for_update__held_by_another__conflict),
        CASE(get_for_update__absent__locks_the_absence),
        CASE(commit__read_changed_meanwhile__aborted),
        CASE(insert__many_keys__buckets_split),
        CASE(resolve__committed_and_aborted__verdicts),
        CASE(node_down__others_serve__and_it_returns),
        CASE(begin__node_restarted_while_idle__no_transaction_fails),
        CASE(run__two_threads_add__no_update_is_lost),
        CASE(recover__coordinator_has_its_rings_mapped__it_is_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
