/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_loop.c: loopback, a connection of a node to its own memory. Its compare-and-swaps must be
 * executed by whatever executes those of the peers, or they would not be atomic against each other:
 * - by the device: two queue pairs of the endpoint, connected with each other over rdma_cm. The
 *   protection domain is shared by all endpoints of a device, so that regions may be another's.
 * - where cas goes by message: by the CPU, at the post. There is no queue pair then, and the
 *   connection has an ops table of its own.
 *
 * Connecting is synchronous, on a channel that lives no longer, at a port that rdma_cm chooses. A
 * random cookie tells our own request from somebody else's. Then both ids move to the endpoint's
 * channel.
 */
#include <errno.h>
#include <poll.h>

#include "rdma/rd_live.h"
#include "rdma/rd_rpma.h"

#define LOOP_NS UINT64_C(2000000000)
#define LOOP_ENDS 2u

struct loop { /* a loopback that is being connected */
    struct nic_conn *c;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listen_id;
    struct rd_rpma_cm_wire wire;
    uint32_t up; /* ends that are established */
};

/* ---- by the CPU ---- */

static const struct nic_region *find_region(
    const struct nic_conn *c, uint64_t remote, uint64_t size, unsigned access)
{
    for (uint32_t i = 0; i < c->region_count; i++) {
        const struct nic_region *r = c->region[i];
        if ((r->base.access & access) == access &&
            cn_range_inside(remote, size, r->base.pool_off, r->base.size))
            return r;
    }
    return NULL;
}

static int check_post(const struct nic_conn *c, const struct nic_region *r, uint64_t remote)
{
    struct nic_ep *ep = nic_conn_ep(c);
    if (c->state != NIC_LOOPBACK)
        return cn_fail(CAIRN_E_NODE_DOWN, "%s: the loopback connection is gone", ep->name);
    if (r == NULL)
        return cn_fail(CAIRN_E_FABRIC,
            "%s: pool offset 0x%llx lies in no region of the loopback connection", ep->name,
            (unsigned long long)remote);
    if (c->outstanding >= ep->outstanding_max)
        return cn_fail(
            CAIRN_E_AGAIN, "%s: %u operations are outstanding", ep->name, c->outstanding);
    return 0;
}

static void complete(struct nic_conn *c, uint64_t wr_id, unsigned flags)
{
    if ((flags & RD_MORE) == 0)
        nic_conn_ep(c)->counters.doorbells++;
    if ((flags & RD_SIGNALED) == 0)
        return;
    c->outstanding++;
    rd_rpma_event(c, RD_EV_COMPLETION, 0, wr_id);
}

/* Words that a cas may hit are loaded whole. */
static void copy_words(uint8_t *to, const uint8_t *from, uint32_t size)
{
    while (size > 0) {
        if (size >= 8 && (uintptr_t)from % 8 == 0) {
            uint64_t word = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_ACQUIRE);
            memcpy(to, &word, 8);
            to += 8;
            from += 8;
            size -= 8;
        } else {
            *to++ = *from++;
            size--;
        }
    }
}

static int cpu_read(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, void *local,
    uint32_t size, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    const struct nic_region *r = find_region(c, remote, size, RD_ACCESS_READ);
    int rc = check_post(c, r, remote);
    if (rc != 0)
        return rc;
    copy_words(local, r->memory + (remote - r->base.pool_off), size);
    ep->counters.reads++;
    ep->counters.bytes_read += size;
    complete(c, wr_id, flags);
    return 0;
}

static int cpu_cas(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    CAIRN_ASSERT(remote % 8 == 0);
    const struct nic_region *r = find_region(c, remote, 8, RD_ACCESS_ATOMIC);
    int rc = check_post(c, r, remote);
    if (rc != 0)
        return rc;
    uint64_t *word = (uint64_t *)(void *)(r->memory + (remote - r->base.pool_off));
    (void)__atomic_compare_exchange_n(
        word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    *local_old = expected;
    nic_conn_ep(c)->counters.cas++;
    complete(c, wr_id, flags);
    return 0;
}

static void cpu_delete(struct rd_conn *c)
{
    c->ops = c->ep->ops;
    rd_rpma_conn_delete(c);
}

static const struct rd_ops cpu_ops = {
    .name = "rpma",
    .conn_delete = cpu_delete,
    .fence = rd_rpma_fence,
    .read = cpu_read,
    .cas = cpu_cas,
    .write = rd_rpma_write, /* these refuse: it has no ring and no log connection */
    .flush = rd_rpma_flush,
    .mark = rd_rpma_mark,
    .send = rd_rpma_send,
    .doorbell = rd_rpma_doorbell,
};

/* ---- by the device ---- */

/* The first IPv4 address in the device's table of GIDs. */
static bool find_address(const struct nic_device *device, struct sockaddr_storage *ret_addr)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    for (uint8_t port = 1; port <= device->attr.phys_port_cnt; port++) {
        struct ibv_port_attr attr;
        if (ibv_query_port(device->verbs, port, &attr) != 0)
            continue;
        for (int i = 0; i < attr.gid_tbl_len; i++) {
            union ibv_gid gid;
            if (ibv_query_gid(device->verbs, port, i, &gid) != 0)
                break;
            if (memcmp(gid.raw, mapped, sizeof(mapped)) != 0)
                continue;
            struct sockaddr_in in = {.sin_family = AF_INET};
            memcpy(&in.sin_addr, gid.raw + sizeof(mapped), sizeof(in.sin_addr));
            memset(ret_addr, 0, sizeof(*ret_addr));
            memcpy(ret_addr, &in, sizeof(in));
            return true;
        }
    }
    return false;
}

static int choose_address(
    struct nic_ep *ep, const struct nic_region *region, struct sockaddr_storage *ret_addr)
{
    socklen_t size;
    int rc = 0;
    if (ep->address[0] != 0)
        rc = rd_rpma_parse_address(ep->address, ret_addr, &size);
    else if (region != NULL && region->ep->address[0] != 0)
        rc = rd_rpma_parse_address(region->ep->address, ret_addr, &size);
    else if (!find_address(ep->device, ret_addr))
        rc = cn_fail(CAIRN_E_CONFIG,
            "%s: device %s has no IPv4 address; give the node one to listen at", ep->name,
            ep->device->name);
    if (rc == 0)
        rd_rpma_set_port(ret_addr, 0);
    return rc;
}

static int begin(struct loop *loop, const struct nic_region *region)
{
    struct nic_conn *c = loop->c;
    struct sockaddr_storage addr;
    int rc = choose_address(nic_conn_ep(c), region, &addr);
    if (rc != 0)
        return rc;
    loop->channel = rdma_create_event_channel();
    if (loop->channel == NULL)
        return rd_rpma_fail_errno(errno, "loopback: event channel");
    rd_live_change(RD_LIVE_DESCRIPTOR, 1);
    if (rdma_create_id(loop->channel, &loop->listen_id, NULL, RDMA_PS_TCP) != 0) {
        loop->listen_id = NULL;
        return rd_rpma_fail_errno(errno, "loopback: listening id");
    }
    rd_live_change(RD_LIVE_CM_ID, 1);
    if (rdma_bind_addr(loop->listen_id, (struct sockaddr *)(void *)&addr) != 0 ||
        rdma_listen(loop->listen_id, (int)LOOP_ENDS) != 0)
        return rd_rpma_fail_errno(errno, "loopback: listen");
    rd_rpma_set_port(&addr, ntohs(rdma_get_src_port(loop->listen_id)));
    c->peer_addr = addr;
    c->deadline_ns = cn_now_ns(nic_conn_ep(c)->env) + LOOP_NS;
    struct rdma_cm_id *id;
    if (rdma_create_id(loop->channel, &id, c, RDMA_PS_TCP) != 0)
        return rd_rpma_fail_errno(errno, "loopback: id");
    rd_rpma_id_take(c, 0, id);
    return rd_rpma_id_resolve(c, 0);
}

static int take_request(
    struct loop *loop, struct rdma_cm_id *id, const struct rd_rpma_cm_wire *wire)
{
    struct nic_conn *c = loop->c;
    if (c->qp[1].id != NULL || le64_get(wire->cookie) != le64_get(loop->wire.cookie)) {
        (void)rdma_reject(id, NULL, 0); /* a stranger's */
        (void)rdma_destroy_id(id);
        return 0;
    }
    rd_rpma_id_take(c, 1, id);
    int rc = rd_rpma_qp_new(c, 1);
    return rc != 0 ? rc : rd_rpma_qp_accept(c, 1, &loop->wire);
}

static int step(struct loop *loop, enum rdma_cm_event_type type, struct rdma_cm_id *id, int status,
    const struct rd_rpma_cm_wire *wire)
{
    struct nic_conn *c = loop->c;
    int rc;
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        return rd_rpma_id_route(c, 0);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        rc = rd_rpma_qp_new(c, 0);
        return rc != 0 ? rc : rd_rpma_qp_connect(c, 0, &loop->wire);
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        return take_request(loop, id, wire);
    case RDMA_CM_EVENT_ESTABLISHED:
        for (uint32_t i = 0; i < LOOP_ENDS; i++) {
            if (c->qp[i].id != id || c->qp[i].up)
                continue;
            c->qp[i].up = true;
            loop->up++;
        }
        return 0;
    default:
        return cn_fail(
            CAIRN_E_FABRIC, "loopback: rdma_cm says %s (%d)", rdma_event_str(type), status);
    }
}

static int connect_ends(struct loop *loop)
{
    const struct cn_env *env = nic_conn_ep(loop->c)->env;
    while (loop->up < LOOP_ENDS) {
        struct pollfd pending = {.fd = loop->channel->fd, .events = POLLIN};
        uint64_t now = cn_now_ns(env);
        if (now >= loop->c->deadline_ns)
            return cn_fail(CAIRN_E_TIMEOUT,
                "loopback: device %s does not connect to itself in time",
                nic_conn_ep(loop->c)->device->name);
        if (poll(&pending, 1, (int)((loop->c->deadline_ns - now) / 1000000 + 1)) <= 0)
            continue;
        struct rdma_cm_event *event;
        struct rd_rpma_cm_wire wire = {0};
        if (rdma_get_cm_event(loop->channel, &event) != 0)
            return rd_rpma_fail_errno(errno, "loopback: event");
        enum rdma_cm_event_type type = event->event;
        struct rdma_cm_id *id = event->id;
        int status = event->status;
        const struct rdma_conn_param *param = &event->param.conn;
        if (type == RDMA_CM_EVENT_CONNECT_REQUEST && param->private_data != NULL &&
            rd_rpma_check_cm(param->private_data, param->private_data_len, &wire) != 0)
            memset(&wire, 0, sizeof(wire));
        (void)rdma_ack_cm_event(event);
        int rc = step(loop, type, id, status, &wire);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int move_ends(struct loop *loop)
{
    for (uint32_t i = 0; i < LOOP_ENDS; i++) {
        if (rdma_migrate_id(loop->c->qp[i].id, nic_conn_ep(loop->c)->cm) != 0)
            return rd_rpma_fail_errno(errno, "loopback: moving an id");
    }
    return 0;
}

static int connect_loop(struct nic_conn *c, const struct nic_region *region)
{
    struct loop loop = {.c = c};
    loop.wire.magic = le32_make(RD_RPMA_MAGIC);
    loop.wire.version = le16_make(RD_RPMA_VERSION);
    loop.wire.channel = RD_RPMA_CHANNEL_FURTHER; /* it has a cookie and no beat */
    loop.wire.index = 1;
    loop.wire.cookie = le64_make(cn_random64(nic_conn_ep(c)->env) | 1);
    int rc = begin(&loop, region);
    if (rc == 0)
        rc = connect_ends(&loop);
    if (rc == 0)
        rc = move_ends(&loop);
    if (loop.listen_id != NULL) {
        (void)rdma_destroy_id(loop.listen_id);
        rd_live_change(RD_LIVE_CM_ID, -1);
    }
    if (rc != 0) {
        for (uint32_t i = 0; i < LOOP_ENDS; i++)
            rd_rpma_qp_delete(c, i);
    }
    if (loop.channel != NULL) {
        rdma_destroy_event_channel(loop.channel);
        rd_live_change(RD_LIVE_DESCRIPTOR, -1);
    }
    return rc;
}

/* ---- both ---- */

static int bind_to(struct nic_ep *ep, const struct nic_region *region)
{
    struct ibv_context *verbs = NULL;
    if (region != NULL)
        return rd_rpma_ep_bind(ep, region->ep->device->verbs);
    if (ep->device != NULL)
        return 0;
    int rc = rd_rpma_choose(ep->fabric->config.device, &verbs);
    if (rc == 0 && verbs == NULL)
        rc = cn_fail(CAIRN_E_CONFIG, "%s: this host has several RDMA devices: name one", ep->name);
    return rc != 0 ? rc : rd_rpma_ep_bind(ep, verbs);
}

static int grant(struct nic_conn *c, struct nic_region *r)
{
    if (r->mr == NULL)
        return cn_fail(CAIRN_E_FABRIC, "%s: a loopback connection cannot reach a ring",
            nic_conn_ep(c)->name);
    if (c->grant_count >= RD_REGIONS_MAX)
        return cn_fail(CAIRN_E_LIMIT, "more than %u regions for a connection", RD_REGIONS_MAX);
    uint32_t at = c->grant_count++;
    for (; at > 0 && c->grant[at - 1].pool_off > r->base.pool_off; at--)
        c->grant[at] = c->grant[at - 1];
    c->grant[at] = (struct nic_grant){.pool_off = r->base.pool_off,
        .size = r->base.size,
        .addr = (uintptr_t)r->memory,
        .rkey = r->mr->rkey,
        .access = r->base.access};
    c->region[c->region_count++] = r;
    return 0;
}

int rd_rpma_loopback(struct rd_ep *rd_ep, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn)
{
    struct nic_ep *ep = nic_ep(rd_ep);
    struct nic_region *first = region_count > 0 ? nic_region(regions[0]) : NULL;
    int rc = bind_to(ep, first);
    if (rc != 0)
        return rc;
    struct nic_conn *c = rd_rpma_conn_claim(ep, true, true);
    if (c == NULL)
        return cn_fail(CAIRN_E_LIMIT, "endpoint %s: all %u connections are in use", ep->name,
            ep->connections_max);
    c->qp_count = 1;
    rd_rpma_set_state(c, NIC_LOOPBACK);
    for (uint32_t i = 0; i < region_count && rc == 0; i++) {
        struct nic_region *r = nic_region(regions[i]);
        rc = r->ep->device == ep->device ? grant(c, r)
                                         : cn_fail(CAIRN_E_CONFIG, "regions of several devices");
    }
    bool by_cpu = nic_by_message(ep);
    if (rc == 0 && !by_cpu)
        rc = connect_loop(c, first);
    if (rc != 0) {
        rd_rpma_conn_release(c, NIC_FREE);
        return rc;
    }
    if (by_cpu)
        c->base.ops = &cpu_ops;
    *ret_conn = &c->base;
    return 0;
}
