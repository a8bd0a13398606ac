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
    tx->ctx->scratch_used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct txn_look *look = &tx->ctx->look[i];
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

/* Returns the first error of a lookup, 0 if there is none. */
CN_HOT
static int take_round(struct cairn_tx *tx, uint32_t count)
{
    int rc = 0;

    for (uint32_t i = 0; i < count; i++) {
        struct txn_look *look = &tx->ctx->look[i];
        if (look->posted)
            txn_look_take(look);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct txn_look *look = &tx->ctx->look[i];
        /* Another lookup of the round has got a lock: nobody waits now. */
        if (look->state != TXN_AT_DONE && tx->held != 0 && look->not_before_ns > txn_now(tx->ctx) &&
            !CN_MUTANT(c_wait_holding_lock))
            txn_look_conflict(look);
        if (rc == 0 && look->state == TXN_AT_DONE && !is_answer(look->result))
            rc = look->result;
    }
    return rc;
}

/* The usual case of one lookup without its loops: a round, and it is done. */
CN_HOT
static int run_once(struct txn_look *look)
{
    struct cairn_ctx *ctx = look->tx->ctx;
    struct txn_batch batch = {0};

    ctx->scratch_used = 0;
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
        rc = run_once(&ctx->look[0]);
        if (rc == 0 && ctx->look[0].state == TXN_AT_DONE)
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
        ctx->look[i].key->looking = false;
    if (rc == CAIRN_E_CONFLICT)
        return cn_fail(CAIRN_E_CONFLICT, "%s", cairn_strerror(CAIRN_E_CONFLICT));
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
            &tx->ctx->look[n], tx, key, r->for_update ? TXN_LOOK_UPDATE : TXN_LOOK_READ, false);
        tx->ctx->look[n].buf = r->buf;
        tx->ctx->look[n].buf_size = r->buf_size;
        ret_of[n++] = r;
    }
    *ret_started = n;
    return 0;
}

CN_HOT
static void finish_group(struct cairn_tx *tx, struct cairn_read **of, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct txn_look *look = &tx->ctx->look[i];
        of[i]->status = look->result;
        of[i]->value_size = look->value_size;
        if (look->key->write != TXN_WRITE_NONE) /* locked now; reads as written */
            read_buffered(tx, look->key, of[i]);
    }
}

/* ---- one read by a hint ---- */

/* What the hint led to is not the key's item as it is now: the lookup goes on from what was read,
 * as if it had read it itself. */
static int look_on(struct cairn_tx *tx, struct txn_key *key, struct cairn_read *r,
    const struct txn_hint *hint, uint8_t *bytes, int status)
{
    struct txn_look *look = &tx->ctx->look[0];

    txn_look_init(look, tx, key, TXN_LOOK_READ, false);
    look->buf = r->buf;
    look->buf_size = r->buf_size;
    if (look->state == TXN_AT_ITEM && look->item == hint->item &&
        look->item_size == hint->item_size) {
        look->bytes[0] = bytes;
        look->status[0] = status;
        txn_look_take(look);
    }
    int rc = txn_look_run(tx, 1, txn_op_deadline(tx->ctx));
    r->status = rc == 0 ? look->result : TXN_PENDING;
    r->value_size = look->value_size;
    return rc;
}

/* The usual case without the machine of txn_index.c: a key that this transaction has not met yet,
 * at the place where it was last seen. *ret_done: it was that case. */
CN_HOT
static int get_hinted(struct cairn_tx *tx, struct cairn_read *r, bool *ret_done)
{
    struct cairn_ctx *ctx = tx->ctx;
    struct txn_key *key;
    struct txn_hint hint;
    struct pm_item_view view;
    struct txn_batch batch = {0};
    int status, rc = txn_set_key(tx, r->table, r->key, r->key_size, &key);

    *ret_done = rc != 0;
    if (rc != 0 || key->belief != TXN_BELIEF_NONE || key->write != TXN_WRITE_NONE)
        return rc;
    struct txn_peer *peer = &ctx->peer[key->peer];
    if (!txn_set_is_located(peer, key))
        rc = txn_set_locate(tx, key);
    *ret_done = rc != 0;
    if (rc != 0 || !txn_cache_find(ctx->cluster->cache, peer->node, peer->incarnation, key->table,
                       key->hash, &hint))
        return rc;
    ctx->scratch_used = 0;
    uint8_t *bytes = txn_scratch(ctx, hint.item_size);
    if (hint.item == 0 || bytes == NULL || !txn_in_extents(peer, hint.item, hint.item_size))
        return 0;
    (void)txn_post_read_now(peer, &batch, &status, hint.item, bytes, hint.item_size);
    *ret_done = true;
    if (txn_wait_trip(ctx, &batch, TXN_LATER) != 0 || ctx->lost != 0)
        return ctx->lost != 0 ? txn_lost_error(ctx) : status;
    pm_item_look(bytes, hint.item_size, hint.item, peer->crc_seed, peer->tag, &view);
    if (!txn_is_item_of(key, &view))
        return look_on(tx, key, r, &hint, bytes, status);
    ctx->stats.cache_hits++;
    txn_key_accept(key, hint.item, &view);
    if (hint.bucket != 0 && txn_in_extents(peer, hint.bucket, PM_BUCKET_SIZE)) {
        key->bucket_known = key->bucket_hinted = true;
        key->bucket = hint.bucket;
        key->bucket_word = hint.bucket_version;
    }
    if (view.version != hint.version)
        txn_hint_put(key, peer);
    key->read = true;
    r->value_size = view.value_size;
    r->status = txn_copy_value(&view, r->buf, r->buf_size);
    return 0;
}

CN_HOT
int txn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count)
{
    struct cairn_read *of[TXN_LOOKS_MAX];
    uint64_t deadline = TXN_LATER;
    uint32_t started = 0, rooms = 0;

    if (tx->ctx->lost != 0)
        return txn_lost_error(tx->ctx);
    for (size_t i = 0; i < count; i++) {
        reads[i].status = TXN_PENDING;
        reads[i].value_size = 0;
    }
    for (;;) {
        int rc = start_group(tx, reads, count, of, &started);
        if (rc == 0 && started == 0)
            return 0;
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
            continue; /* none of the group has its status yet: all are looked at again */
        }
        if (rc != 0) {
            for (uint32_t i = 0; i < started; i++)
                tx->ctx->look[i].key->looking = false;
            return rc;
        }
        finish_group(tx, of, started);
        if (started == count)
            return 0;
        deadline = txn_due(tx->ctx, deadline);
    }
}

CN_HOT
int txn_get(struct cairn_tx *tx, struct cairn_read *r)
{
    bool done;

    if (tx->ctx->lost != 0)
        return txn_lost_error(tx->ctx);
    r->status = TXN_PENDING;
    r->value_size = 0;
    if (!r->for_update && tx->held == 0) {
        int rc = get_hinted(tx, r, &done);
        if (done)
            return rc;
    }
    return txn_get_many(tx, r, 1);
}
