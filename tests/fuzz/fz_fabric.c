/* SPDX-License-Identifier: BSD-3-Clause */
/* fz_fabric.c: see fz_fabric.h. */
#include "tests/fuzz/fz_fabric.h"

#include <errno.h>

#define EVENTS 64u
#define EPS 2u

struct ep {
    struct rd_ep rd;
    bool open;
    void *memory;
    struct rd_event event[EVENTS];
    uint32_t head, tail;
};

static struct fz_fabric *the_fabric;
static struct ep eps[EPS]; /* that of the node, and its loopback's */
static struct rd_conn loop;
static uint32_t regions;
static const struct rd_ops ops;

static void push(struct ep *ep, const struct rd_event *event)
{
    FZ_NEED(ep->tail - ep->head < EVENTS, "too many events");
    ep->event[ep->tail++ % EVENTS] = *event;
}

void fz_fabric_put(struct fz_conn *conn, enum rd_event_type type, int status, const void *data,
    uint32_t size)
{
    push(&eps[0], &(struct rd_event){
        .type = type, .status = status, .conn = &conn->rd, .data = data, .size = size});
}

/* ---- endpoints ---- */

static int ep_open(struct rd_fabric *f CN_UNUSED, const struct rd_ep_config *config,
    struct rd_ep **ret_ep)
{
    for (unsigned i = 0; i < EPS; i++) {
        if (eps[i].open)
            continue;
        eps[i] = (struct ep){.rd.ops = &ops, .open = true,
            .memory = aligned_alloc(64, config->memory_size)};
        CAIRN_ASSERT(eps[i].memory != NULL);
        memset(eps[i].memory, 0, config->memory_size);
        *ret_ep = &eps[i].rd;
        return 0;
    }
    return cn_fail(-ENOMEM, "a third endpoint");
}

static void ep_close(struct rd_ep *ep)
{
    struct ep *e = (struct ep *)(void *)ep;

    free(e->memory);
    e->open = false;
}

static void *ep_memory(struct rd_ep *ep) { return ((struct ep *)(void *)ep)->memory; }

static void ep_counters(const struct rd_ep *ep CN_UNUSED, struct rd_counters *ret)
{
    memset(ret, 0, sizeof(*ret));
}

static uint32_t poll(struct rd_ep *ep, struct rd_event *events, uint32_t max)
{
    struct ep *e = (struct ep *)(void *)ep;
    uint32_t n = 0;

    while (n < max && e->head != e->tail) {
        events[n] = e->event[e->head++ % EVENTS];
        if (events[n].conn->user != NULL || events[n].type == RD_EV_CONNECT ||
            events[n].type == RD_EV_COMPLETION)
            n++; /* else its connection has been deleted since */
    }
    return n;
}

static void ep_nothing(struct rd_ep *ep CN_UNUSED)
{
}

static void ep_sleep(struct rd_ep *ep CN_UNUSED, uint64_t deadline_ns CN_UNUSED)
{
    FZ_NEED(false, "asleep for ever");
}

static int ep_fd(struct rd_ep *ep CN_UNUSED)
{
    return cn_fail(CAIRN_E_FABRIC, "no descriptor");
}

static int listen(struct rd_ep *ep CN_UNUSED, const char *address CN_UNUSED)
{
    return 0;
}

/* ---- memory ---- */

static int region_new(struct rd_ep *ep CN_UNUSED, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region)
{
    const struct fz_pool *p = the_fabric->pool;
    struct rd_region *r = malloc(sizeof(*r));

    FZ_NEED(cn_range_inside(memory->pool_off, memory->size, 0, p->size), "memory outside");
    FZ_NEED((uint8_t *)memory->base == p->pm.base + memory->pool_off, "other memory");
    CAIRN_ASSERT(r != NULL);
    *r = (struct rd_region){
        .ops = &ops, .pool_off = memory->pool_off, .size = memory->size, .access = access};
    *ret_region = r;
    regions++;
    return 0;
}

static void region_delete(struct rd_region *r)
{
    free(r);
    regions--;
}

static int ring_revoke(struct rd_region *ring CN_UNUSED, bool *ret_busy)
{
    *ret_busy = false;
    return 0;
}

static int ring_rearm(struct rd_region *ring CN_UNUSED) { return 0; }

/* ---- connections ---- */

static struct fz_conn *own(struct rd_conn *c) { return (struct fz_conn *)(void *)c; }

static int accept(struct rd_conn *c, struct rd_region *const *list CN_UNUSED,
    uint32_t count CN_UNUSED, struct rd_region *ring, const void *welcome, uint32_t size)
{
    struct fz_conn *conn = own(c);

    FZ_NEED(conn->state == FZ_CONN_ASKS, "accepted, and it did not ask");
    FZ_NEED(rd_wire_check_welcome(welcome, size, FZ_NODE, ring != NULL) == 0, "its welcome: %s",
        cairn_last_error());
    memcpy(&conn->welcome, welcome, sizeof(conn->welcome));
    conn->state = FZ_CONN_UP;
    conn->log_off = 0;
    conn->seq = 1;
    fz_fabric_put(conn, RD_EV_UP, 0, NULL, 0);
    return 0;
}

static int reject(struct rd_conn *c, const void *reason, uint32_t size)
{
    FZ_NEED(own(c)->state == FZ_CONN_ASKS, "refused, and it did not ask");
    FZ_NEED(rd_wire_refusal(reason, size) != CAIRN_E_WIRE_VERSION || size == 136, "refusal");
    own(c)->state = FZ_CONN_FREE;
    return 0;
}

static int fence(struct rd_conn *c)
{
    memset(&own(c)->welcome, 0, sizeof(own(c)->welcome)); /* nothing of its is there any more */
    return 0;
}

static int connect(struct rd_ep *ep CN_UNUSED, const char *address CN_UNUSED, const void *hello,
    uint32_t size, uint64_t deadline_ns CN_UNUSED, struct rd_conn **ret_conn)
{
    struct fz_fabric *f = the_fabric;

    FZ_NEED(rd_wire_check_hello(hello, size, &fz_cluster_uuid, 2) == 0, "its hello: %s",
        cairn_last_error());
    for (unsigned i = 0; i < FZ_CONNS; i++) {
        if (f->conn[i].state != FZ_CONN_FREE)
            continue;
        f->conn[i] = (struct fz_conn){.rd = {.ops = &ops, .ep = &eps[0].rd},
            .state = FZ_CONN_CALLED};
        *ret_conn = &f->conn[i].rd;
        return 0;
    }
    return cn_fail(CAIRN_E_LIMIT, "no connection left");
}

static int loopback(struct rd_ep *ep, struct rd_region *const *list CN_UNUSED,
    uint32_t count CN_UNUSED, struct rd_conn **ret_conn)
{
    loop = (struct rd_conn){.ops = &ops, .ep = ep};
    *ret_conn = &loop;
    return 0;
}

static void conn_delete(struct rd_conn *c)
{
    c->user = NULL;
    if (c != &loop)
        own(c)->state = FZ_CONN_FREE;
}

static int cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags CN_UNUSED)
{
    FZ_NEED(c == &loop, "a node swaps in its own memory only");
    if (fz_pool_cas(the_fabric->pool, remote, expected, desired, local_old) != 0)
        return CAIRN_E_FABRIC;
    push((struct ep *)(void *)c->ep,
        &(struct rd_event){.type = RD_EV_COMPLETION, .conn = c, .wr_id = wr_id});
    return 0;
}

static int send(struct rd_conn *c, const void *message, uint32_t size)
{
    struct rd_message_wire head;

    FZ_NEED(c != &loop && own(c)->state != FZ_CONN_FREE, "to nobody");
    FZ_NEED(rd_wire_check(message, size) == 0, "the node sends: %s", cairn_last_error());
    if (own(c)->takes_none)
        return cn_fail(CAIRN_E_AGAIN, "its queue is full");
    memcpy(&head, message, sizeof(head));
    own(c)->last_id = le32_get(head.id);
    memset(own(c)->last_body, 0, sizeof(own(c)->last_body));
    memcpy(own(c)->last_body, (const uint8_t *)message + sizeof(head),
        cn_min64(size - sizeof(head), sizeof(own(c)->last_body)));
    own(c)->received++;
    return 0;
}

static void doorbell(struct rd_conn *c CN_UNUSED)
{
}

static void fabric_delete(struct rd_fabric *f CN_UNUSED)
{
}

static const struct rd_ops ops = {
    .name = "emu", .fabric_delete = fabric_delete, .ep_open = ep_open, .ep_close = ep_close,
    .ep_memory = ep_memory, .ep_counters = ep_counters, .poll = poll, .ep_arm = ep_nothing,
    .ep_sleep = ep_sleep, .ep_wake = ep_nothing, .ep_fd = ep_fd, .listen = listen,
    .region_new = region_new,
    .region_delete = region_delete, .accept = accept, .reject = reject, .fence = fence,
    .ring_revoke = ring_revoke, .ring_rearm = ring_rearm, .connect = connect,
    .loopback = loopback, .conn_delete = conn_delete, .cas = cas, .send = send,
    .doorbell = doorbell,
};

void fz_fabric_open(struct fz_fabric *fabric, struct fz_pool *pool)
{
    *fabric = (struct fz_fabric){.rd.ops = &ops, .pool = pool};
    for (unsigned i = 0; i < FZ_CONNS; i++)
        fabric->conn[i].rd = (struct rd_conn){.ops = &ops, .ep = &eps[0].rd};
    the_fabric = fabric;
}

void fz_fabric_check(const struct fz_fabric *fabric)
{
    FZ_NEED(regions == 0 && !eps[0].open && !eps[1].open, "something of the node is left");
    for (unsigned i = 0; i < FZ_CONNS; i++)
        FZ_NEED(fabric->conn[i].state != FZ_CONN_UP, "a connection is left");
}
