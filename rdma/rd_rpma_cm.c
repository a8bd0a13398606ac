/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_cm.c: rdma_cm for object queue pairs: the channel of an endpoint, ids, queue pairs on
 * them, listening, events.
 *
 * Invariants
 * - All ids of an endpoint share one non-blocking channel. An event is copied and acknowledged
 *   before anybody acts on it, so that an id can be destroyed while its event is handled.
 * - An id is in exactly one `qp[]` slot of a connection, which is its context, or it is the
 *   listening one or parked, whose context is NULL.
 * - iWARP: the kernel does not let go of a queue pair that is connecting until the peer answers or
 *   a timeout of many seconds. One that is given up is *parked* until then: it has nothing posted
 *   and is told nothing but the peer's beat.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

#define LISTEN_BACKLOG 128
#define EVENTS_PER_LOOK 64u
#define PASSIVE_SENDS 4u /* at least: the passive side posts heartbeats only, one at a time */
#define RESOLVE_MS_MAX 60000u
#define ACK_UNIT_NS UINT64_C(4096)
#define ACK_TIMEOUT_MAX 31u

/* ---- the channel ---- */

int rd_rpma_look_at(struct nic_ep *ep, int fd, uint64_t tag)
{
    int flags = fcntl(fd, F_GETFL);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        epoll_ctl(ep->look_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return cn_fail(-errno, "endpoint %s: cannot watch a descriptor: %s", ep->name,
            strerror(errno));
    return 0;
}

void rd_rpma_look_away(struct nic_ep *ep, int fd)
{
    (void)epoll_ctl(ep->look_fd, EPOLL_CTL_DEL, fd, NULL);
}

int rd_rpma_cm_open(struct nic_ep *ep)
{
    ep->cm = rdma_create_event_channel();
    if (ep->cm == NULL) {
        ep->look_fd = -1;
        return cn_fail(CAIRN_E_NO_DEVICE,
            "rdma_cm does not work on this host (%s); load the module rdma_ucm and see "
            "`cairn doctor`", strerror(errno));
    }
    rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    int err = 0;
    ep->look_fd = epoll_create1(EPOLL_CLOEXEC);
    if (ep->look_fd < 0)
        err = cn_fail(-errno, "endpoint %s: no descriptor: %s", ep->name, strerror(errno));
    else
        rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    if (err == 0)
        err = rd_rpma_look_at(ep, ep->cm->fd, NIC_LOOK_CM);
    if (err == 0)
        err = rd_rpma_watch(ep, ep->look_fd, NULL, true);
    if (err != 0)
        rd_rpma_cm_close(ep);
    return err;
}

void rd_rpma_cm_close(struct nic_ep *ep)
{
    CAIRN_ASSERT(ep->listen_id == NULL);
    if (ep->look_fd >= 0 && ep->cm != NULL) {
        (void)close(ep->look_fd);
        rd_live_change(RD_LIVE_DESCRIPTOR, -1);
    }
    if (ep->cm != NULL) {
        rdma_destroy_event_channel(ep->cm);
        rd_live_change(RD_LIVE_DESCRIPTOR, -1);
    }
    ep->look_fd = -1;
    ep->cm = NULL;
}

/* ---- ids ---- */

uint64_t rd_rpma_ack_limits(uint32_t heartbeat_ms, uint8_t *ret_timeout, uint8_t *ret_retries)
{
    const uint64_t span = UINT64_C(1000000) * NIC_BEATS_MISSED * heartbeat_ms;
    uint8_t timeout = 1;
    while (ACK_UNIT_NS * NIC_TRIES_MAX << timeout < span && timeout < ACK_TIMEOUT_MAX)
        timeout++;
    uint64_t each = ACK_UNIT_NS << timeout;
    uint64_t tries = cn_min64((span + each - 1) / each, NIC_TRIES_MAX);
    *ret_timeout = timeout;
    *ret_retries = (uint8_t)(tries - 1);
    return tries * each;
}

/* A lost peer is to be found by the transport, too, not after minutes; but never before heartbeats
 * would give it up, however seldom a starved host gets to answer. Where the device or the kernel
 * does not know the option, heartbeats alone find it. */
static void set_ack_timeout(const struct nic_conn *c, struct rdma_cm_id *id)
{
    uint8_t timeout, retries;
    (void)rd_rpma_ack_limits(nic_conn_ep(c)->fabric->config.heartbeat_ms, &timeout, &retries);
    (void)rdma_set_option(
        id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof(timeout));
}

void rd_rpma_id_take(struct nic_conn *c, uint32_t index, struct rdma_cm_id *id)
{
    CAIRN_ASSERT(index < NIC_QPS_MAX && c->qp[index].id == NULL);
    c->qp[index].id = id;
    id->context = c;
    rd_live_change(RD_LIVE_CM_ID, 1);
}

int rd_rpma_id_new(struct nic_conn *c, uint32_t index)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(nic_conn_ep(c)->cm, &id, c, RDMA_PS_TCP) != 0)
        return rd_rpma_fail_errno(errno, "cannot make an id of rdma_cm");
    set_ack_timeout(c, id);
    rd_rpma_id_take(c, index, id);
    return 0;
}

/* Milliseconds left for it, at least one. */
static int milliseconds_left(const struct nic_conn *c)
{
    uint64_t now = cn_now_ns(nic_conn_ep(c)->env);
    uint64_t left = c->deadline_ns > now ? (c->deadline_ns - now) / 1000000 : 0;
    return (int)cn_max64(cn_min64(left, RESOLVE_MS_MAX), 1);
}

int rd_rpma_id_resolve(struct nic_conn *c, uint32_t index)
{
    struct sockaddr *to = (struct sockaddr *)(void *)&c->peer_addr;
    if (rdma_resolve_addr(c->qp[index].id, NULL, to, milliseconds_left(c)) == 0)
        return 0;
    char text[NIC_ADDRESS_TEXT_MAX];
    return cn_fail(CAIRN_E_UNREACHABLE,
        "no RDMA device leads to %s: %s; check the address and that `rdma link` shows an active "
        "device on that network", rd_rpma_peer_text(c, text), strerror(errno));
}

int rd_rpma_id_route(struct nic_conn *c, uint32_t index)
{
    if (rdma_resolve_route(c->qp[index].id, milliseconds_left(c)) == 0)
        return 0;
    char text[NIC_ADDRESS_TEXT_MAX];
    return cn_fail(CAIRN_E_UNREACHABLE, "no route to %s: %s; check its address and the network",
        rd_rpma_peer_text(c, text), strerror(errno));
}

/* ---- queue pairs ---- */

int rd_rpma_qp_new(struct nic_conn *c, uint32_t index)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct nic_qp *qp = &c->qp[index];
    CAIRN_ASSERT(qp->id != NULL && !qp->has_qp && ep->device != NULL);
    if (qp->id->verbs != ep->device->verbs)
        return cn_fail(CAIRN_E_CONFIG, "endpoint %s uses the device %s, this connection came over "
            "%s; use one RDMA device for all nodes", ep->name, ep->device->name,
            qp->id->verbs != NULL ? ibv_get_device_name(qp->id->verbs->device) : "none");
    uint32_t sends = PASSIVE_SENDS;
    if (c->active && qp->queue.size > sends)
        sends = qp->queue.size;
    struct ibv_qp_init_attr attr = {
        .qp_context = c,
        .send_cq = ep->cq,
        .recv_cq = ep->cq,
        .cap = {.max_send_wr = sends,
            .max_recv_wr = 1,
            .max_send_sge = 1,
            .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    if (rdma_create_qp(qp->id, ep->device->pd, &attr) != 0)
        return rd_rpma_fail_errno(errno, "cannot make a queue pair");
    qp->has_qp = true;
    qp->number = qp->id->qp->qp_num;
    rd_live_change(RD_LIVE_QUEUE_PAIR, 1);
    return 0;
}

static void fill_parameters(const struct nic_conn *c, struct rdma_conn_param *param,
    const struct rd_rpma_cm_wire *wire)
{
    uint8_t timeout, retries;
    (void)rd_rpma_ack_limits(nic_conn_ep(c)->fabric->config.heartbeat_ms, &timeout, &retries);
    *param = (struct rdma_conn_param){
        .private_data = wire,
        .private_data_len = sizeof(*wire),
        .responder_resources = RDMA_MAX_RESP_RES, /* what the device has */
        .initiator_depth = RDMA_MAX_INIT_DEPTH,
        .retry_count = retries,
        .rnr_retry_count = 7,
    };
}

int rd_rpma_qp_connect(struct nic_conn *c, uint32_t index, const struct rd_rpma_cm_wire *wire)
{
    struct rdma_conn_param param;
    fill_parameters(c, &param, wire);
    if (rdma_connect(c->qp[index].id, &param) != 0)
        return rd_rpma_fail_errno(errno, "cannot connect a queue pair");
    c->qp[index].connecting = true;
    return 0;
}

int rd_rpma_qp_accept(struct nic_conn *c, uint32_t index, const struct rd_rpma_cm_wire *wire)
{
    struct rdma_conn_param param;
    fill_parameters(c, &param, wire);
    set_ack_timeout(c, c->qp[index].id);
    if (rdma_accept(c->qp[index].id, &param) != 0)
        return rd_rpma_fail_errno(errno, "cannot accept a queue pair");
    return 0;
}

void rd_rpma_id_release(struct nic_conn *c, uint32_t index)
{
    struct nic_qp *qp = &c->qp[index];
    if (qp->has_qp) {
        rdma_destroy_qp(qp->id);
        rd_live_change(RD_LIVE_QUEUE_PAIR, -1);
    }
    if (qp->id != NULL) {
        qp->id->context = NULL;
        rd_live_change(RD_LIVE_CM_ID, -1);
    }
    qp->id = NULL;
    qp->has_qp = qp->up = qp->connecting = false;
    qp->number = 0;
}

static bool park(struct nic_conn *c, uint32_t index)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct nic_qp *qp = &c->qp[index];
    if (!qp->connecting || qp->up || !ep->device->iwarp || ep->parked_count == NIC_PARKED_MAX)
        return false;
    qp->id->context = NULL;
    ep->parked[ep->parked_count++] = qp->id;
    qp->id = NULL;
    qp->has_qp = qp->connecting = false;
    qp->number = 0;
    return true;
}

void rd_rpma_unpark(struct nic_ep *ep, struct rdma_cm_id *id)
{
    for (uint32_t i = 0; i < ep->parked_count;) {
        struct rdma_cm_id *parked = ep->parked[i];
        if (id != NULL && parked != id) {
            i++;
            continue;
        }
        ep->parked[i] = ep->parked[--ep->parked_count];
        rdma_destroy_qp(parked);
        (void)rdma_destroy_id(parked);
        rd_live_change(RD_LIVE_QUEUE_PAIR, -1);
        rd_live_change(RD_LIVE_CM_ID, -1);
    }
}

void rd_rpma_qp_delete(struct nic_conn *c, uint32_t index)
{
    struct rdma_cm_id *id = c->qp[index].id;
    if (park(c, index))
        return;
    rd_rpma_id_release(c, index);
    if (id != NULL)
        (void)rdma_destroy_id(id);
}

/* ---- listening and events ---- */

int rd_rpma_cm_listen(struct nic_ep *ep, const struct sockaddr_storage *addr)
{
    struct rdma_cm_id *id;
    CAIRN_ASSERT(ep->listen_id == NULL);
    if (rdma_create_id(ep->cm, &id, NULL, RDMA_PS_TCP) != 0)
        return rd_rpma_fail_errno(errno, "cannot make an id of rdma_cm");
    struct sockaddr_storage copy = *addr;
    if (rdma_bind_addr(id, (struct sockaddr *)(void *)&copy) != 0 ||
        rdma_listen(id, LISTEN_BACKLOG) != 0) {
        int error = errno;
        (void)rdma_destroy_id(id);
        if (error == EADDRINUSE)
            return cn_fail(-EADDRINUSE, "port %u is in use; end the process that listens there, "
                "or give this node another address", rd_rpma_port(addr));
        return cn_fail(-error, "cannot listen at port %u: %s; is the address one of an RDMA device "
            "of this host?", rd_rpma_port(addr), strerror(error));
    }
    ep->listen_id = id;
    rd_live_change(RD_LIVE_CM_ID, 1);
    return 0;
}

void rd_rpma_cm_look(struct nic_ep *ep)
{
    for (uint32_t i = 0; i < EVENTS_PER_LOOK; i++) {
        struct rdma_cm_event *event;
        uint8_t data[UINT8_MAX];
        ep->counters.syscalls++;
        if (rdma_get_cm_event(ep->cm, &event) != 0)
            return;
        struct rdma_cm_event copy = *event;
        copy.param.conn.private_data = NULL;
        if (event->param.conn.private_data != NULL) {
            memcpy(data, event->param.conn.private_data, event->param.conn.private_data_len);
            copy.param.conn.private_data = data;
        } else {
            copy.param.conn.private_data_len = 0;
        }
        (void)rdma_ack_cm_event(event);
        rd_rpma_on_cm(ep, &copy);
    }
}
