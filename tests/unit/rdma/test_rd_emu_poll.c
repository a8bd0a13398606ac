/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a completion tells the truth about the fence, and events of a connection keep their order.
 * Method: both ends in one thread; the fence word is set by hand between post and poll.
 * Invariants: RD_EV_DOWN comes once, behind all completions of its connection.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

static void post_all(struct t_net *f)
{
    uint64_t *old = (uint64_t *)(void *)f->arena;
    T_CHECK(rd_read(f->c, 1, T_EXTENT_OFF, f->arena + 64, 64, RD_SIGNALED) == 0);
    T_CHECK(rd_cas(f->c, 2, T_EXTENT_OFF, 1, 2, old, RD_SIGNALED) == 0);
    T_CHECK(rd_write(f->c, 3, T_LOG_OFF, f->log, 64, RD_SIGNALED) == 0);
    T_CHECK(rd_flush(f->c, 4, T_LOG_OFF, 64, RD_SIGNALED) == 0);
    T_CHECK(rd_mark(f->c, 5, T_LOG_OFF, 1, RD_SIGNALED) == 0);
}

static void poll__fence_set_behind_the_posts__all_complete_fenced(void **state)
{
    struct t_net *f = *state;
    struct rd_event events[8];
    post_all(f);
    t_store(&f->pool, T_RING_OFF, 1);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 6);
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(events[i].type, RD_EV_COMPLETION);
        assert_int_equal(events[i].wr_id, i + 1);
        assert_int_equal(events[i].status, CAIRN_E_FENCED);
    }
    assert_int_equal(events[5].type, RD_EV_DOWN);
    assert_int_equal(events[5].status, CAIRN_E_FENCED);
    assert_int_equal(rd_read(f->c, 6, T_EXTENT_OFF, f->arena, 8, 0), CAIRN_E_FENCED);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 0);
}

static void poll__fence_set_between_two_polls__the_rest_completes_fenced(void **state)
{
    struct t_net *f = *state;
    struct rd_event events[8];
    post_all(f);
    assert_int_equal(rd_poll(f->peer.ep, events, 3), 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(events[i].status, 0);
    t_store(&f->pool, T_RING_OFF, 1);
    assert_int_equal(rd_poll(f->peer.ep, events, 1), 1);
    assert_int_equal(events[0].wr_id, 4);
    assert_int_equal(events[0].status, CAIRN_E_FENCED);
    assert_int_equal(rd_poll(f->peer.ep, events, 1), 1); /* not yet the end of the connection */
    assert_int_equal(events[0].type, RD_EV_COMPLETION);
    assert_int_equal(events[0].status, CAIRN_E_FENCED);
    assert_int_equal(t_expect(f->peer.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
}

static void poll__one_event_at_a_time__end_comes_behind_completions(void **state)
{
    struct t_net *f = *state;
    post_all(f);
    rd_conn_delete(f->passive);
    const struct timespec pause = {.tv_nsec = 1000000};
    struct emu_ep *ep = emu_ep(f->peer.ep);
    while (__atomic_load_n(&ep->head, __ATOMIC_ACQUIRE) == ep->taken)
        (void)nanosleep(&pause, NULL); /* the watcher has told the end */
    for (uint64_t i = 1; i <= 5; i++) {
        struct rd_event event = t_expect(f->peer.ep, RD_EV_COMPLETION);
        assert_int_equal(event.wr_id, i);
        assert_int_equal(event.status, 0);
    }
    struct rd_event event = t_expect(f->peer.ep, RD_EV_DOWN);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
}

/* The barrier is poll's: of all that was written since the last one, and only then. */
static void poll__written_something__ordered_once(void **state)
{
    struct t_net *f = *state;
    struct emu_ep *ep = emu_ep(f->peer.ep);
    struct rd_event events[8];
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED), 0);
    assert_false(ep->unordered);
    assert_int_equal(rd_write(f->c, 2, T_LOG_OFF, f->log, 64, 0), 0);
    assert_true(ep->unordered);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 1);
    assert_false(ep->unordered);
    assert_int_equal(rd_flush(f->c, 3, T_LOG_OFF, 64, 0), 0);
    assert_true(ep->unordered);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 0); /* nothing is promised */
    assert_int_equal(rd_mark(f->c, 4, T_LOG_OFF, 64, RD_SIGNALED), 0);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 1);
    assert_false(ep->unordered);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, t_net_setup, t_net_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(poll__fence_set_behind_the_posts__all_complete_fenced),
        CASE(poll__fence_set_between_two_polls__the_rest_completes_fenced),
        CASE(poll__one_event_at_a_time__end_comes_behind_completions),
        CASE(poll__written_something__ordered_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
