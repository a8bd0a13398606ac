/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what the design promises of the critical path: exact round trips, no allocation, no lock
 * and no system call from cairn_begin() to the return of cairn_commit() when warm. Method: counters
 * of the context, and of the fabric what went over the wire; malloc of this program counts while it
 * is told to. The fabric is that of ts_fabric.h; a provider of verbs may make system calls.
 * Invariants: docs/commit-protocol.md, "Round trips".
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_cluster.h"
#include "txn/txn_ctx.h"

#define T 1u
#define KEYS 8u

/* ---- allocation counter: of this thread, while `counting` ---- */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNT_ALLOCATIONS 1
static __thread bool counting;
static __thread uint64_t allocations;

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);
void *malloc(size_t size)
{
    allocations += counting;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size)
{
    allocations += counting;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t size)
{
    allocations += counting;
    return __libc_realloc(p, size);
}
void free(void *p)
{
    allocations += counting && p != NULL;
    __libc_free(p);
}
#endif

struct fixture {
    struct ts_cluster *cluster;
    struct cairn_ctx *ctx;
    char key[KEYS][32];
    size_t key_size[KEYS];
    char extra[32]; /* one more key to wait for */
    size_t extra_size;
};

static void ok(int rc, int line)
{
    if (rc != 0)
        fail_msg("line %d: %s: %s", line, cairn_error_name(rc), cairn_last_error());
}
#define OK(call) ok((call), __LINE__)

static struct cairn_tx *begin(struct fixture *f)
{
    struct cairn_tx *tx;

    OK(cairn_begin(f->ctx, &tx));
    return tx;
}

static enum cairn_outcome commit(struct cairn_tx *tx)
{
    enum cairn_outcome outcome;

    OK(cairn_commit(tx, &outcome));
    return outcome;
}

/* Wait until the nodes have applied and released everything: reads wait for locks. */
static void settle(struct fixture *f)
{
    enum cairn_outcome outcome = CAIRN_OUTCOME_ABORTED;
    char buf[16];
    size_t size;

    for (uint32_t tries = 0; outcome != CAIRN_OUTCOME_COMMITTED && tries < 100; tries++) {
        struct cairn_tx *tx = begin(f);
        for (uint32_t i = 0; i < KEYS; i++)
            OK(cairn_get(tx, T, f->key[i], f->key_size[i], buf, sizeof(buf), &size));
        if (f->extra_size != 0)
            (void)!cairn_get(tx, T, f->extra, f->extra_size, buf, sizeof(buf), &size);
        outcome = commit(tx);
    }
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cairn_tx *tx;

    f->cluster = ts_cluster_new(3, NULL, NULL);
    OK(cairn_ctx_open(f->cluster->cairn, &f->ctx));
    tx = begin(f);
    for (uint32_t i = 0; i < KEYS; i++) {
        f->key_size[i] = ts_cluster_key(f->cluster, T, i % 3, i, f->key[i]);
        OK(cairn_put(tx, T, f->key[i], f->key_size[i], "value", 5));
    }
    assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    settle(f);
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

static uint64_t trips(struct fixture *f)
{
    struct cairn_stats s;

    cairn_ctx_stats(f->ctx, &s);
    return s.round_trips;
}

#define LOCKED UINT32_MAX

/* The first `count` keys, those in `locked` (a bit each) for update. */
static void get_all(struct fixture *f, struct cairn_tx *tx, uint32_t count, uint32_t locked)
{
    struct cairn_read r[KEYS];
    char buf[KEYS][16];

    for (uint32_t i = 0; i < count; i++)
        r[i] = (struct cairn_read){.table = T,
            .key = f->key[i],
            .key_size = f->key_size[i],
            .buf = buf[i],
            .buf_size = sizeof(buf[i]),
            .for_update = (int)(locked >> i & 1)};
    OK(cairn_get_many(tx, r, count));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(r[i].status, 0);
        assert_int_equal(r[i].value_size, 5);
        assert_memory_equal(buf[i], "value", 5);
    }
}

static void get(struct fixture *f, struct cairn_tx *tx, uint32_t i, int for_update)
{
    char buf[16];
    size_t size;

    OK(for_update ? cairn_get_for_update(tx, T, f->key[i], f->key_size[i], buf, sizeof(buf), &size)
                  : cairn_get(tx, T, f->key[i], f->key_size[i], buf, sizeof(buf), &size));
}

static void put(struct fixture *f, struct cairn_tx *tx, uint32_t i)
{
    OK(cairn_put(tx, T, f->key[i], f->key_size[i], "value", 5));
}

#define TRIPS(expected, ...)                                   \
    do {                                                       \
        settle(f);                                             \
        uint64_t before = trips(f);                            \
        struct cairn_tx *tx = begin(f);                        \
        __VA_ARGS__;                                           \
        assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED); \
        assert_int_equal(trips(f) - before, (expected));       \
    } while (0)

static void trips__batched__1_2_2_3(void **state)
{
    struct fixture *f = *state;

    TRIPS(1, get_all(f, tx, 1, 0));
    TRIPS(2, get_all(f, tx, KEYS, 0));
    TRIPS(2, get_all(f, tx, 3, LOCKED); put(f, tx, 0); put(f, tx, 1); put(f, tx, 2));
    /* read some and write others: one batch of reads and locks, validation, log */
    TRIPS(3, get_all(f, tx, 2, 2); put(f, tx, 1));
}

/* ---- on the wire ---- */

struct wire { /* work requests, completions taken, and posts that rang: one per node and trip */
    uint64_t reads, cas, writes, flushes, marks, completions, doorbells;
};

static void check_wire(struct fixture *f, const struct rd_counters *b, const struct wire *w)
{
    struct rd_counters a;

    rd_ep_counters(f->ctx->ep, &a);
    assert_int_equal(a.reads - b->reads, w->reads);
    assert_int_equal(a.cas - b->cas, w->cas);
    assert_int_equal(a.writes - b->writes, w->writes);
    assert_int_equal(a.flushes - b->flushes, w->flushes);
    assert_int_equal(a.marks - b->marks, w->marks);
    assert_int_equal(a.completions - b->completions, w->completions);
    assert_int_equal(a.doorbells - b->doorbells, w->doorbells);
    assert_int_equal(a.messages_sent, b->messages_sent);
    assert_int_equal(a.registrations, b->registrations);
}

/* A round that met a lock still held reads again: that is another path, and tried again. */
#define WIRE(trips_, wire_, ...)                                       \
    do {                                                               \
        const struct wire expected_ = wire_;                           \
        struct rd_counters before_;                                    \
        for (uint32_t tries_ = 0; tries_ < 20; tries_++) {             \
            settle(f);                                                 \
            rd_ep_counters(f->ctx->ep, &before_);                      \
            uint64_t trips_before_ = trips(f);                         \
            struct cairn_tx *tx = begin(f);                            \
            __VA_ARGS__;                                               \
            assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);     \
            if (trips(f) - trips_before_ == (trips_))                  \
                break;                                                 \
            assert_int_not_equal(tries_, 19);                          \
        }                                                              \
        check_wire(f, &before_, &expected_);                           \
    } while (0)

/* Where the fabric orders the READ behind the CAS, its completion speaks for both. */
static uint64_t completions_of_cas(const struct fixture *f)
{
    return f->ctx->peer[0].conn->cas_orders_reads ? 0 : 1;
}

static void wire__each_kind__work_requests_and_completions(void **state)
{
    struct fixture *f = *state;

    /* READ of the item */
    WIRE(1, ((struct wire){.reads = 1, .completions = 1, .doorbells = 1}), get_all(f, tx, 1, 0));
    /* READs of the items; READs of their words */
    WIRE(2, ((struct wire){.reads = 6, .completions = 6, .doorbells = 6}), get_all(f, tx, 3, 0));
    uint64_t of_cas = completions_of_cas(f);
    /* CAS with READ behind it; write, flush; one node alone needs no mark */
    WIRE(2,
        ((struct wire){.reads = 1,
            .cas = 1,
            .writes = 1,
            .flushes = 1,
            .completions = 2 + of_cas,
            .doorbells = 2}),
        get(f, tx, 0, 1);
        put(f, tx, 0));
    /* blind and cached: the lock, with a READ that proves the place; the record */
    WIRE(2,
        ((struct wire){
            .reads = 1, .cas = 1, .writes = 1, .flushes = 1, .completions = 3, .doorbells = 2}),
        put(f, tx, 0));
    /* the same at three nodes, in parallel; marks, not awaited */
    WIRE(2,
        ((struct wire){
            .reads = 3,
            .cas = 3,
            .writes = 3,
            .flushes = 3,
            .marks = 3,
            .completions = 6 + 3 * of_cas,
            .doorbells = 9}),
        get_all(f, tx, 3, LOCKED);
        put(f, tx, 0); put(f, tx, 1); put(f, tx, 2));
    /* item read and item locked; word of the one read; write, flush */
    WIRE(3,
        ((struct wire){.reads = 3,
            .cas = 1,
            .writes = 1,
            .flushes = 1,
            .completions = 4 + of_cas,
            .doorbells = 4}),
        get_all(f, tx, 2, 2); put(f, tx, 1));
}

static void wire__transfer_between_two_nodes__no_more_than_it_must(void **state)
{
    struct fixture *f = *state;
    uint64_t of_cas = completions_of_cas(f);

    /* a transfer between two nodes: 2 chains of CAS and READ, 2 writes with 2 flushes, 2 marks */
    WIRE(2,
        ((struct wire){
            .reads = 2,
            .cas = 2,
            .writes = 2,
            .flushes = 2,
            .marks = 2,
            .completions = 4 + 2 * of_cas,
            .doorbells = 6}),
        get_all(f, tx, 2, LOCKED);
        put(f, tx, 0); put(f, tx, 1));
    WIRE(3,
        ((struct wire){
            .reads = 2,
            .cas = 2,
            .writes = 2,
            .flushes = 2,
            .marks = 2,
            .completions = 4 + 2 * of_cas,
            .doorbells = 6}),
        get(f, tx, 0, 1);
        get(f, tx, 1, 1); put(f, tx, 0); put(f, tx, 1));
}

static void trips__one_call_each__one_more_per_call(void **state)
{
    struct fixture *f = *state;

    TRIPS(1, get(f, tx, 0, 0));
    TRIPS(4, get(f, tx, 0, 0); get(f, tx, 1, 0); get(f, tx, 2, 0)); /* 3 + validation */
    TRIPS(2, get(f, tx, 0, 1); put(f, tx, 0));
    TRIPS(3, get(f, tx, 0, 1); get(f, tx, 1, 1); put(f, tx, 0); put(f, tx, 1));
    TRIPS(2, put(f, tx, 3));                               /* blind, cached: lock + log */
    TRIPS(2, put(f, tx, 3); put(f, tx, 4); put(f, tx, 5)); /* on three nodes: the same */
    TRIPS(4, get(f, tx, 0, 0); put(f, tx, 1));             /* read, lock, validate, log */
}

static void trips__absent_keys__insert_and_delete(void **state)
{
    struct fixture *f = *state;
    char buf[8], *key = f->extra;
    size_t size;
    size_t n = f->extra_size = ts_cluster_key(f->cluster, T, 0, 100, key);

    TRIPS(1, assert_int_equal(cairn_get(tx, T, key, n, buf, 8, &size), CAIRN_E_NOT_FOUND));
    TRIPS(1, assert_int_equal(cairn_get(tx, T, key, n, buf, 8, &size), CAIRN_E_NOT_FOUND));
    /* the bucket is remembered: CAS + READ, then the record */
    TRIPS(
        2, assert_int_equal(cairn_get_for_update(tx, T, key, n, buf, 8, &size), CAIRN_E_NOT_FOUND);
        OK(cairn_put(tx, T, key, n, "value", 5)));
    TRIPS(2, OK(cairn_put(tx, T, key, n, "value", 5))); /* warm at once */
    TRIPS(2, OK(cairn_delete(tx, T, key, n)));          /* item and bucket are remembered */
    TRIPS(2, OK(cairn_put(tx, T, key, n, "value", 5))); /* and so is the absence */
    TRIPS(1, OK(cairn_get(tx, T, key, n, buf, 8, &size)));
    /* cold: another cluster handle, that is another cache */
    struct cairn *other;
    struct cairn_ctx *ctx, *mine = f->ctx;
    OK(txn_cluster_open(f->cluster->config, f->cluster->fabric, cn_env_system(), NULL, &other));
    OK(cairn_ctx_open(other, &ctx));
    f->ctx = ctx;
    struct cairn_tx *warm = begin(f); /* connected, table and map known; this key not cached */
    OK(cairn_get(warm, T, f->key[0], f->key_size[0], buf, 8, &size));
    OK(cairn_get(warm, T, f->key[3], f->key_size[3], buf, 8, &size));
    assert_int_equal(commit(warm), CAIRN_OUTCOME_COMMITTED);
    uint64_t before = trips(f);
    struct cairn_tx *tx2 = begin(f);
    OK(cairn_get(tx2, T, key, n, buf, 8, &size));
    assert_int_equal(commit(tx2), CAIRN_OUTCOME_COMMITTED);
    assert_in_range(
        trips(f) - before, 2, 3); /* bucket, item; one more if the map entry is missing */
    cairn_ctx_close(&ctx);
    cairn_close(&other);
    f->ctx = mine;
}

static void warm_path__update__no_allocation_no_system_call(void **state)
{
    struct fixture *f = *state;
    struct rd_counters before, after;

    for (uint32_t i = 0; i < 3; i++) { /* warm everything */
        settle(f);
        struct cairn_tx *tx = begin(f);
        get(f, tx, 0, 1);
        get(f, tx, 1, 0);
        put(f, tx, 0);
        assert_int_equal(commit(tx), CAIRN_OUTCOME_COMMITTED);
    }
    settle(f);
    rd_ep_counters(f->ctx->ep, &before);
#ifdef COUNT_ALLOCATIONS
    allocations = 0;
    counting = true;
#endif
    struct cairn_tx *tx = begin(f);
    get(f, tx, 0, 1);
    get(f, tx, 1, 0);
    put(f, tx, 0);
    put(f, tx, 2);
    enum cairn_outcome outcome = commit(tx);
#ifdef COUNT_ALLOCATIONS
    counting = false;
    assert_int_equal(allocations, 0);
#endif
    rd_ep_counters(f->ctx->ep, &after);
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    if (ts_fabric_is_emu())
        assert_int_equal(after.syscalls - before.syscalls, 0);
    assert_int_equal(after.rekeys, before.rekeys);
    assert_int_equal(after.registrations, before.registrations);
    assert_int_equal(after.messages_sent, before.messages_sent);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(trips__batched__1_2_2_3),
        CASE(wire__each_kind__work_requests_and_completions),
        CASE(wire__transfer_between_two_nodes__no_more_than_it_must),
        CASE(trips__one_call_each__one_more_per_call),
        CASE(trips__absent_keys__insert_and_delete),
        CASE(warm_path__update__no_allocation_no_system_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
