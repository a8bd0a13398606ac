/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a connect ends by its deadline, whatever is or is not at the other side, with the right
 * status and a text that helps.
 * Method: addresses without a listener or a host, raw listeners of rdma_cm that answer wrongly,
 * an endpoint that never accepts, a peer whose compare-and-swap does not work.
 * Invariants: exactly one RD_EV_DOWN, nothing left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/support/rd_nic_fake.h"
#include "tests/support/rd_rpma_test.h"

static struct r_side node, peer;

static bool is_siw(void)
{
    return access("/sys/class/infiniband/siw0", F_OK) == 0;
}

static void open_peer(void)
{
    r_open(&peer, NULL, (struct r_config){0});
}

static void close_peer(void)
{
    assert_null(r_next(&peer, 0));
    r_close(&peer);
    t_check_live_zero();
}

/* The connection goes down with that status, not after `ms`. */
static void check_down(struct rd_conn *c, int status, uint64_t start, uint64_t ms)
{
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    if (event->e.status != status)
        (void)fprintf(stderr, "status %d: %s\n", event->e.status, event->text);
    assert_int_equal(event->e.status, status);
    assert_ptr_equal(event->e.conn, c);
    assert_int_equal(event->e.size, 0);
    assert_true(strlen(event->text) > 20);
    uint64_t took_ms = (t_now() - start) / T_MS;
    if (took_ms >= ms + r_late_ms())
        (void)fprintf(stderr, "it took %llu ms: %s\n", (unsigned long long)took_ms, event->text);
    assert_true(took_ms < ms + r_late_ms());
    uint64_t word;
    assert_int_equal(rd_read(c, 1, 0, &word, 8, RD_SIGNALED), CAIRN_E_NODE_DOWN);
    rd_conn_delete(c);
}

static void connect__nobody_listens__rejected(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    open_peer();
    for (int i = 0; i < 20; i++) {
        uint64_t start = t_now();
        struct rd_conn *c = r_connect(&peer, r_address(address, NULL), 3000);
        const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
        assert_non_null(strstr(event->text, address));
        peer.tail--;
        check_down(c, CAIRN_E_REJECTED, start, 2000);
    }
    close_peer();
}

static void connect__no_route__unreachable(void **state)
{
    (void)state;
    open_peer();
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, "203.0.113.9:7471", 3000);
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_non_null(strstr(event->text, "203.0.113.9:7471"));
    peer.tail--;
    check_down(c, CAIRN_E_UNREACHABLE, start, 3000);
    close_peer();
}

static void connect__no_such_host_in_the_network__down_by_the_deadline(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    if (is_siw())
        skip(); /* its driver waits for TCP within rdma_connect() */
    open_peer();
    (void)snprintf(address, sizeof(address), "%s", r_host);
    char *dot = strrchr(address, '.');
    assert_non_null(dot);
    (void)snprintf(dot, 16, ".201:7471");
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 400);
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_true(
        event->e.status == CAIRN_E_TIMEOUT || event->e.status == CAIRN_E_UNREACHABLE);
    peer.tail--;
    check_down(c, event->e.status, start, 400);
    close_peer();
}

static void connect__deadline_has_passed__timeout(void **state)
{
    (void)state;
    open_peer();
    struct rd_conn *c = r_connect(&peer, "203.0.113.9:1", 0);
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_true(
        event->e.status == CAIRN_E_TIMEOUT || event->e.status == CAIRN_E_UNREACHABLE);
    rd_conn_delete(c);
    close_peer();
}

static void connect__malformed_or_full__error(void **state)
{
    (void)state;
    struct rd_conn *c = NULL;
    struct rd_conn *conns[4];
    open_peer();
    assert_int_equal(rd_connect(peer.ep, "nowhere", NULL, 0, 0, &c), CAIRN_E_CONFIG);
    assert_int_equal(rd_connect(peer.ep, "", NULL, 0, 0, &c), CAIRN_E_CONFIG);
    for (int i = 0; i < 4; i++)
        conns[i] = r_connect(&peer, "203.0.113.9:1", 100);
    assert_int_equal(rd_connect(peer.ep, "203.0.113.9:1", NULL, 0, 0, &c), CAIRN_E_LIMIT);
    assert_null(c);
    rd_conn_delete(conns[0]); /* its slot serves at once */
    conns[0] = r_connect(&peer, "203.0.113.9:1", 100);
    for (int i = 0; i < 4; i++) {
        (void)r_expect(&peer, RD_EV_DOWN);
        rd_conn_delete(conns[i]);
    }
    close_peer();
}

/* ---- a raw listener that answers as it likes ---- */

static void answer(struct r_raw *raw, bool accept, const void *data, uint8_t size)
{
    assert_true(r_raw_next(raw, R_WAIT_MS));
    assert_int_equal(raw->type, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rd_rpma_cm_wire wire;
    assert_int_equal(rd_rpma_check_cm(raw->data, raw->size, &wire), 0);
    assert_int_equal(wire.channel, RD_RPMA_CHANNEL_FIRST);
    assert_int_equal(le64_get(wire.cookie), 0);
    if (!accept) {
        assert_int_equal(rdma_reject(raw->id, data, size), 0);
        return;
    }
    r_raw_qp(raw);
    struct rdma_conn_param param = {.private_data = data, .private_data_len = size};
    assert_int_equal(rdma_accept(raw->id, &param), 0);
}

static void check_answer(bool accept, const void *data, uint8_t size, int status)
{
    struct r_raw raw;
    char address[RD_ADDRESS_SIZE_MAX];
    uint16_t port;
    (void)r_address(address, &port);
    r_raw_listen(&raw, port);
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 2000);
    answer(&raw, accept, data, size);
    check_down(c, status, start, 2000);
    r_raw_close(&raw);
}

static void connect__refused_by_private_data__its_status(void **state)
{
    (void)state;
    open_peer();
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_LOG, 1);
    wire.error = le32_make((uint32_t)-CAIRN_E_LIMIT);
    check_answer(false, &wire, sizeof(wire), CAIRN_E_LIMIT);
    wire.error = le32_make((uint32_t)-CAIRN_E_WIRE_VERSION);
    check_answer(false, &wire, sizeof(wire), CAIRN_E_WIRE_VERSION);
    wire.error = le32_make((uint32_t)-CAIRN_E_PROTOCOL);
    check_answer(false, &wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire.version = le16_make(RD_RPMA_VERSION + 1);
    check_answer(false, &wire, sizeof(wire), CAIRN_E_WIRE_VERSION);
    check_answer(false, NULL, 0, CAIRN_E_REJECTED);
    check_answer(false, "go away, this is another service", 32, CAIRN_E_REJECTED);
    close_peer();
}

static void connect__wrong_answer__protocol_or_version(void **state)
{
    (void)state;
    open_peer();
    /* Arrives as zeros; on iWARP as nothing. */
    check_answer(true, NULL, 0, is_siw() ? CAIRN_E_PROTOCOL : CAIRN_E_WIRE_VERSION);
    check_answer(true, "another service entirely, and it accepts!!!!!!!!", 48,
        CAIRN_E_WIRE_VERSION);
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_FIRST, 0); /* no cookie */
    check_answer(true, &wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FURTHER, 5);
    check_answer(true, &wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 5);
    wire.reserved[3] = 1;
    check_answer(true, &wire, sizeof(wire), CAIRN_E_PROTOCOL);
    wire = r_wire(RD_RPMA_CHANNEL_FIRST, 5);
    wire.error = le32_make((uint32_t)-CAIRN_E_LIMIT); /* as iWARP refuses */
    check_answer(true, &wire, sizeof(wire), CAIRN_E_LIMIT);
    close_peer();
}

static void connect__no_log_port__rejected(void **state)
{
    (void)state;
    struct r_raw raw;
    char address[RD_ADDRESS_SIZE_MAX];
    uint16_t port;
    open_peer();
    nic_ep(peer.ep)->fabric->config.queue_pairs = 1;
    (void)r_address(address, &port);
    r_raw_listen(&raw, port);
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 2000);
    struct rd_rpma_cm_wire wire = r_wire(RD_RPMA_CHANNEL_FIRST, 5);
    answer(&raw, true, &wire, sizeof(wire));
    check_down(c, CAIRN_E_REJECTED, start, 2000);
    r_raw_close(&raw);
    close_peer();
}

static void connect__first_is_never_answered__timeout(void **state)
{
    (void)state;
    struct r_raw raw;
    char address[RD_ADDRESS_SIZE_MAX];
    uint16_t port;
    open_peer();
    (void)r_address(address, &port);
    r_raw_listen(&raw, port);
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 300);
    check_down(c, CAIRN_E_TIMEOUT, start, 300);
    assert_true(t_now() - start >= 290 * T_MS);
    assert_true(r_raw_next(&raw, R_WAIT_MS));
    r_raw_close(&raw);
    close_peer();
}

static void connect__never_accepted__timeout(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    open_peer();
    r_open(&node, r_address(address, NULL), (struct r_config){0});
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, 900);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    const struct r_event *event = r_expect(&peer, RD_EV_DOWN);
    assert_non_null(strstr(event->text, "did not accept"));
    peer.tail--;
    check_down(c, CAIRN_E_TIMEOUT, start, 900);
    event = r_expect(&node, RD_EV_DOWN);
    assert_ptr_equal(event->e.conn, asking);
    assert_int_equal(event->e.status, CAIRN_E_NODE_DOWN);
    rd_conn_delete(asking);
    r_close(&node);
    close_peer();
}

/* The word of the self-test is not zero: as if compare-and-swap had another idea of it. */
static void connect__compare_and_swap_fails__no_atomics(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    if (is_siw())
        skip(); /* no atomics, no self-test */
    open_peer();
    r_open(&node, r_address(address, NULL), (struct r_config){0});
    uint64_t start = t_now();
    struct rd_conn *c = r_connect(&peer, address, R_WAIT_MS);
    struct rd_conn *asking = r_expect(&node, RD_EV_CONNECT)->e.conn;
    nic_ep(node.ep)->beats[nic_conn(asking)->index].test = UINT64_C(0x0807060504030201);
    assert_int_equal(rd_accept(asking, NULL, 0, NULL, NULL, 0), 0);
    check_down(c, CAIRN_E_NO_ATOMICS, start, R_WAIT_MS);
    assert_int_equal(r_expect(&node, RD_EV_DOWN)->e.conn == asking, 1);
    /* A slot that is used again starts from zero. */
    rd_conn_delete(asking);
    (void)r_pair(&node, &peer, address, NULL);
    r_close(&node);
    (void)r_expect(&peer, RD_EV_DOWN);
    close_peer();
}

/* What the device's atomic unit says of itself is right, but a plain read sees other bytes. */
static void self_test__other_byte_order_in_memory__no_atomics(void **state)
{
    (void)state;
    const uint64_t word = UINT64_C(0x0102030405060708);
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_RDMA_READ};
    const uint64_t good[] = {0, word, word, word, word};
    for (uint8_t bad = 1; bad <= 3; bad += 2) { /* the reads behind a swap, and behind none */
        struct fake *f = fake_open();
        f->c.state = NIC_TESTING;
        f->ep.making = 1;
        for (uint8_t step = 0; step < bad; step++) {
            f->beat.seen = good[step];
            rd_rpma_active_on_test(&f->c, 0);
            assert_int_equal(f->c.state, NIC_TESTING);
            assert_int_equal(provider.first.opcode, opcodes[step]);
        }
        f->c.qp[0].id = NULL; /* nothing of it is real */
        f->c.qp[0].has_qp = false;
        f->beat.seen = __builtin_bswap64(word);
        rd_rpma_active_on_test(&f->c, 0);
        assert_int_equal(f->c.state, NIC_DOWN);
        assert_int_equal(f->c.down_status, CAIRN_E_NO_ATOMICS);
        assert_non_null(strstr(f->c.text, "in memory is 0x807060504030201"));
        free(f);
    }
}

static void connect__atomics_by_message__up_without_self_test(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    open_peer();
    r_open(&node, r_address(address, NULL), (struct r_config){.message_atomics = true});
    struct rd_conn *passive;
    struct rd_conn *c = r_pair(&node, &peer, address, &passive);
    assert_true(nic_conn(c)->message_atomics);
    assert_false(c->cas_orders_reads);
    assert_true(nic_conn(passive)->message_atomics);
    assert_int_equal(nic_conn(c)->test_step, 0);
    r_close(&node);
    (void)r_expect(&peer, RD_EV_DOWN);
    close_peer();
}

static void connect__every_number_of_queue_pairs__up(void **state)
{
    (void)state;
    char address[RD_ADDRESS_SIZE_MAX];
    for (uint32_t n = 1; n <= NIC_QPS_MAX; n++) {
        struct rd_conn *passive;
        r_open(&peer, NULL, (struct r_config){.queue_pairs = n});
        r_open(&node, r_address(address, NULL), (struct r_config){.queue_pairs = 1});
        struct rd_conn *c = r_pair(&node, &peer, address, &passive);
        assert_int_equal(nic_conn(c)->qp_count, n);
        assert_int_equal(nic_conn(passive)->qp_count, n);
        for (uint32_t i = 0; i < NIC_QPS_MAX; i++)
            assert_int_equal(nic_conn(passive)->qp[i].has_qp, i < n);
        r_close(&node);
        (void)r_expect(&peer, RD_EV_DOWN);
        close_peer();
    }
}

int main(void)
{
    (void)r_main_address();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(connect__nobody_listens__rejected),
        cmocka_unit_test(connect__no_route__unreachable),
        cmocka_unit_test(connect__no_such_host_in_the_network__down_by_the_deadline),
        cmocka_unit_test(connect__deadline_has_passed__timeout),
        cmocka_unit_test(connect__malformed_or_full__error),
        cmocka_unit_test(connect__refused_by_private_data__its_status),
        cmocka_unit_test(connect__wrong_answer__protocol_or_version),
        cmocka_unit_test(connect__no_log_port__rejected),
        cmocka_unit_test(connect__first_is_never_answered__timeout),
        cmocka_unit_test(connect__never_accepted__timeout),
        cmocka_unit_test(connect__compare_and_swap_fails__no_atomics),
        cmocka_unit_test(self_test__other_byte_order_in_memory__no_atomics),
        cmocka_unit_test(connect__atomics_by_message__up_without_self_test),
        cmocka_unit_test(connect__every_number_of_queue_pairs__up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
