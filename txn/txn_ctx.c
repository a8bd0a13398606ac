/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_ctx.c: a coordinator context: its memory, and waiting.
 *
 * Waiting polls for as long as the pace (cn_pace.h) says, then arms, looks once more and
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

/* Lay everything out in one block; with base NULL only the size is found out. What is behind
 * *ret_cleared is written before it is read: pages of it that are never used cost nothing. */
static size_t place_all(struct cairn_ctx *ctx, uint8_t *base, const struct cairn *cluster,
    size_t *ret_cleared)
{
    uint32_t peers = cluster->config->node_count, tables = cluster->config->table_count;
    uint32_t inflight = cluster->options.inflight;
    struct layout l = {0};
    struct cairn_ctx scratch;

    if (ctx == NULL)
        ctx = &scratch;
    (void)carve(base, &l, sizeof(*ctx));
    ctx->peer = carve(base, &l, sizeof(*ctx->peer) * peers);
    ctx->index = carve(base, &l, sizeof(*ctx->index) * peers * tables);
    ctx->map = carve(base, &l, sizeof(*ctx->map) * TXN_MAP_SETS);
    ctx->op = carve(base, &l, sizeof(*ctx->op) * TXN_OPS_MAX);
    ctx->tx = carve(base, &l, sizeof(*ctx->tx) * inflight);
    ctx->parked = carve(base, &l, sizeof(*ctx->parked) * inflight);
    *ret_cleared = l.used;
    for (uint32_t i = 0; i < inflight; i++) {
        struct cairn_tx none = {0}, *tx = base == NULL ? &none : &ctx->tx[i];
        tx->rec = carve(base, &l, sizeof(*tx->rec) * peers);
        tx->lock = carve(base, &l, sizeof(*tx->lock) * TXN_LOCKS_MAX);
        tx->look = carve(base, &l, sizeof(*tx->look) * TXN_LOOKS_MAX);
        tx->key = carve(base, &l, sizeof(*tx->key) * (CAIRN_TX_KEYS_MAX + 1u));
        tx->values_size = (uint64_t)peers * CAIRN_TX_BYTES_MAX + CAIRN_VALUE_SIZE_MAX;
        tx->values = carve(base, &l, tx->values_size);
    }
    return l.used;
}

/* The arena: for objects scratch and words of each transaction; behind that, for rings
 * (*ret_log_size bytes), per peer position, line and staging. */
static size_t place_arena(
    struct cairn_ctx *ctx, uint8_t *base, const struct cairn *cluster, size_t *ret_log_size)
{
    struct layout l = {0};
    uint32_t peers = cluster->config->node_count;

    for (uint32_t i = 0; i < cluster->options.inflight; i++) {
        uint8_t *scratch = carve(base, &l, TXN_SCRATCH_SIZE);
        uint8_t *words = carve(base, &l, sizeof(uint64_t) * (TXN_LOCKS_MAX + CAIRN_TX_KEYS_MAX));
        if (base == NULL)
            continue;
        ctx->tx[i].scratch = scratch;
        ctx->tx[i].words = (uint64_t *)(void *)words;
    }
    size_t object_size = l.used;
    uint8_t *positions = carve(base, &l, (size_t)peers * 64);
    uint8_t *lines = carve(base, &l, (size_t)peers * PM_RECORD_VOID_SIZE);
    uint8_t *staging = carve(base, &l, (size_t)peers * TXN_STAGING_SIZE);

    *ret_log_size = l.used - object_size;
    if (base == NULL)
        return l.used;
    for (uint32_t i = 0; i < peers; i++) {
        ctx->peer[i].position = (struct rd_position_wire *)(void *)(positions + (size_t)i * 64);
        ctx->peer[i].line = lines + (size_t)i * PM_RECORD_VOID_SIZE;
        ctx->peer[i].staging = staging + (size_t)i * TXN_STAGING_SIZE;
    }
    return l.used;
}

static void init_lists(struct cairn_ctx *ctx)
{
    const struct txn_config *config = ctx->cluster->config;

    for (uint32_t i = 0; i < TXN_OPS_MAX; i++)
        ctx->op[i].next_free = i + 1 < TXN_OPS_MAX ? i + 1 : TXN_NONE;
    ctx->op_free = 0;
    for (uint32_t i = ctx->tx_count; i-- != 0;) {
        struct cairn_tx *tx = &ctx->tx[i];
        tx->ctx = ctx;
        tx->at = (uint16_t)i;
        memset(tx->rec, 0, sizeof(*tx->rec) * ctx->peer_count);
        for (uint32_t k = 0; k < TXN_LOCKS_MAX; k++)
            tx->lock[k].old = tx->words + k;
        tx->next_free = ctx->tx_free;
        ctx->tx_free = tx;
    }
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
    size_t log_size, cleared, size = place_all(NULL, NULL, cluster, &cleared);
    uint8_t *base = aligned_alloc(64, size);
    struct cairn_ctx *ctx = (struct cairn_ctx *)(void *)base;
    struct rd_ep_config config = {
        .env = env,
        .connections_max = cluster->config->node_count + 2u,
        .outstanding_max = 2 * TXN_OPS_MAX,
        .memory_size = place_arena(NULL, NULL, cluster, &log_size),
        .name = "coordinator",
    };
    int rc;

    config.log_memory_size = log_size;
    if (base == NULL)
        return cn_fail(-ENOMEM, "%zu bytes for a context", size);
    memset(base, 0, cleared);
    (void)place_all(ctx, base, cluster, &cleared);
    ctx->cluster = cluster;
    ctx->env = env;
    ctx->peer_count = cluster->config->node_count;
    ctx->tx_count = cluster->options.inflight;
    rc = txn_stacks_open(ctx);
    if (rc != 0)
        goto err_free;
    rc = rd_ep_open(cluster->fabric, &config, &ctx->ep);
    if (rc != 0)
        goto err_stacks;
    (void)place_arena(ctx, rd_ep_memory(ctx->ep), cluster, &log_size);
    init_lists(ctx);
    txn_session_begin(ctx);
    __atomic_add_fetch(&cluster->contexts, 1, __ATOMIC_RELAXED);
    *ret_ctx = ctx;
    return 0;

err_stacks:
    txn_stacks_close(ctx);
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
    txn_stacks_close(ctx);
    free(ctx);
}

/* ---- waiting ---- */

/* Until something comes that was not there, or a lane is to go on. */
static void sleep_by(struct cairn_ctx *ctx, uint64_t deadline_ns)
{
    deadline_ns = cn_min64(deadline_ns, txn_lanes_due(ctx));
    if (deadline_ns == 0)
        return;
    rd_ep_arm(ctx->ep);
    if (!txn_poll(ctx))
        rd_ep_sleep(ctx->ep, deadline_ns);
}

/* True: something came. */
static inline bool wait_some(struct cairn_ctx *ctx, uint32_t *idle, uint64_t *deadline_ns)
{
    const struct cn_pace *pace = &ctx->cluster->pace;
    bool came = txn_poll(ctx);

    if (CN_UNLIKELY(ctx->lanes != 0))
        came |= txn_turn(ctx);
    if (came) {
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
    sleep_by(ctx, *deadline_ns);
    return false;
}

void txn_idle(struct cairn_ctx *ctx, uint32_t *idle, uint64_t deadline_ns)
{
    const struct cn_pace *pace = &ctx->cluster->pace;

    ++*idle;
    if (!cn_pace_may_sleep(pace, ctx->op_count, TXN_OPS_MAX, *idle > pace->spins)) {
        relax();
        return;
    }
    *idle = 0;
    sleep_by(ctx, deadline_ns);
}

void txn_wait_some(struct cairn_ctx *ctx, uint32_t *idle, uint64_t deadline_ns)
{
    if (ctx->running != NULL)
        txn_park_event(ctx, deadline_ns);
    else
        (void)wait_some(ctx, idle, &deadline_ns);
}

void txn_rest(struct cairn_ctx *ctx, uint64_t deadline_ns)
{
    if (ctx->running != NULL) {
        txn_park_event(ctx, deadline_ns);
        return;
    }
    if (ctx->lanes != 0 && txn_turn(ctx))
        return;
    if (ctx->cluster->pace.mode != CN_PACE_POLL)
        sleep_by(ctx, deadline_ns);
    else if (!txn_poll(ctx))
        relax();
}

static bool is_among(const struct txn_flush *flush, const struct txn_batch *batch)
{
    while (flush != NULL && flush->batch != batch)
        flush = flush->next;
    return flush != NULL;
}

static bool has_mark_of(const struct txn_peer *peer, const struct txn_batch *batch)
{
    const struct txn_mark *mark = peer->mark_due;

    while (mark != NULL && mark->batch != batch)
        mark = mark->next;
    return mark != NULL;
}

/* The deadline passed: nobody knows what became of these operations, so their connections end. */
void txn_drop_debtors(struct cairn_ctx *ctx, const struct txn_batch *batch)
{
    for (uint32_t i = 0; i < TXN_OPS_MAX && batch->left != 0; i++) {
        if (ctx->op[i].busy && (ctx->op[i].batch == batch || is_among(ctx->op[i].flush, batch)))
            txn_peer_drop(&ctx->peer[ctx->op[i].peer], CAIRN_E_TIMEOUT);
    }
    for (uint32_t i = 0; i < ctx->peer_count && batch->left != 0; i++) {
        if (is_among(ctx->peer[i].flush_due, batch) || has_mark_of(&ctx->peer[i], batch))
            txn_peer_drop(&ctx->peer[i], CAIRN_E_TIMEOUT);
    }
}

/* Why its connection ended comes behind the last completion. */
int txn_wait_failed(struct cairn_ctx *ctx, const struct txn_batch *batch)
{
    if (ctx->lost_text[0] == '\0')
        txn_park_turn(ctx);
    return batch->status;
}

CN_HOT
int txn_wait_here(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
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
            txn_drop_debtors(ctx, batch);
            CAIRN_ASSERT(batch->left == 0);
        }
    }
    if (CN_UNLIKELY(batch->status != 0) && ctx->lost_text[0] == '\0')
        (void)txn_poll(ctx); /* as in txn_wait_failed() */
    return batch->status;
}

CN_HOT
int txn_wait_trip_here(struct cairn_ctx *ctx, struct txn_batch *batch, uint64_t deadline_ns)
{
    if (batch->left != 0) {
        ctx->stats.round_trips++;
        /* What is near has come already, and then there is nothing to wait for. */
        if (txn_poll(ctx) && CN_LIKELY(batch->left == 0 && batch->status == 0))
            return 0;
    }
    return txn_wait_here(ctx, batch, deadline_ns);
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
    uint32_t idle = 0; /* it is short mostly: to sleep takes longer */

    while (txn_now(ctx) < until_ns && ctx->lost == 0) {
        if (ctx->running != NULL)
            txn_park_time(ctx, until_ns);
        else
            (void)wait_some(ctx, &idle, &until_ns);
    }
}

uint64_t txn_backoff_ns(struct cairn_ctx *ctx, uint32_t tries)
{
    uint64_t span = TXN_BACKOFF_MIN_NS << (tries < 8 ? tries : 8);

    if (span > TXN_BACKOFF_MAX_NS)
        span = TXN_BACKOFF_MAX_NS;
    return span / 2 + cn_random64(ctx->env) % span;
}
