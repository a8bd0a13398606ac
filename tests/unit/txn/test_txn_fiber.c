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
static bool refuse_read, refuse_release; /* once, the fabric has no room behind a lock, to unlock */
static bool behind_cas;
static uint16_t break_node; /* ... or its connection is lost there */

static bool is_refused(const struct ts_fake_post *post)
{
    bool read = refuse_read && behind_cas && post->op == TS_FAKE_READ;
    bool release = refuse_release && post->op == TS_FAKE_CAS && !pm_word_locked_bit(post->value);

    behind_cas = post->op == TS_FAKE_CAS;
    refuse_read = refuse_read && !read;
    refuse_release = refuse_release && !release;
    return read || release;
}

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post)
{
    if (is_refused(post))
        return cn_fail(CAIRN_E_AGAIN, "the queue is full");
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
    refuse_read = refuse_release = behind_cas = false;
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
    struct txn_rec rec = {.off = 128};
    int status[2];

    (void)state;
    flush_by_message();
    warm_up();
    struct txn_peer *peer = &fs.ctx->peer[0];
    uint32_t from = fs.fake.post_count;
    assert_int_equal(txn_post_flush(peer, &first, &status[0], at, 64, &wait[0]), 0);
    txn_ring(fs.ctx);
    txn_post_mark(peer, &marks, at, 7, &rec.mark);
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
    struct txn_rec rec = {.off = 128};
    int status[2];

    (void)state;
    flush_by_message();
    warm_up();
    struct txn_peer *peer = &fs.ctx->peer[0];
    assert_int_equal(txn_post_flush(peer, &batch, &status[0], at, 64, &wait[0]), 0);
    txn_ring(fs.ctx);
    txn_post_mark(peer, &marks, at, 7, &rec.mark);
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

/* ---- marks that come late ---- */

/* What the node does to all that node 1 was sent: applied, and passed. */
static void pass_all(const char *key)
{
    const struct txn_peer *peer = &fs.ctx->peer[0];
    struct rd_position_wire at = {.seq = le64_make(peer->seq), .off = le64_make(peer->log_off)};

    memcpy(fs.fake.node[0].memory + RING + 64, &at, sizeof(at));
    for (uint32_t i = 0; i < LANES; i++) {
        uint64_t word = le64toh(*ts_fs_word(&fs, 1, TS_ITEMS + 1024 * i));
        if (strcmp(key, job[i].key[0]) == 0)
            ts_fs_item(&fs, 1, TS_ITEMS + 1024 * i, pm_word_version(word) + 1, key, "newer");
    }
}

/* The flushes of a node that was silent complete after all. */
static void complete_held(uint16_t node)
{
    for (uint32_t i = 0; i < TXN_OPS_MAX; i++) {
        const struct txn_op *op = &fs.ctx->op[i];
        if (op->busy && op->peer == node - 1)
            fs.fake.event[fs.fake.tail++ % TS_FAKE_EVENTS] =
                (struct rd_event){.type = RD_EV_COMPLETION,
                    .conn = &ts_fake_conn(&fs.fake, node)->rd,
                    .wr_id = (uint64_t)op->gen << 32 | i};
    }
    fs.fake.node[node - 1].silent = false;
    hold_node = 0;
}

/* Its node has resolved the record, as it could: it was everywhere. Others log on, and the ring
 * comes round. */
static void mark__place_is_another_records__left_out(void **state)
{
    struct txn_peer *peer = &fs.ctx->peer[0];
    uint8_t before[64];

    (void)state;
    warm_up();
    hold_node = 2;
    start(0, 1);
    while (!fs.fake.node[1].silent)
        (void)cairn_poll(fs.ctx);
    uint64_t end = peer->log_off;
    pass_all(job[0].key[0]);
    job[1].key[1][0] = '\0';
    while (peer->log_off < end + RING_SIZE) {
        work(&job[1]);
        check_committed(1, 1);
        pass_all(job[1].key[0]);
    }
    uint8_t *place = fs.fake.node[0].memory + RING + 4096 + (end - 64) % RING_SIZE;
    memcpy(before, place, sizeof(before));
    uint32_t from = fs.fake.post_count;
    complete_held(2);
    txn_await_lanes(fs.ctx);
    check_committed(0, 1);
    assert_int_equal(posts(TS_FAKE_MARK, 1, from), 0);
    assert_int_equal(posts(TS_FAKE_MARK, 2, from), 1);
    assert_memory_equal(place, before, sizeof(before));
}

static void mark__waits_until_the_ring_came_round__left_out(void **state)
{
    const uint64_t at = RING + 4096 + 128;
    struct txn_batch flush = {0}, marks = {0};
    struct txn_flush wait;
    struct txn_rec rec[2] = {{.off = 128}, {.off = 256}};
    int status;

    (void)state;
    flush_by_message();
    warm_up();
    struct txn_peer *peer = &fs.ctx->peer[0];
    assert_int_equal(txn_post_flush(peer, &flush, &status, at, 64, &wait), 0);
    txn_ring(fs.ctx);
    for (uint32_t i = 0; i < 2; i++)
        txn_post_mark(peer, &marks, at + 128 * i, 7, &rec[i].mark);
    assert_int_equal(marks.left, 2);
    peer->log_off = 256 + RING_SIZE; /* up to the second one */
    uint32_t from = fs.fake.post_count;
    assert_int_equal(txn_wait(fs.ctx, &flush, TXN_LATER), 0);
    assert_int_equal(marks.left, 0);
    assert_int_equal(posts(TS_FAKE_MARK, 1, from), 1);
    assert_int_equal(fs.fake.post[from].remote, at + 128);
}

/* ---- what the fabric refuses ---- */

static struct cn_uuid session_before;

static void check_dropped(void)
{
    assert_int_equal(fs.ctx->lost, 0);
    assert_false(cn_uuid_equal(&session_before, &fs.ctx->session));
    assert_int_equal(posts(TS_FAKE_SEND, 1, 0), 1); /* TABLE, and no goodbye */
}

/* The lock is taken, and nobody is told: while the connection stands its node takes the owner for
 * alive. */
static void lock__read_behind_it_refused__connection_is_dropped(void **state)
{
    (void)state;
    fs.fake.cas_orders_reads = true;
    warm_up();
    for (uint32_t i = 0; i < 2; i++) {
        job[i].key[1][0] = '\0';
        work(&job[i]);
    }
    check_committed(0, 2);
    for (uint32_t by_lane = 0; by_lane < 2; by_lane++) {
        session_before = fs.ctx->session;
        /* As applied: what the hint says again. */
        *ts_fs_word(&fs, 1, TS_ITEMS + 1024 * by_lane) = htole64(6);
        refuse_read = true;
        if (by_lane == 1) {
            start(by_lane, 1);
            txn_await_lanes(fs.ctx);
        } else
            work(&job[by_lane]);
        assert_false(refuse_read);
        assert_int_not_equal(job[by_lane].result, 0);
        check_dropped();
        assert_true(pm_word_locked_bit(le64toh(*ts_fs_word(&fs, 1, TS_ITEMS + 1024 * by_lane))));
    }
}

static void release__refused__connection_is_dropped(void **state)
{
    struct cairn_tx *tx;

    (void)state;
    warm_up();
    job[0].key[1][0] = '\0';
    session_before = fs.ctx->session;
    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    assert_int_equal(update(tx, &job[0]), 0);
    refuse_release = true;
    cairn_abort(tx);
    assert_false(refuse_release);
    check_dropped();
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

/* ---- blocks ---- */

static int insert(struct cairn_tx *tx, void *arg)
{
    static char value[900]; /* of the class that the fake grants */

    return cairn_put(tx, 1, arg, strlen(arg), value, sizeof(value));
}

/* Others have taken all, and one of them aborts. */
static void blocks__all_taken_and_one_given_back__waiting_lane_goes_on(void **state)
{
    struct txn_peer *peer = &fs.ctx->peer[0];
    struct cairn_op op = {.done = NULL};
    char key[16];

    (void)state;
    warm_up();
    assert_int_equal(txn_stock_need(peer, TS_CLASS, 1, txn_op_deadline(fs.ctx)), 0);
    uint32_t block = txn_block_take(peer, TS_CLASS);
    while (peer->stock_count[TS_CLASS] != 0)
        (void)txn_block_take(peer, TS_CLASS);
    peer->block_free = TXN_NONE;
    peer->block_free_count = 0;
    ts_fs_key(&fs, 1, 201, key);
    assert_int_equal(cairn_run_async(fs.ctx, insert, key, 60000, &op), 0);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(cairn_poll(fs.ctx), 0);
    uint64_t begin = fs.fake.now_ns;
    txn_block_return(peer, TS_CLASS, block);
    start(0, 1); /* another lane gets on */
    if (cairn_wait(fs.ctx, &op) != 0)
        fail_msg("%s", cairn_last_error());
    assert_int_equal(op.outcome, CAIRN_OUTCOME_COMMITTED);
    assert_true(fs.fake.now_ns - begin < 100 * MS);
}

/* Many have aborted: all entries stand for blocks of one class, which nobody wants now. */
static void blocks__all_in_stock_of_another_class__some_are_forgotten(void **state)
{
    struct txn_peer *peer = &fs.ctx->peer[0];
    const uint32_t other = TS_CLASS - 3;
    struct cairn_op op = {.done = NULL};
    char key[16];

    (void)state;
    warm_up();
    while (peer->block_free != TXN_NONE) {
        uint32_t at = peer->block_free;
        peer->block_free = peer->block[at].next;
        peer->block_free_count--;
        txn_block_return(peer, other, at);
    }
    uint64_t begin = fs.fake.now_ns;
    ts_fs_key(&fs, 1, 200, key);
    assert_int_equal(cairn_run_async(fs.ctx, insert, key, 60000, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), 0);
    assert_int_equal(op.outcome, CAIRN_OUTCOME_COMMITTED);
    assert_true(fs.fake.now_ns - begin < 100 * MS);
    assert_in_range(peer->stock_count[other], TXN_STOCK_MAX - 3 * TXN_STOCK_CLASS, TXN_STOCK_MAX);
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
        LANE_TEST(mark__place_is_another_records__left_out),
        LANE_TEST(mark__waits_until_the_ring_came_round__left_out),
        LANE_TEST(lock__read_behind_it_refused__connection_is_dropped),
        LANE_TEST(release__refused__connection_is_dropped),
        LANE_TEST(lanes__flush_of_an_earlier_one_missing__done_stays_below_it),
        cmocka_unit_test_setup_teardown(
            lanes__more_operations_than_there_are__wait_their_turn, setup_many, teardown),
        LANE_TEST(spawn__no_lane_is_free__refused),
        LANE_TEST(blocks__all_taken_and_one_given_back__waiting_lane_goes_on),
        LANE_TEST(blocks__all_in_stock_of_another_class__some_are_forgotten),
        LANE_TEST(lanes__connection_lost_at_the_flush__all_end_then_the_session),
        LANE_TEST(lanes__node_falls_silent__all_end_by_the_deadline),
        LANE_TEST(lanes__node_does_not_answer_a_connect__all_share_the_try),
        LANE_TEST(run_async__session_lost_and_the_caller_sits_on_it__ends_by_its_deadline),
        LANE_TEST(arm__lanes_parked__by_their_deadlines),
        LANE_TEST(arm__lane_backs_off__polls_or_a_short_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
