/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_post.c: operations: posting, what is held back so that it goes out with the next post or at
 * the end of a turn, and completions.
 *
 * A wr_id is (generation << 32 | index in ctx->op); a completion whose generation does not fit is
 * ignored. Flushes of several transactions on one connection are one, posted behind the writes of
 * all of them; it has an operation of its own, which completes whoever waits for it.
 */
#include "txn/txn_ctx.h"


static inline struct txn_op *take_op(
    struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t *ret_wr_id)
{
    struct cairn_ctx *ctx = peer->ctx;
    uint32_t at = ctx->op_free;

    if (at == TXN_NONE)
        return NULL;
    struct txn_op *op = &ctx->op[at];
    ctx->op_free = op->next_free;
    op->busy = true;
    op->peer = peer->at;
    op->batch = batch;
    op->flush = NULL;
    op->status = status;
    op->gen++;
    *ret_wr_id = (uint64_t)op->gen << 32 | at;
    *status = TXN_PENDING;
    batch->left++;
    ctx->op_count++;
    return op;
}

/* One less is outstanding. */
static inline void leave_batch(struct txn_batch *batch, int status)
{
    struct cairn_tx *waiter = batch->waiter;

    if (status != 0 && batch->status == 0)
        batch->status = status;
    if (--batch->left == 0 && waiter != NULL) {
        batch->waiter = NULL;
        txn_ready(waiter);
    }
}

static void leave_all(struct txn_flush *flush, int status)
{
    while (flush != NULL) {
        struct txn_flush *next = flush->next;
        *flush->status = status;
        leave_batch(flush->batch, status);
        flush = next;
    }
}

static void drop_marks(struct txn_peer *peer)
{
    for (; peer->mark_due != NULL; peer->mark_due = peer->mark_due->next)
        leave_batch(peer->mark_due->batch, 0);
}

/* Nobody is told when a mark fails: the connection is lost, and the node resolves the record.
 *
 * A record whose flushes, or whose mark, took long may have been resolved by its node meanwhile and
 * be passed, and others may have logged on until the ring came round: then its place is another's.
 * Such a record needs no mark (R4: space is used again only below the persisted position). */
static void mark_now(struct txn_peer *peer, uint64_t remote, uint64_t value, uint64_t log_off)
{
    if (CN_UNLIKELY(peer->log_off - log_off > peer->ring_size) && !CN_MUTANT(c_mark_late))
        return;
    if (rd_mark(peer->conn, 0, remote, value, 0) == 0)
        txn_bell(peer);
}

/* Where its record lies in the log. */
static inline uint64_t log_off_of(const struct txn_mark *mark)
{
    const void *rec = (const uint8_t *)mark - offsetof(struct txn_rec, mark);

    return ((const struct txn_rec *)rec)->off;
}

/* A flush that several wait for is over. */
static void flushed(struct txn_peer *peer, struct txn_flush *flush, int status)
{
    leave_all(flush, status);
    if (peer->flushes == 0 || --peer->flushes != 0 || peer->state != TXN_PEER_UP)
        return;
    while (peer->mark_due != NULL) {
        struct txn_mark *mark = peer->mark_due;
        peer->mark_due = mark->next;
        mark_now(peer, mark->remote, mark->value, log_off_of(mark));
        leave_batch(mark->batch, 0);
    }
}

static inline void complete_op(struct cairn_ctx *ctx, uint32_t at, int status)
{
    struct txn_op *op = &ctx->op[at];

    CAIRN_DASSERT(op->busy && ctx->op_count > 0);
    op->busy = false;
    op->gen++; /* what comes for it now is stray */
    ctx->op_count--;
    *op->status = status;
    op->next_free = ctx->op_free;
    ctx->op_free = at;
    if (CN_LIKELY(op->batch != NULL))
        leave_batch(op->batch, status);
    else
        flushed(&ctx->peer[op->peer], op->flush, status);
}

void txn_ops_fail(struct cairn_ctx *ctx, uint16_t at, int status)
{
    struct txn_peer *peer = &ctx->peer[at];
    struct txn_flush *due = peer->flush_due;

    peer->held.kind = TXN_HOLDS_NONE;
    peer->due = peer->bell = false;
    peer->flush_due = NULL;
    leave_all(due, status);
    drop_marks(peer);
    for (uint32_t i = 0; i < TXN_OPS_MAX; i++) {
        if (ctx->op[i].busy && ctx->op[i].peer == at)
            complete_op(ctx, i, status);
    }
    peer->flushes = 0;
}

static inline void completion(struct cairn_ctx *ctx, const struct rd_event *event)
{
    uint32_t at = (uint32_t)event->wr_id;

    if (CN_UNLIKELY(at >= TXN_OPS_MAX || ctx->op[at].gen != event->wr_id >> 32))
        return;
    complete_op(ctx, at, event->status);
}

static void lose_session(struct txn_peer *peer, int rc)
{
    struct cairn_ctx *ctx = peer->ctx;

    if (ctx->lost != 0 || CN_MUTANT(c_session_continues))
        return;
    ctx->lost = rc;
    ctx->lost_peer = peer->at;
}

/* A post that failed: nothing is outstanding. A dead connection ends the session. */
static int post_failed(struct txn_peer *peer, struct txn_op *op, int rc)
{
    if (op != NULL)
        complete_op(peer->ctx, (uint32_t)(op - peer->ctx->op), rc);
    if (rc == CAIRN_E_NODE_DOWN || rc == CAIRN_E_FENCED)
        lose_session(peer, rc);
    return rc;
}

/* A lock may be held now that nobody knows of: the fabric has refused to give one back, or the READ
 * that would have told of it. Only the node can free it, which it does when the connection is gone;
 * a clean goodbye would say that there is none. It is dropped by the next poll, for a post may be
 * in the middle of others. */
static void cut_later(struct txn_peer *peer, int rc)
{
    if (peer->state != TXN_PEER_UP)
        return;
    peer->down_status = rc;
    peer->ctx->any_dead = true;
    lose_session(peer, rc);
}

static int not_up(struct txn_peer *peer, struct txn_batch *batch, int *status)
{
    int rc = peer->down_status != 0 ? peer->down_status : CAIRN_E_NODE_DOWN;

    *status = rc;
    if (batch->status == 0)
        batch->status = rc;
    return post_failed(peer, NULL, rc);
}

static int no_op(struct txn_peer *peer, struct txn_batch *batch, int *status)
{
    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    *status = CAIRN_E_FABRIC;
    batch->status = CAIRN_E_FABRIC;
    return cn_fail(CAIRN_E_FABRIC, "more than %u operations in flight", TXN_OPS_MAX);
}

/* A CAS and the READ of the same object behind it. */
static inline int send_cas_read(struct txn_peer *peer, const struct txn_cas_read *p,
    uint64_t wr_id, struct txn_op *op, unsigned flags)
{
    int rc = rd_cas(peer->conn, 0, p->remote, p->expected, p->desired, p->local_old, RD_MORE);

    if (CN_UNLIKELY(rc != 0))
        return post_failed(peer, op, rc); /* nothing is on its way */
    rc = rd_read(peer->conn, wr_id, p->remote, p->local, p->size, flags);
    if (CN_UNLIKELY(rc != 0)) {
        (void)post_failed(peer, op, rc);
        cut_later(peer, rc);
    }
    return rc;
}

static inline void send_out(struct txn_peer *peer, unsigned flags)
{
    struct txn_held_post *h = &peer->held; /* not copied: it has just been written, in parts */
    uint64_t wr_id = h->wr_id, desired = h->desired;
    unsigned kind = h->kind;
    struct txn_op *op = &peer->ctx->op[(uint32_t)wr_id];
    int rc = 0;

    h->kind = TXN_HOLDS_NONE;
    flags |= RD_SIGNALED;
    switch (kind) {
    case TXN_HOLDS_NONE: return;
    case TXN_HOLDS_READ:
        rc = rd_read(peer->conn, wr_id, h->remote, h->local, h->size, flags);
        break;
    case TXN_HOLDS_CAS:
        rc = rd_cas(peer->conn, wr_id, h->remote, h->expected, desired, h->local_old, flags);
        break;
    case TXN_HOLDS_CAS_READ: {
        const struct txn_cas_read p = {.remote = h->remote,
            .expected = h->expected,
            .desired = desired,
            .local_old = h->local_old,
            .local = h->local,
            .size = h->size};
        (void)send_cas_read(peer, &p, wr_id, op, flags);
        return;
    }
    case TXN_HOLDS_FLUSH: rc = rd_flush(peer->conn, wr_id, h->remote, h->size, flags); break;
    }
    if (CN_LIKELY(rc == 0))
        return;
    (void)post_failed(peer, op, rc);
    if (kind == TXN_HOLDS_CAS && !pm_word_locked_bit(desired)) /* a release */
        cut_later(peer, rc);
}

/* Marks come before further flushes, or one flush or another would always be outstanding. */
static bool may_flush(const struct txn_peer *peer)
{
    return peer->flush_due != NULL && peer->mark_due == NULL && peer->state == TXN_PEER_UP &&
        peer->ctx->op_free != TXN_NONE;
}

static void send_flush(struct txn_peer *peer)
{
    struct txn_batch none = {0};
    uint64_t wr_id;
    struct txn_op *op = take_op(peer, &none, &peer->flush_status, &wr_id);

    CAIRN_ASSERT(op != NULL);
    op->batch = NULL;
    op->flush = peer->flush_due;
    peer->flush_due = NULL;
    peer->flushes += peer->conn->durability == RD_DURABILITY_GPSPM;
    int rc = rd_flush(peer->conn, wr_id, peer->flush_remote, peer->flush_size, RD_SIGNALED);
    if (rc != 0)
        (void)post_failed(peer, op, rc);
}

/* All that is due on a connection. */
static void send_due(struct txn_peer *peer)
{
    bool flush = may_flush(peer);

    send_out(peer, flush ? RD_MORE : 0);
    if (flush)
        send_flush(peer);
    if (peer->bell && peer->state == TXN_PEER_UP)
        rd_doorbell(peer->conn);
    peer->bell = false;
    peer->due = peer->flush_due != NULL;
}

static inline void note_held(struct txn_peer *peer)
{
    if (peer->is_held)
        return;
    peer->is_held = true;
    peer->next_held = peer->ctx->held;
    peer->ctx->held = peer;
}

CN_HOT
void txn_ring(struct cairn_ctx *ctx)
{
    struct txn_peer *peer = ctx->held;

    ctx->held = NULL;
    while (peer != NULL) {
        struct txn_peer *next = peer->next_held;
        peer->is_held = false;
        if (CN_LIKELY(!peer->due)) {
            send_out(peer, 0);
        } else {
            send_due(peer);
            if (peer->due)
                note_held(peer); /* the rest next time */
        }
        peer = next;
    }
}

/* Room to hold a post back: the one before it goes out first. */
static inline struct txn_held_post *hold(struct txn_peer *peer)
{
    if (peer->held.kind != TXN_HOLDS_NONE)
        send_out(peer, RD_MORE);
    note_held(peer);
    return &peer->held;
}

/* All operations are in use: wait for one. NULL: the peer is gone, or none came in time. */
static struct txn_op *await_op(
    struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t *ret_wr_id)
{
    struct cairn_ctx *ctx = peer->ctx;
    uint64_t deadline_ns = txn_op_deadline(ctx);
    uint32_t idle = 0;

    while (ctx->op_free == TXN_NONE && peer->state == TXN_PEER_UP) {
        if (txn_now(ctx) >= deadline_ns)
            return NULL;
        txn_wait_some(ctx, &idle, deadline_ns);
    }
    return peer->state == TXN_PEER_UP ? take_op(peer, batch, status, ret_wr_id) : NULL;
}

/* NULL: no_op() says why. */
static inline struct txn_op *need_op(
    struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t *ret_wr_id)
{
    if (CN_UNLIKELY(peer->state != TXN_PEER_UP))
        return NULL;
    struct txn_op *op = take_op(peer, batch, status, ret_wr_id);
    return CN_LIKELY(op != NULL) ? op : await_op(peer, batch, status, ret_wr_id);
}

CN_HOT
int txn_post_read(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size)
{
    uint64_t wr_id;
    struct txn_op *op = need_op(peer, batch, status, &wr_id);

    if (CN_UNLIKELY(op == NULL))
        return no_op(peer, batch, status);
    *hold(peer) = (struct txn_held_post){
        .kind = TXN_HOLDS_READ, .size = size, .wr_id = wr_id, .remote = remote, .local = local};
    return 0;
}

CN_HOT
int txn_post_read_now(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size)
{
    uint64_t wr_id;

    if (CN_UNLIKELY(peer->ctx->running != NULL)) /* what the others post goes out with it */
        return txn_post_read(peer, batch, status, remote, local, size);
    struct txn_op *op = need_op(peer, batch, status, &wr_id);
    if (CN_UNLIKELY(op == NULL))
        return no_op(peer, batch, status);
    int rc = rd_read(peer->conn, wr_id, remote, local, size, RD_SIGNALED);
    return rc == 0 ? 0 : post_failed(peer, op, rc);
}

CN_HOT
int txn_post_cas(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    uint64_t expected, uint64_t desired, uint64_t *local_old)
{
    uint64_t wr_id;
    struct txn_op *op = need_op(peer, batch, status, &wr_id);

    if (CN_UNLIKELY(op == NULL))
        return no_op(peer, batch, status);
    *hold(peer) = (struct txn_held_post){.kind = TXN_HOLDS_CAS,
        .wr_id = wr_id,
        .remote = remote,
        .expected = expected,
        .desired = desired,
        .local_old = local_old};
    return 0;
}

CN_HOT
int txn_post_flush(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    uint32_t size, struct txn_flush *wait)
{
    uint64_t wr_id;

    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    if (CN_LIKELY(
            peer->ctx->running == NULL && peer->conn->durability != RD_DURABILITY_GPSPM) &&
        take_op(peer, batch, status, &wr_id) != NULL) {
        *hold(peer) = (struct txn_held_post){
            .kind = TXN_HOLDS_FLUSH, .size = size, .wr_id = wr_id, .remote = remote};
        return 0;
    }
    *status = TXN_PENDING;
    batch->left++;
    *wait = (struct txn_flush){.next = peer->flush_due, .batch = batch, .status = status};
    peer->flush_due = wait;
    peer->flush_remote = remote;
    peer->flush_size = size;
    peer->due = true;
    note_held(peer);
    return 0;
}

CN_HOT
bool txn_post_cas_read(struct txn_peer *peer, struct txn_batch *batch, int *cas_status,
    int *read_status, const struct txn_cas_read *p)
{
    struct cairn_ctx *ctx = peer->ctx;
    uint64_t wr_id;

    /* Not the usual case: each on its own way. */
    if (CN_UNLIKELY(peer->state != TXN_PEER_UP || !peer->conn->cas_orders_reads)) {
        (void)txn_post_cas(
            peer, batch, cas_status, p->remote, p->expected, p->desired, p->local_old);
        (void)txn_post_read(peer, batch, read_status, p->remote, p->local, p->size);
        return false;
    }
    struct txn_op *op = need_op(peer, batch, read_status, &wr_id);
    if (CN_UNLIKELY(op == NULL)) {
        *cas_status = no_op(peer, batch, read_status);
        return true;
    }
    *cas_status = TXN_PENDING;
    if (p->alone && ctx->running == NULL) {
        if (CN_UNLIKELY(peer->held.kind != TXN_HOLDS_NONE))
            send_out(peer, RD_MORE);
        (void)send_cas_read(peer, p, wr_id, op, RD_SIGNALED);
        return true;
    }
    /* Where the poster's processor executes it, the object is on its way from memory meanwhile. */
    *hold(peer) = (struct txn_held_post){.kind = TXN_HOLDS_CAS_READ,
        .size = p->size,
        .wr_id = wr_id,
        .remote = p->remote,
        .expected = p->expected,
        .desired = p->desired,
        .local = p->local,
        .local_old = p->local_old};
    return true;
}

void txn_post_mark(struct txn_peer *peer, struct txn_batch *batch, uint64_t remote, uint64_t value,
    struct txn_mark *mark)
{
    if (CN_LIKELY(peer->flushes == 0)) {
        mark_now(peer, remote, value, log_off_of(mark));
        return;
    }
    *mark = (struct txn_mark){
        .next = peer->mark_due, .batch = batch, .remote = remote, .value = value};
    peer->mark_due = mark;
    batch->left++;
}

void txn_bell(struct txn_peer *peer)
{
    if (CN_LIKELY(peer->ctx->running == NULL && !peer->ctx->polling)) {
        rd_doorbell(peer->conn);
        return;
    }
    peer->bell = peer->due = true;
    note_held(peer);
}

/* ---- events ---- */

static void delete_dead(struct cairn_ctx *ctx)
{
    ctx->any_dead = false;
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        if (peer->state == TXN_PEER_UP && peer->down_status != 0) /* cut_later() */
            txn_peer_drop(peer, peer->down_status);
        if (peer->dead != NULL)
            rd_conn_delete(peer->dead);
        peer->dead = NULL;
    }
}

CN_HOT
bool txn_poll(struct cairn_ctx *ctx)
{
    struct rd_event events[TXN_EVENTS_BATCH];

    txn_ring(ctx);
    ctx->polled = true;
    if (CN_UNLIKELY(ctx->any_dead))
        delete_dead(ctx);
    uint32_t count = rd_poll(ctx->ep, events, TXN_EVENTS_BATCH);

    if (count == 0)
        return false;
    ctx->progress++;
    ctx->polling = true;
    for (uint32_t i = 0; i < count; i++) {
        if (events[i].type == RD_EV_COMPLETION)
            completion(ctx, &events[i]);
        else
            txn_event(ctx, &events[i]);
    }
    ctx->polling = false;
    if (CN_UNLIKELY(ctx->any_dead))
        delete_dead(ctx);
    return true;
}
