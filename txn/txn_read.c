/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_read.c: runs lookups in rounds. In each round every lookup that is not backing off posts its
 * next operations, all are awaited together (one round trip), and each takes what came. A round's
 * reads lie in the scratch arena, which is free again when the round has been taken.
 */
#include "txn/txn_ctx.h"

#define ROUNDS_MAX 100000u /* every way through a lookup has its own bound; this one is the last \
                            */

static int timed_out(struct cairn_tx *tx)
{
    const struct txn_blocker *b = &tx->ctx->blocker;
    const struct txn_peer *peer = &tx->ctx->peer[b->peer];

    if (b->off == 0)
        return cn_fail(CAIRN_E_TIMEOUT, "a read did not come to an end within %u ms",
            tx->ctx->cluster->options.op_timeout_ms);
    return cn_fail(CAIRN_E_TIMEOUT,
        "node %u (%s): the object at pool offset %#llx stays locked (by slot %u) for %u ms; is a "
        "record in doubt "
        "there? see `cairn inspect`",
        peer->node, peer->address, (unsigned long long)b->off, pm_word_slot(b->word),
        tx->ctx->cluster->options.op_timeout_ms);
}

static bool is_answer(int result)
{
    return result == 0 || result == CAIRN_E_NOT_FOUND || result == CAIRN_E_BUFFER_SIZE;
}

/* Post for every lookup that may. Returns how many posted; *ret_wake: when the first of the rest
 * may. */
CN_HOT
static uint32_t post_round(struct cairn_tx *tx, uint32_t count, struct txn_batch *batch,
    uint32_t *ret_active, uint64_t *ret_wake)
{
    uint64_t now = 0;
    uint32_t posted = 0;

    *ret_active = 0;
    *ret_wake = UINT64_MAX;
    tx->scratch_used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct txn_look *look = &tx->look[i];
        look->posted = false;
        if (look->state == TXN_AT_DONE)
            continue;
        (*ret_active)++;
        if (look->not_before_ns != 0 && now == 0)
            now = txn_now(tx->ctx);
        if (look->not_before_ns > now) {
            *ret_wake = cn_min64(*ret_wake, look->not_before_ns);
            continue;
        }
        look->posted = txn_look_post(look, batch);
        posted += look->posted;
    }
    return posted;
}

/* What was posted has been taken. Returns the first error of a lookup, 0 if there is none. */
CN_HOT
static int end_round(struct cairn_tx *tx, uint32_t count)
{
    int rc = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct txn_look *look = &tx->look[i];
        /* Another lookup of the round has got a lock: nobody waits now. */
        if (look->state != TXN_AT_DONE && tx->held != 0 && look->not_before_ns > txn_now(tx->ctx) &&
            !CN_MUTANT(c_wait_holding_lock))
            txn_look_conflict(look);
        if (rc == 0 && look->state == TXN_AT_DONE && !is_answer(look->result))
            rc = look->result;
    }
    return rc;
}

CN_HOT
static int take_round(struct cairn_tx *tx, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (tx->look[i].posted)
            txn_look_take(&tx->look[i]);
    }
    return end_round(tx, count);
}

/* The usual case of one lookup without its loops: a round, and it is done. */
CN_HOT
static int run_once(struct txn_look *look)
{
    struct cairn_ctx *ctx = look->tx->ctx;
    struct txn_batch batch = {0};

    look->tx->scratch_used = 0;
    if (look->state == TXN_AT_DONE || !txn_look_post(look, &batch))
        return 0;
    (void)txn_wait_trip(ctx, &batch, TXN_LATER);
    txn_look_take(look);
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    return look->state == TXN_AT_DONE && !is_answer(look->result) ? look->result : 0;
}

CN_HOT
int txn_look_run(struct cairn_tx *tx, uint32_t count, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    uint32_t rounds = 0;
    int rc = 0;

    if (count == 1 && deadline_ns == TXN_LATER) {
        rc = run_once(&tx->look[0]);
        if (rc == 0 && tx->look[0].state == TXN_AT_DONE)
            return 0;
        rounds = 1;
    }

    while (rc == 0) {
        struct txn_batch batch = {0};
        uint32_t active;
        uint64_t wake;
        if (rounds != 0)
            deadline_ns = txn_due(ctx, deadline_ns);
        uint32_t posted = post_round(tx, count, &batch, &active, &wake);
        if (active == 0)
            break;
        if (posted == 0) {
            deadline_ns = txn_due(ctx, deadline_ns);
            if (wake >= deadline_ns) {
                rc = timed_out(tx);
                break;
            }
            txn_pause(ctx, wake);
        } else {
            (void)txn_wait_trip(ctx, &batch, deadline_ns);
            rc = take_round(tx, count);
        }
        if (ctx->lost != 0)
            rc = txn_lost_error(ctx);
        else if (rc == 0 && ++rounds >= ROUNDS_MAX)
            rc = timed_out(tx);
    }
    for (uint32_t i = 0; i < count; i++)
        tx->look[i].key->looking = false;
    if (rc == CAIRN_E_CONFLICT)
        return cn_fail_plain(CAIRN_E_CONFLICT, cairn_strerror(CAIRN_E_CONFLICT));
    return rc;
}

/* ---- reads of a transaction ---- */

/* The key has a buffered write: it reads as written. */
static void read_buffered(
    const struct cairn_tx *tx, const struct txn_key *key, struct cairn_read *r)
{
    if (key->write == TXN_WRITE_DELETE) {
        r->status = CAIRN_E_NOT_FOUND;
        return;
    }
    r->value_size = key->value_size;
    r->status = CAIRN_E_BUFFER_SIZE;
    if (key->value_size <= r->buf_size) {
        if (key->value_size != 0)
            memcpy(r->buf, txn_set_value(tx, key), key->value_size);
        r->status = 0;
    }
}

/* Start lookups for reads that have none yet, up to a group. Returns how many. */
CN_HOT
static int start_group(struct cairn_tx *tx, struct cairn_read *reads, size_t count,
    struct cairn_read **ret_of, uint32_t *ret_started)
{
    uint32_t n = 0;

    for (size_t i = 0; i < count && n < TXN_LOOKS_MAX; i++) {
        struct cairn_read *r = &reads[i];
        struct txn_key *key;
        if (r->status != TXN_PENDING)
            continue;
        int rc = txn_set_key(tx, r->table, r->key, r->key_size, &key);
        if (rc == 0 && key->write != TXN_WRITE_NONE &&
            (!r->for_update || key->belief != TXN_BELIEF_NONE)) {
            read_buffered(tx, key, r);
            continue;
        }
        if (rc == 0)
            rc = txn_set_locate(tx, key);
        if (rc != 0) {
            *ret_started = n;
            return rc;
        }
        if (key->looking)
            continue; /* the same key twice: in the next group */
        txn_look_init(
            &tx->look[n], tx, key, r->for_update ? TXN_LOOK_UPDATE : TXN_LOOK_READ, false);
        tx->look[n].buf = r->buf;
        tx->look[n].buf_size = r->buf_size;
        ret_of[n++] = r;
    }
    *ret_started = n;
    return 0;
}

CN_HOT
static void finish_group(struct cairn_tx *tx, struct cairn_read **of, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct txn_look *look = &tx->look[i];
        of[i]->status = look->result;
        of[i]->value_size = look->value_size;
        if (look->key->write != TXN_WRITE_NONE) /* locked now; reads as written */
            read_buffered(tx, look->key, of[i]);
    }
}

/* ---- reads by hints alone ---- */

#define SHORT_MAX 16u
/* For one read and for many: what a call costs shows here. */
#define INLINE static inline __attribute__((always_inline))

struct short_read {
    struct cairn_read *read;
    struct txn_key *key;
    struct txn_lock *lock; /* for update; its CAS goes in front of the READ */
    uint8_t *bytes;
    struct txn_hint hint;
    bool one; /* the status is that of the CAS as well */
    int status;
};

/* A key that has just been added can be read where it was last seen. */
static inline int locate_new(struct cairn_tx *tx, struct txn_key *key)
{
    bool located = key->edition != 0 && tx->ctx->peer[key->peer].state == TXN_PEER_UP;

    return CN_LIKELY(located) ? 0 : txn_set_locate(tx, key);
}

static inline void hint_cache(const struct cairn_tx *tx, const struct txn_key *key)
{
    txn_cache_hint(
        tx->ctx->cluster->cache, tx->ctx->peer[key->peer].node, key->table, key->hash);
}

/* A place where a new key was last seen, and no word that is locked or wanted already? Nothing is
 * posted here. `alone`: it is read at once. */
INLINE bool is_short(struct cairn_tx *tx, struct short_read *s, bool alone)
{
    struct txn_key *key = s->key;
    const struct txn_peer *peer = &tx->ctx->peer[key->peer];
    const struct txn_hint *hint = &s->hint;

    if (!txn_cache_find(tx->ctx->cluster->cache, peer->node, peer->incarnation, key->table,
            key->hash, &s->hint) ||
        hint->item == 0 || !txn_in_extents(peer, hint->item, hint->item_size))
        return false;
    s->bytes = txn_scratch(tx, hint->item_size);
    if (s->bytes == NULL)
        return false;
    if (CN_LIKELY(peer->state == TXN_PEER_UP) && (!alone || s->read->for_update))
        rd_hint(peer->conn, hint->item, hint->item_size,
            s->read->for_update ? RD_HINT_CAS_READ : RD_HINT_READ);
    s->lock = NULL;
    if (s->read->for_update) {
        uint32_t before = tx->lock_count;
        s->lock = txn_lock_want(tx, peer->at, hint->item, hint->version, false);
        key->lock = before;
        return tx->lock_count != before;
    }
    return true;
}

static inline void post_short(
    struct cairn_tx *tx, struct short_read *s, struct txn_batch *batch, bool alone)
{
    struct txn_peer *peer = &tx->ctx->peer[s->key->peer];
    struct txn_lock *lock = s->lock;

    if (lock != NULL) {
        const struct txn_cas_read post = {
            .remote = s->hint.item,
            .expected = lock->word,
            .desired = txn_lock_word(peer, lock),
            .local_old = lock->old,
            .local = s->bytes,
            .size = s->hint.item_size,
            .alone = alone,
        };
        cn_step(tx->ctx->env, CN_STEP_c_lock);
        s->one = txn_post_cas_read(peer, batch, &lock->status, &s->status, &post);
    } else if (alone)
        (void)txn_post_read_now(
            peer, batch, &s->status, s->hint.item, s->bytes, s->hint.item_size);
    else
        (void)txn_post_read(peer, batch, &s->status, s->hint.item, s->bytes, s->hint.item_size);
}

/* The lock was got, if it was to be, and what was read is the key's item as it is now. False: the
 * machine goes on from what was posted. */
INLINE bool take_short(struct cairn_tx *tx, struct short_read *s)
{
    struct txn_peer *peer = &tx->ctx->peer[s->key->peer];
    struct txn_key *key = s->key;
    struct txn_lock *lock = s->lock;
    struct pm_item_view view;

    if (lock != NULL) {
        struct le64 word;
        if (s->one)
            lock->status = s->status;
        if (!txn_lock_take(tx, lock))
            return false;
        cn_step(tx->ctx->env, CN_STEP_c_locked);
        memcpy(&word, s->bytes, sizeof(word));
        if (le64_get(word) == txn_lock_word(peer, lock)) { /* as unmask_own() of the machine */
            word = le64_make(pm_word_version(lock->word));
            memcpy(s->bytes, &word, sizeof(word));
        }
    }
    if (s->status != 0)
        return false;
    pm_item_look(
        s->bytes, s->hint.item_size, s->hint.item, peer->crc_seed, peer->tag, &view);
    /* The READ may have come before the CAS: what counts is the version that the CAS has seen. */
    if (!txn_is_item_of(key, &view) ||
        (lock != NULL && view.version != pm_word_version(lock->word)))
        return false;
    tx->ctx->stats.cache_hits++;
    txn_key_accept(key, s->hint.item, &view);
    txn_key_hint_bucket(key, peer, &s->hint);
    if (view.version != s->hint.version)
        txn_hint_put(key, peer);
    key->read = true;
    s->read->value_size = view.value_size;
    s->read->status = txn_copy_value(&view, s->read->buf, s->read->buf_size);
    return true;
}

/* The machine goes on with it, as the n-th lookup. */
__attribute__((noinline)) static void go_on_with(
    struct cairn_tx *tx, const struct short_read *s, uint32_t n)
{
    txn_look_resume(&tx->look[n], tx, s->key, &s->hint, s->lock, s->bytes, s->status);
    tx->look[n].buf = s->read->buf;
    tx->look[n].buf_size = s->read->buf_size;
}

/*
 * The usual case without the machine of txn_index.c, all reads in one trip: if the cache knows a
 * place of every key, each is read there, for an update behind a CAS from the version last seen
 * (what the machine does in its states ITEM and LOCK_ITEM). 0 with *ret_started == 0: reads that
 * are still pending have nothing under way. Else the first lookups of tx->look go on; ret_of: whose
 * they are.
 */
CN_HOT
static int read_short(struct cairn_tx *tx, struct cairn_read *reads, size_t count,
    struct cairn_read **ret_of, uint32_t *ret_started)
{
    struct short_read s[SHORT_MAX];
    struct txn_batch batch = {0};
    uint32_t locks = tx->lock_count, keys = tx->key_count, n = 0;
    bool all = true;

    *ret_started = 0;
    if (count > SHORT_MAX)
        return 0;
    for (size_t i = 0; i < count; i++) {
        s[i].read = &reads[i];
        int rc = txn_set_key(tx, reads[i].table, reads[i].key, reads[i].key_size, &s[i].key);
        if (CN_LIKELY(rc == 0) && tx->key_count != ++keys)
            return 0; /* met before, in this call or in another */
        if (CN_LIKELY(rc == 0))
            rc = locate_new(tx, s[i].key);
        if (CN_UNLIKELY(rc != 0))
            return rc;
        hint_cache(tx, s[i].key);
    }
    tx->scratch_used = 0;
    for (size_t i = 0; i < count && all; i++)
        all = is_short(tx, &s[i], false);
    if (!all) {
        tx->lock_count = locks;
        return 0;
    }
    for (size_t i = 0; i < count; i++)
        post_short(tx, &s[i], &batch, false);
    (void)txn_wait_trip(tx->ctx, &batch, TXN_LATER);
    for (size_t i = 0; i < count; i++) {
        if (CN_LIKELY(take_short(tx, &s[i])))
            continue;
        go_on_with(tx, &s[i], n);
        ret_of[n++] = s[i].read;
    }
    *ret_started = n;
    int rc = n == 0 ? 0 : end_round(tx, n);
    return tx->ctx->lost != 0 ? txn_lost_error(tx->ctx) : rc;
}

/* Read what read_short() has not: `started` lookups are under way, with `rc` after their first
 * round. */
static int read_on(struct cairn_tx *tx, struct cairn_read *reads, size_t count,
    struct cairn_read **of, uint32_t started, int rc)
{
    uint64_t deadline = started == 0 ? TXN_LATER : txn_op_deadline(tx->ctx);
    uint32_t rooms = 0;

    for (;;) {
        if (rc == 0 && started == 0) {
            rc = start_group(tx, reads, count, of, &started);
            if (rc == 0 && started == 0)
                return 0;
        }
        if (rc == 0)
            rc = txn_look_run(tx, started, deadline);
        if (rc == CAIRN_E_CONFLICT && tx->room_wanted && tx->held == 0 &&
            rooms++ < TXN_ROOM_TRIES_MAX) {
            tx->room_wanted = false;
            deadline = txn_due(tx->ctx, deadline);
            rc = txn_room(&tx->ctx->peer[tx->room_peer], tx->room_root, tx->room_hash,
                tx->room_count, deadline);
            if (rc != 0)
                return rc;
            started = 0;
            continue; /* none of the group has its status yet: all are looked at again */
        }
        if (rc != 0) {
            for (uint32_t i = 0; i < started; i++)
                tx->look[i].key->looking = false;
            return rc;
        }
        finish_group(tx, of, started);
        if (started == count)
            return 0;
        started = 0;
        deadline = txn_due(tx->ctx, deadline);
    }
}

CN_HOT
int txn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count)
{
    struct cairn_read *of[TXN_LOOKS_MAX];
    uint32_t started;

    if (tx->ctx->lost != 0)
        return txn_lost_error(tx->ctx);
    for (size_t i = 0; i < count; i++) {
        reads[i].status = TXN_PENDING;
        reads[i].value_size = 0;
    }
    int rc = read_short(tx, reads, count, of, &started);
    if (CN_LIKELY(rc == 0 && started == 0 && count != 0 && reads[0].status != TXN_PENDING))
        return 0;
    return read_on(tx, reads, count, of, started, rc);
}

/* txn_get_many() of one, without its loops. */
CN_HOT
int txn_get(struct cairn_tx *tx, struct cairn_read *r)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_batch batch = {0};
    struct cairn_read *of[TXN_LOOKS_MAX];
    struct short_read s;
    uint32_t locks = tx->lock_count, keys = tx->key_count;

    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    r->status = TXN_PENDING;
    r->value_size = 0;
    s.read = r;
    int rc = txn_set_key(tx, r->table, r->key, r->key_size, &s.key);
    if (CN_LIKELY(rc == 0) && tx->key_count == keys) /* met before */
        return read_on(tx, r, 1, of, 0, 0);
    if (CN_LIKELY(rc == 0))
        rc = locate_new(tx, s.key);
    if (rc != 0)
        return rc;
    tx->scratch_used = 0;
    if (CN_UNLIKELY(!is_short(tx, &s, ctx->running == NULL))) {
        tx->lock_count = locks;
        return read_on(tx, r, 1, of, 0, 0);
    }
    post_short(tx, &s, &batch, true);
    (void)txn_wait_trip(ctx, &batch, TXN_LATER);
    if (CN_LIKELY(take_short(tx, &s)))
        return ctx->lost != 0 ? txn_lost_error(ctx) : 0;
    go_on_with(tx, &s, 0);
    of[0] = r;
    rc = end_round(tx, 1);
    return ctx->lost != 0 ? txn_lost_error(ctx) : read_on(tx, r, 1, of, 1, rc);
}
