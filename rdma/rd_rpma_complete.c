/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_complete.c: completions to events.
 *
 * Invariants
 * - A completion yields at most one event, so no more are taken than there is room for.
 * - A completion frees the earlier slots of its queue that asked for none; see struct nic_op.
 * - Of an unsuccessful completion only wr_id, status and qp_num are valid. It fails the connection;
 *   what else was outstanding completes with an error by that, not by its own completion.
 * - Completions of queue pairs that are gone are dropped: their generation is an earlier one, or
 *   they have no queue pair any more. Their entries count as used until the queue has been seen
 *   empty.
 * - Log connections that expect something are looked at in every poll, the others in rotation.
 */
#include <poll.h>

#include "rdma/rd_rpma.h"

#define OBJECT_BATCH 32
#define LOG_BATCH 8
#define LOG_ROUNDS 4u    /* batches of one log connection in one poll: requests yield no events */
#define IDLE_PER_POLL 4u /* idle log connections looked at */
#define IDLE_POLLS 8u    /* where something comes all the time: in one poll of so many */
#define HOT_POLLS 64u    /* one that something came from is not idle for so many polls */
#define FDS 64u
#define UNACKED_MAX 64u

struct reap {
    struct nic_ep *ep;
    struct rd_event *events;
    uint32_t n, max;
};

static void deliver(struct reap *r, struct nic_conn *c, uint64_t wr_id)
{
    CAIRN_ASSERT(r->n < r->max && c->outstanding > 0);
    r->events[r->n++] =
        (struct rd_event){.type = RD_EV_COMPLETION, .conn = &c->base, .wr_id = wr_id};
    c->outstanding--;
    r->ep->counters.completions++;
}

/* ---- object queue pairs ---- */

/* Soft-iWARP has this for what it could not send because the peer was gone. Elsewhere it is an
 * error of ours. */
static int error_of(const struct nic_conn *c, enum ibv_wc_status status)
{
    if (status == IBV_WC_LOC_QP_OP_ERR && nic_conn_ep(c)->device->iwarp)
        return CAIRN_E_NODE_DOWN;
    return rd_rpma_wc_error(status);
}

static void fail_object(struct nic_conn *c, const struct nic_op *op, enum ibv_wc_status status)
{
    static const char *const names[] = {[NIC_OP_READ] = "a read",
        [NIC_OP_CAS] = "a compare-and-swap", [NIC_OP_BEAT] = "a heartbeat",
        [NIC_OP_TEST] = "the self-test"};
    int error = error_of(c, status);
    if (op->kind == NIC_OP_BEAT || op->kind == NIC_OP_TEST)
        rd_rpma_on_probe(c, (enum nic_op_kind)op->kind, error);
    rd_rpma_conn_fail(c, error, "%s over %s has failed: %s", names[op->kind],
        nic_conn_ep(c)->device->name, rd_rpma_wc_text(status));
}

static void take_object(struct reap *r, const struct ibv_wc *wc)
{
    struct nic_ep *ep = r->ep;
    uint32_t index = (uint32_t)(wc->wr_id >> 32) & 0xffff, at = (uint32_t)(wc->wr_id >> 28) & 0xf;
    if (index >= ep->connections_max || at >= NIC_QPS_MAX)
        return;
    struct nic_conn *c = &ep->conns[index];
    struct nic_queue *queue = &c->qp[at].queue;
    uint64_t position;
    if (c->generation != (uint16_t)(wc->wr_id >> 48) || !c->qp[at].has_qp ||
        !rd_rpma_queue_find(queue, wc->wr_id & 0x0fffffff, &position))
        return;
    const struct nic_op op = queue->op[position & (queue->size - 1)];
    if (CN_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
        fail_object(c, &op, wc->status);
        return;
    }
    if (!op.asked || op.done)
        return;
    ep->cq_used -= rd_rpma_queue_free(c, queue, position);
    if (op.wanted)
        deliver(r, c, op.wr_id);
    else if (op.kind == NIC_OP_BEAT || op.kind == NIC_OP_TEST)
        rd_rpma_on_probe(c, (enum nic_op_kind)op.kind, 0);
}

static void reap_objects(struct reap *r)
{
    struct nic_ep *ep = r->ep;
    struct ibv_wc wc[OBJECT_BATCH];
    while (ep->cq_used > 0 && r->n < r->max) {
        uint32_t stale = ep->cq_stale;
        int want = (int)cn_min64(r->max - r->n, OBJECT_BATCH);
        int got = ibv_poll_cq(ep->cq, want, wc);
        if (got < 0) { /* the deadlines of what is outstanding follow */
            cn_log(ep->env, CN_LOG_ERROR, "endpoint %s: device %s: its completion queue fails",
                ep->name, ep->device->name);
            return;
        }
        for (int i = 0; i < got; i++)
            take_object(r, &wc[i]);
        if (got < want) { /* it was empty: of what was stale then, nothing is left */
            ep->cq_used -= stale;
            ep->cq_stale -= stale;
            return;
        }
    }
}

/* ---- log connections ---- */

static void fail_log(struct nic_conn *c, const struct ibv_wc *wc)
{
    static const char *const names[] = {[NIC_OP_READ] = "a read of the ring",
        [NIC_OP_WRITE] = "a log write", [NIC_OP_FLUSH] = "a flush", [NIC_OP_MARK] = "a mark",
        [NIC_OP_SEND] = "a message"};
    const char *what = "a receive";
    uint64_t position;
    if (rd_rpma_queue_find(&c->log_queue, wc->wr_id, &position))
        what = names[c->log_queue.op[position & (c->log_queue.size - 1)].kind];
    rd_rpma_conn_fail(c, error_of(c, wc->status), "%s over %s has failed: %s", what,
        nic_conn_ep(c)->device->name, rd_rpma_wc_text(wc->status));
}

static void take_log(struct reap *r, struct nic_conn *c, const struct ibv_wc *wc)
{
    struct nic_queue *queue = &c->log_queue;
    uint64_t position;
    if (CN_UNLIKELY(wc->status != IBV_WC_SUCCESS)) {
        fail_log(c, wc);
        return;
    }
    if ((wc->wr_id & NIC_RECEIVE_ID) != 0) {
        uint32_t at = (uint32_t)(wc->wr_id & (NIC_RX - 1));
        if (rd_rpma_on_receive(c, at, wc->byte_len, &r->events[r->n]))
            r->n++;
        return;
    }
    if (!rd_rpma_queue_find(queue, wc->wr_id, &position))
        return;
    const struct nic_op op = queue->op[position & (queue->size - 1)];
    if (!op.asked || op.done)
        return;
    (void)rd_rpma_queue_free(c, queue, position);
    if (op.wanted)
        deliver(r, c, op.wr_id);
}

/* Returns whether the queue was seen empty, or is gone. */
static bool reap_log(struct reap *r, struct nic_conn *c)
{
    struct ibv_wc wc[LOG_BATCH];
    for (uint32_t round = 0; round < LOG_ROUNDS && c->log != NULL && r->n < r->max; round++) {
        int want = (int)cn_min64(r->max - r->n, LOG_BATCH), got = 0;
        int rc = rpma_cq_get_wc(c->log_cq, want, wc, &got);
        if (rc == RPMA_E_NO_COMPLETION)
            return true;
        if (rc != 0) {
            rd_rpma_conn_fail(c, CAIRN_E_FABRIC, "the completion queue fails: %s",
                rpma_err_2str(rc));
            return true;
        }
        nic_set_busy(c);
        c->hot = HOT_POLLS;
        for (int i = 0; i < got && c->log != NULL; i++)
            take_log(r, c, &wc[i]);
        if (got < want)
            return true;
    }
    if (c->log == NULL)
        return true;
    r->ep->unfinished = true; /* no time to sleep */
    return false;
}

/* Whether something is to be done or to come. */
static bool is_busy(struct nic_conn *c)
{
    if (c->chained)
        return true;
    if (c->log == NULL)
        return false;
    if (c->hot > 0) {
        c->hot--;
        return true;
    }
    return c->state != NIC_UP || c->down_due || c->log_queue.due > c->log_queue.tail ||
           c->persist.head != c->persist.tail || c->cas.head != c->cas.tail || c->bell_due ||
           c->held_count > 0 || nic_owes_credit(c);
}

/* Post what waits; before anything is reaped, as chains have waited for this. */
static void push_busy(struct nic_conn *c)
{
    if (c->chained)
        rd_rpma_ring(c);
    if (c->log != NULL)
        rd_rpma_send_waiting(c);
}

static void reap_bits(struct reap *r, uint32_t word, uint64_t bits)
{
    struct nic_ep *ep = r->ep;
    for (; bits != 0; bits &= bits - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(bits);
        struct nic_conn *c = &ep->conns[word * 64 + bit];
        push_busy(c);
        bool empty = reap_log(r, c);
        if (c->log != NULL)
            rd_rpma_send_waiting(c); /* buffers may have become free */
        /* What is left there would be found by chance only: its notice may have been taken. */
        if (empty && !is_busy(c))
            ep->busy[word] &= ~(UINT64_C(1) << bit);
    }
}

/* Who is first changes, so that one that always has something starves nobody. */
static void reap_busy(struct reap *r)
{
    struct nic_ep *ep = r->ep;
    uint32_t words = (ep->connections_max + 63) / 64;
    uint64_t later = (UINT64_C(1) << ep->log_turn % 64) - 1;
    for (uint32_t i = 0; i < words; i++) {
        uint32_t word = (ep->log_turn / 64 + i) % words;
        uint64_t bits = ep->busy[word];
        reap_bits(r, word, bits & ~later);
        reap_bits(r, word, bits & later);
    }
}

static void reap_idle(struct reap *r)
{
    struct nic_ep *ep = r->ep;
    uint32_t count = (uint32_t)cn_min64(IDLE_PER_POLL, ep->connections_max);
    for (uint32_t i = 0; i < count && r->n < r->max; i++) {
        uint32_t index = ep->idle_next;
        ep->idle_next = index + 1 < ep->connections_max ? index + 1 : 0;
        if ((ep->busy[index / 64] >> (index % 64) & 1) == 0)
            (void)reap_log(r, &ep->conns[index]);
    }
}

uint32_t rd_rpma_reap(struct nic_ep *ep, struct rd_event *events, uint32_t max)
{
    struct reap r = {.ep = ep, .events = events, .max = max};
    if (ep->device == NULL)
        return 0;
    ep->unfinished = false;
    bool objects_first = (ep->log_turn++ & 1) != 0; /* neither starves the other */
    if (objects_first)
        reap_objects(&r);
    reap_busy(&r);
    if (!objects_first)
        reap_objects(&r);
    if (r.n == 0 || ep->log_turn % IDLE_POLLS == 0) /* who waits for what has come need not wait */
        reap_idle(&r);
    return r.n;
}

/* ---- failure ---- */

static struct nic_queue *first_posted(struct nic_conn *c)
{
    struct nic_queue *first = NULL;
    uint32_t age = 0;
    for (uint32_t i = 0; i < NIC_QPS_MAX + 3; i++) {
        struct nic_queue *queue = i < NIC_QPS_MAX    ? &c->qp[i].queue
                                  : i == NIC_QPS_MAX ? &c->log_queue
                                  : i == NIC_QPS_MAX + 1 ? &c->persist
                                                         : &c->cas;
        if (queue->tail == queue->head)
            continue;
        uint32_t its_age = c->order - queue->op[queue->tail & (queue->size - 1)].order;
        if (first != NULL && its_age <= age)
            continue;
        first = queue;
        age = its_age;
    }
    return first;
}

void rd_rpma_fail_outstanding(struct nic_conn *c, int status)
{
    struct nic_ep *ep = nic_conn_ep(c);
    uint32_t outstanding = c->outstanding;
    for (uint32_t i = 0; i < NIC_QPS_MAX; i++) /* tails move below: what was posted is stale */
        ep->cq_stale += (uint32_t)(c->qp[i].queue.head - c->qp[i].queue.tail);
    struct nic_queue *queue;
    while ((queue = first_posted(c)) != NULL) {
        const struct nic_op *op = &queue->op[queue->tail++ & (queue->size - 1)];
        if (op->wanted && !op->done)
            rd_rpma_event(c, RD_EV_COMPLETION, status, op->wr_id);
    }
    rd_rpma_forget_posted(c);
    c->outstanding = outstanding;
}

/* ---- sleeping ---- */

/* Acknowledging takes a lock: in batches. */
static void take_notice(struct nic_ep *ep)
{
    struct ibv_cq *cq;
    void *context;
    if (ibv_get_cq_event(ep->channel, &cq, &context) != 0 || ++ep->cq_unacked < UNACKED_MAX)
        return;
    ibv_ack_cq_events(ep->cq, ep->cq_unacked);
    ep->cq_unacked = 0;
}

static void arm_log(struct nic_conn *c)
{
    nic_set_busy(c); /* the completion noticed may still be there: no other notice comes for it */
    int rc = rpma_cq_wait(c->log_cq);
    if (rc != 0 && rc != RPMA_E_NO_COMPLETION)
        rd_rpma_conn_fail(c, CAIRN_E_FABRIC, "no notice of completions: %s", rpma_err_2str(rc));
}

static void arm_readable(struct nic_ep *ep, struct pollfd *fds, struct nic_conn **conns, nfds_t n)
{
    if (n == 0 || poll(fds, n, 0) <= 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        if ((fds[i].revents & POLLIN) == 0)
            continue;
        if (conns[i] == NULL)
            take_notice(ep);
        else if (conns[i]->log != NULL)
            arm_log(conns[i]);
    }
}

/* A log connection's queue is armed from the start, and stays so until it has given notice; its
 * descriptor is readable from then until the notice is taken. So only readable ones are armed. */
void rd_rpma_arm(struct nic_ep *ep)
{
    struct pollfd fds[FDS];
    struct nic_conn *conns[FDS];
    nfds_t n = 0;
    if (ep->device == NULL)
        return;
    fds[n] = (struct pollfd){.fd = ep->channel->fd, .events = POLLIN};
    conns[n++] = NULL;
    for (uint32_t i = 0; i < ep->connections_max; i++) {
        struct nic_conn *c = &ep->conns[i];
        int fd;
        if (c->log == NULL || rpma_cq_get_fd(c->log_cq, &fd) != 0)
            continue;
        fds[n] = (struct pollfd){.fd = fd, .events = POLLIN};
        conns[n++] = c;
        if (n == FDS) {
            arm_readable(ep, fds, conns, n);
            n = 0;
        }
    }
    arm_readable(ep, fds, conns, n);
    if (ibv_req_notify_cq(ep->cq, 0) != 0)
        cn_log(ep->env, CN_LOG_ERROR, "endpoint %s: device %s gives no notice of completions",
            ep->name, ep->device->name);
}
