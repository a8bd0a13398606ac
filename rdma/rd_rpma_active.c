/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_active.c: how the active side makes a connection, step by step:
 *
 *   ADDRESS, ROUTE   the first object queue pair's id finds its device and its way
 *   FIRST            it connects; the answer brings the cookie and the peer's beat
 *   FURTHER          the other object queue pairs, all at once, with the cookie
 *   LOG              librpma's connection at the next port, with the cookie
 *   ASKING           hello sent; the peer's user accepts or refuses
 *   TESTING          compare-and-swap is tried on the peer's beat before anybody relies on it
 *   UP               ready sent
 *
 * Any step may fail, or the deadline pass: the user gets RD_EV_DOWN with the cause and a text that
 * names the address, the device and the remedy. Nothing blocks but rpma_conn_req_new(): it resolves
 * what has just been resolved, at most NIC_RESOLVE_MS long.
 */
#include <errno.h>
#include <netdb.h>

#include "rdma/rd_rpma.h"

#define REJECTED_BY_PEER 28  /* IB_CM_REJ_CONSUMER_DEFINED: someone there refused, or went away */
#define REJECTED_NO_SERVICE 8 /* IB_CM_REJ_INVALID_SERVICE_ID: nobody listens at the port */

/* What the self-test leaves in the word for a moment, and what it never finds there. */
#define TEST_WORD UINT64_C(0x0102030405060708)
#define TEST_OTHER UINT64_C(0x1111222233334444)

static void fail_last(struct nic_conn *c, int err)
{
    rd_rpma_conn_fail(c, err, "%s", cairn_last_error());
}

/* ---- object queue pairs ---- */

static int start_id(struct nic_conn *c, uint32_t index)
{
    int err = rd_rpma_id_new(c, index);
    return err != 0 ? err : rd_rpma_id_resolve(c, index);
}

int rd_rpma_connect(struct rd_ep *rd_ep, const char *address, const void *hello, uint32_t size,
    uint64_t deadline_ns, struct rd_conn **ret_conn)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    struct sockaddr_storage addr;
    socklen_t addr_size;
    CAIRN_ASSERT(size <= RD_HELLO_SIZE_MAX);
    int err = rd_rpma_parse_address(address, &addr, &addr_size);
    if (err != 0)
        return err;
    struct nic_conn *c = rd_rpma_conn_claim(ep, true, true);
    if (c == NULL)
        return cn_fail(CAIRN_E_LIMIT, "endpoint %s: all %u connections are in use", ep->name,
            ep->connections_max);
    c->peer_addr = addr;
    if (size > 0)
        memcpy(c->hello, hello, size);
    c->hello_size = size;
    c->deadline_ns = deadline_ns;
    c->qp_count = ep->fabric->config.queue_pairs;
    CAIRN_ASSERT(c->qp_count >= 1 && c->qp_count <= NIC_QPS_MAX);
    rd_rpma_set_state(c, NIC_ADDRESS);
    rd_rpma_schedule(ep, deadline_ns);
    err = start_id(c, 0);
    if (err != 0)
        fail_last(c, err);
    *ret_conn = &c->base;
    return 0;
}

static void on_address(struct nic_conn *c, uint32_t index)
{
    int err = rd_rpma_ep_bind(nic_conn_ep(c), c->qp[index].id->verbs);
    if (err == 0)
        err = rd_rpma_id_route(c, index);
    if (err != 0)
        fail_last(c, err);
    else if (index == 0)
        rd_rpma_set_state(c, NIC_ROUTE);
}

/* Without a reason of ours. On iWARP there is one cause for all. */
static void fail_rejected(struct nic_conn *c, int cause, const char *peer)
{
    if (cause == REJECTED_BY_PEER)
        rd_rpma_conn_fail(c, CAIRN_E_REJECTED,
            "%s refused the connection without a reason: it is ending, or no node of Cairn", peer);
    else if (cause == REJECTED_NO_SERVICE || cause == -ECONNREFUSED)
        rd_rpma_conn_fail(c, CAIRN_E_REJECTED,
            "nobody listens at %s (over %s); is the node started, and is the address right?", peer,
            rd_rpma_device_text(c));
    else
        rd_rpma_conn_fail(c, CAIRN_E_REJECTED,
            "%s refused the connection (over %s, cause %d); is a node of Cairn there?", peer,
            rd_rpma_device_text(c), cause);
}

static void on_route(struct nic_conn *c, uint32_t index)
{
    struct nic_ep *ep = nic_conn_ep(c);
    bool first = index == 0;
    int err = rd_rpma_qp_new(c, index);
    if (err == 0) {
        struct rd_rpma_cm_wire wire = {
            .magic = le32_make(RD_RPMA_MAGIC),
            .version = le16_make(RD_RPMA_VERSION),
            .channel = first ? RD_RPMA_CHANNEL_FIRST : RD_RPMA_CHANNEL_FURTHER,
            .index = (uint8_t)index,
            .cookie = le64_make(c->cookie),
            .beat_addr = le64_make(first ? (uintptr_t)&ep->beats[c->index] : 0),
            .beat_rkey = le32_make(first ? ep->beat_mr->rkey : 0),
        };
        err = rd_rpma_qp_connect(c, index, &wire);
    }
    char text[NIC_ADDRESS_TEXT_MAX];
    if (err == CAIRN_E_REJECTED) /* some devices know at once that nobody is there */
        fail_rejected(c, -ECONNREFUSED, rd_rpma_peer_text(c, text));
    else if (err != 0)
        rd_rpma_conn_fail(c, err, "%s over %s: %s", rd_rpma_peer_text(c, text),
            rd_rpma_device_text(c), cairn_last_error());
    else if (first)
        rd_rpma_set_state(c, NIC_FIRST);
}

/* The peer gave its reason. */
static void fail_refused(struct nic_conn *c, int status, const char *peer)
{
    switch (status) {
    case CAIRN_E_LIMIT:
        rd_rpma_conn_fail(c, status, "%s has no room for one more connection; raise its limit, or "
            "end other clients", peer);
        break;
    case CAIRN_E_WIRE_VERSION:
        rd_rpma_conn_fail(c, status, "%s speaks another version of the transport than %u; update "
            "the older one", peer, RD_RPMA_VERSION);
        break;
    default:
        rd_rpma_conn_fail(c, status, "%s refused the connection: %s", peer, cairn_strerror(status));
    }
}

/* The peer said no, or the machine there did for want of somebody who listens. */
static void on_rejected(struct nic_conn *c, const struct rdma_cm_event *event)
{
    struct rd_rpma_cm_wire wire;
    char text[NIC_ADDRESS_TEXT_MAX];
    const struct rdma_conn_param *param = &event->param.conn;
    (void)rd_rpma_peer_text(c, text);
    const struct le32 magic = le32_make(RD_RPMA_MAGIC);
    int err = rd_rpma_check_cm(param->private_data, param->private_data_len, &wire);
    if (err == CAIRN_E_WIRE_VERSION && param->private_data_len >= sizeof(magic) &&
        memcmp(param->private_data, &magic, sizeof(magic)) == 0) {
        rd_rpma_conn_fail(c, err, "%s: %s", text, cairn_last_error());
        return;
    }
    if (err == 0 && le32_get(wire.error) != 0)
        fail_refused(c, -(int)le32_get(wire.error), text);
    else
        fail_rejected(c, event->status, text);
}

static void open_log(struct nic_conn *c);

static void on_established(struct nic_conn *c, uint32_t index, const struct rdma_cm_event *event)
{
    struct rd_rpma_cm_wire wire;
    const struct rdma_conn_param *param = &event->param.conn;
    int err = rd_rpma_check_cm(param->private_data, param->private_data_len, &wire);
    uint8_t channel = index == 0 ? RD_RPMA_CHANNEL_FIRST : RD_RPMA_CHANNEL_FURTHER;
    if (err == 0 && le32_get(wire.error) != 0) {
        /* iWARP: refused by being accepted, see rd_rpma_passive.c */
        char text[NIC_ADDRESS_TEXT_MAX];
        fail_refused(c, -(int)le32_get(wire.error), rd_rpma_peer_text(c, text));
        return;
    }
    if (err == 0 &&
        (wire.channel != channel || wire.index != index || le64_get(wire.cookie) == 0))
        err = cn_fail(CAIRN_E_PROTOCOL, "the answer for a queue pair does not fit it");
    if (err == 0 && index != 0 && le64_get(wire.cookie) != c->cookie)
        err = cn_fail(CAIRN_E_PROTOCOL, "a queue pair was answered with another cookie");
    if (err != 0) {
        fail_last(c, err);
        return;
    }
    c->qp[index].up = true;
    if (index == 0) {
        c->cookie = le64_get(wire.cookie);
        c->peer_beat_addr = le64_get(wire.beat_addr);
        c->peer_beat_rkey = le32_get(wire.beat_rkey);
        rd_rpma_set_state(c, NIC_FURTHER);
        for (uint32_t i = 1; i < c->qp_count; i++) {
            err = start_id(c, i);
            if (err != 0) {
                fail_last(c, err);
                return;
            }
        }
    }
    for (uint32_t i = 0; i < c->qp_count; i++) {
        if (!c->qp[i].up)
            return;
    }
    open_log(c);
}

void rd_rpma_active_on_cm(struct nic_conn *c, uint32_t index, const struct rdma_cm_event *event)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    (void)rd_rpma_peer_text(c, text);
    switch (event->event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        on_address(c, index);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        on_route(c, index);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        on_established(c, index, event);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
        rd_rpma_conn_fail(c, CAIRN_E_UNREACHABLE, "%s cannot be reached over %s: %s; check the "
            "address, the cable and `rdma link`", text, rd_rpma_device_text(c),
            strerror(event->status < 0 ? -event->status : event->status));
        break;
    case RDMA_CM_EVENT_REJECTED:
        if (c->qp[index].up) /* it closed before it had heard that we have its answer */
            rd_rpma_conn_close(c, CAIRN_E_NODE_DOWN, "%s has closed the connection", text);
        else
            on_rejected(c, event);
        break;
    case RDMA_CM_EVENT_UNREACHABLE:
        rd_rpma_conn_fail(c, c->qp[index].up ? CAIRN_E_NODE_DOWN : CAIRN_E_UNREACHABLE,
            "%s does not answer over %s (cause %d); is it up?", text, rd_rpma_device_text(c),
            event->status);
        break;
    default: /* CONNECT_ERROR: it answered, and was gone before the queue pair was ready */
        rd_rpma_conn_fail(c,
            event->event == RDMA_CM_EVENT_CONNECT_ERROR ? CAIRN_E_NODE_DOWN : CAIRN_E_FABRIC,
            "%s over %s: %s, cause %d", text, rd_rpma_device_text(c), rdma_event_str(event->event),
            event->status);
    }
}

/* ---- the log connection ---- */

static int new_log_request(
    struct nic_conn *c, const char *host, const char *port, struct rpma_conn_req **ret_request)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct rpma_conn_cfg *config;
    uint64_t now = cn_now_ns(ep->env);
    uint64_t left_ms = c->deadline_ns > now ? (c->deadline_ns - now) / 1000000 : 0;
    uint32_t timeout_ms = (uint32_t)cn_max64(cn_min64(left_ms, NIC_RESOLVE_MS), 1);
    int err = rd_rpma_log_config(ep, timeout_ms, &config);
    if (err != 0)
        return err;
    rd_rpma_control_lock();
    rd_rpma_log_clear();
    int rc = rpma_conn_req_new(ep->device->peer, host, port, config, ret_request);
    if (rc != 0)
        err = rd_rpma_fail(rc, "cannot prepare a log connection");
    rd_rpma_control_unlock();
    (void)rpma_conn_cfg_delete(&config);
    return err;
}

/* rpma_conn_req_connect() takes the request, whether it succeeds or not. */
static int connect_log(struct nic_conn *c, struct rpma_conn_req *request)
{
    struct rd_rpma_cm_wire wire = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION),
        .channel = RD_RPMA_CHANNEL_LOG,
        .cookie = le64_make(c->cookie),
    };
    struct rpma_conn_private_data data = {&wire, sizeof(wire)};
    struct rpma_conn *log = NULL;
    int err = rd_rpma_post_receives(c, request);
    if (err != 0) {
        rd_rpma_control_lock();
        (void)rpma_conn_req_delete(&request);
        rd_rpma_control_unlock();
        return err;
    }
    rd_rpma_log_clear();
    int rc = rpma_conn_req_connect(&request, &data, &log);
    if (rc != 0)
        return rd_rpma_fail(rc, "cannot connect a log connection");
    return rd_rpma_log_take(c, log);
}

static void open_log(struct nic_conn *c)
{
    char host[NI_MAXHOST], port[8], text[NIC_ADDRESS_TEXT_MAX];
    const struct sockaddr *addr = (const struct sockaddr *)(const void *)&c->peer_addr;
    socklen_t size = addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in);
    struct rpma_conn_req *request = NULL;
    int err = 0;
    if (getnameinfo(addr, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        err = cn_fail(CAIRN_E_FABRIC, "an address that cannot be printed");
    (void)snprintf(port, sizeof(port), "%u", rd_rpma_port(&c->peer_addr) + 1u);
    if (err == 0)
        err = new_log_request(c, host, port, &request);
    if (err == 0)
        err = connect_log(c, request);
    if (err != 0)
        rd_rpma_conn_fail(c, err, "%s over %s: %s", rd_rpma_peer_text(c, text),
            rd_rpma_device_text(c), cairn_last_error());
    else
        rd_rpma_set_state(c, NIC_LOG);
}

static void say_hello(struct nic_conn *c)
{
    c->log_up = true;
    rd_rpma_set_state(c, NIC_ASKING);
    nic_set_busy(c);
    int err = rd_rpma_send_frame(c, RD_RPMA_HELLO, 0, c->hello, c->hello_size);
    if (err != 0)
        fail_last(c, err);
}

void rd_rpma_active_on_log(struct nic_conn *c, enum rpma_conn_event event)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    (void)rd_rpma_peer_text(c, text);
    if (event == RPMA_CONN_ESTABLISHED && c->state == NIC_LOG && !c->down_due)
        say_hello(c);
    else if (c->state != NIC_LOG)
        rd_rpma_conn_close(c, CAIRN_E_NODE_DOWN, "%s has closed the connection", text);
    else if (event == RPMA_CONN_REJECTED)
        rd_rpma_conn_fail(c, CAIRN_E_REJECTED, "%s refused the log connection at the next port; "
            "its node is ending, or another program has that port", text);
    else
        rd_rpma_conn_fail(c,
            event == RPMA_CONN_UNREACHABLE ? CAIRN_E_UNREACHABLE : CAIRN_E_NODE_DOWN,
            "%s over %s: the log connection: %s", text, rd_rpma_device_text(c),
            rpma_utils_conn_event_2str(event));
}

/* ---- accepted or refused ---- */

static int take_ring(struct nic_conn *c, const struct rd_rpma_accept_wire *accept)
{
    struct rpma_peer_cfg *config = NULL;
    enum rd_durability durability = (enum rd_durability)accept->durability;
    size_t size = 0;
    c->base.durability = durability;
    if (durability == 0)
        return 0;
    c->ring_off = le64_get(accept->ring_off);
    c->ring_size = le64_get(accept->ring_size);
    rd_rpma_log_clear();
    int rc = rpma_mr_remote_from_descriptor(
        accept->descriptor, accept->descriptor_size, &c->ring_mr);
    if (rc == 0)
        rc = rpma_mr_remote_get_size(c->ring_mr, &size);
    if (rc == 0 && size != c->ring_size)
        return cn_fail(CAIRN_E_PROTOCOL, "accept: a ring of %llu bytes, registered are %zu",
            (unsigned long long)c->ring_size, size);
    if (rc == 0)
        rc = rpma_peer_cfg_new(&config);
    if (rc == 0)
        rc = rpma_peer_cfg_set_direct_write_to_pmem(
            config, durability == RD_DURABILITY_APM || durability == RD_DURABILITY_EADR);
    if (rc == 0)
        rc = rpma_conn_apply_remote_peer_cfg(c->log, config);
    if (config != NULL)
        (void)rpma_peer_cfg_delete(&config);
    return rc == 0 ? 0 : rd_rpma_fail(rc, "accept: the ring cannot be used");
}

static void become_ready(struct nic_conn *c)
{
    int err = rd_rpma_send_frame(c, RD_RPMA_READY, 0, NULL, 0);
    if (err != 0) {
        fail_last(c, err);
        return;
    }
    c->deadline_ns = UINT64_MAX;
    c->beat_ns = cn_now_ns(nic_conn_ep(c)->env);
    rd_rpma_set_state(c, NIC_UP);
    rd_rpma_schedule(nic_conn_ep(c), c->beat_ns);
    rd_rpma_event(c, RD_EV_UP, 0, 0);
}

/* ---- the self-test ---- */

/* Swapped, not swapped and still as it was, swapped back; and each time the bytes in memory are
 * what a plain read, and the node's CPU, take for the same number. */
static const struct test_step {
    bool read;
    uint64_t expected, desired, old;
} test_steps[] = {
    {false, 0, TEST_WORD, 0},
    {true, 0, 0, TEST_WORD},
    {false, TEST_OTHER, ~TEST_OTHER, TEST_WORD},
    {true, 0, 0, TEST_WORD},
    {false, TEST_WORD, 0, TEST_WORD},
    {true, 0, 0, 0},
};

static void post_step(struct nic_conn *c)
{
    const struct test_step *step = &test_steps[c->test_step];
    int err = step->read ? rd_rpma_post_test_read(c)
                         : rd_rpma_post_test(c, step->expected, step->desired);
    if (err != 0)
        fail_last(c, err);
}

void rd_rpma_active_on_test(struct nic_conn *c, int status)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    if (c->state != NIC_TESTING || c->down_due)
        return;
    if (status == CAIRN_E_NODE_DOWN) {
        rd_rpma_conn_fail(c, status, "%s has gone while the connection was made",
            rd_rpma_peer_text(c, text));
        return;
    }
    const struct test_step *step = &test_steps[c->test_step];
    uint64_t old = nic_conn_ep(c)->beats[c->index].seen;
    if (step->read)
        old = le64toh(old);
    if (status != 0 || old != step->old) {
        rd_rpma_conn_fail(c, CAIRN_E_NO_ATOMICS,
            "%s over %s: compare-and-swap does not work: step %u, %s %#llx where %#llx was "
            "due, status %d; set message_atomics at the nodes", rd_rpma_peer_text(c, text),
            rd_rpma_device_text(c), c->test_step, step->read ? "in memory is" : "old value",
            (unsigned long long)old, (unsigned long long)step->old, status);
        return;
    }
    if (++c->test_step == CN_ARRAY_SIZE(test_steps))
        become_ready(c);
    else
        post_step(c);
}

static void on_accept(struct nic_conn *c, const uint8_t *payload, uint32_t size)
{
    struct rd_rpma_accept_wire accept;
    char text[NIC_ADDRESS_TEXT_MAX];
    uint32_t welcome_off;
    int err = rd_rpma_check_accept(payload, size, &accept, c->grant, &welcome_off);
    if (err == 0)
        err = take_ring(c, &accept);
    if (err != 0) {
        rd_rpma_conn_fail(c, err, "%s: %s", rd_rpma_peer_text(c, text), cairn_last_error());
        return;
    }
    c->grant_count = le32_get(accept.region_count);
    c->linger_ns = UINT64_C(1000) * le32_get(accept.linger_us);
    c->welcome_size = le32_get(accept.welcome_size);
    memcpy(c->welcome, payload + welcome_off, c->welcome_size);
    c->message_atomics = accept.message_atomics != 0;
    c->base.cas_orders_reads = !c->message_atomics; /* one word, one queue pair: choose_qp() */
    if (c->message_atomics) {
        become_ready(c);
    } else if (!nic_conn_ep(c)->device->has_atomics) {
        rd_rpma_conn_fail(c, CAIRN_E_NO_ATOMICS,
            "the device %s has no remote atomics, which the node %s uses; set message_atomics "
            "there", rd_rpma_device_text(c), rd_rpma_peer_text(c, text));
    } else {
        rd_rpma_set_state(c, NIC_TESTING);
        post_step(c);
    }
}

static void on_reject(struct nic_conn *c, const uint8_t *payload, uint32_t size)
{
    CAIRN_ASSERT(size <= RD_WELCOME_SIZE_MAX); /* checked with the frame */
    if (size > 0)
        memcpy(c->welcome, payload, size);
    c->welcome_size = size;
    c->refused = true;
    c->down_due = false; /* the reason counts, not that it closed afterwards */
    char text[NIC_ADDRESS_TEXT_MAX];
    rd_rpma_conn_fail(c, CAIRN_E_FABRIC, "%s refused the connection", rd_rpma_peer_text(c, text));
}

void rd_rpma_active_on_frame(
    struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    if (type == RD_RPMA_REJECT && c->state == NIC_ASKING)
        on_reject(c, payload, size);
    else if (type == RD_RPMA_ACCEPT && c->state == NIC_ASKING) {
        if (!c->down_due)
            on_accept(c, payload, size);
    } else
        rd_rpma_conn_fail(c, CAIRN_E_PROTOCOL, "%s sent the frame %s out of place",
            rd_rpma_peer_text(c, text), rd_rpma_frame_name(type));
}
