/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rec_slot.c: the life of a log slot.
 *
 *   FREE ──hand out──► OPEN ──fence──► CLOSED ──all passed, final state kept──► FREE
 *
 * A slot is handed out again when its ring's memory is out of every earlier peer's reach
 * (quarantine, emu only) and, unless its owner closed cleanly, after a whole scrub pass begun
 * since: (tag, slot) must name one owner of a lock word for as long as such a word may exist.
 */
#include "recovery/rec_internal.h"

#include <errno.h>

#include "include/internal/cn_mutant.h"

#define PROBE_NS (50 * REC_MS)

static void refuse(struct rec_node *node, struct rec_guest *guest, int error, const char *text)
{
    struct rd_refusal_wire refusal;
    rd_wire_make_refusal(&refusal, error, text);
    if (rd_reject(guest->link.conn, &refusal, sizeof(refusal)) != 0)
        cn_log(node->env, CN_LOG_WARNING, "refusal not sent: %s",
            cairn_last_error());
    guest->link.conn = NULL; /* rd_reject() deleted it */
    guest->doomed = true;
}

/* Its owner may have left locks, and no whole scrub pass has begun and ended since. */
static bool waits_for_pass(const struct rec_node *node, const struct rec_slot *slot)
{
    return slot->wait_pass && !CN_MUTANT(n_reuse_without_scrub) &&
        pm_scrub_passes(node->store) < slot->reuse_pass;
}

static bool is_reusable(const struct rec_node *node, const struct rec_slot *slot)
{
    return slot->part->media.state == PM_SLOT_FREE && !slot->quarantined && !slot->stuck &&
        slot->guest == NULL && !waits_for_pass(node, slot);
}

static struct rec_slot *find_free(struct rec_node *node, bool *ret_waiting)
{
    *ret_waiting = false;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        struct rec_slot *slot = &node->slot[i];
        if (is_reusable(node, slot)) {
            bool busy = false;
            if (rd_ring_revoke(slot->ring, &busy) == 0 && !busy)
                return slot;
            slot->quarantined = true;
        }
        if (slot->part->media.state != PM_SLOT_OPEN)
            *ret_waiting = true;
    }
    return NULL;
}

/* A session that connects anew does not get rid of its old queue pairs by that: cut them first. */
static void fence_same_owner(struct rec_node *node, const struct cn_uuid *owner)
{
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        const struct pm_slot *media = &node->slot[i].part->media;
        if (media->state == PM_SLOT_OPEN && cn_uuid_equal(&media->owner, owner) &&
            rec_slot_fence(node, (uint16_t)i, false) != 0)
            cn_log(node->env, CN_LOG_ERROR, "slot %u: %s", i, cairn_last_error());
    }
}

/* New epoch, nonce, owner and position, durable before anybody knows of them. */
static void renew(struct rec_node *node, struct rec_slot *slot, const struct rd_hello_wire *hello)
{
    struct txn_part_slot *part = slot->part;
    struct pm_slot *media = &part->media;

    CAIRN_ASSERT(part->unresolved == 0);
    media->epoch++;
    do
        media->nonce = cn_random64(node->env);
    while (media->nonce == 0);
    media->owner = hello->peer;
    media->view = le32_get(hello->view);
    media->position_seq = 0;
    media->position_off = 0;
    media->closing_seq = 0;
    media->closed_s = 0;
    media->incarnation = node->pool->incarnation;
    media->tombstone_count = 0;
    media->state = PM_SLOT_OPEN;
    part->next_off = 0;
    part->seq_max = 0;
    part->retry_count = 0;
    part->broken = false;
    txn_part_store(&node->part, part, CN_STEP_s_handout);
    pm_slot_publish(node->pool, media);
}

void rec_make_welcome(
    const struct rec_node *node, const struct rec_slot *slot, struct rd_welcome_wire *w)
{
    const struct pm_super *super = &node->pool->super;
    uint64_t low = UINT64_MAX, high = 0;

    for (uint32_t i = 0; i < node->extent_count; i++) {
        low = cn_min64(low, node->extent[i]->pool_off);
        high = cn_max64(high, node->extent[i]->pool_off + node->extent[i]->size);
    }
    memset(w, 0, sizeof(*w));
    w->magic = le32_make(RD_WIRE_MAGIC);
    w->version = le16_make(RD_WIRE_VERSION);
    w->node = le16_make(node->id);
    w->pool = super->pool;
    w->incarnation = le64_make(node->pool->incarnation);
    w->view = le32_make(node->config->view);
    w->durability = (uint8_t)node->durability;
    if (slot == NULL)
        return;
    const struct pm_slot *media = &slot->part->media;
    w->slot_epoch = le64_make(media->epoch);
    w->nonce = le64_make(media->nonce);
    w->ring_off = le64_make(pm_ring_off(node->pool, media->number));
    w->ring_size = le64_make(super->geometry.ring_size);
    w->position_off = le64_make(pm_ring_off(node->pool, media->number) + RD_CACHE_LINE);
    w->pool_size = le64_make(super->pool_size);
    w->extent_off = le64_make(low);
    w->extent_end = le64_make(high);
    w->window = le32_make(super->geometry.window);
    w->slot = le16_make(media->number);
    w->tag = le16_make(node->pool->tag);
    w->lease_ms = le32_make(node->config->lease_ms);
    w->chunk_shift = (uint8_t)super->geometry.chunk_shift;
    w->bytes_max = le32_make(
        (uint32_t)cn_min64(PM_RECORD_SIZE_MAX, super->geometry.ring_size / 2 / 64 * 64));
}

/* No slot: because all are in use, because ended ones are still being cleared, or because the final
 * states of ended ones cannot be kept any more. */
static void refuse_full(struct rec_node *node, struct rec_guest *guest, bool waiting)
{
    char text[128];
    int error = waiting ? CAIRN_E_AGAIN : CAIRN_E_SLOTS;

    node->scrub_wanted = true;
    if (node->retired_full) {
        error = CAIRN_E_SLOTS;
        (void)snprintf(text, sizeof(text),
            "node %u: its table of kept verdicts is full (too many sessions within %u s)", node->id,
            node->config->verdict_s);
    } else if (waiting)
        (void)snprintf(text, sizeof(text),
            "node %u: log slots of ended coordinators are being cleared, try again", node->id);
    else
        (void)snprintf(text, sizeof(text),
            "node %u: all %u log slots are in use; raise options.slots of a new pool", node->id,
            node->part.slot_count - 1);
    refuse(node, guest, error, text);
}

void rec_slot_hand_out(
    struct rec_node *node, struct rec_guest *guest, const struct rd_hello_wire *hello)
{
    bool waiting;
    fence_same_owner(node, &hello->peer);
    struct rec_slot *slot = find_free(node, &waiting);
    if (slot == NULL) {
        refuse_full(node, guest, waiting);
        return;
    }
    struct rd_welcome_wire welcome;
    renew(node, slot, hello);
    slot->wait_pass = false;
    slot->guest = guest;
    guest->slot = slot->part->media.number;
    rec_make_welcome(node, slot, &welcome);
    int error = rd_ring_rearm(slot->ring);
    if (error == 0)
        error = rd_accept(guest->link.conn, node->extent, node->extent_count, slot->ring, &welcome,
            sizeof(welcome));
    if (error != 0) {
        cn_log(node->env, CN_LOG_WARNING, "slot %u: not handed out: %s", guest->slot,
            cairn_last_error());
        rec_guest_drop(node, guest);
    }
}

/* Cut the peer's access; afterwards the ring's contents are decided by a snapshot. */
static int cut(struct rec_slot *slot)
{
    bool busy = false;
    if (slot->guest != NULL && slot->guest->link.conn != NULL) {
        int error = rd_fence(slot->guest->link.conn);
        if (error != 0)
            return error;
    }
    int error = rd_ring_revoke(slot->ring, &busy);
    slot->quarantined = busy;
    return error;
}

/* Repeatable: what is there already is kept. Without memory now, there may be some later. */
static int seal(struct rec_node *node, struct rec_slot *slot)
{
    int error = CN_MUTANT(n_no_fence) ? 0 : cut(slot);
    cn_step(node->env, CN_STEP_s_fence_cut);
    if (error == 0)
        error = txn_part_scan(&node->part, slot->part);
    if (error == 0)
        error = txn_part_seal(&node->part, slot->part);
    slot->stuck = error != 0;
    slot->seal_again = error == -ENOMEM;
    return error;
}

int rec_slot_fence(struct rec_node *node, uint16_t number, bool clean)
{
    struct rec_slot *slot = &node->slot[number];
    if (slot->stuck)
        return cn_fail(CAIRN_E_LIMIT, "slot %u could not be sealed", number);
    if (slot->part->media.state != PM_SLOT_OPEN)
        return 0;
    int error = seal(node, slot);
    if (slot->guest != NULL) {
        slot->guest->slot = 0;
        slot->guest->doomed = !CN_MUTANT(n_no_fence);
        slot->guest = NULL;
    }
    if (CN_MUTANT(n_grants_at_fence))
        pm_heap_release_slot(node->store, number);
    slot->wait_pass = !clean;
    node->stats.fences++;
    if (error != 0)
        return cn_fail_context(error, "slot %u cannot be sealed: ", number);
    cn_log(node->env, clean ? CN_LOG_DEBUG : CN_LOG_INFO,
        "slot %u epoch %llu closed %s: position %llu, closing sequence %llu", number,
        (unsigned long long)slot->part->media.epoch, clean ? "by its owner" : "by a fence",
        (unsigned long long)slot->part->media.position_seq,
        (unsigned long long)slot->part->media.closing_seq);
    return 0;
}

/* Every record is passed: keep the final state for the verdict time, then the slot is free. */
static uint32_t retire(struct rec_node *node, struct rec_slot *slot)
{
    struct pm_slot *media = &slot->part->media;
    if (slot->stuck || !txn_part_is_drained(slot->part))
        return 0;
    int error = pm_retired_add(node->retired, media, cn_wall_s(node->env));
    if (error != 0) {
        node->retired_full = true; /* until verdicts expire; the slot stays closed */
        return 0;
    }
    pm_heap_release_slot(node->store, media->number);
    media->state = PM_SLOT_FREE;
    txn_part_store(&node->part, slot->part, CN_STEP_s_free);
    /* Passes until now have left the slot's words alone (T10); one may be under way. */
    slot->reuse_pass = pm_scrub_passes(node->store) + 2;
    return 1;
}

static uint32_t probe(struct rec_node *node, struct rec_slot *slot)
{
    bool busy = true;
    if (!slot->quarantined || rd_ring_revoke(slot->ring, &busy) != 0 || busy)
        return 0;
    slot->quarantined = false;
    slot->reuse_pass = pm_scrub_passes(node->store) + 2;
    return 1;
}

static uint32_t seal_again(struct rec_node *node, struct rec_slot *slot)
{
    if (!slot->seal_again || seal(node, slot) != 0)
        return 0;
    cn_log(node->env, CN_LOG_INFO, "slot %u: sealed after all", slot->part->media.number);
    return 1;
}

uint32_t rec_slot_turn(struct rec_node *node)
{
    uint32_t changed = 0;
    uint64_t now = rec_now(node);
    bool probing = now >= node->next_probe_ns;
    bool waiting = false;

    if (probing)
        node->next_probe_ns = now + PROBE_NS;
    node->retired_full = false;
    for (uint32_t i = 1; i < node->part.slot_count; i++) {
        struct rec_slot *slot = &node->slot[i];
        enum pm_slot_state state = slot->part->media.state;
        if (state == PM_SLOT_OPEN && !slot->stuck &&
            (slot->part->broken || txn_part_tombstones_near_end(&node->part, slot->part))) {
            if (slot->part->broken)
                cn_log(node->env, CN_LOG_ERROR, "coordinator cut off: %s", slot->part->broken_text);
            if (rec_slot_fence(node, (uint16_t)i, false) != 0)
                cn_log(node->env, CN_LOG_ERROR, "%s", cairn_last_error());
            changed++;
        } else if (state == PM_SLOT_CLOSED) {
            changed += retire(node, slot);
        }
        if (probing)
            changed += probe(node, slot) + seal_again(node, slot);
        waiting = waiting ||
            (slot->part->media.state == PM_SLOT_FREE && !slot->quarantined &&
                waits_for_pass(node, slot));
    }
    node->scrub_wanted = waiting;
    return changed;
}

bool rec_slot_may_free(void *arg, uint16_t number)
{
    struct rec_node *node = arg;
    if (number == 0 || number >= node->part.slot_count)
        return false;
    const struct rec_slot *slot = &node->slot[number];
    if (CN_MUTANT(n_free_words_at_applied))
        return slot->part->media.state != PM_SLOT_OPEN;
    return !slot->stuck &&
        (slot->part->media.state == PM_SLOT_FREE || txn_part_is_drained(slot->part));
}
