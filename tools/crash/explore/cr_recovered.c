/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_recovered.c: what a check may ask of a recovered state: the value of a key, by a walk through
 * the index as a coordinator takes it (bucket by a guess, then by the depth that it says), over the
 * bytes of the pool.
 */
#include "tools/crash/explore/cr_explore.h"

#define HOPS_MAX 128u

static const struct pm_index *find_index(const struct pm_store *store, uint32_t table)
{
    for (uint32_t id = 1; id <= pm_store_index_count(store); id++) {
        const struct pm_index *index = pm_store_index_by_id(store, id);
        if (index != NULL && index->table == table)
            return index;
    }
    return NULL;
}

/* Offset of a bucket; 0: its chunk does not exist. */
static uint64_t bucket_off(
    const struct pm_pool *pool, const struct pm_index *index, uint64_t number)
{
    uint64_t per_chunk = pm_chunk_size(pool) / PM_BUCKET_SIZE, chunk;

    if (number / per_chunk >= index->map_max)
        return 0;
    chunk = pm_load64(&pool->pm, index->off + PM_INDEX_MAP_OFF + 8 * (number / per_chunk));
    return chunk == 0 ? 0 : chunk + number % per_chunk * PM_BUCKET_SIZE;
}

static int find_bucket(const struct pm_pool *pool, const struct pm_index *index, uint64_t hash,
    uint8_t *copy, struct pm_bucket_view *view)
{
    uint64_t number = pm_index_guess(hash, index->level, index->sweep);

    for (uint32_t hop = 0; hop < HOPS_MAX; hop++) {
        uint64_t off = bucket_off(pool, index, number);
        if (off != 0) {
            pm_read(&pool->pm, off, copy, PM_BUCKET_SIZE);
            pm_bucket_look(copy, off, pool->crc_seed, pool->tag, view);
        }
        if (off == 0 || view->seen == PM_SEEN_EMPTY) {
            if (number == 0)
                break;
            number = pm_bucket_parent(number);
            continue;
        }
        if (!view->body_good)
            break;
        if (pm_hash_number(hash, view->depth) == number)
            return 0;
        number = pm_hash_number(hash, view->depth);
    }
    return cn_fail(CAIRN_E_CORRUPT_BUCKET, "no whole bucket for a key of table %u", index->table);
}

int cr_recovered_get(struct cr_recovered *state, uint32_t at, uint32_t table, const void *key,
    size_t key_size, void *buf, size_t room, size_t *ret_size)
{
    CAIRN_ASSERT(at < state->count);
    const struct pm_pool *pool = state->pool[at];
    const struct pm_index *index = find_index(state->store[at], table);
    uint8_t copy[PM_BUCKET_SIZE] __attribute__((aligned(8)));
    struct pm_bucket_view bucket;

    if (index == NULL)
        return cn_fail(CAIRN_E_NOT_FOUND, "pool %u has no index of table %u", at, table);
    uint64_t hash = pm_index_hash(index, key, key_size);
    int rc = find_bucket(pool, index, hash, copy, &bucket);
    for (uint32_t k = 0; rc == 0 && k < PM_BUCKET_SLOTS; k++) {
        struct pm_slot_ref ref = pm_slot_ref_unpack(le64_get(bucket.slot[k]));
        struct pm_item_view item;
        uint32_t size = pm_class_size(ref.class_);
        if (le64_get(bucket.slot[k]) == 0 ||
            ref.fingerprint != pm_fingerprint(hash, index->fingerprint_bits) ||
            !cn_range_inside(ref.off, size, 0, pool->pm.size))
            continue;
        pm_item_look(pm_at(&pool->pm, ref.off), size, ref.off, pool->crc_seed, pool->tag, &item);
        if (item.seen != PM_SEEN_OK || item.hash != hash || item.key_size != key_size ||
            memcmp(item.key, key, key_size) != 0)
            continue;
        *ret_size = item.value_size;
        memcpy(buf, item.value, cn_min64(room, item.value_size));
        return 0;
    }
    return rc != 0 ? rc : cn_fail(CAIRN_E_NOT_FOUND, "no such key");
}
