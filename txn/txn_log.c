/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_log.c: step 3 (LOG) and 4 (MARK): ring space, records, flushes, marks, tokens and voids.
 *
 * A ring is written by this context alone, in order of log offset and of sequence. A record does
 * not cross the ring's end: a pad fills it, of which only the header line is written. A record
 * takes at most half a ring, so that with its pad it always fits once the ring is empty.
 *
 * Invariants: a sequence is taken once (R15): at LOG, or with the token, and then a void record
 * fills it if the transaction does not. Space is used only below position + ring size and position
 * + window as last read from what the node has persisted (R4). Staging is not touched from post to
 * the flush's completion (R6).
 */
#include "txn/txn_ctx.h"

static uint64_t ring_at(const struct txn_peer *peer, uint64_t log_off)
{
    return peer->ring_off + RD_RING_HEADER_SIZE + log_off % peer->ring_size;
}

static struct pm_place place_at(const struct txn_peer *peer, uint64_t log_off)
{
    return (struct pm_place){.pool = peer->pool,
        .slot = peer->slot,
        .epoch = peer->epoch,
        .nonce = peer->nonce,
        .log_off = log_off};
}

/* Bytes of pad in front of `size` bytes at log offset `off`. */
static uint64_t pad_before(const struct txn_peer *peer, uint64_t off, uint32_t size)
{
    uint64_t room = peer->ring_size - off % peer->ring_size;

    return size > room ? room : 0;
}

/* ---- which participants, how big ---- */

CN_HOT
void txn_log_forget(struct cairn_tx *tx)
{
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        p->rec.in = false;
    tx->participant = NULL;
    tx->participants = 0;
}

CN_HOT
static struct txn_peer *join(struct cairn_tx *tx, uint16_t at)
{
    struct txn_peer *p = &tx->ctx->peer[at], **link = &tx->participant;

    if (p->rec.in)
        return p;
    while (*link != NULL && (*link)->at < at)
        link = &(*link)->rec.next;
    p->rec.in = true;
    p->rec.posted = false;
    p->rec.status = 0;
    p->rec.size = 0;
    p->rec.next = *link;
    *link = p;
    tx->participants++;
    return p;
}

static uint32_t value_size(const struct txn_key *k)
{
    return k->effect == PM_OP_DELETE ? 0 : k->value_size;
}

CN_HOT
void txn_log_plan(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    txn_log_forget(tx);
    for (uint16_t p = 0; tx->has_token && p < ctx->peer_count; p++) {
        if (ctx->peer[p].node == tx->token.node)
            (void)join(tx, p);
    }
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k->effect == 0)
            continue;
        struct txn_peer *p = join(tx, k->peer);
        p->rec.size += pm_record_write_size(k->key_size, value_size(k));
        if (k->effect == PM_OP_INSERT || k->effect == PM_OP_MOVE)
            p->rec.size += (uint32_t)sizeof(struct pm_lock_pm);
    }
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        if (tx->lock[i].written)
            ctx->peer[tx->lock[i].peer].rec.size += (uint32_t)sizeof(struct pm_lock_pm);
    }
    uint32_t head = (uint32_t)sizeof(struct pm_record_pm) +
        tx->participants * (uint32_t)sizeof(struct pm_participant_pm);
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        p->rec.size = (uint32_t)cn_align_up(head + p->rec.size, PM_RECORD_ALIGN);
}

/* ---- ring space (R4) ---- */

static int take_position(struct txn_peer *peer)
{
    uint64_t seq = le64_get(peer->position->seq);
    uint64_t off = le64_get(peer->position->off);

    if (seq > peer->seq || off > peer->log_off)
        return cn_fail(CAIRN_E_PROTOCOL,
            "node %u (%s): its applied position %llu (log offset %llu) is ahead of what was logged",
            peer->node, peer->address, (unsigned long long)seq, (unsigned long long)off);
    peer->position_seq = cn_max64(peer->position_seq, seq);
    peer->position_off_log = cn_max64(peer->position_off_log, off);
    return 0;
}

static int read_position(struct txn_peer *peer, uint64_t deadline_ns)
{
    struct txn_batch batch = {0};

    (void)txn_post_read(peer, &batch, &peer->position_status, peer->position_off, peer->position,
        sizeof(*peer->position));
    int rc = txn_wait_trip(peer->ctx, &batch, deadline_ns);
    if (peer->ctx->lost != 0)
        return txn_lost_error(peer->ctx);
    return rc != 0 ? txn_peer_fail(peer, rc) : take_position(peer);
}

CN_HOT
static bool fits(const struct txn_peer *peer, uint32_t size, uint64_t seq)
{
    uint64_t end = peer->log_off + pad_before(peer, peer->log_off, size) + size;

    if (CN_MUTANT(c_ring_past_position))
        return true;
    return end <= peer->position_off_log + peer->ring_size &&
        seq <= peer->position_seq + peer->window;
}

CN_HOT
static int await_space(struct txn_peer *peer, uint32_t size, uint64_t seq, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;

    if (!fits(peer, size, seq) && peer->position_status == 0)
        (void)!take_position(
            peer); /* read along with an earlier record; if it lies, it is read again */
    for (uint32_t tries = 0; !fits(peer, size, seq); tries++) {
        deadline_ns = txn_due(ctx, deadline_ns);
        int rc = read_position(peer, deadline_ns);
        if (rc != 0)
            return rc;
        if (fits(peer, size, seq))
            break;
        rd_doorbell(peer->conn);
        uint64_t until = txn_now(ctx) + txn_backoff_ns(ctx, tries);
        if (until >= deadline_ns)
            return cn_fail(CAIRN_E_RING_FULL,
                "node %u (%s): %llu bytes and %llu records of its log wait to be applied for %u "
                "ms; is it "
                "overloaded, or a record in doubt? see `cairn inspect`",
                peer->node, peer->address,
                (unsigned long long)(peer->log_off - peer->position_off_log),
                (unsigned long long)(peer->seq - peer->position_seq),
                ctx->cluster->options.op_timeout_ms);
        txn_pause(ctx, until);
        if (ctx->lost != 0)
            return txn_lost_error(ctx);
    }
    return 0;
}

CN_HOT
int txn_ring_reserve(struct txn_peer *peer, uint32_t size, uint64_t deadline_ns)
{
    const struct cairn_tx *tx = &peer->ctx->tx;
    uint64_t limit = cn_min64(peer->ring_size / 2, TXN_STAGING_SIZE);

    if (peer->bytes_max != 0)
        limit = cn_min64(limit, peer->bytes_max);
    if (size > limit)
        return cn_fail(CAIRN_E_TX_SIZE, "node %u (%s): a record of %u bytes; its ring takes %llu",
            peer->node, peer->address, size, (unsigned long long)limit);
    if (peer->void_seq != 0) {
        int rc = await_space(peer, PM_RECORD_VOID_SIZE, peer->void_seq, deadline_ns);
        if (rc != 0)
            return rc;
        txn_void_fill(peer, deadline_ns);
    }
    bool token_here = tx->has_token && tx->token.node == peer->node;
    return await_space(peer, size, token_here ? tx->token.seq : peer->seq + 1, deadline_ns);
}

/* ---- records ---- */

CN_HOT
static void add_writes(struct cairn_tx *tx, struct txn_peer *peer, struct pm_record_writer *w)
{
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k->peer != peer->at || k->effect == 0)
            continue;
        struct pm_write_pm write = {
            .op = (uint8_t)k->effect,
            .key_size = le16_make(k->key_size),
            .value_size = le32_make(value_size(k)),
            .index = le32_make(k->index->root.index),
            .hash = le64_make(k->hash),
        };
        if (k->effect != PM_OP_INSERT) {
            write.item = le64_make(k->item);
            write.key_base = le64_make(pm_word_version(k->item_word));
        }
        if (k->effect != PM_OP_UPDATE)
            write.bucket = le64_make(k->bucket);
        if (k->block != TXN_NONE) {
            write.block = le64_make(k->block_off);
            write.class_ = k->block_class;
        }
        (void)pm_record_add_write(w, &write, k->key, txn_set_value(tx, k));
    }
}

CN_HOT
static int build_record(struct cairn_tx *tx, struct txn_peer *peer)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct pm_record_writer w;

    pm_record_begin(&w, ctx->staging + (size_t)peer->at * TXN_STAGING_SIZE, TXN_STAGING_SIZE);
    w.done = peer->done;
    for (const struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        pm_record_add_participant(&w, p->node, p->at, 0, p->slot, p->epoch, p->rec.seq);
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        const struct txn_lock *lock = &tx->lock[i];
        if (lock->peer == peer->at && lock->written && lock->state == TXN_LOCK_HELD)
            pm_record_add_lock(&w, lock->off, pm_word_version(lock->word));
    }
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k->peer == peer->at && k->effect != 0 && k->block != TXN_NONE)
            pm_record_add_block(&w, k->block_off, k->block_version);
    }
    add_writes(tx, peer, &w);
    peer->rec.off = peer->log_off + pad_before(peer, peer->log_off, peer->rec.size);
    struct pm_place place = place_at(peer, peer->rec.off);
    uint32_t size = pm_record_end(
        &w, PM_RECORD_TX, &tx->txid, peer->rec.seq, ctx->cluster->config->view, &place);
    if (size == 0 || size != peer->rec.size)
        return cn_fail(CAIRN_E_TX_SIZE, "node %u (%s): the record takes %u bytes, reserved are %u",
            peer->node, peer->address, size, peer->rec.size);
    return 0;
}

/* Write a pad's header line if the next `size` bytes would cross the ring's end. */
CN_HOT
static int post_pad(struct txn_peer *peer, uint32_t size)
{
    uint64_t pad = pad_before(peer, peer->log_off, size);
    uint8_t *line = peer->line + PM_RECORD_VOID_SIZE;

    if (pad == 0)
        return 0;
    struct pm_place place = place_at(peer, peer->log_off);
    pm_record_make_pad(line, (uint32_t)pad, &place);
    return rd_write(peer->conn, 0, ring_at(peer, peer->log_off), line, 64, RD_MORE);
}

/* What a post says about a connection that ends. */
static int post_lost(struct txn_peer *peer, int rc)
{
    if (peer->ctx->lost == 0) {
        peer->ctx->lost = rc;
        peer->ctx->lost_peer = peer->at;
    }
    return rc;
}

CN_HOT
static int post_record(struct cairn_tx *tx, struct txn_peer *peer, struct txn_batch *batch)
{
    struct cairn_ctx *ctx = tx->ctx;
    uint8_t *record = ctx->staging + (size_t)peer->at * TXN_STAGING_SIZE;
    uint32_t size = peer->rec.size;

    cn_step(ctx->env, CN_STEP_c_log);
    if (peer->state != TXN_PEER_UP)
        return post_lost(peer, peer->down_status != 0 ? peer->down_status : CAIRN_E_NODE_DOWN);
    int rc = post_pad(peer, size);
    if (rc == 0)
        rc = rd_write(peer->conn, 0, ring_at(peer, peer->rec.off), record, size, RD_MORE);
    if (rc != 0)
        return post_lost(peer, rc);
    peer->rec.posted = true;
    peer->log_off = peer->rec.off + size;
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        if (tx->lock[i].peer == peer->at && tx->lock[i].written &&
            tx->lock[i].state == TXN_LOCK_HELD)
            tx->lock[i].state = TXN_LOCK_LOGGED;
    }
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        if (k->peer == peer->at && k->block != TXN_NONE && k->effect != 0)
            txn_block_spend(peer, k->block);
    }
    peer->rec.status = 0;
    if (CN_MUTANT(c_flush_skipped) || (CN_MUTANT(c_flush_first_only) && peer->at != 0))
        return 0;
    rc = txn_post_flush(peer, CN_MUTANT(c_ack_before_flush) ? &ctx->background : batch,
        &peer->rec.status, ring_at(peer, peer->rec.off), size);
    if (CN_MUTANT(c_reuse_send_buffer))
        memset(record + 64, 0xa5, size - 64);
    return rc;
}

/* More than half of the ring or of the window is in use, as far as is known here. */
CN_HOT
static bool is_far(const struct txn_peer *peer)
{
    return (peer->log_off - peer->position_off_log) * 2 > peer->ring_size ||
        (peer->seq - peer->position_seq) * 2 > peer->window;
}

/* The ring fills: read the position along, so that the next transaction need not wait for it. */
CN_HOT
static void post_position(struct txn_peer *peer)
{
    if (!is_far(peer) || peer->state != TXN_PEER_UP || peer->position_status == TXN_PENDING)
        return;
    /* What was read along with an earlier record counts from here on; if it lies, and while it is
     * not enough, it is read again. */
    if (peer->position_status == 0)
        (void)!take_position(peer);
    if (!is_far(peer))
        return;
    (void)txn_post_read(peer, &peer->ctx->background, &peer->position_status, peer->position_off,
        peer->position, sizeof(*peer->position));
}

CN_HOT
static void note_token(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;
    const struct txn_peer *at = NULL;

    for (const struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next) {
        if (p->rec.posted && (at == NULL || (at->rec.status != 0 && p->rec.status == 0)))
            at = p;
    }
    if (at == NULL)
        return;
    ctx->last_token = tx->has_token ? tx->token
                                    : (struct txn_token){.txid = tx->txid,
                                          .node = at->node,
                                          .slot = at->slot,
                                          .epoch = at->epoch,
                                          .seq = at->rec.seq};
    ctx->last_token_valid = true;
}

CN_HOT
static int build_all(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        p->rec.seq = tx->has_token && tx->token.node == p->node ? tx->token.seq : ++p->seq;
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next) {
        int rc = build_record(tx, p);
        if (rc != 0) {
            /* Sequences are taken and will not be logged: the session ends with them. */
            ctx->lost = ctx->lost != 0 ? ctx->lost : CAIRN_E_FABRIC;
            return rc;
        }
    }
    return 0;
}

/* A record whose only participant is its own node needs no mark: nobody else can lack theirs, so it
 * is committed as soon as it is durable there, and the node sees to that itself. It may wake for it
 * while the flush is under way. */
static bool is_alone(const struct cairn_tx *tx)
{
    return tx->participants == 1;
}

CN_HOT
static void ring_if_alone(struct cairn_tx *tx)
{
    struct txn_peer *p = tx->participant;

    if (!is_alone(tx))
        return;
    txn_ring(tx->ctx);
    if (p->state == TXN_PEER_UP)
        rd_doorbell(p->conn);
}

CN_HOT
int txn_log_all(struct cairn_tx *tx, uint64_t deadline_ns, bool *ret_posted)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch batch = {0};
    int first = 0;

    *ret_posted = false;
    int rc = build_all(tx);
    if (rc != 0)
        return rc;
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next) {
        rc = post_record(tx, p, &batch);
        *ret_posted |= p->rec.posted;
        if (rc != 0 && first == 0)
            first = rc;
        if (rc != 0 && !*ret_posted)
            return txn_lost_error(ctx);
    }
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        post_position(p);
    cn_step(ctx->env, CN_STEP_c_logged);
    if (CN_MUTANT(c_mark_before_flush))
        txn_mark_all(tx);
    ring_if_alone(tx);
    rc = txn_wait_trip(ctx, &batch, deadline_ns);
    note_token(tx);
    if (first != 0 || rc != 0)
        return first != 0 ? first : rc;
    cn_step(ctx->env, CN_STEP_c_flushed);
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next)
        p->done = p->rec.seq; /* the next record says so: a place lost later is damage, not a gap */
    return 0;
}

CN_HOT
void txn_mark_all(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    if (is_alone(tx))
        return;
    for (struct txn_peer *p = tx->participant; p != NULL; p = p->rec.next) {
        if (!p->rec.posted || p->state != TXN_PEER_UP)
            continue;
        cn_step(ctx->env, CN_STEP_c_mark);
        uint64_t value = pm_word_value(p->nonce, p->rec.seq, PM_WORD_MARK);
        uint64_t at = ring_at(p, p->rec.off) + offsetof(struct pm_record_pm, mark);
        if (rd_mark(p->conn, 0, at, value, 0) == 0)
            rd_doorbell(p->conn); /* else the connection is lost: the node resolves the record */
    }
}

/* ---- tokens and voids (R15) ---- */

int txn_token_take(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_key *k = NULL;

    for (uint32_t i = 0; i < tx->key_count && k == NULL; i++) {
        if (tx->key[i].write != TXN_WRITE_NONE)
            k = &tx->key[i];
    }
    if (k == NULL)
        return cn_fail(CAIRN_E_STATE, "the transaction has written nothing yet: it has no token");
    struct txn_peer *peer = &ctx->peer[k->peer];
    int rc = txn_set_locate(tx, k);
    if (rc != 0)
        return rc;
    if (peer->void_seq != 0) { /* one open sequence per ring */
        rc = txn_ring_reserve(peer, PM_RECORD_VOID_SIZE, txn_op_deadline(ctx));
        if (rc != 0)
            return rc;
    }
    tx->token = (struct txn_token){.txid = tx->txid,
        .node = peer->node,
        .slot = peer->slot,
        .epoch = peer->epoch,
        .seq = ++peer->seq};
    tx->has_token = true;
    return 0;
}

void txn_void_fill(struct txn_peer *peer, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct txn_batch batch = {0};
    int status;

    if (peer->void_seq == 0 || peer->state != TXN_PEER_UP ||
        !fits(peer, PM_RECORD_VOID_SIZE, peer->void_seq))
        return;
    cn_step(ctx->env, CN_STEP_c_void);
    uint64_t off = peer->log_off + pad_before(peer, peer->log_off, PM_RECORD_VOID_SIZE);
    struct pm_place place = place_at(peer, off);
    pm_record_make_void(
        peer->line, &peer->void_txid, peer->void_seq, ctx->cluster->config->view, &place);
    int rc = post_pad(peer, PM_RECORD_VOID_SIZE);
    if (rc == 0)
        rc = rd_write(peer->conn, 0, ring_at(peer, off), peer->line, PM_RECORD_VOID_SIZE, RD_MORE);
    if (rc != 0) {
        (void)post_lost(peer, rc);
        return;
    }
    peer->log_off = off + PM_RECORD_VOID_SIZE;
    peer->void_seq = 0;
    (void)txn_post_flush(peer, &batch, &status, ring_at(peer, off), PM_RECORD_VOID_SIZE);
    (void)txn_wait(ctx, &batch, deadline_ns);
    if (peer->state == TXN_PEER_UP)
        rd_doorbell(peer->conn);
}
