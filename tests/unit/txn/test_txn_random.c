/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: whatever a program calls in whatever order, and whatever the fabric does meanwhile, each
 * operation is told once and in time, and nothing is left behind: no lane, no operation of the
 * fabric, no space promised, no lock.
 * Method: random calls from a seed, also from inside `done` (which may close the context, too) and
 * from bodies, over the fake fabric.
 * It refuses posts, loses connections and answers, and falls silent for a while. The test plays the
 * nodes: it applies what was committed, moves positions, and frees what ended sessions had locked.
 *
 *     unit-txn-txn_random FIRST COUNT   other seeds than the usual
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

#include <stdlib.h>

#define KEYS 12u
#define CLIENTS 8u
#define TASKS 24u
#define READS 3u
#define POSITION_OFF (4096u + 64u)
#define SECOND UINT64_C(1000000000)

static struct ts_fs fs;
static char key[KEYS][16]; /* of node 1, and the second half of node 2 */
static uint64_t item[KEYS];
static uint64_t first = 1, count = 60, seed, state;
static struct cn_uuid session;
static uint64_t begun_ns;
static uint32_t told_late; /* operations begun and not told */
static bool begin_more;    /* from inside `done` */

static struct { /* one in so many; 0: never */
    uint32_t refuse, down, silent, mute;
} rate;

struct client { /* a transaction that the caller has begun */
    struct cairn_tx *tx;
    uint32_t written; /* keys, by bit */
    bool busy;
};
static struct client client[CLIENTS];

struct task { /* an operation that was begun */
    struct cairn_op op;
    struct client *client; /* NULL: of cairn_run_async() */
    uint32_t written;
    bool used, ends;
    char buf[READS][16];
    struct cairn_read read[READS];
};
static struct task task[TASKS];

static uint32_t draw(uint32_t below)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(cn_mix64(state) % below);
}

static bool one_in(uint32_t so_many)
{
    return so_many != 0 && draw(so_many) == 0;
}

/* ---- the nodes ---- */

static uint16_t node_of(uint32_t k)
{
    return k < KEYS / 2 ? 1 : 2;
}

static uint64_t word_of(uint32_t k)
{
    return le64toh(*ts_fs_word(&fs, node_of(k), item[k]));
}

static void unlock(uint32_t k, uint64_t more)
{
    if (pm_word_locked_bit(word_of(k)))
        ts_fs_item(&fs, node_of(k), item[k], pm_word_version(word_of(k)) + more, key[k], "newer");
}

static void apply(uint32_t written)
{
    for (uint32_t k = 0; k < KEYS; k++)
        if ((written >> k & 1) != 0)
            unlock(k, 1);
}

/* Positions of logs that are committed to their end; and the verdicts on what a session has left.
 */
static void play_nodes(void)
{
    bool ended = !cn_uuid_equal(&session, &fs.ctx->session);

    session = fs.ctx->session;
    for (uint32_t k = 0; k < KEYS && ended; k++)
        unlock(k, draw(2));
    for (uint32_t i = 0; i < 2; i++) {
        const struct txn_peer *peer = &fs.ctx->peer[i];
        struct rd_position_wire at = {.seq = le64_make(peer->seq), .off = le64_make(peer->log_off)};
        if (ended)
            memset(fs.fake.node[i].memory + POSITION_OFF, 0, sizeof(at));
        else if (peer->state == TXN_PEER_UP && peer->done == peer->seq)
            memcpy(fs.fake.node[i].memory + POSITION_OFF, &at, sizeof(at));
    }
}

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post)
{
    if (fake->post_count > TS_FAKE_LOG / 2)
        fake->post_count = 0;
    if (one_in(rate.refuse))
        return cn_fail(CAIRN_E_AGAIN, "the queue is full");
    if (one_in(rate.down))
        ts_fake_down(fake, post->node, one_in(2) ? CAIRN_E_NODE_DOWN : CAIRN_E_FENCED);
    if (one_in(rate.silent))
        fake->node[post->node - 1].silent = true;
    return 0;
}

static void (*answer_rest)(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *head, const void *body);

static void answer(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *head, const void *body)
{
    static const enum rd_verdict verdicts[] = {
        RD_VERDICT_COMMITTED, RD_VERDICT_ABORTED, RD_VERDICT_IN_DOUBT};

    if (one_in(rate.mute))
        return;
    if (le16_get(head->type) != RD_MSG_RESOLVE) {
        answer_rest(fake, conn, head, body);
        return;
    }
    struct rd_answer_wire reply = {.verdict = le32_make(verdicts[draw(3)])};
    ts_fake_reply(fake, conn, head, RD_MSG_RESOLVE_REPLY, 0, &reply, sizeof(reply));
}

/* ---- calls ---- */

static int touch(struct cairn_tx *tx, uint32_t *written)
{
    char buf[16];
    size_t size;
    int rc = 0;

    for (uint32_t left = 1 + draw(3); left > 0 && rc == 0; left--) {
        uint32_t k = draw(KEYS), how = draw(4);
        if (how == 0)
            rc = cairn_get(tx, 1, key[k], strlen(key[k]), buf, sizeof(buf), &size);
        else if (how == 1)
            rc = cairn_get_for_update(tx, 1, key[k], strlen(key[k]), buf, sizeof(buf), &size);
        if (rc == 0 && how != 0) {
            rc = cairn_put(tx, 1, key[k], strlen(key[k]), "newer", 5);
            *written |= UINT32_C(1) << k;
        }
    }
    return rc;
}

static void commit(struct cairn_tx *tx, uint32_t written)
{
    enum cairn_outcome outcome;

    if (cairn_commit(tx, &outcome) == 0 && outcome == CAIRN_OUTCOME_COMMITTED)
        apply(written);
}

static void use_another(void)
{
    struct cairn_tx *other;
    uint32_t written = 0;

    if (cairn_begin(fs.ctx, &other) != 0)
        return;
    if (touch(other, &written) == 0 && one_in(2))
        commit(other, written);
    else
        cairn_abort(other);
}

static int run_body(struct cairn_tx *tx, void *arg)
{
    struct task *t = arg;
    char token[CAIRN_TOKEN_SIZE];

    t->written = 0;
    int rc = touch(tx, &t->written);
    if (rc == 0 && one_in(8))
        use_another();
    if (rc == 0 && one_in(12))
        (void)!cairn_tx_token(tx, token);
    return rc == 0 && one_in(16) ? CAIRN_E_NOT_FOUND : rc;
}

static void step(void);

static void done(struct cairn_op *op)
{
    struct task *t = op->user;

    assert_true(t->used); /* once */
    assert_int_not_equal(op->result, CAIRN_PENDING);
    t->used = false;
    told_late--;
    if (op->outcome == CAIRN_OUTCOME_COMMITTED)
        apply(t->client == NULL ? t->written : t->client->written);
    if (t->client != NULL)
        t->client->busy = false;
    if (t->client != NULL && t->ends)
        t->client->tx = NULL;
    if (begin_more && one_in(1000))
        cairn_ctx_close(&fs.ctx);
    else if (begin_more && one_in(3))
        step();
}

static void begun(struct task *t, int rc)
{
    if (rc != 0)
        return;
    t->used = true;
    told_late++;
    if (t->client != NULL)
        t->client->busy = true;
}

static void read_async(struct task *t, struct cairn_tx *tx)
{
    uint32_t reads = 1 + draw(READS);

    for (uint32_t i = 0; i < reads; i++) {
        const char *k = key[draw(KEYS)];
        t->read[i] = (struct cairn_read){.key = k,
            .key_size = strlen(k),
            .buf = t->buf[i],
            .buf_size = sizeof(t->buf[i]),
            .table = 1,
            .for_update = one_in(2)};
    }
    struct cairn_read *r = &t->read[0];
    if (reads > 1)
        begun(t, cairn_get_many_async(tx, r, reads, &t->op));
    else
        begun(t,
            (r->for_update ? cairn_get_for_update_async : cairn_get_async)(
                tx, 1, r->key, r->key_size, r->buf, r->buf_size, &t->op));
}

static void end_async(struct task *t, struct cairn_tx *tx)
{
    t->ends = true;
    int rc = (one_in(2) ? cairn_commit_async : cairn_abort_async)(tx, &t->op);
    assert_int_equal(rc, 0);
    begun(t, rc);
}

/* Also beside an operation of its own, which is told later. */
static void abort_now(struct client *c)
{
    cairn_abort(c->tx);
    if (!c->busy)
        c->tx = NULL;
    for (uint32_t i = 0; i < TASKS; i++)
        task[i].ends = task[i].ends || (task[i].used && task[i].client == c);
}

static void use_client(struct client *c, struct task *t)
{
    char token[CAIRN_TOKEN_SIZE];

    if (c->tx == NULL) {
        c->written = 0;
        c->busy = false;
        if (cairn_begin(fs.ctx, &c->tx) != 0)
            c->tx = NULL;
        return;
    }
    if (one_in(8)) {
        abort_now(c);
        return;
    }
    if (c->busy)
        return;
    t->client = c;
    switch (draw(8)) {
    case 0:
    case 1: (void)!touch(c->tx, &c->written); break;
    case 2:
    case 3:
    case 4: read_async(t, c->tx); break;
    case 5: end_async(t, c->tx); break;
    case 6:
        commit(c->tx, c->written);
        c->tx = NULL;
        break;
    default: (void)!cairn_tx_token(c->tx, token); break;
    }
}

static void wait_for_one(void)
{
    for (uint32_t i = 0; i < TASKS; i++) {
        if (!task[i].used)
            continue;
        (void)!cairn_wait(fs.ctx, &task[i].op);
        return;
    }
}

/* The caller's own loop: sleeps as long as it may, or is woken before. */
static void sleep_a_while(uint32_t part)
{
    int ms = fs.ctx == NULL ? 0 : cairn_arm(fs.ctx);

    if (ms != 0)
        fs.fake.now_ns += (ms < 0 ? SECOND : (uint64_t)ms * 1000000) / part;
}

static void step(void)
{
    struct task *t = task;

    if (fs.ctx == NULL)
        return; /* closed by `done` */
    play_nodes();
    while (t != task + TASKS && t->used)
        t++;
    if (t == task + TASKS) {
        (void)cairn_poll(fs.ctx);
        return;
    }
    *t = (struct task){.op = {.done = done, .user = t}};
    uint32_t what = draw(14);
    if (what < 9)
        use_client(&client[draw(CLIENTS)], t);
    else if (what < 12)
        begun(
            t, cairn_run_async(fs.ctx, run_body, t, one_in(4) ? 600000 : 10 + draw(3000), &t->op));
    else if (what == 12)
        wait_for_one();
    else {
        (void)cairn_poll(fs.ctx);
        sleep_a_while(1 + draw(4));
    }
}

/* ---- a run ---- */

static void open_run(void)
{
    uint32_t inflight = one_in(3) ? 16 : 1 + draw(6);

    ts_fs_open_inflight(&fs, 2, 56, inflight);
    begun_ns = fs.fake.now_ns;
    for (uint32_t k = 0; k < KEYS; k++) {
        ts_fs_key(&fs, node_of(k), k % (KEYS / 2), key[k]);
        item[k] = ts_fs_add(&fs, key[k], "value");
    }
    fs.fake.cas_orders_reads = one_in(2);
    bool by_message = one_in(3);
    for (uint32_t n = 0; n < 2 && by_message; n++) {
        fs.fake.node[n].welcome.durability = RD_DURABILITY_GPSPM;
        fs.fake.node[n].ring_durability = RD_DURABILITY_GPSPM;
    }
    rate.refuse = one_in(3) ? 20 + draw(300) : 0;
    rate.down = one_in(2) ? 30 + draw(300) : 0;
    rate.silent = one_in(3) ? 50 + draw(500) : 0;
    rate.mute = one_in(4) ? 2 + draw(20) : 0;
    memset(client, 0, sizeof(client));
    memset(task, 0, sizeof(task));
    told_late = 0;
    session = fs.ctx->session;
    fs.fake.on_post = on_post;
    answer_rest = fs.fake.on_message;
    fs.fake.on_message = answer;
}

static void calm_down(void)
{
    memset(&rate, 0, sizeof(rate));
    for (uint32_t n = 0; n < 2; n++)
        fs.fake.node[n].silent = false;
    begin_more = false;
}

static void end_idle_clients(void)
{
    for (uint32_t i = 0; i < CLIENTS; i++) {
        if (client[i].tx == NULL || client[i].busy)
            continue;
        cairn_abort(client[i].tx);
        client[i].tx = NULL;
    }
}

static void check_nothing_left(bool lost_completions)
{
    const struct cairn_ctx *ctx = fs.ctx;
    uint32_t free_lanes = 0;

    for (const struct cairn_tx *tx = ctx->tx_free; tx != NULL; tx = tx->next_free)
        free_lanes++;
    assert_int_equal(free_lanes, ctx->tx_count);
    assert_int_equal(ctx->tx_open + ctx->lanes + ctx->done_count, 0);
    assert_int_equal(ctx->lost, 0);
    if (!lost_completions) /* else of a read of a position, which nobody waits for */
        assert_int_equal(ctx->op_count, 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(ctx->peer[i].promised_bytes + ctx->peer[i].promised_records, 0);
    for (uint32_t k = 0; k < KEYS; k++)
        assert_false(pm_word_locked_bit(word_of(k)));
    struct cairn_stats s; /* nothing is measured from a time that nobody looked at */
    cairn_ctx_stats(ctx, &s);
    assert_true(cairn_histogram_quantile(s.commit_latency, 1) <= fs.fake.now_ns - begun_ns);
}

static void end_in_order(bool lost_completions)
{
    uint64_t limit_ns = fs.fake.now_ns + 30 * SECOND;

    while (told_late != 0) {
        play_nodes();
        (void)cairn_poll(fs.ctx);
        end_idle_clients(); /* before a sleep: lanes may wait for them */
        sleep_a_while(1);
        assert_true(fs.fake.now_ns < limit_ns);
    }
    end_idle_clients();
    for (uint32_t i = 0; i < 100; i++)
        (void)cairn_poll(fs.ctx);
    play_nodes();
    check_nothing_left(lost_completions);
}

static void run(void)
{
    state = seed * 77777;
    open_run();
    bool lost_completions = rate.silent != 0;
    begin_more = true;
    for (uint32_t left = 50 + draw(400); left > 0; left--) {
        step();
        for (uint32_t n = 0; n < 2; n++)
            fs.fake.node[n].silent = fs.fake.node[n].silent && !one_in(10);
        if (fs.ctx != NULL && one_in(2))
            (void)cairn_poll(fs.ctx);
    }
    calm_down();
    if (fs.ctx == NULL || one_in(3)) {
        uint64_t begin_ns = fs.fake.now_ns;
        cairn_ctx_close(&fs.ctx);
        assert_int_equal(told_late, 0);
        assert_true(fs.fake.now_ns - begin_ns < 60 * SECOND);
    } else
        end_in_order(lost_completions);
    fs.fake.on_post = NULL;
    ts_fs_close(&fs);
}

static void random_calls__all_are_told_and_nothing_is_left(void **unused)
{
    (void)unused;
    for (seed = first; seed < first + count; seed++)
        run();
}

static int say_seed(void **unused)
{
    (void)unused;
    if (seed != first + count)
        print_error("seed %llu\n", (unsigned long long)seed);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        first = strtoull(argv[1], NULL, 10);
        count = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_calls__all_are_told_and_nothing_is_left, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
