/* SPDX-License-Identifier: BSD-3-Clause */
/* txn_part_internal.h: shared by txn_part.c, txn_apply.c and txn_damage.c only. */
#ifndef TXN_PART_INTERNAL_H
#define TXN_PART_INTERNAL_H

#include "txn/txn_part.h"

/* The one setter of an entry's state: keeps the slot's count of unresolved entries. */
void txn_part_set_state(
    struct txn_part_slot *slot, struct txn_entry *entry, enum txn_entry_state state);

/* Place of a sequence of the window, in use or not; NULL: no memory. */
struct txn_entry *txn_part_entry_at(
    struct txn_part *part, struct txn_part_slot *slot, uint64_t seq);
/* In the snapshot: marks whose records the scan did not find. Errors: -ENOMEM. */
CN_MUST_CHECK int txn_part_find_damaged(struct txn_part *part, struct txn_part_slot *slot);

#endif
