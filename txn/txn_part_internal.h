/* SPDX-License-Identifier: BSD-3-Clause */
/* txn_part_internal.h: shared by txn_part.c, txn_part_scan.c, txn_apply.c and txn_damage.c only. */
#ifndef TXN_PART_INTERNAL_H
#define TXN_PART_INTERNAL_H

#include "txn/txn_part.h"

/* The one setter of an entry's state: keeps the slot's count of unresolved entries. */
void txn_part_set_state(
    struct txn_part_slot *slot, struct txn_entry *entry, enum txn_entry_state state);

/* Place of a sequence of the window, in use or not; NULL: no memory. */
struct txn_entry *txn_part_entry_at(
    struct txn_part *part, struct txn_part_slot *slot, uint64_t seq);
/* Room for a private copy of a record. False: no memory. */
bool txn_part_grow_copy(struct txn_entry *entry, uint32_t size);
/* Its record was checked: the entry is in use from here, FOUND. */
void txn_part_take(struct txn_part *part, struct txn_part_slot *slot, struct txn_entry *entry,
    uint64_t now_ns);
/* Committed without a mark: the record's only participant is this node. */
bool txn_part_is_alone(const struct txn_entry *entry);
/* In a ring that was scanned, where no record covers it (part->covered): marks whose records the
 * scan did not find. Errors: -ENOMEM. */
CN_MUST_CHECK int txn_part_find_damaged(
    struct txn_part *part, struct txn_part_slot *slot, const uint8_t *ring);

/* Entries in use. */
static inline uint32_t txn_part_in_use(const struct txn_part_slot *slot)
{
    uint32_t sum = 0;
    for (uint32_t i = TXN_ENTRY_NONE + 1; i < TXN_ENTRY_STATES; i++)
        sum += slot->count[i];
    return sum;
}

#endif
