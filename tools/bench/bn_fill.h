/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bn_fill.h: what loads share before and after the measured time: initial rows put, and rows read
 * at known keys, both with as many transactions in flight as the load has.
 */
#ifndef BN_FILL_H
#define BN_FILL_H

#include "tools/bench/bn_load.h"

#define BN_FILL_INFLIGHT_MAX 64u
#define BN_FILL_TX_MS 60000u /* one of its transactions may take so long */

/* Put all that belongs to unit `index` of what is filled; it may run again. */
typedef int (*bn_put_fn)(struct cairn_tx *tx, const struct bn_load *load, uint64_t index);
struct bn_fill {
    const char *what; /* plural: "accounts" */
    uint64_t count;   /* units */
    uint32_t per_tx;  /* units in a transaction */
    bn_put_fn put;
};
/* Errors: those of `put` and of the transactions. */
CN_MUST_CHECK int bn_fill(
    const struct bn_load *load, struct cairn_ctx *ctx, const struct bn_fill *fill);

#define BN_SCAN_KEY_MAX 32u
#define BN_SCAN_PER_TX 64u
struct bn_scan {
    const char *what;
    uint64_t count;
    uint32_t table, key_size, value_size_max;
    void (*key)(const void *arg, uint64_t index, uint8_t *ret_key);
    /* In ascending order, once for each index, what its transaction has read; `value` NULL: there
     * is no such key. Not 0 ends the scan. */
    int (*take)(void *arg, uint64_t index, const void *value, size_t value_size);
    void *arg;
};
/* Errors: those of `take` and of the transactions; CAIRN_E_STATE (a value is too long), -ENOMEM. */
CN_MUST_CHECK int bn_scan(
    const struct bn_load *load, struct cairn_ctx *ctx, const struct bn_scan *scan);

/* Bytes of a pool that a key takes with its share of the index. */
uint64_t bn_item_bytes(uint32_t key_size, uint32_t value_size);

/* Big-endian integers: keys sort as their numbers do. */
static inline void bn_put_be32(uint8_t *to, uint32_t value)
{
    value = htobe32(value);
    memcpy(to, &value, sizeof(value));
}
static inline void bn_put_be64(uint8_t *to, uint64_t value)
{
    value = htobe64(value);
    memcpy(to, &value, sizeof(value));
}

#endif
