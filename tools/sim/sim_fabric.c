/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric.c: endpoints, regions, events and sleeping of the modelled fabric.
 *
 * A poll that finds nothing costs virtual time, more with each in a row, so that a loop that polls
 * does not stop the world; an event ends the wait.
 */
#include "tools/sim/sim_fabric.h"

#include <errno.h>

static struct sim_ep *ep_of(struct rd_ep *ep)
{
    return (struct sim_ep *)(void *)ep;
}

/* ---- notices ---- */

struct sim_notice *sim_notice_new(
    enum rd_event_type type, int status, const void *data, uint32_t size)
{
    struct sim_notice *n = sim_calloc(1, sizeof(*n) + size);

    n->event.type = type;
    n->event.status = status;
    n->size = size;
    if (size > 0)
        memcpy(n->data, data, size);
    n->event.data = size > 0 ? n->data : NULL;
    n->event.size = size;
    return n;
}

void sim_bell(struct sim_ep *ep)
{
    ep->signal = true;
    sim_actor_wake(ep->actor, sim_delay(ep->sim, "wake"));
}

void sim_notice_push(struct sim_ep *ep, struct sim_notice *notice)
{
    notice->next = NULL;
    *ep->last = notice;
    ep->last = &notice->next;
    sim_bell(ep);
}

static void free_notices(struct sim_notice *n)
{
    while (n != NULL) {
        struct sim_notice *next = n->next;
        sim_free(n);
        n = next;
    }
}

/* ---- endpoints ---- */

static int ep_open(struct rd_fabric *base, const struct rd_ep_config *config, struct rd_ep **ret_ep)
{
    struct sim_fabric *fabric = (struct sim_fabric *)(void *)base;
    struct sim *sim = fabric->sim;
    int rc = sim_call(sim, SIM_CALL_EP_OPEN);

    if (rc != 0)
        return rc;
    struct sim_ep *ep = sim_calloc(1, sizeof(*ep));
    CAIRN_ASSERT(sim->running != NULL);
    ep->base.ops = &sim_rd_ops;
    ep->sim = sim;
    ep->actor = sim->running;
    ep->connections_max = config->connections_max;
    ep->outstanding_max = config->outstanding_max;
    ep->last = &ep->first;
    ep->arena = sim_calloc(1, sizeof(*ep->arena));
    ep->arena->users = 1;
    CAIRN_ASSERT(config->memory_size % 64 == 0 && config->log_memory_size % 64 == 0);
    CAIRN_ASSERT(config->log_memory_size <= config->memory_size);
    ep->arena->size = config->memory_size;
    ep->arena->log_size = config->log_memory_size;
    ep->arena->allocation = sim_calloc(1, config->memory_size + 64);
    ep->arena->memory = (uint8_t *)cn_align_up((uintptr_t)ep->arena->allocation, 64);
    ep->next = fabric->eps;
    fabric->eps = ep;
    *ret_ep = &ep->base;
    return 0;
}

static void release_arena(struct sim_arena *arena)
{
    if (--arena->users > 0)
        return;
    sim_free(arena->allocation);
    sim_free(arena);
}

static void region_delete(struct rd_region *base);

static void ep_close(struct rd_ep *base)
{
    struct sim_ep *ep = ep_of(base), **at = &ep->sim->fabric->eps;

    while (ep->conns != NULL)
        sim_conn_delete(&ep->conns->base);
    while (ep->regions != NULL)
        region_delete(&ep->regions->base);
    while (*at != ep)
        at = &(*at)->next;
    *at = ep->next;
    free_notices(ep->first);
    free_notices(ep->polled);
    release_arena(ep->arena);
    sim_free(ep);
}

static void *ep_memory(struct rd_ep *ep)
{
    return ep_of(ep)->arena->memory;
}

static void ep_counters(const struct rd_ep *ep, struct rd_counters *ret)
{
    *ret = ((const struct sim_ep *)(const void *)ep)->counters;
}

static uint32_t ep_poll(struct rd_ep *base, struct rd_event *events, uint32_t max)
{
    struct sim_ep *ep = ep_of(base);
    struct sim *sim = ep->sim;
    uint32_t count = 0;

    if (sim->running != NULL) {
        if (ep->first == NULL) {
            uint32_t shift = ep->idle < 7 ? ep->idle : 7;
            ep->idle++;
            if (shift < 2)
                sim_yield(sim, 150u << shift);
            else
                sim_sleep(sim, sim->now + (150u << shift));
        } else if (sim_chance(sim, "poll", 1, 8)) {
            sim_yield(sim, sim_delay(sim, "poll-delay"));
        }
    }
    if (sim_serve(ep))
        ep->idle = 0;
    free_notices(ep->polled);
    ep->polled = NULL;
    struct sim_notice **tail = &ep->polled;
    while (count < max && ep->first != NULL) {
        struct sim_notice *n = ep->first;
        ep->first = n->next;
        if (ep->first == NULL)
            ep->last = &ep->first;
        n->next = NULL;
        *tail = n;
        tail = &n->next;
        events[count++] = n->event;
        ep->idle = 0;
        if (n->event.type == RD_EV_UP)
            ((struct sim_conn *)(void *)n->event.conn)->up = true;
        if (n->event.type == RD_EV_COMPLETION)
            ep->counters.completions++;
        if (n->event.type == RD_EV_MESSAGE) {
            ep->counters.messages_received++;
            ((struct sim_conn *)(void *)n->event.conn)->unread--;
        }
    }
    return count;
}

static void ep_arm(struct rd_ep *base)
{
    struct sim_ep *ep = ep_of(base);

    ep->armed = true;
    ep->signal = false;
}

static void ep_sleep(struct rd_ep *base, uint64_t clock)
{
    struct sim_ep *ep = ep_of(base);
    struct sim *sim = ep->sim;
    uint64_t deadline_ns = sim_actor_time(ep->actor, clock);

    CAIRN_ASSERT(sim->running == ep->actor);
    if (ep->first != NULL || (ep->armed && ep->signal) || deadline_ns <= sim->now)
        sim_yield(sim, 200);
    else
        sim_sleep(sim, deadline_ns);
    ep->armed = false;
    ep->idle = 0;
}

static void ep_wake(struct rd_ep *ep)
{
    sim_bell(ep_of(ep));
}

static int ep_fd(struct rd_ep *base)
{
    (void)base;
    return cn_fail(CAIRN_E_FABRIC, "a modelled endpoint has no descriptor");
}

static int ep_listen(struct rd_ep *base, const char *address)
{
    struct sim_ep *ep = ep_of(base);
    int rc = sim_call(ep->sim, SIM_CALL_LISTEN);

    if (rc != 0)
        return rc;
    for (struct sim_ep *other = ep->sim->fabric->eps; other != NULL; other = other->next)
        if (strcmp(other->address, address) == 0)
            return cn_fail(-EADDRINUSE, "%s: in use", address);
    snprintf(ep->address, sizeof(ep->address), "%s", address);
    return 0;
}

/* ---- regions ---- */

static struct sim_pool *find_pool(const struct sim_fabric *fabric, const void *base)
{
    const uint8_t *at = base;

    for (uint32_t i = 0; i < fabric->pool_count; i++) {
        struct sim_pool *pool = fabric->pool[i];
        if (at >= pool->visible && at < pool->visible + pool->size)
            return pool;
    }
    return NULL;
}

static int region_new(struct rd_ep *base, const struct rd_memory *memory, unsigned access,
    struct rd_region **ret_region)
{
    struct sim_ep *ep = ep_of(base);
    int rc = sim_call(ep->sim, SIM_CALL_REGION);

    if (rc != 0)
        return rc;
    struct sim_region *r = sim_calloc(1, sizeof(*r));
    r->base.ops = &sim_rd_ops;
    r->base.pool_off = memory->pool_off;
    r->base.size = memory->size;
    r->base.access = access;
    r->number = ++ep->sim->fabric->region_count;
    r->ep = ep;
    r->memory = memory->base;
    r->durability = memory->durability;
    r->pool = find_pool(ep->sim->fabric, memory->base);
    if (r->pool != NULL) {
        CAIRN_ASSERT((const uint8_t *)memory->base == r->pool->visible + memory->pool_off);
        CAIRN_ASSERT(cn_range_inside(memory->pool_off, memory->size, 0, r->pool->size));
    }
    r->next = ep->regions;
    ep->regions = r;
    ep->counters.registrations++;
    *ret_region = &r->base;
    return 0;
}

static void region_delete(struct rd_region *base)
{
    struct sim_region *r = (struct sim_region *)(void *)base, **at = &r->ep->regions;
    struct sim_actor *actor = r->ep->actor;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    /* After a crash tails may still write, until the teardown. */
    for (struct sim_link *link = actor->sim->fabric->links; link != NULL && actor->alive;
         link = link->next)
        for (uint32_t i = 0; i < link->grant_count; i++)
            if (link->grant[i].origin == r->number)
                sim_link_stop(link);
    sim_free(r);
}

static int ring_revoke(struct rd_region *base, bool *ret_busy)
{
    struct sim_region *r = (struct sim_region *)(void *)base;
    int rc = sim_call(r->ep->sim, SIM_CALL_REVOKE);

    if (rc != 0)
        return rc;
    /* Of earlier lives too: by memory, not by region. The ring is granted last. */
    for (struct sim_link *link = r->ep->sim->fabric->links; link != NULL; link = link->next) {
        if (link->ring == 0)
            continue;
        const struct sim_grant *g = &link->grant[link->grant_count - 1];
        if (r->pool != NULL ? g->pool == r->pool && g->off == r->base.pool_off
                            : link->ring == r->number)
            sim_link_stop(link);
    }
    r->revoked = true;
    *ret_busy = false;
    return 0;
}

/* It is registered again, and that may fail as the first time. */
static int ring_rearm(struct rd_region *base)
{
    struct sim_region *r = (struct sim_region *)(void *)base;
    struct sim *sim = r->ep->sim;
    int rc = sim_call(sim, SIM_CALL_REARM);

    if (rc != 0)
        return rc;
    if (!sim->calm && r->revoked && sim_chance(sim, "rearm-fails", 1, 64))
        return cn_fail(CAIRN_E_MEMLOCK, "the ring cannot be registered again");
    r->revoked = false;
    return 0;
}

static void delete_nothing(struct rd_fabric *fabric)
{
    (void)fabric;
}

/* ---- posts ---- */

static struct sim_conn *conn_of(struct rd_conn *conn)
{
    return (struct sim_conn *)(void *)conn;
}

static int post_read(struct rd_conn *c, uint64_t wr_id, uint64_t remote, void *local, uint32_t size,
    unsigned flags)
{
    struct sim_wr wr = {.op = SIM_READ, .wr_id = wr_id, .remote = remote, .local = local,
        .size = size, .flags = flags};
    return sim_post(conn_of(c), &wr);
}

static int post_cas(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct sim_wr wr = {.op = SIM_CAS, .wr_id = wr_id, .remote = remote, .size = 8, .flags = flags,
        .local = (uint8_t *)local_old, .expected = expected, .desired = desired};
    return sim_post(conn_of(c), &wr);
}

static int post_write(struct rd_conn *c, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags)
{
    struct sim_wr wr = {.op = SIM_WRITE, .wr_id = wr_id, .remote = remote, .size = size,
        .flags = flags};
    memcpy(&wr.local, &local, sizeof(local)); /* read only, but the field serves reads too */
    return sim_post(conn_of(c), &wr);
}

static int post_flush(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint32_t size,
    unsigned flags)
{
    struct sim_wr wr = {.op = SIM_FLUSH, .wr_id = wr_id, .remote = remote, .size = size,
        .flags = flags};
    return sim_post(conn_of(c), &wr);
}

static int post_mark(struct rd_conn *c, uint64_t wr_id, uint64_t remote, uint64_t value,
    unsigned flags)
{
    struct sim_wr wr = {.op = SIM_MARK, .wr_id = wr_id, .remote = remote, .size = 8,
        .flags = flags, .desired = value};
    return sim_post(conn_of(c), &wr);
}

static void post_bell(struct rd_conn *c)
{
    struct sim_wr wr = {.op = SIM_BELL};

    (void)sim_post(conn_of(c), &wr);
}

static int post_message(struct rd_conn *base, const void *message, uint32_t size)
{
    struct sim_conn *conn = conn_of(base);
    struct sim_link *link = conn->link;
    uint32_t to = conn->passive ? 0 : 1;

    CAIRN_ASSERT(size <= RD_MESSAGE_SIZE_MAX);
    if (conn->told)
        return cn_fail(conn->told_status, "the connection is down");
    if (!conn->up)
        return cn_fail(CAIRN_E_STATE, "the connection is not up yet");
    if (link->fenced && conn->passive)
        return cn_fail(CAIRN_E_FENCED, "this node has fenced the connection");
    int rc = sim_call_on(link, SIM_CALL_SEND);
    if (rc != 0)
        return rc;
    if ((link->end[to] != NULL && link->end[to]->unread >= SIM_UNREAD_MAX) ||
        (!link->sim->calm && sim_chance(link->sim, "send-again", 1, 64)))
        return cn_fail(CAIRN_E_AGAIN, "the peer does not keep up with our messages");
    ((struct sim_ep *)(void *)conn->base.ep)->counters.messages_sent++;
    sim_trace(link->sim, "message of %u bytes on link %u to %s%s", size, link->id,
        link->actor[to]->name, link->dying ? ": lost" : "");
    const struct sim_fabric *fabric = link->sim->fabric;
    if (fabric->on_message != NULL)
        fabric->on_message(fabric->on_message_arg, link->actor[1 - to], message, size);
    if (link->dying || link->end[to] == NULL)
        return 0; /* lost */
    link->end[to]->unread++;
    struct sim_notice *n = sim_notice_new(RD_EV_MESSAGE, 0, message, size);
    *link->message_last[to] = n;
    link->message_last[to] = &n->next;
    sim_message_kick(link, to);
    return 0;
}

const struct rd_ops sim_rd_ops = {
    .name = "sim",
    .fabric_delete = delete_nothing,
    .ep_open = ep_open,
    .ep_close = ep_close,
    .ep_memory = ep_memory,
    .ep_counters = ep_counters,
    .poll = ep_poll,
    .ep_arm = ep_arm,
    .ep_sleep = ep_sleep,
    .ep_wake = ep_wake,
    .ep_fd = ep_fd,
    .listen = ep_listen,
    .region_new = region_new,
    .region_delete = region_delete,
    .accept = sim_accept,
    .reject = sim_reject,
    .fence = sim_fence,
    .ring_revoke = ring_revoke,
    .ring_rearm = ring_rearm,
    .connect = sim_connect,
    .loopback = sim_loopback,
    .conn_delete = sim_conn_delete,
    .read = post_read,
    .cas = post_cas,
    .write = post_write,
    .flush = post_flush,
    .mark = post_mark,
    .send = post_message,
    .doorbell = post_bell,
};

/* ---- the fabric ---- */

void sim_fabric_new(struct sim *sim)
{
    struct sim_fabric *fabric = sim_calloc(1, sizeof(*fabric));

    fabric->base.ops = &sim_rd_ops;
    fabric->sim = sim;
    fabric->packet_max = 256;
    fabric->lanes = SIM_LANES_MAX;
    fabric->durability = RD_DURABILITY_APM;
    sim->fabric = fabric;
}

void sim_fabric_add_pool(struct sim_fabric *fabric, struct sim_pool *pool)
{
    CAIRN_ASSERT(fabric->pool_count < SIM_ACTORS_MAX);
    fabric->pool[fabric->pool_count++] = pool;
}

void sim_fabric_actor_reap(struct sim_actor *actor)
{
    struct sim_ep *ep = actor->sim->fabric->eps;

    while (ep != NULL) {
        struct sim_ep *next = ep->next;
        if (ep->actor == actor) {
            ep_close(&ep->base);
            next = actor->sim->fabric->eps;
        }
        ep = next;
    }
}
