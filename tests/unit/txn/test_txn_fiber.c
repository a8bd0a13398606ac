/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: transactions in flight beside each other: what they post together goes out together, each
 * waits for its own, and nothing waits for ever. Method: real context over the fake fabric with two
 * nodes, lanes of updates of keys of their own; the hook that sees every post checks the order,
 * holds completions back, and breaks connections.
 * Invariants: a flush comes behind all writes that it is to make durable, a mark behind its
 * flushes; where nothing fences a mark, behind every flush; a record never names a sequence as
 * committed that is not.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

#define RING 4096u
#define RING_SIZE 16384u
#define LANES 8u
#define MS 1000000u

static struct ts_fs fs;

struct job {
    char key[2][16]; /* of node 1 and of node 2; "": not there */
    int result;
    enum cairn_outcome outcome;
    char text[256];
    bool done;
};
static struct job job[LANES];

static uint64_t flushed_at[TS_FAKE_NODES]; /* polls at the last flush of a node */
static uint32_t late_marks, cut_off;
static uint16_t hold_node;  /* completions of its flushes do not come */
static uint16_t break_node; /* ... or its connection is lost there */

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post)
{
    if (post->op == TS_FAKE_FLUSH) {
        flushed_at[post->node - 1] = fake->polls;
        if (post->node == hold_node)
            fake->node[post->node - 1].silent = true;
        if (post->node == break_node) {
            break_node = 0;
            cut_off++;
            ts_fake_down(fake, post->node, CAIRN_E_NODE_DOWN);
        }
    } else if (post->op == TS_FAKE_MARK) {
        if (fake->node[0].ring_durability == RD_DURABILITY_GPSPM)
            assert_true(fake->polls > flushed_at[post->node - 1]); /* none is outstanding */
        late_marks += fs.ctx->polling;
    }
    return 0;
}

static int open_lanes(uint32_t inflight)
{
    ts_fs_open_inflight(&fs, 2, 56, inflight);
    memset(job, 0, sizeof(job));
    memset(flushed_at, 0, sizeof(flushed_at));
    late_marks = cut_off = 0;
    hold_node = break_node = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        for (uint16_t n = 1; n <= 2; n++) {
            ts_fs_key(&fs, n, i, job[i].key[n - 1]);
            (void)ts_fs_add(&fs, job[i].key[n - 1], "value");
        }
    }
    fs.fake.on_post = on_post;
    return 0;
}
static int setup(void **state)
{
    (void)state;
    return open_lanes(LANES);
}
static int teardown(void **state)
{
    (void)state;
    fs.fake.on_post = NULL;
    for (uint32_t n = 0; n < 2; n++)
        fs.fake.node[n].silent = false;
    ts_fs_close(&fs);
    return 0;
}

static int update(struct cairn_tx *tx, const struct job *j)
{
    char buf[16];
    size_t size;
    int rc = 0;

    for (uint32_t n = 0; n < 2 && rc == 0; n++) {
        const char *key = j->key[n];
        if (key[0] == '\0')
            continue;
        rc = cairn_get_for_update(tx, 1, key, strlen(key), buf, sizeof(buf), &size);
        if (rc == 0)
            rc = cairn_put(tx, 1, key, strlen(key), "newer", 5);
    }
    return rc;
}

/* On a lane's stack: a transaction as any other. */
static void work(void *arg)
{
    struct job *j = arg;
    struct cairn_tx *tx;

    j->result = cairn_begin(fs.ctx, &tx);
    if (j->result == 0) {
        j->result = update(tx, j);
        if (j->result == 0)
            j->result = cairn_commit(tx, &j->outcome);
        else
            cairn_abort(tx);
    }
    if (j->result != 0)
        (void)snprintf(j->text, sizeof(j->text), "%s", cairn_last_error());
    j->done = true;
}

static void start(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++)
        assert_int_equal(txn_spawn(fs.ctx, work, &job[i]), 0);
}

static uint32_t posts(enum ts_fake_op op, uint16_t node, uint32_t from)
{
    uint32_t n = 0;

    for (uint32_t i = from; i < fs.fake.post_count; i++)
        n += fs.fake.post[i].op == op && fs.fake.post[i].node == node;
    return n;
}

static void check_committed(uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        assert_true(job[i].done);
        if (job[i].result != 0)
            fail_msg("job %u: %s", i, job[i].text);
        assert_int_equal(job[i].outcome, CAIRN_OUTCOME_COMMITTED);
    }
}

/* All are connected, and know the table. */
static void warm_up(void)
{
    start(LANES - 1, 1);
    txn_await_lanes(fs.ctx);
    check_committed(LANES - 1, 1);
}

/* ---- what goes out together ---- */

static void lanes__records_of_one_turn__one_flush_per_node_behind_all_writes(void **state)
{
    (void)state;
    warm_up();
    uint32_t from = fs.fake.post_count;
    start(0, LANES - 1);
    txn_await_lanes(fs.ctx);
    check_committed(0, LANES - 1);
    for (uint16_t n = 1; n <= 2; n++) {
        assert_int_equal(posts(TS_FAKE_WRITE, n, from), LANES - 1);
        assert_int_equal(posts(TS_FAKE_FLUSH, n, from), 1);
        assert_int_equal(posts(TS_FAKE_MARK, n, from), LANES - 1);
    }
    uint32_t flushes = 0;
    for (uint32_t i = from; i < fs.fake.post_count; i++) {
        flushes += fs.fake.post[i].op == TS_FAKE_FLUSH;
        if (fs.fake.post[i].op == TS_FAKE_WRITE)
            assert_int_equal(flushes, 0);
        if (fs.fake.post[i].op == TS_FAKE_MARK)
            assert_int_equal(flushes, 2);
    }
}

static void lanes__one_alone__posts_as_a_call_that_waits(void **state)
{
    (void)state;
    warm_up();
    uint32_t from = fs.fake.post_count;
    uint64_t trips = fs.ctx->stats.round_trips;
    start(0, 1);
    txn_await_lanes(fs.ctx);
    uint32_t lane_posts = fs.fake.post_count - from;
    uint64_t lane_trips = fs.ctx->stats.round_trips - trips;
    from = fs.fake.post_count;
    trips = fs.ctx->stats.round_trips;
    work(&job[1]);
    check_committed(0, 2);
    assert_int_equal(fs.fake.post_count - from, lane_posts);
    assert_int_equal(fs.ctx->stats.round_trips - trips, lane_trips);
}

/* Nothing fences a mark there: it waits until no flush is outstanding, and new ones wait for it. */
static void flush_by_message(void)
{
    for (uint32_t n = 0; n < 2; n++) {
        fs.fake.node[n].welcome.durability = RD_DURABILITY_GPSPM;
        fs.fake.node[n].ring_durability = RD_DURABILITY_GPSPM;
    }
}

static void lanes__flushes_by_message__no_mark_while_one_is_outstanding(void **state)
{
    (void)state;
    flush_by_message();
    for (uint32_t i = 0; i < LANES - 1; i++) { /* so that they log in different turns */
        if (i % 3 == 1)
            job[i].key[0][0] = '\0';
        if (i % 3 == 2)
            job[i].key[1][0] = '\0';
    }
    warm_up();
    for (uint32_t i = 0; i < LANES - 1; i++) {
        start(i, 1);
        (void)txn_poll(fs.ctx);
        (void)txn_turn(fs.ctx);
    }
    txn_await_lanes(fs.ctx);
    check_committed(0, LANES - 1);
    for (uint16_t n = 1; n <= 2; n++)
        assert_int_equal(posts(TS_FAKE_MARK, n, 0), 4); /* of those on two nodes: 0, 3, 6 and 7 */
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(fs.ctx->tx[i].background.left, 0);
}

static void post_mark__flush_outstanding__behind_it_and_before_the_next(void **state)
{
    const uint64_t at = RING + 4096 + 128;
    struct txn_batch first = {0}, second = {0}, marks = {0};
    struct txn_flush wait[2];
    struct txn_mark mark;
    int status[2];

    (void)state;
    flush_by_message();
    warm_up();
    struct txn_peer *peer = &fs.ctx->peer[0];
    uint32_t from = fs.fake.post_count;
    assert_int_equal(txn_post_flush(peer, &first, &status[0], at, 64, &wait[0]), 0);
    txn_ring(fs.ctx);
    txn_post_mark(peer, &marks, at, 7, &mark);
    assert_int_equal(txn_post_flush(peer, &second, &status[1], at, 64, &wait[1]), 0);
    txn_ring(fs.ctx);
    txn_ring(fs.ctx);
    assert_int_equal(fs.fake.post_count - from, 1);
    assert_int_equal(marks.left, 1);
    assert_int_equal(txn_wait(fs.ctx, &second, TXN_LATER), 0);
    assert_int_equal(first.left + second.left + marks.left, 0);
    assert_int_equal(fs.fake.post_count - from, 3);
    assert_int_equal(fs.fake.post[from].op, TS_FAKE_FLUSH);
    assert_int_equal(fs.fake.post[from + 1].op, TS_FAKE_MARK);
    assert_int_equal(fs.fake.post[from + 2].op, TS_FAKE_FLUSH);
    assert_int_equal(late_marks, 1);
}

/* What waits for a flush that is not posted yet, or for a mark, ends with the connection. */
static void post_flush__connection_lost_before_the_ring__all_fail(void **state)
{
    const uint64_t at = RING + 4096 + 128;
    struct txn_batch batch = {0}, marks = {0};
    struct txn_flush wait[2];
    struct txn_mark mark;
    int status[2];

    (void)state;
    flush_by_message();
    warm_up();
    struct txn_peer *peer = &fs.ctx->peer[0];
    assert_int_equal(txn_post_flush(peer, &batch, &status[0], at, 64, &wait[0]), 0);
    txn_ring(fs.ctx);
    txn_post_mark(peer, &marks, at, 7, &mark);
    assert_int_equal(txn_post_flush(peer, &batch, &status[1], at, 64, &wait[1]), 0);
    assert_int_equal(batch.left, 2);
    uint32_t from = fs.fake.post_count;
    txn_peer_drop(peer, CAIRN_E_NODE_DOWN);
    assert_int_equal(batch.left, 0);
    assert_int_equal(batch.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(status[0], CAIRN_E_NODE_DOWN);
    assert_int_equal(status[1], CAIRN_E_NODE_DOWN);
    assert_int_equal(marks.left, 0);
    txn_ring(fs.ctx);
    assert_int_equal(fs.fake.post_count, from);
}

/* ---- sequences ---- */

static uint64_t done_of(uint16_t node, uint64_t log_off, uint64_t *ret_seq, uint64_t *ret_end)
{
    const struct txn_peer *p = &fs.ctx->peer[node - 1];
    const uint8_t *at = fs.fake.node[node - 1].memory + RING + 4096 + log_off % RING_SIZE;
    struct pm_place place = {.pool = p->pool,
        .slot = p->slot,
        .epoch = p->epoch,
        .nonce = p->nonce,
        .log_off = log_off};
    static uint8_t copy[RING_SIZE];
    struct pm_record r;
    uint32_t n = pm_record_peek(at, (uint32_t)(RING_SIZE - log_off % RING_SIZE));

    assert_int_not_equal(n, 0);
    memcpy(copy, at, n);
    if (pm_record_check(copy, n, &place, node, &r) != 0)
        fail_msg("%s", cairn_last_error());
    *ret_seq = r.seq;
    *ret_end = log_off + n;
    return r.done;
}

static void lanes__flush_of_an_earlier_one_missing__done_stays_below_it(void **state)
{
    uint64_t off = 0, seq, done;

    (void)state;
    warm_up(); /* seq 1 on both nodes */
    hold_node = 2;
    start(0, 1); /* seq 2 on both: never flushed on node 2 */
    while (fs.fake.node[1].silent == false)
        (void)cairn_poll(fs.ctx);
    for (uint32_t i = 1; i < 4; i++) { /* node 1 alone: they commit */
        job[i].key[1][0] = '\0';
        start(i, 1);
        while (!job[i].done)
            (void)cairn_poll(fs.ctx);
    }
    check_committed(1, 3);
    assert_false(job[0].done);
    assert_int_equal(fs.ctx->peer[0].seq, 5);
    assert_int_equal(fs.ctx->peer[0].done, 1);
    for (uint64_t n = 1; n <= 5; n++) {
        done = done_of(1, off, &seq, &off);
        assert_int_equal(seq, n);
        assert_int_equal(done, n == 1 ? 0 : 1);
    }
    fs.fake.node[1].silent = false; /* the session ends: its time is up */
    hold_node = 0;
    txn_await_lanes(fs.ctx);
    assert_int_equal(job[0].result, 0);
    assert_int_equal(job[0].outcome, CAIRN_OUTCOME_UNKNOWN);
}

/* ---- bounds ---- */

static struct cairn_read reads[64][30];
static char buffers[64][30][16];

static void lanes__more_operations_than_there_are__wait_their_turn(void **state)
{
    struct cairn_tx *tx[64];
    struct cairn_op op[64];
    char key[30][16];

    (void)state;
    assert_true(64 * 30 > TXN_OPS_MAX);
    for (uint32_t k = 0; k < 30; k++) {
        ts_fs_key(&fs, 1, 100 + k, key[k]);
        (void)ts_fs_add(&fs, key[k], "value");
    }
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(cairn_begin(fs.ctx, &tx[i]), 0);
        op[i] = (struct cairn_op){.done = NULL};
        for (uint32_t k = 0; k < 30; k++)
            reads[i][k] = (struct cairn_read){.key = key[k],
                .key_size = strlen(key[k]),
                .buf = buffers[i][k],
                .buf_size = 16,
                .table = 1};
    }
    for (uint32_t round = 0; round < 2; round++) { /* the second time by hints */
        for (uint32_t i = 0; i < 64; i++)
            assert_int_equal(cairn_get_many_async(tx[i], reads[i], 30, &op[i]), 0);
        for (uint32_t i = 0; i < 64; i++) {
            if (cairn_wait(fs.ctx, &op[i]) != 0)
                fail_msg("%u: %s", i, cairn_last_error());
            for (uint32_t k = 0; k < 30; k++)
                assert_int_equal(reads[i][k].status, 0);
        }
        for (uint32_t i = 0; i < 64; i++) {
            cairn_abort(tx[i]);
            assert_int_equal(cairn_begin(fs.ctx, &tx[i]), 0);
        }
    }
    for (uint32_t i = 0; i < 64; i++)
        cairn_abort(tx[i]);
    assert_int_equal(fs.ctx->op_count, 0);
}

static int setup_many(void **state)
{
    (void)state;
    return open_lanes(64);
}

static void spawn__no_lane_is_free__refused(void **state)
{
    (void)state;
    hold_node = 1;
    start(0, LANES);
    struct job more = {.done = false};
    assert_int_equal(txn_spawn(fs.ctx, work, &more), CAIRN_E_STATE);
    fs.fake.node[0].silent = false;
    hold_node = 0;
    txn_await_lanes(fs.ctx);
    assert_int_equal(txn_spawn(fs.ctx, work, &more), 0);
    txn_await_lanes(fs.ctx);
    assert_true(more.done);
}

/* ---- losses and deadlines ---- */

static void lanes__connection_lost_at_the_flush__all_end_then_the_session(void **state)
{
    (void)state;
    warm_up();
    struct cn_uuid session = fs.ctx->session;
    break_node = 2;
    start(0, LANES - 1);
    txn_await_lanes(fs.ctx);
    assert_int_equal(cut_off, 1);
    for (uint32_t i = 0; i < LANES - 1; i++) {
        assert_true(job[i].done);
        if (job[i].result == 0)
            assert_int_equal(job[i].outcome, CAIRN_OUTCOME_UNKNOWN);
        else
            assert_string_not_equal(job[i].text, "");
    }
    assert_int_equal(job[0].outcome, CAIRN_OUTCOME_UNKNOWN);
    assert_false(cn_uuid_equal(&session, &fs.ctx->session));
    assert_int_equal(fs.ctx->lost, 0);
    assert_int_equal(fs.ctx->tx_open, 0);
    assert_int_equal(fs.ctx->op_count, 0);
}

static void lanes__node_falls_silent__all_end_by_the_deadline(void **state)
{
    (void)state;
    warm_up();
    uint64_t begin = fs.fake.now_ns;
    fs.fake.node[0].silent = true;
    start(0, LANES - 1);
    txn_await_lanes(fs.ctx);
    uint64_t took = fs.fake.now_ns - begin;
    assert_true(took >= UINT64_C(5000) * MS && took < UINT64_C(12000) * MS);
    for (uint32_t i = 0; i < LANES - 1; i++) {
        assert_true(job[i].done);
        assert_int_equal(job[i].result, CAIRN_E_TIMEOUT);
        assert_non_null(strstr(job[i].text, "no answer within 5000 ms"));
    }
    fs.fake.node[0].silent = false;
    start(0, 1);
    txn_await_lanes(fs.ctx);
    check_committed(0, 1);
}

static void lanes__node_does_not_answer_a_connect__all_share_the_try(void **state)
{
    (void)state;
    fs.fake.node[0].silent = true;
    start(0, LANES);
    txn_await_lanes(fs.ctx);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_equal(job[i].result, CAIRN_E_TIMEOUT);
    assert_true(fs.fake.node[0].connects < LANES);
}

/* A lane waits for the transactions that are open, and no longer than its deadline. */
static int update_job(struct cairn_tx *tx, void *arg)
{
    return update(tx, arg);
}

static void run_async__session_lost_and_the_caller_sits_on_it__ends_by_its_deadline(void **state)
{
    struct cairn_tx *tx;
    struct cairn_op op = {.done = NULL};

    (void)state;
    warm_up();
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
    (void)cairn_poll(fs.ctx);
    uint64_t begin = fs.fake.now_ns;
    assert_int_equal(cairn_run_async(fs.ctx, update_job, &job[0], 700, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_NODE_DOWN);
    assert_true(fs.fake.now_ns - begin >= UINT64_C(700) * MS);
    assert_true(fs.fake.now_ns - begin < UINT64_C(5000) * MS);
    assert_int_equal(cairn_run_async(fs.ctx, update_job, &job[0], 700, &op), 0);
    assert_int_equal(cairn_poll(fs.ctx), 0);
    cairn_abort(tx);
    assert_int_equal(cairn_wait(fs.ctx, &op), 0);
    assert_int_equal(op.outcome, CAIRN_OUTCOME_COMMITTED);
}

/* ---- sleeping ---- */

static void arm__lanes_parked__by_their_deadlines(void **state)
{
    (void)state;
    warm_up();
    assert_int_equal(cairn_arm(fs.ctx), -1);
    fs.fake.node[0].silent = true;
    start(0, 1);
    while (cairn_poll(fs.ctx) != 0)
        ;
    int ms = cairn_arm(fs.ctx);
    assert_in_range(ms, 4900, 5000);
    fs.fake.now_ns += UINT64_C(4000) * MS;
    ms = cairn_arm(fs.ctx);
    assert_in_range(ms, 900, 1000);
    fs.fake.now_ns += UINT64_C(2000) * MS;
    assert_int_equal(cairn_arm(fs.ctx), 0); /* the time is up: poll */
    fs.fake.node[0].silent = false;
    txn_await_lanes(fs.ctx);
    assert_int_equal(job[0].result, CAIRN_E_TIMEOUT);
}

/* Locked by somebody else: the lane backs off, and the caller is told to come back soon. */
static void arm__lane_backs_off__polls_or_a_short_time(void **state)
{
    (void)state;
    warm_up();
    uint64_t item = TS_ITEMS; /* job 0's, on node 1 */
    uint64_t *word = ts_fs_word(&fs, 1, item);
    uint64_t was = *word;
    *word = htole64(pm_word_make_locked(fs.ctx->peer[0].tag, 9, pm_word_version(le64toh(was))));
    start(0, 1);
    for (uint32_t i = 0; i < 20; i++) {
        (void)cairn_poll(fs.ctx);
        assert_in_range(cairn_arm(fs.ctx), 0, 20);
        fs.fake.now_ns += 20000;
    }
    assert_false(job[0].done);
    *word = was;
    txn_await_lanes(fs.ctx);
    check_committed(0, 1);
}

int main(void)
{
#define LANE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LANE_TEST(lanes__records_of_one_turn__one_flush_per_node_behind_all_writes),
        LANE_TEST(lanes__one_alone__posts_as_a_call_that_waits),
        LANE_TEST(lanes__flushes_by_message__no_mark_while_one_is_outstanding),
        LANE_TEST(post_mark__flush_outstanding__behind_it_and_before_the_next),
        LANE_TEST(post_flush__connection_lost_before_the_ring__all_fail),
        LANE_TEST(lanes__flush_of_an_earlier_one_missing__done_stays_below_it),
        cmocka_unit_test_setup_teardown(
            lanes__more_operations_than_there_are__wait_their_turn, setup_many, teardown),
        LANE_TEST(spawn__no_lane_is_free__refused),
        LANE_TEST(lanes__connection_lost_at_the_flush__all_end_then_the_session),
        LANE_TEST(lanes__node_falls_silent__all_end_by_the_deadline),
        LANE_TEST(lanes__node_does_not_answer_a_connect__all_share_the_try),
        LANE_TEST(run_async__session_lost_and_the_caller_sits_on_it__ends_by_its_deadline),
        LANE_TEST(arm__lanes_parked__by_their_deadlines),
        LANE_TEST(arm__lane_backs_off__polls_or_a_short_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
