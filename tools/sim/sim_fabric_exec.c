/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric_exec.c: how posted requests take effect.
 *
 * A queue per connection for writes, flushes and marks, and lanes for reads and compare-and-swaps,
 * with no order between them. A read takes any lane; so does a compare-and-swap, unless one at the
 * same offset is still to execute: then that one's. With one lane they execute in post order. The
 * head of a queue executes unit by unit, each unit an event of its own:
 * - a write in packets, in order of address; the bytes are taken from the sender's buffer at that
 * time;
 * - a read of more than 8 bytes in pieces, in any order;
 * - a compare-and-swap in two halves with other events between, exclusive only against other
 *   compare-and-swaps at the node (a CPU store between the halves is overwritten: R17);
 * - what goes by message (a flush where the node's CPU makes it durable; a compare-and-swap without
 *   remote atomics) only arrives: see sim_fabric_serve.c.
 * A request posted with RD_MORE may wait for the next one without. What a read or compare-and-swap
 * is to deliver to is poisoned when it is posted: it means nothing before a good completion.
 * An executed request is acknowledged later, in order per queue. A flush makes its connection's
 * earlier writes persistent when it is acknowledged, not before; a mark waits until the flushes
 * before it are acknowledged.
 */
#include "tools/sim/sim_fabric.h"

uint8_t *sim_wr_target(const struct sim_wr *wr)
{
    const struct sim_grant *g = wr->grant;

    if (g->pool != NULL)
        return g->pool->visible + wr->remote;
    return g->memory + (wr->remote - g->off);
}

static void store(struct sim_link *link, const struct sim_wr *wr, uint64_t at, const void *data,
    uint32_t size)
{
    struct sim_pool *pool = wr->grant->pool;

    if (pool == NULL) {
        memcpy(sim_wr_target(wr) + at, data, size);
        return;
    }
    pool->origin = wr->number;
    if (link->sim->fabric->on_store != NULL)
        link->sim->fabric->on_store(
            link->sim->fabric->on_store_arg, link, wr, wr->remote + at, size);
    sim_pool_nic_store(pool, wr->remote + at, data, size);
    if (wr->op == SIM_CAS)
        return;
    if (link->range_count == link->range_room) {
        link->range_room = link->range_room == 0 ? 16 : 2 * link->range_room;
        link->range = sim_realloc(link->range, link->range_room * sizeof(*link->range));
    }
    link->range[link->range_count++] = (struct sim_range){wr->remote + at, size, pool->seq};
}

static bool execute_write(struct sim_link *link, struct sim_wr *wr)
{
    struct sim *sim = link->sim;
    uint32_t max = link->sim->fabric->packet_max, left = wr->size - wr->done;
    /* Packets begin at multiples of 64 of the remote address, as cache lines do. */
    uint32_t n = 64 * (1 + sim_choose(sim, "packet", max / 64)) -
        (uint32_t)((wr->remote + wr->done) % 64);

    n = n < left ? n : left;
    const uint8_t *from = wr->copy != NULL ? wr->copy : wr->local;
    store(link, wr, wr->done, from + wr->done, n);
    wr->done += n;
    if (sim_is_watched(sim))
        sim_tell_execute(link, wr, n);
    return wr->done == wr->size;
}

static void plan_read(struct sim *sim, struct sim_wr *wr)
{
    uint32_t units = (wr->size + 7) / 8, n = 1;

    if (!sim->fabric->whole_reads && units > 1 && sim_chance(sim, "torn", 1, 2))
        n = 2 + sim_choose(sim, "pieces", SIM_PIECES_MAX - 1);
    n = n < units ? n : units;
    wr->piece_count = n;
    wr->piece[0] = 0;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t low = wr->piece[i - 1] / 8 + 1, high = units - (n - i);
        wr->piece[i] = 8 * (low + sim_choose(sim, "cut", high - low + 1));
    }
    wr->piece[n] = wr->size;
    for (uint32_t i = 0; i < n; i++)
        wr->order[i] = (uint8_t)i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = sim_choose(sim, "order", i);
        uint8_t t = wr->order[i - 1];
        wr->order[i - 1] = wr->order[j];
        wr->order[j] = t;
    }
}

static bool execute_read(struct sim_link *link, struct sim_wr *wr)
{
    if (wr->piece_count == 0)
        plan_read(link->sim, wr);
    uint32_t p = wr->order[wr->piece_done++];
    if (!wr->orphan)
        memcpy(wr->local + wr->piece[p], sim_wr_target(wr) + wr->piece[p],
            wr->piece[p + 1] - wr->piece[p]);
    if (sim_is_watched(link->sim))
        sim_tell_execute(link, wr, wr->piece[p + 1] - wr->piece[p]);
    return wr->piece_done == wr->piece_count;
}

static bool execute_cas(struct sim_link *link, struct sim_wr *wr)
{
    struct sim *sim = link->sim;
    bool *busy = &sim->fabric->atomic_busy[link->actor[1]->id];

    if (!wr->reserved) {
        if (*busy)
            return false;
        memcpy(&wr->old, sim_wr_target(wr), 8);
        wr->old = le64toh(wr->old);
        if (wr->old == wr->expected && sim_chance(sim, "cas-halves", 1, 4)) {
            wr->reserved = *busy = true;
            return false;
        }
    } else {
        wr->reserved = *busy = false;
        uint64_t now;
        memcpy(&now, sim_wr_target(wr), 8);
        if (le64toh(now) != wr->old)
            sim_fail(sim, "a CPU store raced with a compare-and-swap at offset %lu of %s: "
                     "%016lx over %016lx", wr->remote, link->actor[1]->name, le64toh(now), wr->old);
    }
    if (wr->old == wr->expected) {
        uint64_t desired = htole64(wr->desired);
        store(link, wr, 0, &desired, 8);
    }
    if (!wr->orphan)
        memcpy(wr->local, &wr->old, 8);
    if (sim_is_watched(sim))
        sim_tell_execute(link, wr, 8);
    return true;
}

static bool flush_before(const struct sim_queue *q)
{
    for (const struct sim_wr *wr = q->done_first; wr != NULL; wr = wr->next)
        if (wr->op == SIM_FLUSH)
            return true;
    return false;
}

/* One unit of the head. Returns whether the request is executed now. */
static bool execute(struct sim_link *link, struct sim_wr *wr)
{
    uint64_t value;

    link->sim->stats.units++;
    switch (wr->op) {
    case SIM_READ:
        return execute_read(link, wr);
    case SIM_CAS:
        return execute_cas(link, wr);
    case SIM_WRITE:
        return execute_write(link, wr);
    case SIM_FLUSH:
        wr->flush_seq = wr->grant->pool != NULL ? wr->grant->pool->seq : 0;
        return true;
    case SIM_MARK:
        value = htole64(wr->desired);
        store(link, wr, 0, &value, 8);
        if (sim_is_watched(link->sim))
            sim_tell_execute(link, wr, 8);
        return true;
    case SIM_BELL:
        if (link->end[1] != NULL)
            sim_bell((struct sim_ep *)(void *)link->end[1]->base.ep);
        return true;
    }
    return true;
}

static bool head_may_run(const struct sim_link *link, const struct sim_queue *q)
{
    const struct sim_wr *wr = q->first;

    if (wr == NULL || wr->held || link->stopped || link->state == SIM_LINK_CONNECTING)
        return false;
    if (link->lingers && q != &link->queue[SIM_Q_LOG])
        return false;
    if (wr->op != SIM_MARK)
        return true;
    return !flush_before(q);
}

/* The delay of a request is a choice of who posted it. */
static uint64_t delay_of(const struct sim_link *link, const struct sim_wr *wr, const char *label)
{
    struct sim *sim = link->sim;
    uint32_t who = sim->tape.who;

    sim->tape.who = wr->concern != 0 ? wr->concern : sim_who(link->actor[0]);
    uint64_t delay = sim_delay(sim, label);
    sim->tape.who = who;
    if (link->actor[1] != NULL && link->actor[1]->slow > 1)
        delay *= link->actor[1]->slow;
    return delay;
}

void sim_queue_advance(struct sim_link *link, uint32_t which, uint32_t units)
{
    struct sim_queue *q = &link->queue[which];

    while (units-- > 0 && head_may_run(link, q)) {
        struct sim_wr *wr = q->first;
        bool served = sim_wr_by_message(link, wr);
        if (served)
            wr->flush_seq = wr->grant->pool != NULL ? wr->grant->pool->seq : 0;
        else if (!execute(link, wr))
            continue;
        q->first = wr->next;
        if (q->first == NULL)
            q->last = &q->first;
        wr->next = NULL;
        if (served) {
            sim_serve_later(link, wr);
            continue;
        }
        *q->done_last = wr;
        q->done_last = &wr->next;
    }
}

/* May a unit still get to the passive side? The second half of a compare-and-swap is there already.
 */
static bool may_arrive(const struct sim_link *link, const struct sim_queue *q)
{
    if (q->first != NULL && q->first->reserved)
        return true;
    return link->dying ? q->budget > 0 : !sim_link_blocked(link, 0);
}

static void on_exec(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;
    uint32_t which = tag & 15;
    struct sim_queue *q = &link->queue[which];

    q->exec_scheduled = false;
    if (link->stopped || !may_arrive(link, q)) {
        sim_link_release(link);
        return;
    }
    if (link->dying && q->budget > 0)
        q->budget--;
    sim_queue_advance(link, which, 1);
    sim_queue_answer(link, which);
    sim_queue_kick(link, which);
    sim_link_release(link);
}

void sim_queue_kick(struct sim_link *link, uint32_t which)
{
    struct sim_queue *q = &link->queue[which];

    if (q->exec_scheduled || !head_may_run(link, q) || !may_arrive(link, q))
        return;
    q->exec_scheduled = true;
    link->users++;
    sim_after(link->sim, delay_of(link, q->first, "exec"), on_exec, link,
        (uint64_t)link->id << 8 | which);
}

/* ---- acknowledgements ---- */

void sim_wr_free(struct sim_link *link, struct sim_wr *wr)
{
    if (wr->reserved)
        link->sim->fabric->atomic_busy[link->actor[1]->id] = false;
    if (wr->arena != NULL && --wr->arena->users == 0) {
        sim_free(wr->arena->allocation);
        sim_free(wr->arena);
    }
    sim_free(wr->copy);
    sim_free(wr);
}

void sim_link_persist(struct sim_link *link, struct sim_pool *pool, uint64_t seq, bool by_cpu)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < link->range_count; i++) {
        struct sim_range r = link->range[i];
        if (r.seq > seq)
            link->range[kept++] = r;
        else if (by_cpu)
            sim_pool_write_back(pool, r.off, r.size);
        else
            sim_pool_persist(pool, r.off, r.size, r.seq);
    }
    link->range_count = kept;
}

/* A read behind writes: it pushes them out of the NIC, and no further than to a cache. */
static void flush_by_read(struct sim_link *link, const struct sim_wr *flush)
{
    if (link->sim->mode == SIM_ADR_DDIO || flush->grant->pool == NULL)
        return;
    if (sim_is_watched(link->sim))
        sim_tell_flushed(link, flush);
    sim_link_persist(link, flush->grant->pool, flush->flush_seq, false);
}

void sim_queue_ack(struct sim_link *link, uint32_t which)
{
    struct sim_queue *q = &link->queue[which];
    struct sim_wr *wr = q->done_first;
    struct sim_conn *conn = link->end[0];

    q->done_first = wr->next;
    if (q->done_first == NULL)
        q->done_last = &q->done_first;
    if (wr->op == SIM_FLUSH && !link->stopped && which == SIM_Q_LOG)
        flush_by_read(link, wr);
    if (sim_is_watched(link->sim))
        sim_tell_complete(link, wr, 0);
    if (!wr->orphan && wr->op != SIM_BELL)
        link->outstanding--;
    if (!wr->orphan && wr->op == SIM_FLUSH)
        link->flushes--;
    if (!wr->orphan && (wr->flags & RD_SIGNALED) != 0 && conn != NULL) {
        struct sim_notice *n = sim_notice_new(RD_EV_COMPLETION, 0, NULL, 0);
        n->event.conn = &conn->base;
        n->event.wr_id = wr->wr_id;
        sim_notice_push((struct sim_ep *)(void *)conn->base.ep, n);
    }
    sim_wr_free(link, wr);
}

static void on_ack(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;
    uint32_t which = tag & 15;
    struct sim_queue *q = &link->queue[which];

    q->ack_scheduled = false;
    if (q->done_first != NULL && !q->acks_lost && !link->stopped &&
        (link->dying || !sim_link_blocked(link, 1))) {
        sim_queue_ack(link, which);
        sim_queue_answer(link, which);
        sim_queue_kick(link, which);
    }
    sim_link_release(link);
}

void sim_queue_answer(struct sim_link *link, uint32_t which)
{
    struct sim_queue *q = &link->queue[which];

    if (q->ack_scheduled || q->done_first == NULL || q->acks_lost || link->stopped ||
        (!link->dying && sim_link_blocked(link, 1)))
        return;
    q->ack_scheduled = true;
    link->users++;
    sim_after(link->sim, delay_of(link, q->done_first, "ack"), on_ack, link,
        (uint64_t)link->id << 8 | 16 | which);
}

void sim_link_kick(struct sim_link *link)
{
    for (uint32_t i = 0; i < SIM_QUEUES; i++) {
        sim_queue_kick(link, i);
        sim_queue_answer(link, i);
    }
    for (uint32_t i = 0; i < 2; i++)
        sim_message_kick(link, i);
}

/* ---- posting ---- */

static unsigned rights_of(enum sim_op op)
{
    return op == SIM_READ ? RD_ACCESS_READ
        : op == SIM_CAS   ? RD_ACCESS_ATOMIC
        : op == SIM_FLUSH ? RD_ACCESS_READ
                          : RD_ACCESS_WRITE;
}

static bool is_ring(const struct sim_link *link, const struct sim_grant *grant)
{
    return link->ring != 0 && grant == &link->grant[link->grant_count - 1];
}

static const struct sim_grant *find_grant(const struct sim_link *link, const struct sim_wr *wr)
{
    unsigned rights = rights_of(wr->op);

    for (uint32_t i = 0; i < link->grant_count; i++) {
        const struct sim_grant *g = &link->grant[i];
        if ((g->access & rights) != rights ||
            !cn_range_inside(wr->remote, wr->size, g->off, g->size))
            continue;
        bool header = is_ring(link, g) && wr->remote - g->off < RD_RING_HEADER_SIZE;
        return header && rights == RD_ACCESS_WRITE ? NULL : g;
    }
    return NULL;
}

/* What goes to or comes from a ring in the arena's last log_size bytes, all else before them. */
static bool in_arena(const struct sim_arena *arena, const struct sim_wr *wr, bool ring)
{
    uint64_t first = ring ? arena->size - arena->log_size : 0;
    uint64_t end = ring ? arena->size : arena->size - arena->log_size;

    return wr->local >= arena->memory &&
        cn_range_inside((uint64_t)(wr->local - arena->memory), wr->size, first, end - first);
}

static void count(const struct sim_link *link, struct sim_ep *ep, const struct sim_wr *wr)
{
    struct rd_counters *c = &ep->counters;

    ep->sim->fabric->ops[wr->op]++;
    c->reads += wr->op == SIM_READ;
    c->cas += wr->op == SIM_CAS;
    c->writes += wr->op == SIM_WRITE;
    c->flushes += wr->op == SIM_FLUSH;
    c->marks += wr->op == SIM_MARK;
    c->bytes_read += wr->op == SIM_READ ? wr->size : 0;
    c->bytes_written += wr->op == SIM_WRITE ? wr->size : 0;
    c->flush_messages += wr->op == SIM_FLUSH && sim_wr_by_message(link, wr);
    c->cas_messages += wr->op == SIM_CAS && sim_wr_by_message(link, wr);
    c->doorbells += wr->op != SIM_BELL && (wr->flags & RD_MORE) == 0;
}

static void ring_doorbell(struct sim_link *link)
{
    for (uint32_t i = 0; i < SIM_QUEUES && link->holding; i++) {
        for (struct sim_wr *wr = link->queue[i].first; wr != NULL; wr = wr->next)
            wr->held = false;
        sim_queue_kick(link, i);
    }
    link->holding = false;
}

/* Compare-and-swaps at one offset stay in order; all else may go any way. */
static uint32_t choose_queue(struct sim_link *link, const struct sim_wr *wr)
{
    uint32_t lanes = link->sim->fabric->lanes;

    if (wr->op != SIM_READ && wr->op != SIM_CAS)
        return SIM_Q_LOG;
    for (uint32_t i = SIM_Q_LANE; i < SIM_Q_LANE + lanes && wr->op == SIM_CAS; i++)
        for (const struct sim_wr *w = link->queue[i].first; w != NULL; w = w->next)
            if (w->op == SIM_CAS && w->remote == wr->remote)
                return i;
    return SIM_Q_LANE + (lanes == 1 ? 0 : sim_choose(link->sim, "lane", lanes));
}

static int check_post(struct sim_conn *conn, const struct sim_wr *wr, const struct sim_grant **ret)
{
    struct sim_link *link = conn->link;
    struct sim_ep *ep = (struct sim_ep *)(void *)conn->base.ep;
    const struct sim_grant *grant = find_grant(link, wr);

    if (grant == NULL)
        return cn_fail(CAIRN_E_FABRIC, "offset %lu size %u is outside what was granted",
            wr->remote, wr->size);
    CAIRN_ASSERT(!link->loop || wr->op == SIM_READ || wr->op == SIM_CAS);
    CAIRN_ASSERT((wr->op != SIM_CAS && wr->op != SIM_MARK) || wr->remote % 8 == 0);
    CAIRN_ASSERT(wr->local == NULL || in_arena(ep->arena, wr, is_ring(link, grant)));
    if (link->outstanding >= ep->outstanding_max)
        return cn_fail(CAIRN_E_AGAIN, "too many operations outstanding");
    if (wr->op == SIM_MARK && link->durability == RD_DURABILITY_GPSPM && link->flushes > 0) {
        if (link->sim->fabric->refusal_fails)
            sim_fail(link->sim, "a mark is posted while %u flushes are outstanding",
                link->flushes);
        return cn_fail(CAIRN_E_STATE, "a flush is outstanding, and nothing fences a mark here");
    }
    *ret = grant;
    return 0;
}

/* What a node has just asked of its own memory is not answered, or with an error. */
static void fail_loop(struct sim_link *link)
{
    if (sim_call_hits(link->sim, SIM_CALL_LOOP_SILENT))
        sim_link_stop(link);
    else if (sim_call_hits(link->sim, SIM_CALL_LOOP_ERROR))
        sim_link_break(link, CAIRN_E_NODE_DOWN, CAIRN_E_NODE_DOWN);
}

int sim_post(struct sim_conn *conn, const struct sim_wr *request)
{
    struct sim_link *link = conn->link;
    struct sim_ep *ep = (struct sim_ep *)(void *)conn->base.ep;
    const struct sim_grant *grant = NULL;

    CAIRN_ASSERT(!conn->passive);
    if (conn->told)
        return request->op == SIM_BELL ? 0 : cn_fail(conn->told_status, "the connection is down");
    CAIRN_ASSERT(conn->up && link->state == SIM_LINK_UP);
    if (link->loop) {
        int rc = sim_call_on(link, SIM_CALL_LOOP_POST);
        if (rc != 0)
            return rc;
    }
    if (request->op != SIM_BELL) {
        int rc = check_post(conn, request, &grant);
        if (rc != 0)
            return rc;
        link->outstanding++;
        link->flushes += request->op == SIM_FLUSH;
    }
    struct sim_wr *wr = sim_calloc(1, sizeof(*wr));
    *wr = *request;
    wr->grant = grant;
    wr->arena = ep->arena;
    wr->arena->users++;
    wr->number = ++link->sim->fabric->request_count;
    wr->concern = ep->actor->concern;
    count(link, ep, wr);
    if (sim_is_watched(link->sim))
        sim_tell_post(link, wr);
    uint32_t which = choose_queue(link, wr);
    struct sim_queue *q = &link->queue[which];
    *q->last = wr;
    q->last = &wr->next;
    if (wr->op == SIM_READ || wr->op == SIM_CAS)
        memset(wr->local, 0xa5, wr->size);
    if ((wr->flags & RD_MORE) != 0 && !link->sim->fabric->prompt &&
        sim_chance(link->sim, "more", 1, 2))
        wr->held = link->holding = true;
    else if ((wr->flags & RD_MORE) == 0 && wr->op != SIM_BELL)
        ring_doorbell(link);
    sim_queue_kick(link, which);
    if (!link->sim->calm && sim_chance(link->sim, "post", 1, 32))
        sim_yield(link->sim, sim_delay(link->sim, "post-delay"));
    if (link->loop)
        fail_loop(link);
    return 0;
}

/* ---- messages ---- */

bool sim_link_blocked(const struct sim_link *link, uint32_t from)
{
    return !link->loop &&
        link->sim->fabric->blocked[link->actor[from]->id][link->actor[1 - from]->id];
}

static void on_message(void *arg, uint64_t tag)
{
    struct sim_link *link = arg;
    uint32_t to = tag & 1;
    struct sim_notice *n = link->message_first[to];

    link->message_scheduled[to] = false;
    if (n != NULL && link->end[to] != NULL && !link->end[to]->told && !link->dying &&
        !sim_link_blocked(link, 1 - to)) {
        link->message_first[to] = n->next;
        if (n->next == NULL)
            link->message_last[to] = &link->message_first[to];
        n->event.conn = &link->end[to]->base;
        sim_notice_push((struct sim_ep *)(void *)link->end[to]->base.ep, n);
        sim_message_kick(link, to);
    }
    sim_link_release(link);
}

void sim_message_kick(struct sim_link *link, uint32_t to)
{
    if (link->message_scheduled[to] || link->message_first[to] == NULL || link->dying ||
        (to == 1 && !link->established) || link->state < SIM_LINK_UP ||
        sim_link_blocked(link, 1 - to))
        return;
    link->message_scheduled[to] = true;
    link->users++;
    sim_after(link->sim, sim_delay(link->sim, "message"), on_message, link,
        (uint64_t)link->id << 8 | 32 | to);
}
