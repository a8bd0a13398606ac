/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_look.h: lookups of keys: txn_index.c, txn_look.c, txn_read.c. A part of txn_ctx.h, which
 * includes it.
 */
#ifndef TXN_LOOK_H
#define TXN_LOOK_H

#include "txn/txn_ctx.h"

enum txn_look_mode { TXN_LOOK_READ, TXN_LOOK_UPDATE, TXN_LOOK_LOCATE };
enum txn_look_state {
    TXN_AT_ITEM,
    TXN_AT_LOCK_ITEM,
    TXN_AT_BUCKET,
    TXN_AT_MAP,
    TXN_AT_CANDIDATES,
    TXN_AT_LOCK_BUCKET,
    TXN_AT_UNLOCK,
    TXN_AT_DONE,
};

struct txn_look { /* one lookup, see txn_index.c */
    struct cairn_tx *tx;
    struct txn_key *key;
    struct txn_peer *peer;
    enum txn_look_mode mode;
    enum txn_look_state state;
    bool need_bucket; /* also an accepted bucket */
    bool
        pinned; /* the key is in the read set: a change is a CONFLICT, not a reason to look again */
    bool chained; /* the lock is taken from a remembered version, with a READ behind it */
    bool taking;  /* this look has posted the CAS; else the lock is another look's as well */
    bool posted;
    bool found;  /* the item was accepted */
    bool hinted; /* looking at a place out of the cache, with this version: */
    uint64_t hint_item, hint_version;
    bool saw_lock, saw_stale, read_candidate;
    uint64_t lock_off, lock_word; /* with saw_lock: the last candidate met locked */
    bool reset_done;
    int result; /* with DONE: 0, NOT_FOUND, BUFFER_SIZE, or an error */
    void *buf;
    size_t buf_size, value_size;
    /* place being looked at */
    uint64_t item;
    uint32_t item_size;
    uint64_t number, bucket, map_at;
    uint64_t hops, moves;
    uint32_t cand_count, cand_next, cand_posted;
    bool bucket_accepted;
    uint64_t bucket_word;
    uint16_t bucket_free;
    uint32_t lock; /* index in tx->lock */
    int cas_status;
    /* back-off */
    uint64_t not_before_ns, blocked_since_ns;
    uint32_t tries, cas_tries;
    uint64_t torn_off; /* a torn candidate of this pass; 0: none */
    uint32_t torn_pass_crc;
    uint32_t torn_crc, torn_count;
    uint32_t torn_asked; /* WORD that shows that the node has gone on since; 0: none */
    bool torn_answered;
    /* Written before they are read, and so not cleared: posted, and candidates. */
    _Alignas(8) uint8_t *bytes[TXN_CANDIDATES_POSTED];
    int status[TXN_CANDIDATES_POSTED];
    struct pm_slot_ref cand[PM_BUCKET_SLOTS];
};

/* ---- txn_index.c, txn_read.c: lookups ---- */
/* Does what was read show this key's item? */
static inline bool txn_is_item_of(const struct txn_key *k, const struct pm_item_view *view)
{
    return view->seen == PM_SEEN_OK && view->index == k->index->root.index &&
        view->key_size == k->key_size && /* both have zeros up to a multiple of 8 */
        cn_bytes_equal(view->key, k->key, cn_align_up(k->key_size, 8));
}
/* Bytes of a place that a hint or a peer names: inside the node's extents? */
static inline bool txn_in_extents(const struct txn_peer *peer, uint64_t off, uint64_t size)
{
    return off % 64 == 0 &&
        cn_range_inside(off, size, peer->extent_off, peer->extent_end - peer->extent_off);
}
void txn_look_init(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    enum txn_look_mode mode, bool need_bucket);
/* A lookup whose first round has been posted already, and has completed: READ of the hint's item
 * into `bytes`, with `status`, and for an update the CAS of `lock` in front. It goes on there. */
void txn_look_resume(struct txn_look *look, struct cairn_tx *tx, struct txn_key *key,
    const struct txn_hint *hint, struct txn_lock *lock, uint8_t *bytes, int status);
/* Post the next operations. False: nothing could be posted now (scratch is full). */
bool txn_look_post(struct txn_look *look, struct txn_batch *batch);
/* Its operations have completed. */
void txn_look_take(struct txn_look *look);
/* Run lookups in parallel until all are DONE. Returns 0, or the first error other than NOT_FOUND
 * and BUFFER_SIZE. */
CN_MUST_CHECK int txn_look_run(struct cairn_tx *tx, uint32_t count, uint64_t deadline_ns);
/* One read; as txn_get_many(), and `r` is set to be done. */
CN_MUST_CHECK int txn_get(struct cairn_tx *tx, struct cairn_read *r);
CN_MUST_CHECK int txn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count);

/* txn_look.c: results and back-off of a lookup, used by txn_index.c */
void txn_look_found(struct txn_look *look, const struct pm_item_view *view);
void txn_look_absent(struct txn_look *look);
/* The key is believed to be what was accepted at this place. */
static inline void txn_key_accept(
    struct txn_key *k, uint64_t item, const struct pm_item_view *view)
{
    k->belief = TXN_BELIEF_PRESENT;
    k->recheck = false;
    k->hinted = false;
    k->item = item;
    k->item_word = view->word;
    k->item_size = pm_item_size(view->key_size, view->value_size);
    k->class_ = (uint8_t)view->class_;
}
/* What a hint says of the key's bucket. */
static inline void txn_key_hint_bucket(
    struct txn_key *k, const struct txn_peer *peer, const struct txn_hint *hint)
{
    if (hint->bucket == 0 || !txn_in_extents(peer, hint->bucket, PM_BUCKET_SIZE))
        return;
    k->bucket_known = k->bucket_hinted = true;
    k->bucket = hint->bucket;
    k->bucket_word = hint->bucket_version;
}
/* 0 or CAIRN_E_BUFFER_SIZE. */
static inline int txn_copy_value(const struct pm_item_view *view, void *buf, size_t buf_size)
{
    if (view->value_size > buf_size)
        return CAIRN_E_BUFFER_SIZE;
    if (view->value_size <= 64)
        cn_copy_small(buf, view->value, view->value_size);
    else
        memcpy(buf, view->value, view->value_size);
    return 0;
}
void txn_look_blocked(struct txn_look *look, uint64_t off, uint64_t word);
/* crc: of the bytes seen, never 0 for "nothing seen". */
void txn_look_torn(struct txn_look *look, uint64_t off, uint32_t crc, bool bucket);
void txn_look_conflict(struct txn_look *look);
/* The key's bucket has no slot for it: ask for room once nothing is held. */
void txn_look_want_room(struct txn_look *look);
/* txn_index.c: go to the bucket that the hints name. */
void txn_look_aim(struct txn_look *look);
void txn_look_done(struct txn_look *look, int result);
void txn_look_bucket_seen(struct txn_look *look);
void txn_hint_put(const struct txn_key *key, const struct txn_peer *peer);

#endif
