/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an answer that finds its connection's queue full waits its turn; only who takes none of
 * many, or whose connection is broken, is cut off. Method: a connection of this test's own that has
 * room as told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "recovery/rec_internal.h"

static uint32_t room, sent;
static int broken;
static uint32_t sent_id[256];

static int send_message(struct rd_conn *conn, const void *message, uint32_t size)
{
    struct rd_message_wire head;

    (void)conn;
    assert_int_equal(rd_wire_check(message, size), 0);
    if (broken != 0)
        return cn_fail(broken, "broken");
    if (room == 0)
        return cn_fail(CAIRN_E_AGAIN, "full");
    room--;
    memcpy(&head, message, sizeof(head));
    sent_id[sent++] = le32_get(head.id);
    return 0;
}

static void say_nothing(void *arg, enum cn_log_level level, const char *text)
{
    (void)arg;
    (void)level;
    (void)text;
}

static const struct rd_ops ops = {.send = send_message};
static const struct cn_env env = {.log = say_nothing};
static struct rd_conn conn = {.ops = &ops};
static struct rec_node node;
static struct rec_guest guest;

static int setup(void **state)
{
    (void)state;
    room = sent = 0;
    broken = 0;
    memset(&node, 0, sizeof(node));
    memset(&guest, 0, sizeof(guest));
    node.env = &env;
    node.guests = &guest;
    guest.link.conn = &conn;
    return 0;
}

static void answer(uint32_t id)
{
    rec_reply(&node, &guest, RD_MSG_ROOM_REPLY, id, 0, NULL, 0);
}

static void rec_reply__room__goes_at_once(void **state)
{
    (void)state;
    room = 2;
    answer(1);
    answer(2);
    assert_int_equal(sent, 2);
    assert_int_equal(rec_reply_turn(&node), 0);
    assert_null(guest.replies);
}

static void rec_reply__queue_full__later_and_in_order(void **state)
{
    (void)state;
    room = 1;
    answer(1);
    answer(2);
    answer(3);
    assert_int_equal(rec_reply_turn(&node), 0);
    room = 1;
    answer(4); /* does not overtake the ones that wait */
    assert_int_equal(sent, 1);
    assert_int_equal(rec_reply_turn(&node), 1);
    room = 5;
    assert_int_equal(rec_reply_turn(&node), 2);
    answer(5);
    assert_int_equal(sent, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(sent_id[i], i + 1);
    assert_false(guest.doomed);
    assert_int_equal(guest.reply_count, 0);
}

static void rec_reply__takes_none_of_many__cut_off(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < REC_REPLIES_MAX; i++)
        answer(i);
    assert_false(guest.doomed);
    answer(99);
    assert_true(guest.doomed);
    room = 100;
    assert_int_equal(rec_reply_turn(&node), 0); /* nothing more goes there */
    rec_reply_forget(&guest);
    assert_null(guest.replies);
    assert_int_equal(guest.reply_count, 0);
}

static void rec_reply__connection_broken__cut_off(void **state)
{
    (void)state;
    broken = CAIRN_E_NODE_DOWN;
    answer(1);
    assert_true(guest.doomed);
    guest.doomed = false;
    broken = 0;
    answer(2); /* waits */
    broken = CAIRN_E_NODE_DOWN;
    assert_int_equal(rec_reply_turn(&node), 0);
    assert_true(guest.doomed);
    rec_reply_forget(&guest);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        CASE(rec_reply__room__goes_at_once),
        CASE(rec_reply__queue_full__later_and_in_order),
        CASE(rec_reply__takes_none_of_many__cut_off),
        CASE(rec_reply__connection_broken__cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
