/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a compare-and-swap of a node on its own memory that does not come back costs the connection
 * it went over, so that a late completion never lands in the word of a later one. Method: a fabric
 * of this test's own that holds operations back, and completes them late into where they point,
 * unless their connection is deleted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recovery/rec_internal.h"

enum answer { ANSWER_NOW, ANSWER_NEVER, ANSWER_ERROR, ANSWER_STRAY_FIRST, ANSWER_DOWN };

struct slow {
    struct rd_ep ep;
    struct rd_conn conn[8];
    uint32_t made, deleted;
    enum answer answer;
    int loopback_error, cas_error;
    struct { /* held back */
        uint64_t wr_id, *old;
        struct rd_conn *conn;
    } held;
    struct rd_event event[4];
    uint32_t event_count;
    uint64_t now_ns, sleeps;
    uint64_t word;         /* the memory */
    uint64_t arena[8];
};

static struct slow slow;

static uint64_t now_ns(void *arg)
{
    (void)arg;
    return slow.now_ns += 1000;
}

static void say_nothing(void *arg, enum cn_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static const struct cn_env env = {.now_ns = now_ns, .log = say_nothing};

static void *memory(struct rd_ep *ep)
{
    (void)ep;
    return slow.arena;
}

static void push(struct rd_event event)
{
    slow.event[slow.event_count++] = event;
}

static uint32_t take(struct rd_ep *ep, struct rd_event *events, uint32_t max)
{
    (void)ep;
    (void)max;
    if (slow.event_count == 0)
        return 0;
    *events = slow.event[0];
    slow.event_count--;
    memmove(slow.event, slow.event + 1, slow.event_count * sizeof(slow.event[0]));
    return 1;
}

static void arm(struct rd_ep *ep)
{
    (void)ep;
}

static void doze(struct rd_ep *ep, uint64_t deadline_ns)
{
    (void)ep;
    slow.sleeps++;
    slow.now_ns = cn_max64(slow.now_ns, deadline_ns);
}

static const struct rd_ops ops;

static int loopback(struct rd_ep *ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn)
{
    (void)regions;
    (void)region_count;
    if (slow.loopback_error != 0)
        return cn_fail(slow.loopback_error, "no loopback");
    struct rd_conn *conn = &slow.conn[slow.made++];
    *conn = (struct rd_conn){.ops = &ops, .ep = ep};
    *ret_conn = conn;
    return 0;
}

static void conn_delete(struct rd_conn *conn)
{
    slow.deleted++;
    if (slow.held.conn == conn)
        slow.held.conn = NULL; /* nothing of it moves any more */
    slow.event_count = 0;
}

/* What was held back comes after all. */
static void come_late(void)
{
    if (slow.held.conn == NULL)
        return;
    *slow.held.old = 0xdead;
    push((struct rd_event){
        .type = RD_EV_COMPLETION, .conn = slow.held.conn, .wr_id = slow.held.wr_id});
    slow.held.conn = NULL;
}

static int cas(struct rd_conn *conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct rd_event done = {.type = RD_EV_COMPLETION, .conn = conn, .wr_id = wr_id};

    (void)remote;
    assert_int_equal(flags, RD_SIGNALED);
    if (slow.cas_error != 0)
        return cn_fail(slow.cas_error, "down");
    switch (slow.answer) {
    case ANSWER_NEVER:
        slow.held.wr_id = wr_id;
        slow.held.old = local_old;
        slow.held.conn = conn;
        return 0;
    case ANSWER_ERROR: done.status = CAIRN_E_FABRIC; break;
    case ANSWER_DOWN:
        done = (struct rd_event){.type = RD_EV_DOWN, .conn = conn, .status = CAIRN_E_FABRIC,
            .text = "the port is off"};
        break;
    case ANSWER_STRAY_FIRST:
        push((struct rd_event){.type = RD_EV_COMPLETION, .conn = conn, .wr_id = wr_id - 1});
        break;
    case ANSWER_NOW: break;
    }
    if (done.status == 0) {
        *local_old = slow.word;
        if (slow.word == expected)
            slow.word = desired;
    }
    push(done);
    return 0;
}

static const struct rd_ops ops = {
    .name = "slow",
    .ep_memory = memory,
    .poll = take,
    .ep_arm = arm,
    .ep_sleep = doze,
    .loopback = loopback,
    .conn_delete = conn_delete,
    .cas = cas,
};

static struct txn_config config;
static struct rec_node node;

static int setup(void **state)
{
    (void)state;
    memset(&slow, 0, sizeof(slow));
    memset(&node, 0, sizeof(node));
    slow.ep.ops = &ops;
    slow.now_ns = 1;
    node = (struct rec_node){.id = 1, .config = &config, .env = &env, .loop_ep = &slow.ep};
    assert_int_equal(rd_loopback(node.loop_ep, node.extent, 0, &node.loop), 0);
    return 0;
}

static void rec_loop_cas__answers__old_value(void **state)
{
    uint64_t old = 99;

    (void)state;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 5, &old), 0);
    assert_int_equal(old, 0);
    slow.answer = ANSWER_STRAY_FIRST; /* of an operation before: not taken for this one's */
    assert_int_equal(rec_loop_cas(&node, 64, 4, 6, &old), 0);
    assert_int_equal(old, 5);
    assert_int_equal(slow.word, 5);
    assert_int_equal(slow.made, 1);
    assert_int_equal(slow.deleted, 0);
}

static void rec_loop_cas__late_completion__never_in_a_later_word(void **state)
{
    uint64_t old = 99;

    (void)state;
    slow.word = 5;
    slow.answer = ANSWER_NEVER;
    assert_int_equal(rec_loop_cas(&node, 64, 5, 6, &old), CAIRN_E_TIMEOUT);
    assert_int_equal(old, 99);
    assert_true(slow.sleeps >= 1);
    assert_int_equal(slow.made, 2); /* deleted and made anew */
    assert_int_equal(slow.deleted, 1);
    assert_ptr_equal(node.loop, &slow.conn[1]);
    come_late();
    slow.answer = ANSWER_NOW;
    assert_int_equal(rec_loop_cas(&node, 64, 5, 7, &old), 0);
    assert_int_equal(old, 5);
    assert_int_equal(slow.word, 7);
    assert_int_equal(slow.arena[0], 5);
}

static void rec_loop_cas__fails__made_anew_with_its_words(void **state)
{
    uint64_t old = 99;

    (void)state;
    slow.answer = ANSWER_ERROR;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_FABRIC);
    slow.answer = ANSWER_DOWN;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "the port is off"));
    slow.cas_error = CAIRN_E_NODE_DOWN;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_NODE_DOWN);
    assert_int_equal(slow.made, 4);
    assert_int_equal(slow.deleted, 3);
    slow.cas_error = CAIRN_E_FABRIC; /* outside of what is granted: nothing wrong with it */
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_FABRIC);
    assert_int_equal(slow.made, 4);
    assert_int_equal(old, 99);
}

static void rec_loop_cas__cannot_be_made_anew__tried_at_the_next(void **state)
{
    uint64_t old = 99;

    (void)state;
    slow.answer = ANSWER_NEVER;
    slow.loopback_error = CAIRN_E_FABRIC;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_TIMEOUT);
    assert_null(node.loop);
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), CAIRN_E_FABRIC);
    slow.loopback_error = 0;
    slow.answer = ANSWER_NOW;
    assert_int_equal(rec_loop_cas(&node, 64, 0, 6, &old), 0);
    assert_int_equal(old, 0);
    assert_int_equal(slow.word, 6);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        CASE(rec_loop_cas__answers__old_value),
        CASE(rec_loop_cas__late_completion__never_in_a_later_word),
        CASE(rec_loop_cas__fails__made_anew_with_its_words),
        CASE(rec_loop_cas__cannot_be_made_anew__tried_at_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
