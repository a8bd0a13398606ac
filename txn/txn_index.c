/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_index.c: the lookup state machine. Each state posts its reads in one round and takes them
 * when all of the round have completed:
 *
 *   ITEM        a place out of the cache, the read set, or a MOVED header
 *   LOCK_ITEM   CAS of the item's word; from a remembered version with a READ behind it
 *   BUCKET      512 bytes; believed only inside the range it states under its crc
 *   MAP         a missing chunk map entry
 *   CANDIDATES  items of slots whose fingerprint fits, a few at a time; the item proves itself (I3)
 *   LOCK_BUCKET CAS of the bucket's word for an absent key
 *   UNLOCK      a lock got by a remembered version that proved wrong is given back
 *
 * Everything read is hostile: offsets are checked against the extents before they are used.
 */
#include "txn/txn_ctx.h"

/* Place of the bucket look->number: state BUCKET, or MAP where the chunk is not known. */
static void aim(struct txn_look *look)
{
    uint32_t shift = txn_bucket_shift(look->peer);
    uint64_t entry = look->number >> shift;

    while (entry >= look->key->index->root.map_max) {
        look->number = pm_bucket_parent(look->number);
        entry = look->number >> shift;
    }
    uint64_t chunk = txn_map_get(look->peer, look->key->index, entry);
    look->map_at = entry;
    look->state = chunk == 0 ? TXN_AT_MAP : TXN_AT_BUCKET;
    look->bucket = chunk + (look->number & ((UINT64_C(1) << shift) - 1)) * PM_BUCKET_SIZE;
}

void txn_look_aim(struct txn_look *look)
{
    const struct pm_index *root = &look->key->index->root;

    look->number = pm_index_guess(look->key->hash, root->level, root->sweep);
    aim(look);
}

/* One more bucket to visit: bounded, then the hints are reset once, then it is an error. */
static void hop(struct txn_look *look, uint64_t number)
{
    look->tx->ctx->stats.bucket_hops++;
    look->number = number;
    if (++look->hops > TXN_HOPS_MAX) {
        if (look->reset_done) {
            txn_look_done(look,
                cn_fail(CAIRN_E_CORRUPT_INDEX,
                    "node %u (%s): index %u sends a lookup in circles near bucket %llu",
                    look->peer->node, look->peer->address, look->key->index->root.index,
                    (unsigned long long)number));
            return;
        }
        look->reset_done = true;
        look->hops = 0;
        look->key->index->root.level = look->key->index->root.depth0;
        look->key->index->root.sweep = 0;
        look->number = pm_index_guess(look->key->hash, look->key->index->root.depth0, 0);
    }
    aim(look);
}

CN_HOT
static void start_pinned(struct txn_look *look)
{
    struct txn_key *k = look->key;
    uint64_t off, word;

    look->pinned = true;
    (void)txn_key_guard(k, &off, &word);
    const struct txn_lock *lock = txn_lock_find(look->tx, k->peer, off);
    bool held = lock != NULL && lock->state == TXN_LOCK_HELD;
    if (k->belief == TXN_BELIEF_PRESENT) {
        look->item = k->item;
        look->item_size = k->item_size;
        look->chained = look->mode == TXN_LOOK_UPDATE && !held;
        look->state = look->chained ? TXN_AT_LOCK_ITEM : TXN_AT_ITEM;
        return;
    }
    look->bucket = k->bucket;
    look->bucket_word = k->bucket_word;
    look->bucket_free = k->bucket_free;
    if (held) {
        k->read = true;
        txn_look_done(look, CAIRN_E_NOT_FOUND);
    } else
        look->state = look->mode == TXN_LOOK_UPDATE ? TXN_AT_LOCK_BUCKET : TXN_AT_BUCKET;
}

CN_HOT
static void clear_look(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    enum txn_look_mode mode, bool need_bucket)
{
    cn_zero(look, offsetof(struct txn_look, bytes));
    look->tx = tx;
    look->key = key;
    look->peer = &tx->ctx->peer[key->peer];
    look->mode = mode;
    look->need_bucket = need_bucket;
    key->looking = true;
}

/* At the place where the key was last seen. */
CN_HOT
static void start_hinted(struct txn_look *look, const struct txn_hint *hint)
{
    struct txn_key *key = look->key;

    look->tx->ctx->stats.cache_hits++;
    look->hinted = true;
    look->hint_item = hint->item;
    look->hint_version = hint->version;
    look->chained = look->mode == TXN_LOOK_UPDATE;
    txn_key_hint_bucket(key, look->peer, hint);
    if (hint->item != 0 && txn_in_extents(look->peer, hint->item, hint->item_size)) {
        look->item = hint->item;
        look->item_size = hint->item_size;
        key->item_word = hint->version;
        look->state = look->chained ? TXN_AT_LOCK_ITEM : TXN_AT_ITEM;
    } else if (hint->bucket != 0 && txn_in_extents(look->peer, hint->bucket, PM_BUCKET_SIZE)) {
        look->bucket = hint->bucket;
        look->bucket_word = hint->bucket_version;
        look->state = look->chained ? TXN_AT_LOCK_BUCKET : TXN_AT_BUCKET;
    } else
        txn_look_aim(look);
}

CN_HOT
void txn_look_init(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    enum txn_look_mode mode, bool need_bucket)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_hint hint;

    clear_look(look, tx, key, mode, need_bucket);
    if (mode == TXN_LOOK_LOCATE &&
        key->belief == TXN_BELIEF_PRESENT) { /* only its bucket is missing */
        look->found = true;
        look->pinned = key->read;
        txn_look_aim(look);
        return;
    }
    if (key->belief != TXN_BELIEF_NONE) {
        start_pinned(look);
        return;
    }
    if (!txn_cache_find(ctx->cluster->cache, look->peer->node, look->peer->incarnation, key->table,
            key->hash, &hint)) {
        ctx->stats.cache_misses++;
        txn_look_aim(look);
        return;
    }
    start_hinted(look, &hint);
}

void txn_look_resume(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    const struct txn_hint *hint, struct txn_lock *lock, uint8_t *bytes, int status)
{
    clear_look(look, tx, key, lock != NULL ? TXN_LOOK_UPDATE : TXN_LOOK_READ, false);
    start_hinted(look, hint);
    look->bytes[0] = bytes;
    look->status[0] = status;
    look->lock = lock != NULL ? (uint32_t)(lock - tx->lock) : TXN_NONE;
    look->taking = lock != NULL;
    txn_look_take(look);
}

/* ---- posting ---- */

CN_HOT
static bool post_read(
    struct txn_look *look, struct txn_batch *batch, uint32_t n, uint64_t off, uint32_t size)
{
    look->bytes[n] = txn_scratch(look->tx, size);
    if (look->bytes[n] == NULL)
        return false;
    (void)txn_post_read(look->peer, batch, &look->status[n], off, look->bytes[n], size);
    return true;
}

static bool post_candidates(struct txn_look *look, struct txn_batch *batch)
{
    look->cand_posted = 0;
    while (look->cand_posted < TXN_CANDIDATES_POSTED &&
        look->cand_next + look->cand_posted < look->cand_count) {
        const struct pm_slot_ref *ref = &look->cand[look->cand_next + look->cand_posted];
        if (!post_read(look, batch, look->cand_posted, ref->off, pm_class_size(ref->class_)))
            break;
        look->cand_posted++;
    }
    return look->cand_posted != 0;
}

/* CAS of the word at `off`, and with a remembered version a READ of the object behind it. */
CN_HOT
static bool post_lock(struct txn_look *look, struct txn_batch *batch, uint64_t off, uint32_t size)
{
    struct cairn_tx *tx = look->tx;
    bool bucket = look->state == TXN_AT_LOCK_BUCKET;
    uint64_t word = look->key->item_word;

    if (bucket)
        word = look->chained ? look->bucket_word : look->key->bucket_word;
    if (look->chained) {
        look->bytes[0] = txn_scratch(tx, size);
        if (look->bytes[0] == NULL)
            return false;
    }
    struct txn_lock *lock = txn_lock_want(tx, look->peer->at, off, word, bucket);
    look->lock = lock == NULL ? TXN_NONE : (uint32_t)(lock - tx->lock);
    look->status[0] = 0;
    look->taking = false;
    if (lock == NULL)
        return true; /* T13: take() finds out */
    /* Another look of this round may be taking the same word: one CAS, whose result is for both. */
    if (lock->state == TXN_LOCK_WANTED && lock->status != TXN_PENDING) {
        cn_step(tx->ctx->env, CN_STEP_c_lock);
        txn_lock_post(tx, lock, batch);
        look->taking = true;
    }
    if (look->chained)
        (void)txn_post_read(look->peer, batch, &look->status[0], off, look->bytes[0], size);
    return true;
}

CN_HOT
bool txn_look_post(struct txn_look *look, struct txn_batch *batch)
{
    const struct pm_index *root = &look->key->index->root;

    switch (look->state) {
    case TXN_AT_ITEM: return post_read(look, batch, 0, look->item, look->item_size);
    case TXN_AT_LOCK_ITEM: return post_lock(look, batch, look->item, look->item_size);
    case TXN_AT_BUCKET: return post_read(look, batch, 0, look->bucket, PM_BUCKET_SIZE);
    case TXN_AT_MAP:
        return post_read(look, batch, 0, root->off + PM_INDEX_MAP_OFF + 8 * look->map_at, 8);
    case TXN_AT_CANDIDATES: return post_candidates(look, batch);
    case TXN_AT_LOCK_BUCKET: return post_lock(look, batch, look->bucket, PM_BUCKET_SIZE);
    case TXN_AT_UNLOCK: {
        struct txn_lock *lock = &look->tx->lock[look->lock];
        uint64_t version = pm_word_version(lock->word);
        (void)txn_post_cas(look->peer, batch, &look->cas_status, lock->off,
            pm_word_make_locked(look->peer->tag, look->peer->slot, version), version, lock->old);
        return true;
    }
    case TXN_AT_DONE: break;
    }
    return true;
}

/* ---- taking ---- */

/* A word of our own lock reads as the unlocked word it was taken from: the object is still, for we
 * hold it. */
CN_HOT
static void unmask_own(struct txn_look *look, uint64_t off, uint8_t *bytes)
{
    struct le64 word;
    uint64_t plain;

    memcpy(&word, bytes, sizeof(word));
    if (txn_lock_is_own(look->tx, look->peer, off, le64_get(word), &plain)) {
        word = le64_make(plain);
        memcpy(bytes, &word, sizeof(word));
    }
}

/* The cached place was no good: look the key up from its bucket. */
static void go_cold(struct txn_look *look)
{
    struct cairn_ctx *ctx = look->tx->ctx;

    if (look->hinted) {
        txn_cache_drop(ctx->cluster->cache, look->peer->node, look->key->table, look->key->hash);
        look->key->bucket_known = look->key->bucket_known && !look->key->bucket_hinted;
    }
    look->hinted = false;
    look->chained = false;
    txn_look_aim(look);
}

CN_HOT
static void take_item(struct txn_look *look)
{
    struct pm_item_view view;

    unmask_own(look, look->item, look->bytes[0]);
    pm_item_look(
        look->bytes[0], look->item_size, look->item, look->peer->crc_seed, look->peer->tag, &view);
    if (txn_is_item_of(look->key, &view)) {
        txn_look_found(look, &view);
        return;
    }
    switch (view.seen) {
    case PM_SEEN_LOCKED: txn_look_blocked(look, look->item, view.word); return;
    case PM_SEEN_TORN:
        txn_look_torn(look, look->item, cn_crc32c(0, look->bytes[0], look->item_size), false);
        return;
    case PM_SEEN_SHORT:
        if (view.size_needed > look->item_size &&
            txn_in_extents(look->peer, look->item, view.size_needed)) {
            look->item_size = view.size_needed;
            return; /* again */
        }
        break;
    case PM_SEEN_OTHER:
        if (view.kind == PM_KIND_MOVED && pm_class_size(view.moved_to.class_) != 0 &&
            txn_in_extents(look->peer, view.moved_to.off, pm_class_size(view.moved_to.class_)) &&
            ++look->moves < 8 && !look->pinned) {
            look->item = view.moved_to.off;
            look->item_size = pm_class_size(view.moved_to.class_);
            return;
        }
        break;
    case PM_SEEN_OK:
    case PM_SEEN_EMPTY: break;
    }
    go_cold(look); /* a pinned key that is found elsewhere is a conflict there */
}

/* The word is locked at a remembered version, but the object is not what was remembered. A lock got
 * for this look alone is given back. */
static void unlock_wrong(struct txn_look *look)
{
    if (look->taking)
        look->state = TXN_AT_UNLOCK;
    else if (look->pinned)
        txn_look_conflict(look);
    else
        go_cold(look);
}

static void take_unlock(struct txn_look *look)
{
    struct cairn_tx *tx = look->tx;

    tx->lock[look->lock].state = TXN_LOCK_FAILED;
    tx->held--;
    if (look->pinned) {
        txn_look_conflict(look);
        return;
    }
    go_cold(look);
}

/* 1: acquired. 0: not, and the look has been told what to do next. */
CN_HOT
static int take_cas(struct txn_look *look, uint64_t off)
{
    struct cairn_tx *tx = look->tx;
    struct txn_lock *lock = look->lock == TXN_NONE ? NULL : &tx->lock[look->lock];

    if (lock != NULL && lock->state == TXN_LOCK_HELD)
        return 1;
    if (lock != NULL && txn_lock_take(tx, lock)) {
        cn_step(tx->ctx->env, CN_STEP_c_locked);
        return 1;
    }
    if (lock != NULL && lock->state == TXN_LOCK_UNCERTAIN) {
        txn_look_done(look, lock->status);
        return 0;
    }
    bool locked = lock != NULL && pm_word_is_locked(*lock->old, look->peer->tag);
    if (lock == NULL || look->pinned || ++look->cas_tries > TXN_CAS_TRIES_MAX) {
        if (locked)
            txn_note_blocker(tx->ctx, look->peer, off, *lock->old);
        txn_look_conflict(look);
        return 0;
    }
    /* Look again: at the item where it was, else from the bucket. */
    look->chained = false;
    look->found = false;
    look->key->belief = TXN_BELIEF_NONE;
    if (look->state == TXN_AT_LOCK_ITEM)
        look->state = TXN_AT_ITEM;
    else
        go_cold(look);
    if (locked)
        txn_look_blocked(look, off, *lock->old);
    return 0;
}

CN_HOT
static void take_lock_item(struct txn_look *look)
{
    struct pm_item_view view;

    if (take_cas(look, look->item) == 0)
        return;
    if (!look->chained) {
        look->key->read = true;
        txn_look_done(look, look->result);
        return;
    }
    unmask_own(look, look->item, look->bytes[0]);
    pm_item_look(
        look->bytes[0], look->item_size, look->item, look->peer->crc_seed, look->peer->tag, &view);
    /* The READ may have come before the CAS: what counts is the version that the CAS has seen. */
    if (txn_is_item_of(look->key, &view) &&
        view.version == pm_word_version(look->tx->lock[look->lock].word))
        txn_look_found(look, &view);
    else if (view.seen == PM_SEEN_SHORT && view.size_needed > look->item_size &&
        txn_in_extents(look->peer, look->item, view.size_needed)) {
        look->item_size = view.size_needed;
        look->state = TXN_AT_ITEM; /* the word is ours, the rest is to be read */
    } else
        unlock_wrong(look);
}

static void take_lock_bucket(struct txn_look *look)
{
    struct txn_key *k = look->key;
    struct pm_bucket_view view;

    if (take_cas(look, look->bucket) == 0)
        return;
    if (look->chained && !look->pinned) { /* absent at the remembered version, so absent now */
        unmask_own(look, look->bucket, look->bytes[0]);
        pm_bucket_look(look->bytes[0], look->bucket, look->peer->crc_seed, look->peer->tag, &view);
        if (view.seen != PM_SEEN_OK || view.index != k->index->root.index ||
            pm_hash_number(k->hash, view.depth) != view.number) {
            unlock_wrong(look);
            return;
        }
        look->bucket_accepted = true;
        look->bucket_word = view.word;
        look->bucket_free = view.count < k->index->root.bucket_slots
            ? (uint16_t)(k->index->root.bucket_slots - view.count)
            : 0;
        txn_look_absent(look);
    } else {
        k->read = true;
        txn_look_done(look, CAIRN_E_NOT_FOUND);
    }
    /* No room for it: better now than at commit. The lock is given back with the others. */
    if (look->state == TXN_AT_DONE && look->result == CAIRN_E_NOT_FOUND && k->bucket_free == 0)
        txn_look_want_room(look);
}

/* Slots whose fingerprint fits, with a place that can be one. */
static void collect(struct txn_look *look, const struct pm_bucket_view *view)
{
    uint16_t fp = pm_fingerprint(look->key->hash, look->key->index->root.fingerprint_bits);

    look->cand_count = look->cand_next = 0;
    for (uint32_t i = 0; i < PM_BUCKET_SLOTS; i++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(view->slot[i]));
        uint32_t size = pm_class_size(ref.class_);
        if (ref.off == 0 || ref.fingerprint != fp || size == 0 ||
            !txn_in_extents(look->peer, ref.off, size))
            continue;
        look->cand[look->cand_count++] = ref;
    }
}

/* The candidates are through and none is the key. */
static void not_among(struct txn_look *look)
{
    struct cairn_ctx *ctx = look->tx->ctx;

    if (look->torn_off != 0) {
        look->state = TXN_AT_BUCKET;
        txn_look_torn(look, look->torn_off, look->torn_pass_crc, false);
    } else if (look->saw_lock) {
        look->state = TXN_AT_BUCKET;
        txn_look_blocked(look, look->lock_off, look->lock_word);
    } else if (!look->bucket_accepted) {
        look->state = TXN_AT_BUCKET;
        txn_look_blocked(look, look->bucket, look->bucket_word);
    } else if (look->saw_stale && ++look->hops < TXN_HOPS_MAX) {
        look->state = TXN_AT_BUCKET; /* step 3 again: it must have changed meanwhile */
        if (look->tx->held == 0)
            look->not_before_ns = txn_now(ctx) + txn_backoff_ns(ctx, 0);
    } else if (look->saw_stale) {
        txn_look_done(look,
            cn_fail(CAIRN_E_CORRUPT_BUCKET,
                "node %u (%s): the bucket at pool offset %#llx keeps a slot that points to no item",
                look->peer->node, look->peer->address, (unsigned long long)look->bucket));
    } else
        txn_look_absent(look);
}

static void take_bucket(struct txn_look *look)
{
    struct txn_key *k = look->key;
    struct pm_bucket_view view;
    uint64_t mine;

    unmask_own(look, look->bucket, look->bytes[0]);
    pm_bucket_look(look->bytes[0], look->bucket, look->peer->crc_seed, look->peer->tag, &view);
    if (view.seen == PM_SEEN_EMPTY) {
        if (look->number >> k->index->root.depth0 == 0)
            txn_look_torn(look, look->bucket, cn_crc32c(0, look->bytes[0], PM_BUCKET_SIZE), true);
        else
            hop(look, pm_bucket_parent(look->number));
        return;
    }
    if (view.body_good && view.index == k->index->root.index) {
        mine = pm_hash_number(k->hash, view.depth);
        if (mine != view.number) {
            hop(look, mine);
            return;
        }
        if (view.seen == PM_SEEN_OK)
            txn_index_learn(k->index, view.number, view.depth);
        look->number = view.number;
    }
    look->bucket_accepted = view.seen == PM_SEEN_OK && view.index == k->index->root.index;
    look->bucket_word = view.word;
    look->bucket_free = view.count < k->index->root.bucket_slots
        ? (uint16_t)(k->index->root.bucket_slots - view.count)
        : 0;
    look->saw_lock = look->saw_stale = look->read_candidate = false;
    look->torn_off = 0;
    if (look->found) { /* only the bucket was missing */
        if (!look->bucket_accepted)
            goto blocked;
        txn_look_bucket_seen(look);
        txn_hint_put(k, look->peer);
        txn_look_done(look, 0);
        return;
    }
    collect(look, &view);
    if (look->cand_count != 0)
        look->state = TXN_AT_CANDIDATES;
    else if (look->bucket_accepted)
        txn_look_absent(look);
    else
        goto blocked;
    return;

blocked:
    if (view.seen == PM_SEEN_LOCKED)
        txn_look_blocked(look, look->bucket, view.word);
    else
        txn_look_torn(look, look->bucket, cn_crc32c(0, look->bytes[0], PM_BUCKET_SIZE), true);
}

static void take_candidates(struct txn_look *look)
{
    struct pm_item_view view;

    look->read_candidate = true;
    for (uint32_t i = 0; i < look->cand_posted; i++) {
        const struct pm_slot_ref *ref = &look->cand[look->cand_next + i];
        uint32_t size = pm_class_size(ref->class_);
        unmask_own(look, ref->off, look->bytes[i]);
        pm_item_look(look->bytes[i], size, ref->off, look->peer->crc_seed, look->peer->tag, &view);
        if (txn_is_item_of(look->key, &view)) {
            look->item = ref->off;
            look->item_size = pm_item_size(view.key_size, view.value_size);
            txn_look_found(look, &view);
            return;
        }
        if (view.seen == PM_SEEN_LOCKED) {
            look->saw_lock = true;
            look->lock_off = ref->off;
            look->lock_word = view.word;
        } else if (view.seen == PM_SEEN_TORN) {
            look->torn_off = ref->off;
            look->torn_pass_crc = cn_crc32c(0, look->bytes[i], size);
        } else if (view.seen != PM_SEEN_OK)
            look->saw_stale = true; /* dead or moved: the bucket has changed since */
    }
    look->cand_next += look->cand_posted;
    if (look->cand_next >= look->cand_count)
        not_among(look);
}

static void take_map(struct txn_look *look)
{
    struct le64 raw;
    uint64_t chunk_size = UINT64_C(1) << look->peer->chunk_shift;

    memcpy(&raw, look->bytes[0], sizeof(raw));
    uint64_t chunk = le64_get(raw);
    if (chunk == 0 && look->number >> look->key->index->root.depth0 != 0) {
        hop(look, pm_bucket_parent(look->number));
        return;
    }
    if (chunk == 0 || chunk % chunk_size != 0 || !txn_in_extents(look->peer, chunk, chunk_size)) {
        txn_look_done(look,
            cn_fail(CAIRN_E_CORRUPT_INDEX,
                "node %u (%s): map entry %llu of index %u at %#llx is %#llx", look->peer->node,
                look->peer->address, (unsigned long long)look->map_at, look->key->index->root.index,
                (unsigned long long)look->key->index->root.off, (unsigned long long)chunk));
        return;
    }
    txn_map_set(look->peer, look->key->index, look->map_at, chunk);
    aim(look);
}

CN_HOT
static int first_failure(const struct txn_look *look)
{
    uint32_t count = look->state == TXN_AT_CANDIDATES ? look->cand_posted : 1;

    if (look->state == TXN_AT_UNLOCK)
        return look->cas_status;
    for (uint32_t i = 0; i < count; i++) {
        if (look->status[i] != 0)
            return look->status[i];
    }
    return 0;
}

CN_HOT
void txn_look_take(struct txn_look *look)
{
    int rc = first_failure(look);

    /* A lock that was got must be known even if the read behind it failed. */
    if (rc != 0 && (look->state == TXN_AT_LOCK_ITEM || look->state == TXN_AT_LOCK_BUCKET)) {
        if (look->lock != TXN_NONE && look->tx->lock[look->lock].state == TXN_LOCK_WANTED)
            (void)txn_lock_take(look->tx, &look->tx->lock[look->lock]);
    }
    if (rc != 0) {
        txn_look_done(look, rc);
        return;
    }
    switch (look->state) {
    case TXN_AT_ITEM: take_item(look); break;
    case TXN_AT_LOCK_ITEM: take_lock_item(look); break;
    case TXN_AT_BUCKET: take_bucket(look); break;
    case TXN_AT_MAP: take_map(look); break;
    case TXN_AT_CANDIDATES: take_candidates(look); break;
    case TXN_AT_LOCK_BUCKET: take_lock_bucket(look); break;
    case TXN_AT_UNLOCK: take_unlock(look); break;
    case TXN_AT_DONE: break;
    }
}
