/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: with a model of a network completions come exactly when they are due, in post order, and
 * waiting for them costs what the clock says.
 * Method: the clock is the test's; it moves only when told, or skipped.
 * Invariants: operations take effect when they are posted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

#define RTT 2000u
#define MBPS 8000u /* a byte in a nanosecond */
#define HEADER 82u /* of one packet */

static struct {
    uint64_t now; /* atomic: the watcher looks too */
    uint64_t skipped;
    uint32_t skips;
} clock_;

static uint64_t get_now(void *arg)
{
    (void)arg;
    return __atomic_load_n(&clock_.now, __ATOMIC_RELAXED);
}

static void pass(uint64_t ns)
{
    __atomic_fetch_add(&clock_.now, ns, __ATOMIC_RELAXED);
}

static void skip_time(void *arg, uint64_t ns)
{
    (void)arg;
    pass(ns);
    clock_.skipped += ns;
    clock_.skips++;
}

static const struct rd_fabric_config model = {.model_rtt_ns = RTT, .model_mbps = MBPS};

static void open_pair(struct t_net *f, const struct rd_fabric_config *config)
{
    f->env = *cn_env_system();
    f->env.now_ns = get_now;
    clock_.now = t_now();
    clock_.skipped = clock_.skips = 0;
    t_net_open(f, 2, config);
    t_net_pair(f);
}

static int setup(void **state)
{
    struct t_net *f = calloc(1, sizeof(*f));
    open_pair(f, &model);
    *state = f;
    return 0;
}

static int setup_skip(void **state)
{
    (void)setup(state);
    struct t_net *f = *state;
    f->env.skip = skip_time;
    return 0;
}

static void expect_nothing(struct t_net *f)
{
    struct rd_event event;
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 0);
}

static void expect(struct t_net *f, uint64_t wr_id)
{
    struct rd_event event;
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_COMPLETION);
    assert_int_equal(event.wr_id, wr_id);
    assert_int_equal(event.status, 0);
}

static void poll__one_read__due_after_trip_and_bytes(void **state)
{
    struct t_net *f = *state;
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED), 0);
    expect_nothing(f);
    pass(RTT + HEADER + 64 - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 1);
    expect_nothing(f);
}

static void post__each_kind__takes_effect_at_once(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    memset(f->log, 7, 64);
    t_store(&f->pool, T_EXTENT_OFF, 3);
    assert_int_equal(rd_cas(f->c, 1, T_EXTENT_OFF, 3, 4, old, RD_SIGNALED), 0);
    assert_int_equal(rd_write(f->c, 2, T_LOG_OFF, f->log, 64, 0), 0);
    assert_int_equal(rd_mark(f->c, 3, T_LOG_OFF + 64, 9, 0), 0);
    expect_nothing(f);
    assert_int_equal(t_load(&f->pool, T_EXTENT_OFF), 4);
    assert_int_equal(f->pool.base[T_LOG_OFF + 63], 7);
    assert_int_equal(t_load(&f->pool, T_LOG_OFF + 64), 9);
}

/* One port: bytes go one after the other, signaled or not, and trips overlap. */
static void post__several__queue_at_the_port(void **state)
{
    struct t_net *f = *state;
    uint64_t *old = (uint64_t *)(void *)f->arena;
    assert_int_equal(rd_cas(f->c, 1, T_EXTENT_OFF, 0, 1, old, RD_SIGNALED | RD_MORE), 0);
    assert_int_equal(rd_read(f->c, 2, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED), 0);
    assert_int_equal(rd_write(f->c, 3, T_LOG_OFF, f->log, 5000, RD_MORE), 0); /* two packets */
    assert_int_equal(rd_flush(f->c, 4, T_LOG_OFF, 5000, RD_SIGNALED), 0);
    const uint64_t first = HEADER + 8, second = first + HEADER + 64;
    const uint64_t last = second + 2 * HEADER + 5000 + HEADER + 8;
    pass(RTT + first - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 1);
    pass(second - first - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 2);
    pass(last - second - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 4);
    assert_int_equal(rd_read(f->c, 5, T_EXTENT_OFF, f->arena, 1, RD_SIGNALED), 0); /* port idle */
    pass(RTT + HEADER + 1 - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 5);
}

static void poll__some_due__these_alone_in_order(void **state)
{
    struct t_net *f = *state;
    struct rd_event events[8];
    for (uint64_t i = 0; i < 6; i++) {
        assert_int_equal(rd_read(f->c, i, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
        pass(1000);
    } /* due at 2100, 3100 ...; now it is 6000 */
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(events[i].wr_id, i);
    assert_int_equal(rd_read(f->c, 6, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    pass(1100);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 2);
    assert_int_equal(events[1].wr_id, 5);
}

static void poll__rate_that_does_not_divide__no_time_is_lost(void **state)
{
    struct t_net *f = calloc(1, sizeof(*f));
    const struct rd_fabric_config slow = {.model_mbps = 24000}; /* a third of a nanosecond */
    (void)state;
    open_pair(f, &slow);
    for (uint64_t i = 0; i < 3; i++) /* 100 bytes each: 300 in all */
        assert_int_equal(
            rd_read(f->c, i, T_EXTENT_OFF, f->arena, 100 - HEADER, RD_SIGNALED), 0);
    pass(99);
    expect(f, 0);
    expect(f, 1);
    expect_nothing(f);
    pass(1);
    expect(f, 2);
    void *end = f;
    (void)t_net_teardown(&end);
}

static void poll__trip_alone__bytes_take_no_time(void **state)
{
    struct t_net *f = calloc(1, sizeof(*f));
    const struct rd_fabric_config config = {.model_rtt_ns = 500};
    (void)state;
    open_pair(f, &config);
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 4096, RD_SIGNALED), 0);
    assert_int_equal(rd_read(f->c, 2, T_EXTENT_OFF, f->arena, 4096, RD_SIGNALED), 0);
    pass(499);
    expect_nothing(f);
    pass(1);
    expect(f, 1);
    expect(f, 2);
    void *end = f;
    (void)t_net_teardown(&end);
}

static void poll__clock_can_be_skipped__skips_to_the_first_due(void **state)
{
    struct t_net *f = *state;
    struct rd_event events[8];
    expect_nothing(f);
    assert_int_equal(clock_.skips, 0); /* nothing outstanding: time is left alone */
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    pass(40);
    assert_int_equal(rd_read(f->c, 2, T_EXTENT_OFF, f->arena, 118, RD_SIGNALED), 0);
    assert_int_equal(rd_poll(f->peer.ep, events, 0), 0); /* asks for nothing */
    assert_int_equal(clock_.skips, 0);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 1);
    assert_int_equal(events[0].wr_id, 1);
    assert_int_equal(clock_.skipped, RTT + 100 - 40);
    assert_int_equal(rd_poll(f->peer.ep, events, 8), 1);
    assert_int_equal(events[0].wr_id, 2);
    assert_int_equal(clock_.skipped, RTT + 100 - 40 + 200);
    assert_int_equal(clock_.skips, 2);
    expect_nothing(f);
    assert_int_equal(clock_.skips, 2);
}

/* Wait by the clock of the machine for the watcher's next notice. */
static void await_notice(struct t_net *f)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct emu_ep *ep = emu_ep(f->peer.ep);
    while (__atomic_load_n(&ep->head, __ATOMIC_ACQUIRE) == ep->model.seen)
        (void)nanosleep(&pause, NULL);
}

static void poll__message_from_a_node__one_trip_after_it_is_seen(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    assert_int_equal(rd_send(f->c, "ask", 3), 0);
    event = t_expect(f->node.ep, RD_EV_MESSAGE); /* the passive end is not held up */
    assert_int_equal(rd_send(event.conn, "answer", 6), 0);
    await_notice(f);
    pass(10000);
    expect_nothing(f);
    pass(RTT - 1);
    expect_nothing(f);
    pass(1);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_MESSAGE);
    assert_memory_equal(event.data, "answer", 6);
}

static void poll__message_and_skip__skips_one_trip(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    assert_int_equal(rd_send(f->passive, "news", 4), 0);
    await_notice(f);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_MESSAGE);
    assert_int_equal(clock_.skipped, RTT);
}

static void poll__connection_lost__told_behind_what_is_outstanding(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    rd_conn_delete(f->passive);
    await_notice(f);
    expect_nothing(f);
    pass(RTT + 100 - 1);
    expect_nothing(f);
    pass(1);
    expect(f, 1);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
}

static void poll__lost_and_skip__both_come(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    rd_conn_delete(f->passive);
    await_notice(f);
    expect(f, 1);
    assert_int_equal(clock_.skipped, RTT + 100);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_int_equal(clock_.skipped, RTT + 100);
}

static void poll__fenced_on_the_way__completes_fenced_when_due(void **state)
{
    struct t_net *f = *state;
    struct rd_event event;
    assert_int_equal(rd_write(f->c, 1, T_LOG_OFF, f->log, 64, 0), 0);
    assert_int_equal(rd_flush(f->c, 2, T_LOG_OFF, 64, RD_SIGNALED), 0);
    t_store(&f->pool, T_RING_OFF, 1);
    assert_int_equal(rd_read(f->c, 3, T_EXTENT_OFF, f->arena, 8, 0), CAIRN_E_FENCED);
    expect_nothing(f); /* nor that the connection is down, which the post has found */
    pass(2 * RTT);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_COMPLETION);
    assert_int_equal(event.status, CAIRN_E_FENCED);
    assert_int_equal(rd_poll(f->peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_DOWN);
}

static void conn_delete__not_due_yet__others_still_come(void **state)
{
    struct t_net *f = *state;
    struct rd_conn *loop = NULL;
    struct rd_region *extent = NULL;
    const struct rd_memory memory = t_memory(&f->pool, T_EXTENT_OFF, T_EXTENT_SIZE, f->pool.fd);
    T_CHECK(rd_region_new(f->peer.ep, &memory, RD_ACCESS_READ, &extent) == 0);
    T_CHECK(rd_loopback(f->peer.ep, &extent, 1, &loop) == 0);
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    assert_int_equal(rd_read(loop, 2, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0); /* no network */
    rd_conn_delete(f->c);
    expect_nothing(f); /* but behind what was posted before */
    pass(RTT + 100);
    expect(f, 2);
    assert_int_equal(rd_read(loop, 3, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    expect(f, 3);
    rd_conn_delete(loop);
}

static void post__outstanding_max__again_until_due(void **state)
{
    struct t_net *f = *state;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(rd_read(f->c, i, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
    expect_nothing(f);
    assert_int_equal(
        rd_read(f->c, 8, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), CAIRN_E_AGAIN);
    pass(RTT + 100);
    expect(f, 0);
    assert_int_equal(rd_read(f->c, 8, T_EXTENT_OFF, f->arena, 18, RD_SIGNALED), 0);
}

static void sleep__something_due_earlier_than_the_deadline__ends_by_then(void **state)
{
    struct t_net *f = calloc(1, sizeof(*f));
    const struct rd_fabric_config slow = {.model_rtt_ns = 50 * T_MS};
    (void)state;
    open_pair(f, &slow);
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED), 0);
    uint64_t start_ns = t_now();
    rd_ep_arm(f->peer.ep);
    rd_ep_sleep(f->peer.ep, get_now(NULL) + 20000 * T_MS);
    uint64_t slept_ns = t_now() - start_ns;
    assert_true(slept_ns >= 40 * T_MS);
    assert_true(slept_ns < 10000 * T_MS);
    pass(50 * T_MS);
    rd_ep_arm(f->peer.ep);
    rd_ep_sleep(f->peer.ep, get_now(NULL) + 20000 * T_MS); /* due now */
    assert_true(t_now() - start_ns < 15000 * T_MS);
    expect(f, 1);
    void *end = f;
    (void)t_net_teardown(&end);
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Armed, it lets its user sleep. It may be woken for nothing once or twice: the watcher has its own
 * pace, and is not done yet with how the connection came about. */
static void expect_sleep(struct t_net *f, int fd)
{
    for (unsigned tries = 0; tries < 500; tries++) {
        expect_nothing(f);
        rd_ep_arm(f->peer.ep);
        if (!is_readable(fd))
            return;
        (void)usleep(10000);
    }
    fail();
}

/* Nobody writes it when the time has come: so it does not let its user sleep until then. */
static void ep_fd__something_is_not_due_yet__readable_once_armed(void **state)
{
    struct t_net *f = *state;
    int fd = rd_ep_fd(f->peer.ep);
    assert_true(fd >= 0);
    expect_sleep(f, fd);
    assert_int_equal(rd_read(f->c, 1, T_EXTENT_OFF, f->arena, 64, RD_SIGNALED), 0);
    expect_nothing(f);
    rd_ep_arm(f->peer.ep);
    assert_true(is_readable(fd));
    pass(2 * RTT);
    expect(f, 1);
    expect_sleep(f, fd);
}

/* Such a clock does not move in a sleep: what was slept is skipped. */
static void sleep__clock_can_be_skipped__slept_time_is_skipped(void **state)
{
    struct t_net *f = *state;
    rd_ep_arm(f->peer.ep);
    rd_ep_sleep(f->peer.ep, get_now(NULL) + 3 * T_MS);
    assert_int_equal(clock_.skipped, 3 * T_MS);
    rd_ep_wake(f->peer.ep); /* ends at once: nothing was slept */
    rd_ep_arm(f->peer.ep);
    rd_ep_sleep(f->peer.ep, get_now(NULL) + 3 * T_MS);
    assert_int_equal(clock_.skipped, 3 * T_MS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, t_net_teardown)
#define CASE_SKIP(name) cmocka_unit_test_setup_teardown(name, setup_skip, t_net_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(poll__one_read__due_after_trip_and_bytes),
        CASE(post__each_kind__takes_effect_at_once),
        CASE(post__several__queue_at_the_port),
        CASE(poll__some_due__these_alone_in_order),
        cmocka_unit_test(poll__rate_that_does_not_divide__no_time_is_lost),
        cmocka_unit_test(poll__trip_alone__bytes_take_no_time),
        CASE_SKIP(poll__clock_can_be_skipped__skips_to_the_first_due),
        CASE(poll__message_from_a_node__one_trip_after_it_is_seen),
        CASE_SKIP(poll__message_and_skip__skips_one_trip),
        CASE(poll__connection_lost__told_behind_what_is_outstanding),
        CASE_SKIP(poll__lost_and_skip__both_come),
        CASE(poll__fenced_on_the_way__completes_fenced_when_due),
        CASE(conn_delete__not_due_yet__others_still_come),
        CASE(post__outstanding_max__again_until_due),
        cmocka_unit_test(sleep__something_due_earlier_than_the_deadline__ends_by_then),
        CASE(ep_fd__something_is_not_due_yet__readable_once_armed),
        CASE_SKIP(sleep__clock_can_be_skipped__slept_time_is_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
