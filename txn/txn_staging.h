/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_staging.h: the memory of a peer's records on their way: a ring of TXN_STAGING_SIZE bytes of
 * the arena, in the order of the log. Used by txn_log.c only.
 *
 * Invariants: head and tail count bytes for ever; staging_off is where the head lies in the memory
 * (below its size), so that nothing is divided by that. What is between tail and head belongs to
 * the fabric (R6).
 */
#ifndef TXN_STAGING_H
#define TXN_STAGING_H

#include "txn/txn_ctx.h"

/* What `size` bytes skip that do not cross the end of the staging; they begin at `off` in it. */
static inline uint64_t txn_staging_skip(uint32_t off, uint32_t size)
{
    uint32_t room = TXN_STAGING_SIZE - off;

    return size > room ? room : 0;
}

static inline bool txn_staging_fits(const struct txn_peer *peer, uint32_t size)
{
    uint64_t skip = txn_staging_skip(peer->staging_off, size);
    uint64_t end = peer->staging_head + skip + size;
    uint32_t off = (skip != 0 ? 0 : peer->staging_off) + size;

    return end + txn_staging_skip(off, 64) + 64 <= /* a pad, too */
        peer->staging_tail + TXN_STAGING_SIZE;
}

static inline uint8_t *txn_staging_take(struct txn_peer *peer, uint32_t size)
{
    uint64_t skip = txn_staging_skip(peer->staging_off, size);
    uint32_t off = skip != 0 ? 0 : peer->staging_off;

    peer->staging_head += skip + size;
    peer->staging_off = off + size < TXN_STAGING_SIZE ? off + size : 0;
    CAIRN_DASSERT(peer->staging_head <= peer->staging_tail + TXN_STAGING_SIZE);
    return peer->staging + off;
}

/* Nothing is on its way: from its start again. The ends go on, as a lane may still free what was.
 */
static inline void txn_staging_restart(struct txn_peer *peer)
{
    if (CN_MUTANT(c_staging_restarts))
        peer->staging_head = 0;
    else if (peer->staging_off != 0)
        peer->staging_head += TXN_STAGING_SIZE - peer->staging_off;
    peer->staging_tail = peer->staging_head;
    peer->staging_off = 0;
}

/* The flush of a record is over: flushes of one connection complete in order, so everything before
 * it is free, too. */
static inline void txn_staging_free(struct txn_rec *rec)
{
    struct txn_peer *peer = rec->peer;

    peer->staging_tail = cn_max64(peer->staging_tail, rec->staging_end);
}

#endif
