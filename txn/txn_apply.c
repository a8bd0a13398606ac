/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_apply.c: the apply loop: committed records become objects, in batches that share their
 * fences.
 *
 * Order, for every record of a batch, and what a power failure finds (pmem/STORE.md):
 *   a_found     the record is durable: nothing is stored for one that could vanish (R11)
 *   a_body      its objects are durable; before, replay stores them again
 *   a_applied   its state says applied; only now locks may go (R8)
 *   a_release   its lock words are durable; before, the release is done again at start (R9)
 *   a_position  the ring may be reused up to it (R10)
 * Old blocks become free between a_release's stores and a_position (T6).
 */
#include "include/internal/cn_mutant.h"
#include "txn/txn_part.h"
#include "txn/txn_part_internal.h"

#define AHEAD 8u /* records whose objects are on their way into the cache */

static void reject(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    cn_log(part->env, CN_LOG_ERROR, "slot %u sequence %llu is set aside: %s", slot->media.number,
        (unsigned long long)entry->seq, cairn_last_error());
    (void)snprintf(slot->broken_text, sizeof(slot->broken_text), "slot %u, sequence %llu: %.100s",
        slot->media.number, (unsigned long long)entry->seq, cairn_last_error());
    slot->broken = true;
    part->stats.rejected++;
    txn_part_set_state(slot, entry, TXN_ENTRY_REJECTED);
}

/* Add what a slot has to the batch. */
static void gather_slot(struct txn_part *part, struct txn_part_slot *slot)
{
    uint64_t seq = cn_max64(slot->next_apply, slot->media.position_seq + 1);

    for (; part->batch_count < TXN_BATCH_MAX && seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL ||
            (entry->state != TXN_ENTRY_COMMITTED && entry->state != TXN_ENTRY_APPLIED))
            continue;
        part->batch[part->batch_count].slot = slot;
        part->batch[part->batch_count].entry = entry;
        part->batch_count++;
    }
    slot->next_apply = seq <= slot->seq_max ? seq : UINT64_MAX;
}

/* In order of slots, but that none waits for ever behind others that are always full. */
static void gather(struct txn_part *part)
{
    uint32_t i = part->turn;

    part->batch_count = 0;
    for (uint32_t n = 1; n < part->slot_count && part->batch_count < TXN_BATCH_MAX; n++) {
        struct txn_part_slot *slot = &part->slot[i];
        if (slot->count[TXN_ENTRY_COMMITTED] + slot->count[TXN_ENTRY_APPLIED] != 0)
            gather_slot(part, slot);
        i = i + 1 < part->slot_count ? i + 1 : 1;
    }
    if (part->batch_count == TXN_BATCH_MAX)
        part->turn = i;
}

static void persist_found(struct txn_part *part)
{
    bool any = false;
    for (uint32_t i = 0; i < part->batch_count; i++) {
        struct txn_entry *entry = part->batch[i].entry;
        if (entry->persisted || CN_MUTANT(n_apply_unpersisted))
            continue;
        pm_slot_flush_log(part->pool, part->batch[i].slot->media.number, entry->record.log_off,
            entry->record.size);
        entry->persisted = true;
        any = true;
    }
    if (any)
        pm_fence(&part->pool->pm, CN_STEP_a_found);
}

/* Also behind a fence: only a crash can leave a body half stored. */
static enum pm_apply_mode mode_of(const struct txn_part *part, const struct txn_part_slot *slot)
{
    return slot->media.incarnation == part->pool->incarnation ? PM_APPLY_LIVE : PM_APPLY_REPLAY;
}

/* Its objects lie anywhere: fetched while the ones before it are worked on. */
static void look_ahead(const struct txn_part *part, uint32_t i)
{
    if (i < part->batch_count && part->batch[i].entry->state == TXN_ENTRY_COMMITTED)
        pm_apply_prefetch(part->store, &part->batch[i].entry->record);
}

/* Each record is checked right before its body is stored, so that it sees what the one before it
 * did. */
static void store_bodies(struct txn_part *part)
{
    for (uint32_t i = 0; i < AHEAD; i++)
        look_ahead(part, i);
    for (uint32_t i = 0; i < part->batch_count; i++) {
        struct txn_part_slot *slot = part->batch[i].slot;
        struct txn_entry *entry = part->batch[i].entry;
        look_ahead(part, i + AHEAD);
        if (entry->state != TXN_ENTRY_COMMITTED)
            continue;
        if (pm_apply_check(
                part->store, &entry->record, slot->media.number, mode_of(part, slot)) != 0)
            reject(part, slot, entry);
        else
            pm_apply_body(part->store, &entry->record);
    }
    if (!CN_MUTANT(n_no_body_fence))
        pm_fence(&part->pool->pm, CN_STEP_a_body);
}

static bool is_going(const struct txn_entry *entry)
{
    return entry->state == TXN_ENTRY_COMMITTED || entry->state == TXN_ENTRY_APPLIED;
}

static void release_early(struct txn_part *part)
{
    if (!CN_MUTANT(n_release_before_applied))
        return;
    for (uint32_t i = 0; i < part->batch_count; i++)
        if (is_going(part->batch[i].entry))
            pm_apply_release(part->store, &part->batch[i].entry->record);
}

/* In runs: eight states share a line. */
static void set_applied(struct txn_part *part)
{
    for (uint32_t i = 0, run; i < part->batch_count; i += run) {
        const struct txn_part_slot *slot = part->batch[i].slot;
        uint64_t seq = part->batch[i].entry->seq;
        run = 1;
        if (!is_going(part->batch[i].entry))
            continue;
        while (i + run < part->batch_count && part->batch[i + run].slot == slot &&
            part->batch[i + run].entry->seq == seq + run &&
            is_going(part->batch[i + run].entry))
            run++;
        pm_slot_set_applied_run(part->pool, &slot->media, seq, run);
    }
    if (!CN_MUTANT(n_no_applied_fence))
        pm_fence(&part->pool->pm, CN_STEP_a_applied);
}

static void release(struct txn_part *part)
{
    for (uint32_t i = 0; i < part->batch_count; i++)
        if (is_going(part->batch[i].entry) &&
            !(CN_MUTANT(n_no_redo_release) && part->batch[i].entry->state == TXN_ENTRY_APPLIED))
            pm_apply_release(part->store, &part->batch[i].entry->record);
    for (uint32_t i = 0; i < part->batch_count; i++) {
        struct txn_entry *entry = part->batch[i].entry;
        if (!is_going(entry))
            continue;
        pm_apply_done(part->store, &entry->record, part->batch[i].slot->media.number);
        txn_part_set_state(part->batch[i].slot, entry, TXN_ENTRY_RELEASED);
        part->stats.applied++;
    }
    if (!CN_MUTANT(n_no_release_fence))
        pm_fence(&part->pool->pm, CN_STEP_a_release);
}

/* Pass every entry at the head of the window that is done. True if the position moved. */
static bool advance(struct txn_part *part, struct txn_part_slot *slot)
{
    bool moved = false;
    /* It is about to be fenced; until then the window stays, so that all its gaps find room. */
    if (slot->media.state == PM_SLOT_OPEN && txn_part_tombstones_near_end(part, slot))
        return false;
    for (;;) {
        struct txn_entry *entry = txn_part_find(part, slot, slot->media.position_seq + 1);
        if (CN_MUTANT(n_position_skips) && entry != NULL && entry->state == TXN_ENTRY_FOUND &&
            slot->seq_max > entry->seq)
            txn_part_set_state(slot, entry, TXN_ENTRY_DROPPED);
        if (entry == NULL ||
            (entry->state != TXN_ENTRY_RELEASED && entry->state != TXN_ENTRY_DROPPED))
            return moved;
        slot->media.position_seq++;
        if (entry->has_record)
            slot->media.position_off = cn_max64(slot->media.position_off, entry->end_off);
        txn_part_set_state(slot, entry, TXN_ENTRY_NONE);
        moved = true;
    }
}

/* A fence must lie between two stores of one header. */
static void settle_copies(struct txn_part *part)
{
    if (part->copies_pending)
        pm_fence(&part->pool->pm, CN_STEP_a_position);
    part->copies_pending = false;
}

/* Headers in one copy, the persist point, then the other copy; that one rides on the next fence. */
static void store_positions(struct txn_part *part)
{
    for (uint32_t i = 1; i < part->slot_count; i++) {
        struct txn_part_slot *slot = &part->slot[i];
        if (!slot->moved)
            continue;
        pm_slot_store(part->pool, &slot->media);
        if (CN_MUTANT(n_publish_before_position))
            pm_slot_publish(part->pool, &slot->media);
    }
    pm_fence(&part->pool->pm, CN_STEP_a_position);
    for (uint32_t i = 1; i < part->slot_count; i++) {
        struct txn_part_slot *slot = &part->slot[i];
        if (!slot->moved)
            continue;
        pm_slot_store(part->pool, &slot->media);
        if (slot->media.state == PM_SLOT_OPEN)
            pm_slot_publish(part->pool, &slot->media);
    }
    part->copies_pending = true;
}

static uint32_t advance_all(struct txn_part *part)
{
    uint32_t moved = 0;
    for (uint32_t i = 1; i < part->slot_count; i++) {
        struct txn_part_slot *slot = &part->slot[i];
        slot->moved = slot->entry != NULL && advance(part, slot);
        moved += slot->moved;
    }
    if (moved == 0)
        return 0;
    settle_copies(part);
    store_positions(part);
    return moved;
}

uint32_t txn_part_apply(struct txn_part *part)
{
    gather(part);
    if (part->batch_count != 0) {
        part->stats.batches++;
        persist_found(part);
        store_bodies(part);
        release_early(part);
        set_applied(part);
        release(part);
        part->copies_pending = false; /* these fences covered them */
    }
    return part->batch_count + advance_all(part);
}
