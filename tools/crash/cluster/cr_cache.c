/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cr_cache.c: a location cache with one entry per place of a table, and the hint before the last.
 */
#include "tools/crash/cluster/cr_cache.h"
#include "txn/txn_cache.h"

#define ENTRIES 512u

struct entry {
    uint16_t node;
    uint32_t table;
    uint64_t incarnation, hash;
    uint32_t hints; /* 0: empty; 2: `older` is set too */
    struct txn_hint newest, older;
};
struct txn_cache { struct entry entry[ENTRIES]; };

int __wrap_txn_cache_open(uint32_t entries, struct txn_cache **ret_cache);
void __wrap_txn_cache_close(struct txn_cache **cache);
bool __wrap_txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, struct txn_hint *ret_hint);
void __wrap_txn_cache_hint(
    struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash);
void __wrap_txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, const struct txn_hint *hint);
void __wrap_txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash);
uint32_t __wrap_txn_cache_count(const struct txn_cache *cache);

static struct sim *user;

void cr_cache_use(struct sim *sim)
{
    user = sim;
}

int __wrap_txn_cache_open(uint32_t entries, struct txn_cache **ret_cache)
{
    (void)entries;
    *ret_cache = sim_calloc(1, sizeof(**ret_cache));
    return 0;
}

void __wrap_txn_cache_close(struct txn_cache **cache)
{
    sim_free(*cache);
    *cache = NULL;
}

static struct entry *place(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    return &cache->entry[cn_mix64(hash ^ (uint64_t)node << 32 ^ table) % ENTRIES];
}

static bool matches(const struct entry *e, uint16_t node, uint32_t table, uint64_t hash)
{
    return e->hints > 0 && e->node == node && e->table == table && e->hash == hash;
}

bool __wrap_txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, struct txn_hint *ret_hint)
{
    struct entry *e = place(cache, node, table, hash);
    uint32_t mood = user != NULL && !user->calm ? sim_choose(user, "cache", 32) : 9;

    if (!matches(e, node, table, hash) || e->incarnation != incarnation || mood == 0)
        return false;
    *ret_hint = mood == 1 && e->hints > 1 ? e->older : e->newest;
    return true;
}

void __wrap_txn_cache_hint(
    struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    (void)cache;
    (void)node;
    (void)table;
    (void)hash;
}

void __wrap_txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation,
    uint32_t table, uint64_t hash, const struct txn_hint *hint)
{
    struct entry *e = place(cache, node, table, hash);

    if (matches(e, node, table, hash) && e->incarnation == incarnation) {
        e->older = e->newest;
        e->hints = 2;
    } else {
        e->hints = 1;
    }
    e->node = node;
    e->table = table;
    e->incarnation = incarnation;
    e->hash = hash;
    e->newest = *hint;
}

void __wrap_txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash)
{
    struct entry *e = place(cache, node, table, hash);

    if (matches(e, node, table, hash))
        e->hints = 0;
}

uint32_t __wrap_txn_cache_count(const struct txn_cache *cache)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < ENTRIES; i++)
        n += cache->entry[i].hints > 0;
    return n;
}
