/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: an endpoint opens and closes without a trace, sleeps and is woken by all that may wake it.
 * Method: threads and a node in another process.
 * Invariants: a sleep ends by its deadline; what came after the arm ends it at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <pthread.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

static void ep_open__arena__zeroed_aligned(void **state)
{
    (void)state;
    struct t_side side;
    t_open(&side, 3, 4);
    const uint8_t *arena = rd_ep_memory(side.ep);
    assert_int_equal((uintptr_t)arena % 64, 0);
    for (size_t i = 0; i < 1 << 20; i++)
        T_CHECK(arena[i] == 0);
    struct rd_live live;
    rd_live_get(&live);
    assert_int_equal(live.endpoints, 1);
    assert_int_equal(live.threads, 0); /* none before there is a socket */
    struct rd_event event;
    assert_int_equal(rd_poll(side.ep, &event, 1), 0);
    /* No peer can cut off the doorbell page. */
    assert_int_equal(ftruncate(emu_ep(side.ep)->bell_fd, 0), -1);
    assert_int_equal(errno, EPERM);
    t_close(&side);
    t_check_live_zero();
}

static void ep_open__impossible_config__error(void **state)
{
    (void)state;
    struct rd_fabric *fabric = NULL;
    struct rd_ep *ep = NULL;
    assert_int_equal(rd_fabric_open("emu", NULL, &fabric), 0);
    struct rd_ep_config config = {.env = cn_env_system(), .outstanding_max = 1, .memory_size = 64};
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    config.connections_max = 1;
    config.outstanding_max = 1u << 20;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    config.outstanding_max = 1;
    config.memory_size = 65;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    config.memory_size = 64;
    config.log_memory_size = 128;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    config.log_memory_size = 32;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    config.log_memory_size = 64;
    config.memory_size = UINT64_C(1) << 60;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), -ENOMEM);
    assert_null(ep);
    rd_fabric_delete(fabric);
    t_check_live_zero();
}

static void ep_sleep__nothing_comes__ends_by_the_deadline(void **state)
{
    (void)state;
    struct t_side side;
    t_open(&side, 1, 1);
    uint64_t start_ns = t_now();
    rd_ep_arm(side.ep);
    rd_ep_sleep(side.ep, start_ns + 30 * T_MS);
    uint64_t slept_ns = t_now() - start_ns;
    assert_true(slept_ns >= 25 * T_MS);
    assert_true(slept_ns < 5000 * T_MS);
    rd_ep_arm(side.ep);
    rd_ep_sleep(side.ep, start_ns); /* passed already */
    t_close(&side);
}

struct waker {
    struct rd_ep *ep;
    uint64_t delay_ms;
};

static void *wake(void *arg)
{
    const struct waker *w = arg;
    const struct timespec pause = {.tv_nsec = (long)(w->delay_ms * T_MS)};
    if (w->delay_ms > 0)
        (void)nanosleep(&pause, NULL);
    rd_ep_wake(w->ep);
    return NULL;
}

static void ep_wake__other_thread__ends_the_sleep(void **state)
{
    (void)state;
    struct t_side side;
    t_open(&side, 1, 1);
    for (uint64_t delay_ms = 0; delay_ms <= 40; delay_ms += 20) {
        pthread_t thread;
        struct waker waker = {side.ep, delay_ms};
        uint64_t start_ns = t_now();
        rd_ep_arm(side.ep);
        T_CHECK(pthread_create(&thread, NULL, wake, &waker) == 0);
        rd_ep_sleep(side.ep, start_ns + 8000 * T_MS);
        assert_true(t_now() - start_ns < 4000 * T_MS);
        T_CHECK(pthread_join(thread, NULL) == 0);
    }
    rd_ep_wake(side.ep); /* before the arm: remembered */
    uint64_t start_ns = t_now();
    rd_ep_arm(side.ep);
    rd_ep_sleep(side.ep, start_ns + 8000 * T_MS);
    assert_true(t_now() - start_ns < 4000 * T_MS);
    t_close(&side);
    t_check_live_zero();
}

/* ---- a descriptor to sleep on ---- */

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd pending = {.fd = fd, .events = POLLIN};
    return poll(&pending, 1, timeout_ms) == 1;
}

/* As its user has to: arm, look once more. False: something was there. */
static bool arm(struct rd_ep *ep)
{
    struct rd_event event;
    rd_ep_arm(ep);
    return rd_poll(ep, &event, 1) == 0;
}

static void ep_fd__wakes__readable_once_each(void **state)
{
    (void)state;
    struct t_side side;
    t_open(&side, 1, 1);
    int fd = rd_ep_fd(side.ep);
    assert_true(fd >= 0);
    assert_int_equal(rd_ep_fd(side.ep), fd);
    assert_true(arm(side.ep));
    assert_false(is_readable(fd, 0));
    pthread_t thread;
    struct waker waker = {side.ep, 20};
    T_CHECK(pthread_create(&thread, NULL, wake, &waker) == 0);
    assert_true(is_readable(fd, 8000));
    T_CHECK(pthread_join(thread, NULL) == 0);
    (void)arm(side.ep); /* may find the same wake once more */
    assert_true(arm(side.ep));
    assert_false(is_readable(fd, 0));
    rd_ep_wake(side.ep); /* before the arm: remembered, whoever sleeps */
    assert_true(arm(side.ep));
    assert_true(is_readable(fd, 0));
    uint64_t start_ns = t_now();
    rd_ep_sleep(side.ep, start_ns + 8000 * T_MS);
    assert_true(t_now() - start_ns < 4000 * T_MS);
    t_close(&side);
    t_check_live_zero();
}

static void ep_fd__events_of_a_peer__readable_when_armed(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_child node = t_spawn_node(&pool, t_address(address));
    t_open(&peer, 1, 8);
    int fd = rd_ep_fd(peer.ep);
    assert_true(fd >= 0);
    struct rd_event event;
    struct rd_conn *c = NULL;
    assert_true(arm(peer.ep));
    assert_int_equal(
        rd_connect(peer.ep, address, "hello", 5, t_now() + 8000 * T_MS, &c), 0);
    assert_true(is_readable(fd, 8000));
    assert_int_equal(rd_poll(peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_UP);
    for (int i = 0; i < 20; i++) {
        assert_true(arm(peer.ep));
        assert_false(is_readable(fd, 0)); /* else it would be asked for nothing all the time */
        assert_int_equal(rd_send(c, "x", 1), 0); /* the node echoes it */
        assert_true(is_readable(fd, 8000));
        assert_int_equal(rd_poll(peer.ep, &event, 1), 1);
        assert_int_equal(event.type, RD_EV_MESSAGE);
    }
    assert_true(arm(peer.ep));
    t_quit_node(&node);
    assert_true(is_readable(fd, 8000));
    assert_int_equal(rd_poll(peer.ep, &event, 1), 1);
    assert_int_equal(event.type, RD_EV_DOWN);
    t_close(&peer);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void ep_fd__listener__refused(void **state)
{
    (void)state;
    struct t_side node;
    char address[RD_ADDRESS_SIZE_MAX];
    t_open(&node, 1, 1);
    assert_int_equal(rd_listen(node.ep, t_address(address)), 0);
    assert_int_equal(rd_ep_fd(node.ep), CAIRN_E_FABRIC);
    t_close(&node);
    t_check_live_zero();
}

static void doorbell__node_asleep__woken_with_one_system_call(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_child node = t_spawn_node(&pool, t_address(address));
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect_up(peer.ep, address);
    assert_int_equal(rd_send(c, "x", 1), 0); /* its echo tells that the node has nothing pending */
    (void)t_expect(peer.ep, RD_EV_MESSAGE);
    struct rd_counters before, after;
    rd_ep_counters(peer.ep, &before);
    for (int i = 0; i < 100; i++)
        rd_doorbell(c);
    rd_ep_counters(peer.ep, &after);
    assert_int_equal(after.wakeups, before.wakeups); /* it is awake */

    uint64_t start_ns = t_now();
    assert_int_equal(t_ask(&node, T_SLEEP), 0);
    const struct timespec pause = {.tv_nsec = 30000000};
    (void)nanosleep(&pause, NULL);
    rd_doorbell(c);
    rd_doorbell(c);
    assert_int_equal(t_get(node.fd), 1);
    assert_true(t_now() - start_ns < 4000 * T_MS);
    rd_ep_counters(peer.ep, &after);
    assert_int_equal(after.wakeups - before.wakeups, 1);
    assert_int_equal(after.syscalls, before.syscalls);

    assert_int_equal(t_ask(&node, T_SLEEP), 0); /* a message does it as well */
    assert_int_equal(rd_send(c, "y", 1), 0);
    assert_int_equal(t_get(node.fd), 1);
    (void)t_expect(peer.ep, RD_EV_MESSAGE);
    t_close(&peer);
    t_quit_node(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void counters__messages__counted_with_their_system_calls(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    t_open(&node, 1, 1);
    t_regions(&node, &pool);
    assert_int_equal(rd_listen(node.ep, t_address(address)), 0);
    t_open(&peer, 1, 1);
    struct rd_conn *c = t_pair(&node, &peer, address, NULL);
    struct rd_counters counters;
    for (int i = 0; i < 10; i++)
        assert_int_equal(rd_send(c, "abc", 3), 0);
    for (int i = 0; i < 10; i++)
        (void)t_expect(node.ep, RD_EV_MESSAGE);
    rd_ep_counters(peer.ep, &counters);
    assert_int_equal(counters.messages_sent, 10);
    assert_int_equal(counters.syscalls, 10);
    rd_ep_counters(node.ep, &counters);
    assert_int_equal(counters.messages_received, 10);
    t_close(&node); /* in either order */
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    t_close(&peer);
    t_pool_close(&pool);
    t_check_live_zero();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ep_open__arena__zeroed_aligned),
        cmocka_unit_test(ep_open__impossible_config__error),
        cmocka_unit_test(ep_sleep__nothing_comes__ends_by_the_deadline),
        cmocka_unit_test(ep_wake__other_thread__ends_the_sleep),
        cmocka_unit_test(ep_fd__wakes__readable_once_each),
        cmocka_unit_test(ep_fd__events_of_a_peer__readable_when_armed),
        cmocka_unit_test(ep_fd__listener__refused),
        cmocka_unit_test(doorbell__node_asleep__woken_with_one_system_call),
        cmocka_unit_test(counters__messages__counted_with_their_system_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
