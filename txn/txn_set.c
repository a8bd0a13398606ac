/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_set.c: the read and write set of a transaction: one struct txn_key per key, values buffered
 * in one area that is compacted when overwritten values have used it up.
 *
 * Invariant: tx->writes is the number of keys with a buffered write; a key keeps its belief when it
 * is written, so that the commit locks exactly what was read.
 */
#include "txn/txn_ctx.h"

CN_HOT
void txn_set_reset(struct cairn_tx *tx)
{
    tx->key_count = 0;
    tx->lock_count = 0;
    tx->held = 0;
    tx->values_used = 0;
    tx->writes = 0;
    if (tx->participant != NULL)
        txn_log_forget(tx);
    tx->has_token = false;
    tx->room_wanted = false;
    tx->error = 0;
}

/* ---- names ---- */

/* Not secret: keys that meet here compute their hashes again, and that is all. */
static inline struct txn_name *name_of(
    struct cairn_ctx *ctx, uint32_t table, const void *key, size_t size)
{
    const uint8_t *at = key;
    uint64_t h = table + (uint64_t)size, part = 0;

    for (; size >= sizeof(part); size -= sizeof(part), at += sizeof(part)) {
        memcpy(&part, at, sizeof(part));
        h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    part = 0;
    for (; size > 0; size--)
        part = part << 8 | *at++;
    h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
    return &ctx->name[h >> 32 & (TXN_NAMES - 1)];
}

static inline bool is_named(const struct txn_name *name, const struct txn_key *k)
{
    return name->key_size == k->key_size && name->table == k->table &&
        cn_bytes_equal(name->key, k->key, k->key_size);
}

/* Shard, and the hash in the index if it is known. Errors: CAIRN_E_NO_TABLE. */
static inline int find_name(struct cairn_ctx *ctx, struct txn_key *k)
{
    const struct txn_config *config = ctx->cluster->config;
    struct txn_name *name = name_of(ctx, k->table, k->key, k->key_size);

    if (CN_LIKELY(is_named(name, k))) {
        k->peer = name->peer;
        k->index = name->index;
        k->hash = name->hash;
        k->edition = name->edition;
        return 0;
    }
    if (!txn_config_has_table(config, k->table))
        return cn_fail(CAIRN_E_NO_TABLE, "no table with id %u in %s", k->table, config->path);
    k->peer = (uint16_t)txn_config_shard(config, k->table, k->key, k->key_size);
    if (k->key_size > TXN_NAME_KEY_MAX)
        return 0;
    name->table = k->table;
    name->peer = k->peer;
    name->key_size = k->key_size;
    memcpy(name->key, k->key, k->key_size);
    name->edition = 0;
    name->index = NULL;
    return 0;
}

static void note_hash(struct cairn_ctx *ctx, const struct txn_key *k)
{
    struct txn_name *name = name_of(ctx, k->table, k->key, k->key_size);

    if (!is_named(name, k))
        return;
    name->index = k->index;
    name->hash = k->hash;
    name->edition = k->edition;
}

/* ---- keys ---- */

/* All but the bytes of the key, which are behind them. */
static void clear_key(struct txn_key *k)
{
    _Static_assert(offsetof(struct txn_key, key) % 8 == 0, "cn_zero");
    cn_zero(k, offsetof(struct txn_key, key));
    k->block = TXN_NONE;
}

CN_HOT
int txn_set_key(
    struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size, struct txn_key **ret_key)
{
    if (key == NULL || key_size == 0 || key_size > CAIRN_KEY_SIZE_MAX)
        return cn_fail(CAIRN_E_KEY_SIZE, "a key of %zu bytes; 1 to %u are allowed", key_size,
            CAIRN_KEY_SIZE_MAX);
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        if (k->table == table && k->key_size == key_size && cn_bytes_equal(k->key, key, key_size)) {
            *ret_key = k;
            return 0;
        }
    }
    if (tx->key_count == CAIRN_TX_KEYS_MAX)
        return cn_fail(CAIRN_E_TX_SIZE, "more than %u keys in a transaction", CAIRN_TX_KEYS_MAX);
    struct txn_key *k = &tx->key[tx->key_count];
    clear_key(k);
    k->table = table;
    k->key_size = (uint8_t)key_size;
    cn_copy_small(k->key, key, key_size);
    int rc = find_name(tx->ctx, k);
    if (rc != 0)
        return rc;
    tx->key_count++;
    *ret_key = k;
    return 0;
}

CN_HOT
int txn_set_locate(struct cairn_tx *tx, struct txn_key *key)
{
    struct txn_peer *peer = &tx->ctx->peer[key->peer];

    if (CN_LIKELY(txn_set_is_located(peer, key)))
        return 0;
    int rc = txn_peer_need(peer);
    if (rc != 0 || txn_set_is_located(peer, key))
        return rc;
    rc = txn_table_need(peer, key->table, &key->index);
    if (rc != 0)
        return rc;
    key->hash = pm_index_hash(&key->index->root, key->key, key->key_size);
    key->edition = key->index->edition;
    note_hash(tx->ctx, key);
    return 0;
}

/* Close the holes that overwritten values left, in ascending order of place. */
static void compact(struct cairn_tx *tx)
{
    uint64_t used = 0, from = 0;

    for (;;) {
        struct txn_key *next = NULL;
        for (uint32_t i = 0; i < tx->key_count; i++) {
            struct txn_key *k = &tx->key[i];
            if (k->write == TXN_WRITE_PUT && k->value_room != 0 && k->value_off >= from &&
                (next == NULL || k->value_off < next->value_off))
                next = k;
        }
        if (next == NULL)
            break;
        from = next->value_off + (uint64_t)next->value_room;
        memmove(tx->values + used, tx->values + next->value_off, next->value_size);
        next->value_off = (uint32_t)used;
        next->value_room = (uint32_t)cn_align_up(next->value_size, 8);
        used += next->value_room;
    }
    tx->values_used = used;
}

/* Bytes of keys and values written at a node, without `except`. */
CN_HOT
static uint64_t bytes_at(const struct cairn_tx *tx, uint16_t peer, const struct txn_key *except)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k != except && k->peer == peer && k->write != TXN_WRITE_NONE)
            bytes += k->key_size + (uint64_t)k->value_size;
    }
    return bytes;
}

CN_HOT
int txn_set_write(struct cairn_tx *tx, struct txn_key *key, enum txn_write write, const void *value,
    size_t value_size)
{
    uint32_t room = (uint32_t)cn_align_up(value_size, 8);

    if (bytes_at(tx, key->peer, key) + key->key_size + value_size > CAIRN_TX_BYTES_MAX)
        return cn_fail(CAIRN_E_TX_SIZE, "more than %u bytes written to one node in a transaction",
            CAIRN_TX_BYTES_MAX);
    if (key->write == TXN_WRITE_NONE)
        tx->writes++;
    if (room > key->value_room) {
        key->write = TXN_WRITE_NONE; /* its old value is a hole now */
        if (tx->values_used + room > tx->values_size)
            compact(tx);
        CAIRN_ASSERT(tx->values_used + room <= tx->values_size);
        key->value_off = (uint32_t)tx->values_used;
        key->value_room = room;
        tx->values_used += room;
    }
    if (value_size != 0)
        memcpy(tx->values + key->value_off, value, value_size);
    key->value_size = (uint32_t)value_size;
    key->write = write;
    return 0;
}

CN_HOT
bool txn_key_guard(const struct txn_key *key, uint64_t *ret_off, uint64_t *ret_word)
{
    switch (key->belief) {
    case TXN_BELIEF_PRESENT:
        *ret_off = key->item;
        *ret_word = key->item_word;
        return true;
    case TXN_BELIEF_ABSENT:
        *ret_off = key->bucket;
        *ret_word = key->bucket_word;
        return true;
    case TXN_BELIEF_NONE: break;
    }
    return false;
}

/* One word of one node at two versions, among what `a` and `b` rest on? */
static bool clash(const struct txn_key *a, const struct txn_key *b)
{
    uint64_t off_a, word_a, off_b, word_b;

    return a->peer == b->peer && txn_key_guard(a, &off_a, &word_a) &&
        txn_key_guard(b, &off_b, &word_b) && off_a == off_b &&
        pm_word_version(word_a) != pm_word_version(word_b);
}

CN_HOT
bool txn_set_agrees(const struct cairn_tx *tx)
{
    if (CN_MUTANT(c_merge_beliefs))
        return true;
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        uint64_t off, word;
        for (uint32_t j = i + 1; j < tx->key_count; j++) {
            if (clash(k, &tx->key[j]))
                return false;
        }
        if (!txn_key_guard(k, &off, &word))
            continue;
        for (uint32_t j = 0; j < tx->lock_count; j++) {
            const struct txn_lock *lock = &tx->lock[j];
            if (lock->state != TXN_LOCK_FAILED && lock->peer == k->peer && lock->off == off &&
                pm_word_version(lock->word) != pm_word_version(word))
                return false;
        }
    }
    return true;
}
