/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_run.c: cairn_run() and the way from a token to a verdict. An operation is run again only
 * after the verdict ABORTED (R15): an UNKNOWN outcome is resolved first, in a new session, or
 * returned.
 */
#include "txn/txn_ctx.h"

static struct txn_peer *peer_of_node(struct cairn_ctx *ctx, uint16_t node)
{
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        if (ctx->peer[i].node == node)
            return &ctx->peer[i];
    }
    return NULL;
}

/* One question. 0 with a verdict, CAIRN_E_IN_DOUBT, or what reaching the node said. */
static int ask_verdict(struct txn_peer *peer, const struct txn_token *token, uint64_t deadline_ns,
    enum cairn_outcome *ret_outcome)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct rd_ask_wire ask = {.place = {
                                  .coordinator = token->txid.coordinator,
                                  .count = le64_make(token->txid.count),
                                  .epoch = le64_make(token->epoch),
                                  .seq = le64_make(token->seq),
                                  .view = le32_make(ctx->cluster->config->view),
                                  .slot = le16_make(token->slot),
                                  .node = le16_make(token->node),
                              }};

    struct txn_request reply;

    int rc = txn_peer_need(peer);
    if (rc == 0)
        rc = txn_ask(peer, RD_MSG_RESOLVE, &ask, sizeof(ask), deadline_ns, &reply);
    if (rc != 0)
        return rc;
    switch (le32_get(reply.body.answer.verdict)) {
    case RD_VERDICT_COMMITTED: *ret_outcome = CAIRN_OUTCOME_COMMITTED; return 0;
    case RD_VERDICT_ABORTED: *ret_outcome = CAIRN_OUTCOME_ABORTED; return 0;
    case RD_VERDICT_FORGOTTEN:
        return cn_fail(CAIRN_E_EXPIRED, "node %u (%s): no longer keeps the verdict of this token",
            peer->node, peer->address);
    case RD_VERDICT_IN_DOUBT:
        return cn_fail(CAIRN_E_IN_DOUBT,
            "node %u (%s): the verdict needs a participant that it cannot reach; see `cairn "
            "inspect`",
            peer->node, peer->address);
    default:
        return cn_fail(
            CAIRN_E_PROTOCOL, "node %u (%s): an impossible verdict", peer->node, peer->address);
    }
}

int txn_resolve(struct cairn_ctx *ctx, const struct txn_token *token, uint64_t deadline_ns,
    enum cairn_outcome *ret_outcome)
{
    struct txn_peer *peer = peer_of_node(ctx, token->node);

    if (peer == NULL)
        return cn_fail(CAIRN_E_TOKEN, "the token names node %u, which is not in %s", token->node,
            ctx->cluster->config->path);
    for (uint32_t tries = 0;; tries++) {
        int rc = txn_session_need(ctx, deadline_ns, true);
        if (rc == 0)
            rc = ask_verdict(peer, token, deadline_ns, ret_outcome);
        bool again = rc == CAIRN_E_IN_DOUBT || rc == CAIRN_E_AGAIN || txn_may_come_back(rc);
        if (!again)
            return rc;
        uint64_t until = txn_now(ctx) + 2000000u + txn_backoff_ns(ctx, tries + 4);
        if (until >= deadline_ns)
            return rc;
        rc = txn_session_need(ctx, deadline_ns, true);
        if (rc != 0)
            return rc;
        txn_pause(ctx, until);
    }
}

/* ---- cairn_run ---- */

/* One try. 0: *outcome says what became of it; else an error, nothing done. */
static int run_once(struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, enum cairn_outcome *outcome,
    struct txn_token *ret_token, uint64_t *begun_ns)
{
    struct cairn_tx *tx;

    *outcome = CAIRN_OUTCOME_NONE;
    int rc = cairn_begin(ctx, &tx);
    if (rc != 0)
        return rc;
    if (*begun_ns == 0)
        *begun_ns = tx->begin_ns;
    rc = fn(tx, arg);
    if (rc == 0) {
        rc = cairn_commit(tx, outcome);
        if (*outcome == CAIRN_OUTCOME_UNKNOWN)
            *ret_token = tx->logged;
        return rc;
    }
    *outcome = CAIRN_OUTCOME_ABORTED;
    if (rc == CAIRN_E_CONFLICT) { /* it is run again, or the error is another */
        cairn_abort(tx);
        return rc;
    }
    char text[256];
    cn_error_copy(text, sizeof(text));
    cairn_abort(tx);
    return cn_fail_plain(rc, text);
}

/* UNKNOWN becomes a verdict, or the error IN_DOUBT. */
static int settle(struct cairn_ctx *ctx, const struct txn_token *token, uint64_t deadline_ns,
    enum cairn_outcome *outcome)
{
    enum cairn_outcome verdict = CAIRN_OUTCOME_UNKNOWN;

    int rc = txn_resolve(ctx, token, deadline_ns, &verdict);
    if (rc == 0) {
        *outcome = verdict;
        return 0;
    }
    return cn_fail_context(CAIRN_E_IN_DOUBT, "outcome unknown, ask again with cairn_ctx_token(): ");
}

int cairn_run(struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms,
    struct cairn_run_result *ret)
{
    struct cairn_run_result result;
    struct txn_token token;
    int rc = txn_run(ctx, fn, arg, timeout_ms, &result, &token);

    if (ret != NULL)
        *ret = result;
    return rc;
}

int txn_run(struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms,
    struct cairn_run_result *ret, struct txn_token *ret_token)
{
    /* Not a struct: two stores of 4 bytes that are copied as one of 8 wait for all stores before,
     * marks among them. */
    enum cairn_outcome outcome = CAIRN_OUTCOME_NONE;
    uint32_t tries = 0;
    uint64_t span = (uint64_t)timeout_ms * 1000000u, begun = 0;
    int rc;

    for (;;) {
        /* Nothing was lost, nearly always; else all that were open have to end first. */
        bool ready = CN_LIKELY(ctx->lost == 0 && !ctx->renewing && !ctx->alone);
        if (CN_UNLIKELY(!ready && begun == 0))
            begun = txn_now(ctx);
        rc = ready ? 0 : txn_session_need(ctx, begun + span, true);
        if (rc != 0)
            break;
        tries++;
        rc = run_once(ctx, fn, arg, &outcome, ret_token, &begun);
        if (CN_LIKELY(rc == 0 && outcome == CAIRN_OUTCOME_COMMITTED))
            break;
        uint64_t now = txn_now(ctx);
        if (begun == 0) /* of the first nobody has looked at the clock, or it has not begun */
            begun = now;
        if (rc == 0 && outcome == CAIRN_OUTCOME_UNKNOWN)
            rc = settle(ctx, ret_token, begun + span, &outcome);
        bool again = rc == 0 ? outcome == CAIRN_OUTCOME_ABORTED
                             : rc == CAIRN_E_CONFLICT || rc == CAIRN_E_FENCED;
        if (!again)
            break;
        uint64_t until = txn_now(ctx) + txn_backoff_ns(ctx, tries);
        if (until >= begun + span) {
            rc = cn_fail(CAIRN_E_TIMEOUT,
                "not committed within %u ms and %u tries; it has had no effect", timeout_ms,
                tries);
            break;
        }
        txn_pause(ctx, until);
    }
    ret->outcome = outcome;
    ret->tries = tries;
    return rc;
}
