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
static uint32_t post_round(struct cairn_tx *tx, uint32_t count, struct txn_batch *batch,
    uint32_t *ret_active, uint64_t *ret_wake)
{
    uint64_t now = txn_now(tx->ctx);
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

int txn_look_run(struct cairn_tx *tx, uint32_t count, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = tx->ctx;
    uint32_t rounds = 0;
    int rc = 0;

    while (rc == 0) {
        struct txn_batch batch = {0};
        uint32_t active;
        uint64_t wake;
        uint32_t posted = post_round(tx, count, &batch, &active, &wake);
        if (active == 0)
            break;
        if (posted == 0) {
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

int txn_get_many(struct cairn_tx *tx, struct cairn_read *reads, size_t count)
{
    struct cairn_read *of[TXN_LOOKS_MAX];
    uint64_t deadline = txn_op_deadline(tx->ctx);
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
    }
}
