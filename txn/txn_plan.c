/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_plan.c: the PREPARE step: from buffered writes to one effect per key (update, insert, move,
 * delete or nothing), the words to lock, room in the buckets, named blocks, ring space. Everything
 * that can be full says so here, before commit (R4). And after COMMITTED: what the cache learns.
 *
 * A belief out of the cache is good enough to lock by: the CAS succeeds only at the remembered
 * version, and a version of a place stands for one content for ever (I5). What the cache cannot
 * vouch for, that the place is this key's and that the bucket has room, is read behind the CAS in
 * the same trip (txn_lock.c).
 */
#include "txn/txn_ctx.h"

/* ---- beliefs ---- */

static bool wants_bucket(const struct txn_key *k)
{
    return k->effect == PM_OP_INSERT || k->effect == PM_OP_MOVE || k->effect == PM_OP_DELETE;
}

static bool find_hint(struct cairn_tx *tx, const struct txn_key *k, struct txn_hint *hint)
{
    const struct txn_peer *peer = &tx->ctx->peer[k->peer];

    return txn_cache_find(
        tx->ctx->cluster->cache, peer->node, peer->incarnation, k->table, k->hash, hint);
}

/* Believe the cache about a key that is written blindly. False: it knows nothing useful. */
static bool believe_hint(struct cairn_tx *tx, struct txn_key *k)
{
    const struct txn_peer *peer = &tx->ctx->peer[k->peer];
    struct txn_hint hint;

    if (!find_hint(tx, k, &hint)) {
        tx->ctx->stats.cache_misses++;
        return false;
    }
    bool bucket = hint.bucket != 0 && txn_in_extents(peer, hint.bucket, PM_BUCKET_SIZE);
    bool item = hint.item != 0 && pm_class_size(hint.class_) != 0 &&
        txn_in_extents(peer, hint.item, pm_class_size(hint.class_));
    if (!item && (hint.item != 0 || !bucket))
        return false;
    tx->ctx->stats.cache_hits++;
    k->hinted = true;
    k->belief = item ? TXN_BELIEF_PRESENT : TXN_BELIEF_ABSENT;
    k->item = hint.item;
    k->item_word = hint.version;
    k->item_size = hint.item_size;
    k->class_ = hint.class_;
    if (bucket) {
        k->bucket_known = k->bucket_hinted = true;
        k->bucket = hint.bucket;
        k->bucket_word = hint.bucket_version;
    }
    return true;
}

static void believe_bucket_hint(struct cairn_tx *tx, struct txn_key *k)
{
    struct txn_hint hint;

    if (!find_hint(tx, k, &hint) || hint.bucket == 0 ||
        !txn_in_extents(&tx->ctx->peer[k->peer], hint.bucket, PM_BUCKET_SIZE))
        return;
    k->bucket_known = k->bucket_hinted = true;
    k->bucket = hint.bucket;
    k->bucket_word = hint.bucket_version;
}

/* The net effect of what was buffered. */
static inline void decide(struct txn_key *k)
{
    uint64_t version = pm_word_version(k->item_word);

    k->effect = 0;
    if (k->write == TXN_WRITE_NONE || k->belief == TXN_BELIEF_NONE)
        return;
    if (k->belief == TXN_BELIEF_ABSENT) {
        if (k->write == TXN_WRITE_PUT)
            k->effect = PM_OP_INSERT;
        else
            k->read = true; /* nothing to delete: true only if it stays absent */
        return;
    }
    if (k->write == TXN_WRITE_DELETE)
        k->effect = PM_OP_DELETE;
    else if (pm_item_size(k->key_size, k->value_size) <= pm_class_size(k->class_) &&
        version <= PM_VERSION_MAX - PM_VERSION_MARGIN) /* T3 */
        k->effect = PM_OP_UPDATE;
    else
        k->effect = PM_OP_MOVE;
}

/* Look up, in parallel, every key for which `missing` holds. */
CN_HOT
static int look_up(struct cairn_tx *tx, bool (*missing)(const struct txn_key *), bool need_bucket,
    uint64_t *deadline_ns)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tx->key_count; i++) {
        if (missing(&tx->key[i]))
            txn_look_init(&tx->look[n++], tx, &tx->key[i], TXN_LOOK_LOCATE,
                need_bucket || tx->key[i].write == TXN_WRITE_DELETE);
        if (n == TXN_LOOKS_MAX || (n != 0 && i + 1 == tx->key_count)) {
            *deadline_ns = txn_due(tx->ctx, *deadline_ns);
            int rc = txn_look_run(tx, n, *deadline_ns);
            if (rc != 0)
                return rc;
            n = 0;
        }
    }
    return 0;
}

static bool misses_place(const struct txn_key *k)
{
    return k->write != TXN_WRITE_NONE && k->belief == TXN_BELIEF_NONE;
}

static bool misses_bucket(const struct txn_key *k)
{
    return wants_bucket(k) && !k->bucket_known;
}

CN_HOT
static int find_places(struct cairn_tx *tx, uint64_t *deadline_ns)
{
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        if (k->write == TXN_WRITE_NONE)
            continue;
        int rc = txn_set_locate(tx, k);
        if (rc != 0)
            return rc;
        if (k->belief == TXN_BELIEF_NONE)
            (void)believe_hint(tx, k);
    }
    int rc = look_up(tx, misses_place, false, deadline_ns);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < tx->key_count; i++) {
        decide(&tx->key[i]);
        if (misses_bucket(&tx->key[i]))
            believe_bucket_hint(tx, &tx->key[i]);
    }
    return look_up(tx, misses_bucket, true, deadline_ns);
}

/* ---- locks and room ---- */

/* Forget what an earlier pass wanted; what is held stays. */
CN_HOT
static void keep_held(struct cairn_tx *tx)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tx->lock_count; i++) {
        if (tx->lock[i].state != TXN_LOCK_HELD)
            continue;
        uint64_t *old = tx->lock[n].old;
        uint64_t *other = tx->lock[i].old;
        if (n != i) {
            tx->lock[n] = tx->lock[i];
            tx->lock[n].old = old;
            tx->lock[i].old = other;
        }
        tx->lock[n].written = false;
        tx->lock[n].inserts = 0;
        tx->lock[n].free_slots = -1;
        n++;
    }
    tx->lock_count = n;
}

CN_HOT
static int want_item(struct cairn_tx *tx, uint32_t i)
{
    struct txn_key *k = &tx->key[i];

    if (pm_word_version(k->item_word) == PM_VERSION_MAX)
        return cn_fail(CAIRN_E_VERSION_END,
            "node %u: the item at pool offset %#llx is at its last version",
            tx->ctx->peer[k->peer].node, (unsigned long long)k->item);
    struct txn_lock *lock = txn_lock_want(tx, k->peer, k->item, k->item_word, false);
    if (lock == NULL)
        return CAIRN_E_CONFLICT;
    lock->written = true;
    if (lock->state == TXN_LOCK_WANTED && k->hinted)
        lock->key = i;
    return 0;
}

/* Free slots of a bucket that is held: the key that it was locked for has seen it. */
static int32_t held_free_slots(const struct cairn_tx *tx, const struct txn_lock *lock)
{
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k->peer == lock->peer && k->bucket_known && !k->bucket_hinted &&
            k->bucket == lock->off &&
            pm_word_version(k->bucket_word) == pm_word_version(lock->word))
            return k->bucket_free;
    }
    return 0;
}

static int want_bucket(struct cairn_tx *tx, uint32_t i)
{
    struct txn_key *k = &tx->key[i];

    if (pm_word_version(k->bucket_word) > PM_VERSION_MAX - PM_VERSION_MARGIN)
        return cn_fail(CAIRN_E_VERSION_END,
            "node %u: the bucket at pool offset %#llx is at its last version",
            tx->ctx->peer[k->peer].node, (unsigned long long)k->bucket);
    struct txn_lock *lock = txn_lock_want(tx, k->peer, k->bucket, k->bucket_word, true);
    if (lock == NULL)
        return CAIRN_E_CONFLICT;
    lock->written = true;
    lock->inserts += k->effect == PM_OP_INSERT ? 1 : k->effect == PM_OP_DELETE ? -1 : 0;
    if (!k->bucket_hinted)
        lock->free_slots = k->bucket_free;
    else if (lock->state == TXN_LOCK_HELD)
        lock->free_slots = held_free_slots(tx, lock);
    else if (lock->key == TXN_NONE || k->hinted)
        lock->key = i;
    return 0;
}

/* T13: one word at two versions. The retry must not believe the cache again. */
static int clashed(struct cairn_tx *tx)
{
    for (uint32_t i = 0; i < tx->key_count; i++) {
        const struct txn_key *k = &tx->key[i];
        if (k->index != NULL)
            txn_cache_drop(tx->ctx->cluster->cache, tx->ctx->peer[k->peer].node, k->table, k->hash);
    }
    tx->ctx->stats.aborts_lock++;
    return CAIRN_E_CONFLICT;
}

CN_HOT
static int want_locks(struct cairn_tx *tx)
{
    keep_held(tx);
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        int rc = 0;
        if (k->effect != 0 && k->effect != PM_OP_INSERT)
            rc = want_item(tx, i);
        if (rc == 0 && wants_bucket(k))
            rc = want_bucket(tx, i);
        if (rc != 0)
            return rc == CAIRN_E_CONFLICT ? clashed(tx) : rc;
    }
    return txn_set_agrees(tx) ? 0 : clashed(tx);
}

/* A bucket that was seen and has too few free slots; NULL: none. */
CN_HOT
static struct txn_lock *crowded(struct cairn_tx *tx)
{
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        struct txn_lock *lock = &tx->lock[i];
        if (lock->bucket && lock->written && lock->free_slots >= 0 &&
            lock->inserts > lock->free_slots)
            return lock;
    }
    return NULL;
}

/* Ask for room, or leave it to the end of the abort while locks are held. 0: plan again. */
static int make_room(struct cairn_tx *tx, const struct txn_lock *lock, uint64_t *deadline_ns)
{
    bool conflict = tx->held != 0;

    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        if (k->peer != lock->peer || k->bucket != lock->off || !k->bucket_known)
            continue;
        if (k->effect == PM_OP_INSERT) {
            tx->room_wanted = true;
            tx->room_peer = k->peer;
            tx->room_root = k->index->root.off;
            tx->room_hash = k->hash;
            tx->room_count = (uint32_t)lock->inserts;
        }
        conflict |= k->read;
        k->bucket_known = false;
        k->belief = TXN_BELIEF_NONE;
        txn_cache_drop(tx->ctx->cluster->cache, tx->ctx->peer[k->peer].node, k->table, k->hash);
    }
    if (conflict)
        return CAIRN_E_CONFLICT;
    tx->room_wanted = false;
    *deadline_ns = txn_due(tx->ctx, *deadline_ns);
    return txn_room(
        &tx->ctx->peer[tx->room_peer], tx->room_root, tx->room_hash, tx->room_count, *deadline_ns);
}

/* ---- blocks and rings ---- */

static bool wants_block(const struct txn_key *k)
{
    return k->effect == PM_OP_INSERT || k->effect == PM_OP_MOVE;
}

/* How many blocks like this key's the transaction wants, from this key on. */
static uint32_t count_like(const struct cairn_tx *tx, const struct txn_key *k)
{
    uint32_t wanted = 0;

    for (const struct txn_key *o = k, *end = tx->key + tx->key_count; o != end; o++)
        wanted += wants_block(o) && o->peer == k->peer && o->block_class == k->block_class;
    return wanted;
}

/* The first key whose node has not enough of its class in stock for all; NULL: none. */
static struct txn_key *short_of_blocks(struct cairn_tx *tx, uint32_t *ret_wanted)
{
    for (struct txn_key *k = tx->key, *end = k + tx->key_count; k != end; k++) {
        if (!wants_block(k))
            continue;
        *ret_wanted = count_like(tx, k);
        if (tx->ctx->peer[k->peer].stock_count[k->block_class] < *ret_wanted)
            return k;
    }
    return NULL;
}

/* All blocks or none: nobody who has some waits for more. */
static int take_blocks(struct cairn_tx *tx, uint64_t *deadline_ns)
{
    struct txn_key *k, *end = tx->key + tx->key_count;
    uint32_t wanted;

    for (k = tx->key; k != end; k++) {
        if (!wants_block(k))
            continue;
        uint32_t class_ = pm_class_for(k->key_size, k->value_size);
        CAIRN_ASSERT(class_ < PM_CLASS_COUNT);
        k->block_class = (uint8_t)class_;
    }
    while ((k = short_of_blocks(tx, &wanted)) != NULL) {
        *deadline_ns = txn_due(tx->ctx, *deadline_ns);
        int rc = txn_stock_need(&tx->ctx->peer[k->peer], k->block_class, wanted, *deadline_ns);
        if (rc != 0)
            return rc;
    }
    for (k = tx->key; k != end; k++) {
        if (!wants_block(k))
            continue;
        struct txn_peer *peer = &tx->ctx->peer[k->peer];
        k->block = txn_block_take(peer, k->block_class);
        tx->blocks++;
        k->block_off = peer->block[k->block].off;
        k->block_version = peer->block[k->block].version;
    }
    return 0;
}

/*
 * The usual case in one pass: every key that was met is an item whose word is held, at the version
 * that is believed, and what is written of them fits in place. Then there is nothing to look up, to
 * lock or to split; no word is believed at two versions, for it has one entry of one version (T13);
 * and nothing is left to validate. Who takes part is known with it. False: not that case; the
 * general way decides all of it anew.
 */
CN_HOT
static bool plan_held(struct cairn_tx *tx)
{
    if (tx->held != tx->lock_count || tx->has_token || tx->ctx->lost != 0)
        return false;
    for (struct txn_key *k = tx->key, *end = k + tx->key_count; k != end; k++) {
        if (k->belief != TXN_BELIEF_PRESENT)
            return false;
        struct txn_lock *lock = txn_lock_of_item(tx, k);
        if (lock == NULL || pm_word_version(lock->word) != pm_word_version(k->item_word))
            return false;
        decide(k);
        if (k->effect == 0)
            continue;
        if (k->effect != PM_OP_UPDATE || lock->written)
            return false;
        k->lock = (uint32_t)(lock - tx->lock);
        lock->written = true;
        txn_log_join(tx, k, 1);
    }
    return true;
}

CN_HOT
static int plan_any(struct cairn_tx *tx, uint64_t deadline_ns)
{
    for (uint32_t tries = 0;; tries++) {
        int rc = find_places(tx, &deadline_ns);
        if (rc == 0)
            rc = want_locks(tx);
        if (rc != 0)
            return rc;
        const struct txn_lock *full = crowded(tx);
        if (full == NULL)
            break;
        rc = tries < TXN_ROOM_TRIES_MAX ? make_room(tx, full, &deadline_ns) : clashed(tx);
        if (rc != 0)
            return rc;
    }
    return take_blocks(tx, &deadline_ns);
}

CN_HOT
int txn_plan(struct cairn_tx *tx, uint64_t deadline_ns)
{
    tx->holds_all = plan_held(tx);
    if (!tx->holds_all) {
        int rc = plan_any(tx, deadline_ns);
        if (rc != 0)
            return rc;
        txn_log_plan(tx);
    }
    return txn_log_reserve(tx, deadline_ns);
}

/* ---- after COMMITTED ---- */

/* A bucket that was written to: a hint of another version may be of another range. */
static void learn_bucket(struct cairn_tx *tx, struct txn_key *k)
{
    const struct txn_lock *lock = k->bucket_known ? txn_lock_find(tx, k->peer, k->bucket) : NULL;

    if (lock == NULL || !lock->written)
        return;
    k->bucket_known = pm_word_version(lock->word) == pm_word_version(k->bucket_word);
    k->bucket_word = pm_word_version(lock->word) + 1;
}

CN_HOT
void txn_plan_learn(struct cairn_tx *tx)
{
    for (struct txn_key *k = tx->key, *end = k + tx->key_count; k != end; k++) {
        if (k->effect == 0)
            continue;
        if (CN_UNLIKELY(!tx->holds_all)) /* else it holds items only */
            learn_bucket(tx, k);
        k->recheck = false;
        switch (k->effect) {
        case PM_OP_UPDATE: k->item_word = pm_word_version(k->item_word) + 1; break;
        case PM_OP_INSERT:
        case PM_OP_MOVE:
            k->item = k->block_off;
            k->item_word = k->block_version + 1;
            k->class_ = k->block_class;
            k->belief = TXN_BELIEF_PRESENT;
            break;
        default: k->belief = TXN_BELIEF_ABSENT; break;
        }
        if (k->belief == TXN_BELIEF_PRESENT)
            k->item_size = pm_item_size(k->key_size, k->value_size);
        txn_hint_put(k, &tx->ctx->peer[k->peer]);
    }
}
