/* SPDX-License-Identifier: BSD-3-Clause */
/* rec_look.c: a read-only look at what a pool's rings hold (cairn inspect). Changes no byte. */
#include "recovery/rec_offline.h"
#include "txn/txn_part.h"

static void look_at_slot(
    struct txn_part *part, struct txn_part_slot *slot, const struct rec_look *look)
{
    uint32_t records = 0, unmarked = 0;
    if (slot->media.state != PM_SLOT_FREE && txn_part_scan(part, slot) != 0) {
        look->error(look->arg, CAIRN_E_CORRUPT_SLOT, cairn_last_error());
        return;
    }
    for (uint64_t seq = slot->media.position_seq + 1; seq <= slot->seq_max; seq++) {
        const struct txn_entry *entry = txn_part_find(part, slot, seq);
        if (entry == NULL || !entry->has_record)
            continue;
        records++;
        unmarked += entry->state == TXN_ENTRY_FOUND;
        struct rec_look_record record = {
            .record = entry->record,
            .marked = entry->state == TXN_ENTRY_COMMITTED,
            .applied = entry->state == TXN_ENTRY_APPLIED,
            .tombstone = entry->state == TXN_ENTRY_ABORTED,
        };
        look->record(look->arg, &slot->media, &record);
    }
    if (slot->damaged)
        look->error(look->arg, CAIRN_E_CORRUPT_RECORD, slot->broken_text);
    look->slot(look->arg, &slot->media, records, unmarked);
}

int rec_look_at(struct pm_pool *pool, const struct rec_look *look)
{
    struct txn_part part;
    struct pm_retired_table *retired = NULL;
    CAIRN_ASSERT(pool->pm.read_only);
    int error = txn_part_open(&part, pool, pool->pm.env);
    if (error != 0)
        return error;
    for (uint32_t i = 0; i < part.slot_count; i++)
        look_at_slot(&part, &part.slot[i], look);
    error = pm_retired_open(pool, &retired);
    if (error == 0) {
        for (const struct pm_retired *r = pm_retired_next(retired, NULL); r != NULL;
             r = pm_retired_next(retired, r))
            look->retired(look->arg, r);
        pm_retired_close(&retired);
    }
    txn_part_close(&part);
    return error;
}
