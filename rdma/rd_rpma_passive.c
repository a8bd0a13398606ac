/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_passive.c: listening, and how the passive side makes a connection:
 *
 *   GREETING   the first object queue pair is accepted at once and told a cookie; further ones and
 *              the log connection come with it; then hello
 *   ASKED      the user has RD_EV_CONNECT and accepts or rejects
 *   ACCEPTED   accept sent, ready is due
 *   UP
 *
 * Invariants
 * - What arrives before hello is a stranger's: it costs a slot for at most NIC_PASSIVE_NS, and for
 *   NIC_GREET_NS where others want it, so that silent ones keep nobody out; a cookie that cannot be
 *   guessed ties its parts together, and the user hears nothing of it.
 * - An object queue pair is refused with a reason in the private data (iWARP: accepted with it, and
 *   dropped). librpma cannot, and leaks when it refuses: a log connection that is not wanted is
 *   accepted and deleted.
 * - When a peer gives up while its log connection is taken or accepted, librpma loses the id of
 *   rdma_cm, and the kernel keeps its part until the listener's channel is closed. So the log
 *   listener is renewed then, as soon as no connection waits for its log connection.
 */
#include <errno.h>
#include <netdb.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

#define RENEW_NS UINT64_C(1000000000) /* a renewal that could not be is tried again */

/* ---- listening ---- */

static int listen_log(struct nic_ep *ep, const struct sockaddr_storage *addr)
{
    char host[NI_MAXHOST], port[8];
    const struct sockaddr *sa = (const struct sockaddr *)(const void *)addr;
    socklen_t size = sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                               : sizeof(struct sockaddr_in);
    if (getnameinfo(sa, size, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        return cn_fail(CAIRN_E_CONFIG, "an address that cannot be printed");
    (void)snprintf(port, sizeof(port), "%u", rd_rpma_port(addr) + 1u);
    rd_rpma_control_lock();
    rd_rpma_log_clear();
    int rc = rpma_ep_listen(ep->device->peer, host, port, &ep->log_listen);
    int err = rc == 0 ? 0 : rd_rpma_fail(rc, "cannot listen at the next port, for log connections");
    rd_rpma_control_unlock();
    if (err != 0) {
        ep->log_listen = NULL;
        return err;
    }
    rd_live_change(RD_LIVE_CM_ID, 1);
    rc = rpma_ep_get_fd(ep->log_listen, &ep->log_listen_fd);
    CAIRN_ASSERT(rc == 0);
    return rd_rpma_look_at(ep, ep->log_listen_fd, NIC_LOOK_LISTEN);
}

int rd_rpma_listen(struct rd_ep *rd_ep, const char *address)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    struct sockaddr_storage addr;
    socklen_t size;
    if (ep->listen_id != NULL)
        return cn_fail(CAIRN_E_STATE, "endpoint %s listens already", ep->name);
    int err = rd_rpma_parse_address(address, &addr, &size);
    struct ibv_context *verbs = NULL;
    if (err == 0)
        err = rd_rpma_choose_local(address, &verbs);
    if (err == 0)
        err = rd_rpma_ep_bind(ep, verbs);
    if (err != 0)
        return err;
    if (ep->passive_ns == 0)
        ep->passive_ns = NIC_PASSIVE_NS;
    err = rd_rpma_cm_listen(ep, &addr);
    if (err == 0)
        err = listen_log(ep, &addr);
    if (err != 0) {
        rd_rpma_unlisten(ep);
        return cn_fail_context(err, "address \"%s\"", address);
    }
    ep->listening = true;
    rd_live_change(RD_LIVE_LISTENER, 1);
    return 0;
}

static void unlisten_log(struct nic_ep *ep)
{
    if (ep->log_listen == NULL)
        return;
    rd_rpma_look_away(ep, ep->log_listen_fd);
    rd_rpma_control_lock();
    (void)rpma_ep_shutdown(&ep->log_listen);
    rd_rpma_control_unlock();
    rd_live_change(RD_LIVE_CM_ID, -1);
    ep->log_listen = NULL;
    ep->log_listen_fd = -1;
}

void rd_rpma_unlisten(struct nic_ep *ep)
{
    if (ep->listening)
        rd_live_change(RD_LIVE_LISTENER, -1);
    ep->listening = false;
    unlisten_log(ep);
    if (ep->listen_id != NULL) {
        (void)rdma_destroy_id(ep->listen_id);
        rd_live_change(RD_LIVE_CM_ID, -1);
    }
    ep->listen_id = NULL;
}

void rd_rpma_renew_log_listener(struct nic_ep *ep, uint64_t now_ns)
{
    if (!ep->listening || (ep->log_leaks == 0 && ep->log_listen != NULL))
        return;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        if (ep->conns[i].state == NIC_GREETING) {
            rd_rpma_schedule(ep, now_ns + RENEW_NS);
            return;
        }
    }
    struct sockaddr_storage addr;
    memset(&addr, 0, sizeof(addr));
    memcpy(&addr, rdma_get_local_addr(ep->listen_id), sizeof(struct sockaddr_in6));
    unlisten_log(ep);
    if (listen_log(ep, &addr) != 0) {
        unlisten_log(ep);
        cn_log(ep->env, CN_LOG_ERROR, "endpoint %s: %s; trying again", ep->name,
            cairn_last_error());
        rd_rpma_schedule(ep, now_ns + RENEW_NS);
        return;
    }
    ep->log_leaks = 0;
}

/* ---- object queue pairs ---- */

/* The slot is in the low bits, so that a cookie is found at once; the rest cannot be guessed. */
static uint64_t make_cookie(const struct nic_conn *c)
{
    uint64_t cookie;
    do {
        cookie = (cn_random64(nic_conn_ep(c)->env) & ~UINT64_C(0xffff)) | c->index;
    } while (cookie >> 16 == 0);
    return cookie;
}

/* The connection that waits for more of its parts under that cookie, or NULL. */
static struct nic_conn *find_greeting(struct nic_ep *ep, uint64_t cookie)
{
    uint64_t index = cookie & 0xffff;
    if (index >= ep->connections_max)
        return NULL;
    struct nic_conn *c = &ep->conns[index];
    return c->state == NIC_GREETING && c->cookie == cookie ? c : NULL;
}

static int accept_qp(struct nic_conn *c, uint32_t index, struct rdma_cm_id *id)
{
    struct nic_ep *ep = nic_conn_ep(c);
    bool first = index == 0;
    const struct rd_rpma_cm_wire answer = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION),
        .channel = first ? RD_RPMA_CHANNEL_FIRST : RD_RPMA_CHANNEL_FURTHER,
        .index = (uint8_t)index,
        .cookie = le64_make(c->cookie),
        .beat_addr = le64_make(first ? (uintptr_t)&ep->beats[c->index] : 0),
        .beat_rkey = le32_make(first ? ep->beat_mr->rkey : 0),
    };
    rd_rpma_id_take(c, index, id);
    int err = rd_rpma_qp_new(c, index);
    if (err == 0)
        err = rd_rpma_qp_accept(c, index, &answer);
    if (err != 0)
        rd_rpma_id_release(c, index); /* the caller refuses it */
    return err;
}

/* A place for a newcomer; where all are taken, that of the oldest stranger who has had his time. */
static struct nic_conn *find_place(struct nic_ep *ep)
{
    struct nic_conn *c = rd_rpma_conn_claim(ep, false, false), *oldest = NULL;
    if (c != NULL)
        return c;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        c = &ep->conns[i];
        if (c->state == NIC_GREETING && (oldest == NULL || c->deadline_ns < oldest->deadline_ns))
            oldest = c;
    }
    uint64_t had = oldest != NULL ? cn_now_ns(ep->env) + ep->passive_ns - oldest->deadline_ns : 0;
    if (had < cn_min64(NIC_GREET_NS, ep->passive_ns))
        return NULL;
    rd_rpma_conn_fail(oldest, CAIRN_E_LIMIT, "its place is wanted, and it says nothing");
    return rd_rpma_conn_claim(ep, false, false);
}

static int take_first(
    struct nic_ep *ep, struct rdma_cm_id *id, const struct rd_rpma_cm_wire *wire)
{
    if (le64_get(wire->cookie) != 0)
        return cn_fail(CAIRN_E_PROTOCOL, "a new connection with a cookie");
    struct nic_conn *c = find_place(ep);
    if (c == NULL)
        return cn_fail(CAIRN_E_LIMIT, "all %u connections are in use", ep->connections_max);
    memcpy(&c->peer_addr, rdma_get_peer_addr(id), sizeof(id->route.addr.dst_storage));
    c->peer_beat_addr = le64_get(wire->beat_addr);
    c->peer_beat_rkey = le32_get(wire->beat_rkey);
    c->cookie = make_cookie(c);
    c->qp_count = 1;
    rd_rpma_set_state(c, NIC_GREETING);
    int err = accept_qp(c, 0, id);
    if (err != 0) {
        rd_rpma_conn_release(c, NIC_FREE);
        return err;
    }
    c->deadline_ns = cn_now_ns(ep->env) + ep->passive_ns;
    rd_rpma_schedule(ep, c->deadline_ns);
    return 0;
}

static int take_further(
    struct nic_ep *ep, struct rdma_cm_id *id, const struct rd_rpma_cm_wire *wire)
{
    struct nic_conn *c = find_greeting(ep, le64_get(wire->cookie));
    if (c == NULL)
        return cn_fail(CAIRN_E_PROTOCOL, "no connection has that cookie");
    if (c->qp[wire->index].id != NULL)
        return cn_fail(CAIRN_E_PROTOCOL, "queue pair %u is there already", wire->index);
    if (c->qp_count <= wire->index)
        c->qp_count = wire->index + 1u;
    return accept_qp(c, wire->index, id);
}

/* iWARP loses the private data of a refusal, but not that of an acceptance. */
static void accept_and_drop(
    struct nic_ep *ep, struct rdma_cm_id *id, const struct rd_rpma_cm_wire *wire)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = ep->cq,
        .recv_cq = ep->cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    struct rdma_conn_param param = {.private_data = wire, .private_data_len = sizeof(*wire)};
    if (rdma_create_qp(id, ep->device->pd, &attr) != 0)
        return;
    (void)rdma_accept(id, &param);
    rdma_destroy_qp(id);
}

static void refuse(struct nic_ep *ep, struct rdma_cm_id *id, int err)
{
    const struct rd_rpma_cm_wire wire = {
        .magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION),
        .channel = RD_RPMA_CHANNEL_FIRST,
        .error = le32_make((uint32_t)(err <= -20000 ? -err : -CAIRN_E_FABRIC)),
    };
    cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: a connection was refused: %s", ep->name,
        cairn_last_error());
    if (ep->device->iwarp)
        accept_and_drop(ep, id, &wire);
    else
        (void)rdma_reject(id, &wire, sizeof(wire));
    (void)rdma_destroy_id(id);
}

void rd_rpma_passive_on_request(struct nic_ep *ep, const struct rdma_cm_event *event)
{
    struct rd_rpma_cm_wire wire;
    const struct rdma_conn_param *param = &event->param.conn;
    int err = rd_rpma_check_cm(param->private_data, param->private_data_len, &wire);
    if (err == 0 && le32_get(wire.error) != 0)
        err = cn_fail(CAIRN_E_PROTOCOL, "a connection that begins with an error");
    if (err == 0 && wire.channel == RD_RPMA_CHANNEL_FIRST)
        err = take_first(ep, event->id, &wire);
    else if (err == 0 && wire.channel == RD_RPMA_CHANNEL_FURTHER)
        err = take_further(ep, event->id, &wire);
    else if (err == 0)
        err = cn_fail(CAIRN_E_PROTOCOL, "a log connection at the port of object queue pairs");
    if (err != 0)
        refuse(ep, event->id, err);
}

/* ---- log connections ---- */

/* rpma_conn_req_delete() would refuse it and leak. */
static void drop_log_request(struct nic_ep *ep, struct rpma_conn_req *request, const char *why)
{
    struct rpma_conn *log = NULL;
    cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: a log connection was refused: %s", ep->name, why);
    if (rpma_conn_req_connect(&request, NULL, &log) == 0)
        (void)rpma_conn_delete(&log);
    else
        ep->log_leaks++;
}

/* The connection that the request belongs to, or NULL with the last error set. */
static struct nic_conn *match_log_request(struct nic_ep *ep, const struct rpma_conn_req *request)
{
    struct rpma_conn_private_data data = {NULL, 0};
    struct rd_rpma_cm_wire wire;
    (void)rpma_conn_req_get_private_data(request, &data);
    int err = rd_rpma_check_cm(data.ptr, data.len, &wire);
    if (err == 0 && (wire.channel != RD_RPMA_CHANNEL_LOG || le32_get(wire.error) != 0))
        err = cn_fail(CAIRN_E_PROTOCOL, "channel %u at the port of log connections", wire.channel);
    if (err != 0)
        return NULL;
    struct nic_conn *c = find_greeting(ep, le64_get(wire.cookie));
    if (c == NULL || c->log != NULL) {
        (void)cn_fail(CAIRN_E_PROTOCOL, "no connection waits for one under that cookie");
        return NULL;
    }
    return c;
}

static void take_log_request(struct nic_ep *ep)
{
    struct rpma_conn_cfg *config;
    struct rpma_conn_req *request = NULL;
    int err = rd_rpma_log_config(ep, NIC_RESOLVE_MS, &config);
    if (err != 0) {
        cn_log(ep->env, CN_LOG_ERROR, "endpoint %s: %s", ep->name, cairn_last_error());
        return;
    }
    rd_rpma_control_lock();
    rd_rpma_log_clear();
    int rc = rpma_ep_next_conn_req(ep->log_listen, config, &request);
    rd_rpma_control_unlock();
    (void)rpma_conn_cfg_delete(&config);
    if (rc != 0) {
        if (rc == RPMA_E_NO_EVENT || rc == RPMA_E_INVAL || rd_rpma_errno(rc) == EAGAIN)
            return; /* nothing, or no request */
        ep->log_leaks++;
        cn_log(ep->env, CN_LOG_WARNING, "endpoint %s: a log connection could not be taken: %s",
            ep->name, rd_rpma_log_text());
        return;
    }
    struct nic_conn *c = match_log_request(ep, request);
    if (c == NULL) {
        drop_log_request(ep, request, cairn_last_error());
        return;
    }
    err = rd_rpma_post_receives(c, request);
    if (err != 0) {
        drop_log_request(ep, request, cairn_last_error());
        rd_rpma_conn_fail(c, err, "%s", cairn_last_error());
        return;
    }
    struct rpma_conn *log = NULL;
    rd_rpma_log_clear();
    rc = rpma_conn_req_connect(&request, NULL, &log);
    if (rc != 0)
        ep->log_leaks++;
    err = rc == 0 ? rd_rpma_log_take(c, log) : rd_rpma_fail(rc, "cannot accept a log connection");
    if (err != 0)
        rd_rpma_conn_fail(c, err, "%s", cairn_last_error());
}

void rd_rpma_passive_on_log_request(struct nic_ep *ep)
{
    if (ep->log_listen == NULL)
        return;
    take_log_request(ep);
    if (ep->log_leaks > 0)
        rd_rpma_renew_log_listener(ep, cn_now_ns(ep->env));
}

/* ---- hello, answer, ready ---- */

void rd_rpma_passive_on_frame(
    struct nic_conn *c, uint32_t type, const uint8_t *payload, uint32_t size)
{
    struct nic_ep *ep = nic_conn_ep(c);
    char text[NIC_ADDRESS_TEXT_MAX];
    if (type == RD_RPMA_HELLO && c->state == NIC_GREETING) {
        CAIRN_ASSERT(size <= RD_HELLO_SIZE_MAX); /* checked with the frame */
        if (size > 0)
            memcpy(c->hello, payload, size);
        c->hello_size = size;
        c->deadline_ns = UINT64_MAX; /* it is the user's turn; heartbeats find a peer that dies */
        c->beat_ns = cn_now_ns(ep->env);
        rd_rpma_set_state(c, NIC_ASKED);
        rd_rpma_schedule(ep, c->beat_ns);
        rd_rpma_event(c, RD_EV_CONNECT, 0, 0);
    } else if (type == RD_RPMA_READY && c->state == NIC_ACCEPTED) {
        c->deadline_ns = UINT64_MAX;
        rd_rpma_set_state(c, NIC_UP);
        rd_rpma_event(c, RD_EV_UP, 0, 0);
    } else {
        rd_rpma_conn_fail(c, CAIRN_E_PROTOCOL, "%s sent the frame %s out of place",
            rd_rpma_peer_text(c, text), rd_rpma_frame_name(type));
    }
}

static int fill_ring(struct rd_rpma_accept_wire *accept, const struct nic_region *ring)
{
    size_t size = 0;
    if (ring->log_mr == NULL)
        return cn_fail(CAIRN_E_STATE, "the ring at %#llx is revoked: rearm it before it is granted",
            (unsigned long long)ring->base.pool_off);
    rd_rpma_log_clear();
    int rc = rpma_mr_get_descriptor_size(ring->log_mr, &size);
    if (rc == 0 && size > sizeof(accept->descriptor))
        return cn_fail(CAIRN_E_FABRIC, "librpma's descriptor of a ring takes %zu bytes", size);
    if (rc == 0)
        rc = rpma_mr_get_descriptor(ring->log_mr, accept->descriptor);
    if (rc != 0)
        return rd_rpma_fail(rc, "cannot describe a ring");
    accept->descriptor_size = (uint8_t)size;
    accept->durability = (uint8_t)(ring->durability != 0 ? ring->durability
                                                         : RD_DURABILITY_EMULATED);
    accept->ring_off = le64_make(ring->base.pool_off);
    accept->ring_size = le64_make(ring->base.size);
    return 0;
}

/* Build the accept frame's payload; its size in *ret_size. */
static int fill_accept(struct nic_conn *c, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, uint8_t *payload, uint32_t *ret_size)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct rd_rpma_accept_wire accept = {
        .region_count = le32_make(region_count),
        .linger_us = le32_make(ep->fabric->config.linger_us),
        .message_atomics = nic_by_message(ep),
    };
    if (ring != NULL) {
        int err = fill_ring(&accept, nic_region(ring));
        if (err != 0)
            return err;
    }
    uint32_t size = sizeof(accept);
    for (uint32_t i = 0; i < region_count; i++) {
        const struct nic_region *region = nic_region(regions[i]);
        CAIRN_ASSERT(region->mr != NULL && (region->base.access & RD_ACCESS_WRITE) == 0);
        struct rd_rpma_region_wire wire = {
            .pool_off = le64_make(region->base.pool_off),
            .size = le64_make(region->base.size),
            .addr = le64_make((uintptr_t)region->memory),
            .rkey = le32_make(region->mr->rkey),
            .access = le32_make(region->base.access),
        };
        memcpy(payload + size, &wire, sizeof(wire));
        size += (uint32_t)sizeof(wire);
    }
    memcpy(payload, &accept, sizeof(accept));
    *ret_size = size;
    return 0;
}

int rd_rpma_accept(struct rd_conn *rd_conn, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    uint8_t payload[RD_RPMA_PAYLOAD_MAX];
    uint32_t used;
    CAIRN_ASSERT(!c->active && size <= RD_WELCOME_SIZE_MAX && region_count <= RD_REGIONS_MAX);
    CAIRN_ASSERT(ring == NULL || ((ring->access & RD_ACCESS_WRITE) != 0 &&
                                     ring->size > RD_RING_HEADER_SIZE));
    if (c->state != NIC_ASKED || c->down_due)
        return cn_fail(CAIRN_E_NODE_DOWN, "the peer has gone before it was accepted");
    int err = fill_accept(c, regions, region_count, ring, payload, &used);
    if (err != 0)
        return err;
    struct rd_rpma_accept_wire accept;
    memcpy(&accept, payload, sizeof(accept));
    accept.welcome_size = le32_make(size);
    memcpy(payload, &accept, sizeof(accept));
    if (size > 0)
        memcpy(payload + used, welcome, size);
    c->ring = ring != NULL ? nic_region(ring) : NULL;
    for (uint32_t i = 0; i < region_count; i++)
        c->region[i] = nic_region(regions[i]);
    c->region_count = region_count;
    c->message_atomics = accept.message_atomics != 0;
    err = rd_rpma_send_frame(c, RD_RPMA_ACCEPT, 0, payload, used + size);
    if (err != 0)
        return cn_fail_context(err, "cannot answer the peer");
    if (c->state != NIC_ASKED)
        return cn_fail(CAIRN_E_NODE_DOWN, "the peer has gone before it was accepted");
    c->deadline_ns = cn_now_ns(ep->env) + ep->passive_ns;
    rd_rpma_schedule(ep, c->deadline_ns);
    rd_rpma_set_state(c, NIC_ACCEPTED);
    return 0;
}

int rd_rpma_reject(struct rd_conn *rd_conn, const void *reason, uint32_t size)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    CAIRN_ASSERT(!c->active && size <= RD_WELCOME_SIZE_MAX);
    if (c->state != NIC_ASKED || c->down_due ||
        rd_rpma_send_frame(c, RD_RPMA_REJECT, 0, reason, size) != 0) {
        rd_rpma_conn_delete(rd_conn); /* a peer that is gone meanwhile: no matter */
        return 0;
    }
    c->base.user = NULL;
    c->ring = NULL;
    c->region_count = 0;
    rd_rpma_set_state(c, NIC_REFUSING);
    c->deadline_ns = cn_now_ns(ep->env) + NIC_CLOSE_NS;
    rd_rpma_schedule(ep, cn_now_ns(ep->env));
    nic_set_busy(c);
    return 0;
}
