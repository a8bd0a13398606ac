/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_fabric_serve.c: requests that a node's CPU executes for its peers, when it polls its fabric:
 * flushes where it is the CPU that makes them durable (GPSPM), compare-and-swaps where the NIC has
 * no atomics. They arrive in some order, wait in the link's inbox, and are executed in order of
 * arrival by a poll of the endpoint; the answer is acknowledged later still. A node that does not
 * poll executes none; those of a node that dies, or that has cut the link, are never executed.
 *
 * A compare-and-swap of the CPU is a CPU store: whole, and in order with those of its line.
 */
#include "include/internal/cn_mutant.h"
#include "tools/sim/sim_fabric.h"

bool sim_wr_by_message(const struct sim_link *link, const struct sim_wr *wr)
{
    if (wr->op == SIM_FLUSH)
        return link->durability == RD_DURABILITY_GPSPM;
    return wr->op == SIM_CAS && link->sim->fabric->message_atomics;
}

/* The endpoint whose poll serves the link; NULL: gone. */
static struct sim_ep *server(const struct sim_link *link)
{
    const struct sim_conn *conn = link->end[link->loop ? 0 : 1];

    return conn == NULL ? NULL : (struct sim_ep *)(void *)conn->base.ep;
}

void sim_serve_later(struct sim_link *link, struct sim_wr *wr)
{
    struct sim_ep *ep = server(link);

    *link->inbox_last = wr;
    link->inbox_last = &wr->next;
    if (ep != NULL)
        sim_bell(ep);
}

static void serve_flush(struct sim_link *link, const struct sim_wr *wr)
{
    link->sim->fabric->flushes_served++;
    if (wr->grant->pool == NULL || CN_MUTANT(f_answer_unpersisted))
        return;
    if (sim_is_watched(link->sim))
        sim_tell_flushed(link, wr);
    sim_link_persist(link, wr->grant->pool, wr->flush_seq, true);
}

static void serve_cas(struct sim_link *link, struct sim_wr *wr)
{
    uint64_t desired = htole64(wr->desired);

    link->sim->fabric->cas_served++;
    memcpy(&wr->old, sim_wr_target(wr), 8);
    wr->old = le64toh(wr->old);
    if (wr->old == wr->expected) {
        if (wr->grant->pool != NULL && link->sim->fabric->on_store != NULL)
            link->sim->fabric->on_store(link->sim->fabric->on_store_arg, link, wr, wr->remote, 8);
        memcpy(sim_wr_target(wr), &desired, 8);
        if (wr->grant->pool != NULL)
            sim_pool_cpu_store(wr->grant->pool, wr->remote);
    }
    if (!wr->orphan)
        memcpy(wr->local, &wr->old, 8);
    if (sim_is_watched(link->sim))
        sim_tell_execute(link, wr, 8);
}

bool sim_serve_one(struct sim_link *link)
{
    struct sim_wr *wr = link->inbox;
    struct sim_queue *q = &link->queue[SIM_Q_ANSWER];

    if (wr == NULL || link->stopped)
        return false;
    link->inbox = wr->next;
    if (link->inbox == NULL)
        link->inbox_last = &link->inbox;
    link->sim->stats.units++;
    if (wr->op == SIM_FLUSH)
        serve_flush(link, wr);
    else
        serve_cas(link, wr);
    wr->next = NULL;
    *q->done_last = wr;
    q->done_last = &wr->next;
    return true;
}

bool sim_serve(struct sim_ep *ep)
{
    struct sim *sim = ep->sim;
    bool served = false;

    for (struct sim_conn *conn = ep->conns; conn != NULL; conn = conn->next) {
        struct sim_link *link = conn->link;
        if (link == NULL || link->inbox == NULL || server(link) != ep)
            continue;
        while (link->inbox != NULL && (sim->calm || !sim_chance(sim, "serve-later", 1, 8)))
            if (!sim_serve_one(link))
                break;
        sim_queue_answer(link, SIM_Q_ANSWER);
        served = true;
        if (link->inbox != NULL && !link->stopped)
            ep->signal = true; /* the next poll has work: no sleep before it */
    }
    return served;
}
