/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fz_cache.c: in place of txn_cache.c (the linker wraps its functions): the real one frees by a
 * thread and waits for it at the end, which is slow and no input's decision. Empty at each opening.
 */
#include "txn/txn_cache.h"

#define ENTRIES 64u

struct txn_cache {
    struct {
        bool used;
        uint16_t node;
        uint32_t table;
        uint64_t incarnation, hash;
        struct txn_hint hint;
    } entry[ENTRIES];
};

static struct txn_cache the_cache;

int __wrap_txn_cache_open(uint32_t entries, struct txn_cache **ret_cache);
void __wrap_txn_cache_close(struct txn_cache **cache);
bool __wrap_txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, struct txn_hint *ret_hint);
void __wrap_txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, const struct txn_hint *hint);
void __wrap_txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash);
uint32_t __wrap_txn_cache_count(const struct txn_cache *cache);

int __wrap_txn_cache_open(uint32_t entries CN_UNUSED, struct txn_cache **ret_cache)
{
    memset(&the_cache, 0, sizeof(the_cache));
    *ret_cache = &the_cache;
    return 0;
}

void __wrap_txn_cache_close(struct txn_cache **cache)
{
    *cache = NULL;
}

bool __wrap_txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, struct txn_hint *ret_hint)
{
    uint64_t i = cn_mix64(hash) % ENTRIES;

    if (!cache->entry[i].used || cache->entry[i].node != node || cache->entry[i].table != table ||
        cache->entry[i].incarnation != incarnation || cache->entry[i].hash != hash)
        return false;
    *ret_hint = cache->entry[i].hint;
    return true;
}

void __wrap_txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, const struct txn_hint *hint)
{
    uint64_t i = cn_mix64(hash) % ENTRIES;

    cache->entry[i].used = true;
    cache->entry[i].node = node;
    cache->entry[i].table = table;
    cache->entry[i].incarnation = incarnation;
    cache->entry[i].hash = hash;
    cache->entry[i].hint = *hint;
}

void __wrap_txn_cache_drop(struct txn_cache *cache, uint16_t node CN_UNUSED,
    uint32_t table CN_UNUSED, uint64_t hash)
{
    cache->entry[cn_mix64(hash) % ENTRIES].used = false;
}

uint32_t __wrap_txn_cache_count(const struct txn_cache *cache)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < ENTRIES; i++)
        count += cache->entry[i].used;
    return count;
}
