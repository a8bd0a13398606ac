/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: however and whenever a connection ends, both sides hear of it once, nothing the other side
 * posted has an effect afterwards, and nothing is left behind.
 * Method: two endpoints in one thread, stopped at every state; nodes in other processes that are
 * killed. The processes are made before any device is touched.
 * Invariants: rd_live is what it was, and so are the kernel's own counts (`rdma resource`) and the
 * descriptors of the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>

#include "tests/support/rd_rpma_test.h"

#define NODES 3

static struct r_side node, peer;
static char address[RD_ADDRESS_SIZE_MAX];
static struct t_pool pool;
static struct t_child children[NODES];
static char child_addresses[NODES][RD_ADDRESS_SIZE_MAX];

static void open_both(struct r_config with)
{
    t_pool_open(&pool);
    r_open(&node, r_address(address, NULL), with);
    r_regions(&node, &pool);
    r_open(&peer, NULL, with);
}

static void close_both(void)
{
    r_close(&peer);
    r_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* ---- a node in a child ---- */

enum { SERVE = 1, QUIT, CONNECT }; /* CONNECT: to the parent, whose port follows */

static bool child_obey(struct r_side *side, int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (poll(&p, 1, 0) != 1)
        return true;
    int command = t_get(fd);
    if (command == QUIT)
        return false;
    T_CHECK(command == CONNECT);
    char to[RD_ADDRESS_SIZE_MAX];
    (void)snprintf(to, sizeof(to), "%s:%d", r_host, t_get(fd));
    (void)r_connect(side, to, R_WAIT_MS);
    return true;
}

static void child_serve(int fd, const char *at)
{
    r_open(&node, at, (struct r_config){.heartbeat_ms = 60000});
    t_pool_open(&pool);
    r_regions(&node, &pool);
    t_put(fd, 0);
    while (child_obey(&node, fd)) {
        const struct r_event *event = r_next(&node, 1);
        if (event == NULL)
            continue;
        switch (event->e.type) {
        case RD_EV_CONNECT:
            T_CHECK(rd_accept(event->e.conn, &node.extent, 1, node.ring, "welcome", 7) == 0);
            break;
        case RD_EV_MESSAGE:
            T_CHECK(rd_send(event->e.conn, event->data, event->e.size) == 0);
            break;
        case RD_EV_DOWN:
            rd_conn_delete(event->e.conn);
            break;
        default:
            break;
        }
    }
    r_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* Waits until it is wanted; the socket's end tells that it is not. */
static void child_run(int fd, void *arg)
{
    int command = 0;
    if (read(fd, &command, sizeof(command)) == (ssize_t)sizeof(command) && command == SERVE)
        child_serve(fd, arg);
}

/* ---- the kernel's view ---- */

struct seen {
    struct rd_live live;
    char resources[512];
    int descriptors;
};

static void look(struct seen *seen)
{
    memset(seen, 0, sizeof(*seen));
    rd_live_get(&seen->live);
    FILE *out = popen("rdma resource show", "r");
    if (out != NULL) {
        size_t n = fread(seen->resources, 1, sizeof(seen->resources) - 1, out);
        seen->resources[n] = 0;
        (void)pclose(out);
    }
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        seen->descriptors++;
    (void)closedir(dir);
}

static void check_same(const struct seen *before)
{
    struct seen now;
    look(&now);
    assert_memory_equal(&now.live, &before->live, sizeof(now.live));
    assert_int_equal(now.descriptors, before->descriptors);
    assert_string_equal(now.resources, before->resources);
}

/* ---- ends ---- */

static void delete__either_side__the_other_is_told(void **state)
{
    (void)state;
    open_both((struct r_config){0});
    for (int active = 0; active < 2; active++) {
        struct rd_conn *passive;
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        rd_conn_delete(active ? c : passive);
        uint64_t start = t_now();
        const struct r_event *event = r_expect(active ? &node : &peer, RD_EV_DOWN);
        assert_ptr_equal(event->e.conn, active ? passive : c);
        assert_int_equal(event->e.status, CAIRN_E_NODE_DOWN);
        assert_true(strlen(event->text) > 10);
        assert_true(t_now() - start < 3000 * T_MS);
        rd_conn_delete(active ? passive : c);
        r_run(10);
        assert_null(r_next(&node, 0));
        assert_null(r_next(&peer, 0));
    }
    close_both();
}

static void delete__messages_before__delivered_first(void **state)
{
    (void)state;
    open_both((struct r_config){0});
    for (int active = 0; active < 2; active++) {
        struct rd_conn *passive;
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        struct rd_conn *from = active ? c : passive;
        for (char i = 0; i < 5; i++)
            assert_int_equal(rd_send(from, &i, 1), 0);
        rd_conn_delete(from);
        r_run(5);
        for (char i = 0; i < 5; i++) {
            const struct r_event *event = r_expect(active ? &node : &peer, RD_EV_MESSAGE);
            assert_int_equal(event->e.size, 1);
            assert_int_equal(event->data[0], i);
        }
        (void)r_expect(active ? &node : &peer, RD_EV_DOWN);
        rd_conn_delete(active ? passive : c);
    }
    close_both();
}

static const char *const state_names[] = {"free", "address", "route", "first", "further", "log",
    "asking", "testing", "greeting", "asked", "accepted", "up", "refusing", "down"};

static struct nic_conn *find(struct r_side *side, enum nic_state wanted)
{
    struct nic_ep *ep = nic_ep(side->ep);
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        if (ep->conns[i].state == wanted)
            return &ep->conns[i];
    }
    return NULL;
}

/* Run until a connection of the side is in that state; accept what asks, unless that is it. NULL:
 * it was faster than we looked, and is up. */
static struct nic_conn *run_until(struct r_side *side, enum nic_state wanted)
{
    for (uint64_t end = t_now() + R_WAIT_MS * T_MS; t_now() < end;) {
        struct nic_conn *c = find(side, wanted);
        if (c != NULL)
            return c;
        struct r_side *turn[] = {&peer, &node};
        for (size_t i = 0; i < 2; i++) {
            r_poll(turn[i]);
            c = find(side, wanted);
            if (c != NULL)
                return c;
        }
        if (find(&peer, NIC_UP) != NULL && find(&node, NIC_UP) != NULL)
            return NULL;
        if (node.head != node.tail && node.events[node.tail % R_EVENTS].e.type == RD_EV_CONNECT) {
            struct rd_conn *asking = node.events[node.tail++ % R_EVENTS].e.conn;
            assert_int_equal(rd_accept(asking, &node.extent, 1, node.ring, "welcome", 7), 0);
        }
    }
    T_CHECK(false);
    return NULL;
}

static void forget_all(void)
{
    struct r_side *sides[] = {&peer, &node};
    for (size_t i = 0; i < 2; i++) {
        r_run(20);
        struct nic_ep *ep = nic_ep(sides[i]->ep);
        for (uint32_t k = 0; k < ep->connections_max; k++) {
            enum nic_state now = ep->conns[k].state;
            if (now != NIC_FREE && now != NIC_DELETED && now != NIC_GREETING)
                rd_conn_delete(&ep->conns[k].base);
        }
    }
    r_run(20);
    node.tail = node.head;
    peer.tail = peer.head;
}

/* A connection in that state; on the way to it there may be several tries. */
static struct nic_conn *bring(struct r_side *side, enum nic_state wanted)
{
    if (wanted == NIC_TESTING && r_iwarp(&peer)) /* no atomics */
        return NULL;
    for (int tries = 0; tries < 50; tries++) {
        (void)r_connect(&peer, address, R_WAIT_MS);
        struct nic_conn *c = run_until(side, wanted);
        if (c != NULL)
            return c;
        forget_all();
    }
    print_message("never seen %s\n", state_names[wanted]);
    return NULL;
}

static void delete__in_every_state__leaves_nothing(void **state)
{
    (void)state;
    static const enum nic_state of_peer[] = {NIC_ADDRESS, NIC_ROUTE, NIC_FIRST, NIC_FURTHER,
        NIC_LOG, NIC_ASKING, NIC_TESTING, NIC_UP};
    static const enum nic_state of_node[] = {NIC_ASKED, NIC_ACCEPTED, NIC_UP};
    struct seen before;
    uint64_t longest = 0;
    open_both((struct r_config){.queue_pairs = 4});
    rd_conn_delete(r_pair(&node, &peer, address, NULL)); /* all that is made once is there */
    rd_conn_delete(r_expect(&node, RD_EV_DOWN)->e.conn);
    r_run(20);
    look(&before);
    for (size_t i = 0; i < CN_ARRAY_SIZE(of_peer) + CN_ARRAY_SIZE(of_node); i++) {
        bool active = i < CN_ARRAY_SIZE(of_peer);
        enum nic_state wanted = active ? of_peer[i] : of_node[i - CN_ARRAY_SIZE(of_peer)];
        struct nic_conn *c = bring(active ? &peer : &node, wanted);
        if (c == NULL)
            continue;
        uint64_t start = t_now();
        rd_conn_delete(&c->base);
        longest = cn_max64(longest, t_now() - start);
        r_run(20);
        assert_null(find(active ? &node : &peer, NIC_UP)); /* it has been told */
        forget_all();
        check_same(&before);
    }
    print_message("longest delete: %llu us\n", (unsigned long long)(longest / 1000));
    rd_conn_delete(r_pair(&node, &peer, address, NULL));
    close_both();
}

static void close__in_every_state__leaves_nothing(void **state)
{
    (void)state;
    static const enum nic_state states[] = {NIC_ADDRESS, NIC_ROUTE, NIC_FIRST, NIC_FURTHER, NIC_LOG,
        NIC_ASKING, NIC_TESTING, NIC_UP, NIC_GREETING, NIC_ASKED, NIC_ACCEPTED};
    struct seen before;
    look(&before);
    for (size_t i = 0; i < CN_ARRAY_SIZE(states); i++) {
        open_both((struct r_config){.queue_pairs = 3});
        bool active = states[i] < NIC_GREETING || states[i] == NIC_UP;
        (void)bring(active ? &peer : &node, states[i]);
        if (i % 2 == 0 && !r_iwarp(&peer)) { /* there it would wait ten seconds for an answer */
            close_both();
            continue;
        }
        r_close(&node);
        r_close(&peer);
        t_pool_close(&pool);
        t_check_live_zero();
    }
    check_same(&before);
}

static void reconnect__200_times__leaks_nothing(void **state)
{
    (void)state;
    struct seen before;
    open_both((struct r_config){.queue_pairs = 1});
    rd_conn_delete(r_pair(&node, &peer, address, NULL));
    rd_conn_delete(r_expect(&node, RD_EV_DOWN)->e.conn);
    r_run(20);
    look(&before);
    for (int i = 0; i < 200; i++) {
        struct rd_conn *passive;
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        rd_conn_delete(i % 2 == 0 ? c : passive);
        if (i % 2 == 0)
            rd_conn_delete(r_expect(&node, RD_EV_DOWN)->e.conn);
        else
            rd_conn_delete(r_expect(&peer, RD_EV_DOWN)->e.conn);
    }
    r_run(50);
    check_same(&before);
    assert_null(r_next(&node, 0));
    assert_null(r_next(&peer, 0));
    close_both();
}

/* ---- loss ---- */

static void fail__twice__told_once_with_the_first_cause(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both((struct r_config){0});
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    uint64_t *arena = rd_ep_memory(peer.ep);
    for (uint64_t i = 0; i < 16; i++)
        assert_int_equal(rd_read(c, 100 + i, T_EXTENT_OFF, arena, 8, RD_SIGNALED), 0);
    rd_rpma_conn_fail(nic_conn(c), CAIRN_E_FABRIC, "cause %d", 1);
    rd_rpma_conn_fail(nic_conn(c), CAIRN_E_PROTOCOL, "cause %d", 2);
    assert_false(nic_conn(c)->qp[0].has_qp);
    assert_null(nic_conn(c)->log);
    for (uint64_t i = 0; i < 16; i++) {
        const struct r_event *event = r_expect(&peer, RD_EV_COMPLETION);
        assert_int_equal(event->e.wr_id, 100 + i);
        assert_int_equal(event->e.status, CAIRN_E_FABRIC);
    }
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_int_equal(event->e.status, CAIRN_E_FABRIC);
    assert_string_equal(event->text, "cause 1");
    assert_null(event->e.data);
    assert_int_equal(r_expect(&node, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
    r_run(20);
    assert_null(r_next(&peer, 0));
    close_both();
}

static void fail__deleted_before_its_events_are_polled__no_event(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both((struct r_config){0});
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    c->user = &pool;
    uint64_t *arena = rd_ep_memory(peer.ep);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(rd_read(c, i, T_EXTENT_OFF, arena, 8, RD_SIGNALED), 0);
    rd_rpma_conn_fail(nic_conn(c), CAIRN_E_FABRIC, "cause");
    rd_conn_delete(c);
    assert_null(c->user);
    /* The slot serves again at once; what was of its predecessor is not told. */
    struct rd_conn *next = NULL;
    for (uint32_t i = 0; i < 4; i++) {
        next = r_connect(&peer, address, R_WAIT_MS);
        if (next == c)
            break;
    }
    assert_ptr_equal(next, c);
    r_run(20);
    assert_true(peer.head == peer.tail || peer.events[peer.tail % R_EVENTS].e.type == RD_EV_UP);
    /* iWARP: closing waits for the answers to what is being connected, which only we can give. */
    static const enum nic_state connecting[] = {
        NIC_ADDRESS, NIC_ROUTE, NIC_FIRST, NIC_FURTHER, NIC_LOG};
    uint64_t end = t_now() + R_WAIT_MS * T_MS;
    for (size_t i = 0; i < CN_ARRAY_SIZE(connecting);) {
        r_turn();
        assert_true(t_now() < end);
        i = find(&peer, connecting[i]) != NULL ? 0 : i + 1;
    }
    close_both();
}

static void fence__then_the_peer_posts__errors_and_no_effect(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both((struct r_config){0});
    for (int round = 0; round < 3; round++) {
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        uint64_t *arena = rd_ep_memory(peer.ep);
        uint8_t *log = (uint8_t *)arena + (1 << 18) - (1 << 16);
        memset(log, 0x77, 64);
        memset(pool.base, 0, T_POOL_SIZE);
        assert_int_equal(rd_send(passive, "last words", 10), 0);
        assert_int_equal(rd_fence(passive), 0);
        assert_int_equal(rd_fence(passive), 0); /* as often as one likes */
        assert_int_equal(rd_send(passive, "x", 1), CAIRN_E_FENCED);
        /* The peer does not know yet: it may post, but nothing succeeds. */
        uint32_t posted = 0;
        posted += rd_write(c, 1, T_LOG_OFF, log, 64, RD_SIGNALED) == 0;
        posted += rd_mark(c, 2, T_LOG_OFF + 64, 5, RD_SIGNALED) == 0;
        posted += rd_cas(c, 3, T_EXTENT_OFF, 0, 9, arena, RD_SIGNALED) == 0;
        posted += rd_read(c, 4, T_EXTENT_OFF, arena + 1, 8, RD_SIGNALED) == 0;
        assert_int_equal(posted, 4);
        const struct r_event *event = r_expect(&peer, RD_EV_MESSAGE);
        assert_memory_equal(event->data, "last words", 10);
        for (uint32_t i = 0; i < posted; i++) {
            event = r_expect(&peer, RD_EV_COMPLETION);
            assert_int_not_equal(event->e.status, 0);
        }
        event = r_expect(&peer, RD_EV_DOWN);
        assert_true(event->e.status == CAIRN_E_NODE_DOWN || event->e.status == CAIRN_E_FENCED);
        for (uint64_t at = 0; at < T_POOL_SIZE; at += 8)
            T_CHECK(t_load(&pool, at) == 0);
        event = r_expect(&node, RD_EV_DOWN);
        assert_ptr_equal(event->e.conn, passive);
        assert_int_equal(event->e.status, CAIRN_E_FENCED);
        rd_conn_delete(c);
        rd_conn_delete(passive);
        r_run(10);
        assert_int_equal(rd_ring_rearm(node.ring), 0);
    }
    close_both();
}

static void fence__a_connection_that_is_down__the_ring_is_revoked(void **state)
{
    (void)state;
    struct rd_conn *passive;
    open_both((struct r_config){0});
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    rd_conn_delete(c);
    (void)r_expect(&node, RD_EV_DOWN);
    assert_non_null(nic_region(node.ring)->log_mr);
    assert_int_equal(rd_fence(passive), 0);
    assert_null(nic_region(node.ring)->log_mr);
    r_run(10);
    assert_null(r_next(&node, 0));
    rd_conn_delete(passive);
    close_both();
}

static void peer_process__killed__down_soon(void **state)
{
    (void)state;
    struct rd_event event;
    struct t_child *child = &children[0];
    assert_int_equal(t_ask(child, SERVE), 0);
    r_open(&peer, NULL, (struct r_config){.heartbeat_ms = 60000}); /* not by a heartbeat */
    struct rd_conn *c = r_connect(&peer, child_addresses[0], R_WAIT_MS);
    assert_ptr_equal(r_expect(&peer, RD_EV_UP)->e.conn, c);
    assert_int_equal(rd_send(c, "echo", 4), 0);
    assert_memory_equal(r_expect(&peer, RD_EV_MESSAGE)->data, "echo", 4);
    assert_false(t_next(peer.ep, &event, 50));
    t_reap(child, SIGKILL);
    uint64_t start = t_now();
    assert_true(t_next(peer.ep, &event, R_WAIT_MS)); /* wakes the sleeper */
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
    assert_true(t_now() - start < 3000 * T_MS);
    rd_conn_delete(c);
    /* Nobody is there any more. */
    c = r_connect(&peer, child_addresses[0], R_WAIT_MS);
    assert_int_equal(r_expect(&peer, RD_EV_DOWN)->e.status, CAIRN_E_REJECTED);
    r_close(&peer);
    t_check_live_zero();
}

static void active_process__killed__down_soon_at_the_node(void **state)
{
    (void)state;
    struct rd_event event;
    uint16_t port;
    struct t_child *child = &children[1];
    t_pool_open(&pool);
    r_open(&node, r_address(address, &port), (struct r_config){.heartbeat_ms = 60000});
    r_regions(&node, &pool);
    assert_int_equal(t_ask(child, SERVE), 0);
    t_put(child->fd, CONNECT);
    t_put(child->fd, port);
    const struct r_event *asking = r_expect(&node, RD_EV_CONNECT);
    assert_int_equal(rd_accept(asking->e.conn, &node.extent, 1, node.ring, "welcome", 7), 0);
    struct rd_conn *c = r_expect(&node, RD_EV_UP)->e.conn;
    t_reap(child, SIGKILL);
    uint64_t start = t_now();
    assert_true(t_next(node.ep, &event, R_WAIT_MS));
    assert_int_equal(event.type, RD_EV_DOWN);
    assert_ptr_equal(event.conn, c);
    assert_int_equal(event.status, CAIRN_E_NODE_DOWN);
    assert_true(t_now() - start < 3000 * T_MS);
    assert_int_equal(rd_fence(c), 0);
    r_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* Its device answers heartbeats though its process does not run. */
static void peer_process__stopped__stays_up_and_goes_on(void **state)
{
    (void)state;
    struct t_child *child = &children[2];
    assert_int_equal(t_ask(child, SERVE), 0);
    r_open(&peer, NULL, (struct r_config){.heartbeat_ms = 150});
    struct rd_conn *c = r_connect(&peer, child_addresses[2], R_WAIT_MS);
    (void)r_expect(&peer, RD_EV_UP);
    t_stop(child);
    assert_int_equal(rd_send(c, "echo", 4), 0);
    assert_null(r_next(&peer, 1000));
    assert_int_equal(kill(child->pid, SIGCONT), 0);
    assert_memory_equal(r_expect(&peer, RD_EV_MESSAGE)->data, "echo", 4);
    t_put(child->fd, QUIT);
    t_reap(child, 0);
    assert_int_equal(r_expect(&peer, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
    r_close(&peer);
    t_check_live_zero();
}

int main(void)
{
    (void)r_main_address();
    for (int i = 0; i < NODES; i++) {
        (void)r_address(child_addresses[i], NULL);
        children[i] = t_spawn(child_run, child_addresses[i]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delete__either_side__the_other_is_told),
        cmocka_unit_test(delete__messages_before__delivered_first),
        cmocka_unit_test(delete__in_every_state__leaves_nothing),
        cmocka_unit_test(close__in_every_state__leaves_nothing),
        cmocka_unit_test(reconnect__200_times__leaks_nothing),
        cmocka_unit_test(fail__twice__told_once_with_the_first_cause),
        cmocka_unit_test(fail__deleted_before_its_events_are_polled__no_event),
        cmocka_unit_test(fence__then_the_peer_posts__errors_and_no_effect),
        cmocka_unit_test(fence__a_connection_that_is_down__the_ring_is_revoked),
        cmocka_unit_test(peer_process__killed__down_soon),
        cmocka_unit_test(active_process__killed__down_soon_at_the_node),
        cmocka_unit_test(peer_process__stopped__stays_up_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
