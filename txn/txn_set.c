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
    tx->bytes_written = 0;
    tx->blocks = 0;
    tx->holds_all = false;
    if (tx->participant != NULL)
        txn_log_forget(tx);
    tx->has_token = false;
    tx->was_logged = false;
    tx->room_wanted = false;
    tx->error = 0;
}

/* ---- names ---- */

/* Put a key's bytes in place, with zeros up to a multiple of 8, and mix them. Not secret: of names
 * that meet, one computes its hashes again, and that is all. */
static inline uint64_t take_name(struct txn_key *k, uint32_t table, const void *key, size_t size)
{
    const uint8_t *at = key;
    uint8_t *to = k->key;
    uint64_t h = table + (uint64_t)size, part;

    for (; size >= sizeof(part); size -= sizeof(part), at += sizeof(part), to += sizeof(part)) {
        memcpy(&part, at, sizeof(part));
        memcpy(to, &part, sizeof(part));
        h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    if (size != 0) {
        part = htole64(cn_tail64(at, size));
        memcpy(to, &part, sizeof(part));
        h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return h;
}

static inline struct txn_name *name_of(struct cairn_ctx *ctx, const struct txn_key *k)
{
    return &ctx->name[k->name >> 32 & (TXN_NAMES - 1)];
}

/* Both end with zeros: whole words are compared. */
static inline bool is_same_key(const uint8_t *a, const uint8_t *b, uint32_t size)
{
    return cn_bytes_equal(a, b, cn_align_up(size, 8));
}

static inline bool is_named(const struct txn_name *name, const struct txn_key *k)
{
    return name->key_size == k->key_size && name->table == k->table &&
        is_same_key(name->key, k->key, k->key_size);
}

/* A name not met lately. Errors: CAIRN_E_NO_TABLE. */
__attribute__((noinline)) static int learn_name(
    struct cairn_ctx *ctx, struct txn_key *k, struct txn_name *name)
{
    const struct txn_config *config = ctx->cluster->config;

    if (!txn_config_has_table(config, k->table))
        return cn_fail(CAIRN_E_NO_TABLE, "no table with id %u in %s", k->table, config->path);
    k->peer = (uint16_t)txn_config_shard(config, k->table, k->key, k->key_size);
    if (k->key_size > TXN_NAME_KEY_MAX)
        return 0;
    name->table = k->table;
    name->peer = k->peer;
    name->key_size = k->key_size;
    memcpy(name->key, k->key, cn_align_up(k->key_size, 8));
    name->edition = 0;
    name->index = NULL;
    return 0;
}

/* Shard, and the hash in the index if it is known. */
static inline int find_name(struct cairn_ctx *ctx, struct txn_key *k)
{
    struct txn_name *name = name_of(ctx, k);

    if (CN_UNLIKELY(!is_named(name, k)))
        return learn_name(ctx, k, name);
    k->peer = name->peer;
    k->index = name->index;
    k->hash = name->hash;
    k->edition = name->edition;
    return 0;
}

static void note_hash(struct cairn_ctx *ctx, const struct txn_key *k)
{
    struct txn_name *name = name_of(ctx, k);

    if (!is_named(name, k))
        return;
    name->index = k->index;
    name->hash = k->hash;
    name->edition = k->edition;
}

/* ---- keys ---- */

/* All but the bytes of the key, which are behind them. */
static inline void clear_key(struct txn_key *k)
{
    _Static_assert(offsetof(struct txn_key, key) % 8 == 0, "cn_zero");
    cn_zero(k, offsetof(struct txn_key, key));
    k->block = TXN_NONE;
}

CN_HOT
int txn_set_key(
    struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size, struct txn_key **ret_key)
{
    struct txn_key *fresh = &tx->key[tx->key_count];

    if (CN_UNLIKELY(key == NULL || key_size == 0 || key_size > CAIRN_KEY_SIZE_MAX))
        return cn_fail(CAIRN_E_KEY_SIZE, "a key of %zu bytes; 1 to %u are allowed", key_size,
            CAIRN_KEY_SIZE_MAX);
    uint64_t name = take_name(fresh, table, key, key_size);
    for (struct txn_key *k = tx->key; k != fresh; k++) {
        if (k->name == name && k->table == table && k->key_size == key_size &&
            is_same_key(k->key, fresh->key, (uint32_t)key_size)) {
            *ret_key = k;
            return 0;
        }
    }
    if (CN_UNLIKELY(tx->key_count == CAIRN_TX_KEYS_MAX))
        return cn_fail(CAIRN_E_TX_SIZE, "more than %u keys in a transaction", CAIRN_TX_KEYS_MAX);
    clear_key(fresh);
    fresh->name = name;
    fresh->table = table;
    fresh->key_size = (uint8_t)key_size;
    int rc = find_name(tx->ctx, fresh);
    if (CN_UNLIKELY(rc != 0))
        return rc;
    tx->key_count++;
    *ret_key = fresh;
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
    rc = txn_table_need(tx, peer, key->table, &key->index);
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
        next->value_room = (uint32_t)cn_align_up(next->value_size, 8);
        memmove(tx->values + used, tx->values + next->value_off, next->value_room);
        next->value_off = (uint32_t)used;
        used += next->value_room;
    }
    tx->values_used = used;
}

/* Bytes of keys and values written at a node, without `except`. */
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

/* Room for a value of the key; what it had before is a hole. */
static inline void take_room(struct cairn_tx *tx, struct txn_key *key, uint32_t room)
{
    key->write = TXN_WRITE_NONE;
    if (tx->values_used + room > tx->values_size)
        compact(tx);
    CAIRN_ASSERT(tx->values_used + room <= tx->values_size);
    key->value_off = (uint32_t)tx->values_used;
    key->value_room = room;
    tx->values_used += room;
}

CN_HOT
int txn_set_write(struct cairn_tx *tx, struct txn_key *key, enum txn_write write, const void *value,
    size_t value_size)
{
    uint32_t room = (uint32_t)cn_align_up(value_size, 8);
    uint64_t bytes = tx->bytes_written + key->key_size + value_size;

    if (key->write != TXN_WRITE_NONE)
        bytes -= key->key_size + (uint64_t)key->value_size;
    /* What is not too much for one node in all is not too much for any. */
    if (CN_UNLIKELY(bytes > CAIRN_TX_BYTES_MAX) &&
        bytes_at(tx, key->peer, key) + key->key_size + value_size > CAIRN_TX_BYTES_MAX)
        return cn_fail(CAIRN_E_TX_SIZE, "more than %u bytes written to one node in a transaction",
            CAIRN_TX_BYTES_MAX);
    tx->bytes_written = bytes;
    tx->writes += key->write == TXN_WRITE_NONE;
    if (room > key->value_room)
        take_room(tx, key, room);
    uint8_t *at = tx->values + key->value_off;
    if (value_size % 8 != 0) /* zeros behind it, as records have */
        cn_zero(at + room - 8, 8);
    if (value_size <= 64)
        cn_copy_small(at, value, value_size);
    else
        memcpy(at, value, value_size);
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
