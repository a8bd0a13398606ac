/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_lock.c: the lock words of a transaction: step 1 (LOCK), step 2 (VALIDATE) and release.
 *
 * Invariants: one entry per word, with one believed version (T13). HELD means that the CAS came
 * back with what it expected; only such a word is ever released by CAS. A CAS whose result is
 * unknown is UNCERTAIN and is left to the node (R13).
 */
#include "txn/txn_ctx.h"

CN_HOT
struct txn_lock *txn_lock_find(struct cairn_tx *tx, uint16_t peer, uint64_t off)
{
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        if (tx->lock[i].off == off && tx->lock[i].peer == peer)
            return &tx->lock[i];
    }
    return NULL;
}

/* A place for one more lock. A table that is full holds tries that failed, which are over: what is
 * held, wanted now or wanted at commit always fits. */
static inline struct txn_lock *new_lock(struct cairn_tx *tx)
{
    if (tx->lock_count < TXN_LOCKS_MAX)
        return &tx->lock[tx->lock_count++];
    for (uint32_t i = 0; i < TXN_LOCKS_MAX; i++) {
        if (tx->lock[i].state == TXN_LOCK_FAILED && tx->lock[i].status != TXN_PENDING)
            return &tx->lock[i];
    }
    cn_panic(__FILE__, __LINE__, "more locks than keys account for");
}

/* The one that there is of the word. NULL: at another version. */
static struct txn_lock *want_again(struct txn_lock *lock, uint64_t word)
{
    if (lock->state == TXN_LOCK_FAILED) { /* an earlier try: no belief any more */
        lock->state = TXN_LOCK_WANTED;
        lock->word = word;
        return lock;
    }
    if (pm_word_version(lock->word) != pm_word_version(word) && !CN_MUTANT(c_merge_beliefs))
        return NULL;
    if (pm_word_version(word) > pm_word_version(lock->word) && lock->state == TXN_LOCK_WANTED)
        lock->word = word;
    return lock;
}

CN_HOT
struct txn_lock *txn_lock_want(
    struct cairn_tx *tx, uint16_t peer, uint64_t off, uint64_t word, bool bucket)
{
    for (struct txn_lock *l = tx->lock, *end = l + tx->lock_count; l != end; l++) {
        if (l->off == off && l->peer == peer)
            return want_again(l, word);
    }
    struct txn_lock *lock = new_lock(tx);
    uint64_t *old = lock->old;
    *lock = (struct txn_lock){
        .off = off,
        .word = word,
        .old = old,
        .key = TXN_NONE,
        .peer = peer,
        .state = TXN_LOCK_WANTED,
        .free_slots = -1,
        .bucket = bucket,
    };
    return lock;
}

CN_HOT
bool txn_lock_is_own(struct cairn_tx *tx, const struct txn_peer *peer, uint64_t off, uint64_t word,
    uint64_t *ret_word)
{
    struct txn_lock *lock = tx->held == 0 ? NULL : txn_lock_find(tx, peer->at, off);

    if (lock == NULL || lock->state != TXN_LOCK_HELD || word != txn_lock_word(peer, lock))
        return false;
    *ret_word = pm_word_version(lock->word);
    return true;
}

CN_HOT
void txn_lock_post(struct cairn_tx *tx, struct txn_lock *lock, struct txn_batch *batch)
{
    struct txn_peer *peer = &tx->ctx->peer[lock->peer];

    (void)txn_post_cas(
        peer, batch, &lock->status, lock->off, lock->word, txn_lock_word(peer, lock), lock->old);
}

CN_HOT
bool txn_lock_take(struct cairn_tx *tx, struct txn_lock *lock)
{
    if (lock->status != 0)
        lock->state = TXN_LOCK_UNCERTAIN;
    else if (*lock->old != lock->word)
        lock->state = TXN_LOCK_FAILED;
    else {
        lock->state = TXN_LOCK_HELD;
        tx->held++;
        return true;
    }
    return false;
}

void txn_note_blocker(struct cairn_ctx *ctx, struct txn_peer *peer, uint64_t off, uint64_t word)
{
    struct txn_blocker *b = &ctx->blocker;
    uint64_t now = txn_now(ctx);

    /* Several lookups may be blocked at once, by different words: the first keeps the place while
     * it lasts, else they would displace each other and none would ever be asked about. */
    if ((b->off != off || b->peer != peer->at) && b->off != 0 && now - b->seen_ns < TXN_BLOCKER_NS)
        return;
    if (b->off != off || b->word != word || b->peer != peer->at) {
        *b = (struct txn_blocker){
            .off = off, .word = word, .since_ns = now, .seen_ns = now, .peer = peer->at};
        return;
    }
    b->seen_ns = now;
    if (now - b->since_ns >= TXN_WORD_NS && now - b->asked_ns >= TXN_WORD_NS) {
        b->asked_ns = now;
        (void)txn_ask_word(peer, off, word);
    }
}

/* ---- step 1 ---- */

/* A lock believed out of the cache: read behind the CAS what it covers, in the same trip. */
static void post_proof(struct cairn_tx *tx, struct txn_lock *lock, struct txn_batch *batch)
{
    struct txn_peer *peer = &tx->ctx->peer[lock->peer];
    uint32_t size = PM_BUCKET_SIZE;

    if (lock->key == TXN_NONE)
        return;
    if (!lock->bucket)
        size = PM_ITEM_HEADER_SIZE + (uint32_t)cn_align_up(tx->key[lock->key].key_size, 8);
    lock->proof = txn_scratch(tx, size);
    CAIRN_ASSERT(lock->proof != NULL);
    (void)txn_post_read(peer, batch, &lock->proof_status, lock->off, lock->proof, size);
}

/* The item at the place is this key's: header and key are never rewritten while it lives. */
static bool item_proves(const struct txn_lock *lock, const struct txn_key *key)
{
    struct pm_item_pm item;

    memcpy(&item, lock->proof, sizeof(item));
    uint64_t meta = le64_get(item.head.meta);
    return pm_meta_kind(meta) == PM_KIND_ITEM &&
        pm_word_version(meta) == pm_word_version(lock->word) &&
        le32_get(item.head.index) == key->index->root.index &&
        le16_get(item.key_size) == key->key_size &&
        memcmp(lock->proof + sizeof(item), key->key, key->key_size) == 0;
}

static bool bucket_proves(struct cairn_tx *tx, struct txn_lock *lock, const struct txn_key *key)
{
    struct txn_peer *peer = &tx->ctx->peer[lock->peer];
    struct pm_bucket_view view;
    struct le64 word = le64_make(pm_word_version(lock->word));

    memcpy(lock->proof, &word, sizeof(word));
    pm_bucket_look(lock->proof, lock->off, peer->crc_seed, peer->tag, &view);
    if (view.seen != PM_SEEN_OK || view.index != key->index->root.index ||
        pm_hash_number(key->hash, view.depth) != view.number)
        return false;
    int32_t free_slots = (int32_t)key->index->root.bucket_slots - (int32_t)view.count;
    if (lock->inserts > free_slots) {
        tx->room_wanted = true;
        tx->room_peer = lock->peer;
        tx->room_root = key->index->root.off;
        tx->room_hash = key->hash;
        tx->room_count = (uint32_t)lock->inserts;
        return false;
    }
    return true;
}

static bool proves(struct cairn_tx *tx, struct txn_lock *lock)
{
    struct txn_key *key = &tx->key[lock->key];

    if (lock->proof_status != 0)
        return false;
    if (lock->bucket ? bucket_proves(tx, lock, key) : item_proves(lock, key))
        return true;
    txn_cache_drop(tx->ctx->cluster->cache, tx->ctx->peer[key->peer].node, key->table, key->hash);
    return false;
}

/* A lock was not acquired: what the cache says about its keys is stale, and somebody may hold it.
 */
static void lock_failed(struct cairn_tx *tx, struct txn_lock *lock)
{
    struct txn_peer *peer = &tx->ctx->peer[lock->peer];

    if (lock->state == TXN_LOCK_FAILED && pm_word_is_locked(*lock->old, peer->tag)) {
        txn_note_blocker(tx->ctx, peer, lock->off, *lock->old);
        return;
    }
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        if (k->index != NULL && k->peer == lock->peer &&
            (k->item == lock->off || k->bucket == lock->off))
            txn_cache_drop(tx->ctx->cluster->cache, peer->node, k->table, k->hash);
    }
}

/* Those that are wanted. */
__attribute__((noinline)) static int lock_wanted(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch batch = {0};
    bool all = true;
    uint32_t wanted = 0;

    tx->scratch_used = 0;
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        struct txn_lock *lock = &tx->lock[i];
        if (lock->state != TXN_LOCK_WANTED)
            continue;
        wanted++;
        txn_lock_post(tx, lock, &batch);
        if (lock->status == TXN_PENDING)
            post_proof(tx, lock, &batch);
    }
    if (wanted != 0)
        (void)txn_wait_trip(ctx, &batch, deadline_ns);
    for (uint32_t i = 0; i < tx->lock_count && wanted != 0; i++) {
        struct txn_lock *lock = &tx->lock[i];
        if (lock->state != TXN_LOCK_WANTED)
            continue;
        if (!txn_lock_take(tx, lock)) {
            lock_failed(tx, lock);
            all = false;
        } else if (lock->key != TXN_NONE && !proves(tx, lock))
            all = false;
    }
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    if (batch.status != 0)
        return batch.status;
    if (all)
        return 0;
    ctx->stats.aborts_lock++;
    return CAIRN_E_CONFLICT;
}

CN_HOT
int txn_lock_all(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    int rc;

    cn_step(ctx->env, CN_STEP_c_lock);
    if (CN_LIKELY(tx->holds_all))
        rc = ctx->lost != 0 ? txn_lost_error(ctx) : 0;
    else
        rc = lock_wanted(tx, deadline_ns);
    if (CN_LIKELY(rc == 0))
        cn_step(ctx->env, CN_STEP_c_locked);
    return rc;
}

/* ---- step 2 ---- */

/* Does the key's belief need a validating read? A guard that is held, at the believed version, does
 * not. */
CN_HOT
static bool needs_validation(struct cairn_tx *tx, const struct txn_key *key, uint64_t *ret_off)
{
    uint64_t off, word;

    if (!key->read || !txn_key_guard(key, &off, &word))
        return false;
    *ret_off = off;
    const struct txn_lock *lock = txn_lock_find(tx, key->peer, off);
    return lock == NULL || lock->state != TXN_LOCK_HELD;
}

/* Read again what was read and is not held. */
__attribute__((noinline)) static int validate_reads(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch batch = {0};
    uint64_t *words = tx->words + TXN_LOCKS_MAX;
    int status[CAIRN_TX_KEYS_MAX];
    uint64_t off, word;

    for (uint32_t i = 0; i < tx->key_count; i++) {
        if (needs_validation(tx, &tx->key[i], &off))
            (void)txn_post_read(&ctx->peer[tx->key[i].peer], &batch, &status[i], off, &words[i], 8);
    }
    int rc = txn_wait_trip(ctx, &batch, deadline_ns);
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < tx->key_count; i++) {
        struct txn_key *k = &tx->key[i];
        struct txn_peer *peer = &ctx->peer[k->peer];
        if (!needs_validation(tx, k, &off))
            continue;
        (void)txn_key_guard(k, &off, &word);
        uint64_t now = le64toh(words[i]);
        bool locked = pm_word_is_locked(now, peer->tag) && !CN_MUTANT(c_validate_ignores_lock);
        if (pm_word_version(now) == pm_word_version(word) && !locked)
            continue;
        if (locked)
            txn_note_blocker(ctx, peer, off, now);
        txn_cache_drop(ctx->cluster->cache, peer->node, k->table, k->hash);
        ctx->stats.aborts_validate++;
        return CAIRN_E_CONFLICT;
    }
    return 0;
}

CN_HOT
int txn_validate(struct cairn_tx *tx, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    int rc;

    if (tx->state == TXN_STATE_CHECK && !txn_set_agrees(tx)) {
        ctx->stats.aborts_validate++;
        return CAIRN_E_CONFLICT;
    }
    cn_step(ctx->env, CN_STEP_c_validate);
    if (CN_MUTANT(c_skip_validate))
        return 0;
    if (CN_LIKELY(tx->holds_all))
        rc = ctx->lost != 0 ? txn_lost_error(ctx) : 0;
    else
        rc = validate_reads(tx, deadline_ns);
    if (CN_LIKELY(rc == 0))
        cn_step(ctx->env, CN_STEP_c_validated);
    return rc;
}

/* ---- release ---- */

CN_HOT
void txn_release(struct cairn_tx *tx, bool background)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch here = {0};
    struct txn_batch *batch = background ? &tx->background : &here;
    bool stepped = false;

    if (background && tx->held == 0) /* all of them are in records */
        return;
    for (uint32_t i = 0; i < tx->lock_count; i++) {
        struct txn_lock *lock = &tx->lock[i];
        struct txn_peer *peer = &ctx->peer[lock->peer];
        uint64_t version = pm_word_version(lock->word);
        uint64_t expected = txn_lock_word(peer, lock);
        if (lock->state == TXN_LOCK_FAILED && CN_MUTANT(c_release_unacquired)) {
            expected = *lock->old;
            version = pm_word_version(expected);
        } else if (lock->state != TXN_LOCK_HELD)
            continue;
        if (!stepped)
            cn_step(ctx->env, CN_STEP_c_release);
        stepped = true;
        lock->state = TXN_LOCK_FAILED;
        if (peer->state == TXN_PEER_UP)
            (void)txn_post_cas(peer, batch, &lock->status, lock->off, expected, version, lock->old);
    }
    tx->held = 0;
    if (!background)
        (void)txn_wait(ctx, batch, TXN_LATER);
    else if (stepped)
        txn_ring(ctx);
}
