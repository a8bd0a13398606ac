/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_emu_model.c: a model of a network between an endpoint's active connections and their peers:
 * one round trip for everything, and one port through which all bytes of the endpoint go one after
 * the other.
 *
 * Operations take effect when they are posted, and only their completions wait. That is a legal
 * outcome on the network modelled: how long a request and how long its answer travels is nowhere
 * promised, and here all of the time is the answer's. So locks are held for a whole trip where on a
 * real network they may be held for half of one more or less; what is in doubt stays the same.
 *
 * Invariants
 * - Due times of operations do not go back: completions are due in post order, over all
 *   connections.
 * - A message from a peer is due one round trip after a poll has first seen it: whatever it answers
 *   was sent before that.
 * - A lost connection is due when all that was posted before is.
 * - Connecting is not modelled, nor is what passive ends send.
 */
#include "rdma/rd_emu.h"

/* Ethernet with preamble and gap 38, IPv4 20, UDP 8, base transport header 12, checksum 4. */
#define HEADER_SIZE 82u
#define PACKET_SIZE_MAX 4096u
#define BIT_NS_PER_MBPS 8000u /* nanoseconds of one byte at 1 Mb/s */

/* The port has sent `bytes` more. */
static void pass_port(struct emu_model *m, uint64_t now, uint64_t bytes)
{
    if (m->port_ns < now) {
        m->port_ns = now;
        m->port_rest = 0;
    }
    if (m->mbps == 0)
        return;
    uint64_t parts = bytes * BIT_NS_PER_MBPS + m->port_rest;
    m->port_ns += parts / m->mbps;
    m->port_rest = parts % m->mbps;
}

uint64_t rd_emu_model_post(const struct emu_conn *c, uint32_t size)
{
    struct emu_ep *ep = emu_conn_ep(c);
    struct emu_model *m = &ep->model;
    if (!c->active) /* the node's own memory: no network, but no earlier than what is before it */
        return m->last_due_ns;
    uint64_t packets = size == 0 ? 1 : ((uint64_t)size + PACKET_SIZE_MAX - 1) / PACKET_SIZE_MAX;
    pass_port(m, cn_now_ns(ep->env), size + packets * HEADER_SIZE);
    m->last_due_ns = cn_max64(m->last_due_ns, m->port_ns + m->rtt_ns);
    return m->last_due_ns;
}

void rd_emu_model_see(struct emu_ep *ep, uint64_t now)
{
    uint64_t head = __atomic_load_n(&ep->head, __ATOMIC_ACQUIRE);
    for (; ep->model.seen != head; ep->model.seen++) {
        struct emu_notice *n = &ep->notices[ep->model.seen % EMU_NOTICES];
        n->due_ns = 0;
        if (n->type == RD_EV_MESSAGE && ep->conns[n->conn].active)
            n->due_ns = now + ep->model.rtt_ns;
        else if (n->type == RD_EV_DOWN)
            n->due_ns = ep->model.last_due_ns;
    }
}

uint64_t rd_emu_model_due(const struct emu_ep *ep)
{
    uint64_t due = UINT64_MAX;
    if (ep->completion_tail != ep->completion_head)
        due = ep->completions[ep->completion_tail & ep->completion_mask].due_ns;
    if (ep->taken != ep->model.seen)
        due = cn_min64(due, ep->notices[ep->taken % EMU_NOTICES].due_ns);
    if (__atomic_load_n(&ep->head, __ATOMIC_ACQUIRE) != ep->model.seen)
        due = 0; /* nobody has looked at it yet */
    return due;
}
