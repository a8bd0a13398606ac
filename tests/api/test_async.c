/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: many transactions in flight of one context, over real nodes on emulated RDMA.
 * Method: three nodes in threads; all operations of this thread; bodies that wait, operations that
 * are begun, and calls that wait beside them.
 * Invariants: transfers keep the total; every operation is told once, by a poll, with its own
 * result and text; nothing is lost that was told to be committed.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/ts_cluster.h"

#define NODES 3u
#define T 1u
#define INFLIGHT 32u
#define ACCOUNTS 40u
#define START 1000

struct fixture {
    struct ts_cluster *cluster;
    struct cairn_ctx *ctx;
};

#define OK(call) ok((call), #call, __LINE__)

static void ok(int rc, const char *what, int line)
{
    if (rc != 0)
        fail_msg("line %d: %s: %s: %s", line, what, cairn_error_name(rc), cairn_last_error());
}

static int setup(void **state)
{
    const struct cairn_options options = {
        .size = sizeof(options), .connect_timeout_ms = 2000, .op_timeout_ms = 5000,
        .cache_entries = 1u << 12, .inflight = INFLIGHT};
    struct fixture *f = calloc(1, sizeof(*f));

    f->cluster = ts_cluster_new(NODES, NULL, &options);
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

/* ---- accounts ---- */

static size_t account_key(uint32_t n, char key[16])
{
    return (size_t)snprintf(key, 16, "a%u", n);
}

static int64_t to_balance(const char *text, size_t size)
{
    char copy[32] = {0};

    assert_true(size < sizeof(copy));
    memcpy(copy, text, size);
    return atoll(copy);
}

static int put_balance(struct cairn_tx *tx, uint32_t n, int64_t balance)
{
    char key[16], text[32];
    size_t key_size = account_key(n, key);

    int size = snprintf(text, sizeof(text), "%lld", (long long)balance);
    return cairn_put(tx, T, key, key_size, text, (size_t)size);
}

static int get_balance(struct cairn_tx *tx, uint32_t n, bool update, int64_t *ret)
{
    char key[16], text[32];
    size_t size, key_size = account_key(n, key);
    int rc = update ? cairn_get_for_update(tx, T, key, key_size, text, sizeof(text), &size)
                    : cairn_get(tx, T, key, key_size, text, sizeof(text), &size);

    if (rc == 0)
        *ret = to_balance(text, size);
    return rc;
}

static int fill(struct cairn_tx *tx, void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < ACCOUNTS; i++) {
        int rc = put_balance(tx, i, START);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int lock_all(struct cairn_tx *tx, void *arg)
{
    int64_t balance;

    (void)arg;
    for (uint32_t i = 0; i < ACCOUNTS; i++) {
        int rc = get_balance(tx, i, true, &balance);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* The nodes have applied it, too: no lock is left. */
static void fill_and_settle(struct cairn_ctx *ctx)
{
    OK(cairn_run(ctx, fill, NULL, 10000, NULL));
    OK(cairn_run(ctx, lock_all, NULL, 10000, NULL));
}

struct transfer {
    struct cairn_op op;
    uint32_t from, to;
    int64_t amount;
    bool for_update;
    uint32_t told;
};

static int transfer(struct cairn_tx *tx, void *arg)
{
    const struct transfer *t = arg;
    int64_t from, to;
    int rc = get_balance(tx, t->from, t->for_update, &from);

    if (rc == 0)
        rc = get_balance(tx, t->to, t->for_update, &to);
    if (rc == 0)
        rc = put_balance(tx, t->from, from - t->amount);
    if (rc == 0)
        rc = put_balance(tx, t->to, to + t->amount);
    return rc;
}

static int sum(struct cairn_tx *tx, void *arg)
{
    int64_t *total = arg, balance;

    *total = 0;
    for (uint32_t i = 0; i < ACCOUNTS; i++) {
        int rc = get_balance(tx, i, false, &balance);
        if (rc != 0)
            return rc;
        *total += balance;
    }
    return 0;
}

static void check_total(struct cairn_ctx *ctx)
{
    int64_t total;

    OK(cairn_run(ctx, sum, &total, 20000, NULL));
    assert_int_equal(total, ACCOUNTS * START);
}

static void poll_until(struct cairn_ctx *ctx, const uint32_t *count, uint32_t wanted)
{
    time_t end = time(NULL) + 60;

    while (*count < wanted) {
        (void)cairn_poll(ctx);
        assert_true(time(NULL) < end);
    }
}

/* ---- bodies on stacks of their own ---- */

struct load {
    struct cairn_ctx *ctx;
    struct transfer slot[INFLIGHT];
    uint32_t begun, done, wanted;
    uint64_t seed;
};

static void transfer_done(struct cairn_op *op);

static void next_transfer(struct load *l, struct transfer *t)
{
    uint64_t r = cn_mix64(++l->seed);

    t->op = (struct cairn_op){.done = transfer_done, .user = l};
    t->from = (uint32_t)(r % ACCOUNTS);
    t->to = (uint32_t)((r >> 8) % (ACCOUNTS - 1));
    t->to += t->to >= t->from;
    t->amount = (int64_t)((r >> 16) % 50);
    t->for_update = (r >> 32) % 2 != 0;
    l->begun++;
    OK(cairn_run_async(l->ctx, transfer, t, 20000, &t->op));
}

static void transfer_done(struct cairn_op *op)
{
    struct load *l = op->user;
    struct transfer *t = (struct transfer *)(void *)op;

    OK(op->result);
    assert_int_equal(op->outcome, CAIRN_OUTCOME_COMMITTED);
    assert_true(op->tries >= 1);
    l->done++;
    if (l->begun < l->wanted)
        next_transfer(l, t);
}

static void run_async__transfers_that_conflict__total_is_kept(void **state)
{
    struct fixture *f = *state;
    struct load l = {.ctx = f->ctx, .wanted = 4000, .seed = 1};

    fill_and_settle(f->ctx);
    for (uint32_t i = 0; i < INFLIGHT; i++)
        next_transfer(&l, &l.slot[i]);
    struct cairn_op more = {.done = NULL};
    assert_int_equal(
        cairn_run_async(f->ctx, transfer, &l.slot[0], 1000, &more), CAIRN_E_STATE);
    poll_until(f->ctx, &l.done, l.wanted);
    assert_int_equal(l.begun, l.wanted);
    check_total(f->ctx);
}

/* Bodies begin, and end, in the middle of calls that wait on the caller's stack. */
static void run_async__beside_calls_that_wait__both_go_on(void **state)
{
    struct fixture *f = *state;
    struct load l = {.ctx = f->ctx, .wanted = 2000, .seed = 2};
    struct transfer own = {.amount = 3, .for_update = true};
    struct cairn_run_result result;

    fill_and_settle(f->ctx);
    for (uint32_t i = 0; i < INFLIGHT / 2; i++)
        next_transfer(&l, &l.slot[i]);
    for (uint32_t i = 0; l.done < l.wanted; i++) {
        uint32_t done = l.done;
        own.from = i % ACCOUNTS;
        own.to = (i + 1) % ACCOUNTS;
        OK(cairn_run(f->ctx, transfer, &own, 20000, &result));
        assert_int_equal(result.outcome, CAIRN_OUTCOME_COMMITTED);
        assert_int_equal(l.done, done); /* a call that waits tells nothing */
        (void)cairn_poll(f->ctx);
        assert_true(i < 100000);
    }
    check_total(f->ctx);
}

/* ---- operations that are begun ---- */

static struct cairn_op op_of(uint32_t *told);

static void count_told(struct cairn_op *op)
{
    ++*(uint32_t *)op->user;
}

static struct cairn_op op_of(uint32_t *told)
{
    return (struct cairn_op){.done = count_told, .user = told};
}

static void get_async__explicit_transactions__results_where_they_belong(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx[INFLIGHT], *more;
    struct cairn_op op[INFLIGHT];
    char text[INFLIGHT][32], key[INFLIGHT][16];
    uint32_t told = 0;

    fill_and_settle(f->ctx);
    for (uint32_t i = 0; i < INFLIGHT; i++) {
        size_t size = account_key(i, key[i]);
        OK(cairn_begin(f->ctx, &tx[i]));
        op[i] = op_of(&told);
        OK((i % 2 == 0 ? cairn_get_async : cairn_get_for_update_async)(
            tx[i], T, key[i], size, text[i], sizeof(text[i]), &op[i]));
        assert_int_equal(op[i].result, CAIRN_PENDING);
        assert_int_equal(cairn_put(tx[i], T, "x", 1, "y", 1), CAIRN_E_STATE);
        struct cairn_op second = {.done = NULL};
        assert_int_equal(cairn_commit_async(tx[i], &second), CAIRN_E_STATE);
        assert_int_equal(second.result, 0);
    }
    assert_int_equal(told, 0); /* never earlier than a poll to come */
    assert_int_equal(cairn_begin(f->ctx, &more), CAIRN_E_STATE);
    poll_until(f->ctx, &told, INFLIGHT);
    for (uint32_t i = 0; i < INFLIGHT; i++) {
        OK(op[i].result);
        assert_int_equal(op[i].value_size, 4);
        assert_int_equal(to_balance(text[i], op[i].value_size), START);
        OK(put_balance(tx[i], i, START + (i % 2 == 0 ? 1 : -1)));
        op[i] = op_of(&told);
        OK(cairn_commit_async(tx[i], &op[i]));
    }
    poll_until(f->ctx, &told, 2 * INFLIGHT);
    for (uint32_t i = 0; i < INFLIGHT; i++) {
        OK(op[i].result);
        assert_int_equal(op[i].outcome, CAIRN_OUTCOME_COMMITTED);
        assert_string_equal(op[i].token, "");
    }
    assert_int_equal(cairn_poll(f->ctx), 0);
    check_total(f->ctx);
}

struct failure {
    struct cairn_op op;
    char text[256];
};

static void note_text(struct cairn_op *op)
{
    struct failure *f = op->user;

    (void)snprintf(f->text, sizeof(f->text), "%s", cairn_last_error());
}

static void get_async__errors__each_with_its_text(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx[3];
    struct failure bad[3];
    char buf[2];

    fill_and_settle(f->ctx);
    for (uint32_t i = 0; i < 3; i++) {
        bad[i] = (struct failure){.op = {.done = note_text, .user = &bad[i]}};
        OK(cairn_begin(f->ctx, &tx[i]));
    }
    OK(cairn_get_async(tx[0], T, "none", 4, buf, sizeof(buf), &bad[0].op));
    OK(cairn_get_async(tx[1], T, "a1", 2, buf, sizeof(buf), &bad[1].op));
    OK(cairn_get_async(tx[2], 77, "a1", 2, buf, sizeof(buf), &bad[2].op));
    assert_int_equal(cairn_wait(f->ctx, &bad[1].op), CAIRN_E_BUFFER_SIZE);
    assert_non_null(strstr(cairn_last_error(), "4 bytes"));
    assert_int_equal(bad[1].op.value_size, 4);
    assert_int_equal(cairn_wait(f->ctx, &bad[0].op), CAIRN_E_NOT_FOUND);
    assert_int_equal(cairn_wait(f->ctx, &bad[0].op), CAIRN_E_NOT_FOUND); /* done already */
    assert_int_equal(cairn_wait(f->ctx, &bad[2].op), CAIRN_E_NO_TABLE);
    assert_non_null(strstr(bad[0].text, "no such key"));
    assert_non_null(strstr(bad[1].text, "4 bytes"));
    assert_non_null(strstr(bad[2].text, "77"));
    struct cairn_op never = {.result = CAIRN_PENDING};
    assert_int_equal(cairn_wait(f->ctx, &never), CAIRN_E_STATE);
    for (uint32_t i = 0; i < 3; i++)
        OK(cairn_abort_async(tx[i], &bad[i].op));
    for (uint32_t i = 0; i < 3; i++) {
        OK(cairn_wait(f->ctx, &bad[i].op));
        assert_int_equal(bad[i].op.outcome, CAIRN_OUTCOME_ABORTED);
        assert_int_equal(cairn_put(tx[i], T, "x", 1, "y", 1), CAIRN_E_STATE); /* gone */
    }
}

static void get_many_async__read_and_locked__as_the_call_that_waits(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx, *other;
    char text[3][8], key[2][16];
    struct cairn_read r[3] = {
        {.key = key[0], .key_size = account_key(3, key[0])},
        {.key = key[1], .key_size = account_key(4, key[1]), .for_update = 1},
        {.key = "none", .key_size = 4}};
    struct cairn_op op = {.done = NULL};
    int64_t balance;

    fill_and_settle(f->ctx);
    OK(cairn_begin(f->ctx, &tx));
    OK(cairn_begin(f->ctx, &other));
    for (uint32_t i = 0; i < 3; i++) {
        r[i].buf = text[i];
        r[i].buf_size = sizeof(text[i]);
        r[i].table = T;
    }
    OK(cairn_get_many_async(tx, r, 3, &op));
    OK(cairn_wait(f->ctx, &op));
    assert_int_equal(r[0].status, 0);
    assert_int_equal(r[1].status, 0);
    assert_int_equal(r[2].status, CAIRN_E_NOT_FOUND);
    assert_int_equal(to_balance(text[1], r[1].value_size), START);
    /* A lock of this context is one of our own slot, and is somebody else's all the same. */
    assert_int_equal(get_balance(other, 4, true, &balance), CAIRN_E_CONFLICT);
    OK(put_balance(tx, 4, START));
    OK(cairn_commit_async(tx, &op));
    OK(cairn_wait(f->ctx, &op));
    assert_int_equal(op.outcome, CAIRN_OUTCOME_COMMITTED);
    cairn_abort(other);
}

static void abort__operation_under_way__waits_for_it_first(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx;
    char text[16];
    struct cairn_op op = {.done = NULL};

    fill_and_settle(f->ctx);
    OK(cairn_begin(f->ctx, &tx));
    OK(cairn_get_for_update_async(tx, T, "a5", 2, text, sizeof(text), &op));
    cairn_abort(tx);
    assert_int_equal(op.result, CAIRN_PENDING); /* told by a poll */
    OK(cairn_wait(f->ctx, &op));
    OK(cairn_begin(f->ctx, &tx));
    int64_t balance;
    OK(get_balance(tx, 5, true, &balance)); /* the lock is free */
    cairn_abort(tx);
}

/* ---- tokens ---- */

static void tx_token__others_open__refused_and_alone_until_it_ends(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx, *other;
    char token[CAIRN_TOKEN_SIZE];
    struct transfer t = {.from = 1, .to = 2, .amount = 5};
    enum cairn_outcome outcome;
    int64_t balance;
    uint32_t told = 0;

    fill_and_settle(f->ctx);
    OK(cairn_begin(f->ctx, &tx));
    OK(cairn_begin(f->ctx, &other));
    OK(get_balance(tx, 1, true, &balance));
    OK(put_balance(tx, 1, START));
    assert_int_equal(cairn_tx_token(tx, token), CAIRN_E_STATE);
    cairn_abort(other);
    OK(cairn_tx_token(tx, token));
    assert_int_equal(cairn_begin(f->ctx, &other), CAIRN_E_STATE);
    t.op = op_of(&told);
    OK(cairn_run_async(f->ctx, transfer, &t, 20000, &t.op)); /* it waits */
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(cairn_poll(f->ctx), 0);
    OK(cairn_commit(tx, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    poll_until(f->ctx, &told, 1);
    OK(t.op.result);
    OK(cairn_resolve(f->ctx, token, &outcome));
    assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    check_total(f->ctx);
}

/* ---- the caller's own loop ---- */

static void fd__epoll_loop__drives_all(void **state)
{
    struct fixture *f = *state;
    struct load l = {.ctx = f->ctx, .wanted = 1500, .seed = 3};
    int epoll = epoll_create1(EPOLL_CLOEXEC), fd = cairn_fd(f->ctx);
    struct epoll_event event = {.events = EPOLLIN};
    time_t end = time(NULL) + 60;

    fill_and_settle(f->ctx);
    assert_true(epoll >= 0 && fd >= 0);
    assert_int_equal(cairn_fd(f->ctx), fd);
    assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    while (cairn_arm(f->ctx) == 0) /* releases behind the last commit */
        (void)cairn_poll(f->ctx);
    assert_int_equal(cairn_arm(f->ctx), -1); /* nothing is under way */
    for (uint32_t i = 0; i < INFLIGHT; i++)
        next_transfer(&l, &l.slot[i]);
    while (l.done < l.wanted) {
        while (cairn_poll(f->ctx) != 0)
            ;
        int timeout_ms = cairn_arm(f->ctx);
        if (timeout_ms != 0 && l.done < l.wanted)
            (void)epoll_wait(epoll, &event, 1, timeout_ms);
        assert_true(time(NULL) < end);
    }
    (void)close(epoll);
    check_total(f->ctx);
}

/* ---- a node is lost ---- */

struct outcomes {
    struct cairn_ctx *ctx;
    struct transfer slot[INFLIGHT];
    uint32_t under_way, committed, unknown, failed;
    uint64_t seed;
    bool stop;
};

static void note_outcome(struct cairn_op *op);

static void next_of(struct outcomes *o, struct transfer *t)
{
    uint64_t r = cn_mix64(++o->seed);

    *t = (struct transfer){.op = {.done = note_outcome, .user = o},
        .from = (uint32_t)(r % ACCOUNTS),
        .to = (uint32_t)(r % ACCOUNTS + 1) % ACCOUNTS,
        .amount = 1,
        .for_update = true};
    o->under_way++;
    OK(cairn_run_async(o->ctx, transfer, t, 20000, &t->op));
}

static void note_outcome(struct cairn_op *op)
{
    struct outcomes *o = op->user;

    o->under_way--;
    if (op->result == 0) {
        assert_int_equal(op->outcome, CAIRN_OUTCOME_COMMITTED);
        o->committed++;
    } else {
        assert_string_not_equal(cairn_last_error(), "");
        o->unknown += op->outcome == CAIRN_OUTCOME_UNKNOWN;
        assert_int_equal(op->outcome == CAIRN_OUTCOME_UNKNOWN, op->token[0] != '\0');
        o->failed++;
    }
    if (!o->stop)
        next_of(o, (struct transfer *)(void *)op);
}

static void run_async__node_stops_and_comes_back__all_end_and_the_total_is_kept(void **state)
{
    struct fixture *f = *state;
    struct outcomes o = {.ctx = f->ctx, .seed = 4};
    time_t end = time(NULL) + 100;

    fill_and_settle(f->ctx);
    for (uint32_t i = 0; i < INFLIGHT; i++)
        next_of(&o, &o.slot[i]);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t failed = o.failed, committed = o.committed;
        while (o.committed < committed + 200)
            (void)cairn_poll(f->ctx);
        ts_cluster_stop(f->cluster, round % NODES, true);
        while (o.failed < failed + 5) {
            (void)cairn_poll(f->ctx);
            assert_true(time(NULL) < end);
        }
        ts_cluster_start(f->cluster, round % NODES);
    }
    uint32_t committed = o.committed;
    while (o.committed < committed + 200) {
        (void)cairn_poll(f->ctx);
        assert_true(time(NULL) < end);
    }
    o.stop = true;
    while (o.under_way != 0) {
        (void)cairn_poll(f->ctx);
        assert_true(time(NULL) < end);
    }
    check_total(f->ctx);
}

static void begin__session_lost_and_others_open__refused_until_they_end(void **state)
{
    struct fixture *f = *state;
    struct cairn_tx *tx, *other, *third;
    struct transfer t = {.from = 1, .to = 2, .amount = 5};
    int64_t balance;
    uint32_t told = 0;

    fill_and_settle(f->ctx);
    OK(cairn_begin(f->ctx, &tx));
    for (uint32_t i = 0; i < ACCOUNTS; i++)
        OK(get_balance(tx, i, false, &balance)); /* all nodes are met */
    OK(cairn_begin(f->ctx, &other));
    ts_cluster_stop(f->cluster, 0, true);
    ts_cluster_start(f->cluster, 0);
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < 1000000; i++)
        rc = get_balance(tx, i % ACCOUNTS, false, &balance);
    assert_int_not_equal(rc, 0);
    assert_true(cairn_begin(f->ctx, &third) != 0);
    t.op = op_of(&told);
    OK(cairn_run_async(f->ctx, transfer, &t, 20000, &t.op));
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(cairn_poll(f->ctx), 0); /* it waits for both */
    cairn_abort(tx);
    assert_int_equal(cairn_poll(f->ctx), 0);
    cairn_abort(other);
    poll_until(f->ctx, &told, 1);
    OK(t.op.result);
    check_total(f->ctx);
}

/* ---- the end of a context ---- */

static void ctx_close__operations_under_way__all_are_told_first(void **state)
{
    struct fixture *f = *state;
    struct cairn_ctx *ctx;
    struct outcomes o = {.seed = 5, .stop = true};
    struct cairn_tx *tx;
    struct cairn_op op = op_of(&o.failed);
    char text[16];

    fill_and_settle(f->ctx);
    OK(cairn_ctx_open(f->cluster->cairn, &ctx));
    o.ctx = ctx;
    OK(cairn_begin(ctx, &tx));
    for (uint32_t i = 0; i + 1 < INFLIGHT; i++)
        next_of(&o, &o.slot[i]);
    OK(cairn_get_for_update_async(tx, T, "a5", 2, text, sizeof(text), &op));
    cairn_ctx_close(&ctx);
    assert_null(ctx);
    assert_int_equal(o.under_way, 0);
    assert_int_not_equal(op.result, CAIRN_PENDING);
    for (uint32_t i = 0; i + 1 < INFLIGHT; i++)
        assert_int_not_equal(o.slot[i].op.result, CAIRN_PENDING);
    check_total(f->ctx); /* no lock is left */
}

int main(void)
{
#define ASYNC_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ASYNC_TEST(run_async__transfers_that_conflict__total_is_kept),
        ASYNC_TEST(run_async__beside_calls_that_wait__both_go_on),
        ASYNC_TEST(get_async__explicit_transactions__results_where_they_belong),
        ASYNC_TEST(get_async__errors__each_with_its_text),
        ASYNC_TEST(get_many_async__read_and_locked__as_the_call_that_waits),
        ASYNC_TEST(abort__operation_under_way__waits_for_it_first),
        ASYNC_TEST(tx_token__others_open__refused_and_alone_until_it_ends),
        ASYNC_TEST(fd__epoll_loop__drives_all),
        ASYNC_TEST(run_async__node_stops_and_comes_back__all_end_and_the_total_is_kept),
        ASYNC_TEST(begin__session_lost_and_others_open__refused_until_they_end),
        ASYNC_TEST(ctx_close__operations_under_way__all_are_told_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
