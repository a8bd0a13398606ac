/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: granted memory is shared between processes, a fence keeps what it promises whatever state
 * the peer process is in, and a ring counts as busy exactly as long as a process has it mapped.
 * Method: real processes, forked before the parent opens an endpoint; SIGSTOP and SIGKILL.
 * Invariants: no live object is left in any process that ends by itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include "rdma/rd_emu.h"
#include "tests/support/rd_test.h"

static void two_processes__all_operations__same_memory(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_child node = t_spawn_node(&pool, t_address(address));
    t_open(&peer, 2, 16);
    struct rd_conn *c = t_connect_up(peer.ep, address);
    uint8_t *arena = rd_ep_memory(peer.ep), *log = t_log_memory(peer.ep);
    uint64_t *old = (uint64_t *)(void *)(arena + 1024);

    t_store(&pool, T_EXTENT_OFF + 8, 77);
    for (uint32_t i = 0; i < 1000; i++)
        log[i] = (uint8_t)i;
    assert_int_equal(rd_write(c, 1, T_LOG_OFF + 64, log, 1000, 0), 0);
    assert_int_equal(rd_flush(c, 2, T_LOG_OFF + 64, 1000, RD_SIGNALED), 0);
    assert_int_equal(rd_mark(c, 3, T_LOG_OFF, 42, RD_SIGNALED), 0);
    assert_int_equal(rd_cas(c, 4, T_EXTENT_OFF + 8, 77, 78, old, RD_SIGNALED), 0);
    assert_int_equal(rd_read(c, 5, T_EXTENT_OFF + 8, arena + 2048, 8, RD_SIGNALED), 0);
    for (uint64_t i = 2; i <= 5; i++) {
        struct rd_event event = t_expect(peer.ep, RD_EV_COMPLETION);
        assert_int_equal(event.wr_id, i);
        assert_int_equal(event.status, 0);
    }
    assert_memory_equal(pool.base + T_LOG_OFF + 64, log, 1000);
    assert_int_equal(t_load(&pool, T_LOG_OFF), 42);
    assert_int_equal(t_load(&pool, T_EXTENT_OFF + 8), 78);
    assert_int_equal(*old, 77);
    assert_int_equal(arena[2048], 78);

    uint8_t *message = arena + 4096;
    for (uint32_t size = 1; size <= RD_MESSAGE_SIZE_MAX; size += 455) {
        memset(message, (int)size, size);
        assert_int_equal(rd_send(c, message, size), 0);
        struct rd_event event = t_expect(peer.ep, RD_EV_MESSAGE);
        assert_int_equal(event.size, size);
        assert_memory_equal(event.data, message, size);
    }
    assert_int_equal(t_ask(&node, T_REVOKE), 1); /* we have it mapped */
    rd_conn_delete(c);
    t_close(&peer);
    assert_int_equal(t_ask(&node, T_REVOKE), 0);
    t_quit_node(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* ---- the peer is the child: it posts a write, stops itself, goes on with the flush ---- */

struct peer_arg {
    const char *address;
};

static void run_stopping_peer(int fd, void *arg)
{
    const struct peer_arg *a = arg;
    struct t_side peer;
    (void)t_get(fd); /* the node listens */
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect_up(peer.ep, a->address);
    uint8_t *log = t_log_memory(peer.ep);
    memset(log, 0x5a, 64);
    T_CHECK(rd_write(c, 1, T_LOG_OFF, log, 64, RD_SIGNALED) == 0);
    T_CHECK(t_expect(peer.ep, RD_EV_COMPLETION).status == 0);
    T_CHECK(raise(SIGSTOP) == 0);
    t_put(fd, rd_flush(c, 2, T_LOG_OFF, 64, RD_SIGNALED));
    struct rd_event event = t_expect(peer.ep, RD_EV_DOWN);
    t_put(fd, event.status);
    (void)t_get(fd); /* never comes: killed with the ring mapped */
}

/* Also in a child, which is quiet until told: connects and stays. */
static void run_staying_peer(int fd, void *arg)
{
    const struct peer_arg *a = arg;
    struct t_side peer;
    (void)t_get(fd);
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect_up(peer.ep, a->address);
    uint8_t *log = t_log_memory(peer.ep);
    T_CHECK(rd_write(c, 1, T_LOG_OFF, log, 64, 0) == 0);
    T_CHECK(rd_flush(c, 2, T_LOG_OFF, 64, RD_SIGNALED) == 0);
    T_CHECK(t_expect(peer.ep, RD_EV_COMPLETION).status == 0);
    t_put(fd, 0);
    if (t_get(fd) == T_QUIT) {
        rd_conn_delete(c);
        t_close(&peer);
        t_check_live_zero();
    }
}

static struct rd_conn *accept_peer(struct t_side *node)
{
    struct rd_event event = t_expect(node->ep, RD_EV_CONNECT);
    T_CHECK(rd_accept(event.conn, &node->extent, 1, node->ring, "welcome", 7) == 0);
    return t_expect(node->ep, RD_EV_UP).conn;
}

static void open_node(struct t_side *node, const struct t_pool *pool, const char *address)
{
    t_open(node, 4, 8);
    t_regions(node, pool);
    T_CHECK(rd_listen(node->ep, address) == 0);
}

static void fence__peer_stopped_between_write_and_flush__flush_fails(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node;
    char address[RD_ADDRESS_SIZE_MAX];
    struct peer_arg arg = {t_address(address)};
    int status = 0;
    bool busy = false;
    t_pool_open(&pool);
    struct t_child peer = t_spawn(run_stopping_peer, &arg);
    struct t_child second = t_spawn(run_staying_peer, &arg);
    open_node(&node, &pool, address);
    t_put(peer.fd, 0);
    struct rd_conn *c = accept_peer(&node);
    assert_int_equal(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
    assert_true(WIFSTOPPED(status));

    assert_int_equal(rd_fence(c), 0);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_true(busy); /* stopped, but the mapping is there */
    assert_int_equal(rd_ring_rearm(node.ring), CAIRN_E_STATE);
    assert_int_equal(kill(peer.pid, SIGCONT), 0);
    int flushed = t_get(peer.fd);
    assert_true(flushed == CAIRN_E_FENCED || flushed == CAIRN_E_NODE_DOWN);
    assert_int_equal(t_get(peer.fd), CAIRN_E_FENCED);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_true(busy); /* it knows, and still has not let go */

    t_reap(&peer, SIGKILL);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_false(busy);
    assert_int_equal(t_expect(node.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
    rd_conn_delete(c);
    assert_int_equal(rd_ring_rearm(node.ring), 0);
    assert_int_equal(t_load(&pool, T_RING_OFF), 0);

    t_put(second.fd, 0);
    c = accept_peer(&node); /* usable again: its flush succeeds */
    assert_int_equal(t_get(second.fd), 0);
    t_put(second.fd, T_QUIT);
    t_reap(&second, 0);
    assert_int_equal(t_expect(node.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void peer__killed__down_at_once_and_ring_free(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node;
    char address[RD_ADDRESS_SIZE_MAX];
    struct peer_arg arg = {t_address(address)};
    bool busy = false;
    t_pool_open(&pool);
    struct t_child peer = t_spawn(run_staying_peer, &arg);
    open_node(&node, &pool, address);
    t_put(peer.fd, 0);
    struct rd_conn *c = accept_peer(&node);
    assert_int_equal(t_get(peer.fd), 0);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_true(busy);
    uint64_t killed_ns = t_now();
    t_reap(&peer, SIGKILL);
    struct rd_event event = t_expect(node.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, c);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
    assert_true(t_now() - killed_ns < 1000 * T_MS);
    assert_int_equal(rd_send(c, "x", 1), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_false(busy);
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void node__killed_and_started_again__ring_busy_until_peer_lets_go(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_node_arg arg = {&pool, t_address(address)};
    struct t_child first = t_spawn_node(&pool, address);
    /* The second is forked now too, and starts when told: by then the parent has threads. */
    int gate[2];
    T_CHECK(pipe2(gate, O_CLOEXEC) == 0);
    pid_t pid = -1;
    int fds[2];
    T_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        (void)close(fds[0]);
        (void)t_get(gate[0]);
        t_node_run(fds[1], &arg);
        _exit(0);
    }
    (void)close(fds[1]);
    struct t_child second = {.pid = pid, .fd = fds[0]};

    t_open(&peer, 2, 8);
    struct rd_conn *c = t_connect_up(peer.ep, address);
    uint8_t *log = t_log_memory(peer.ep);
    assert_int_equal(rd_write(c, 1, T_LOG_OFF, log, 64, 0), 0);
    t_reap(&first, SIGKILL);
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_flush(c, 2, T_LOG_OFF, 64, RD_SIGNALED), CAIRN_E_NODE_DOWN);

    t_put(gate[1], 0);
    assert_int_equal(t_get(second.fd), 0); /* it listens: the stale socket was replaced */
    assert_int_equal(t_ask(&second, T_REVOKE), 1);
    assert_int_equal(t_ask(&second, T_REARM), CAIRN_E_STATE);
    struct rd_conn *again = t_connect(peer.ep, address); /* the old mapping stands in the way */
    struct rd_event event = t_expect(peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, again);
    assert_int_equal(event.status, CAIRN_E_FABRIC);
    rd_conn_delete(again);
    rd_conn_delete(c);
    assert_int_equal(t_ask(&second, T_REVOKE), 0);
    again = t_connect(peer.ep, address); /* fenced still */
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
    rd_conn_delete(again);
    assert_int_equal(t_ask(&second, T_REARM), 0);
    c = t_connect_up(peer.ep, address);
    assert_int_equal(rd_flush(c, 2, T_LOG_OFF, 64, RD_SIGNALED), 0);
    t_close(&peer);
    t_quit_node(&second);
    (void)close(gate[0]);
    (void)close(gate[1]);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void node__fences__peer_told_and_messages_cut(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_child node = t_spawn_node(&pool, t_address(address));
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect_up(peer.ep, address);
    assert_int_equal(rd_send(c, "x", 1), 0); /* its echo tells that the node knows we are up */
    (void)t_expect(peer.ep, RD_EV_MESSAGE);
    assert_int_equal(t_ask(&node, T_FENCE), 0);
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
    assert_int_equal(rd_send(c, "x", 1), CAIRN_E_FENCED);
    rd_conn_delete(c);
    t_quit_node(&node);
    t_close(&peer);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* ---- a fence against a peer that is writing at full speed ---- */

#define FENCE_ROUNDS 60

struct writer {
    const char *address;
    uint64_t acknowledged; /* the last value whose flush succeeded; read after the join */
    uint64_t going;        /* atomic */
};

static void *run_writer(void *arg)
{
    struct writer *w = arg;
    struct t_side peer;
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect_up(peer.ep, w->address);
    uint64_t *value = t_log_memory(peer.ep);
    for (uint64_t i = 1;; i++) {
        struct rd_event event;
        *value = i;
        if (rd_write(c, i, T_LOG_OFF, value, 8, 0) != 0)
            break;
        if (rd_flush(c, i, T_LOG_OFF, 8, RD_SIGNALED) != 0)
            break;
        T_CHECK(rd_poll(peer.ep, &event, 1) == 1);
        if (event.type != RD_EV_COMPLETION || event.status != 0)
            break;
        w->acknowledged = i;
        __atomic_store_n(&w->going, i, __ATOMIC_RELAXED);
    }
    t_close(&peer);
    return NULL;
}

static void fence__peer_writes_meanwhile__nothing_acknowledged_after_the_snapshot(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    open_node(&node, &pool, t_address(address));
    for (uint64_t round = 0; round < FENCE_ROUNDS; round++) {
        struct writer writer = {.address = address};
        pthread_t thread;
        t_store(&pool, T_LOG_OFF, 0);
        T_CHECK(pthread_create(&thread, NULL, run_writer, &writer) == 0);
        struct rd_conn *c = accept_peer(&node);
        uint64_t deadline_ns = t_now() + 8000 * T_MS;
        while (__atomic_load_n(&writer.going, __ATOMIC_RELAXED) <= round * 10)
            T_CHECK(t_now() < deadline_ns);
        assert_int_equal(rd_fence(c), 0);
        uint64_t snapshot = t_load(&pool, T_LOG_OFF);
        T_CHECK(pthread_join(thread, NULL) == 0);
        assert_true(writer.acknowledged <= snapshot);
        assert_int_equal(t_expect(node.ep, RD_EV_DOWN).status, CAIRN_E_FENCED);
        rd_conn_delete(c);
        assert_int_equal(rd_ring_rearm(node.ring), 0);
    }
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void conn_delete__a_forked_child_lives__ring_free(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    bool busy = false;
    int gate[2];
    t_pool_open(&pool);
    open_node(&node, &pool, t_address(address));
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_pair(&node, &peer, address, NULL);
    T_CHECK(pipe2(gate, O_CLOEXEC) == 0);
    pid_t pid = fork();
    T_CHECK(pid >= 0);
    if (pid == 0) {
        char byte;
        (void)close(gate[1]);
        (void)!read(gate[0], &byte, 1);
        _exit(0);
    }
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_true(busy);
    rd_conn_delete(c);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_false(busy);
    (void)close(gate[1]);
    (void)close(gate[0]);
    T_CHECK(waitpid(pid, NULL, 0) == pid);
    t_close(&peer);
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* ---- memory without a file ---- */

static void run_refused_peer(int fd, void *arg)
{
    const struct peer_arg *a = arg;
    struct t_side peer;
    (void)t_get(fd);
    t_open(&peer, 1, 8);
    struct rd_conn *c = t_connect(peer.ep, a->address);
    struct rd_event event = t_expect(peer.ep, RD_EV_DOWN);
    T_CHECK(event.conn == c && event.size == 4 && memcmp(event.data, "sure", 4) == 0);
    t_close(&peer);
    t_check_live_zero();
}

static void no_file__other_process__accept_refuses_same_process__works(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    struct peer_arg arg = {t_address(address)};
    bool busy = true;
    t_pool_open(&pool);
    struct t_child child = t_spawn(run_refused_peer, &arg);
    t_open(&node, 2, 8);
    const struct rd_memory extent = t_memory(&pool, T_EXTENT_OFF, T_EXTENT_SIZE, -1);
    const struct rd_memory ring = t_memory(&pool, T_RING_OFF, T_RING_SIZE, -1);
    T_CHECK(rd_region_new(node.ep, &extent, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &node.extent) == 0);
    T_CHECK(rd_region_new(node.ep, &ring, RD_ACCESS_READ | RD_ACCESS_WRITE, &node.ring) == 0);
    T_CHECK(rd_listen(node.ep, address) == 0);

    t_put(child.fd, 0);
    struct rd_event event = t_expect(node.ep, RD_EV_CONNECT);
    assert_int_equal(
        rd_accept(event.conn, &node.extent, 1, node.ring, "welcome", 7), CAIRN_E_FABRIC);
    assert_non_null(strstr(cairn_last_error(), "another process"));
    assert_int_equal(rd_reject(event.conn, "sure", 4), 0);
    t_reap(&child, 0);

    t_open(&peer, 1, 8);
    struct rd_conn *c = t_pair(&node, &peer, address, NULL);
    uint8_t *log = t_log_memory(peer.ep);
    memset(log, 0x77, 64);
    assert_int_equal(rd_write(c, 1, T_LOG_OFF, log, 64, 0), 0);
    assert_memory_equal(pool.base + T_LOG_OFF, log, 64);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_true(busy);
    t_close(&peer);
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_false(busy);
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* A character device stands for devdax. */
static void map__pool_of_a_device__written_back(void **state)
{
    (void)state;
    struct t_pool file, device = {.fd = open("/dev/zero", O_RDWR | O_CLOEXEC)};
    T_CHECK(device.fd >= 0);
    t_pool_open(&file);
    device.base = file.base; /* the node's own view of it does not matter here */
    for (int i = 0; i < 2; i++) {
        struct t_side node, peer;
        char address[RD_ADDRESS_SIZE_MAX];
        t_open(&node, 2, 8);
        t_regions(&node, i == 0 ? &file : &device);
        T_CHECK(rd_listen(node.ep, t_address(address)) == 0);
        t_open(&peer, 2, 8);
        struct emu_conn *c = emu_conn(t_pair(&node, &peer, address, NULL));
        assert_int_equal(c->write_back, i == 1);
        assert_true(c->plain);
        t_close(&peer);
        t_close(&node);
    }
    T_CHECK(close(device.fd) == 0);
    t_pool_close(&file);
    t_check_live_zero();
}

static void region_new__ring__leaves_the_fence_word(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node;
    t_pool_open(&pool);
    t_store(&pool, T_RING_OFF, 1);
    t_open(&node, 1, 1);
    t_regions(&node, &pool);
    assert_int_equal(t_load(&pool, T_RING_OFF), 1);
    struct rd_counters counters;
    rd_ep_counters(node.ep, &counters);
    assert_int_equal(counters.registrations, 2);
    const struct rd_memory endless = {
        .base = pool.base, .pool_off = 8, .size = UINT64_MAX - 8, .fd = pool.fd};
    const struct rd_memory closed = {.base = pool.base, .size = 4096, .fd = 987654};
    struct rd_region *region = NULL;
    assert_int_equal(rd_region_new(node.ep, &endless, RD_ACCESS_READ, &region), CAIRN_E_FABRIC);
    assert_int_equal(rd_region_new(node.ep, &closed, RD_ACCESS_READ, &region), -EBADF);
    assert_null(region);
    node.ring = node.extent = NULL; /* closing takes regions along */
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes__all_operations__same_memory),
        cmocka_unit_test(fence__peer_stopped_between_write_and_flush__flush_fails),
        cmocka_unit_test(peer__killed__down_at_once_and_ring_free),
        cmocka_unit_test(node__killed_and_started_again__ring_busy_until_peer_lets_go),
        cmocka_unit_test(node__fences__peer_told_and_messages_cut),
        cmocka_unit_test(fence__peer_writes_meanwhile__nothing_acknowledged_after_the_snapshot),
        cmocka_unit_test(conn_delete__a_forked_child_lives__ring_free),
        cmocka_unit_test(no_file__other_process__accept_refuses_same_process__works),
        cmocka_unit_test(map__pool_of_a_device__written_back),
        cmocka_unit_test(region_new__ring__leaves_the_fence_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
