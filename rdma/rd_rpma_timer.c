/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_timer.c: what happens to connections by time: deadlines of being made, refusals on their
 * way, heartbeats.
 *
 * A heartbeat is an 8-byte read of a word of the peer over the first object queue pair, once in
 * each interval, whatever else goes on: the peer's device answers it without its CPU. librpma
 * retries for ever, so without heartbeats a log connection would never find out that its peer's
 * host is dead. The answer to a heartbeat may wait in the completion queue while our own thread
 * did not poll; so looks are counted, between which there was a reap, not time alone.
 */
#include "rdma/rd_rpma.h"

#define MS UINT64_C(1000000)

static bool has_heartbeat(const struct nic_conn *c)
{
    return (c->state == NIC_UP || c->state == NIC_ASKED || c->state == NIC_ACCEPTED) &&
           c->qp[0].has_qp && c->peer_beat_addr != 0 && !c->down_due;
}

/* An interval is over without an answer. However late we look, it counts as one: somebody who did
 * not run himself has no right to blame the peer. When to look again. */
static uint64_t miss(struct nic_conn *c, uint64_t now, uint64_t interval)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    if (++c->beats_missed < NIC_BEATS_MISSED) {
        c->beat_late_ns = now + interval;
        return c->beat_late_ns;
    }
    if (c->beats_missed == NIC_BEATS_MISSED) { /* the answer may be in the queue: reap once more */
        c->beat_late_ns = now + 1;
        return c->beat_late_ns;
    }
    rd_rpma_conn_fail(c, CAIRN_E_NODE_DOWN,
        "%s does not answer over %s for %llu ms: it or the network is down",
        rd_rpma_peer_text(c, text), rd_rpma_device_text(c),
        (unsigned long long)((now - c->beat_ns) / MS));
    return UINT64_MAX;
}

/* When to look again. */
static uint64_t beat(struct nic_conn *c, uint64_t now)
{
    struct nic_ep *ep = nic_conn_ep(c);
    uint64_t interval = ep->fabric->config.heartbeat_ms * MS;
    if (c->beat_out)
        return now < c->beat_late_ns ? c->beat_late_ns : miss(c, now, interval);
    if (now < c->beat_ns + interval)
        return c->beat_ns + interval;
    int err = rd_rpma_post_beat(c);
    if (err == CAIRN_E_AGAIN) /* reads enough on their way: they tell as well */
        return now + interval / 2;
    if (err != 0) {
        rd_rpma_conn_fail(c, err, "%s", cairn_last_error());
        return UINT64_MAX;
    }
    c->beat_out = true;
    c->beats_missed = 0;
    c->beat_ns = now;
    c->beat_late_ns = now + interval;
    ep->counters.heartbeats++;
    return c->beat_late_ns;
}

void rd_rpma_on_probe(struct nic_conn *c, enum nic_op_kind kind, int status)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    if (kind == NIC_OP_TEST) {
        rd_rpma_active_on_test(c, status);
        return;
    }
    c->beat_out = false;
    if (status != 0)
        rd_rpma_conn_fail(c, CAIRN_E_NODE_DOWN, "%s does not answer over %s: it or the network is "
            "down", rd_rpma_peer_text(c, text), rd_rpma_device_text(c));
}

static const char *waits_for(enum nic_state state)
{
    switch (state) {
    case NIC_ADDRESS: return "its address was not resolved";
    case NIC_ROUTE: return "no route to it was found";
    case NIC_FIRST:
    case NIC_FURTHER:
    case NIC_LOG: return "it did not answer";
    case NIC_ASKING: return "it did not accept";
    case NIC_TESTING: return "it did not answer the self-test of atomics";
    case NIC_GREETING: return "it did not complete the connection";
    case NIC_ACCEPTED: return "it did not confirm the connection";
    default: return "it closed the connection";
    }
}

/* The deadline has passed. */
static void expire(struct nic_conn *c)
{
    char text[NIC_ADDRESS_TEXT_MAX];
    rd_rpma_conn_fail(c, CAIRN_E_TIMEOUT,
        "%s over %s: the deadline has passed, %s; is it up, and is the address right?",
        rd_rpma_peer_text(c, text), rd_rpma_device_text(c), waits_for(c->state));
}

void rd_rpma_run_timers(struct nic_ep *ep, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        if (c->state == NIC_FREE || c->state == NIC_DOWN || c->state == NIC_DELETED ||
            c->state == NIC_LOOPBACK)
            continue;
        if (now >= c->deadline_ns) {
            if (!c->down_due || c->suspect) {
                expire(c);
                continue;
            }
            c->suspect = true; /* what came before it closed may not have been reaped yet */
            c->deadline_ns = now + NIC_CLOSE_NS;
        }
        next = cn_min64(next, c->deadline_ns);
        if (c->state == NIC_REFUSING) {
            if (c->tx_out == 0)
                rd_rpma_conn_release(c, NIC_FREE); /* the peer has it */
            else
                next = cn_min64(next, now + MS);
        } else if (has_heartbeat(c)) {
            next = cn_min64(next, beat(c, now));
        }
    }
    ep->next_timer_ns = next;
    rd_rpma_renew_log_listener(ep, now);
}
