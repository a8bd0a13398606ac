/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_commit.c: drives the commit state machine: each action is carried out to its end and gives
 * the next event. One place sets the state (step()), and only along the table of txn_fsm.h.
 */
#include "txn/txn_ctx.h"

static inline unsigned step(struct cairn_tx *tx, enum txn_event event)
{
    enum txn_state next;
    unsigned actions;
    bool legal = txn_fsm_step(tx->state, event, &next, &actions);

    CAIRN_ASSERT(legal);
    tx->state = next;
    return actions;
}

/* Remember why, with the text, which later calls overwrite. */
static enum txn_event failed(struct cairn_tx *tx, int error)
{
    if (tx->error == 0) {
        tx->error = error;
        if (error != CAIRN_E_CONFLICT)
            cn_error_copy(tx->error_text, sizeof(tx->error_text));
    }
    return TXN_EVENT_FAILED;
}

CN_HOT
static enum txn_event act_log(struct cairn_tx *tx)
{
    uint64_t deadline = TXN_LATER;
    bool posted = false;

    if (tx->ctx->lost != 0)
        return failed(tx, txn_lost_error(tx->ctx));
    int rc = txn_log_all(tx, deadline, &posted);
    if (rc == 0 && CN_MUTANT(c_log_before_validate)) {
        rc = txn_validate(tx, deadline);
        return rc == 0 ? TXN_EVENT_FLUSHED : failed(tx, rc);
    }
    if (rc == 0)
        return TXN_EVENT_FLUSHED;
    if (!posted)
        return failed(tx, rc);
    if (tx->ctx->lost ==
        0) { /* a flush failed and the connection stands: this session is over all the same */
        tx->ctx->lost = rc;
        for (const struct txn_rec *rec = tx->participant; rec != NULL; rec = rec->next) {
            if (rec->status != 0)
                tx->ctx->lost_peer = rec->peer->at;
        }
    }
    return TXN_EVENT_CUT;
}

CN_HOT
static enum txn_event act_validate(struct cairn_tx *tx)
{
    if (tx->state == TXN_STATE_VALIDATE && CN_MUTANT(c_log_before_validate))
        return TXN_EVENT_VALIDATED;
    int rc = txn_validate(tx, TXN_LATER);
    return rc == 0 ? TXN_EVENT_VALIDATED : failed(tx, rc);
}

CN_HOT
static enum txn_event act_mark(struct cairn_tx *tx)
{
    /* Before the marks: they are stores to lines that another processor has, over emu, and the next
     * locked instruction waits for them. */
    txn_plan_learn(tx);
    if (!CN_MUTANT(c_mark_before_flush))
        txn_mark_all(tx);
    txn_release(tx, true); /* what was locked and not written: read under lock, valid until here */
    cn_step(tx->ctx->env, CN_STEP_c_marked);
    return TXN_EVENT_MARKED;
}

static inline enum txn_event act_prepare(struct cairn_tx *tx)
{
    int rc = txn_plan(tx, TXN_LATER);

    return CN_LIKELY(rc == 0) ? TXN_EVENT_PREPARED : failed(tx, rc);
}

static inline enum txn_event act_lock(struct cairn_tx *tx)
{
    int rc = txn_lock_all(tx, TXN_LATER);

    return CN_LIKELY(rc == 0) ? TXN_EVENT_LOCKED : failed(tx, rc);
}

/* Carry out what the machine says, until it rests. */
static void carry_out(struct cairn_tx *tx, unsigned actions)
{
    for (;;) {
        enum txn_event event;
        switch (actions) {
        case TXN_ACT_PREPARE: event = act_prepare(tx); break;
        case TXN_ACT_LOCK: event = act_lock(tx); break;
        case TXN_ACT_VALIDATE: event = act_validate(tx); break;
        case TXN_ACT_LOG: event = act_log(tx); break;
        case TXN_ACT_MARK: event = act_mark(tx); break;
        case TXN_ACT_RELEASE:
            if (tx->lock_count != 0)
                txn_release(tx, tx->state == TXN_STATE_UNLOCK);
            event = TXN_EVENT_RELEASED;
            break;
        default: /* NONE: rests; FINISH: final */ return;
        }
        actions = step(tx, event);
    }
}

void txn_drive(struct cairn_tx *tx, enum txn_event event)
{
    carry_out(tx, step(tx, event));
}

/* The same for a commit: what the machine says next is mostly the next step, so it is asked for
 * that, in a row of branches that can be foreseen. */
CN_HOT
static void drive_commit(struct cairn_tx *tx, enum txn_event event)
{
    unsigned actions = step(tx, event);

    if (CN_LIKELY(actions == TXN_ACT_PREPARE))
        actions = step(tx, act_prepare(tx));
    if (CN_LIKELY(actions == TXN_ACT_LOCK))
        actions = step(tx, act_lock(tx));
    if (CN_LIKELY(actions == TXN_ACT_VALIDATE))
        actions = step(tx, act_validate(tx));
    if (CN_LIKELY(actions == TXN_ACT_LOG))
        actions = step(tx, act_log(tx));
    if (CN_LIKELY(actions == TXN_ACT_MARK))
        actions = step(tx, act_mark(tx));
    if (CN_UNLIKELY(actions != TXN_ACT_FINISH))
        carry_out(tx, actions);
}

int txn_doom(struct cairn_tx *tx, int error)
{
    bool fatal = error == CAIRN_E_CONFLICT || txn_is_unreachable(error) || tx->ctx->lost != 0;

    if (!fatal || tx->state != TXN_STATE_ACTIVE)
        return error;
    (void)failed(tx, error);
    txn_drive(tx, TXN_EVENT_FAILED);
    return cn_fail_plain(
        error, error == CAIRN_E_CONFLICT ? cairn_strerror(error) : tx->error_text);
}

/* ---- begin and end ---- */

int txn_none_free(const struct cairn_ctx *ctx)
{
    if (ctx->shut)
        return cn_fail(CAIRN_E_STATE, "the context is being closed");
    if (ctx->tx_count == 1)
        return cn_fail(
            CAIRN_E_STATE, "this context has an open transaction: commit or abort it first");
    return cn_fail(CAIRN_E_STATE,
        "this context has %u open transactions: end one first, or set options.inflight higher",
        ctx->tx_count);
}

/* One whose releases are over, if there is; the one used last, for what the caches hold of it. */
CN_HOT
static struct cairn_tx *take_free(struct cairn_ctx *ctx)
{
    struct cairn_tx **link = &ctx->tx_free, *tx;

    while (*link != NULL && (*link)->background.left != 0)
        link = &(*link)->next_free;
    if (*link == NULL)
        link = &ctx->tx_free;
    tx = *link;
    *link = tx->next_free;
    return tx;
}

struct cairn_tx *txn_lane_take(struct cairn_ctx *ctx)
{
    if (ctx->tx_free == NULL)
        return NULL;
    struct cairn_tx *tx = take_free(ctx);
    tx->busy = true;
    return tx;
}

void txn_lane_free(struct cairn_tx *tx)
{
    CAIRN_DASSERT(tx->busy);
    tx->busy = false;
    if (tx->open) /* it was begun by the caller, who ends it */
        return;
    tx->next_free = tx->ctx->tx_free;
    tx->ctx->tx_free = tx;
}

static inline void give_free(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    tx->open = false;
    ctx->tx_open--;
    if (tx->busy) /* its stack goes on */
        return;
    tx->next_free = ctx->tx_free;
    ctx->tx_free = tx;
}

/* What came since: notices of lost connections, above all. A context that has just waited for
 * something has seen them. */
void txn_catch_up(struct cairn_ctx *ctx, uint64_t now)
{
    if (CN_LIKELY(now - ctx->seen_ns < TXN_UNSEEN_NS))
        return;
    if (now - ctx->seen_ns >= TXN_IDLE_NS)
        rd_ep_look(ctx->ep);
    for (uint32_t i = 0; i < 8 && txn_poll(ctx); i++)
        ;
}

/* Of one transaction in eight the latency is measured: a look at the clock takes a fiftieth of a
 * short one. Which, falls in with no pattern of the caller's; the first of a context is one. */
static inline bool is_timed(uint64_t count)
{
    return count * UINT64_C(0x9e3779b97f4a7c15) >> 61 == 4;
}

CN_HOT
int txn_begin(struct cairn_ctx *ctx, struct cairn_tx **ret_tx)
{
    struct cairn_tx *tx = ctx->running;
    bool own = tx != NULL && !tx->open; /* the lane's that we are on */
    uint64_t now = 0;

    if (tx == NULL) {
        now = txn_now(ctx);
        txn_catch_up(ctx, now);
    }
    if (CN_UNLIKELY(ctx->lost != 0 || ctx->renewing || ctx->alone)) {
        int rc = txn_session_need(ctx, txn_op_deadline(ctx), false);
        if (rc != 0)
            return rc;
    }
    if (CN_UNLIKELY(ctx->shut))
        return txn_none_free(ctx);
    if (!own) {
        if (ctx->tx_free == NULL)
            return txn_none_free(ctx);
        tx = take_free(ctx);
    }
    ctx->tx_open++;
    if (tx->background.left != 0)
        (void)txn_wait(ctx, &tx->background, TXN_LATER);
    tx->background.status = 0;
    ctx->polled = false;
    txn_set_reset(tx);
    tx->state = TXN_STATE_ACTIVE;
    tx->txid = (struct cn_txid){.coordinator = ctx->session, .count = ++ctx->tx_counter};
    /* On a lane the clock is looked at for what is measured alone. */
    tx->begin_ns = now == 0 && CN_UNLIKELY(is_timed(tx->txid.count)) ? txn_now(ctx) : now;
    tx->open = true;
    *ret_tx = tx;
    return 0;
}

/* Blocks that no record names go back; classes that are low are asked for. */
CN_HOT
static void settle_blocks(struct cairn_tx *tx)
{
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        struct txn_peer *peer = &tx->ctx->peer[k->peer];
        if (k->block == TXN_NONE || tx->ctx->lost != 0)
            continue;
        if (tx->state == TXN_STATE_ABORTED)
            txn_block_return(peer, k->block_class, k->block);
        k->block = TXN_NONE;
        txn_stock_refill(peer, k->block_class);
    }
}

/* The token's sequence belongs to this transaction for ever: not logged, it is void (R15). */
CN_HOT
static void settle_token(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    if (!tx->has_token || tx->state != TXN_STATE_ABORTED || ctx->lost != 0)
        return;
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        if (peer->node != tx->token.node || peer->epoch != tx->token.epoch)
            continue;
        if (CN_MUTANT(c_reuse_sequence)) {
            peer->seq--;
            continue;
        }
        peer->void_seq = tx->token.seq;
        peer->void_txid = tx->txid;
        txn_void_fill(peer, txn_op_deadline(ctx));
    }
}

/* An insert met a full bucket while locks were held: now that they are gone, have it split. */
CN_HOT
static void settle_room(struct cairn_tx *tx)
{
    if (!tx->room_wanted || tx->ctx->lost != 0 || tx->held != 0)
        return;
    tx->room_wanted = false;
    int rc = txn_room(&tx->ctx->peer[tx->room_peer], tx->room_root, tx->room_hash, tx->room_count,
        txn_op_deadline(tx->ctx));
    if (rc == CAIRN_E_POOL_FULL || rc == CAIRN_E_LIMIT) { /* a retry would meet the same bucket */
        tx->error = 0;
        (void)failed(tx, rc);
    }
}

static inline void count_outcome(struct cairn_tx *tx)
{
    struct cairn_stats *s = &tx->ctx->stats;

    switch (tx->state) {
    case TXN_STATE_COMMITTED:
        s->commits++;
        s->commits_read_only += tx->writes == 0;
        if (tx->ctx->polled && tx->begin_ns != 0)
            tx->ctx->seen_ns = tx->begin_ns; /* its waits have seen all that had come by then */
        if (CN_UNLIKELY(is_timed(tx->txid.count)))
            txn_histogram_add(s->commit_latency, txn_now(tx->ctx) - tx->begin_ns);
        break;
    case TXN_STATE_UNKNOWN: s->unknown++; break;
    default: s->aborts_error += tx->error != 0 && tx->error != CAIRN_E_CONFLICT; break;
    }
}

CN_HOT
static void finish(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    CAIRN_DASSERT(txn_state_is_final(tx->state));
    if (tx->state == TXN_STATE_UNKNOWN)
        txn_release(tx, false); /* HELD: of no record; LOGGED ones are the nodes' */
    if (tx->blocks != 0)
        settle_blocks(tx);
    settle_token(tx);
    settle_room(tx);
    count_outcome(tx);
    if (tx->was_logged) {
        ctx->last_token = tx->logged;
        ctx->last_token_valid = true;
    }
    if (tx->participant != NULL)
        txn_log_forget(tx); /* what is kept of the rings for it */
    if (CN_UNLIKELY(tx->has_token))
        ctx->alone = false;
    ctx->progress++; /* lanes may wait for what it had */
    give_free(tx);
    if (CN_UNLIKELY(ctx->lost != 0) && ctx->tx_open == 0)
        txn_session_renew(ctx);
}

/* Does what was read need to be validated, in a transaction that writes nothing? */
static inline bool proves_itself(const struct cairn_tx *tx)
{
    const struct txn_key *only = NULL;
    uint32_t reads = 0;

    for (uint32_t i = 0; i < tx->key_count; i++) {
        if (tx->key[i].read) {
            only = &tx->key[i];
            reads++;
        }
    }
    if (reads == 0)
        return true;
    if (reads > 1)
        return false;
    return !only->recheck || CN_MUTANT(c_skip_absence_recheck); /* T1 */
}

/* Of a transaction that has proved itself: no locks to give back, nothing to settle, no session to
 * end. */
static inline bool has_nothing_to_do(const struct cairn_tx *tx)
{
    return tx->state == TXN_STATE_ACTIVE && tx->lock_count == 0 && !tx->has_token &&
        !tx->room_wanted && tx->ctx->lost == 0;
}

CN_HOT
int txn_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome)
{
    enum txn_event event = TXN_EVENT_COMMIT_WRITE;

    if (tx->writes == 0) {
        event = proves_itself(tx) ? TXN_EVENT_COMMIT_PROVEN : TXN_EVENT_COMMIT_READ;
        if (CN_LIKELY(event == TXN_EVENT_COMMIT_PROVEN && has_nothing_to_do(tx))) {
            (void)step(tx, TXN_EVENT_COMMIT_PROVEN);
            (void)step(tx, TXN_EVENT_RELEASED);
            count_outcome(tx);
            give_free(tx);
            *ret_outcome = CAIRN_OUTCOME_COMMITTED;
            return 0;
        }
    }
    if (tx->state == TXN_STATE_ACTIVE && tx->ctx->lost != 0)
        (void)txn_doom(tx, txn_lost_error(tx->ctx));
    drive_commit(tx, event);
    enum txn_state state = tx->state;
    finish(tx);
    int error = tx->error;
    switch (state) {
    case TXN_STATE_COMMITTED: *ret_outcome = CAIRN_OUTCOME_COMMITTED; return 0;
    case TXN_STATE_UNKNOWN:
        *ret_outcome =
            CN_MUTANT(c_unknown_is_aborted) ? CAIRN_OUTCOME_ABORTED : CAIRN_OUTCOME_UNKNOWN;
        return 0;
    default:
        *ret_outcome = CAIRN_OUTCOME_ABORTED;
        return error == 0 || error == CAIRN_E_CONFLICT ? 0 : cn_fail(error, "%s", tx->error_text);
    }
}

void txn_abort(struct cairn_tx *tx)
{
    if (tx->state == TXN_STATE_ACTIVE)
        tx->ctx->stats.aborts_user++;
    txn_drive(tx, TXN_EVENT_ABORT);
    finish(tx);
}
