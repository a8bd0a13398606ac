/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txn_cache.h: the location cache of a cluster handle: key -> where its item was last seen.
 * Everything in it is a hint: the item proves itself when it is read. Of fixed
 * size, shared by all contexts; lookups are wait-free, nothing allocates, locks or makes a system
 * call after open. Any thread (what does not fit its lines is in a liburcu table, whose flavour
 * needs no registration of threads).
 */
#ifndef TXN_CACHE_H
#define TXN_CACHE_H

#include "include/internal/cn_base.h"

struct txn_cache;

struct txn_hint {
    uint64_t item;        /* pool offset, 0: the key was last seen absent */
    uint64_t version;     /* of the item's word */
    uint64_t bucket;      /* pool offset of the home bucket, 0: not known */
    uint64_t bucket_version;
    uint32_t item_size;   /* bytes of header, key and value: how much to read */
    uint8_t class_;
};

/* `entries`, rounded up to a power of two and at least 16: so many keys have room; twice and a
 * quarter as many at most. */
CN_MUST_CHECK int txn_cache_open(uint32_t entries, struct txn_cache **ret_cache);
void txn_cache_close(struct txn_cache **cache);
/*
 * `incarnation` of the node: an entry made under another one is not found (T9). `hash` is the
 * index's keyed hash of the key; two keys of one (node, table) with equal hashes share an entry,
 * which the read finds out.
 */
bool txn_cache_find(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, struct txn_hint *ret_hint);
/* txn_cache_find() will come soon: its memory may be fetched meanwhile. */
void txn_cache_hint(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash);
void txn_cache_put(struct txn_cache *cache, uint16_t node, uint64_t incarnation, uint32_t table,
    uint64_t hash, const struct txn_hint *hint);
void txn_cache_drop(struct txn_cache *cache, uint16_t node, uint32_t table, uint64_t hash);
uint32_t txn_cache_count(const struct txn_cache *cache);

#endif
