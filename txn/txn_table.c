/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_table.c: where a table's index is at a node, and its chunk map. Both are dropped when the
 * node's incarnation changes (T9). The map's entries are set once on media, so a cached one is
 * right; the guess (level, sweep) is a hint that every bucket read corrects.
 */
#include "txn/txn_ctx.h"

static int read_root(struct cairn_tx *tx, struct txn_peer *peer, uint64_t root_off,
    uint64_t deadline_ns, struct pm_index *ret)
{
    struct cairn_ctx *ctx = peer->ctx;
    struct txn_batch batch = {0};
    int status;

    if (root_off % 64 != 0 ||
        !cn_range_inside(
            root_off, PM_INDEX_MAP_OFF, peer->extent_off, peer->extent_end - peer->extent_off))
        return cn_fail(CAIRN_E_PROTOCOL, "node %u (%s): names an index root outside its pool",
            peer->node, peer->address);
    tx->scratch_used = 0;
    void *bytes = txn_scratch(tx, PM_INDEX_MAP_OFF);
    (void)txn_post_read(peer, &batch, &status, root_off, bytes, PM_INDEX_MAP_OFF);
    int rc = txn_wait_trip(ctx, &batch, deadline_ns);
    if (rc != 0)
        return ctx->lost != 0 ? txn_lost_error(ctx) : txn_peer_fail(peer, rc);
    rc = pm_index_look(bytes, root_off, peer->crc_seed, ret);
    return rc == 0 ? 0 : txn_peer_fail(peer, rc);
}

int txn_table_need(struct cairn_tx *tx, struct txn_peer *peer, uint32_t table,
    struct txn_index **ret_index)
{
    struct cairn_ctx *ctx = peer->ctx;
    const struct txn_config *config = ctx->cluster->config;
    uint64_t deadline = txn_op_deadline(ctx);
    struct rd_table_wire body = {.table = le16_make((uint16_t)table), .shard = le16_make(peer->at)};
    struct txn_request reply;
    struct pm_index read;
    uint32_t t = txn_config_table_at(config, table);

    if (t == config->table_count)
        return cn_fail(CAIRN_E_NO_TABLE, "no table with id %u in %s", table, config->path);
    struct txn_index *index = &ctx->index[peer->at * config->table_count + t];
    *ret_index = index;
    if (CN_LIKELY(index->known && index->incarnation == peer->incarnation))
        return 0;
    for (uint32_t tries = 0;; tries++) {
        ctx->stats.round_trips++;
        int rc = txn_ask(peer, RD_MSG_TABLE, &body, sizeof(body), deadline, &reply);
        if (rc == 0)
            break;
        uint64_t until = txn_now(ctx) + txn_backoff_ns(ctx, tries + 4);
        if (rc != CAIRN_E_AGAIN || until >= deadline)
            return rc;
        txn_pause(ctx, until);
    }
    uint64_t root = le64_get(reply.body.table.root_off);
    uint32_t id = le32_get(reply.body.table.index);
    int rc = read_root(tx, peer, root, deadline, &read);
    if (rc != 0)
        return rc;
    if (index->known && index->incarnation == peer->incarnation)
        return 0; /* another transaction has asked, too */
    if (read.index != id || read.table != table || read.shard != peer->at)
        return cn_fail(CAIRN_E_CORRUPT_INDEX,
            "node %u (%s): root at %llu is not of table %u shard %u", peer->node, peer->address,
            (unsigned long long)root, table, peer->at);
    index->root = read;
    index->incarnation = peer->incarnation;
    index->edition = ++ctx->editions;
    index->known = true;
    return 0;
}

static struct txn_map_entry *map_set(
    struct txn_peer *peer, const struct txn_index *index, uint64_t entry)
{
    uint64_t h = cn_mix64(entry ^ (uint64_t)index->root.index << 32 ^ (uint64_t)peer->at << 48);

    return &peer->ctx->map[h % TXN_MAP_SETS];
}

uint64_t txn_map_get(struct txn_peer *peer, const struct txn_index *index, uint64_t entry)
{
    const struct txn_map_entry *m = map_set(peer, index, entry);

    if (m->chunk == 0 || m->entry != entry || m->index != index->root.index ||
        m->peer != peer->at || m->incarnation != peer->incarnation)
        return 0;
    return m->chunk;
}

void txn_map_set(
    struct txn_peer *peer, const struct txn_index *index, uint64_t entry, uint64_t chunk)
{
    *map_set(peer, index, entry) = (struct txn_map_entry){
        .chunk = chunk,
        .incarnation = peer->incarnation,
        .index = index->root.index,
        .entry = (uint32_t)entry,
        .peer = peer->at,
    };
}

/*
 * Correct the guess by the bucket that turned out to cover a hash. Not split where the guess said
 * split: the sweep has not come so far. Split where the guess said not: it has, or this bucket
 * split early; to believe a single early one would make the guess wrong for all buckets between, so
 * it takes two in a row.
 */
void txn_index_learn(struct txn_index *index, uint64_t number, uint32_t depth)
{
    struct pm_index *r = &index->root;
    uint32_t guess = pm_hash_number(number, r->level) < r->sweep ? r->level + 1 : r->level;

    if (depth > PM_DEPTH_MAX || depth < r->depth0)
        return;
    if (depth <= guess || ++index->ahead == 2) {
        index->ahead = 0;
        if (depth == guess)
            return;
        r->level = depth < guess ? depth : depth - 1;
        r->sweep = depth < guess ? number : pm_hash_number(number, r->level) + 1;
        if (r->sweep >= UINT64_C(1) << r->level) {
            r->level++;
            r->sweep = 0;
        }
    }
}
