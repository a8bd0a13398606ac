/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: operations that are begun are told once, by polls alone, whatever `done` calls; bodies on
 * stacks of their own may call what they like; a context closes with anything under way.
 * Method: real context over the fake fabric with two nodes; the test breaks connections and keeps
 * nodes silent.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/support/ts_fake_store.h"

#define LANES 4u
#define KEYS 12u

static struct ts_fs fs;
static char key[KEYS][16]; /* of node 1, and the second half of node 2 */
static uint16_t break_node; /* its connection is lost at its next flush */
static enum rd_verdict verdict;

static int on_post(struct ts_fake *fake, const struct ts_fake_post *post)
{
    if (post->op == TS_FAKE_FLUSH && post->node == break_node) {
        break_node = 0;
        ts_fake_down(fake, post->node, CAIRN_E_NODE_DOWN);
    }
    return 0;
}

static void (*answer_rest)(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *head, const void *body);

static void answer(struct ts_fake *fake, struct ts_fake_conn *conn,
    const struct rd_message_wire *head, const void *body)
{
    if (le16_get(head->type) != RD_MSG_RESOLVE) {
        answer_rest(fake, conn, head, body);
        return;
    }
    struct rd_answer_wire reply = {.verdict = le32_make(verdict)};
    ts_fake_reply(fake, conn, head, RD_MSG_RESOLVE_REPLY, 0, &reply, sizeof(reply));
}

static int setup(void **state)
{
    (void)state;
    ts_fs_open_inflight(&fs, 2, 56, LANES);
    for (uint32_t i = 0; i < KEYS; i++) {
        ts_fs_key(&fs, i < KEYS / 2 ? 1 : 2, i % (KEYS / 2), key[i]);
        (void)ts_fs_add(&fs, key[i], "value");
    }
    break_node = 0;
    fs.fake.on_post = on_post;
    answer_rest = fs.fake.on_message;
    fs.fake.on_message = answer;
    return 0;
}
static int teardown(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 2; n++)
        fs.fake.node[n].silent = false;
    if (fs.ctx != NULL)
        cairn_ctx_close(&fs.ctx);
    ts_fs_close(&fs);
    return 0;
}

static struct cairn_tx *begin(void)
{
    struct cairn_tx *tx = NULL;

    assert_int_equal(cairn_begin(fs.ctx, &tx), 0);
    return tx;
}

static void get_async(struct cairn_tx *tx, uint32_t k, struct cairn_op *op)
{
    static char buf[KEYS][16];

    assert_int_equal(
        cairn_get_async(tx, 1, key[k], strlen(key[k]), buf[k], sizeof(buf[k]), op), 0);
}

static void put(struct cairn_tx *tx, uint32_t k)
{
    assert_int_equal(cairn_put(tx, 1, key[k], strlen(key[k]), "newer", 5), 0);
}

static int put_two(struct cairn_tx *tx, void *arg)
{
    uint32_t k = *(uint32_t *)arg;

    put(tx, k);
    put(tx, k + KEYS / 2);
    return 0;
}

/* ---- told by polls alone ---- */

struct chain {
    struct cairn_op op;
    struct cairn_tx *tx;
    uint32_t told, left;
    bool nested;
};

static void next_of_chain(struct cairn_op *op)
{
    struct chain *c = op->user;
    struct cairn_op before = *op;

    assert_int_equal(before.result, 0);
    c->told++;
    if (c->left == 0)
        return;
    c->left--;
    get_async(c->tx, c->told % KEYS, op);
    assert_int_equal(op->result, CAIRN_PENDING);
    if (c->nested)
        (void)cairn_poll(fs.ctx);
}

static void done__begins_the_next__one_after_another(void **state)
{
    struct chain c = {.left = 20};

    (void)state;
    c.tx = begin();
    c.op = (struct cairn_op){.done = next_of_chain, .user = &c};
    get_async(c.tx, 0, &c.op);
    assert_int_equal(c.told, 0);
    for (uint32_t i = 0; c.told < 21; i++) {
        assert_in_range(cairn_poll(fs.ctx), 0, 1);
        assert_true(i < 1000);
    }
    assert_int_equal(cairn_poll(fs.ctx), 0);
    cairn_abort(c.tx);
}

/* What is read of the transaction itself is done at once: no call may go on with that for ever. */
static void done__next_is_done_at_once__one_for_each_poll(void **state)
{
    struct chain c = {.left = 5};

    (void)state;
    c.tx = begin();
    for (uint32_t k = 0; k < KEYS; k++)
        put(c.tx, k);
    c.op = (struct cairn_op){.done = next_of_chain, .user = &c};
    get_async(c.tx, 0, &c.op);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(c.told, i); /* never inside the call that begins it */
        assert_int_equal(cairn_poll(fs.ctx), 1);
    }
    cairn_abort(c.tx);
}

static void done__polls_itself__each_is_told_once(void **state)
{
    struct chain c[LANES];

    (void)state;
    for (uint32_t i = 0; i < LANES; i++) {
        c[i] = (struct chain){.left = 10, .nested = true, .tx = begin()};
        c[i].op = (struct cairn_op){.done = next_of_chain, .user = &c[i]};
        get_async(c[i].tx, i, &c[i].op);
    }
    for (uint32_t i = 0; i < 1000; i++)
        (void)cairn_poll(fs.ctx);
    for (uint32_t i = 0; i < LANES; i++) {
        assert_int_equal(c[i].told, 11);
        cairn_abort(c[i].tx);
    }
}

static void wait_for_another(struct cairn_op *op)
{
    struct cairn_op other = {.done = NULL};
    char buf[2];

    assert_int_equal(cairn_get_async(op->user, 1, "none", 4, buf, 2, &other), 0);
    assert_int_equal(cairn_wait(fs.ctx, &other), CAIRN_E_NOT_FOUND);
    assert_string_equal(cairn_last_error(), "no such key");
}

static void wait__inside_done__both_have_their_text(void **state)
{
    struct cairn_tx *tx = begin(), *second = begin();
    struct cairn_op op = {.done = wait_for_another, .user = second};
    char buf[2];

    (void)state;
    assert_int_equal(cairn_get_async(tx, 1, key[0], strlen(key[0]), buf, 2, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_BUFFER_SIZE);
    assert_non_null(strstr(cairn_last_error(), "the value has 5 bytes, the buffer 2"));
    cairn_abort(tx);
    cairn_abort(second);
}

/* ---- bodies ---- */

static struct cairn_op begun_inside;

static int call_everything(struct cairn_tx *tx, void *arg)
{
    struct cairn_tx *other;
    enum cairn_outcome outcome;
    struct cairn_op op = {.done = NULL};
    char buf[16];
    size_t size;

    (void)arg;
    assert_int_equal(cairn_poll(fs.ctx), 0);
    assert_int_equal(cairn_arm(fs.ctx), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_STATE);
    assert_int_equal(cairn_commit_async(tx, &op), CAIRN_E_STATE);
    assert_int_equal(cairn_get(tx, 1, key[0], strlen(key[0]), buf, sizeof(buf), &size), 0);
    if (cairn_begin(fs.ctx, &other) == 0) { /* another one, of the same context */
        assert_ptr_not_equal(other, tx);
        put(other, 2);
        assert_int_equal(cairn_commit(other, &outcome), 0);
        assert_int_equal(outcome, CAIRN_OUTCOME_COMMITTED);
    }
    if (begun_inside.result == 0 && begun_inside.tries == 0) {
        static uint32_t four = 4;
        assert_int_equal(cairn_run_async(fs.ctx, put_two, &four, 1000, &begun_inside), 0);
    }
    put(tx, 1);
    return 0;
}

static void body__calls_everything__nothing_waits_for_itself(void **state)
{
    struct cairn_op op = {.done = NULL};

    (void)state;
    begun_inside = (struct cairn_op){.done = NULL};
    assert_int_equal(cairn_run_async(fs.ctx, call_everything, NULL, 1000, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), 0);
    assert_int_equal(op.outcome, CAIRN_OUTCOME_COMMITTED);
    assert_int_equal(cairn_wait(fs.ctx, &begun_inside), 0);
    assert_int_equal(begun_inside.outcome, CAIRN_OUTCOME_COMMITTED);
}

static int deep(struct cairn_tx *tx, void *arg)
{
    volatile uint8_t frame[CAIRN_STACK_SIZE - 4096];
    uint32_t zero = 0;

    (void)arg;
    for (uint32_t i = 0; i < sizeof(frame); i += 512)
        frame[i] = (uint8_t)i;
    int rc = put_two(tx, &zero); /* Cairn's own frames come on top */
    return rc + frame[0];
}

static void body__uses_its_whole_stack__runs(void **state)
{
    struct cairn_op op = {.done = NULL};

    (void)state;
    assert_int_equal(cairn_run_async(fs.ctx, deep, NULL, 1000, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), 0);
}

static int fail_with_text(struct cairn_tx *tx, void *arg)
{
    char buf[16];
    size_t size;

    (void)arg;
    return cairn_get(tx, 1, "none", 4, buf, sizeof(buf), &size);
}

static void run_async__body_fails__not_run_again(void **state)
{
    struct cairn_op op = {.done = NULL};

    (void)state;
    assert_int_equal(cairn_run_async(fs.ctx, fail_with_text, NULL, 1000, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_NOT_FOUND);
    assert_string_equal(cairn_last_error(), "no such key");
    assert_int_equal(op.outcome, CAIRN_OUTCOME_ABORTED);
    assert_int_equal(op.tries, 1);
}

static void run_async__lock_of_an_open_one__ends_at_its_time(void **state)
{
    struct cairn_op op = {.done = NULL};
    struct cairn_tx *tx = begin();
    char buf[16];
    size_t size;
    uint32_t k = 0;

    (void)state;
    assert_int_equal(
        cairn_get_for_update(tx, 1, key[0], strlen(key[0]), buf, sizeof(buf), &size), 0);
    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k, 100, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_TIMEOUT);
    assert_int_equal(op.outcome, CAIRN_OUTCOME_ABORTED);
    assert_true(op.tries > 1);
    cairn_abort(tx);
}

/* ---- unknown ---- */

static void run_async__unknown__becomes_a_verdict(void **state)
{
    struct cairn_op op = {.done = NULL};
    uint32_t k = 0;

    (void)state;
    for (uint32_t round = 0; round < 2; round++) {
        verdict = round == 0 ? RD_VERDICT_COMMITTED : RD_VERDICT_IN_DOUBT;
        break_node = 2;
        k = 2 * round;
        assert_int_equal(cairn_run_async(fs.ctx, put_two, &k, 100, &op), 0);
        int rc = cairn_wait(fs.ctx, &op);
        assert_int_equal(rc, round == 0 ? 0 : CAIRN_E_IN_DOUBT);
        assert_int_equal(
            op.outcome, round == 0 ? CAIRN_OUTCOME_COMMITTED : CAIRN_OUTCOME_UNKNOWN);
        assert_int_equal(op.token[0] != '\0', round == 1);
    }
}

static void commit_async__unknown__has_its_token(void **state)
{
    struct cairn_op op = {.done = NULL};
    struct cairn_tx *tx = begin();
    enum cairn_outcome outcome;
    char token[CAIRN_TOKEN_SIZE];

    (void)state;
    put(tx, 0);
    put(tx, KEYS / 2);
    break_node = 2;
    assert_int_equal(cairn_commit_async(tx, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), 0);
    assert_int_equal(op.outcome, CAIRN_OUTCOME_UNKNOWN);
    assert_int_equal(cairn_ctx_token(fs.ctx, token), 0);
    assert_string_equal(op.token, token);
    verdict = RD_VERDICT_ABORTED;
    assert_int_equal(cairn_resolve(fs.ctx, op.token, &outcome), 0);
    assert_int_equal(outcome, CAIRN_OUTCOME_ABORTED);
}

/* Of two that are cut off together each has its own. */
static void run_async__two_unknown__each_asks_for_its_own(void **state)
{
    struct cairn_op op[2] = {{.done = NULL}};
    uint32_t k[2] = {0, 2};

    (void)state;
    verdict = RD_VERDICT_IN_DOUBT;
    struct cairn_tx *tx = begin(); /* so that both log in the same turn */
    for (uint32_t i = 0; i < KEYS; i++) {
        struct cairn_op get = {.done = NULL};
        get_async(tx, i, &get);
        assert_int_equal(cairn_wait(fs.ctx, &get), 0);
    }
    cairn_abort(tx);
    break_node = 2;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(cairn_run_async(fs.ctx, put_two, &k[i], 300, &op[i]), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(cairn_wait(fs.ctx, &op[i]), CAIRN_E_IN_DOUBT);
        assert_int_equal(op[i].outcome, CAIRN_OUTCOME_UNKNOWN);
    }
    assert_string_not_equal(op[0].token, op[1].token);
    assert_int_equal(fs.ctx->lanes, 0);
}

/* ---- the end of a context ---- */

static uint32_t told;

static void begin_more(struct cairn_op *op)
{
    uint32_t *k = op->user;
    static struct cairn_op more;

    told++;
    assert_int_equal(cairn_run_async(fs.ctx, put_two, k, 100, &more), CAIRN_E_STATE);
}

static void ctx_close__node_silent__all_are_told_and_nothing_begins(void **state)
{
    static uint32_t k[LANES] = {0, 1, 2, 3};
    struct cairn_op op[LANES];
    uint64_t begin_ns = fs.fake.now_ns;

    (void)state;
    told = 0;
    fs.fake.node[1].silent = true;
    for (uint32_t i = 0; i + 1 < LANES; i++) {
        op[i] = (struct cairn_op){.done = begin_more, .user = &k[i]};
        assert_int_equal(cairn_run_async(fs.ctx, put_two, &k[i], 60000, &op[i]), 0);
    }
    struct cairn_tx *tx = begin(); /* left open */
    put(tx, 4);
    cairn_ctx_close(&fs.ctx);
    assert_int_equal(told, LANES - 1);
    for (uint32_t i = 0; i + 1 < LANES; i++)
        assert_true(op[i].result < 0);
    assert_true(fs.fake.now_ns - begin_ns < UINT64_C(20000000000));
}

/* Nobody but its caller ends a transaction that it has left open, and that is only behind the
 * lanes: none of them waits for that. */
static void close_beside_one_that_waits(void)
{
    struct cairn_op op = {.done = NULL};
    static uint32_t k = 1;
    uint64_t begin_ns = fs.fake.now_ns;

    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k, 600000, &op), 0);
    assert_int_equal(cairn_poll(fs.ctx), 0);
    cairn_ctx_close(&fs.ctx);
    assert_int_equal(op.result, CAIRN_E_STATE);
    assert_true(fs.fake.now_ns - begin_ns < UINT64_C(1000000000));
}

static void read_one(struct cairn_tx *tx, uint32_t k)
{
    char buf[16];
    size_t size;

    assert_int_equal(cairn_get(tx, 1, key[k], strlen(key[k]), buf, sizeof(buf), &size), 0);
}

static void ctx_close__session_lost_and_one_left_open__no_lane_waits_for_it(void **state)
{
    (void)state;
    read_one(begin(), 0);
    ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
    (void)cairn_poll(fs.ctx);
    close_beside_one_that_waits();
}

static void ctx_close__token_taken_and_left_open__no_lane_waits_for_it(void **state)
{
    struct cairn_tx *tx = begin();
    char token[CAIRN_TOKEN_SIZE];

    (void)state;
    put(tx, 0);
    assert_int_equal(cairn_tx_token(tx, token), 0);
    close_beside_one_that_waits();
}

static void close_it(struct cairn_op *op)
{
    (void)op;
    told++;
    cairn_ctx_close(&fs.ctx);
}

static void close_through_another(struct cairn_op *op)
{
    struct cairn_ctx *ctx = fs.ctx;

    (void)op;
    told++;
    cairn_ctx_close(&ctx);
    assert_null(ctx);
}

static void start_four(struct cairn_op op[LANES], void (*done)(struct cairn_op *op))
{
    static uint32_t k[LANES] = {0, 1, 2, 3};

    told = 0;
    for (uint32_t i = 0; i < LANES; i++) {
        op[i] = (struct cairn_op){.done = done};
        assert_int_equal(cairn_run_async(fs.ctx, put_two, &k[i], 1000, &op[i]), 0);
    }
}

static void done__closes_the_context__all_are_told_and_the_poll_returns(void **state)
{
    struct cairn_op op[LANES];

    (void)state;
    start_four(op, close_it);
    while (cairn_poll(fs.ctx) == 0)
        ;
    assert_null(fs.ctx);
    assert_int_equal(told, LANES);
    for (uint32_t i = 0; i < LANES; i++)
        assert_int_not_equal(op[i].result, CAIRN_PENDING);
}

static void done__closes_the_context__the_wait_has_its_result(void **state)
{
    struct cairn_op op[LANES];

    (void)state;
    start_four(op, close_it);
    int rc = cairn_wait(fs.ctx, &op[LANES - 1]);
    assert_null(fs.ctx);
    assert_int_equal(rc, op[LANES - 1].result);
}

static void ctx_close__closed_by_what_it_tells__once(void **state)
{
    struct cairn_op op[LANES];

    (void)state;
    start_four(op, close_through_another);
    cairn_ctx_close(&fs.ctx);
    assert_null(fs.ctx);
    assert_int_equal(told, LANES);
}

/* ---- of each other ---- */

static struct {
    int rc;
    uint64_t took_ns;
} second;

static int begin_second(struct cairn_tx *tx, void *arg)
{
    struct cairn_tx *other;
    char buf[16];
    size_t size;

    (void)arg;
    read_one(tx, 0);
    ts_fake_down(&fs.fake, 1, CAIRN_E_NODE_DOWN);
    int rc = cairn_get(tx, 1, key[1], strlen(key[1]), buf, sizeof(buf), &size);
    uint64_t begin_ns = fs.fake.now_ns;
    second.rc = cairn_begin(fs.ctx, &other);
    second.took_ns = fs.fake.now_ns - begin_ns;
    return rc;
}

/* It would wait for the end of its own. */
static void body__begins_another_behind_a_loss__refused_at_once(void **state)
{
    struct cairn_op op = {.done = NULL};

    (void)state;
    assert_int_equal(cairn_run_async(fs.ctx, begin_second, NULL, 60000, &op), 0);
    assert_int_equal(cairn_wait(fs.ctx, &op), CAIRN_E_NODE_DOWN);
    assert_int_equal(second.rc, CAIRN_E_NODE_DOWN);
    assert_true(second.took_ns < 1000000);
}

static struct cairn_op later;
static uint64_t later_ns;

static void begin_later(struct cairn_op *op)
{
    static uint32_t k = 2;

    (void)op;
    later = (struct cairn_op){.done = NULL};
    later_ns = fs.fake.now_ns;
    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k, 60000, &later), 0);
}

/* Two share a try to connect; when the first has given up a third begins the next one, of which the
 * second, whose time is up a little later, knows nothing. */
static void connect__joined_by_one_whose_time_is_up__goes_on(void **state)
{
    static uint32_t k[2] = {0, 1};
    struct cairn_op first = {.done = begin_later}, joins = {.done = NULL};

    (void)state;
    fs.fake.node[0].silent = true;
    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k[0], 60000, &first), 0);
    fs.fake.now_ns += 5000000;
    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k[1], 60000, &joins), 0);
    assert_int_equal(cairn_wait(fs.ctx, &joins), CAIRN_E_TIMEOUT);
    assert_int_equal(first.result, CAIRN_E_TIMEOUT);
    assert_int_equal(cairn_wait(fs.ctx, &later), CAIRN_E_TIMEOUT);
    assert_true(fs.fake.now_ns - later_ns >= UINT64_C(1990000000));
}

/* What a transaction of the caller's gives back when it ends, a lane may wait for. */
static void abort__had_taken_its_token__lane_that_waited_goes_on(void **state)
{
    struct cairn_tx *tx = begin();
    struct cairn_op op = {.done = NULL};
    char token[CAIRN_TOKEN_SIZE];
    uint32_t k = 1;

    (void)state;
    put(tx, 0);
    assert_int_equal(cairn_tx_token(tx, token), 0);
    assert_int_equal(cairn_run_async(fs.ctx, put_two, &k, 60000, &op), 0);
    (void)cairn_poll(fs.ctx);
    cairn_abort(tx);
    for (uint32_t i = 0; i < 200 && op.result == CAIRN_PENDING; i++) {
        (void)cairn_poll(fs.ctx);
        assert_true(op.result != CAIRN_PENDING || cairn_arm(fs.ctx) == 0); /* would sleep */
    }
    assert_int_equal(op.result, 0);
}

int main(void)
{
#define ASYNC_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        ASYNC_TEST(done__begins_the_next__one_after_another),
        ASYNC_TEST(done__next_is_done_at_once__one_for_each_poll),
        ASYNC_TEST(done__polls_itself__each_is_told_once),
        ASYNC_TEST(wait__inside_done__both_have_their_text),
        ASYNC_TEST(body__calls_everything__nothing_waits_for_itself),
        ASYNC_TEST(body__uses_its_whole_stack__runs),
        ASYNC_TEST(run_async__body_fails__not_run_again),
        ASYNC_TEST(run_async__lock_of_an_open_one__ends_at_its_time),
        ASYNC_TEST(run_async__unknown__becomes_a_verdict),
        ASYNC_TEST(commit_async__unknown__has_its_token),
        ASYNC_TEST(run_async__two_unknown__each_asks_for_its_own),
        ASYNC_TEST(ctx_close__node_silent__all_are_told_and_nothing_begins),
        ASYNC_TEST(ctx_close__session_lost_and_one_left_open__no_lane_waits_for_it),
        ASYNC_TEST(ctx_close__token_taken_and_left_open__no_lane_waits_for_it),
        ASYNC_TEST(done__closes_the_context__all_are_told_and_the_poll_returns),
        ASYNC_TEST(done__closes_the_context__the_wait_has_its_result),
        ASYNC_TEST(ctx_close__closed_by_what_it_tells__once),
        ASYNC_TEST(body__begins_another_behind_a_loss__refused_at_once),
        ASYNC_TEST(connect__joined_by_one_whose_time_is_up__goes_on),
        ASYNC_TEST(abort__had_taken_its_token__lane_that_waited_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
