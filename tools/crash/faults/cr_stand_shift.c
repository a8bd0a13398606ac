/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_stand_shift.c: looks at and changes of a stand's insides that the public interfaces do not
 * give: numbers that take years, or gigabytes of log, to come to.
 */
#include "recovery/rec_internal.h"
#include "tools/crash/faults/cr_stand.h"
#include "txn/txn_ctx.h"

/* Assumes: no transaction is open, the node is quiet. Both sides count from the same place then. */
void cr_stand_shift(struct cairn_ctx *ctx, uint32_t at, struct rec_node *node,
    const struct cr_stand_start *start)
{
    struct txn_peer *peer = &ctx->peer[at];
    struct txn_part_slot *part = node->slot[peer->slot].part;
    uint64_t seq = start->seq != 0 ? start->seq : peer->seq;
    uint64_t log_off = start->log_off != 0 ? start->log_off : peer->log_off;

    CAIRN_ASSERT(peer->state == TXN_PEER_UP && part->unresolved == 0);
    CAIRN_ASSERT(part->media.position_seq == peer->seq && part->next_off == peer->log_off);
    peer->seq = peer->done = peer->position_seq = seq;
    peer->log_off = peer->position_off_log = log_off;
    part->media.position_seq = part->seq_max = seq;
    part->media.position_off = part->next_off = log_off;
    txn_part_store(&node->part, part, CN_STEP_a_position);
    pm_slot_publish(node->pool, &part->media);
}

static void flush_nothing(const void *addr, size_t size)
{
    (void)addr;
    (void)size;
}

static void drain_nothing(void)
{
}

static uint64_t no_time(void *arg)
{
    (void)arg;
    return 1;
}

int cr_stand_look(const struct cr_stand *stand, uint8_t *bytes, struct pm_pool *ret)
{
    static const struct cn_env env = {.now_ns = no_time, .wall_s = no_time};
    struct pm pm = {.base = bytes, .size = stand->pool_size, .flush_lines = flush_nothing,
        .drain = drain_nothing, .env = &env};

    return pm_attach(ret, &pm, stand->super_off);
}
