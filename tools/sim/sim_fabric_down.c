/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric_down.c: connections begin and end.
 *
 * When a link breaks, each of its queues is cut by itself: up to a drawn number of further units
 * still execute at the passive side (the zombie tail), and each queue's acknowledgements stop at
 * once or go on until the active side learns. Then the active side gets an error completion for
 * every signaled request not acknowledged, and DOWN. The passive side learns at its own time; the
 * tail ends at the latest when it fences or deletes its end, or its next life begins.
 */
#include "tools/sim/sim_fabric.h"

static struct sim_ep *ep_of(const struct sim_conn *conn)
{
    return (struct sim_ep *)(void *)conn->base.ep;
}

/* ---- lifetime ---- */

static struct sim_link *link_new(struct sim *sim)
{
    struct sim_link *link = sim_calloc(1, sizeof(*link));

    link->sim = sim;
    link->id = ++sim->fabric->link_count;
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        link->queue[i].last = &link->queue[i].first;
        link->queue[i].done_last = &link->queue[i].done_first;
    }
    for (uint32_t i = 0; i < 2; i++)
        link->message_last[i] = &link->message_first[i];
    link->inbox_last = &link->inbox;
    link->next = sim->fabric->links;
    sim->fabric->links = link;
    return link;
}

static void free_wrs(struct sim_link *link, struct sim_wr *wr)
{
    while (wr != NULL) {
        struct sim_wr *next = wr->next;
        sim_wr_free(link, wr);
        wr = next;
    }
}

static void link_free(struct sim_link *link)
{
    struct sim_link **at = &link->sim->fabric->links;

    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        free_wrs(link, link->queue[i].first);
        free_wrs(link, link->queue[i].done_first);
    }
    free_wrs(link, link->inbox);
    for (uint32_t i = 0; i < 2; i++) {
        for (struct sim_notice *n = link->message_first[i]; n != NULL;) {
            struct sim_notice *next = n->next;
            sim_free(n);
            n = next;
        }
    }
    sim_free(link->range);
    sim_free(link->grant);
    sim_free(link);
}

void sim_link_release(struct sim_link *link)
{
    if (--link->users == 0)
        link_free(link);
}

static struct sim_conn *conn_new(struct sim_ep *ep, struct sim_link *link, uint32_t side)
{
    struct sim_conn *conn = sim_calloc(1, sizeof(*conn));

    conn->base.ops = &sim_rd_ops;
    conn->base.ep = &ep->base;
    conn->link = link;
    conn->passive = side == 1;
    conn->next = ep->conns;
    ep->conns = conn;
    ep->conn_count++;
    link->end[side] = conn;
    link->actor[side] = ep->actor;
    link->users++;
    return conn;
}

/* Events of a connection that is being deleted are not delivered. */
static void purge(struct sim_ep *ep, const struct sim_conn *conn)
{
    struct sim_notice **at = &ep->first;

    while (*at != NULL) {
        struct sim_notice *n = *at;
        if (n->event.conn == &conn->base) {
            *at = n->next;
            sim_free(n);
        } else {
            at = &n->next;
        }
    }
    ep->last = at;
}

static void conn_free(struct sim_conn *conn)
{
    struct sim_ep *ep = ep_of(conn);
    struct sim_conn **at = &ep->conns;

    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    ep->conn_count--;
    purge(ep, conn);
    if (conn->link != NULL) {
        conn->link->end[conn->passive] = NULL;
        sim_link_release(conn->link);
    }
    sim_free(conn);
}

/* ---- the active side stops waiting: its requests become orphans ---- */

static void orphan(struct sim_link *link, struct sim_wr *wr, bool report)
{
    struct sim_conn *conn = link->end[0];

    if (wr->orphan)
        return;
    wr->orphan = true;
    if (report && sim_is_watched(link->sim))
        sim_tell_complete(link, wr, conn->told_status);
    if (wr->op != SIM_BELL)
        link->outstanding--;
    link->flushes -= wr->op == SIM_FLUSH;
    if (wr->op == SIM_WRITE && wr->copy == NULL) {
        wr->copy = sim_calloc(1, cn_max64(wr->size, 1));
        memcpy(wr->copy, wr->local, wr->size);
    }
    if (report && (wr->flags & RD_SIGNALED) != 0) {
        struct sim_notice *n = sim_notice_new(RD_EV_COMPLETION, conn->told_status, NULL, 0);
        n->event.conn = &conn->base;
        n->event.wr_id = wr->wr_id;
        sim_notice_push(ep_of(conn), n);
    }
}

static void orphan_all(struct sim_link *link, bool report)
{
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        for (struct sim_wr *wr = link->queue[i].done_first; wr != NULL; wr = wr->next)
            orphan(link, wr, report);
        for (struct sim_wr *wr = link->queue[i].first; wr != NULL; wr = wr->next)
            orphan(link, wr, report);
    }
    for (struct sim_wr *wr = link->inbox; wr != NULL; wr = wr->next)
        orphan(link, wr, report);
}

static void tell_down(struct sim_conn *conn, int status, const void *data, uint32_t size)
{
    if (conn == NULL || conn->told)
        return;
    conn->told = true;
    conn->told_status = status;
    if (!conn->passive)
        orphan_all(conn->link, true);
    struct sim_notice *n = sim_notice_new(RD_EV_DOWN, status, data, size);
    n->event.conn = &conn->base;
    if (conn->passive && status == CAIRN_E_NODE_DOWN)
        n->event.text = "the modelled connection broke"; /* as a device would say it */
    sim_notice_push(ep_of(conn), n);
}

static void on_notice(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;
    uint32_t side = tag & 1;

    tell_down(link->end[side], -(int)(tag >> 8), NULL, 0);
    sim_link_release(link);
}

static void tell_later(struct sim_link *link, uint32_t side, int status)
{
    struct sim *sim = link->sim;
    /* Mostly soon; sometimes the side learns late (a retry budget, a lost event). */
    uint64_t delay = sim_delay(sim, "notice");

    if (!sim->calm && sim_chance(sim, "notice-late", 1, sim->fabric->linger ? 2 : 4))
        delay += sim_choose(sim, "notice-ms", 5000) * SIM_US;
    if (link->end[side] == NULL || link->end[side]->told)
        return;
    link->users++;
    sim_after(sim, delay, on_notice, link, (uint64_t)(-status) << 8 | side);
}

/* ---- a link breaks ---- */

static uint32_t draw_units(struct sim *sim, const char *label)
{
    uint32_t kind = sim_choose(sim, label, 4);

    if (kind == 0)
        return 0;
    if (kind == 1)
        return UINT32_MAX;
    return sim_choose(sim, "units", kind == 2 ? 4 : 32);
}

void sim_link_break(struct sim_link *link, int active_status, int passive_status)
{
    if (!link->dying) {
        link->dying = true;
        for (uint32_t i = 0; i < SIM_QUEUES; i++) {
            /* Nobody is there to post more: there is nothing to choose. */
            if (link->end[0] == NULL && link->queue[i].first == NULL &&
                link->queue[i].done_first == NULL)
                continue;
            link->queue[i].budget = draw_units(link->sim, "tail");
            link->queue[i].acks_lost = sim_chance(link->sim, "acks-lost", 1, 2);
        }
        for (uint32_t i = 0; i < SIM_QUEUES; i++)
            sim_queue_kick(link, i);
    }
    tell_later(link, 0, active_status);
    tell_later(link, 1, passive_status);
}

static void free_atomic_unit(struct sim_link *link)
{
    for (uint32_t i = SIM_Q_LANE; i < SIM_QUEUES; i++)
        for (struct sim_wr *wr = link->queue[i].first; wr != NULL; wr = wr->next)
            if (wr->reserved) {
                link->sim->fabric->atomic_busy[link->actor[1]->id] = false;
                wr->reserved = false;
            }
}

void sim_link_stop(struct sim_link *link)
{
    if (!link->stopped && sim_is_watched(link->sim))
        sim_tell_dropped(link);
    link->dying = link->stopped = true;
    free_atomic_unit(link);
}

/* The passive side cuts: a prefix of what is pending executes first, and some of what has executed
 * is acknowledged. */
static void cut(struct sim_link *link)
{
    if (link->stopped)
        return;
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        struct sim_queue *q = &link->queue[i];
        uint32_t units = draw_units(link->sim, "cut-units");
        if (units > 64)
            units = 64;
        if (link->dying && units > q->budget)
            units = q->budget;
        sim_queue_advance(link, i, units);
        while (i == SIM_Q_ANSWER && sim_chance(link->sim, "cut-serve", 1, 2))
            if (!sim_serve_one(link))
                break;
        if (!q->acks_lost && !sim_link_blocked(link, 1))
            while (q->done_first != NULL && sim_chance(link->sim, "cut-ack", 1, 2))
                sim_queue_ack(link, i);
    }
    sim_link_stop(link);
}

int sim_fence(struct rd_conn *base)
{
    struct sim_conn *conn = (struct sim_conn *)(void *)base;
    struct sim_link *link = conn->link;

    CAIRN_ASSERT(conn->passive && link != NULL);
    int rc = sim_call(link->sim, SIM_CALL_FENCE);
    if (rc != 0)
        return rc;
    cut(link);
    link->fenced = true;
    for (struct sim_region *r = ep_of(conn)->regions; r != NULL; r = r->next)
        r->revoked = r->revoked || r->number == link->ring;
    sim_tell(link->sim, NULL,
        (struct sim_moment){.kind = SIM_MOMENT_FENCE, .peer = link->actor[0]},
        "cuts %s off (link %u)", link->actor[0]->name, link->id);
    /* Its queue pairs are gone: the peer need not learn why. */
    tell_later(link, 0,
        sim_chance(link->sim, "fence-told", 1, 2) ? CAIRN_E_FENCED : CAIRN_E_NODE_DOWN);
    sim_yield(link->sim, sim_delay(link->sim, "fence"));
    return 0;
}

void sim_link_detach(struct sim_conn *conn)
{
    struct sim_link *link = conn->link;

    if (link == NULL)
        return;
    conn->told = true;
    conn->told_status = CAIRN_E_NODE_DOWN;
    if (!conn->passive)
        orphan_all(link, false);
    purge(ep_of(conn), conn);
    link->end[conn->passive] = NULL;
    conn->link = NULL;
    sim_link_release(link);
}

void sim_conn_delete(struct rd_conn *base)
{
    struct sim_conn *conn = (struct sim_conn *)(void *)base;
    struct sim_link *link = conn->link;

    if (link != NULL) {
        link->users++;
        if (!conn->passive)
            orphan_all(link, false);
        if (conn->passive || link->loop) /* of a loopback both ends go: nothing is left of it */
            cut(link);
        link->end[conn->passive] = NULL;
        sim_link_release(link);
        sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
        conn->link = NULL;
        conn_free(conn);
        sim_link_release(link);
        return;
    }
    conn_free(conn);
}

/* ---- connections begin ---- */

static void on_deadline(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;

    (void)tag;
    if (link->state != SIM_LINK_UP && link->end[0] != NULL && !link->end[0]->told) {
        tell_down(link->end[0], CAIRN_E_TIMEOUT, NULL, 0);
        link->dying = true;
        tell_later(link, 1, CAIRN_E_NODE_DOWN);
    }
    sim_link_release(link);
}

static struct sim_ep *find_listener(struct sim *sim, const char *address)
{
    for (struct sim_ep *ep = sim->fabric->eps; ep != NULL; ep = ep->next)
        if (ep->actor->alive && strcmp(ep->address, address) == 0)
            return ep;
    return NULL;
}

static void on_attempt(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;
    struct sim *sim = link->sim;
    struct sim_ep *ep = find_listener(sim, link->address);

    if (link->dying || link->end[0] == NULL || link->end[0]->told)
        goto out;
    if (ep == NULL) {
        tell_down(link->end[0], CAIRN_E_NODE_DOWN, NULL, 0);
        link->dying = true;
        goto out;
    }
    link->actor[1] = ep->actor;
    if (sim_link_blocked(link, 0)) {
        link->users++;
        sim_after(sim, 200 * SIM_US + sim_delay(sim, "attempt"), on_attempt, link, tag);
        goto out;
    }
    if (ep->conn_count >= ep->connections_max) {
        tell_down(link->end[0], CAIRN_E_LIMIT, NULL, 0);
        link->dying = true;
        goto out;
    }
    struct sim_conn *conn = conn_new(ep, link, 1);
    link->state = SIM_LINK_OFFERED;
    struct sim_notice *n = sim_notice_new(RD_EV_CONNECT, 0, link->hello, link->hello_size);
    n->event.conn = &conn->base;
    sim_notice_push(ep, n);
out:
    sim_link_release(link);
}

int sim_connect(struct rd_ep *base, const char *address, const void *hello, uint32_t size,
    uint64_t clock, struct rd_conn **ret_conn)
{
    struct sim_ep *ep = (struct sim_ep *)(void *)base;
    struct sim *sim = ep->sim;
    uint64_t deadline_ns = sim_actor_time(ep->actor, clock);

    CAIRN_ASSERT(size <= RD_HELLO_SIZE_MAX);
    if (ep->conn_count >= ep->connections_max)
        return cn_fail(CAIRN_E_LIMIT, "too many connections");
    int rc = sim_call(sim, SIM_CALL_CONNECT);
    if (rc != 0)
        return rc;
    struct sim_link *link = link_new(sim);
    struct sim_conn *conn = conn_new(ep, link, 0);
    snprintf(link->address, sizeof(link->address), "%s", address);
    memcpy(link->hello, hello, size);
    link->hello_size = size;
    link->users += 2;
    sim_after(sim, sim_delay(sim, "connect"), on_attempt, link, link->id);
    sim_after(
        sim, deadline_ns > sim->now ? deadline_ns - sim->now : 0, on_deadline, link, link->id);
    *ret_conn = &conn->base;
    return 0;
}

static void grant_one(struct sim_link *link, const struct rd_region *base)
{
    const struct sim_region *r = (const struct sim_region *)(const void *)base;

    link->grant[link->grant_count++] =
        (struct sim_grant){r->base.pool_off, r->base.size, r->base.access, r->pool, r->memory,
            r->number};
}

static void grant(struct sim_link *link, struct rd_region *const *regions, uint32_t count,
    const struct rd_region *ring)
{
    CAIRN_ASSERT(count <= RD_REGIONS_MAX);
    link->grant = sim_calloc(count + 1, sizeof(*link->grant));
    for (uint32_t i = 0; i < count; i++)
        grant_one(link, regions[i]);
    if (ring != NULL)
        grant_one(link, ring);
    const struct sim_region *r = (const struct sim_region *)(const void *)ring;
    if (r == NULL)
        return;
    link->ring = r->number;
    link->durability = r->durability != 0 ? r->durability : link->sim->fabric->durability;
}

int sim_loopback(struct rd_ep *base, struct rd_region *const *regions, uint32_t region_count,
    struct rd_conn **ret_conn)
{
    struct sim_ep *ep = (struct sim_ep *)(void *)base;
    int rc = sim_call(ep->sim, SIM_CALL_LOOPBACK);

    if (rc != 0)
        return rc;
    struct sim_link *link = link_new(ep->sim);
    struct sim_conn *conn = conn_new(ep, link, 0);
    link->loop = true;
    link->actor[1] = ep->actor;
    link->state = SIM_LINK_UP;
    conn->up = true;
    grant(link, regions, region_count, NULL);
    *ret_conn = &conn->base;
    return 0;
}

static void on_established(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;

    (void)tag;
    if (link->end[1] != NULL && !link->end[1]->told && !link->dying) {
        struct sim_notice *n = sim_notice_new(RD_EV_UP, 0, NULL, 0);
        n->event.conn = &link->end[1]->base;
        sim_notice_push(ep_of(link->end[1]), n);
        link->established = true;
        sim_link_kick(link);
    }
    sim_link_release(link);
}

struct welcome { struct sim_link *link; uint32_t size; uint8_t data[RD_WELCOME_SIZE_MAX]; };

static void on_welcome(void *arg, uint64_t tag)
{
    struct welcome *w = arg;
    struct sim_link *link = w->link;
    struct sim *sim = link->sim;

    if (!link->dying && link->end[0] != NULL && !link->end[0]->told) {
        if (sim_link_blocked(link, 1)) {
            sim_after(sim, 200 * SIM_US + sim_delay(sim, "welcome"), on_welcome, w, tag);
            return;
        }
        link->state = SIM_LINK_UP;
        link->end[0]->base.durability = link->durability;
        struct sim_notice *n = sim_notice_new(RD_EV_UP, 0, w->data, w->size);
        n->event.conn = &link->end[0]->base;
        sim_notice_push(ep_of(link->end[0]), n);
        link->users++;
        sim_after(sim, sim_delay(sim, "established"), on_established, link, link->id);
    }
    sim_free(w);
    sim_link_release(link);
}

int sim_accept(struct rd_conn *base, struct rd_region *const *regions, uint32_t region_count,
    struct rd_region *ring, const void *welcome, uint32_t size)
{
    struct sim_conn *conn = (struct sim_conn *)(void *)base;
    struct sim_link *link = conn->link;

    CAIRN_ASSERT(conn->passive && size <= RD_WELCOME_SIZE_MAX);
    if (conn->told)
        return cn_fail(CAIRN_E_NODE_DOWN, "the peer has gone");
    int rc = sim_call_on(link, SIM_CALL_ACCEPT);
    if (rc != 0)
        return rc;
    CAIRN_ASSERT(link->state == SIM_LINK_OFFERED);
    if (ring != NULL && ((const struct sim_region *)(const void *)ring)->revoked)
        sim_fail(link->sim, "a ring is granted that was revoked and not armed again");
    grant(link, regions, region_count, ring);
    link->state = SIM_LINK_ACCEPTED;
    struct welcome *w = sim_calloc(1, sizeof(*w));
    w->link = link;
    w->size = size;
    memcpy(w->data, welcome, size);
    link->users++;
    sim_after(link->sim, sim_delay(link->sim, "welcome"), on_welcome, w, link->id);
    return 0;
}

int sim_reject(struct rd_conn *base, const void *reason, uint32_t size)
{
    struct sim_conn *conn = (struct sim_conn *)(void *)base;
    struct sim_link *link = conn->link;

    CAIRN_ASSERT(conn->passive);
    int rc = link != NULL ? sim_call_on(link, SIM_CALL_REJECT) : 0;
    if (link != NULL) {
        if (link->end[0] != NULL && !link->dying)
            tell_down(link->end[0], CAIRN_E_FABRIC, reason, size);
        sim_link_stop(link);
    }
    conn_free(conn);
    return rc;
}

/* ---- crashes and partitions ---- */

void sim_fabric_actor_crashed(struct sim_actor *actor, enum sim_crash kind)
{
    struct sim *sim = actor->sim;
    struct sim_fabric *fabric = sim->fabric;

    for (struct sim_ep *ep = fabric->eps; ep != NULL; ep = ep->next) {
        if (ep->actor != actor)
            continue;
        ep->address[0] = 0;
        for (struct sim_conn *conn = ep->conns; conn != NULL; conn = conn->next) {
            struct sim_link *link = conn->link;
            if (link == NULL)
                continue;
            link->users++;
            sim_link_detach(conn);
            sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
            if (fabric->linger && link->ring != 0 && sim_chance(sim, "ring-lingers", 3, 4)) {
                link->queue[SIM_Q_LOG].budget = UINT32_MAX;
                link->queue[SIM_Q_LOG].acks_lost = false;
            }
            if (kind == SIM_CRASH_POWER && (conn->passive || link->loop))
                sim_link_stop(link);
            sim_link_release(link);
        }
    }
    /* The atomic unit stays taken: a half done compare-and-swap of a peer ends in its tail. */
    if (kind == SIM_CRASH_POWER)
        sim_fabric_teardown(actor, false); /* of earlier lives too */
}

void sim_fabric_teardown(struct sim_actor *actor, bool linger)
{
    for (struct sim_link *link = actor->sim->fabric->links; link != NULL; link = link->next) {
        if (link->actor[1] != actor || link->state == SIM_LINK_CONNECTING)
            continue;
        if (!linger || link->ring == 0 || link->stopped) {
            sim_link_stop(link);
            continue;
        }
        link->dying = link->lingers = true;
        free_atomic_unit(link);
    }
}

static void on_patience(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;

    (void)tag;
    if (!link->dying && (sim_link_blocked(link, 0) || sim_link_blocked(link, 1))) {
        sim_tell(link->sim, link->actor[0],
            (struct sim_moment){.kind = SIM_MOMENT_BREAK, .peer = link->actor[1]},
            "loses its connection to %s (link %u): it cannot be reached", link->actor[1]->name,
            link->id);
        sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
    }
    sim_link_release(link);
}

void sim_fabric_block(struct sim *sim, uint32_t from, uint32_t to, uint64_t patience)
{
    sim->fabric->blocked[from][to] = true;
    sim_tell(sim, &sim->actor[from],
        (struct sim_moment){.kind = SIM_MOMENT_PARTITION, .peer = &sim->actor[to]},
        "cannot reach %s any more", sim->actor[to].name);
    for (struct sim_link *link = sim->fabric->links; link != NULL; link = link->next) {
        if (link->dying || link->actor[1] == NULL || link->loop)
            continue;
        if ((link->actor[0]->id == from && link->actor[1]->id == to) ||
            (link->actor[0]->id == to && link->actor[1]->id == from)) {
            link->users++;
            sim_after(sim, patience, on_patience, link, link->id);
        }
    }
}

void sim_fabric_heal(struct sim *sim)
{
    struct sim_moment m = {.kind = SIM_MOMENT_HEAL, .minor = true};

    for (uint32_t i = 0; i < SIM_ACTORS_MAX * SIM_ACTORS_MAX; i++)
        m.minor = m.minor && !sim->fabric->blocked[i / SIM_ACTORS_MAX][i % SIM_ACTORS_MAX];
    memset(sim->fabric->blocked, 0, sizeof(sim->fabric->blocked));
    sim_tell(sim, NULL, m, "partitions heal");
    for (struct sim_link *link = sim->fabric->links; link != NULL; link = link->next)
        if (link->state == SIM_LINK_UP)
            sim_link_kick(link);
}

bool sim_fabric_break_some(struct sim *sim)
{
    uint32_t count = 0, i = 0;

    for (struct sim_link *link = sim->fabric->links; link != NULL; link = link->next)
        count += link->state == SIM_LINK_UP && !link->dying && !link->loop;
    if (count == 0)
        return false;
    uint32_t pick = sim_choose(sim, "break", count);
    for (struct sim_link *link = sim->fabric->links; link != NULL; link = link->next)
        if (link->state == SIM_LINK_UP && !link->dying && !link->loop && i++ == pick) {
            sim_tell(sim, link->actor[0],
                (struct sim_moment){.kind = SIM_MOMENT_BREAK, .peer = link->actor[1]},
                "loses its connection to %s (link %u)", link->actor[1]->name, link->id);
            sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
            return true;
        }
    return false;
}

void sim_fabric_delete(struct sim *sim)
{
    struct sim_fabric *fabric = sim->fabric;

    /* Pending events are dropped with the queue; what they held goes with the links. */
    for (size_t i = 0; i < sim->heap_count; i++)
        if (sim->heap[i].fn == on_welcome)
            sim_free(sim->heap[i].arg);
    CAIRN_ASSERT(fabric->eps == NULL);
    while (fabric->links != NULL)
        link_free(fabric->links);
    sim_free(fabric->request);
    sim_free(fabric);
    sim->fabric = NULL;
}
