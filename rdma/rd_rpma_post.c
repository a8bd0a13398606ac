/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rd_rpma_post.c: read, cas, write, flush and mark, and the accounting of send queues. No lock, no
 * allocation, no system call but the provider's own.
 *
 * Invariants
 * - A work request is posted only into a free slot of its queue and, for object queue pairs, with
 *   a free entry of the common completion queue: neither can overrun. Slots are freed by
 *   completions; at least one in half a queue asks for one, so that a queue always empties.
 * - A cas without a completion is posted only where the read behind it has room too.
 * - What can be refused is refused before the slot is taken. From then on a failure is the
 *   connection's: the post says 0, and the operation completes with an error (rd.h).
 * - Reads and cas that RD_MORE holds back form one list per queue pair, posted at once by the next
 *   post without it (on any queue pair of the connection), or by the next poll.
 * - One word is always served by the same queue pair, so compare-and-swaps of it keep their order.
 * - The header page of a ring belongs to the node: writes and marks into it are refused.
 * - Under GPSPM a flush names all that was written since the flush before it.
 */
#include "rdma/rd_rpma.h"

/* ---- queues ---- */

bool rd_rpma_queue_full(const struct nic_queue *queue)
{
    return queue->head - queue->tail >= queue->size;
}

bool rd_rpma_queue_take(
    struct nic_conn *c, struct nic_queue *queue, const struct nic_op *op, bool sure)
{
    CAIRN_ASSERT(!rd_rpma_queue_full(queue));
    struct nic_op *slot = &queue->op[queue->head++ & (queue->size - 1)];
    *slot = *op;
    slot->order = c->order++;
    if (op->wanted)
        c->outstanding++;
    queue->unsignaled++;
    slot->asked = sure || op->wanted || queue->unsignaled >= queue->size / 2;
    if (!slot->asked)
        return false;
    queue->unsignaled = 0;
    queue->due = queue->head;
    return true;
}

bool rd_rpma_queue_find(const struct nic_queue *queue, uint64_t slot, uint64_t *ret_at)
{
    uint64_t ahead = (slot - queue->tail) & (queue->size - 1);
    if (slot >= queue->size || ahead >= queue->head - queue->tail)
        return false;
    *ret_at = queue->tail + ahead;
    return true;
}

uint32_t rd_rpma_queue_free(struct nic_conn *c, struct nic_queue *queue, uint64_t at)
{
    uint64_t tail = queue->tail;
    CAIRN_ASSERT(at - queue->tail < queue->head - queue->tail);
    queue->op[at & (queue->size - 1)].done = true;
    queue->done = cn_max64(queue->done, at + 1);
    for (; queue->tail < queue->done; queue->tail++) {
        const struct nic_op *op = &queue->op[queue->tail & (queue->size - 1)];
        if (op->asked && !op->done)
            break;
        if (op->kind == NIC_OP_SEND) {
            c->tx_free |= UINT32_C(1) << op->buffer;
            c->tx_out--;
        }
    }
    return (uint32_t)(queue->tail - tail);
}

static void reset_queue(struct nic_queue *queue)
{
    queue->head = queue->tail = queue->unsignaled = queue->due = queue->done = 0;
}

void rd_rpma_forget_posted(struct nic_conn *c)
{
    struct nic_ep *ep = nic_conn_ep(c);
    for (uint32_t i = 0; i < NIC_QPS_MAX; i++) {
        struct nic_queue *queue = &c->qp[i].queue;
        ep->cq_stale += (uint32_t)(queue->head - queue->tail);
        reset_queue(queue);
        c->qp[i].chain.count = 0;
    }
    reset_queue(&c->log_queue);
    reset_queue(&c->persist);
    reset_queue(&c->cas);
    c->persist_sent = c->cas_sent = 0;
    c->tx_free = (UINT32_C(1) << NIC_TX) - 1;
    c->tx_out = 0;
    c->frames_sent = c->frames_returned = c->returned = c->returned_told = 0;
    c->rx_taken = 0;
    c->held_count = 0;
    c->written_count = 0;
    c->outstanding = 0;
    c->chained = c->bell_due = false;
    c->hot = 0;
}

/* ---- checks ---- */

int rd_rpma_check_alive(const struct nic_conn *c)
{
    if (CN_LIKELY((c->state == NIC_UP && !c->fenced) || c->state == NIC_LOOPBACK))
        return 0;
    if (c->fenced || c->down_status == CAIRN_E_FENCED)
        return cn_fail(CAIRN_E_FENCED, "the node has fenced this connection");
    if (c->state == NIC_DOWN || c->state == NIC_REFUSING || c->state == NIC_DELETED)
        return cn_fail(CAIRN_E_NODE_DOWN, "the connection is down");
    return cn_fail(CAIRN_E_STATE, "the connection is not up yet");
}

static int check_post(const struct nic_conn *c, uint64_t size, unsigned flags)
{
    const struct nic_ep *ep = nic_conn_ep(c);
    int err = rd_rpma_check_alive(c);
    if (CN_UNLIKELY(err != 0))
        return err;
    if (CN_UNLIKELY((flags & RD_SIGNALED) != 0 && c->outstanding >= ep->outstanding_max))
        return cn_fail(
            CAIRN_E_AGAIN, "%u operations are outstanding on the connection", c->outstanding);
    if (CN_UNLIKELY(ep->device->message_max != 0 && size > ep->device->message_max))
        return cn_fail(CAIRN_E_FABRIC,
            "an operation of %llu bytes: device %s carries at most %u at once (max_msg_sz); use "
            "smaller ones",
            (unsigned long long)size, ep->device->name, ep->device->message_max);
    return 0;
}

static int fail_access(const char *what, uint64_t remote, uint64_t size)
{
    return cn_fail(CAIRN_E_FABRIC, "%s of %llu bytes at %#llx is not within what the node granted",
        what, (unsigned long long)size, (unsigned long long)remote);
}

static int fail_full(const char *what)
{
    return cn_fail(CAIRN_E_AGAIN, "%s: the send queue is full; poll, then try again", what);
}

/* The extent that covers the range and allows the access, or NULL. */
static const struct nic_grant *find_grant(
    struct nic_conn *c, uint64_t remote, uint64_t size, unsigned access)
{
    const struct nic_grant *g = &c->grant[c->grant_hint];
    if (c->grant_hint >= c->grant_count || !cn_range_inside(remote, 1, g->pool_off, g->size)) {
        uint32_t low = 0, high = c->grant_count;
        while (low < high) { /* the first that begins behind `remote` */
            uint32_t middle = (low + high) / 2;
            if (c->grant[middle].pool_off <= remote)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == 0)
            return NULL;
        c->grant_hint = low - 1;
        g = &c->grant[c->grant_hint];
    }
    if (size == 0 || !cn_range_inside(remote, size, g->pool_off, g->size))
        return NULL;
    return (g->access & access) == access ? g : NULL;
}

/* Whether the range lies in the ring granted, and behind `header` bytes of it. */
static bool in_ring(const struct nic_conn *c, uint64_t remote, uint64_t size, uint64_t header)
{
    return c->ring_mr != NULL && size > 0 &&
           cn_range_inside(remote, size, c->ring_off + header, c->ring_size - header);
}

static bool is_local(const struct nic_ep *ep, const void *local, uint64_t size, bool log)
{
    uint64_t object_size = ep->memory_size - ep->log_memory_size;
    return cn_range_inside((uintptr_t)local, size,
        (uintptr_t)ep->memory + (log ? object_size : 0), log ? ep->log_memory_size : object_size);
}

static void assert_local(const struct nic_conn *c, const void *local, uint64_t size, bool log)
{
    CAIRN_ASSERT(is_local(nic_conn_ep(c), local, size, log));
}

/* As assert_local(), but which part of the arena is due depends on what the peer calls a ring: the
 * wrong one is its doing. */
static int check_local(
    const struct nic_conn *c, const void *local, uint64_t remote, uint64_t size, bool log)
{
    const struct nic_ep *ep = nic_conn_ep(c);
    if (CN_LIKELY(is_local(ep, local, size, log)))
        return 0;
    CAIRN_ASSERT(is_local(ep, local, size, !log));
    return cn_fail(CAIRN_E_FABRIC,
        "the node grants %#llx as part of %s, which is not what is asked for there",
        (unsigned long long)remote, log ? "a ring" : "an extent");
}

/* ---- object queue pairs ---- */

static void post_chain(struct nic_conn *c, struct nic_qp *qp)
{
    struct ibv_send_wr *bad = NULL;
    int error = ibv_post_send(qp->id->qp, qp->chain.wr, &bad);
    qp->chain.count = 0;
    if (CN_UNLIKELY(error != 0))
        rd_rpma_conn_fail(c, CAIRN_E_FABRIC, "device %s refuses a work request: %s",
            nic_conn_ep(c)->device->name, strerror(error));
}

void rd_rpma_ring(struct nic_conn *c)
{
    c->chained = false;
    for (uint32_t i = 0; i < c->qp_count; i++) {
        if (c->qp[i].chain.count > 0)
            post_chain(c, &c->qp[i]);
    }
}

/* Add a work request to the chain of queue pair `at`. Errors: CAIRN_E_AGAIN. */
static int chain(struct nic_conn *c, uint32_t at, const struct nic_op *op,
    const struct ibv_send_wr *request, const struct ibv_sge *sge)
{
    struct nic_ep *ep = nic_conn_ep(c);
    struct nic_qp *qp = &c->qp[at];
    if (CN_UNLIKELY(rd_rpma_queue_full(&qp->queue) || ep->cq_used >= ep->cq_size))
        return fail_full("object queue pair");
    uint64_t position = qp->queue.head;
    bool signal = rd_rpma_queue_take(c, &qp->queue, op, false);
    ep->cq_used++; /* an error would make an entry of every one */
    uint32_t i = qp->chain.count++;
    struct ibv_send_wr *wr = &qp->chain.wr[i];
    qp->chain.sge[i] = *sge;
    *wr = *request;
    wr->wr_id = nic_wr_id(c, at, position);
    wr->sg_list = &qp->chain.sge[i];
    wr->num_sge = 1;
    wr->send_flags = signal ? IBV_SEND_SIGNALED : 0;
    wr->next = NULL;
    if (i > 0)
        qp->chain.wr[i - 1].next = wr;
    c->chained = true;
    if (i + 1 == NIC_CHAIN_MAX)
        post_chain(c, qp);
    return 0;
}

static uint32_t choose_qp(const struct nic_conn *c, uint64_t remote)
{
    return (uint32_t)((cn_mix64(remote / 8) >> 32) * c->qp_count >> 32);
}

/* The last step of every post: without RD_MORE, all that waits goes. */
static int finish(struct nic_conn *c, unsigned flags)
{
    if ((flags & RD_MORE) != 0) {
        nic_set_busy(c); /* should no other post follow */
        return 0;
    }
    nic_conn_ep(c)->counters.doorbells++;
    if (c->chained)
        rd_rpma_ring(c);
    if (c->persist_sent != c->persist.head || c->cas_sent != c->cas.head)
        rd_rpma_send_waiting(c);
    return 0;
}

static int read_object(struct nic_conn *c, const struct nic_op *op, const struct nic_grant *g,
    uint64_t remote, const struct ibv_sge *to)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};
    wr.wr.rdma.remote_addr = g->addr + (remote - g->pool_off);
    wr.wr.rdma.rkey = g->rkey;
    return chain(c, choose_qp(c, remote), op, &wr, to);
}

/* ---- log connection ---- */

/* Take a slot of the log connection's queue: its number is the operation's context. Returns the
 * flags for librpma. */
static int take_log(struct nic_conn *c, const struct nic_op *op, const void **ret_context)
{
    struct nic_queue *queue = &c->log_queue;
    *ret_context = (const void *)(uintptr_t)(queue->head & (queue->size - 1));
    nic_set_busy(c);
    rd_rpma_log_clear();
    return rd_rpma_queue_take(c, queue, op, false) ? RPMA_F_COMPLETION_ALWAYS
                                                   : RPMA_F_COMPLETION_ON_ERROR;
}

static void check_log(struct nic_conn *c, int rc, const char *what)
{
    if (CN_LIKELY(rc == 0))
        return;
    char text[NIC_TEXT_MAX];
    int err = rd_rpma_fail(rc, what);
    cn_error_copy(text, sizeof(text));
    rd_rpma_conn_fail(c, err, "%s", text);
}

static int read_ring(struct nic_conn *c, const struct nic_op *op, uint64_t remote, void *local,
    uint32_t size)
{
    struct nic_ep *ep = nic_conn_ep(c);
    const void *context;
    if (rd_rpma_queue_full(&c->log_queue))
        return fail_full("read");
    int flags = take_log(c, op, &context);
    int rc = rpma_read(c->log, ep->log_mr, nic_log_off(ep, local), c->ring_mr,
        remote - c->ring_off, size, flags, context);
    check_log(c, rc, "rpma_read");
    return 0;
}

/* ---- what was written since the last flush (GPSPM) ---- */

/* One range that covers all. */
static void merge_written(struct nic_conn *c)
{
    for (uint32_t i = 1; i < c->written_count; i++) {
        c->written[0].off = cn_min64(c->written[0].off, c->written[i].off);
        c->written[0].end = cn_max64(c->written[0].end, c->written[i].end);
    }
    c->written_count = 1;
}

/* Grow the last range where the new one touches it, which is what a log does; else append. */
static void note_written(struct nic_conn *c, uint64_t off, uint64_t size)
{
    struct nic_range *last = c->written_count > 0 ? &c->written[c->written_count - 1] : NULL;
    if (last != NULL && off <= last->end && off + size >= last->off) {
        last->off = cn_min64(last->off, off);
        last->end = cn_max64(last->end, off + size);
        return;
    }
    if (c->written_count < NIC_RANGES) {
        c->written[c->written_count++] = (struct nic_range){off, off + size};
        return;
    }
    merge_written(c);
    c->written[0].off = cn_min64(c->written[0].off, off);
    c->written[0].end = cn_max64(c->written[0].end, off + size);
}

/* One slot per range; the last one is the flush that the user knows. */
static int flush_by_message(struct nic_conn *c, const struct nic_op *op, uint64_t remote,
    uint64_t size)
{
    struct nic_queue *queue = &c->persist;
    if (rd_rpma_queue_full(queue))
        return fail_full("flush");
    note_written(c, remote, size);
    uint64_t free_slots = queue->size - (queue->head - queue->tail);
    if (c->written_count > free_slots)
        merge_written(c);
    const struct nic_op part = {.kind = NIC_OP_FLUSH};
    for (uint32_t i = 0; i < c->written_count; i++) {
        const struct nic_range *range = &c->written[i];
        c->asked[queue->head & (queue->size - 1)] =
            (struct nic_asked){.off = range->off, .a = range->end - range->off};
        (void)rd_rpma_queue_take(c, queue, i + 1 == c->written_count ? op : &part, true);
    }
    c->written_count = 0;
    c->bell_ns = cn_now_ns(nic_conn_ep(c)->env); /* the message wakes the node: as good as a bell */
    c->bell_writes = c->writes;
    nic_set_busy(c);
    nic_conn_ep(c)->counters.flush_messages++;
    return 0;
}

/* ---- operations ---- */

static struct nic_op make_op(enum nic_op_kind kind, uint64_t wr_id, unsigned flags)
{
    return (struct nic_op){
        .wr_id = wr_id, .kind = (uint8_t)kind, .wanted = (flags & RD_SIGNALED) != 0};
}

int rd_rpma_read(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, void *local,
    uint32_t size, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    const struct nic_op op = make_op(NIC_OP_READ, wr_id, flags);
    int err = check_post(c, size, flags);
    if (err != 0)
        return err;
    bool ring = in_ring(c, remote, size, 0);
    const struct nic_grant *g = ring ? NULL : find_grant(c, remote, size, RD_ACCESS_READ);
    if (!ring && g == NULL)
        return fail_access("read", remote, size);
    err = check_local(c, local, remote, size, ring);
    if (err != 0)
        return err;
    if (ring) {
        err = read_ring(c, &op, remote, local, size);
    } else {
        struct ibv_sge to = {(uintptr_t)local, size, ep->object_mr->lkey};
        err = read_object(c, &op, g, remote, &to);
    }
    if (err != 0)
        return err;
    ep->counters.reads++;
    ep->counters.bytes_read += size;
    return finish(c, flags);
}

/* An unsignaled cas is told of by the read that follows: that must not be refused any more. */
static bool has_room_behind(const struct nic_conn *c, const struct nic_queue *queue)
{
    const struct nic_ep *ep = nic_conn_ep(c);
    return queue->head - queue->tail + 2 <= queue->size && ep->cq_used + 2 <= ep->cq_size &&
           c->outstanding < ep->outstanding_max;
}

static int cas_by_message(struct nic_conn *c, const struct nic_op *op, const struct nic_asked *ask)
{
    struct nic_queue *queue = &c->cas;
    if (rd_rpma_queue_full(queue))
        return fail_full("compare-and-swap");
    c->asked[c->persist.size + (queue->head & (queue->size - 1))] = *ask;
    (void)rd_rpma_queue_take(c, queue, op, true);
    nic_set_busy(c);
    nic_conn_ep(c)->counters.cas_messages++;
    return 0;
}

int rd_rpma_cas(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t expected,
    uint64_t desired, uint64_t *local_old, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    struct nic_op op = make_op(NIC_OP_CAS, wr_id, flags);
    assert_local(c, local_old, sizeof(*local_old), false);
    int err = check_post(c, 8, flags);
    if (err != 0)
        return err;
    const struct nic_grant *g = find_grant(c, remote, 8, RD_ACCESS_ATOMIC);
    if (g == NULL || remote % 8 != 0)
        return fail_access("compare-and-swap", remote, 8);
    if (c->message_atomics) {
        op.old = local_old;
        err = cas_by_message(c, &op, &(struct nic_asked){remote, expected, desired});
    } else {
        struct ibv_sge to = {(uintptr_t)local_old, sizeof(*local_old), ep->object_mr->lkey};
        struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
        wr.wr.atomic.remote_addr = g->addr + (remote - g->pool_off);
        wr.wr.atomic.rkey = g->rkey;
        wr.wr.atomic.compare_add = expected;
        wr.wr.atomic.swap = desired;
        uint32_t at = choose_qp(c, remote);
        if (!op.wanted && !has_room_behind(c, &c->qp[at].queue))
            return fail_full("object queue pair");
        err = chain(c, at, &op, &wr, &to);
    }
    if (err != 0)
        return err;
    ep->counters.cas++;
    return finish(c, flags);
}

int rd_rpma_write(struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, const void *local,
    uint32_t size, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    const struct nic_op op = make_op(NIC_OP_WRITE, wr_id, flags);
    const void *context;
    assert_local(c, local, size, true);
    int err = check_post(c, size, flags);
    if (err != 0)
        return err;
    if (!in_ring(c, remote, size, RD_RING_HEADER_SIZE))
        return fail_access("write", remote, size);
    if (rd_rpma_queue_full(&c->log_queue))
        return fail_full("write");
    int rpma_flags = take_log(c, &op, &context);
    if (c->base.durability == RD_DURABILITY_GPSPM)
        note_written(c, remote, size);
    int rc = rpma_write(c->log, c->ring_mr, remote - c->ring_off, ep->log_mr,
        nic_log_off(ep, local), size, rpma_flags, context);
    check_log(c, rc, "rpma_write");
    ep->counters.writes++;
    c->writes++;
    ep->counters.bytes_written += size;
    return finish(c, flags);
}

/* librpma reads 8 bytes at the offset, whatever the size. */
static int flush_by_read(struct nic_conn *c, const struct nic_op *op, uint64_t remote,
    uint32_t size)
{
    const void *context;
    if (rd_rpma_queue_full(&c->log_queue))
        return fail_full("flush");
    uint64_t off = cn_min64(remote - c->ring_off, c->ring_size - 8);
    bool direct = c->base.durability == RD_DURABILITY_APM ||
                  c->base.durability == RD_DURABILITY_EADR;
    int flags = take_log(c, op, &context);
    int rc = rpma_flush(c->log, c->ring_mr, off, size,
        direct ? RPMA_FLUSH_TYPE_PERSISTENT : RPMA_FLUSH_TYPE_VISIBILITY, flags, context);
    check_log(c, rc, "rpma_flush");
    return 0;
}

int rd_rpma_flush(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint32_t size, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    const struct nic_op op = make_op(NIC_OP_FLUSH, wr_id, flags);
    int err = check_post(c, 8, flags);
    if (err != 0)
        return err;
    if (!in_ring(c, remote, size, RD_RING_HEADER_SIZE))
        return fail_access("flush", remote, size);
    if (c->base.durability == RD_DURABILITY_GPSPM)
        err = flush_by_message(c, &op, remote, size);
    else
        err = flush_by_read(c, &op, remote, size);
    if (err != 0)
        return err;
    nic_conn_ep(c)->counters.flushes++;
    return finish(c, flags);
}

int rd_rpma_mark(
    struct rd_conn *rd_conn, uint64_t wr_id, uint64_t remote, uint64_t value, unsigned flags)
{
    struct nic_conn *c = nic_conn(rd_conn);
    struct nic_ep *ep = nic_conn_ep(c);
    const struct nic_op op = make_op(NIC_OP_MARK, wr_id, flags);
    const void *context;
    int err = check_post(c, 8, flags);
    if (err != 0)
        return err;
    if (!in_ring(c, remote, 8, RD_RING_HEADER_SIZE) || remote % 8 != 0)
        return fail_access("mark", remote, 8);
    if (c->persist.head != c->persist.tail) /* librpma's fence does not wait for messages */
        return cn_fail(CAIRN_E_STATE, "a mark while a flush by message is outstanding");
    if (rd_rpma_queue_full(&c->log_queue))
        return fail_full("mark");
    struct le64 word = le64_make(value);
    int rpma_flags = take_log(c, &op, &context);
    int rc = rpma_atomic_write(c->log, c->ring_mr, remote - c->ring_off,
        (const char *)&word, rpma_flags, context);
    check_log(c, rc, "rpma_atomic_write");
    ep->counters.marks++;
    c->writes++;
    ep->counters.bytes_written += 8;
    return finish(c, flags);
}

/* ---- the fabric's own ---- */

static int post_probe(struct nic_conn *c, enum nic_op_kind kind, struct ibv_send_wr *wr)
{
    struct nic_ep *ep = nic_conn_ep(c);
    uint64_t *seen = &ep->beats[c->index].seen;
    struct ibv_sge to = {(uintptr_t)seen, sizeof(*seen), ep->beat_mr->lkey};
    struct nic_op op = {.kind = (uint8_t)kind};
    if (!c->qp[0].has_qp)
        return cn_fail(CAIRN_E_NODE_DOWN, "the connection is down");
    /* Always with a completion: as if it had been wanted, but for the event. */
    c->qp[0].queue.unsignaled = c->qp[0].queue.size;
    int err = chain(c, 0, &op, wr, &to);
    if (err == 0)
        rd_rpma_ring(c);
    return err;
}

int rd_rpma_post_beat(struct nic_conn *c)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};
    wr.wr.rdma.remote_addr = c->peer_beat_addr + offsetof(struct rd_rpma_beat, beat);
    wr.wr.rdma.rkey = c->peer_beat_rkey;
    return post_probe(c, NIC_OP_BEAT, &wr);
}

int rd_rpma_post_test_read(struct nic_conn *c)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ};
    wr.wr.rdma.remote_addr = c->peer_beat_addr + offsetof(struct rd_rpma_beat, test);
    wr.wr.rdma.rkey = c->peer_beat_rkey;
    return post_probe(c, NIC_OP_TEST, &wr);
}

int rd_rpma_post_test(struct nic_conn *c, uint64_t expected, uint64_t desired)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP};
    wr.wr.atomic.remote_addr = c->peer_beat_addr + offsetof(struct rd_rpma_beat, test);
    wr.wr.atomic.rkey = c->peer_beat_rkey;
    wr.wr.atomic.compare_add = expected;
    wr.wr.atomic.swap = desired;
    return post_probe(c, NIC_OP_TEST, &wr);
}
