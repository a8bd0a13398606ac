/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_look.c: what a lookup does with what it has seen: beliefs, back-off, the caller's buffer.
 *
 * A key in the read set keeps its first belief: a later look that sees another version is a
 * CONFLICT. Back-off happens only while the transaction holds no lock (R13); one that holds a lock
 * may only look again at once, a bounded number of times, at an object that is unlocked and torn.
 */
#include "txn/txn_ctx.h"

CN_HOT
void txn_look_done(struct txn_look *look, int result)
{
    look->state = TXN_AT_DONE;
    look->result = result;
    look->key->looking = false;
}

CN_HOT
void txn_hint_put(const struct txn_key *key, const struct txn_peer *peer)
{
    bool present = key->belief == TXN_BELIEF_PRESENT;
    const struct txn_hint hint = {
        .item = present ? key->item : 0,
        .version = present ? pm_word_version(key->item_word) : 0,
        .bucket = key->bucket_known ? key->bucket : 0,
        .bucket_version = key->bucket_known ? pm_word_version(key->bucket_word) : 0,
        .item_size = present ? key->item_size : 0,
        .class_ = present ? key->class_ : 0,
    };

    CAIRN_ASSERT(key->belief != TXN_BELIEF_NONE); /* a bucket alone would read as an absence */
    bool proven = !key->recheck || CN_MUTANT(c_skip_absence_recheck);
    if (hint.item == 0 && (hint.bucket == 0 || !proven))
        return; /* an absence that is not proven yet is no hint */
    txn_cache_put(
        peer->ctx->cluster->cache, peer->node, peer->incarnation, key->table, key->hash, &hint);
}

/* The bucket of the look was accepted: the key's belief about it, unless it has one already. */
CN_HOT
void txn_look_bucket_seen(struct txn_look *look)
{
    struct txn_key *k = look->key;

    if (!look->bucket_accepted || (k->bucket_known && !k->bucket_hinted && look->pinned))
        return;
    k->bucket_known = true;
    k->bucket_hinted = false;
    k->bucket = look->bucket;
    k->bucket_word = look->bucket_word;
    k->bucket_free = look->bucket_free;
}

void txn_look_conflict(struct txn_look *look)
{
    look->tx->ctx->stats.aborts_read++;
    txn_look_done(look, CAIRN_E_CONFLICT);
}

/* What comes after the object has been accepted: the bucket, the lock, or nothing. */
CN_HOT
static void go_on(struct txn_look *look)
{
    struct cairn_tx *tx = look->tx;
    struct txn_key *k = look->key;
    uint64_t off, word;

    if (look->need_bucket && !look->bucket_accepted) {
        txn_look_aim(look);
        return;
    }
    (void)txn_key_guard(k, &off, &word);
    if (look->mode == TXN_LOOK_UPDATE) {
        struct txn_lock *lock = txn_lock_find(tx, k->peer, off);
        if (lock == NULL || lock->state != TXN_LOCK_HELD) {
            if (k->belief == TXN_BELIEF_ABSENT && k->bucket_free == 0) {
                txn_look_want_room(look);
                return;
            }
            look->chained = false;
            look->state = k->belief == TXN_BELIEF_PRESENT ? TXN_AT_LOCK_ITEM : TXN_AT_LOCK_BUCKET;
            return;
        }
        if (pm_word_version(lock->word) != pm_word_version(word)) {
            txn_look_conflict(look);
            return;
        }
    }
    if (look->mode != TXN_LOOK_LOCATE)
        k->read = true;
    txn_look_done(look, k->belief == TXN_BELIEF_ABSENT ? CAIRN_E_NOT_FOUND : look->result);
}

CN_HOT
void txn_look_found(struct txn_look *look, const struct pm_item_view *view)
{
    struct txn_key *k = look->key;

    if (look->pinned &&
        (k->belief != TXN_BELIEF_PRESENT || k->item != look->item ||
            pm_word_version(k->item_word) != view->version)) {
        txn_look_conflict(look);
        return;
    }
    look->found = true;
    look->saw_lock = look->saw_stale = false;
    txn_key_accept(k, look->item, view);
    look->value_size = view->value_size;
    look->result = 0;
    if (look->mode != TXN_LOOK_LOCATE)
        look->result = txn_copy_value(view, look->buf, look->buf_size);
    txn_look_bucket_seen(look);
    if (!look->hinted || look->hint_item != k->item || look->hint_version != view->version)
        txn_hint_put(k, look->peer); /* news for the cache */
    go_on(look);
}

void txn_look_absent(struct txn_look *look)
{
    struct txn_key *k = look->key;

    CAIRN_DASSERT(look->bucket_accepted);
    if (look->pinned &&
        (k->belief != TXN_BELIEF_ABSENT || k->bucket != look->bucket ||
            pm_word_version(k->bucket_word) != pm_word_version(look->bucket_word))) {
        txn_look_conflict(look);
        return;
    }
    k->belief = TXN_BELIEF_ABSENT;
    k->hinted = false;
    k->recheck = look->read_candidate;
    txn_look_bucket_seen(look);
    txn_hint_put(k, look->peer);
    go_on(look);
}

/* Wait before looking again, holding nothing. */
static void back_off(struct txn_look *look)
{
    struct cairn_ctx *ctx = look->tx->ctx;
    uint64_t now = txn_now(ctx);

    if (look->blocked_since_ns == 0)
        look->blocked_since_ns = now;
    look->not_before_ns = now + txn_backoff_ns(ctx, look->tries++);
}

void txn_look_blocked(struct txn_look *look, uint64_t off, uint64_t word)
{
    struct cairn_tx *tx = look->tx;

    txn_note_blocker(tx->ctx, look->peer, off, word);
    look->torn_count = 0;
    if (tx->held != 0 && !CN_MUTANT(c_wait_holding_lock)) {
        txn_look_conflict(look);
        return;
    }
    back_off(look);
    if (look->mode == TXN_LOOK_UPDATE &&
        txn_now(tx->ctx) - look->blocked_since_ns >= TXN_LOCK_WAIT_NS)
        txn_look_conflict(look);
}

/*
 * The same torn bytes again and again: corrupt, or half applied by a node that stopped, or before
 * its restart by a record that is in doubt since. A node answers messages between its batches only,
 * so one that has answered since that nobody is at work there, with the bytes still as they were,
 * is not about to mend them.
 */
static bool is_torn_for_good(struct txn_look *look, uint64_t off)
{
    struct txn_peer *peer = look->peer;

    if (look->torn_count < TXN_TORN_MAX)
        return false;
    if (look->torn_asked == 0) {
        look->torn_asked = txn_ask_word(peer, off, 0);
        look->torn_answered = false;
        return false;
    }
    if (look->torn_answered)
        return true;
    if (peer->word_replied == 0 || (int32_t)(peer->word_replied - look->torn_asked) < 0)
        return false;
    /* This look may be older than the answer; the next one is not. */
    look->torn_answered = peer->word_replied == look->torn_asked &&
        peer->word_answer == RD_WORD_CHANGED;
    if (!look->torn_answered)
        look->torn_asked = 0; /* in doubt, or the answer was another's: ask again */
    return false;
}

void txn_look_torn(struct txn_look *look, uint64_t off, uint32_t crc, bool bucket)
{
    struct txn_peer *peer = look->peer;

    crc ^= (uint32_t)off;
    if (look->torn_count == 0 || look->torn_crc != crc) {
        look->torn_count = 0;
        look->torn_asked = 0;
    }
    look->torn_count++;
    look->torn_crc = crc;
    if (is_torn_for_good(look, off)) {
        txn_look_done(look,
            cn_fail(bucket ? CAIRN_E_CORRUPT_BUCKET : CAIRN_E_CORRUPT_ITEM,
                "node %u (%s): the %s at pool offset %#llx stays torn while unlocked: its media is "
                "damaged; see `cairn inspect --check`",
                peer->node, peer->address, bucket ? "bucket" : "item", (unsigned long long)off));
        return;
    }
    if (look->tx->held == 0)
        back_off(look);
    else if (++look->tries > 2 * TXN_TORN_MAX)
        txn_look_conflict(look);
}

void txn_look_want_room(struct txn_look *look)
{
    struct cairn_tx *tx = look->tx;
    const struct txn_key *k = look->key;

    tx->room_wanted = true;
    tx->room_peer = k->peer;
    tx->room_root = k->index->root.off;
    tx->room_hash = k->hash;
    tx->room_count = 1;
    txn_look_conflict(look);
}
