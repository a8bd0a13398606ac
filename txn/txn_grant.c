/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_grant.c: store space is reserved before commit (R4): a stock of named free blocks per node
 * and class, refilled ahead of need, and ROOM in a bucket.
 *
 * A block is in the stock, taken by a transaction, or spent (a record that names it has been
 * posted). The stock is void with the session. Its entries live in a fixed array: a taken block
 * keeps its entry, so giving it back cannot fail.
 */
#include "txn/txn_ctx.h"

void txn_stock_reset(struct txn_peer *peer)
{
    for (uint32_t i = 0; i < TXN_STOCK_MAX; i++)
        peer->block[i].next = i + 1 < TXN_STOCK_MAX ? i + 1 : TXN_NONE;
    peer->block_free = 0;
    peer->block_free_count = TXN_STOCK_MAX;
    for (uint32_t c = 0; c < PM_CLASS_COUNT; c++) {
        peer->stock[c] = TXN_NONE;
        peer->stock_count[c] = 0;
        peer->grant_id[c] = 0;
        peer->grant_asked[c] = 0;
        peer->grant_status[c] = 0;
        peer->grant_scarce[c] = false;
    }
}

/* How many of a class the stock should hold. */
static uint32_t stock_level(const struct txn_peer *peer, uint32_t class_)
{
    uint32_t by_bytes = TXN_STOCK_BYTES / pm_class_size(class_);
    uint32_t level = by_bytes < TXN_STOCK_CLASS ? by_bytes : TXN_STOCK_CLASS;

    if (peer->grant_scarce[class_])
        level /= 4;
    return level == 0 ? 1 : level;
}

static void add_block(struct txn_peer *peer, uint32_t class_, uint64_t off, uint64_t version)
{
    uint32_t at = peer->block_free;
    uint32_t size = pm_class_size(class_);

    /* A block that cannot be one is dropped: the node would reject the record that names it. */
    if (at == TXN_NONE || off % 64 != 0 ||
        !cn_range_inside(off, size, peer->extent_off, peer->extent_end - peer->extent_off) ||
        version > PM_VERSION_MAX - PM_VERSION_MARGIN)
        return;
    peer->block_free = peer->block[at].next;
    peer->block_free_count--;
    peer->block[at] = (struct txn_block){
        .off = off, .version = version, .next = peer->stock[class_]};
    peer->stock[class_] = at;
    peer->stock_count[class_]++;
}

void txn_grant_reply(
    struct txn_peer *peer, uint32_t class_, int status, const void *body, uint32_t size)
{
    struct rd_grant_reply_wire head;
    struct rd_block_wire block;
    uint32_t asked = peer->grant_asked[class_];
    uint32_t count = 0;

    peer->grant_id[class_] = 0;
    peer->grant_status[class_] = status;
    if (status != 0)
        return;
    memcpy(&head, body, sizeof(head));
    count = le32_get(head.count);
    if (count > asked || (uint64_t)count * sizeof(block) + sizeof(head) > size)
        count = 0; /* more than asked: none of it is believed */
    peer->grant_scarce[class_] = count < asked;
    if (count == 0)
        peer->grant_status[class_] = CAIRN_E_AGAIN;
    for (uint32_t i = 0; i < count; i++) {
        memcpy(&block, (const uint8_t *)body + sizeof(head) + i * sizeof(block), sizeof(block));
        add_block(peer, class_, le64_get(block.off), le64_get(block.version));
    }
}

static int ask_grant(
    struct txn_peer *peer, uint32_t class_, uint32_t count, uint64_t deadline_ns)
{
    struct rd_grant_wire body = {.class_ = (uint8_t)class_};
    uint32_t id;

    if (count > RD_GRANT_BLOCKS_MAX)
        count = RD_GRANT_BLOCKS_MAX;
    if (count > peer->block_free_count)
        count = peer->block_free_count;
    body.count = le32_make(count);
    int rc = txn_send_by(peer, RD_MSG_GRANT, &body, sizeof(body), deadline_ns, &id);
    if (rc != 0)
        return rc;
    peer->grant_id[class_] = id;
    peer->grant_asked[class_] = (uint16_t)count;
    peer->ctx->stats.grants++;
    return 0;
}

void txn_stock_refill(struct txn_peer *peer, uint32_t class_)
{
    uint32_t level = stock_level(peer, class_);
    uint32_t have = peer->stock_count[class_];

    if (peer->state != TXN_PEER_UP || peer->grant_id[class_] != 0 || have > level / 2 ||
        have >= level || peer->block_free_count == 0)
        return;
    if (ask_grant(peer, class_, level - have, 0) != 0)
        return; /* the next need waits for it */
}

/* A grant is under way, or others hold all entries: wait for something to happen, such as that one
 * who aborts gives some back. */
static bool must_wait(const struct txn_peer *peer, uint32_t class_, uint32_t wanted)
{
    return peer->stock_count[class_] < wanted &&
        (peer->grant_id[class_] != 0 || peer->block_free_count == 0);
}

static int grant_late(struct txn_peer *peer, uint32_t class_)
{
    /* Asking again could strand what an answer under way grants; waiting for one that was lost
     * would have no end. With the session both are over. */
    if (peer->grant_id[class_] != 0)
        txn_peer_drop(peer, CAIRN_E_TIMEOUT);
    return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): grants no block of %u bytes in time", peer->node,
        peer->address, pm_class_size(class_));
}

/* The last grant brought too few. 0: ask again. */
static int grant_short(struct txn_peer *peer, uint32_t class_, uint32_t tries, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;
    int status = peer->grant_status[class_];

    /* Granted, but nothing of it was usable: as if there were none, back-off included. */
    if (status == CAIRN_E_AGAIN || status == 0) {
        ctx->stats.agains++;
        txn_pause(ctx, cn_min64(deadline_ns, txn_now(ctx) + txn_backoff_ns(ctx, tries)));
        return ctx->lost != 0 ? txn_lost_error(ctx) : 0;
    }
    if (status == CAIRN_E_POOL_FULL) {
        ctx->stats.fulls++;
        return cn_fail(CAIRN_E_POOL_FULL,
            "node %u (%s): no free block of %u bytes; delete something or enlarge the pool",
            peer->node, peer->address, pm_class_size(class_));
    }
    return cn_fail(status, "node %u (%s): refuses a block: %s", peer->node, peer->address,
        cairn_strerror(status));
}

/* Entries for `count` more: of the class that has most in stock some are forgotten, and their
 * blocks stay with this slot until the session ends. Else a class whose blocks many gave back, as
 * they had to abort, could keep all entries from the others. */
static void make_entries(struct txn_peer *peer, uint32_t class_, uint32_t count)
{
    uint32_t most = class_;

    for (uint32_t c = 0; c < PM_CLASS_COUNT; c++)
        most = peer->stock_count[c] > peer->stock_count[most] ? c : most;
    while (count-- > 0 && most != class_ && peer->stock_count[most] > stock_level(peer, most))
        txn_block_spend(peer, txn_block_take(peer, most));
}

/* One grant, or somebody else's. *ret_asked: it was ours. */
static int await_grant(struct txn_peer *peer, uint32_t class_, uint32_t wanted,
    uint64_t deadline_ns, bool *ret_asked)
{
    struct cairn_ctx *ctx = peer->ctx;
    uint32_t missing = wanted - peer->stock_count[class_], level = stock_level(peer, class_);
    uint32_t idle = 0;

    if (peer->block_free_count == 0 && peer->grant_id[class_] == 0)
        make_entries(peer, class_, missing);
    *ret_asked = !must_wait(peer, class_, wanted);
    if (*ret_asked) {
        int rc = ask_grant(peer, class_, missing > level ? missing : level, deadline_ns);
        if (rc != 0)
            return rc;
        ctx->stats.round_trips++;
    }
    while (must_wait(peer, class_, wanted) && ctx->lost == 0 && txn_now(ctx) < deadline_ns)
        txn_wait_some(ctx, &idle, deadline_ns);
    if (ctx->lost != 0)
        return txn_lost_error(ctx);
    if (peer->stock_count[class_] >= wanted)
        return 0;
    return txn_now(ctx) >= deadline_ns ? grant_late(peer, class_) : 0;
}

int txn_stock_need(struct txn_peer *peer, uint32_t class_, uint32_t wanted, uint64_t deadline_ns)
{
    uint32_t tries = 0;

    if (pm_class_size(class_) > UINT64_C(1) << peer->chunk_shift)
        return cn_fail(CAIRN_E_TX_SIZE,
            "node %u (%s): a value needs a block of %u bytes; its pool has chunks of %llu",
            peer->node, peer->address, pm_class_size(class_),
            (unsigned long long)(UINT64_C(1) << peer->chunk_shift));
    while (peer->stock_count[class_] < wanted) {
        uint32_t had = peer->stock_count[class_];
        bool asked;
        int rc = await_grant(peer, class_, wanted, deadline_ns, &asked);
        if (rc == 0 && asked && peer->stock_count[class_] <= had)
            rc = grant_short(peer, class_, tries++, deadline_ns);
        if (rc != 0)
            return rc;
    }
    return 0;
}

uint32_t txn_block_take(struct txn_peer *peer, uint32_t class_)
{
    uint32_t at = peer->stock[class_];

    CAIRN_ASSERT(at != TXN_NONE);
    peer->stock[class_] = peer->block[at].next;
    peer->stock_count[class_]--;
    return at;
}

void txn_block_return(struct txn_peer *peer, uint32_t class_, uint32_t block)
{
    peer->block[block].next = peer->stock[class_];
    peer->stock[class_] = block;
    peer->stock_count[class_]++;
}

void txn_block_spend(struct txn_peer *peer, uint32_t block)
{
    peer->block[block].next = peer->block_free;
    peer->block_free = block;
    peer->block_free_count++;
}

int txn_room(
    struct txn_peer *peer, uint64_t root, uint64_t hash, uint32_t count, uint64_t deadline_ns)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct rd_room_wire body = {
        .root_off = le64_make(root), .hash = le64_make(hash), .count = le32_make(count)};

    for (uint32_t tries = 0;; tries++) {
        struct txn_request reply;
        ctx->stats.rooms++;
        ctx->stats.round_trips++;
        int rc = txn_ask(peer, RD_MSG_ROOM, &body, sizeof(body), deadline_ns, &reply);
        if (rc == CAIRN_E_POOL_FULL)
            ctx->stats.fulls++;
        if (rc != CAIRN_E_AGAIN)
            return rc;
        ctx->stats.agains++;
        uint64_t until = txn_now(ctx) + txn_backoff_ns(ctx, tries);
        if (until >= deadline_ns)
            return cn_fail(CAIRN_E_TIMEOUT, "node %u (%s): makes no room in a bucket in time",
                peer->node, peer->address);
        txn_pause(ctx, until);
    }
}
