/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_api.c: the public calls: argument checks, handles, and then the inside. Every call that can
 * fail for a reason of the transaction's dooms it here (txn_doom), in one place.
 */
#include "txn/txn_ctx.h"

#include <errno.h>

/* ---- cluster ---- */

int txn_cluster_open(struct txn_config *config, struct rd_fabric *fabric, const struct cn_env *env,
    const struct cairn_options *options, struct cairn **ret_cluster)
{
    struct cairn *cluster = calloc(1, sizeof(*cluster));
    static const struct cairn_options defaults = CAIRN_OPTIONS_DEFAULT;
    static const struct cn_pace none, pace = CN_PACE_DEFAULT;

    if (cluster == NULL)
        return cn_fail(-ENOMEM, "a cluster handle");
    cluster->config = config;
    cluster->fabric = fabric;
    cluster->env = env;
    cluster->options = defaults;
    cluster->pace = memcmp(&config->pace, &none, sizeof(none)) == 0 ? pace : config->pace;
    if (options != NULL) {
        /* A caller built against a shorter struct leaves the rest at its default. */
        if (options->size < offsetof(struct cairn_options, connect_timeout_ms) ||
            options->size > 4096) {
            free(cluster);
            return cn_fail(CAIRN_E_CONFIG,
                "options.size is %zu: set it to sizeof(struct cairn_options)", options->size);
        }
        memcpy(&cluster->options, options, cn_min64(options->size, sizeof(cluster->options)));
    }
    if (cluster->options.inflight == 0)
        cluster->options.inflight = defaults.inflight;
    if (cluster->options.inflight > CAIRN_INFLIGHT_MAX) {
        int rc = cn_fail(CAIRN_E_CONFIG, "options.inflight is %u: at most %u are allowed",
            cluster->options.inflight, CAIRN_INFLIGHT_MAX);
        free(cluster);
        return rc;
    }
    int rc = txn_cache_open(cluster->options.cache_entries, &cluster->cache);
    if (rc != 0) {
        free(cluster);
        return rc;
    }
    *ret_cluster = cluster;
    return 0;
}

int cairn_open(
    const char *config_path, const struct cairn_options *options, struct cairn **ret_cluster)
{
    struct txn_config *config;
    struct rd_fabric *fabric;

    if (config_path == NULL || ret_cluster == NULL)
        return cn_fail(CAIRN_E_CONFIG, "no configuration file given");
    int rc = txn_config_load(config_path, &config);
    if (rc != 0)
        return rc;
    rc = txn_config_open_fabric(config, &fabric);
    if (rc != 0)
        goto err_config;
    rc = txn_cluster_open(config, fabric, cn_env_system(), options, ret_cluster);
    if (rc != 0)
        goto err_fabric;
    (*ret_cluster)->owns = true;
    return 0;

err_fabric:
    rd_fabric_delete(fabric);
err_config:
    txn_config_free(&config);
    return rc;
}

void cairn_close(struct cairn **cluster_ptr)
{
    struct cairn *cluster = cluster_ptr == NULL ? NULL : *cluster_ptr;

    if (cluster == NULL)
        return;
    CAIRN_ASSERT(__atomic_load_n(&cluster->contexts, __ATOMIC_RELAXED) == 0);
    *cluster_ptr = NULL;
    txn_cache_close(&cluster->cache);
    if (cluster->owns) {
        rd_fabric_delete(cluster->fabric);
        txn_config_free(&cluster->config);
    }
    free(cluster);
}

int cairn_table(struct cairn *cluster, const char *name, uint32_t *ret_table)
{
    const struct txn_config_table *t = txn_config_find_table(cluster->config, name);

    if (t == NULL)
        return cn_fail(CAIRN_E_NO_TABLE, "no table \"%s\" in %s", name, cluster->config->path);
    *ret_table = t->id;
    return 0;
}

/* ---- context ---- */

int cairn_ctx_open(struct cairn *cluster, struct cairn_ctx **ret_ctx)
{
    return txn_ctx_open(cluster, cluster->env, ret_ctx);
}

void cairn_ctx_close(struct cairn_ctx **ctx_ptr)
{
    struct cairn_ctx *ctx = ctx_ptr == NULL ? NULL : *ctx_ptr;

    if (ctx == NULL)
        return;
    CAIRN_ASSERT(ctx->running == NULL); /* a body must not close what it runs in */
    txn_enter(ctx);
    if (!txn_drain(ctx)) { /* what was told has closed it */
        *ctx_ptr = NULL;
        return;
    }
    for (uint32_t i = 0; i < ctx->tx_count; i++) {
        if (ctx->tx[i].open)
            txn_abort(&ctx->tx[i]);
    }
    txn_session_end(ctx, true);
    (void)txn_leave(ctx, 0);
    txn_tell_gone(ctx);
    txn_ctx_abandon(ctx_ptr);
}

/* ---- transactions ---- */

CN_HOT
int cairn_begin(struct cairn_ctx *ctx, struct cairn_tx **ret_tx)
{
    txn_enter(ctx);
    return txn_leave(ctx, txn_begin(ctx, ret_tx));
}

int txn_check_active(const struct cairn_tx *tx)
{
    int rc = txn_check_open(tx);

    if (rc != 0)
        return rc;
    if (tx->state != TXN_STATE_ACTIVE)
        return cn_fail(CAIRN_E_STATE, "the transaction failed (%s) and can only be aborted",
            cairn_error_name(tx->error));
    if (CN_UNLIKELY(tx->ctx->shut))
        return cn_fail(CAIRN_E_STATE, "the context is being closed");
    return 0;
}

int txn_answer(const struct cairn_read *r, size_t *ret_size)
{
    if (r->status == CAIRN_E_NOT_FOUND)
        return cn_fail(CAIRN_E_NOT_FOUND, "%s", cairn_strerror(CAIRN_E_NOT_FOUND));
    *ret_size = r->value_size;
    if (r->status == CAIRN_E_BUFFER_SIZE)
        return cn_fail(CAIRN_E_BUFFER_SIZE, "the value has %zu bytes, the buffer %zu",
            r->value_size, r->buf_size);
    return r->status;
}

CN_HOT
int cairn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count)
{
    txn_enter(tx->ctx);
    int rc = txn_check_active(tx);
    if (rc != 0)
        return txn_leave(tx->ctx, rc);
    rc = count == 1 ? txn_get(tx, reads) : txn_get_many(tx, reads, count);
    return txn_leave(tx->ctx, rc == 0 ? 0 : txn_doom(tx, rc));
}

static inline int get_one(struct cairn_tx *tx, struct cairn_read *r, size_t *ret_size)
{
    txn_enter(tx->ctx);
    int rc = txn_check_active(tx);
    if (rc == 0) {
        rc = txn_get(tx, r);
        if (rc != 0)
            rc = txn_doom(tx, rc);
    }
    (void)txn_leave(tx->ctx, rc);
    return rc != 0 ? rc : txn_answer(r, ret_size);
}

CN_HOT
int cairn_get(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size, void *buf,
    size_t buf_size, size_t *ret_size)
{
    struct cairn_read r = {
        .table = table, .key = key, .key_size = key_size, .buf = buf, .buf_size = buf_size};

    return get_one(tx, &r, ret_size);
}

CN_HOT
int cairn_get_for_update(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    void *buf, size_t buf_size, size_t *ret_size)
{
    struct cairn_read r = {.table = table,
        .key = key,
        .key_size = key_size,
        .buf = buf,
        .buf_size = buf_size,
        .for_update = 1};

    return get_one(tx, &r, ret_size);
}

CN_HOT
static int write_key(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    enum txn_write write, const void *value, size_t value_size)
{
    struct txn_key *k;

    txn_enter(tx->ctx);
    int rc = txn_check_active(tx);
    if (rc == 0 && (value_size > CAIRN_VALUE_SIZE_MAX || (value == NULL && value_size != 0)))
        rc = cn_fail(CAIRN_E_VALUE_SIZE, "a value of %zu bytes; at most %u are allowed", value_size,
            CAIRN_VALUE_SIZE_MAX);
    if (rc == 0)
        rc = txn_set_key(tx, table, key, key_size, &k);
    if (rc == 0)
        rc = txn_set_write(tx, k, write, value, value_size);
    return txn_leave(tx->ctx, rc);
}

CN_HOT
int cairn_put(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size,
    const void *value, size_t value_size)
{
    return write_key(tx, table, key, key_size, TXN_WRITE_PUT, value, value_size);
}

int cairn_delete(struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size)
{
    return write_key(tx, table, key, key_size, TXN_WRITE_DELETE, NULL, 0);
}

CN_HOT
int cairn_commit(struct cairn_tx *tx, enum cairn_outcome *ret_outcome)
{
    txn_enter(tx->ctx);
    int rc = txn_check_open(tx);
    if (CN_UNLIKELY(rc != 0)) {
        *ret_outcome = CAIRN_OUTCOME_NONE;
        return txn_leave(tx->ctx, rc);
    }
    return txn_leave(tx->ctx, txn_commit(tx, ret_outcome));
}

void cairn_abort(struct cairn_tx *tx)
{
    txn_enter(tx->ctx);
    if (CN_UNLIKELY(tx->busy))
        txn_await_lane(tx);
    if (tx->open)
        txn_abort(tx);
    (void)txn_leave(tx->ctx, 0);
}

/* ---- tokens ---- */

int cairn_tx_token(struct cairn_tx *tx, char token[CAIRN_TOKEN_SIZE])
{
    txn_enter(tx->ctx);
    int rc = txn_check_active(tx);
    if (rc == 0 && !tx->has_token && tx->ctx->tx_open != 1)
        rc = cn_fail(CAIRN_E_STATE,
            "a transaction takes its token while it is the only one open in its context");
    if (rc == 0 && !tx->has_token) {
        rc = txn_token_take(tx);
        if (rc != 0)
            rc = txn_doom(tx, rc);
    }
    if (rc == 0)
        txn_token_format(&tx->token, &tx->ctx->cluster->config->cluster, token);
    return txn_leave(tx->ctx, rc);
}

int cairn_ctx_token(struct cairn_ctx *ctx, char token[CAIRN_TOKEN_SIZE])
{
    if (!ctx->last_token_valid)
        return cn_fail(CAIRN_E_STATE, "no transaction of this context has been logged yet");
    txn_token_format(&ctx->last_token, &ctx->cluster->config->cluster, token);
    return 0;
}

int cairn_resolve(struct cairn_ctx *ctx, const char *token, enum cairn_outcome *ret_outcome)
{
    struct txn_token t;

    *ret_outcome = CAIRN_OUTCOME_NONE;
    txn_enter(ctx);
    if (ctx->running != NULL ? ctx->running->open : ctx->tx_open == ctx->tx_count)
        return txn_leave(ctx, cn_fail(CAIRN_E_STATE, "this context has an open transaction"));
    int rc = txn_token_parse(token, &ctx->cluster->config->cluster, &t);
    if (rc == 0)
        rc = txn_resolve(ctx, &t, txn_op_deadline(ctx), ret_outcome);
    return txn_leave(ctx, rc);
}
