/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_purge.c: a retired epoch is forgotten when its verdicts are older than the configured time
 * *and* every node has said, after fencing that coordinator, that it holds no unresolved record of
 * it: a record that turned up later could never be decided. A node that is down delays the purge,
 * never skips it. One at a time; the table is large, and nothing waits for this.
 */
#include "recovery/rec_internal.h"

#define ASK_NS (200 * REC_MS)

static bool start(struct rec_node *node)
{
    uint64_t now_s = cn_wall_s(node->env);
    const struct pm_retired *oldest = NULL;
    for (const struct pm_retired *r = pm_retired_next(node->retired, NULL); r != NULL;
         r = pm_retired_next(node->retired, r))
        if (oldest == NULL || r->retired_s < oldest->retired_s)
            oldest = r;
    if (oldest == NULL || now_s < oldest->retired_s ||
        now_s - oldest->retired_s <= node->config->verdict_s)
        return false;
    uint32_t id = node->purge.id + 1;
    memset(&node->purge, 0, sizeof(node->purge));
    node->purge.active = true;
    node->purge.id = id;
    node->purge.slot = oldest->slot;
    node->purge.epoch = oldest->epoch;
    node->purge.owner = oldest->owner;
    return true;
}

/* Fence that coordinator here; true when none of its records is unresolved. */
static bool let_go(struct rec_node *node, const struct cn_uuid *owner)
{
    bool done = true;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        struct rec_slot *slot = &node->slot[i];
        const struct pm_slot *media = &slot->part->media;
        if (media->state == PM_SLOT_FREE || !cn_uuid_equal(&media->owner, owner))
            continue;
        if (rec_slot_fence(node, (uint16_t)i, false) != 0 || slot->part->unresolved != 0)
            done = false;
    }
    return done;
}

static void finish(struct rec_node *node)
{
    const struct pm_retired *r =
        pm_retired_find(node->retired, node->purge.slot, node->purge.epoch);
    node->purge.active = false;
    if (r != NULL)
        pm_retired_remove(node->retired, r);
}

void rec_purge_turn(struct rec_node *node)
{
    uint64_t now = rec_now(node);
    if (now < node->purge.next_ask_ns)
        return;
    node->purge.next_ask_ns = now + ASK_NS;
    if (!node->purge.active && !start(node)) {
        node->purge.next_ask_ns = now + 5 * ASK_NS;
        return;
    }
    bool all = let_go(node, &node->purge.owner);
    struct rd_purge_wire ask = {.coordinator = node->purge.owner};
    ask.epoch = le64_make(node->purge.epoch);
    ask.node = le16_make(node->id);
    for (uint32_t i = 0; i < node->config->node_count; i++) {
        struct rec_peer *peer = &node->peer[i];
        if (peer->config->id == node->id || node->purge.acknowledged[i])
            continue;
        all = false;
        (void)rec_peer_send(node, peer, RD_MSG_PURGE, node->purge.id, &ask, sizeof(ask));
    }
    if (all)
        finish(node);
}

void rec_on_purge(struct rec_node *node, struct rec_guest *guest, uint32_t id,
    const struct rd_purge_wire *purge)
{
    bool done = let_go(node, &purge->coordinator);
    rec_reply(node, guest, RD_MSG_PURGE_REPLY, id, done ? 0 : CAIRN_E_AGAIN, NULL, 0);
}

void rec_on_purge_reply(
    struct rec_node *node, const struct rec_peer *peer, uint32_t id, uint32_t status)
{
    if (!node->purge.active || id != node->purge.id || status != 0)
        return;
    node->purge.acknowledged[peer - node->peer] = true;
}
