/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_test.h: what the tests of the `rpma` back end's connections share: endpoints that are all
 * polled by one thread (a *world*), and a raw client or server of rdma_cm that need not play by the
 * rules. Header-only. Include after cmocka.h. Needs a device: CAIRN_TEST_ADDRESS names a local
 * address of one, otherwise r_main_address() ends the program with 77 (skipped).
 */
#ifndef RD_RPMA_TEST_H
#define RD_RPMA_TEST_H

#include "rdma/rd_rpma.h"
#include "tests/support/rd_test.h"

#define R_SIDES 8u
#define R_EVENTS 256u
#define R_WAIT_MS 8000u

struct r_event {
    struct rd_event e; /* data and text point to what follows */
    uint8_t data[256];
    char text[NIC_TEXT_MAX];
};

struct r_side {
    struct rd_fabric *fabric;
    struct rd_ep *ep;
    struct rd_region *extent, *ring;
    struct r_event events[R_EVENTS];
    uint32_t head, tail;
};

struct r_config {
    uint32_t connections, outstanding, queue_pairs, heartbeat_ms;
    bool message_atomics;
};

static struct r_side *r_world[R_SIDES];
static const char *r_host;
static uint16_t r_port = 7400;
static uint64_t r_turn_ns, r_longest_ns;

static inline const char *r_main_address(void)
{
    const char *fabric = getenv("CAIRN_TEST_FABRIC");
    r_host = getenv("CAIRN_TEST_ADDRESS");
    if (r_host == NULL || fabric == NULL || strcmp(fabric, "rpma") != 0) {
        (void)fprintf(stderr, "skipped: no RDMA device (CAIRN_TEST_FABRIC, CAIRN_TEST_ADDRESS)\n");
        exit(77);
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a VM that is killed has shown how far it got */
    const char *filter = getenv("CAIRN_TEST_FILTER");
    if (filter != NULL)
        cmocka_set_test_filter(filter);
    return r_host;
}

/* Fresh ports at each call. */
static inline const char *r_address(char text[RD_ADDRESS_SIZE_MAX], uint16_t *ret_port)
{
    r_port = (uint16_t)(r_port + 2);
    (void)snprintf(text, RD_ADDRESS_SIZE_MAX, "%s:%u", r_host, r_port);
    if (ret_port != NULL)
        *ret_port = r_port;
    return text;
}

static inline void r_open(struct r_side *side, const char *address, struct r_config with)
{
    const struct rd_fabric_config fabric = {.queue_pairs = with.queue_pairs,
        .heartbeat_ms = with.heartbeat_ms,
        .message_atomics = with.message_atomics};
    const struct rd_ep_config config = {.env = cn_env_system(),
        .connections_max = with.connections != 0 ? with.connections : 4,
        .outstanding_max = with.outstanding != 0 ? with.outstanding : 16,
        .memory_size = 1 << 18,
        .log_memory_size = 1 << 16,
        .name = address != NULL ? "node" : "peer",
        .address = address};
    memset(side, 0, sizeof(*side));
    r_turn_ns = r_longest_ns = 0;
    cn_env_system_log_level(CN_LOG_ERROR);
    T_CHECK(rd_fabric_open("rpma", &fabric, &side->fabric) == 0);
    T_CHECK(rd_ep_open(side->fabric, &config, &side->ep) == 0);
    if (address != NULL)
        T_CHECK(rd_listen(side->ep, address) == 0);
    for (uint32_t i = 0; i < R_SIDES; i++) {
        if (r_world[i] == NULL) {
            r_world[i] = side;
            return;
        }
    }
    T_CHECK(false);
}

static inline void r_regions(struct r_side *side, const struct t_pool *pool)
{
    const struct rd_memory extent = {
        pool->base + T_EXTENT_OFF, T_EXTENT_OFF, T_EXTENT_SIZE, -1, (enum rd_durability)0};
    const struct rd_memory ring = {.base = pool->base + T_RING_OFF,
        .pool_off = T_RING_OFF,
        .size = T_RING_SIZE,
        .fd = -1,
        .durability = RD_DURABILITY_APM};
    T_CHECK(rd_region_new(
                side->ep, &extent, RD_ACCESS_READ | RD_ACCESS_ATOMIC, &side->extent) == 0);
    T_CHECK(rd_region_new(side->ep, &ring, RD_ACCESS_READ | RD_ACCESS_WRITE, &side->ring) == 0);
}

static inline void r_close(struct r_side *side)
{
    for (uint32_t i = 0; i < R_SIDES; i++) {
        if (r_world[i] == side)
            r_world[i] = NULL;
    }
    if (side->ring != NULL)
        rd_region_delete(side->ring);
    if (side->extent != NULL)
        rd_region_delete(side->extent);
    rd_ep_close(side->ep);
    rd_fabric_delete(side->fabric);
}

/* ---- the world goes on ---- */

static inline void r_poll(struct r_side *side)
{
    struct rd_event events[8];
    uint32_t n = rd_poll(side->ep, events, 8);
    for (uint32_t i = 0; i < n; i++) {
        T_CHECK(side->head - side->tail < R_EVENTS);
        struct r_event *to = &side->events[side->head++ % R_EVENTS];
        to->e = events[i];
        T_CHECK(events[i].size <= sizeof(to->data));
        if (events[i].size > 0)
            memcpy(to->data, events[i].data, events[i].size);
        to->e.data = events[i].size > 0 ? to->data : NULL;
        to->text[0] = 0;
        if (events[i].text != NULL)
            (void)snprintf(to->text, sizeof(to->text), "%s", events[i].text);
        to->e.text = to->text;
    }
}

/* How late a loaded machine may make us: grows with the longest turn seen since r_open(). */
static inline uint64_t r_late_ms(void)
{
    return 300 + 5 * r_longest_ns / T_MS;
}

static inline void r_turn(void)
{
    uint64_t now = t_now();
    if (r_turn_ns != 0)
        r_longest_ns = cn_max64(r_longest_ns, now - r_turn_ns);
    r_turn_ns = now;
    for (uint32_t i = 0; i < R_SIDES; i++) {
        if (r_world[i] != NULL)
            r_poll(r_world[i]);
    }
}

static inline void r_run(uint64_t ms)
{
    for (uint64_t end = t_now() + ms * T_MS; t_now() < end;)
        r_turn();
}

/* The next event of that side, whatever it is; NULL after `ms`. Valid for R_EVENTS more. */
static inline const struct r_event *r_next(struct r_side *side, uint64_t ms)
{
    for (uint64_t end = t_now() + ms * T_MS; side->head == side->tail;) {
        if (t_now() >= end)
            return NULL;
        r_turn();
    }
    return &side->events[side->tail++ % R_EVENTS];
}

static inline const struct r_event *r_expect(struct r_side *side, enum rd_event_type type)
{
    const struct r_event *event = r_next(side, R_WAIT_MS);
    if (event == NULL || event->e.type != type)
        (void)fprintf(stderr, "event %d, status %d (%s) where %d is due\n",
            event != NULL ? (int)event->e.type : -1, event != NULL ? event->e.status : 0,
            event != NULL ? event->text : "none", (int)type);
    T_CHECK(event != NULL && event->e.type == type);
    return event;
}

static inline struct rd_conn *r_connect(struct r_side *side, const char *address, uint64_t ms)
{
    struct rd_conn *c = NULL;
    T_CHECK(rd_connect(side->ep, address, "hello", 5, t_now() + ms * T_MS, &c) == 0);
    return c;
}

/* Up on both sides. *ret_passive may be NULL. */
static inline struct rd_conn *r_pair(
    struct r_side *node, struct r_side *peer, const char *address, struct rd_conn **ret_passive)
{
    struct rd_conn *c = r_connect(peer, address, R_WAIT_MS);
    const struct r_event *event = r_expect(node, RD_EV_CONNECT);
    T_CHECK(event->e.size == 5 && memcmp(event->data, "hello", 5) == 0);
    uint32_t regions = node->extent != NULL ? 1 : 0;
    T_CHECK(rd_accept(event->e.conn, &node->extent, regions, node->ring, "welcome", 7) == 0);
    event = r_expect(peer, RD_EV_UP);
    T_CHECK(event->e.conn == c && event->e.size == 7 && memcmp(event->data, "welcome", 7) == 0);
    event = r_expect(node, RD_EV_UP);
    if (ret_passive != NULL)
        *ret_passive = event->e.conn;
    return c;
}

/* Soft-iWARP and its like: no reasons in refusals, no tries to count, nothing to reset. */
static inline bool r_iwarp(const struct r_side *side)
{
    return nic_ep(side->ep)->device != NULL && nic_ep(side->ep)->device->iwarp;
}

/* ---- raw rdma_cm ---- */

struct r_raw {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id, *listen_id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    enum rdma_cm_event_type type; /* of the last event */
    int status;
    uint8_t data[256];
    uint32_t size;
};

/* Runs the world until an event of the raw side comes; false after `ms`. */
static inline bool r_raw_next(struct r_raw *raw, uint64_t ms)
{
    for (uint64_t end = t_now() + ms * T_MS; t_now() < end;) {
        struct rdma_cm_event *event;
        r_turn();
        if (rdma_get_cm_event(raw->channel, &event) != 0)
            continue;
        raw->type = event->event;
        raw->status = event->status;
        raw->size = event->param.conn.private_data != NULL ? event->param.conn.private_data_len : 0;
        if (raw->size > 0)
            memcpy(raw->data, event->param.conn.private_data, raw->size);
        if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
            raw->id = event->id;
        (void)rdma_ack_cm_event(event);
        return true;
    }
    return false;
}

static inline void r_raw_open(struct r_raw *raw)
{
    memset(raw, 0, sizeof(*raw));
    raw->channel = rdma_create_event_channel();
    T_CHECK(raw->channel != NULL);
    int flags = fcntl(raw->channel->fd, F_GETFL);
    T_CHECK(fcntl(raw->channel->fd, F_SETFL, flags | O_NONBLOCK) == 0);
}

static inline struct sockaddr_storage r_sockaddr(uint16_t port)
{
    char text[RD_ADDRESS_SIZE_MAX];
    struct sockaddr_storage addr;
    socklen_t size;
    (void)snprintf(text, sizeof(text), "%s:%u", r_host, port);
    T_CHECK(rd_rpma_parse_address(text, &addr, &size) == 0);
    return addr;
}

static inline void r_raw_qp(struct r_raw *raw)
{
    raw->pd = ibv_alloc_pd(raw->id->verbs);
    raw->cq = ibv_create_cq(raw->id->verbs, 32, NULL, NULL, 0);
    T_CHECK(raw->pd != NULL && raw->cq != NULL);
    struct ibv_qp_init_attr attr = {.send_cq = raw->cq,
        .recv_cq = raw->cq,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC};
    T_CHECK(rdma_create_qp(raw->id, raw->pd, &attr) == 0);
}

/* Connect with that private data; the answer is in raw->type, data, size. */
static inline void r_raw_connect(struct r_raw *raw, uint16_t port, const void *data, uint8_t size)
{
    struct sockaddr_storage addr = r_sockaddr(port);
    r_raw_open(raw);
    T_CHECK(rdma_create_id(raw->channel, &raw->id, NULL, RDMA_PS_TCP) == 0);
    T_CHECK(rdma_resolve_addr(raw->id, NULL, (struct sockaddr *)(void *)&addr, 2000) == 0);
    T_CHECK(r_raw_next(raw, 3000) && raw->type == RDMA_CM_EVENT_ADDR_RESOLVED);
    T_CHECK(rdma_resolve_route(raw->id, 2000) == 0);
    T_CHECK(r_raw_next(raw, 3000) && raw->type == RDMA_CM_EVENT_ROUTE_RESOLVED);
    r_raw_qp(raw);
    struct rdma_conn_param param = {.private_data = data,
        .private_data_len = size,
        .responder_resources = 4,
        .initiator_depth = 4,
        .retry_count = 3,
        .rnr_retry_count = 7};
    T_CHECK(rdma_connect(raw->id, &param) == 0);
    T_CHECK(r_raw_next(raw, R_WAIT_MS));
}

static inline void r_raw_listen(struct r_raw *raw, uint16_t port)
{
    struct sockaddr_storage addr = r_sockaddr(port);
    r_raw_open(raw);
    T_CHECK(rdma_create_id(raw->channel, &raw->listen_id, NULL, RDMA_PS_TCP) == 0);
    T_CHECK(rdma_bind_addr(raw->listen_id, (struct sockaddr *)(void *)&addr) == 0);
    T_CHECK(rdma_listen(raw->listen_id, 8) == 0);
}

static inline void r_raw_close(struct r_raw *raw)
{
    if (raw->id != NULL) {
        if (raw->id->qp != NULL)
            rdma_destroy_qp(raw->id);
        (void)rdma_destroy_id(raw->id);
    }
    if (raw->listen_id != NULL)
        (void)rdma_destroy_id(raw->listen_id);
    if (raw->cq != NULL)
        T_CHECK(ibv_destroy_cq(raw->cq) == 0);
    if (raw->pd != NULL)
        T_CHECK(ibv_dealloc_pd(raw->pd) == 0);
    rdma_destroy_event_channel(raw->channel);
}

/* Private data as an honest client's. */
static inline struct rd_rpma_cm_wire r_wire(enum rd_rpma_channel channel, uint64_t cookie)
{
    static struct rd_rpma_beat beat;
    return (struct rd_rpma_cm_wire){
        .magic = le32_make(RD_RPMA_MAGIC),
        .version = le16_make(RD_RPMA_VERSION),
        .channel = (uint8_t)channel,
        .index = channel == RD_RPMA_CHANNEL_FURTHER ? 1 : 0,
        .cookie = le64_make(cookie),
        .beat_addr = le64_make(channel == RD_RPMA_CHANNEL_FIRST ? (uintptr_t)&beat : 0),
    };
}

#endif
