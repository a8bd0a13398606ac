/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a node reaches its own memory: through its device where peers' locks are taken by devices,
 * by its CPU where they come by message.
 * Method: an endpoint that owns the regions, one that loops back to them; with a device only.
 * Invariants: nothing outside the granted extents is touched; a ring is never reached.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_test.h"

struct loop_test {
    struct t_pool pool;
    struct n_side node, loop;
    struct rd_conn *c;
    char address[RD_ADDRESS_SIZE_MAX];
};

static void open_loop(struct loop_test *t, const struct rd_fabric_config *config)
{
    t_pool_open(&t->pool);
    n_open(&t->node, config, n_address(t->address), 4, 8);
    n_regions(&t->node, &t->pool, RD_DURABILITY_APM);
    /* A second endpoint of the same fabric, as a node has it. */
    memset(&t->loop, 0, sizeof(t->loop));
    const struct rd_ep_config ep = {.env = cn_env_system(), .connections_max = 1,
        .outstanding_max = 8, .memory_size = 8192, .log_memory_size = 4096, .name = "loop"};
    t->loop.t.fabric = t->node.t.fabric;
    T_CHECK(rd_ep_open(t->node.t.fabric, &ep, &t->loop.t.ep) == 0);
    t->loop.memory = rd_ep_memory(t->loop.t.ep);
    T_CHECK(rd_loopback(t->loop.t.ep, &t->node.t.extent, 1, &t->c) == 0);
}

static void close_loop(struct loop_test *t)
{
    rd_ep_close(t->loop.t.ep);
    n_close(&t->node);
    t_pool_close(&t->pool);
    t_check_live_zero();
}

static int wait_done(struct loop_test *t, uint64_t wr_id)
{
    struct rd_event event;
    T_CHECK(t_next(t->loop.t.ep, &event, 5000));
    T_CHECK(event.type == RD_EV_COMPLETION && event.wr_id == wr_id && event.conn == t->c);
    return event.status;
}

static void check_loop(const struct rd_fabric_config *config)
{
    struct loop_test t;
    uint64_t *words;
    struct rd_counters counters;
    open_loop(&t, config);
    words = (uint64_t *)(void *)t.loop.memory;
    t_store(&t.pool, T_EXTENT_OFF + 64, 7);
    assert_int_equal(rd_cas(t.c, 1, T_EXTENT_OFF + 64, 7, 8, &words[0], RD_SIGNALED), 0);
    assert_int_equal(wait_done(&t, 1), 0);
    assert_int_equal(words[0], 7);
    assert_int_equal(t_load(&t.pool, T_EXTENT_OFF + 64), 8);
    assert_int_equal(rd_cas(t.c, 2, T_EXTENT_OFF + 64, 7, 9, &words[0], RD_SIGNALED), 0);
    assert_int_equal(wait_done(&t, 2), 0);
    assert_int_equal(words[0], 8); /* failed: nothing changed */
    assert_int_equal(t_load(&t.pool, T_EXTENT_OFF + 64), 8);
    for (uint64_t i = 0; i < 32; i++)
        t_store(&t.pool, T_EXTENT_OFF + 1024 + 8 * i, i * 3);
    assert_int_equal(rd_read(t.c, 3, T_EXTENT_OFF + 1024, words + 8, 256, RD_SIGNALED), 0);
    assert_int_equal(wait_done(&t, 3), 0);
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(words[8 + i], i * 3);
    /* Outside: before, behind, across the end, a ring; and what a loopback has not. */
    uint64_t end = T_EXTENT_OFF + T_EXTENT_SIZE;
    assert_int_equal(rd_read(t.c, 4, T_EXTENT_OFF - 8, words, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_read(t.c, 4, end - 8, words, 16, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(t.c, 4, end, 0, 1, words, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_read(t.c, 4, T_RING_OFF, words, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_read(t.c, 4, UINT64_MAX - 7, words, 8, 0), CAIRN_E_FABRIC);
    assert_true(rd_write(t.c, 4, T_EXTENT_OFF, t.loop.memory + 4096, 8, 0) < 0);
    assert_true(rd_flush(t.c, 4, T_EXTENT_OFF, 8, 0) < 0);
    assert_true(rd_mark(t.c, 4, T_EXTENT_OFF, 8, 0) < 0);
    assert_true(rd_send(t.c, "x", 1) < 0);
    rd_doorbell(t.c);
    rd_ep_counters(t.loop.t.ep, &counters);
    assert_int_equal(counters.cas, 2);
    assert_int_equal(counters.reads, 1);
    assert_int_equal(counters.completions, 3);
    close_loop(&t);
}

static void loopback__by_device__reads_and_swaps(void **state)
{
    (void)state;
    check_loop(NULL);
}

static void loopback__by_cpu__reads_and_swaps(void **state)
{
    (void)state;
    const struct rd_fabric_config config = {.message_atomics = true};
    check_loop(&config);
}

static void check_full(const struct rd_fabric_config *config)
{
    struct loop_test t;
    open_loop(&t, config);
    struct rd_live live;
    rd_live_get(&live);
    uint64_t *words = (uint64_t *)(void *)t.loop.memory;
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(rd_read(t.c, i, T_EXTENT_OFF, words + i, 8, RD_SIGNALED | RD_MORE), 0);
    assert_int_equal(rd_read(t.c, 9, T_EXTENT_OFF, words, 8, RD_SIGNALED), CAIRN_E_AGAIN);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(wait_done(&t, i), 0);
    assert_int_equal(rd_read(t.c, 9, T_EXTENT_OFF, words, 8, RD_SIGNALED), 0);
    assert_int_equal(wait_done(&t, 9), 0);
    /* Many that want no completion, then one that does. */
    for (uint64_t i = 0; i < 1000; i++) {
        int rc = rd_read(t.c, i, T_EXTENT_OFF, words, 8, 0);
        struct rd_event event;
        while (rc == CAIRN_E_AGAIN) {
            assert_int_equal(rd_poll(t.loop.t.ep, &event, 1), 0);
            rc = rd_read(t.c, i, T_EXTENT_OFF, words, 8, 0);
        }
        assert_int_equal(rc, 0);
    }
    assert_int_equal(rd_read(t.c, 10, T_EXTENT_OFF, words, 8, RD_SIGNALED), 0);
    assert_int_equal(wait_done(&t, 10), 0);
    struct rd_conn *second = NULL;
    assert_int_equal(
        rd_loopback(t.loop.t.ep, &t.node.t.extent, 1, &second), CAIRN_E_LIMIT);
    rd_conn_delete(t.c);
    for (int i = 0; i < 10; i++) { /* again and again in the same slot */
        struct rd_event event;
        assert_int_equal(rd_poll(t.loop.t.ep, &event, 1), 0);
        assert_int_equal(rd_loopback(t.loop.t.ep, &t.node.t.extent, 1, &t.c), 0);
        assert_int_equal(rd_read(t.c, 1, T_EXTENT_OFF, words, 8, RD_SIGNALED), 0);
        if (i % 2 == 0)
            assert_int_equal(wait_done(&t, 1), 0);
        rd_conn_delete(t.c); /* with an operation outstanding */
    }
    assert_int_equal(rd_loopback(t.loop.t.ep, &t.node.t.ring, 1, &second), CAIRN_E_FABRIC);
    assert_int_equal(rd_loopback(t.loop.t.ep, &t.node.t.extent, 1, &t.c), 0);
    struct rd_live now;
    rd_live_get(&now);
    assert_memory_equal(&live, &now, sizeof(live));
    close_loop(&t);
}

static void loopback__by_device__bounded_and_again(void **state)
{
    (void)state;
    check_full(NULL);
}

static void loopback__by_cpu__bounded_and_again(void **state)
{
    (void)state;
    const struct rd_fabric_config config = {.message_atomics = true};
    check_full(&config);
}

static void loopback__another_fabrics_region__works_or_refused(void **state)
{
    (void)state;
    struct t_pool pool;
    struct n_side node, other;
    struct rd_conn *c = NULL;
    t_pool_open(&pool);
    n_open(&node, NULL, NULL, 1, 1); /* no address: that of the device is found */
    n_open(&other, NULL, NULL, 1, 1);
    n_regions(&node, &pool, RD_DURABILITY_APM);
    /* A region of another fabric lies in another protection domain. */
    assert_int_equal(rd_loopback(other.t.ep, &node.t.extent, 1, &c), CAIRN_E_CONFIG);
    assert_int_equal(rd_loopback(node.t.ep, &node.t.extent, 1, &c), 0);
    uint64_t *words = (uint64_t *)(void *)node.memory;
    t_store(&pool, T_EXTENT_OFF, 5);
    assert_int_equal(rd_cas(c, 1, T_EXTENT_OFF, 5, 6, words, RD_SIGNALED), 0);
    assert_int_equal(n_status(&node, 1), 0);
    assert_int_equal(t_load(&pool, T_EXTENT_OFF), 6);
    n_close(&other);
    n_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

#define CASE(f) cmocka_unit_test_setup(f, n_reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(loopback__by_device__reads_and_swaps),
        CASE(loopback__by_cpu__reads_and_swaps),
        CASE(loopback__by_device__bounded_and_again),
        CASE(loopback__by_cpu__bounded_and_again),
        CASE(loopback__another_fabrics_region__works_or_refused),
    };
    if (!n_have_device())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
