/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a silent connection is probed, a dead peer is found in four heartbeat intervals, and a
 * living one is never given up, however late we are ourselves.
 * Method: timers run by hand at times of ours, without a device. Over one: the queue pair that
 * answers heartbeats is reset behind the back of its owner: from then on it is as silent as a dead
 * host.
 * Invariants: a peer whose process does not run, but whose device does, is not dead.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/rd_nic_fake.h"
#include "tests/support/rd_rpma_test.h"

#define BEAT_MS 50u
#define STAY_MS 150u /* where a late answer must not be taken for death */
#define LONG_BEAT_MS 400u
#define NEVER_MS 60000u
#define SLEPT_LATE_MS 2000u /* by which a loaded machine may wake us late */

static struct r_side node, peer;
static char address[RD_ADDRESS_SIZE_MAX];
static bool lo_down; /* Soft-iWARP between addresses of one host goes by there */

/* ---- without a device ---- */

#define BEAT_NS (BEAT_MS * T_MS)

static struct fake *open_beating(void)
{
    struct fake *f = fake_open();
    f->fabric.config.heartbeat_ms = BEAT_MS;
    f->c.state = NIC_UP;
    f->c.deadline_ns = UINT64_MAX;
    f->c.beat_ns = 1000 * T_MS;
    return f;
}

static void run_timers__heartbeat__once_in_an_interval(void **state)
{
    (void)state;
    struct fake *f = open_beating();
    rd_rpma_run_timers(&f->ep, 1000 * T_MS + BEAT_NS - 1);
    assert_int_equal(provider.requests, 0);
    assert_int_equal(f->ep.next_timer_ns, 1000 * T_MS + BEAT_NS);
    uint64_t now = 1000 * T_MS;
    for (uint32_t i = 1; i <= 5; i++) {
        now += BEAT_NS;
        rd_rpma_run_timers(&f->ep, now);
        assert_int_equal(provider.requests, i);
        assert_int_equal(provider.first.opcode, IBV_WR_RDMA_READ);
        assert_int_equal(f->ep.next_timer_ns, now + BEAT_NS);
        rd_rpma_run_timers(&f->ep, now + BEAT_NS / 2); /* one is out */
        assert_int_equal(provider.requests, i);
        f->c.qp[0].queue.tail = f->c.qp[0].queue.head;
        rd_rpma_on_probe(&f->c, NIC_OP_BEAT, 0);
    }
    assert_int_equal(f->ep.counters.heartbeats, 5);
    free(f);
}

/* However much time has passed: each look counts one interval, and one more is for what waits in
 * the queue. */
static void run_timers__we_are_late__missed_looks_do_not_count(void **state)
{
    (void)state;
    struct fake *f = open_beating();
    uint64_t now = 2000 * T_MS;
    rd_rpma_run_timers(&f->ep, now);
    for (uint32_t i = 1; i < NIC_BEATS_MISSED; i++) {
        now += 1000 * BEAT_NS;
        rd_rpma_run_timers(&f->ep, now);
        assert_int_equal(f->ep.next_timer_ns, now + BEAT_NS);
    }
    now += 1000 * BEAT_NS;
    rd_rpma_run_timers(&f->ep, now);
    assert_int_equal(f->ep.next_timer_ns, now + 1);
    assert_int_equal(f->c.state, NIC_UP);
    rd_rpma_on_probe(&f->c, NIC_OP_BEAT, 0); /* it was there */
    rd_rpma_run_timers(&f->ep, now + 1);
    assert_int_equal(f->c.state, NIC_UP);
    assert_int_equal(f->ep.counters.heartbeats, 2);
    assert_int_equal(f->ep.next_timer_ns, now + 1 + BEAT_NS);
    free(f);
}

static void run_timers__queue_full__tried_again(void **state)
{
    (void)state;
    struct fake *f = open_beating();
    f->c.qp[0].queue.head = F_SIZE;
    rd_rpma_run_timers(&f->ep, 2000 * T_MS);
    assert_int_equal(provider.requests, 0);
    assert_int_equal(f->ep.next_timer_ns, 2000 * T_MS + BEAT_NS / 2);
    f->c.qp[0].queue.tail = F_SIZE;
    rd_rpma_run_timers(&f->ep, 2000 * T_MS + BEAT_NS / 2);
    assert_int_equal(provider.requests, 1);
    free(f);
}

/* ---- over a device ---- */

static void open_both(uint32_t node_beat_ms, uint32_t peer_beat_ms)
{
    if (r_host == NULL)
        skip();
    r_open(&node, r_address(address, NULL), (struct r_config){.heartbeat_ms = node_beat_ms});
    r_open(&peer, NULL, (struct r_config){.heartbeat_ms = peer_beat_ms});
}

static void close_both(void)
{
    if (lo_down)
        assert_int_equal(system("ip link set lo up"), 0);
    lo_down = false;
    r_close(&peer);
    r_close(&node);
    t_check_live_zero();
}

static void silence(struct rd_conn *c)
{
    if (nic_conn_ep(nic_conn(c))->device->iwarp) {
        lo_down = system("ip link set lo down") == 0;
        assert_true(lo_down);
        return;
    }
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    assert_int_equal(ibv_modify_qp(nic_conn(c)->qp[0].id->qp, &attr, IBV_QP_STATE), 0);
}

static uint64_t heartbeats(const struct r_side *side)
{
    struct rd_counters counters;
    rd_ep_counters(side->ep, &counters);
    return counters.heartbeats;
}

static void check_found(struct r_side *side, struct rd_conn *c, uint64_t start, uint64_t beat_ms)
{
    const struct r_event *event = r_expect(side, RD_EV_DOWN);
    uint64_t took_ms = (t_now() - start) / T_MS;
    assert_ptr_equal(event->e.conn, c);
    assert_int_equal(event->e.status, CAIRN_E_NODE_DOWN);
    assert_true(strlen(event->text) > 20);
    uint64_t late_ms = r_late_ms();
    if (took_ms > 4 * beat_ms + late_ms)
        (void)fprintf(
            stderr, "found after %llu ms: %s\n", (unsigned long long)took_ms, event->text);
    assert_true(took_ms <= 4 * beat_ms + late_ms);
    assert_true(took_ms >= beat_ms / 2);
}

static void beat__silent_peer__down_in_four_intervals(void **state)
{
    (void)state;
    static const uint32_t beats[] = {BEAT_MS, LONG_BEAT_MS};
    for (size_t i = 0; i < CN_ARRAY_SIZE(beats); i++) {
        struct rd_conn *passive;
        open_both(NEVER_MS, beats[i]);
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        r_run(beats[i] / 4);
        silence(passive);
        check_found(&peer, c, t_now(), beats[i]);
        /* Ours is gone, which tells the other side. */
        if (lo_down)
            assert_int_equal(system("ip link set lo up"), 0);
        lo_down = false;
        assert_int_equal(r_expect(&node, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
        close_both();
    }
}

static void beat__silent_peer_of_the_passive_side__down(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both(BEAT_MS, NEVER_MS);
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    r_run(BEAT_MS / 4);
    silence(c);
    check_found(&node, passive, t_now(), BEAT_MS);
    close_both();
}

static void beat__peer_dies_before_it_is_accepted__down(void **state)
{
    (void)state;
    open_both(BEAT_MS, NEVER_MS);
    struct rd_conn *c = r_connect(&peer, address, NEVER_MS);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    silence(c);
    check_found(&node, asking, t_now(), BEAT_MS);
    close_both();
}

/* Where the transport does not answer either, its own error comes: the timer, which would be first,
 * is put off. */
static void beat__transport_gives_up__down(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both(NEVER_MS, BEAT_MS);
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    if (r_iwarp(&peer)) { /* TCP tries for minutes */
        close_both();
        skip();
    }
    silence(passive);
    for (uint64_t end = t_now() + R_WAIT_MS * T_MS; !nic_conn(c)->beat_out;) {
        r_turn();
        assert_true(t_now() < end);
    }
    nic_conn(c)->beat_late_ns = UINT64_MAX;
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_int_equal(event->e.status, CAIRN_E_NODE_DOWN);
    assert_non_null(strstr(event->text, "does not answer"));
    close_both();
}

static void beat__outstanding_operations__completed_with_errors_first(void **state)
{
    (void)state;
    struct t_pool pool;
    struct rd_conn *passive;
    open_both(NEVER_MS, BEAT_MS);
    t_pool_open(&pool);
    r_regions(&node, &pool);
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    uint64_t *arena = rd_ep_memory(peer.ep);
    silence(passive);
    for (uint32_t i = 1; i < NIC_QPS_MAX && !lo_down; i++) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
        if (nic_conn(passive)->qp[i].has_qp)
            assert_int_equal(
                ibv_modify_qp(nic_conn(passive)->qp[i].id->qp, &attr, IBV_QP_STATE), 0);
    }
    for (uint64_t i = 0; i < 10; i++)
        assert_int_equal(
            rd_read(c, i, T_EXTENT_OFF + 8 * i, arena + i, 8, RD_SIGNALED), 0);
    for (uint64_t i = 0; i < 10; i++) {
        const struct r_event *event = r_expect(&peer, RD_EV_COMPLETION);
        assert_int_equal(event->e.status, CAIRN_E_NODE_DOWN);
        assert_int_equal(event->e.wr_id, i);
    }
    assert_int_equal(r_expect(&peer, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_read(c, 1, T_EXTENT_OFF, arena, 8, RD_SIGNALED), CAIRN_E_NODE_DOWN);
    close_both();
    t_pool_close(&pool);
}

static void beat__idle__probed_and_stays_up(void **state)
{
    (void)state;
    open_both(STAY_MS, STAY_MS);
    (void)r_pair(&node, &peer, address, NULL);
    uint64_t before = heartbeats(&peer), before_node = heartbeats(&node), start = t_now();
    while (heartbeats(&peer) - before < 10 || heartbeats(&node) - before_node < 10) {
        r_turn();
        assert_true(t_now() - start < R_WAIT_MS * T_MS);
    }
    assert_true(t_now() - start >= 9 * STAY_MS * T_MS); /* no more than that either */
    assert_null(r_next(&peer, 0));
    assert_null(r_next(&node, 0));
    close_both();
}

/* A beat was sent, its answer waits in the queue while nobody polls. */
static void beat__we_did_not_poll_for_long__stays_up(void **state)
{
    (void)state;
    open_both(NEVER_MS, STAY_MS);
    struct rd_conn *c = r_pair(&node, &peer, address, NULL);
    for (int i = 0; i < 3; i++) {
        for (uint64_t end = t_now() + R_WAIT_MS * T_MS; !nic_conn(c)->beat_out;) {
            r_turn();
            assert_true(t_now() < end);
        }
        const struct timespec pause = {.tv_nsec = 6 * STAY_MS * 1000000L};
        (void)nanosleep(&pause, NULL);
        assert_null(r_next(&peer, STAY_MS));
    }
    assert_null(r_next(&node, 0));
    close_both();
}

/* A thread that only sleeps and polls when it is woken. */
static void beat__sleeping_endpoint__wakes_for_it(void **state)
{
    (void)state;
    struct rd_conn *passive;
    struct rd_event event;
    open_both(NEVER_MS, BEAT_MS);
    (void)r_pair(&node, &peer, address, &passive);
    assert_false(t_next(peer.ep, &event, 6 * BEAT_MS));
    assert_true(heartbeats(&peer) >= 1);
    silence(passive);
    uint64_t start = t_now();
    assert_true(t_next(peer.ep, &event, R_WAIT_MS));
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_true((t_now() - start) / T_MS <= 4 * BEAT_MS + SLEPT_LATE_MS);
    close_both();
}

static void deadline__sleeping_endpoint__wakes_for_it(void **state)
{
    (void)state;
    struct rd_event event;
    struct r_raw raw;
    uint16_t port;
    if (r_host == NULL)
        skip();
    r_open(&peer, NULL, (struct r_config){0});
    (void)r_address(address, &port);
    r_raw_listen(&raw, port);
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 300);
    assert_true(t_next(peer.ep, &event, R_WAIT_MS));
    uint64_t took_ms = (t_now() - start) / T_MS;
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_int_equal(event.status, CAIRN_E_TIMEOUT);
    assert_ptr_equal(event.conn, c);
    assert_true(took_ms >= 290 && took_ms <= 300 + SLEPT_LATE_MS);
    r_raw_close(&raw);
    r_close(&peer);
    t_check_live_zero();
}

int main(void)
{
    if (getenv("CAIRN_TEST_ADDRESS") != NULL)
        (void)r_main_address();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_timers__heartbeat__once_in_an_interval),
        cmocka_unit_test(run_timers__we_are_late__missed_looks_do_not_count),
        cmocka_unit_test(run_timers__queue_full__tried_again),
        cmocka_unit_test(beat__silent_peer__down_in_four_intervals),
        cmocka_unit_test(beat__silent_peer_of_the_passive_side__down),
        cmocka_unit_test(beat__peer_dies_before_it_is_accepted__down),
        cmocka_unit_test(beat__transport_gives_up__down),
        cmocka_unit_test(beat__outstanding_operations__completed_with_errors_first),
        cmocka_unit_test(beat__idle__probed_and_stays_up),
        cmocka_unit_test(beat__we_did_not_poll_for_long__stays_up),
        cmocka_unit_test(beat__sleeping_endpoint__wakes_for_it),
        cmocka_unit_test(deadline__sleeping_endpoint__wakes_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
