/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_async.c: operations that are begun and told when they are done. Each runs on the stack of its
 * transaction's lane (txn_fiber.c); what came of it waits there until cairn_poll() tells it, and
 * until then the lane is nobody else's. Nothing else ever tells: so `done` is called on the stack
 * of who has called cairn_poll(), cairn_wait() or cairn_ctx_close(), never inside another call. It
 * may close the context: who has called it finds that in its frame (struct txn_awaited) and touches
 * the context no more.
 */
#include "txn/txn_ctx.h"

/* ---- an operation ---- */

/* On the lane: it is over; the text is kept, as others overwrite it. */
static void finish(struct cairn_tx *tx, int rc)
{
    tx->result = rc;
    if (rc != 0)
        cn_error_copy(tx->result_text, sizeof(tx->result_text));
}

static int begin(struct cairn_tx *tx, struct cairn_op *op, void (*main)(void *arg))
{
    op->result = CAIRN_PENDING;
    op->outcome = CAIRN_OUTCOME_NONE;
    op->tries = 0;
    op->value_size = 0;
    op->token[0] = '\0';
    tx->busy = true;
    tx->op = op;
    txn_start(tx, main, tx);
    return 0;
}

static void name_token(const struct cairn_ctx *ctx, struct cairn_op *op, const struct txn_token *t)
{
    if (op->outcome == CAIRN_OUTCOME_UNKNOWN)
        txn_token_format(t, &ctx->cluster->config->cluster, op->token);
}

static void get_main(void *arg)
{
    struct cairn_tx *tx = arg;
    int rc = txn_get(tx, &tx->call.one);

    finish(tx, rc != 0 ? txn_doom(tx, rc) : txn_answer(&tx->call.one, &tx->op->value_size));
}

static void get_many_main(void *arg)
{
    struct cairn_tx *tx = arg;
    int rc = txn_get_many(tx, tx->call.reads, tx->call.count);

    finish(tx, rc == 0 ? 0 : txn_doom(tx, rc));
}

static void commit_main(void *arg)
{
    struct cairn_tx *tx = arg;
    int rc = txn_commit(tx, &tx->op->outcome);

    name_token(tx->ctx, tx->op, &tx->logged);
    finish(tx, rc);
}

static void abort_main(void *arg)
{
    struct cairn_tx *tx = arg;

    txn_abort(tx);
    tx->op->outcome = CAIRN_OUTCOME_ABORTED;
    finish(tx, 0);
}

static void run_main(void *arg)
{
    struct cairn_tx *tx = arg;
    struct cairn_run_result result;
    struct txn_token token;
    int rc = txn_run(tx->ctx, tx->call.fn, tx->call.arg, tx->call.timeout_ms, &result, &token);

    tx->op->outcome = result.outcome;
    tx->op->tries = result.tries;
    name_token(tx->ctx, tx->op, &token);
    finish(tx, rc);
}

/* ---- to begin ---- */

/* Nor is it under way in the body that calls: its stack is taken. */
static int check_idle(const struct cairn_tx *tx, int rc)
{
    if (rc != 0 || !tx->busy)
        return rc;
    return cn_fail(CAIRN_E_STATE, "the transaction's own body uses the calls that wait");
}

static int get_async(struct cairn_tx *tx, struct cairn_read r, struct cairn_op *op)
{
    txn_enter(tx->ctx);
    int rc = check_idle(tx, txn_check_active(tx));
    if (rc == 0) {
        tx->call.one = r;
        rc = begin(tx, op, get_main);
    }
    return txn_leave(tx->ctx, rc);
}

int cairn_get_async(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, struct cairn_op *op)
{
    return get_async(tx,
        (struct cairn_read){
            .table = table, .key = key, .key_size = key_size, .buf = buf, .buf_size = buf_size},
        op);
}

int cairn_get_for_update_async(struct cairn_tx *tx, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t buf_size, struct cairn_op *op)
{
    return get_async(tx,
        (struct cairn_read){.table = table,
            .key = key,
            .key_size = key_size,
            .buf = buf,
            .buf_size = buf_size,
            .for_update = 1},
        op);
}

int cairn_get_many_async(
    struct cairn_tx *tx, struct cairn_read *reads, size_t count, struct cairn_op *op)
{
    txn_enter(tx->ctx);
    int rc = check_idle(tx, txn_check_active(tx));
    if (rc == 0) {
        tx->call.reads = reads;
        tx->call.count = count;
        rc = begin(tx, op, get_many_main);
    }
    return txn_leave(tx->ctx, rc);
}

static int end_async(struct cairn_tx *tx, struct cairn_op *op, void (*main)(void *arg))
{
    txn_enter(tx->ctx);
    int rc = check_idle(tx, txn_check_open(tx));
    return txn_leave(tx->ctx, rc == 0 ? begin(tx, op, main) : rc);
}

int cairn_commit_async(struct cairn_tx *tx, struct cairn_op *op)
{
    return end_async(tx, op, commit_main);
}

int cairn_abort_async(struct cairn_tx *tx, struct cairn_op *op)
{
    return end_async(tx, op, abort_main);
}

int cairn_run_async(
    struct cairn_ctx *ctx, cairn_tx_fn fn, void *arg, uint32_t timeout_ms, struct cairn_op *op)
{
    txn_enter(ctx);
    if (ctx->running == NULL && ctx->lanes == 0) /* else somebody polls */
        txn_catch_up(ctx, txn_now(ctx));
    struct cairn_tx *tx = ctx->shut ? NULL : txn_lane_take(ctx);
    if (tx == NULL)
        return txn_leave(ctx, txn_none_free(ctx));
    tx->call.fn = fn;
    tx->call.arg = arg;
    tx->call.timeout_ms = timeout_ms;
    return txn_leave(ctx, begin(tx, op, run_main));
}

/* ---- to carry on, and to tell ---- */

/* A frame that is its own outer one: the context is gone. */
static bool is_gone(const struct txn_awaited *frame)
{
    return frame->outer == frame;
}

static void begin_frame(struct cairn_ctx *ctx, struct txn_awaited *frame)
{
    frame->outer = ctx->awaited;
    ctx->awaited = frame;
}

/* False: the context is gone. */
static bool end_frame(struct cairn_ctx *ctx, const struct txn_awaited *frame)
{
    if (is_gone(frame))
        return false;
    ctx->awaited = frame->outer;
    return true;
}

void txn_tell_gone(struct cairn_ctx *ctx)
{
    struct txn_awaited *frame = ctx->awaited;

    while (frame != NULL) {
        struct txn_awaited *outer = frame->outer;
        frame->outer = frame;
        frame = outer;
    }
}

/* False: it has closed the context. */
static bool call_done(struct cairn_ctx *ctx, struct cairn_op *op)
{
    struct txn_awaited frame; /* its text is of no use */

    if (op->done == NULL)
        return true;
    frame.op = NULL;
    begin_frame(ctx, &frame);
    (void)txn_leave(ctx, 0); /* it may call anything */
    op->done(op);
    if (!end_frame(ctx, &frame))
        return false;
    txn_enter(ctx);
    return true;
}

/* Tell what is done now; what gets done by that has to wait for the next call. False: the context
 * is gone. */
static bool tell(struct cairn_ctx *ctx, uint32_t *ret_told)
{
    uint32_t told = 0;

    *ret_told = 0;
    for (uint32_t left = ctx->done_count; left != 0 && ctx->done != NULL; left--) {
        struct cairn_tx *tx = ctx->done;
        struct cairn_op *op = tx->op;
        int result = tx->result;
        ctx->done = tx->next_ready;
        if (ctx->done == NULL)
            ctx->done_end = &ctx->done;
        ctx->done_count--;
        if (result != 0)
            (void)cn_fail_plain(result, tx->result_text);
        for (struct txn_awaited *a = ctx->awaited; a != NULL; a = a->outer) {
            if (a->op == op && result != 0)
                memcpy(a->text, tx->result_text, sizeof(a->text));
        }
        tx->op = NULL;
        txn_lane_free(tx);
        op->result = result;
        *ret_told = ++told;
        if (!call_done(ctx, op))
            return false;
    }
    return true;
}

/* Turns, until something is done, or nothing comes and nobody may go on. */
static void carry_on(struct cairn_ctx *ctx)
{
    bool more;

    do {
        more = txn_poll(ctx);
        more |= txn_turn(ctx);
    } while (more && ctx->done == NULL);
    txn_ring(ctx);
}

uint32_t cairn_poll(struct cairn_ctx *ctx)
{
    if (ctx->running != NULL) /* inside a body: who has entered it polls */
        return 0;
    uint32_t told;

    txn_enter(ctx);
    carry_on(ctx);
    if (tell(ctx, &told))
        (void)txn_leave(ctx, 0);
    return told;
}

/* False: it is not under way here. */
static bool await(struct cairn_ctx *ctx, const struct txn_awaited *a)
{
    uint32_t idle = 0;

    while (a->op->result == CAIRN_PENDING) {
        if (is_gone(a) || (ctx->lanes == 0 && ctx->done == NULL))
            return false;
        if (cairn_poll(ctx) != 0) {
            idle = 0;
            continue;
        }
        txn_enter(ctx);
        txn_idle(ctx, &idle, UINT64_MAX);
        (void)txn_leave(ctx, 0);
    }
    return true;
}

/* Out of line: a compiler that sees both ends takes the frame, left in the list of a context that
 * is gone, for a mistake. */
__attribute__((noinline)) static int await_with_text(struct cairn_ctx *ctx, struct txn_awaited *a)
{
    begin_frame(ctx, a);
    bool done = await(ctx, a);
    (void)end_frame(ctx, a);
    if (!done)
        return cn_fail(CAIRN_E_STATE, "the operation is not under way in this context");
    return a->op->result == 0 ? 0 : cn_fail(a->op->result, "%s", a->text);
}

int cairn_wait(struct cairn_ctx *ctx, struct cairn_op *op)
{
    struct txn_awaited awaited = {.op = op};

    if (ctx->running != NULL)
        return cn_fail(CAIRN_E_STATE, "a body on a stack of its own waits for its own calls only");
    return op->result != CAIRN_PENDING ? op->result : await_with_text(ctx, &awaited);
}

/* ---- the caller's own loop ---- */

int cairn_fd(struct cairn_ctx *ctx)
{
    return rd_ep_fd(ctx->ep);
}

int cairn_arm(struct cairn_ctx *ctx)
{
    int timeout_ms = 0;

    if (ctx->running != NULL)
        return 0;
    txn_enter(ctx);
    uint64_t due = ctx->done != NULL ? 0 : txn_lanes_due(ctx);
    if (due != 0) {
        rd_ep_arm(ctx->ep);
        if (!txn_poll(ctx) && ctx->ready == NULL) {
            uint64_t now = due == UINT64_MAX ? 0 : txn_now(ctx);
            /* What is less than a millisecond away is polled for. */
            timeout_ms = due == UINT64_MAX ? -1
                : due <= now               ? 0
                                           : (int)cn_min64((due - now) / 1000000, INT32_MAX);
        }
    }
    return txn_leave(ctx, timeout_ms);
}

/* ---- the end ---- */

void txn_await_lane(struct cairn_tx *tx)
{
    struct cairn_ctx *ctx = tx->ctx;
    uint32_t idle = 0;

    if (ctx->running != NULL)
        return; /* its own, or another's that a body must not end */
    while (tx->main != NULL) {
        bool more = txn_poll(ctx);
        more |= txn_turn(ctx);
        if (!more)
            txn_idle(ctx, &idle, UINT64_MAX);
    }
}

bool txn_drain(struct cairn_ctx *ctx)
{
    ctx->shut = true;
    ctx->progress++;
    return txn_await_lanes(ctx);
}

bool txn_await_lanes(struct cairn_ctx *ctx)
{
    uint32_t idle = 0, told;

    while (ctx->lanes != 0 || ctx->done != NULL) {
        carry_on(ctx);
        if (!tell(ctx, &told))
            return false;
        if (told != 0)
            idle = 0;
        else if (ctx->lanes != 0)
            txn_idle(ctx, &idle, UINT64_MAX);
    }
    return true;
}
