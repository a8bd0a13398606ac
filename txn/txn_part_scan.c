/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_part_scan.c: the scan of a whole ring, at start and for a fence, and the seal that ends its
 * slot's epoch.
 *
 * A scan reads what nobody writes any more: a snapshot, or, where no peer's process can reach the
 * ring's memory, the ring itself. Then records are not copied: entries point into the ring, which
 * stays as it is until the slot is handed out again, and that waits until all entries are passed.
 * Each record is checked once. What it says is acted on only behind the fence s_fence_found (R11).
 */
#include <errno.h>

#include "include/internal/cn_mutant.h"
#include "txn/txn_part_internal.h"

#define MARK_OFF offsetof(struct pm_record_pm, mark)

struct scan {
    struct txn_part *part;
    struct txn_part_slot *slot;
    const uint8_t *ring;
    bool still; /* `ring` is the ring itself */
    uint64_t now_ns;
};

/* What the epoch's durable words say of a found record (R12: tombstones first). */
static void classify(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry)
{
    if (entry->state != TXN_ENTRY_FOUND)
        return;
    if (pm_slot_has_tombstone(part->pool, &slot->media, entry->seq) &&
        !CN_MUTANT(n_records_before_tombstones))
        txn_part_set_state(slot, entry, TXN_ENTRY_ABORTED);
    else if (pm_slot_is_applied(part->pool, &slot->media, entry->seq))
        txn_part_set_state(slot, entry, TXN_ENTRY_APPLIED);
    else if (txn_part_is_alone(entry) ||
        (pm_mark_is_set(&slot->media, entry->seq, le64_get(entry->record.head->mark)) &&
            entry->record.type == PM_RECORD_TX))
        txn_part_set_state(slot, entry, TXN_ENTRY_COMMITTED);
}

/* Its lines need not be searched for marks of lost records. */
static void cover(struct txn_part *part, const struct txn_entry *entry)
{
    uint64_t line = entry->record.log_off % part->pool->super.geometry.ring_size / PM_RECORD_ALIGN;
    uint32_t left = entry->record.size / PM_RECORD_ALIGN;

    while (left > 0) {
        uint32_t bit = line % 64, count = (uint32_t)cn_min64(left, 64 - bit);
        part->covered[line / 64] |= (count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1)
            << bit;
        line += count;
        left -= count;
    }
}

static void settle(struct scan *scan, struct txn_entry *entry)
{
    struct txn_part *part = scan->part;

    cover(part, entry);
    classify(part, scan->slot, entry);
    if (!part->pool->pm.read_only)
        pm_slot_flush_log(part->pool, scan->slot->media.number, entry->record.log_off,
            entry->record.size);
}

static int scan_found(void *arg, const struct pm_record *record)
{
    struct scan *scan = arg;
    struct txn_entry *entry = txn_part_entry_at(scan->part, scan->slot, record->seq);

    if (entry == NULL)
        return -ENOMEM;
    if (entry->state != TXN_ENTRY_NONE)
        return 0; /* known since it was polled */
    if (!scan->still && !txn_part_grow_copy(entry, record->size))
        return -ENOMEM;
    entry->record = *record;
    if (!scan->still) {
        memcpy(entry->copy, record->head, record->size);
        pm_record_move(&entry->record, entry->copy);
    }
    txn_part_take(scan->part, scan->slot, entry, scan->now_ns);
    settle(scan, entry);
    return 0;
}

/* Entries that were polled before: their marks may have come in since. */
static void look_again(struct scan *scan)
{
    struct txn_part_slot *slot = scan->slot;
    uint64_t ring_size = scan->part->pool->super.geometry.ring_size;

    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        struct txn_entry *entry = txn_part_find(scan->part, slot, seq);
        if (entry == NULL || !entry->has_record)
            continue;
        if (entry->record.head == (const void *)entry->copy)
            memcpy(entry->copy + MARK_OFF,
                scan->ring + entry->record.log_off % ring_size + MARK_OFF, sizeof(uint64_t));
        settle(scan, entry);
    }
}

/* Behind the fence: what was found may be acted on. Errors: CAIRN_E_LIMIT. */
static int accept_found(struct txn_part *part, struct txn_part_slot *slot)
{
    uint64_t last = txn_part_in_use(slot) == 0 ? 0 : slot->seq_max;

    for (uint64_t seq = slot->media.position_seq + 1; seq <= last; seq++) {
        struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL)
            continue;
        entry->persisted = true;
        if (entry->state == TXN_ENTRY_FOUND && entry->record.type == PM_RECORD_VOID &&
            !part->pool->pm.read_only) {
            int error = txn_part_abort(part, slot, entry);
            if (error != 0)
                return error;
        }
    }
    return 0;
}

static int scan_ring(struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring,
    bool still)
{
    struct scan scan = {part, slot, ring, still, cn_now_ns(part->env)};
    bool known = txn_part_in_use(slot) != 0;
    int error;

    memset(part->covered, 0,
        (part->pool->super.geometry.ring_size / PM_RECORD_ALIGN / 64 + 1) * sizeof(uint64_t));
    error = pm_slot_scan(part->pool, &slot->media, ring, scan_found, &scan);
    if (error == 0 && known)
        look_again(&scan);
    if (error == 0)
        error = txn_part_find_damaged(part, slot, ring);
    if (error != 0)
        return cn_fail(error, "slot %u: scan of the log ring failed", slot->media.number);
    if (!part->pool->pm.read_only)
        pm_fence(&part->pool->pm, CN_STEP_s_fence_found);
    return accept_found(part, slot);
}

int txn_part_scan(struct txn_part *part, struct txn_part_slot *slot)
{
    pm_slot_snapshot(part->pool, slot->media.number, part->snapshot);
    return scan_ring(part, slot, part->snapshot, false);
}

int txn_part_scan_still(struct txn_part *part, struct txn_part_slot *slot)
{
    return scan_ring(part, slot,
        pm_at(&part->pool->pm, pm_slot_log_at(part->pool, slot->media.number, 0)), true);
}

/* A sequence that was taken and is not in the ring: nobody can log it any more. */
static int add_gap(struct txn_part *part, struct txn_part_slot *slot, uint64_t seq)
{
    struct txn_entry *entry = txn_part_entry_at(part, slot, seq);
    if (entry == NULL)
        return cn_fail(-ENOMEM, "slot %u: no memory for its entries", slot->media.number);
    int error = pm_slot_add_tombstone(part->pool, &slot->media, seq);
    if (error != 0)
        return error;
    CAIRN_ASSERT(entry->state == TXN_ENTRY_NONE);
    entry->seq = seq;
    entry->has_record = false;
    entry->persisted = true;
    entry->doubt = NULL;
    txn_part_set_state(slot, entry, TXN_ENTRY_DROPPED);
    part->stats.tombstones++;
    return 0;
}

int txn_part_seal(struct txn_part *part, struct txn_part_slot *slot)
{
    if (slot->media.state == PM_SLOT_OPEN) {
        slot->media.state = PM_SLOT_CLOSED;
        slot->media.closing_seq = slot->seq_max;
        slot->media.closed_s = cn_wall_s(part->env);
    }
    bool whole = slot->seq_max == slot->media.closing_seq &&
        slot->media.closing_seq - slot->media.position_seq == txn_part_in_use(slot);
    for (uint64_t seq = slot->media.position_seq + 1; !whole && seq <= slot->media.closing_seq;
         seq++) {
        if (txn_part_find(part, slot, seq) != NULL || CN_MUTANT(n_no_gap_tombstones))
            continue;
        int error = add_gap(part, slot, seq);
        if (error != 0)
            return error;
    }
    slot->seq_max = slot->media.closing_seq;
    txn_part_store(part, slot, CN_STEP_s_fence_closed);
    return 0;
}
