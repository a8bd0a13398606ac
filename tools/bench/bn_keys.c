/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_keys.c: the keys that a benchmark reads and writes: some on each node that are only read, and
 * some that are written, in turn, so that a key has been released when its turn comes again. Where
 * they lie is taken out of the context's read set: the raw operations go to the same places.
 *
 * A key is "bn" + kind + 5 hex digits; all have the value bn_value, which says whose they are.
 */
#include "tools/bench/bn.h"
#include "txn/txn_ctx.h"

#define TX_TIMEOUT_MS 20000u
#define NUMBER_MAX 0x100000u

const char bn_value[BN_VALUE_SIZE] = {
    'c', 'a', 'i', 'r', 'n', ' ', 'b', 'e', 'n', 'c', 'h', ' ', 'r', 't', 't', '.'};

struct batch {
    uint32_t table;
    const struct bn_key *key; /* BN_KEYS of them */
    bool delete;
};

/* The first BN_KEYS keys of a kind whose shard is `node`. */
static void choose(const struct txn_config *config, uint32_t table, uint32_t node, char kind,
    struct bn_key *key)
{
    uint32_t count = 0;

    for (uint32_t number = 0; count < BN_KEYS; number++) {
        char text[BN_KEY_SIZE + 8];
        CAIRN_ASSERT(number < NUMBER_MAX);
        (void)snprintf(text, sizeof(text), "bn%c%05x", kind, number);
        if (txn_config_shard(config, table, text, BN_KEY_SIZE) == node)
            memcpy(key[count++].key, text, BN_KEY_SIZE);
    }
}

static int change(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    char value[BN_VALUE_SIZE];
    size_t size = 0;
    int rc = 0;

    for (uint32_t i = 0; i < BN_KEYS && rc == 0; i++) {
        const char *key = b->key[i].key;
        rc = cairn_get(tx, b->table, key, BN_KEY_SIZE, value, sizeof(value), &size);
        bool there = rc == 0 && size == sizeof(value) && memcmp(value, bn_value, size) == 0;
        if (!there && rc != CAIRN_E_NOT_FOUND && (rc == 0 || rc == CAIRN_E_BUFFER_SIZE))
            return cn_fail(CAIRN_E_CONFIG,
                "the table has a key \"%.8s\" that is not a benchmark's: use another with --table",
                key);
        if (rc != 0 && rc != CAIRN_E_NOT_FOUND)
            return rc;
        rc = 0;
        if (b->delete)
            rc = cairn_delete(tx, b->table, key, BN_KEY_SIZE);
        else if (!there)
            rc = cairn_put(tx, b->table, key, BN_KEY_SIZE, bn_value, BN_VALUE_SIZE);
    }
    return rc;
}

/* Read each key alone, once all of its node's are released; note where it lies. */
static int locate(struct cairn_tx *tx, void *arg)
{
    struct batch *b = arg;
    struct bn_key *key = (struct bn_key *)(uintptr_t)b->key;
    char value[BN_VALUE_SIZE];
    size_t size;

    for (uint32_t i = 0; i < BN_KEYS; i++) {
        int rc = cairn_get(tx, b->table, key[i].key, BN_KEY_SIZE, value, sizeof(value), &size);
        if (rc != 0)
            return rc;
        const struct txn_key *k = &tx->key[tx->key_count - 1];
        key[i].at = (struct bn_word){
            .off = k->item, .word = pm_word_version(k->item_word), .size = k->item_size};
    }
    return 0;
}

int bn_keys_make(struct cairn_ctx *ctx, const struct txn_config *config, uint32_t table,
    uint32_t nodes, struct bn_keys *keys)
{
    keys->table = table;
    keys->nodes = nodes;
    for (uint32_t i = 0; i < 2 * nodes; i++) {
        struct bn_key *key = i % 2 == 0 ? keys->still[i / 2] : keys->written[i / 2];
        struct batch b = {.table = table, .key = key};
        choose(config, table, i / 2, i % 2 == 0 ? 's' : 'w', key);
        int rc = cairn_run(ctx, change, &b, TX_TIMEOUT_MS, NULL);
        if (rc == 0)
            rc = cairn_run(ctx, locate, &b, TX_TIMEOUT_MS, NULL);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int bn_keys_delete(struct cairn_ctx *ctx, const struct bn_keys *keys)
{
    for (uint32_t i = 0; i < 2 * keys->nodes; i++) {
        struct batch b = {.table = keys->table,
            .key = i % 2 == 0 ? keys->still[i / 2] : keys->written[i / 2],
            .delete = true};
        int rc = cairn_run(ctx, change, &b, TX_TIMEOUT_MS, NULL);
        if (rc != 0)
            return rc;
    }
    return 0;
}

uint64_t bn_ctx_counters(const struct cairn_ctx *ctx, struct rd_counters *ret)
{
    rd_ep_counters(ctx->ep, ret);
    return ctx->stats.round_trips; /* cairn_ctx_stats() would also sweep the cache */
}

uint32_t bn_ctx_record_size(const struct cairn_ctx *ctx, uint32_t node)
{
    return ctx->tx[0].rec[node].size;
}
