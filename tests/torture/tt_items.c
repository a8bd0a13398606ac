/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tt_items.c: see tt_items.h.
 */
#include "tests/torture/tt_items.h"

#define BYTES_PER_ITEM 448u /* block, bucket share, and space that growth leaves behind */
#define FIXED_BYTES (UINT64_C(160) << 20)
#define INSERT_TIMEOUT_MS 30000u

struct batch {
    uint64_t first, count;
};

static void fill_value(uint64_t i, uint64_t value[TT_ITEM_VALUE_SIZE / 8])
{
    for (uint64_t w = 0; w < TT_ITEM_VALUE_SIZE / 8; w++)
        value[w] = i * 31 + w;
}

static int insert_batch(struct cairn_tx *tx, void *arg)
{
    const struct batch *b = arg;
    uint64_t value[TT_ITEM_VALUE_SIZE / 8];
    int r = 0;

    for (uint64_t i = b->first; i < b->first + b->count && r == 0; i++) {
        const uint64_t key = tt_item_key(i);
        fill_value(i, value);
        r = cairn_put(tx, TT_TABLE_LISTS, &key, sizeof(key), value, sizeof(value));
    }
    return r;
}

int tt_items_insert(struct cairn_ctx *ctx, uint64_t first, uint64_t count, uint32_t per_tx,
    uint64_t *progress)
{
    for (uint64_t done = 0; done < count;) {
        struct batch b = {first + done, cn_min64(per_tx, count - done)};
        const int r = cairn_run(ctx, insert_batch, &b, INSERT_TIMEOUT_MS, NULL);
        if (r != 0) {
            (void)fprintf(stderr, "insert of %llu at %llu: %s: %s\n", (unsigned long long)b.count,
                (unsigned long long)b.first, cairn_error_name(r), cairn_last_error());
            return r;
        }
        done += b.count;
        if (progress != NULL)
            __atomic_store_n(progress, first + done, __ATOMIC_RELEASE);
    }
    return 0;
}

int tt_item_check(struct cairn_tx *tx, uint64_t i)
{
    uint64_t value[TT_ITEM_VALUE_SIZE / 8], want[TT_ITEM_VALUE_SIZE / 8];
    const uint64_t key = tt_item_key(i);
    size_t size = 0;
    const int r = cairn_get(tx, TT_TABLE_LISTS, &key, sizeof(key), value, sizeof(value), &size);

    if (r != 0)
        return r;
    fill_value(i, want);
    if (size != sizeof(value) || memcmp(value, want, sizeof(want)) != 0)
        return CAIRN_E_CORRUPT_ITEM;
    return 0;
}

void tt_items_pool_size(uint64_t items, char text[32])
{
    (void)snprintf(text, 32, "%lluM",
        (unsigned long long)((items * BYTES_PER_ITEM + FIXED_BYTES) >> 20));
}
