/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: connections come up, are refused, time out and go as the header says; addresses are safe.
 * Method: both ends in one thread; a stopped and a killed node in other processes; two threads with
 * an endpoint each.
 * Invariants: every connect ends in exactly one UP or DOWN by its deadline.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/stat.h>

#include "tests/support/rd_test.h"

static void listen__live_listener__address_in_use(void **state)
{
    (void)state;
    struct t_side one, two;
    char address[RD_ADDRESS_SIZE_MAX];
    struct stat st;
    t_open(&one, 1, 1);
    t_open(&two, 1, 1);
    assert_int_equal(rd_listen(one.ep, t_address(address)), 0);
    assert_int_equal(rd_listen(two.ep, address), -EADDRINUSE);
    assert_non_null(strstr(cairn_last_error(), address));
    assert_int_equal(rd_listen(one.ep, "/tmp/cairn-second"), CAIRN_E_STATE);
    assert_int_equal(stat(address, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    t_close(&one);
    assert_int_equal(stat(address, &st), -1); /* gone with its endpoint */
    assert_int_equal(rd_listen(two.ep, address), 0);
    t_close(&two);
    t_check_live_zero();
}

static void listen__file_that_is_no_socket__kept(void **state)
{
    (void)state;
    struct t_side side;
    char address[RD_ADDRESS_SIZE_MAX];
    struct stat st;
    int fd = open(t_address(address), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    t_open(&side, 1, 1);
    assert_int_equal(rd_listen(side.ep, address), -EADDRINUSE);
    assert_int_equal(stat(address, &st), 0);
    t_close(&side);
    (void)close(fd);
    (void)unlink(address);
    t_check_live_zero();
}

static void listen_and_connect__malformed_address__config_error(void **state)
{
    (void)state;
    struct t_side side;
    struct rd_conn *c = NULL;
    char address[200];
    memset(address, 'a', sizeof(address));
    address[108] = 0;
    t_open(&side, 1, 1);
    assert_int_equal(rd_listen(side.ep, ""), CAIRN_E_CONFIG);
    assert_int_equal(rd_listen(side.ep, address), CAIRN_E_CONFIG);
    assert_int_equal(rd_connect(side.ep, "", NULL, 0, t_now(), &c), CAIRN_E_CONFIG);
    assert_int_equal(rd_connect(side.ep, address, NULL, 0, t_now(), &c), CAIRN_E_CONFIG);
    assert_int_equal(rd_listen(side.ep, "/nonexistent-dir/socket"), -ENOENT);
    assert_null(c);
    t_close(&side);
    t_check_live_zero();
}

static void connect__nobody_listens__node_down(void **state)
{
    (void)state;
    struct t_side side;
    struct rd_conn *c = NULL;
    char address[RD_ADDRESS_SIZE_MAX];
    t_open(&side, 1, 1);
    (void)t_address(address);
    assert_int_equal(rd_connect(side.ep, address, NULL, 0, t_now() + 5000 * T_MS, &c), 0);
    assert_int_not_equal(rd_send(c, "x", 1), 0);
    struct rd_conn *second = NULL;
    assert_int_equal(rd_connect(side.ep, address, NULL, 0, t_now(), &second), CAIRN_E_LIMIT);
    struct rd_event event = t_expect(side.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, c);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_send(c, "x", 1), CAIRN_E_NODE_DOWN);
    rd_conn_delete(c);
    assert_int_equal(rd_connect(side.ep, address, NULL, 0, t_now() + 5000 * T_MS, &c), 0);
    rd_conn_delete(c); /* at once: no event of it any more */
    assert_false(t_next(side.ep, &event, 30));
    t_close(&side);
    t_check_live_zero();
}

static void connect__rejected__down_with_the_reason(void **state)
{
    (void)state;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    uint8_t reason[RD_WELCOME_SIZE_MAX];
    memset(reason, 0x42, sizeof(reason));
    t_open(&node, 1, 1);
    t_open(&peer, 1, 1);
    assert_int_equal(rd_listen(node.ep, t_address(address)), 0);
    for (int i = 0; i < 20; i++) {
        struct rd_conn *c = t_connect(peer.ep, address);
        struct rd_event event = t_expect(node.ep, RD_EV_CONNECT);
        assert_int_equal(rd_reject(event.conn, reason, sizeof(reason)), 0);
        event = t_expect(peer.ep, RD_EV_DOWN);
        assert_ptr_equal(event.conn, c);
        assert_true(event.status < 0);
        assert_int_equal(event.size, sizeof(reason));
        assert_memory_equal(event.data, reason, sizeof(reason));
        rd_conn_delete(c);
        assert_int_equal(rd_poll(node.ep, &event, 1), 0);
    }
    t_close(&node);
    t_close(&peer);
    t_check_live_zero();
}

static void connect__node_silent_or_stopped__timeout(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer, silent;
    struct rd_conn *c = NULL;
    char address[RD_ADDRESS_SIZE_MAX], silent_address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    struct t_child node = t_spawn_node(&pool, t_address(address));
    t_open(&peer, 2, 8);
    t_stop(&node);
    uint64_t start_ns = t_now();
    assert_int_equal(rd_connect(peer.ep, address, "hello", 5, start_ns + 100 * T_MS, &c), 0);
    struct rd_event event = t_expect(peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, c);
    assert_int_equal(event.status, CAIRN_E_TIMEOUT);
    assert_true(t_now() - start_ns >= 100 * T_MS);
    assert_true(t_now() - start_ns < 3000 * T_MS);
    rd_conn_delete(c);
    assert_int_equal(kill(node.pid, SIGCONT), 0);
    c = t_connect_up(peer.ep, address);
    rd_conn_delete(c);

    t_open(&silent, 1, 1); /* listens, and its user does not answer */
    assert_int_equal(rd_listen(silent.ep, t_address(silent_address)), 0);
    assert_int_equal(rd_connect(peer.ep, silent_address, NULL, 0, t_now() + 50 * T_MS, &c), 0);
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_TIMEOUT);
    (void)t_expect(silent.ep, RD_EV_CONNECT);
    assert_int_equal(t_expect(silent.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    t_close(&silent);
    t_close(&peer);
    t_quit_node(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void connect__node_full__down_limit(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_pool_open(&pool);
    t_open(&node, 1, 1);
    t_regions(&node, &pool);
    assert_int_equal(rd_listen(node.ep, t_address(address)), 0);
    t_open(&peer, 2, 1);
    struct rd_conn *passive = NULL;
    struct rd_conn *c = t_pair(&node, &peer, address, &passive);
    struct rd_conn *second = t_connect(peer.ep, address);
    struct rd_event event = t_expect(peer.ep, RD_EV_DOWN);
    assert_ptr_equal(event.conn, second);
    assert_int_equal(event.status, CAIRN_E_LIMIT);
    assert_int_equal(event.size, 0);
    rd_conn_delete(second);
    rd_conn_delete(c);
    (void)t_expect(node.ep, RD_EV_DOWN);
    rd_conn_delete(passive);
    assert_int_equal(rd_poll(node.ep, &event, 1), 0); /* makes its place free */
    (void)t_pair(&node, &peer, address, NULL);
    t_close(&peer);
    t_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void accept__without_ring__messages_both_ways_only(void **state)
{
    (void)state;
    struct t_side node, peer;
    char address[RD_ADDRESS_SIZE_MAX];
    t_open(&node, 1, 1);
    t_open(&peer, 1, 1);
    assert_int_equal(rd_listen(node.ep, t_address(address)), 0);
    struct rd_conn *c = t_connect(peer.ep, address);
    assert_int_equal(rd_send(c, "x", 1), CAIRN_E_STATE); /* not up */
    struct rd_event event = t_expect(node.ep, RD_EV_CONNECT);
    struct rd_conn *passive = event.conn;
    passive->user = &node;
    assert_int_equal(rd_accept(passive, NULL, 0, NULL, NULL, 0), 0);
    assert_int_equal(t_expect(peer.ep, RD_EV_UP).size, 0);
    (void)t_expect(node.ep, RD_EV_UP);
    assert_ptr_equal(passive->user, &node);
    assert_int_equal(rd_read(c, 1, 0, rd_ep_memory(peer.ep), 8, 0), CAIRN_E_FABRIC);
    assert_int_equal(rd_send(c, "ask", 3), 0);
    event = t_expect(node.ep, RD_EV_MESSAGE);
    assert_memory_equal(event.data, "ask", 3);
    assert_int_equal(rd_send(passive, "answer", 6), 0);
    event = t_expect(peer.ep, RD_EV_MESSAGE);
    assert_memory_equal(event.data, "answer", 6);

    assert_int_equal(rd_send(c, "late", 4), 0);
    assert_int_equal(rd_fence(passive), 0); /* what comes after it has no effect */
    assert_int_equal(rd_send(passive, "x", 1), CAIRN_E_FENCED);
    event = t_expect(node.ep, RD_EV_DOWN);
    assert_int_equal(event.status, CAIRN_E_FENCED);
    assert_int_equal(t_expect(peer.ep, RD_EV_DOWN).status, CAIRN_E_NODE_DOWN);
    rd_conn_delete(passive);
    assert_null(passive->user);
    t_close(&node);
    t_close(&peer);
    t_check_live_zero();
}

/* ---- threads: a node and its peer run at the same time in one process ---- */

#define ROUNDS 300

struct node_thread {
    struct t_pool *pool;
    const char *address;
    int ready; /* atomic */
};

static void *run_node(void *arg)
{
    struct node_thread *n = arg;
    struct t_side node;
    t_open(&node, 2, 4);
    t_regions(&node, n->pool);
    T_CHECK(rd_listen(node.ep, n->address) == 0);
    __atomic_store_n(&n->ready, 1, __ATOMIC_RELEASE);
    for (int downs = 0; downs < ROUNDS / 100;) {
        struct rd_event event;
        T_CHECK(t_next(node.ep, &event, 8000));
        if (event.type == RD_EV_CONNECT)
            T_CHECK(rd_accept(event.conn, &node.extent, 1, node.ring, "welcome", 7) == 0);
        if (event.type == RD_EV_MESSAGE) {
            uint64_t value;
            memcpy(&value, event.data, sizeof(value));
            T_CHECK(t_load(n->pool, T_LOG_OFF) == value); /* the mark came before the message */
            T_CHECK(rd_send(event.conn, event.data, event.size) == 0);
        }
        if (event.type == RD_EV_DOWN) {
            rd_conn_delete(event.conn);
            downs++;
        }
    }
    t_close(&node);
    return NULL;
}

static void threads__node_and_peer__all_orders_kept(void **state)
{
    (void)state;
    struct t_pool pool;
    struct t_side peer;
    char address[RD_ADDRESS_SIZE_MAX];
    pthread_t thread;
    t_pool_open(&pool);
    struct node_thread arg = {.pool = &pool, .address = t_address(address)};
    T_CHECK(pthread_create(&thread, NULL, run_node, &arg) == 0);
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && __atomic_load_n(&arg.ready, __ATOMIC_ACQUIRE) == 0; i++)
        (void)nanosleep(&pause, NULL);
    t_open(&peer, 1, 4);
    uint8_t *log = t_log_memory(peer.ep);
    struct rd_conn *c = NULL;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        if (c == NULL)
            c = t_connect_up(peer.ep, address);
        T_CHECK(rd_write(c, i, T_LOG_OFF + 64, log, 512, 0) == 0);
        T_CHECK(rd_flush(c, i, T_LOG_OFF + 64, 512, RD_SIGNALED) == 0);
        T_CHECK(t_expect(peer.ep, RD_EV_COMPLETION).status == 0);
        T_CHECK(rd_mark(c, i, T_LOG_OFF, i, 0) == 0);
        rd_doorbell(c);
        T_CHECK(rd_send(c, &i, sizeof(i)) == 0);
        struct rd_event event = t_expect(peer.ep, RD_EV_MESSAGE);
        T_CHECK(event.size == sizeof(i) && memcmp(event.data, &i, sizeof(i)) == 0);
        if (i % 100 == 0) {
            rd_conn_delete(c);
            c = NULL;
        }
    }
    T_CHECK(pthread_join(thread, NULL) == 0);
    t_close(&peer);
    t_pool_close(&pool);
    t_check_live_zero();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connect__node_silent_or_stopped__timeout),
        cmocka_unit_test(listen__live_listener__address_in_use),
        cmocka_unit_test(listen__file_that_is_no_socket__kept),
        cmocka_unit_test(listen_and_connect__malformed_address__config_error),
        cmocka_unit_test(connect__nobody_listens__node_down),
        cmocka_unit_test(connect__rejected__down_with_the_reason),
        cmocka_unit_test(connect__node_full__down_limit),
        cmocka_unit_test(accept__without_ring__messages_both_ways_only),
        cmocka_unit_test(threads__node_and_peer__all_orders_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
