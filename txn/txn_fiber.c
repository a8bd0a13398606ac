/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_fiber.c: many transactions of one context at once. What runs beside the caller runs on a
 * stack of its own, one per transaction that may be in flight (a *lane*: struct cairn_tx). The code
 * is that of the calls that wait; where it would wait it leaves its stack instead, *parked* until
 * its batch is empty, until something has happened, or until a time. Whoever polls (cairn_poll(),
 * or a call that waits on the caller's stack) then enters the stacks of those that may go on.
 *
 * One turn: send out what was posted, take events, go on with every lane that may. So what all of
 * them post in a turn goes out together, in txn_ring().
 *
 * Why nothing waits for ever
 * - A lane parked for a batch waits for the fabric alone: completions come from polls, whoever
 *   makes them, and past its deadline the connections that owe one are dropped.
 * - A lane parked for something to happen has a deadline, and looks again whenever events came or
 *   another lane got on; so nothing that it could wait for passes unnoticed.
 * - What lanes wait for of each other: space promised in a ring and room in the staging (whoever
 *   has some waits for the fabric alone until it gives it back: no lock is waited for by who holds
 *   a lock, space is promised for all records of a transaction or for none); a connection or a
 *   grant on its way (awaited with a deadline of its own); the end of other transactions, before a
 *   session can be renewed: only by lanes that have no transaction open, and which so hold nothing
 *   at all. Who renews the session waits for the fabric alone, with deadlines.
 * - The caller's stack waits in the same way, and goes on with all lanes meanwhile; lanes never
 *   wait for the caller, except for the end of transactions that it has open, and then by a
 *   deadline.
 */
#include "txn/txn_ctx.h"

#include <errno.h>

#define CLOCK_TURNS 64u /* turns between two looks at the clock; */
#define PAUSE_TURNS 8u  /* while somebody waits for a time */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STACK_SIZE (4 * CAIRN_STACK_SIZE) /* frames are larger */
#else
#define STACK_SIZE (CAIRN_STACK_SIZE + 32u * 1024) /* the user's, and ours above it */
#endif

int txn_stacks_open(struct cairn_ctx *ctx)
{
    ctx->stacks = cn_stacks_map(ctx->tx_count, STACK_SIZE);
    ctx->ready_end = &ctx->ready;
    ctx->done_end = &ctx->done;
    if (ctx->stacks == NULL)
        return cn_fail(-errno, "%u stacks of %u bytes: %s", ctx->tx_count, STACK_SIZE,
            strerror(errno));
    return 0;
}

void txn_stacks_close(struct cairn_ctx *ctx)
{
    for (uint32_t i = 0; i < ctx->tx_count; i++)
        cn_fiber_fini(&ctx->tx[i].fiber);
    cn_stacks_unmap(ctx->stacks, ctx->tx_count, STACK_SIZE);
    ctx->stacks = NULL;
}

/* ---- parking ---- */

static void append_ready(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    tx->next_ready = NULL;
    *ctx->ready_end = tx;
    ctx->ready_end = &tx->next_ready;
}

CN_HOT
void txn_ready(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_parked *p = &ctx->parked[tx->at];

    CAIRN_DASSERT(p->kind != TXN_RUNS);
    ctx->sleepers -= p->kind != TXN_PARKED_BATCH;
    p->kind = TXN_RUNS;
    append_ready(tx);
}

/* Leave this stack until txn_ready(). */
CN_HOT
static void park(struct cairn_ctx *ctx, enum txn_parking kind, uint64_t wake_ns)
{
    struct cairn_tx *tx = ctx->running;
    struct txn_parked *p = &ctx->parked[tx->at];

    if (kind != TXN_PARKED_EVENT)
        ctx->progress++; /* it got on */
    p->kind = kind;
    p->seen = ctx->progress;
    p->wake_ns = wake_ns;
    ctx->sleepers += kind != TXN_PARKED_BATCH;
    cn_fiber_leave(&tx->fiber);
}

CN_HOT
void txn_park_batch(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    CAIRN_DASSERT(batch->left != 0 && batch->waiter == NULL);
    batch->waiter = ctx->running;
    ctx->parked[ctx->running->at].batch = batch;
    park(ctx, TXN_PARKED_BATCH, deadline_ns);
    CAIRN_DASSERT(batch->left == 0 && batch->waiter == NULL);
}

void txn_park_event(struct cairn_ctx *ctx, uint64_t deadline_ns)
{
    park(ctx, TXN_PARKED_EVENT, deadline_ns);
}

void txn_park_time(struct cairn_ctx *ctx, uint64_t until_ns)
{
    park(ctx, TXN_PARKED_TIME, until_ns);
}

void txn_park_turn(struct cairn_ctx *ctx)
{
    struct cairn_tx *tx = ctx->running;

    append_ready(tx);
    cn_fiber_leave(&tx->fiber);
}

/* ---- turns ---- */

static void give_back(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    ctx->progress++;
    ctx->lanes--;
    if (tx->op == NULL) {
        txn_lane_free(tx);
        return;
    }
    tx->next_ready = NULL; /* to be told by cairn_poll() */
    *ctx->done_end = tx;
    ctx->done_end = &tx->next_ready;
    ctx->done_count++;
}

CN_HOT
static void enter(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;

    for (;;) {
        ctx->running = tx;
        cn_fiber_enter(&tx->fiber);
        ctx->running = NULL;
        if (CN_LIKELY(tx->errand == NULL))
            break;
        int (*errand)(void *) = tx->errand;
        tx->errand = NULL;
        tx->errand_result = errand(tx->errand_arg);
    }
    if (tx->main == NULL)
        give_back(tx);
}

/* Those that are ready now; who gets ready meanwhile has to wait for the next turn, which polls. */
CN_HOT
static bool run_ready(struct cairn_ctx *ctx)
{
    struct cairn_tx *tx = ctx->ready;

    if (tx == NULL)
        return false;
    ctx->ready = NULL;
    ctx->ready_end = &ctx->ready;
    while (tx != NULL) {
        struct cairn_tx *next = tx->next_ready;
        enter(tx);
        tx = next;
    }
    return true;
}

/* Something happened since: those that wait for something look again. */
static void wake_sleepers(struct cairn_ctx *ctx)
{
    ctx->woken = ctx->progress;
    for (uint32_t i = 0; i < ctx->tx_count; i++) {
        struct txn_parked *p = &ctx->parked[i];
        if ((p->kind == TXN_PARKED_EVENT && p->seen != ctx->progress) ||
            (p->kind == TXN_PARKED_TIME && ctx->lost != 0))
            txn_ready(&ctx->tx[i]);
    }
}

static void expire(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;
    const struct txn_parked *p = &ctx->parked[tx->at];

    if (p->kind != TXN_PARKED_BATCH) {
        txn_ready(tx);
        return;
    }
    while (txn_poll(ctx))
        ;
    if (p->kind == TXN_PARKED_BATCH)
        txn_drop_debtors(ctx, p->batch);
    CAIRN_ASSERT(p->kind == TXN_RUNS);
}

/* Deadlines count from the first look. Returns when the first is due; UINT64_MAX: never. */
static uint64_t look_at_clock(struct cairn_ctx *ctx)
{
    uint64_t now = txn_now(ctx), due = UINT64_MAX;

    for (uint32_t i = 0; i < ctx->tx_count; i++) {
        struct txn_parked *p = &ctx->parked[i];
        if (p->kind == TXN_RUNS)
            continue;
        if (p->wake_ns == TXN_LATER)
            p->wake_ns = now + (uint64_t)ctx->cluster->options.op_timeout_ms * 1000000u;
        if (now >= p->wake_ns)
            expire(&ctx->tx[i]);
        else
            due = cn_min64(due, p->wake_ns);
    }
    return due;
}

static bool may_wake(const struct cairn_ctx *ctx)
{
    return ctx->sleepers != 0 && ctx->woken != ctx->progress;
}

CN_HOT
bool txn_turn(struct cairn_ctx *ctx)
{
    uint32_t turns = ++ctx->turns;

    if (CN_UNLIKELY(may_wake(ctx)))
        wake_sleepers(ctx);
    if (CN_UNLIKELY(turns % CLOCK_TURNS == 0 || (ctx->sleepers != 0 && turns % PAUSE_TURNS == 0)))
        (void)look_at_clock(ctx);
    return run_ready(ctx);
}

uint64_t txn_lanes_due(struct cairn_ctx *ctx)
{
    if (ctx->lanes == 0)
        return UINT64_MAX;
    if (ctx->ready != NULL || may_wake(ctx))
        return 0;
    uint64_t due = look_at_clock(ctx);
    return ctx->ready != NULL ? 0 : due;
}

/* ---- lanes ---- */

static void run_lane(void *arg)
{
    struct cairn_tx *tx = arg;

    for (;;) {
        tx->main(tx->main_arg);
        tx->main = NULL;
        cn_fiber_leave(&tx->fiber);
    }
}

void txn_start(struct cairn_tx *tx, void (*main)(void *arg), void *arg)
{
    struct cairn_ctx *ctx = tx->ctx;

    CAIRN_DASSERT(tx->busy && tx->main == NULL);
    if (CN_UNLIKELY(tx->fiber.sp == NULL))
        cn_fiber_init(&tx->fiber, cn_stacks_at(ctx->stacks, tx->at, STACK_SIZE), STACK_SIZE,
            run_lane, tx);
    tx->main = main;
    tx->main_arg = arg;
    ctx->thread = pthread_self();
    ctx->lanes++;
    if (ctx->running == NULL)
        enter(tx);
    else
        append_ready(tx);
}

int txn_spawn(struct cairn_ctx *ctx, void (*main)(void *arg), void *arg)
{
    struct cairn_tx *tx = txn_lane_take(ctx);

    if (tx == NULL)
        return txn_none_free(ctx);
    txn_start(tx, main, arg);
    return 0;
}

int txn_on_caller(struct cairn_ctx *ctx, int (*errand)(void *arg), void *arg)
{
    struct cairn_tx *tx = ctx->running;

    if (tx == NULL)
        return errand(arg);
    tx->errand = errand;
    tx->errand_arg = arg;
    cn_fiber_leave(&tx->fiber);
    return tx->errand_result;
}
