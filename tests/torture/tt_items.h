/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_items.h: a table of many small items, for the measurements: key i is the 8 bytes of
 * cn_mix64(i), values are 64 bytes that say i.
 */
#ifndef TT_ITEMS_H
#define TT_ITEMS_H

#include "tests/torture/tt_cluster.h"

#define TT_ITEM_VALUE_SIZE 64u

static inline uint64_t tt_item_key(uint64_t i)
{
    return cn_mix64(i + 1);
}
/* Insert items first .. first + count - 1, per_tx in a transaction. `progress` (may be NULL,
 * atomic) is how many are in. Returns 0 or the error, said on stderr. */
int tt_items_insert(struct cairn_ctx *ctx, uint64_t first, uint64_t count, uint32_t per_tx,
    uint64_t *progress);
/* 0: there, and the value is right; CAIRN_E_CORRUPT_ITEM: another value. */
int tt_item_check(struct cairn_tx *tx, uint64_t i);
/* The pool size for so many items, as text for the configuration. */
void tt_items_pool_size(uint64_t items, char text[32]);

#endif
