/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_ctx.c: a coordinator context: its memory, the event loop, posting and waiting.
 *
 * A wr_id is (generation << 32 | index in ctx->op); a completion whose generation does not fit is
 * ignored. Waiting polls for as long as the pace (cn_pace.h) says, then arms, looks once more and
 * sleeps until the deadline.
 */
#include "txn/txn_ctx.h"

#include <errno.h>

#define TXN_CLOCK_TURNS 64u /* polls between two looks at the clock */

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* ---- memory ---- */

struct layout {
    size_t used;
};

static void *carve(uint8_t *base, struct layout *l, size_t size)
{
    size_t at = l->used;

    l->used += (size_t)cn_align_up(size, 64);
    return base == NULL ? NULL : base + at;
}

/* Lay everything out in one block; with base NULL only the size is found out. */
static size_t place_all(struct cairn_ctx *ctx, uint8_t *base, uint32_t peers, uint32_t tables)
{
    struct layout l = {0};
    struct cairn_ctx scratch;

    if (ctx == NULL)
        ctx = &scratch;
    (void)carve(base, &l, sizeof(*ctx));
    ctx->peer = carve(base, &l, sizeof(*ctx->peer) * peers);
    ctx->index = carve(base, &l, sizeof(*ctx->index) * peers * tables);
    ctx->map = carve(base, &l, sizeof(*ctx->map) * TXN_MAP_SETS);
    ctx->name = carve(base, &l, sizeof(*ctx->name) * TXN_NAMES);
    ctx->op = carve(base, &l, sizeof(*ctx->op) * TXN_OPS_MAX);
    ctx->look = carve(base, &l, sizeof(*ctx->look) * TXN_LOOKS_MAX);
    ctx->tx.key = carve(base, &l, sizeof(*ctx->tx.key) * CAIRN_TX_KEYS_MAX);
    ctx->tx.lock = carve(base, &l, sizeof(*ctx->tx.lock) * TXN_LOCKS_MAX);
    ctx->tx.values_size = (uint64_t)peers * CAIRN_TX_BYTES_MAX + CAIRN_VALUE_SIZE_MAX;
    ctx->tx.values = carve(base, &l, ctx->tx.values_size);
    return l.used;
}

/* The arena: for objects scratch and words; behind that, for rings (*ret_log_size bytes), per peer
 * position, line and staging. */
static size_t place_arena(
    struct cairn_ctx *ctx, uint8_t *base, uint32_t peers, size_t *ret_log_size)
{
    struct layout l = {0};
    uint8_t *scratch = carve(base, &l, TXN_SCRATCH_SIZE);
    uint8_t *words = carve(base, &l, sizeof(uint64_t) * (TXN_LOCKS_MAX + CAIRN_TX_KEYS_MAX));
    size_t object_size = l.used;
    uint8_t *positions = carve(base, &l, (size_t)peers * 64);
    uint8_t *lines = carve(base, &l, (size_t)peers * (PM_RECORD_VOID_SIZE + 64));
    uint8_t *staging = carve(base, &l, (size_t)peers * TXN_STAGING_SIZE);

    *ret_log_size = l.used - object_size;
    if (base == NULL)
        return l.used;
    ctx->scratch = scratch;
    ctx->words = (uint64_t *)(void *)words;
    ctx->staging = staging;
    for (uint32_t i = 0; i < peers; i++) {
        ctx->peer[i].position = (struct rd_position_wire *)(void *)(positions + (size_t)i * 64);
        ctx->peer[i].line = lines + (size_t)i * (PM_RECORD_VOID_SIZE + 64);
    }
    return l.used;
}

static void init_lists(struct cairn_ctx *ctx)
{
    const struct txn_config *config = ctx->cluster->config;

    for (uint32_t i = 0; i < TXN_OPS_MAX; i++)
        ctx->op[i].next_free = i + 1 < TXN_OPS_MAX ? i + 1 : TXN_NONE;
    ctx->op_free = 0;
    for (uint32_t i = 0; i < TXN_LOCKS_MAX; i++)
        ctx->tx.lock[i].old = ctx->words + i;
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        struct txn_peer *peer = &ctx->peer[i];
        peer->ctx = ctx;
        peer->at = (uint16_t)i;
        peer->node = config->node[i].id;
        peer->address = config->node[i].address;
        txn_stock_reset(peer);
    }
}

int txn_ctx_open(struct cairn *cluster, const struct cn_env *env, struct cairn_ctx **ret_ctx)
{
    uint32_t peers = cluster->config->node_count;
    uint32_t tables = cluster->config->table_count;
    size_t log_size, size = place_all(NULL, NULL, peers, tables);
    uint8_t *base = aligned_alloc(64, size);
    struct cairn_ctx *ctx = (struct cairn_ctx *)(void *)base;
    struct rd_ep_config config = {
        .env = env,
        .connections_max = peers + 2,
        .outstanding_max = 2 * TXN_OPS_MAX,
        .memory_size = place_arena(NULL, NULL, peers, &log_size),
        .name = "coordinator",
    };
    int rc;

    config.log_memory_size = log_size;
    if (base == NULL)
        return cn_fail(-ENOMEM, "%zu bytes for a context", size);
    /* Everything but the value buffer, which is written before it is read. */
    memset(base, 0,
        size -
            (size_t)cn_align_up((uint64_t)peers * CAIRN_TX_BYTES_MAX + CAIRN_VALUE_SIZE_MAX, 64));
    (void)place_all(ctx, base, peers, tables);
    ctx->cluster = cluster;
    ctx->env = env;
    ctx->peer_count = peers;
    rc = rd_ep_open(cluster->fabric, &config, &ctx->ep);
    if (rc != 0)
        goto err_free;
    (void)place_arena(ctx, rd_ep_memory(ctx->ep), peers, &log_size);
    init_lists(ctx);
    txn_session_begin(ctx);
    ctx->tx.ctx = ctx;
    __atomic_add_fetch(&cluster->contexts, 1, __ATOMIC_RELAXED);
    *ret_ctx = ctx;
    return 0;

err_free:
    free(base);
    return rc;
}

void txn_ctx_abandon(struct cairn_ctx **ctx_ptr)
{
    struct cairn_ctx *ctx = *ctx_ptr;

    if (ctx == NULL)
        return;
    *ctx_ptr = NULL;
    rd_ep_close(ctx->ep);
    __atomic_sub_fetch(&ctx->cluster->contexts, 1, __ATOMIC_RELAXED);
    free(ctx);
}

/* ---- operations ---- */

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
    op->status = status;
    op->gen++;
    *ret_wr_id = (uint64_t)op->gen << 32 | at;
    *status = TXN_PENDING;
    batch->left++;
    ctx->op_count++;
    return op;
}

static inline void complete_op(struct cairn_ctx *ctx, struct txn_op *op, int status)
{
    CAIRN_DASSERT(op->busy && op->batch->left > 0 && ctx->op_count > 0);
    op->busy = false;
    ctx->op_count--;
    *op->status = status;
    op->batch->left--;
    if (status != 0 && op->batch->status == 0)
        op->batch->status = status;
    op->next_free = ctx->op_free;
    ctx->op_free = (uint32_t)(op - ctx->op);
}

void txn_ops_fail(struct cairn_ctx *ctx, uint16_t peer, int status)
{
    ctx->peer[peer].held.kind = TXN_HOLDS_NONE;
    for (uint32_t i = 0; i < TXN_OPS_MAX; i++) {
        if (ctx->op[i].busy && ctx->op[i].peer == peer)
            complete_op(ctx, &ctx->op[i], status);
    }
}

static inline void completion(struct cairn_ctx *ctx, const struct rd_event *event)
{
    uint32_t at = (uint32_t)event->wr_id;

    if (at >= TXN_OPS_MAX || !ctx->op[at].busy || ctx->op[at].gen != event->wr_id >> 32)
        return;
    complete_op(ctx, &ctx->op[at], event->status);
}

/* A post that failed: nothing is outstanding. A dead connection ends the session. */
static int post_failed(struct txn_peer *peer, struct txn_op *op, int rc)
{
    struct cairn_ctx *ctx = peer->ctx;

    if (op != NULL)
        complete_op(ctx, op, rc);
    if ((rc == CAIRN_E_NODE_DOWN || rc == CAIRN_E_FENCED) && ctx->lost == 0 &&
        !CN_MUTANT(c_session_continues)) {
        ctx->lost = rc;
        ctx->lost_peer = peer->at;
    }
    return rc;
}

static int not_up(struct txn_peer *peer, struct txn_batch *batch, int *status)
{
    int rc = peer->down_status != 0 ? peer->down_status : CAIRN_E_NODE_DOWN;

    *status = rc;
    if (batch->status == 0)
        batch->status = rc;
    return post_failed(peer, NULL, rc);
}

static int no_op(struct txn_batch *batch, int *status)
{
    *status = CAIRN_E_FABRIC;
    batch->status = CAIRN_E_FABRIC;
    return cn_fail(CAIRN_E_FABRIC, "more than %u operations in flight", TXN_OPS_MAX);
}

static inline void send_out(struct txn_peer *peer, unsigned flags)
{
    const struct txn_held_post h = peer->held;
    int rc = 0;

    peer->held.kind = TXN_HOLDS_NONE;
    flags |= RD_SIGNALED;
    switch (h.kind) {
    case TXN_HOLDS_NONE: return;
    case TXN_HOLDS_READ: rc = rd_read(peer->conn, h.wr_id, h.remote, h.local, h.size, flags); break;
    case TXN_HOLDS_CAS:
        rc = rd_cas(peer->conn, h.wr_id, h.remote, h.expected, h.desired, h.local, flags);
        break;
    case TXN_HOLDS_FLUSH: rc = rd_flush(peer->conn, h.wr_id, h.remote, h.size, flags); break;
    }
    if (CN_UNLIKELY(rc != 0))
        (void)post_failed(peer, &peer->ctx->op[(uint32_t)h.wr_id], rc);
}

CN_HOT
void txn_ring(struct cairn_ctx *ctx)
{
    while (ctx->held != NULL) {
        struct txn_peer *peer = ctx->held;
        ctx->held = peer->next_held;
        peer->next_held = NULL;
        peer->is_held = false;
        send_out(peer, 0);
    }
}

/* Room to hold a post back: the one before it goes out first. */
static inline struct txn_held_post *hold(struct txn_peer *peer)
{
    if (peer->held.kind != TXN_HOLDS_NONE)
        send_out(peer, RD_MORE);
    if (!peer->is_held) {
        peer->is_held = true;
        peer->next_held = peer->ctx->held;
        peer->ctx->held = peer;
    }
    return &peer->held;
}

CN_HOT
int txn_post_read(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size)
{
    uint64_t wr_id;

    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    struct txn_op *op = take_op(peer, batch, status, &wr_id);
    if (op == NULL)
        return no_op(batch, status);
    *hold(peer) = (struct txn_held_post){
        .kind = TXN_HOLDS_READ, .size = size, .wr_id = wr_id, .remote = remote, .local = local};
    return 0;
}

CN_HOT
int txn_post_read_now(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    void *local, uint32_t size)
{
    uint64_t wr_id;

    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    struct txn_op *op = take_op(peer, batch, status, &wr_id);
    if (op == NULL)
        return no_op(batch, status);
    int rc = rd_read(peer->conn, wr_id, remote, local, size, RD_SIGNALED);
    return rc == 0 ? 0 : post_failed(peer, op, rc);
}

CN_HOT
int txn_post_cas(struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote,
    uint64_t expected, uint64_t desired, uint64_t *local_old)
{
    uint64_t wr_id;

    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    struct txn_op *op = take_op(peer, batch, status, &wr_id);
    if (op == NULL)
        return no_op(batch, status);
    *hold(peer) = (struct txn_held_post){.kind = TXN_HOLDS_CAS,
        .wr_id = wr_id,
        .remote = remote,
        .expected = expected,
        .desired = desired,
        .local = local_old};
    return 0;
}

CN_HOT
int txn_post_flush(
    struct txn_peer *peer, struct txn_batch *batch, int *status, uint64_t remote, uint32_t size)
{
    uint64_t wr_id;

    if (peer->state != TXN_PEER_UP)
        return not_up(peer, batch, status);
    struct txn_op *op = take_op(peer, batch, status, &wr_id);
    if (op == NULL)
        return no_op(batch, status);
    *hold(peer) = (struct txn_held_post){
        .kind = TXN_HOLDS_FLUSH, .size = size, .wr_id = wr_id, .remote = remote};
    return 0;
}

/* ---- waiting ---- */

static void delete_dead(struct cairn_ctx *ctx)
{
    ctx->any_dead = false;
    for (uint32_t i = 0; i < ctx->peer_count; i++) {
        if (ctx->peer[i].dead != NULL)
            rd_conn_delete(ctx->peer[i].dead);
        ctx->peer[i].dead = NULL;
    }
}

CN_HOT
bool txn_poll(struct cairn_ctx *ctx)
{
    struct rd_event events[TXN_EVENTS_BATCH];

    txn_ring(ctx);
    ctx->polled = true;
    uint32_t count = rd_poll(ctx->ep, events, TXN_EVENTS_BATCH);

    if (count == 0)
        return false;
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

/* True: something came. */
static inline bool wait_some(struct cairn_ctx *ctx, uint32_t *idle, uint64_t *deadline_ns)
{
    const struct cn_pace *pace = &ctx->cluster->pace;

    if (txn_poll(ctx)) {
        *idle = 0;
        return true;
    }
    ++*idle;
    if (!cn_pace_may_sleep(pace, ctx->op_count, TXN_OPS_MAX, *idle > pace->spins)) {
        relax();
        return false;
    }
    *idle = 0;
    *deadline_ns = txn_due(ctx, *deadline_ns);
    rd_ep_arm(ctx->ep);
    if (!txn_poll(ctx))
        rd_ep_sleep(ctx->ep, *deadline_ns);
    return false;
}

void txn_wait_some(struct cairn_ctx *ctx, uint32_t *idle, uint64_t deadline_ns)
{
    (void)wait_some(ctx, idle, &deadline_ns);
}

void txn_rest(struct cairn_ctx *ctx, uint64_t deadline_ns)
{
    if (ctx->cluster->pace.mode == CN_PACE_POLL) {
        if (!txn_poll(ctx))
            relax();
        return;
    }
    rd_ep_arm(ctx->ep);
    if (!txn_poll(ctx))
        rd_ep_sleep(ctx->ep, deadline_ns);
}

/* The deadline passed: nobody knows what became of these operations, so their connections end. */
static void drop_debtors(struct cairn_ctx *ctx, const struct txn_batch *batch)
{
    for (uint32_t i = 0; i < TXN_OPS_MAX && batch->left != 0; i++) {
        if (ctx->op[i].busy && ctx->op[i].batch == batch)
            txn_peer_drop(&ctx->peer[ctx->op[i].peer], CAIRN_E_TIMEOUT);
    }
}

CN_HOT
int txn_wait(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    uint32_t idle = 0, turns = 0;

    txn_ring(ctx);
    while (batch->left != 0) {
        bool came = wait_some(ctx, &idle, &deadline_ns);
        bool slept = !came && idle == 0;
        if (batch->left == 0 || (++turns % TXN_CLOCK_TURNS != 0 && !slept))
            continue;
        deadline_ns = txn_due(ctx, deadline_ns);
        if (txn_now(ctx) >= deadline_ns) {
            while (txn_poll(ctx))
                ;
            drop_debtors(ctx, batch);
            CAIRN_ASSERT(batch->left == 0);
        }
    }
    if (CN_UNLIKELY(batch->status != 0) && ctx->lost_text[0] == '\0')
        (void)txn_poll(ctx); /* why its connection ended comes behind the last completion */
    return batch->status;
}

CN_HOT
int txn_wait_trip(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    if (batch->left != 0)
        ctx->stats.round_trips++;
    return txn_wait(ctx, batch, deadline_ns);
}

bool txn_wait_flag(struct cairn_ctx *ctx, const bool *flag, uint64_t deadline_ns)
{
    uint32_t idle = 0;

    while (!*flag && ctx->lost == 0) {
        txn_wait_some(ctx, &idle, deadline_ns);
        if (!*flag && txn_now(ctx) >= deadline_ns)
            break;
    }
    return *flag;
}

void txn_pause(struct cairn_ctx *ctx, uint64_t until_ns)
{
    while (txn_now(ctx) < until_ns && ctx->lost == 0)
        txn_rest(ctx, until_ns);
}

uint64_t txn_backoff_ns(struct cairn_ctx *ctx, uint32_t tries)
{
    uint64_t span = TXN_BACKOFF_MIN_NS << (tries < 8 ? tries : 8);

    if (span > TXN_BACKOFF_MAX_NS)
        span = TXN_BACKOFF_MAX_NS;
    return span / 2 + cn_random64(ctx->env) % span;
}
