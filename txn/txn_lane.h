/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_lane.h: many transactions of one context: stacks of their own, and operations that are begun.
 * The last part of txn_ctx.h, which includes it.
 */
#ifndef TXN_LANE_H
#define TXN_LANE_H

#include "txn/txn_ctx.h"

/* ---- txn_fiber.c: lanes on stacks of their own ---- */
CN_MUST_CHECK int txn_stacks_open(struct cairn_ctx *ctx);
void txn_stacks_close(struct cairn_ctx *ctx);
/* Run main(arg) on a stack of its own (a lane's), now, until it waits, and on from polls. It uses
 * the calls that wait; a transaction it begins is the lane's. Errors: CAIRN_E_STATE (no lane is
 * free). */
CN_MUST_CHECK int txn_spawn(struct cairn_ctx *ctx, void (*main)(void *arg), void *arg);
/* The same on a lane that was taken. */
void txn_start(struct cairn_tx *tx, void (*main)(void *arg), void *arg);
/* One turn, after a poll: go on with all that may. True: somebody did. */
bool txn_turn(struct cairn_ctx *ctx);
/* When a lane is to go on without an event: 0 at once, UINT64_MAX never. */
uint64_t txn_lanes_due(struct cairn_ctx *ctx);
/* On a lane's stack: leave it until the batch is empty; until something happens, or the deadline;
 * until a time, or the session is lost; for a turn. */
void txn_park_batch(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns);
void txn_park_event(struct cairn_ctx *ctx, uint64_t deadline_ns);
void txn_park_time(struct cairn_ctx *ctx, uint64_t until_ns);
void txn_park_turn(struct cairn_ctx *ctx);
/* Of txn_wait(), below: a batch that has failed, on a lane; all of it, on the caller's stack. */
int txn_wait_failed(struct cairn_ctx *ctx, const struct txn_batch *batch);
int txn_wait_here(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns);
int txn_wait_trip_here(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns);
/* What it is parked for has come. */
void txn_ready(struct cairn_tx *tx);
/* Run what may need a larger stack, or does not wait for our events, on the caller's. */
int txn_on_caller(struct cairn_ctx *ctx, int (*errand)(void *arg), void *arg);

/* Wait until the batch is empty. Connections that owe a completion at the deadline are dropped
 * (their operations get CAIRN_E_TIMEOUT), so the batch is always empty on return. Returns
 * batch->status. On a lane nothing is called but what leaves its stack: each return after that is
 * mispredicted. */
static inline int txn_wait(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    if (ctx->running == NULL)
        return txn_wait_here(ctx, batch, deadline_ns);
    if (CN_LIKELY(batch->left != 0))
        txn_park_batch(ctx, batch, deadline_ns);
    return CN_LIKELY(batch->status == 0) ? 0 : txn_wait_failed(ctx, batch);
}
/* The same, and counts a round trip on the critical path if there is anything to wait for. */
static inline int txn_wait_trip(
    struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    if (ctx->running == NULL)
        return txn_wait_trip_here(ctx, batch, deadline_ns);
    ctx->stats.round_trips += batch->left != 0;
    return txn_wait(ctx, batch, deadline_ns);
}

/* ---- txn_api.c ---- */
/* Around each public call: one thread at a time. On a lane's stack it is part of who has entered.
 */
static inline void txn_enter(struct cairn_ctx *ctx)
{
#ifndef NDEBUG
    CAIRN_ASSERT(ctx->running == NULL ? !ctx->inside : pthread_equal(ctx->thread, pthread_self()));
    ctx->inside |= ctx->running == NULL;
    ctx->thread = pthread_self();
#else
    (void)ctx;
#endif
}
static inline int txn_leave(struct cairn_ctx *ctx, int rc)
{
#ifndef NDEBUG
    ctx->inside &= ctx->running != NULL;
#else
    (void)ctx;
#endif
    return rc;
}
/* It is open, and no operation of it is under way but the body that calls. */
CN_MUST_CHECK static inline int txn_check_open(const struct cairn_tx *tx)
{
    if (CN_UNLIKELY(!tx->open))
        return cn_fail(CAIRN_E_STATE, "the transaction has ended");
    if (CN_UNLIKELY(tx->busy) && tx->ctx->running != tx)
        return cn_fail(CAIRN_E_STATE, "an operation of the transaction is under way");
    return 0;
}
/* ... and has not failed. */
CN_MUST_CHECK int txn_check_active(const struct cairn_tx *tx);
/* What a read that was answered returns. */
int txn_answer(const struct cairn_read *r, size_t *ret_size);

/* ---- txn_async.c ---- */
/* Wait until nothing is under way on its stack; it is told later. */
void txn_await_lane(struct cairn_tx *tx);
/* On the caller's stack: carry on until nothing is under way on any lane's, and tell what was done.
 * Sleeps between as the pace says. False: what was told has closed the context. */
bool txn_await_lanes(struct cairn_ctx *ctx);
/* Nothing begins any more: carry all that is under way to its end, and tell it. */
bool txn_drain(struct cairn_ctx *ctx);
/* The context goes: those that are telling are not to touch it any more. */
void txn_tell_gone(struct cairn_ctx *ctx);

#endif
