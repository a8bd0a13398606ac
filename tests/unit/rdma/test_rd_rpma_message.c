/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: messages of every size get through in order, and no frame does harm. (What flushes and
 * compare-and-swaps by message do is in test_rd_rpma_by_message.c.)
 * Method: frames laid into the receive buffers of a connection without a device. Over a device
 * (skipped without): two sides in one thread; hostile frames are sent with librpma around the back
 * end's own checks.
 * Invariants: what is hostile fails its own connection, with CAIRN_E_PROTOCOL.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rdma/rd_rpma.h"
#include "tests/support/rd_nic_fake.h"
#include "tests/support/rd_nic_test.h"

static uint32_t make_frame(uint8_t *frame, uint32_t type, uint32_t count, uint32_t size)
{
    const struct rd_rpma_frame_wire head = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .type = le16_make((uint16_t)type),
        .count = le16_make((uint16_t)count),
        .size = le32_make(size),
    };
    memset(frame, 0, sizeof(head) + size);
    memcpy(frame, &head, sizeof(head));
    return (uint32_t)sizeof(head) + size;
}

/* ---- without a device ---- */

static uint8_t fake_rx[NIC_RX * NIC_FRAME_STRIDE];

/* An established connection; nothing of it is real. */
static struct fake *fake_up(bool active)
{
    struct fake *f = fake_open();
    f->c.qp[0].id = NULL;
    f->c.qp[0].has_qp = f->c.qp[0].up = false;
    f->c.active = active;
    f->c.state = NIC_UP;
    f->c.rx = fake_rx;
    return f;
}

static uint32_t smallest_frame(uint8_t *frame, uint32_t type)
{
    switch (type) {
    case RD_RPMA_ACCEPT:
        return make_frame(frame, type, 0, 80);
    case RD_RPMA_MESSAGE:
        return make_frame(frame, type, 0, 1);
    case RD_RPMA_PERSIST:
    case RD_RPMA_PERSISTED:
    case RD_RPMA_CAS_DONE:
        return make_frame(frame, type, 1, 24);
    case RD_RPMA_CAS:
        return make_frame(frame, type, 1, 32);
    default:
        return make_frame(frame, type, 0, 0);
    }
}

/* Where a frame may come; those of a connection's making are rd_rpma_active's and _passive's. */
static bool is_in_place(uint32_t type, bool active, enum nic_state state)
{
    switch (type) {
    case RD_RPMA_MESSAGE:
    case RD_RPMA_CREDIT:
        return state == NIC_UP;
    case RD_RPMA_BELL:
        return state == NIC_UP && !active;
    case RD_RPMA_HELLO:
        return state == NIC_GREETING && !active;
    case RD_RPMA_READY:
        return state == NIC_ACCEPTED && !active;
    case RD_RPMA_ACCEPT:
    case RD_RPMA_REJECT:
        return state == NIC_ASKING && active;
    default: /* nothing was asked; the ring is none; atomics are the device's */
        return false;
    }
}

static void on_receive__out_of_place__protocol(void **state)
{
    (void)state;
    static const enum nic_state states[] = {
        NIC_LOG, NIC_ASKING, NIC_TESTING, NIC_ASKED, NIC_ACCEPTED, NIC_UP};
    uint32_t refused = 0;
    for (int active = 0; active < 2; active++) {
        for (size_t s = 0; s < CN_ARRAY_SIZE(states); s++) {
            for (uint32_t type = 1; type < RD_RPMA_FRAME_TYPE_COUNT; type++) {
                if (is_in_place(type, active != 0, states[s]))
                    continue;
                struct fake *f = fake_up(active != 0);
                struct rd_event event;
                f->device.has_atomics = true;
                f->ep.making = 1;
                f->c.state = states[s];
                uint32_t size = smallest_frame(fake_rx, type);
                assert_false(rd_rpma_on_receive(&f->c, 0, size, &event));
                assert_int_equal(f->c.state, NIC_DOWN);
                assert_int_equal(f->c.down_status, CAIRN_E_PROTOCOL);
                assert_non_null(strstr(f->c.text, rd_rpma_frame_name(type)));
                assert_int_equal(f->ep.event_head, 1);
                assert_int_equal(f->events[0].type, RD_EV_DOWN);
                refused++;
                free(f);
            }
        }
    }
    assert_true(refused > 100);
}

static void on_receive__malformed__protocol(void **state)
{
    (void)state;
    static const struct { uint32_t off; uint8_t value; } damage[] = {
        {0, 0}, {4, 0}, {4, 99}, {6, 1}, {8, 0}, {8, 2}, {11, 1}, {12, 1}, {15, 1}};
    for (size_t i = 0; i < CN_ARRAY_SIZE(damage); i++) {
        struct fake *f = fake_up(i % 2 == 0);
        struct rd_event event;
        uint32_t size = make_frame(fake_rx, RD_RPMA_MESSAGE, 0, 1);
        fake_rx[damage[i].off] = damage[i].value;
        assert_false(rd_rpma_on_receive(&f->c, 0, size, &event));
        assert_int_equal(f->c.down_status, CAIRN_E_PROTOCOL);
        free(f);
    }
    for (uint32_t size = 0; size < 40; size++) { /* whatever it says */
        struct fake *f = fake_up(true);
        struct rd_event event;
        (void)make_frame(fake_rx, RD_RPMA_MESSAGE, 0, 8);
        assert_int_equal(rd_rpma_on_receive(&f->c, 0, size, &event), size == 24);
        assert_int_equal(f->c.down_status, size == 24 ? 0 : CAIRN_E_PROTOCOL);
        free(f);
    }
}

static void on_receive__message__the_users_until_returned(void **state)
{
    (void)state;
    struct fake *f = fake_up(true);
    struct rd_event event;
    uint8_t *frame = fake_rx + 3 * NIC_FRAME_STRIDE;
    uint32_t size = make_frame(frame, RD_RPMA_MESSAGE, 0, 4096);
    assert_true(rd_rpma_on_receive(&f->c, 3, size, &event));
    assert_int_equal(event.type, RD_EV_MESSAGE);
    assert_int_equal(event.size, 4096);
    assert_ptr_equal(event.data, frame + 16);
    assert_int_equal(f->c.rx_taken, 1u << 3);
    assert_true(f->ep.receives_due);
    assert_int_equal(f->ep.counters.messages_received, 1);
    rd_rpma_return_receives(&f->c);
    assert_int_equal(f->c.rx_taken, 0);
    /* Behind an event that still waits: queued. */
    rd_rpma_event(&f->c, RD_EV_UP, 0, 0);
    assert_false(rd_rpma_on_receive(&f->c, 3, size, &event));
    assert_int_equal(f->events[1].type, RD_EV_MESSAGE);
    assert_true(f->events[1].wr_id == nic_message_id(3, 4096));
    assert_int_equal(f->c.rx_taken, 0);
    free(f);
}

static void on_receive__fenced_or_refusing__without_effect(void **state)
{
    (void)state;
    for (int refusing = 0; refusing < 2; refusing++) {
        struct fake *f = fake_up(false);
        struct rd_event event;
        f->c.fenced = refusing == 0;
        f->c.state = refusing != 0 ? NIC_REFUSING : NIC_UP;
        uint32_t size = make_frame(fake_rx, RD_RPMA_MESSAGE, 0, 1);
        assert_false(rd_rpma_on_receive(&f->c, 0, size, &event));
        assert_int_equal(f->ep.counters.messages_received, 0);
        assert_int_equal(f->ep.event_head, 0);
        free(f);
    }
}

/* `sent` compare-and-swaps are out; feeds a frame of `count` results; what is left of them. */
static struct fake *feed_done(uint32_t type, uint32_t sent, uint32_t count,
    const struct rd_rpma_done_wire *done, bool wanted)
{
    struct fake *f = fake_up(true);
    struct rd_event event;
    struct nic_queue *queue = type == RD_RPMA_CAS_DONE ? &f->c.cas : &f->c.persist;
    for (uint32_t i = 0; i < sent + 1; i++) { /* one more has not been sent */
        const struct nic_op op = {.wr_id = 50 + i, .wanted = wanted, .old = &f->memory[i]};
        (void)rd_rpma_queue_take(&f->c, queue, &op, true);
    }
    f->c.cas_sent = f->c.persist_sent = sent;
    uint32_t size = make_frame(fake_rx, type, count, count * (uint32_t)sizeof(*done));
    memcpy(fake_rx + 16, done, count * sizeof(*done));
    assert_false(rd_rpma_on_receive(&f->c, 0, size, &event));
    return f;
}

static void on_receive__results__in_order_to_their_operations(void **state)
{
    (void)state;
    struct rd_rpma_done_wire done[3] = {
        {.tag = le64_make(0), .old = le64_make(70)},
        {.tag = le64_make(1), .status = le32_make(20033)},
        {.tag = le64_make(2), .old = le64_make(UINT64_MAX)},
    };
    struct fake *f = feed_done(RD_RPMA_CAS_DONE, 3, 3, done, true);
    assert_int_equal(f->c.state, NIC_UP);
    assert_int_equal(f->c.cas.tail, 3);
    assert_int_equal(f->memory[0], 70);
    assert_int_equal(f->memory[1], 0);
    assert_true(f->memory[2] == UINT64_MAX);
    assert_int_equal(f->ep.event_head, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(f->events[i].wr_id, 50 + i);
        assert_int_equal(f->events[i].status, i == 1 ? CAIRN_E_FABRIC : 0);
    }
    free(f);
    done[0].old = done[2].old = le64_make(0);
    f = feed_done(RD_RPMA_PERSISTED, 3, 3, done, true);
    assert_int_equal(f->c.persist.tail, 3);
    assert_int_equal(f->events[1].status, CAIRN_E_FABRIC);
    free(f);
}

static void on_receive__hostile_results__protocol(void **state)
{
    (void)state;
    static const struct { uint32_t sent, count; uint64_t tag[3]; uint32_t status; } table[] = {
        {0, 1, {0}, 0},       /* was not sent */
        {1, 2, {0, 1}, 0},    /* more than were sent */
        {2, 2, {1, 0}, 0},    /* another order */
        {2, 2, {0, 0}, 0},    /* one twice */
        {2, 1, {8}, 0},       /* the same slot, another time */
        {2, 1, {UINT64_MAX}, 0},
        {2, 1, {0}, 7},       /* no error of ours */
    };
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        for (uint32_t kind = 0; kind < 2; kind++) {
            struct rd_rpma_done_wire done[3] = {{.status = le32_make(table[i].status)}};
            for (int k = 0; k < 3; k++)
                done[k].tag = le64_make(table[i].tag[k]);
            struct fake *f = feed_done(kind == 0 ? RD_RPMA_CAS_DONE : RD_RPMA_PERSISTED,
                table[i].sent, table[i].count, done, true);
            assert_int_equal(f->c.state, NIC_DOWN);
            assert_int_equal(f->c.down_status, CAIRN_E_PROTOCOL);
            /* Each operation has one completion, and then it is down. */
            uint64_t events = f->ep.event_head;
            assert_int_equal(events, table[i].sent + 1 + 1);
            for (uint64_t k = 0; k + 1 < events; k++)
                assert_int_equal(f->events[k].wr_id, 50 + k);
            assert_int_equal(f->events[events - 1].type, RD_EV_DOWN);
            free(f);
        }
    }
}

static void on_receive__refused_and_nobody_waits__down(void **state)
{
    (void)state;
    struct rd_rpma_done_wire done = {.status = le32_make(20033)};
    struct fake *f = feed_done(RD_RPMA_PERSISTED, 1, 1, &done, false);
    assert_int_equal(f->c.down_status, CAIRN_E_FABRIC);
    free(f);
}

static void on_receive__credit__of_what_was_sent_only(void **state)
{
    (void)state;
    static const struct { uint32_t sent, before, now; bool fine; } table[] = {
        {0, 0, 0, true}, {0, 0, 1, false}, {5, 2, 5, true}, {5, 2, 2, true}, {5, 2, 6, false},
        {5, 2, 1, false}, {5, 2, UINT32_MAX, false}, {3, UINT32_MAX - 2, 1, true},
        {3, UINT32_MAX - 2, 3, true}, {3, UINT32_MAX - 2, 4, false},
        {3, UINT32_MAX - 2, UINT32_MAX - 3, false}};
    for (size_t i = 0; i < CN_ARRAY_SIZE(table); i++) {
        struct fake *f = fake_up(i % 2 == 0);
        struct rd_event event;
        struct rd_rpma_frame_wire head;
        f->c.frames_sent = table[i].sent;
        f->c.frames_returned = table[i].before;
        uint32_t size = make_frame(fake_rx, RD_RPMA_CREDIT, 0, 0);
        memcpy(&head, fake_rx, sizeof(head));
        head.returned = le32_make(table[i].now);
        memcpy(fake_rx, &head, sizeof(head));
        assert_false(rd_rpma_on_receive(&f->c, 0, size, &event));
        assert_int_equal(f->c.down_status, table[i].fine ? 0 : CAIRN_E_PROTOCOL);
        if (table[i].fine)
            assert_int_equal(f->c.frames_returned, table[i].now);
        free(f);
    }
}

static void send__loopback_or_down__refused(void **state)
{
    (void)state;
    struct fake *f = fake_open();
    assert_int_equal(rd_rpma_send(&f->c.base, "x", 1), CAIRN_E_FABRIC);
    rd_rpma_doorbell(&f->c.base);
    f->c.state = NIC_UP; /* but its log connection is gone */
    assert_int_equal(rd_rpma_send(&f->c.base, "x", 1), CAIRN_E_NODE_DOWN);
    assert_int_equal(f->ep.counters.messages_sent, 0);
    assert_int_equal(f->ep.counters.wakeups, 0);
    free(f);
}

/* ---- messages ---- */

static uint8_t pattern(uint32_t size, uint32_t i)
{
    return (uint8_t)(size * 31 + i * 7 + i / 256);
}

static void send_pattern(struct rd_conn *c, uint32_t size)
{
    uint8_t message[RD_MESSAGE_SIZE_MAX];
    for (uint32_t i = 0; i < size; i++)
        message[i] = pattern(size, i);
    int err;
    while ((err = rd_send(c, message, size)) == CAIRN_E_AGAIN)
        n_pump();
    assert_int_equal(err, 0);
}

static void check_pattern(struct n_side *side, uint32_t size)
{
    const struct n_seen *seen = n_expect(side, RD_EV_MESSAGE);
    assert_int_equal(seen->event.size, size);
    for (uint32_t i = 0; i < size; i++) {
        if (seen->data[i] != pattern(size, i))
            fail_msg("message of %u bytes: byte %u", size, i);
    }
}

static void send__every_size_both_ways__same_bytes(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    uint32_t count = 0;
    for (uint32_t size = 1; size <= RD_MESSAGE_SIZE_MAX; count++) {
        send_pattern(n.c, size);
        send_pattern(n.passive, size);
        check_pattern(&n.node, size);
        check_pattern(&n.peer, size);
        size += size < 128 || size > RD_MESSAGE_SIZE_MAX - 64 ? 1 : 13;
    }
    struct rd_counters node, peer;
    rd_ep_counters(n.node.t.ep, &node);
    rd_ep_counters(n.peer.t.ep, &peer);
    assert_int_equal(node.messages_sent, count);
    assert_int_equal(node.messages_received, count);
    assert_int_equal(peer.messages_sent, count);
    assert_int_equal(peer.messages_received, count);
    n_cluster_close(&n);
}

static void send__more_than_buffers__again_then_all_in_order(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    uint32_t sent = 0;
    int err = 0;
    uint64_t end = t_now() + 200 * T_MS;
    while (t_now() < end) { /* the node does not poll */
        err = rd_send(n.c, &sent, sizeof(sent));
        if (err == 0)
            sent++;
        else
            (void)n_poll(&n.peer);
    }
    assert_int_equal(err, CAIRN_E_AGAIN);
    /* The node has receives for no more, and may not have told of those of the handshake. */
    assert_true(sent <= NIC_RX - NIC_SPARE_USER && sent >= NIC_RX / 2 - NIC_SPARE_USER);
    uint32_t got = 0;
    while (sent < 1000 || got < sent) {
        n_pump();
        if (sent < 1000 && rd_send(n.c, &sent, sizeof(sent)) == 0)
            sent++;
        while (n.node.head != n.node.tail) {
            const struct n_seen *seen = n_expect(&n.node, RD_EV_MESSAGE);
            assert_memory_equal(seen->data, &got, sizeof(got));
            got++;
        }
    }
    n_cluster_close(&n);
}

static void poll__message__untouched_until_next_poll(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    struct rd_event events[2 * NIC_RX];
    uint32_t got = 0;
    for (uint32_t i = 0; i < NIC_TX - NIC_SPARE_USER; i++)
        T_CHECK(rd_send(n.c, &i, sizeof(i)) == 0);
    for (uint64_t end = t_now() + 5000 * T_MS; got == 0 && t_now() < end;)
        got = rd_poll(n.node.t.ep, events, 2 * NIC_RX);
    assert_true(got > 0);
    for (uint64_t end = t_now() + 50 * T_MS; t_now() < end;) {
        uint32_t other = 0xffffffff; /* these fill what is free */
        (void)n_poll(&n.peer);
        (void)!rd_send(n.c, &other, sizeof(other));
    }
    for (uint32_t i = 0; i < got; i++) {
        assert_int_equal(events[i].type, RD_EV_MESSAGE);
        assert_memory_equal(events[i].data, &i, sizeof(i));
    }
    n_cluster_close(&n);
}

static void fence__messages_before_it__delivered(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    for (uint32_t i = 0; i < 4; i++)
        T_CHECK(rd_send(n.passive, &i, sizeof(i)) == 0);
    T_CHECK(rd_fence(n.passive) == 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_memory_equal(n_expect(&n.peer, RD_EV_MESSAGE)->data, &i, sizeof(i));
    (void)n_expect(&n.peer, RD_EV_DOWN);
    n_cluster_close(&n);
}

/* ---- doorbells ---- */

static uint64_t wakeups(struct n_cluster *n)
{
    struct rd_counters counters;
    rd_ep_counters(n->peer.t.ep, &counters);
    return counters.wakeups;
}

static void doorbell__within_linger__one_message(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    const struct rd_fabric_config config = {.linger_us = 3600000000}; /* longer than any test */
    n_cluster_open_with(&n, &config, RD_DURABILITY_APM);
    struct nic_conn *c = nic_conn(n.c);
    assert_int_equal(c->linger_ns, 3600000 * T_MS);
    for (int i = 0; i < 10; i++)
        rd_doorbell(n.c);
    assert_int_equal(wakeups(&n), 1);
    n_pump_for(20);
    /* What was written in time stands for a bell; nothing written does not. */
    uint64_t bell_ns = c->bell_ns -= c->linger_ns / 2;
    rd_doorbell(n.c);
    assert_int_equal(c->bell_ns, bell_ns);
    assert_int_equal(rd_write(n.c, 1, T_LOG_OFF, n.peer.log, 8, 0), 0);
    rd_doorbell(n.c);
    assert_true((int64_t)(c->bell_ns - bell_ns) > 0);
    assert_int_equal(wakeups(&n), 1);
    c->bell_ns -= c->linger_ns / 8 * 7; /* three quarters are over */
    rd_doorbell(n.c);
    rd_doorbell(n.c);
    uint64_t rung = wakeups(&n);
    assert_int_equal(rung, 2);
    assert_null(n_next(&n.node, 20)); /* the user sees nothing of it */
    /* Where nobody lingers each one rings; without a buffer, later. */
    c->linger_ns = 0;
    rd_doorbell(n.c);
    assert_int_equal(wakeups(&n), rung + 1);
    n_pump_for(20);
    uint32_t tx_free = c->tx_free;
    c->tx_free = 0;
    rd_doorbell(n.c);
    rd_doorbell(n.c);
    n_pump_for(5);
    assert_int_equal(wakeups(&n), rung + 1);
    c->tx_free = tx_free;
    n_pump_for(5);
    assert_int_equal(wakeups(&n), rung + 2);
    rd_doorbell(n.passive); /* only a peer rings */
    n_cluster_close(&n);
}

static void doorbell__node_sleeps__woken(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    nic_conn(n.c)->linger_ns = 0;
    for (int i = 0; i < 10; i++) {
        n_pump_for(5);
        rd_ep_arm(n.node.t.ep);
        (void)n_poll(&n.node);
        uint64_t begin = t_now();
        rd_doorbell(n.c);
        rd_ep_sleep(n.node.t.ep, begin + 5000 * T_MS);
        assert_true(t_now() - begin < 2000 * T_MS);
    }
    n_cluster_close(&n);
}

/* ---- hostile frames ---- */

/* Past all checks of ours; its completion is nobody's. */
static void inject(struct n_side *from, struct rd_conn *c, const void *frame, uint32_t size)
{
    struct nic_ep *ep = nic_ep(from->t.ep);
    memcpy(from->log, frame, size);
    const void *context = (const void *)(uintptr_t)0x7fffffff;
    T_CHECK(rpma_send(nic_conn(c)->log, size > 0 ? ep->log_mr : NULL,
                size > 0 ? nic_log_off(ep, from->log) : 0, size, RPMA_F_COMPLETION_ALWAYS,
                context) == 0);
}

/* The connection fails at the side that got it; the other hears of that. */
static void check_hostile(
    const uint8_t *frame, uint32_t size, bool to_node, enum rd_durability durability)
{
    struct n_cluster n;
    n_cluster_open_with(&n, NULL, durability);
    struct n_side *from = to_node ? &n.peer : &n.node, *to = to_node ? &n.node : &n.peer;
    inject(from, to_node ? n.c : n.passive, frame, size);
    const struct n_seen *down = n_expect(to, RD_EV_DOWN);
    assert_int_equal(down->event.status, CAIRN_E_PROTOCOL);
    assert_true(down->text[0] != 0);
    (void)n_expect(from, RD_EV_DOWN);
    rd_conn_delete(n.c);
    n.c = n_pair(&n.node, &n.peer, n.address, NULL); /* it serves others */
    n_cluster_close(&n);
}

static void inject__hostile_frames__protocol(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    uint8_t frame[2 * NIC_FRAME_STRIDE];
    for (int to_node = 0; to_node < 2; to_node++) {
        uint32_t size = make_frame(frame, RD_RPMA_MESSAGE, 0, 64);
        check_hostile(frame, 0, to_node != 0, RD_DURABILITY_APM);
        check_hostile(frame, size - 1, to_node != 0, RD_DURABILITY_APM);
        frame[0] ^= 1;
        check_hostile(frame, size, to_node != 0, RD_DURABILITY_APM);
        size = make_frame(frame, RD_RPMA_HELLO, 0, 5);
        check_hostile(frame, size, to_node != 0, RD_DURABILITY_APM);
    }
    struct n_cluster n;
    n_cluster_open(&n);
    bool atomics = nic_ep(n.node.t.ep)->device->has_atomics;
    n_cluster_close(&n);
    uint32_t size = make_frame(frame, RD_RPMA_PERSIST, 1, 24);
    check_hostile(frame, size, true, RD_DURABILITY_APM); /* not the way of this node */
    size = make_frame(frame, RD_RPMA_PERSIST, 2, 24);
    check_hostile(frame, size, true, RD_DURABILITY_GPSPM);
    if (atomics) { /* else that is its way */
        size = make_frame(frame, RD_RPMA_CAS, 1, 32);
        check_hostile(frame, size, true, RD_DURABILITY_APM);
    }
    size = make_frame(frame, RD_RPMA_PERSISTED, 1, 24);
    check_hostile(frame, size, false, RD_DURABILITY_GPSPM);
}

static void inject__longer_than_a_buffer__down(void **state)
{
    (void)state;
    if (!n_have_device())
        skip();
    struct n_cluster n;
    n_cluster_open(&n);
    static const uint8_t frame[2 * NIC_FRAME_STRIDE];
    inject(&n.peer, n.c, frame, sizeof(frame));
    assert_true(n_expect(&n.node, RD_EV_DOWN)->event.status < 0);
    (void)n_expect(&n.peer, RD_EV_DOWN);
    n_cluster_close(&n);
}

#define CASE(f) cmocka_unit_test_setup(f, n_reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(on_receive__out_of_place__protocol),
        CASE(on_receive__malformed__protocol),
        CASE(on_receive__message__the_users_until_returned),
        CASE(on_receive__fenced_or_refusing__without_effect),
        CASE(on_receive__results__in_order_to_their_operations),
        CASE(on_receive__hostile_results__protocol),
        CASE(on_receive__refused_and_nobody_waits__down),
        CASE(on_receive__credit__of_what_was_sent_only),
        CASE(send__loopback_or_down__refused),
        CASE(send__every_size_both_ways__same_bytes),
        CASE(send__more_than_buffers__again_then_all_in_order),
        CASE(poll__message__untouched_until_next_poll),
        CASE(fence__messages_before_it__delivered),
        CASE(doorbell__within_linger__one_message),
        CASE(doorbell__node_sleeps__woken),
        CASE(inject__hostile_frames__protocol),
        CASE(inject__longer_than_a_buffer__down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
