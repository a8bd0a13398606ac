/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_log.c: step 3 (LOG) and 4 (MARK): ring space, records, flushes, marks, tokens and voids.
 *
 * A ring is written by this context alone, in order of log offset and of sequence. A record does
 * not cross the ring's end: a pad fills it, of which only the header line is written. A record
 * takes at most half a ring, so that with its pad it always fits once the ring is empty.
 *
 * Several transactions of the context may be between PREPARE and LOG. Space is kept for all records
 * of one, or for none: nobody waits for space who keeps some. From the first sequence taken to the
 * last record posted nothing waits, so that a log is in order of sequence.
 *
 * Invariants: a sequence is taken once (R15): at LOG, or with the token, and then a void record
 * fills it if the transaction does not. Space is used only below position + ring size and position
 * + window as last read from what the node has persisted (R4). Staging is not touched from post to
 * the flush's completion (R6).
 */
#include "txn/txn_ctx.h"
#include "txn/txn_staging.h"

/* log_off % ring_size, mostly without the division, which takes as long as a small record. */
static inline uint64_t in_ring(const struct txn_peer *peer, uint64_t log_off)
{
    uint64_t in_lap = log_off - peer->lap_off;

    return CN_LIKELY(in_lap < peer->ring_size) ? in_lap : log_off % peer->ring_size;
}

static inline uint64_t ring_at(const struct txn_peer *peer, uint64_t log_off)
{
    return peer->ring_off + RD_RING_HEADER_SIZE + in_ring(peer, log_off);
}

/* The log ends here now. */
static inline void end_log(struct txn_peer *peer, uint64_t log_off)
{
    peer->log_off = log_off;
    if (CN_UNLIKELY(log_off - peer->lap_off >= peer->ring_size))
        peer->lap_off = log_off - log_off % peer->ring_size;
}

static inline const struct pm_place *place_at(struct txn_peer *peer, uint64_t log_off)
{
    peer->place.log_off = log_off;
    return &peer->place;
}

/* Bytes of pad in front of `size` bytes at log offset `off`. */
static inline uint64_t pad_before(const struct txn_peer *peer, uint64_t off, uint32_t size)
{
    uint64_t room = peer->ring_size - in_ring(peer, off);

    return size > room ? room : 0;
}

/* ---- which participants, how big ---- */

/* Worst case of what a record takes: its pad is smaller than itself, and records of other
 * transactions that get in before it decide where it lies. */
static uint64_t promise_of(const struct txn_rec *rec)
{
    return 2 * (uint64_t)rec->size;
}

static void promise(struct txn_rec *rec)
{
    rec->promised = true;
    rec->peer->promised_bytes += promise_of(rec);
    rec->peer->promised_records++;
}

static void give_back(struct txn_rec *rec)
{
    if (!rec->promised)
        return;
    rec->promised = false;
    rec->peer->promised_bytes -= promise_of(rec);
    rec->peer->promised_records--;
}

CN_HOT
void txn_log_forget(struct cairn_tx *tx)
{
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        give_back(rec);
        rec->in = false;
    }
    tx->participant = NULL;
    tx->participants = 0;
}

CN_HOT
struct txn_rec *txn_log_enter(struct cairn_tx *tx, uint16_t at)
{
    struct txn_rec *rec = &tx->rec[at], **link = &tx->participant;

    while (*link != NULL && *link < rec)
        link = &(*link)->next;
    rec->peer = &tx->ctx->peer[at];
    rec->next = *link;
    rec->in = true;
    rec->posted = rec->promised = false;
    rec->key = NULL;
    rec->key_end = &rec->key;
    rec->keys = 0;
    rec->size = 0;
    rec->status = 0;
    *link = rec;
    tx->participants++;
    return rec;
}

CN_HOT
void txn_log_plan(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    if (tx->participant != NULL)
        txn_log_forget(tx);
    for (uint16_t p = 0; tx->has_token && p < ctx->peer_count; p++) {
        if (ctx->peer[p].node == tx->token.node)
            (void)txn_log_enter(tx, p);
    }
    for (struct txn_key *k = tx->key, *end = k + tx->key_count; k != end; k++) {
        if (k->effect != 0) /* with its block */
            txn_log_join(tx, k, k->effect == PM_OP_INSERT || k->effect == PM_OP_MOVE);
    }
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        if (tx->lock[i].written)
            tx->rec[tx->lock[i].peer].size += (uint32_t)sizeof(struct pm_lock_pm);
    }
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
    struct cairn_ctx *ctx = peer->ctx;
    struct txn_batch batch = {0};

    /* Read along with a record, or by another transaction: one read of it at a time. */
    while (peer->position_status == TXN_PENDING && ctx->lost == 0) {
        uint64_t now = txn_now(ctx);
        if (now >= deadline_ns)
            return 0;
        txn_pause(ctx, cn_min64(deadline_ns, now + TXN_BACKOFF_MIN_NS));
    }
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    (void)txn_post_read(peer, &batch, &peer->position_status, peer->position_off, peer->position,
        sizeof(*peer->position));
    int rc = txn_wait_trip(ctx, &batch, deadline_ns);
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    if (rc != 0)
        return txn_peer_fail(peer, rc);
    /* Another transaction may have begun to read it anew before this one went on. */
    return peer->position_status == 0 ? take_position(peer) : 0;
}

static inline bool fits(const struct txn_peer *peer, uint32_t size, uint64_t seq)
{
    uint64_t need = size;

    if (CN_MUTANT(c_ring_past_position))
        return true;
    if (peer->promised_records == 0)
        need += pad_before(peer, peer->log_off, size);
    else
        need = 2 * need + peer->promised_bytes;
    seq += peer->promised_records;
    return peer->log_off + need <= peer->position_off_log + peer->ring_size &&
        seq <= peer->position_seq + peer->window && seq <= peer->done + TXN_UNDONE_MAX;
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

static int check_size(const struct txn_peer *peer, uint32_t size)
{
    if (size > peer->record_max)
        return cn_fail(CAIRN_E_TX_SIZE, "node %u (%s): a record of %u bytes; its ring takes %llu",
            peer->node, peer->address, size, (unsigned long long)peer->record_max);
    return 0;
}

/* A sequence that was taken and not logged comes first. */
static int fill_void(struct txn_peer *peer, uint64_t deadline_ns)
{
    int rc = await_space(peer, PM_RECORD_VOID_SIZE, peer->void_seq, deadline_ns);

    if (rc == 0)
        txn_void_fill(peer, deadline_ns);
    return rc;
}

static inline uint64_t next_seq(const struct cairn_tx *tx, const struct txn_peer *peer)
{
    return tx->has_token && tx->token.node == peer->node ? tx->token.seq : peer->seq + 1;
}

/* The first record that there is no space for; NULL: none. */
static struct txn_rec *short_of_space(const struct cairn_tx *tx)
{
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        if (!fits(rec->peer, rec->size, next_seq(tx, rec->peer)))
            return rec;
    }
    return NULL;
}

static int make_space(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct txn_rec *rec;

    for (rec = tx->participant; rec != NULL; rec = rec->next) {
        int rc = check_size(rec->peer, rec->size);
        if (rc == 0 && rec->peer->void_seq != 0)
            rc = fill_void(rec->peer, deadline_ns);
        if (rc != 0)
            return rc;
    }
    while ((rec = short_of_space(tx)) != NULL) {
        deadline_ns = txn_due(tx->ctx, deadline_ns);
        int rc = await_space(rec->peer, rec->size, next_seq(tx, rec->peer), deadline_ns);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static void give_back_all(struct cairn_tx *tx)
{
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next)
        give_back(rec);
}

/* How big each record is, and space for all that there is now. False: not for all. */
static inline bool take_space(struct cairn_tx *tx)
{
    uint32_t head = (uint32_t)sizeof(struct pm_record_pm) +
        tx->participants * (uint32_t)sizeof(struct pm_participant_pm);
    bool all = true;

    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        const struct txn_peer *peer = rec->peer;
        rec->size = (uint32_t)cn_align_up(head + rec->size, PM_RECORD_ALIGN);
        if (CN_LIKELY(rec->size <= peer->record_max && peer->void_seq == 0 &&
                fits(peer, rec->size, next_seq(tx, peer))))
            promise(rec);
        else
            all = false;
    }
    return all;
}

CN_HOT
int txn_log_reserve(struct cairn_tx *tx, uint64_t deadline_ns)
{
    if (CN_LIKELY(take_space(tx)))
        return 0;
    give_back_all(tx); /* nobody waits who keeps some */
    int rc = make_space(tx, deadline_ns);
    if (rc != 0)
        return rc;
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next)
        promise(rec);
    return 0;
}

/* ---- staging ---- */

/* Wait until all records have room: others are on their way, and their flushes are posted. */
CN_HOT
static int await_staging(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    uint32_t idle = 0;

    for (struct txn_rec *rec = tx->participant; rec != NULL;) {
        struct txn_peer *peer = rec->peer;
        bool empty = peer->staging_head == peer->staging_tail;
        if (empty)
            txn_staging_restart(peer);
        if (CN_LIKELY(empty || txn_staging_fits(peer, rec->size))) {
            rec = rec->next;
            continue;
        }
        deadline_ns = txn_due(ctx, deadline_ns);
        txn_wait_some(ctx, &idle, deadline_ns);
        if (ctx->lost != 0)
            return txn_lost_error(ctx);
        if (txn_now(ctx) >= deadline_ns)
            return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): its log takes no record in time",
                peer->node, peer->address);
        rec = tx->participant; /* others have gone on meanwhile */
    }
    return 0;
}

/* ---- records ---- */

static inline void add_write(
    struct cairn_tx *tx, const struct txn_key *k, struct pm_record_writer *w)
{
    uint32_t size = txn_log_value_size(k);
    struct pm_write_pm *write = pm_record_open_write(w, k->key_size, size);

    if (write == NULL)
        return;
    bool named = k->block != TXN_NONE, old = k->effect != PM_OP_INSERT;
    pm_write_set(write, (enum pm_op)k->effect, named ? k->block_class : 0, k->key_size, size,
        k->index->root.index);
    write->hash = le64_make(k->hash);
    write->key_base = le64_make(old ? pm_word_version(k->item_word) : 0);
    write->item = le64_make(old ? k->item : 0);
    write->block = le64_make(named ? k->block_off : 0);
    write->bucket = le64_make(k->effect != PM_OP_UPDATE ? k->bucket : 0);
    pm_record_put_padded(write, k->key, k->key_size, txn_set_value(tx, k), size);
}

/* The same in each of its records. */
static inline void add_participants(const struct cairn_tx *tx, struct pm_record_writer *w)
{
    struct pm_participant_pm *p = pm_record_open_participants(w, tx->participants);

    for (const struct txn_rec *r = tx->participant; r != NULL && p != NULL; r = r->next, p++)
        pm_participant_set(
            p, r->peer->node, r->peer->at, 0, r->peer->slot, r->peer->epoch, r->seq);
}

/* All that is held and written. Where it holds the words of all beliefs these are the items of the
 * keys themselves. */
static inline void add_locks(
    const struct cairn_tx *tx, const struct txn_rec *rec, struct pm_record_writer *w)
{
    uint16_t at = rec->peer->at;

    if (CN_LIKELY(tx->holds_all)) {
        struct pm_lock_pm *l = pm_record_open_locks(w, rec->keys);
        for (const struct txn_key *k = rec->key; k != NULL && l != NULL; k = k->next_in_rec, l++)
            *l = pm_lock_make(k->item, pm_word_version(k->item_word));
        return;
    }
    for (const struct txn_lock *lock = tx->lock, *end = lock + tx->lock_count; lock != end;
         lock++) {
        if (lock->peer == at && lock->written && lock->state == TXN_LOCK_HELD)
            pm_record_add_lock(w, lock->off, pm_word_version(lock->word));
    }
    for (const struct txn_key *k = rec->key; k != NULL && tx->blocks != 0; k = k->next_in_rec) {
        if (k->block != TXN_NONE)
            pm_record_add_block(w, k->block_off, k->block_version);
    }
}

CN_HOT
static int build_record(struct cairn_tx *tx, struct txn_rec *rec)
{
    struct txn_peer *peer = rec->peer;
    struct pm_record_writer w;

    rec->bytes = txn_staging_take(peer, rec->size);
    rec->staging_end = peer->staging_head;
    pm_record_begin(&w, rec->bytes, rec->size);
    w.done = peer->done;
    add_participants(tx, &w);
    add_locks(tx, rec, &w);
    for (const struct txn_key *k = rec->key; k != NULL; k = k->next_in_rec)
        add_write(tx, k, &w);
    rec->off = peer->log_off + pad_before(peer, peer->log_off, rec->size);
    rec->remote = ring_at(peer, rec->off);
    uint32_t size = pm_record_close(
        &w, PM_RECORD_TX, &tx->txid, rec->seq, tx->ctx->cluster->config->view);
    if (size == 0 || size != rec->size)
        return cn_fail(CAIRN_E_TX_SIZE, "node %u (%s): the record takes %u bytes, reserved are %u",
            peer->node, peer->address, size, rec->size);
    return 0;
}

/* Write a pad's header line if the next `size` bytes would cross the ring's end. */
CN_HOT
static int post_pad(struct txn_peer *peer, uint32_t size, uint64_t *staging_end)
{
    uint64_t pad = pad_before(peer, peer->log_off, size);

    if (pad == 0)
        return 0;
    uint8_t *line = txn_staging_take(peer, 64);
    *staging_end = peer->staging_head;
    pm_record_make_pad(line, (uint32_t)pad, place_at(peer, peer->log_off));
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

static inline void note_logged(struct cairn_tx *tx, struct txn_lock *lock)
{
    lock->state = TXN_LOCK_LOGGED;
    tx->held--;
}

/* The record is on its way: locks and blocks that it names are its own now. */
static inline void hand_over(struct cairn_tx *tx, const struct txn_rec *rec)
{
    struct txn_peer *peer = rec->peer;

    if (CN_LIKELY(tx->holds_all)) { /* each key's own lock, and no blocks */
        for (const struct txn_key *k = rec->key; k != NULL; k = k->next_in_rec)
            note_logged(tx, &tx->lock[k->lock]);
        return;
    }
    for (struct txn_lock *lock = tx->lock, *end = lock + tx->lock_count; lock != end; lock++) {
        if (lock->peer == peer->at && lock->written && lock->state == TXN_LOCK_HELD)
            note_logged(tx, lock);
    }
    for (const struct txn_key *k = rec->key; k != NULL && tx->blocks != 0; k = k->next_in_rec) {
        if (k->block != TXN_NONE)
            txn_block_spend(peer, k->block);
    }
}

CN_HOT
static int post_record(struct cairn_tx *tx, struct txn_rec *rec, struct txn_batch *batch)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_peer *peer = rec->peer;
    uint32_t size = rec->size;

    cn_step(ctx->env, CN_STEP_c_log);
    if (CN_UNLIKELY(peer->state != TXN_PEER_UP))
        return post_lost(peer, peer->down_status != 0 ? peer->down_status : CAIRN_E_NODE_DOWN);
    int rc = rec->off == peer->log_off ? 0 : post_pad(peer, size, &rec->staging_end);
    if (CN_LIKELY(rc == 0))
        rc = rd_write(peer->conn, 0, rec->remote, rec->bytes, size, RD_MORE);
    if (CN_UNLIKELY(rc != 0))
        return post_lost(peer, rc);
    rec->posted = true;
    give_back(rec);
    end_log(peer, rec->off + size);
    /* The next one is likely to be as large. Its first line the node looks at all the time. */
    rd_hint(peer->conn, ring_at(peer, peer->log_off + 64), size, RD_HINT_WRITE);
    hand_over(tx, rec);
    rec->status = 0;
    if (CN_MUTANT(c_flush_skipped) || (CN_MUTANT(c_flush_first_only) && peer->at != 0))
        return 0;
    rc = txn_post_flush(peer, CN_MUTANT(c_ack_before_flush) ? &tx->background : batch,
        &rec->status, rec->remote, size, &rec->flush);
    if (CN_MUTANT(c_reuse_send_buffer))
        memset(rec->bytes + 64, 0xa5, size - 64);
    return rc;
}

/* More than half of the ring or of the window is in use, as far as is known here. */
static inline bool is_far(const struct txn_peer *peer)
{
    return (peer->log_off - peer->position_off_log) * 2 > peer->ring_size ||
        (peer->seq - peer->position_seq) * 2 > peer->window;
}

/* The ring fills: read the position along, so that the next transaction need not wait for it. */
static void post_position(struct txn_peer *peer)
{
    if (peer->state != TXN_PEER_UP || peer->position_status == TXN_PENDING ||
        peer->ctx->op_free == TXN_NONE) /* nothing waits here */
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

/* A token of the transaction that names one of its records; or the one that it has. */
static inline void name_record(
    struct txn_token *token, const struct cairn_tx *tx, const struct txn_rec *at)
{
    if (CN_UNLIKELY(tx->has_token)) {
        *token = tx->token;
        return;
    }
    token->txid = tx->txid;
    token->node = at->peer->node;
    token->slot = at->peer->slot;
    token->epoch = at->peer->epoch;
    token->seq = at->seq;
}

/* Not every record is known to be durable: what was posted has a place all the same, best one where
 * it is. */
static void note_token(struct cairn_tx *tx)
{
    const struct txn_rec *at = NULL;

    for (const struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        if (rec->posted && (at == NULL || (at->status != 0 && rec->status == 0)))
            at = rec;
    }
    if (at == NULL)
        return;
    name_record(&tx->logged, tx, at);
    tx->was_logged = true;
}

/* Their checksums; of two together. */
static inline void sign_all(struct cairn_tx *tx)
{
    const struct txn_rec *one = tx->participant, *other = one == NULL ? NULL : one->next;

    if (CN_LIKELY(tx->participants == 2)) {
        void *const record[2] = {one->bytes, other->bytes};
        const struct pm_place *const place[2] = {
            place_at(one->peer, one->off), place_at(other->peer, other->off)};
        pm_record_sign_two(record, place);
        return;
    }
    for (; one != NULL; one = one->next)
        pm_record_sign(one->bytes, place_at(one->peer, one->off));
}

CN_HOT
static int build_all(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        rec->seq = next_seq(tx, rec->peer);
        rec->peer->seq = cn_max64(rec->peer->seq, rec->seq);
    }
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        int rc = build_record(tx, rec);
        if (rc != 0) {
            /* Sequences are taken and will not be logged: the session ends with them. */
            ctx->lost = ctx->lost != 0 ? ctx->lost : CAIRN_E_FABRIC;
            return rc;
        }
    }
    sign_all(tx);
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
    struct txn_peer *p;

    if (!is_alone(tx))
        return;
    if (tx->ctx->running == NULL)
        txn_ring(tx->ctx);
    p = tx->participant->peer;
    if (p->state == TXN_PEER_UP)
        txn_bell(p);
}

/* The sequence is committed, or void. The next record says up to which all are: a place of those
 * that is lost later is damage, not a gap. */
static inline void note_done(struct txn_peer *peer, uint64_t seq)
{
    uint64_t *bits = peer->committed;

    if (CN_LIKELY(seq == peer->done + 1))
        peer->done = seq;
    else
        bits[seq % TXN_UNDONE_MAX / 64] |= UINT64_C(1) << seq % 64;
    for (uint64_t next = peer->done + 1;; next++) {
        uint64_t bit = UINT64_C(1) << next % 64, *word = &bits[next % TXN_UNDONE_MAX / 64];
        if ((*word & bit) == 0)
            return;
        *word &= ~bit;
        peer->done = next;
    }
}

CN_HOT
int txn_log_all(struct cairn_tx *tx, uint64_t deadline_ns, bool *ret_posted)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch batch = {0};
    int first = 0;

    *ret_posted = false;
    int rc = await_staging(tx, deadline_ns);
    if (rc == 0)
        rc = build_all(tx);
    if (rc != 0)
        return rc;
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        rc = post_record(tx, rec, &batch);
        *ret_posted |= rec->posted;
        if (CN_UNLIKELY(is_far(rec->peer)))
            post_position(rec->peer);
        if (CN_LIKELY(rc == 0))
            continue;
        first = first != 0 ? first : rc;
        if (!*ret_posted)
            return txn_lost_error(ctx);
    }
    cn_step(ctx->env, CN_STEP_c_logged);
    if (CN_MUTANT(c_mark_before_flush))
        txn_mark_all(tx);
    ring_if_alone(tx);
    rc = txn_wait_trip(ctx, &batch, deadline_ns);
    if (first == 0)
        first = rc;
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        txn_staging_free(rec);
        if (CN_LIKELY(first == 0))
            note_done(rec->peer, rec->seq);
    }
    if (CN_UNLIKELY(first != 0)) {
        note_token(tx);
        return first;
    }
    if (CN_LIKELY(tx->participant != NULL)) { /* what it wrote may have come to nothing */
        name_record(&ctx->last_token, tx, tx->participant);
        ctx->last_token_valid = true;
    }
    cn_step(ctx->env, CN_STEP_c_flushed);
    return 0;
}

CN_HOT
void txn_mark_all(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    if (is_alone(tx))
        return;
    for (struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
        struct txn_peer *p = rec->peer;
        if (!rec->posted || p->state != TXN_PEER_UP)
            continue;
        cn_step(ctx->env, CN_STEP_c_mark);
        uint64_t value = pm_word_value(p->nonce, rec->seq, PM_WORD_MARK);
        uint64_t at = rec->remote + offsetof(struct pm_record_pm, mark);
        txn_post_mark(p, &tx->background, at, value, &rec->mark);
    }
}

/* ---- tokens and voids (R15) ---- */

static int take_token(struct cairn_tx *tx)
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
        rc = fill_void(peer, txn_op_deadline(ctx));
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

int txn_token_take(struct cairn_tx *tx)
{
    tx->ctx->alone = true; /* nobody begins while this waits, either */
    int rc = take_token(tx);
    if (rc != 0) {
        tx->ctx->alone = false;
        tx->ctx->progress++;
    }
    return rc;
}

void txn_void_fill(struct txn_peer *peer, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct txn_batch batch = {0};
    struct txn_flush flush;
    uint64_t seq = peer->void_seq, staged = peer->staging_tail;
    int status;

    if (peer->void_seq == 0 || peer->state != TXN_PEER_UP ||
        !fits(peer, PM_RECORD_VOID_SIZE, peer->void_seq))
        return;
    cn_step(ctx->env, CN_STEP_c_void);
    uint64_t off = peer->log_off + pad_before(peer, peer->log_off, PM_RECORD_VOID_SIZE);
    pm_record_make_void(peer->line, &peer->void_txid, peer->void_seq, ctx->cluster->config->view,
        place_at(peer, off));
    int rc = post_pad(peer, PM_RECORD_VOID_SIZE, &staged);
    if (rc == 0)
        rc = rd_write(peer->conn, 0, ring_at(peer, off), peer->line, PM_RECORD_VOID_SIZE, RD_MORE);
    if (rc != 0) {
        (void)post_lost(peer, rc);
        return;
    }
    end_log(peer, off + PM_RECORD_VOID_SIZE);
    peer->void_seq = 0;
    (void)txn_post_flush(peer, &batch, &status, ring_at(peer, off), PM_RECORD_VOID_SIZE, &flush);
    if (txn_wait(ctx, &batch, deadline_ns) == 0) {
        note_done(peer, seq);
        peer->staging_tail = cn_max64(peer->staging_tail, staged);
    }
    if (peer->state == TXN_PEER_UP)
        rd_doorbell(peer->conn);
}
