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
    tx->key_count = tx->key_next = 0;
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

/* ---- where a key belongs ---- */

static inline uint64_t word_at(const void *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof(word));
    return word;
}

/* Put a key's bytes in place, with zeros up to a multiple of 8, and mix them: keys that differ have
 * different names, mostly. Not secret, so it only saves comparisons. */
static inline uint64_t take_name(struct txn_key *k, uint32_t table, const void *key, size_t size)
{
    const uint8_t *at = key;
    uint64_t h = table + (uint64_t)size, part;
    size_t i = 0;

    for (; i + 8 <= size; i += 8) {
        part = word_at(at + i);
        memcpy(k->key + i, &part, sizeof(part));
        h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    if (i != size) {
        part = htole64(cn_rest64(at, size));
        memcpy(k->key + i, &part, sizeof(part));
        h = (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
    }
    return h;
}

/* Are these the bytes of the key? */
static inline bool is_key(const struct txn_key *k, uint32_t table, const void *key, size_t size)
{
    const uint8_t *at = key;
    size_t i = 0;

    if (k->key_size != size || k->table != table)
        return false;
    for (; i + 8 <= size; i += 8) {
        if (word_at(at + i) != word_at(k->key + i))
            return false;
    }
    return i == size || word_at(k->key + i) == htole64(cn_rest64(at, size));
}

/* Both end with zeros: whole words are compared. */
static inline bool is_same_key(const uint8_t *a, const uint8_t *b, uint32_t size)
{
    return cn_bytes_equal(a, b, cn_align_up(size, 8));
}

static inline void hash_key(struct txn_key *k, struct txn_index *index)
{
    k->index = index;
    k->hash = pm_index_hash(&index->root, k->key, k->key_size);
    k->edition = index->edition;
}

/* Its shard, and its hash if the index there is known. Both are computed each time: what would
 * remember them for many keys is further away than that takes. Errors: CAIRN_E_NO_TABLE. */
static inline int place_key(struct cairn_ctx *ctx, struct txn_key *k)
{
    const struct txn_config *config = ctx->cluster->config;
    uint32_t at = txn_config_table_at(config, k->table);

    if (CN_UNLIKELY(at == config->table_count))
        return cn_fail(CAIRN_E_NO_TABLE, "no table with id %u in %s", k->table, config->path);
    k->peer = (uint16_t)txn_config_shard(config, k->table, k->key, k->key_size);
    struct txn_index *index = &ctx->index[k->peer * config->table_count + at];
    if (CN_LIKELY(index->known && index->incarnation == ctx->peer[k->peer].incarnation))
        hash_key(k, index);
    return 0;
}

/* ---- keys ---- */

/* All up to the places of a block. */
static inline void clear_key(struct txn_key *k)
{
    _Static_assert(offsetof(struct txn_key, block_off) % 16 == 0, "cn_zero");
    cn_zero(k, offsetof(struct txn_key, block_off));
    k->block = TXN_NONE;
}

/* A key that is not in the set: the one behind it, where its bytes are already. */
static inline int add_key(struct cairn_tx *tx, uint32_t table, size_t key_size, uint64_t name)
{
    struct txn_key *fresh = &tx->key[tx->key_count];

    if (CN_UNLIKELY(tx->key_count == CAIRN_TX_KEYS_MAX))
        return cn_fail(CAIRN_E_TX_SIZE, "more than %u keys in a transaction", CAIRN_TX_KEYS_MAX);
    clear_key(fresh);
    fresh->name = name;
    fresh->table = table;
    fresh->key_size = (uint8_t)key_size;
    int rc = place_key(tx->ctx, fresh);
    tx->key_count += rc == 0;
    return rc;
}

CN_HOT
int txn_set_key(
    struct cairn_tx *tx, uint32_t table, const void *key, size_t key_size, struct txn_key **ret_key)
{
    struct txn_key *k = &tx->key[tx->key_next], *fresh = &tx->key[tx->key_count];

    if (CN_UNLIKELY(key == NULL || key_size == 0 || key_size > CAIRN_KEY_SIZE_MAX))
        return cn_fail(CAIRN_E_KEY_SIZE, "a key of %zu bytes; 1 to %u are allowed", key_size,
            CAIRN_KEY_SIZE_MAX);
    /* What was read is mostly written in the same order: the one behind the one found last. */
    if (k != fresh && is_key(k, table, key, key_size)) {
        tx->key_next++;
        *ret_key = k;
        return 0;
    }
    uint64_t name = take_name(fresh, table, key, key_size);
    for (k = tx->key; k != fresh; k++) {
        if (k->name == name && k->table == table && k->key_size == key_size &&
            is_same_key(k->key, fresh->key, (uint32_t)key_size)) {
            tx->key_next = (uint32_t)(k - tx->key) + 1;
            *ret_key = k;
            return 0;
        }
    }
    int rc = add_key(tx, table, key_size, name);
    if (CN_LIKELY(rc == 0))
        *ret_key = fresh;
    return rc;
}

int txn_set_locate(struct cairn_tx *tx, struct txn_key *key)
{
    struct txn_peer *peer = &tx->ctx->peer[key->peer];
    struct txn_index *index;

    if (CN_LIKELY(txn_set_is_located(peer, key)))
        return 0;
    int rc = txn_peer_need(peer);
    if (rc != 0 || txn_set_is_located(peer, key))
        return rc;
    rc = txn_table_need(tx, peer, key->table, &index);
    if (rc != 0)
        return rc;
    hash_key(key, index);
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
