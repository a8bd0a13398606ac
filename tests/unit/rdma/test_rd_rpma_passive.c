/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: strangers cost a listening endpoint little and break nothing: hostile private data, wrong
 * cookies, silence, too many connections.
 * Method: a raw client of rdma_cm against an endpoint, in one thread.
 * Invariants: what is refused leaves no object behind, and the endpoint serves honest peers after.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/rd_rpma_test.h"

#define REFUSED 28 /* IB_CM_REJ_CONSUMER_DEFINED */

static struct r_side node, peer;
static char address[RD_ADDRESS_SIZE_MAX];
static uint16_t port;
static struct t_pool pool;
static struct rd_live before;

static void open_node(uint32_t connections)
{
    t_pool_open(&pool);
    r_open(&node, r_address(address, &port), (struct r_config){.connections = connections});
    r_regions(&node, &pool);
    rd_live_get(&before);
}

static void close_node(void)
{
    r_close(&node);
    t_pool_close(&pool);
    t_check_live_zero();
}

/* Nothing but the node itself is left, and it serves. */
static void check_serves(void)
{
    struct rd_live now;
    r_run(20);
    rd_live_get(&now);
    assert_memory_equal(&now, &before, sizeof(now));
    assert_null(r_next(&node, 0));
    r_open(&peer, NULL, (struct r_config){0});
    struct rd_conn *c = r_pair(&node, &peer, address, NULL);
    rd_conn_delete(c);
    rd_conn_delete(r_expect(&node, RD_EV_DOWN)->e.conn);
    r_close(&peer);
}

/* A connect with that private data is refused with the error. */
static void check_refused(const void *data, uint8_t size, int error)
{
    struct r_raw raw;
    struct rd_rpma_cm_wire wire;
    r_raw_connect(&raw, port, data, size);
    if (r_iwarp(&node)) {
        assert_int_equal(raw.type, RDMA_CM_EVENT_ESTABLISHED);
    } else {
        assert_int_equal(raw.type, RDMA_CM_EVENT_REJECTED);
        assert_int_equal(raw.status, REFUSED);
    }
    assert_int_equal(rd_rpma_check_cm(raw.data, raw.size, &wire), 0);
    assert_int_equal(-(int)le32_get(wire.error), error);
    r_raw_close(&raw);
}

static void on_request__hostile_private_data__refused_with_the_reason(void **state)
{
    (void)state;
    uint8_t garbage[56];
    open_node(4);
    /* Arrives as zeros; on iWARP as nothing. */
    check_refused(NULL, 0, r_iwarp(&node) ? CAIRN_E_PROTOCOL : CAIRN_E_WIRE_VERSION);
    memset(garbage, 0xa5, sizeof(garbage));
    check_refused(garbage, sizeof(garbage), CAIRN_E_WIRE_VERSION);

    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0);
    wire.version = le16_make(RD_RPMA_VERSION + 1);
    check_refused(&wire, sizeof(wire), CAIRN_E_WIRE_VERSION);
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0);
    wire.reserved[15] = 1;
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    memset(garbage, 0, sizeof(garbage));
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0);
    memcpy(garbage, &wire, sizeof(wire));
    garbage[sizeof(garbage) - 1] = 1; /* behind our bytes */
    check_refused(garbage, sizeof(garbage), CAIRN_E_PROTOCOL);
    wire = r_wire((enum rd_rpma_channel)9, 0);
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 7); /* with a cookie */
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0);
    wire.error = le32_make(20033); /* only a refusal has one */
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, UINT64_C(0x123456780000)); /* of nobody */
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, UINT64_C(0x12345678ffff));
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, 1);
    wire.index = NIC_QPS_MAX;
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_LOG, 1); /* the other port's */
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    check_serves();
    close_node();
}

/* An honest first queue pair; returns the cookie. */
static uint64_t connect_first(struct r_raw *raw)
{
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0);
    r_raw_connect(raw, port, &wire, sizeof(wire));
    assert_int_equal(raw->type, RDMA_CM_EVENT_ESTABLISHED);
    assert_int_equal(rd_rpma_check_cm(raw->data, raw->size, &wire), 0);
    assert_int_equal(wire.channel, RD_RPMA_CHANNEL_FIRST);
    return le64_get(wire.cookie);
}

static void on_request__first_then_silence__dropped_in_time(void **state)
{
    (void)state;
    struct r_raw raw;
    struct rd_live now;
    open_node(4);
    nic_ep(node.ep)->passive_ns = 300 * T_MS;
    uint64_t start = t_now();
    assert_true(connect_first(&raw) != 0);
    rd_live_get(&now);
    assert_int_equal(now.connections, before.connections + 1);
    assert_true(r_raw_next(&raw, R_WAIT_MS));
    assert_int_equal(raw.type, RDMA_CM_EVENT_DISCONNECTED);
    assert_true(t_now() - start >= 290 * T_MS);
    assert_true(t_now() - start < 3000 * T_MS);
    rd_live_get(&now);
    assert_memory_equal(&now, &before, sizeof(now));
    r_raw_close(&raw);
    check_serves();
    close_node();
}

static void on_request__further_queue_pairs__only_of_a_connection_once(void **state)
{
    (void)state;
    struct r_raw first, second;
    open_node(4);
    uint64_t cookie = connect_first(&first);
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_FURTHER, cookie);
    r_raw_connect(&second, port, &wire, sizeof(wire));
    assert_int_equal(second.type, RDMA_CM_EVENT_ESTABLISHED);
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL); /* the same index again */
    wire.cookie = le64_make(cookie ^ UINT64_C(0x10000));
    wire.index = 2;
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    /* It goes when any of its queue pairs goes. */
    r_raw_close(&second);
    assert_true(r_raw_next(&first, R_WAIT_MS));
    assert_int_equal(first.type, RDMA_CM_EVENT_DISCONNECTED);
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, cookie);
    check_refused(&wire, sizeof(wire), CAIRN_E_PROTOCOL);
    r_raw_close(&first);
    check_serves();
    close_node();
}

/* Dropped: refused, or accepted and gone. */
static void check_log_dropped(const void *data, uint8_t size)
{
    struct r_raw raw;
    r_raw_connect(&raw, (uint16_t)(port + 1), data, size);
    if (raw.type == RDMA_CM_EVENT_ESTABLISHED)
        assert_true(r_raw_next(&raw, R_WAIT_MS));
    /* CONNECT_ERROR: accepted, and gone before librdmacm could use it. */
    assert_true(raw.type == RDMA_CM_EVENT_REJECTED || raw.type == RDMA_CM_EVENT_DISCONNECTED ||
                raw.type == RDMA_CM_EVENT_CONNECT_ERROR);
    r_raw_close(&raw);
}

static void on_log_request__wrong_cookie_or_garbage__dropped(void **state)
{
    (void)state;
    struct r_raw first;
    uint8_t garbage[56];
    open_node(4);
    uint64_t cookie = connect_first(&first);
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_LOG, cookie ^ UINT64_C(0x100000));
    check_log_dropped(&wire, sizeof(wire));
    wire = r_wire(RD_RPMA_CHANNEL_LOG, UINT64_C(0xffffffffffff)); /* no such slot */
    check_log_dropped(&wire, sizeof(wire));
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, cookie);
    check_log_dropped(&wire, sizeof(wire));
    wire = r_wire(RD_RPMA_CHANNEL_LOG, cookie);
    wire.version = le16_make(77);
    check_log_dropped(&wire, sizeof(wire));
    memset(garbage, 0xff, sizeof(garbage));
    check_log_dropped(garbage, sizeof(garbage));
    check_log_dropped(NULL, 0);
    /* The connection they named is as it was, and a second log connection is one too many. */
    struct r_raw log;
    wire = r_wire(RD_RPMA_CHANNEL_LOG, cookie);
    r_raw_connect(&log, (uint16_t)(port + 1), &wire, sizeof(wire));
    assert_int_equal(log.type, RDMA_CM_EVENT_ESTABLISHED);
    check_log_dropped(&wire, sizeof(wire));
    assert_false(r_raw_next(&log, 50));
    r_raw_close(&log);
    assert_true(r_raw_next(&first, R_WAIT_MS));
    assert_int_equal(first.type, RDMA_CM_EVENT_DISCONNECTED);
    r_raw_close(&first);
    check_serves();
    close_node();
}

static void on_request__connections_max__limit(void **state)
{
    (void)state;
    struct rd_conn *conns[2];
    open_node(2);
    r_open(&peer, NULL, (struct r_config){.connections = 4});
    conns[0] = r_pair(&node, &peer, address, NULL);
    conns[1] = r_pair(&node, &peer, address, NULL);
    struct rd_conn *third = r_connect(&peer, address, R_WAIT_MS);
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_ptr_equal(event->e.conn, third);
    assert_int_equal(event->e.status, CAIRN_E_LIMIT);
    assert_int_equal(event->e.size, 0);
    assert_non_null(strstr(event->text, r_host));
    rd_conn_delete(third);
    /* Room again when one goes. */
    rd_conn_delete(conns[0]);
    rd_conn_delete(r_expect(&node, RD_EV_DOWN)->e.conn);
    r_run(5);
    (void)r_pair(&node, &peer, address, NULL);
    assert_null(r_next(&node, 0));
    r_close(&peer);
    close_node();
}

static void on_request__strangers_in_all_places__the_oldest_gives_way(void **state)
{
    (void)state;
    struct r_raw raw[2];
    struct rd_counters counters;
    open_node(2);
    r_open(&peer, NULL, (struct r_config){0});
    uint64_t start = t_now();
    assert_true(connect_first(&raw[0]) != 0);
    assert_true(connect_first(&raw[1]) != 0);
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    assert_int_equal(r_expect(&peer, RD_EV_DOWN)->e.status, CAIRN_E_LIMIT);
    assert_true(t_now() - start < NIC_GREET_NS); /* they have their time */
    rd_conn_delete(c);
    while (t_now() - start < NIC_GREET_NS + 100 * T_MS)
        r_run(20);
    /* They do not cost a system call per poll. */
    rd_ep_counters(node.ep, &counters);
    uint64_t calls = counters.syscalls;
    for (int i = 0; i < 320; i++) {
        struct rd_event event;
        assert_int_equal(rd_poll(node.ep, &event, 1), 0);
    }
    rd_ep_counters(node.ep, &counters);
    assert_true(counters.syscalls - calls <= 320 / NIC_GREET_POLLS * 2);
    (void)r_pair(&node, &peer, address, NULL);
    assert_true(r_raw_next(&raw[0], R_WAIT_MS));
    assert_int_equal(raw[0].type, RDMA_CM_EVENT_DISCONNECTED);
    assert_false(r_raw_next(&raw[1], 50));
    r_raw_close(&raw[0]);
    r_raw_close(&raw[1]);
    assert_null(r_next(&node, 50));
    r_close(&peer);
    close_node();
}

static void reject__with_a_reason__down_with_it(void **state)
{
    (void)state;
    struct rd_live now;
    open_node(4);
    r_open(&peer, NULL, (struct r_config){0});
    rd_live_get(&before);
    for (uint32_t round = 0; round < 6; round++) { /* more often than there are slots */
        struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
        struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
        asking->user = &pool;
        assert_int_equal(rd_reject(asking, "because", round == 0 ? 0 : 7), 0);
        assert_null(asking->user);
        const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
        assert_ptr_equal(event->e.conn, c);
        assert_int_equal(event->e.status, CAIRN_E_FABRIC);
        assert_int_equal(event->e.size, round == 0 ? 0 : 7);
        if (round > 0)
            assert_memory_equal(event->data, "because", 7);
        rd_conn_delete(c);
        r_run(20);
        rd_live_get(&now);
        assert_memory_equal(&now, &before, sizeof(now));
    }
    assert_null(r_next(&node, 0));
    /* Refused, and the endpoint closes at once: the peer still gets the reason. */
    struct rd_conn *last = r_connect(&peer, address, R_WAIT_MS);
    assert_int_equal(rd_reject(r_expect(&node, RD_EV_CONNECT)->e.conn, "bye", 3), 0);
    r_close(&node);
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_ptr_equal(event->e.conn, last);
    assert_int_equal(event->e.size, 3);
    r_close(&peer);
    t_pool_close(&pool);
    t_check_live_zero();
}

static void accept__revoked_ring__refused_and_usable_when_rearmed(void **state)
{
    (void)state;
    bool busy = true;
    open_node(4);
    r_open(&peer, NULL, (struct r_config){0});
    assert_int_equal(rd_ring_revoke(node.ring, &busy), 0);
    assert_false(busy);
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    assert_int_equal(
        rd_accept(asking, &node.extent, 1, node.ring, "welcome", 7), CAIRN_E_STATE);
    assert_int_equal(rd_ring_rearm(node.ring), 0);
    assert_int_equal(rd_accept(asking, &node.extent, 1, node.ring, "welcome", 7), 0);
    assert_ptr_equal(r_expect(&peer, RD_EV_UP)->e.conn, c);
    assert_int_equal(c->durability, RD_DURABILITY_APM);
    (void)r_expect(&node, RD_EV_UP);
    r_close(&peer);
    assert_int_equal(r_expect(&node, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
    close_node();
}

static void accept__no_ring__up_without_durability(void **state)
{
    (void)state;
    open_node(4);
    r_open(&peer, NULL, (struct r_config){.queue_pairs = 3});
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    assert_int_equal(rd_accept(asking, NULL, 0, NULL, NULL, 0), 0);
    const struct r_event *event = r_expect(&peer, RD_EV_UP);
    assert_int_equal(event->e.size, 0);
    assert_int_equal(c->durability, 0);
    assert_ptr_equal(r_expect(&node, RD_EV_UP)->e.conn, asking);
    assert_int_equal(rd_send(asking, "one", 3), 0);
    event = r_expect(&peer, RD_EV_MESSAGE);
    assert_memory_equal(event->data, "one", 3);
    r_close(&peer);
    close_node();
}

static void accept__the_peer_has_gone__node_down(void **state)
{
    (void)state;
    open_node(4);
    r_open(&peer, NULL, (struct r_config){0});
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    rd_conn_delete(c);
    assert_int_equal(r_expect(&node, RD_EV_DOWN)->e.status, CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_accept(asking, &node.extent, 1, node.ring, NULL, 0), CAIRN_E_NODE_DOWN);
    assert_int_equal(rd_reject(asking, "x", 1), 0);
    r_close(&peer);
    r_run(20);
    assert_null(r_next(&node, 0));
    close_node();
}

static void on_frame__out_of_place__protocol(void **state)
{
    (void)state;
    static const enum rd_rpma_frame_type types[] = {
        RD_RPMA_HELLO, RD_RPMA_READY, RD_RPMA_ACCEPT, RD_RPMA_REJECT};
    static uint8_t accept[sizeof(struct rd_rpma_accept_wire)];
    open_node(4);
    r_open(&peer, NULL, (struct r_config){0});
    for (size_t i = 0; i < CN_ARRAY_SIZE(types); i++) {
        for (int to_node = 0; to_node < 2; to_node++) {
            struct rd_conn *passive;
            struct rd_conn *c = r_pair(&node, &peer, address, &passive);
            uint32_t size = types[i] == RD_RPMA_ACCEPT ? sizeof(accept) : 0;
            struct nic_conn *from = nic_conn(to_node ? c : passive);
            assert_int_equal(rd_rpma_send_frame(from, types[i], 0, accept, size), 0);
            const struct r_event *at_node = r_expect(&node, RD_EV_DOWN);
            const struct r_event *at_peer = r_expect(&peer, RD_EV_DOWN);
            assert_int_equal((to_node ? at_node : at_peer)->e.status, CAIRN_E_PROTOCOL);
            assert_int_equal((to_node ? at_peer : at_node)->e.status, CAIRN_E_NODE_DOWN);
            rd_conn_delete(c);
            rd_conn_delete(passive);
        }
    }
    r_close(&peer);
    check_serves();
    close_node();
}

static void listen__twice_or_in_use__errors(void **state)
{
    (void)state;
    struct rd_ep *second = NULL;
    char other[RD_ADDRESS_SIZE_MAX];
    open_node(4);
    assert_int_equal(rd_listen(node.ep, r_address(other, NULL)), CAIRN_E_STATE);
    const struct rd_ep_config config = {.env = cn_env_system(),
        .connections_max = 1,
        .outstanding_max = 1,
        .memory_size = 4096,
        .name = "second",
        .address = address};
    assert_int_equal(rd_ep_open(node.fabric, &config, &second), 0);
    assert_int_equal(rd_listen(second, address), -EADDRINUSE);
    assert_non_null(strstr(cairn_last_error(), address));
    /* Only the second port is taken. */
    (void)snprintf(other, sizeof(other), "%s:%u", r_host, port - 1u);
    assert_int_not_equal(rd_listen(second, other), 0);
    assert_int_equal(rd_listen(second, r_address(other, NULL)), 0);
    rd_ep_close(second);
    check_serves();
    close_node();
}

int main(void)
{
    (void)r_main_address();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_request__hostile_private_data__refused_with_the_reason),
        cmocka_unit_test(on_request__first_then_silence__dropped_in_time),
        cmocka_unit_test(on_request__further_queue_pairs__only_of_a_connection_once),
        cmocka_unit_test(on_log_request__wrong_cookie_or_garbage__dropped),
        cmocka_unit_test(on_request__connections_max__limit),
        cmocka_unit_test(on_request__strangers_in_all_places__the_oldest_gives_way),
        cmocka_unit_test(reject__with_a_reason__down_with_it),
        cmocka_unit_test(accept__revoked_ring__refused_and_usable_when_rearmed),
        cmocka_unit_test(accept__no_ring__up_without_durability),
        cmocka_unit_test(accept__the_peer_has_gone__node_down),
        cmocka_unit_test(on_frame__out_of_place__protocol),
        cmocka_unit_test(listen__twice_or_in_use__errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
