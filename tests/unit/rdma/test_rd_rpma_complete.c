/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: every wanted operation yields exactly one event, whatever happens to its connection; the
 * completion queue is never overrun; a sleeping endpoint is woken by completions.
 * Method: a provider in the test that gives completions, right and wrong ones. Over a device
 * (skipped without): grants damaged after the handshake, so that the device refuses; connections
 * deleted with operations on their way; a log connection's descriptor.
 * Invariants: error completions come in post order and before RD_EV_DOWN.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_fake.h"
#include "tests/support/rd_nic_test.h"

/* ---- without a device ---- */

static void give(struct fake *f, uint64_t position, enum ibv_wc_status status)
{
    provider.wc[provider.wc_count++] =
        (struct ibv_wc){.wr_id = nic_wr_id(&f->c, 0, position), .status = status};
}

static void post_reads(struct fake *f, uint64_t first, uint64_t n, unsigned flags)
{
    for (uint64_t i = first; i < first + n; i++)
        assert_int_equal(rd_rpma_read(&f->c.base, 100 + i, 0x1000, f->memory, 8, flags), 0);
}

static void reap__wanted__one_event_each(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[16];
    post_reads(f, 0, 3, RD_SIGNALED);
    assert_int_equal(f->ep.cq_used, 3);
    for (uint64_t i = 0; i < 3; i++)
        give(f, i, IBV_WC_SUCCESS);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(events[i].type, RD_EV_COMPLETION);
        assert_int_equal(events[i].wr_id, 100 + i);
        assert_int_equal(events[i].status, 0);
        assert_ptr_equal(events[i].conn, &f->c.base);
    }
    assert_int_equal(f->c.outstanding, 0);
    assert_int_equal(f->ep.cq_used, 0);
    assert_int_equal(f->ep.counters.completions, 3);
    int polls = provider.polls;
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 0);
    assert_int_equal(provider.polls, polls); /* nothing is out: nothing is asked */
    free(f);
}

static void reap__unsignaled__freed_by_a_later_one(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[16];
    post_reads(f, 0, 2, 0);
    post_reads(f, 2, 1, RD_SIGNALED);
    post_reads(f, 3, 1, 0);
    give(f, 2, IBV_WC_SUCCESS);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 1);
    assert_int_equal(events[0].wr_id, 102);
    assert_int_equal(f->c.qp[0].queue.tail, 3);
    assert_int_equal(f->ep.cq_used, 1);
    /* One asked for by the accounting alone yields nothing. */
    post_reads(f, 4, 3, 0);
    give(f, 6, IBV_WC_SUCCESS);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 0);
    assert_int_equal(f->ep.cq_used, 0);
    assert_int_equal(f->ep.counters.completions, 1);
    free(f);
}

static void reap__out_of_order_then_lost__each_once(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[16];
    post_reads(f, 0, 4, RD_SIGNALED);
    give(f, 2, IBV_WC_SUCCESS);
    give(f, 2, IBV_WC_SUCCESS); /* twice is once */
    give(f, 1, IBV_WC_SUCCESS);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 2);
    assert_int_equal(events[0].wr_id, 102);
    assert_int_equal(events[1].wr_id, 101);
    assert_int_equal(f->ep.cq_used, 4);
    rd_rpma_fail_outstanding(&f->c, CAIRN_E_NODE_DOWN);
    assert_int_equal(f->ep.event_head, 2);
    assert_int_equal(f->events[0].wr_id, 100);
    assert_int_equal(f->events[1].wr_id, 103);
    assert_int_equal(f->c.outstanding, 2);
    free(f);
}

static void reap__little_room__no_more_asked_than_fits(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[2];
    post_reads(f, 0, 5, RD_SIGNALED);
    for (uint64_t i = 0; i < 5; i++)
        give(f, i, IBV_WC_SUCCESS);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 2), 2);
    assert_int_equal(provider.asked, 2);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 2), 2);
    assert_int_equal(events[1].wr_id, 103);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 2), 1);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 0), 0);
    free(f);
}

static void reap__of_something_else__dropped(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[16];
    post_reads(f, 0, 2, RD_SIGNALED);
    uint64_t good = nic_wr_id(&f->c, 0, 0);
    const uint64_t bad[] = {
        good + (UINT64_C(1) << 48),  /* another generation */
        good + (UINT64_C(1) << 32),  /* no such connection */
        good + (UINT64_C(1) << 28),  /* a queue pair that it has not */
        good + (UINT64_C(15) << 28), /* none has it */
        good + 2,                    /* not posted */
        good + F_SIZE,               /* no such slot */
        UINT64_MAX,
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(bad); i++)
        provider.wc[provider.wc_count++] = (struct ibv_wc){
            .wr_id = bad[i], .status = i % 2 == 0 ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR};
    assert_int_equal(rd_rpma_reap(&f->ep, events, 16), 0);
    assert_int_equal(provider.wc_count, 0);
    assert_int_equal(f->ep.cq_used, 2);
    assert_int_equal(f->c.outstanding, 2);
    assert_int_equal(f->c.state, NIC_LOOPBACK);
    free(f);
}

static void reap__stale_entries__used_until_queue_was_empty(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[16];
    post_reads(f, 0, 4, RD_SIGNALED);
    for (uint64_t i = 0; i < 4; i++)
        give(f, i, IBV_WC_WR_FLUSH_ERR);
    rd_rpma_forget_posted(&f->c);
    f->c.generation++;
    assert_int_equal(f->ep.cq_used, 4);
    assert_int_equal(rd_rpma_reap(&f->ep, events, 4), 0); /* took four: may not be all */
    assert_int_equal(f->ep.cq_used, 0);                   /* a second look saw it empty */
    assert_int_equal(f->ep.cq_stale, 0);
    assert_int_equal(provider.polls, 2);
    free(f);
}

static void reap__stale_while_polled__used_until_the_next(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct rd_event events[4];
    post_reads(f, 0, 3, RD_SIGNALED);
    provider.stale = &f->ep.cq_stale;
    assert_int_equal(rd_rpma_reap(&f->ep, events, 4), 0);
    assert_int_equal(f->ep.cq_used, 3); /* its entry may have come behind our look */
    provider.stale = NULL;
    assert_int_equal(rd_rpma_reap(&f->ep, events, 4), 0);
    assert_int_equal(f->ep.cq_used, 2);
    assert_int_equal(f->ep.cq_stale, 0);
    free(f);
}

static void fail_outstanding__several_queues__post_order(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    struct nic_queue *queues[] = {&f->c.log_queue, &f->c.qp[0].queue, &f->c.cas, &f->c.qp[1].queue,
        &f->c.persist, &f->c.qp[7].queue};
    f->c.order = UINT32_MAX - 6; /* it wraps */
    uint64_t seed = 7, wanted = 0;
    for (uint64_t i = 0; i < 24; i++) {
        struct nic_queue *queue = queues[(seed = cn_mix64(seed + i)) % CN_ARRAY_SIZE(queues)];
        if (rd_rpma_queue_full(queue))
            continue;
        bool is_wanted = i % 4 != 3;
        (void)rd_rpma_queue_take(
            &f->c, queue, &(struct nic_op){.wr_id = i, .wanted = is_wanted}, false);
        wanted += is_wanted;
    }
    assert_int_equal(f->c.outstanding, wanted);
    rd_rpma_fail_outstanding(&f->c, CAIRN_E_NODE_DOWN);
    assert_int_equal(f->ep.event_head, wanted);
    uint64_t last = 0;
    for (uint64_t i = 0; i < wanted; i++) {
        assert_int_equal(f->events[i].type, RD_EV_COMPLETION);
        assert_int_equal(f->events[i].status, CAIRN_E_NODE_DOWN);
        assert_true(i == 0 || f->events[i].wr_id > last);
        last = f->events[i].wr_id;
        assert_true(last % 4 != 3);
    }
    assert_int_equal(f->c.outstanding, wanted); /* until they are delivered */
    for (size_t i = 0; i < CN_ARRAY_SIZE(queues); i++)
        assert_int_equal(queues[i]->head, queues[i]->tail);
    free(f);
}

/* ---- over a device ---- */

static const struct nic_device *device_of(const struct n_cluster *n)
{
    return nic_ep(n->peer.t.ep)->device;
}

/* What the device says of an access that is not allowed: iWARP just ends the connection. */
static int refused(const struct n_cluster *n)
{
    return device_of(n)->iwarp ? CAIRN_E_NODE_DOWN : CAIRN_E_FENCED;
}

/* A completion with an error for each of [first, first + n), in order, then down. */
static void expect_failure(struct n_cluster *n, uint64_t first, uint64_t count, int status)
{
    for (uint64_t i = first; i < first + count; i++)
        assert_int_equal(n_status(&n->peer, i), status);
    const struct n_seen *down = n_expect(&n->peer, RD_EV_DOWN);
    assert_ptr_equal(down->event.conn, n->c);
    assert_int_equal(down->event.status, status);
    assert_true(down->text[0] != 0);
    assert_int_equal(rd_read(n->c, 1, T_EXTENT_OFF, n->peer.memory, 8, RD_SIGNALED),
        status == CAIRN_E_FENCED ? CAIRN_E_FENCED : CAIRN_E_NODE_DOWN);
    assert_null(n_next(&n->peer, 50));
    const struct nic_ep *ep = nic_ep(n->peer.t.ep);
    n_pump_for(20);
    assert_int_equal(ep->cq_used, 0);
    assert_int_equal(ep->cq_stale, 0);
}

static void reap__key_refused__all_in_error_then_down(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    for (int kind = 0; kind < 3; kind++) {
        struct n_cluster n;
        n_cluster_open(&n);
        if (kind == 2 && !device_of(&n)->has_atomics) {
            n_cluster_close(&n);
            break;
        }
        uint64_t *old = (uint64_t *)(void *)n.peer.memory;
        struct nic_grant *grant = &nic_conn(n.c)->grant[0];
        if (kind == 0)
            grant->rkey ^= 0x5500;
        else if (kind == 1)
            grant->addr += T_EXTENT_SIZE; /* behind what is registered */
        else
            grant->addr += 4; /* a compare-and-swap of no word */
        for (uint64_t i = 0; i < 6; i++) {
            unsigned flags = RD_SIGNALED | (i < 5 ? RD_MORE : 0u);
            if (kind == 2)
                T_CHECK(rd_cas(n.c, i, T_EXTENT_OFF, 0, 1, old, flags) == 0);
            else
                T_CHECK(rd_read(n.c, i, T_EXTENT_OFF + 64 * i, n.peer.memory, 64, flags) == 0);
        }
        expect_failure(&n, 0, 6, kind == 2 ? CAIRN_E_FABRIC : refused(&n));
        n_cluster_close(&n);
    }
}

static void reap__bad_range_of_ring__all_in_error_then_down(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    nic_conn(n.c)->ring_size += 4096;
    uint64_t behind = T_RING_OFF + T_RING_SIZE;
    T_CHECK(rd_write(n.c, 0, behind, n.peer.log, 64, RD_SIGNALED | RD_MORE) == 0);
    T_CHECK(rd_read(n.c, 1, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED | RD_MORE) == 0);
    T_CHECK(rd_flush(n.c, 2, behind, 64, RD_SIGNALED) == 0);
    T_CHECK(rd_mark(n.c, 3, behind + 8, 1, 0) == 0);
    T_CHECK(rd_write(n.c, 4, T_LOG_OFF, n.peer.log, 64, RD_SIGNALED) == 0);
    bool iwarp = device_of(&n)->iwarp; /* there a write is done when it has left */
    int error = refused(&n);
    /* The read may have been done before. */
    int statuses[5] = {0};
    uint64_t last = 0, count = 0;
    const struct n_seen *seen;
    while ((seen = n_next(&n.peer, 5000)) != NULL && seen->event.type == RD_EV_COMPLETION) {
        statuses[seen->event.wr_id] = seen->event.status;
        if (seen->event.status != 0) {
            assert_true(seen->event.wr_id >= last);
            last = seen->event.wr_id;
        }
        count++;
    }
    assert_non_null(seen);
    assert_int_equal(seen->event.type, RD_EV_DOWN);
    assert_int_equal(count, 4);
    assert_true(statuses[0] == error || iwarp);
    assert_int_equal(statuses[2], error);
    assert_true(statuses[4] == error || iwarp);
    n_cluster_close(&n);
}

/* An unsignaled operation is no less a failure, though nobody waits for it. */
static void reap__unsignaled_refused__down(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    nic_conn(n.c)->ring_size += 4096;
    T_CHECK(rd_write(n.c, 0, T_RING_OFF + T_RING_SIZE, n.peer.log, 64, 0) == 0);
    assert_int_equal(n_expect(&n.peer, RD_EV_DOWN)->event.status, refused(&n));
    n_cluster_close(&n);
}

static void reap__one_at_a_time__both_kinds_get_through(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    uint64_t reads = 0, writes = 0;
    for (uint64_t i = 0; i < 64; i++) {
        if (i % 2 == 0)
            T_CHECK(rd_read(n.c, i, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED) == 0);
        else
            T_CHECK(rd_write(n.c, i, T_LOG_OFF, n.peer.log, 8, RD_SIGNALED) == 0);
    }
    for (uint64_t end = t_now() + 5000 * T_MS; reads + writes < 64 && t_now() < end;) {
        struct rd_event event;
        (void)n_poll(&n.node);
        if (rd_poll(n.peer.t.ep, &event, 1) == 0)
            continue;
        assert_int_equal(event.type, RD_EV_COMPLETION);
        assert_int_equal(event.status, 0);
        assert_int_equal(event.wr_id, event.wr_id % 2 == 0 ? 2 * reads : 2 * writes + 1);
        if (event.wr_id % 2 == 0)
            reads++;
        else
            writes++;
    }
    assert_int_equal(reads, 32);
    assert_int_equal(writes, 32);
    n_cluster_close(&n);
}

static void reap__deleted_with_operations_out__nothing_of_it_comes(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    for (int round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < 40; i++)
            T_CHECK(rd_read(n.c, 1000 + i, T_EXTENT_OFF, n.peer.memory, 4096, RD_SIGNALED) == 0);
        T_CHECK(rd_write(n.c, 2000, T_LOG_OFF, n.peer.log, 4096, RD_SIGNALED) == 0);
        rd_conn_delete(n.c);
        const struct n_seen *down = n_expect(&n.node, RD_EV_DOWN);
        rd_conn_delete(down->event.conn);
        n.c = n_pair(&n.node, &n.peer, n.address, &n.passive); /* no stray completions among it */
        T_CHECK(rd_read(n.c, 5, T_EXTENT_OFF, n.peer.memory, 8, RD_SIGNALED) == 0);
        assert_int_equal(n_status(&n.peer, 5), 0);
    }
    n_pump_for(20);
    assert_int_equal(nic_ep(n.peer.t.ep)->cq_used, 0);
    n_cluster_close(&n);
}

/* Sleeps until something is there; how long that took. */
static uint64_t sleep_until_event(struct n_side *side, uint64_t ms)
{
    uint64_t begin = t_now();
    while (side->head == side->tail && t_now() < begin + ms * T_MS) {
        rd_ep_arm(side->t.ep);
        if (n_poll(side) == 0)
            rd_ep_sleep(side->t.ep, begin + ms * T_MS);
        (void)n_poll(side);
    }
    return t_now() - begin;
}

static void arm__completions_and_messages__end_the_sleep(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    const struct rd_fabric_config config = {.heartbeat_ms = 60000};
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    for (uint64_t i = 0; i < 100; i++) { /* more often than notices are acknowledged */
        if (i % 2 == 0)
            T_CHECK(rd_read(n.c, i, T_EXTENT_OFF, n.peer.memory, 4096, RD_SIGNALED) == 0);
        else
            T_CHECK(rd_flush(n.c, i, T_LOG_OFF, 8, RD_SIGNALED) == 0);
        assert_true(sleep_until_event(&n.peer, 5000) < 2000 * T_MS);
        assert_int_equal(n_status(&n.peer, i), 0);
        T_CHECK(rd_send(n.c, "x", 1) == 0);
        assert_true(sleep_until_event(&n.node, 5000) < 2000 * T_MS);
        assert_int_equal(n_expect(&n.node, RD_EV_MESSAGE)->event.size, 1);
    }
    /* Nothing to come: the whole time. */
    assert_true(sleep_until_event(&n.peer, 200) >= 200 * T_MS);
    n_cluster_close(&n);
}

/* More connections than are looked at in one poll: each is heard. */
static void reap__many_idle_connections__each_is_heard(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    enum { N = 12 };
    struct n_cluster n;
    struct rd_conn *c[N];
    bool heard[N] = {false};
    t_pool_open(&n.pool);
    n_open(&n.node, NULL, n_address(n.address), 2 * N, 8);
    n_regions(&n.node, &n.pool, RD_DURABILITY_APM);
    T_CHECK(rd_listen(n.node.t.ep, n.address) == 0);
    n_open(&n.peer, NULL, NULL, N, 8);
    for (uint8_t i = 0; i < N; i++)
        c[i] = n_pair(&n.node, &n.peer, n.address, NULL);
    n_pump_for(50); /* all are idle now */
    for (uint8_t i = 0; i < N; i++)
        T_CHECK(rd_send(c[i], &i, 1) == 0);
    for (int i = 0; i < N; i++) {
        const struct n_seen *seen = n_expect(&n.node, RD_EV_MESSAGE);
        assert_false(heard[seen->data[0]]);
        heard[seen->data[0]] = true;
    }
    n_cluster_close(&n);
}

static struct n_cluster *open_idle(struct n_cluster *n, struct rd_conn **c, uint32_t count)
{
    t_pool_open(&n->pool);
    n_open(&n->node, NULL, n_address(n->address), 128, 8);
    n_regions(&n->node, &n->pool, RD_DURABILITY_APM);
    T_CHECK(rd_listen(n->node.t.ep, n->address) == 0);
    n_open(&n->peer, NULL, NULL, count, 8);
    for (uint32_t i = 0; i < count; i++)
        c[i] = n_pair(&n->node, &n->peer, n->address, NULL);
    n_pump_for(50); /* all are idle now */
    return n;
}

/* The notices of all are taken by one arm; the first one's event fills the poll: the others are not
 * left to chance. */
static void arm__several_speak__each_is_heard_at_once(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    enum { N = 3 };
    struct n_cluster n;
    struct rd_conn *c[N];
    struct rd_event event;
    uint32_t heard = 0;
    (void)open_idle(&n, c, N);
    for (uint8_t i = 0; i < N; i++)
        T_CHECK(rd_send(c[i], &i, 1) == 0);
    (void)usleep(100000);
    rd_ep_arm(n.node.t.ep);
    for (int polls = 0; polls < 2 * N; polls++)
        heard += rd_poll(n.node.t.ep, &event, 1) == 1 && event.type == RD_EV_MESSAGE;
    assert_int_equal(heard, N);
    n_cluster_close(&n);
}

/* Who ended the sleep is looked at first. */
static void sleep__one_of_many_speaks__heard_in_the_next_poll(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    enum { N = 3 };
    struct n_cluster n;
    struct rd_conn *c[N];
    struct rd_event events[4];
    (void)open_idle(&n, c, N);
    for (uint32_t round = 0; round < 2 * N; round++) {
        uint32_t got = 0;
        n_pump_for(20);
        rd_ep_arm(n.node.t.ep);
        while (rd_poll(n.node.t.ep, events, 4) != 0)
            continue;
        T_CHECK(rd_send(c[round % N], "x", 1) == 0);
        for (int wakes = 0; wakes < 3 && got == 0; wakes++) { /* a heartbeat may come first */
            rd_ep_sleep(n.node.t.ep, t_now() + 1000 * T_MS);
            got = rd_poll(n.node.t.ep, events, 4);
            if (got == 0)
                rd_ep_arm(n.node.t.ep);
        }
        assert_int_equal(got, 1);
        assert_int_equal(events[0].type, RD_EV_MESSAGE);
    }
    n_cluster_close(&n);
}

/* Who sleeps on the descriptor himself is woken by the same, and by timers. */
static void ep_fd__one_of_many_speaks__readable_and_heard(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    enum { N = 3 };
    struct n_cluster n;
    struct rd_conn *c[N];
    struct rd_event events[4];
    (void)open_idle(&n, c, N);
    int fd = rd_ep_fd(n.node.t.ep);
    assert_true(fd >= 0);
    for (uint32_t round = 0; round < 2 * N; round++) {
        uint32_t got = 0;
        uint64_t begin = t_now();
        T_CHECK(rd_send(c[round % N], "x", 1) == 0);
        while (got == 0 && t_now() < begin + 5000 * T_MS) {
            struct pollfd pending = {.fd = fd, .events = POLLIN};
            rd_ep_arm(n.node.t.ep);
            got = rd_poll(n.node.t.ep, events, 4);
            if (got != 0)
                break;
            T_CHECK(poll(&pending, 1, 5000) == 1); /* a heartbeat may come first */
            got = rd_poll(n.node.t.ep, events, 4);
        }
        assert_int_equal(got, 1);
        assert_int_equal(events[0].type, RD_EV_MESSAGE);
    }
    n_cluster_close(&n);
}

/* What polls cost: system calls only for looks. */
static void reap__busy_polling__no_system_calls(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    const struct rd_fabric_config config = {.heartbeat_ms = 60000};
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    struct rd_counters before, after;
    n_pump_for(20);
    rd_ep_counters(n.peer.t.ep, &before);
    for (uint32_t i = 0; i < 10 * NIC_LOOK_POLLS; i++)
        (void)n_poll(&n.peer);
    rd_ep_counters(n.peer.t.ep, &after);
    assert_true(after.syscalls - before.syscalls <= 2 * 10 + 2);
    n_cluster_close(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reap__wanted__one_event_each),
        cmocka_unit_test(reap__unsignaled__freed_by_a_later_one),
        cmocka_unit_test(reap__out_of_order_then_lost__each_once),
        cmocka_unit_test(reap__little_room__no_more_asked_than_fits),
        cmocka_unit_test(reap__of_something_else__dropped),
        cmocka_unit_test(reap__stale_entries__used_until_queue_was_empty),
        cmocka_unit_test(reap__stale_while_polled__used_until_the_next),
        cmocka_unit_test(fail_outstanding__several_queues__post_order),
        cmocka_unit_test(reap__key_refused__all_in_error_then_down),
        cmocka_unit_test(reap__bad_range_of_ring__all_in_error_then_down),
        cmocka_unit_test(reap__unsignaled_refused__down),
        cmocka_unit_test(reap__one_at_a_time__both_kinds_get_through),
        cmocka_unit_test(reap__deleted_with_operations_out__nothing_of_it_comes),
        cmocka_unit_test(arm__completions_and_messages__end_the_sleep),
        cmocka_unit_test(reap__many_idle_connections__each_is_heard),
        cmocka_unit_test(arm__several_speak__each_is_heard_at_once),
        cmocka_unit_test(sleep__one_of_many_speaks__heard_in_the_next_poll),
        cmocka_unit_test(ep_fd__one_of_many_speaks__readable_and_heard),
        cmocka_unit_test(reap__busy_polling__no_system_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
