/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the `rpma` fabric does what rd.h says, over a real device (rxe in the VM).
 * Method: two endpoints of one process, polled in one thread, or in a thread each; memory is looked
 * at directly on the passive side.
 * Invariants: nothing outside of what was granted is touched; what is fenced stays as it is; no
 * object is alive at the end; nothing is registered after the start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_test.h"

#define WORD(side, i) ((uint64_t *)(void *)((side)->memory) + (i))

static void fabric_open__wrong_options__refused(void **state)
{
    (void)state;
    struct rd_fabric *fabric = NULL;
    struct rd_fabric_config config = {.queue_pairs = 9};
    assert_int_equal(rd_fabric_open("rpma", &config, &fabric), CAIRN_E_CONFIG);
    config = (struct rd_fabric_config){.device = "mlx5_77"};
    assert_int_equal(rd_fabric_open("rpma", &config, &fabric), CAIRN_E_NO_DEVICE);
    assert_non_null(strstr(cairn_last_error(), "mlx5_77"));
    assert_null(fabric);
    t_check_live_zero();
}

static void ep_open__wrong_address_or_limits__refused(void **state)
{
    (void)state;
    struct rd_fabric *fabric = NULL;
    struct rd_ep *ep = NULL;
    assert_int_equal(rd_fabric_open("rpma", NULL, &fabric), 0);
    struct rd_ep_config config = {.env = cn_env_system(), .connections_max = 1,
        .outstanding_max = 1, .memory_size = 64, .name = "x", .address = "localhost:1"};
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_CONFIG);
    config.address = "127.0.0.1:7471";
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_NO_DEVICE);
    config.address = "10.1.2.3:7471";
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_CONFIG);
    config.address = NULL;
    config.connections_max = 100000;
    assert_int_equal(rd_ep_open(fabric, &config, &ep), CAIRN_E_FABRIC);
    assert_null(ep);
    rd_fabric_delete(fabric);
    t_check_live_zero();
}

static void connect__accepted__welcome_and_grants(void **state)
{
    (void)state;
    struct n_cluster n;
    n_cluster_open(&n);
    assert_int_equal(n.c->durability, RD_DURABILITY_APM);
    for (int i = 0; i < 5; i++) {
        rd_conn_delete(n.c);
        const struct n_seen *seen = n_expect(&n.node, RD_EV_DOWN);
        assert_int_equal(seen->event.status, CAIRN_E_NODE_DOWN);
        assert_true(strlen(seen->text) > 0);
        rd_conn_delete(n.passive);
        n.c = n_pair(&n.node, &n.peer, n.address, &n.passive);
    }
    rd_conn_delete(n.passive); /* now the other way round */
    const struct n_seen *seen = n_expect(&n.peer, RD_EV_DOWN);
    assert_ptr_equal(seen->event.conn, n.c);
    assert_int_equal(seen->event.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_send(n.c, "x", 1), CAIRN_E_NODE_DOWN);
    rd_conn_delete(n.c);
    n_cluster_close(&n);
}

static void read_and_cas__in_extent__as_told(void **state)
{
    (void)state;
    struct n_cluster n;
    n_cluster_open(&n);
    uint64_t off = T_EXTENT_OFF + 4096;
    for (uint64_t i = 0; i < 512; i++)
        t_store(&n.pool, off + 8 * i, i ^ 0x55);
    assert_int_equal(rd_read(n.c, 1, off, WORD(&n.peer, 0), 4096, RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 1), 0);
    for (uint64_t i = 0; i < 512; i++)
        assert_int_equal(*WORD(&n.peer, i), i ^ 0x55);
    t_store(&n.pool, off, 100);
    assert_int_equal(rd_cas(n.c, 2, off, 100, 200, WORD(&n.peer, 0), RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 2), 0);
    assert_int_equal(*WORD(&n.peer, 0), 100);
    assert_int_equal(t_load(&n.pool, off), 200);
    assert_int_equal(rd_cas(n.c, 3, off, 100, 300, WORD(&n.peer, 0), RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 3), 0);
    assert_int_equal(*WORD(&n.peer, 0), 200);
    assert_int_equal(t_load(&n.pool, off), 200);
    /* Not granted. */
    uint64_t end = T_EXTENT_OFF + T_EXTENT_SIZE;
    assert_int_equal(rd_read(n.c, 4, end - 8, WORD(&n.peer, 0), 16, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(n.c, 4, end, 0, 1, WORD(&n.peer, 0), 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_write(n.c, 4, off, n.peer.log, 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_cas(n.c, 4, T_LOG_OFF, 0, 1, WORD(&n.peer, 0), 0), CAIRN_E_FABRIC);
    n_cluster_close(&n);
}

static void write_flush_mark__in_ring__visible(void **state)
{
    (void)state;
    static const enum rd_durability modes[] = {
        RD_DURABILITY_EMULATED, RD_DURABILITY_APM, RD_DURABILITY_GPSPM, RD_DURABILITY_EADR};
    for (size_t m = 0; m < CN_ARRAY_SIZE(modes); m++) {
        struct n_cluster n;
        struct rd_counters counters;
        n_cluster_open_with(&n, NULL, modes[m]);
        assert_int_equal(n.c->durability, modes[m]);
        memset(n.peer.log, 0x7e, 1000);
        assert_int_equal(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 1000, RD_MORE), 0);
        assert_int_equal(rd_flush(n.c, 2, T_LOG_OFF, 1000, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 2), 0);
        assert_memory_equal(n.pool.base + T_LOG_OFF, n.peer.log, 1000);
        assert_int_equal(n.pool.base[T_LOG_OFF + 1000], 0);
        assert_int_equal(rd_mark(n.c, 3, T_LOG_OFF + 2048, 0x1234, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 3), 0);
        assert_int_equal(t_load(&n.pool, T_LOG_OFF + 2048), 0x1234);
        t_store(&n.pool, T_RING_OFF + 64, 4711); /* the published position */
        uint64_t *got = (uint64_t *)(void *)(n.peer.log + 4096);
        assert_int_equal(rd_read(n.c, 4, T_RING_OFF + 64, got, 8, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 4), 0);
        assert_int_equal(*got, 4711);
        assert_int_equal(rd_write(n.c, 5, T_RING_OFF, n.peer.log, 8, 0), CAIRN_E_FABRIC);
        assert_int_equal(
            rd_write(n.c, 5, T_RING_OFF + T_RING_SIZE - 8, n.peer.log, 16, 0), CAIRN_E_FABRIC);
        /* The very last bytes of a ring: a flush reads 8 bytes there. */
        uint64_t last = T_RING_OFF + T_RING_SIZE - 64;
        assert_int_equal(rd_write(n.c, 6, last, n.peer.log, 64, 0), 0);
        assert_int_equal(rd_flush(n.c, 7, last, 64, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 7), 0);
        assert_memory_equal(n.pool.base + last, n.peer.log, 64);
        rd_ep_counters(n.peer.t.ep, &counters);
        assert_int_equal(counters.flush_messages > 0, modes[m] == RD_DURABILITY_GPSPM);
        assert_int_equal(counters.flushes, 2);
        assert_int_equal(counters.writes, 2);
        assert_int_equal(counters.marks, 1);
        n_cluster_close(&n);
    }
}

static void cas__by_message__as_by_device(void **state)
{
    (void)state;
    const struct rd_fabric_config config = {.message_atomics = true};
    struct n_cluster n;
    struct rd_counters counters;
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    t_store(&n.pool, T_EXTENT_OFF, 1);
    for (uint64_t i = 1; i <= 40; i++) { /* a chain of dependent ones: in post order */
        unsigned flags = RD_SIGNALED | (i < 40 ? RD_MORE : 0);
        assert_int_equal(rd_cas(n.c, i, T_EXTENT_OFF, i, i + 1, WORD(&n.peer, i), flags), 0);
    }
    for (uint64_t i = 1; i <= 40; i++) {
        assert_int_equal(n_status(&n.peer, i), 0);
        assert_int_equal(*WORD(&n.peer, i), i);
    }
    assert_int_equal(t_load(&n.pool, T_EXTENT_OFF), 41);
    assert_int_equal(rd_cas(n.c, 1, T_EXTENT_OFF, 7, 8, WORD(&n.peer, 0), RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 1), 0);
    assert_int_equal(*WORD(&n.peer, 0), 41);
    assert_int_equal(rd_read(n.c, 2, T_EXTENT_OFF, WORD(&n.peer, 0), 8, RD_SIGNALED), 0);
    assert_int_equal(n_status(&n.peer, 2), 0);
    assert_int_equal(*WORD(&n.peer, 0), 41);
    rd_ep_counters(n.peer.t.ep, &counters);
    assert_int_equal(counters.cas, 41);
    assert_int_equal(counters.cas_messages, 41);
    assert_true(counters.doorbells < 10);
    n_cluster_close(&n);
}

static void send__both_ways__in_order(void **state)
{
    (void)state;
    struct n_cluster n;
    n_cluster_open(&n);
    uint8_t message[RD_MESSAGE_SIZE_MAX];
    for (uint32_t i = 0; i < 200; i++) {
        struct n_side *to = i % 2 == 0 ? &n.node : &n.peer;
        struct rd_conn *from = i % 2 == 0 ? n.c : n.passive;
        uint32_t size = i % 7 == 0 ? RD_MESSAGE_SIZE_MAX : 1 + i;
        memset(message, (int)i, sizeof(message));
        int rc = rd_send(from, message, size);
        while (rc == CAIRN_E_AGAIN) {
            n_pump();
            rc = rd_send(from, message, size);
        }
        assert_int_equal(rc, 0);
        const struct n_seen *seen = n_expect(to, RD_EV_MESSAGE);
        assert_int_equal(seen->event.size, size);
        assert_memory_equal(seen->data, message, size);
    }
    /* Many at once, the receiver slow: refused for now, never lost. */
    uint32_t sent = 0, got = 0;
    while (got < 300) {
        int rc = sent < 300 ? rd_send(n.c, &sent, sizeof(sent)) : CAIRN_E_AGAIN;
        if (rc == 0)
            sent++;
        else
            assert_int_equal(rc, CAIRN_E_AGAIN);
        if (rc == 0)
            continue;
        (void)n_poll(&n.peer);
        const struct n_seen *seen = n_next(&n.node, 1);
        if (seen == NULL)
            continue;
        assert_int_equal(seen->event.type, RD_EV_MESSAGE);
        assert_memory_equal(seen->data, &got, sizeof(got));
        got++;
    }
    n_cluster_close(&n);
}

static void connect__rejected__down_with_the_reason(void **state)
{
    (void)state;
    struct t_pool pool;
    struct n_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    uint8_t reason[RD_WELCOME_SIZE_MAX];
    memset(reason, 0x42, sizeof(reason));
    t_pool_open(&pool);
    n_open(&node, NULL, n_address(address), 2, 8);
    n_regions(&node, &pool, RD_DURABILITY_APM);
    n_open(&peer, NULL, NULL, 2, 8);
    assert_int_equal(rd_listen(node.t.ep, address), 0);
    for (int i = 0; i < 5; i++) {
        struct rd_conn *c = n_connect(&peer, address, 8000);
        struct rd_conn *passive = n_expect(&node, RD_EV_CONNECT)->event.conn;
        assert_int_equal(rd_reject(passive, reason, sizeof(reason)), 0);
        const struct n_seen *seen = n_expect(&peer, RD_EV_DOWN);
        assert_ptr_equal(seen->event.conn, c);
        assert_int_equal(seen->event.status, CAIRN_E_FABRIC);
        assert_int_equal(seen->event.size, sizeof(reason));
        assert_memory_equal(seen->data, reason, sizeof(reason));
        rd_conn_delete(c);
    }
    assert_null(n_next(&node, 50));
    n_close(&peer);
    n_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void connect__nobody_there__cause_and_remedy(void **state)
{
    (void)state;
    struct n_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    n_open(&peer, NULL, NULL, 2, 8);
    struct rd_conn *c = n_connect(&peer, n_address(address), 5000);
    const struct n_seen *seen = n_expect(&peer, RD_EV_DOWN);
    assert_ptr_equal(seen->event.conn, c);
    assert_int_equal(seen->event.status, CAIRN_E_REJECTED);
    assert_non_null(strstr(seen->text, address));
    rd_conn_delete(c);
    if (!nic_ep(peer.t.ep)->device->iwarp) { /* siw blocks in rdma_connect() as TCP does */
        uint64_t begin = t_now();
        c = n_connect(&peer, "10.9.0.77:7471", 700); /* an address that nobody has */
        seen = n_expect(&peer, RD_EV_DOWN);
        assert_true(
            seen->event.status == CAIRN_E_UNREACHABLE || seen->event.status == CAIRN_E_TIMEOUT);
        assert_non_null(strstr(seen->text, "10.9.0.77:7471"));
        assert_true(t_now() - begin < 5000 * T_MS);
        rd_conn_delete(c);
    }
    struct rd_conn *none = NULL;
    assert_int_equal(
        rd_connect(peer.t.ep, "somewhere:1", NULL, 0, t_now(), &none), CAIRN_E_CONFIG);
    assert_null(none);
    n_close(&peer);
    t_check_live_zero();
}

/* ---- a peer in its own thread that writes and swaps for ever ---- */

struct worker {
    struct n_cluster *n;
    uint32_t stop; /* atomic */
    uint64_t rounds;
    int end_status;
    bool down;
    char text[256];
};

static void take_events(struct worker *w)
{
    struct rd_event events[8];
    uint32_t n = rd_poll(w->n->peer.t.ep, events, 8);
    for (uint32_t i = 0; i < n; i++) {
        if (events[i].type == RD_EV_DOWN) {
            w->down = true;
            w->end_status = events[i].status;
            (void)snprintf(
                w->text, sizeof(w->text), "%s", events[i].text != NULL ? events[i].text : "");
        }
    }
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct n_side *peer = &w->n->peer;
    while (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE) == 0 && !w->down) {
        uint64_t i = ++w->rounds;
        memset(peer->log, (int)i, 512);
        int rc = rd_write(w->n->c, i, T_LOG_OFF + 512 * (i % 64), peer->log, 512, 0);
        if (rc == 0)
            rc = rd_flush(w->n->c, i, T_LOG_OFF, 8, RD_SIGNALED);
        if (rc == 0)
            rc = rd_cas(w->n->c, i, T_EXTENT_OFF, i - 1, i, WORD(peer, 0), RD_SIGNALED);
        T_CHECK(rc == 0 || rc == CAIRN_E_AGAIN || rc == CAIRN_E_NODE_DOWN ||
                rc == CAIRN_E_FENCED);
        for (int tries = 0; tries < 20; tries++)
            take_events(w);
    }
    for (uint64_t end = t_now() + 10000 * T_MS; !w->down && t_now() < end;)
        take_events(w);
    return NULL;
}

static void fence__peer_goes_on_posting__nothing_changes(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct n_cluster n;
        struct worker w = {.n = &n};
        pthread_t thread;
        struct rd_event events[8];
        static uint8_t before[T_POOL_SIZE];
        n_cluster_open_with(&n, NULL, round == 1 ? RD_DURABILITY_GPSPM : RD_DURABILITY_APM);
        assert_int_equal(pthread_create(&thread, NULL, work, &w), 0);
        for (uint64_t end = t_now() + 300 * T_MS; t_now() < end;)
            (void)rd_poll(n.node.t.ep, events, 8);
        assert_int_equal(rd_fence(n.passive), 0);
        memcpy(before, n.pool.base, T_POOL_SIZE);
        for (uint64_t end = t_now() + 300 * T_MS; t_now() < end;)
            (void)rd_poll(n.node.t.ep, events, 8);
        assert_memory_equal(before, n.pool.base, T_POOL_SIZE);
        __atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(w.rounds > 10);
        assert_true(w.down);
        if (w.end_status != CAIRN_E_NODE_DOWN && w.end_status != CAIRN_E_FENCED)
            fail_msg("the peer is told %s: %s", cairn_error_name(w.end_status), w.text);
        rd_conn_delete(n.passive);
        rd_conn_delete(n.c);
        assert_memory_equal(before, n.pool.base, T_POOL_SIZE);
        assert_int_equal(rd_ring_rearm(n.node.t.ring), 0); /* for a new owner */
        n.c = n_pair(&n.node, &n.peer, n.address, &n.passive);
        assert_int_equal(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 64, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 1), 0);
        n_cluster_close(&n);
    }
}

static void registrations__after_start__none(void **state)
{
    (void)state;
    struct n_cluster n;
    struct rd_counters node, peer, node_after, peer_after;
    bool busy = true;
    n_cluster_open(&n);
    rd_ep_counters(n.node.t.ep, &node);
    rd_ep_counters(n.peer.t.ep, &peer);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 64, 0), 0);
        assert_int_equal(rd_flush(n.c, 2, T_LOG_OFF, 64, RD_SIGNALED), 0);
        assert_int_equal(n_status(&n.peer, 2), 0);
        assert_int_equal(rd_fence(n.passive), 0);
        assert_int_equal(n_expect(&n.node, RD_EV_DOWN)->event.status, CAIRN_E_FENCED);
        (void)n_expect(&n.peer, RD_EV_DOWN);
        rd_conn_delete(n.passive);
        rd_conn_delete(n.c);
        assert_int_equal(rd_ring_revoke(n.node.t.ring, &busy), 0);
        assert_false(busy);
        assert_int_equal(rd_ring_rearm(n.node.t.ring), 0);
        n.c = n_pair(&n.node, &n.peer, n.address, &n.passive);
    }
    rd_ep_counters(n.node.t.ep, &node_after);
    rd_ep_counters(n.peer.t.ep, &peer_after);
    assert_int_equal(node.registrations, 6);
    assert_int_equal(peer.registrations, 4);
    assert_int_equal(node_after.registrations, 6);
    assert_int_equal(peer_after.registrations, 4);
    assert_int_equal(node_after.rekeys, 3);
    n_cluster_close(&n);
}

/* ---- polling and sleeping ---- */

static void poll__hot_path__no_system_call_but_looks(void **state)
{
    (void)state;
    struct n_cluster n;
    struct rd_counters before, after;
    struct rd_event event;
    n_cluster_open(&n);
    n_pump_for(20); /* nothing is being made any more */
    rd_ep_counters(n.peer.t.ep, &before);
    uint64_t polls = 0;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rd_read(n.c, 1, T_EXTENT_OFF, WORD(&n.peer, 0), 8, RD_SIGNALED), 0);
        while (polls++, rd_poll(n.peer.t.ep, &event, 1) == 0) { }
    }
    for (int i = 0; i < 10000; i++, polls++)
        (void)rd_poll(n.peer.t.ep, &event, 1);
    rd_ep_counters(n.peer.t.ep, &after);
    assert_true(after.syscalls - before.syscalls <= polls / 256 + 2);
    n_cluster_close(&n);
}

struct waker {
    struct rd_ep *ep;
    uint32_t turn, done; /* atomic */
    uint64_t count;
};

static void *wake_often(void *arg)
{
    struct waker *w = arg;
    for (uint64_t i = 0; i < w->count; i++) {
        while (__atomic_load_n(&w->turn, __ATOMIC_ACQUIRE) <= i) { }
        for (volatile uint64_t spin = i * 37 % 3000; spin > 0; spin--) { }
        rd_ep_wake(w->ep);
    }
    return NULL;
}

static void wake__at_any_moment__ends_the_sleep(void **state)
{
    (void)state;
    struct n_side side;
    struct rd_event event;
    pthread_t thread;
    n_open(&side, NULL, NULL, 1, 1);
    uint64_t begin = t_now();
    for (uint64_t i = 1; i <= 5; i++) { /* nothing comes */
        rd_ep_arm(side.t.ep);
        assert_int_equal(rd_poll(side.t.ep, &event, 1), 0);
        rd_ep_sleep(side.t.ep, begin + 20 * i * T_MS);
        assert_true(t_now() >= begin + (20 * i - 1) * T_MS);
    }
    struct waker w = {.ep = side.t.ep, .count = 500};
    assert_int_equal(pthread_create(&thread, NULL, wake_often, &w), 0);
    for (uint32_t i = 0; i < w.count; i++) {
        begin = t_now();
        __atomic_store_n(&w.turn, i + 1, __ATOMIC_RELEASE);
        rd_ep_arm(side.t.ep);
        assert_int_equal(rd_poll(side.t.ep, &event, 1), 0);
        rd_ep_sleep(side.t.ep, begin + 20000 * T_MS);
        assert_true(t_now() < begin + 10000 * T_MS);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    n_close(&side);
    t_check_live_zero();
}

static bool fd_readable(int fd, int timeout_ms)
{
    struct pollfd pending = {.fd = fd, .events = POLLIN};
    return poll(&pending, 1, timeout_ms) == 1;
}

static void ep_fd__wakes__readable_when_armed(void **state)
{
    (void)state;
    struct n_side side;
    struct rd_event event;
    n_open(&side, NULL, NULL, 1, 1);
    int fd = rd_ep_fd(side.t.ep);
    assert_true(fd >= 0);
    assert_int_equal(rd_ep_fd(side.t.ep), fd);
    for (uint32_t i = 0; i < 3; i++) {
        rd_ep_arm(side.t.ep);
        assert_int_equal(rd_poll(side.t.ep, &event, 1), 0);
        assert_false(fd_readable(fd, 0));
        rd_ep_wake(side.t.ep);
        assert_true(fd_readable(fd, 8000));
        assert_int_equal(rd_poll(side.t.ep, &event, 1), 0); /* takes it */
    }
    rd_ep_wake(side.t.ep); /* before the arm: remembered */
    rd_ep_arm(side.t.ep);
    assert_true(fd_readable(fd, 8000));
    n_close(&side);
    t_check_live_zero();
}

/* No heartbeat comes to the rescue of a sleeper: a lost wake-up lasts to the end of the sleep. The
 * network of a busy VM may stand still for a second. */
static const struct rd_fabric_config no_heartbeat = {.heartbeat_ms = 60000};
#define SLEEP_NS (15000 * T_MS)
#define AWAKE_NS (8000 * T_MS)

/* The other end of a ping-pong that sleeps whenever there is nothing. */
static void *echo(void *arg)
{
    struct worker *w = arg;
    struct rd_ep *ep = w->n->node.t.ep;
    while (__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE) == 0) {
        struct rd_event event;
        uint32_t n = rd_poll(ep, &event, 1);
        if (n == 0) {
            rd_ep_arm(ep);
            n = rd_poll(ep, &event, 1);
        }
        if (n == 0) {
            rd_ep_sleep(ep, t_now() + SLEEP_NS);
            continue;
        }
        if (event.type == RD_EV_MESSAGE) {
            T_CHECK(rd_send(event.conn, event.data, event.size) == 0);
            w->rounds++;
        }
    }
    return NULL;
}

static void sleep__message_or_doorbell_comes__wakes(void **state)
{
    (void)state;
    struct n_cluster n;
    struct worker w = {.n = &n};
    struct rd_event event;
    pthread_t thread;
    n_cluster_open_with(&n, &no_heartbeat, RD_DURABILITY_APM);
    assert_int_equal(pthread_create(&thread, NULL, echo, &w), 0);
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t begin = t_now();
        assert_int_equal(rd_send(n.c, &i, sizeof(i)), 0);
        assert_true(t_next(n.peer.t.ep, &event, 15000)); /* sleeps here too */
        assert_int_equal(event.type, RD_EV_MESSAGE);
        assert_memory_equal(event.data, &i, sizeof(i));
        assert_true(t_now() - begin < AWAKE_NS);
    }
    __atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
    rd_ep_wake(n.node.t.ep);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.rounds, 200);
    /* Completions wake as well; so does a doorbell at the other side. */
    for (int i = 0; i < 50; i++) {
        assert_int_equal(rd_read(n.c, 1, T_EXTENT_OFF, WORD(&n.peer, 0), 8, RD_SIGNALED), 0);
        assert_true(t_next(n.peer.t.ep, &event, 15000));
        assert_int_equal(event.status, 0);
        assert_int_equal(rd_write(n.c, 2, T_LOG_OFF, n.peer.log, 8, RD_SIGNALED), 0);
        assert_true(t_next(n.peer.t.ep, &event, 15000));
        assert_int_equal(event.wr_id, 2);
    }
    n_pump_for(50);
    uint64_t begin = t_now();
    uint32_t sleeps = 0; /* connected and idle: it does sleep */
    for (; t_now() < begin + 300 * T_MS; sleeps++) {
        rd_ep_arm(n.node.t.ep);
        assert_int_equal(rd_poll(n.node.t.ep, &event, 1), 0);
        rd_ep_sleep(n.node.t.ep, begin + 300 * T_MS);
    }
    assert_true(sleeps <= 10);
    begin = t_now();
    rd_ep_arm(n.node.t.ep);
    rd_doorbell(n.c);
    struct timespec pause = {.tv_nsec = 20000000};
    (void)nanosleep(&pause, NULL); /* the bell is taken by this poll, and yet not lost */
    assert_int_equal(rd_poll(n.node.t.ep, &event, 1), 0);
    rd_ep_sleep(n.node.t.ep, begin + SLEEP_NS);
    assert_true(t_now() - begin < AWAKE_NS);
    (void)nanosleep(&pause, NULL); /* beyond lingering: the next one rings as well */
    begin = t_now();
    rd_ep_arm(n.node.t.ep);
    assert_int_equal(rd_poll(n.node.t.ep, &event, 1), 0);
    rd_doorbell(n.c);
    rd_ep_sleep(n.node.t.ep, begin + SLEEP_NS);
    assert_true(t_now() - begin < AWAKE_NS);
    n_cluster_close(&n);
}

/* Idle connections are not looked at in every poll: the notice must bring ours into the next. */
static void sleep__one_of_many_connections_speaks__wakes(void **state)
{
    (void)state;
    enum { MANY = 20, ROUNDS = 300 };
    struct n_cluster n;
    struct worker w = {.n = &n};
    struct rd_conn *conns[MANY];
    struct rd_event event;
    pthread_t thread;
    t_pool_open(&n.pool);
    n_open(&n.node, &no_heartbeat, n_address(n.address), MANY, 8);
    assert_int_equal(rd_listen(n.node.t.ep, n.address), 0);
    n_open(&n.peer, &no_heartbeat, NULL, MANY, 8);
    /* Soft-iWARP's library has queues of 576 KiB in a process, see rdma/README.md. */
    uint64_t many = nic_ep(n.node.t.ep)->device->iwarp ? 8 : MANY;
    for (uint64_t i = 0; i < many; i++)
        conns[i] = n_pair(&n.node, &n.peer, n.address, NULL);
    assert_int_equal(pthread_create(&thread, NULL, echo, &w), 0);
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t begin = t_now();
        struct rd_conn *c = conns[cn_mix64(i) % many];
        assert_int_equal(rd_send(c, &i, sizeof(i)), 0);
        assert_true(t_next(n.peer.t.ep, &event, 15000));
        assert_int_equal(event.type, RD_EV_MESSAGE);
        assert_ptr_equal(event.conn, c);
        assert_memory_equal(event.data, &i, sizeof(i));
        assert_true(t_now() - begin < AWAKE_NS);
    }
    __atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
    rd_ep_wake(n.node.t.ep);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(w.rounds, ROUNDS);
    n_cluster_close(&n);
}

static void two_peers__swap_one_word__each_success_once(void **state)
{
    (void)state;
    for (int by_message = 0; by_message < 2; by_message++) {
        const struct rd_fabric_config config = {.message_atomics = by_message == 1};
        struct n_cluster n;
        struct n_side second;
        n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
        n_open(&second, &config, NULL, 1, 8);
        struct rd_region *ring = n.node.t.ring;
        n.node.t.ring = NULL; /* it has an owner already */
        struct rd_conn *c = n_pair(&n.node, &second, n.address, NULL);
        n.node.t.ring = ring;
        uint64_t won[2] = {0, 0};
        for (uint64_t i = 0; i < 100; i++) {
            assert_int_equal(
                rd_cas(n.c, i, T_EXTENT_OFF, i, i + 1, WORD(&n.peer, 0), RD_SIGNALED), 0);
            assert_int_equal(
                rd_cas(c, i, T_EXTENT_OFF, i, i + 1, WORD(&second, 0), RD_SIGNALED), 0);
            assert_int_equal(n_status(&n.peer, i), 0);
            assert_int_equal(n_status(&second, i), 0);
            won[0] += *WORD(&n.peer, 0) == i;
            won[1] += *WORD(&second, 0) == i;
            assert_int_equal(won[0] + won[1], i + 1);
        }
        assert_int_equal(t_load(&n.pool, T_EXTENT_OFF), 100);
        assert_true(rd_write(c, 1, T_LOG_OFF, second.log, 8, 0) < 0); /* no ring */
        n_close(&second);
        n_cluster_close(&n);
    }
}

#define CASE(f) cmocka_unit_test_setup(f, n_reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fabric_open__wrong_options__refused),
        CASE(ep_open__wrong_address_or_limits__refused),
        CASE(connect__accepted__welcome_and_grants),
        CASE(read_and_cas__in_extent__as_told),
        CASE(write_flush_mark__in_ring__visible),
        CASE(cas__by_message__as_by_device),
        CASE(send__both_ways__in_order),
        CASE(connect__rejected__down_with_the_reason),
        CASE(connect__nobody_there__cause_and_remedy),
        CASE(fence__peer_goes_on_posting__nothing_changes),
        CASE(registrations__after_start__none),
        CASE(poll__hot_path__no_system_call_but_looks),
        CASE(wake__at_any_moment__ends_the_sleep),
        cmocka_unit_test(ep_fd__wakes__readable_when_armed),
        CASE(sleep__message_or_doorbell_comes__wakes),
        CASE(sleep__one_of_many_connections_speaks__wakes),
        CASE(two_peers__swap_one_word__each_success_once),
    };
    if (!n_have_device())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
